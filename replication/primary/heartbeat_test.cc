#include "primary/heartbeat.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>

#include "hyperloop/core/text.h"
#include "softrnic/embedded/embedded.h"
#include "support/eventually.h"
#include "support/must.h"
#include "support/rnic_end.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

// The processors that a PeriodicThread may use, as its own work sees them.
cpu_set_t ProcessorsOfThread(int avoid_cpu) {
  cpu_set_t seen;
  CPU_ZERO(&seen);
  std::atomic<bool> ticked{false};
  const PeriodicThread thread(
      "test",
      [&] {
        if (!ticked) sched_getaffinity(0, sizeof seen, &seen);
        ticked = true;
        ticked.notify_one();
        return std::chrono::milliseconds(1);
      },
      avoid_cpu);
  ticked.wait(false);
  return seen;
}

TEST(PeriodicThread, KeepsOffTheRnicsProcessor) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  cpu_set_t seen = ProcessorsOfThread(-1);
  EXPECT_TRUE(CPU_EQUAL(&seen, &allowed));
  if (CPU_COUNT(&allowed) < 2) GTEST_SKIP() << "needs two processors";
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &allowed)) --last;
  seen = ProcessorsOfThread(last);
  cpu_set_t others = allowed;
  CPU_CLR(last, &others);
  EXPECT_TRUE(CPU_EQUAL(&seen, &others));
  // The caller's own threads keep their affinity.
  cpu_set_t after;
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&after, &allowed));
}

TEST(PeriodicThread, RunsWhereItMayWhenThereIsOnlyThatProcessor) {
  cpu_set_t allowed, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &allowed)) --last;
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);  // threads made here inherit it
  const cpu_set_t seen = ProcessorsOfThread(last);
  ASSERT_EQ(sched_setaffinity(0, sizeof allowed, &allowed), 0);
  EXPECT_TRUE(CPU_EQUAL(&seen, &one));
}

// A member whose RNIC runs on a thread, or not at all, and access to its heartbeat word.
struct BeatingMember {
  explicit BeatingMember(bool runs) {
    EXPECT_OK(access->qp().Connect(end.qp->address()));
    EXPECT_OK(end.qp->Connect(access->qp().address()));
    if (runs) {
      EXPECT_OK(rnic.StartThread({.spin_us = 0}));
    }
  }
  Heartbeat::Target target() {
    return {access.get(), {end.mr->addr(), 8, end.mr->rkey()}, nullptr};
  }

  softrnic::EmbeddedRnic rnic;
  RnicEnd end = Must(RnicEnd::Make(rnic.OpenDevice("host").value()));
  std::unique_ptr<RemoteAccess> access =
      RemoteAccess::Create(*end.device, std::chrono::hours(1)).value();
};

TEST(Heartbeat, AMemberOutOfReachMakesNobodyElseMissABeat) {
  BeatingMember silent(false), lives(true);
  std::atomic<int> beats{0};
  std::atomic<int> told{0};
  Heartbeat::Target to_silent = silent.target();
  to_silent.tell = [&told] {
    ++told;
    told.notify_one();
  };
  const Heartbeat heartbeat({to_silent, lives.target()}, -1);
  const PeriodicThread look(
      "look",
      [&] {
        beats = static_cast<int>(lives.end.device->QueryCounters().value()["writes"]);
        beats.notify_one();
        return std::chrono::milliseconds(10);
      },
      -1);
  for (int seen = beats; seen < 3; seen = beats) beats.wait(seen);
  EXPECT_EQ(silent.end.word(0), 0u);  // no engine runs there
  for (int seen = told; seen < 3; seen = told) told.wait(seen);
}

// Messages are all that shows the members that a primary without queues lives.
TEST(Heartbeat, AMemberThatTakesNoMessageDelaysNoMessageToTheOthers) {
  std::atomic<bool> ended{false};
  std::atomic<int> told{0};
  Heartbeat::Target silent, lives;
  silent.tell = [&ended] { ended.wait(false); };
  lives.tell = [&told] {
    ++told;
    told.notify_one();
  };
  const Heartbeat heartbeat({silent, lives}, -1);
  EXPECT_TRUE(test::Eventually([&] { return told >= 3; }));
  ended = true;
  ended.notify_all();
}

// A silence begins when the member was heard last, and not when somebody notices it.
TEST(Heartbeat, KnowsWhenAllMembersWereHeardLast) {
  BeatingMember silent(false), lives(true);
  std::atomic<int> told{0};
  Heartbeat::Target to_silent = silent.target();
  to_silent.tell = [&told] {
    ++told;
    told.notify_one();
  };
  Heartbeat heartbeat({to_silent, lives.target()}, -1);
  for (int seen = told; seen < 1; seen = told) told.wait(seen);
  const auto missed = Heartbeat::Clock::now();
  for (int seen = told; seen < 3; seen = told) told.wait(seen);
  EXPECT_LT(heartbeat.all_heard(), missed);
  heartbeat.SetTargets({{nullptr, {}, nullptr}});  // a word that is out of reach says nothing
  EXPECT_GE(heartbeat.all_heard(), missed);
}

// The text of a former owner goes.
TEST(Heartbeat, MembersAreToldOfDamageBesideTheWord) {
  BeatingMember member(true);
  constexpr uint64_t kPlace = kOwnerDamageOffset - kHeartbeatOffset;
  constexpr uint64_t kFormer = 0x6f;
  const auto text_begins = [&] {
    return std::atomic_ref(member.end.word(kPlace)).load(std::memory_order_relaxed);
  };
  member.end.word(kPlace) = kFormer;
  Heartbeat::Target target = member.target();
  target.word.size = kOwnerBytes;
  Heartbeat heartbeat({target}, -1);
  EXPECT_TRUE(test::Eventually([&] { return text_begins() == 0; }));
  heartbeat.SetDamage("o");
  EXPECT_TRUE(test::Eventually([&] { return text_begins() == kFormer; }));
  heartbeat.SetTargets({});
  member.end.word(kPlace) = 0;
  heartbeat.SetTargets({target});
  EXPECT_TRUE(test::Eventually([&] { return text_begins() == kFormer; }));
  heartbeat.SetDamage("");
  EXPECT_TRUE(test::Eventually([&] { return text_begins() == 0; }));
  EXPECT_NE(member.end.word(0), 0u);
}

// So that a reader of an idle group learns of its last record, too.
TEST(Heartbeat, MembersAreToldWhatIsAcknowledged) {
  BeatingMember member(true);
  const auto acked = [&] {
    return std::atomic_ref(member.end.word(kOwnerAckedOffset - kHeartbeatOffset))
        .load(std::memory_order_relaxed);
  };
  Heartbeat::Target target = member.target();
  target.word.size = kOwnerBytes;
  Heartbeat heartbeat({target}, -1);
  heartbeat.SetAcked(MakeOwnerAcked(70000, 12));
  EXPECT_TRUE(test::Eventually([&] { return OwnerAcked(acked(), 70000) == 12; }));
  EXPECT_EQ(OwnerAcked(acked(), 70001), 0u) << "another epoch's owner says nothing";
}

TEST(Heartbeat, BeatsGoOnWhileTheDamageChanges) {
  BeatingMember member(true);
  const auto word = [&] {
    return std::atomic_ref(member.end.word(0)).load(std::memory_order_relaxed);
  };
  Heartbeat::Target target = member.target();
  target.word.size = kOwnerBytes;
  Heartbeat heartbeat({target}, -1);
  ASSERT_TRUE(test::Eventually([&] { return word() != 0; }));
  const uint64_t first = word();
  int changes = 0;
  EXPECT_TRUE(test::Eventually([&] {
    heartbeat.SetDamage(Text("damage ", ++changes));
    return word() != first;
  }));
}

}  // namespace
}  // namespace hyperloop
