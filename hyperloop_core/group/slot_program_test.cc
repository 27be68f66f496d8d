#include "group/slot_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/status_matchers.h"

namespace hyperloop {
namespace {

TEST(SlotProgramTest, ChoosesSlots) {
  EXPECT_EQ(SlotsFor(1), 8u);
  EXPECT_EQ(SlotsFor(4), 8u);
  EXPECT_EQ(SlotsFor(5), 16u);
  EXPECT_EQ(SlotsFor(64), 128u);
  EXPECT_EQ(SlotsFor(kMaxWindow), kMaxSlots);
}

TEST(SlotProgramTest, RefusesWhatDoesNotFitAndNamesTheLimit) {
  struct Case {
    uint32_t group_size, window, slots;
    const char* says;
  };
  for (const Case& c :
       {Case{0, 1, 0, "between 1 and 8"}, Case{9, 1, 0, "between 1 and 8"},
        Case{3, 0, 0, "1 to 4096"}, Case{3, 4097, 0, "32768 blocks"}, Case{3, 1, 4, "power of two"},
        Case{3, 8, 24, "power of two"}, Case{3, 8, 8, "2 x window"}, Case{3, 8, 16384, "8192"}}) {
    const auto program = SlotProgram::For(c.group_size, c.window, c.slots);
    ASSERT_FALSE(program.ok()) << c.window << " " << c.slots;
    EXPECT_THAT(program, StatusIs(Code::kInvalidArgument));
    EXPECT_THAT(program.status().message(), testing::HasSubstr(c.says));
  }
}

TEST(SlotProgramTest, StaysInsideItsBudgetAndLimits) {
  for (uint32_t group_size = 1; group_size <= kMaxGroupSize; ++group_size) {
    for (const uint32_t window : {1u, 2u, 4u, 5u, 64u, 4096u}) {
      const auto program = SlotProgram::For(group_size, window, 0);
      ASSERT_OK(program);
      // At most 300 B a replica, re-arming and result included.
      EXPECT_LE(program->message_bytes(0), 300u * group_size);
      // The last patch a RECV writes in time: slot m + lookahead is re-armed by RECV m and enabled
      // by slot m.
      EXPECT_EQ(program->lookahead + program->rearm_distance, program->slots);
      EXPECT_GE(program->lookahead, 2u) << "a tail enables two slots at a time";
      EXPECT_GE(program->slots * 3 / 4, window) << "receives between two updates of the counter";
      EXPECT_GE(program->slots - window, program->slots / 2)
          << "a forced flush between a slot's use and its next";
      EXPECT_EQ(program->message_bytes(group_size - 1), kTailPatchBytes + ResultBytes(group_size));
    }
  }
}

}  // namespace
}  // namespace hyperloop
