// Tests errors: protection, malformed WQEs, receiver not ready, flush, overrun, dead peers, and
// early fetch on queues that are not managed.
#include <sys/mman.h>
#include <unistd.h>

#include "softrnic/engine/testing/engine_test_util.h"
#include "support/status_matchers.h"

namespace hyperloop::softrnic {
namespace {

using rnic::WcOpcode;
using rnic::WcStatus;

// Posts with `post` and returns the status of the one error that the requester gets.
template <class F>
WcStatus ErrorOf(Pair& p, F&& post) {
  post();
  p.a_qp.Ring();
  p.Elapse(kDefaultPatienceMs);
  const auto done = p.a_cq.PollAll();
  EXPECT_EQ(done.size(), 1u);
  return done.empty() ? WcStatus::kSuccess : done[0].status;
}

// Its own keys: a key that never was, one that is gone, another client's, and one whose memory is
// shorter than the 2 GB that a byte count of 0 stands for.
TEST(EngineProtection, ASendNeedsAKeyOfItsClientOverAllOfItsBytes) {
  enum { kUnknown, kDestroyed, kAnothers, kTwoGigabytes, kCases };
  for (int which = 0; which < kCases; ++which) {
    Pair p;
    Sge from = p.a.At(p.src, 8);
    if (which == kUnknown) from.lkey ^= 0x100;
    if (which == kDestroyed) {
      from.lkey = p.a.Key(p.src, 64, rnic::kLocalWrite).lkey;
      EXPECT_OK(p.a.Destroy(Op::kDestroyMkey, from.lkey));
    }
    if (which == kAnothers) from = p.b.At(p.dst, 8);
    const auto status = ErrorOf(p, [&] {
      p.a_qp.Send(from);
      if (which == kTwoGigabytes) std::memset(p.a_qp.sq + 16, 0, 4);
    });
    EXPECT_EQ(status, WcStatus::kLocalProtection) << which;
  }
}

TEST(EngineProtection, QueuePairGrantsEachRemoteRightApart) {
  for (int op = 0; op < 3; ++op) {
    const uint32_t rights[] = {rnic::kRemoteWrite, rnic::kRemoteRead, rnic::kRemoteAtomic};
    Pair p({}, {}, {.access = 0xe & ~rights[op]});
    const auto status = ErrorOf(p, [&] {
      if (op == 0) p.a_qp.Write(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, 8));
      if (op == 1) p.a_qp.Read(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, 8));
      if (op == 2) p.a_qp.Add(p.Remote(p.dst), p.b.rkey, 1, p.a.At(p.src, 8));
    });
    EXPECT_EQ(status, WcStatus::kRemoteAccess) << op;
  }
}

TEST(EngineProtection, ScatterOutOfRangeFailsBothSidesAndWritesNothing) {
  Pair p;
  const auto key = p.b.Key(p.dst, 16, rnic::kLocalWrite);
  const Sge to[] = {p.b.At(p.dst + 100, 8), {p.Remote(p.dst), 17, key.lkey}};
  p.b_qp.Receive(to);
  EXPECT_EQ(ErrorOf(p, [&] { p.a_qp.Send(p.a.At(p.src, 12)); }), WcStatus::kRemoteOperation);
  EXPECT_EQ(p.b_recv.PollAll().at(0).status, WcStatus::kLocalProtection);
  EXPECT_EQ(p.dst[100], std::byte{0});
}

TEST(EngineMalformed, IndexQueueNumberOpcodeAndSize) {
  const auto broken = [](auto&& change, EngineOptions options = {}) {
    Pair p(options);
    p.a_qp.Nop(CqeMode::kAlways);
    p.a_qp.Nop(CqeMode::kAlways);
    change(p.a_qp.sq + 64);
    p.a_qp.Ring();
    p.Run();
    const auto done = p.a_cq.PollAll();
    EXPECT_EQ(done.size(), 2u);
    return done.at(1).status;
  };
  const auto index = [](std::byte* w) { w[2] = std::byte{65}; };
  const auto qpn = [](std::byte* w) { w[6] ^= std::byte{1}; };
  EXPECT_EQ(broken(index), WcStatus::kLocalQpOperation);
  EXPECT_EQ(broken(index, {.test = {.check_wqe_index = false}}), WcStatus::kSuccess);
  EXPECT_EQ(broken(qpn), WcStatus::kLocalQpOperation);
  EXPECT_EQ(broken(qpn, {.test = {.check_qpn = false}}), WcStatus::kSuccess);
  EXPECT_EQ(broken([](std::byte* w) { w[3] = std::byte{0x25}; }), WcStatus::kLocalQpOperation);
  EXPECT_EQ(broken([](std::byte* w) { w[0] = std::byte{1}; }), WcStatus::kLocalQpOperation);
  EXPECT_EQ(broken([](std::byte* w) { w[7] = std::byte{0}; }), WcStatus::kLocalQpOperation);
  EXPECT_EQ(broken([](std::byte* w) { w[7] = std::byte{5}; }), WcStatus::kLocalQpOperation)
      << "reaches past the producer index";
  EXPECT_EQ(broken([](std::byte* w) { w[3] = std::byte{0x08}; }), WcStatus::kLocalQpOperation)
      << "a WRITE of one segment";
}

// A counter of 16 bits can be at most 2^15 receives ahead.
TEST(EngineFlush, AFullRingOfTheLargestSizeIsFlushedWhole) {
  Pair p;
  TestCq cq = p.a.Cq(0, /*ignore_overrun=*/true);
  TestQp qp = p.a.Qp(cq, cq, {.log_rq = 15, .log_stride = 4});
  p.a.Connect(qp, qp);
  qp.SetReceiveCounter(1 << 15);
  p.a.Modify(qp, QpState::kError);
  p.Run();
  EXPECT_EQ(p.a.Counter("error_cqes"), 1u << 15);
}

TEST(EngineRnr, CounterBehindWhatWasUsedMeansNone) {
  Pair p;
  for (int i = 0; i < 3; ++i) p.b_qp.Receive(p.b.At(p.dst, 8));
  for (int i = 0; i < 3; ++i) p.a_qp.Send(p.a.At(p.src, 8));
  p.a_qp.Ring();
  p.Run();
  p.b_qp.SetReceiveCounter(2);
  p.a_qp.Send(p.a.At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Run();
  EXPECT_TRUE(p.a_cq.PollAll().empty());
  EXPECT_EQ(p.b_recv.PollAll().size(), 3u);
}

TEST(EngineRnr, TriedAgainWhileOtherQueuesKeepTheEngineBusy) {
  Pair p;
  TestQp busy = p.a.Qp(p.a_recv, p.a_recv, {.log_sq = 12});
  p.a.Connect(busy, busy);
  for (int i = 0; i < 4000; ++i) busy.Nop();
  p.a_qp.Send(p.a.At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.engine.Run(8);
  busy.Ring();
  p.engine.Run(8);
  p.b_qp.Receive(p.b.At(p.dst, 8));
  for (int i = 0; i < 20; ++i) p.engine.Run(16);
  EXPECT_EQ(p.a_cq.PollAll().size(), 1u);
}

// A reset forgets a stalled request, and takes the queue pair off the list of those to try again.
TEST(EngineRnr, ResetTakesTheSenderOffTheList) {
  Pair p({}, {.flags = kQpMaster});
  p.a_qp.Send(p.a.At(p.src, 8));
  p.a_qp.Ring();
  p.Run();
  p.a.Modify(p.a_qp, QpState::kReset);
  p.a.Modify(p.a_qp, QpState::kInit, 0xf);
  p.a.Connect(p.a_qp, p.b_qp);
  p.a_qp.next = 0;
  p.a_qp.Wait(p.a_recv, 0);
  p.a_qp.Nop(CqeMode::kAlways);
  p.a_qp.Ring();
  p.b_qp.Receive(p.b.At(p.dst, 8));
  p.Run();
  EXPECT_TRUE(p.a_cq.PollAll().empty()) << "the WAIT holds";
  EXPECT_TRUE(p.b_recv.PollAll().empty());
  p.a_qp.Receive(p.a.At(p.src, 8));
  p.b_qp.Send(p.b.At(p.dst, 8));
  p.b_qp.Ring();
  p.Run();
  EXPECT_EQ(p.a_cq.PollAll().size(), 1u) << "and ends once";
}

TEST(EngineCq, OverrunIsAnErrorUnlessIgnored) {
  for (const bool ignore : {false, true}) {
    Engine engine{EngineOptions{}};
    Client a(engine, "a");
    TestCq cq = a.Cq(2, ignore);
    TestQp qp = a.Qp(cq, cq, {.flags = kQpMaster});
    a.Connect(qp, qp);
    for (int i = 0; i < 6; ++i) qp.Nop(CqeMode::kAlways);
    qp.Wait(cq, 5);
    qp.Nop(CqeMode::kOnError);
    qp.Ring();
    RunAll(engine);
    EXPECT_EQ(a.Counter("nops"), ignore ? 7u : 5u);
    EXPECT_EQ(a.Counter("cqes"), ignore ? 6u : 4u);
    if (ignore) {
      EXPECT_FALSE(cq.Poll().has_value()) << "entry 0 is of the second lap already";
      cq.consumer = 4;
      EXPECT_EQ(cq.Poll()->wqe_counter, 4);
    }
  }
}

// If the completion of a WAIT overruns its CQ, nothing behind the WAIT runs.
TEST(EngineCq, OverrunByAWaitStopsTheQueue) {
  Engine engine{EngineOptions{}};
  Client a(engine, "a");
  TestCq cq = a.Cq(1);
  TestQp qp = a.Qp(cq, cq, {.flags = kQpMaster});
  a.Connect(qp, qp);
  std::byte* const at = a.Allocate(64);
  at[0] = std::byte{1};
  for (int i = 0; i < 3; ++i) qp.Wait(cq, 0xffffff, CqeMode::kAlways);
  qp.Write(reinterpret_cast<uint64_t>(at + 8), a.rkey, a.At(at, 8));
  qp.Ring();
  RunAll(engine);
  EXPECT_EQ(a.Counter("waits"), 3u);
  EXPECT_EQ(at[8], std::byte{0});
}

// The receiver's completion at the end of a transfer in parts overruns a CQ that the sender uses
// too.
TEST(EngineCq, OverrunByTheReceiveOfALongWriteStopsTheQueue) {
  constexpr size_t kMoves = 200'000;
  Engine engine{EngineOptions{}};
  Client a(engine, "a");
  TestCq cq = a.Cq(0);
  TestQp qp = a.Qp(cq, cq);
  a.Connect(qp, qp);
  std::byte* const from = a.Allocate(kMoves);
  std::byte* const to = a.Allocate(kMoves);
  for (size_t i = 0; i < kMoves; ++i) from[i] = static_cast<std::byte>(i * 13 + 1);
  qp.Receive(a.At(a.Allocate(64), 8));
  qp.Nop(CqeMode::kAlways);
  qp.WriteImm(reinterpret_cast<uint64_t>(to), a.rkey, a.At(from, kMoves), 7);
  qp.Nop();
  qp.Ring();
  RunAll(engine);
  EXPECT_EQ(0, std::memcmp(from, to, kMoves));
  EXPECT_EQ(a.Counter("writes"), 1u);
  EXPECT_EQ(a.Counter("bytes_sent"), kMoves);
  EXPECT_EQ(a.Counter("nops"), 1u) << "nothing behind it runs";
  EXPECT_EQ(a.Counter("cqes"), 1u);
}

TEST(EnginePeer, OneThatIsConnectedElsewhereDoesNotAnswer) {
  Pair p;
  p.a_qp.Write(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, 8));
  p.a_qp.Ring();
  p.Run();
  p.b.Modify(p.b_qp, QpState::kReset);
  p.b.Modify(p.b_qp, QpState::kInit, 0xf);
  p.b.Connect(p.b_qp, p.b_qp);
  EXPECT_EQ(ErrorOf(p, [&] { p.a_qp.Write(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, 8)); }),
            WcStatus::kRetryExceeded);
}

TEST(EngineContext, DeathDestroysQueuesKeysAndServices) {
  uint64_t now = 1;
  Engine engine{WithClock({}, &now)};
  auto a = std::make_unique<Client>(engine, "a");
  Client b(engine, "b");
  TestCq b_cq = b.Cq();
  TestQp b_qp = b.Qp(b_cq, b_cq, {.ack_timeout_ms = 1, .retry_count = 0});
  uint64_t addr;
  uint32_t rkey;
  {
    TestCq cq = a->Cq();
    TestQp qp = a->Qp(cq, cq);
    a->Connect(qp, b_qp);
    b.Connect(b_qp, qp);
    addr = reinterpret_cast<uint64_t>(a->memory), rkey = a->rkey;
    qp.Send(a->At(a->memory, 8));  // stalled: no receive
    qp.Ring();
    RunAll(engine);
  }
  a.reset();
  EXPECT_FALSE(engine.RetryPending());
  b_qp.Receive(b.At(b.memory, 8));
  b_qp.Read(addr, rkey, b.At(b.memory, 8));
  b_qp.Ring();
  RunAll(engine);
  now += 1'000'000;
  RunAll(engine);
  EXPECT_EQ(b_cq.PollAll().at(0).status, WcStatus::kRetryExceeded);
  TestQp self = b.Qp(b_cq, b_cq);
  b.Connect(self, self);
  self.Read(addr, rkey, b.At(b.memory, 8));
  self.Ring();
  RunAll(engine);
  WcStatus last = WcStatus::kSuccess;
  for (const auto& c : b_cq.PollAll()) last = c.status;
  EXPECT_EQ(last, WcStatus::kRemoteAccess) << "the key went with its owner";
}

TEST(EngineContext, HostsGoWithTheirLastClient) {
  Engine engine{EngineOptions{}};
  Client stays(engine, "stays");
  std::array<uint8_t, 16> last = stays.gid;
  for (int i = 0; i < 600; ++i) {
    Client one(engine, "host" + std::to_string(i % 300));
    ASSERT_FALSE(::testing::Test::HasFailure()) << i;
    EXPECT_NE(one.gid, last);
    EXPECT_NE(one.gid, stays.gid);
    last = one.gid;
  }
  {
    Client first(engine, "two");
    Client second(engine, "two");
    EXPECT_EQ(first.gid, second.gid);
    first.Close();
    Client third(engine, "two");
    EXPECT_EQ(third.gid, second.gid) << "a host stays while it has a client";
  }
}

// This is what managed queues are for: in an ordinary queue, a WQE behind a WAIT may be fetched
// before the receive has rewritten it.
TEST(EngineFetch, EarlyFetchRunsTheStaleWqeOfAnUnmanagedQueue) {
  Pair p({.test = {.fetch = EngineTestHooks::Fetch::kEarly}});
  TestCq cq = p.b.Cq();
  TestQp qp = p.b.Qp(cq, cq, {.flags = kQpMaster});
  p.b.Connect(qp, qp);
  qp.Wait(p.b_recv, 0);
  qp.Nop(CqeMode::kAlways);
  qp.Ring();
  p.Run();
  const Sge sge = p.b.At(p.dst + 64, 8);
  std::memcpy(p.dst + 64, "payload", 8);
  rnic::EncodeWrite(p.src, {.qpn = qp.qpn, .index = 1, .completion = CqeMode::kAlways},
                    p.Remote(p.dst), p.b.rkey, {&sge, 1});
  p.b_qp.Receive(p.b.At(qp.sq + 64, 48));
  p.a_qp.Send(p.a.At(p.src, 48));
  p.a_qp.Ring();
  p.Run();
  EXPECT_EQ(cq.PollAll().size(), 1u);
  EXPECT_EQ(p.dst[0], std::byte{0}) << "the NOP ran, not the WRITE";
  EXPECT_EQ(p.b.Counter("stale_fetches"), 1u);
}

TEST(EngineService, AnswersReadsWithoutThePublisher) {
  Engine engine{EngineOptions{}};
  Client a(engine, "a"), b(engine, "b");
  Command publish = b.Make(Op::kPublish);
  std::strcpy(publish.args.publish.service, "inspect");
  publish.args.publish.pdn = b.pdn;
  publish.args.publish.private_length = 3;
  std::memcpy(publish.args.publish.private_data, "abc", 3);
  b.Must(publish);
  TestCq cq = a.Cq();
  TestQp qp = a.Qp(cq, cq);
  a.Modify(qp, QpState::kReset);
  Command connect = a.Make(Op::kConnectService);
  std::strcpy(connect.args.connect.host, "b");
  std::strcpy(connect.args.connect.service, "inspect");
  connect.args.connect.qpn = qp.qpn;
  const auto reply = a.Must(connect).result.connect;
  EXPECT_EQ(reply.private_length, 3u);
  EXPECT_EQ(0, std::memcmp(reply.private_data, "abc", 3));
  TestQp peer;
  peer.qpn = reply.remote_qpn;
  std::memcpy(peer.gid.data(), reply.gid, 16);
  a.Modify(qp, QpState::kInit, 0);
  a.Connect(qp, peer);
  std::memcpy(b.memory + 5000, "secret", 6);
  std::byte* const at = a.Allocate(64);
  qp.Read(reinterpret_cast<uint64_t>(b.memory + 5000), b.rkey, a.At(at, 6), CqeMode::kAlways);
  qp.Ring();
  RunAll(engine);
  EXPECT_EQ(0, std::memcmp(at, "secret", 6));
  qp.Write(reinterpret_cast<uint64_t>(b.memory + 5000), b.rkey, a.At(at, 6));
  qp.Ring();
  RunAll(engine);
  const auto done = cq.PollAll();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kRemoteAccess) << "reads only";
  EXPECT_OK(b.Destroy(Op::kDestroyMkey, b.lkey));
  Command moved = publish;  // from here on only the responder uses the old domain
  moved.args.publish.pdn = b.Must(Op::kAllocPd).result.id.id;
  b.Must(moved);
  EXPECT_THAT(b.Destroy(Op::kFreePd, b.pdn), StatusIs(Code::kBusy));
  EXPECT_OK(a.Destroy(Op::kDestroyQp, qp.qpn));
  EXPECT_OK(b.Destroy(Op::kFreePd, b.pdn)) << "the responder went with the queue pair it served";
  b.Close();
  Reply gone;
  TestQp other = a.Qp(cq, cq);
  a.Modify(other, QpState::kReset);
  connect.args.connect.qpn = other.qpn;
  EXPECT_THAT(a.Try(connect, &gone), StatusIs(Code::kNotFound));
}

}  // namespace
}  // namespace hyperloop::softrnic
