// A group whose nodes each have an RNIC of their own, over links that are slow and reset at random:
// every acknowledged operation is on every node, and each CAS ran once.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "group/chain_fixture.h"
#include "softrnic/links/memory_network.h"

namespace hyperloop {
namespace {

using softrnic::EmbeddedRnic;
using softrnic::MemoryNetwork;

constexpr uint32_t kReplicas = 3;

// One RNIC for each host, and a link from each to each other.
class Machines {
 public:
  Machines() {
    for (uint32_t i = 0; i < kReplicas; ++i) names_.push_back("replica" + std::to_string(i));
    names_.push_back("primary");
    for (size_t i = 0; i < names_.size(); ++i) {
      rnics_.push_back(std::make_unique<EmbeddedRnic>(softrnic::EngineOptions{.seed = i + 1}));
      ports_.push_back(network.AddPort());
      rnics_[i]->engine().AttachPort(ports_[i]);
    }
    for (size_t from = 0; from < names_.size(); ++from) {
      for (size_t to = 0; to < names_.size(); ++to) {
        if (from == to) continue;
        auto& link = network.Connect(ports_[from], ports_[to]);
        EXPECT_TRUE(rnics_[from]->engine().AddPeer(names_[to], link.id).ok());
      }
    }
  }
  Result<std::unique_ptr<rnic::Device>> Open(const std::string& host) {
    for (size_t i = 0; i < names_.size(); ++i)
      if (names_[i] == host) return rnics_[i]->OpenDevice(host);
    return NotFound(host);
  }
  void Step(std::mt19937_64& random, bool resets) {
    for (auto& rnic : rnics_) rnic->engine().Run(1 + random() % 64);
    for (auto& link : network.links()) {
      network.Deliver(*link, true, random() % 2000);
      network.Deliver(*link, false, random() % 2000);
      if (!link->up) network.Open(*link);
      if (!resets || link->under_way() == 0 || random() % 20 != 0) continue;
      network.Reset(*link);
    }
  }
  uint64_t resets() const {
    uint64_t sum = 0;
    for (auto& link : const_cast<MemoryNetwork&>(network).links()) sum += link->resets;
    return sum;
  }

  MemoryNetwork network;

 private:
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<EmbeddedRnic>> rnics_;
  std::vector<MemoryNetwork::Port*> ports_;
};

void RunGroup(uint64_t seed, bool resets) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  Machines machines;
  ChainOptions options;
  options.group_size = kReplicas;
  options.window = 4;
  options.open_device = [&](const std::string& host) { return machines.Open(host); };
  options.step = [&](softrnic::Engine&) { machines.Step(random, resets); };
  options.ack_timeout = std::chrono::seconds(60);
  auto made = Chain::Create(options);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  Chain& chain = **made;
  Group& group = chain.group();
  // A counter that each replica raises by compare and swap; a repeated one would find another
  // value.
  for (uint64_t n = 0; n < 60; ++n) {
    const uint64_t at = 64 + n * 512;
    for (uint64_t i = 0; i < 500; ++i)
      chain.primary_bytes()[at + i] = static_cast<std::byte>(random());
    ASSERT_TRUE(group.Write(at, 500, n % 3 == 0).ok());
    ASSERT_TRUE(group.MemCopy(at, 40'000 + n * 64, 64, true).ok());
    const auto cas = group.CompareAndSwap(0, n, n + 1, (1u << kReplicas) - 1);
    ASSERT_TRUE(cas.ok()) << cas.status().ToString();
    OperationResult result;
    const Status done = group.Wait(*cas, &result);
    ASSERT_TRUE(done.ok()) << done.ToString();
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
  EXPECT_TRUE(!resets || machines.resets() > 10) << machines.resets();
}

TEST(GroupLink, AGroupSpansMachines) { RunGroup(1, false); }

TEST(GroupLink, ResetsLoseNothingAndRepeatNothing) {
  for (uint64_t seed = 1; seed <= 5 && !HasFailure(); ++seed) RunGroup(seed, true);
}

}  // namespace
}  // namespace hyperloop
