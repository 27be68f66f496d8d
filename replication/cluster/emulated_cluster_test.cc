// Tests of the cluster's bookkeeping, with shell scripts in place of the daemons.
#include "hyperloop/replication/emulated_cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "cluster/cluster_file.h"
#include "cluster/emulated_cluster_fixture.h"
#include "cluster/process.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using ::testing::HasSubstr;

TEST_F(EmulatedClusterTest, StartsAndStopsAll) {
  const Result<ClusterInfo> info = StartCluster(options_);
  ASSERT_OK(info);
  EXPECT_EQ(info->started, 4u);
  EXPECT_TRUE(info->AllAlive());
  EXPECT_THAT(info->uri, HasSubstr("hyperloop://127.0.0.1:40000,127.0.0.1:40001,127.0.0.1:40002?"));
  EXPECT_THAT(info->uri, HasSubstr("device="));
  ASSERT_EQ(info->processes.size(), 4u);
  const cluster::ProcessId id = Id("replica1");
  EXPECT_EQ(info->processes[2].pid, id.pid);
  EXPECT_EQ(getsid(id.pid), id.pid) << "it must not share the caller's session";

  const Result<std::vector<std::string>> killed = StopCluster(options_.directory);
  ASSERT_OK(killed);
  EXPECT_TRUE(killed->empty());
  EXPECT_EQ(cluster::StateOf(id), ProcessState::kDead);
  EXPECT_TRUE(fs::exists(options_.directory + "/replica1.pool")) << "pools outlive the cluster";
  EXPECT_OK(StopCluster(options_.directory)) << "stopping twice is no error";
}

// A group knows its replicas by their addresses. A replica that is down for a while has to find its
// port again, whatever connections were made meanwhile.
TEST_F(EmulatedClusterTest, ReplicasListenWhereNoConnectionIsMadeFrom) {
  Replica("true");
  uint32_t given_out = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> given_out;
  ASSERT_GT(given_out, 10'000u);
  const Result<ClusterInfo> info = StartCluster(options_);
  ASSERT_OK(info);
  std::set<std::string> listen;
  for (size_t i = 1; i < info->processes.size(); ++i) {
    const std::string& address = info->processes[i].listen;
    const uint64_t port = std::stoull(address.substr(address.rfind(':') + 1));
    EXPECT_GE(port, 10'000u);
    EXPECT_LT(port, given_out);
    listen.insert(address);
  }
  EXPECT_EQ(listen.size(), 3u);
  Kill("replica1");
  const Result<ClusterInfo> again = StartCluster(options_);
  ASSERT_OK(again);
  EXPECT_EQ(again->uri, info->uri);
}

TEST_F(EmulatedClusterTest, ReplicasAreBoundToTheProcessorAskedFor) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  options_.replica_cpu = CPU_SETSIZE - 1;
  while (!CPU_ISSET(options_.replica_cpu, &allowed)) --options_.replica_cpu;
  ASSERT_OK(StartCluster(options_));
  cpu_set_t bound;
  ASSERT_EQ(sched_getaffinity(Id("replica1").pid, sizeof bound, &bound), 0);
  EXPECT_EQ(CPU_COUNT(&bound), 1);
  EXPECT_TRUE(CPU_ISSET(options_.replica_cpu, &bound));
  ASSERT_EQ(sched_getaffinity(Id("rnicd").pid, sizeof bound, &bound), 0);
  EXPECT_TRUE(CPU_EQUAL(&bound, &allowed)) << "the daemon chooses for itself";
}

TEST_F(EmulatedClusterTest, AProcessorThatIsNotThereIsNamed) {
  options_.replica_cpu = CPU_SETSIZE;
  const Result<ClusterInfo> info = StartCluster(options_);
  ASSERT_THAT(info, StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(info.status().message(), HasSubstr("processor"));
}

TEST_F(EmulatedClusterTest, StartOnARunningClusterChangesNothing) {
  const Result<ClusterInfo> first = StartCluster(options_);
  ASSERT_OK(first);
  const Result<ClusterInfo> second = StartCluster(options_);
  ASSERT_OK(second);
  EXPECT_EQ(second->started, 0u);
  EXPECT_EQ(second->uri, first->uri);
  for (size_t i = 0; i < first->processes.size(); ++i) {
    EXPECT_EQ(second->processes[i].pid, first->processes[i].pid);
  }
}

TEST_F(EmulatedClusterTest, StartCompletesAClusterThatLostAReplica) {
  const Result<ClusterInfo> first = StartCluster(options_);
  ASSERT_OK(first);
  Kill("replica1");
  const Result<ClusterInfo> lame = ReadCluster(options_.directory);
  ASSERT_OK(lame);
  EXPECT_FALSE(lame->AllAlive());
  EXPECT_EQ(lame->processes[2].state, ProcessState::kDead);

  const Result<ClusterInfo> second = StartCluster(options_);
  ASSERT_OK(second);
  EXPECT_EQ(second->started, 1u);
  EXPECT_EQ(second->uri, first->uri);
  EXPECT_EQ(second->processes[1].pid, first->processes[1].pid);
}

TEST_F(EmulatedClusterTest, ADeadDaemonTakesItsReplicasAlong) {
  ASSERT_OK(StartCluster(options_));
  const cluster::ProcessId replica = Id("replica0");
  Kill("rnicd");
  const Result<ClusterInfo> again = StartCluster(options_);
  ASSERT_OK(again);
  EXPECT_EQ(again->started, 4u);
  EXPECT_EQ(cluster::StateOf(replica), ProcessState::kDead);
}

TEST_F(EmulatedClusterTest, AStoppedProcessIsAliveAndCanBeEnded) {
  ASSERT_OK(StartCluster(options_));
  const cluster::ProcessId id = Id("replica2");
  ASSERT_OK(cluster::Signal(id, SIGSTOP));
  while (cluster::StateOf(id) != ProcessState::kStopped) usleep(100);
  const Result<ClusterInfo> info = StartCluster(options_);
  ASSERT_OK(info);
  EXPECT_EQ(info->started, 0u);
  EXPECT_EQ(info->processes[3].state, ProcessState::kStopped);
  const Result<std::vector<std::string>> killed = StopCluster(options_.directory);
  ASSERT_OK(killed);
  EXPECT_TRUE(killed->empty()) << "SIGCONT lets it take SIGTERM";
}

TEST_F(EmulatedClusterTest, AProcessDeafToSigtermIsKilledAndNamed) {
  Program("hyperloop-rnicd", "trap '' TERM; echo ready; exec sleep 600");
  ASSERT_OK(StartCluster(options_));
  const Result<std::vector<std::string>> killed =
      StopCluster(options_.directory, std::chrono::milliseconds(200));
  ASSERT_OK(killed);
  EXPECT_THAT(*killed, ::testing::ElementsAre("rnicd"));
}

TEST_F(EmulatedClusterTest, FailureHalfWayEndsWhatWasStarted) {
  // replica1 fails only once replica0 runs.
  Program("hyperloop-replica",
          "case \"$*\" in *replica1*) echo 'pool: no luck' >&2; exit 1;; esac; echo ready "
          "127.0.0.1:40000; "
          "echo $$ > " +
              base_ + "/started; exec sleep 600");
  const Result<ClusterInfo> info = StartCluster(options_);
  ASSERT_THAT(info, StatusIs(Code::kUnavailable));
  EXPECT_THAT(info, StatusIs(Code::kUnavailable));
  EXPECT_THAT(info.status().message(), HasSubstr("replica1"));
  EXPECT_THAT(info.status().message(), HasSubstr("no luck")) << "the log is quoted";
  const pid_t started = std::stoi(Slurp(base_ + "/started"));
  EXPECT_NE(kill(started, 0), 0) << "replica0 was left running";
  EXPECT_FALSE(fs::exists(options_.directory + "/rnicd.pid"));

  SetUpGoodReplica();
  options_.replicas = 2;  // a failed first start binds nobody to its options
  EXPECT_OK(StartCluster(options_));
}

TEST_F(EmulatedClusterTest, AMissingProgramIsNamed) {
  fs::remove(options_.programs + "/hyperloop-replica");
  const Result<ClusterInfo> info = StartCluster(options_);
  ASSERT_THAT(info, StatusIs(Code::kNotFound));
  EXPECT_THAT(info, StatusIs(Code::kNotFound));
  EXPECT_THAT(info.status().message(), HasSubstr(options_.programs + "/hyperloop-replica"));
}

TEST_F(EmulatedClusterTest, OtherOptionsAreRefused) {
  ASSERT_OK(StartCluster(options_));
  options_.replicas = 2;
  const Result<ClusterInfo> info = StartCluster(options_);
  ASSERT_THAT(info, StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(info, StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(info.status().message(), HasSubstr("has 3 replicas"));
  EXPECT_TRUE(ReadCluster(options_.directory)->AllAlive());
}

TEST_F(EmulatedClusterTest, WhatIsNotGivenIsAsTheClusterHasIt) {
  options_.replicas = 2;
  options_.media = "ram";
  ASSERT_OK(StartCluster(options_));
  ASSERT_OK(StopCluster(options_.directory));
  ClusterOptions bare;
  bare.directory = options_.directory;
  bare.programs = options_.programs;
  const Result<ClusterInfo> again = StartCluster(bare);
  ASSERT_OK(again);
  EXPECT_EQ(again->region_size, options_.region_size);
  EXPECT_EQ(again->media, "ram");
  EXPECT_EQ(again->replicas().size(), 2u);
}

TEST_F(EmulatedClusterTest, WhatTheClusterHasNotIsNamed) {
  ASSERT_OK(StartCluster(options_));
  const auto refused = [this](auto&& change, const char* what) {
    ClusterOptions other = options_;
    change(other);
    EXPECT_THAT(StartCluster(other), StatusIs(Code::kInvalidArgument, HasSubstr(what)));
  };
  refused([](ClusterOptions& o) { o.region_size = 2 << 20; }, "regions of 1048576 B");
  refused([](ClusterOptions& o) { o.media = "pmem"; }, "media=auto");
  refused([](ClusterOptions& o) { o.provider = "verbs"; }, "provider=softrnic");
  refused([](ClusterOptions& o) { o.hosts_apart = true; }, "one RNIC daemon for all nodes");
  EXPECT_TRUE(ReadCluster(options_.directory)->AllAlive());
}

TEST_F(EmulatedClusterTest, OneReplicaMoreIsAddedToARunningCluster) {
  ASSERT_OK(StartCluster(options_));
  options_.replicas = 5;
  EXPECT_THAT(StartCluster(options_), StatusIs(Code::kInvalidArgument, HasSubstr("3 replicas")));
  options_.replicas = 4;
  const Result<ClusterInfo> grown = StartCluster(options_);
  ASSERT_OK(grown);
  EXPECT_EQ(grown->started, 1u);
  EXPECT_EQ(grown->added, "127.0.0.1:40003");
  EXPECT_THAT(grown->uri, HasSubstr(",127.0.0.1:40002,127.0.0.1:40003?"));
  const Result<ClusterInfo> again = StartCluster(options_);
  ASSERT_OK(again);
  EXPECT_EQ(again->started, 0u);
  EXPECT_EQ(again->added, "");
}

TEST_F(EmulatedClusterTest, AReplicaIsRemovedAndAddedAgain) {
  ASSERT_OK(StartCluster(options_));
  const cluster::ProcessId removed = Id("replica1"), stays = Id("replica2");
  const Result<ClusterInfo> fewer = RemoveReplica(options_.directory, "replica1");
  ASSERT_OK(fewer);
  EXPECT_EQ(fewer->removed, "127.0.0.1:40001");
  EXPECT_THAT(fewer->uri, HasSubstr("hyperloop://127.0.0.1:40000,127.0.0.1:40002?"));
  EXPECT_EQ(cluster::StateOf(removed), ProcessState::kDead);
  EXPECT_EQ(cluster::StateOf(stays), ProcessState::kRunning);
  EXPECT_FALSE(fs::exists(options_.directory + "/replica1.pid"));
  EXPECT_TRUE(fs::exists(options_.directory + "/replica1.pool")) << "its data stays";
  // Who does not say how many there are means those that there are.
  options_.replicas = 0;
  const Result<ClusterInfo> same = StartCluster(options_);
  ASSERT_OK(same);
  EXPECT_EQ(same->started, 0u);
  EXPECT_EQ(same->uri, fewer->uri);
  options_.replicas = 3;
  const Result<ClusterInfo> again = StartCluster(options_);
  ASSERT_OK(again);
  EXPECT_EQ(again->added, "127.0.0.1:40001") << "no name is given twice";
  EXPECT_TRUE(again->AllAlive());
}

TEST_F(EmulatedClusterTest, AReplicaOfAStoppedClusterIsRemovedByItsAddress) {
  options_.replicas = 0;
  ASSERT_OK(StartCluster(options_));
  ASSERT_EQ(ReadCluster(options_.directory)->replicas().size(), 3u) << "as many as by default";
  ASSERT_OK(StopCluster(options_.directory));
  ASSERT_OK(RemoveReplica(options_.directory, "127.0.0.1:40002"));
  EXPECT_EQ(ReadCluster(options_.directory)->replicas().size(), 2u);
}

TEST_F(EmulatedClusterTest, WhatCannotBeRemovedIsSaid) {
  EXPECT_THAT(RemoveReplica(options_.directory, "replica0"), StatusIs(Code::kNotFound));
  ASSERT_OK(StartCluster(options_));
  EXPECT_THAT(RemoveReplica(options_.directory, "replica3"),
              StatusIs(Code::kNotFound, HasSubstr("replica0, replica1, replica2")));
  ASSERT_OK(RemoveReplica(options_.directory, "replica0"));
  EXPECT_THAT(RemoveReplica(options_.directory, "replica1"),
              StatusIs(Code::kInvalidArgument, HasSubstr("two")));
  EXPECT_TRUE(ReadCluster(options_.directory)->AllAlive());
}

TEST_F(EmulatedClusterTest, SomebodyElsesDirectoryIsLeftAlone) {
  fs::create_directory(options_.directory);
  std::ofstream(options_.directory + "/thesis.txt") << "precious";
  const Result<ClusterInfo> info = StartCluster(options_);
  ASSERT_THAT(info, StatusIs(Code::kAlreadyExists));
  EXPECT_THAT(info, StatusIs(Code::kAlreadyExists));
  EXPECT_THAT(info.status().message(), HasSubstr("thesis.txt"));
  EXPECT_THAT(StopCluster(options_.directory), StatusIs(Code::kNotFound));
}

TEST_F(EmulatedClusterTest, ARecycledPidIsNeitherBelievedNorKilled) {
  ASSERT_OK(StartCluster(options_));
  Kill("replica0");
  // The pid file names this test, as if the kernel had given the dead replica's pid to it.
  cluster::ProcessId self = cluster::IdentifyProcess(getpid()).value();
  std::ofstream(options_.directory + "/replica0.pid")
      << self.pid << ' ' << self.start_time - 1 << ' ' << self.boot << '\n';
  EXPECT_EQ(ReadCluster(options_.directory)->processes[1].state, ProcessState::kDead);
  ASSERT_OK(StopCluster(options_.directory));  // this test lives on

  std::ofstream(options_.directory + "/replica0.pid")
      << self.pid << ' ' << self.start_time << " another-boot\n";
  EXPECT_EQ(ReadCluster(options_.directory)->processes[1].state, ProcessState::kDead);
  ASSERT_OK(StopCluster(options_.directory));
}

TEST_F(EmulatedClusterTest, TooLittleSpaceIsSaidBeforehand) {
  options_.region_size = 15ull << 30;
  options_.replicas = 8;
  options_.directory = "/dev/shm/" + fs::path(base_).filename().string();
  const Result<ClusterInfo> info = StartCluster(options_);
  fs::remove_all(options_.directory);
  if (info.ok()) GTEST_SKIP() << "/dev/shm holds more than 120 GiB";
  EXPECT_THAT(info, StatusIs(Code::kNoSpace));
  EXPECT_THAT(info.status().message(), HasSubstr("--region-size"));
}

TEST_F(EmulatedClusterTest, OptionsOutOfRangeAreRefused) {
  options_.replicas = 9;
  EXPECT_THAT(StartCluster(options_), StatusIs(Code::kInvalidArgument));
  options_.replicas = 3;
  options_.region_size = 16ull << 30;
  EXPECT_THAT(StartCluster(options_), StatusIs(Code::kInvalidArgument));
  options_.region_size = 1 << 20;
  options_.directory = base_ + "/" + std::string(120, 'x');
  const Result<ClusterInfo> info = StartCluster(options_);
  EXPECT_THAT(info, StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(info.status().message(), HasSubstr("shorter --dir"));
}

TEST(ClusterFileTest, RefusesWhatIsNotACluster) {
  using cluster::ParseClusterFile;
  const char* const good =
      R"({"version":1,"region_size":1048576,"media":"auto","replicas":[{"name":"a","listen":"h:1"}]})";
  ASSERT_OK(ParseClusterFile(good, "f"));
  for (
      const char* bad : {
          "",
          "[]",
          "{}",
          R"({"version":2,"region_size":1,"media":"auto","replicas":[]})",
          R"({"version":1,"region_size":-1,"media":"auto","replicas":[{"name":"a","listen":"h:1"}]})",
          R"({"version":1,"region_size":1,"media":"auto","replicas":[]})",
          R"({"version":1,"region_size":1,"media":"auto","replicas":[{"name":"../a","listen":"h:1"}]})",
          R"({"version":1,"region_size":1,"media":"auto","replicas":[{"name":"a"}]})",
          R"({"version":1,"region_size":1,"media":"auto","provider":"x","device":"","replicas":[{"name":"a","listen":"h:1"}]})",
          R"({"version":1,"region_size":1,"media":"auto","provider":"verbs","replicas":[{"name":"a","listen":"h:1"}]})",
          R"({"version":1,"region_size":1,"media":"auto","replicas":[{"name":"a","listen":"h:1"},{"name":"a","listen":"h:2"}]})",
      }) {
    EXPECT_THAT(ParseClusterFile(bad, "f"), StatusIs(Code::kCorruption)) << bad;
  }
}

// Nothing that follows a value into its depth may end the program.
TEST(ClusterFileTest, RefusesDeepValues) {
  const std::string deep = std::string(1 << 20, '[') + std::string(1 << 20, ']');
  for (const char* field : {"provider", "device", "replicas", "other"}) {
    const std::string text = R"({"version":1,"region_size":1,"media":"auto",")" +
                             std::string(field) + "\":" + deep + "}";
    EXPECT_THAT(cluster::ParseClusterFile(text, "f"), StatusIs(Code::kCorruption)) << field;
  }
}

}  // namespace
}  // namespace hyperloop
