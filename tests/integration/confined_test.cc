// The RNIC daemon and replicas run as a hardened unit of a service manager would run them: a user
// of their own, no capabilities, a file system that is read-only but for their directory, and a
// filter of system calls (support/confine.cc).
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <vector>

#include "integration/rnicd_fixture.h"
#include "support/child_process.h"
#include "support/free_address.h"
#include "support/http_get.h"
#include "support/keys.h"

namespace hyperloop::test {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kUser = 64321;  // nobody's
constexpr int kCannot = 77;     // confine: this machine does not allow it

class ConfinedTest : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to take everything from the programs";
    char name[] = "/dev/shm/hyperloop-confined-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    ASSERT_NO_FATAL_FAILURE(MakeKeys(folder_, {"all"}));
    ASSERT_NO_FATAL_FAILURE(MakeKeys(folder_, {"primary", "replica0"}));
    for (const auto& entry : fs::recursive_directory_iterator(folder_))
      ASSERT_EQ(chown(entry.path().c_str(), kUser, kUser), 0);
    ASSERT_EQ(chown(name, kUser, kUser), 0);
    // In a sanitizer's build: its search for leaks traces the program, which the confinement
    // forbids.
    setenv("ASAN_OPTIONS", "detect_leaks=0", /*overwrite=*/0);
    auto probe = Confined({"/bin/true"});
    if (probe.Wait() == kCannot) {
      GTEST_SKIP()
          << "root may not make a mount namespace or filter system calls here (a container: "
             "--cap-add SYS_ADMIN)";
    }
  }
  void TearDown() override {
    replicas_.clear();
    daemon_.Kill();
    far_daemon_.Kill();
    fs::remove_all(folder_);
  }
  std::vector<std::string> Command(std::vector<std::string> command) const {
    std::vector<std::string> line = {ProgramPath("../tests/confine"),
                                     "--user",
                                     std::to_string(kUser),
                                     "--writable",
                                     folder_,
                                     "--"};
    line.insert(line.end(), command.begin(), command.end());
    return line;
  }
  ChildProcess Confined(const std::vector<std::string>& command) const {
    return ChildProcess::Spawn(Command(command));
  }
  void StartDaemon(const std::vector<std::string>& more = {}) {
    StartDaemonAt(Socket(), more, &daemon_);
  }
  void StartDaemonAt(const std::string& socket, const std::vector<std::string>& more,
                     ChildProcess* daemon) {
    std::vector<std::string> command = {ProgramPath("hyperloop-rnicd"), "--socket", socket};
    command.insert(command.end(), more.begin(), more.end());
    *daemon = Confined(command);
    ASSERT_EQ(daemon->ReadLine(), "ready " + socket);
  }
  // Starts one more replica; its HOST:PORT.
  void StartReplica(const std::string& media, std::string* listen,
                    const std::vector<std::string>& more = {}) {
    StartReplicaAt(Socket(), "all", media, listen, more);
  }
  void StartReplicaAt(const std::string& socket, const std::string& keys, const std::string& media,
                      std::string* listen, const std::vector<std::string>& more = {}) {
    const std::string host = "replica" + std::to_string(replicas_.size());
    std::vector<std::string> command = {ProgramPath("hyperloop-replica"),
                                        "--keys",
                                        KeysDir(folder_, keys),
                                        "--pool",
                                        folder_ + "/" + host + ".pool",
                                        "--size",
                                        "67108864",
                                        "--listen",
                                        "127.0.0.1:0",
                                        "--media",
                                        media,
                                        "--device",
                                        socket,
                                        "--host",
                                        host};
    command.insert(command.end(), more.begin(), more.end());
    replicas_.push_back(Confined(command));
    const std::string line = replicas_.back().ReadLine();
    ASSERT_EQ(line.rfind("ready ", 0), 0u) << "the replica said '" << line << "'";
    *listen = line.substr(6);
  }
  // Writes and flushes some hundred times, as the primary.
  int RunPrimary(const std::string& uri) {
    return Confined({ProgramPath("hyperloop-bench"), "--uri", uri, "--primitive=gwrite", "--flush",
                     "--size=1024", "--number=500", "--nopin"})
        .Wait();
  }
  // The replicas and the daemons end when they are told to.
  void ExpectEnd(std::initializer_list<ChildProcess*> daemons) {
    for (ChildProcess& replica : replicas_) {
      replica.Signal(SIGTERM);
      EXPECT_EQ(replica.Wait(), 0);
    }
    for (ChildProcess* daemon : daemons) {
      daemon->Signal(SIGTERM);
      EXPECT_EQ(daemon->Wait(), 0);
    }
  }
  std::string Socket() const { return folder_ + "/rnicd.sock"; }

  std::string folder_;
  ChildProcess daemon_, far_daemon_;
  std::vector<ChildProcess> replicas_;
};

TEST_F(ConfinedTest, AGroupWorks) {
  ASSERT_NO_FATAL_FAILURE(StartDaemon());
  std::string first, second;
  ASSERT_NO_FATAL_FAILURE(StartReplica("ram", &first));
  ASSERT_NO_FATAL_FAILURE(StartReplica("file-emulated", &second));
  const std::string uri = "hyperloop://" + first + "," + second + "?device=" + Socket() +
                          "&pool=" + folder_ + "/primary.pool&keys=" + KeysDir(folder_, "all");
  EXPECT_EQ(RunPrimary(uri), 0);
  ExpectEnd({&daemon_});
}

TEST_F(ConfinedTest, AGroupWorksOverALink) {
  const std::string near = FreeAddress(), far = FreeAddress(), far_socket = folder_ + "/far.sock";
  ASSERT_NO_FATAL_FAILURE(StartDaemon(
      {"--listen", near, "--peer", "replica0=" + far, "--keys", KeysDir(folder_, "primary")}));
  ASSERT_NO_FATAL_FAILURE(StartDaemonAt(
      far_socket,
      {"--listen", far, "--peer", "primary=" + near, "--keys", KeysDir(folder_, "replica0")},
      &far_daemon_));
  std::string replica;
  ASSERT_NO_FATAL_FAILURE(StartReplicaAt(far_socket, "replica0", "ram", &replica));
  EXPECT_EQ(RunPrimary("hyperloop://" + replica + "?device=" + Socket() + "&pool=" + folder_ +
                       "/primary.pool&keys=" + KeysDir(folder_, "primary")),
            0);
  ExpectEnd({&daemon_, &far_daemon_});
}

TEST_F(ConfinedTest, MetricsAreShown) {
  const std::string of_daemon = FreeAddress(), of_replica = FreeAddress();
  ASSERT_NO_FATAL_FAILURE(StartDaemon({"--metrics", of_daemon}));
  std::string replica;
  ASSERT_NO_FATAL_FAILURE(StartReplica("ram", &replica, {"--metrics", of_replica}));
  for (const std::string& address : {of_daemon, of_replica}) {
    const std::string answer = HttpGet(address, "/metrics");
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 ")) << answer;
    EXPECT_NE(answer.find("\nhyperloop_build_info{"), std::string::npos) << answer;
  }
  ExpectEnd({&daemon_});
}

TEST_F(ConfinedTest, WishesThatNeedAPrivilegeAreDoneWithout) {
  ASSERT_NO_FATAL_FAILURE(StartDaemon({"--priority", "nice", "--cpu", "auto"}));
  daemon_.Signal(SIGTERM);
  EXPECT_EQ(daemon_.Wait(), 0);
  ASSERT_NO_FATAL_FAILURE(StartDaemon({"--priority", "fifo", "--cpu", "none"}));
}

TEST_F(ConfinedTest, TheConfinementHolds) {
  // Without this confinement the tests above would show nothing.
  EXPECT_NE(Confined({"/bin/sh", "-c", "echo x > /tmp/hyperloop-confined"}).Wait(), 0);
  EXPECT_NE(Confined({"/bin/chown", "0", folder_}).Wait(), 0);
  EXPECT_EQ(Confined({"/bin/sh", "-c", "test ! -w /etc/passwd && : > " + folder_ + "/x"}).Wait(),
            0);
}

}  // namespace
}  // namespace hyperloop::test
