#include "primary/chain_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace hyperloop {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;
using namespace std::chrono_literals;

const std::vector<std::string> kThree{"a", "b", "c"};
const CutWays::Clock::time_point kNow{};

TEST(ChainOrder, WithoutACutMembersKeepTheirOrder) {
  EXPECT_THAT(ChainOrder(kThree, {3, 1s}, kNow), Optional(ElementsAre(0, 1, 2)));
}

TEST(ChainOrder, OneCutAmongThreeIsAvoidedWhicheverItIs) {
  for (const auto& [one, other] : {std::pair("a", "b"), {"b", "c"}, {"c", "a"}, {"b", "a"}}) {
    CutWays cut(3, 1s);
    cut.Note(one, other, kNow);
    const auto order = ChainOrder(kThree, cut, kNow);
    ASSERT_TRUE(order.has_value()) << one << other;
    for (size_t i = 0; i + 1 < order->size(); ++i)
      EXPECT_FALSE(cut.Has(kThree[(*order)[i]], kThree[(*order)[i + 1]], kNow)) << one << other;
  }
}

TEST(ChainOrder, WhoReachesNobodyIsInNoChain) {
  CutWays cut(3, 1s);
  cut.Note("a", "b", kNow);
  cut.Note("a", "c", kNow);
  EXPECT_EQ(ChainOrder(kThree, cut, kNow), std::nullopt);
}

TEST(ChainOrder, ACutThatWasNotedLongAgoIsForgotten) {
  CutWays cut(3, 1s);
  cut.Note("a", "b", kNow);
  EXPECT_TRUE(cut.Has("a", "b", kNow + 59s));
  EXPECT_THAT(ChainOrder(kThree, cut, kNow + 60s), Optional(ElementsAre(0, 1, 2)));
}

// Else an opening would find them cut one after the other without end.
TEST(ChainOrder, NoCutIsForgottenWhileTheOthersAreFound) {
  CutWays cut(8, 60s);
  cut.Note("a", "b", kNow);
  EXPECT_TRUE(cut.Has("a", "b", kNow + 28min));
}

TEST(ChainOrder, TheFirstWithoutWhatWasSentIsBehindTheCut) {
  EXPECT_THAT(FirstBehindCut({true, false, false}), Optional(1u));
  EXPECT_THAT(FirstBehindCut({true, true, false}), Optional(2u));
  EXPECT_EQ(FirstBehindCut({true, true, true}), std::nullopt);
  EXPECT_EQ(FirstBehindCut({false, false, false}), std::nullopt);
  EXPECT_EQ(FirstBehindCut({}), std::nullopt);
}

}  // namespace
}  // namespace hyperloop
