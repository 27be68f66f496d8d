#include "group/geometry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/status_matchers.h"

namespace hyperloop {
namespace {

TEST(GroupGeometryTest, ChoosesSlots) {
  EXPECT_EQ(SlotsFor(1), 8u);
  EXPECT_EQ(SlotsFor(4), 8u);
  EXPECT_EQ(SlotsFor(5), 16u);
  EXPECT_EQ(SlotsFor(64), 128u);
  EXPECT_EQ(SlotsFor(kMaxWindow), kMaxSlots);
}

TEST(GroupGeometryTest, RefusesWhatDoesNotFitAndNamesTheLimit) {
  struct Case {
    uint32_t group_size, window, slots;
    std::string says;
  };
  const std::string windows = "1 to " + std::to_string(kMaxWindow);
  for (const Case& c :
       {Case{0, 1, 0, "between 1 and 8"}, Case{9, 1, 0, "between 1 and 8"}, Case{3, 0, 0, windows},
        Case{3, kMaxWindow + 1, 0, "32768 blocks"}, Case{3, 1, 4, "power of two"},
        Case{3, 8, 24, "power of two"}, Case{3, 8, 8, "2 x window"},
        Case{3, 8, 2 * kMaxSlots, std::to_string(kMaxSlots)}}) {
    const auto geometry = GroupGeometry::For(Datapath::kOffload, c.group_size, c.window, c.slots);
    ASSERT_THAT(geometry, StatusIs(Code::kInvalidArgument)) << c.window << " " << c.slots;
    EXPECT_THAT(geometry, StatusIs(Code::kInvalidArgument));
    EXPECT_THAT(geometry.status().message(), testing::HasSubstr(c.says));
  }
}

}  // namespace
}  // namespace hyperloop
