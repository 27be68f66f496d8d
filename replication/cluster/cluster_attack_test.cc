// Other users may have prepared directories, links, logs and pid files where a cluster is kept.
// Each is refused before anything is written, started or signalled.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cluster/emulated_cluster_fixture.h"
#include "cluster/process.h"
#include "hyperloop/replication/emulated_cluster.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kStranger = 65534;

#define SKIP_UNLESS_ROOT() \
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to make what belongs to another user"

// A process that has nothing to do with any cluster; waits to be killed. A process may call itself
// what it likes.
class Bystander {
 public:
  explicit Bystander(uid_t user = geteuid(), const char* name = "bystander") {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    pid_ = fork();
    if (pid_ == 0) {
      if (user != geteuid() && (setgid(user) != 0 || setuid(user) != 0)) _exit(1);
      prctl(PR_SET_NAME, name);
      [[maybe_unused]] ssize_t n = write(ready[1], "", 1);
      for (;;) pause();
    }
    char byte;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
  }
  ~Bystander() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  bool Lives() const { return waitpid(pid_, nullptr, WNOHANG) == 0; }
  std::string PidFile() const {
    const cluster::ProcessId id = cluster::IdentifyProcess(pid_).value();
    return std::to_string(id.pid) + " " + std::to_string(id.start_time) + " " + id.boot + "\n";
  }

 private:
  pid_t pid_;
};

class ClusterAttackTest : public EmulatedClusterTest {
 protected:
  std::string File(const std::string& name) const { return options_.directory + "/" + name; }
  void MakeOwnDirectory() { ASSERT_EQ(mkdir(options_.directory.c_str(), 0700), 0); }
  void ExpectRefused(const Status& status, const std::string& named) {
    EXPECT_THAT(status, StatusIs(Code::kPermissionDenied));
    EXPECT_THAT(status.message(), HasSubstr(named));
  }
  void ExpectAllRefused(const std::string& named) {
    ExpectRefused(StartCluster(options_).status(), named);
    ExpectRefused(ReadCluster(options_.directory).status(), named);
    ExpectRefused(RemoveReplica(options_.directory, "replica0").status(), named);
    ExpectRefused(StopCluster(options_.directory).status(), named);
    ExpectRefused(ReadContents(options_.directory).status(), named);
    ExpectRefused(DestroyCluster(options_.directory).status(), named);
    ExpectRefused(ChangeRegionSize(options_.directory, 2 << 20,
                                   [](const ClusterInfo&) {
                                     ADD_FAILURE() << "the change was made";
                                     return Status::Ok();
                                   }),
                  named);
  }
};

TEST_F(ClusterAttackTest, LinksInTheFilesPlacesAreNotFollowed) {
  const std::string precious = base_ + "/precious";
  for (const char* name : {"replica1.log", "rnicd.log", "lock", "cluster.json"}) {
    fs::remove_all(options_.directory);
    MakeOwnDirectory();
    std::ofstream(precious) << "secret";
    fs::create_symlink(precious, File(name));
    const Result<ClusterInfo> info = StartCluster(options_);
    ExpectRefused(info.status(), File(name));
    EXPECT_EQ(Slurp(precious), "secret") << name;
  }
}

TEST_F(ClusterAttackTest, LinksInTemporaryFilesPlacesAreReplaced) {
  const std::string precious = base_ + "/precious";
  std::ofstream(precious) << "secret";
  ASSERT_OK(StartCluster(options_));
  ASSERT_OK(StopCluster(options_.directory));
  fs::create_symlink(precious, File("cluster.json.new"));
  fs::create_symlink(precious, File("replica0.pid.new"));
  const Result<ClusterInfo> info = StartCluster(options_);
  ASSERT_OK(info);
  EXPECT_EQ(Slurp(precious), "secret");
  EXPECT_FALSE(fs::is_symlink(File("cluster.json")));
  EXPECT_FALSE(fs::is_symlink(File("replica0.pid")));
}

TEST_F(ClusterAttackTest, AQueueInALogsPlaceBlocksNobody) {
  MakeOwnDirectory();
  ASSERT_EQ(mkfifo(File("replica0.log").c_str(), 0600), 0);
  EXPECT_THAT(StartCluster(options_), StatusIs(Code::kPermissionDenied));
}

TEST_F(ClusterAttackTest, AnotherUsersDirectoryIsRefused) {
  SKIP_UNLESS_ROOT();
  const Bystander bystander;
  ASSERT_OK(StartCluster(options_));
  ASSERT_OK(StopCluster(options_.directory));
  std::ofstream(File("replica0.pid")) << bystander.PidFile();
  ASSERT_EQ(chown(options_.directory.c_str(), kStranger, kStranger), 0);
  ExpectAllRefused("belongs to user 65534");
  EXPECT_TRUE(bystander.Lives());
}

TEST_F(ClusterAttackTest, ADirectoryThatOthersMayWriteIsRefused) {
  ASSERT_OK(StartCluster(options_));
  for (const mode_t mode : {0770, 0707, 01777}) {
    ASSERT_EQ(chmod(options_.directory.c_str(), mode), 0);
    ExpectAllRefused("chmod go-w " + options_.directory);
  }
  ASSERT_EQ(chmod(options_.directory.c_str(), 0755), 0);
  EXPECT_OK(ReadCluster(options_.directory)) << "others may look";
}

TEST_F(ClusterAttackTest, ADirectoryThatOthersMayReplaceIsRefused) {
  ASSERT_OK(StartCluster(options_));
  ASSERT_EQ(chmod(base_.c_str(), 0777), 0);
  ExpectAllRefused("chmod go-w " + base_);
  ASSERT_EQ(chmod(base_.c_str(), 01777), 0);
  EXPECT_OK(ReadCluster(options_.directory)) << "in a sticky directory nobody can";
  if (geteuid() == 0) {
    ASSERT_EQ(chown(base_.c_str(), kStranger, kStranger), 0);
    ExpectAllRefused(base_ + " belongs to user 65534");
    ASSERT_EQ(chown(base_.c_str(), 0, 0), 0);
  }
  ASSERT_EQ(chmod(base_.c_str(), 0700), 0);
}

TEST_F(ClusterAttackTest, NothingIsMadeWhereOthersMayReplaceIt) {
  ASSERT_EQ(chmod(base_.c_str(), 0777), 0);
  options_.directory = base_ + "/a/b";
  ExpectRefused(StartCluster(options_).status(), "chmod go-w " + base_);
  EXPECT_FALSE(fs::exists(base_ + "/a"));
  ASSERT_EQ(chmod(base_.c_str(), 0700), 0);
}

TEST_F(ClusterAttackTest, DirectoriesOnTheWayAreMadeSafeWhateverTheUmask) {
  options_.directory = base_ + "/a/b/";
  const mode_t old = umask(0);
  const Result<ClusterInfo> info = StartCluster(options_);
  umask(old);
  ASSERT_OK(info);
  EXPECT_EQ(fs::status(base_ + "/a").permissions(), fs::perms(0755));
  EXPECT_EQ(fs::status(base_ + "/a/b").permissions(), fs::perms(0700));
}

TEST_F(ClusterAttackTest, AnotherUsersLinkToADirectoryIsNotFollowed) {
  ASSERT_OK(StartCluster(options_));
  const std::string real = options_.directory, link = base_ + "/link";
  fs::create_symlink("d", link);
  options_.directory = link;
  const Result<ClusterInfo> own = ReadCluster(link);
  ASSERT_OK(own);
  EXPECT_EQ(own->directory, fs::canonical(real).string());
  if (geteuid() == 0) {
    ASSERT_EQ(lchown(link.c_str(), kStranger, kStranger), 0);
    ExpectAllRefused("the link " + link);
  }
  options_.directory = real;
}

TEST_F(ClusterAttackTest, APidFileThatOthersMayHaveWrittenIsNotBelieved) {
  const Bystander bystander;
  ASSERT_OK(StartCluster(options_));
  const std::string pid = File("replica1.pid"), honest = Slurp(pid);
  std::ofstream(pid) << bystander.PidFile();
  ASSERT_EQ(chmod(pid.c_str(), 0666), 0);
  ExpectAllRefused(pid + " may be written by others");
  if (geteuid() == 0) {
    ASSERT_EQ(chmod(pid.c_str(), 0600), 0);
    ASSERT_EQ(chown(pid.c_str(), kStranger, kStranger), 0);
    ExpectAllRefused(pid + " belongs to user 65534");
    ASSERT_EQ(chown(pid.c_str(), 0, 0), 0);
  }
  ASSERT_EQ(chmod(pid.c_str(), 0600), 0);
  fs::rename(pid, base_ + "/elsewhere");
  fs::create_symlink(base_ + "/elsewhere", pid);
  ExpectAllRefused(pid + " is a symbolic link");
  EXPECT_TRUE(bystander.Lives());
  fs::remove(pid);
  std::ofstream(pid) << honest;
  EXPECT_TRUE(ReadCluster(options_.directory)->AllAlive()) << "a refused stop ends nothing";
}

TEST_F(ClusterAttackTest, AnotherUsersProcessIsNeitherBelievedNorSignalled) {
  SKIP_UNLESS_ROOT();
  // The second one's name looks like the line of /proc/PID/status that tells the user.
  for (const char* name : {"bystander", "Uid: 0 0 0 0"}) {
    const Bystander stranger(kStranger, name);
    ASSERT_OK(StartCluster(options_));
    Kill("replica1");
    std::ofstream(File("replica1.pid")) << stranger.PidFile();
    EXPECT_EQ(ReadCluster(options_.directory)->processes[2].state, ProcessState::kDead) << name;
    ASSERT_OK(StopCluster(options_.directory));
    EXPECT_TRUE(stranger.Lives()) << name;
  }
}

}  // namespace
}  // namespace hyperloop
