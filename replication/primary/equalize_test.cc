// In which order the parts of regions are sent.
#include "primary/equalize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hyperloop {
namespace {

std::vector<std::pair<PushPart, size_t>> Order(const std::vector<bool>& cut) {
  std::vector<std::pair<PushPart, size_t>> order;
  for (const auto& [part, member] : PushOrder(cut)) order.emplace_back(part, member);
  return order;
}

// Replica 1 may have executed records that the new log lacks. If it kept their bytes, and not the
// records, a part of a record would be there for good.
TEST(PushOrderTest, ALogIsCutOnlyWhenNothingOfItsRecordsIsLeft) {
  using enum PushPart;
  EXPECT_THAT(
      Order({false, true, false}),
      testing::ElementsAre(std::pair(kRing, 0), std::pair(kRing, 2), std::pair(kApplied, 0),
                           std::pair(kApplied, 1), std::pair(kApplied, 2), std::pair(kRing, 1),
                           std::pair(kHead, 0), std::pair(kHead, 1), std::pair(kHead, 2)));
}

// A record is on all members before any member's bytes depend on it.
TEST(PushOrderTest, RingsComeBeforeAppliedBytes) {
  using enum PushPart;
  EXPECT_THAT(
      Order({false, false}),
      testing::ElementsAre(std::pair(kRing, 0), std::pair(kRing, 1), std::pair(kApplied, 0),
                           std::pair(kApplied, 1), std::pair(kHead, 0), std::pair(kHead, 1)));
}

}  // namespace
}  // namespace hyperloop
