#include <map>
#include <utility>

#include "log/file_table.h"
#include "log/redo.h"
#include "simulation/scheduler.h"
#include "simulation/trial.h"

namespace hyperloop::simulation {

void Trial::CheckDurable(const ReplicaList& list, uint64_t epoch) {
  for (const int each : list.replicas) {
    if (!world_.up(each) || Recorded(each) != epoch) continue;
    const Result<NodeState> durable = ReadNodeState(world_.durable_page(each));
    if (!durable.ok() || durable->installed.epoch != epoch)
      Wrong(World::NameOf(each) + " serves epoch " + std::to_string(epoch) +
            ", which is not on its medium");
  }
}

void Trial::CheckMembersAlone() {
  Configuration newest;
  for (int i = 0; i < world_.count(); ++i) {
    if (!world_.exists(i)) continue;
    test::EmbeddedReplica::Durable left = world_.Left(i);
    const Result<NodeState> state = ReadNodeState(left.node_page);
    if (!state.ok()) return Wrong(World::NameOf(i) + ": " + state.status().ToString());
    if (state->installed.epoch > newest.epoch) newest = state->installed;
    if (state->installed.epoch < std::max(history_.epoch(), uint64_t{1})) continue;
    if (const std::string wrong = WrongAlone(left.region); !wrong.empty())
      Wrong(World::NameOf(i) + " alone, of epoch " + std::to_string(state->installed.epoch) + ": " +
            wrong);
  }
  CheckRecorded(newest);
}

void Trial::CheckRecorded(const Configuration& newest) {
  std::set<int> recorded;
  for (const Configuration::Replica& each : newest.All())
    for (int i = 0; i < world_.count(); ++i)
      if (world_.AddressOf(i) == each.address) recorded.insert(i);
  if (newest.epoch == 0 || sets_.Has(recorded)) return;
  Wrong("the newest configuration, of epoch " + std::to_string(newest.epoch) + ", has replicas " +
        ReplicaList{{recorded.begin(), recorded.end()}}.Text() + ", and none may have these");
}

std::string Trial::WrongAlone(std::span<std::byte> image, const History& history) {
  const Result<RegionInfo> info = ParseSuperblock(image, image.size());
  if (!info.ok()) return info.status().ToString();
  if (const auto log = Redo(image, *info); !log.ok()) return log.status().ToString();
  const Result<FileTable> table = FileTable::Load(image, *info);
  if (!table.ok()) return table.status().ToString();
  std::map<std::string, std::string> contents;
  for (const FileInfo& file : table->List()) {
    if (file.lane != Lane::kLog) continue;
    std::string& content = contents[file.name];
    content.resize(file.size);
    table->ReadBytes(image, *info, SlotOf(file.id), 0, content);
  }
  const std::string wrong = history.Look(contents[kLog]);
  return wrong.empty() ? history.LookCurrent(contents[kCurrent]) : wrong;
}

bool Trial::Holds(const ReplicaList& list) {
  std::set<uint64_t> epochs;
  for (const int each : list.replicas) {
    if (!world_.up(each)) return false;
    const Result<NodeState> state = ReadNodeState(world_.node_page(each));
    if (!state.ok() || state->installed.replicas.size() != list.replicas.size()) return false;
    epochs.insert({state->installed.epoch, state->sealed_epoch});
  }
  return epochs.size() == 1;
}

void Trial::TryFormerSet() {
  const std::vector<std::set<int>> former = sets_.Former();
  if (former.empty() || !sets_.known()) return;
  const std::set<int> set = former[Below(former.size())];
  MustNotServe({{set.begin(), set.end()}}, Below(2) == 0);
}

void Trial::MustNotServe(const ReplicaList& list, bool leaves_out) {
  // Fresh replicas are another group.
  if (std::ranges::none_of(list.replicas, [this](int i) { return Recorded(i) != 0; })) return;
  Say("somebody opens the group by replicas " + list.Text());
  const AsProcess as(Scheduler::Get().NewProcess());
  if (TryOpen(1 - host_, {list, true, leaves_out}).ok())
    Wrong("replicas " + list.Text() + " serve, while others are the group");
}

uint64_t Trial::Recorded(int replica) {
  const Result<NodeState> state = ReadNodeState(world_.PageOf(replica));
  return state.ok() ? state->installed.epoch : 0;
}

bool Trial::Settled() {
  const std::set<int> all = sets_.All();
  return sets_.known() && Holds({{all.begin(), all.end()}}) && HoldAllTables();
}

bool Trial::HoldAllTables() {
  if (!writer_.leave) return HeldByAll() == tables_.named();
  return std::ranges::all_of(sets_.All(), [this](int each) {
    const std::set<WholeFile> files = world_.FilesOfReplica(each);
    const std::set<std::string> in_region = NamesInRegion(each);
    return std::ranges::all_of(tables_.named(), [&](uint64_t table) {
      return files.contains(FileOfTable(table)) || in_region.contains(NameOfTable(table));
    });
  });
}

std::set<std::string> Trial::NamesInRegion(int replica) {
  std::set<std::string> names;
  test::EmbeddedReplica::Durable left = world_.Left(replica);
  const Result<RegionInfo> info = ParseSuperblock(left.region, left.region.size());
  if (!info.ok() || !Redo(left.region, *info).ok()) return names;
  const Result<FileTable> table = FileTable::Load(left.region, *info);
  if (!table.ok()) return names;
  for (const FileInfo& file : table->List())
    if (file.lane == Lane::kLog) names.insert(file.name);
  return names;
}

std::set<uint64_t> Trial::HeldByAll() const {
  std::set<uint64_t> held = tables_.named();
  for (const int each : sets_.All()) {
    const std::set<WholeFile> files = world_.FilesOfReplica(each);
    std::erase_if(held, [&](uint64_t table) { return !files.contains(FileOfTable(table)); });
  }
  return held;
}

void Trial::CheckTables() {
  if (!tables_.lacking().empty())
    Wrong("a primary was told that the replicas hold " + NameOfTable(*tables_.lacking().begin()) +
          ", which too few of them do");
}

void Trial::CheckPromises() {
  if (const std::string& broken = world_.promises().broken(); !broken.empty()) Wrong(broken);
}

}  // namespace hyperloop::simulation
