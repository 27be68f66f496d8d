#include "group/ordering.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace hyperloop {
namespace {

Operation WriteOf(uint64_t offset, uint64_t size) {
  return {.write = {offset, size}, .copy = {}, .cas = {}};
}
Operation CopyOf(uint64_t source, uint64_t destination, uint64_t size) {
  return {.write = {}, .copy = {source, destination, size}, .cas = {}};
}
Operation CasOf(uint64_t offset) {
  return {.write = {}, .copy = {}, .cas = {true, offset, 0, 1, 1}};
}

// What `second` waits for when `first` alone is under way.
Ticket After(const Operation& first, const Operation& second) {
  Ordering ordering(4);
  ordering.Add(first, 1, 0);
  return ordering.Conflict(second, 0);
}

TEST(OrderingTest, HoldsAWriteOverWhatAnEarlierOperationStillUses) {
  EXPECT_EQ(After(WriteOf(0, 16), WriteOf(15, 1)), 1u);
  EXPECT_EQ(After(CopyOf(0, 100, 16), WriteOf(8, 4)), 1u) << "source";
  EXPECT_EQ(After(CopyOf(0, 100, 16), WriteOf(115, 4)), 1u) << "destination";
  EXPECT_EQ(After(CasOf(64), WriteOf(71, 1)), 1u);
}

TEST(OrderingTest, HoldsACopyOrCasOverAWriteThatIsStillForwarded) {
  EXPECT_EQ(After(WriteOf(100, 16), CopyOf(0, 96, 8)), 1u);
  EXPECT_EQ(After(WriteOf(100, 16), CasOf(104)), 1u);
}

TEST(OrderingTest, LetsEverythingElsePass) {
  EXPECT_EQ(After(WriteOf(0, 16), WriteOf(16, 16)), 0u) << "neighbours";
  EXPECT_EQ(After(WriteOf(16, 16), WriteOf(0, 16)), 0u) << "neighbours";
  EXPECT_EQ(After(WriteOf(0, 16), CopyOf(0, 100, 16)), 0u) << "a copy of what was just written";
  EXPECT_EQ(After(CopyOf(0, 100, 16), CopyOf(100, 0, 16)), 0u) << "copies run in one queue";
  EXPECT_EQ(After(CasOf(0), CasOf(0)), 0u);
  EXPECT_EQ(After(CasOf(0), CopyOf(100, 0, 16)), 0u);
  EXPECT_EQ(After(CopyOf(0, 100, 16), CasOf(104)), 0u);
  EXPECT_EQ(After({.write = {}, .copy = {}, .cas = {}, .flush = true}, WriteOf(0, 16)), 0u);
  EXPECT_EQ(After(WriteOf(0, 16), {.write = {}, .copy = {}, .cas = {}, .flush = true}), 0u);
}

TEST(OrderingTest, AsksForTheNewestConflictAndForgetsAcknowledgedOnes) {
  Ordering ordering(4);
  ordering.Add(WriteOf(0, 8), 1, 0);
  ordering.Add(WriteOf(4, 8), 2, 0);
  ordering.Add(WriteOf(100, 8), 3, 0);
  EXPECT_EQ(ordering.Conflict(WriteOf(6, 1), 0), 2u);
  EXPECT_EQ(ordering.Conflict(WriteOf(0, 1), 0), 1u);
  EXPECT_EQ(ordering.Conflict(WriteOf(0, 1), 1), 0u);
  EXPECT_EQ(ordering.Conflict(WriteOf(6, 1), 2), 0u);
  EXPECT_EQ(ordering.Conflict(WriteOf(100, 1), 2), 3u);
}

// Compares with the plain rule, applied to all operations that are under way.
TEST(OrderingTest, EqualsThePlainRuleOverRandomRuns) {
  const auto touches = [](uint64_t a, uint64_t a_size, uint64_t b, uint64_t b_size) {
    for (uint64_t i = a; i < a + a_size; ++i) {
      if (i >= b && i < b + b_size) return true;
    }
    return false;
  };
  const auto must_wait = [&](const Operation& b, const Operation& a) {
    const auto hits = [&](const Range& write, const Operation& other, bool reads) {
      if (touches(write.offset, write.size, other.copy.destination, other.copy.size)) return true;
      if (other.cas.present && touches(write.offset, write.size, other.cas.offset, 8)) return true;
      return reads && touches(write.offset, write.size, other.copy.source, other.copy.size);
    };
    return touches(b.write.offset, b.write.size, a.write.offset, a.write.size) ||
           hits(b.write, a, true) || hits(a.write, b, false);
  };
  std::mt19937_64 random(7);
  const auto pick = [&](uint64_t below) { return random() % below; };
  for (const uint32_t window : {1u, 2u, 3u, 8u, 64u}) {
    Ordering ordering(window);
    std::deque<std::pair<Ticket, Operation>> under_way;
    Ticket acknowledged = 0;
    int held = 0;
    for (Ticket ticket = 1; ticket <= 3000; ++ticket) {
      Operation op;
      const uint64_t space = 64 * window;  // so that some overlap and some do not
      if (pick(2) == 0) op.write = {pick(space), 1 + pick(12)};
      if (pick(2) == 0) op.copy = {pick(space), pick(space), 1 + pick(12)};
      if (pick(3) == 0) op.cas = {true, pick(space / 8) * 8, 0, 0, 0};
      Ticket expected = 0;
      for (const auto& [other, earlier] : under_way) {
        if (must_wait(op, earlier)) expected = other;
      }
      ASSERT_EQ(ordering.Conflict(op, acknowledged), expected)
          << "window " << window << " ticket " << ticket;
      held += expected != 0;
      while (!under_way.empty() &&
             (under_way.front().first <= expected || under_way.size() >= window || pick(3) == 0)) {
        acknowledged = under_way.front().first;
        under_way.pop_front();
      }
      ordering.Add(op, ticket, acknowledged);
      under_way.emplace_back(ticket, op);
    }
    if (window > 1) {
      EXPECT_GT(held, 30);
    }
  }
}

}  // namespace
}  // namespace hyperloop
