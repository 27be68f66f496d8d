// Tests what the conformance suite does not see of transfers: the longest receive, completion
// modes, transfers that overlap, and long ones, which move in parts.
#include "softrnic/engine/testing/engine_test_util.h"
#include "support/status_matchers.h"

namespace hyperloop::softrnic {
namespace {

using rnic::WcOpcode;
using rnic::WcStatus;

TEST(EngineTransfer, SendFillsTheLongestReceive) {
  Pair p({}, {}, {.log_stride = 10});
  std::vector<Sge> to;
  for (int i = 0; i < 64; ++i) to.push_back(p.b.At(p.dst + 2 * i, 1));
  p.b_qp.Receive(to);
  p.b_qp.Receive(to);
  p.a_qp.Send(p.a.At(p.src, 64), CqeMode::kAlways);
  p.a_qp.Send(p.a.At(p.src, 65), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Run();
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(p.dst[2 * i], p.src[i]) << i;
    EXPECT_EQ(p.dst[2 * i + 1], std::byte{0}) << i;
  }
  const auto received = p.b_recv.PollAll();
  ASSERT_GE(received.size(), 2u);
  EXPECT_EQ(received[0].byte_length, 64u);
  EXPECT_EQ(received[1].status, WcStatus::kLocalLength) << "one byte too many";
  const auto sent = p.a_cq.PollAll();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].status, WcStatus::kSuccess);
  EXPECT_EQ(sent[1].status, WcStatus::kRemoteInvalidRequest);
}

TEST(EngineTransfer, LoopbackQueuePairTalksToItself) {
  Engine engine{EngineOptions{}};
  Client a(engine, "a");
  const TestCq cq = a.Cq(), recv = a.Cq();
  TestQp qp = a.Qp(cq, recv);
  a.Connect(qp, qp);
  std::byte* const at = a.Allocate(256);
  std::memcpy(at, "hello", 5);
  qp.Write(reinterpret_cast<uint64_t>(at + 100), a.rkey, a.At(at, 5));
  // Source and target overlap; the result must be as if copied through a buffer.
  qp.Write(reinterpret_cast<uint64_t>(at + 2), a.rkey, a.At(at, 5));
  qp.Ring();
  RunAll(engine);
  EXPECT_EQ(0, std::memcmp(at + 100, "hello", 5));
  EXPECT_EQ(0, std::memcmp(at, "hehello", 7));
}

TEST(EngineTransfer, TheCompletionOfWhatComesBackSaysHowMuchCame) {
  Pair p;
  p.a_qp.Read(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, 11), CqeMode::kAlways);
  p.a_qp.Cas(p.Remote(p.dst), p.b.rkey, 0, 5, p.a.At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Run();
  const auto done = p.a_cq.PollAll();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].byte_length, 11u);
  EXPECT_EQ(done[1].byte_length, 8u);
}

TEST(EngineTransfer, CompletionModes) {
  Pair p;
  for (const CqeMode mode :
       {CqeMode::kOnError, CqeMode::kOnFirstError, CqeMode::kAlways, CqeMode::kAlwaysEvent})
    p.a_qp.Nop(mode);
  p.a_qp.Ring();
  p.Run();
  const auto done = p.a_cq.PollAll();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].wqe_counter, 2);
  EXPECT_EQ(done[1].wqe_counter, 3);
}

TEST(EngineTransfer, BudgetHoldsAndNothingIsLeftOut) {
  Pair p;
  for (int i = 0; i < 40; ++i) p.a_qp.Write(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, 4096));
  p.a_qp.Nop(CqeMode::kAlways);
  p.a_qp.Ring();
  EXPECT_LE(p.engine.Run(5), 5u);
  p.Run();
  EXPECT_EQ(p.a_cq.PollAll().size(), 1u);
  EXPECT_EQ(p.b.Counter("bytes_received"), 40u * 4096);
}

// A long transfer gives other queues their turn, and moves all of its bytes.
TEST(EngineTransfer, LongTransfersAreCutIntoTurns) {
  constexpr size_t kLong = 300'001;
  Pair p;
  std::byte* const from = p.a.Allocate(kLong);
  std::byte* const to = p.b.Allocate(kLong);
  std::byte* const back = p.a.Allocate(kLong);
  for (size_t i = 0; i < kLong; ++i) from[i] = static_cast<std::byte>(i * 31 + i / 251);
  const Sge pieces[] = {p.a.At(back, 100'000), p.a.At(back + 100'000, kLong - 100'000)};
  p.b_qp.Receive(p.b.At(p.dst, 8));
  p.a_qp.WriteImm(p.Remote(to), p.b.rkey, p.a.At(from, kLong), 7, CqeMode::kAlways);
  p.a_qp.Put([&](void* w) {
    return rnic::EncodeRead(w, p.a_qp.Control(CqeMode::kAlways), p.Remote(to), p.b.rkey, pieces);
  });
  p.a_qp.Ring();
  TestQp other = p.a.Qp(p.a_recv, p.a_recv);
  p.a.Connect(other, other);
  other.Nop(CqeMode::kAlways);
  p.engine.Run(1);
  other.Ring();
  p.engine.Run(3);
  EXPECT_TRUE(p.a_recv.Poll().has_value()) << "the short one does not wait for the long one";
  EXPECT_FALSE(p.a_cq.Poll().has_value());
  p.Run();
  const auto done = p.a_cq.PollAll();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[1].byte_length, kLong);
  EXPECT_EQ(p.b_recv.PollAll().at(0).byte_length, kLong);
  EXPECT_EQ(0, std::memcmp(from, to, kLong));
  EXPECT_EQ(0, std::memcmp(from, back, kLong));
  EXPECT_EQ(p.b.Counter("read_responses_nonzero"), 1u);
  EXPECT_EQ(p.a.Counter("writes"), 1u);
  EXPECT_EQ(p.b.Counter("bytes_received"), kLong);
  // A transfer that does not fit is refused as a whole.
  p.a_qp.Write(p.Remote(p.b.memory + Client::kArena - 200'000), p.b.rkey, p.a.At(from, 200'001));
  p.a_qp.Ring();
  p.Run();
  EXPECT_EQ(p.a_cq.PollAll().at(0).status, WcStatus::kRemoteAccess);
  EXPECT_EQ(p.b.memory[Client::kArena - 1], std::byte{0});
}

TEST(EngineTransfer, LongSendsAreCutIntoTurnsToo) {
  constexpr size_t kLong = 300'001;
  Pair p;
  std::byte* const from = p.a.Allocate(kLong);
  std::byte* const to = p.b.Allocate(kLong);
  for (size_t i = 0; i < kLong; ++i) from[i] = static_cast<std::byte>(i * 31 + i / 251);
  const Sge places[] = {p.b.At(to, 70'001), p.b.At(to + 70'001, kLong - 70'001)};
  p.b_qp.Receive(places);
  p.b_qp.Receive(p.b.At(p.dst, 8));
  p.a_qp.Send(p.a.At(from, kLong), CqeMode::kAlways);
  p.a_qp.Send(p.a.At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  TestQp other = p.a.Qp(p.a_recv, p.a_recv);
  p.a.Connect(other, other);
  other.Nop(CqeMode::kAlways);
  p.engine.Run(1);
  other.Ring();
  p.engine.Run(3);
  EXPECT_TRUE(p.a_recv.Poll().has_value()) << "the short one does not wait for the long one";
  EXPECT_FALSE(p.a_cq.Poll().has_value());
  p.Run();
  EXPECT_EQ(p.a_cq.PollAll().size(), 2u);
  const auto received = p.b_recv.PollAll();
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].byte_length, kLong);
  EXPECT_EQ(received[1].wqe_counter, 1);
  EXPECT_EQ(0, std::memcmp(from, to, kLong));
  EXPECT_EQ(0, std::memcmp(p.src, p.dst, 8));
  EXPECT_EQ(p.a.Counter("sends"), 2u);
  EXPECT_EQ(p.b.Counter("recv_scatter_bytes"), kLong + 8);
  // A SEND that is too long for its receive is refused before its first byte moves.
  std::memset(to, 0, 70'000);
  p.b_qp.Receive(p.b.At(to, 70'000));
  p.a_qp.Send(p.a.At(from, 70'001));
  p.a_qp.Ring();
  p.Run();
  EXPECT_EQ(p.a_cq.PollAll().at(0).status, WcStatus::kRemoteInvalidRequest);
  EXPECT_EQ(to[0], std::byte{0});
}

// The receiver is reset in the middle of a SEND. The rest must not go to a receive posted after
// that.
TEST(EngineTransfer, ALongSendEndsWithItsReceiver) {
  Pair p({}, {.ack_timeout_ms = 1, .retry_count = 0});
  std::byte* const to = p.b.Allocate(200'000);
  p.b_qp.Receive(p.b.At(to, 200'000));
  p.a_qp.Send(p.a.At(p.a.memory, 200'000), CqeMode::kAlways);
  p.a_qp.Ring();
  p.engine.Run(2);
  EXPECT_GT(p.b.Counter("recv_scatter_bytes"), 0u) << "it has begun";
  p.b.Modify(p.b_qp, QpState::kReset);
  p.b.Modify(p.b_qp, QpState::kInit, 0xf);
  p.b.Connect(p.b_qp, p.a_qp);  // its receive counter still counts one
  p.Run();
  p.Elapse(2);
  const auto ends = p.a_cq.PollAll();
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].status, WcStatus::kRetryExceeded);
  EXPECT_TRUE(p.b_recv.PollAll().empty());
}

TEST(EngineTransfer, LongTransferEndsWhenItsKeyGoes) {
  Pair p;
  std::byte* const to = p.b.Allocate(200'000);
  const auto key = p.b.Key(to, 200'000, 0xf);
  p.a_qp.Write(p.Remote(to), key.rkey, p.a.At(p.a.memory, 200'000));
  p.a_qp.Nop(CqeMode::kAlways);
  p.a_qp.Ring();
  p.engine.Run(2);
  EXPECT_OK(p.b.Destroy(Op::kDestroyMkey, key.lkey));
  p.Run();
  const auto done = p.a_cq.PollAll();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].status, WcStatus::kRemoteAccess);
  EXPECT_EQ(done[1].status, WcStatus::kFlushed);
}

// Overlapping transfers longer than a turn move in parts, and still as if copied through a buffer.
TEST(EngineTransfer, LongOverlappingTransfersAreCutInParts) {
  constexpr size_t kLong = 200 << 10, kShift = 3000;
  for (const bool up : {true, false}) {
    for (const bool read : {true, false}) {
      Pair p;
      TestQp qp = p.a.Qp(p.a_cq, p.a_recv);
      p.a.Connect(qp, qp);
      std::byte* const area = p.a.Allocate(kLong + kShift);
      for (size_t i = 0; i < kLong + kShift; ++i) area[i] = static_cast<std::byte>(i * 31 / 7);
      std::byte* const from = up ? area : area + kShift;
      std::byte* const to = up ? area + kShift : area;
      const std::vector<std::byte> expected(from, from + kLong);
      if (read) {
        qp.Read(p.Remote(from), p.a.rkey, p.a.At(to, kLong), CqeMode::kAlways);
      } else {
        qp.Write(p.Remote(to), p.a.rkey, p.a.At(from, kLong), CqeMode::kAlways);
      }
      qp.Ring();
      EXPECT_EQ(p.engine.Run(2), 2u);
      EXPECT_TRUE(p.a_cq.PollAll().empty()) << "one turn moves a part";
      p.Run();
      EXPECT_EQ(p.a_cq.PollAll().at(0).status, rnic::WcStatus::kSuccess);
      EXPECT_EQ(std::memcmp(to, expected.data(), kLong), 0) << up << read;
    }
  }
}

TEST(EngineTransfer, ALongWriteImmThatHasNoReceiveWritesNothing) {
  constexpr size_t kLong = 100 << 10;
  Pair p({}, {}, {.has_rq = false});
  std::byte* const from = p.a.Allocate(kLong);
  std::byte* const to = p.b.Allocate(kLong);
  std::memset(from, 1, kLong);
  p.a_qp.WriteImm(p.Remote(to), p.b.rkey, p.a.At(from, kLong), 7);
  p.a_qp.Ring();
  p.Run();
  EXPECT_EQ(p.a_cq.PollAll().at(0).status, rnic::WcStatus::kRemoteInvalidRequest);
  EXPECT_EQ(to[0], std::byte{0});
}

}  // namespace
}  // namespace hyperloop::softrnic
