// Runs the engine on a thread of its own beside the group's thread, so that a thread sanitizer sees
// the protocol between them.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>

#include "group/chain_test_util.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

class GroupThreadTest : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Datapaths, GroupThreadTest, testing::ValuesIn(kWays),
                         [](const auto& param) { return TestName(param.param); });

TEST_P(GroupThreadTest, EveryPrimitiveWithTheEngineOnItsOwnThread) {
  // Of both sides of the bound up to which a CPU's message carries a gWRITE.
  constexpr std::array<uint64_t, 4> kSizes = {64, 256, 257, 4096};
  constexpr uint64_t kCount = 64, kPlaceBytes = 4096, kCopies = 1024, kPlaces = 8192;
  const auto place = [](uint64_t n) { return kPlaces + kPlaceBytes * (n % kCount); };
  const auto size_of = [&](uint64_t n) { return kSizes[n / 2 % kSizes.size()]; };
  for (const uint32_t window : {1u, 16u}) {
    auto made = Chain::Create({.datapath = GetParam(),
                               .group_size = 3,
                               .window = window,
                               .region_size = kPlaces + kCount * kPlaceBytes,
                               .threaded = true,
                               .spin_us = 20});
    ASSERT_OK(made);
    const auto chain = std::move(made).value();
    Group& group = chain->group();
    const uint64_t operations = chain->by_cpu() ? 500 : 4000;
    uint64_t counter = 0;
    for (uint64_t n = 0; n < operations; ++n) {
      // Each round writes a place of its own that was last used `kCount` operations ago. That one
      // is acknowledged, and the one behind it, which copied from there.
      const uint64_t at = place(n), size = size_of(n);
      if (n >= kCount) {
        ASSERT_OK(group.Wait(n - kCount + 2));
      }
      std::memset(chain->primary_bytes().data() + at, static_cast<int>(n), size);
      Operation op;
      op.write = {at, size};
      op.flush = n % 2 == 0;
      // The last bytes that the operation before this one wrote.
      if (n != 0 && n % 3 == 0)
        op.copy = {place(n - 1) + size_of(n - 1) - 64, kCopies + 64 * (n % kCount), 64};
      if (n % 5 == 0) {
        op.cas = {true, 8, counter, counter + 1, 7};
        ++counter;
      }
      const auto ticket = group.Submit(op);
      ASSERT_OK(ticket);
      if (n % 100 == 99) {
        OperationResult result;
        ASSERT_OK(group.Wait(*ticket, &result));
      }
    }
    ASSERT_OK(group.WaitAll()) << group.status().ToString();
    for (uint32_t i = 0; i < 3; ++i) {
      EXPECT_EQ(Word(chain->replica_bytes(i), 8), counter);
      EXPECT_EQ(std::memcmp(chain->replica_bytes(i).data() + kCopies,
                            chain->primary_bytes().data() + kCopies,
                            chain->primary_bytes().size() - kCopies),
                0);
    }
  }
}

// A lost event costs a second of sleep. If all were lost, this would take a quarter of an hour.
TEST_P(GroupThreadTest, AWaitForEventsTakesEveryAcknowledgement) {
  for (const uint32_t window : {1u, 16u}) {
    auto made = Chain::Create({.datapath = GetParam(),
                               .group_size = 2,
                               .window = window,
                               .threaded = true,
                               .spin_us = 0,
                               .wait = WaitMode::kEvent});
    ASSERT_OK(made);
    const auto chain = std::move(made).value();
    for (uint64_t n = 0; n < 500; ++n) {
      ASSERT_OK(chain->group().Write(64 * (n % 64), 64, n % 2 == 0));
      ASSERT_OK(chain->group().MemCopy(64 * (n % 64), 8192, 64, false));
    }
    ASSERT_OK(chain->group().WaitAll()) << chain->group().status().ToString();
  }
}

// Each acknowledgement may come before the event is asked for, between that and the last look, or
// after it.
TEST_P(GroupThreadTest, WaitingForEventsOneByOneTimesNothingOut) {
  auto made = Chain::Create({.datapath = GetParam(),
                             .group_size = 1,
                             .window = 64,
                             .threaded = true,
                             .wait = WaitMode::kEvent});
  ASSERT_OK(made);
  const auto chain = std::move(made).value();
  for (uint64_t n = 0; n < 200; ++n) {
    const auto ticket = chain->group().Write(0, 64, true);
    ASSERT_OK(ticket);
    ASSERT_OK(chain->group().Wait(*ticket));
  }
}

// With no time to poll every wait sleeps; with much none does.
TEST_P(GroupThreadTest, AWaitThatPollsFirstTakesEveryAcknowledgement) {
  for (const auto poll_time : {std::chrono::nanoseconds(0), std::chrono::nanoseconds(10'000),
                               std::chrono::nanoseconds(std::chrono::hours(1))}) {
    auto made = Chain::Create({.datapath = GetParam(),
                               .group_size = 2,
                               .window = 4,
                               .threaded = true,
                               .spin_us = 0,
                               .wait = WaitMode::kHybrid,
                               .poll_time = poll_time});
    ASSERT_OK(made);
    const auto chain = std::move(made).value();
    for (uint64_t n = 0; n < 200; ++n)
      ASSERT_OK(chain->group().Write(64 * (n % 64), 64, n % 2 == 0));
    ASSERT_OK(chain->group().WaitAll()) << chain->group().status().ToString();
  }
}

TEST_P(GroupThreadTest, AWaitForEventsEndsWhenAReplicaIsGone) {
  auto made = Chain::Create({.datapath = GetParam(),
                             .group_size = 2,
                             .window = 8,
                             .threaded = true,
                             .spin_us = 0,
                             .wait = WaitMode::kEvent,
                             .ack_timeout = std::chrono::milliseconds(200)});
  ASSERT_OK(made);
  const auto chain = std::move(made).value();
  chain->Kill(1);
  const auto ticket = chain->group().Write(0, 64, true);
  if (ticket.ok()) {
    EXPECT_THAT(chain->group().Wait(*ticket),
                testing::AnyOf(StatusIs(Code::kUnavailable), StatusIs(Code::kTimedOut)));
  }
  EXPECT_THAT(chain->group().status(),
              testing::AnyOf(StatusIs(Code::kUnavailable), StatusIs(Code::kTimedOut)));
}

TEST_P(GroupThreadTest, MembersComeAndGoWhileTheEngineRuns) {
  for (int round = 0; round < 2; ++round) {
    auto made = Chain::Create({.datapath = GetParam(),
                               .group_size = 2,
                               .window = 8,
                               .threaded = true,
                               .wait = WaitMode::kEvent,
                               // Threads take part: a busy machine may take long.
                               .ack_timeout = std::chrono::minutes(2)});
    ASSERT_OK(made);
    const auto chain = std::move(made).value();
    for (uint64_t i = 0; i < 100; ++i) ASSERT_OK(chain->group().Write(64 * i, 64, true));
    // The primary's own queue pair notices the end of the first one.
    chain->Kill(1);
    chain->Kill(0);
    EXPECT_FALSE([&] {
      for (uint64_t i = 0; i < 100; ++i) {
        if (const auto ticket = chain->group().Write(64 * i, 64, true); !ticket.ok()) return false;
      }
      return chain->group().WaitAll().ok();
    }());
  }
}

}  // namespace
}  // namespace hyperloop
