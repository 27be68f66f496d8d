// Completion channels: each arming gives one event, for solicited receives and errors too, and no
// event is lost.
#include <poll.h>

#include <array>
#include <atomic>
#include <thread>

#include "conformance/fixture.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using rnic::Opcode;
using rnic::WcStatus;

class EventTest : public ConformanceTest {
 protected:
  void OpenPairWithEvents() {
    auto device = provider_->Open("caps");
    ASSERT_OK(device);
    if (!(*device)->caps().completion_events) GTEST_SKIP() << "no completion events";
    ASSERT_NO_FATAL_FAILURE(OpenPair());
    // The pair's own CQs have no channel; b_ gets a queue pair whose receives make events.
    auto cq = b_.device->CreateCq({.depth = 256, .events = true});
    ASSERT_OK(cq);
    b_.qp.reset();
    b_.recv_cq = std::move(*cq);
    AddQp(&b_, {});
    a_.qp.reset();
    AddQp(&a_, {});
    ASSERT_OK(a_.qp->Connect(b_.qp->address()));
    ASSERT_OK(b_.qp->Connect(a_.qp->address()));
    for (uint64_t i = 0; i < 16; ++i) PostReceive(b_, i, {b_.sge(0, 8)});
  }
  rnic::CompletionQueue& cq() { return *b_.recv_cq; }

  // Sends one message to b_; returns when a_ has the acknowledgement and the device is done with
  // it.
  void Send(bool solicited) {
    const std::array sges = {a_.sge(0, 8)};
    ASSERT_EQ(
        Run(a_, {.id = 1, .opcode = Opcode::kSend, .solicited = solicited, .sges = sges}).status,
        WcStatus::kSuccess);
    ASSERT_EQ(Run(a_, {.id = 2, .opcode = Opcode::kNop}).status, WcStatus::kSuccess);
  }
  bool Readable(int timeout_ms) {
    pollfd waits{.fd = cq().event_fd(), .events = POLLIN, .revents = 0};
    return ::poll(&waits, 1, timeout_ms) == 1;
  }
  // Within the net against hanging.
  bool AwaitReadable() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(300);
    while (!Readable(provider_->stepped() ? 0 : 100)) {
      provider_->Drive();
      if (std::chrono::steady_clock::now() > deadline) return false;
    }
    return true;
  }
};

TEST_P(EventTest, RequestTellsOfTheNextCompletionOnce) {
  ASSERT_NO_FATAL_FAILURE(OpenPairWithEvents());
  if (IsSkipped()) return;
  ASSERT_GE(cq().event_fd(), 0);
  Send(true);
  EXPECT_FALSE(Readable(0)) << "nobody asked";
  EXPECT_EQ(CountNow(cq()), 1u);

  ASSERT_OK(cq().RequestNotify(false));
  EXPECT_EQ(CountNow(cq()), 0u);
  EXPECT_FALSE(Readable(0)) << "what was polled before the request does not count";
  Send(false);
  EXPECT_TRUE(AwaitReadable());
  auto events = cq().TakeEvents();
  ASSERT_OK(events);
  EXPECT_EQ(*events, 1u);
  EXPECT_FALSE(Readable(0)) << "taken";
  Send(false);
  EXPECT_FALSE(Readable(0)) << "a request is for one event";
  EXPECT_EQ(CountNow(cq()), 2u);
  ASSERT_OK(cq().RequestNotify(false));
  Send(false);
  EXPECT_TRUE(AwaitReadable());
}

TEST_P(EventTest, SolicitedOnlyWaitsForASolicitedReceive) {
  ASSERT_NO_FATAL_FAILURE(OpenPairWithEvents());
  if (IsSkipped()) return;
  ASSERT_OK(cq().RequestNotify(true));
  Send(false);
  Send(false);
  EXPECT_FALSE(Readable(0));
  Send(true);
  EXPECT_TRUE(AwaitReadable());
  EXPECT_EQ(CountNow(cq()), 3u);
}

TEST_P(EventTest, ErrorsAlwaysTell) {
  ASSERT_NO_FATAL_FAILURE(OpenPairWithEvents());
  if (IsSkipped()) return;
  ASSERT_OK(cq().RequestNotify(true));
  // Longer than the receive: an error at both ends, and b_'s other receives are flushed.
  const std::array sges = {a_.sge(0, 64)};
  EXPECT_NE(Run(a_, {.id = 1, .opcode = Opcode::kSend, .sges = sges}).status, WcStatus::kSuccess);
  EXPECT_TRUE(AwaitReadable());
  const WcStatus received = AwaitOne(cq()).status;
  EXPECT_TRUE(provider_->Reports(WcStatus::kLocalLength, received)) << rnic::WcStatusName(received);
  EXPECT_EQ(AwaitOne(cq()).status, WcStatus::kFlushed);
}

TEST_P(EventTest, UnpolledCompletionIsNotLostToTheRequest) {
  ASSERT_NO_FATAL_FAILURE(OpenPairWithEvents());
  if (IsSkipped()) return;
  // The message arrives between the last poll and the request: the event or the next poll shows it.
  Send(false);
  ASSERT_OK(cq().RequestNotify(false));
  EXPECT_EQ(CountNow(cq()), 1u);
}

TEST_P(EventTest, NoWakeUpIsLost) {
  ASSERT_NO_FATAL_FAILURE(OpenPairWithEvents());
  if (IsSkipped()) return;
  if (provider_->stepped()) GTEST_SKIP() << "one thread runs everything";
  constexpr uint64_t kRounds = 1000;
  std::atomic<bool> failed{false};
  std::atomic<uint64_t> received{0};
  // b_ sleeps by the rules. a_ sends the next message as soon as the last one was received, when b_
  // is anywhere between its poll and its sleep.
  std::thread sleeper([&] {
    for (uint64_t got = 0; got < kRounds && !failed;) {
      rnic::Completion done[4];
      auto polled = cq().Poll(done);
      if (!polled.ok()) break;
      if (*polled == 0) {
        if (!cq().RequestNotify(false).ok()) break;
        polled = cq().Poll(done);
        if (!polled.ok()) break;
        if (*polled == 0 && !Readable(10000)) break;
        if (!cq().TakeEvents().ok()) break;
      }
      for (size_t i = 0; i < *polled; ++i) {
        const std::array sges = {b_.sge(0, 8)};
        const rnic::ReceiveRequest receive{.id = 0, .sges = sges};
        if (!b_.qp->PostReceive({&receive, 1}).ok()) return;
      }
      got += *polled;
      received = got;
    }
  });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (uint64_t i = 0; i < kRounds; ++i) {
    const std::array sges = {a_.sge(0, 8)};
    EXPECT_EQ(Run(a_, {.id = 1, .opcode = Opcode::kSend, .sges = sges}).status, WcStatus::kSuccess);
    while (received <= i && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  }
  failed = received < kRounds;
  sleeper.join();
  EXPECT_EQ(received, kRounds) << "a wake-up was lost";
}

TEST_P(EventTest, QueueWithoutEventsSaysSo) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  EXPECT_EQ(a_.recv_cq->event_fd(), -1);
  EXPECT_THAT(a_.recv_cq->RequestNotify(false), StatusIs(Code::kNotSupported));
  EXPECT_THAT(a_.recv_cq->TakeEvents(), StatusIs(Code::kNotSupported));
}

TEST_P(EventTest, RegistersAreGivenBack) {
  auto device = provider_->Open("a");
  ASSERT_OK(device);
  if (!(*device)->caps().completion_events) GTEST_SKIP() << "no completion events";
  for (int i = 0; i < 1200; ++i) {
    SCOPED_TRACE(i);
    ASSERT_OK((*device)->CreateCq({.depth = 4, .events = true}));
  }
}

INSTANTIATE_TEST_SUITE_P(Providers, EventTest, testing::ValuesIn(Providers()),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace hyperloop::test
