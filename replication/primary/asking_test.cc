#include "primary/asking.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <stdexcept>

#include "common/random_uuid.h"
#include "membership/replica_lists.h"
#include "support/control_host.h"
#include "support/silent_peer.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using namespace std::chrono_literals;
using control::HelloReplyT;

TEST(AtOnce, CallsWaitForOneAnother) {
  std::latch all(4);
  EXPECT_EQ(AtOnce(4,
                   [&](size_t i) {
                     all.arrive_and_wait();
                     return 10 * i;
                   }),
            (std::vector<size_t>{0, 10, 20, 30}));
}

TEST(AtOnce, NothingIsCalledForNobody) {
  EXPECT_TRUE(AtOnce(0, [](size_t i) { return i; }).empty());
}

TEST(AtOnce, TheFirstErrorInTheirOrderCounts) {
  const auto fail = [](size_t i) {
    return i == 0 ? Status() : i == 1 ? Unavailable("one") : TimedOut("two");
  };
  EXPECT_THAT(AllAtOnce(3, fail), StatusIs(Code::kUnavailable, "one"));
}

TEST(AtOnce, WhatACallThrowsArrivesOnceAllHaveReturned) {
  std::atomic<int> returned{0};
  const auto call = [&](size_t i) {
    if (i == 0) throw std::runtime_error("memory");
    ++returned;
  };
  EXPECT_THROW(CallAtOnce(3, call), std::runtime_error);
  EXPECT_EQ(returned, 2);
}

class HelloAllTest : public testing::Test {
 protected:
  // Returns the handle of a replica that answers, and says that `absent` is left out.
  ReplicaHandle* Answering(const std::string& absent = "") {
    hosts_.push_back(std::make_unique<test::ControlHost>(control::Trust(), [absent](const auto&) {
      HelloReplyT hello;
      if (!absent.empty())
        ListReplicas({{RandomUuid(), absent}}, &hello.absent_nodes, &hello.absent_replicas);
      return control::MakeBody(std::move(hello));
    }));
    return HandleOf(hosts_.back()->endpoint());
  }
  ReplicaHandle* Silent() {
    peers_.push_back(std::make_unique<test::SilentPeer>());
    return HandleOf(control::ParseEndpoint(peers_.back()->endpoint()).value());
  }

 private:
  ReplicaHandle* HandleOf(const control::Endpoint& endpoint) {
    handles_.push_back(std::make_unique<ReplicaHandle>(endpoint, control::Trust(), 1h));
    return handles_.back().get();
  }

  std::vector<std::unique_ptr<test::ControlHost>> hosts_;
  std::vector<std::unique_ptr<test::SilentPeer>> peers_;
  std::vector<std::unique_ptr<ReplicaHandle>> handles_;
};

TEST_F(HelloAllTest, OnceEnoughHaveAnsweredTheOthersHaveTheirShortTime) {
  ReplicaHandle* const replicas[] = {Silent(), Answering(), Answering()};
  const auto answers = HelloAll(replicas, {1h, 1ms, 1ms, 2});
  EXPECT_THAT(answers[0], StatusIs(Code::kTimedOut));
  EXPECT_OK(answers[1]);
  EXPECT_OK(answers[2]);
  EXPECT_TRUE(replicas[0]->silent());
  EXPECT_FALSE(replicas[1]->silent());
}

TEST_F(HelloAllTest, WhoWasSilentBeforeHasLessTime) {
  ReplicaHandle* const replicas[] = {Silent(), Answering(), Answering()};
  HelloAll(replicas, {1h, 1ms, 1h, 2});
  EXPECT_THAT(HelloAll(replicas, {1h, 1h, 1ms, 2})[0], StatusIs(Code::kTimedOut));
}

TEST_F(HelloAllTest, WhoIsLeftOutAlreadyHasLessTime) {
  ReplicaHandle* const silent = Silent();
  ReplicaHandle* const replicas[] = {silent, Answering(silent->address()), Answering()};
  EXPECT_THAT(HelloAll(replicas, {1h, 1h, 1ms, 2})[0], StatusIs(Code::kTimedOut));
}

TEST_F(HelloAllTest, WhoHadNoTimeAtAllIsNotSilent) {
  ReplicaHandle* const replicas[] = {Silent(), Answering()};
  EXPECT_OK(HelloAll(replicas, {1h, 0ms, 0ms, 1})[1]);
  EXPECT_FALSE(replicas[0]->silent());
}

TEST_F(HelloAllTest, FewerThanEnoughWaitTheWholeTime) {
  ReplicaHandle* const replicas[] = {Silent(), Answering()};
  EXPECT_THAT(HelloAll(replicas, {50ms, 0ms, 0ms, 2})[0], StatusIs(Code::kTimedOut));
}

}  // namespace
}  // namespace hyperloop
