#include "primary/choose_datapath.h"

#include <gtest/gtest.h>

#include <array>

namespace hyperloop {
namespace {

TEST(ChooseDatapathTest, OneRnicForwards) {
  EXPECT_EQ(ChooseDatapath(std::array<uint64_t, 3>{7, 7, 7}).datapath, Datapath::kOffload);
  EXPECT_EQ(ChooseDatapath(std::array<uint64_t, 1>{7}).datapath, Datapath::kOffload);
}

TEST(ChooseDatapathTest, RnicsThatAreApartDoNotForward) {
  EXPECT_EQ(ChooseDatapath(std::array<uint64_t, 3>{7, 7, 8}).datapath, Datapath::kFanout);
  EXPECT_EQ(ChooseDatapath(std::array<uint64_t, 3>{8, 7, 7}).datapath, Datapath::kFanout);
}

TEST(ChooseDatapathTest, RnicsThatCannotForwardDoNot) {
  EXPECT_EQ(ChooseDatapath(std::array<uint64_t, 2>{0, 0}).datapath, Datapath::kFanout);
  EXPECT_EQ(ChooseDatapath(std::array<uint64_t, 2>{7, 0}).datapath, Datapath::kFanout);
}

TEST(ChooseWaitTest, PollsOnlyWhereAProcessorIsLeftAndAllIsNear) {
  rnic::Caps caps;
  caps.completion_events = true;
  const std::array<uint64_t, 2> near{7, 7}, apart{7, 8};
  EXPECT_EQ(ChooseWait(caps, 7, near, 4).wait, WaitMode::kPoll);
  EXPECT_EQ(ChooseWait(caps, 7, near, 3).wait, WaitMode::kHybrid);
  EXPECT_EQ(ChooseWait(caps, 7, apart, 64).wait, WaitMode::kHybrid);
  EXPECT_EQ(ChooseWait(caps, 9, near, 64).wait, WaitMode::kHybrid);
  caps.completion_events = false;
  EXPECT_EQ(ChooseWait(caps, 9, apart, 2).wait, WaitMode::kPoll) << "nothing would wake it";
}

}  // namespace
}  // namespace hyperloop
