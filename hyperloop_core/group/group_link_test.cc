// Tests a group whose nodes each have an RNIC of their own, over links that are slow and reset at
// random. Every acknowledged operation must be on every node, and each CAS must have run once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <random>

#include "group/chain_fixture.h"
#include "softrnic/engine/testing/memory_network.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using softrnic::EmbeddedRnic;
using softrnic::MemoryNetwork;

constexpr uint32_t kReplicas = 3;

// Which machine each host is on: the replicas from 0, and then the primary.
using Placement = std::array<size_t, kReplicas + 1>;
constexpr Placement kApart = {0, 1, 2, 3};

// Each machine has an RNIC, and each RNIC has a link to each other one.
class Machines {
 public:
  // `now_ns`: the clock of the RNICs; null: the system's.
  explicit Machines(const uint64_t* now_ns = nullptr, const Placement& placement = kApart) {
    for (uint32_t i = 0; i < kReplicas; ++i) hosts_["replica" + std::to_string(i)] = placement[i];
    hosts_["primary"] = placement[kReplicas];
    for (size_t i = 0; i <= *std::ranges::max_element(placement); ++i) {
      softrnic::EngineOptions options{.test = {.seed = i + 1}};
      if (now_ns != nullptr) options.now_ns = [now_ns] { return *now_ns; };
      rnics_.push_back(std::make_unique<EmbeddedRnic>(options));
      ports_.push_back(network.AddPort());
      rnics_[i]->engine().AttachPort(ports_[i]);
    }
    for (size_t from = 0; from < rnics_.size(); ++from) {
      for (const auto& [host, to] : hosts_) {
        if (from == to) continue;
        auto& link = network.Connect(ports_[from], ports_[to]);
        EXPECT_OK(rnics_[from]->engine().AddRoute(host, link.id));
      }
    }
  }
  Result<std::unique_ptr<rnic::Device>> Open(const std::string& host) {
    return rnics_[hosts_.at(host)]->OpenDevice(host);
  }
  void Step(std::mt19937_64& random, bool resets) {
    for (auto& rnic : rnics_) rnic->engine().Run(std::min(1 + random() % 64, StepsLeft(*rnic)));
    for (auto& link : network.links()) {
      network.Deliver(*link, true, random() % 2000);
      if (link.get() != unanswered_) network.Deliver(*link, false, random() % 2000);
      if (!link->up) network.Open(*link);
      if (!resets || link->under_way() == 0 || random() % 20 != 0) continue;
      network.Reset(*link);
    }
  }
  // Cuts or heals both links between two machines. The replicas have numbers from 0, and kReplicas
  // is the primary's.
  void SetCut(size_t a, size_t b, bool cut) {
    for (auto& link : network.links())
      if ((link->from == ports_[a] && link->to == ports_[b]) ||
          (link->from == ports_[b] && link->to == ports_[a]))
        link->cut = cut;
  }
  // From now on machine `from` gets no answers to its requests from machine `to`.
  void HoldAnswers(size_t from, size_t to) {
    for (auto& link : network.links())
      if (link->from == ports_[from] && link->to == ports_[to]) unanswered_ = link.get();
  }
  void ReleaseAnswers() { unanswered_ = nullptr; }
  // From now on the primary's machine takes one step a turn, and `steps` in all.
  void SlowDownThePrimary(uint64_t steps) { primary_steps_ = steps; }
  uint64_t resets() const {
    uint64_t sum = 0;
    for (auto& link : const_cast<MemoryNetwork&>(network).links()) sum += link->resets;
    return sum;
  }

  MemoryNetwork network;

 private:
  // How many steps this RNIC may take in this turn.
  uint64_t StepsLeft(const EmbeddedRnic& rnic) {
    if (&rnic != rnics_[hosts_.at("primary")].get() || !primary_steps_) return ~uint64_t{0};
    if (*primary_steps_ == 0) return 0;
    --*primary_steps_;
    return 1;
  }

  std::map<std::string, size_t> hosts_;  // which machine each is on
  std::vector<std::unique_ptr<EmbeddedRnic>> rnics_;
  std::vector<MemoryNetwork::Port*> ports_;
  const MemoryNetwork::Link* unanswered_ = nullptr;
  std::optional<uint64_t> primary_steps_;
};

void RunGroup(uint64_t seed, bool resets, const Placement& placement = kApart) {
  SCOPED_TRACE("seed " + std::to_string(seed) + ", placement " + testing::PrintToString(placement));
  std::mt19937_64 random(seed);
  Machines machines(nullptr, placement);
  ChainOptions options;
  options.group_size = kReplicas;
  options.window = 4;
  options.open_device = [&](const std::string& host) { return machines.Open(host); };
  options.step = [&](softrnic::Engine&) { machines.Step(random, resets); };
  options.ack_timeout = std::chrono::seconds(60);
  auto made = Chain::Create(options);
  ASSERT_OK(made);
  Chain& chain = **made;
  Group& group = chain.group();
  // Each replica raises a counter by compare and swap. A CAS that ran twice would find another
  // value.
  for (uint64_t n = 0; n < 60; ++n) {
    const uint64_t at = 64 + n * 512;
    for (uint64_t i = 0; i < 500; ++i)
      chain.primary_bytes()[at + i] = static_cast<std::byte>(random());
    ASSERT_OK(group.Write(at, 500, n % 3 == 0));
    ASSERT_OK(group.MemCopy(at, 40'000 + n * 64, 64, true));
    const auto cas = group.CompareAndSwap(0, n, n + 1, (1u << kReplicas) - 1);
    ASSERT_OK(cas);
    OperationResult result;
    ASSERT_OK(group.Wait(*cas, &result));
    for (uint32_t i = 0; i < kReplicas; ++i) ASSERT_EQ(result.original[i], n);
  }
  for (uint32_t i = 0; i < kReplicas; ++i) {
    uint64_t counter;
    std::memcpy(&counter, chain.replica_bytes(i).data(), 8);
    EXPECT_EQ(counter, 60u);
    EXPECT_EQ(std::memcmp(chain.replica_bytes(i).data() + 64, chain.primary_bytes().data() + 64,
                          chain.primary_bytes().size() - 64),
              0)
        << "replica " << i;
  }
  EXPECT_TRUE(!resets || machines.resets() > 2) << machines.resets();
}

TEST(GroupLink, AGroupSpansMachines) { RunGroup(1, false); }

// Some hops are within one RNIC, and so are some ways by which the proofs come.
TEST(GroupLink, SomeNodesMayShareAnRnic) {
  for (const Placement& placement : {Placement{0, 0, 0, 1},
                                     {0, 0, 1, 1},
                                     {0, 1, 1, 0},
                                     {0, 1, 0, 1},
                                     {0, 1, 2, 2},
                                     {1, 0, 0, 0}})
    for (uint64_t seed = 1; seed <= 2 && !testing::Test::HasFailure(); ++seed)
      RunGroup(seed, true, placement);
}

TEST(GroupLink, ResetsLoseNothingAndRepeatNothing) {
  for (uint64_t seed = 1; seed <= 5 && !HasFailure(); ++seed) RunGroup(seed, true);
}

// A chain over links whose clock and steps are the test's.
class PipelinedGroup : public testing::Test {
 protected:
  void SetUp() override { Make(std::chrono::seconds(60), 20'000); }
  // `step_ns`: what a turn of a waiting call takes by the clock of the RNICs.
  void Make(std::chrono::nanoseconds ack_timeout, uint64_t step_ns, uint32_t window = 4) {
    ChainOptions options;
    options.group_size = kReplicas;
    options.window = window;
    options.region_size = 16 << 20;
    options.open_device = [this](const std::string& host) { return machines_.Open(host); };
    options.step = [this, step_ns](softrnic::Engine&) { Step(step_ns); };
    options.ack_timeout = ack_timeout;
    options.replica_names = {"a:1", "b:2", "c:3"};
    auto made = Chain::Create(options);
    ASSERT_OK(made);
    chain_ = std::move(*made);
    ASSERT_OK(chain_->group().Wait(Write()));
  }
  void Step(uint64_t ns) {
    now_ += ns;
    machines_.Step(random_, false);
  }
  Ticket Write() {
    const auto ticket = chain_->group().Write(64, 500, /*flush=*/true);
    EXPECT_OK(ticket);
    return ticket.ok() ? *ticket : 0;
  }
  // Hop 0 begins at the primary, hop i at replica i − 1.
  void HoldAnswersOfHop(uint32_t hop) {
    machines_.HoldAnswers((hop + kReplicas) % (kReplicas + 1), hop);
  }

  uint64_t now_ = 1'000'000'000;
  std::mt19937_64 random_{1};
  Machines machines_{&now_};
  std::unique_ptr<Chain> chain_;
};

// The answer to a hop's READ is on its way for ever so long. Everything else arrives, the last
// replica's acknowledgement too.
TEST_F(PipelinedGroup, NothingIsAcknowledgedBeforeEveryHopIsProven) {
  for (uint32_t hop = 0; hop < kReplicas; ++hop) {
    HoldAnswersOfHop(hop);
    const Ticket ticket = Write();
    for (int i = 0; i < 2000; ++i) {
      Step(1000);
      ASSERT_OK(chain_->group().Poll());
    }
    EXPECT_EQ(*chain_->group().Poll(), ticket - 1) << "hop " << hop;
    EXPECT_EQ(std::memcmp(chain_->replica_bytes(kReplicas - 1).data() + 64,
                          chain_->primary_bytes().data() + 64, 500),
              0)
        << "the chain goes on without the answer";
    machines_.ReleaseAnswers();
    ASSERT_OK(chain_->group().Wait(ticket));
  }
}

// A hop forwards operations while the answers to earlier ones are on their way, as many as a queue
// pair may have READs without an answer.
TEST_F(PipelinedGroup, AHopForwardsWhileManyAnswersAreUnderWay) {
  const uint32_t limit = rnic::QpAttr().max_read_atomic;
  for (uint32_t hop = 0; hop < kReplicas; ++hop) {
    chain_.reset();
    Make(std::chrono::seconds(60), 20'000, 2 * limit);
    HoldAnswersOfHop(hop);
    for (uint64_t i = 0; i < 2 * limit; ++i) {
      chain_->primary_bytes()[1024 + 64 * i] = std::byte{1};
      ASSERT_OK(chain_->group().Write(1024 + 64 * i, 64, /*flush=*/true));
    }
    for (int i = 0; i < 2000; ++i) Step(1000);
    uint32_t arrived = 0;
    for (uint64_t i = 0; i < 2 * limit; ++i)
      arrived += chain_->replica_bytes(kReplicas - 1)[1024 + 64 * i] == std::byte{1};
    EXPECT_GE(arrived, limit) << "hop " << hop;
    EXPECT_EQ(*chain_->group().Poll(), 1u) << "hop " << hop;
    machines_.ReleaseAnswers();
    ASSERT_OK(chain_->group().WaitAll());
  }
}

// Indexes of blocks have 16 bits, and those of CQEs have more. Here a WAIT that was met too early
// would send a proof before its READ is answered.
TEST_F(PipelinedGroup, RunsPastTheWrapOfSixteenBits) {
  for (uint64_t n = 0; n < 70'000; ++n)
    ASSERT_OK(chain_->group().CompareAndSwap(8, n, n + 1, (1u << kReplicas) - 1));
  ASSERT_OK(chain_->group().WaitAll());
  for (uint32_t i = 0; i < kReplicas; ++i) {
    uint64_t counter;
    std::memcpy(&counter, chain_->replica_bytes(i).data() + 8, sizeof(counter));
    EXPECT_EQ(counter, 70'000u);
  }
}

// A replica's RNIC may have to send again what it sent to the primary, as long as it has no answer.
// So the chain goes on without answers for so long only that no slot is used again.
TEST_F(PipelinedGroup, NoSlotIsUsedAgainBeforeThePrimaryAnswered) {
  const uint32_t slots = SlotsFor(4);
  for (uint32_t replica = 0; replica < kReplicas; ++replica) {
    for (uint32_t phase = 0; phase < slots; ++phase) {
      Ticket last = 0;
      do {
        last = Write();
        ASSERT_OK(chain_->group().Wait(last));
      } while (last % slots != phase);
      for (int i = 0; i < 100; ++i) Step(1000);  // all answers arrive
      machines_.HoldAnswers(replica, kReplicas);
      for (int i = 0; i < 3000; ++i) {
        if (i % 16 == 0) {
          const auto taken = chain_->group().TrySubmit({.write = {64, 8}, .copy = {}, .cas = {}});
          ASSERT_TRUE(taken.ok() || taken.status().code() == Code::kBusy)
              << taken.status().ToString();
        }
        Step(1000);
      }
      const auto newest = chain_->group().Poll();
      ASSERT_OK(newest);
      EXPECT_LE(*newest - last, slots - 4) << "replica " << replica << ", phase " << phase;
      machines_.ReleaseAnswers();
      ASSERT_OK(chain_->group().WaitAll());
    }
  }
}

// The clock of the RNICs hardly moves, so that no queue pair gives up before the group does.
TEST_F(PipelinedGroup, ATimeoutNamesTheHopThatIsNotProven) {
  const char* const hints[] = {
      "replica 0 (a:1) does not answer this node, see",
      "replica 1 (b:2) does not answer replica 0 (a:1), or replica 0 does not reach this node",
      "replica 2 (c:3) does not answer replica 1 (b:2), or replica 1 does not reach this node"};
  for (uint32_t hop = 0; hop < kReplicas; ++hop) {
    chain_.reset();
    machines_.ReleaseAnswers();
    Make(std::chrono::milliseconds(100), 1);
    HoldAnswersOfHop(hop);
    EXPECT_THAT(chain_->group().Wait(Write()),
                StatusIs(Code::kTimedOut, testing::HasSubstr(hints[hop])));
  }
}

// A proof arrives nowhere, and nor does the last replica's acknowledgement.
TEST_F(PipelinedGroup, ATimeoutNamesTheReplicaThatDoesNotReachThePrimary) {
  const char* const hints[] = {
      "replica 2 (c:3) does not answer replica 1 (b:2), or replica 1 does not reach this node",
      "replica 2 (c:3), the last one, does not reach this node"};
  for (uint32_t replica = 1; replica < kReplicas; ++replica) {
    chain_.reset();
    Make(std::chrono::milliseconds(100), 1);
    machines_.SetCut(replica, kReplicas, true);
    EXPECT_THAT(chain_->group().Wait(Write()),
                StatusIs(Code::kTimedOut, testing::HasSubstr(hints[replica - 1])));
    machines_.SetCut(replica, kReplicas, false);
  }
}

// All replicas have answered, and this node is slow to copy its own bytes.
TEST_F(PipelinedGroup, ATimeoutSaysThatThisNodesOwnCopyIsNotDone) {
  chain_.reset();
  Make(std::chrono::milliseconds(200), 1);
  machines_.SlowDownThePrimary(300);  // the copy alone takes 512
  const auto copy = chain_->group().MemCopy(0, 8 << 20, 8 << 20, true);
  ASSERT_OK(copy);
  EXPECT_THAT(chain_->group().Wait(*copy),
              StatusIs(Code::kTimedOut, testing::HasSubstr("this node has not done its own copy")));
}

// The READ ends in error, and its CQE meets the WAIT behind which the proof is sent. What is sent
// then proves nothing.
TEST_F(PipelinedGroup, AReadThatFailedProvesNothing) {
  HoldAnswersOfHop(kReplicas - 1);
  Write();
  // The replica waits for rnic::kMaxSilence.
  Status broken;
  for (int i = 0; i < 10'000 && broken.ok(); ++i) {
    Step(1'000'000'000);
    const auto newest = chain_->group().Poll();
    if (newest.ok()) {
      ASSERT_EQ(*newest, 1u);
    }
    broken = chain_->group().status();
  }
  EXPECT_THAT(broken, StatusIs(Code::kUnavailable,
                               testing::HasSubstr("replica 1 (b:2) cannot tell whether operation 2 "
                                                  "is durable on replica 2 (c:3)")));
}

// The cut lasts in the time of the RNICs; the group's own clock hardly moves.
void RunGroupOverACut(Datapath datapath, uint32_t from, uint32_t to) {
  SCOPED_TRACE("datapath " + std::to_string(static_cast<uint32_t>(datapath)) + ", from " +
               std::to_string(from) + " to " + std::to_string(to));
  constexpr uint64_t kStepNs = 10'000'000;
  constexpr uint64_t kCutNs = 50'000'000'000;  // of the 54 s that ack_timeout leaves
  uint64_t now = 1'000'000'000;
  std::mt19937_64 random(from + 1);
  Machines machines(&now);
  std::unique_ptr<Chain> chain;
  const auto step = [&](uint64_t ns) {
    now += ns;
    machines.Step(random, false);
    for (uint32_t i = 0; chain != nullptr && i < kReplicas; ++i) chain->StepCpu(i);
  };
  ChainOptions options;
  options.datapath = datapath;
  options.group_size = kReplicas;
  options.window = 4;
  options.open_device = [&](const std::string& host) { return machines.Open(host); };
  options.step = [&](softrnic::Engine&) { step(20'000); };
  options.ack_timeout = std::chrono::seconds(60);
  auto made = Chain::Create(options);
  ASSERT_OK(made);
  chain = std::move(*made);
  const auto write = [&chain] {
    const auto ticket = chain->group().Write(64, 500, /*flush=*/true);
    EXPECT_OK(ticket);
    return ticket.ok() ? *ticket : 0;
  };
  ASSERT_OK(chain->group().Wait(write()));
  machines.SetCut(from, to, true);
  const Ticket ticket = write();
  for (uint64_t passed = 0; passed < kCutNs; passed += kStepNs) step(kStepNs);
  machines.SetCut(from, to, false);
  ASSERT_OK(chain->group().Wait(ticket));
  EXPECT_OK(chain->group().Wait(write()));
}

TEST(GroupLink, ACutOfAnyHopLastsAsLongAsAckTimeoutAllows) {
  for (const Datapath chained : {Datapath::kOffload, Datapath::kCpuPolling})
    for (uint32_t hop = 0; hop <= kReplicas; ++hop)  // the first from, the last to the primary
      RunGroupOverACut(chained, (hop + kReplicas) % (kReplicas + 1), hop);
  RunGroupOverACut(Datapath::kOffload, 1, kReplicas);  // by which proofs alone come
  for (uint32_t i = 0; i < kReplicas; ++i) RunGroupOverACut(Datapath::kFanout, kReplicas, i);
}

}  // namespace
}  // namespace hyperloop
