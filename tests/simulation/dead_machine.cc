// What is measured here by the simulated clock: for how long writes stop when the machine of one of
// three replicas is gone. It is silent: no connection breaks, and no link carries anything any
// more.
#include <algorithm>
#include <chrono>
#include <string>

#include "simulation/impossible.h"
#include "simulation/scenario.h"
#include "simulation/scheduler.h"
#include "simulation/world.h"

namespace hyperloop::simulation {
namespace {

using std::chrono::milliseconds;

constexpr size_t kReplicas = 3;
constexpr int kWrites = 100;  // before and after; a few may still be acknowledged by all
// docs/guarantees.md promises it for the default ack_timeout and a region that is hardly in use.
constexpr milliseconds kBound{3000};

class DeadMachine {
 public:
  DeadMachine(uint64_t seed, const std::string& folder, std::shared_ptr<Log> log)
      : random_(seed), world_(folder, random_, std::move(log), kReplicas) {
    StoreOptions& options = world_.options();
    const StoreOptions defaults;
    options.ack_timeout = defaults.ack_timeout;
    options.connect_timeout = defaults.connect_timeout;
    options.bulk_timeout = defaults.bulk_timeout;
    options.on_replica_failure = OnReplicaFailure::kContinue;
    options.wait = WaitMode::kEvent;
    options.datapath = random_() % 2 == 0 ? Datapath::kFanout : Datapath::kOffload;
  }

  Outcome Play() {
    const AsProcess primary(Scheduler::Get().NewProcess());
    Result<std::unique_ptr<Store>> store = world_.Open(kPrimaries[0], {{{0, 1, 2}}});
    MustBeOk(store.status());
    TakeResult taken;
    MustBeOk((*store)->Take({"/database", true, {}}, &taken));
    const Result<FileId> file = (*store)->Create("f");
    MustBeOk(file.status());
    Write(**store, *file);
    longest_ = {};
    const int gone = static_cast<int>(random_() % kReplicas);
    SetGone(gone, true);
    Write(**store, *file);
    SetGone(gone, false);  // a process that stands still would not end
    MustBeOk((*store)->Close());
    if (wrong_.empty() && longest_ > kBound) {
      wrong_ = "writes stopped for " + std::to_string(longest_.count()) +
               " ms after the machine of " + World::NameOf(gone) + " was gone";
    }
    return {wrong_, acknowledged_, 1, 0, static_cast<uint64_t>(longest_.count()) * 1'000'000};
  }

 private:
  void SetGone(int replica, bool gone) {
    const std::string name = World::NameOf(replica);
    world_.SetStopped(replica, gone);
    world_.fabric().SetCut(name, kPrimaries[0], gone);
    for (int other = 0; other < world_.count(); ++other)
      if (other != replica) world_.fabric().SetCut(name, World::NameOf(other), gone);
  }
  void Write(Store& store, FileId file) {
    for (int i = 0; i < kWrites && wrong_.empty(); ++i) {
      const uint64_t begun = Scheduler::Get().Now();
      const Result<AppendTicket> ticket = store.Append(file, "a line", Store::kAnyEnd);
      const Status written = ticket.ok() ? store.Await(*ticket) : ticket.status();
      const std::chrono::nanoseconds took(Scheduler::Get().Now() - begun);
      longest_ = std::max(longest_, std::chrono::ceil<milliseconds>(took));
      ++acknowledged_;
      if (!written.ok()) wrong_ = "a write failed: " + written.ToString();
    }
  }

  std::mt19937_64 random_;
  World world_;
  milliseconds longest_{0};  // that a write took
  uint64_t acknowledged_ = 0;
  std::string wrong_;
};

}  // namespace

Outcome RunDeadMachine(uint64_t seed, const std::string& folder, std::shared_ptr<Log> log) {
  Scheduler::Get().Begin(seed);
  Outcome outcome = DeadMachine(seed, folder, std::move(log)).Play();
  outcome.trace = Scheduler::Get().trace();
  return outcome;
}

}  // namespace hyperloop::simulation
