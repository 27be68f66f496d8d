// Tests hyperloop-replica as a program: its refusals, its end, that it sleeps, and that it checks
// its region while nobody writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <thread>

#include "hyperloop/replication/store.h"
#include "support/append_durably.h"
#include "support/child_process.h"
#include "support/cluster.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using testing::HasSubstr;

// One cluster for all tests: a replica that holds a closed database. No test changes it. Each has
// "own.pool" for itself, which may be a copy of that replica's pool.
class ReplicaTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = std::make_unique<TestCluster>(1, 16 << 20);
    ASSERT_TRUE(shared_->started());
    const auto store = Store::Open(shared_->Options(), nullptr);
    ASSERT_OK(store);
    TakeRequest request;
    request.directory = shared_->folder() + "/db";
    request.directory_empty = true;
    TakeResult taken;
    ASSERT_OK((*store)->Take(request, &taken));
    const auto file = (*store)->Create("000004.log");
    ASSERT_OK(file);
    ASSERT_OK(AppendDurably(**store, *file, std::string(kBytes, 'w')));
    ASSERT_OK((*store)->Close());
    before_ = Slurp(shared_->pool(0));
  }
  static void TearDownTestSuite() {
    shared_.reset();
    before_.clear();
  }
  void SetUp() override { ASSERT_FALSE(before_.empty()); }
  void TearDown() override {
    own_ = ChildProcess();
    for (const auto& each : std::filesystem::directory_iterator(shared_->folder()))
      if (each.path().filename().string().starts_with("own.")) std::filesystem::remove_all(each);
    EXPECT_TRUE(Slurp(shared_->pool(0)) == before_) << "the replica of the cluster changed";
    EXPECT_OK(shared_->ReplicaStatus(0));
  }

  struct Ended {
    int code = 0;
    std::string output;  // both streams
  };
  // Runs the program; paths count from the cluster's folder.
  Ended Run(const std::string& changes, const std::string& pool = "own.pool",
            const std::string& socket = "cluster/rnicd.sock") {
    const std::string command = "exec " + ProgramPath("hyperloop-replica") + " --pool " +
                                cluster().folder() + "/" + pool + " --host extra --device " +
                                cluster().folder() + "/" + socket + " " + trust_ + " " + changes +
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
  static TestCluster& cluster() { return *shared_; }
  static std::string OwnPool() { return cluster().folder() + "/own.pool"; }
  static std::string OwnLog() { return cluster().folder() + "/own.log"; }
  static void CopyPool() { std::filesystem::copy_file(cluster().pool(0), OwnPool()); }
  // Changes one bit of the own pool, `distance` bytes after the last place of `text`.
  static void Damage(const std::string& text, size_t distance) {
    const std::string bytes = Slurp(OwnPool());
    const size_t at = bytes.rfind(text);
    ASSERT_NE(at, std::string::npos);
    std::fstream pool(OwnPool(), std::ios::in | std::ios::out | std::ios::binary);
    pool.seekp(static_cast<std::streamoff>(at + distance));
    pool.put(static_cast<char>(bytes[at + distance] ^ 1));
  }
  // Starts the program on the own pool. It logs to OwnLog(). Returns where it listens.
  std::string StartOwn(const std::string& changes = "") {
    own_ = ChildProcess::Spawn({"/bin/sh", "-c",
                                "exec " + ProgramPath("hyperloop-replica") + " --pool " +
                                    OwnPool() + " --host extra --device " + cluster().socket() +
                                    " --insecure " + changes + " 2>" + OwnLog()});
    const std::string ready = own_.ReadLine();
    EXPECT_THAT(ready, testing::MatchesRegex("ready 127.0.0.1:[1-9][0-9]*")) << Slurp(OwnLog());
    return ready.substr(ready.find(' ') + 1);
  }
  static NodeStatus StatusOfOwn() {
    const auto device = cluster().OpenDevice();
    EXPECT_OK(device);
    if (!device.ok()) return {};
    const auto view = NodeView::Connect(**device, "extra");
    EXPECT_OK(view);
    if (!view.ok()) return {};
    auto status = (*view)->ReadStatus();
    EXPECT_OK(status);
    return status.ok() ? std::move(status).value() : NodeStatus();
  }
  // How often the process's main thread went to sleep so far.
  static long Sleeps(pid_t pid) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("voluntary_ctxt_switches:", 0) == 0) return std::stol(line.substr(24));
    }
    return -1;
  }

  static constexpr size_t kBytes = 1000;
  static inline std::unique_ptr<TestCluster> shared_;
  static inline std::string before_;  // the pool's bytes
  ChildProcess own_;
  std::string trust_ = "--insecure";
};

TEST_F(ReplicaTest, WithoutKeysItServesOnlyWhenToldSoAndOnLoopback) {
  ExpectRefused(Run("--size 16M --listen 0.0.0.0:0"), "hyperloopctl keys init");
  trust_ = "";
  ExpectRefused(Run("--size 16M"), "hyperloopctl keys init", 2);
  EXPECT_FALSE(std::filesystem::exists(cluster().folder() + "/own.pool"));
  trust_ = "--insecure --keys " + cluster().folder() + "/cluster/keys";
  EXPECT_EQ(Run("--size 16M").code, 2);
  trust_ = "--keys " + cluster().folder() + "/nowhere";
  ExpectRefused(Run("--size 16M"), "nowhere");
  // With keys it may be reached from elsewhere.
  ChildProcess replica = ChildProcess::Spawn(
      {ProgramPath("hyperloop-replica"), "--pool", cluster().folder() + "/own.pool", "--size",
       "16M", "--host", "extra", "--device", cluster().socket(), "--listen", "0.0.0.0:0", "--keys",
       cluster().folder() + "/cluster/keys"});
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
      Run("", std::filesystem::path(cluster().pool(0)).lexically_relative(cluster().folder())),
      "use");
}

TEST_F(ReplicaTest, WrongPoolsAreRefused) {
  ExpectRefused(Run(""), "--size");  // none there, and no size to make one
  std::ofstream(cluster().folder() + "/own.pool") << "not a pool, but somebody's text";
  ExpectRefused(Run("--size 16M"), "own.pool");
  std::ifstream text(cluster().folder() + "/own.pool");
  std::string first;
  std::getline(text, first);
  EXPECT_EQ(first, "not a pool, but somebody's text");
  ExpectRefused(Run("--size 16M", "no/such/folder/own.pool"), "no/such/folder");
}

TEST_F(ReplicaTest, AnotherSizeThanThePoolsIsRefused) {
  CopyPool();
  const Ended ended = Run("--size 32M");
  ExpectRefused(ended, "16777216", 2);
  EXPECT_THAT(ended.output, HasSubstr("33554432"));
}

TEST_F(ReplicaTest, BadAddressesAreRefused) {
  ExpectRefused(Run("--size 16M --listen nonsense"), "nonsense", 2);
  EXPECT_FALSE(std::filesystem::exists(cluster().folder() + "/own.pool"));
  ExpectRefused(Run("--size 16M --listen 192.0.2.1:0"), "192.0.2.1");
  ExpectRefused(Run("--size 16M --listen " + cluster().endpoint(0)), cluster().endpoint(0));
}

TEST_F(ReplicaTest, AbsentRnicDaemonIsNamed) {
  ExpectRefused(Run("--size 16M", "own.pool", "nobody.sock"), "nobody.sock");
}

TEST_F(ReplicaTest, EndsInOrderAndFindsItsPoolAgain) {
  std::string node;
  for (const int signal : {SIGTERM, SIGINT}) {
    StartOwn("--size 16M");
    const NodeStatus status = StatusOfOwn();
    EXPECT_FALSE(status.node.empty());
    if (!node.empty()) {
      EXPECT_EQ(status.node, node);
    }
    node = status.node;
    own_.Signal(signal);
    EXPECT_EQ(own_.Wait(), 0);
  }
}

// It checks the RNIC daemon once a second, and does nothing else.
TEST_F(ReplicaTest, IdleReplicaSleeps) {
  const pid_t pid = cluster().replica_pid(0);
  const long before = Sleeps(pid);
  ASSERT_GE(before, 0);
  const auto begun = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(std::chrono::seconds(2));
  const long sleeps = Sleeps(pid) - before;
  const auto passed = std::chrono::steady_clock::now() - begun;
  EXPECT_LE(sleeps, 3 + std::chrono::duration_cast<std::chrono::seconds>(passed).count());
}

TEST_F(ReplicaTest, DamagedSuperblockIsRefusedWithBothWaysOut) {
  CopyPool();
  Damage("HLREGION", 20);
  const std::string before = Slurp(OwnPool());
  const Ended ended = Run("");
  ExpectRefused(ended, "is damaged");
  EXPECT_THAT(ended.output, HasSubstr("set the file aside"));
  EXPECT_THAT(ended.output, HasSubstr("put a copy of the file back"));
  EXPECT_TRUE(Slurp(OwnPool()) == before);
}

TEST_F(ReplicaTest, DamagedCopyOfTheNodePageIsReported) {
  CopyPool();
  Damage("HLNODE", 40);
  StartOwn();
  EXPECT_THAT(Slurp(OwnLog()), HasSubstr("copies of the node page is not valid"));
  EXPECT_FALSE(StatusOfOwn().group.empty());
}

// It ends, since it cannot go on, and says why.
TEST_F(ReplicaTest, APoolThatCannotBeReadIsReported) {
  CopyPool();
  StoreOptions options = cluster().Options();
  options.replicas = {StartOwn()};
  options.keys.clear();
  std::filesystem::resize_file(OwnPool(), 4096);
  EXPECT_FALSE(Store::Open(options, nullptr).ok());
  EXPECT_TRUE(Eventually([&] {
    return Slurp(OwnLog()).find("the pool cannot be read (SIGBUS)") != std::string::npos;
  })) << Slurp(OwnLog());
}

TEST_F(ReplicaTest, DamageOfAnIdleGroupIsReported) {
  CopyPool();
  Damage(std::string(kBytes, 'w'), 500);  // in the extent, because the log lies before the extents
  StartOwn();
  EXPECT_TRUE(Eventually([&] {
    const std::string text = Slurp(OwnLog());
    const size_t at = text.find("this replica's region is damaged");
    return at != std::string::npos && text.find("000004.log", at) != std::string::npos;
  })) << Slurp(OwnLog());
}

}  // namespace
}  // namespace hyperloop::test
