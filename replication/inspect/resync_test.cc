#include "inspect/resync.h"

#include <cstring>
#include <map>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "log/journal.h"
#include "log/redo.h"
#include "support/status_matchers.h"
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

// A member that is behind is made equal. If that stops after any prefix of the writes, redo of its
// log gives a state that the group was in, with everything acknowledged, so it could still be
// chosen.
TEST(Resync, AnyPrefixLeavesAUsableMember) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    TestRegion region;
    RamMedia media;
    MemoryGroup group(region.bytes, 2, MemoryGroup::Mode::kRandom, seed, 64);
    std::mt19937_64 random(seed);
    LogState log;
    log.head = ReadHead(region.bytes, region.info).value();
    log.tail = log.head.cursor;
    auto journal = Journal::Create(&group, region.bytes, region.info, log, &media, {}).value();
    ASSERT_OK(journal->AppendEpoch(1, TestConfiguration(1)));
    const uint64_t base = region.info.geometry.data_offset;
    std::vector<std::byte> shadow(16384);
    std::map<uint64_t, std::vector<std::byte>> states = {{0, shadow}};
    for (uint64_t records = 20 + random() % 150; records > 0; --records) {
      const std::string text(1 + random() % 300, static_cast<char>(random()));
      const uint64_t at = random() % 16000;
      const RecordPiece piece{base + at, text.data(), static_cast<uint32_t>(text.size())};
      const auto seq = journal->Append({.pieces = std::span(&piece, 1)});
      ASSERT_OK(seq);
      std::memcpy(&shadow[at], text.data(), text.size());
      states[*seq] = shadow;
    }
    ASSERT_OK(journal->Poll());
    const uint64_t acked = journal->acked_seq();
    auto ours = region.bytes;
    const LogState state = Redo(ours, region.info, acked).value();
    WriteHead(ours, region.info, state.tail);
    auto theirs = group.CrashImage(1, random);
    const auto ranges = DifferingRanges(BlockChecksums(ours, 256), BlockChecksums(theirs, 256), 0,
                                        ours.size(), 256, 256);
    for (const Range& range : ResyncOrder(ranges, region.info, state)) {
      std::memcpy(&theirs[range.offset], &ours[range.offset], range.size);
      auto partial = theirs;
      const auto redone = Redo(partial, region.info, acked);
      ASSERT_OK(redone) << "seed " << seed << ": " << redone.status().ToString();
      const auto& expected = std::prev(states.upper_bound(redone->tail.seq))->second;
      ASSERT_EQ(0, std::memcmp(&partial[base], expected.data(), expected.size()))
          << "seed " << seed << ", range at " << range.offset << ", log to " << redone->tail.seq;
    }
    ASSERT_TRUE(ours == theirs);
  }
}

TEST(Resync, OnlyTheCountedBytesOfExtentsAreInUse) {
  const TestRegion region;
  const RegionGeometry& g = region.info.geometry;
  std::vector<MapEntry> map(g.extent_count);
  const auto text = [&] {
    std::string out;
    for (const Range& range : RangesInUse(g, map))
      out += std::to_string(range.offset) + "+" + std::to_string(range.size) + " ";
    return out;
  };
  const std::string fixed = "0+" + std::to_string(g.data_offset) + " ";
  EXPECT_EQ(text(), fixed);
  map[1] = {1, 0, g.extent_size, 0};
  map[2] = {1, 1, 7, 0};
  EXPECT_EQ(text(), fixed + std::to_string(g.ExtentOffset(1)) + "+" +
                        std::to_string(g.extent_size + 7) + " ");
  map[3] = {2, 0, 1, 0};  // behind an extent that is not full
  EXPECT_EQ(text(), fixed + std::to_string(g.ExtentOffset(1)) + "+" +
                        std::to_string(g.extent_size + 7) + " " +
                        std::to_string(g.ExtentOffset(3)) + "+1 ");
  map[0] = {3, 0, g.extent_size, 0};
  map[1] = map[2] = map[3] = {};
  EXPECT_EQ(text(), "0+" + std::to_string(g.data_offset + g.extent_size) + " ");
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
