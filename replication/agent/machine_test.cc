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

  // So many replicas have it.
  void Direct(const Directive& directive, size_t replicas = kReplicas) {
    for (size_t i = 0; i < replicas; ++i) says_[i].directive = directive;
  }
  Directive Next() {
    Directive directive;
    directive.number = {++directives_, 7};
    return directive;
  }
  Directive Pause() {
    Directive directive = Next();
    directive.paused = true;
    return directive;
  }
  Directive Switchover(const std::string& owner, const std::string& node) {
    Directive directive = Next();
    directive.owner = owner;
    directive.node = node;
    return directive;
  }
  Directive Drain(const std::string& node) {
    Directive directive = Next();
    directive.drained = {node};
    return directive;
  }

  // The service has taken the group at epoch 2, and is ready.
  void BecomePrimary() {
    for (SeenReplica& each : says_) each.released = true;
    ASSERT_EQ(Looks(seconds(10)), Action::kStart);
    machine_.OnReady();
    Own(2, true);
    ASSERT_EQ(Serve(2 * timing_.lease), Action::kNone);
    ASSERT_EQ(machine_.state(), State::kPrimary);
  }
  // Looks with new heartbeats of so many replicas.
  Action Serve(milliseconds time, size_t replicas = kReplicas) {
    for (const Time until = now_ + time; now_ < until;) {
      Beat(replicas);
      if (const Action action = Looks(timing_.look_interval); action != Action::kNone)
        return action;
    }
    return Action::kNone;
  }

  uint64_t directives_ = 0, beat_ = 100;
  const Timing timing_;
  Machine machine_{timing_, kReplicas, "n0"};
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
  EXPECT_EQ(machine_.why(), Why::kSilent);
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

// Whoever lists more replicas than the group has, or fewer, changes no majority.
TEST_F(MachineTest, MajoritiesAreThoseOfTheReplicasThatTheGroupRecorded) {
  ASSERT_NO_FATAL_FAILURE(BecomePrimary());
  EXPECT_EQ(machine_.recorded(), std::vector<std::string>({"r0", "r1", "r2"}));
  EXPECT_EQ(machine_.recorded_epoch(), 2u);
  machine_.SetListed({"r0", "r1", "r2", "r3", "r4", "r5"});
  EXPECT_EQ(Serve(timing_.isolation_timeout + 2 * timing_.lease), Action::kNone);
  EXPECT_EQ(machine_.state(), State::kPrimary) << "three of three, and not of six";
  for (SeenReplica& each : says_) each.absent = {"r3", "r4"};
  ASSERT_EQ(Serve(timing_.look_interval), Action::kNone);
  EXPECT_EQ(machine_.recorded(), std::vector<std::string>({"r0", "r1", "r2", "r3", "r4"}));
  machine_.SetListed({"r0", "r1", "r2"});
  machine_.OnEnded(now_);
  EXPECT_EQ(Looks(seconds(100), 2), Action::kNone) << "two of five";
  EXPECT_EQ(machine_.state(), State::kLost);
}

// An agent that begins when more are listed than the group has taken in finds the group, too.
TEST_F(MachineTest, AGroupIsFoundAmongMoreReplicasThatAreListed) {
  Machine machine(timing_, 6, "n0");
  for (SeenReplica& each : says_) each.released = true;
  Look look{now_, {{"r0", says_[0]}, {"r2", says_[2]}}};
  EXPECT_EQ(machine.OnLook(look, now_, /*random=*/0), Action::kStart);
  EXPECT_EQ(machine.recorded().size(), 3u);
}

TEST_F(MachineTest, FreshReplicasThatAreListedCountForNothing) {
  const auto look = [&] {
    now_ += timing_.look_interval;
    ++says_[0].heartbeat;
    return machine_.OnLook({now_, {{"r0", says_[0]}, {"r3", {}}, {"r4", {}}}}, now_, /*random=*/0);
  };
  for (int i = 0; i < 100; ++i) ASSERT_EQ(look(), Action::kNone);
  EXPECT_EQ(machine_.state(), State::kLost);
  EXPECT_FALSE(machine_.majority_seen().has_value()) << "one of three";
  ASSERT_NO_FATAL_FAILURE(BecomePrimary());
  machine_.SetListed({"r0", "r3", "r4"});
  EXPECT_EQ(look(), Action::kNone) << "nobody else has the group";
  EXPECT_LT(*machine_.majority_seen(), now_);
}

TEST_F(MachineTest, AGroupThatNobodyHasOpenedIsSeen) {
  says_ = {};
  EXPECT_EQ(Looks(timing_.look_interval, 1), Action::kNone);
  EXPECT_EQ(machine_.state(), State::kLost);
  EXPECT_EQ(Looks(timing_.look_interval, 2), Action::kNone);
  EXPECT_EQ(machine_.state(), State::kFollow);
  EXPECT_EQ(machine_.recorded().size(), 0u);
}

// They are no majority's: another node's may have none of them.
TEST_F(MachineTest, ReplicasThatTheGroupDoesNotRecordGiveNoLease) {
  ASSERT_NO_FATAL_FAILURE(BecomePrimary());
  machine_.SetListed({"r0", "r1", "r2", "r3", "r4"});
  SeenReplica other = says_[0];
  const Time lease = machine_.lease_end();
  for (int i = 0; i < 3; ++i) {
    now_ += timing_.look_interval;
    Look look{now_, {}};
    for (size_t each = 0; each < kReplicas; ++each) look.answers[AddressOf(each)] = says_[each];
    ++other.heartbeat;
    look.answers["r3"] = look.answers["r4"] = other;
    machine_.OnLook(look, now_, /*random=*/0);
  }
  EXPECT_EQ(machine_.lease_end(), lease);
}

// As one that was removed, and is listed still.
TEST_F(MachineTest, ReplicasThatTheGroupDoesNotRecordFreeNothing) {
  ASSERT_EQ(Looks(timing_.look_interval), Action::kNone);
  SeenReplica other = says_[0];
  other.released = true;
  for (int i = 0; i < 100; ++i) {
    now_ += timing_.look_interval;
    Beat();
    Look look{now_, {{"r0", says_[0]}, {"r1", says_[1]}, {"r3", other}, {"r4", other}}};
    ASSERT_EQ(machine_.OnLook(look, now_, /*random=*/0), Action::kNone);
  }
  EXPECT_EQ(machine_.majority_seen(), now_);
}

// Whoever has left the group counts no more, although it was heard before.
TEST_F(MachineTest, ReplicasThatTheGroupRecordsNoMoreGiveNoLease) {
  for (SeenReplica& each : says_) each.members = {"r0", "r1", "r2", "r3", "r4"};
  const auto look = [&](size_t old, size_t beats) {
    now_ += timing_.look_interval;
    Look all{now_, {}};
    for (size_t i = 0; i < kReplicas + old; ++i) all.answers[AddressOf(i)] = says_[i % kReplicas];
    for (size_t i = 0; i < beats; ++i) all.answers["r" + std::to_string(4 - i)].heartbeat = ++beat_;
    return machine_.OnLook(all, now_, /*random=*/0);
  };
  for (SeenReplica& each : says_) each.released = true;
  ASSERT_EQ(look(2, 0), Action::kStart);
  machine_.OnReady();
  Own(2, true);
  ASSERT_EQ(look(2, 0), Action::kNone);
  ASSERT_EQ(look(2, 2), Action::kNone);
  EXPECT_EQ(machine_.lease_end(), Time::min()) << "two of five";
  for (SeenReplica& each : says_) each.members = {"r0", "r1", "r2"};
  ASSERT_EQ(look(0, 0), Action::kNone);
  EXPECT_EQ(machine_.recorded().size(), 3u);
  EXPECT_EQ(machine_.lease_end(), Time::min()) << "none of three";
}

// Two groups may be listed: by a copy of another group's file, say.
TEST_F(MachineTest, AnotherGroupIsNotListenedTo) {
  for (SeenReplica& each : says_) each.group = "one";
  SeenReplica other = says_[0];
  other.group = "another";
  other.sealed = other.installed = 9;
  other.members = {"r3", "r4", "r5"};
  other.owner = "its owner";
  const auto look = [&](size_t own) {
    now_ += timing_.look_interval;
    ++other.heartbeat;
    Look all{now_, {{"r3", other}, {"r4", other}, {"r5", other}}};
    for (size_t i = 0; i < own; ++i) all.answers[AddressOf(i)] = says_[i];
    return machine_.OnLook(all, now_, /*random=*/0);
  };
  ASSERT_EQ(Looks(timing_.look_interval), Action::kNone);
  EXPECT_EQ(machine_.group(), "one");
  for (int i = 0; i < 5; ++i) ASSERT_EQ(look(kReplicas), Action::kNone);
  EXPECT_EQ(machine_.recorded(), std::vector<std::string>({"r0", "r1", "r2"}));
  EXPECT_EQ(machine_.epoch(), 1u);
  // Nor do its signs of life keep the group from being taken, which gives none.
  Action action = Action::kNone;
  for (const Time until = now_ + timing_.failover_timeout; now_ < until && action == Action::kNone;)
    action = look(kReplicas);
  EXPECT_EQ(action, Action::kStart);
  machine_.OnEnded(now_);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(look(1), Action::kNone);
  EXPECT_EQ(machine_.state(), State::kLost) << "one of three";
}

// Not even if a replica of the group has another one's place.
TEST_F(MachineTest, AReplicaOfAnotherGroupInAReplicasPlaceDoesNotAnswer) {
  for (SeenReplica& each : says_) each.group = "one";
  ++says_[1].installed;
  says_[1].group = "another";
  ASSERT_EQ(Looks(timing_.look_interval, 2), Action::kNone);
  EXPECT_TRUE(machine_.recorded().empty()) << "one of three";
  ASSERT_EQ(Looks(timing_.look_interval), Action::kNone);
  EXPECT_EQ(machine_.group(), "one");
  says_[0].group = says_[1].group = "another";
  EXPECT_EQ(Looks(seconds(100)), Action::kNone);
  EXPECT_EQ(machine_.state(), State::kLost);
  EXPECT_EQ(machine_.group(), "one");
}

// What is told in two ways decides nothing, whatever the addresses are.
TEST_F(MachineTest, AConfigurationThatAsManyDenyIsNotRecorded) {
  const auto members = [&](std::vector<std::string> first) {
    says_[0].members = std::move(first);
    return Looks(timing_.look_interval, 2);
  };
  ASSERT_EQ(members({"a0", "r0", "r1"}), Action::kNone);
  EXPECT_TRUE(machine_.recorded().empty());
  EXPECT_FALSE(machine_.majority_seen().has_value());
  ASSERT_EQ(Looks(timing_.look_interval), Action::kNone);
  EXPECT_EQ(machine_.recorded(), std::vector<std::string>({"r0", "r1", "r2"}));
  ASSERT_EQ(members({"a0", "r0", "r1"}), Action::kNone);
  EXPECT_EQ(machine_.recorded(), std::vector<std::string>({"r0", "r1", "r2"}));
  EXPECT_EQ(machine_.majority_seen(), now_) << "but it is heard";
}

// One that claims the newest configuration, and holds nothing, does not keep the group from being
// taken; but one that was left out before the group was emptied does not have it started either.
TEST_F(MachineTest, WhetherThereIsADatabaseIsSaidByTheNewestOrByAMajority) {
  Own(3, false);
  ASSERT_EQ(Looks(timing_.look_interval), Action::kNone);
  EXPECT_EQ(machine_.HoldsDatabase({{3, true}}), true);
  EXPECT_EQ(machine_.HoldsDatabase({{3, false}, {3, {}}}), std::nullopt);
  EXPECT_EQ(machine_.HoldsDatabase({{3, false}, {3, false}, {2, true}}), false);
  EXPECT_EQ(machine_.HoldsDatabase({{1u << 30, false}, {3, true}, {3, true}}), true);
  EXPECT_EQ(machine_.HoldsDatabase({{4, false}, {3, true}}), std::nullopt);
  EXPECT_EQ(machine_.HoldsDatabase({{4, false}, {2, true}, {2, true}}), std::nullopt);
}

// A look of which too few of its configuration answered changes nothing.
TEST_F(MachineTest, OnlyALookThatCountsRecords) {
  ASSERT_EQ(Looks(timing_.look_interval), Action::kNone);
  for (SeenReplica& each : says_) each.members = {"x", "y", "r0"};
  ASSERT_EQ(Looks(timing_.look_interval), Action::kNone);
  EXPECT_EQ(machine_.recorded(), std::vector<std::string>({"r0", "r1", "r2"}));
}

// An agent that was cut off meanwhile.
TEST_F(MachineTest, AGroupAllOfWhoseReplicasWereReplacedIsFound) {
  ASSERT_EQ(Looks(timing_.look_interval), Action::kNone);
  SeenReplica later = says_[0];
  later.members = {"r3", "r4", "r5"};
  const auto look = [&] {
    now_ += timing_.look_interval;
    machine_.OnLook({now_, {{"r3", later}, {"r4", later}}}, now_, /*random=*/0);
  };
  look();
  EXPECT_EQ(machine_.recorded().front(), "r0") << "not by an old configuration";
  later.sealed = later.installed = 2;
  look();
  EXPECT_EQ(machine_.recorded(), std::vector<std::string>({"r3", "r4", "r5"}));
}

TEST_F(MachineTest, AReleasedGroupIsTakenAtOnce) {
  for (SeenReplica& each : says_) each.released = true;
  const Time began = now_;
  EXPECT_EQ(Looks(seconds(10)), Action::kStart);
  EXPECT_EQ(machine_.why(), Why::kReleased);
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
  EXPECT_EQ(machine_.why(), Why::kIsolated);
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
  EXPECT_EQ(machine_.why(), Why::kOwn);
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
  EXPECT_EQ(machine_.why(), Why::kTaken);
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
  EXPECT_EQ(machine_.why(), Why::kLate);
  EXPECT_EQ(machine_.takings(), 1u);
  machine_.OnEnded(now_);
  Looks(timing_.look_interval);
  EXPECT_EQ(machine_.failures(), 1u);
}

// It does so to leave out a replica or to take one in, and installs the epoch later.
TEST_F(MachineTest, AServiceThatSealsANewEpochKeepsItsLease) {
  ASSERT_NO_FATAL_FAILURE(BecomePrimary());
  for (SeenReplica& each : says_) {
    ++each.sealed;
    ASSERT_EQ(Serve(timing_.lease), Action::kNone);
    EXPECT_EQ(machine_.state(), State::kPrimary);
  }
  EXPECT_EQ(Serve(timing_.isolation_timeout + 2 * timing_.lease), Action::kNone);
  EXPECT_EQ(machine_.state(), State::kPrimary);
  for (SeenReplica& each : says_) ++each.installed;
  EXPECT_EQ(Serve(seconds(1)), Action::kNone);
  EXPECT_EQ(machine_.state(), State::kPrimary);
}

// The name is the former owner's until the epoch is installed.
TEST_F(MachineTest, WhatAnotherOwnerHasOnlySealedIsNotLostAndGivesNoLease) {
  ASSERT_NO_FATAL_FAILURE(BecomePrimary());
  const Time lease_end = machine_.lease_end();
  for (SeenReplica& each : says_) each.sealed = 3, each.owner = "another";
  EXPECT_EQ(Serve(timing_.lease), Action::kNone);
  for (SeenReplica& each : says_) each.named = false;
  EXPECT_EQ(Serve(timing_.lease), Action::kNone);
  EXPECT_EQ(machine_.lease_end(), lease_end);
  EXPECT_EQ(machine_.state(), State::kTaking);
  // He gave up, and it takes the group back.
  for (SeenReplica& each : says_) each.sealed = 4, each.owner = "owner 2", each.named = true;
  EXPECT_EQ(Serve(seconds(1)), Action::kNone);
  EXPECT_EQ(machine_.state(), State::kPrimary);
}

TEST_F(MachineTest, AServiceThatOpensItsDatabaseAgainIsItsNodesToo) {
  ASSERT_NO_FATAL_FAILURE(BecomePrimary());
  for (SeenReplica& each : says_) each.released = true;
  const Time closed = now_;
  EXPECT_EQ(Serve(timing_.lease - timing_.look_interval), Action::kNone);
  EXPECT_LE(machine_.lease_end(), closed + timing_.lease) << "one that has closed has no lease";
  Own(3, true);
  EXPECT_EQ(Serve(seconds(1)), Action::kNone);
  EXPECT_EQ(machine_.state(), State::kPrimary);
}

TEST_F(MachineTest, IsPrimaryOnlyUntilTheLeaseEnds) {
  ASSERT_NO_FATAL_FAILURE(BecomePrimary());
  machine_.OnTime(machine_.lease_end() - milliseconds(1));
  EXPECT_EQ(machine_.state(), State::kPrimary);
  machine_.OnTime(machine_.lease_end());
  EXPECT_EQ(machine_.state(), State::kTaking);
  now_ = machine_.lease_end();
  EXPECT_EQ(Serve(seconds(1)), Action::kNone);
  EXPECT_EQ(machine_.state(), State::kPrimary);
}

// One replica says what is not so: a configuration without the others, and an epoch that nobody
// has.
TEST_F(MachineTest, OneReplicaDecidesNothing) {
  const auto lie = [&](SeenReplica* each) {
    each->sealed = each->installed = 1u << 30;
    each->owner = "nobody";
    each->named = true;
    each->members = {"x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8"};
  };
  SeenReplica& liar = says_.back();
  for (SeenReplica& each : says_) each.released = true;
  liar.released = false;
  lie(&liar);
  const Time began = now_;
  ASSERT_EQ(Looks(seconds(1)), Action::kStart) << "the group was closed, say two of three";
  EXPECT_LE(now_ - began, timing_.look_interval);
  machine_.OnReady();
  Own(2, true);
  lie(&liar);
  liar.members = {"r2"};
  EXPECT_EQ(Serve(timing_.isolation_timeout + 3 * timing_.lease), Action::kNone);
  EXPECT_EQ(machine_.state(), State::kPrimary);
  EXPECT_EQ(machine_.epoch(), 2u);
  machine_.OnEnded(now_);
  EXPECT_EQ(Looks(timing_.look_interval), Action::kStart) << "it was this node's, say two of three";
}

// The lease asks only for heartbeats.
TEST_F(MachineTest, AServiceWhoseConfigurationIsNotSeenKeepsItsLease) {
  ASSERT_NO_FATAL_FAILURE(BecomePrimary());
  for (SeenReplica& each : says_) each.members = {"x", "y", "z"};
  EXPECT_EQ(Serve(timing_.isolation_timeout + 2 * timing_.lease), Action::kNone);
  EXPECT_EQ(machine_.state(), State::kPrimary);
}

// Until it has ended, what it answers may be older and older.
TEST_F(MachineTest, AServiceThatDoesNotEndWhenAnotherHasTheGroupIsKilled) {
  ASSERT_NO_FATAL_FAILURE(BecomePrimary());
  Own(3, false);
  ASSERT_EQ(Serve(timing_.look_interval), Action::kStop);
  const Time stopped = now_;
  EXPECT_EQ(Serve(seconds(60)), Action::kKill);
  EXPECT_EQ(machine_.why(), Why::kTaken);
  EXPECT_LE(now_, stopped + timing_.isolation_timeout);
  EXPECT_GE(now_, stopped + timing_.isolation_timeout - timing_.look_interval);
  EXPECT_EQ(Serve(seconds(60)), Action::kNone) << "once";
}

TEST_F(MachineTest, AServiceThatIsShutDownWhileAnotherHasTheGroupIsKilled) {
  ASSERT_NO_FATAL_FAILURE(BecomePrimary());
  ASSERT_EQ(machine_.OnShutdown(), Action::kStop);
  EXPECT_EQ(machine_.why(), Why::kShutdown);
  EXPECT_EQ(Serve(3 * timing_.isolation_timeout), Action::kNone);
  Own(3, false);
  EXPECT_EQ(Serve(timing_.isolation_timeout - 2 * timing_.look_interval), Action::kNone);
  EXPECT_EQ(Serve(3 * timing_.look_interval), Action::kKill);
}

TEST_F(MachineTest, AStartIsNotEndedForTheTimeInWhichTheAgentStoodStill) {
  for (SeenReplica& each : says_) each.released = true;
  ASSERT_EQ(Looks(seconds(10)), Action::kStart);
  Own(2, true);
  now_ += 10 * timing_.start_timeout;
  EXPECT_EQ(machine_.OnTime(now_), Action::kNone);
  EXPECT_EQ(Serve(timing_.start_timeout / 2), Action::kNone);
  machine_.OnReady();
  EXPECT_EQ(Serve(timing_.start_timeout), Action::kNone);
  EXPECT_EQ(machine_.state(), State::kPrimary);
}

TEST_F(MachineTest, PausedItTakesNothing) {
  for (SeenReplica& each : says_) each.released = true;
  Direct(Pause());
  EXPECT_EQ(Looks(seconds(100)), Action::kNone);
  EXPECT_TRUE(machine_.held_back());
  Direct(Next());
  const Time resumed = now_;
  EXPECT_EQ(Looks(seconds(10)), Action::kStart);
  EXPECT_LE(now_ - resumed, timing_.look_interval) << "it has watched all the time";
}

// Two replicas have it, and one of them answers, besides one that has not. A newer one counts,
// however few tell it then; but a majority that tells one alike is believed against a single one.
TEST_F(MachineTest, WhatAMajorityHasIsObeyedWhicheverReplicasAnswer) {
  for (SeenReplica& each : says_) each.released = true;
  const Directive before = Next();
  Direct(before);
  Direct(Pause(), 1);  // the third one, which does not answer, has it, too
  EXPECT_EQ(Looks(seconds(100), 2), Action::kNone);
  Direct(Next(), 2);
  says_[2].directive = Pause();  // one alone that says so
  EXPECT_EQ(Looks(seconds(10)), Action::kStart);
}

// As new members do, or replicas with fresh pools.
TEST_F(MachineTest, APauseThatWasAcknowledgedIsNotForgottenBecauseMostSayNothing) {
  for (SeenReplica& each : says_) each.released = true;
  const Directive pause = Pause();
  Direct(pause, 2);
  EXPECT_EQ(Looks(seconds(10)), Action::kNone);
  EXPECT_TRUE(machine_.told_by_most());
  says_[1].directive = {};
  EXPECT_EQ(Looks(seconds(100)), Action::kNone);
  EXPECT_EQ(machine_.directive(), pause);
  EXPECT_FALSE(machine_.told_by_most());
  EXPECT_TRUE(machine_.was_told_by_most()) << "the agent gives it to those that say nothing";
  Direct(Next());
  EXPECT_EQ(Looks(seconds(10)), Action::kStart);
}

TEST_F(MachineTest, PausedAServiceHasTimeToBecomeReady) {
  for (SeenReplica& each : says_) each.released = true;
  ASSERT_EQ(Looks(seconds(10)), Action::kStart);
  Own(2, true);
  Direct(Pause());
  EXPECT_EQ(Serve(2 * timing_.start_timeout), Action::kNone);
  Direct(Next());
  EXPECT_EQ(Serve(2 * timing_.start_timeout), Action::kStop);
}

TEST_F(MachineTest, PausedAHealthyServiceIsNotEnded) {
  ASSERT_NO_FATAL_FAILURE(BecomePrimary());
  Directive directive = Switchover("owner 2", "n1");
  directive.paused = true;
  directive.drained = {"n0"};
  Direct(directive);
  EXPECT_EQ(Serve(seconds(60)), Action::kNone);
  EXPECT_EQ(machine_.state(), State::kPrimary);
  // Nor for a way that is cut; and it says that it is no primary.
  EXPECT_EQ(Looks(seconds(60), 1), Action::kNone);
  EXPECT_EQ(machine_.state(), State::kTaking);
  EXPECT_EQ(Serve(seconds(1)), Action::kNone);
  EXPECT_EQ(machine_.state(), State::kPrimary);
  // Once it is resumed, the time counts from then on.
  Direct(Next());
  ASSERT_EQ(Serve(seconds(1)), Action::kNone);
  const Time cut = now_;
  EXPECT_EQ(Looks(seconds(60), 1), Action::kKill);
  EXPECT_GE(now_, cut + timing_.isolation_timeout);
}

TEST_F(MachineTest, PausedAServiceWhoseGroupSomebodyElseTookIsEnded) {
  ASSERT_NO_FATAL_FAILURE(BecomePrimary());
  Direct(Pause());
  ASSERT_EQ(Serve(seconds(1)), Action::kNone);
  Own(3, false);
  EXPECT_EQ(Looks(timing_.look_interval), Action::kStop);
  EXPECT_EQ(Serve(seconds(60)), Action::kKill);
}

TEST_F(MachineTest, PausedAServiceThatEndedIsStartedAgainOnceItIsResumed) {
  ASSERT_NO_FATAL_FAILURE(BecomePrimary());
  Direct(Pause());
  ASSERT_EQ(Serve(seconds(1)), Action::kNone);
  machine_.OnEnded(now_);
  EXPECT_EQ(Looks(seconds(100)), Action::kNone);
  Direct(Next());
  EXPECT_EQ(Looks(timing_.look_interval), Action::kStart);
}

TEST_F(MachineTest, ASwitchoverEndsTheServiceOnceAMajorityTellsIt) {
  ASSERT_NO_FATAL_FAILURE(BecomePrimary());
  Direct(Switchover("owner 1", "n1"));
  EXPECT_EQ(Serve(seconds(5)), Action::kNone) << "it was another owner that was to leave";
  Direct(Switchover("owner 2", "n0"));
  EXPECT_EQ(Serve(seconds(5)), Action::kNone) << "it is here already";
  const Directive directive = Switchover("owner 2", "n1");
  Direct(directive, 1);
  EXPECT_EQ(Serve(seconds(5)), Action::kNone) << "one replica decides nothing";
  for (int i = 0; i < 20; ++i) {
    Beat();
    ASSERT_EQ(Looks(timing_.look_interval, 2), Action::kNone) << "nor if another one is silent";
  }
  Direct(directive, 2);
  EXPECT_EQ(Serve(timing_.look_interval), Action::kStop);
  EXPECT_EQ(machine_.why(), Why::kDirected);
  EXPECT_EQ(machine_.lease_end(), Time::min());
  EXPECT_EQ(Serve(seconds(1)), Action::kNone) << "once";
  for (SeenReplica& each : says_) each.released = true;
  machine_.OnEnded(now_);
  // It waits for the other node, and is no failure. If that one does not come, anybody may.
  const Time left = now_;
  EXPECT_EQ(Looks(seconds(100)), Action::kStart);
  EXPECT_GE(now_ - left, timing_.take_timeout);
  EXPECT_LE(now_ - left, timing_.take_timeout + 2 * timing_.look_interval);
  EXPECT_EQ(machine_.failures(), 0u);
}

TEST_F(MachineTest, AGroupThatIsLeftToThisNodeIsTakenAtOnceAndOnce) {
  Direct(Switchover("owner 1", "n0"));
  for (int i = 0; i < 20; ++i) {
    Beat();
    ASSERT_EQ(Looks(timing_.look_interval), Action::kNone) << "it is not free";
  }
  for (SeenReplica& each : says_) each.released = true;
  ASSERT_EQ(Looks(timing_.look_interval), Action::kStart);
  machine_.OnEnded(now_);  // it could not be started
  const Time failed = now_;
  EXPECT_EQ(Looks(seconds(100)), Action::kStart);
  EXPECT_GE(now_ - failed, timing_.hold_off);
  machine_.OnEnded(now_);
  // Asked for again, it is tried at once again.
  Looks(timing_.look_interval);
  Direct(Switchover("owner 1", "n0"));
  EXPECT_EQ(Looks(timing_.look_interval), Action::kStart);
}

// As if the node had been lost that was to take it.
TEST_F(MachineTest, AnOrderedFailoverDoesNotWaitForALongTimeout) {
  Timing patient;
  patient.failover_timeout = seconds(600);
  const auto looks_until_start = [&](const std::string& node, size_t telling, size_t answering) {
    Machine machine(patient, kReplicas, "n0");
    Direct({});
    Direct(Switchover("owner 1", node), telling);
    const Time began = now_;
    while (now_ < began + seconds(100)) {
      now_ += patient.look_interval;
      Look look{now_, {}};
      for (size_t i = 0; i < answering; ++i) look.answers[AddressOf(i)] = says_[i];
      if (machine.OnLook(look, now_, 0) == Action::kStart) return now_ - began;
    }
    return BootClock::duration(0);
  };
  EXPECT_EQ(looks_until_start("n0", 2, 2), seconds(2) + patient.look_interval);
  EXPECT_EQ(looks_until_start("n1", 2, 3), seconds(0)) << "another node is to have it";
  EXPECT_EQ(looks_until_start("n0", 1, 2), seconds(0)) << "no majority tells it";
  says_[0].owner = says_[1].owner = says_[2].owner = "owner 2";
  EXPECT_EQ(looks_until_start("n0", 2, 3), seconds(0)) << "of another owner";
}

TEST_F(MachineTest, ASwitchoverIsOverWhenAnotherOwnerHasTheGroup) {
  ASSERT_NO_FATAL_FAILURE(BecomePrimary());
  Direct(Switchover("owner 2", "n1"));
  ASSERT_EQ(Serve(timing_.look_interval), Action::kStop);
  for (SeenReplica& each : says_) each.released = true;
  machine_.OnEnded(now_);
  ASSERT_EQ(Looks(seconds(1)), Action::kNone);
  Own(3, false);
  Beat();
  ASSERT_EQ(Looks(timing_.look_interval), Action::kNone);
  const Time last = now_;
  EXPECT_EQ(Looks(seconds(100)), Action::kStart);
  EXPECT_LE(now_ - last, timing_.failover_timeout + timing_.look_interval);
}

TEST_F(MachineTest, ADrainedNodeTakesNothing) {
  for (SeenReplica& each : says_) each.released = true;
  Direct(Drain("n0"));
  EXPECT_EQ(Looks(seconds(100)), Action::kNone);
  Direct(Drain("n1"));
  EXPECT_EQ(Looks(seconds(10)), Action::kStart);
}

TEST_F(MachineTest, ADrainedNodesServiceIsEnded) {
  ASSERT_NO_FATAL_FAILURE(BecomePrimary());
  const Directive directive = Drain("n0");
  Direct(directive, 1);
  EXPECT_EQ(Serve(seconds(5)), Action::kNone) << "one replica decides nothing";
  Direct(directive);
  EXPECT_EQ(Serve(timing_.look_interval), Action::kStop);
  for (SeenReplica& each : says_) each.released = true;
  machine_.OnEnded(now_);
  EXPECT_EQ(Looks(seconds(100)), Action::kNone);
  Direct(Next());
  const Time undone = now_;
  EXPECT_EQ(Looks(seconds(100)), Action::kStart);
  EXPECT_LE(now_ - undone, 2 * timing_.look_interval);
  EXPECT_EQ(machine_.failures(), 0u);
}

}  // namespace
}  // namespace hyperloop::agent
