// Workloads, the ping-pong and the report, on a group in this process.
#include "primitives/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "group/chain_fixture.h"
#include "primitives/ping_pong.h"
#include "primitives/report.h"
#include "support/status_matchers.h"

namespace hyperloop::bench {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kRegion = 1 << 16;

class WorkloadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ChainOptions options;
    options.region_size = kRegion;
    options.threaded = true;
    options.spin_us = 0;
    Result<std::unique_ptr<Chain>> chain = Chain::Create(options);
    ASSERT_OK(chain);
    chain_ = std::move(*chain);
  }
  Scratch scratch() { return {kRegion / 2, chain_->primary_bytes().subspan(kRegion / 2)}; }
  Result<Measurement> Run(const Case& load) {
    Workload workload(chain_->group(), scratch(), load, interrupted_, {});
    HL_RETURN_IF_ERROR(workload.Prepare());
    return workload.Run();
  }
  std::span<std::byte> ScratchOf(uint32_t replica) {
    return chain_->replica_bytes(replica).subspan(kRegion / 2);
  }
  static uint64_t Word(std::span<std::byte> bytes) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    return word;
  }

  std::unique_ptr<Chain> chain_;
  std::atomic<bool> interrupted_{false};
};

class EventChainTest : public WorkloadTest {
 protected:
  void SetUp() override {
    ChainOptions options;
    options.region_size = kRegion;
    options.threaded = true;
    options.spin_us = 0;
    options.wait = WaitMode::kEvent;
    Result<std::unique_ptr<Chain>> chain = Chain::Create(options);
    ASSERT_OK(chain);
    chain_ = std::move(*chain);
  }
};

class EveryPrimitiveTest : public WorkloadTest, public ::testing::WithParamInterface<Primitive> {};

TEST_P(EveryPrimitiveTest, RunsClosedAndOpenAndMeasuresEveryOperation) {
  for (const uint32_t window : {1u, 8u}) {
    for (const double rate : {0.0, 50000.0}) {
      Case load;
      load.primitive = GetParam();
      load.flush = true;
      load.size = 200;
      load.window = window;
      load.number = 300;
      load.warmup = 20;
      load.rate = rate;
      const Result<Measurement> measured = Run(load);
      ASSERT_OK(measured);
      EXPECT_EQ(measured->latency.count(), load.number);
      EXPECT_GT(measured->latency.min(), 0u);
      EXPECT_GE(measured->latency.max(), measured->latency.Percentile(99));
      // The schedule's length, whatever the machine does: the last operation starts no earlier.
      if (rate > 0) {
        EXPECT_GE(measured->seconds, 299 / rate);
      }
    }
  }
  for (uint32_t i = 0; i < chain_->size(); ++i) {
    if (GetParam() == Primitive::kCas) {  // words differ from the primary's by design
      EXPECT_EQ(Word(ScratchOf(i)), Word(ScratchOf(0)));
      EXPECT_NE(Word(ScratchOf(i)), 0u);
    } else {
      EXPECT_TRUE(std::ranges::equal(ScratchOf(i), scratch().bytes)) << "replica " << i;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, EveryPrimitiveTest,
                         ::testing::Values(Primitive::kWrite, Primitive::kCas, Primitive::kMemCopy,
                                           Primitive::kFlush),
                         [](const auto& test) { return std::string(PrimitiveName(test.param)); });

TEST_F(WorkloadTest, ACasThatFoundAnotherValueIsAnError) {
  Case load;
  load.primitive = Primitive::kCas;
  load.number = 10;
  load.warmup = 0;
  Workload workload(chain_->group(), scratch(), load, interrupted_, {});
  ASSERT_OK(workload.Prepare());
  const uint64_t foreign = 99;
  std::memcpy(ScratchOf(1).data(), &foreign, sizeof foreign);
  const Result<Measurement> measured = workload.Run();
  ASSERT_THAT(measured, StatusIs(Code::kInternal, HasSubstr("replica 1 held 99 instead of 0")));
}

TEST_F(EventChainTest, SleepingForAcknowledgementsMissesNone) {
  for (const Primitive primitive :
       {Primitive::kWrite, Primitive::kCas, Primitive::kMemCopy, Primitive::kFlush}) {
    for (const uint32_t window : {1u, 8u}) {
      Case load;
      load.primitive = primitive;
      load.size = 64;
      load.window = window;
      load.number = 200;
      load.warmup = 10;
      load.wait = WaitMode::kEvent;
      const Result<Measurement> measured = Run(load);
      ASSERT_OK(measured);
      EXPECT_EQ(measured->latency.count(), load.number);
    }
  }
}

TEST_F(WorkloadTest, TheTimeLimitEndsACaseAndCountsWhatWasStarted) {
  Case load;
  load.number = uint64_t{1} << 40;
  load.warmup = 1;
  load.size = 64;
  load.window = 8;
  load.max_seconds = 0.05;
  const Result<Measurement> measured = Run(load);
  ASSERT_OK(measured);
  EXPECT_GT(measured->latency.count(), 0u);
  EXPECT_GE(measured->seconds, 0.05);
}

TEST_F(WorkloadTest, PlacesOfOperationsInFlightNeverOverlap) {
  Case load;
  load.size = 1 << 20;
  load.window = 500;
  EXPECT_EQ(ScratchNeeded(load), 501ull << 20);
  load.size = 64;
  load.window = 4;
  EXPECT_EQ(ScratchNeeded(load), 8u * 64);
}

TEST_F(WorkloadTest, TooLittleScratchIsSaid) {
  Case load;
  load.size = kRegion;
  const Result<Measurement> measured = Run(load);
  EXPECT_THAT(measured.status(), StatusIs(Code::kNoSpace, HasSubstr("--size")));
}

TEST_F(WorkloadTest, AnInterruptEndsTheRun) {
  interrupted_ = true;
  EXPECT_THAT(Run({}).status(), StatusIs(Code::kAborted));
}

TEST_F(WorkloadTest, PingPongMeasuresEveryRoundTrip) {
  const Result<LatencyHistogram> latency = PingPong(*chain_->primary().device, 50, interrupted_);
  ASSERT_OK(latency);
  EXPECT_EQ(latency->count(), 50u);
  EXPECT_GT(latency->min(), 0u);
}

TEST(PrimitiveTest, NamesAreReadBack) {
  EXPECT_EQ(ParsePrimitive("gmemcpy").value(), Primitive::kMemCopy);
  EXPECT_THAT(ParsePrimitive("write").status().message(), HasSubstr("gwrite"));
}

TEST(ReportTest, JsonHasTheAgreedFields) {
  CaseReport report;
  report.load.flush = true;
  report.replicas = 3;
  report.measured.seconds = 0.5;
  report.measured.latency.Record(1000);
  report.measured.latency.Record(3000);
  report.around.ping_pong_p50_ns = 500;
  report.around.daemon_pid = 42;
  report.around.hosts.push_back(
      {"primary", Difference({{"wqes_executed", 10}, {"bytes_sent", 1}, {"qp.3.sends", 1}},
                             {{"wqes_executed", 16}, {"bytes_sent", 2049}, {"qp.3.sends", 9}})});
  const nlohmann::json json = nlohmann::json::parse(ToJson(report));
  EXPECT_EQ(json["primitive"], "gwrite");
  EXPECT_EQ(json["ops_per_second"], 4.0);
  EXPECT_EQ(json["max_ns"], 3000);
  EXPECT_EQ(json["ping_pong_p50_ns"], 500);
  EXPECT_EQ(json["daemon_pid"], 42);
  EXPECT_EQ(json["hosts"][0]["wqes"], 6);
  EXPECT_EQ(json["hosts"][0]["bytes_sent"], 2048);
  EXPECT_FALSE(json["hosts"][0]["counters"].contains("qp.3.sends"));
  EXPECT_EQ(json["wqes_per_operation"], 3.0);
  EXPECT_EQ(json["number"], 2);
  EXPECT_EQ(json["load"], "idle");
  EXPECT_EQ(json["wait"], "poll");
  EXPECT_EQ(json["valid"], true);
  EXPECT_TRUE(json["cpu_seconds"]["noise"].is_null());
  ASSERT_EQ(json["histogram"].size(), 2u);
  EXPECT_LE(json["histogram"][0][0], 1000);
  EXPECT_GE(json["histogram"][0][1], 1000);
  EXPECT_EQ(json["histogram"][1][2], 1);
  for (const char* name : {"p50_ns", "p75_ns", "p9999_ns", "p95_ns", "p99_ns", "p999_ns", "window",
                           "size", "replicas"}) {
    EXPECT_TRUE(json.contains(name)) << name;
  }
  EXPECT_EQ(ToJson(report).find('\n'), std::string::npos);
}

TEST(ReportTest, RearmingIsCountedForEachReplicaAndOperation) {
  CaseReport report;
  for (int i = 0; i < 10; ++i) report.measured.latency.Record(1000);
  report.measured.seconds = 1;
  report.around.hosts = {{"primary", {{"ring_bytes_by_scatter", 99999}, {"doorbells", 10}}},
                         {"replica0", {{"ring_bytes_by_scatter", 1000}, {"enables", 40}}},
                         {"replica1", {{"ring_bytes_by_scatter", 3000}, {"enables", 40}}}};
  const nlohmann::json json = nlohmann::json::parse(ToJson(report));
  EXPECT_EQ(json["rearming"]["ring_bytes_by_scatter"], 200.0);
  EXPECT_EQ(json["rearming"]["enables"], 4.0);
  EXPECT_EQ(json["rearming"]["doorbells"], 0.0) << "the primary's are not a replica's";
}

TEST(ReportTest, ARunInWhichTheRnicCrowdsReplicaThreadsOutIsInvalid) {
  CpuTimes cpu;
  cpu.replicas = {0.02, 0.02, 0.02};
  cpu.replicas_wanted = 1;  // so eleven threads, and the RNIC: a fair share is 1/12, 8.3 %
  cpu.rnic = 0.14;
  cpu.noise = 0.8;
  EXPECT_TRUE(UnfairBecause("cpu-event", cpu, 10, 1).empty()) << "8 % for each of ten workers";
  cpu.rnic = 0.34;
  cpu.noise = 0.6;
  EXPECT_THAT(UnfairBecause("cpu-event", cpu, 10, 1),
              ::testing::ElementsAre(::testing::AllOf(HasSubstr("ran 34.0 %"), HasSubstr("8.3 %"),
                                                      HasSubstr("had 6.0 %"))));
  EXPECT_FALSE(UnfairBecause("cpu-polling", cpu, 10, 1).empty());
  cpu.rnic = 0.08;
  EXPECT_TRUE(UnfairBecause("cpu-polling", cpu, 10, 1).empty()) << "others took the rest";
  cpu.rnic = 0.34;
  EXPECT_TRUE(UnfairBecause("offload", cpu, 10, 1).empty()) << "no replica thread wants anything";
  EXPECT_TRUE(UnfairBecause("fanout", cpu, 10, 1).empty());
}

TEST(ReportTest, SharesAreOfTheProcessorThatIsShared) {
  CaseReport report;
  report.measured.latency.Record(5);
  report.measured.seconds = 2;
  report.around.load = "noise";
  report.around.shared_cpu = 1;
  report.around.cpu.replicas = {0.2, 0.4};
  report.around.cpu.rnic = 0.5;
  report.around.cpu.noise = 0.8;
  report.around.reasons = {"because"};
  const nlohmann::json json = nlohmann::json::parse(ToJson(report));
  EXPECT_EQ(json["load"], "noise");
  EXPECT_EQ(json["cpu_share"]["1"]["rnic"], 0.25);
  EXPECT_DOUBLE_EQ(json["cpu_share"]["1"]["replicas"], 0.3);
  EXPECT_EQ(json["cpu_share"]["1"]["noise"], 0.4);
  EXPECT_EQ(json["valid"], false);
  EXPECT_EQ(json["reasons"][0], "because");
}

}  // namespace
}  // namespace hyperloop::bench
