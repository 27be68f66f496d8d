// Tests adversarial schedules: seeded single steps, deferred delivery, early, late and random
// fetch, fences, retransmission.
#include <random>

#include "softrnic/engine/pacer.h"
#include "softrnic/engine/testing/adversarial_schedule.h"
#include "softrnic/engine/testing/engine_test_util.h"

namespace hyperloop::softrnic {
namespace {

using rnic::WcStatus;
using Fetch = EngineTestHooks::Fetch;

EngineOptions Adversary(uint64_t seed, Fetch fetch = Fetch::kRandom) {
  EngineOptions options;
  options.test.steps = RandomSteps;
  options.test.fetch = fetch;
  options.test.defer_delivery = true;
  options.test.retransmit = true;
  options.test.seed = seed;
  return options;
}

// Random operations from a to b, with as much under way as the rings take. The end state and the
// completions must equal those of serial execution.
class RandomOperations {
 public:
  explicit RandomOperations(uint64_t seed)
      : p_(Options(seed), {.log_sq = 5}, {.log_rq = 3}),
        random_(seed),
        old_(reinterpret_cast<uint64_t*>(p_.a.Allocate(1024 * 8))) {}

  // At most 31 blocks are under way. Each round posts up to that, and runs to the end or a few
  // steps.
  void Run() {
    for (int i = 0; i < 200; ++i) {
      Post();
      if (i % 6 == 5)
        p_.Run();
      else
        p_.engine.Run(random_() % 4);
      for (TestCq* cq : {&p_.a_cq, &p_.b_recv}) {
        for (const auto& c : cq->PollAll()) {
          ASSERT_EQ(c.status, WcStatus::kSuccess) << "step " << i;
          --(cq == &p_.a_cq ? signaled_ : received_);
        }
        cq->Release();
      }
    }
    p_.Run();
    EXPECT_EQ(p_.a_cq.PollAll().size(), signaled_);
    EXPECT_EQ(p_.b_recv.PollAll().size(), received_);
    EXPECT_EQ(0, std::memcmp(p_.dst, expected_.data(), expected_.size()));
    for (size_t i = 0; i < expected_old_.size(); ++i)
      ASSERT_EQ(old_[i], expected_old_[i]) << "answer " << i;
  }

 private:
  static EngineOptions Options(uint64_t seed) {
    const Fetch fetches[] = {Fetch::kLate, Fetch::kEarly, Fetch::kRandom};
    EngineOptions options = Adversary(seed, fetches[seed % 3]);
    if (seed % 5 == 0)
      options.test = {.steps = FirstFoundSteps, .fetch = fetches[seed % 3], .defer_delivery = true};
    if (seed % 5 == 1) options.test.defer_delivery = options.test.retransmit = false;
    return options;
  }

  void Post() {
    const auto at = static_cast<uint32_t>(random_() % 240 * 8);
    const auto n = static_cast<uint32_t>(1 + random_() % 100);
    const auto from = static_cast<uint32_t>(random_() % 2000);
    const CqeMode mode = random_() % 2 != 0 ? CqeMode::kAlways : CqeMode::kOnError;
    uint64_t& word = reinterpret_cast<uint64_t*>(expected_.data())[at / 8];
    switch (random_() % 5) {
      case 0:
        p_.a_qp.Write(p_.Remote(p_.dst + at), p_.b.rkey, p_.a.At(p_.src + from, n), mode);
        std::memcpy(expected_.data() + at, p_.src + from, n);
        break;
      case 1:
        p_.a_qp.Add(p_.Remote(p_.dst + at), p_.b.rkey, n, Answer(word), mode);
        word += n;
        break;
      case 2:
        p_.a_qp.Read(p_.Remote(p_.dst + at), p_.b.rkey, Answer(word), mode);
        break;
      case 3: {
        const Sge to[] = {p_.b.At(p_.dst + at, 3), p_.b.At(p_.dst + at + 3, 128)};
        p_.b_qp.Receive(to);
        const Sge sges[] = {p_.a.At(p_.src + from, n), p_.a.At(p_.src + 7, 9)};
        p_.a_qp.Send(sges, mode);
        std::memcpy(expected_.data() + at, p_.src + from, n);
        std::memcpy(expected_.data() + at + n, p_.src + 7, 9);
        ++received_;
        break;
      }
      default:
        p_.a_qp.Nop(mode);
    }
    if (mode == CqeMode::kAlways) ++signaled_;
    p_.a_qp.Ring();
  }
  // Where an answer arrives that must be `expected`.
  Sge Answer(uint64_t expected) {
    uint64_t* const to = old_ + expected_old_.size();
    expected_old_.push_back(expected);
    return p_.a.At(reinterpret_cast<std::byte*>(to), 8);
  }

  Pair p_;
  std::mt19937_64 random_;
  std::vector<std::byte> expected_ = std::vector<std::byte>(2048);
  uint64_t* const old_;
  std::vector<uint64_t> expected_old_;
  uint32_t signaled_ = 0, received_ = 0;
};

TEST(EngineSchedule, RandomOperationsEqualSerialExecution) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ASSERT_NO_FATAL_FAILURE(RandomOperations(seed).Run());
  }
}

TEST(EngineSchedule, OneSeedGivesOneRun) {
  const auto trace = [](uint64_t seed) {
    Pair p(Adversary(seed));
    TestQp q = p.a.Qp(p.a_cq, p.a_recv);
    p.a.Connect(q, q);
    for (int i = 0; i < 10; ++i) {
      p.a_qp.Write(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, 8), CqeMode::kAlways);
      q.Nop(CqeMode::kAlways);
    }
    p.a_qp.Ring();
    q.Ring();
    p.Run();
    std::vector<bool> order;
    for (const auto& c : p.a_cq.PollAll()) order.push_back(c.qpn == q.qpn);
    return order;
  };
  EXPECT_EQ(trace(7).size(), 20u);
  EXPECT_EQ(trace(7), trace(7));
  int different = 0;
  for (uint64_t seed = 1; seed < 20; ++seed) different += trace(seed) != trace(7);
  EXPECT_GT(different, 10);
}

// READs into a buffer, then SENDs that buffer. Without the fence the SEND may take the old bytes.
uint64_t SendBehindRead(uint64_t seed, bool fence) {
  Pair p(Adversary(seed));
  *reinterpret_cast<uint64_t*>(p.dst) = 42;
  std::byte* const buffer = p.a.Allocate(64);
  p.b_qp.Receive(p.b.At(p.dst + 512, 8));
  p.a_qp.Read(p.Remote(p.dst), p.b.rkey, p.a.At(buffer, 8));
  const Sge sge = p.a.At(buffer, 8);
  p.a_qp.Send({&sge, 1}, CqeMode::kAlways, fence);
  p.a_qp.Ring();
  p.Run();
  EXPECT_EQ(p.a_cq.PollAll().size(), 1u);
  return *reinterpret_cast<uint64_t*>(p.dst + 512);
}

TEST(EngineFence, SendWaitsForTheReadsData) {
  int stale = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    ASSERT_EQ(SendBehindRead(seed, true), 42u) << seed;
    stale += SendBehindRead(seed, false) != 42;
  }
  EXPECT_GT(stale, 20) << "the schedule must show what the fence is for";
}

TEST(EngineFence, HoldsSendEnableBehindAtomicsToo) {
  const auto enabled_before_answer = [](uint64_t seed, bool fence) {
    Pair p(Adversary(seed));
    TestQp control = p.a.Qp(p.a_cq, p.a_recv, {.flags = kQpMaster});
    p.a.Connect(control, control);
    TestQp managed = p.a.Qp(p.a_cq, p.a_recv, {.flags = kQpSlaveSend});
    p.a.Connect(managed, managed);
    auto* const old = reinterpret_cast<uint64_t*>(p.a.Allocate(64));
    auto* const seen = reinterpret_cast<uint64_t*>(p.a.Allocate(64));
    *reinterpret_cast<uint64_t*>(p.a.memory + Client::kArena - 64) = 9;
    managed.Write(reinterpret_cast<uint64_t>(seen), p.a.rkey,
                  p.a.At(reinterpret_cast<std::byte*>(old), 8));
    control.Add(reinterpret_cast<uint64_t>(p.a.memory + Client::kArena - 64), p.a.rkey, 1,
                p.a.At(reinterpret_cast<std::byte*>(old), 8));
    control.Enable(managed, 1, CqeMode::kOnError, fence);
    control.Ring();
    p.Run();
    return *seen != 9;
  };
  int early = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    ASSERT_FALSE(enabled_before_answer(seed, true)) << seed;
    early += enabled_before_answer(seed, false);
  }
  EXPECT_GT(early, 20);
}

TEST(EngineSchedule, ErrorsAndFlushKeepTheirOrder) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    for (const bool loopback : {false, true}) {
      Pair p(Adversary(seed));
      TestQp qp = p.a_qp;
      if (loopback) {
        qp = p.a.Qp(p.a_cq, p.a_recv);
        p.a.Connect(qp, qp);
      }
      const uint64_t to = loopback ? p.Remote(p.src) : p.Remote(p.dst);
      const uint32_t rkey = loopback ? p.a.rkey : p.b.rkey;
      qp.Write(to, rkey, p.a.At(p.src, 8), CqeMode::kAlways);
      qp.Nop(CqeMode::kAlways);
      qp.Write(to, rkey ^ 1, p.a.At(p.src, 8));
      qp.Write(to + 8, rkey, p.a.At(p.src, 8));
      qp.Nop(CqeMode::kOnFirstError);
      qp.Nop();
      qp.Ring();
      p.Run();
      const auto done = p.a_cq.PollAll();
      ASSERT_EQ(done.size(), 5u) << seed;
      const WcStatus statuses[] = {WcStatus::kSuccess, WcStatus::kSuccess, WcStatus::kRemoteAccess,
                                   WcStatus::kFlushed, WcStatus::kFlushed};
      const uint16_t indexes[] = {0, 1, 2, 3, 5};
      for (size_t i = 0; i < 5; ++i) {
        EXPECT_EQ(done[i].status, statuses[i])
            << "seed " << seed << " loopback " << loopback << " " << i;
        EXPECT_EQ(done[i].wqe_counter, indexes[i]);
      }
      if (!loopback) {
        EXPECT_EQ(p.dst[8], std::byte{0}) << "nothing runs behind the failed one";
      }
    }
  }
}

TEST(EngineSchedule, MalformedWqeStopsTheQueueBehindWhatIsUnderWay) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Pair p(Adversary(seed));
    p.a_qp.Write(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, 8), CqeMode::kAlways);
    p.a_qp.Nop();
    p.a_qp.sq[64 + 2] = std::byte{9};  // its index
    p.a_qp.Ring();
    p.engine.Run(2);
    p.a_qp.Write(p.Remote(p.dst + 64), p.b.rkey, p.a.At(p.src, 8));
    p.a_qp.Ring();
    p.Run();
    const auto done = p.a_cq.PollAll();
    ASSERT_EQ(done.size(), 3u);
    EXPECT_EQ(done[0].status, WcStatus::kSuccess);
    EXPECT_EQ(done[1].status, WcStatus::kLocalQpOperation);
    EXPECT_EQ(done[2].status, WcStatus::kFlushed);
    EXPECT_EQ(p.dst[64], std::byte{0}) << seed;
  }
}

// The peer knows nothing of a WRITE that fails at the requester, and would take what follows it.
TEST(EngineSchedule, NothingPassesAWriteThatFailedHere) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Pair p(Adversary(seed));
    p.b_qp.Receive(p.b.At(p.dst, 8));
    Sge gone = p.a.At(p.src, 8);
    gone.lkey ^= 1;
    p.a_qp.Write(p.Remote(p.dst + 64), p.b.rkey, gone);
    p.a_qp.Send(p.a.At(p.src, 8));
    p.a_qp.Write(p.Remote(p.dst + 128), p.b.rkey, p.a.At(p.src, 8));
    p.a_qp.Ring();
    p.Run();
    EXPECT_EQ(p.a_cq.PollAll().at(0).status, WcStatus::kLocalProtection);
    EXPECT_TRUE(p.b_recv.PollAll().empty()) << "seed " << seed;
    EXPECT_EQ(p.dst[128], std::byte{0}) << "seed " << seed;
  }
}

TEST(EngineSchedule, ReadsUnderWayAreLimited) {
  const auto stalls = [](uint32_t limit) {
    uint64_t sum = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      Pair p(Adversary(seed), {.max_read_atomic = limit});
      for (int i = 0; i < 8; ++i) p.a_qp.Read(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, 8));
      p.a_qp.Ring();
      p.Run();
      EXPECT_EQ(p.a.Counter("reads"), 8u);
      sum += p.a.Counter("fence_stalls");
    }
    return sum;
  };
  EXPECT_EQ(stalls(8), 0u);
  EXPECT_GT(stalls(1), 50u);
  EXPECT_GT(stalls(0), 50u) << "0 means one, as the kernel sets it";
}

TEST(EngineSchedule, ReceiverNotReadyIsTriedAgain) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Pair p(Adversary(seed));
    for (int i = 0; i < 4; ++i) p.a_qp.Send(p.a.At(p.src + i, 1), CqeMode::kAlways);
    p.a_qp.Ring();
    p.Run();
    EXPECT_TRUE(p.engine.RetryPending());
    for (int i = 0; i < 4; ++i) {
      p.b_qp.Receive(p.b.At(p.dst + i, 1));
      p.Run();
      EXPECT_EQ(p.a_cq.PollAll().size(), 1u);
    }
    EXPECT_EQ(0, std::memcmp(p.dst, p.src, 4));
  }
}

TEST(EngineSchedule, ReuseOfASlotBeforeItsAcknowledgementIsCaught) {
  int caught = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Pair p(Adversary(seed, Fetch::kLate));
    for (int i = 0; i < 8; ++i) p.a_qp.Write(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, 8));
    p.a_qp.Ring();
    p.engine.Run(6);
    // Software writes the next lap, because it wrongly takes "executed" for "acknowledged".
    for (uint16_t i = 0; i < 3; ++i) {
      rnic::EncodeNop(p.a_qp.sq + i * 64,
                      {.qpn = p.a_qp.qpn, .index = static_cast<uint16_t>(64 + i)});
    }
    p.Run();
    caught += !p.a_cq.PollAll().empty();
  }
  EXPECT_GT(caught, 10);
}

TEST(EngineSchedule, DeferredDeliveryNeedsStepsThatDeliver) {
  EXPECT_DEATH(Engine({.test = {.defer_delivery = true}}), "steps");
  EXPECT_DEATH(Engine({.test = {.steps = PacedBy(nullptr), .defer_delivery = true}}), "deliver");
}

TEST(EngineSchedule, BrokenDeviceRunsPastTheEnabledIndex) {
  for (const bool check : {true, false}) {
    Pair p({.test = {.check_cross_channel = check}});
    TestQp control = p.a.Qp(p.a_cq, p.a_recv, {.flags = kQpMaster});
    p.a.Connect(control, control);
    TestQp managed = p.a.Qp(p.a_cq, p.a_recv, {.flags = kQpSlaveSend});
    p.a.Connect(managed, managed);
    for (int i = 0; i < 3; ++i) managed.Nop(CqeMode::kAlways);
    control.Enable(managed, 1);
    control.Ring();
    p.Run();
    EXPECT_EQ(p.a_cq.PollAll().size() > 1, !check);
  }
}

}  // namespace
}  // namespace hyperloop::softrnic
