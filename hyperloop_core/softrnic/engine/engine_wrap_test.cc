// Tests free-running counters at their wrap: WQEBB and receive indexes (16 bits), CQE numbers (24
// bits), and the half range in which they compare.
#include "softrnic/engine/testing/adversarial_schedule.h"
#include "softrnic/engine/testing/engine_test_util.h"

namespace hyperloop::softrnic {
namespace {

using rnic::WcStatus;

EngineOptions NearTheWrap() {
  EngineOptions options;
  options.test.first_wqe = 0xfffa;
  options.test.first_receive = 0xfffd;
  options.test.first_cqe = 0xfffff9;
  return options;
}

TEST(EngineWrap, MessagesAcrossTheWrapOfEveryCounter) {
  for (const bool deferred : {false, true}) {
    EngineOptions options = NearTheWrap();
    if (deferred) {
      options.test.steps = FirstFoundSteps;
      options.test.fetch = EngineTestHooks::Fetch::kEarly;
      options.test.defer_delivery = true;
    }
    Pair p(options, {.log_sq = 2}, {.log_rq = 1});
    for (uint32_t i = 0; i < 40; ++i) {
      p.b_qp.Receive(p.b.At(p.dst + i, 1));
      p.a_qp.Send(p.a.At(p.src + i, 1), CqeMode::kAlways);
      p.a_qp.Ring();
      p.Run();
      const auto sent = p.a_cq.PollAll(), received = p.b_recv.PollAll();
      ASSERT_EQ(sent.size(), 1u) << i;
      ASSERT_EQ(received.size(), 1u) << i;
      EXPECT_EQ(sent[0].status, WcStatus::kSuccess);
      EXPECT_EQ(sent[0].wqe_counter, static_cast<uint16_t>(0xfffa + i));
      EXPECT_EQ(received[0].wqe_counter, static_cast<uint16_t>(0xfffd + i));
      p.a_cq.Release(), p.b_recv.Release();
    }
    EXPECT_EQ(0, std::memcmp(p.dst, p.src, 40));
  }
}

// The first block of this WQE of two blocks has the last index, and is the ring's last block.
TEST(EngineWrap, LongWqeAcrossTheWrap) {
  EngineOptions options;
  options.test.first_wqe = 0xffff;
  Pair p(options, {.log_sq = 2});
  std::byte payload[90];
  for (int i = 0; i < 90; ++i) payload[i] = static_cast<std::byte>(i + 1);
  p.b_qp.Receive(p.b.At(p.dst, 512));
  p.a_qp.SendInline(payload, CqeMode::kAlways);
  p.a_qp.Nop(CqeMode::kAlways);
  p.a_qp.Ring();
  p.Run();
  const auto done = p.a_cq.PollAll();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].wqe_counter, 0xffff);
  EXPECT_EQ(done[1].wqe_counter, 1);
  EXPECT_EQ(0, std::memcmp(p.dst, payload, 90));
}

TEST(EngineWrap, SendEnableAcrossTheWrap) {
  Pair p(NearTheWrap());
  TestCq cq = p.b.Cq(), control_cq = p.b.Cq();
  TestQp control = p.b.Qp(control_cq, control_cq, {.flags = kQpMaster});
  TestQp data = p.b.Qp(cq, cq, {.flags = kQpSlaveSend});
  p.b.Connect(control, control);
  p.b.Connect(data, data);
  for (int i = 0; i < 12; ++i) data.Nop(CqeMode::kAlways);
  uint32_t ran = 0;
  for (const uint32_t enabled : {3u, 6u, 7u, 12u, 5u}) {  // 6: up to the wrap; 5: behind, nothing
    control.Enable(data, static_cast<uint16_t>(0xfffa + enabled));
    control.Ring();
    p.Run();
    const auto done = cq.PollAll();
    for (const auto& c : done) EXPECT_EQ(c.wqe_counter, static_cast<uint16_t>(0xfffa + ran++));
    EXPECT_EQ(ran, std::max(ran, enabled)) << enabled;
  }
  EXPECT_EQ(ran, 12u);
}

TEST(EngineWrap, ReceiveEnableAcrossTheWrap) {
  Pair p(NearTheWrap(), {}, {.flags = kQpSlaveReceive});
  TestCq cq = p.b.Cq();
  TestQp control = p.b.Qp(cq, cq, {.flags = kQpMaster});
  p.b.Connect(control, control);
  for (uint16_t i = 0; i < 8; ++i) p.b_qp.Receive(p.b.At(p.dst + i, 1));
  for (uint16_t i = 0; i < 8; ++i) p.a_qp.Send(p.a.At(p.src + i, 1));
  p.a_qp.Ring();
  uint32_t received = 0;
  for (const uint32_t enabled : {2u, 3u, 4u, 8u}) {
    control.Put([&](void* w) {
      return rnic::EncodeReceiveEnable(w, control.Control(), p.b_qp.qpn,
                                       static_cast<uint16_t>(0xfffd + enabled));
    });
    control.Ring();
    p.Run();
    received += static_cast<uint32_t>(p.b_recv.PollAll().size());
    EXPECT_EQ(received, enabled);
  }
}

TEST(EngineWrap, WaitAcrossTheWrap) {
  Pair p(NearTheWrap());
  TestCq cq = p.b.Cq(), control_cq = p.b.Cq();
  TestQp data = p.b.Qp(cq, cq), control = p.b.Qp(control_cq, control_cq, {.flags = kQpMaster});
  p.b.Connect(data, data);
  p.b.Connect(control, control);
  for (uint32_t i = 0; i < 20; ++i) {
    // The 8 bits above the 24 are not looked at.
    control.Put([&](void* w) {
      const size_t n = rnic::EncodeWait(w, control.Control(CqeMode::kAlways), cq.cqn, 0xfffff9 + i);
      static_cast<std::byte*>(w)[24] = static_cast<std::byte>(i * 37);
      return n;
    });
    control.Ring();
    p.Run();
    EXPECT_TRUE(control_cq.PollAll().empty()) << i;
    data.Nop(CqeMode::kAlways);
    data.Ring();
    p.Run();
    EXPECT_EQ(control_cq.PollAll().size(), 1u) << i;
    EXPECT_EQ(cq.PollAll().size(), 1u) << i;
    cq.Release();
  }
}

// An index up to half of the range behind is in the past, and further it is in the future.
TEST(EngineWrap, HalfTheRangeOfAWait) {
  const struct {
    uint32_t last;
    bool met;
  } cases[] = {{0xfffff8, true},  // one behind
               {0xfffff9, false},
               {0xfffff8 - 0x7fffff, true},
               {0xfffff8 - 0x800000, false}};
  for (const auto& c : cases) {
    Pair p(NearTheWrap());
    TestCq cq = p.a.Cq(), counted = p.a.Cq();
    TestQp qp = p.a.Qp(cq, cq, {.flags = kQpMaster});
    p.a.Connect(qp, qp);
    qp.Wait(counted, c.last, CqeMode::kAlways);
    qp.Ring();
    p.Run();
    EXPECT_EQ(cq.PollAll().size(), c.met ? 1u : 0u) << c.last;
  }
}

TEST(EngineWrap, HalfTheRangeOfAnEnable) {
  for (const uint32_t ahead : {0x8000u, 0x8001u}) {
    Pair p(NearTheWrap());
    TestCq cq = p.a.Cq(4, /*ignore_overrun=*/true);
    TestQp qp = p.a.Qp(cq, cq, {.log_sq = 1, .flags = kQpMaster | kQpSlaveSend});
    p.a.Connect(qp, qp);
    qp.Nop(CqeMode::kAlways);
    qp.Ring(static_cast<uint16_t>(0xfffa + ahead));
    p.Run();
    EXPECT_EQ(p.a.Counter("nops"), ahead == 0x8000 ? 1u : 0u) << ahead;
  }
}

TEST(EngineWrap, OnlySixteenBitsOfADoorbellRecordCount) {
  Pair p(NearTheWrap());
  p.b_qp.Receive(p.b.At(p.dst, 8));
  p.b_qp.SetReceiveCounter(0xabcd0000u | p.b_qp.next_recv);
  p.a_qp.Send(p.a.At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Send(p.a.At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Run();
  EXPECT_EQ(p.a_cq.PollAll().size(), 1u) << "one receive is posted, not 65536";
}

// Other tests start the counters near their wrap. This one runs through them all.
TEST(EngineWrap, SeventeenMillionCompletionsAreNoDifferent) {
  Engine engine{EngineOptions{}};
  Client a(engine, "a");
  TestCq cq = a.Cq(2, /*ignore_overrun=*/true), control_cq = a.Cq();
  TestQp data = a.Qp(cq, cq, {.log_sq = 6});
  TestQp control = a.Qp(control_cq, control_cq, {.flags = kQpMaster});
  a.Connect(data, data);
  a.Connect(control, control);
  for (int i = 0; i < 64; ++i) data.Nop(CqeMode::kAlways);
  data.next = 0;
  uint32_t made = 0;
  const auto make = [&](uint32_t end) {
    while (made < end) {
      const uint32_t batch = std::min(end - made, 64u);
      for (uint32_t i = 0; i < batch; ++i, ++data.next) {
        const uint16_t be = htobe16(data.next);
        std::memcpy(data.sq + (data.next % 64) * 64 + 1, &be, 2);
      }
      data.Ring();
      RunAll(engine);
      made += batch;
    }
  };
  constexpr uint32_t kHalf = 1 << 23, kLap = 1 << 24;
  make(1);
  const uint32_t lasts[] = {kHalf, kLap - 1, kLap + 2};
  for (const uint32_t last : lasts) {
    control.Wait(cq, last);
    control.Nop(CqeMode::kAlways);
  }
  control.Ring();
  RunAll(engine);
  for (const uint32_t last : lasts) {
    make(last);
    EXPECT_TRUE(control_cq.PollAll().empty()) << last;
    make(last + 1);
    EXPECT_EQ(control_cq.PollAll().size(), 1u) << last;
  }
}

}  // namespace
}  // namespace hyperloop::softrnic
