#include "verdicts.h"

#include <future>
#include <thread>

#include "gtest/gtest.h"

namespace hyperloop::plugin {
namespace {

using rocksdb::IOStatus;

IOStatus Retryable() {
  IOStatus error = IOStatus::IOError("the group does not answer");
  error.SetRetryable(true);
  return error;
}

class VerdictsTest : public ::testing::Test {
 protected:
  bool MayResume() { return verdicts_.WaitFor(Retryable()).GetRetryable(); }

  std::shared_ptr<Decisions> decisions_ = std::make_shared<Decisions>();
  Verdicts verdicts_{decisions_, std::chrono::hours(1)};
};

TEST_F(VerdictsTest, ALogAndTheManifestMustNotBothFail) {
  EXPECT_FALSE(verdicts_.NoteLogFailed());
  EXPECT_TRUE(MayResume());
  EXPECT_TRUE(verdicts_.NoteManifestFailed());
  EXPECT_FALSE(MayResume());
}

TEST_F(VerdictsTest, OneFailureAfterAnotherIsHealedByWhatFollows) {
  EXPECT_FALSE(verdicts_.NoteManifestFailed());
  EXPECT_TRUE(verdicts_.manifest_failed());
  verdicts_.NoteManifestWritten();
  EXPECT_FALSE(verdicts_.NoteLogFailed());
  verdicts_.NoteLogMade();
  EXPECT_FALSE(verdicts_.NoteManifestFailed());
  EXPECT_TRUE(verdicts_.NoteLogFailed()) << "the caller decides whether it must be reopened";
  EXPECT_TRUE(MayResume());
}

TEST_F(VerdictsTest, NoErrorIsRetryableOnceItMustBeReopened) {
  IOStatus full = IOStatus::NoSpace("the data area is full");
  EXPECT_TRUE(verdicts_.WaitFor(full).IsNoSpace());
  verdicts_.MustReopen();
  EXPECT_FALSE(MayResume());
  full = verdicts_.WaitFor(full);
  EXPECT_TRUE(full.IsIOError());
  EXPECT_FALSE(full.GetRetryable());
  EXPECT_TRUE(verdicts_.WaitFor(IOStatus::Corruption("damaged")).IsCorruption());
}

// Of two changes that fail together, one may find that the database must be reopened.
TEST_F(VerdictsTest, ARetryableErrorWaitsForTheChangesInFlight) {
  Verdicts::InFlight other(verdicts_);
  std::promise<void> asks;
  std::future<IOStatus> told = std::async(std::launch::async, [&] {
    asks.set_value();
    return verdicts_.WaitFor(Retryable());
  });
  asks.get_future().wait();
  verdicts_.MustReopen();
  other.Decided();
  EXPECT_FALSE(told.get().GetRetryable());
}

TEST_F(VerdictsTest, AFailedSyncOfAnOlderLogIsToldByTheNextCallOfTheSameThread) {
  verdicts_.NoteAppended(7);
  EXPECT_TRUE(verdicts_.IsToldByAnother(6));
  EXPECT_FALSE(verdicts_.IsToldByAnother(7));
  bool other_thread = true;
  std::thread([&] { other_thread = verdicts_.IsToldByAnother(6); }).join();
  EXPECT_FALSE(other_thread);
}

}  // namespace
}  // namespace hyperloop::plugin
