#include "ycsb/phases.h"

#include <gtest/gtest.h>
#include <rocksdb/env.h>

#include <chrono>
#include <memory>

namespace hyperloop::ycsb {
namespace {

class PhasesTest : public testing::Test {
 protected:
  static constexpr uint64_t kRecords = 20;

  void SetUp() override {
    rocksdb::Options options;
    options.create_if_missing = true;
    options.env = env_.get();
    rocksdb::DB* db = nullptr;
    const rocksdb::Status opened = rocksdb::DB::Open(options, "/database", &db);
    ASSERT_TRUE(opened.ok()) << opened.ToString();
    db_.reset(db);
    const rocksdb::Status loaded = LoadPhase(*db_, Options(), interrupted_, Ignore, &report_);
    ASSERT_TRUE(loaded.ok()) << loaded.ToString();
  }

  static void Ignore(const char*, uint64_t, uint64_t) {}
  static PhaseOptions Options(double rate = 0) {
    return {.workload = *FindWorkload("c"), .records = kRecords, .operations = 50, .rate = rate};
  }
  rocksdb::Status Run(const PhaseOptions& options, const Progress& progress = Ignore) {
    report_ = {};
    return RunPhase(*db_, options, inserts_, interrupted_, progress, &report_);
  }
  const bench::LatencyHistogram& reads() const {
    return report_.latencies[static_cast<size_t>(OperationType::kRead)];
  }

  const std::unique_ptr<rocksdb::Env> env_{rocksdb::NewMemEnv(rocksdb::Env::Default())};
  std::unique_ptr<rocksdb::DB> db_;
  InsertSequence inserts_{kRecords};
  std::atomic<bool> interrupted_{false};
  PhaseReport report_;
};

TEST_F(PhasesTest, LatencyCountsFromWhenAnOperationWasToBeIssued) {
  ClientThread client(*db_, false, *FindWorkload("c"), inserts_, 1, 1);
  ASSERT_TRUE(client.RunOne(ClientThread::Clock::now() - std::chrono::hours(1)).ok());
  EXPECT_GE(client.latencies()[static_cast<size_t>(OperationType::kRead)].max(),
            3'600'000'000'000u);
}

TEST_F(PhasesTest, NoOperationOfARateIsIssuedBeforeItsTime) {
  ASSERT_TRUE(Run(Options(1000)).ok());
  EXPECT_EQ(reads().count(), 50u);
  EXPECT_GE(report_.seconds, 49.0 / 1000);
}

// The thread is behind from the first operation on, so each waits for all before it: in sum they
// wait many times as long as the run takes, which in a closed loop one thread's cannot.
TEST_F(PhasesTest, WhatARateAsksBeyondThatWhichIsDoneIsWaiting) {
  PhaseOptions options = Options(1e9);
  options.operations = 5000;
  ASSERT_TRUE(Run(options).ok());
  EXPECT_GT(reads().mean() * static_cast<double>(reads().count()), report_.seconds * 1e9);
  options.rate = 0;
  ASSERT_TRUE(Run(options).ok());
  EXPECT_LE(reads().mean() * static_cast<double>(reads().count()), report_.seconds * 1e9);
}

TEST_F(PhasesTest, AThreadThatWaitsForItsTimeSeesThatTheRunEnds) {
  const rocksdb::Status interrupted =
      Run(Options(1e-6), [this](const char*, uint64_t, uint64_t) { interrupted_ = true; });
  EXPECT_TRUE(interrupted.IsAborted()) << interrupted.ToString();
  interrupted_ = false;
  PhaseOptions options = Options(1e-6);
  options.max_seconds = 0.01;
  EXPECT_TRUE(Run(options).ok());
  EXPECT_LE(reads().count(), 1u);
}

}  // namespace
}  // namespace hyperloop::ycsb
