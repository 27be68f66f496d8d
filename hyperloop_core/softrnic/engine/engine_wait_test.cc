// Tests cross-channel work: WAIT, SEND_EN, RECV_EN, managed queues, and WQEs that a receive
// rewrites.
#include "softrnic/engine/testing/engine_test_util.h"
#include "support/status_matchers.h"

namespace hyperloop::softrnic {
namespace {

using rnic::WcStatus;

// A replica's NIC in small: `control` (master) and `data` (managed), and a sender that talks to
// `data`'s ring.
struct Machine {
  explicit Machine(EngineOptions options = {})
      : p(options),
        cq(p.b.Cq()),
        control_cq(p.b.Cq()),
        control(
            p.b.Qp(control_cq, control_cq, {.has_rq = false, .flags = kQpMaster | kQpSlaveSend})),
        data(p.b.Qp(cq, cq, {.has_rq = false, .flags = kQpMaster | kQpSlaveSend})) {
    p.b.Connect(control, control);
    p.b.Connect(data, data);
  }
  Pair p;
  TestCq cq, control_cq;
  TestQp control, data;
};

TEST(EngineWait, IndexIsOfTheLastCqeAndSeveralWaitsShareOne) {
  Machine m;
  m.control.Wait(m.p.b_recv, 1, CqeMode::kAlways);
  m.data.Wait(m.p.b_recv, 1, CqeMode::kAlways);
  m.control.Ring();
  m.data.Ring();
  for (int i = 0; i < 2; ++i) {
    m.p.Run();
    EXPECT_TRUE(m.control_cq.PollAll().empty()) << i;
    EXPECT_TRUE(m.cq.PollAll().empty()) << i;
    m.p.b_qp.Receive(m.p.b.At(m.p.dst, 8));
    m.p.a_qp.Send(m.p.a.At(m.p.src, 8));
    m.p.a_qp.Ring();
  }
  m.p.Run();
  EXPECT_EQ(m.control_cq.PollAll().size(), 1u);
  EXPECT_EQ(m.cq.PollAll().size(), 1u) << "not a semaphore: both fire";
}

TEST(EngineWait, NeedsAMasterQueueAndACqOfTheSameUarPage) {
  Machine m;
  m.p.b_qp.Wait(m.p.b_recv, 0);  // b_qp is no master
  m.p.b_qp.Ring();
  m.control.Wait(m.p.a_cq, 0);  // a_cq lives on another page
  m.control.Ring();
  m.data.Put([&](void* w) { return rnic::EncodeWait(w, m.data.Control(), 0xabcdef, 0); });
  m.data.Ring();
  m.p.Run();
  EXPECT_EQ(m.p.b_cq.PollAll().at(0).status, WcStatus::kLocalQpOperation);
  EXPECT_EQ(m.control_cq.PollAll().at(0).status, WcStatus::kLocalQpOperation);
  EXPECT_EQ(m.cq.PollAll().at(0).status, WcStatus::kLocalQpOperation);
}

// A queue that enables itself is ready while it runs, so it has another turn after a WAIT has
// stopped it. If that turn linked it among the CQ's waiters again, its destruction would leave a
// pointer to it behind.
TEST(EngineWait, AQueueThatEnablesItselfWaitsOnce) {
  Machine m;
  Client& b = m.p.b;
  TestCq awaited = b.Cq();
  m.control.Enable(m.control, 3);
  m.control.Wait(awaited, 0);
  m.control.Nop(CqeMode::kAlways);
  m.control.Ring(2);
  m.p.Run();
  EXPECT_EQ(b.Counter("waits"), 1u);
  ASSERT_OK(b.Destroy(Op::kDestroyQp, m.control.qpn));
  // A completion looks at every queue that waits for it.
  TestQp other = b.Qp(awaited, awaited, {.has_rq = false});
  b.Connect(other, other);
  other.Nop(CqeMode::kAlways);
  other.Ring();
  m.p.Run();
  EXPECT_EQ(awaited.PollAll().size(), 1u);
  ASSERT_OK(b.Destroy(Op::kDestroyQp, other.qpn));
  EXPECT_OK(b.Destroy(Op::kDestroyCq, awaited.cqn));
}

TEST(EngineEnable, NeedsMasterAndManagedTargetOfTheSameClient) {
  for (int kind = 0; kind < 5; ++kind) {
    Machine m;
    TestQp foreign = m.p.a.Qp(m.p.a_cq, m.p.a_cq, {.flags = kQpSlaveSend});
    if (kind == 4) m.control.Enable(foreign, 1);   // managed, but on another UAR page
    if (kind == 0) m.control.Enable(m.p.b_qp, 1);  // not managed
    if (kind == 1) m.control.Enable(m.p.a_qp, 1);  // another client's
    if (kind == 2)
      m.control.Put(
          [&](void* w) { return rnic::EncodeSendEnable(w, m.control.Control(), 0x123456, 1); });
    if (kind == 3) m.p.b_qp.Enable(m.data, 1);  // not a master
    m.control.Ring();
    m.p.b_qp.Ring();
    m.p.Run();
    TestCq& cq = kind == 3 ? m.p.b_cq : m.control_cq;
    EXPECT_EQ(cq.PollAll().at(0).status, WcStatus::kLocalQpOperation) << kind;
  }
}

// A receive rewrites a WQE of a managed queue, and the rewritten WQE is the one that runs.
TEST(EngineRewrite, ReceiveScatterIntoTheRingIsWhatRuns) {
  for (const auto fetch : {EngineTestHooks::Fetch::kLate, EngineTestHooks::Fetch::kEarly,
                           EngineTestHooks::Fetch::kRandom}) {
    Machine m({.test = {.fetch = fetch}});
    // data[0] is a NOP that the message turns into WRITE src→dst; control: WAIT, then
    // SEND_EN(data).
    m.data.Nop(CqeMode::kAlways);
    m.control.Wait(m.p.b_recv, 0);
    m.control.Enable(m.data, 1);
    m.control.Ring();
    m.p.Run();
    std::memcpy(m.p.dst + 64, "payload", 8);
    const Sge sge = m.p.b.At(m.p.dst + 64, 8);
    const size_t bytes =
        rnic::EncodeWrite(m.p.src, {.qpn = m.data.qpn, .index = 0, .completion = CqeMode::kAlways},
                          m.p.Remote(m.p.dst), m.p.b.rkey, {&sge, 1});
    ASSERT_EQ(bytes, 48u);
    // The patch arrives in three pieces, which need no alignment.
    const Sge pieces[] = {m.p.b.At(m.data.sq, 4), m.p.b.At(m.data.sq + 4, 13),
                          m.p.b.At(m.data.sq + 17, 31)};
    m.p.b_qp.Receive(pieces);
    m.p.a_qp.Send(m.p.a.At(m.p.src, 48));
    m.p.a_qp.Ring();
    m.p.Run();
    EXPECT_EQ(0, std::memcmp(m.p.dst, "payload", 8));
    EXPECT_EQ(m.cq.PollAll().size(), 1u);
    EXPECT_EQ(m.p.b.Counter("ring_bytes_by_scatter"), 48u);
    EXPECT_EQ(m.p.b.Counter("ring_bytes_by_other"), 0u);
  }
}

TEST(EngineRewrite, RingBytesByOtherOperationsAreCounted) {
  Machine m;
  // 8 B doorbell record and 16 B of a ring, in one write that also covers the bytes between and
  // behind.
  m.p.a_qp.Write(m.p.Remote(m.data.sq + 48 * 64 - 8), m.p.b.rkey, m.p.a.At(m.p.src, 16));
  m.p.a_qp.Write(m.p.Remote(m.data.dbrec + 4), m.p.b.rkey, m.p.a.At(m.p.src, 20));
  m.p.a_qp.Write(m.p.Remote(m.p.dst), m.p.b.rkey, m.p.a.At(m.p.src, 100));
  m.p.a_qp.Ring();
  m.p.Run();
  EXPECT_EQ(m.p.b.Counter("ring_bytes_by_other"), 16u + 4u);
  EXPECT_EQ(m.p.b.Counter("ring_bytes_by_scatter"), 0u);
}

// A client may register other bytes under the addresses of its rings.
TEST(EngineRewrite, RingsAreInTheMemoryTheyWereMadeIn) {
  Machine m;
  Client& b = m.p.b;
  std::byte* const other = static_cast<std::byte*>(std::aligned_alloc(4096, Client::kArena));
  std::memset(other, 0, Client::kArena);
  auto umem = m.p.engine.RegisterUmem(b.id(), {m.p.Remote(b.memory), 0, Client::kArena},
                                      {other, Client::kArena, {other, std::free}});
  ASSERT_OK(umem);
  Command command = b.Make(Op::kCreateMkey);
  command.args.mkey = {b.pdn, umem->id, m.p.Remote(b.memory), Client::kArena, 0xf, 0};
  const auto key = b.Must(command).result.mkey;
  TestQp more = b.Qp(m.p.b_cq, m.p.b_recv);  // marks again
  m.p.a_qp.Write(m.p.Remote(m.data.sq), key.rkey, m.p.a.At(m.p.src, 16));
  m.p.a_qp.Write(m.p.Remote(more.sq), b.rkey, m.p.a.At(m.p.src, 8));
  m.p.a_qp.Ring();
  m.p.Run();
  EXPECT_EQ(0, std::memcmp(other + (m.data.sq - b.memory), m.p.src, 16));
  EXPECT_EQ(b.Counter("ring_bytes_by_other"), 8u) << "only those in the rings' own memory";
}

}  // namespace
}  // namespace hyperloop::softrnic
