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

}  // namespace
}  // namespace hyperloop
