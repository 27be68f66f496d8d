#include "agent/service_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "support/child_process.h"
#include "support/eventually.h"
#include "support/status_matchers.h"

namespace hyperloop::agent {
namespace {

class ServiceProcessTest : public testing::Test {
 protected:
  ~ServiceProcessTest() override { std::filesystem::remove(file_); }
  // A shell that runs `script`.
  std::unique_ptr<ServiceProcess> Run(const std::string& script) {
    auto started = ServiceProcess::Start(
        {{"/bin/sh", "-c", script}, {{"HYPERLOOP_TEST_FILE", file_}, {"HOME", "/nowhere"}}});
    EXPECT_OK(started);
    return std::move(*started);
  }
  // A process whose service is a shell that runs `script`, and which does nothing else.
  test::ChildProcess StartAgent(const std::string& script) {
    return test::ChildProcess::Fork([this, script] {
      const auto process = Run(script);
      pause();
      return process == nullptr ? 1 : 0;
    });
  }
  // This process's, also those that have ended and were not waited for.
  static std::vector<pid_t> Children() {
    std::vector<pid_t> children;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      std::ifstream stat(entry.path() / "stat");
      pid_t pid = 0, parent = 0;
      std::string name, state;
      if (stat >> pid >> name >> state >> parent && parent == getpid()) children.push_back(pid);
    }
    return children;
  }
  static std::string EndOf(ServiceProcess& process) {
    pollfd ended{process.ended(), POLLIN, 0};
    EXPECT_EQ(poll(&ended, 1, 300'000), 1);
    return process.Reap().value_or("lives");
  }
  std::string Written() const {
    std::ifstream in(file_);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // A number that the script has written to the file.
  pid_t WrittenPid() const {
    EXPECT_TRUE(test::Eventually([this] { return Written().ends_with("\n"); }));
    return static_cast<pid_t>(std::atol(Written().c_str()));
  }
  // The state of a process, as ps has it; empty: there is none.
  static std::string StateOf(pid_t pid) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string number, name, state;
    stat >> number >> name >> state;
    return state;
  }
  static bool Lives(pid_t pid) {
    const std::string state = StateOf(pid);
    return !state.empty() && state != "Z";
  }

  const std::string file_ = testing::TempDir() + "/hyperloop-service-" + std::to_string(getpid());
};

TEST_F(ServiceProcessTest, SaysHowItEnded) {
  const auto exits = Run("exit 3");
  EXPECT_EQ(EndOf(*exits), "exit status 3");
  EXPECT_EQ(exits->Reap(), "exit status 3") << "it may be asked again";
  const auto killed = Run("kill -9 $$");
  EXPECT_EQ(EndOf(*killed), "signal 9");
}

TEST_F(ServiceProcessTest, IsAskedToEndAndThenKilled) {
  const auto process =
      Run("trap 'echo asked >$HYPERLOOP_TEST_FILE' TERM; echo >$HYPERLOOP_TEST_FILE; "
          "while :; do sleep 0.01; done");
  ASSERT_TRUE(test::Eventually([this] { return !Written().empty(); }));
  EXPECT_EQ(process->Reap(), std::nullopt);
  process->Terminate();
  EXPECT_TRUE(test::Eventually([this] { return Written() == "asked\n"; }));
  EXPECT_EQ(process->Reap(), std::nullopt);
  process->Kill();
  EXPECT_EQ(EndOf(*process), "signal 9");
}

TEST_F(ServiceProcessTest, AStoppedOneIsAskedToEndToo) {
  const auto process = Run("kill -STOP $$; exit 0");
  ASSERT_TRUE(test::Eventually([&] { return StateOf(process->pid()) == "T"; }));
  process->Terminate();
  EXPECT_EQ(EndOf(*process), "signal 15");
}

TEST_F(ServiceProcessTest, WhatItStartedEndsWithIt) {
  const auto process = Run("sleep 1000 & echo $! >$HYPERLOOP_TEST_FILE; exit 0");
  const pid_t left = WrittenPid();
  EXPECT_EQ(EndOf(*process), "exit status 0");
  EXPECT_TRUE(test::Eventually([&] { return !Lives(left); }));
}

TEST_F(ServiceProcessTest, EndsWithItsAgent) {
  test::ChildProcess agent = StartAgent("echo $$ >$HYPERLOOP_TEST_FILE; exec sleep 1000");
  const pid_t service = WrittenPid();
  EXPECT_TRUE(Lives(service));
  agent.Kill();
  EXPECT_TRUE(test::Eventually([&] { return !Lives(service); }));
}

// The kernel ends the script alone.
TEST_F(ServiceProcessTest, AServiceBehindAScriptEndsWithItsAgentToo) {
  test::ChildProcess agent = StartAgent(
      "sleep 1000 & service=$!; trap 'kill -TERM $service' TERM; "
      "echo $service >$HYPERLOOP_TEST_FILE; wait $service");
  const pid_t service = WrittenPid();
  EXPECT_TRUE(Lives(service));
  agent.Kill();
  EXPECT_TRUE(test::Eventually([&] { return !Lives(service); }));
}

TEST_F(ServiceProcessTest, EndsWithItsAgentThoughItIsStopped) {
  test::ChildProcess agent =
      StartAgent("sleep 1000 & echo $! >$HYPERLOOP_TEST_FILE; kill -STOP 0; wait");
  const pid_t service = WrittenPid();
  ASSERT_TRUE(test::Eventually([&] { return StateOf(service) == "T"; }));
  agent.Kill();
  EXPECT_TRUE(test::Eventually([&] { return !Lives(service); }));
}

// Else nobody would end it with the agent.
TEST_F(ServiceProcessTest, EndsOnceItsWatcherHasEnded) {
  const auto process = Run("sleep 1000 & echo $! >$HYPERLOOP_TEST_FILE; wait");
  const pid_t left = WrittenPid();
  for (const pid_t child : Children())
    if (child != process->pid()) kill(child, SIGKILL);
  EXPECT_TRUE(test::Eventually([&] { return process->Reap() == "signal 9"; }));
  EXPECT_TRUE(test::Eventually([&] { return !Lives(left); }));
}

TEST_F(ServiceProcessTest, NothingIsLeftOfIt) {
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = descriptors();
  auto process = Run("exit 0");
  EXPECT_EQ(EndOf(*process), "exit status 0");
  EXPECT_THAT(Children(), testing::IsEmpty());
  process = Run("exec sleep 1000");
  process.reset();
  EXPECT_THAT(Children(), testing::IsEmpty());
  EXPECT_EQ(descriptors(), before);
}

TEST_F(ServiceProcessTest, OneThatHasLeftItsProcessGroupIsKilled) {
  const auto moved =
      Run("exec python3 -c 'import os, time; os.setpgid(0, os.getpgid(os.getppid())); "
          "print(os.getpid(), file=open(os.environ[\"HYPERLOOP_TEST_FILE\"], \"w\")); "
          "time.sleep(1000)'");
  EXPECT_EQ(WrittenPid(), moved->pid());
  moved->Kill();
  EXPECT_EQ(EndOf(*moved), "signal 9");
}

TEST_F(ServiceProcessTest, HasOnlyWhatItIsGiven) {
  const int inherited = dup(STDOUT_FILENO);
  ASSERT_GE(inherited, 0);
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  sigprocmask(SIG_BLOCK, &blocked, &before);
  signal(SIGHUP, SIG_IGN);
  const auto process = Run(
      "exec >$HYPERLOOP_TEST_FILE; echo $HOME; ls /proc/$$/fd; "
      "while read -r name value; do case $name in SigBlk:|SigIgn:) echo \"$name $value\";; esac; "
      "done </proc/$$/status");
  signal(SIGHUP, SIG_DFL);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  close(inherited);
  EXPECT_EQ(EndOf(*process), "exit status 0");
  const std::string none = ": 0000000000000000\n";
  EXPECT_THAT(Written(), testing::StartsWith("/nowhere\n0\n1\n2\n"));
  EXPECT_THAT(Written(), testing::EndsWith("SigBlk" + none + "SigIgn" + none));
  EXPECT_THAT(Written(), testing::Not(testing::HasSubstr("\n" + std::to_string(inherited) + "\n")));
}

TEST_F(ServiceProcessTest, WhatCannotBeExecutedIsRefused) {
  const auto started = ServiceProcess::Start({{"/no/such/program"}, {}});
  EXPECT_EQ(started.status().code(), Code::kNotFound) << started.status().ToString();
  EXPECT_THAT(started.status().message(), testing::HasSubstr("/no/such/program"));
}

TEST_F(ServiceProcessTest, TheObjectTakesItsProcessAlong) {
  auto process = Run("exec sleep 1000");
  const pid_t pid = process->pid();
  process.reset();
  EXPECT_FALSE(Lives(pid));
}

}  // namespace
}  // namespace hyperloop::agent
