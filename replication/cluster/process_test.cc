#include "cluster/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "cluster/patience.h"
#include "cluster/process_id.h"
#include "support/eventually.h"
#include "support/status_matchers.h"

namespace hyperloop::cluster {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class ProcessTest : public testing::Test {
 protected:
  static constexpr milliseconds kPatience{50};

  ProcessTest() {
    std::string pattern = testing::TempDir() + "/hyperloop-process-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~ProcessTest() override {
    Terminate(id_, std::chrono::seconds(60)).status().IgnoreError();
    std::filesystem::remove_all(folder_);
  }
  void Run(const std::string& script) {
    SpawnOptions options;
    options.argv = {"/bin/sh", "-c", script};
    options.log = folder_ + "/log";
    options.pid_file = folder_ + "/pid";
    options.die_with_caller = true;
    const Result<ProcessId> id = Spawn(options);
    ASSERT_OK(id);
    id_ = *id;
  }
  Result<std::string> Await() const {
    return AwaitLine(folder_ + "/log", 0, "ready", id_, kPatience);
  }

  std::string folder_;
  ProcessId id_;
};

// As a replica that makes a large pool on a busy machine.
TEST_F(ProcessTest, OneThatWorksIsWaitedForBeyondAllPatience) {
  const std::string go = folder_ + "/go";
  ASSERT_NO_FATAL_FAILURE(Run("until [ -e " + go + " ]; do :; done; echo ready 7"));
  auto line = std::async(std::launch::async, [&] { return Await(); });
  EXPECT_EQ(line.wait_for(20 * kPatience), std::future_status::timeout);
  std::ofstream(go).put('x');
  EXPECT_THAT(line.get(), IsOkAndHolds("ready 7"));
}

// As one that somebody looks at with a debugger. Whoever stopped it lets it go on.
TEST_F(ProcessTest, OneThatIsStoppedIsWaitedForBeyondAllPatience) {
  ASSERT_NO_FATAL_FAILURE(Run("kill -STOP $$; echo ready 7"));
  ASSERT_TRUE(test::Eventually([&] { return StateOf(id_) == ProcessState::kStopped; }));
  auto line = std::async(std::launch::async, [&] { return Await(); });
  EXPECT_EQ(line.wait_for(20 * kPatience), std::future_status::timeout);
  ASSERT_OK(Signal(id_, SIGCONT));
  EXPECT_THAT(line.get(), IsOkAndHolds("ready 7"));
}

// As a replica on a busy machine that brings its pool to the disk.
TEST_F(ProcessTest, OneThatWorksWhileItEndsIsNotKilled) {
  const std::string go = folder_ + "/go";
  ASSERT_NO_FATAL_FAILURE(Run("trap 'until [ -e " + go +
                              " ]; do :; done; exit 0' TERM; echo ready; while :; do :; done"));
  ASSERT_OK(Await());
  auto killed = std::async(std::launch::async, [&] { return Terminate(id_, kPatience); });
  EXPECT_EQ(killed.wait_for(20 * kPatience), std::future_status::timeout);
  std::ofstream(go).put('x');
  EXPECT_THAT(killed.get(), IsOkAndHolds(false));
}

TEST(PatienceTest, OnlyWhatIsSeenToDoNothingIsGivenUp) {
  Patience patience(milliseconds(100));
  patience.Look({.done = 1}, milliseconds(10));
  for (int i = 0; i < 4; ++i) patience.Look({.done = 1}, milliseconds(20));
  EXPECT_FALSE(patience.IsOver());
  patience.Look({.done = 1, .busy = true}, milliseconds(20));
  EXPECT_FALSE(patience.IsOver());
  for (int i = 0; i < 4; ++i) patience.Look({.done = 1}, milliseconds(20));
  EXPECT_FALSE(patience.IsOver());
  patience.Look({.done = 1}, milliseconds(20));
  EXPECT_TRUE(patience.IsOver());
}

// A machine that stood still, or a waiter that was stopped, has seen nothing meanwhile.
TEST(PatienceTest, ALookThatComesLateCountsForOneInTime) {
  Patience patience(2 * Patience::kLongestPause);
  patience.Look({}, std::chrono::hours(1));
  EXPECT_FALSE(patience.IsOver());
  patience.Look({}, std::chrono::hours(1));
  EXPECT_TRUE(patience.IsOver());
}

// Whoever starts another one in its place needs its ports.
TEST_F(ProcessTest, OneIsDeadOnlyWhenItsLastThreadHasEnded) {
  // The first thread ends alone.
  ASSERT_NO_FATAL_FAILURE(
      Run("exec python3 -c 'import ctypes, threading, time\n"
          "threading.Thread(target=time.sleep, args=(1000000,)).start()\n"
          "ctypes.CDLL(None).syscall(60, 0)'"));
  ProcessStat stat;
  ASSERT_TRUE(test::Eventually([&] {
    const std::string text = ReadProcessFile("/proc/" + std::to_string(id_.pid) + "/stat");
    return ParseProcessStat(text, &stat) && stat.state == 'Z';
  }));
  EXPECT_EQ(StateOf(id_), ProcessState::kRunning);
  ASSERT_OK(Terminate(id_, std::chrono::seconds(60)));
  EXPECT_EQ(StateOf(id_), ProcessState::kDead);
}

// A process may end after its file was opened. Reading fails then, which is no error here.
TEST(ProcessFileTest, WhatCannotBeReadToItsEndIsAsShortAsThat) {
  EXPECT_THAT(ReadProcessFile("/proc/self/stat"), HasSubstr(std::to_string(::getpid()) + " ("));
  EXPECT_EQ(ReadProcessFile("/proc/self/mem"), "");  // no page is there at 0
  EXPECT_EQ(ReadProcessFile("/proc/none"), "");
}

TEST_F(ProcessTest, OneThatDoesNothingIsGivenUp) {
  ASSERT_NO_FATAL_FAILURE(Run("echo begun; exec sleep 1000000"));
  EXPECT_THAT(Await().status(), StatusIs(Code::kTimedOut, HasSubstr("begun")));
}

}  // namespace
}  // namespace hyperloop::cluster
