// What a cluster made goes with it, and nothing else does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "cluster/emulated_cluster_fixture.h"
#include "cluster/process.h"
#include "hyperloop/replication/emulated_cluster.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kGroup[] = "3d6f0a52-7a4b-4b7e-9a3d-2f1c5b8e9d10";
constexpr char kChecksum[] = "@0123456789abcdef";

class DestroyTest : public EmulatedClusterTest {
 protected:
  std::string File(const std::string& name) const { return options_.directory + "/" + name; }
  void Write(const std::string& name) {
    fs::create_directories(fs::path(File(name)).parent_path());
    std::ofstream(File(name)) << "something";
  }
};

TEST_F(DestroyTest, EverythingThatAClusterAndItsToolsMakeIsRemoved) {
  ASSERT_OK(StartCluster(options_));
  const cluster::ProcessId replica = Id("replica1");
  const std::string files = std::string("replica1.pool.files/") + kGroup + "/";
  for (const std::string& name :
       {files + "000007.sst" + kChecksum, files + "000008.sst" + kChecksum + "-9.part",
        files + "000009.sst" + kChecksum + ".damaged", std::string("primary.pool"),
        std::string("replica0.pool.before-resize-1048576"),
        std::string("replica0.pool.before-resize-1048576.2"), std::string("replica2.pool.resizing"),
        std::string("replica5.pool"), std::string("cluster.json.new")})
    Write(name);
  const Result<ClusterContents> contents = ReadContents(options_.directory);
  ASSERT_OK(contents);
  EXPECT_THAT(contents->running, ElementsAre("rnicd", "replica0", "replica1", "replica2"));
  EXPECT_THAT(contents->made, AllOf(Contains(files), Contains("replica5.pool"), Contains("keys/")));
  EXPECT_THAT(contents->others, IsEmpty());
  EXPECT_TRUE(fs::exists(File("replica5.pool"))) << "looking removes nothing";

  const Result<ClusterContents> removed = DestroyCluster(options_.directory);
  ASSERT_OK(removed);
  EXPECT_THAT(removed->others, IsEmpty());
  EXPECT_EQ(cluster::StateOf(replica), ProcessState::kDead);
  EXPECT_FALSE(fs::exists(options_.directory));
  EXPECT_THAT(DestroyCluster(options_.directory), StatusIs(Code::kNotFound));
  EXPECT_OK(StartCluster(options_)) << "a new one";
}

TEST_F(DestroyTest, WhatTheClusterDidNotMakeStays) {
  ASSERT_OK(StartCluster(options_));
  const std::string group = std::string("replica1.pool.files/") + kGroup + "/";
  const std::string outside = base_ + "/outside";
  fs::create_directory(outside);
  std::ofstream(outside + "/precious") << "something";
  for (const std::string& name :
       {std::string("db/CURRENT"), group + "000007.sst" + kChecksum, group + "notes.txt",
        std::string("replica0.pool.bak"), std::string("primary.pool.before-resize-of-mine"),
        std::string("replica.pool"), std::string("keys/backup")})
    Write(name);
  fs::create_directory_symlink(outside, File("replica2.pool.files"));
  fs::create_symlink(outside + "/precious", File("replica9.log"));
  const Result<ClusterContents> removed = DestroyCluster(options_.directory);
  ASSERT_OK(removed);
  EXPECT_THAT(
      removed->others,
      ElementsAre("db/", "keys/backup", "primary.pool.before-resize-of-mine", "replica.pool",
                  "replica0.pool.bak", group + "notes.txt", "replica2.pool.files", "replica9.log"));
  for (const std::string& name : removed->others)
    EXPECT_TRUE(fs::exists(fs::symlink_status(File(name)))) << name;
  EXPECT_TRUE(fs::exists(outside + "/precious"));
  EXPECT_FALSE(fs::exists(File(group + "000007.sst" + kChecksum)));
  EXPECT_FALSE(fs::exists(File("replica1.pool")));
  EXPECT_FALSE(fs::exists(File("cluster.json")));
}

TEST_F(DestroyTest, ADirectoryWithoutAClusterIsRefused) {
  ASSERT_EQ(mkdir(options_.directory.c_str(), 0700), 0);
  Write("replica0.pool");
  EXPECT_THAT(DestroyCluster(options_.directory),
              StatusIs(Code::kNotFound, HasSubstr("it has no cluster.json")));
  std::ofstream(File("cluster.json")) << "{}";
  EXPECT_THAT(DestroyCluster(options_.directory), StatusIs(Code::kCorruption));
  EXPECT_TRUE(fs::exists(File("replica0.pool")));
  EXPECT_FALSE(fs::exists(File("lock"))) << "nothing is written into it either";
}

// Starting waits for the end of the destruction, and then finds a directory that is gone or empty.
TEST_F(DestroyTest, StartAndDestroyAtTheSameTime) {
  for (int round = 0; round < 5; ++round) {
    ASSERT_OK(StartCluster(options_));
    std::thread other([this] { DestroyCluster(options_.directory).status().IgnoreError(); });
    const Result<ClusterInfo> started = StartCluster(options_);
    other.join();
    if (started.ok()) {
      // Before the destruction, or after it.
      const Result<ClusterInfo> now = ReadCluster(options_.directory);
      EXPECT_TRUE(!now.ok() || now->AllAlive());
    }
    StopCluster(options_.directory).status().IgnoreError();
    fs::remove_all(options_.directory);
  }
}

}  // namespace
}  // namespace hyperloop
