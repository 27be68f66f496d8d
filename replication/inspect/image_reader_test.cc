// A region is copied while its owner writes. The copy must hold a consistent prefix of the log.
#include "inspect/image_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "inspect/member_check.h"
#include "log/redo.h"
#include "support/status_matchers.h"
#include "testing/busy_primary_fixture.h"
#include "testing/test_region.h"

namespace hyperloop {
namespace {

// The files in a copy hold what their names say, and everything that was acknowledged before.
void ExpectPrefix(std::span<std::byte> image, const RegionInfo& info,
                  std::pair<uint64_t, uint64_t> acknowledged) {
  const auto [newest, size] = acknowledged;
  ASSERT_OK(Redo(image, info));
  const MemberCheck check = CheckMember(image, info);
  for (const std::string& what : check.Damage(info)) ADD_FAILURE() << what;
  uint64_t last = 0;
  for (const FileInfo& file : check.table.List()) {
    const uint64_t number = std::stoull(file.name.substr(1));
    last = std::max(last, number);
    if (number == newest) {
      EXPECT_GE(file.size, size) << "acknowledged bytes are missing";
    }
    std::string held(file.size, '\0');
    check.table.ReadBytes(image, info, SlotOf(file.id), 0, held);
    EXPECT_TRUE(held == BusyPrimary::Bytes(number, 0, file.size)) << file.name;
  }
  EXPECT_GE(last, newest);
}

TEST(ImageReaderTest, CopiesAConsistentPrefixWhileTheOwnerWrites) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    BusyPrimary primary(seed);
    // The more is written between two reads, the more often the ring is overwritten meanwhile.
    const uint64_t percent = seed % 70;
    const auto fetch = [&](uint64_t offset, std::span<std::byte> out) -> Status {
      while (!out.empty()) {
        while (primary.Luck(percent)) primary.Write();
        const size_t piece = std::min<size_t>(out.size(), 2048);
        const auto bytes = primary.member().subspan(offset, piece);
        std::copy(bytes.begin(), bytes.end(), out.begin());
        out = out.subspan(piece);
        offset += piece;
      }
      return {};
    };
    const auto acknowledged = primary.Acknowledge();
    const Result<RegionImage> image = ReadImage(fetch, primary.member().size(), true);
    if (percent > 20 && image.status().code() == Code::kBusy) continue;
    ASSERT_OK(image);
    ExpectPrefix(image->bytes(), primary.info(), acknowledged);
  }
}

// The marks that are read before and after each copy, one after the other; the last one stays.
Status ReadWith(std::vector<NodeMark> marks, size_t* read = nullptr) {
  TestRegion region;
  size_t next = 0;
  const auto fetch = [&](uint64_t offset, std::span<std::byte> out) -> Status {
    std::copy_n(region.bytes.begin() + static_cast<std::ptrdiff_t>(offset), out.size(),
                out.begin());
    return {};
  };
  const auto mark = [&] { return marks[std::min(next++, marks.size() - 1)]; };
  const Status status = ReadUntakenImage(fetch, mark, region.bytes.size()).status();
  if (read != nullptr) *read = next / 2;
  return status;
}

TEST(ReadUntakenImageTest, ACopyIsRepeatedIfThePromisesChangedMeanwhile) {
  size_t copies = 0;
  EXPECT_OK(ReadWith({{4, 4, 1}, {4, 4, 2}}, &copies));
  EXPECT_EQ(copies, 1u) << "a primary that serves disturbs nothing";
  EXPECT_OK(ReadWith({{4, 4, 1}, {5, 4, 1}, {5, 4, 1}, {5, 5, 1}, {5, 5, 2}}, &copies));
  EXPECT_EQ(copies, 3u);
}

TEST(ReadUntakenImageTest, ATakingThatWasCutShortHoldsUpNobody) {
  EXPECT_OK(ReadWith({{5, 4, 7}}));
}

TEST(ReadUntakenImageTest, ATakingThatGoesOnIsSaidSo) {
  std::vector<NodeMark> marks;
  for (uint64_t beat = 0; beat < 100; ++beat) marks.push_back({5, 4, beat});
  EXPECT_THAT(ReadWith(marks), StatusIs(Code::kBusy, testing::HasSubstr("took the group")));
}

}  // namespace
}  // namespace hyperloop
