// Workloads, the ping-pong and the report, on a group in this process.
#include "workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "group/chain_fixture.h"
#include "ping_pong.h"
#include "report.h"

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
    ASSERT_TRUE(chain.ok()) << chain.status().ToString();
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
      ASSERT_TRUE(measured.ok()) << measured.status().ToString();
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
  ASSERT_TRUE(workload.Prepare().ok());
  const uint64_t foreign = 99;
  std::memcpy(ScratchOf(1).data(), &foreign, sizeof foreign);
  const Result<Measurement> measured = workload.Run();
  ASSERT_FALSE(measured.ok());
  EXPECT_THAT(measured.status().message(), HasSubstr("replica 1 held 99 instead of 0"));
}

TEST_F(WorkloadTest, TooLittleScratchIsSaid) {
  Case load;
  load.size = kRegion;
  const Result<Measurement> measured = Run(load);
  EXPECT_EQ(measured.status().code(), Code::kNoSpace);
  EXPECT_THAT(measured.status().message(), HasSubstr("--size"));
}

TEST_F(WorkloadTest, AnInterruptEndsTheRun) {
  interrupted_ = true;
  EXPECT_EQ(Run({}).status().code(), Code::kAborted);
}

TEST_F(WorkloadTest, PingPongMeasuresEveryRoundTrip) {
  const Result<LatencyHistogram> latency = PingPong(*chain_->primary().device, 50, interrupted_);
  ASSERT_TRUE(latency.ok()) << latency.status().ToString();
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
  report.load.number = 2;
  report.replicas = 3;
  report.measured.seconds = 0.5;
  report.measured.latency.Record(1000);
  report.measured.latency.Record(3000);
  report.ping_pong_p50_ns = 500;
  report.daemon_pid = 42;
  report.hosts.push_back(
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
  for (const char* name : {"p50_ns", "p95_ns", "p99_ns", "p999_ns", "window", "size", "replicas"}) {
    EXPECT_TRUE(json.contains(name)) << name;
  }
  EXPECT_EQ(ToJson(report).find('\n'), std::string::npos);
}

}  // namespace
}  // namespace hyperloop::bench
