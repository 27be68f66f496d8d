// Tests what hyperloopctl says of a group whose pools went back to older copies, so that there are
// two histories of it, each with acknowledged records that the other lacks.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "integration/ctl_group_files.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

// Nothing runs but while a primary serves.
class HistoriesTest : public testing::Test {
 protected:
  class Group : public TestCluster, public GroupCommandFiles {
   public:
    Group() : TestCluster(3, kRegion), GroupCommandFiles(static_cast<TestCluster&>(*this)) {}
    std::string PoolOf(size_t i) const {
      return i == 3 ? dir_ + "/primary.pool" : pool(static_cast<uint32_t>(i));
    }
    const std::string& dir() const { return dir_; }
  };

  void SetUp() override {
    ASSERT_TRUE(group_.started());
    ASSERT_NO_FATAL_FAILURE(group_.Serve());
    group_.PutFiles();
    group_.CloseStore();
    End();
    Keep("before");
  }
  void End() {
    for (uint32_t i = 0; i < 3; ++i)
      if (i != down_) group_.KillReplica(i);
    down_ = kNone;
  }
  void Keep(const std::string& history) {
    for (size_t i = 0; i < 4; ++i) Copy(group_.PoolOf(i), group_.PoolOf(i) + "." + history);
  }
  void PutBack(size_t i, const std::string& history) {
    Copy(group_.PoolOf(i) + "." + history, group_.PoolOf(i));
  }
  static void Copy(const std::string& from, const std::string& to) {
    fs::copy_file(from, to, fs::copy_options::overwrite_existing);
  }
  static std::string BytesOf(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // `down`: a replica that does not run meanwhile.
  void GoOn(const std::vector<std::string>& files, uint32_t down = kNone) {
    ASSERT_OK(group_.Restart());
    if (down != kNone) group_.KillReplica(down);
    down_ = down;
    ASSERT_NO_FATAL_FAILURE(group_.Serve(
        [](StoreOptions& options) { options.on_replica_failure = OnReplicaFailure::kContinue; }));
    for (const std::string& each : files) group_.Put(each, "written to " + each);
    group_.CloseStore();
    End();
  }
  // All went back and on from there; replica 0 has the former history again.
  void MakeTwo(const std::vector<std::string>& former, const std::vector<std::string>& latter) {
    ASSERT_NO_FATAL_FAILURE(GoOn(former));
    Keep("former");
    for (size_t i = 0; i < 4; ++i) PutBack(i, "before");
    ASSERT_NO_FATAL_FAILURE(GoOn(latter));
    PutBack(0, "former");
  }
  CtlRun Partial(uint32_t replica, const std::string& to) const {
    return group_.Run({"export", "--dir", group_.dir(), "--replica", std::to_string(replica),
                       "--to", to, "--partial"});
  }
  CtlRun Verify() const { return group_.Run({"verify", "--dir", group_.dir()}); }
  std::string To(uint32_t replica) const {
    return group_.folder() + "/export" + std::to_string(replica);
  }

  static constexpr uint32_t kNone = 3;
  uint32_t down_ = kNone;
  Group group_;
};

TEST_F(HistoriesTest, NeitherOfTwoThatAreEquallyLongIsExportedForTheWhole) {
  ASSERT_NO_FATAL_FAILURE(MakeTwo({"000009.log"}, {"000019.log"}));
  for (const uint32_t i : {0u, 1u}) {
    const CtlRun exported = group_.Export(i, To(i));
    EXPECT_EQ(exported.exit_status, 3) << exported.err;
    EXPECT_THAT(exported.err, HasSubstr(i == 0 ? "replica1 holds other acknowledged records"
                                               : "replica0 holds other acknowledged records"));
  }
  EXPECT_TRUE(fs::exists(To(0) + "/000009.log"));
  EXPECT_TRUE(fs::exists(To(1) + "/000019.log"));
  const CtlRun verify = Verify();
  EXPECT_EQ(verify.exit_status, 1) << verify.out;
  EXPECT_THAT(verify.err, AllOf(HasSubstr("replica0 and replica1 have two histories of the group"),
                                Not(HasSubstr("no file has")), Not(HasSubstr("--repair"))));
  // Nobody but the operator chooses one of them.
  Keep("chosen");
  const CtlRun repair = group_.Run({"verify", "--dir", group_.dir(), "--repair"});
  EXPECT_EQ(repair.exit_status, 1) << repair.out;
  EXPECT_THAT(repair.err, HasSubstr("two histories of the group"));
  for (size_t i = 0; i < 4; ++i)
    EXPECT_TRUE(BytesOf(group_.PoolOf(i)) == BytesOf(group_.PoolOf(i) + ".chosen")) << i;
}

TEST_F(HistoriesTest, NorIsTheLongerOneAndTheShorterOneNamesIt) {
  ASSERT_NO_FATAL_FAILURE(MakeTwo({"000009.log"}, {"000019.log", "000020.log", "000021.log"}));
  const CtlRun longer = group_.Export(1, To(1));
  EXPECT_EQ(longer.exit_status, 3) << longer.err;
  EXPECT_THAT(longer.err, HasSubstr("replica0 holds other acknowledged records than replica1"));
  const CtlRun shorter = group_.Export(0, To(0));
  EXPECT_EQ(shorter.exit_status, 1) << shorter.out;
  EXPECT_THAT(shorter.err, AllOf(HasSubstr("different histories"), HasSubstr("--partial")));
  EXPECT_EQ(Partial(0, To(0)).exit_status, 3);
  EXPECT_TRUE(fs::exists(To(0) + "/000009.log"));
  EXPECT_THAT(Verify().err, AllOf(HasSubstr("two histories"), Not(HasSubstr("--repair"))));
}

// A pool of a primary is a history, too.
TEST_F(HistoriesTest, ThePrimarysPoolOfAnotherHistoryIsNamed) {
  ASSERT_NO_FATAL_FAILURE(MakeTwo({"000009.log"}, {"000019.log"}));
  fs::remove(group_.PoolOf(0));
  PutBack(3, "former");
  const CtlRun exported = group_.Export(1, To(1));
  EXPECT_EQ(exported.exit_status, 3) << exported.err;
  EXPECT_THAT(exported.err, HasSubstr("primary.pool holds other acknowledged records"));
}

// A replica that is behind is no other history.
TEST_F(HistoriesTest, AReplicaThatIsBehindHasNoOtherHistory) {
  ASSERT_NO_FATAL_FAILURE(GoOn({"000009.log", "000010.log"}));
  PutBack(0, "before");
  EXPECT_EQ(group_.Export(1, To(1)).exit_status, 0);
  const CtlRun behind = group_.Export(0, To(0));
  EXPECT_EQ(behind.exit_status, 1);
  EXPECT_THAT(behind.err, HasSubstr("export from replica1 (--replica 1)"));
  EXPECT_THAT(Verify().err, AllOf(Not(HasSubstr("two histories")), HasSubstr("--repair")));
}

// Replica 1 was down while all others went back to older copies, and on from there to as many
// records as it has. What the refusal to take it in recommends gives what it alone has, also once
// the others have been opened again.
TEST_F(HistoriesTest, TheWayOutOfAReplicaThatProvesOtherRecordsIsGranted) {
  ASSERT_NO_FATAL_FAILURE(GoOn({"000009.log", "000010.log"}));
  for (const size_t i : {0, 2}) PutBack(i, "before");
  fs::remove(group_.PoolOf(3));
  ASSERT_NO_FATAL_FAILURE(GoOn({"000019.log", "000020.log", "000021.log"}, 1));
  ASSERT_NO_FATAL_FAILURE(GoOn({}));
  const CtlRun status = group_.Run({"status", "--dir", group_.dir()});
  EXPECT_THAT(status.out, HasSubstr("hyperloopctl export --replica N --to DIR --partial"));
  const CtlRun pointed = group_.Export(1, To(1));
  EXPECT_EQ(pointed.exit_status, 1);
  EXPECT_THAT(pointed.err, AllOf(HasSubstr("add --partial to have what replica1 holds"),
                                 HasSubstr("histories")));
  const CtlRun exported = Partial(1, To(1));
  EXPECT_EQ(exported.exit_status, 3) << exported.err;
  for (const std::string name : {"000009.log", "000010.log"})
    EXPECT_EQ(Slurp(To(1) + "/" + name), "written to " + name);
  const CtlRun other = group_.Export(0, To(0));
  EXPECT_EQ(other.exit_status, 3) << other.err;
  EXPECT_THAT(other.err, HasSubstr("replica1 holds other acknowledged records than replica0"));
}

}  // namespace
}  // namespace hyperloop::test
