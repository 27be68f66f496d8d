#include "files/resync.h"

#include <cstring>
#include <random>

#include "gtest/gtest.h"
#include "journal/journal.h"
#include "journal/redo.h"
#include "testing/memory_group.h"
#include "testing/test_region.h"

namespace hyperloop {
namespace {

TEST(Resync, FindsExactlyTheDifferingBlocks) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::byte> a(1 + random() % 20000);
    for (auto& b : a) b = static_cast<std::byte>(random());
    auto b = a;
    for (uint64_t n = random() % 6; n > 0; --n) b[random() % b.size()] ^= std::byte{1};
    const auto ranges =
        DifferingRanges(BlockChecksums(a, 512), BlockChecksums(b, 512), 0, a.size(), 512, 2048);
    uint64_t end = 0;
    for (const Range& range : ranges) {
      ASSERT_GE(range.offset, end);
      ASSERT_LE(range.size, 2048u);
      end = range.offset + range.size;
      ASSERT_LE(end, a.size());
      for (uint64_t at = range.offset; at < end; at += 512) {
        const uint64_t n = std::min<uint64_t>(512, end - at);
        ASSERT_NE(0, std::memcmp(&a[at], &b[at], n)) << "an equal block";
      }
      std::memcpy(&b[range.offset], &a[range.offset], range.size);
    }
    ASSERT_TRUE(a == b);
  }
}

// A member with another tail, older executed bytes and an older head is made equal. Stopped after
// any prefix of the writes, its log still scans; stopped before the head, nothing that it had
// acknowledged is lost.
TEST(Resync, AnyPrefixLeavesAReadableLog) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    TestRegion region;
    RamMedia media;
    MemoryGroup group(region.bytes, 2, MemoryGroup::Mode::kRandom, seed);
    std::mt19937_64 random(seed);
    LogState log;
    log.head = ReadHead(region.bytes, region.info).value();
    log.tail = log.head.cursor;
    JournalOptions options;
    options.window = 8;
    auto journal = Journal::Create(&group, region.bytes, region.info, log, &media, options).value();
    ASSERT_TRUE(journal->AppendEpoch(1).ok());
    const uint64_t records = 20 + random() % 100;
    for (uint64_t i = 0; i < records; ++i) {
      const std::string text(1 + random() % 300, static_cast<char>('a' + i % 26));
      const RecordPiece piece{region.info.geometry.data_offset + random() % 60000, text.data(),
                              static_cast<uint32_t>(text.size())};
      ASSERT_TRUE(journal->Append({.pieces = std::span(&piece, 1)}).ok());
    }
    ASSERT_TRUE(journal->Poll().ok());
    const uint64_t acked = journal->acked_seq();
    auto ours = region.bytes;
    const LogState state = Redo(ours, region.info, acked).value();
    auto theirs = group.CrashImage(1, random);
    ASSERT_GE(ScanLog(theirs, region.info)->tail.seq, acked);
    const auto ranges = DifferingRanges(BlockChecksums(ours, 256), BlockChecksums(theirs, 256), 0,
                                        ours.size(), 256);
    for (const Range& range : ResyncOrder(ranges, region.info, state)) {
      std::memcpy(&theirs[range.offset], &ours[range.offset], range.size);
      const auto partial = ScanLog(theirs, region.info, acked);
      ASSERT_TRUE(partial.ok()) << "seed " << seed << ": " << partial.status().ToString();
      ASSERT_GE(partial->tail.seq, acked);
    }
    ASSERT_TRUE(ours == theirs);
    ASSERT_EQ(ScanLog(theirs, region.info)->tail, state.tail);
  }
}

TEST(Resync, TheLockWordIsLeftAlone) {
  const TestRegion region;
  LogState log;
  log.head.cursor.position = 640;
  const std::vector<Range> all = {{0, region.bytes.size()}};
  uint64_t total = 0;
  for (const Range& range : ResyncOrder(all, region.info, log)) {
    EXPECT_FALSE(range.offset <= kLockOffset && kLockOffset < range.offset + range.size);
    total += range.size;
  }
  EXPECT_EQ(total, region.bytes.size() - 8);
}

}  // namespace
}  // namespace hyperloop
