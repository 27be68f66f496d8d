// Two hosts in two engines and a network in memory between them, for tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "softrnic/engine/testing/engine_test_util.h"
#include "softrnic/engine/testing/memory_network.h"
#include "support/status_matchers.h"

namespace hyperloop::softrnic {

// Host a in one engine and host b in another. Each has a queue pair, and the two are connected.
struct Linked {
  explicit Linked(EngineOptions options = {}, const QpSpec& a_spec = {}, const QpSpec& b_spec = {},
                  rnic::Media b_media = rnic::Media::kRam)
      : a_engine(Clocked(options)), b_engine(Clocked(options)) {
    a_engine.AttachPort(a_port);
    b_engine.AttachPort(b_port);
    EXPECT_OK(a_engine.AddRoute("b", ab.id));
    EXPECT_OK(b_engine.AddRoute("a", ba.id));
    a = std::make_unique<Client>(a_engine, "a");
    b = std::make_unique<Client>(b_engine, "b", b_media, nullptr, 0, -1, /*waits_for_disk=*/true);
    a_cq = a->Cq(10), a_recv = a->Cq(), b_cq = b->Cq(), b_recv = b->Cq(10);
    a_qp = a->Qp(a_cq, a_recv, a_spec);
    b_qp = b->Qp(b_cq, b_recv, b_spec);
    a->Connect(a_qp, b_qp);
    b->Connect(b_qp, a_qp);
    src = a->Allocate(kBytes), back = a->Allocate(kBytes), dst = b->Allocate(kBytes);
    for (size_t i = 0; i < kBytes; ++i) src[i] = static_cast<std::byte>(i * 7 + i / 251 + 1);
  }
  static constexpr size_t kBytes = 300'000;

  EngineOptions Clocked(EngineOptions options) {
    options.now_ns = [this] { return now; };
    return options;
  }
  bool StepEngines() {
    bool any = false;
    for (int i = 0; i < 1000 && a_engine.Run(100) + b_engine.Run(100) != 0; ++i) any = true;
    return any;
  }
  // Runs until nothing moves any more; the clock stands still.
  void Run() {
    for (int i = 0; i < 10'000; ++i) {
      const bool ran = StepEngines();
      if (network.DeliverAll() == 0 && !ran) return;
    }
    FAIL() << "the engines do not come to rest";
  }
  // Lets `ms` milliseconds pass, one by one.
  void Pass(uint64_t ms) {
    for (; ms > 0; --ms) {
      now += 1'000'000;
      StepEngines();
      network.DeliverAll();
      StepEngines();
    }
  }
  uint64_t& Word(std::byte* at) { return *reinterpret_cast<uint64_t*>(at); }
  uint64_t Dst(size_t offset = 0) const { return reinterpret_cast<uint64_t>(dst + offset); }

  uint64_t now = 1'000'000'000;
  MemoryNetwork network;
  MemoryNetwork::Port* a_port = network.AddPort();
  MemoryNetwork::Port* b_port = network.AddPort();
  MemoryNetwork::Link& ab = network.Connect(a_port, b_port);
  MemoryNetwork::Link& ba = network.Connect(b_port, a_port);
  Engine a_engine, b_engine;
  std::unique_ptr<Client> a, b;
  TestCq a_cq, a_recv, b_cq, b_recv;
  TestQp a_qp, b_qp;
  std::byte *src, *back, *dst;
};

inline void ExpectAllGood(const std::vector<rnic::Completion>& completions, size_t count) {
  ASSERT_EQ(completions.size(), count);
  for (const auto& each : completions) EXPECT_EQ(each.status, rnic::WcStatus::kSuccess);
}

}  // namespace hyperloop::softrnic
