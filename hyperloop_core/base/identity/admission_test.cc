#include "hyperloop/identity/admission.h"

#include <gtest/gtest.h>

#include <vector>

namespace hyperloop {
namespace {

constexpr StrangerLimits kLimits{.of_source = 2, .of_known = 3, .all = 4};

Stranger From(std::string_view source, uint64_t age, bool spoke = false) {
  return {source, {spoke, age}};
}

TEST(WhoGivesWayTest, ThereIsRoomBelowTheBounds) {
  const std::vector<Stranger> strangers{From("a", 1), From("b", 2), From("b", 3)};
  EXPECT_EQ(WhoGivesWay({}, "a", {}, kLimits), std::nullopt);
  EXPECT_EQ(WhoGivesWay(strangers, "a", {}, kLimits), std::nullopt);
}

TEST(WhoGivesWayTest, AtTheBoundOfItsSourceTheLeastFromThereGivesWay) {
  const std::vector<Stranger> strangers{From("b", 1), From("a", 3), From("a", 2)};
  EXPECT_EQ(WhoGivesWay(strangers, "a", {}, kLimits), 2u);
}

TEST(WhoGivesWayTest, OneThatHasSpokenIsMoreThanOneThatIsSilent) {
  const std::vector<Stranger> strangers{From("a", 1, true), From("a", 2)};
  EXPECT_EQ(WhoGivesWay(strangers, "a", {}, kLimits), 1u);
}

TEST(WhoGivesWayTest, AtTheBoundOfAllTheSourceThatHasMostGivesWay) {
  const std::vector<Stranger> strangers{From("a", 1), From("b", 4), From("b", 3), From("c", 2)};
  EXPECT_EQ(WhoGivesWay(strangers, "d", {}, kLimits), 2u);
}

TEST(WhoGivesWayTest, OfSourcesThatHaveAsManyTheLeastGivesWay) {
  const std::vector<Stranger> strangers{From("a", 9), From("b", 4), From("c", 5), From("d", 6)};
  EXPECT_EQ(WhoGivesWay(strangers, "e", {}, kLimits), 1u);
}

TEST(WhoGivesWayTest, AKnownPeersSourceHasABoundOfItsOwn) {
  const KnownSources known{"k"};
  const std::vector<Stranger> crowd{From("a", 1), From("b", 2), From("c", 3),
                                    From("d", 4), From("k", 5), From("k", 6)};
  EXPECT_EQ(WhoGivesWay(crowd, "k", known, kLimits), std::nullopt);
  const std::vector<Stranger> own{From("k", 3), From("k", 1), From("k", 2)};
  EXPECT_EQ(WhoGivesWay(own, "k", known, kLimits), 1u);
}

TEST(WhoGivesWayTest, StrangersNeverCloseAConnectionBesideAKnownPeer) {
  const KnownSources known{"k"};
  const std::vector<Stranger> strangers{From("k", 1), From("k", 2), From("a", 3)};
  EXPECT_EQ(WhoGivesWay(strangers, "b", known, kLimits, true), 2u);
  const std::vector<Stranger> beside{From("k", 1), From("k", 2)};
  EXPECT_EQ(WhoGivesWay(beside, "b", known, kLimits, true), std::nullopt);
}

TEST(WhoGivesWayTest, WithoutAPlaceAKnownPeersSourceTakesAStrangers) {
  const KnownSources known{"k", "l"};
  const std::vector<Stranger> strangers{From("l", 1), From("a", 2)};
  EXPECT_EQ(WhoGivesWay(strangers, "k", known, kLimits, true), 1u);
  const std::vector<Stranger> beside{From("l", 2), From("l", 1)};
  EXPECT_EQ(WhoGivesWay(beside, "k", known, kLimits, true), 1u);
}

}  // namespace
}  // namespace hyperloop
