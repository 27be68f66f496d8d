#include "hyperloop/core/trusted_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "support/status_matchers.h"

namespace hyperloop {
namespace {

namespace fs = std::filesystem;
constexpr uid_t kStranger = 65534;

class TrustedFilesTest : public testing::Test {
 protected:
  TrustedFilesTest() {
    char name[] = "/tmp/hyperloop_trust_XXXXXX";
    EXPECT_NE(mkdtemp(name), nullptr);
    base_ = name;
  }
  ~TrustedFilesTest() override {
    fs::current_path("/");
    fs::remove_all(base_);
  }
  std::string Resolved(const std::string& path) {
    const Result<std::string> found = CheckDirectory(path, DirectoryRule::kOwn);
    return found.ok() ? *found : found.status().ToString();
  }
  Code CodeOf(const std::string& path, DirectoryRule rule = DirectoryRule::kOwn) {
    return CheckDirectory(path, rule).status().code();
  }
  Code OpenCode(const std::string& path) { return OpenTrustedFile(path, O_RDONLY).status().code(); }

  std::string base_;
};

TEST_F(TrustedFilesTest, PathsAreWalkedAsTheKernelDoes) {
  fs::create_directories(base_ + "/a/b");
  fs::create_directories(base_ + "/c");
  fs::create_symlink("../c", base_ + "/a/relative");
  fs::create_symlink(base_ + "/a/b/", base_ + "/c/absolute");
  fs::create_symlink("loop", base_ + "/loop");
  fs::current_path(base_ + "/a");
  for (const std::string path : {"b", "./b/", "relative/../a/b", "relative/absolute",
                                 "../c/absolute/.", "b/../../c//absolute/../b"}) {
    EXPECT_EQ(Resolved(path), base_ + "/a/b") << path;
    EXPECT_EQ(Resolved(path), fs::canonical(path).string()) << path;
  }
  EXPECT_EQ(Resolved(""), base_ + "/a");
  EXPECT_EQ(CodeOf("missing"), Code::kNotFound);
  EXPECT_NE(CodeOf(base_ + "/loop"), Code::kOk);
  std::ofstream("file") << "x";
  EXPECT_NE(CodeOf("file"), Code::kOk);
  EXPECT_NE(CodeOf("file/.."), Code::kOk);
  const Result<std::string> root = CheckDirectory("/..", DirectoryRule::kShared);
  ASSERT_OK(root);
  EXPECT_EQ(*root, "/");
}

TEST_F(TrustedFilesTest, StickyDirectoriesMayLeadThereButAreNobodysOwn) {
  ASSERT_EQ(chmod(base_.c_str(), 01777), 0);
  EXPECT_EQ(CodeOf(base_, DirectoryRule::kShared), Code::kOk);
  EXPECT_EQ(CodeOf(base_), Code::kPermissionDenied);
  ASSERT_EQ(mkdir((base_ + "/own").c_str(), 0700), 0);
  EXPECT_EQ(CodeOf(base_ + "/own"), Code::kOk);
  ASSERT_EQ(chmod(base_.c_str(), 0730), 0);
  EXPECT_EQ(CodeOf(base_ + "/own"), Code::kPermissionDenied);
  EXPECT_EQ(CodeOf(base_, DirectoryRule::kShared), Code::kPermissionDenied);
}

TEST_F(TrustedFilesTest, FilesAreThisUsersOrRootsAndWritableByNobodyElse) {
  const std::string file = base_ + "/file", link = base_ + "/link";
  EXPECT_EQ(OpenCode(file), Code::kNotFound);
  std::ofstream(file) << "0123456789";
  fs::create_symlink(file, link);
  EXPECT_EQ(OpenCode(file), Code::kOk);
  EXPECT_EQ(OpenCode(link), Code::kPermissionDenied);
  EXPECT_EQ(OpenCode(base_), Code::kPermissionDenied);
  EXPECT_EQ(ReadTrustedFile(file, 4).value(), "456789");
  EXPECT_EQ(ReadTrustedFile(file, 40).value(), "");
  for (const mode_t mode : {0660, 0602}) {
    ASSERT_EQ(chmod(file.c_str(), mode), 0);
    EXPECT_EQ(OpenCode(file), Code::kPermissionDenied) << mode;
  }
  ASSERT_EQ(chmod(file.c_str(), 0644), 0);
  if (geteuid() != 0) GTEST_SKIP() << "the rest needs root, to make what is another user's";
  ASSERT_EQ(chown(file.c_str(), kStranger, kStranger), 0);
  EXPECT_EQ(OpenCode(file), Code::kPermissionDenied);
}

TEST_F(TrustedFilesTest, RootsDirectoriesAndFilesAreTrustedByOthers) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  ASSERT_EQ(chmod(base_.c_str(), 0755), 0);
  ASSERT_EQ(mkdir((base_ + "/theirs").c_str(), 0700), 0);
  ASSERT_EQ(chown((base_ + "/theirs").c_str(), kStranger, kStranger), 0);
  std::ofstream(base_ + "/file") << "x";
  EXPECT_EQ(CodeOf(base_ + "/theirs"), Code::kPermissionDenied);
  ASSERT_EQ(seteuid(kStranger), 0);
  EXPECT_EQ(CodeOf(base_ + "/theirs"), Code::kOk);
  EXPECT_EQ(CodeOf(base_), Code::kPermissionDenied) << "root's is not its own";
  EXPECT_EQ(CodeOf(base_, DirectoryRule::kShared), Code::kOk);
  EXPECT_EQ(OpenCode(base_ + "/file"), Code::kOk);
  ASSERT_EQ(seteuid(0), 0);
}

// In a user namespace of this user alone, as a sandbox makes one, root's directories seem to be the
// overflow user's.
TEST_F(TrustedFilesTest, RootIsTrustedOnTheWayWhereANamespaceHidesIt) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  constexpr uid_t kUser = 64321;
  constexpr int kCannot = 77;
  const std::string own = base_ + "/own";
  ASSERT_EQ(chmod(base_.c_str(), 0755), 0);
  ASSERT_EQ(mkdir(own.c_str(), 0700), 0);
  ASSERT_EQ(chown(own.c_str(), kUser, kUser), 0);
  std::ofstream(base_ + "/file") << "x";
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(kUser) != 0 || setuid(kUser) != 0) _exit(kCannot);
    prctl(PR_SET_DUMPABLE, 1);  // else /proc/self is root's
    if (unshare(CLONE_NEWUSER) != 0) _exit(kCannot);
    std::ofstream map("/proc/self/uid_map");
    map << kUser << ' ' << kUser << " 1\n" << std::flush;
    if (!map) _exit(kCannot);
    if (CodeOf(own) != Code::kOk) _exit(1);
    if (CodeOf(base_) != Code::kPermissionDenied) _exit(2);
    if (OpenCode(base_ + "/file") != Code::kPermissionDenied) _exit(3);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kCannot) GTEST_SKIP() << "no user namespaces here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace hyperloop
