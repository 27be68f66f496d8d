#include "log/log_scan.h"

#include <cstring>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "log/redo.h"
#include "region/crc32c.h"
#include "support/status_matchers.h"
#include "testing/test_region.h"

namespace hyperloop {
namespace {

// Writes records by hand, so that each can break exactly one rule.
struct Writer {
  TestRegion region;
  LogCursor tail;

  Writer() { tail = ReadHead(region.bytes, region.info)->cursor; }

  struct Spec {
    uint64_t seq = 0, epoch = 1;
    uint32_t prev_crc = 0;
    uint64_t acked = 0;
    uint32_t payload = 100;
    char fill = 'a';
  };
  Spec Next() const { return {tail.seq + 1, 1, tail.crc, tail.seq, 100, 'a'}; }
  uint64_t Offset() const {
    return kJournalOffset + tail.position % region.info.geometry.journal_size;
  }
  void Put(const Spec& spec) {
    const uint64_t length = RecordLength(1, spec.payload);
    std::vector<std::byte> record(length);
    RecordHeader h{};
    h.magic = region.info.record_magic;
    h.prev_crc = spec.prev_crc;
    h.type = static_cast<uint8_t>(RecordType::kNamespace);
    h.entry_count = 1;
    h.epoch = spec.epoch;
    h.seq = spec.seq;
    h.acked_seq = spec.acked;
    h.length = static_cast<uint32_t>(length);
    h.file_slot = kNoSlot;
    const RecordEntry entry{region.info.geometry.data_offset, spec.payload, 0};
    std::memcpy(&record[64], &entry, sizeof(entry));
    std::memset(&record[80], spec.fill, spec.payload);
    std::memcpy(record.data(), &h, sizeof(h));
    h.crc = RecordCrc(record.data(), length, region.info.seed);
    std::memcpy(record.data(), &h, sizeof(h));
    std::memcpy(&region.bytes[Offset()], record.data(), length);
    tail = {spec.seq, spec.epoch, tail.position + AlignRecord(length), h.crc};
  }
  void PutNext() { Put(Next()); }
  // A record without content that takes the rest of the ring.
  void PutPad() {
    RecordHeader h{};
    h.magic = region.info.record_magic;
    h.prev_crc = tail.crc;
    h.type = static_cast<uint8_t>(RecordType::kPad);
    h.epoch = 1;
    h.seq = tail.seq + 1;
    h.length = static_cast<uint32_t>(region.info.geometry.journal_end() - Offset());
    h.file_slot = kNoSlot;
    std::vector<std::byte> record(sizeof h);
    std::memcpy(record.data(), &h, sizeof h);
    h.crc = RecordCrc(record.data(), sizeof h, region.info.seed);
    std::memcpy(&region.bytes[Offset()], &h, sizeof h);
    tail = {h.seq, 1, tail.position + h.length, h.crc};
  }
  Result<LogState> Scan(uint64_t known_acked = 0) const {
    return ScanLog(region.bytes, region.info, known_acked);
  }
};

TEST(LogScan, ReadsWhatContinues) {
  Writer w;
  EXPECT_EQ(w.Scan()->tail.seq, 0u);
  for (int i = 0; i < 10; ++i) w.PutNext();
  const auto state = w.Scan();
  ASSERT_OK(state);
  EXPECT_EQ(state->tail, w.tail);
  EXPECT_EQ(state->records, 10u);
  EXPECT_EQ(state->highest_acked, 9u);
}

TEST(LogScan, EachChainRuleAloneEndsTheLog) {
  const auto tail_with = [](auto change) {
    Writer w;
    for (int i = 0; i < 3; ++i) w.PutNext();
    auto spec = w.Next();
    spec.acked = 0;  // nothing says that it was acknowledged
    change(spec);
    w.Put(spec);
    return w.Scan()->tail.seq;
  };
  EXPECT_EQ(tail_with([](auto&) {}), 4u);
  EXPECT_EQ(tail_with([](auto& s) { s.seq = 5; }), 3u);
  EXPECT_EQ(tail_with([](auto& s) { s.seq = 3; }), 3u);
  EXPECT_EQ(tail_with([](auto& s) { s.epoch = 0; }), 3u);
  EXPECT_EQ(tail_with([](auto& s) { s.epoch = 2; }), 4u);
  EXPECT_EQ(tail_with([](auto& s) { s.prev_crc ^= 1; }), 3u);
}

// Record 4 of epoch 2 ends exactly where the unacknowledged record 5 of epoch 1 begins. Magic, CRC
// and seq of that record 5 are all right.
TEST(LogScan, StaleTailOfAnOlderEpochDoesNotPass) {
  Writer w;
  for (int i = 0; i < 3; ++i) w.PutNext();
  const LogCursor cut = w.tail;
  for (int i = 0; i < 4; ++i) {
    auto spec = w.Next();
    spec.acked = 3;
    w.Put(spec);
  }
  EXPECT_EQ(w.Scan()->tail.seq, 7u);
  w.tail = cut;
  auto spec = w.Next();
  spec.epoch = 2;
  spec.fill = 'b';
  w.Put(spec);
  EXPECT_EQ(w.Scan()->tail, w.tail);
  // The same happens within one epoch after a reconnection, where only the previous CRC differs.
  w.tail = cut;
  spec.epoch = 1;
  spec.fill = 'c';
  w.Put(spec);
  EXPECT_EQ(w.Scan()->tail, w.tail);
}

TEST(LogScan, OlderLapDoesNotPass) {
  Writer w;
  const auto put = [&] {
    auto spec = w.Next();
    spec.payload = 170;  // 256 B a record: laps are congruent
    w.Put(spec);
  };
  const uint64_t per_lap = w.region.info.geometry.journal_size / 256;
  for (uint64_t i = 0; i < per_lap; ++i) put();
  ASSERT_EQ(w.tail.position, w.region.info.geometry.journal_size);
  EXPECT_EQ(w.Scan()->tail.seq, per_lap);  // the ring may be full to the brim
  WriteHead(w.region.bytes, w.region.info, w.tail);
  EXPECT_EQ(w.Scan()->records, 0u);
  for (int i = 0; i < 5; ++i) put();
  EXPECT_EQ(w.Scan()->records, 5u);
  EXPECT_EQ(w.Scan()->tail, w.tail);
}

TEST(LogScan, ARecordThatReachesOverTheHeadIsNoEndOfTheLog) {
  Writer w;
  const auto put = [&] {
    auto spec = w.Next();
    spec.payload = 170;  // 256 B a record
    spec.acked = 0;
    w.Put(spec);
  };
  const uint64_t per_lap = w.region.info.geometry.journal_size / 256;
  for (uint64_t i = 0; i < per_lap / 2; ++i) put();
  WriteHead(w.region.bytes, w.region.info, w.tail);
  for (uint64_t i = 0; i < per_lap - 1; ++i) put();
  ASSERT_EQ(w.Scan()->tail, w.tail) << "256 B are left before the head";
  const LogCursor end = w.tail;
  w.PutPad();
  EXPECT_THAT(w.Scan(), StatusIs(Code::kCorruption, testing::HasSubstr("holds impossible values")));
  WriteHead(w.region.bytes, w.region.info, end);
  EXPECT_OK(w.Scan()) << "there is room for it behind this head";
}

TEST(LogScan, TornAtAnyByteGivesThePrefix) {
  Writer w;
  std::vector<LogCursor> ends = {w.tail};
  std::mt19937_64 random(3);
  for (auto& b : std::span(w.region.bytes).subspan(kJournalOffset, 16384))
    b = static_cast<std::byte>(random());
  const auto before = w.region.bytes;
  for (int i = 0; i < 6; ++i) {
    auto spec = w.Next();
    spec.acked = 0;
    spec.payload = 1 + static_cast<uint32_t>(random() % 300);
    w.Put(spec);
    ends.push_back(w.tail);
  }
  const auto whole = w.region.bytes;
  size_t expected = 0;
  for (uint64_t cut = 0; cut <= w.tail.position; ++cut) {
    w.region.bytes = before;
    std::memcpy(&w.region.bytes[kJournalOffset], &whole[kJournalOffset], cut);
    const auto state = w.Scan();
    ASSERT_OK(state);
    // A record is whole once its last byte is there, which comes before the padding to the next.
    ASSERT_LE(state->tail.position, AlignRecord(cut));
    while (expected + 1 < ends.size() && ends[expected + 1].position <= cut) ++expected;
    ASSERT_GE(state->tail.seq, expected) << cut;
    ASSERT_EQ(state->tail, ends[state->tail.seq]);
  }
}

TEST(LogScan, AcknowledgedDamageIsNamedNeverTheEnd) {
  Writer w;
  std::vector<uint64_t> offsets;
  for (int i = 0; i < 10; ++i) {
    offsets.push_back(w.Offset());
    w.PutNext();  // states that all before it is acknowledged
  }
  const auto clean = w.region.bytes;
  for (size_t i = 0; i < 10; ++i) {
    w.region.bytes = clean;
    w.region.bytes[offsets[i] + 90] ^= std::byte{4};
    const auto state = w.Scan();
    if (i == 9) {  // nothing says that the last was acknowledged
      ASSERT_OK(state);
      EXPECT_EQ(state->tail.seq, 9u);
      EXPECT_EQ(w.Scan(9).value().tail.seq, 9u);
      // Another member may know.
      EXPECT_THAT(w.Scan(10), StatusIs(Code::kCorruption));
    } else {
      EXPECT_THAT(state,
                  StatusIs(Code::kCorruption,
                           testing::HasSubstr("record " + std::to_string(i + 1) +
                                              " at region offset " + std::to_string(offsets[i]))))
          << i;
    }
    // Redo refuses too, and touches nothing.
    const auto damaged = w.region.bytes;
    const auto redone = Redo(w.region.bytes, w.region.info);
    EXPECT_EQ(redone.ok(), i == 9);
    if (i != 9) {
      EXPECT_TRUE(w.region.bytes == damaged);
    }
  }
}

// Another member's log must reach every record that a damaged log still shows to be acknowledged.
TEST(LogScan, DamageDoesNotHideWhatWasAcknowledged) {
  Writer w;
  std::vector<uint64_t> offsets;
  for (int i = 0; i < 10; ++i) {
    offsets.push_back(w.Offset());
    w.PutNext();  // states that all before it is acknowledged
  }
  EXPECT_EQ(HighestAcked(w.region.bytes, w.region.info), 9u);
  const auto clean = w.region.bytes;
  for (size_t i = 0; i < 10; ++i) {
    w.region.bytes = clean;
    w.region.bytes[offsets[i] + 90] ^= std::byte{4};
    // Only record 10 states that 9 was acknowledged.
    EXPECT_EQ(HighestAcked(w.region.bytes, w.region.info), i == 9 ? 8u : 9u) << i;
  }
  w.region.bytes = clean;
  WriteHead(w.region.bytes, w.region.info, w.tail);  // executed, so acknowledged
  EXPECT_EQ(HighestAcked(w.region.bytes, w.region.info), 10u);
  for (const uint64_t offset : kHeadOffsets) w.region.bytes[offset] ^= std::byte{1};
  EXPECT_THAT(w.Scan(), StatusIs(Code::kCorruption));
  EXPECT_EQ(HighestAcked(w.region.bytes, w.region.info), 9u) << "the ring speaks without a head";
  EXPECT_EQ(HighestAcked(std::span(w.region.bytes).first(kJournalOffset + 5), w.region.info), 0u);
}

TEST(LogScan, RandomDamageNeverGivesWrongRecords) {
  Writer w;
  std::vector<LogCursor> ends = {w.tail};
  for (int i = 0; i < 40; ++i) {
    w.PutNext();
    ends.push_back(w.tail);
  }
  const auto clean = w.region.bytes;
  std::mt19937_64 random(7);
  for (int round = 0; round < 3000; ++round) {
    w.region.bytes = clean;
    for (uint64_t n = 1 + random() % 5; n > 0; --n) {
      const uint64_t end = kJournalOffset + w.tail.position;
      w.region.bytes[4096 + random() % (end - 4096)] = static_cast<std::byte>(random());
    }
    const auto state = w.Scan();
    if (state.ok()) {
      ASSERT_EQ(state->tail, ends[state->tail.seq]);
      ASSERT_GE(state->tail.seq, 39u) << "acknowledged records vanished silently";
    } else {
      ASSERT_THAT(state, StatusIs(Code::kCorruption));
    }
  }
  for (auto& b : std::span(w.region.bytes).subspan(kJournalOffset))
    b = static_cast<std::byte>(random());
  EXPECT_EQ(w.Scan()->records, 0u);
  EXPECT_THAT(ScanLog(std::span(w.region.bytes).first(kJournalOffset + 5), w.region.info),
              StatusIs(Code::kCorruption));
}

}  // namespace
}  // namespace hyperloop
