// Tests requests without an answer, whose receiver is not ready or whose peer is dead. They are
// tried again as often as the queue pair says.
#include "softrnic/engine/testing/adversarial_schedule.h"
#include "softrnic/engine/testing/engine_test_util.h"
#include "support/status_matchers.h"

namespace hyperloop::softrnic {
namespace {

using rnic::WcOpcode;
using rnic::WcStatus;

EngineOptions Deferred() {
  EngineOptions options;
  options.test.steps = RandomSteps;
  options.test.defer_delivery = true;
  return options;
}

// Both ways that a request can take through the engine.
class EngineRetry : public testing::TestWithParam<bool> {
 protected:
  EngineOptions Options() const { return GetParam() ? Deferred() : EngineOptions{}; }
};
INSTANTIATE_TEST_SUITE_P(Delivery, EngineRetry, testing::Bool(), [](const auto& param) {
  return param.param ? std::string("Deferred") : std::string("AtOnce");
});

TEST_P(EngineRetry, RnrRetriesAreCountedAndTimedByTheReceiver) {
  for (const uint32_t retries : {0u, 1u, 3u, 6u}) {
    Pair p(Options(), {.rnr_timer_us = 9'000, .rnr_retry = retries}, {.rnr_timer_us = 2'000});
    p.a_qp.Send(p.a.At(p.src, 8));
    p.a_qp.Nop(CqeMode::kAlways);
    p.a_qp.Ring();
    p.Run();
    if (retries != 0) {
      p.Elapse(2 * retries - 1);
      EXPECT_TRUE(p.a_cq.PollAll().empty()) << retries << " are not over yet";
      p.Elapse(1);
    }
    const auto done = p.a_cq.PollAll();
    ASSERT_EQ(done.size(), 2u) << retries;
    EXPECT_EQ(done[0].status, WcStatus::kRnrRetryExceeded);
    EXPECT_EQ(done[0].wqe_counter, 0);
    EXPECT_EQ(done[1].status, WcStatus::kFlushed);
    EXPECT_EQ(p.a.Counter("rnr_stalls"), 1u);
    EXPECT_EQ(p.a.Counter("rnr_retries"), retries);
    EXPECT_FALSE(p.engine.RetryPending());
    EXPECT_TRUE(p.b_recv.PollAll().empty()) << "the receiver never had anything";
    p.b_qp.Receive(p.b.At(p.dst, 8));
    p.Elapse(10);
    EXPECT_EQ(p.dst[0], std::byte{0});
  }
}

TEST_P(EngineRetry, RnrRetrySevenIsForEver) {
  Pair p(Options());
  p.a_qp.WriteImm(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, 8), 1, CqeMode::kAlways);
  p.a_qp.Ring();
  p.Elapse(3000);
  EXPECT_TRUE(p.a_cq.PollAll().empty());
  EXPECT_EQ(p.dst[0], std::byte{0}) << "nothing is written while there is no receive";
  p.b_qp.Receive(p.b.At(p.dst + 64, 8));
  p.Run();
  EXPECT_EQ(p.a_cq.PollAll().at(0).status, WcStatus::kSuccess);
}

TEST_P(EngineRetry, EachRequestHasAllItsRnrRetries) {
  Pair p(Options(), {.rnr_retry = 2}, {.rnr_timer_us = 1'000});
  for (int i = 0; i < 10; ++i) {
    p.a_qp.Send(p.a.At(p.src + i, 1), CqeMode::kAlways);
    p.a_qp.Ring();
    p.Elapse(1);
    ASSERT_TRUE(p.a_cq.PollAll().empty()) << i;
    p.b_qp.Receive(p.b.At(p.dst + i, 1));
    p.Run();
    ASSERT_EQ(p.a_cq.PollAll().at(0).status, WcStatus::kSuccess) << i;
  }
  EXPECT_EQ(0, std::memcmp(p.dst, p.src, 10));
}

// Each try fetches the WQE that the ring has then.
TEST(EngineRetryFetch, ATryFetchesTheWqeAgain) {
  Pair p;
  p.a_qp.Send(p.a.At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Run();
  p.a_qp.next = 0;
  p.a_qp.Send(p.a.At(p.src + 100, 8), CqeMode::kAlways);
  p.b_qp.Receive(p.b.At(p.dst, 8));
  p.Run();
  EXPECT_EQ(0, std::memcmp(p.dst, p.src + 100, 8));
}

TEST_P(EngineRetry, ADeadPeerIsNoticedAfterAllTimeouts) {
  for (const uint32_t retries : {0u, 1u, 7u}) {
    for (int op = 0; op < 4; ++op) {
      Pair p(Options(), {.ack_timeout_ms = 5, .retry_count = retries});
      p.b.Close();
      if (op == 0) p.a_qp.Send(p.a.At(p.src, 8));
      if (op == 1) p.a_qp.Write(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, 100'000));
      if (op == 2) p.a_qp.Read(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, 8));
      if (op == 3) p.a_qp.Cas(p.Remote(p.dst), p.b.rkey, 0, 1, p.a.At(p.src, 8));
      p.a_qp.Nop();
      p.a_qp.Ring();
      p.Run();
      p.Elapse(5 * (retries + 1) - 1);
      EXPECT_TRUE(p.a_cq.PollAll().empty()) << retries << " " << op;
      EXPECT_TRUE(p.engine.RetryPending());
      p.Elapse(1);
      const auto done = p.a_cq.PollAll();
      ASSERT_EQ(done.size(), 2u) << retries << " " << op;
      EXPECT_EQ(done[0].status, WcStatus::kRetryExceeded);
      EXPECT_EQ(done[1].status, WcStatus::kFlushed);
      EXPECT_EQ(p.a.Counter("ack_stalls"), 1u);
      EXPECT_EQ(p.a.Counter("ack_timeouts"), retries + 1);
      EXPECT_FALSE(p.engine.RetryPending());
    }
  }
}

TEST_P(EngineRetry, APeerThatComesBackInTimeLosesNothing) {
  for (int round = 0; round < 5; ++round) {
    Pair p(Options(), {.ack_timeout_ms = 10, .retry_count = 1});
    p.b.Modify(p.b_qp, QpState::kReset);
    p.a_qp.Write(p.Remote(p.dst), p.b.rkey, p.a.At(p.src + round, 8), CqeMode::kAlways);
    p.a_qp.Ring();
    p.Elapse(15);
    ASSERT_TRUE(p.a_cq.PollAll().empty()) << round;
    p.b.Modify(p.b_qp, QpState::kInit, 0xf);
    p.Elapse(1);
    ASSERT_TRUE(p.a_cq.PollAll().empty()) << "INIT answers nobody";
    p.b.Connect(p.b_qp, p.a_qp);
    p.Run();
    ASSERT_EQ(p.a_cq.PollAll().at(0).status, WcStatus::kSuccess) << round;
    ASSERT_EQ(0, std::memcmp(p.dst, p.src + round, 8));
  }
}

// A connection numbers what the two have sent. If only one of them is reset, neither answers the
// other any more.
TEST_P(EngineRetry, APeerMadeAnewAloneIsNotThePeer) {
  for (const bool sends : {false, true}) {
    Pair p(Options(), {.ack_timeout_ms = 5, .retry_count = 1},
           {.ack_timeout_ms = 5, .retry_count = 1});
    p.a_qp.Write(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, 8), CqeMode::kAlways);
    p.a_qp.Ring();
    p.Run();
    ASSERT_EQ(p.a_cq.PollAll().at(0).status, WcStatus::kSuccess);
    p.b.Modify(p.b_qp, QpState::kReset);
    p.b.Modify(p.b_qp, QpState::kInit, 0xf);
    p.b.Connect(p.b_qp, p.a_qp);
    TestQp& from = sends ? p.b_qp : p.a_qp;
    if (sends) {
      from.Write(p.Remote(p.src), p.a.rkey, p.b.At(p.dst + 64, 8), CqeMode::kAlways);
    } else {
      from.Write(p.Remote(p.dst + 64), p.b.rkey, p.a.At(p.src, 8), CqeMode::kAlways);
    }
    from.Ring();
    p.Elapse(11);
    EXPECT_EQ((sends ? p.b_cq : p.a_cq).PollAll().at(0).status, WcStatus::kRetryExceeded) << sends;
    EXPECT_EQ(p.dst[64], std::byte{0});
    EXPECT_EQ(p.src[0], std::byte{1});
  }
}

TEST_P(EngineRetry, NoAckTimeoutIsForEver) {
  Pair p(Options(), {.ack_timeout_ms = 0, .retry_count = 0});
  p.b.Modify(p.b_qp, QpState::kError);
  p.a_qp.Write(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Elapse(5000);
  EXPECT_TRUE(p.a_cq.PollAll().empty());
  EXPECT_TRUE(p.engine.RetryPending());
}

// The receiver is destroyed while the sender waits for a receive. From then on the sender's
// ack_timeout and retry_count decide.
TEST_P(EngineRetry, RnrTurnsIntoSilence) {
  Pair p(Options(), {.ack_timeout_ms = 20, .retry_count = 0});
  p.a_qp.Send(p.a.At(p.src, 8));
  p.a_qp.Ring();
  p.Elapse(100);
  EXPECT_OK(p.b.Destroy(Op::kDestroyQp, p.b_qp.qpn));
  p.Elapse(19);
  EXPECT_TRUE(p.a_cq.PollAll().empty());
  p.Elapse(3);
  EXPECT_EQ(p.a_cq.PollAll().at(0).status, WcStatus::kRetryExceeded);
}

// Error completions of exhaustion advance a WAIT's counter like any other.
TEST(EngineRetryWait, ExhaustionIsACqeLikeAnyOther) {
  Pair p({}, {.ack_timeout_ms = 1, .retry_count = 0});
  TestCq cq = p.a.Cq();
  TestQp waiter = p.a.Qp(cq, cq, {.flags = kQpMaster});
  p.a.Connect(waiter, waiter);
  waiter.Wait(p.a_cq, 1);
  waiter.Nop(CqeMode::kAlways);
  waiter.Ring();
  p.b.Close();
  p.a_qp.Write(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, 8));
  p.a_qp.Nop();
  p.a_qp.Ring();
  p.Run();
  EXPECT_TRUE(cq.PollAll().empty());
  p.Elapse(1);
  EXPECT_EQ(cq.PollAll().size(), 1u) << "the error and the flushed NOP are two";
}

// --- states and their attributes

TEST(EngineState, OnlyTheTransitionsOfAnRcQueuePairAreAllowed) {
  const QpState states[] = {QpState::kReset, QpState::kInit, QpState::kReadyToReceive,
                            QpState::kReadyToSend, QpState::kError};
  // allowed[from][to]
  const bool allowed[5][5] = {
      {true, true, false, false, false},  // RESET
      {true, true, true, false, true},    // INIT
      {true, false, false, true, true},   // RTR
      {true, false, false, false, true},  // RTS
      {true, false, false, false, true},  // ERROR
  };
  Pair p;
  const auto enter = [&](TestQp& qp, int state) {
    p.a.Modify(qp, QpState::kReset);
    if (state >= 1) p.a.Modify(qp, QpState::kInit, 0xf);
    if (state >= 2) p.a.Modify(qp, QpState::kReadyToReceive, 0, &p.b_qp);
    if (state >= 3) p.a.Modify(qp, QpState::kReadyToSend);
    if (state >= 4) p.a.Modify(qp, QpState::kError);
  };
  for (int from = 0; from < 5; ++from) {
    for (int to = 0; to < 5; ++to) {
      enter(p.a_qp, from);
      const Status status = p.a.TryModify(p.a_qp, states[to], 0xf, &p.b_qp);
      EXPECT_EQ(status.ok(), allowed[from][to]) << from << " to " << to;
      if (status.ok()) continue;
      EXPECT_THAT(status,
                  StatusIs(Code::kInvalidArgument, testing::HasSubstr("RESET, INIT, RTR, RTS")));
      // The refusal has changed nothing: what was allowed from that state still is.
      for (int next = 0; next < 5; ++next) {
        if (!allowed[from][next]) continue;
        EXPECT_OK(p.a.TryModify(p.a_qp, states[next], 0xf, &p.b_qp))
            << from << " refused " << to << ", then " << next;
        break;
      }
    }
  }
  EXPECT_THAT(p.a.TryModify(p.a_qp, static_cast<QpState>(5)), StatusIs(Code::kInvalidArgument));
}

TEST(EngineState, AttributesHaveLimits) {
  Pair p;
  const auto refused = [&](QpState state, auto&& change) {
    p.a.Modify(p.a_qp, QpState::kReset);
    p.a.Modify(p.a_qp, QpState::kInit, 0xf);
    if (state == QpState::kReadyToSend) p.a.Modify(p.a_qp, QpState::kReadyToReceive, 0, &p.b_qp);
    TestQp qp = p.a_qp;
    change(qp.attr);
    const Code code = p.a.TryModify(qp, state, 0, &p.b_qp).code();
    if (code != Code::kOk) {
      EXPECT_OK(p.a.TryModify(p.a_qp, state, 0, &p.b_qp)) << "can be made good";
    }
    return code == Code::kInvalidArgument;
  };
  EXPECT_TRUE(refused(QpState::kReadyToReceive, [](auto& a) { a.rnr_timer_us = 0; }));
  EXPECT_TRUE(refused(QpState::kReadyToReceive, [](auto& a) { a.rnr_timer_us = 491'521; }));
  EXPECT_FALSE(refused(QpState::kReadyToReceive, [](auto& a) { a.rnr_timer_us = 491'520; }));
  EXPECT_TRUE(refused(QpState::kReadyToSend, [](auto& a) { a.retry_count = 8; }));
  EXPECT_TRUE(refused(QpState::kReadyToSend, [](auto& a) { a.rnr_retry = 8; }));
  EXPECT_TRUE(refused(QpState::kReadyToSend, [](auto& a) { a.rnr_retry = 0x107; }));
  EXPECT_TRUE(refused(QpState::kReadyToSend, [](auto& a) { a.ack_timeout_ms = 8'796'094; }));
  EXPECT_FALSE(refused(QpState::kReadyToSend, [](auto& a) { a.ack_timeout_ms = 8'796'093; }));
  EXPECT_TRUE(refused(QpState::kReadyToSend, [](auto& a) { a.link_timeout_ms = 8'796'094; }));
  EXPECT_FALSE(refused(QpState::kReadyToSend, [](auto& a) { a.link_timeout_ms = 8'796'093; }));
  EXPECT_OK(p.a.TryModify(p.a_qp, QpState::kReset));
  EXPECT_THAT(p.a.TryModify(p.a_qp, QpState::kInit, 0x10), StatusIs(Code::kInvalidArgument))
      << "unknown access rights";
}

TEST(EngineState, OnlyRtsSendsAndOnlyRtrAndRtsReceive) {
  Pair p({}, {.ack_timeout_ms = 0});
  TestQp qp = p.a.Qp(p.a_cq, p.a_recv);
  qp.Nop(CqeMode::kAlways);
  qp.Ring();
  p.Run();
  EXPECT_TRUE(p.a_cq.PollAll().empty()) << "INIT";
  p.a.Modify(qp, QpState::kReadyToReceive, 0, &p.b_qp);
  p.Run();
  EXPECT_TRUE(p.a_cq.PollAll().empty()) << "RTR";
  p.a.Modify(qp, QpState::kReadyToSend);
  p.Run();
  EXPECT_EQ(p.a_cq.PollAll().size(), 1u) << "RTS: what was rung before runs now";
  // The receiving side needs only RTR.
  p.b.Modify(p.b_qp, QpState::kReset);
  p.b.Modify(p.b_qp, QpState::kInit, 0xf);
  p.a_qp.Write(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Elapse(2);
  EXPECT_TRUE(p.a_cq.PollAll().empty()) << "INIT receives nothing";
  p.b.Modify(p.b_qp, QpState::kReadyToReceive, 0, &p.a_qp);
  p.Run();
  EXPECT_EQ(p.a_cq.PollAll().at(0).status, WcStatus::kSuccess);
  p.b.Modify(p.b_qp, QpState::kError);
  p.a_qp.Write(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Elapse(2);
  EXPECT_TRUE(p.a_cq.PollAll().empty()) << "ERROR receives nothing";
}

}  // namespace
}  // namespace hyperloop::softrnic
