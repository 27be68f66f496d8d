// Tests what is suggested for mistyped names, and that nothing is where no name is near.
#include "hyperloop/core/nearest_name.h"

#include <gtest/gtest.h>

#include <array>

namespace hyperloop {
namespace {

constexpr std::array<std::string_view, 6> kNames{"status", "start",         "stop",
                                                 "--dir",  "--region-size", "--replicas"};

std::string Meant(std::string_view text) { return DidYouMean(text, kNames); }

TEST(NearestName, OneEditOfEachKind) {
  EXPECT_EQ(Meant("statsu"), "; did you mean status?") << "two letters swapped";
  EXPECT_EQ(Meant("strat"), "; did you mean start?");
  EXPECT_EQ(Meant("statuss"), "; did you mean status?");
  EXPECT_EQ(Meant("stp"), "; did you mean stop?");
  EXPECT_EQ(Meant("stap"), "; did you mean stop?") << "of several, the nearest that comes first";
  EXPECT_EQ(Meant("--dri"), "; did you mean --dir?");
  EXPECT_EQ(Meant("--regionsize"), "; did you mean --region-size?");
}

TEST(NearestName, TheBeginningOfAName) {
  EXPECT_EQ(Meant("--region"), "; did you mean --region-size?");
  EXPECT_EQ(Meant("st"), "") << "too short to say anything";
}

TEST(NearestName, NothingIsNear) {
  EXPECT_EQ(Meant("promote"), "");
  EXPECT_EQ(Meant("--journal-size"), "");
  EXPECT_EQ(Meant(""), "");
  EXPECT_EQ(DidYouMean("status", {}), "");
  EXPECT_EQ(NearestName("promote", kNames), "start") << "the nearest there is, however far";
}

}  // namespace
}  // namespace hyperloop
