// A fixture for tests of a cluster's bookkeeping, with shell scripts in place of the daemons.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "cluster/process.h"
#include "hyperloop/replication/emulated_cluster.h"
#include "support/status_matchers.h"

namespace hyperloop {

namespace fs = std::filesystem;

inline constexpr std::chrono::milliseconds kPatience{10000};

inline std::string Slurp(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class EmulatedClusterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/hyperloop_cluster_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    base_ = name;
    options_.directory = base_ + "/d";
    options_.programs = base_ + "/bin";
    options_.region_size = 1 << 20;
    fs::create_directory(options_.programs);
    Program("hyperloop-rnicd", "echo ready; exec sleep 600");
    SetUpGoodReplica();
  }
  void SetUpGoodReplica() {
    // Makes its pool and listens where it was told to; a port that the cluster has drawn becomes
    // 40000 + the replica's digit.
    Replica("case $l in *:[123][0-9]*) l=127.0.0.1:4000${h#replica};; esac");
  }
  // With `change`, which may set another $l.
  void Replica(const std::string& change) {
    Program(
        "hyperloop-replica",
        "while [ $# -gt 0 ]; do case $1 in --listen) l=$2;; --host) h=$2;; --pool) p=$2;; esac; "
        "shift; done; " +
            change + "; : > \"$p\"; echo ready $l; exec sleep 600");
  }
  void TearDown() override {
    StopCluster(options_.directory).status().IgnoreError();
    fs::remove_all(base_);
  }
  void Program(const std::string& name, const std::string& body) {
    const std::string path = options_.programs + "/" + name;
    std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
    ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  }
  cluster::ProcessId Id(const std::string& name) {
    return cluster::ReadPidFile(options_.directory + "/" + name + ".pid").value();
  }
  void Kill(const std::string& name) {
    const cluster::ProcessId id = Id(name);
    ASSERT_OK(cluster::Signal(id, SIGKILL));
    ASSERT_TRUE(cluster::WaitGone(id, kPatience));
  }

  std::string base_;
  ClusterOptions options_;
};

}  // namespace hyperloop
