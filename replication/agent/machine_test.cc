// The machine by itself. machine_simulation_test.cc has several of them over a simulated group.
#include "agent/machine.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>
#include <vector>

namespace hyperloop::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kReplicas = 3;

std::string AddressOf(size_t replica) { return "r" + std::to_string(replica); }

// A machine by itself, at a group of three replicas that says what the test says.
class MachineTest : public testing::Test {
 protected:
  // Looks every interval, with the answers of so many replicas, for that time or until something is
  // to be done.
  Action Looks(milliseconds time, size_t answering = kReplicas) {
    for (const Time until = now_ + time; now_ < until;) {
      now_ += timing_.look_interval;
      Look look{now_, {}};
      for (size_t i = 0; i < answering; ++i) look.answers[AddressOf(i)] = says_[i];
      const Action action = machine_.OnLook(look, now_, /*random=*/0);
      if (action != Action::kNone) return action;
    }
    return Action::kNone;
  }
  // Each replica has a new heartbeat.
  void Beat(size_t replicas = kReplicas) {
    for (size_t i = 0; i < replicas; ++i) ++says_[i].heartbeat;
  }
  void Own(uint64_t epoch, bool ours) {
    for (SeenReplica& each : says_) {
      each.sealed = each.installed = epoch;
      each.owner = "owner " + std::to_string(epoch);
      each.named = ours;
      each.released = false;
    }
  }

  const Timing timing_;
  Machine machine_{timing_, kReplicas};
  Time now_{seconds(1000)};
  std::array<SeenReplica, kReplicas> says_ = [] {
    SeenReplica each;
    each.sealed = each.installed = each.heartbeat = 1;
    each.owner = "owner 1";
    each.members = {"r0", "r1", "r2"};
    return std::array{each, each, each};
  }();
};

TEST_F(MachineTest, TakesAGroupThatGivesNoSignOfLifeForFailoverTimeout) {
  for (int i = 0; i < 50; ++i) {
    Beat(1);  // one replica is enough
    ASSERT_EQ(Looks(timing_.failover_timeout - timing_.look_interval), Action::kNone);
  }
  Beat(1);
  ASSERT_EQ(Looks(timing_.look_interval), Action::kNone);
  const Time last = now_;
  EXPECT_EQ(Looks(seconds(10)), Action::kStart);
  EXPECT_EQ(now_, last + timing_.failover_timeout);
  EXPECT_EQ(machine_.state(), State::kTaking);
}

TEST_F(MachineTest, AGapInTheObservationBeginsItAnew) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(Looks(timing_.failover_timeout - 2 * timing_.look_interval), Action::kNone);
    now_ += 4 * timing_.look_interval;  // it stood still
  }
  EXPECT_EQ(Looks(seconds(10)), Action::kStart);
}

TEST_F(MachineTest, WithoutAMajorityNothingIsTaken) {
  EXPECT_EQ(Looks(seconds(100), 1), Action::kNone);
  EXPECT_EQ(machine_.state(), State::kLost);
  const auto configure = [this](std::vector<std::string> members, std::vector<std::string> absent) {
    for (SeenReplica& each : says_) each.members = members, each.absent = absent;
  };
  configure({"r0"}, {"r1", "r2"});
  EXPECT_EQ(Looks(seconds(100), 1), Action::kNone)
      << "all of the configuration's, and one of three";
  configure({"r2"}, {"r0", "r1"});
  EXPECT_EQ(Looks(seconds(100), 2), Action::kNone)
      << "two of three, and none of the configuration's";
  configure({"r1"}, {"r0", "r2"});
  EXPECT_EQ(Looks(seconds(100), 2), Action::kStart);
}

TEST_F(MachineTest, AReleasedGroupIsTakenAtOnce) {
  for (SeenReplica& each : says_) each.released = true;
  const Time began = now_;
  EXPECT_EQ(Looks(seconds(10)), Action::kStart);
  EXPECT_LE(now_ - began, timing_.look_interval);
}

TEST_F(MachineTest, IsPrimaryOnceEveryLeaseOfAPredecessorIsOver) {
  ASSERT_EQ(Looks(seconds(10)), Action::kStart);
  machine_.OnReady();
  Own(2, true);
  const Time sealed = now_;
  while (machine_.state() != State::kPrimary && now_ < sealed + seconds(10)) {
    Beat();
    ASSERT_EQ(Looks(timing_.look_interval), Action::kNone);
  }
  EXPECT_EQ(machine_.state(), State::kPrimary);
  EXPECT_GE(now_, sealed + timing_.lease);
}

TEST_F(MachineTest, ALeaseBeginsBeforeTheNewestHeartbeatAtAMajority) {
  for (SeenReplica& each : says_) each.released = true;
  ASSERT_EQ(Looks(seconds(10)), Action::kStart);
  machine_.OnReady();
  Own(2, true);
  ASSERT_EQ(Looks(timing_.look_interval), Action::kNone);
  EXPECT_EQ(machine_.lease_end(), Time::min()) << "no heartbeat was new";
  const Time before = now_;
  Beat();
  ASSERT_EQ(Looks(timing_.look_interval), Action::kNone);
  EXPECT_EQ(machine_.lease_end(), before + timing_.lease);
  Beat(1);
  ASSERT_EQ(Looks(timing_.look_interval), Action::kNone);
  EXPECT_EQ(machine_.lease_end(), before + timing_.lease) << "one replica is no majority";
  EXPECT_EQ(Looks(timing_.lease + timing_.isolation_timeout), Action::kKill);
}

TEST_F(MachineTest, AnAgentThatStoodStillDoesNotEndItsService) {
  for (SeenReplica& each : says_) each.released = true;
  ASSERT_EQ(Looks(seconds(10)), Action::kStart);
  machine_.OnReady();
  Own(2, true);
  const auto serve = [&] {
    for (int i = 0; i < 10; ++i) {
      Beat();
      ASSERT_EQ(Looks(timing_.look_interval), Action::kNone);
    }
  };
  serve();
  now_ += timing_.lease + timing_.isolation_timeout + seconds(60);
  EXPECT_EQ(machine_.OnTime(now_), Action::kNone);
  EXPECT_LT(machine_.lease_end(), now_);
  serve();
  EXPECT_EQ(machine_.state(), State::kPrimary);
  EXPECT_GT(machine_.lease_end(), now_);
}

TEST_F(MachineTest, AServiceIsStartedAgainOnceAndThenLeftToOthersFirst) {
  for (SeenReplica& each : says_) each.released = true;
  ASSERT_EQ(Looks(seconds(10)), Action::kStart);
  uint64_t epoch = 2;
  const auto serve_and_end = [&] {
    machine_.OnReady();
    Own(epoch++, true);
    for (int i = 0; i < 10; ++i) {
      Beat();
      ASSERT_EQ(Looks(timing_.look_interval), Action::kNone);
    }
    ASSERT_NE(machine_.lease_end(), Time::min());
    machine_.OnEnded(now_);
    EXPECT_EQ(machine_.lease_end(), Time::min());
  };
  serve_and_end();
  ASSERT_EQ(Looks(timing_.look_interval), Action::kStart) << "at once";
  serve_and_end();
  EXPECT_EQ(Looks(timing_.hold_off - timing_.look_interval), Action::kNone);
  EXPECT_EQ(Looks(4 * timing_.hold_off), Action::kStart) << "as nobody else takes it";
}

TEST_F(MachineTest, AServiceWhoseGroupSomebodyElseTookIsEnded) {
  for (SeenReplica& each : says_) each.released = true;
  ASSERT_EQ(Looks(seconds(10)), Action::kStart);
  machine_.OnReady();
  Own(2, true);
  for (int i = 0; i < 10; ++i) {
    Beat();
    ASSERT_EQ(Looks(timing_.look_interval), Action::kNone);
  }
  Own(3, false);
  EXPECT_EQ(Looks(timing_.look_interval), Action::kStop);
  EXPECT_EQ(machine_.lease_end(), Time::min());
  machine_.OnEnded(now_);
  Beat();
  EXPECT_EQ(Looks(timing_.look_interval), Action::kNone);
  EXPECT_EQ(machine_.state(), State::kFollow);
}

TEST_F(MachineTest, AStartThatTakesTooLongIsEnded) {
  for (SeenReplica& each : says_) each.released = true;
  ASSERT_EQ(Looks(seconds(10)), Action::kStart);
  Own(2, true);  // it has the group, and never says that it is ready
  for (Time began = now_; now_ < began + timing_.start_timeout - timing_.look_interval;) {
    Beat();
    ASSERT_EQ(Looks(timing_.look_interval), Action::kNone);
  }
  EXPECT_EQ(Looks(timing_.look_interval), Action::kStop);
  EXPECT_EQ(machine_.takings(), 1u);
  machine_.OnEnded(now_);
  Looks(timing_.look_interval);
  EXPECT_EQ(machine_.failures(), 1u);
}

}  // namespace
}  // namespace hyperloop::agent
