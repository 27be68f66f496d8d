// Tests of clusters whose hosts are apart: in real network namespaces, with shell scripts in place
// of the daemons.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "cluster/cluster_file.h"
#include "cluster/emulated_cluster_fixture.h"
#include "cluster/network.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

class HostsApartTest : public EmulatedClusterTest {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
    EmulatedClusterTest::SetUp();
    options_.hosts_apart = true;
    const cluster::Network probe = cluster::PlanNetwork(base_, "").value();
    const Status status = cluster::MakeNetwork(probe, {"replica0"});
    ASSERT_OK(cluster::RemoveNetwork(probe, {"replica0"}));
    if (!status.ok()) GTEST_SKIP() << "no namespaces here: " << status.message();
    // Says where it listens as the product's replica does, and keeps its command line.
    Program("hyperloop-replica",
            "echo \"$*\" > " + base_ +
                "/replica.$$; while [ $# -gt 0 ]; do case $1 in --listen) l=$2;; "
                "--pool) p=$2;; esac; shift; done; case $l in *:0) l=${l%0}7000;; esac; : > "
                "\"$p\"; echo "
                "ready $l; exec sleep 600");
  }

  static std::string NetworkOf(pid_t pid) {
    return fs::read_symlink("/proc/" + std::to_string(pid) + "/ns/net").string();
  }
  // The namespaces of the cluster's network.
  static std::vector<std::string> Namespaces(const std::string& network) {
    std::vector<std::string> found;
    if (!fs::exists("/run/netns")) return found;
    for (const auto& entry : fs::directory_iterator("/run/netns"))
      if (entry.path().filename().string().starts_with(network))
        found.push_back(entry.path().filename());
    return found;
  }
  static bool HasInterface(const std::string& name) { return fs::exists("/sys/class/net/" + name); }
};

TEST_F(HostsApartTest, EachReplicaHasADaemonAndANetworkOfItsOwn) {
  const Result<ClusterInfo> info = StartCluster(options_);
  ASSERT_OK(info);
  EXPECT_EQ(info->started, 7u);
  ASSERT_EQ(info->processes.size(), 7u);
  ASSERT_EQ(info->replicas().size(), 3u);
  EXPECT_EQ(NetworkOf(info->processes[0].pid), NetworkOf(getpid())) << "the primary's daemon";
  std::set<std::string> networks;
  for (size_t i = 0; i < 3; ++i) {
    const ClusterProcess& replica = info->replicas()[i];
    const ClusterProcess& daemon = info->processes[4 + i];
    EXPECT_EQ(daemon.name, replica.name + "-rnicd");
    EXPECT_EQ(NetworkOf(replica.pid), NetworkOf(daemon.pid));
    EXPECT_THAT(replica.socket, HasSubstr(daemon.name));
    networks.insert(NetworkOf(replica.pid));
  }
  networks.insert(NetworkOf(getpid()));
  EXPECT_EQ(networks.size(), 4u);
  EXPECT_THAT(Slurp(options_.directory + "/peers"),
              HasSubstr("primary=" + info->network_address + ":7471"));
  EXPECT_THAT(info->uri, HasSubstr(":7000,198.18."));

  const Result<ClusterInfo> again = StartCluster(options_);
  ASSERT_OK(again);
  EXPECT_EQ(again->started, 0u);
  ASSERT_OK(StopCluster(options_.directory));
  EXPECT_THAT(Namespaces(info->network), ::testing::IsEmpty());
  EXPECT_FALSE(HasInterface(info->network));

  ClusterOptions bare;
  bare.directory = options_.directory;
  bare.programs = options_.programs;
  const Result<ClusterInfo> restarted = StartCluster(bare);
  ASSERT_OK(restarted);
  EXPECT_EQ(restarted->network, info->network) << "it stays apart without being told";
  EXPECT_EQ(restarted->uri, info->uri);
}

TEST_F(HostsApartTest, ADeadDaemonTakesOnlyItsOwnReplicaAlong) {
  ASSERT_OK(StartCluster(options_));
  const pid_t stays = Id("replica0").pid;
  Kill("replica1-rnicd");
  const Result<ClusterInfo> again = StartCluster(options_);
  ASSERT_OK(again);
  EXPECT_EQ(again->started, 2u);
  EXPECT_EQ(again->replicas()[0].pid, stays);
}

TEST_F(HostsApartTest, AReplicaIsAddedAndRemovedWithItsNode) {
  ASSERT_OK(StartCluster(options_));
  options_.replicas = 4;
  const Result<ClusterInfo> grown = StartCluster(options_);
  ASSERT_OK(grown);
  EXPECT_EQ(grown->started, 2u);
  EXPECT_THAT(Namespaces(grown->network), IsSupersetOf({grown->network + "-replica3"}));
  const Result<ClusterInfo> fewer = RemoveReplica(options_.directory, "replica1");
  ASSERT_OK(fewer);
  EXPECT_EQ(fewer->processes.size(), 7u);
  EXPECT_THAT(Namespaces(fewer->network), Each(Not(HasSubstr("replica1"))));
  const Result<ClusterInfo> back = StartCluster(options_);
  ASSERT_OK(back);
  EXPECT_EQ(back->started, 2u) << "replica1 has its node again";
}

TEST_F(HostsApartTest, AFailedStartLeavesNoNetwork) {
  Program("hyperloop-replica",
          "case \"$*\" in *replica1*) echo 'pool: no luck' >&2; exit 1;; esac; echo ready "
          "198.18.0.2:7000; exec sleep 600");
  const std::string network =
      cluster::PlanNetwork(fs::absolute(options_.directory), "").value().name;
  EXPECT_THAT(StartCluster(options_), StatusIs(Code::kUnavailable, HasSubstr("no luck")));
  EXPECT_THAT(Namespaces(network), ::testing::IsEmpty());
  EXPECT_FALSE(HasInterface(network));
}

TEST_F(HostsApartTest, AMissingProgramIsNamedAndNothingIsLeft) {
  const std::string path = getenv("PATH");
  setenv("PATH", base_.c_str(), 1);
  const Status refused = StartCluster(options_).status();
  setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(refused.code(), Code::kNotFound);
  EXPECT_THAT(refused.message(), HasSubstr("iproute2"));
  options_.hosts_apart = false;
  EXPECT_OK(StartCluster(options_)) << "the failed start binds nobody to its options";
}

// On a kernel without sch_netem every use is refused, on others this one.
TEST_F(HostsApartTest, WhatNetemDoesNotTakeIsRefusedAndLeavesNothing) {
  options_.netem = "delay sideways";
  const std::string network =
      cluster::PlanNetwork(fs::absolute(options_.directory), "").value().name;
  EXPECT_THAT(StartCluster(options_), StatusIs(Code::kNotSupported, HasSubstr("netem")));
  EXPECT_THAT(Namespaces(network), ::testing::IsEmpty());
  EXPECT_FALSE(HasInterface(network));
  options_.netem = "";
  EXPECT_OK(StartCluster(options_));
}

TEST(HostsApartOptionsTest, WhatHasNoMeaningIsRefused) {
  ClusterOptions options;
  options.directory = "/dev/shm/hyperloop-never-made";
  options.provider = "verbs";
  options.hosts_apart = true;
  EXPECT_THAT(StartCluster(options), StatusIs(Code::kInvalidArgument, HasSubstr("verbs")));
  options.provider = "";
  options.netem = std::string(201, 'x');
  EXPECT_THAT(StartCluster(options), StatusIs(Code::kInvalidArgument, HasSubstr("netem")));
  options.netem = "delay 1ms";
  options.hosts_apart = false;
  EXPECT_THAT(StartCluster(options), StatusIs(Code::kInvalidArgument, HasSubstr("hosts apart")));
  EXPECT_FALSE(fs::exists(options.directory));
}

TEST(NetworkTest, NodesHaveAddressesOfTheirOwn) {
  const cluster::Network network{"hl00000000", 7, ""};
  EXPECT_EQ(cluster::NodeAddress(network, cluster::kPrimaryNode), "198.18.7.1");
  EXPECT_EQ(cluster::NodeAddress(network, "replica0"), "198.18.7.2");
  EXPECT_EQ(cluster::NodeAddress(network, "replica7"), "198.18.7.9");
  EXPECT_FALSE(cluster::IsReplicaNode("replica"));
  EXPECT_FALSE(cluster::IsReplicaNode("replica-1"));
  EXPECT_FALSE(cluster::IsReplicaNode("replica100"));
}

TEST(NetworkTest, ADescriptionNamesOnlyNetworksThatCouldBeMade) {
  const auto parse = [](const std::string& name, int subnet, const std::string& replica) {
    return cluster::ParseClusterFile(
        "{\"version\": 2, \"region_size\": 1, \"media\": \"ram\", \"provider\": "
        "\"softrnic\", \"device\": \"\", \"network\": {\"name\": \"" +
            name + "\", \"subnet\": " + std::to_string(subnet) +
            ", \"netem\": \"\"}, \"replicas\": [{\"name\": \"" + replica +
            "\", \"listen\": \"198.18.7.2:0\"}]}",
        "cluster.json");
  };
  EXPECT_OK(parse("hl0123abcd", 7, "replica0"));
  EXPECT_THAT(parse("eth0", 7, "replica0"), StatusIs(Code::kCorruption));
  EXPECT_THAT(parse("hl0123abcd; rm", 7, "replica0"), StatusIs(Code::kCorruption));
  EXPECT_THAT(parse("hl0123abcd", 256, "replica0"), StatusIs(Code::kCorruption));
  EXPECT_THAT(parse("hl0123abcd", 7, "node"), StatusIs(Code::kCorruption));
}

}  // namespace
}  // namespace hyperloop
