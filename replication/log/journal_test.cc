#include "log/journal.h"

#include <time.h>

#include <cstring>
#include <map>
#include <string>

#include "gtest/gtest.h"
#include "log/redo.h"
#include "support/status_matchers.h"
#include "testing/memory_group.h"
#include "testing/test_region.h"

namespace hyperloop {
namespace {

using Mode = MemoryGroup::Mode;

// A journal over a memory group, with a copy of the applied bytes after each record.
struct Bench {
  explicit Bench(Mode mode, uint64_t seed = 1, uint32_t replicas = 3, uint32_t window = 8,
                 uint64_t journal_size = 16384, uint32_t table_capacity = 16)
      : region(WithSizes(TestRegion(journal_size, 16, table_capacity))),
        group(region.bytes, replicas, mode, seed, window),
        random(seed) {
    shadow.assign(region.bytes.begin() + Applied(), region.bytes.end());
    states[0] = shadow;
    log.head = ReadHead(region.bytes, region.info).value();
    log.tail = log.head.cursor;
    options.window = window;
    options.now = [this] { return clock += std::chrono::milliseconds(1); };
    Reopen();
  }
  // Every size of the table holds its checksum, as if there were files.
  static TestRegion WithSizes(TestRegion region) {
    for (uint32_t slot = 0; slot < region.info.geometry.table_capacity; ++slot) {
      const TableSize size = MakeTableSize(region.info, 0);
      std::memcpy(&region.bytes[region.info.geometry.SizeOffset(slot)], &size, sizeof(size));
    }
    return region;
  }
  void Reopen() {
    journal = Journal::Create(&group, region.bytes, region.info, log, &media, options).value();
  }

  long Applied() const { return static_cast<long>(region.info.geometry.binding_offset); }
  uint64_t DataOffset(uint64_t at) const { return region.info.geometry.data_offset + at; }
  uint64_t SizeOffset(uint32_t slot) const { return region.info.geometry.SizeOffset(slot); }

  uint64_t ShadowSize(uint32_t slot) const {
    uint64_t size;
    std::memcpy(&size, &shadow[SizeOffset(slot) - Applied()], 8);
    return size;
  }

  Result<uint64_t> Write(RecordType type, std::vector<std::pair<uint64_t, std::string>> pieces,
                         uint32_t slot = kNoSlot, uint64_t end = 0) {
    std::vector<RecordPiece> raw;
    for (auto& [to, text] : pieces)
      raw.push_back({to, text.data(), static_cast<uint32_t>(text.size())});
    const bool append = type == RecordType::kAppend;
    const TableSize size = MakeTableSize(region.info, end);
    const auto seq = journal->Append(
        {.type = type, .file_slot = append ? slot : kNoSlot, .file_end = end, .pieces = raw});
    if (!seq.ok()) return seq;
    for (auto& [to, text] : pieces) std::memcpy(&shadow[to - Applied()], text.data(), text.size());
    if (append) std::memcpy(&shadow[SizeOffset(slot) - Applied()], &size, sizeof(size));
    states[*seq] = shadow;
    return seq;
  }
  Result<uint64_t> Epoch(uint64_t epoch) {
    const Configuration configuration = TestConfiguration(epoch);
    const auto seq = journal->AppendEpoch(epoch, configuration);
    if (!seq.ok()) return seq;
    const auto block = MakeConfigurationBlock(region.info, configuration).value();
    std::memcpy(&shadow[region.info.geometry.configuration_offset() - Applied()], &block,
                sizeof(block));
    states[*seq] = shadow;
    return seq;
  }
  Result<uint64_t> Data(uint64_t at, std::string text) {
    return Write(RecordType::kNamespace, {{DataOffset(at), std::move(text)}});
  }
  // Fills the ring of a manual group, and opens the journal as an opening after that does.
  void FillRing() {
    options.space_timeout = std::chrono::milliseconds(20);
    Reopen();
    EXPECT_OK(Epoch(1));
    while (Data(0, std::string(500, 'x')).ok()) {
    }
    group.StepAll();
    EXPECT_OK(journal->WaitDurable(journal->last_seq()));
    log = Redo(region.bytes, region.info).value();
    for (size_t i = 0; i < group.replicas(); ++i) group.image(i) = region.bytes;
    Reopen();
  }
  std::string RandomText(uint64_t most) {
    std::string text(1 + random() % most, ' ');
    for (char& c : text) c = static_cast<char>(random());
    return text;
  }
  // Appends, multi-piece records and whole-size records that overlap each other at random.
  Result<uint64_t> RandomRecord() {
    const auto slots = region.info.geometry.table_capacity;
    const auto slot = static_cast<uint32_t>(random() % slots);
    switch (random() % 8) {
      case 0: {  // a size stated otherwise, possibly smaller
        std::string size(sizeof(TableSize), '\0');
        const TableSize value = MakeTableSize(region.info, random() % 1000);
        std::memcpy(size.data(), &value, sizeof(value));
        return Write(RecordType::kNamespace, {{SizeOffset(slot), size}});
      }
      case 1: {
        std::vector<std::pair<uint64_t, std::string>> pieces;
        for (uint64_t n = 1 + random() % 5; n > 0; --n)
          pieces.push_back({DataOffset(random() % 60000), RandomText(99)});
        return Write(RecordType::kNamespace, pieces);
      }
      case 2:
        return Data(random() % 60000, RandomText(3000));
      default:
        return Write(RecordType::kAppend, {{DataOffset(random() % 60000), RandomText(200)}}, slot,
                     ShadowSize(slot) + 1 + random() % 200);
    }
  }
  // Checks that scan and redo of a crashed node's image give a prefix with everything acknowledged,
  // whatever was executed.
  void CheckImage(std::vector<std::byte> image, uint64_t acked) {
    const auto state = Redo(image, region.info, acked);
    ASSERT_OK(state);
    ASSERT_GE(state->tail.seq, acked);
    const auto expected = std::prev(states.upper_bound(state->tail.seq));
    ASSERT_EQ(0, std::memcmp(&image[Applied()], expected->second.data(), shadow.size()))
        << "at " << state->tail.seq;
    auto again = image;
    ASSERT_OK(Redo(again, region.info));
    ASSERT_TRUE(again == image) << "redo is not idempotent";
    WriteHead(again, region.info, state->tail);
    const auto empty = ScanLog(again, region.info);
    ASSERT_OK(empty);
    ASSERT_EQ(empty->records, 0u);
    ASSERT_EQ(empty->tail, state->tail);
  }

  TestRegion region;
  RamMedia media;
  MemoryGroup group;
  std::mt19937_64 random;
  std::chrono::nanoseconds clock{0};
  JournalOptions options;
  LogState log;
  std::unique_ptr<Journal> journal;
  std::vector<std::byte> shadow;
  std::map<uint64_t, std::vector<std::byte>> states;
};

TEST(Journal, RecordsReachEveryRegionAndAreExecuted) {
  Bench bench(Mode::kImmediate);
  EXPECT_EQ(bench.Epoch(1).value(), 1u);
  for (int i = 0; i < 20; ++i) ASSERT_OK(bench.RandomRecord());
  EXPECT_OK(bench.journal->WaitDurable(bench.journal->last_seq()));
  ASSERT_OK(bench.journal->Drain());
  EXPECT_EQ(bench.journal->executed_seq(), bench.journal->last_seq());
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(bench.group.image(i) == bench.region.bytes);
  EXPECT_EQ(bench.group.conflicts(), 0u);
  EXPECT_GT(bench.media.persists, 20u);
}

TEST(Journal, AnyCrashLeavesAPrefixWithAllAcknowledged) {
  uint64_t pads = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Bench bench(Mode::kRandom, seed, 1 + seed % 4, 1 + seed % 9);
    ASSERT_OK(bench.Epoch(1));
    for (int i = 0; i < 120; ++i) {
      ASSERT_OK(bench.RandomRecord());
      if (bench.random() % 16 == 0) {
        ASSERT_OK(bench.journal->Tick());
      }
      if (bench.random() % 40 == 0) {
        ASSERT_OK(bench.journal->Drain());
      }
      if (bench.random() % 60 == 0) {
        ASSERT_OK(bench.journal->Checkpoint());
      }
      for (uint64_t steps = bench.random() % 4; steps > 0; --steps) bench.group.Step();
      ASSERT_OK(bench.journal->Poll());
      const uint64_t acked = bench.journal->acked_seq();
      for (size_t hop = 0; hop < bench.group.group_size(); ++hop) {
        bench.CheckImage(bench.group.CrashImage(hop, bench.random), acked);
        if (testing::Test::HasFatalFailure())
          FAIL() << "seed " << seed << " hop " << hop << " record " << i;
      }
      bench.CheckImage(bench.region.bytes, acked);  // the primary's own
      if (testing::Test::HasFatalFailure())
        FAIL() << "seed " << seed << " at the primary, record " << i;
    }
    EXPECT_EQ(bench.group.conflicts(), 0u)
        << "ring or head bytes reused before the acknowledgement";
    EXPECT_GT(bench.journal->statistics().checkpoints, 0u);
    pads += bench.journal->statistics().pads;
  }
  EXPECT_GT(pads, 0u);
}

TEST(Journal, WrapsManyTimesAndManyFiles) {
  Bench bench(Mode::kRandom, 5, 2, 8, 32768, 200);  // more files than one record of sizes names
  ASSERT_OK(bench.Epoch(1));
  for (int i = 0; i < 3000; ++i) {
    ASSERT_OK(bench.RandomRecord());
    while (bench.states.size() > 100) bench.states.erase(bench.states.begin());
    if (i % 100 == 0) bench.CheckImage(bench.group.CrashImage(1, bench.random), 0);
    if (testing::Test::HasFatalFailure()) FAIL() << i;
  }
  EXPECT_GT(bench.journal->tail().position / bench.journal->ring_bytes(), 20u);
  ASSERT_OK(bench.journal->Checkpoint());
  EXPECT_EQ(bench.journal->ring_bytes_used(), 0u);
  bench.group.StepAll();
  // With the ring empty the applied bytes alone are the truth, sizes included.
  EXPECT_EQ(0, std::memcmp(&bench.region.bytes[bench.Applied()], bench.shadow.data(),
                           bench.shadow.size()));
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(bench.group.image(i) == bench.region.bytes);
}

TEST(Journal, GoesOnFromAScannedLog) {
  Bench bench(Mode::kImmediate);
  ASSERT_OK(bench.Epoch(1));
  for (int i = 0; i < 10; ++i) ASSERT_OK(bench.RandomRecord());
  ASSERT_OK(bench.journal->Drain());
  bench.log = Redo(bench.region.bytes, bench.region.info).value();
  for (size_t i = 0; i < 3; ++i) bench.group.image(i) = bench.region.bytes;
  EXPECT_EQ(bench.log.tail, bench.journal->tail());
  bench.Reopen();
  EXPECT_THAT(bench.Epoch(1), StatusIs(Code::kInvalidArgument));
  ASSERT_OK(bench.Epoch(4));
  for (int i = 0; i < 200; ++i) ASSERT_OK(bench.RandomRecord());
  for (size_t i = 0; i < 3; ++i) bench.CheckImage(bench.group.image(i), bench.journal->acked_seq());
  EXPECT_EQ(ScanLog(bench.region.bytes, bench.region.info)->tail.epoch, 4u);
}

TEST(Journal, FullRingWaitsThenSaysSo) {
  Bench bench(Mode::kManual, 1, 2, 100000);
  bench.options.space_timeout = std::chrono::milliseconds(20);
  bench.Reopen();
  ASSERT_OK(bench.Epoch(1));
  Status full;
  while (full.ok()) full = bench.Data(0, std::string(500, 'x')).status();
  EXPECT_THAT(full, StatusIs(Code::kNoSpace, testing::HasSubstr("16384")));
  const uint64_t last = bench.journal->last_seq();
  EXPECT_THAT(bench.Data(0, std::string(500, 'y')), StatusIs(Code::kNoSpace));
  // Refused appends left no trace, and the journal works.
  bench.group.StepAll();
  EXPECT_OK(bench.journal->WaitDurable(last));
  bench.group.set_mode(Mode::kImmediate);
  for (int i = 0; i < 100; ++i) ASSERT_OK(bench.Data(0, std::string(500, 'z')));
  bench.CheckImage(bench.group.image(1), bench.journal->acked_seq());
}

// An opening leaves the head where it was found, so the journal begins with the records behind it.
TEST(Journal, GoesOnFromALogThatFillsTheRing) {
  Bench bench(Mode::kManual, 1, 2, 100000);
  bench.FillRing();
  const uint64_t used = bench.log.tail.position - bench.log.head.cursor.position;
  ASSERT_GT(used, bench.region.info.geometry.journal_size / 2);
  bench.group.set_mode(Mode::kImmediate);
  EXPECT_EQ(bench.journal->ring_bytes_used(), used);
  ASSERT_OK(bench.Epoch(2));
  for (int i = 0; i < 5; ++i) ASSERT_OK(bench.Data(0, std::string(500, 'y')));
  EXPECT_LT(bench.journal->ring_bytes_used(), used) << "the head moved";
  bench.CheckImage(bench.group.image(1), bench.journal->acked_seq());
  for (int i = 0; i < 100; ++i) ASSERT_OK(bench.RandomRecord());
  bench.CheckImage(bench.group.image(1), bench.journal->acked_seq());
}

// The recovery writes the first record of its own epoch. The one that waited for room would be of
// an older epoch, and no log can be read beyond such a record.
TEST(Journal, ARecoveryWhileAnEpochWaitsForRoomIsNotOvertaken) {
  Bench bench(Mode::kManual, 1, 2, 100000);
  bench.options.recover = [&](const Status&, uint64_t, std::chrono::nanoseconds) {
    bench.group.Fail({});
    bench.group.set_mode(Mode::kImmediate);
    return Result<Recovered>({&bench.group, bench.log, TestConfiguration(3)});
  };
  bench.FillRing();
  bench.group.Fail(Unavailable("chain gone"));
  const auto seq = bench.journal->AppendEpoch(2, TestConfiguration(2));
  ASSERT_OK(seq);
  ASSERT_OK(bench.journal->WaitDurable(*seq));
  const auto after = bench.Data(0, "y");
  ASSERT_OK(after);
  ASSERT_OK(bench.journal->WaitDurable(*after));
  const auto log = ScanLog(bench.group.image(1), bench.region.info, *after);
  ASSERT_OK(log);
  EXPECT_EQ(log->tail.seq, *after);
  EXPECT_EQ(log->tail.epoch, 3u);
}

// A full ring makes room only when the group acknowledges. A group that stands still again right
// after its recovery must not break the journal for good.
TEST(Journal, ARecoveryWithoutRoomForItsEpochIsTriedAgain) {
  Bench bench(Mode::kManual, 1, 2, 100000);
  int recoveries = 0;
  bench.options.recover = [&](const Status&, uint64_t, std::chrono::nanoseconds) {
    bench.group.Fail({});
    if (++recoveries == 2) bench.group.set_mode(Mode::kImmediate);
    return Result<Recovered>({&bench.group, bench.log, TestConfiguration(3)});
  };
  bench.FillRing();
  bench.group.Fail(Unavailable("chain gone"));
  ASSERT_OK(bench.journal->Recover(std::chrono::minutes(1)));
  EXPECT_EQ(recoveries, 2);
  const auto after = bench.Data(0, "y");
  ASSERT_OK(after);
  ASSERT_OK(bench.journal->WaitDurable(*after));
}

// As when the store is being closed. Asking again would keep a processor busy until the time is up.
TEST(Journal, ARecoveryThatGivesUpIsNotAskedAgain) {
  Bench bench(Mode::kManual, 1, 2, 100000);
  int recoveries = 0;
  bench.options.recover = [&](const Status&, uint64_t, std::chrono::nanoseconds) {
    ++recoveries;
    return Result<Recovered>(recoveries < 3 ? Unavailable("being closed") : Fenced("asked again"));
  };
  bench.Reopen();
  bench.group.Fail(Unavailable("chain gone"));
  EXPECT_THAT(bench.journal->Recover(std::chrono::minutes(1)),
              StatusIs(Code::kUnavailable, "being closed"));
  EXPECT_EQ(recoveries, 1);
}

// A thread that waits for ring space holds the lane's mutex, and must leave the processor to the
// threads that make space.
TEST(Journal, AFullRingIsWaitedForWithoutSpinning) {
  Bench bench(Mode::kManual, 1, 2, 100000);
  bench.options.space_timeout = std::chrono::milliseconds(2000);  // of the bench's clock: looks
  bench.Reopen();
  ASSERT_OK(bench.Epoch(1));
  const auto used = [](clockid_t clock) {
    timespec now;
    clock_gettime(clock, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  };
  const auto wall = used(CLOCK_MONOTONIC), processor = used(CLOCK_THREAD_CPUTIME_ID);
  while (bench.Data(0, std::string(500, 'x')).ok()) {
  }
  EXPECT_LT(used(CLOCK_THREAD_CPUTIME_ID) - processor, (used(CLOCK_MONOTONIC) - wall) / 2);
}

TEST(Journal, SpaceComesWithAcknowledgementsWhileWaiting) {
  Bench bench(Mode::kManual, 1, 2, 100000);
  bench.options.idle = [&] { bench.group.Step(); };
  bench.Reopen();
  ASSERT_OK(bench.Epoch(1));
  for (int i = 0; i < 500; ++i) ASSERT_OK(bench.Data(i, std::string(400, 'x')));
  EXPECT_GT(bench.journal->statistics().space_waits, 0u);
  EXPECT_EQ(bench.group.conflicts(), 0u);
}

TEST(Journal, RingSpaceIsFreedByTheAcknowledgementOfTheHead) {
  Bench bench(Mode::kManual, 1, 2, 100000);
  ASSERT_OK(bench.Epoch(1));
  while (bench.journal->ring_bytes_used() <= bench.journal->ring_bytes() / 4)
    ASSERT_OK(bench.Data(0, "x"));
  const uint64_t used = bench.journal->ring_bytes_used();
  for (int i = 0; i < 3; ++i)
    ASSERT_OK(bench.journal->Tick());  // copies are on their way, not the head
  bench.group.StepAll();
  const uint64_t before = bench.group.submitted();
  ASSERT_OK(bench.journal->Tick());  // everything executed: the head is written
  EXPECT_EQ(bench.group.submitted(), before + 1);
  ASSERT_OK(bench.journal->Tick());
  EXPECT_EQ(bench.journal->ring_bytes_used(), used);
  bench.group.StepAll();
  ASSERT_OK(bench.journal->Tick());
  EXPECT_EQ(bench.journal->ring_bytes_used(), 0u);
}

TEST(Journal, AnIdleGroupBecomesAnExecutedOne) {
  Bench bench(Mode::kImmediate);
  ASSERT_OK(bench.Epoch(1));
  ASSERT_OK(bench.Data(0, "x"));
  ASSERT_OK(bench.journal->Tick());  // appended since the last
  EXPECT_LT(bench.journal->executed_seq(), bench.journal->last_seq());
  ASSERT_OK(bench.journal->Tick());
  ASSERT_OK(bench.journal->Poll());
  EXPECT_EQ(bench.journal->executed_seq(), bench.journal->last_seq());
}

// Tick never waits, because its caller also moves the heartbeat.
TEST(Journal, ATickWaitsForNothing) {
  Bench bench(Mode::kManual, 1, 2, 2);
  const auto at = [&bench](const char* text) {
    return std::string(reinterpret_cast<const char*>(&bench.group.image(1)[bench.DataOffset(0)]),
                       std::strlen(text)) == text;
  };
  ASSERT_OK(bench.Epoch(1));
  bench.group.StepAll();
  for (const bool append_next : {false, true}) {
    SCOPED_TRACE(append_next);
    const std::string text = append_next ? "ABC" : "abc";
    ASSERT_OK(bench.Write(RecordType::kNamespace, {{bench.DataOffset(0), text.substr(0, 1)},
                                                   {bench.DataOffset(1), text.substr(1, 1)},
                                                   {bench.DataOffset(2), text.substr(2, 1)}}));
    for (int i = 0; i < 4; ++i) {
      ASSERT_OK(bench.journal->Tick());
    }
    EXPECT_EQ(bench.group.submitted() - bench.group.acknowledged(), 2u) << "the record, one copy";
    bench.group.StepAll();
    EXPECT_FALSE(at(text.c_str()));
    // The other two go with the next call that may submit.
    if (append_next) {
      ASSERT_OK(bench.Data(30, "x"));
    } else {
      ASSERT_OK(bench.journal->Tick());
    }
    bench.group.StepAll();
    EXPECT_TRUE(at(text.c_str()));
    for (int i = 0; i < 3; ++i) {
      ASSERT_OK(bench.journal->Tick());
      bench.group.StepAll();
    }
    ASSERT_OK(bench.journal->Poll());
    EXPECT_EQ(bench.journal->executed_seq(), bench.journal->last_seq());
  }
  EXPECT_EQ(bench.group.conflicts(), 0u);
}

TEST(Journal, RefusesWhatRecordsMayNotChange) {
  Bench bench(Mode::kImmediate);
  const auto& g = bench.region.info.geometry;
  EXPECT_THAT(bench.Write(RecordType::kNamespace, {}), StatusIs(Code::kInvalidArgument));
  for (const uint64_t to : {uint64_t{0}, kHeadOffsets[0], kLockOffset, kJournalOffset,
                            g.binding_offset - 1, g.region_size, g.region_size - 1, UINT64_MAX}) {
    const RecordPiece piece{to, "ab", 2};
    EXPECT_THAT(bench.journal->Append({.pieces = std::span(&piece, 1)}),
                StatusIs(Code::kInvalidArgument))
        << to;
  }
  EXPECT_THAT(bench.Data(0, std::string(g.max_record, 'x')), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(bench.Write(RecordType::kAppend, {{bench.DataOffset(0), "x"}}, 99),
              StatusIs(Code::kInvalidArgument));
  EXPECT_EQ(bench.journal->last_seq(), 0u);
}

TEST(Journal, AnErrorOfTheGroupIsForGood) {
  Bench bench(Mode::kImmediate);
  ASSERT_OK(bench.Epoch(1));
  bench.group.Fail(Unavailable("chain gone"));
  EXPECT_THAT(bench.Data(0, "x"), StatusIs(Code::kUnavailable));
  bench.group.Fail({});
  EXPECT_THAT(bench.Data(0, "x"), StatusIs(Code::kUnavailable));
  EXPECT_THAT(bench.journal->Drain(), StatusIs(Code::kUnavailable));
  EXPECT_THAT(bench.journal->Checkpoint(), StatusIs(Code::kUnavailable));
}

TEST(Journal, AcknowledgementTimeoutIsReported) {
  Bench bench(Mode::kManual);
  ASSERT_OK(bench.Epoch(1));
  const auto seq = bench.Data(0, "x");
  ASSERT_OK(seq);
  EXPECT_THAT(bench.journal->WaitDurable(*seq), StatusIs(Code::kTimedOut));
}

}  // namespace
}  // namespace hyperloop
