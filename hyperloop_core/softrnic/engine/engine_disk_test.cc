// Tests files on a disk: a READ waits for its flush, and nobody else does.
#include <vector>

#include "softrnic/engine/flusher.h"
#include "softrnic/engine/testing/adversarial_schedule.h"
#include "softrnic/engine/testing/engine_link_fixture.h"
#include "softrnic/engine/testing/engine_test_util.h"
#include "support/status_matchers.h"

namespace hyperloop::softrnic {
namespace {

using rnic::Media;
using rnic::WcStatus;

// A disk that finishes a flush when the test says so.
class SlowDisk : public Flusher {
 public:
  bool Flush(uint64_t, FileRange range, std::shared_ptr<FlushJob> job) override {
    if (tasks_.size() == most) return false;
    tasks_.push_back({std::move(range), std::move(job)});
    return true;
  }
  void Gone(uint64_t) override { ++gone; }
  size_t waiting() const { return tasks_.size(); }
  void FinishOne(bool ok = true) {
    if (!ok) tasks_.front().job->failed = true;
    tasks_.front().job->left.fetch_sub(1);
    tasks_.erase(tasks_.begin());
  }
  void FinishAll() {
    while (!tasks_.empty()) FinishOne();
  }
  const FileRange& range(size_t i) const { return tasks_[i].range; }
  int gone = 0;
  size_t most = ~size_t{0};

 private:
  struct Task {
    FileRange range;
    std::shared_ptr<FlushJob> job;
  };
  std::vector<Task> tasks_;
};

EngineOptions On(SlowDisk& disk, EngineOptions options = {}) {
  options.flusher = &disk;
  return options;
}

// Host b has its memory on a disk, and a writes to it. c and d are other hosts.
struct OnDisk {
  explicit OnDisk(EngineOptions options = {})
      : engine(On(disk, std::move(options))),
        a(engine, "a"),
        b(engine, "b", Media::kFile, nullptr, 0, -1, /*waits_for_disk=*/true),
        c(engine, "c"),
        d(engine, "d"),
        a_cq(a.Cq()),
        b_cq(b.Cq()),
        c_cq(c.Cq()),
        d_cq(d.Cq()),
        a_qp(a.Qp(a_cq, a_cq)),
        b_qp(b.Qp(b_cq, b_cq)),
        c_qp(c.Qp(c_cq, c_cq)),
        d_qp(d.Qp(d_cq, d_cq)) {
    a.Connect(a_qp, b_qp), b.Connect(b_qp, a_qp);
    c.Connect(c_qp, d_qp), d.Connect(d_qp, c_qp);
    src = a.Allocate(4096), dst = b.Allocate(65536);
    other_src = c.Allocate(64), other_dst = d.Allocate(64);
    src[0] = std::byte{42};
  }
  uint64_t Dst(size_t offset = 0) const { return reinterpret_cast<uint64_t>(dst + offset); }
  void Write(size_t offset = 0, CqeMode mode = CqeMode::kOnError) {
    a_qp.Write(Dst(offset), b.rkey, a.At(src, 8), mode);
  }
  void Read() { a_qp.Read(Dst(), b.rkey, a.At(src + 64, 8), CqeMode::kAlways); }
  void Run() {
    a_qp.Ring();
    RunAll(engine);
  }
  std::vector<rnic::Completion> Done() { return a_cq.PollAll(); }

  SlowDisk disk;
  Engine engine;
  Client a, b, c, d;
  TestCq a_cq, b_cq, c_cq, d_cq;
  TestQp a_qp, b_qp, c_qp, d_qp;
  std::byte *src, *dst, *other_src, *other_dst;
};

class EngineDisk : public ::testing::TestWithParam<bool> {
 protected:
  EngineOptions Options() const {
    EngineOptions options;
    if (GetParam()) options.test = {.steps = RandomSteps, .defer_delivery = true};
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, EngineDisk, ::testing::Bool(),
                         [](const auto& mode) { return mode.param ? "deferred" : "at_once"; });

TEST_P(EngineDisk, AReadWaitsForItsDiskAndNobodyElseDoes) {
  OnDisk p(Options());
  p.Write();
  p.Read();
  p.Write(8192, CqeMode::kAlways);
  p.Run();
  ASSERT_EQ(p.disk.waiting(), 1u);
  EXPECT_EQ(p.disk.range(0).begin, p.dst);
  EXPECT_EQ(p.disk.range(0).end, p.dst + 8);
  EXPECT_TRUE(p.Done().empty()) << "acknowledged what is not durable";
  EXPECT_EQ(p.dst[8192], std::byte{0}) << "what comes behind the READ passed it";
  EXPECT_TRUE(p.engine.RetryPending());
  for (int i = 0; i < 10; ++i) {
    p.c_qp.Write(reinterpret_cast<uint64_t>(p.other_dst), p.d.rkey, p.c.At(p.other_src, 8),
                 CqeMode::kAlways);
    p.c_qp.Ring();
    RunAll(p.engine);
    ASSERT_EQ(p.c_cq.PollAll().size(), 1u) << i;
  }
  EXPECT_TRUE(p.Done().empty());
  p.disk.FinishAll();
  RunAll(p.engine);
  ExpectAllGood(p.Done(), 2);
  EXPECT_EQ(p.src[64], std::byte{42});
  EXPECT_EQ(p.dst[8192], std::byte{42});
  EXPECT_EQ(p.disk.waiting(), 0u);
  EXPECT_EQ(p.a.Counter("reads"), 1u);
  EXPECT_EQ(p.a.Counter("ack_stalls") + p.a.Counter("rnr_stalls"), 0u);
}

TEST_P(EngineDisk, AReadIsThroughWhenAllItsRangesAre) {
  OnDisk p(Options());
  p.Write();
  p.Write(8192);
  p.Write(32768);
  p.Read();
  p.Run();
  ASSERT_EQ(p.disk.waiting(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(p.Done().empty()) << i;
    p.disk.FinishOne();
    RunAll(p.engine);
  }
  ExpectAllGood(p.Done(), 1);
  p.Read();
  p.Run();
  ExpectAllGood(p.Done(), 1);
  EXPECT_EQ(p.disk.waiting(), 0u) << "it is durable already";
}

TEST_P(EngineDisk, AFlushThatFailsFailsItsRead) {
  OnDisk p(Options());
  p.Write();
  p.Write(8192);
  p.Read();
  p.Run();
  p.disk.FinishOne(/*ok=*/false);
  p.disk.FinishOne();
  RunAll(p.engine);
  const auto done = p.Done();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, WcStatus::kRemoteOperation);
}

TEST_P(EngineDisk, MemoryAndQueuesMayGoMeanwhile) {
  for (int what = 0; what < 4; ++what) {
    OnDisk p(Options());
    p.Write();
    p.Read();
    p.Run();
    ASSERT_EQ(p.disk.waiting(), 1u);
    const std::weak_ptr<void> mapping = p.disk.range(0).owner;
    if (what == 0) p.b.Close();
    if (what == 1) p.a.Close();
    if (what == 2) p.b.Modify(p.b_qp, QpState::kReset);
    if (what == 3) p.a.Modify(p.a_qp, QpState::kReset);
    RunAll(p.engine);
    EXPECT_FALSE(mapping.expired()) << "msync of what is gone";
    p.disk.FinishAll();
    RunAll(p.engine);
    if (what == 0) {
      EXPECT_TRUE(p.Done().empty()) << "nobody has answered";
      EXPECT_EQ(p.disk.gone, 1);
    }
    if (what < 2) continue;
    // Both start again.
    for (TestQp* qp : {&p.a_qp, &p.b_qp}) {
      qp->client->Modify(*qp, QpState::kReset);
      qp->client->Modify(*qp, QpState::kInit, 0xf);
      qp->next = 0;
    }
    p.a.Connect(p.a_qp, p.b_qp);
    p.b.Connect(p.b_qp, p.a_qp);
    p.Write();
    p.Read();
    p.Run();
    EXPECT_TRUE(p.Done().empty());
    p.disk.FinishAll();
    RunAll(p.engine);
    ExpectAllGood(p.Done(), 1);
  }
}

// A queue pair remembers few ranges. What does not fit is flushed early. If the disk does not keep
// up with that, the next READ fails.
TEST(EngineDiskBounds, MoreUnderWayThanIsAllowedFailsTheNextRead) {
  OnDisk p;
  std::vector<uint32_t> rkeys;
  for (int i = 0; i < 17; ++i) {
    const auto reply =
        p.engine.RegisterUmem(p.b.id(), {reinterpret_cast<uint64_t>(p.b.memory), 0, Client::kArena},
                              {p.b.memory, Client::kArena, nullptr, -1, 0, true});
    ASSERT_OK(reply);
    p.b.umem = reply->id;
    rkeys.push_back(p.b.Key(p.b.memory, Client::kArena, 0xf, Media::kFile).rkey);
  }
  p.disk.most = 20;
  for (int i = 0; i < 100; ++i) {
    p.a_qp.Write(p.Dst(), rkeys[static_cast<size_t>(i) % rkeys.size()], p.a.At(p.src, 8));
    p.Run();
  }
  EXPECT_EQ(p.disk.waiting(), 20u);
  p.Read();
  p.Run();
  EXPECT_TRUE(p.Done().empty());
  p.disk.FinishAll();
  RunAll(p.engine);
  const auto done = p.Done();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, WcStatus::kRemoteOperation);
}

// A client that makes and resets queue pairs leaves no flushes behind.
TEST(EngineDiskBounds, WhatAQueuePairWroteBeforeItsResetIsLeftToTheKernel) {
  OnDisk p;
  p.Write();
  p.Run();
  p.b.Modify(p.b_qp, QpState::kReset);
  EXPECT_OK(p.b.Destroy(Op::kDestroyQp, p.b_qp.qpn));
  EXPECT_EQ(p.disk.waiting(), 0u);
}

// A READ does not wait for what arrives after it. The other end may read without a pause, and its
// answers are written into this end's memory.
TEST_P(EngineDisk, TrafficTheOtherWayHoldsNoReadUp) {
  OnDisk p(Options());
  std::byte* const far_sink = p.b.Allocate(64);
  p.Write();
  p.Read();
  p.Run();
  for (int i = 0; i < 10; ++i) {
    p.b_qp.Read(reinterpret_cast<uint64_t>(p.src), p.a.rkey, p.b.At(far_sink, 8), CqeMode::kAlways);
    p.b_qp.Ring();
    RunAll(p.engine);
    ASSERT_EQ(p.b_cq.PollAll().size(), 1u);
  }
  ASSERT_EQ(p.disk.waiting(), 1u);
  p.disk.FinishOne();
  RunAll(p.engine);
  ExpectAllGood(p.Done(), 1);
}

// Software may replace the WQE of a READ that waits. A READ that runs later flushes what has
// arrived since.
TEST(EngineDiskBounds, AReadBehindAWriteThatTookItsPlaceFlushesThatToo) {
  OnDisk p;
  p.Write();
  const uint16_t place = p.a_qp.next;
  p.Read();
  p.Run();
  const uint16_t end = std::exchange(p.a_qp.next, place);
  p.Write(8192);
  ASSERT_EQ(p.a_qp.next, end);
  p.Read();
  p.disk.FinishAll();
  p.Run();
  EXPECT_TRUE(p.Done().empty());
  ASSERT_EQ(p.disk.waiting(), 1u);
  EXPECT_EQ(p.disk.range(0).begin, p.dst + 8192);
  p.disk.FinishAll();
  RunAll(p.engine);
  ExpectAllGood(p.Done(), 1);
}

TEST_P(EngineDisk, ALongReadWaitsBeforeItsFirstPart) {
  OnDisk p(Options());
  std::byte* const sink = p.a.Allocate(60'000);
  p.Write();
  p.a_qp.Read(p.Dst(), p.b.rkey, p.a.At(sink, 60'000), CqeMode::kAlways);
  p.Run();
  EXPECT_EQ(p.disk.waiting(), 1u);
  EXPECT_TRUE(p.Done().empty());
  EXPECT_EQ(sink[0], std::byte{0});
  p.disk.FinishAll();
  RunAll(p.engine);
  ExpectAllGood(p.Done(), 1);
  EXPECT_EQ(sink[0], std::byte{42});
}

// --- over a link

struct LinkedDisk {
  LinkedDisk() : p(On(disk), {}, {}, Media::kFile) {
    p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
    p.a_qp.Read(p.Dst(), p.b->rkey, p.a->At(p.back, 8), CqeMode::kAlways);
    p.a_qp.Write(p.Dst(4096), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
    p.a_qp.Add(p.Dst(8192), p.b->rkey, 1, p.a->At(p.back + 8, 8), CqeMode::kAlways);
    p.a_qp.Ring();
    p.Run();
  }
  SlowDisk disk;
  Linked p;
};

TEST(EngineDiskLink, WhatComesBehindAReadWaitsAndKeepsItsOrder) {
  LinkedDisk l;
  Linked& p = l.p;
  ASSERT_EQ(l.disk.waiting(), 1u);
  EXPECT_LE(p.a_cq.PollAll().size(), 1u);
  EXPECT_EQ(p.dst[4096], std::byte{0});
  EXPECT_EQ(p.Word(p.dst + 8192), 0u);
  EXPECT_TRUE(p.b_engine.RetryPending());
  l.disk.FinishAll();
  p.Run();
  EXPECT_EQ(p.dst[4096], p.src[0]);
  EXPECT_EQ(p.Word(p.dst + 8192), 1u);
  EXPECT_EQ(0, std::memcmp(p.back, p.src, 8));
  EXPECT_EQ(p.a->Counter("link_retransmits"), 0u);
}

// A disk may take longer than the requester waits for an end that says nothing.
TEST(EngineDiskLink, TheRequesterHearsThatItsPeerIsAtWork) {
  LinkedDisk l;
  Linked& p = l.p;
  p.Pass(10'000);
  ExpectAllGood(p.a_cq.PollAll(), 1);
  l.disk.FinishAll();
  p.Run();
  ExpectAllGood(p.a_cq.PollAll(), 3);
}

// The link breaks while requests wait. They come again, each runs once, and its answer takes the
// new link.
TEST(EngineDiskLink, WhatIsSentAgainMeanwhileRunsOnce) {
  LinkedDisk l;
  Linked& p = l.p;
  p.network.Reset(p.ab);
  p.network.Open(p.ab);
  p.Run();
  EXPECT_GE(p.a->Counter("link_retransmits"), 1u);
  EXPECT_EQ(p.Word(p.dst + 8192), 0u);
  l.disk.FinishAll();
  p.Run();
  EXPECT_EQ(p.Word(p.dst + 8192), 1u);
  ExpectAllGood(p.a_cq.PollAll(), 4);
}

TEST(EngineDiskLink, AFailureIsToldAndStopsWhatFollows) {
  LinkedDisk l;
  Linked& p = l.p;
  l.disk.FinishOne(/*ok=*/false);
  p.Run();
  const auto done = p.a_cq.PollAll();
  ASSERT_EQ(done.size(), 4u);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[1].status, WcStatus::kRemoteOperation);
  EXPECT_EQ(done[2].status, WcStatus::kFlushed);
  EXPECT_EQ(p.dst[4096], std::byte{0});
}

// When many READs have flushed at the same time, what waited behind them is served in turns of the
// usual size.
TEST(EngineDiskLink, ATurnServesNoMoreThanItsShareOfWhatWaited) {
  SlowDisk disk;
  Linked p(On(disk), {}, {}, Media::kFile);
  p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 8));
  p.a_qp.Read(p.Dst(), p.b->rkey, p.a->At(p.back, 8));
  p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, Linked::kBytes));
  p.a_qp.Ring();
  p.Run();
  disk.FinishAll();
  p.b_engine.Run(64);
  EXPECT_EQ(0, std::memcmp(p.dst, p.src, 1000));
  EXPECT_NE(0, std::memcmp(p.dst, p.src, Linked::kBytes));
  p.Run();
  EXPECT_EQ(0, std::memcmp(p.dst, p.src, Linked::kBytes));
}

// WRITEs behind a READ are acknowledged when they have run, not by the READ's sign of life.
TEST(EngineDiskLink, WritesBehindAReadWaitForNoOtherFlush) {
  SlowDisk disk;
  Linked p(On(disk), {}, {}, Media::kFile);
  const size_t kWrites = 40;
  std::vector<uint32_t> rkeys;
  for (size_t i = 0; i < 20; ++i) {
    const auto reply = p.b_engine.RegisterUmem(
        p.b->id(), {reinterpret_cast<uint64_t>(p.b->memory), 0, Client::kArena},
        {p.b->memory, Client::kArena, nullptr, -1, 0, true});
    ASSERT_OK(reply);
    p.b->umem = reply->id;
    rkeys.push_back(p.b->Key(p.b->memory, Client::kArena, 0xf, Media::kFile).rkey);
  }
  p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 8));
  p.a_qp.Read(p.Dst(), p.b->rkey, p.a->At(p.back, 8));
  for (size_t i = 0; i < kWrites; ++i)
    p.a_qp.Write(p.Dst(64 * i + 64), rkeys[i % rkeys.size()], p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Run();
  ASSERT_EQ(disk.waiting(), 1u);
  disk.FinishOne();
  p.Run();
  p.Pass(100);
  EXPECT_GT(disk.waiting(), 0u) << "nothing was displaced: the test shows nothing";
  ExpectAllGood(p.a_cq.PollAll(), kWrites);
  for (size_t i = 0; i < kWrites; ++i) EXPECT_EQ(p.dst[64 * i + 64], p.src[0]) << i;
}

TEST(EngineDiskLink, TheResponderMayBeResetMeanwhile) {
  LinkedDisk l;
  Linked& p = l.p;
  p.b->Modify(p.b_qp, QpState::kReset);
  l.disk.FinishAll();
  p.Run();
  EXPECT_EQ(p.dst[4096], std::byte{0});
  EXPECT_FALSE(p.b_engine.RetryPending());
}

}  // namespace
}  // namespace hyperloop::softrnic
