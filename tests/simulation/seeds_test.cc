#include "simulation/seeds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace hyperloop::simulation {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SimulationSeedsTest : public ::testing::Test {
 protected:
  static std::vector<std::pair<uint64_t, uint64_t>> Parsed(std::string_view text) {
    const auto seeds = ParseSeeds(text);
    EXPECT_TRUE(seeds.ok()) << seeds.status().ToString();
    std::vector<std::pair<uint64_t, uint64_t>> pairs;
    for (const SeedRange& each : *seeds) pairs.emplace_back(each.first, each.last);
    return pairs;
  }
  static std::string Refused(std::string_view text) {
    const auto seeds = ParseSeeds(text);
    EXPECT_FALSE(seeds.ok()) << text;
    return seeds.status().ToString();
  }
};

TEST_F(SimulationSeedsTest, NumbersAndRangesAreTaken) {
  EXPECT_THAT(Parsed("7"), ElementsAre(std::pair(7, 7)));
  EXPECT_THAT(Parsed("0-0"), ElementsAre(std::pair(0, 0)));
  EXPECT_THAT(Parsed("1-200,243,895-900"),
              ElementsAre(std::pair(1, 200), std::pair(243, 243), std::pair(895, 900)));
  EXPECT_THAT(Parsed("18446744073709551615"), ElementsAre(std::pair(UINT64_MAX, UINT64_MAX)));
}

TEST_F(SimulationSeedsTest, AnythingElseIsRefusedWithThePartThatIsWrong) {
  for (const char* each :
       {"", "x", "1-", "-1", "1,", ",1", "1-2-3", " 1", "1 ", "+1", "0x1", "18446744073709551616"})
    EXPECT_THAT(Refused(each), HasSubstr("neither a number below 2^64 nor A-B")) << each;
  EXPECT_THAT(Refused("1-9,1O"), HasSubstr("\"1O\""));
  EXPECT_THAT(Refused("9-1"), HasSubstr("9-1 ends before it begins"));
}

TEST_F(SimulationSeedsTest, ASeedThatIsNotAboveThoseBeforeItIsRefused) {
  EXPECT_THAT(Refused("1-9,9"), HasSubstr("9 is not above 9"));
  EXPECT_THAT(Refused("5,3"), HasSubstr("3 is not above 5"));
}

}  // namespace
}  // namespace hyperloop::simulation
