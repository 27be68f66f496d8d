#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "simulation/scheduler.h"
#include "simulation/steps.h"

namespace hyperloop::simulation {
namespace {

constexpr uint64_t kGrowth = 512 << 10;  // bytes

std::string BytesOf(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

void Steps::Inspect(int replica) {
  const AsProcess as(Scheduler::Get().NewProcess());
  Say("somebody inspects replica " + std::to_string(replica));
  const bool member = Recorded(replica) >= std::max(history_.epoch(), uint64_t{1});
  History history = history_;
  const Result<World::View> view = world_.Look(replica, AnyHost());
  if (!view.ok()) return Say("it cannot be reached: " + view.status().ToString());
  const Result<NodeStatus> status = view->node->Check();
  const Result<RegionImage> image = view->node->Snapshot();
  if (!status.ok() || !image.ok()) return Say("it cannot be read");
  if (!member) return;
  if (!status->log_error.empty() || !status->damage.empty())
    Wrong(World::NameOf(replica) + " looks damaged: " + status->log_error +
          (status->damage.empty() ? "" : status->damage.front()));
  history.GoesOnAs(history_);
  if (const std::string wrong = WrongAlone(image->bytes(), history); !wrong.empty())
    Wrong(World::NameOf(replica) + ", read while a primary serves: " + wrong);
}

void Steps::ChangeKey(const std::string& host) {
  if (!world_.keyed()) return;
  Say(host + " gets a new key");
  world_.ChangeKey(host);
}

void Steps::Export(int replica) {
  const AsProcess as(Scheduler::Get().NewProcess());
  Say("replica " + std::to_string(replica) + " is exported");
  const std::string directory = world_.folder() + "/exported";
  const Result<ExportReport> report = world_.Export(replica, AnyHost(), directory);
  if (!report.ok()) return Wrong("an export failed: " + report.status().ToString());
  const std::string log = BytesOf(directory + "/" + kLog);
  std::string wrong = history_.Look(log);
  if (wrong.empty()) wrong = history_.LookCurrent(BytesOf(directory + "/" + kCurrent));
  for (const uint64_t table : TablesNamedBy(log))
    if (BytesOf(directory + "/" + NameOfTable(table)) != BytesOfTable(table))
      wrong = NameOfTable(table) + " is missing, or has other bytes";
  if (!wrong.empty()) Wrong("in the export of " + World::NameOf(replica) + ": " + wrong);
  std::filesystem::remove_all(directory);
}

void Steps::Resize() {
  const std::set<int> all = sets_.All();
  const uint64_t size = world_.region_size() + kGrowth;
  std::set<int> first;
  for (const int each : all) {
    world_.Kill(each);
    if (Below(2) == 0) first.insert(each);
  }
  Say("the pools of replicas " + ListOf(first).Text() + " get larger regions");
  world_.Resize(first, size);
  if (!first.empty() && first.size() < all.size()) {
    Heal();
    std::this_thread::sleep_for(kRnicOpens);
    const AsProcess as(Scheduler::Get().NewProcess());
    const Status refused = TryOpen(1 - host_, {ListOf(all), true, Below(2) == 0}).status();
    if (refused.code() != Code::kInvalidArgument)
      Wrong("a group of regions of two sizes is opened: " + refused.ToString());
    for (const int each : all) world_.Kill(each);
  }
  Say("the pools of all get larger regions");
  world_.Resize(all, size);
  world_.ResizePrimaries(size);
  Heal();
  std::this_thread::sleep_for(kRnicOpens);
}

}  // namespace hyperloop::simulation
