// The power fails while a log lane writes over a group. From the remains of any node, also the
// primary's own, recovery gives the files of a prefix with every acknowledged record.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "group/chain_fixture.h"
#include "log/log_lane.h"
#include "softrnic/engine/testing/adversarial_schedule.h"
#include "softrnic/engine/testing/persistence_model.h"
#include "testing/lane_bench.h"

namespace hyperloop {
namespace {

constexpr FlushOrder kOrders[] = {FlushOrder::kHopByHop, FlushOrder::kPipelined};

struct PowerOptions {
  FlushOrder order = FlushOrder::kHopByHop;
  uint32_t group_size = 3;
  int calls = 50;
  // Broken on purpose:
  bool read_up = true;      // a READ on the replicas' `up` queues flushes: the hops' flushes
  bool read_local = true;   // a READ on `local` flushes copies
  bool persist_own = true;  // the primary persists the stores of its CPU
};

ChainOptions Adversary(uint64_t seed, const PowerOptions& options,
                       softrnic::PersistenceModel* power) {
  ChainOptions chain;
  chain.datapath = {Datapath::kOffload, options.order};
  chain.group_size = options.group_size;
  chain.window = 1 + seed % 9;
  if (seed % 2 == 0) {
    chain.engine.test.steps = softrnic::RandomSteps;
    chain.engine.test.fetch = softrnic::EngineTestHooks::Fetch::kRandom;
    chain.engine.test.defer_delivery = true;
  }
  chain.engine.test.seed = seed;
  chain.engine.test.watch = power;
  chain.region_size = TestRegion().bytes.size();
  return chain;
}

class PowerRun {
 public:
  PowerRun(uint64_t seed, const PowerOptions& options)
      : random_(seed), options_(options), chain_(MakeChain(Adversary(seed, options, &power_))) {
    for (uint32_t node = 0; node <= chain_->size(); ++node)
      std::memcpy(Bytes(node).data(), region_.bytes.data(), region_.bytes.size());
    lane_ = std::make_unique<LaneModel>(&chain_->group(), Bytes(0), region_.info, seed,
                                        1 + seed % 9, [this] { Engine(3); });
    chain_->Settle();
    for (uint32_t node = 0; node <= chain_->size(); ++node) power_.Watch(Bytes(node));
    lane_->media.on_persist = [this](const void* data, size_t size) { return Persist(data, size); };
    for (uint32_t i = 0; i < chain_->size(); ++i) {
      const MemberInfo& member = chain_->replica(i).member->info();
      if (!options.read_up) power_.IgnoreReadsOf(member.up_qpn);
      if (!options.read_local) power_.IgnoreReadsOf(member.local_qpn);
    }
  }
  ~PowerRun() {
    lane_.reset();
    for (uint32_t node = 0; node <= chain_->size(); ++node) power_.Unwatch(Bytes(node));
  }

  // Returns an empty text if each node kept everything that it must, whenever the power failed.
  std::string Execute() {
    for (int i = 0; i < options_.calls && wrong_.empty(); ++i) {
      in_call_ = true;
      lane_->RandomCall();
      if (random_() % 16 == 0 && !lane_->lane->Tick().ok()) return "Tick failed";
      if (random_() % 32 == 0 && !lane_->lane->Checkpoint().ok()) return "Checkpoint failed";
      in_call_ = false;
      if (testing::Test::HasFailure()) return "call " + std::to_string(i) + " failed";
      for (uint64_t steps = random_() % 30; steps > 0 && wrong_.empty(); --steps) {
        chain_->rnic().engine().Run(1 + random_() % 8);
        PowerFails();
      }
    }
    return wrong_;
  }
  uint64_t torn() const { return torn_; }

 private:
  static std::unique_ptr<Chain> MakeChain(ChainOptions options) {
    options.step = [](softrnic::Engine& engine) { engine.Run(3); };
    return Must(Chain::Create(options));
  }
  // 0 is the primary.
  std::span<std::byte> Bytes(uint32_t node) {
    return node == 0 ? chain_->primary_bytes() : chain_->replica_bytes(node - 1);
  }
  void Engine(size_t steps) {
    chain_->rnic().engine().Run(steps);
    if (random_() % 4 == 0) PowerFails();
  }
  // Checks before and after each of the primary's own persists.
  Status Persist(const void* data, size_t size) {
    if (random_() % 4 == 0) PowerFails();
    if (options_.persist_own) power_.Persist(data, size);
    return {};
  }

  void PowerFails() {
    if (!wrong_.empty() || lane_ == nullptr || lane_->lane == nullptr) return;
    const uint64_t acked = in_call_ ? acked_ : (acked_ = lane_->lane->statistics().acked_seq);
    for (uint32_t node = 0; node <= chain_->size() && wrong_.empty(); ++node) {
      std::vector<std::byte> left = power_.PowerFailure(Bytes(node).data(), random_);
      torn_ += std::memcmp(left.data(), Bytes(node).data(), left.size()) != 0;
      wrong_ = in_call_ ? WrongLog(left, acked) : lane_->WrongIn(std::move(left), acked);
      if (!wrong_.empty())
        wrong_ = (node == 0 ? "primary: " : "replica " + std::to_string(node - 1) + ": ") + wrong_;
    }
  }
  // During a call the model of the files does not have the newest record yet.
  std::string WrongLog(std::span<const std::byte> image, uint64_t acked) const {
    const auto log = ScanLog(image, region_.info, acked);
    return log.ok() ? "" : log.status().ToString();
  }

  std::mt19937_64 random_;
  const PowerOptions options_;
  const TestRegion region_;
  softrnic::PersistenceModel power_;
  std::unique_ptr<Chain> chain_;
  std::unique_ptr<LaneModel> lane_;
  bool in_call_ = false;
  uint64_t acked_ = 0;
  uint64_t torn_ = 0;
  std::string wrong_;
};

TEST(LanePowerTest, AnyNodeRecoversToAPrefixWithEverythingAcknowledged) {
  uint64_t torn = 0;
  for (const FlushOrder order : kOrders) {
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      PowerRun run(seed, {.order = order, .group_size = 1 + static_cast<uint32_t>(seed % 3)});
      ASSERT_EQ(run.Execute(), "") << "seed " << seed << ", order " << static_cast<int>(order);
      torn += run.torn();
    }
  }
  EXPECT_GT(torn, 2000u) << "too few power failures left anything undecided";
}

// The negative controls.
uint64_t CountLost(const PowerOptions& options, const std::string& where) {
  uint64_t lost = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const std::string wrong = PowerRun(seed, options).Execute();
    if (wrong.empty()) continue;
    ++lost;
    EXPECT_THAT(wrong, testing::HasSubstr(where));
  }
  return lost;
}
TEST(LanePowerTest, WithoutTheFlushAcknowledgedRecordsAreLost) {
  for (const FlushOrder order : kOrders)
    EXPECT_EQ(CountLost({.order = order, .read_up = false}, "replica"), 6u);
}
// The head moves past records whose copies are acknowledged, so the copies must be durable too.
TEST(LanePowerTest, WithTheFlushOnDownOnlyExecutedRecordsAreLost) {
  for (const FlushOrder order : kOrders)
    EXPECT_GT(CountLost({.order = order, .calls = 150, .read_local = false}, "replica"), 4u);
}
TEST(LanePowerTest, WithoutPersistingItsStoresThePrimarysOwnCopyIsWorthless) {
  EXPECT_EQ(CountLost({.persist_own = false}, "primary"), 6u);
}

}  // namespace
}  // namespace hyperloop
