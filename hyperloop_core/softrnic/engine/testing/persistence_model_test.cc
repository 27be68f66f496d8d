// Tests what a power failure leaves. Bytes that arrived by a queue pair are durable after a READ on
// that queue pair, and a CPU's stores after Persist. Of other stores any part may be left, line by
// line.
#include "softrnic/engine/testing/persistence_model.h"

#include <set>

#include "softrnic/engine/testing/adversarial_schedule.h"
#include "softrnic/engine/testing/engine_test_util.h"

namespace hyperloop::softrnic {
namespace {

using rnic::WcStatus;

// A pair of hosts, of which a writes to b. The model watches b's target and a's source.
struct PowerPair {
  explicit PowerPair(EngineOptions options = {}) : p(With(options, &model)) {
    model.Watch({p.dst, 4096});
    model.Watch({p.src, 4096});
  }
  static EngineOptions With(EngineOptions options, PersistenceModel* model) {
    options.test.watch = model;
    return options;
  }
  uint64_t To(size_t offset) const { return p.Remote(p.dst + offset); }
  void Write(TestQp& qp, size_t offset, size_t from, size_t n) {
    qp.Write(To(offset), p.b.rkey, p.a.At(p.src + from, n));
  }
  void Read(TestQp& qp, size_t n) {
    const Sge sge = p.a.At(p.src + 4032, n);
    qp.Put([&](void* w) {
      return rnic::EncodeRead(w, qp.Control(), To(0), p.b.rkey, std::span(&sge, n == 0 ? 0 : 1));
    });
  }
  void Run(const TestQp& qp) {
    qp.Ring();
    p.Run();
    EXPECT_TRUE(p.a_cq.PollAll().empty()) << "an error";
  }
  // Another queue pair of the same two hosts.
  TestQp Second() {
    TestQp here = p.a.Qp(p.a_cq, p.a_recv), there = p.b.Qp(p.b_cq, p.b_recv);
    p.a.Connect(here, there);
    p.b.Connect(there, here);
    return here;
  }
  bool Same(size_t offset, size_t n) const {
    return std::memcmp(model.Durable(p.dst).data() + offset, p.dst + offset, n) == 0;
  }
  uint64_t DurableWord(size_t offset) const {
    uint64_t word;
    std::memcpy(&word, model.Durable(p.dst).data() + offset, sizeof(word));
    return word;
  }
  // The values of the word at `offset` that power failures leave.
  std::set<uint64_t> Outcomes(size_t offset) const {
    std::set<uint64_t> words;
    std::mt19937_64 random(1);
    for (int i = 0; i < 200; ++i) {
      uint64_t word;
      std::memcpy(&word, model.PowerFailure(p.dst, random).data() + offset, sizeof(word));
      words.insert(word);
    }
    return words;
  }
  void StoreWord(std::byte* at, uint64_t word) { std::memcpy(at, &word, sizeof(word)); }

  PersistenceModel model;
  Pair p;
};

TEST(PersistenceModel, WhateverArrivesIsVisibleAtOnceAndDurableBehindARead) {
  PowerPair t;
  Pair& p = t.p;
  const std::function<void()> arrivals[] = {
      [&] { t.Write(p.a_qp, 0, 0, 100); },
      [&] {
        p.b_qp.Receive(p.b.At(p.dst + 200, 64));
        p.a_qp.Send(p.a.At(p.src, 64));
      },
      [&] {  // scattered
        const Sge to[] = {p.b.At(p.dst + 300, 3), p.b.At(p.dst + 1000, 40)};
        p.b_qp.Receive(to);
        p.a_qp.Send(p.a.At(p.src + 64, 43));
      },
      [&] {
        p.b_qp.Receive(p.b.At(p.dst, 8));
        p.a_qp.WriteImm(t.To(2000), p.b.rkey, p.a.At(p.src, 500), 7);
      },
      [&] { p.a_qp.Cas(t.To(3000), p.b.rkey, 0, 5, p.a.At(p.src + 4032, 8)); },
      [&] { p.a_qp.Add(t.To(3072), p.b.rkey, 9, p.a.At(p.src + 4032, 8)); },
  };
  for (const auto& arrival : arrivals) {
    const std::vector<std::byte> before(p.dst, p.dst + 4096);
    arrival();
    t.Run(p.a_qp);
    EXPECT_NE(0, std::memcmp(before.data(), p.dst, 4096)) << "visible at once";
    EXPECT_EQ(before, t.model.Durable(p.dst));
    EXPECT_GT(t.model.UnflushedLines(p.dst), 0u);
    t.Read(p.a_qp, 0);
    t.Run(p.a_qp);
    EXPECT_EQ(before, t.model.Durable(p.dst)) << "a READ of nothing flushes nothing";
    t.Read(p.a_qp, 1);
    t.Run(p.a_qp);
    EXPECT_TRUE(t.Same(0, 4096));
    EXPECT_EQ(t.model.UnflushedLines(p.dst), 0u);
  }
}

TEST(PersistenceModel, AReadOfNothingFlushesWhereTheDeviceIsSaidToDoSo) {
  PowerPair t({.test = {.zero_byte_read_flushes = true}});
  t.Write(t.p.a_qp, 0, 0, 100);
  t.Read(t.p.a_qp, 0);
  t.Run(t.p.a_qp);
  EXPECT_TRUE(t.Same(0, 100));
}

TEST(PersistenceModel, AReadCoversOnlyWhatCameBeforeIt) {
  PowerPair t;
  t.Write(t.p.a_qp, 0, 0, 64);
  t.Read(t.p.a_qp, 1);
  t.Write(t.p.a_qp, 64, 64, 64);
  t.Run(t.p.a_qp);
  EXPECT_TRUE(t.Same(0, 64));
  EXPECT_EQ(t.model.UnflushedLines(t.p.dst), 1u);
}

TEST(PersistenceModel, AReadSaysNothingOfAnotherQueuePairsBytes) {
  PowerPair t;
  TestQp other = t.Second();
  TestQp loopback = t.p.b.Qp(t.p.b_cq, t.p.b_recv);
  t.p.b.Connect(loopback, loopback);
  t.Write(t.p.a_qp, 0, 0, 64);
  loopback.Write(t.To(1024), t.p.b.rkey, t.p.b.At(t.p.dst, 64));
  t.p.a_qp.Ring();
  t.Run(loopback);
  t.Read(other, 8);
  t.Run(other);
  EXPECT_FALSE(t.Same(0, 64));
  t.Read(t.p.a_qp, 8);
  t.Run(t.p.a_qp);
  EXPECT_TRUE(t.Same(0, 64));
  EXPECT_FALSE(t.Same(1024, 64)) << "that came by the loopback queue pair";
  loopback.Read(t.To(0), t.p.b.rkey, t.p.b.At(t.p.dst + 4032, 1));
  t.Run(loopback);
  EXPECT_TRUE(t.Same(1024, 64));
}

// An answer arrives at the requester by its queue pair, and counts like any bytes that arrive.
TEST(PersistenceModel, AnAnswerIsDurableBehindAReadInTheOtherDirection) {
  for (const bool deferred : {false, true}) {
    PowerPair t(Delivering(deferred));
    t.StoreWord(t.p.dst, 77);
    t.p.a_qp.Read(t.To(0), t.p.b.rkey, t.p.a.At(t.p.src, 8));
    t.Run(t.p.a_qp);
    EXPECT_EQ(77u, *reinterpret_cast<uint64_t*>(t.p.src));
    EXPECT_EQ(t.model.UnflushedLines(t.p.src), 1u);
    t.p.b_qp.Read(t.p.Remote(t.p.src), t.p.a.rkey, t.p.b.At(t.p.dst + 64, 1));
    t.Run(t.p.b_qp);
    EXPECT_EQ(t.model.UnflushedLines(t.p.src), 0u);
  }
}

// With deferred delivery a READ counts when it is served, not when it is posted or answered.
TEST(PersistenceModel, AtEveryStepAReadThatWasAnsweredHasFlushed) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    PowerPair t({.test = {.steps = RandomSteps,
                          .fetch = EngineTestHooks::Fetch::kRandom,
                          .defer_delivery = true,
                          .retransmit = true,
                          .seed = seed}});
    Pair& p = t.p;
    for (size_t i = 0; i < 8; ++i) {
      t.Write(p.a_qp, 256 * i, 200 * i, 150);
      p.a_qp.Read(t.To(0), p.b.rkey, p.a.At(p.src + 4032, 1), CqeMode::kAlways);
    }
    p.a_qp.Ring();
    size_t answered = 0;
    while (p.engine.Step()) {
      answered += p.a_cq.PollAll().size();
      for (size_t i = 0; i < answered; ++i) ASSERT_TRUE(t.Same(256 * i, 150)) << seed;
    }
    EXPECT_EQ(answered, 8u);
  }
}

TEST(PersistenceModel, APowerFailureDecidesEachUnflushedLine) {
  PowerPair t;
  t.Write(t.p.a_qp, 0, 0, 512);
  t.Read(t.p.a_qp, 1);
  t.Write(t.p.a_qp, 0, 1027, 1024);  // sixteen lines, eight of them over what is durable
  t.Run(t.p.a_qp);
  const std::vector<std::byte> durable = t.model.Durable(t.p.dst);
  std::mt19937_64 random(3);
  std::array<int, 16> kept{};
  for (int i = 0; i < 100; ++i) {
    const std::vector<std::byte> left = t.model.PowerFailure(t.p.dst, random);
    for (size_t line = 0; line < 64; ++line) {
      const bool is_new = std::memcmp(&left[64 * line], t.p.dst + 64 * line, 64) == 0;
      if (line < 16) kept[line] += is_new;
      ASSERT_TRUE(is_new || std::memcmp(&left[64 * line], &durable[64 * line], 64) == 0);
    }
  }
  for (const int count : kept) {
    EXPECT_GT(count, 20);
    EXPECT_LT(count, 80);
  }
  EXPECT_EQ(durable, t.model.Durable(t.p.dst)) << "looking changes nothing";
}

TEST(PersistenceModel, OfSeveralStoresToALineAnyPrefixMayBeLeft) {
  PowerPair t;
  t.StoreWord(t.p.src, 1), t.StoreWord(t.p.src + 8, 2), t.StoreWord(t.p.src + 16, 3);
  t.Write(t.p.a_qp, 0, 0, 8);
  t.Write(t.p.a_qp, 0, 8, 8);
  t.Run(t.p.a_qp);
  EXPECT_EQ(t.Outcomes(0), (std::set<uint64_t>{0, 1, 2}));
  t.Read(t.p.a_qp, 1);
  t.Write(t.p.a_qp, 0, 16, 8);
  t.Run(t.p.a_qp);
  EXPECT_EQ(t.Outcomes(0), (std::set<uint64_t>{2, 3}));
}

TEST(PersistenceModel, ANewerStoreIsNeverUndoneByAnOlderOnesFlush) {
  PowerPair t;
  TestQp other = t.Second();
  t.StoreWord(t.p.src, 1), t.StoreWord(t.p.src + 8, 2);
  t.Write(t.p.a_qp, 0, 0, 8);
  t.Run(t.p.a_qp);
  t.Write(other, 0, 8, 8);
  t.Run(other);
  EXPECT_EQ(t.Outcomes(0), (std::set<uint64_t>{0, 1, 2}));
  {
    PowerPair older;
    TestQp second = older.Second();
    older.StoreWord(older.p.src, 1), older.StoreWord(older.p.src + 8, 2);
    older.Write(older.p.a_qp, 0, 0, 8);
    older.Run(older.p.a_qp);
    older.Write(second, 0, 8, 8);
    older.Run(second);
    older.Read(older.p.a_qp, 1);  // flushes the older store alone; at least that is left
    older.Run(older.p.a_qp);
    EXPECT_EQ(older.Outcomes(0), (std::set<uint64_t>{1, 2}));
  }
  t.Read(other, 1);  // flushes the newer store
  t.Run(other);
  EXPECT_EQ(t.Outcomes(0), (std::set<uint64_t>{2}));
  t.Read(t.p.a_qp, 1);
  t.Run(t.p.a_qp);
  EXPECT_EQ(t.Outcomes(0), (std::set<uint64_t>{2}));
}

TEST(PersistenceModel, ACpusStoreIsDurableBehindPersistAndNothingElse) {
  PowerPair t;
  t.StoreWord(t.p.dst, 5);
  t.StoreWord(t.p.src, 9);
  t.Write(t.p.a_qp, 8, 0, 8);  // into the same line
  t.Read(t.p.a_qp, 1);
  t.Run(t.p.a_qp);
  EXPECT_EQ(t.DurableWord(8), 9u);
  EXPECT_EQ(t.Outcomes(0), (std::set<uint64_t>{0, 5})) << "a READ does not cover it";
  t.model.Persist(t.p.dst, 4);
  EXPECT_EQ(t.Outcomes(0), (std::set<uint64_t>{5}));
  t.StoreWord(t.p.dst + 16, ~0ull);
  t.model.Persist(t.p.dst + 16, 4);  // only these bytes
  EXPECT_EQ(t.Outcomes(16), (std::set<uint64_t>{0xffffffff, ~0ull}));
  // The CPU stores over bytes that a queue pair left pending, and its stores are newer.
  t.Write(t.p.a_qp, 64, 0, 8);
  t.Run(t.p.a_qp);
  t.StoreWord(t.p.dst + 64, 6);
  EXPECT_EQ(t.Outcomes(64), (std::set<uint64_t>{0, 9, 6}));
  t.model.Persist(t.p.dst + 64, 8);
  t.Read(t.p.a_qp, 1);
  t.Run(t.p.a_qp);
  EXPECT_EQ(t.Outcomes(64), (std::set<uint64_t>{6}));
}

TEST(PersistenceModel, NobodyFlushesWhatADestroyedQueuePairLeft) {
  PowerPair t;
  t.Write(t.p.a_qp, 0, 0, 64);
  t.Run(t.p.a_qp);
  t.p.b.Modify(t.p.b_qp, QpState::kReset);
  t.p.a.Modify(t.p.a_qp, QpState::kReset);
  t.p.b.Modify(t.p.b_qp, QpState::kInit, 0xf);
  t.p.a.Modify(t.p.a_qp, QpState::kInit, 0xf);
  t.p.a.Connect(t.p.a_qp, t.p.b_qp);
  t.p.b.Connect(t.p.b_qp, t.p.a_qp);
  t.p.a_qp.next = 0;
  t.Write(t.p.a_qp, 40, 0, 100);
  t.Read(t.p.a_qp, 1);
  t.Run(t.p.a_qp);
  EXPECT_EQ(t.model.UnflushedLines(t.p.dst), 1u) << "the first 40 bytes";
  t.model.Persist(t.p.dst, 64);
  EXPECT_EQ(t.model.UnflushedLines(t.p.dst), 0u);
}

TEST(PersistenceModel, LongWritesArriveInPartsAndAreFlushedWhole) {
  constexpr size_t kLong = 300 << 10;
  PersistenceModel model;
  Pair p({.test = {.watch = &model}});
  std::byte* const from = p.a.Allocate(kLong);
  std::byte* const to = p.b.Allocate(kLong);
  model.Watch({to, kLong});
  std::memset(from, 7, kLong);
  p.a_qp.Write(p.Remote(to), p.b.rkey, p.a.At(from, kLong));
  p.a_qp.Read(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, 1));
  p.a_qp.Ring();
  p.engine.Run(3);
  EXPECT_EQ(model.Durable(to)[0], std::byte{0});
  EXPECT_EQ(to[0], std::byte{7});
  EXPECT_EQ(to[kLong - 1], std::byte{0}) << "under way";
  p.Run();
  EXPECT_EQ(model.UnflushedLines(to), 0u);
  EXPECT_EQ(model.Durable(to)[kLong - 1], std::byte{7});
  model.Unwatch({to, kLong});
  p.a_qp.Write(p.Remote(to), p.b.rkey, p.a.At(from, 64));
  p.a_qp.Read(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, 1));
  p.a_qp.Ring();
  p.Run();
}

}  // namespace
}  // namespace hyperloop::softrnic
