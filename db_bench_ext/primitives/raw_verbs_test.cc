// Round trips of verbs between two hosts of one software RNIC in this process.
#include "primitives/raw_verbs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "primitives/report.h"
#include "softrnic/embedded/embedded.h"
#include "support/status_matchers.h"

namespace hyperloop::bench {
namespace {

using ::testing::HasSubstr;

constexpr Verb kVerbs[] = {Verb::kWrite, Verb::kSend, Verb::kWriteImm, Verb::kRead,
                           Verb::kReadMemory};

class RawVerbsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    client_ = Open("client");
    server_ = Open("server");
    ASSERT_OK(rnic_.StartThread({.spin_us = 0}));
  }
  void TearDown() override { rnic_.StopThread(); }
  std::unique_ptr<rnic::Device> Open(const std::string& host) {
    Result<std::unique_ptr<rnic::Device>> device = rnic_.OpenDevice(host);
    EXPECT_OK(device);
    return std::move(*device);
  }

  Result<Measurement> Run(const RawCase& load) {
    HL_ASSIGN_OR_RETURN(const auto verbs,
                        RawVerbs::Create(*client_, *server_, load, interrupted_, {}));
    HL_RETURN_IF_ERROR(verbs->Prepare());
    before_ = Counters();
    HL_ASSIGN_OR_RETURN(const Measurement measured, verbs->Run());
    after_ = Counters();
    return measured;
  }
  // Of both hosts together, in the measured part.
  uint64_t Counted(const std::string& name) { return after_[name] - before_[name]; }
  rnic::Counters Counters() {
    rnic::Counters sum;
    for (rnic::Device* device : {client_.get(), server_.get()}) {
      const Result<rnic::Counters> counters = device->QueryCounters();
      EXPECT_OK(counters);
      for (const auto& [name, value] : *counters) sum[name] += value;
    }
    return sum;
  }
  static RawCase Small(Verb verb) {
    RawCase load;
    load.verb = verb;
    load.number = 30;
    load.warmup = 5;
    return load;
  }

  softrnic::EmbeddedRnic rnic_;
  std::unique_ptr<rnic::Device> client_, server_;
  std::atomic<bool> interrupted_{false};
  rnic::Counters before_, after_;
};

TEST_F(RawVerbsTest, EveryVerbBringsItsBytesInEveryWayOfPosting) {
  for (const Verb verb : kVerbs) {
    for (const uint32_t size : {1u, 64u, 500u}) {
      for (const bool inlined : {false, true}) {
        for (const uint32_t requests : {1u, 5u}) {
          RawCase load = Small(verb);
          load.size = size;
          load.inline_data = inlined;
          load.requests = requests;
          load.signal_every = requests == 1 ? 1 : 7;
          load.chained = inlined;
          const Result<Measurement> measured = Run(load);
          ASSERT_OK(measured) << VerbName(verb);
          EXPECT_EQ(measured->latency.count(), load.number);
        }
      }
    }
  }
}

TEST_F(RawVerbsTest, LargeRequestsAndManyOfThem) {
  for (const Verb verb : kVerbs) {
    RawCase load = Small(verb);
    load.size = 1 << 20;
    load.number = 5;
    load.warmup = 1;
    EXPECT_OK(Run(load));
    load = Small(verb);
    load.requests = 300;
    load.number = 10;
    const Result<Measurement> measured = Run(load);
    EXPECT_OK(measured) << VerbName(verb);
  }
}

TEST_F(RawVerbsTest, ADoorbellForEachCallAndACompletionForEachSignal) {
  RawCase load = Small(Verb::kWrite);
  load.requests = 4;
  ASSERT_OK(Run(load));
  EXPECT_EQ(Counted("writes"), 240u);  // 30 round trips, 4 each way
  EXPECT_GE(Counted("doorbells"), 60u);
  EXPECT_LE(Counted("doorbells"), 240u) << "the RNIC may see several as one";
  EXPECT_EQ(Counted("cqes"), 240u);
  load.chained = true;
  load.signal_every = 8;
  ASSERT_OK(Run(load));
  EXPECT_EQ(Counted("writes"), 240u);
  EXPECT_EQ(Counted("doorbells"), 60u);
  // One in eight; where the eighth lies depends on the warm-up.
  EXPECT_GE(Counted("cqes"), 28u);
  EXPECT_LE(Counted("cqes"), 32u);
}

TEST_F(RawVerbsTest, WhatEachVerbIsMadeOf) {
  ASSERT_OK(Run(Small(Verb::kSend)));
  EXPECT_EQ(Counted("sends"), 60u);
  EXPECT_EQ(Counted("cqes"), 120u) << "a send and a receive each way";
  ASSERT_OK(Run(Small(Verb::kWriteImm)));
  EXPECT_EQ(Counted("writes"), 60u);
  EXPECT_EQ(Counted("cqes"), 120u);
  ASSERT_OK(Run(Small(Verb::kRead)));
  EXPECT_EQ(Counted("writes"), 30u);
  EXPECT_EQ(Counted("reads"), 30u);
}

TEST_F(RawVerbsTest, SleepingForCompletionsMissesNone) {
  for (const Verb verb : {Verb::kSend, Verb::kWriteImm, Verb::kRead}) {
    for (const uint32_t requests : {1u, 6u}) {
      RawCase load = Small(verb);
      load.wait = WaitMode::kEvent;
      load.requests = requests;
      const Result<Measurement> measured = Run(load);
      ASSERT_OK(measured) << VerbName(verb);
      EXPECT_EQ(measured->latency.count(), load.number);
    }
  }
}

TEST_F(RawVerbsTest, CombinationsThatDoNotExistAreRefused) {
  const auto refusal = [this](const RawCase& load) {
    const Status status = Run(load).status();
    EXPECT_THAT(status, StatusIs(Code::kInvalidArgument));
    return status.message();
  };
  RawCase load = Small(Verb::kWrite);
  load.wait = WaitMode::kEvent;
  EXPECT_THAT(refusal(load), HasSubstr("--use_notify"));
  load = Small(Verb::kSend);
  load.inline_data = true;
  load.size = client_->caps().max_inline + 1;
  EXPECT_THAT(refusal(load), HasSubstr("--inline carries at most"));
  load = Small(Verb::kSend);
  load.signal_every = 1 << 20;
  EXPECT_THAT(refusal(load), HasSubstr("--signal_every"));
  load = Small(Verb::kSend);
  load.size = 0;
  EXPECT_THAT(refusal(load), HasSubstr("--size"));
  EXPECT_THAT(ParseVerb("atomic").status().message(), HasSubstr("write-imm"));
  for (const Verb verb : kVerbs) EXPECT_EQ(ParseVerb(VerbName(verb)).value(), verb);
}

TEST_F(RawVerbsTest, AnInterruptAndTheTimeLimitEndARun) {
  RawCase load = Small(Verb::kWrite);
  load.number = uint64_t{1} << 40;
  load.max_seconds = 0.05;
  const Result<Measurement> measured = Run(load);
  ASSERT_OK(measured);
  EXPECT_GE(measured->seconds, 0.05);
  interrupted_ = true;
  EXPECT_THAT(Run(load).status(), StatusIs(Code::kAborted));
}

TEST(RawReportTest, JsonSaysHowTheRequestsWerePosted) {
  RawReport report;
  report.load.verb = Verb::kWriteImm;
  report.load.requests = 2;
  report.load.chained = true;
  report.load.inline_data = true;
  report.load.signal_every = 16;
  report.measured.latency.Record(2000);
  report.measured.seconds = 1;
  report.around.hosts = {{"client", {{"doorbells", 1}, {"cqes", 2}}},
                         {"server", {{"doorbells", 1}, {"cqes", 3}}}};
  const nlohmann::json json = nlohmann::json::parse(ToJson(report));
  EXPECT_EQ(json["primitive"], "verb-write-imm");
  EXPECT_EQ(json["datapath"], "none");
  EXPECT_EQ(json["inline"], true);
  EXPECT_EQ(json["chained"], true);
  EXPECT_EQ(json["requests"], 2);
  EXPECT_EQ(json["signal_every"], 16);
  EXPECT_EQ(json["doorbells_per_operation"], 2.0);
  EXPECT_EQ(json["cqes_per_operation"], 5.0);
  EXPECT_EQ(json["histogram"].size(), 1u);
}

}  // namespace
}  // namespace hyperloop::bench
