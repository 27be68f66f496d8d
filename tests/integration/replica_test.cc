// Tests hyperloop-replica as a program: its refusals, its end, that it sleeps, and that it checks
// its region while nobody writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "hyperloop/replication/store.h"
#include "support/append_durably.h"
#include "support/child_process.h"
#include "support/cluster.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using testing::HasSubstr;

struct Ended {
  int code = 0;
  std::string output;  // both streams
};

class ReplicaTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(cluster_.started()); }

  // Runs the program; paths count from the cluster's folder.
  Ended Run(const std::string& changes, const std::string& pool = "own.pool",
            const std::string& socket = "cluster/rnicd.sock") {
    const std::string command = "exec " + ProgramPath("hyperloop-replica") + " --pool " +
                                cluster_.folder() + "/" + pool + " --host extra --device " +
                                cluster_.folder() + "/" + socket + " " + trust_ + " " + changes +
                                " 2>&1";
    ChildProcess process = ChildProcess::Spawn({"/bin/sh", "-c", command});
    Ended ended;
    for (std::string line = process.ReadLine(); !line.empty(); line = process.ReadLine())
      ended.output += line + "\n";
    ended.code = process.Wait();
    return ended;
  }
  // `code`: 2 if the options are wrong.
  void ExpectRefused(const Ended& ended, const std::string& reason, int code = 1) {
    EXPECT_EQ(ended.code, code) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr(reason));
    EXPECT_THAT(ended.output, testing::Not(HasSubstr("ready 127")));
  }
  static std::string Slurp(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // A database whose only file has these bytes, and which is closed.
  void MakeGroup(const std::string& name, const std::string& bytes) {
    const auto store = Store::Open(cluster_.Options(), nullptr);
    ASSERT_OK(store);
    TakeRequest request;
    request.directory = cluster_.folder() + "/db";
    request.directory_empty = true;
    TakeResult taken;
    ASSERT_OK((*store)->Take(request, &taken));
    const auto file = (*store)->Create(name);
    ASSERT_OK(file);
    ASSERT_OK(AppendDurably(**store, *file, bytes));
    ASSERT_OK((*store)->Close());
  }
  // Changes one bit of a dead replica's pool, `distance` bytes after the last place of `text`.
  void Damage(const std::string& text, size_t distance) {
    const std::string bytes = Slurp(cluster_.pool(0));
    const size_t at = bytes.rfind(text);
    ASSERT_NE(at, std::string::npos);
    std::fstream pool(cluster_.pool(0), std::ios::in | std::ios::out | std::ios::binary);
    pool.seekp(static_cast<std::streamoff>(at + distance));
    pool.put(static_cast<char>(bytes[at + distance] ^ 1));
  }
  // How often the process's main thread went to sleep so far.
  static long Sleeps(pid_t pid) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("voluntary_ctxt_switches:", 0) == 0) return std::stol(line.substr(24));
    }
    return -1;
  }

  TestCluster cluster_{1, 16 << 20};
  std::string trust_ = "--insecure";
};

TEST_F(ReplicaTest, WithoutKeysItServesOnlyWhenToldSoAndOnLoopback) {
  ExpectRefused(Run("--size 16M --listen 0.0.0.0:0"), "hyperloopctl keys init");
  trust_ = "";
  ExpectRefused(Run("--size 16M"), "hyperloopctl keys init", 2);
  EXPECT_FALSE(std::filesystem::exists(cluster_.folder() + "/own.pool"));
  trust_ = "--insecure --keys " + cluster_.folder() + "/cluster/keys";
  EXPECT_EQ(Run("--size 16M").code, 2);
  trust_ = "--keys " + cluster_.folder() + "/nowhere";
  ExpectRefused(Run("--size 16M"), "nowhere");
  // With keys it may be reached from elsewhere.
  ChildProcess replica = ChildProcess::Spawn(
      {ProgramPath("hyperloop-replica"), "--pool", cluster_.folder() + "/own.pool", "--size", "16M",
       "--host", "extra", "--device", cluster_.socket(), "--listen", "0.0.0.0:0", "--keys",
       cluster_.folder() + "/cluster/keys"});
  EXPECT_THAT(replica.ReadLine(), testing::MatchesRegex("ready 0.0.0.0:[1-9][0-9]*"));
}

TEST_F(ReplicaTest, UsageErrorsExitWithTwo) {
  EXPECT_EQ(Run("--no-such-flag").code, 2);
  EXPECT_EQ(Run("--size many").code, 2);
  EXPECT_EQ(Run("--media paper").code, 2);
  EXPECT_EQ(Run("--help").code, 0);
}

TEST_F(ReplicaTest, PoolInUseIsRefused) {
  ExpectRefused(
      Run("", std::filesystem::path(cluster_.pool(0)).lexically_relative(cluster_.folder())),
      "use");
}

TEST_F(ReplicaTest, WrongPoolsAreRefused) {
  ExpectRefused(Run(""), "--size");  // none there, and no size to make one
  std::ofstream(cluster_.folder() + "/own.pool") << "not a pool, but somebody's text";
  ExpectRefused(Run("--size 16M"), "own.pool");
  std::ifstream text(cluster_.folder() + "/own.pool");
  std::string first;
  std::getline(text, first);
  EXPECT_EQ(first, "not a pool, but somebody's text");
  ExpectRefused(Run("--size 16M", "no/such/folder/own.pool"), "no/such/folder");
}

TEST_F(ReplicaTest, AnotherSizeThanThePoolsIsRefused) {
  const std::string pool =
      std::filesystem::path(cluster_.pool(0)).lexically_relative(cluster_.folder());
  cluster_.KillReplica(0);
  const Ended ended = Run("--size 32M", pool);
  ExpectRefused(ended, "16777216", 2);
  EXPECT_THAT(ended.output, HasSubstr("33554432"));
}

TEST_F(ReplicaTest, BadAddressesAreRefused) {
  ExpectRefused(Run("--size 16M --listen nonsense"), "nonsense", 2);
  EXPECT_FALSE(std::filesystem::exists(cluster_.folder() + "/own.pool"));
  ExpectRefused(Run("--size 16M --listen 192.0.2.1:0"), "192.0.2.1");
  ExpectRefused(Run("--size 16M --listen " + cluster_.endpoint(0)), cluster_.endpoint(0));
}

TEST_F(ReplicaTest, AbsentRnicDaemonIsNamed) {
  ExpectRefused(Run("--size 16M", "own.pool", "nobody.sock"), "nobody.sock");
}

TEST_F(ReplicaTest, EndsInOrderAndFindsItsPoolAgain) {
  std::string node;
  for (int life = 0; life < 2; ++life) {
    ChildProcess replica = ChildProcess::Spawn(
        {ProgramPath("hyperloop-replica"), "--pool", cluster_.folder() + "/own.pool", "--size",
         "16M", "--host", "extra", "--device", cluster_.socket(), "--insecure"});
    const std::string ready = replica.ReadLine();
    EXPECT_THAT(ready, testing::MatchesRegex("ready 127.0.0.1:[1-9][0-9]*"));
    const auto device = cluster_.OpenDevice();
    ASSERT_OK(device);
    const auto view = NodeView::Connect(**device, "extra");
    ASSERT_OK(view);
    const auto status = (*view)->ReadStatus();
    ASSERT_OK(status);
    EXPECT_FALSE(status->node.empty());
    if (life == 1) {
      EXPECT_EQ(status->node, node);
    }
    node = status->node;
    replica.Signal(life == 0 ? SIGTERM : SIGINT);
    EXPECT_EQ(replica.Wait(), 0);
  }
}

TEST_F(ReplicaTest, IdleReplicaSleeps) {
  const pid_t pid = cluster_.replica_pid(0);
  const long before = Sleeps(pid);
  ASSERT_GE(before, 0);
  std::this_thread::sleep_for(std::chrono::seconds(2));
  // It checks the RNIC daemon once a second, and does nothing else.
  EXPECT_LE(Sleeps(pid) - before, 5);
}

TEST_F(ReplicaTest, DamagedSuperblockIsRefusedWithBothWaysOut) {
  MakeGroup("000004.log", "bytes");
  cluster_.KillReplica(0);
  Damage("HLREGION", 20);
  const std::string before = Slurp(cluster_.pool(0));
  const Ended ended =
      Run("", std::filesystem::path(cluster_.pool(0)).lexically_relative(cluster_.folder()));
  ExpectRefused(ended, "is damaged");
  EXPECT_THAT(ended.output, HasSubstr("set the file aside"));
  EXPECT_THAT(ended.output, HasSubstr("put a copy of the file back"));
  EXPECT_EQ(Slurp(cluster_.pool(0)), before);
}

TEST_F(ReplicaTest, DamagedCopyOfTheNodePageIsReported) {
  MakeGroup("000004.log", "bytes");
  cluster_.KillReplica(0);
  Damage("HLNODE", 40);
  ASSERT_OK(cluster_.Restart());
  EXPECT_THAT(Slurp(cluster_.folder() + "/cluster/replica0.log"),
              HasSubstr("copies of the node page is not valid"));
  const auto status = cluster_.ReplicaStatus(0);
  ASSERT_OK(status);
  EXPECT_FALSE(status->group.empty());
}

// It ends, since it cannot go on, and says why.
TEST_F(ReplicaTest, APoolThatCannotBeReadIsReported) {
  MakeGroup("000004.log", "bytes");
  std::filesystem::resize_file(cluster_.pool(0), 4096);
  StoreOptions options = cluster_.Options();
  options.ack_timeout = std::chrono::milliseconds(500);
  EXPECT_FALSE(Store::Open(options, nullptr).ok());
  const std::string log = cluster_.folder() + "/cluster/replica0.log";
  const auto reported = [&] {
    return Slurp(log).find("the pool cannot be read (SIGBUS)") != std::string::npos;
  };
  EXPECT_TRUE(Eventually(reported)) << Slurp(log);
}

TEST_F(ReplicaTest, DamageOfAnIdleGroupIsReported) {
  const std::string bytes(1000, 'w');
  MakeGroup("000004.log", bytes);
  cluster_.KillReplica(0);
  Damage(bytes, 500);  // in the extent, because the log lies before the extents
  ASSERT_OK(cluster_.Restart());
  const std::string log = cluster_.folder() + "/cluster/replica0.log";
  const auto reported = [&] {
    const std::string text = Slurp(log);
    const size_t at = text.find("this replica's region is damaged");
    return at != std::string::npos && text.find("000004.log", at) != std::string::npos;
  };
  EXPECT_TRUE(Eventually(reported)) << Slurp(log);
}

}  // namespace
}  // namespace hyperloop::test
