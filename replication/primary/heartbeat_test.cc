#include "primary/heartbeat.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>

namespace hyperloop {
namespace {

// The processors that a heartbeat's thread may use, seen from its own tick.
cpu_set_t ProcessorsOfHeartbeat(int avoid_cpu) {
  cpu_set_t seen;
  CPU_ZERO(&seen);
  std::atomic<bool> ticked{false};
  const Heartbeat heartbeat(
      {},
      [&] {
        if (!ticked) sched_getaffinity(0, sizeof seen, &seen);
        ticked = true;
        ticked.notify_one();
        return Heartbeat::kInterval;
      },
      avoid_cpu);
  ticked.wait(false);
  return seen;
}

TEST(Heartbeat, KeepsOffTheRnicsProcessor) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  cpu_set_t seen = ProcessorsOfHeartbeat(-1);
  EXPECT_TRUE(CPU_EQUAL(&seen, &allowed));
  if (CPU_COUNT(&allowed) < 2) GTEST_SKIP() << "needs two processors";
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &allowed)) --last;
  seen = ProcessorsOfHeartbeat(last);
  cpu_set_t others = allowed;
  CPU_CLR(last, &others);
  EXPECT_TRUE(CPU_EQUAL(&seen, &others));
  // The caller's own threads stay where they may be.
  cpu_set_t after;
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&after, &allowed));
}

TEST(Heartbeat, RunsWhereItMayWhenThereIsOnlyThatProcessor) {
  cpu_set_t allowed, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &allowed)) --last;
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);  // threads made here inherit it
  const cpu_set_t seen = ProcessorsOfHeartbeat(last);
  ASSERT_EQ(sched_setaffinity(0, sizeof allowed, &allowed), 0);
  EXPECT_TRUE(CPU_EQUAL(&seen, &one));
}

}  // namespace
}  // namespace hyperloop
