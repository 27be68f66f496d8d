// Tests which file leaves the region next, on random tables.
#include "primary/leaving.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "log/file_table.h"

namespace hyperloop {
namespace {

constexpr uint64_t kMiB = 1 << 20;

struct Situation {
  DataAreaUse use;
  std::vector<FileInfo> files;
  std::set<FileId> finished, refused;
};

Situation AnySituation(std::mt19937_64& random) {
  Situation s;
  s.use.size = (1 + random() % 64) * kMiB;
  s.use.reserved = random() % (s.use.size + 1);
  for (uint32_t slot = 0; slot < random() % 12; ++slot) {
    FileInfo file;
    file.id = MakeFileId(slot, 1 + random() % 1000);
    file.name = std::to_string(slot) + (random() % 4 == 0 ? ".sst" : ".log");
    file.lane = random() % 3 == 0 ? Lane::kBulk : Lane::kLog;
    file.size = random() % 4 == 0 ? 0 : random() % (8 * kMiB);
    if (file.lane == Lane::kLog) s.use.used += (file.size + kMiB - 1) / kMiB * kMiB;
    if (random() % 2 == 0) s.finished.insert(file.id);
    if (random() % 4 == 0) s.refused.insert(file.id);
    s.files.push_back(file);
  }
  s.finished.insert(MakeFileId(99, 1));  // one that was removed meanwhile
  return s;
}

TEST(Leaving, OnlyAFinishedFileWithBytesLeavesACrowdedRegionAndTheOldestFirst) {
  std::mt19937_64 random(1);
  int left = 0, stayed = 0;
  for (int i = 0; i < 20000; ++i) {
    const Situation s = AnySituation(random);
    const auto next = NextToLeave(s.use, s.files, s.finished, s.refused);
    const auto may = [&](const FileInfo& file) {
      return file.lane == Lane::kLog && file.size != 0 && s.finished.contains(file.id) &&
             !s.refused.contains(file.id);
    };
    const bool crowded = s.use.used > (s.use.size - s.use.reserved) / 2;
    EXPECT_EQ(IsCrowded(s.use), crowded);
    (next.has_value() ? left : stayed) += 1;
    if (!next.has_value()) {
      for (const FileInfo& file : s.files) {
        ASSERT_FALSE(crowded && may(file)) << file.name;
      }
      continue;
    }
    ASSERT_TRUE(crowded);
    ASSERT_TRUE(may(*next)) << next->name;
    for (const FileInfo& file : s.files) {
      ASSERT_TRUE(!may(file) || next->id >> 20 <= file.id >> 20) << "an older one stays";
    }
  }
  EXPECT_GT(left, 1000);
  EXPECT_GT(stayed, 1000);
}

TEST(Leaving, NothingLeavesWhileHalfIsFree) {
  const std::vector<FileInfo> files{{MakeFileId(1, 5), "4.log", Lane::kLog, 14 * kMiB, 0}};
  const std::set<FileId> finished{files[0].id};
  EXPECT_FALSE(NextToLeave({32 * kMiB, 4 * kMiB, 14 * kMiB}, files, finished, {}).has_value());
  EXPECT_TRUE(NextToLeave({32 * kMiB, 4 * kMiB, 15 * kMiB}, files, finished, {}).has_value());
}

using Clock = LeavingRefusals::Clock;

// Two of them take turns, and each try reads them as a whole.
TEST(Leaving, AFileThatIsItselfTheReasonIsTriedEverMoreRarelyAndToldOnce) {
  LeavingRefusals refusals;
  const std::map<FileId, Status> why{{1, Corruption("1 differs")}, {2, Corruption("2 differs")}};
  std::map<FileId, int> tries, told;
  const Clock::time_point begin{std::chrono::hours(1)};
  for (auto now = begin; now < begin + std::chrono::hours(1); now += std::chrono::seconds(1)) {
    for (const auto& [file, status] : why) {
      if (refusals.Waiting(now).contains(file)) continue;
      ++tries[file];
      refusals.Note(file, status, now);
      told[file] += refusals.IsNews(file, status) ? 1 : 0;
    }
  }
  for (const auto& [file, status] : why) {
    EXPECT_EQ(tries[file], 6 + 59) << "after 1, 2, 4 to 32 s, and then each minute";
    EXPECT_EQ(told[file], 1);
  }
  EXPECT_TRUE(refusals.IsNews(1, Corruption("1 cannot be read")));
  EXPECT_EQ(refusals.Waiting(begin), (std::set<FileId>{1, 2}));
  refusals.Keep({2});
  EXPECT_EQ(refusals.Waiting(begin), std::set<FileId>{2});
}

TEST(Leaving, WhatTheGroupCausesIsTriedAgainInTurnsAndToldUntilAFileLeaves) {
  LeavingRefusals refusals;
  const Clock::time_point now{std::chrono::hours(1)};
  for (int i = 0; i < 100; ++i) {
    const Status why = Unavailable("nothing taken for " + std::to_string(i) + " ms");
    for (const FileId file : {FileId{1}, FileId{2}}) {
      refusals.Note(file, why, now);
      EXPECT_EQ(refusals.IsNews(file, why), i == 0 && file == 1);
    }
    EXPECT_EQ(refusals.Waiting(now + std::chrono::hours(1)), (std::set<FileId>{1, 2}));
    refusals.TryGroupAgain();
    EXPECT_TRUE(refusals.Waiting(now).empty());
  }
  refusals.Note(1, Unavailable("nothing taken"), now);
  refusals.NoteLeft(2);
  EXPECT_TRUE(refusals.Waiting(now).empty());
  EXPECT_TRUE(refusals.IsNews(1, Unavailable("nothing taken")));
}

}  // namespace
}  // namespace hyperloop
