#include "follow/snapshot.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "hyperloop/core/unique_fd.h"
#include "support/must.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class SnapshotTest : public testing::Test {
 protected:
  SnapshotTest() {
    std::string pattern = testing::TempDir() + "/hyperloop-snapshot-XXXXXX";
    base = mkdtemp(pattern.data());
    to = base + "/to";
    replica.files = {{1, "CURRENT", Lane::kLog, 16, 0}, {2, "000007.sst", Lane::kBulk, 100, 1}};
  }
  ~SnapshotTest() override { fs::remove_all(base); }

  static void Write(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  // What a follower leaves.
  void Build() const {
    fs::create_directory(BuildingPlace(to));
    Write(BuildingPlace(to) + "/hyperloop-follower", "group g\n");
    Write(BuildingPlace(to) + "/CURRENT", "MANIFEST-000001\n");
    Write(base + "/table", "table");
    fs::create_hard_link(base + "/table", BuildingPlace(to) + "/000007.sst");
  }

  std::string base, to;
  NodeStatus replica;
};

TEST_F(SnapshotTest, GetsItsNameWhenItIsWhole) {
  Build();
  ASSERT_OK(JudgeSnapshot(to + "/", replica, base));
  ASSERT_OK(ResumeSnapshot(to));
  EXPECT_TRUE(fs::exists(to + ".partial/hyperloop-follower"));
  const SnapshotReport report = Must(FinishSnapshot(to + "/"));
  EXPECT_EQ(report.files, 3u);
  EXPECT_EQ(report.linked_bytes, 5u);
  EXPECT_FALSE(fs::exists(to + ".partial"));
  EXPECT_TRUE(fs::exists(to + "/hyperloop-snapshot"));
  EXPECT_FALSE(fs::exists(to + "/hyperloop-follower")) << "a follower would go on there";
  EXPECT_TRUE(fs::exists(to + "/000007.sst"));
  EXPECT_THAT(JudgeSnapshot(to, replica, base).message(), HasSubstr("holds a snapshot already"));
}

// A call ended between the two renames.
TEST_F(SnapshotTest, OneThatOnlyLacksItsNameIsFollowedAgain) {
  Build();
  fs::rename(to + ".partial/hyperloop-follower", to + ".partial/hyperloop-snapshot");
  ASSERT_OK(ResumeSnapshot(to));
  EXPECT_TRUE(fs::exists(to + ".partial/hyperloop-follower"));
  EXPECT_OK(FinishSnapshot(to));
}

TEST_F(SnapshotTest, IsJudgedBeforeAnythingIsMade) {
  NodeStatus huge = replica;
  huge.files[0].size = uint64_t{1} << 62;
  EXPECT_EQ(JudgeSnapshot(to, huge, base).code(), Code::kNoSpace);
  NodeStatus big_table = replica;
  big_table.files[1].size = uint64_t{1} << 62;
  EXPECT_OK(JudgeSnapshot(to, big_table, base)) << "it is linked";
  for (const std::string& files : {std::string(), base + "/none"})
    EXPECT_THAT(JudgeSnapshot(to, replica, files).message(), HasSubstr("--files"));
  NodeStatus empty;
  EXPECT_EQ(JudgeSnapshot(to, empty, base).code(), Code::kNotFound);
  NodeStatus damaged = replica;
  damaged.log_error = "the log is damaged";
  EXPECT_EQ(JudgeSnapshot(to, damaged, base).code(), Code::kCorruption);
  EXPECT_EQ(JudgeSnapshot(base + "/no/to", replica, base).code(), Code::kNotFound);
  fs::create_directory(base + "/shared");
  fs::permissions(base + "/shared", fs::perms::all);  // without the sticky bit
  EXPECT_EQ(JudgeSnapshot(base + "/shared/to", replica, base).code(), Code::kPermissionDenied);
  Write(to, "precious");
  EXPECT_EQ(JudgeSnapshot(to, replica, base).code(), Code::kAlreadyExists);
  EXPECT_EQ(std::distance(fs::directory_iterator(base), {}), 2) << "shared and to";
}

TEST_F(SnapshotTest, WaitsForNobodyWhoFinishesItNow) {
  Build();
  const std::string mark = to + ".partial/hyperloop-snapshot";
  fs::rename(to + ".partial/hyperloop-follower", mark);
  const UniqueFd held(::open(mark.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  EXPECT_EQ(ResumeSnapshot(to).code(), Code::kBusy);
  EXPECT_TRUE(fs::exists(mark));
}

TEST_F(SnapshotTest, FollowsNoLinkOfAnother) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives links to others";
  fs::create_directory(base + "/other");
  fs::create_directory_symlink(base + "/other", BuildingPlace(to));
  ASSERT_EQ(::lchown(BuildingPlace(to).c_str(), 65534, 65534), 0);
  EXPECT_EQ(JudgeSnapshot(to, replica, base).code(), Code::kPermissionDenied);
}

TEST_F(SnapshotTest, TakesNoNameThatSomebodyTookMeanwhile) {
  Build();
  fs::create_directory(to);
  Write(to + "/precious", "");
  EXPECT_EQ(FinishSnapshot(to).status().code(), Code::kAlreadyExists);
  EXPECT_TRUE(fs::exists(to + "/precious"));
  EXPECT_TRUE(fs::exists(to + ".partial/hyperloop-follower"));
}

}  // namespace
}  // namespace hyperloop
