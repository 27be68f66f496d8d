#include "agent/hooks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "support/eventually.h"
#include "support/log_lines.h"
#include "support/status_matchers.h"

namespace hyperloop::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using test::Eventually;
using testing::HasSubstr;
using testing::StartsWith;

class HooksTest : public testing::Test {
 protected:
  HooksTest() { std::filesystem::create_directory(folder_); }
  ~HooksTest() override { std::filesystem::remove_all(folder_); }

  // A program that runs `script`, which may write to $OUT.
  std::string Program(const std::string& script) const {
    const std::string path = folder_ + "/hook";
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    EXPECT_EQ(chmod(path.c_str(), 0755), 0);
    return path;
  }
  void Start(const std::string& script, milliseconds timeout = minutes(5)) {
    hook_ = std::make_unique<Hook>(Hook::Options{Program(script),
                                                 {{"OUT", out_}, {"HYPERLOOP_HOOK_NODE", "a"}},
                                                 timeout,
                                                 {milliseconds(10), milliseconds(20), {}}},
                                   log_);
  }
  void Tell(HookTopic topic, const std::string& name, const std::string& key) {
    hook_->Tell({topic, name, key, 7});
  }
  std::string Out() const {
    std::ifstream in(out_);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  bool Lives(const std::string& pid) const {
    std::ifstream stat("/proc/" + pid + "/stat");
    std::string number, name, state;
    return stat >> number >> name >> state && state != "Z";
  }

  const std::string folder_ = testing::TempDir() + "/hyperloop-hooks-" + std::to_string(getpid());
  const std::string out_ = folder_ + "/out";
  const std::shared_ptr<LogLines> log_ = std::make_shared<LogLines>();
  std::unique_ptr<Hook> hook_;
};

TEST_F(HooksTest, IsToldTheEventAndItsKey) {
  Start(
      "echo \"$1 $2 $# $HYPERLOOP_HOOK_EVENT $HYPERLOOP_HOOK_KEY $HYPERLOOP_HOOK_EPOCH "
      "$HYPERLOOP_HOOK_NODE\" >>$OUT; echo said; echo more >&2");
  Tell(HookTopic::kRole, "became-primary", "g/0.7/became-primary/a/1");
  ASSERT_TRUE(hook_->AwaitTold(minutes(5)));
  const std::string key = "g/0.7/became-primary/a/1";
  EXPECT_EQ(Out(), "became-primary " + key + " 2 became-primary " + key + " 7 a\n");
  EXPECT_TRUE(log_->Has("became-primary " + key + ": done; it said: said\\x0amore"));
  EXPECT_EQ(hook_->Show().calls, 1u);
  EXPECT_EQ(hook_->Show().failures, 0u);
}

TEST_F(HooksTest, OneCallAtATimeAndTheNewestStateWins) {
  Start("echo begin $1 >>$OUT; while [ ! -e $OUT.go ]; do sleep 0.01; done; echo end $1 >>$OUT");
  Tell(HookTopic::kRole, "one", "1");
  ASSERT_TRUE(Eventually([&] { return Out() == "begin one\n"; }));
  Tell(HookTopic::kRole, "two", "2");
  Tell(HookTopic::kPause, "paused", "3");
  Tell(HookTopic::kRole, "four", "4");
  std::ofstream(out_ + ".go") << "";
  ASSERT_TRUE(hook_->AwaitTold(minutes(5)));
  EXPECT_EQ(Out(), "begin one\nend one\nbegin paused\nend paused\nbegin four\nend four\n");
}

TEST_F(HooksTest, WhatFailsIsTriedAgainWithTheSameKey) {
  Start("echo $2 >>$OUT; [ $(wc -l <$OUT) -ge 4 ] || exit 3");
  Tell(HookTopic::kRole, "lost-primary", "k");
  ASSERT_TRUE(hook_->AwaitTold(minutes(5)));
  EXPECT_EQ(Out(), "k\nk\nk\nk\n");
  EXPECT_EQ(hook_->Show().calls, 4u);
  EXPECT_EQ(hook_->Show().failures, 3u);
  EXPECT_TRUE(log_->Has("failed, and is tried again: exit status 3"));
}

TEST_F(HooksTest, OneThatHangsIsKilledWithWhatItStarted) {
  Start("trap '' TERM; sleep 1000 & echo $! >>$OUT; wait; sleep 1000", milliseconds(200));
  Tell(HookTopic::kRole, "became-primary", "k");
  ASSERT_TRUE(Eventually([&] { return hook_->Show().failures >= 1 && !Out().empty(); }));
  const std::string started = Out().substr(0, Out().find('\n'));
  EXPECT_TRUE(Eventually([&] { return !Lives(started); }));
  EXPECT_TRUE(log_->Has("killed after 200 ms"));
  EXPECT_TRUE(hook_->Show().waiting_since.has_value());
}

// Whoever tells it goes on, and so does whoever ends.
TEST_F(HooksTest, NobodyWaitsForOneThatHangs) {
  Start("echo $$ >>$OUT; sleep 1000");
  for (int i = 0; i < 1000; ++i) Tell(HookTopic::kRole, "event", std::to_string(i));
  ASSERT_TRUE(Eventually([&] { return Out().ends_with("\n"); }));
  EXPECT_EQ(hook_->Show().calls, 1u);
  hook_.reset();
  EXPECT_TRUE(Eventually([&] { return !Lives(Out().substr(0, Out().find('\n'))); }));
}

TEST_F(HooksTest, AFloodOfOutputIsCutInTheLogAndHoldsUpNobody) {
  Start("head -c 1000000 /dev/zero | tr '\\0' x; printf '\\033[2J'");
  Tell(HookTopic::kRole, "event", "k");
  ASSERT_TRUE(hook_->AwaitTold(minutes(5)));
  ASSERT_EQ(log_->lines().size(), 1u);
  EXPECT_LT(log_->lines()[0].size(), 2 * Hook::kMostOutput);
  EXPECT_EQ(log_->lines()[0].find('\x1b'), std::string::npos);
}

// A child of it that has left the process group holds the output open.
TEST_F(HooksTest, OutputThatStaysOpenHoldsUpNobody) {
  Start("setsid sh -c 'echo $$ >$OUT; exec sleep 1000' & while [ ! -s $OUT ]; do sleep 0.01; done");
  Tell(HookTopic::kRole, "event", "k");
  EXPECT_TRUE(hook_->AwaitTold(minutes(5)));
  kill(static_cast<pid_t>(std::atol(Out().c_str())), SIGKILL);
}

TEST_F(HooksTest, WhatOthersMayWriteIsNotCalled) {
  const std::string program = Program("exit 0");
  EXPECT_OK(CheckHook(program));
  ASSERT_EQ(chmod(program.c_str(), 0775), 0);
  EXPECT_EQ(CheckHook(program).code(), Code::kPermissionDenied);
  ASSERT_EQ(chmod(program.c_str(), 0644), 0);
  EXPECT_THAT(CheckHook(program).message(), HasSubstr("chmod +x"));
  ASSERT_EQ(chmod(program.c_str(), 0755), 0);
  std::filesystem::create_symlink(program, folder_ + "/link");
  EXPECT_EQ(CheckHook(folder_ + "/link").code(), Code::kPermissionDenied);
  ASSERT_EQ(chmod(folder_.c_str(), 0777), 0);
  EXPECT_EQ(CheckHook(program).code(), Code::kPermissionDenied) << "nor in such a folder";
  ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
  for (const std::string other : {"hook", "", "/", "/no/such/hook", "/bin"})
    EXPECT_FALSE(CheckHook(other).ok()) << other;
}

// It is judged before each call: an agent runs for months.
TEST_F(HooksTest, OneThatBecameWritableIsNotCalledUntilItIsMended) {
  Start("echo called >>$OUT");
  const std::string program = hook_->program();
  ASSERT_EQ(chmod(program.c_str(), 0777), 0);
  Tell(HookTopic::kRole, "event", "k");
  ASSERT_TRUE(Eventually([&] { return hook_->Show().failures >= 2; }));
  EXPECT_EQ(Out(), "");
  ASSERT_EQ(chmod(program.c_str(), 0755), 0);
  EXPECT_TRUE(hook_->AwaitTold(minutes(5)));
  EXPECT_THAT(Out(), StartsWith("called\n"));
}

}  // namespace
}  // namespace hyperloop::agent
