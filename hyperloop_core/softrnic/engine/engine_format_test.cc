// Tests what the device does with every form of WQE, receive entry and completion: opcodes, sizes,
// terminators, prefetch, scatter to CQE, and WAITs for completions with an error.
#include <set>

#include "softrnic/engine/testing/adversarial_schedule.h"
#include "softrnic/engine/testing/engine_test_util.h"

namespace hyperloop::softrnic {
namespace {

using rnic::WcStatus;
using Fetch = EngineTestHooks::Fetch;

// --- send queue

TEST(EngineFormat, EveryOtherOpcodeIsRefused) {
  const std::set<int> known = {rnic::kWqeNop,        rnic::kWqeWrite,        rnic::kWqeWriteImm,
                               rnic::kWqeSend,       rnic::kWqeSendImm,      rnic::kWqeWait,
                               rnic::kWqeRead,       rnic::kWqeCompareSwap,  rnic::kWqeFetchAdd,
                               rnic::kWqeSendEnable, rnic::kWqeReceiveEnable};
  for (const bool deferred : {false, true}) {
    Pair p(Delivering(deferred), {.flags = kQpMaster});
    for (int opcode = 0; opcode < 256; ++opcode) {
      if (known.contains(opcode)) continue;
      p.a_qp.Put([&](void* w) { return rnic::EncodeNop(w, p.a_qp.Control(), 4); });
      p.a_qp.sq[3] = static_cast<std::byte>(opcode);
      p.a_qp.Ring();
      p.Run();
      const auto done = p.a_cq.PollAll();
      ASSERT_EQ(done.size(), 1u) << opcode;
      EXPECT_EQ(done[0].status, WcStatus::kLocalQpOperation) << opcode;
      p.a_cq.Release();
      p.a.Modify(p.a_qp, QpState::kReset);
      p.a.Modify(p.a_qp, QpState::kInit, 0xf);
      p.a.Connect(p.a_qp, p.b_qp);
      p.a_qp.next = 0;
    }
  }
}

TEST(EngineFormat, ANopOfAnySizeTakesItsBlocksAndNothingElse) {
  Pair p({}, {.log_sq = 5});
  uint16_t at = 0;
  for (uint32_t segments = 1; segments <= 63; ++segments) {
    p.a_qp.Put([&](void* w) {
      std::memset(w, 0xff, rnic::kMaxWqeBytes);  // what trails is never looked at
      return rnic::EncodeNop(w, p.a_qp.Control(CqeMode::kAlways), segments);
    });
    p.a_qp.Ring();
    p.Run();
    const auto done = p.a_cq.PollAll();
    ASSERT_EQ(done.size(), 1u) << segments;
    EXPECT_EQ(done[0].status, WcStatus::kSuccess);
    EXPECT_EQ(done[0].wqe_counter, at);
    at = static_cast<uint16_t>(at + (segments + 3) / 4);
    p.a_cq.Release();
  }
}

TEST(EngineFormat, SizesThatAnOperationCannotHave) {
  const auto status = [](auto&& put, uint8_t segments) {
    Pair p({}, {.flags = kQpMaster});
    put(p);
    p.a_qp.sq[7] = static_cast<std::byte>(segments);
    p.a_qp.next = 4;
    p.a_qp.Ring();
    p.Run();
    const auto done = p.a_cq.PollAll();
    EXPECT_EQ(done.at(0).wqe_counter, 0) << "it is the first that fails, not what lies behind it";
    return done.at(0).status;
  };
  const auto wait = [](Pair& p) { p.a_qp.Wait(p.a_cq, 0xffffff); };
  const auto enable = [](Pair& p) { p.a_qp.Enable(p.a_qp, 1); };
  const auto cas = [](Pair& p) { p.a_qp.Cas(p.Remote(p.dst), p.b.rkey, 0, 1, p.a.At(p.src, 8)); };
  const auto read = [](Pair& p) { p.a_qp.Read(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, 8)); };
  EXPECT_EQ(status(wait, 1), WcStatus::kLocalQpOperation);
  EXPECT_EQ(status(wait, 3), WcStatus::kLocalQpOperation) << "WAIT on data is not built";
  EXPECT_EQ(status(enable, 3), WcStatus::kLocalQpOperation);
  EXPECT_EQ(status(cas, 3), WcStatus::kLocalQpOperation);
  EXPECT_EQ(status(cas, 5), WcStatus::kLocalQpOperation);
  EXPECT_EQ(status(read, 1), WcStatus::kLocalQpOperation);
}

TEST(EngineFormat, InlineLengthIsBoundedByTheWqe) {
  const auto status = [](uint32_t length, bool read) {
    Pair p;
    p.b_qp.Receive(p.b.At(p.dst, 1024));
    const std::byte payload[12] = {};
    if (read) {
      p.a_qp.Read(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, 8));
    } else {
      p.a_qp.SendInline(payload, CqeMode::kAlways);
    }
    const uint32_t be = htobe32(length | MLX5_INLINE_SEG);
    std::memcpy(p.a_qp.sq + (read ? 32 : 16), &be, 4);
    p.a_qp.Ring();
    p.Run();
    return p.a_cq.PollAll().at(0).status;
  };
  EXPECT_EQ(status(12, false), WcStatus::kSuccess);
  EXPECT_EQ(status(13, false), WcStatus::kLocalProtection) << "reaches past ds";
  EXPECT_EQ(status(0x7fffffff, false), WcStatus::kLocalProtection);
  EXPECT_EQ(status(8, true), WcStatus::kLocalProtection) << "nothing is read into a WQE";
}

// A prefetched WQE runs as it was when it was fetched. A WQE further ahead is fetched later.
TEST(EngineFormat, PrefetchDepthIsHowFarAheadWqesAreTaken) {
  for (const uint32_t depth : {1u, 3u, 5u}) {
    Pair p({.prefetch_depth = depth}, {.flags = kQpMaster});
    TestCq counted = p.a.Cq();
    TestQp other = p.a.Qp(counted, counted);
    p.a.Connect(other, other);
    p.a_qp.Wait(counted, 0);
    for (int i = 1; i < 8; ++i) p.a_qp.Nop(CqeMode::kOnError);
    p.a_qp.Ring();
    p.Run();  // stalls at the WAIT
    for (uint16_t i = 1; i < 8; ++i)
      rnic::EncodeNop(p.a_qp.sq + i * 64,
                      {.qpn = p.a_qp.qpn, .index = i, .completion = CqeMode::kAlways});
    other.Nop(CqeMode::kAlways);
    other.Ring();
    p.Run();
    EXPECT_EQ(p.a_cq.PollAll().size(), 8u - depth) << depth;
    EXPECT_EQ(p.a.Counter("stale_fetches"), depth - 1);
  }
}

// --- receive queue

TEST(EngineFormat, TheTerminatorEndsAReceive) {
  Pair p;
  const Sge two[] = {p.b.At(p.dst, 4), p.b.At(p.dst + 64, 4)};
  p.b_qp.Receive(two);
  const uint32_t zero = 0, lkey = htobe32(rnic::kReceiveTerminatorLkey);
  std::memcpy(p.b_qp.rq + 16, &zero, 4);
  std::memcpy(p.b_qp.rq + 20, &lkey, 4);  // in place of the second; a third stays behind it
  const mlx5_wqe_data_seg third{htobe32(4), htobe32(p.b.lkey), htobe64(p.Remote(p.dst + 128))};
  std::memcpy(p.b_qp.rq + 32, &third, 16);
  p.a_qp.Send(p.a.At(p.src, 5));
  p.a_qp.Ring();
  p.Run();
  EXPECT_EQ(p.b_recv.PollAll().at(0).status, WcStatus::kLocalLength);
  EXPECT_EQ(p.a_cq.PollAll().at(0).status, WcStatus::kRemoteInvalidRequest);
  EXPECT_EQ(p.dst[0], std::byte{0});
  EXPECT_EQ(p.dst[128], std::byte{0});
}

TEST(EngineFormat, ByteCountZeroIsTwoGigabytes) {
  {
    Pair p;  // of a receive
    p.b_qp.Receive(p.b.At(p.dst, 64));
    std::memset(p.b_qp.rq, 0, 4);
    p.a_qp.Send(p.a.At(p.src, 8));
    p.a_qp.Ring();
    p.Run();
    EXPECT_EQ(p.b_recv.PollAll().at(0).status, WcStatus::kLocalProtection);
    EXPECT_EQ(p.a_cq.PollAll().at(0).status, WcStatus::kRemoteOperation);
  }
  for (const bool deferred : {false, true}) {
    Pair p(Delivering(deferred));  // of a READ's scatter, and of a WRITE's gather
    p.a_qp.Read(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, 64));
    std::memset(p.a_qp.sq + 32, 0, 4);
    p.a_qp.Ring();
    p.Run();
    const WcStatus status = p.a_cq.PollAll().at(0).status;
    EXPECT_TRUE(status == WcStatus::kLocalProtection || status == WcStatus::kLocalLength);
  }
}

// A device may look at the counter again at any time. If the counter moves back after it was read,
// a device that looks again at once finds no receive, and one that does not look still has receives
// left.
TEST(EngineFormat, TheReceiveCounterMayBeReadAgainAtAnyTime) {
  int taken = 0, refused = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Pair p({.test = {.steps = RandomSteps, .seed = seed}});
    for (int i = 0; i < 3; ++i) p.b_qp.Receive(p.b.At(p.dst, 8));
    p.a_qp.Send(p.a.At(p.src, 8), CqeMode::kAlways);
    p.a_qp.Ring();
    p.Run();
    p.b_qp.SetReceiveCounter(1);
    p.a_qp.Send(p.a.At(p.src, 8), CqeMode::kAlways);
    p.a_qp.Ring();
    p.Run();
    (p.a_cq.PollAll().size() == 2 ? taken : refused)++;
  }
  EXPECT_GT(taken, 3);
  EXPECT_GT(refused, 3);
}

// --- scatter to CQE

TEST(EngineScatterToCqe, SmallReceivesLandInTheCqeAndNotInTheirMemory) {
  for (const size_t size : {1u, 31u, 32u, 33u}) {
    Pair p({.test = {.scatter_to_cqe = true}});
    const Sge to[] = {p.b.At(p.dst, 7), p.b.At(p.dst + 64, 64)};
    p.b_qp.Receive(to);
    p.a_qp.Send(p.a.At(p.src, size));
    p.a_qp.Ring();
    p.Run();
    const bool in_cqe = size <= 32;
    const mlx5_cqe64& cqe = p.b_recv.ring[0];
    EXPECT_EQ(mlx5dv_get_cqe_format(const_cast<mlx5_cqe64*>(&cqe)), in_cqe ? 1 : 0);
    EXPECT_EQ(p.dst[0], in_cqe ? std::byte{0} : p.src[0]) << size;
    if (in_cqe) {
      EXPECT_EQ(0, std::memcmp(&cqe, p.src, size));
    }
    const auto got = p.b_recv.PollAll();
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].status, WcStatus::kSuccess);
    EXPECT_EQ(got[0].byte_length, size);
  }
}

// A receive is to patch a WQE of a managed queue. With scatter to CQE its completion comes, WAIT
// and SEND_EN run, and then the WQE runs as it was before.
TEST(EngineScatterToCqe, APatchThatShouldHaveChangedAWqeIsMissing) {
  for (const bool scatter_to_cqe : {false, true}) {
    Pair p({.test = {.scatter_to_cqe = scatter_to_cqe}});
    TestCq cq = p.b.Cq();
    TestQp control = p.b.Qp(cq, cq, {.flags = kQpMaster});
    TestQp data = p.b.Qp(cq, cq, {.flags = kQpSlaveSend});
    p.b.Connect(control, control);
    p.b.Connect(data, data);
    // The message gives the WRITE's length and source: 16 B, the data segment.
    const Sge none = p.b.At(p.dst + 100, 1);
    data.Write(p.Remote(p.dst), p.b.rkey, none, CqeMode::kAlways);
    std::memcpy(p.dst + 64, "payload", 8);
    const mlx5_wqe_data_seg patch{htobe32(8), htobe32(p.b.lkey), htobe64(p.Remote(p.dst + 64))};
    std::memcpy(p.src, &patch, 16);
    p.b_qp.Receive(p.b.At(data.sq + 32, 16));
    control.Wait(p.b_recv, 0);
    control.Enable(data, 1);
    control.Ring();
    p.a_qp.Send(p.a.At(p.src, 16));
    p.a_qp.Ring();
    p.Run();
    EXPECT_EQ(cq.PollAll().at(0).status, WcStatus::kSuccess) << "it ran in any case";
    EXPECT_EQ(std::memcmp(p.dst, "payload", 8) == 0, !scatter_to_cqe);
    EXPECT_EQ(p.b.Counter("ring_bytes_by_scatter"), scatter_to_cqe ? 0u : 16u);
  }
}

// --- WAIT beside errors

// WQEs and receives that a queue in error flushes count for a WAIT like any completion.
TEST(EngineWaitErrors, FlushedWorkAdvancesTheCounter) {
  for (const bool deferred : {false, true}) {
    Pair p(Delivering(deferred));
    TestCq cq = p.a.Cq();
    TestQp waiter = p.a.Qp(cq, cq, {.flags = kQpMaster});
    p.a.Connect(waiter, waiter);
    waiter.Wait(p.a_cq, 2);
    waiter.Nop(CqeMode::kAlways);
    waiter.Wait(p.a_recv, 1);
    waiter.Nop(CqeMode::kAlways);
    waiter.Ring();
    p.a_qp.Receive(p.a.At(p.src, 8));
    p.a_qp.Receive(p.a.At(p.src, 8));
    p.Run();
    EXPECT_TRUE(cq.PollAll().empty());
    p.a_qp.Write(p.Remote(p.dst), p.b.rkey ^ 1, p.a.At(p.src, 8));
    p.a_qp.Nop();
    p.a_qp.Nop();
    p.a_qp.Ring();
    p.Run();
    EXPECT_EQ(cq.PollAll().size(), 2u);
    EXPECT_EQ(p.a_recv.PollAll().at(1).status, WcStatus::kFlushed);
  }
}

// A CQ in error gets no CQE, so its counter stands still. A queue that waits for it waits until
// that queue is reset.
TEST(EngineWaitErrors, ACqInErrorMeetsNoWaitAnyMore) {
  Pair p;
  TestCq small = p.a.Cq(0), cq = p.a.Cq();
  TestQp overrun = p.a.Qp(small, small), waiter = p.a.Qp(cq, cq, {.flags = kQpMaster});
  p.a.Connect(overrun, overrun);
  p.a.Connect(waiter, waiter);
  for (int i = 0; i < 3; ++i) overrun.Nop(CqeMode::kAlways);
  overrun.Ring();
  p.Run();
  EXPECT_EQ(p.a.Counter("cqes"), 1u);
  waiter.Wait(small, 0, CqeMode::kAlways);
  waiter.Wait(small, 1, CqeMode::kAlways);
  waiter.Ring();
  p.Run();
  EXPECT_EQ(cq.PollAll().size(), 1u) << "what it had counted before still counts";
  small.PollAll();
  small.Release();  // room does not mend it
  overrun.Nop(CqeMode::kAlways);
  overrun.Ring();
  p.Run();
  EXPECT_TRUE(cq.PollAll().empty());
  p.a.Modify(waiter, QpState::kReset);
  p.a.Modify(waiter, QpState::kInit, 0);
  p.a.Connect(waiter, waiter);
  waiter.next = 0;
  waiter.Nop(CqeMode::kAlways);
  waiter.Ring();
  p.Run();
  EXPECT_EQ(cq.PollAll().size(), 1u);
}

// An overrun puts every queue pair of the CQ into error, and no other.
TEST(EngineWaitErrors, AnOverrunStopsAllQueuesOfItsCq) {
  Pair p;
  TestCq small = p.a.Cq(0), cq = p.a.Cq();
  TestQp first = p.a.Qp(small, cq), second = p.a.Qp(cq, small), third = p.a.Qp(cq, cq);
  for (TestQp* qp : {&first, &second, &third}) p.a.Connect(*qp, *qp);
  for (int i = 0; i < 2; ++i) first.Nop(CqeMode::kAlways);
  first.Ring();
  p.Run();
  second.Nop(CqeMode::kAlways);
  third.Nop(CqeMode::kAlways);
  second.Ring();
  third.Ring();
  p.Run();
  const auto done = cq.PollAll();
  ASSERT_EQ(done.size(), 2u);
  for (const auto& c : done)
    EXPECT_EQ(c.status, c.qpn == second.qpn ? WcStatus::kFlushed : WcStatus::kSuccess);
}

}  // namespace
}  // namespace hyperloop::softrnic
