// The judge of histories against all orders of small ones.
#include "crash/chaos/linearizability.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace hyperloop::chaos {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

using History = std::vector<RegisterOperation>;

RegisterOperation Write(uint64_t value, uint64_t begin, uint64_t end) {
  return {true, value, begin, end};
}
RegisterOperation Read(uint64_t value, uint64_t begin, uint64_t end) {
  return {false, value, begin, end};
}

TEST(LinearizabilityTest, OneAfterTheOther) {
  EXPECT_THAT(WhyNotLinearizable({}), IsEmpty());
  EXPECT_THAT(WhyNotLinearizable({Read(0, 1, 2), Write(7, 3, 4), Read(7, 5, 6)}), IsEmpty());
  EXPECT_THAT(WhyNotLinearizable({Write(7, 1, 2), Read(0, 3, 4)}), HasSubstr("value 0"));
  EXPECT_THAT(WhyNotLinearizable({Write(7, 1, 2), Write(8, 3, 4), Read(7, 5, 6)}),
              HasSubstr("value 8 (3 to 4) was there while value 7 (2 to 5) was"));
  EXPECT_THAT(WhyNotLinearizable({Read(9, 1, 2)}), HasSubstr("value 9 was never written"));
  EXPECT_THAT(WhyNotLinearizable({Read(9, 1, 2), Write(9, 3, 4)}),
              HasSubstr("value 9 was read before it was written"));
}

TEST(LinearizabilityTest, AWriteThatFailedMayTakePlaceLaterButNotTwice) {
  const History open = {Write(7, 1, 2), Write(8, 3, kNever), Read(7, 4, 5)};
  EXPECT_THAT(WhyNotLinearizable(open), IsEmpty());
  History later = open;
  later.push_back(Read(8, 6, 7));
  EXPECT_THAT(WhyNotLinearizable(later), IsEmpty());
  later.push_back(Read(7, 8, 9));
  EXPECT_THAT(WhyNotLinearizable(later), HasSubstr("was there while"));
}

TEST(LinearizabilityTest, ReadsThatOverlapAWriteMaySeeItOrNotAndNeverGoBack) {
  EXPECT_THAT(WhyNotLinearizable({Write(7, 1, 2), Write(8, 3, 8), Read(7, 4, 5), Read(8, 6, 7)}),
              IsEmpty());
  EXPECT_THAT(WhyNotLinearizable({Write(7, 1, 2), Write(8, 3, 8), Read(8, 4, 5), Read(7, 6, 7)}),
              HasSubstr("value"));
}

// Whether `rest` can follow when the register has `value`.
bool SomeOrder(const History& rest, uint64_t value) {
  const bool done = std::all_of(rest.begin(), rest.end(), [](const RegisterOperation& each) {
    return each.write && each.end == kNever;
  });
  if (done) return true;
  for (size_t i = 0; i < rest.size(); ++i) {
    const RegisterOperation& next = rest[i];
    const bool possible =
        std::none_of(rest.begin(), rest.end(),
                     [&](const RegisterOperation& other) { return other.end < next.begin; });
    if (!possible || (!next.write && next.value != value)) continue;
    History others = rest;
    others.erase(others.begin() + static_cast<ptrdiff_t>(i));
    if (SomeOrder(others, next.value)) return true;
  }
  return false;
}

History RandomHistory(std::mt19937_64& random) {
  const size_t count = 2 + random() % 5;
  std::vector<uint64_t> times(2 * count);
  std::iota(times.begin(), times.end(), 1);
  std::shuffle(times.begin(), times.end(), random);
  History history;
  uint64_t written = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto [begin, end] = std::minmax(times[2 * i], times[2 * i + 1]);
    if (random() % 2 == 0) {
      history.push_back(Write(++written, begin, random() % 4 == 0 ? kNever : end));
    } else {
      history.push_back(Read(random() % 4, begin, end));
    }
  }
  return history;
}

TEST(LinearizabilityTest, AgreesWithAllOrdersOfSmallHistories) {
  std::mt19937_64 random(1);
  int linearizable = 0;
  constexpr int kHistories = 20000;
  for (int i = 0; i < kHistories; ++i) {
    const History history = RandomHistory(random);
    const bool expected = SomeOrder(history, 0);
    linearizable += expected ? 1 : 0;
    std::string said;
    for (const RegisterOperation& each : history)
      said += (each.write ? "write " : "read ") + std::to_string(each.value) + " from " +
              std::to_string(each.begin) + " to " + std::to_string(each.end) + "\n";
    ASSERT_EQ(WhyNotLinearizable(history).empty(), expected) << said;
  }
  EXPECT_GT(linearizable, kHistories / 10);
  EXPECT_LT(linearizable, kHistories * 9 / 10);
}

}  // namespace
}  // namespace hyperloop::chaos
