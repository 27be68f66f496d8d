#include "agent/hook_queue.h"

#include <gtest/gtest.h>

#include <string>

namespace hyperloop::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class HookQueueTest : public testing::Test {
 protected:
  void Push(HookTopic topic, const std::string& key) { queue_.Push({topic, key, key, 7}, now_); }
  // What is told now; "": nothing.
  std::string Told(bool succeeds = true) {
    const auto event = queue_.Next(now_);
    if (!event.has_value()) return "";
    queue_.OnTold(event->key, succeeds, now_);
    return event->key;
  }

  HookQueue queue_{{seconds(1), seconds(60), {}}};
  HookQueue::Time now_{seconds(1000)};
};

TEST_F(HookQueueTest, EventsAreToldOnceInTheirOrder) {
  EXPECT_EQ(queue_.due(), std::nullopt);
  Push(HookTopic::kPause, "paused");
  Push(HookTopic::kRole, "lost");
  EXPECT_EQ(queue_.due(), now_);
  EXPECT_EQ(Told(), "paused");
  EXPECT_EQ(Told(), "lost");
  EXPECT_EQ(Told(), "");
  EXPECT_EQ(queue_.due(), std::nullopt);
  EXPECT_EQ(queue_.waiting_since(), std::nullopt);
}

TEST_F(HookQueueTest, TheNewestOfATopicWins) {
  Push(HookTopic::kRole, "became 1");
  Push(HookTopic::kPause, "paused");
  Push(HookTopic::kRole, "lost 1");
  EXPECT_EQ(Told(), "paused");
  EXPECT_EQ(Told(), "lost 1");
  EXPECT_EQ(Told(), "");
}

TEST_F(HookQueueTest, OneThatIsBeingToldIsOverWhenANewerOneComes) {
  Push(HookTopic::kRole, "became");
  const auto running = queue_.Next(now_);
  Push(HookTopic::kRole, "lost");
  queue_.OnTold(running->key, true, now_);
  EXPECT_EQ(Told(), "lost") << "what came later is not told by that";
  EXPECT_EQ(Told(), "");
}

TEST_F(HookQueueTest, WhatFailsIsToldAgainLaterAndLater) {
  Push(HookTopic::kRole, "became");
  const auto began = now_;
  seconds pause(1);
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(Told(false), "became") << i;
    EXPECT_EQ(queue_.waiting_since(), began);
    EXPECT_EQ(queue_.due(), now_ + pause);
    now_ += pause - milliseconds(1);
    EXPECT_EQ(Told(false), "") << i;
    now_ += milliseconds(1);
    pause = std::min(2 * pause, seconds(60));
  }
  EXPECT_EQ(Told(), "became");
  EXPECT_EQ(queue_.waiting_since(), std::nullopt);
}

TEST_F(HookQueueTest, WhatFailsHoldsUpNoOtherTopicAndIsSupersededAtOnce) {
  Push(HookTopic::kPause, "paused");
  EXPECT_EQ(Told(false), "paused");
  Push(HookTopic::kRole, "lost");
  EXPECT_EQ(Told(), "lost");
  const auto began = now_;
  now_ += milliseconds(1);
  Push(HookTopic::kPause, "resumed");
  EXPECT_EQ(queue_.waiting_since(), began) << "it has been told nothing since then";
  EXPECT_EQ(Told(), "resumed");
}

TEST_F(HookQueueTest, WhatWasToldIsToldAgainInIntervals) {
  HookQueue queue({seconds(1), seconds(60), seconds(20)});
  queue.Push({HookTopic::kRole, "became", "k", 7}, now_);
  queue.OnTold("k", true, now_);
  EXPECT_EQ(queue.waiting_since(), std::nullopt);
  EXPECT_EQ(queue.Next(now_ + seconds(19)), std::nullopt);
  now_ += seconds(20);
  ASSERT_TRUE(queue.Next(now_).has_value());
  EXPECT_EQ(queue.Next(now_)->key, "k") << "the same";
  queue.OnTold("k", false, now_);
  EXPECT_EQ(queue.waiting_since(), now_);
  EXPECT_EQ(queue.due(), now_ + seconds(1));
}

}  // namespace
}  // namespace hyperloop::agent
