// Chaos: a real service over a real group goes through rounds of kills, stops, mistakes and damage.
// After each step everything acknowledged is there, what the service's threads read and wrote is
// linearizable, every refusal named its reason and a way out and changed nothing, and no member is
// worse than before.
//
// A round is a group of its own and a few actions in a row. HYPERLOOP_CHAOS_ROUNDS sets their
// number, HYPERLOOP_CHAOS_SEED what happens in them, HYPERLOOP_CHAOS_ONLY the actions to choose
// from (kill_writer,flip_data), HYPERLOOP_CHAOS_ROUND a single round. HYPERLOOP_CHAOS_KEEP=1 keeps
// the folder of a failed round.
//
// What every run must show does not depend on the draw and has tests of its own: a killed primary
// with each datapath, an RNIC that stands still, damaged local files.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "crash/chaos/actions.h"

namespace hyperloop::chaos {
namespace {

uint64_t Setting(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::vector<Action> ChosenActions() {
  const std::vector<Action> all = AllActions();
  const char* only = std::getenv("HYPERLOOP_CHAOS_ONLY");
  if (only == nullptr) return all;
  std::vector<Action> chosen;
  std::istringstream names(only);
  for (std::string name; std::getline(names, name, ',');) {
    const size_t before = chosen.size();
    for (const Action& action : all) {
      if (action.name == name) chosen.push_back(action);
    }
    EXPECT_EQ(chosen.size(), before + 1) << "no action is called " << name;
  }
  return chosen;
}

// The action of step `step`, counted over all rounds: every action comes once, in random order,
// before any comes again.
const Action& ActionOf(const std::vector<Action>& actions, uint64_t seed, uint64_t step) {
  std::vector<size_t> order(actions.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::mt19937_64 random(Mix(seed, step / order.size()));
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  return actions[order[step % order.size()]];
}

uint64_t Rounds() { return Setting("HYPERLOOP_CHAOS_ROUNDS", 4); }

struct Count {
  uint64_t times = 0, failed = 0, skipped = 0;
};

class ChaosTest : public testing::Test {
 protected:
  // Mounts of this test are private to it, and end with it.
  static void SetUpTestSuite() {
    if (unshare(CLONE_NEWNS) == 0) mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
  }

  void Round(uint64_t round) {
    World world(Mix(seed_, round));
    std::string last;
    for (uint64_t step = 0; step < steps_ && !world.failed(); ++step) {
      const Action& action = ActionOf(actions_, seed_, round * steps_ + step);
      last = action.name;
      RunOne(world, action);
      Count& count = counts_[action.name];
      ++count.times;
      if (!world.skipped().empty()) {
        ++count.skipped;
        std::printf("%s skipped: %s\n", action.name.c_str(), world.skipped().c_str());
        world.Skip("");
      }
      world.Settle();
    }
    acknowledged_ += world.model().acknowledged();
    undecided_ += world.model().undecided();
    shared_ += world.shared().judged();
    if (!world.failed()) return;
    ++counts_[last].failed;
    // The reason comes last: a long output is often cut at its beginning.
    ADD_FAILURE() << "what happened:\n"
                  << world.story() << "again: HYPERLOOP_CHAOS_SEED=" << seed_
                  << " HYPERLOOP_CHAOS_ROUND=" << round << Only()
                  << " build/tests/chaos_test --gtest_filter=*NothingAcknowledgedIsLost\n"
                  << "round " << round << ", " << last << ": " << world.failure();
  }

  static void RunOne(World& world, const Action& action) {
    world.Note("--- " + action.name);
    world.progress().failed.store(0);
    world.progress().pause_us.store(0);
    world.progress().archive.store(Archive::kNone);
    try {
      action.run(world);
    } catch (const std::exception& error) {  // of the standard library's file system
      world.Fail(error.what());
    }
  }

  void ExpectWhole(const World& world) const {
    if (!world.failed()) return;
    ADD_FAILURE() << "what happened:\n"
                  << world.story() << "HYPERLOOP_CHAOS_SEED=" << seed_ << ": " << world.failure();
  }

  void PrintCounts() const {
    for (const auto& [name, count] : counts_) {
      std::printf("%-24s %4llu times, %llu failed, %llu skipped\n", name.c_str(),
                  static_cast<unsigned long long>(count.times),
                  static_cast<unsigned long long>(count.failed),
                  static_cast<unsigned long long>(count.skipped));
    }
    std::printf("%llu writes acknowledged, %llu undecided; %llu operations on shared keys judged\n",
                static_cast<unsigned long long>(acknowledged_),
                static_cast<unsigned long long>(undecided_),
                static_cast<unsigned long long>(shared_));
  }

  static std::string Only() {
    const char* only = std::getenv("HYPERLOOP_CHAOS_ONLY");
    return only == nullptr ? "" : std::string(" HYPERLOOP_CHAOS_ONLY=") + only;
  }

  const uint64_t seed_ = Setting("HYPERLOOP_CHAOS_SEED", std::random_device()());
  const uint64_t steps_ = Setting("HYPERLOOP_CHAOS_STEPS", 3);
  const std::vector<Action> actions_ = ChosenActions();
  std::map<std::string, Count> counts_;
  uint64_t acknowledged_ = 0, undecided_ = 0, shared_ = 0;
};

TEST_F(ChaosTest, NothingAcknowledgedIsLost) {
  ASSERT_FALSE(actions_.empty());
  std::printf("seed: HYPERLOOP_CHAOS_SEED=%llu\n", static_cast<unsigned long long>(seed_));
  if (std::getenv("HYPERLOOP_CHAOS_ROUND") != nullptr) {
    Round(Setting("HYPERLOOP_CHAOS_ROUND", 0));
  } else {
    for (uint64_t round = 0; round < Rounds(); ++round) Round(round);
  }
  PrintCounts();
  // A thread does one for each four of its own writes.
  if (HasFailure()) return;
  EXPECT_GT(shared_, acknowledged_ / 8) << "too few to say anything";
}

// The actions that no run may leave out, because nothing at a lower height shows the same of real
// processes.
TEST_F(ChaosTest, AFrozenRnicAndDamagedLocalFilesLoseNothing) {
  World world(Mix(seed_, 1), Datapath::kOffload);
  for (const Action& action : AllActions()) {
    if (action.name != "kill_frozen_rnicd" && action.name != "damage_local_files") continue;
    RunOne(world, action);
    world.Settle();
  }
  ExpectWhole(world);
}

class KilledPrimaryTest : public ChaosTest, public testing::WithParamInterface<Datapath> {};
INSTANTIATE_TEST_SUITE_P(Datapaths, KilledPrimaryTest,
                         testing::Values(Datapath::kOffload, Datapath::kFanout,
                                         Datapath::kCpuPolling, Datapath::kCpuEvent),
                         [](const auto& param) {
                           std::string name(DatapathName(param.param));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// The first kill comes while RocksDB appends a value piece by piece, which leaves a log that ends
// within a record.
TEST_P(KilledPrimaryTest, EachReplicaAloneHasEveryAcknowledgedWrite) {
  World world(Mix(seed_, 2), GetParam());
  const uint64_t kills = std::max<uint64_t>(4, Rounds() / 2);
  uint64_t in_flight = 0;
  for (uint64_t kill = 0; kill < kills && !world.failed(); ++kill) {
    world.StartWriter();
    const bool writes = kill == 0
                            ? world.AwaitLargeWrite()
                            : world.AwaitPhase(Phase::kWriting) && world.AwaitAcknowledged(20);
    if (!writes) world.Fail("the service does not come to write: " + world.writer().output());
    LetRun(world, kill == 0 ? 10'000 : 60'000);
    world.KillWriter();
    const uint64_t undecided = world.model().undecided();
    world.CheckEachAlone();
    in_flight += world.model().undecided() > undecided ? 1 : 0;
  }
  world.Settle();
  ExpectWhole(world);
  EXPECT_GE(2 * in_flight, kills) << "too few kills hit a write in flight to prove anything";
}

// The negative control: the same check finds writes that were acknowledged and are on no replica.
TEST_F(ChaosTest, WritesPastTheLogAreMissed) {
  World world(Mix(seed_, 3), Datapath::kOffload);
  ASSERT_TRUE(world.StartWriting(20)) << world.failure();
  world.progress().without_log.store(1);
  ASSERT_TRUE(world.AwaitAcknowledged(50)) << world.writer().output();
  world.KillWriter();
  world.CheckEachAlone();
  EXPECT_NE(world.failure().find("keys are wrong"), std::string::npos) << world.failure();
}

}  // namespace
}  // namespace hyperloop::chaos
