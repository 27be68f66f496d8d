// Tests two engines and a network in memory: what RC promises holds over links that are slow, cut,
// and reset at any byte. A random failure prints its seed; HYPERLOOP_SEED=<seed> repeats just that
// run, HYPERLOOP_SEEDS=<n> runs n of them.
#include <gtest/gtest.h>

#include <cstring>

#include "softrnic/engine/remote.h"
#include "softrnic/engine/testing/adversarial_schedule.h"
#include "softrnic/engine/testing/engine_link_fixture.h"
#include "support/status_matchers.h"

namespace hyperloop::softrnic {
namespace {

using rnic::WcOpcode;
using rnic::WcStatus;

TEST(EngineLink, EveryOperationCrosses) {
  Linked p;
  p.b_qp.Receive(p.b->At(p.dst, 100));
  p.b_qp.Receive(p.b->At(p.dst + 100, 100));
  p.Word(p.dst + 800) = 5;
  p.a_qp.Send(p.a->At(p.src, 60), CqeMode::kAlways);
  p.a_qp.Write(p.Dst(200), p.b->rkey, p.a->At(p.src + 200, 333), CqeMode::kAlways);
  p.a_qp.WriteImm(p.Dst(600), p.b->rkey, p.a->At(p.src + 600, 8), 77, CqeMode::kAlways);
  p.a_qp.Read(p.Dst(200), p.b->rkey, p.a->At(p.back, 333), CqeMode::kAlways);
  p.a_qp.Cas(p.Dst(800), p.b->rkey, 5, 6, p.a->At(p.back + 400, 8), CqeMode::kAlways);
  p.a_qp.Add(p.Dst(800), p.b->rkey, 10, p.a->At(p.back + 408, 8), CqeMode::kAlways);
  p.a_qp.Nop(CqeMode::kAlways);
  p.a_qp.Ring();
  p.Run();
  const auto sent = p.a_cq.PollAll();
  ExpectAllGood(sent, 7);
  for (size_t i = 1; i < sent.size(); ++i) EXPECT_LT(sent[i - 1].wqe_counter, sent[i].wqe_counter);
  EXPECT_EQ(sent[3].byte_length, 333u);
  const auto received = p.b_recv.PollAll();
  ExpectAllGood(received, 2);
  EXPECT_EQ(received[0].byte_length, 60u);
  EXPECT_EQ(received[1].opcode, WcOpcode::kReceiveWriteImm);
  EXPECT_EQ(received[1].imm, 77u);
  EXPECT_EQ(received[1].byte_length, 8u);
  EXPECT_EQ(std::memcmp(p.dst, p.src, 60), 0);
  EXPECT_EQ(std::memcmp(p.dst + 200, p.src + 200, 333), 0);
  EXPECT_EQ(std::memcmp(p.dst + 600, p.src + 600, 8), 0);
  EXPECT_EQ(std::memcmp(p.back, p.src + 200, 333), 0);
  EXPECT_EQ(p.Word(p.back + 400), 5u);
  EXPECT_EQ(p.Word(p.back + 408), 6u);
  EXPECT_EQ(p.Word(p.dst + 800), 16u);
  EXPECT_EQ(p.b->Counter("read_responses_nonzero"), 1u);
  EXPECT_EQ(p.a->Counter("sends") + p.a->Counter("writes") + p.a->Counter("reads"), 4u);
  EXPECT_EQ(p.a->Counter("link_retransmits"), 0u);
}

// The messages are longer than a packet and than what may be under way, and the link takes little
// at a time.
TEST(EngineLink, LongMessagesGoInPackets) {
  Linked p;
  p.network.room = 1000;
  p.b_qp.Receive(p.b->At(p.dst, Linked::kBytes));
  p.a_qp.Send(p.a->At(p.src, Linked::kBytes), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Run();
  ExpectAllGood(p.a_cq.PollAll(), 1);
  const auto received = p.b_recv.PollAll();
  ExpectAllGood(received, 1);
  EXPECT_EQ(received[0].byte_length, Linked::kBytes);
  EXPECT_EQ(std::memcmp(p.dst, p.src, Linked::kBytes), 0);
  for (int i = 0; i < 5; ++i)
    p.a_qp.Read(p.Dst(), p.b->rkey, p.a->At(p.back, Linked::kBytes), CqeMode::kAlways);
  std::memset(p.dst, 9, 1000);
  p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, Linked::kBytes), CqeMode::kAlways);
  p.a_qp.Read(p.Dst(), p.b->rkey, p.a->At(p.back, Linked::kBytes), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Run();
  ExpectAllGood(p.a_cq.PollAll(), 7);
  EXPECT_EQ(std::memcmp(p.back, p.src, Linked::kBytes), 0);
}

// Runs every kind of request over a link that is reset after byte `at`. Wherever that is, each
// request must run exactly once.
void RunWithResetAt(uint64_t at, uint64_t* total) {
  Linked p;
  p.b_qp.Receive(p.b->At(p.dst, 64));
  p.b_qp.Receive(p.b->At(p.dst + 64, 64));
  p.b_qp.Receive(p.b->At(p.dst + 128, 64));
  p.Word(p.dst + 512) = 1;
  p.a_qp.Add(p.Dst(504), p.b->rkey, 1, p.a->At(p.back, 8), CqeMode::kAlways);
  p.a_qp.Cas(p.Dst(512), p.b->rkey, 1, 2, p.a->At(p.back + 8, 8), CqeMode::kAlways);
  p.a_qp.Send(p.a->At(p.src, 3), CqeMode::kAlways);
  p.a_qp.Cas(p.Dst(512), p.b->rkey, 2, 1, p.a->At(p.back + 16, 8), CqeMode::kAlways);
  p.a_qp.Read(p.Dst(504), p.b->rkey, p.a->At(p.back + 24, 16), CqeMode::kAlways);
  p.a_qp.Cas(p.Dst(512), p.b->rkey, 1, 7, p.a->At(p.back + 40, 8), CqeMode::kAlways);
  p.a_qp.Write(p.Dst(600), p.b->rkey, p.a->At(p.src + 9, 5), CqeMode::kAlways);
  p.a_qp.Send(p.a->At(p.src + 3, 3), CqeMode::kAlways);
  p.a_qp.Add(p.Dst(504), p.b->rkey, 1, p.a->At(p.back + 48, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  bool reset = false;
  for (bool moving = true; moving;) {
    moving = p.StepEngines();
    // Deliver up to byte `at`, counted in both directions together.
    for (const bool requests : {true, false}) {
      uint64_t bytes = p.ab.under_way();
      if (!reset) bytes = std::min(bytes, at - p.ab.bytes_delivered);
      moving |= p.network.Deliver(p.ab, requests, bytes) != 0;
      if (!reset && p.ab.bytes_delivered == at) {
        p.network.Reset(p.ab);
        p.StepEngines();
        p.network.Open(p.ab);
        reset = moving = true;
      }
    }
  }
  *total = p.ab.bytes_delivered;
  SCOPED_TRACE("reset after byte " + std::to_string(at));
  ExpectAllGood(p.a_cq.PollAll(), 9);
  ExpectAllGood(p.b_recv.PollAll(), 2);
  EXPECT_EQ(p.Word(p.dst + 504), 2u);
  EXPECT_EQ(p.Word(p.dst + 512), 7u);
  const uint64_t expected[] = {0, 1, 2, 1, 1, 1, 1};
  EXPECT_EQ(std::memcmp(p.back, expected, sizeof expected), 0);
  EXPECT_EQ(std::memcmp(p.dst, p.src, 3), 0);
  EXPECT_EQ(std::memcmp(p.dst + 64, p.src + 3, 3), 0);
  EXPECT_EQ(std::memcmp(p.dst + 600, p.src + 9, 5), 0);
}

// One acknowledgement for many WRITEs: a wake-up of two machines that nobody waits for is spared.
TEST(EngineLink, AnAcknowledgementThatNobodyWaitsForComesLater) {
  Linked p;
  const auto answers = [&p] { return p.ab.answers.size(); };
  p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Run();  // with the session
  ExpectAllGood(p.a_cq.PollAll(), 1);
  for (int i = 0; i < 3; ++i) {
    p.a_qp.Write(p.Dst(8), p.b->rkey, p.a->At(p.src, 8), CqeMode::kOnError);
    p.a_qp.Ring();
    p.StepEngines();
    p.network.Deliver(p.ab, true, SIZE_MAX);
    p.StepEngines();
    EXPECT_EQ(answers(), 0u);
    EXPECT_TRUE(p.b_engine.RetryPending()) << "nobody looks again";
  }
  p.now += kAckDelayNs;
  p.StepEngines();
  EXPECT_NE(answers(), 0u);
  p.Run();
  EXPECT_FALSE(p.b_engine.RetryPending());
  EXPECT_EQ(p.a->Counter("link_packets_received"), 2u) << "an acknowledgement each";

  // One with a CQE brings it at once, and so does one that leaves little room for others.
  p.a_qp.Write(p.Dst(8), p.b->rkey, p.a->At(p.src, 8), CqeMode::kOnError);
  p.a_qp.Write(p.Dst(8), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Run();
  ExpectAllGood(p.a_cq.PollAll(), 1);
  for (size_t i = 0; i < 2 * kMaxRemoteInflight; ++i) {
    p.a_qp.Write(p.Dst(8), p.b->rkey, p.a->At(p.src, 8), CqeMode::kOnError);
    p.a_qp.Ring();
    p.Run();
  }
  EXPECT_EQ(p.a->Counter("wqes_executed"), 6 + 2 * kMaxRemoteInflight);
}

TEST(EngineLink, AResetAtAnyByteRepeatsNothing) {
  uint64_t total = 0;
  RunWithResetAt(UINT64_MAX, &total);
  ASSERT_GT(total, 1000u);
  for (uint64_t at = 0; at <= total && !HasFailure(); ++at) {
    uint64_t with_reset = 0;
    RunWithResetAt(at, &with_reset);
  }
}

// --- time

TEST(EngineLink, ACutBecomesRetryExceededAfterTheTimeoutAndNotBefore) {
  Linked p;
  p.a_qp.Nop();
  p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Run();
  ExpectAllGood(p.a_cq.PollAll(), 1);
  p.ab.cut = true;
  p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Nop(CqeMode::kAlways);
  p.a_qp.Ring();
  p.Pass(8 * 500 - 1);
  EXPECT_TRUE(p.a_cq.PollAll().empty()) << "7 retries of 500 ms";
  EXPECT_TRUE(p.a_engine.RetryPending());
  p.Pass(2);
  const auto ends = p.a_cq.PollAll();
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(ends[0].status, WcStatus::kRetryExceeded);
  EXPECT_EQ(ends[1].status, WcStatus::kFlushed);
  p.Pass(3);
  EXPECT_FALSE(p.a_engine.RetryPending()) << "nothing left to wait for";
}

TEST(EngineLink, ACutLastsTheLinkTimeoutHoweverOftenPacketsAreSentAgain) {
  for (const uint32_t timeout_ms : {120u, 2'000u, 20'000u}) {
    SCOPED_TRACE(timeout_ms);
    Linked p({}, {.link_timeout_ms = timeout_ms, .retry_count = 1});
    const auto write = [&p] {
      p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
      p.a_qp.Ring();
    };
    write();
    p.Run();
    ExpectAllGood(p.a_cq.PollAll(), 1);
    p.Pass(3);
    p.ab.cut = true;
    write();
    p.Pass(timeout_ms - 1);
    EXPECT_TRUE(p.a_cq.PollAll().empty());
    EXPECT_GE(p.a->Counter("link_retransmits"), (timeout_ms - 1) / 500);
    p.ab.cut = false;  // healed in time: not seen
    p.Run();
    ExpectAllGood(p.a_cq.PollAll(), 1);
    p.ab.cut = true;
    write();
    p.Pass(timeout_ms - 1);
    EXPECT_TRUE(p.a_cq.PollAll().empty()) << "counted anew";
    p.Pass(2);
    const auto ends = p.a_cq.PollAll();
    ASSERT_EQ(ends.size(), 1u);
    EXPECT_EQ(ends[0].status, WcStatus::kRetryExceeded);
  }
}

// The same holds for the very first packet, which asks for a session.
TEST(EngineLink, AnUnreachablePeerBecomesRetryExceeded) {
  Linked p;
  p.network.Reset(p.ab);
  p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Pass(8 * 500 - 1);
  EXPECT_TRUE(p.a_cq.PollAll().empty());
  p.Pass(2);
  const auto ends = p.a_cq.PollAll();
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].status, WcStatus::kRetryExceeded);
}

TEST(EngineLink, HealedInTimeItGoesOnWithoutLoss) {
  Linked p;
  p.ab.cut = true;
  for (int i = 0; i < 20; ++i)
    p.a_qp.Add(p.Dst(), p.b->rkey, 1, p.a->At(p.back + 8 * i, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Pass(3900);
  p.ab.cut = false;
  p.Run();
  ExpectAllGood(p.a_cq.PollAll(), 20);
  EXPECT_EQ(p.Word(p.dst), 20u);
  for (uint64_t i = 0; i < 20; ++i) EXPECT_EQ(p.Word(p.back + 8 * i), i);
}

TEST(EngineLink, AnswersThatGetLostAreAskedForAgain) {
  Linked p;
  p.a_qp.Add(p.Dst(), p.b->rkey, 1, p.a->At(p.back, 8), CqeMode::kAlways);
  p.a_qp.Write(p.Dst(64), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  // The session is opened and the requests are sent. Then b's answers are lost, but the link stays
  // up.
  p.StepEngines();
  p.network.DeliverAll();
  p.StepEngines();
  p.network.DeliverAll();
  p.StepEngines();
  p.network.DeliverAll();
  p.StepEngines();
  ASSERT_EQ(p.Word(p.dst), 1u);
  p.network.Lose(p.ab, /*requests=*/false);
  p.Pass(499);
  EXPECT_TRUE(p.a_cq.PollAll().empty());
  p.Pass(5);
  ExpectAllGood(p.a_cq.PollAll(), 2);
  EXPECT_EQ(p.Word(p.dst), 1u);
  EXPECT_EQ(p.Word(p.back), 0u);
  EXPECT_EQ(p.a->Counter("link_retransmits"), 2u);
  EXPECT_EQ(p.b->Counter("link_duplicates"), 2u);
}

TEST(EngineLink, WithoutAReceiveTheSenderWaitsAndKeepsTheOrder) {
  Linked p;
  p.a_qp.Send(p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Write(p.Dst(64), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Pass(10'000);
  EXPECT_TRUE(p.a_cq.PollAll().empty());
  EXPECT_EQ(p.Word(p.dst + 64), 0u) << "a later request overtook";
  p.b_qp.Receive(p.b->At(p.dst, 8));
  p.Pass(5);
  ExpectAllGood(p.a_cq.PollAll(), 2);
  ExpectAllGood(p.b_recv.PollAll(), 1);
}

// --- errors

TEST(EngineLink, ARefusalIsToldEvenIfItsAnswerGotLost) {
  Linked p;
  p.a_qp.Write(p.Dst(), p.b->rkey + 1, p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  for (int i = 0; i < 3; ++i) {
    p.StepEngines();
    p.network.Deliver(p.ab, true, SIZE_MAX);
    p.StepEngines();
    if (i == 0) p.network.Deliver(p.ab, false, SIZE_MAX);
  }
  p.network.Reset(p.ab);
  p.network.Open(p.ab);
  p.Run();
  const auto ends = p.a_cq.PollAll();
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(ends[0].status, WcStatus::kRemoteAccess);
  EXPECT_EQ(ends[1].status, WcStatus::kFlushed);
  EXPECT_EQ(p.Word(p.dst), 0u);
}

TEST(EngineLink, ALocalErrorFollowsWhatCameBefore) {
  Linked p;
  p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Write(p.Dst(), p.b->rkey, {p.a->At(p.src, 8).addr, 8, 0xbad00}, CqeMode::kAlways);
  p.a_qp.Write(p.Dst(8), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Run();
  const auto ends = p.a_cq.PollAll();
  ASSERT_EQ(ends.size(), 3u);
  EXPECT_EQ(ends[0].status, WcStatus::kSuccess);
  EXPECT_EQ(ends[1].status, WcStatus::kLocalProtection);
  EXPECT_EQ(ends[2].status, WcStatus::kFlushed);
  EXPECT_EQ(p.Word(p.dst + 8), 0u);
}

// Even if what it waits for comes before the failure is reported.
TEST(EngineLink, AWaitBehindAFailedRequestRunsNoMore) {
  Linked p({}, {.flags = kQpMaster});
  TestCq told = p.a->Cq(), enabled = p.a->Cq();
  TestQp teller = p.a->Qp(told, told);
  TestQp managed = p.a->Qp(enabled, enabled, {.has_rq = false, .flags = kQpSlaveSend});
  p.a->Connect(teller, teller);
  p.a->Connect(managed, managed);
  managed.Nop(CqeMode::kAlways);
  p.a_qp.Nop(CqeMode::kAlways);
  p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Run();
  ExpectAllGood(p.a_cq.PollAll(), 2);

  p.network.room = 1000;
  const auto key = p.a->Key(p.src, Linked::kBytes, 0xf);
  const Sge all{p.a->At(p.src, 8).addr, Linked::kBytes, key.lkey};
  p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Write(p.Dst(), p.b->rkey, all, CqeMode::kAlways);
  p.a_qp.Wait(told, 0);
  p.a_qp.Enable(managed, managed.next);
  p.a_qp.Ring();
  p.StepEngines();
  ASSERT_OK(p.a->Destroy(Op::kDestroyMkey, key.lkey));
  p.network.Deliver(p.ab, true, SIZE_MAX);  // there is room for the rest, which has no key
  p.StepEngines();
  teller.Nop(CqeMode::kAlways);
  teller.Ring();
  p.StepEngines();
  ExpectAllGood(told.PollAll(), 1);
  EXPECT_TRUE(p.a_cq.PollAll().empty()) << "nothing is answered yet";
  EXPECT_TRUE(enabled.PollAll().empty());
  p.Run();
  const auto ends = p.a_cq.PollAll();
  ASSERT_GE(ends.size(), 2u);
  EXPECT_EQ(ends[0].status, WcStatus::kSuccess);
  EXPECT_EQ(ends[1].status, WcStatus::kLocalProtection);
  EXPECT_TRUE(enabled.PollAll().empty());
}

TEST(EngineLink, ALongRequestIsRefusedBeforeItsFirstByte) {
  Linked p;
  const auto key = p.b->Key(p.dst, 100'000, 0xf);
  p.a_qp.Write(p.Dst(), key.rkey, p.a->At(p.src, 200'000), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Run();
  const auto ends = p.a_cq.PollAll();
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].status, WcStatus::kRemoteAccess);
  EXPECT_EQ(p.dst[0], std::byte{0});
}

TEST(EngineLink, AMessageTooLongForItsReceiveFailsBothEnds) {
  Linked p;
  p.b_qp.Receive(p.b->At(p.dst, 100'000));
  p.a_qp.Send(p.a->At(p.src, 100'001), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Run();
  const auto ends = p.a_cq.PollAll();
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].status, WcStatus::kRemoteInvalidRequest);
  const auto received = p.b_recv.PollAll();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].status, WcStatus::kLocalLength);
  EXPECT_EQ(p.dst[0], std::byte{0});
}

TEST(EngineLink, APeerThatIsGoneIsNoticedAtOnce) {
  Linked p;
  p.b->Close();
  p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Run();
  const auto ends = p.a_cq.PollAll();
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].status, WcStatus::kRetryExceeded);
}

TEST(EngineLink, AnUnknownAddressIsRefusedWithItsRemedy) {
  Linked p;
  p.a->Modify(p.a_qp, QpState::kReset);
  p.a->Modify(p.a_qp, QpState::kInit, 0);
  TestQp nobody = p.b_qp;
  nobody.gid[3] ^= 1;
  const Status status = p.a->TryModify(p.a_qp, QpState::kReadyToReceive, 0, &nobody);
  EXPECT_THAT(status, StatusIs(Code::kUnavailable));
  EXPECT_NE(status.message().find("--peer"), std::string::npos) << status.message();
  EXPECT_THAT(p.a_engine.AddRoute("b", 77), StatusIs(Code::kAlreadyExists));
}

// A host that is found elsewhere, or nowhere any more: what is under way ends, and so does what an
// idle queue pair sends next. The host writes nothing here any more, either.
TEST(EngineLink, AChangedRouteEndsTheQueuePairsOfTheOldOne) {
  for (const bool idle : {false, true}) {
    for (const bool moved : {false, true}) {
      SCOPED_TRACE(testing::Message() << "idle " << idle << ", moved " << moved);
      Linked p;
      const auto write = [&p] {
        p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
        p.a_qp.Ring();
      };
      const auto write_there = [&p](size_t at) {
        p.b_qp.Write(reinterpret_cast<uint64_t>(p.back + at), p.a->rkey, p.b->At(p.dst, 8),
                     CqeMode::kAlways);
        p.b_qp.Ring();
        p.Run();
        const auto ends = p.b_cq.PollAll();
        return ends.size() == 1 ? ends[0].status : WcStatus::kFlushed;
      };
      write();
      if (idle) {
        p.Run();
        ExpectAllGood(p.a_cq.PollAll(), 1);
        EXPECT_EQ(write_there(0), WcStatus::kSuccess);
      } else {
        p.StepEngines();
      }
      MemoryNetwork::Link& other = p.network.Connect(p.a_port, p.b_port);
      p.a_port->SetRoute("b", moved ? other.id : kNoLink);
      p.StepEngines();
      if (idle) {
        EXPECT_EQ(write_there(8), WcStatus::kRetryExceeded);
        EXPECT_EQ(p.Word(p.back + 8), 0u);
        write();
      }
      p.StepEngines();
      const auto ends = p.a_cq.PollAll();
      ASSERT_EQ(ends.size(), 1u);
      EXPECT_EQ(ends[0].status, WcStatus::kRetryExceeded);
      p.a->Modify(p.a_qp, QpState::kReset);
      p.a->Modify(p.a_qp, QpState::kInit, 0);
      EXPECT_THAT(p.a->TryModify(p.a_qp, QpState::kReadyToReceive, 0, &p.b_qp),
                  StatusIs(moved ? Code::kOk : Code::kUnavailable));
    }
  }
}

// Queue pairs that answer for a service have no route of their own.
TEST(EngineLink, AHostThatIsGoneIsAnsweredByNoServiceAnyMore) {
  Linked p;
  Command publish = p.b->Make(Op::kPublish);
  std::strcpy(publish.args.publish.service, "inspect");
  publish.args.publish.pdn = p.b->pdn;
  p.b->Must(publish);
  TestQp qp = p.a->Qp(p.a_cq, p.a_recv);
  p.a->Modify(qp, QpState::kReset);
  Command connect = p.a->Make(Op::kConnectService);
  std::strcpy(connect.args.connect.host, "b");
  std::strcpy(connect.args.connect.service, "inspect");
  connect.args.connect.qpn = qp.qpn;
  Reply reply;
  EXPECT_THAT(p.a->Try(connect, &reply), StatusIs(Code::kBusy));
  p.Run();
  ASSERT_OK(p.a->Try(connect, &reply));
  TestQp peer;
  peer.qpn = reply.result.connect.remote_qpn;
  std::memcpy(peer.gid.data(), reply.result.connect.gid, 16);
  p.a->Modify(qp, QpState::kInit, 0);
  p.a->Connect(qp, peer);
  const auto read = [&] {
    qp.Read(p.Dst(), p.b->rkey, p.a->At(p.back, 8), CqeMode::kAlways);
    qp.Ring();
    p.Run();
    const auto ends = p.a_cq.PollAll();
    return ends.size() == 1 ? ends[0].status : WcStatus::kFlushed;
  };
  EXPECT_EQ(read(), WcStatus::kSuccess);
  p.b_port->SetRoute("a", p.network.Connect(p.b_port, p.a_port).id);
  p.Run();
  EXPECT_EQ(read(), WcStatus::kSuccess) << "the answers need no route";
  p.b_port->SetRoute("a", kNoLink);
  p.Run();
  EXPECT_EQ(read(), WcStatus::kRetryExceeded);
}

TEST(EngineLink, ARouteThatStaysDisturbsNobody) {
  Linked p;
  p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.StepEngines();
  p.a_port->SetRoute("b", p.ab.id);
  p.a_port->SetRoute("c", p.ab.id);
  p.a_port->SetRoute("d", kNoLink);
  p.Run();
  ExpectAllGood(p.a_cq.PollAll(), 1);
}

// On a link it means the daemons, and bytes for it would end the link of all hosts.
TEST(EngineLink, NumberZeroIsNoPeer) {
  Linked p;
  p.a->Modify(p.a_qp, QpState::kReset);
  p.a->Modify(p.a_qp, QpState::kInit, 0);
  for (const uint32_t number : {0u, 0x1000000u}) {
    TestQp nobody = p.b_qp;
    nobody.qpn = number;
    EXPECT_THAT(p.a->TryModify(p.a_qp, QpState::kReadyToReceive, 0, &nobody),
                StatusIs(Code::kInvalidArgument));
  }
  EXPECT_OK(p.a->TryModify(p.a_qp, QpState::kReadyToReceive, 0, &p.b_qp));
}

// Packets from before a reset of two queue pairs have no effect after it, however late they come.
TEST(EngineLink, OldPacketsDoNothingToNewQueuePairs) {
  for (const bool began : {false, true}) {
    Linked p;
    if (began) {
      p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
      p.a_qp.Ring();
      p.Run();
    } else {  // with a session, but nothing has run
      p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
      p.a_qp.Ring();
      p.StepEngines();
      p.network.DeliverAll();
      p.StepEngines();
      p.network.DeliverAll();
      p.StepEngines();
      ASSERT_GT(p.ab.requests.size(), 0u);
    }
    if (began) {
      p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src + 8, 8), CqeMode::kAlways);
      p.a_qp.Ring();
      p.StepEngines();
    }
    p.a_cq.PollAll();
    for (Client* each : {p.a.get(), p.b.get()}) {
      TestQp& qp = each == p.a.get() ? p.a_qp : p.b_qp;
      each->Modify(qp, QpState::kReset);
      each->Modify(qp, QpState::kInit, 0xf);
      qp.next = qp.next_recv = 0;
    }
    p.a->Connect(p.a_qp, p.b_qp);
    p.b->Connect(p.b_qp, p.a_qp);
    std::memset(p.dst, 0, 64);
    p.Run();
    EXPECT_EQ(p.Word(p.dst), 0u);
    p.a_qp.Write(p.Dst(32), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
    p.a_qp.Ring();
    p.Run();
    ExpectAllGood(p.a_cq.PollAll(), 1);
    EXPECT_EQ(std::memcmp(p.dst + 32, p.src, 8), 0);
  }
}

// Only one end is reset. The packet numbers of the two do not fit any more, and both get errors.
TEST(EngineLink, AQueuePairResetAloneIsRefused) {
  Linked p;
  p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Run();
  ExpectAllGood(p.a_cq.PollAll(), 1);
  p.a->Modify(p.a_qp, QpState::kReset);
  p.a->Modify(p.a_qp, QpState::kInit, 0xf);
  p.a_qp.next = 0;
  p.a->Connect(p.a_qp, p.b_qp);
  p.a_qp.Write(p.Dst(32), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Run();
  const auto ends = p.a_cq.PollAll();
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].status, WcStatus::kRetryExceeded);
  EXPECT_EQ(p.Word(p.dst + 32), 0u);
}

// --- order

TEST(EngineLink, AFenceWaitsForTheAnswerOfARead) {
  Linked p;
  p.b_qp.Receive(p.b->At(p.dst + 64, 8));
  p.Word(p.dst) = 4711;
  p.a_qp.Read(p.Dst(), p.b->rkey, p.a->At(p.back, 8));
  const Sge sge = p.a->At(p.back, 8);
  p.a_qp.Send(std::span(&sge, 1), CqeMode::kAlways, /*fence=*/true);
  p.a_qp.Ring();
  p.Run();
  EXPECT_EQ(p.Word(p.dst + 64), 4711u);
  EXPECT_GT(p.a->Counter("fence_stalls"), 0u);
}

TEST(EngineLink, WhatIsUnderWayIsBounded) {
  Linked p({}, {.log_sq = 8});
  p.network.room = SIZE_MAX;
  p.ab.cut = true;
  for (int i = 0; i < 200; ++i)
    p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 60'000), CqeMode::kAlways);
  p.a_qp.Ring();
  p.StepEngines();
  p.ab.cut = false;
  size_t most = 0;
  for (int i = 0; i < 10'000 && (p.StepEngines() || p.ab.under_way() != 0); ++i) {
    most = std::max(most, p.ab.under_way());
    p.network.DeliverAll();
  }
  EXPECT_LT(most, 700u << 10);
  EXPECT_GT(most, 400u << 10) << "no pipelining";
  ExpectAllGood(p.a_cq.PollAll(), 200);
}

// --- random

// Random requests over links that are slow, cut and reset at random, and a model in which each
// request runs exactly once and in the order of RC.
class RandomRun {
 public:
  explicit RandomRun(uint64_t seed)
      : random_(seed),
        options_(Options(seed)),
        p_(options_, {.log_sq = 8, .max_read_atomic = static_cast<uint32_t>(1 + Pick(16))},
           {.log_rq = 8}) {
    p_.network.room = 1 + Pick(200'000);
  }

  void Run() {
    for (int n = 0; n < 60; ++n) Post();
    p_.a_qp.Ring();
    uint64_t idle = 0;
    for (uint64_t n = 0; n < 2'000'000 && idle < 5'000; ++n) {
      const bool moved = Move();
      idle = moved || p_.ab.cut || !p_.ab.up ? 0 : idle + 1;
      for (const auto& each : p_.a_cq.PollAll()) {
        ASSERT_EQ(each.status, WcStatus::kSuccess) << rnic::WcStatusName(each.status);
        done_.push_back(each.wqe_counter);
      }
    }
    Compare();
  }

 private:
  EngineOptions Options(uint64_t seed) {
    EngineOptions options;
    options.test.seed = seed;
    if (Pick(2) == 0) options.test.steps = RandomSteps;
    if (Pick(3) == 0) options.test.defer_delivery = true;
    if (options.test.defer_delivery && options.test.steps == nullptr)
      options.test.steps = FirstFoundSteps;
    return options;
  }
  uint64_t Pick(uint64_t below) { return random_() % below; }

  void Post() {
    const size_t bytes = Pick(8) == 0 ? 1 + Pick(150'000) : 1 + Pick(200);
    const size_t at = Pick(Linked::kBytes - bytes), from = Pick(Linked::kBytes - bytes);
    switch (Pick(4)) {
      case 0:
        p_.a_qp.Write(p_.Dst(at), p_.b->rkey, p_.a->At(p_.src + from, bytes), CqeMode::kAlways);
        std::memcpy(model_.data() + at, p_.src + from, bytes);
        break;
      case 1:
        p_.b_qp.Receive(p_.b->At(p_.dst + at, bytes));
        p_.a_qp.Send(p_.a->At(p_.src + from, bytes), CqeMode::kAlways);
        std::memcpy(model_.data() + at, p_.src + from, bytes);
        ++sends_;
        break;
      case 2:
        if (back_used_ + bytes <= Linked::kBytes)
          p_.a_qp.Read(p_.Dst(at), p_.b->rkey, Answer(at, bytes), CqeMode::kAlways);
        break;
      default:
        back_used_ = (back_used_ + 7) / 8 * 8;
        if (back_used_ + 8 <= Linked::kBytes) PostAdd(at / 8 * 8);
    }
  }
  void PostAdd(size_t word) {
    p_.a_qp.Add(p_.Dst(word), p_.b->rkey, 3, Answer(word, 8), CqeMode::kAlways);
    uint64_t value;
    std::memcpy(&value, model_.data() + word, 8);
    value += 3;
    std::memcpy(model_.data() + word, &value, 8);
  }
  // Where an answer arrives that must have what the model has there now.
  Sge Answer(size_t at, size_t bytes) {
    const auto begin = model_.begin() + static_cast<long>(at);
    answers_.emplace_back(back_used_, std::vector(begin, begin + static_cast<long>(bytes)));
    return p_.a->At(p_.back + std::exchange(back_used_, back_used_ + bytes), bytes);
  }

  // False: nothing moved.
  bool Move() {
    switch (Pick(8)) {
      case 0:
      case 1:
        return p_.a_engine.Run(1 + Pick(3)) != 0;
      case 2:
      case 3:
        return p_.b_engine.Run(1 + Pick(3)) != 0;
      case 4: {
        const bool reset = Pick(100) == 0 && p_.ab.resets < 30;
        if (reset) p_.network.Reset(p_.ab);
        if (Pick(50) == 0) p_.ab.cut = !p_.ab.cut;
        return reset;
      }
      case 5:
        if (p_.ab.up) return false;
        p_.network.Open(p_.ab);
        return true;
      default:
        return p_.network.Deliver(p_.ab, Pick(2) == 0, 1 + Pick(Pick(2) == 0 ? 50 : 100'000)) != 0;
    }
  }

  void Compare() {
    ASSERT_FALSE(done_.empty());
    for (size_t i = 1; i < done_.size(); ++i) ASSERT_LT(done_[i - 1], done_[i]);
    EXPECT_EQ(static_cast<uint16_t>(done_.back() + 1), p_.a_qp.next);
    EXPECT_EQ(p_.b_recv.PollAll().size(), sends_);
    EXPECT_EQ(std::memcmp(p_.dst, model_.data(), Linked::kBytes), 0);
    for (const auto& [at, bytes] : answers_)
      ASSERT_EQ(std::memcmp(p_.back + at, bytes.data(), bytes.size()), 0) << "answer at " << at;
  }

  std::mt19937_64 random_;
  const EngineOptions options_;
  Linked p_;
  std::vector<std::byte> model_ = std::vector<std::byte>(Linked::kBytes);
  std::vector<std::pair<size_t, std::vector<std::byte>>> answers_;  // where, what
  size_t back_used_ = 0;
  uint64_t sends_ = 0;
  std::vector<uint16_t> done_;
};

void RunRandom(uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  RandomRun(seed).Run();
}

TEST(EngineLink, RandomRequestsOverABadLinkRunOnceAndInOrder) {
  const char* const one = std::getenv("HYPERLOOP_SEED");
  if (one != nullptr) return RunRandom(std::strtoull(one, nullptr, 0));
  const char* const many = std::getenv("HYPERLOOP_SEEDS");
  const uint64_t seeds = many != nullptr ? std::strtoull(many, nullptr, 0) : 15;
  for (uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) RunRandom(seed);
}

}  // namespace
}  // namespace hyperloop::softrnic
