#include "simulation/scenario.h"

#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "region/crc32c.h"
#include "simulation/scheduler.h"
#include "simulation/steps.h"
#include "support/ranges_in_use.h"
#include "support/regions.h"

namespace hyperloop::simulation {
namespace {

// One in so many runs is long.
constexpr uint64_t kRunsPerLong = 8;
constexpr uint64_t kMostSteps = 24, kMostOfShort = 4;
// An idle replica has checked its region by then.
constexpr std::chrono::seconds kChecksItself{15};

class Scenario final : private Steps {
 public:
  Scenario(uint64_t seed, const std::string& folder, std::shared_ptr<Log> log)
      : Steps(seed, folder, std::move(log)) {}
  Outcome Play();

 private:
  // Everything is well again: the group opens, holds what it promised, and goes on.
  void End();
  // The primary ends in order, and all replicas are equal then.
  void Finish();
  // Each replica gets all tables while the primary serves, and gives up all others.
  void AwaitTables();

  uint64_t faults_ = 0;
};

Outcome Scenario::Play() {
  OpenSoon();
  const uint64_t most = Below(kRunsPerLong) == 0 ? kMostSteps : kMostOfShort;
  for (uint64_t steps = 1 + Below(most); steps > 0 && wrong_.empty(); --steps) {
    std::this_thread::sleep_for(std::chrono::microseconds(Below(Below(2) == 0 ? 2000 : 3'000'000)));
    if (Below(2) == 0) {
      primary_->Hurry();
      std::this_thread::sleep_for(std::chrono::microseconds(Below(5000)));
    }
    ++faults_;
    Step();
    CheckTables();
    CheckPromises();
  }
  if (wrong_.empty()) End();
  if (wrong_.empty() && Below(3) == 0) GoOnByForce();
  CheckPromises();
  return {wrong_, history_.acknowledged(), faults_, 0, 0};
}

void Scenario::End() {
  Say("the end");
  Vanish(primary_);
  CheckMembersAlone();
  Heal();
  std::this_thread::sleep_for(kRnicOpens);
  // The directory is lost, if the replicas hold what it held.
  if (Settled() && Below(2) == 0) tables_.directory(host_).clear();
  OpenSoon();
  Finish();
  if (!wrong_.empty()) return;
  Export(AnyReplica());
  if (Below(3) != 0) return;
  Resize();
  OpenSoon();
  Finish();
}

void Scenario::Finish() {
  if (!wrong_.empty()) return;
  primary_->Stop();
  AwaitTables();
  if (const Status appended = primary_->AppendMany(history_); !appended.ok())
    return Wrong("an append to a group that is well failed: " + appended.ToString());
  if (const Status closed = primary_->Close(); !closed.ok())
    return Wrong("the last Close failed: " + closed.ToString());
  primary_.reset();
  const std::set<int> all = sets_.All();
  for (const int i : all)
    Scheduler::Get().Note(Crc32c(0, world_.region(i).data(), world_.region(i).size()));
  const std::span<const std::byte> first = world_.region(*all.begin());
  const std::vector<Range> in_use = test::RangesInUse(first);
  for (const int i : all)
    if (test::FirstDifference(first, world_.region(i), in_use).has_value())
      Wrong("replica " + std::to_string(i) + " differs from replica " +
            std::to_string(*all.begin()) + " at the end");
  std::map<int, uint64_t> passes;
  for (const int i : all) passes[i] = world_.scrub(i).passes();
  std::this_thread::sleep_for(kChecksItself);
  for (const int i : all)
    if (world_.scrub(i).passes() == passes[i] || world_.scrub(i).damaged())
      Wrong(World::NameOf(i) + " does not find its region sound at the end");
}

void Scenario::AwaitTables() {
  for (const int each : sets_.All()) {
    const auto differs = [this, each] {
      const auto listed = primary_->ListedTables();
      return !listed.ok() || world_.FilesOfReplica(each) != *listed;
    };
    // Two looks must agree: a table that was given up on its way may arrive after the first one. It
    // is dropped then.
    for (int looks = 1; differs() || differs(); ++looks) {
      if (looks > kMostOpens) {
        Wrong(World::NameOf(each) + " does not hold just the group's tables");
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    const auto listed = primary_->ListedTables();
    if (!listed.ok())
      return Wrong("the group does not say its tables: " + listed.status().ToString());
    for (const WholeFile& table : *listed)
      if (!world_.HoldsSound(each, table))
        Wrong(World::NameOf(each) + " holds " + table.name + " with other bytes");
  }
}

}  // namespace

Outcome Run(uint64_t seed, const std::string& folder, std::shared_ptr<Log> log) {
  Scheduler& scheduler = Scheduler::Get();
  scheduler.Begin(seed);
  const uint64_t begun = scheduler.Now();
  Outcome outcome;
  {
    Scenario scenario(seed, folder, std::move(log));
    outcome = scenario.Play();
  }
  outcome.trace = scheduler.trace();
  outcome.nanoseconds = scheduler.Now() - begun;
  return outcome;
}

}  // namespace hyperloop::simulation
