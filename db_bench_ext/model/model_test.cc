// Tests what must hold of groups under the clock of a model, and the processors of loaded replicas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/costs.h"
#include "model/processor.h"
#include "model/workload.h"
#include "support/must.h"
#include "support/status_matchers.h"

namespace hyperloop::model {
namespace {

using testing::HasSubstr;

constexpr Primitive kPrimitives[] = {Primitive::kWrite, Primitive::kMemCopy,
                                     Primitive::kCompareAndSwap, Primitive::kFlush};
constexpr Datapath kDatapaths[] = {Datapath::kOffload, Datapath::kFanout, Datapath::kCpuPolling,
                                   Datapath::kCpuEvent};

CaseResult Measure(Case c, const Costs& costs = {}) {
  if (c.operations == Case().operations) c.operations = 40;
  return Must(RunCase(c, costs));
}

Costs Free() {
  Costs costs;
  for (const CostInfo& cost : CostTable())
    if (std::string(cost.name).ends_with("_ns")) costs.*cost.value = 0;
  costs.link_gbps = costs.pcie_gbps = costs.copy_gbps = 1e9;
  return costs;
}

// How often the way from the submission to the acknowledgement crosses the wire.
double Crossings(const Case& c) {
  Costs costs = Free();
  costs.hop_ns = 1000;
  return Measure(c, costs).p50_us;  // now and then a CPU's chain flushes unasked
}

// Time passes only where the costs say so, and only the wire costs anything here. A hop that waits
// for the one before it to be durable crosses the wire twice more for it; with proofs the chain
// goes on, and the last one is on its way when the last replica has it.
TEST(Model, TheWireIsCrossedAsOftenAsTheDatapathSays) {
  for (uint32_t n = 2; n <= 7; ++n) {
    Case c{.flush = true, .replicas = n};
    EXPECT_DOUBLE_EQ(Crossings(c), n + 2) << n;
    c.order = FlushOrder::kHopByHop;
    EXPECT_DOUBLE_EQ(Crossings(c), 3 * n + 1) << n;
    c.datapath = Datapath::kFanout;
    EXPECT_DOUBLE_EQ(Crossings(c), 2) << n;
    for (const Datapath by_cpu : {Datapath::kCpuPolling, Datapath::kCpuEvent}) {
      c.datapath = by_cpu;
      EXPECT_DOUBLE_EQ(Crossings(c), n + 1) << n;
    }
  }
}

// How many reads of host memory the same way has, one after another.
double PcieReads(const Case& c) {
  Costs costs = Free();
  costs.pcie_read_ns = 1000;
  return Measure(c, costs).p50_us;
}

// With fanout the WQEs, the payload, and what the READ brings; by CPUs the first two at each node,
// and at the last one a WQE whose payload is inline. A replica's RNIC reads a stage's WQEs after
// what has enabled them, twice, and its own answer and the next hop's payload.
TEST(Model, MemoryIsReadWhereHardwareMust) {
  for (uint32_t n = 2; n <= 7; ++n) {
    const Case c{.flush = true, .replicas = n};
    Case other = c;
    other.datapath = Datapath::kFanout;
    EXPECT_DOUBLE_EQ(PcieReads(other), 3) << n;
    other.datapath = Datapath::kCpuPolling;
    EXPECT_DOUBLE_EQ(PcieReads(other), 2 * n + 1) << n;
    other = c;
    --other.replicas;
    if (n == 2) continue;
    EXPECT_GE(PcieReads(c) - PcieReads(other), 4) << n;
  }
}

TEST(Model, WithoutCostsNothingTakesTime) {
  for (const Datapath datapath : kDatapaths)
    for (const Primitive primitive : kPrimitives)
      EXPECT_EQ(Measure({.primitive = primitive, .datapath = datapath}, Free()).max_us, 0);
}

// Every cost of what an operation passes through on idle machines makes it slower.
TEST(Model, EveryCostCounts) {
  for (const CostInfo& cost : CostTable()) {
    const std::string name = cost.name;
    if (name.ends_with("_us") || name == "units") continue;  // of loaded machines; of windows
    SCOPED_TRACE(name);
    Costs costs;
    // The slower one of the two rates decides.
    const bool rate = name.ends_with("_gbps") || name == "mtu_bytes";
    costs.*cost.value *= rate ? 0.1 : 10;
    const Primitive primitive = name == "copy_gbps" ? Primitive::kMemCopy : Primitive::kWrite;
    const Case c{.primitive = primitive, .datapath = Datapath::kCpuEvent, .size = 4096};
    EXPECT_GT(Measure(c, costs).p50_us, Measure(c).p50_us);
  }
}

TEST(Model, LatencyGrowsLinearlyWithTheGroup) {
  for (const Primitive primitive : kPrimitives) {
    double latency[3];
    for (uint32_t i = 0; i < 3; ++i)
      latency[i] = Measure({.primitive = primitive, .replicas = 3 + 2 * i}).p50_us;
    const double first = latency[1] - latency[0], second = latency[2] - latency[1];
    EXPECT_GT(first, 0);
    EXPECT_NEAR(second / first, 1, 0.1) << PrimitiveName(primitive);
  }
}

TEST(Model, PipelinedFlushesAreFasterThanHopByHop) {
  for (uint32_t n = 2; n <= 7; ++n) {
    Case c{.flush = true, .replicas = n};
    const double pipelined = Measure(c).p50_us;
    c.order = FlushOrder::kHopByHop;
    EXPECT_LT(pipelined, Measure(c).p50_us) << n;
  }
}

// The link is full, and not more than full.
TEST(Model, LargeMessagesAreBoundByTheLink) {
  const Case c{.size = 64 << 10, .window = 32, .operations = 400};
  const double gbps = Measure(c).operations_per_second * static_cast<double>(c.size) * 8e-9;
  EXPECT_LE(gbps, Costs().pcie_gbps);
  EXPECT_GE(gbps, 0.9 * Costs().pcie_gbps);
}

// A fanout's three queues, of which each has a WQE an operation, share the units.
TEST(Model, UnitsServeOneWqeAtATime) {
  const Case c{.datapath = Datapath::kFanout, .window = 32, .operations = 400};
  Costs costs = Free();
  costs.wqe_ns = 1000;
  for (const double units : {1, 2, 3}) {
    costs.units = units;
    EXPECT_NEAR(Measure(c, costs).operations_per_second, 1e6 * units / 3, 1e4) << units;
  }
}

TEST(Model, LoadConcernsTheProcessorsAlone) {
  for (const Datapath datapath : kDatapaths) {
    Case c{.datapath = datapath, .operations = 200};
    const CaseResult idle = Measure(c);
    c.load = 10;
    const CaseResult loaded = Measure(c);
    const bool by_cpu = datapath == Datapath::kCpuPolling || datapath == Datapath::kCpuEvent;
    EXPECT_EQ(loaded.max_us > 10 * idle.max_us, by_cpu) << DatapathName(datapath);
    if (!by_cpu) {
      EXPECT_EQ(loaded.max_us, idle.max_us) << DatapathName(datapath);
    }
  }
}

TEST(Model, ASeedDecidesWhatALoadDoes) {
  const auto latency = [](uint64_t seed) {
    return Measure({.datapath = Datapath::kCpuPolling, .load = 10, .operations = 100, .seed = seed})
        .mean_us;
  };
  EXPECT_EQ(latency(1), latency(1));
  EXPECT_NE(latency(1), latency(100));
}

// --- processors

constexpr Nanoseconds kMs = 1'000'000, kStart = 1000 * kMs;

TEST(Processor, AnIdleOneServesAtOnceOrWakesUp) {
  Processor polls({}, 0, true, 1, kStart);
  EXPECT_EQ(polls.Begins(kStart), kStart);
  Processor sleeps({}, 0, false, 1, kStart);
  EXPECT_EQ(sleeps.Begins(kStart), kStart + 5000);
  EXPECT_EQ(sleeps.Begins(kStart + 5100), kStart + 5100);  // it is awake
  sleeps.Rests(kStart + 6000);
  EXPECT_EQ(sleeps.Begins(kStart + 7000), kStart + 12'000);
}

// What a thread gets that always has something to do.
TEST(Processor, APollingThreadGetsItsShare) {
  Processor processor({.yield_us = 0}, 10, true, 1, kStart);
  Nanoseconds now = kStart, got = 0;
  while (now < kStart + 10'000 * kMs) {
    const Nanoseconds begins = processor.Begins(now);
    now = begins + 10'000;
    processor.Works(now);
    got += now - begins;
  }
  EXPECT_NEAR(static_cast<double>(got) / static_cast<double>(now - kStart), 1.0 / 11, 0.005);
}

// It polls in vain for 50 us, and then another thread has its slice.
TEST(Processor, AYieldingThreadComesBackAfterASlice) {
  Processor processor({}, 10, true, 1, kStart);
  Nanoseconds now = processor.Begins(kStart + 100 * kMs);
  for (int i = 0; i < 100; ++i) {
    const Nanoseconds wanted = now + 60'000;
    const Nanoseconds begins = processor.Begins(wanted);
    EXPECT_GE(begins, now + 50'000 + 3 * kMs);
    EXPECT_LE(begins, now + 50'000 + 7 * kMs);
    now = begins;
  }
  EXPECT_EQ(processor.Begins(now + 40'000), now + 40'000);
}

// One that slept long goes before threads that compute. One that has had its share waits.
TEST(Processor, AThreadThatSleptRunsAtOnce) {
  Processor processor({}, 10, false, 1, kStart);
  EXPECT_EQ(processor.Begins(kStart + 1000 * kMs), kStart + 1000 * kMs + 5000);
  processor.Works(kStart + 1020 * kMs);
  processor.Rests(kStart + 1020 * kMs);
  EXPECT_GT(processor.Begins(kStart + 1021 * kMs), kStart + 1022 * kMs);
}

// --- costs

TEST(Costs, AreSetByName) {
  Costs costs;
  EXPECT_OK(SetCost("hop_ns=12.5", &costs));
  EXPECT_EQ(costs.hop_ns, 12.5);
  for (const char* wrong : {"hop_ns", "hop_ns=", "hop_ns=x", "hop_ns=1x", "hop_ns=-1", "hop_ns=nan",
                            "hop_ns=inf", "hop_ns=1e10", "link_gbps=0", "units=0", "slice_us=0"})
    EXPECT_THAT(SetCost(wrong, &costs), StatusIs(Code::kInvalidArgument, HasSubstr(wrong)));
  EXPECT_THAT(SetCost("hops=1", &costs),
              StatusIs(Code::kInvalidArgument, HasSubstr("'hops' is no cost")));
  EXPECT_EQ(costs.hop_ns, 12.5);
}

}  // namespace
}  // namespace hyperloop::model
