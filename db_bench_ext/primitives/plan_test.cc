// Tests which cases the command line's lists and the suites make.
#include "primitives/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "support/status_matchers.h"

namespace hyperloop::bench {
namespace {

using ::testing::HasSubstr;

TEST(PlanTest, EveryCombinationIsACase) {
  Choices choices;
  choices.primitives = {"all"};
  choices.sizes = {64, 1024};
  choices.windows = {1, 8, 64};
  choices.replicas = {1, 3};
  choices.datapaths = {"offload", "fanout"};
  const Result<Plan> plan = Combine(choices);
  ASSERT_OK(plan);
  EXPECT_EQ(plan->groups.size(), 2u * 2 * 3);
  for (const GroupPlan& group : plan->groups) {
    for (const Case& load : group.cases) EXPECT_EQ(load.window, group.cases[0].window);
  }
  // gwrite, gmemcpy and append have both sizes, gcas and gflush none.
  EXPECT_EQ(plan->cases(), 4u * (3 * 2 + 2) * 3);
}

TEST(PlanTest, DatapathsAreNamedOrLeftToThePrimaryOrToTheUri) {
  Choices choices;
  EXPECT_EQ(Combine(choices)->groups[0].datapath, std::nullopt);
  choices.datapaths = {"auto", "fanout"};
  const Result<Plan> plan = Combine(choices);
  ASSERT_OK(plan);
  EXPECT_EQ(plan->groups[0].datapath, std::optional<DatapathOption>(DatapathOption{}));
  EXPECT_EQ(plan->groups[1].datapath, std::optional<DatapathOption>(Datapath::kFanout));
}

TEST(PlanTest, WarmUpIsATenthUnlessGiven) {
  Choices choices;
  choices.number = 200;
  EXPECT_EQ(Combine(choices)->groups[0].cases[0].warmup, 20u);
  choices.number = 1'000'000;
  EXPECT_EQ(Combine(choices)->groups[0].cases[0].warmup, 10000u);
  choices.warmup = 0;
  EXPECT_EQ(Combine(choices)->groups[0].cases[0].warmup, 0u);
}

TEST(PlanTest, RawVerbsTakeThePlaceOfPrimitives) {
  Choices choices;
  choices.raw = {"all"};
  choices.inlined = {false, true};
  choices.chained = {false, true};
  choices.signal_every = {1, 16};
  choices.requests = {1, 2, 8};
  const Result<Plan> plan = Combine(choices);
  ASSERT_OK(plan);
  EXPECT_TRUE(plan->groups.empty());
  EXPECT_EQ(plan->raw.size(), 5u * 2 * 2 * 2 * 3);
}

TEST(PlanTest, WhatDoesNotExistIsRefusedByName) {
  const auto refusal = [](const Choices& choices) {
    const Result<Plan> plan = Combine(choices);
    EXPECT_THAT(plan.status(), StatusIs(Code::kInvalidArgument));
    return plan.status().message();
  };
  Choices choices;
  choices.primitives = {"gwrite", "gread"};
  EXPECT_THAT(refusal(choices), HasSubstr("gread"));
  choices = {};
  choices.sizes = {0};
  EXPECT_THAT(refusal(choices), HasSubstr("--size 0"));
  choices = {};
  choices.rates = {1000};
  choices.wait = WaitMode::kEvent;
  EXPECT_THAT(refusal(choices), HasSubstr("--rate"));
  choices = {};
  choices.rates = {1000};
  choices.primitives = {"append"};
  EXPECT_THAT(refusal(choices), HasSubstr("append"));
  choices = {};
  choices.raw = {"multicast"};
  EXPECT_THAT(refusal(choices), HasSubstr("multicast"));
  EXPECT_THAT(Suite({"latency", "speed"}, {}).status().message(), HasSubstr("'speed'"));
  EXPECT_THAT(Suite({"speed"}, {}).status().message(), HasSubstr("windows"));
}

TEST(PlanTest, TheSuiteCoversSizesWindowsGroupsPrimitivesAndVerbs) {
  Choices base;
  base.max_seconds = 0.25;
  base.number = 77;
  const Result<Plan> plan = Suite({"all"}, base);
  ASSERT_OK(plan);
  std::set<uint64_t> sizes;
  std::set<uint32_t> windows, replicas;
  std::set<Primitive> primitives;
  std::set<std::optional<DatapathOption>> datapaths;
  for (const GroupPlan& group : plan->groups) {
    replicas.insert(group.replicas);
    datapaths.insert(group.datapath);
    for (const Case& load : group.cases) {
      primitives.insert(load.primitive);
      windows.insert(load.window);
      if (load.primitive == Primitive::kWrite) sizes.insert(load.size);
      EXPECT_EQ(load.max_seconds, 0.25);
      EXPECT_EQ(load.number, 77u);
    }
  }
  EXPECT_EQ(*sizes.begin(), 64u);
  EXPECT_EQ(*sizes.rbegin(), 1u << 20);
  EXPECT_EQ(*windows.begin(), 1u);
  EXPECT_EQ(*windows.rbegin(), 2000u);
  EXPECT_EQ(replicas, (std::set<uint32_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(primitives.size(), 5u);
  EXPECT_EQ(datapaths.size(), 5u) << "all four, and the default";
  std::set<Verb> verbs;
  bool inlined = false, unsignaled = false, chained = false;
  for (const RawCase& load : plan->raw) {
    verbs.insert(load.verb);
    inlined |= load.inline_data;
    unsignaled |= load.signal_every > 1;
    chained |= load.chained;
  }
  EXPECT_EQ(verbs.size(), 5u);
  EXPECT_TRUE(inlined && unsignaled && chained);
  size_t alone = 0;
  for (const char* name : {"latency", "windows", "groups", "append", "datapaths", "raw"}) {
    alone += Suite({name}, base)->cases();
    EXPECT_THAT(SuiteNames(), HasSubstr(name));
  }
  EXPECT_EQ(alone, plan->cases());
}

TEST(PlanTest, ARegionHoldsEveryOperationInFlight) {
  Case load;
  load.size = 1 << 20;
  load.window = 1000;
  EXPECT_GT(RegionFor({load}), 1000ull << 20);
  EXPECT_LT(RegionFor({load}), 1200ull << 20);
  load.size = 64;
  load.window = 1;
  EXPECT_LE(RegionFor({load}), 128ull << 20);
}

}  // namespace
}  // namespace hyperloop::bench
