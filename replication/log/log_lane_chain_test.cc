// The log lane over real groups: slots, metadata messages and the software RNIC's engine below it.
#include <atomic>
#include <cstring>
#include <thread>

#include "group/chain_fixture.h"
#include "gtest/gtest.h"
#include "log/log_lane.h"
#include "support/append_durably.h"
#include "support/status_matchers.h"
#include "testing/lane_bench.h"

namespace hyperloop {
namespace {

struct ChainNodes {
  explicit ChainNodes(ChainOptions options) {
    options.region_size = region.bytes.size();
    chain = Must(Chain::Create(options));
    std::memcpy(chain->primary_bytes().data(), region.bytes.data(), region.bytes.size());
    for (uint32_t i = 0; i < chain->size(); ++i) {
      std::memcpy(chain->replica_bytes(i).data(), region.bytes.data(), region.bytes.size());
    }
  }
  std::vector<std::byte> Image(uint32_t i) {
    const auto bytes = chain->replica_bytes(i);
    return {bytes.begin(), bytes.end()};
  }
  TestRegion region;
  std::unique_ptr<Chain> chain;
};

struct ChainBench : ChainNodes, LaneModel {
  ChainBench(const ChainOptions& options, uint64_t seed)
      : ChainNodes(options),
        LaneModel(&chain->group(), chain->primary_bytes(), region.info, seed, options.window,
                  [this] {
                    if (chain != nullptr) chain->rnic().engine().Run(3);
                  }) {}
};

// Every few engine steps one node is read: redo of its bytes gives the files of a prefix with
// everything acknowledged.
TEST(LogLaneOverAChain, AnyMomentGivesTheFilesOfAPrefix) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    std::mt19937_64 random(seed);
    ChainOptions options;
    options.group_size = 1 + seed % 3;
    options.window = 1 + seed % 9;
    options.step = [&](softrnic::Engine& engine) { engine.Run(1 + random() % 7); };
    ChainBench bench(options, seed);
    for (int i = 0; i < 150; ++i) {
      bench.RandomCall();
      if (testing::Test::HasFatalFailure()) FAIL() << "seed " << seed << " call " << i;
      bench.chain->rnic().engine().Run(random() % 40);
      if (i % 16 == 0) {
        ASSERT_OK(bench.lane->Tick());
      }
      const uint64_t acked = bench.lane->statistics().acked_seq;
      for (uint32_t hop = 0; hop < options.group_size; ++hop) {
        bench.CheckImage(bench.Image(hop), acked);
        if (testing::Test::HasFatalFailure())
          FAIL() << "seed " << seed << " hop " << hop << " call " << i;
      }
    }
    ASSERT_OK(bench.lane->Checkpoint());
    bench.chain->Settle();
    const auto primary = bench.chain->primary_bytes();
    for (uint32_t hop = 0; hop < options.group_size; ++hop) {
      EXPECT_EQ(0, std::memcmp(bench.Image(hop).data(), primary.data(), primary.size()))
          << "seed " << seed;
    }
  }
}

// A replica dies during operations: calls fail within their bound, and every survivor holds
// everything acknowledged.
TEST(LogLaneOverAChain, SurvivorsOfADeadReplicaHoldAllAcknowledged) {
  for (uint32_t victim = 0; victim < 3; ++victim) {
    ChainOptions options;
    options.ack_timeout = std::chrono::milliseconds(200);
    ChainBench bench(options, 7 + victim);
    for (int i = 0; i < 60; ++i) {
      bench.RandomCall();
      if (testing::Test::HasFatalFailure()) FAIL();
    }
    const std::string name = "5.log";
    const FileId id = Must(bench.lane->Create(name));
    bench.model[name] = "";
    bench.Remember();
    bench.chain->Kill(victim);
    Status status;
    for (int i = 0; status.ok(); ++i) {
      ASSERT_LT(i, 1000) << "nobody noticed";
      status = bench.lane->Append(id, "x").status();
      bench.model[name] += "x";  // the outcome of the append that fails is unknown
      bench.Remember();
    }
    EXPECT_NE(status.code(), Code::kNoSpace) << status.ToString();
    EXPECT_THAT(bench.lane->Sync(),
                testing::AnyOf(StatusIs(Code::kUnavailable), StatusIs(Code::kTimedOut)));
    const uint64_t acked = bench.lane->statistics().acked_seq;
    for (uint32_t hop = 0; hop < 3; ++hop) {
      if (hop == victim) continue;
      bench.CheckImage(bench.Image(hop), acked);
      if (testing::Test::HasFatalFailure()) FAIL() << "victim " << victim << " hop " << hop;
    }
  }
}

// Several threads use one lane while the engine has a thread of its own: each thread's bytes are
// there, in its order.
TEST(LogLaneOverAChain, ManyThreads) {
  ChainOptions options;
  options.threaded = true;
  options.spin_us = 0;
  ChainBench bench(options, 1);
  bench.lane.reset();
  bench.Load();
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string name = std::to_string(t) + ".log";
      auto id = bench.lane->Create(name);
      for (int i = 0; i < 100 && id.ok(); ++i) {
        if (!AppendDurably(*bench.lane, *id, std::string(20, static_cast<char>('a' + (i + t) % 26)))
                 .ok())
          ++failures;
        if (i % 10 == 0 && !bench.lane->Tick().ok()) ++failures;
      }
      if (!id.ok()) ++failures;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_OK(bench.lane->Sync());  // also waits for statements, for which no append waits
  EXPECT_EQ(bench.lane->statistics().acked_seq, bench.lane->statistics().last_seq);
  for (int t = 0; t < 4; ++t) {
    std::string expected;
    for (int i = 0; i < 100; ++i)
      expected += std::string(20, static_cast<char>('a' + (i + t) % 26));
    EXPECT_EQ(bench.ReadAll(std::to_string(t) + ".log"), expected);
  }
}

}  // namespace
}  // namespace hyperloop
