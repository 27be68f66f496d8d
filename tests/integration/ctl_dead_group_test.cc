// Tests hyperloopctl's commands for a group of which nothing runs. The tests share one.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "hyperloop/replication/store.h"
#include "integration/ctl_group_files.h"
#include "integration/ctl_run.h"
#include "region/pool.h"
#include "support/append_durably.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

// A group all of whose processes were killed before the primary could close it, with files behind
// which records are left in the log. It is read from its pools alone, so that a test only has to
// put back the bytes that it damaged.
class DeadGroupTest : public testing::Test {
 protected:
  class Group : public TestCluster, public GroupCommandFiles {
   public:
    Group() : TestCluster(3, kRegion), GroupCommandFiles(static_cast<TestCluster&>(*this)) {
      if (started()) Fill();
    }
    const std::string& dir() const { return dir_; }

   private:
    void Fill() {
      Serve();
      PutFiles();
      Put("000003.log", std::string(100000, 'v'));
      CloseStore();
      Serve();
      Put("000009.log", "first words, ");
      ASSERT_OK(AppendDurably(*store_, *store_->Lookup("000009.log"), kLast));
      // A record that reaches nobody says in the primary's pool that the one before was
      // acknowledged.
      kill(rnicd_pid(), SIGSTOP);
      ASSERT_TRUE(Eventually(
          [&] { return ReadCluster(dir_)->processes[0].state == ProcessState::kStopped; }));
      ASSERT_OK(store_->Append(*store_->Lookup("000009.log"), "never heard"));
      KillRnicd();  // before the primary's Close, which would empty the log
      store_.reset();
      for (uint32_t i = 0; i < replicas(); ++i) KillReplica(i);
    }
  };
  static constexpr char kLast[] = "the last words";

  static void TearDownTestSuite() { shared_.reset(); }
  void SetUp() override { ASSERT_FALSE(HasFailure()) << "there is no such group"; }
  void TearDown() override {
    if (HasFailure() || used_up_) return shared_.reset();
    for (auto change = changes_.rbegin(); change != changes_.rend(); ++change)
      PutByte(change->path, change->at, change->byte);
  }
  std::string To(const std::string& name) const {
    return group_.folder() + "/" + ::testing::UnitTest::GetInstance()->current_test_info()->name() +
           name;
  }
  // Starts all processes. The test uses the group up.
  void Revive() {
    used_up_ = true;
    ASSERT_OK(group_.Restart());
  }
  void Change(const std::string& path, size_t at, char byte) {
    char former = 0;
    std::ifstream(path, std::ios::binary).seekg(static_cast<std::streamoff>(at)).get(former);
    changes_.push_back({path, at, former});
    PutByte(path, at, byte);
  }
  static void PutByte(const std::string& path, size_t at, char byte) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte);
  }
  // Flips the lowest bit of byte `at` of a file's extent. The extent is found by its content: the
  // file's 100,000 bytes are all `fill`.
  void Flip(uint32_t replica, size_t at, char fill = 'w') {
    const std::string pool = Slurp(group_.pool(replica));
    const size_t end = pool.rfind(std::string(1000, fill));
    ASSERT_NE(end, std::string::npos);
    const size_t place = end + 1000 - 100000 + at;
    Change(group_.pool(replica), place, static_cast<char>(pool[place] ^ 1));
  }
  // Writes zeros over header and entry of the record with this payload.
  void WipeRecord(uint32_t replica, const std::string& payload) {
    const size_t at = Slurp(group_.pool(replica)).find(payload);
    ASSERT_NE(at, std::string::npos);
    const size_t header = at / 64 * 64 - 64;
    for (size_t i = header; i < header + 128; ++i) Change(group_.pool(replica), i, 0);
  }

  struct Former {
    std::string path;
    size_t at = 0;
    char byte = 0;
  };

  inline static std::optional<Group> shared_;
  Group& group_ = shared_ ? *shared_ : shared_.emplace();
  std::vector<Former> changes_;
  bool used_up_ = false;
};

// A replica that was left out does not know it. Two others, which went on, lost their pools.
TEST_F(DeadGroupTest, ExportOfAReplicaThatMayHaveBeenLeftOutIsIncomplete) {
  for (const uint32_t i : {1u, 2u}) {
    fs::rename(group_.pool(i), group_.pool(i) + ".kept");
    ASSERT_OK(Pool::Create(group_.pool(i), kRegion));
  }
  const std::string to = To("export");
  const CtlRun exported = group_.Export(0, to);
  for (const uint32_t i : {1u, 2u}) fs::rename(group_.pool(i) + ".kept", group_.pool(i));
  EXPECT_EQ(exported.exit_status, 3) << exported.err;
  for (const std::string name : {"replica1", "replica2"})
    EXPECT_THAT(exported.err, HasSubstr("not compared with " + name + ": it is blank"));
  EXPECT_THAT(exported.err,
              HasSubstr("2 replicas were not compared, enough to have gone on without this one"));
  EXPECT_THAT(exported.err, HasSubstr("look first into the last primary's directory, "));
  group_.ExpectFiles(to);
}

// The primary's pool proves what all replicas have lost.
TEST_F(DeadGroupTest, ExportOfLessThanThePrimarysPoolProvesIsRefused) {
  for (uint32_t i = 0; i < 3; ++i) WipeRecord(i, kLast);
  const std::string to = To("export");
  const CtlRun refused = group_.Export(1, to);
  EXPECT_EQ(refused.exit_status, 1) << refused.out;
  EXPECT_THAT(refused.err, HasSubstr("primary.pool states that everything up to"));
  EXPECT_FALSE(fs::exists(to));
  const CtlRun partial =
      group_.Run({"export", "--dir", group_.dir(), "--replica", "1", "--to", to, "--partial"});
  EXPECT_EQ(partial.exit_status, 3) << partial.err;
  EXPECT_EQ(Slurp(to + "/000009.log"), "first words, ");
}

// What was acknowledged in a branch is not missing from what the branch gave up.
TEST_F(DeadGroupTest, ExportOfWhatABranchGaveUpIsNotComparedWithTheBranchsPool) {
  Revive();
  for (const uint32_t i : {1u, 2u}) group_.KillReplica(i);
  group_.Serve([&](StoreOptions& options) {
    options.on_replica_failure = OnReplicaFailure::kContinue;
    options.given_up = {group_.endpoint(1), group_.endpoint(2)};
  });
  for (const std::string name : {"000010.log", "000011.log"}) group_.Put(name, "of the branch");
  group_.CloseStore();
  group_.KillReplica(0);
  fs::rename(group_.pool(0), group_.pool(0) + ".kept");
  const std::string to = To("export");
  const CtlRun exported = group_.Export(1, to);
  EXPECT_EQ(exported.exit_status, 0) << exported.err;
  group_.ExpectFiles(to);
}

TEST_F(DeadGroupTest, ExportNamesTheReplicasThatItCouldNotCompare) {
  fs::rename(group_.pool(2), group_.pool(2) + ".lost");
  const std::string to = To("export");
  const CtlRun exported = group_.Export(0, to);
  fs::rename(group_.pool(2) + ".lost", group_.pool(2));
  EXPECT_EQ(exported.exit_status, 0) << exported.err;
  EXPECT_THAT(exported.err, HasSubstr("not compared with replica2"));
  EXPECT_THAT(exported.err, Not(HasSubstr("not compared with replica1")));
  group_.ExpectFiles(to);
}

// The primary's pool is not compared, because its log is longer: it tried to close.
TEST_F(DeadGroupTest, VerifyNamesTheFirstDifference) {
  const std::string primary = group_.dir() + "/primary.pool";
  fs::rename(primary, primary + ".lost");
  const std::vector<std::string> verify{"verify", "--dir", group_.dir()};
  // A byte that nobody reads before it is written again: behind the file's end in its extent.
  Flip(1, 100000);
  const CtlRun unread = group_.Run(verify);
  EXPECT_EQ(unread.exit_status, 0) << unread.err;

  // A byte of the journal's ring, in an old record.
  const size_t ring = Slurp(group_.pool(1)).find(std::string(1000, 'w'));
  ASSERT_NE(ring, std::string::npos);
  Change(group_.pool(1), ring, 'v');
  const CtlRun different = group_.Run(verify);
  EXPECT_EQ(different.exit_status, 1);
  EXPECT_THAT(different.err, HasSubstr("replica0 and replica1 have 0x77 and 0x76"));
  EXPECT_THAT(different.err, HasSubstr("bytes that no file has; the next open makes them equal"));
  fs::rename(primary + ".lost", primary);
}

TEST_F(DeadGroupTest, DamageIsNamedNeverExported) {
  Flip(0, 50000);
  const CtlRun verify = group_.Run({"verify", "--dir", group_.dir()});
  EXPECT_EQ(verify.exit_status, 1);
  EXPECT_THAT(verify.err,
              HasSubstr("replica0 is damaged: extent 1 (\"000002.log\", bytes 0 to "
                        "99999) fails its checksum; replica1, replica2, primary sound"));
  const std::string to = To("export");
  const CtlRun refused = group_.Export(0, to);
  EXPECT_EQ(refused.exit_status, 1);
  EXPECT_THAT(refused.err, HasSubstr("replica0 is damaged: extent 1 (\"000002.log\""));
  EXPECT_THAT(refused.err, HasSubstr("replica1 (--replica 1), replica2 (--replica 2)"));
  EXPECT_FALSE(fs::exists(to));
  const CtlRun partial = group_.Run(
      {"export", "--dir", group_.dir(), "--replica", "0", "--to", to + "-partial", "--partial"});
  EXPECT_EQ(partial.exit_status, 3) << partial.err;
  EXPECT_THAT(partial.err, HasSubstr("exported all the same: replica0: extent 1"));
  EXPECT_EQ(group_.Export(1, to).exit_status, 0);
  group_.ExpectFiles(to);
}

// The last record of a log may be damaged without a trace in its own member; only the others show
// it.
TEST_F(DeadGroupTest, AShorterLogIsNotExportedForTheWhole) {
  const std::string pool = Slurp(group_.pool(0));
  const size_t first = pool.find(kLast);  // in the ring, before the data area
  ASSERT_NE(first, std::string::npos);
  Change(group_.pool(0), first, 'X');
  const std::string to = To("export");
  const CtlRun refused = group_.Export(0, to);
  EXPECT_EQ(refused.exit_status, 1);
  EXPECT_THAT(refused.err, HasSubstr("the log of replica0 ends at sequence"));
  EXPECT_THAT(refused.err, HasSubstr("export from replica1 (--replica 1)"));
  EXPECT_FALSE(fs::exists(to));
  const CtlRun verify = group_.Run({"verify", "--dir", group_.dir()});
  EXPECT_EQ(verify.exit_status, 1);
  EXPECT_THAT(verify.err, HasSubstr("the log of replica0 ends at sequence"));
  const CtlRun partial =
      group_.Run({"export", "--dir", group_.dir(), "--replica", "0", "--to", to, "--partial"});
  EXPECT_EQ(partial.exit_status, 3) << partial.err;
  EXPECT_EQ(Slurp(to + "/000009.log"), "first words, ");
  EXPECT_EQ(group_.Export(1, to + "1").exit_status, 0);
  EXPECT_EQ(Slurp(to + "1/000009.log"), "first words, the last words");
}

// A primary that is killed while a record is on its way leaves it on the first replicas only. If
// only one replica lacks it, or a later one in the chain has it, then the record was lost.
TEST_F(DeadGroupTest, ARecordThatNeverCameIsNotMissed) {
  const std::string to = To("export"), primary = group_.dir() + "/primary.pool";
  fs::rename(primary, primary + ".lost");  // it knows that the record was acknowledged
  WipeRecord(2, kLast);
  EXPECT_THAT(group_.Export(2, to).err, HasSubstr("export from replica0 (--replica 0)"));
  WipeRecord(1, kLast);
  for (uint32_t i : {1u, 2u}) {
    const std::string there = to + std::to_string(i);
    const CtlRun exported = group_.Export(i, there);
    EXPECT_EQ(exported.exit_status, 0) << exported.err;
    EXPECT_THAT(exported.err, HasSubstr("replica0 has 1 records more, which were on their way"));
    EXPECT_EQ(Slurp(there + "/000009.log"), "first words, ");
  }
  EXPECT_EQ(group_.Export(0, to).exit_status, 0);
  EXPECT_EQ(Slurp(to + "/000009.log"), "first words, the last words");
  fs::rename(primary + ".lost", primary);
}

TEST_F(DeadGroupTest, TheFirstReplicaAloneCannotHaveMissedARecord) {
  WipeRecord(0, kLast);
  const CtlRun refused = group_.Export(0, To("export"));
  EXPECT_EQ(refused.exit_status, 1);
  EXPECT_THAT(refused.err, HasSubstr("export from replica1 (--replica 1)"));
}

// No member has one extent sound: the repair is refused with the extent's name, and nothing
// changes.
TEST_F(DeadGroupTest, VerifyRepairRefusesWhatNobodyHas) {
  for (uint32_t i = 0; i < 3; ++i) Flip(i, 1000 + i);
  ASSERT_NO_FATAL_FAILURE(Revive());
  const nlohmann::json before = group_.StatusJson()["replicas"];
  const CtlRun refused = group_.Run({"verify", "--dir", group_.dir(), "--repair"});
  EXPECT_EQ(refused.exit_status, 1);
  EXPECT_THAT(refused.err, HasSubstr("extent 1 (\"000002.log\", bytes 0 to 99999)"));
  EXPECT_THAT(refused.err, HasSubstr("has a sound copy of it"));
  for (uint32_t i = 0; i < 3; ++i)
    EXPECT_EQ(group_.StatusJson()["replicas"][i]["epoch"], before[i]["epoch"]);

  // Once a replica has it again, it is repaired, also beside the primary's pool.
  PutByte(changes_[0].path, changes_[0].at, changes_[0].byte);
  const CtlRun repaired = group_.Run({"verify", "--dir", group_.dir(), "--repair"});
  EXPECT_EQ(repaired.exit_status, 0) << repaired.err;
  EXPECT_THAT(repaired.out, HasSubstr("repaired; replica0, replica1, replica2, primary"));
}

// No member is sound as a whole; each has what another lacks.
TEST_F(DeadGroupTest, VerifyRepairPutsTogetherWhatIsSound) {
  const nlohmann::json before = group_.StatusJson()["replicas"][0];
  Flip(0, 50000);
  Flip(1, 7, 'v');
  Flip(2, 99999, 'w');
  Flip(2, 0, 'v');
  ASSERT_NO_FATAL_FAILURE(Revive());
  fs::remove(group_.dir() + "/primary.pool");
  const CtlRun damaged = group_.Run({"verify", "--dir", group_.dir()});
  EXPECT_EQ(damaged.exit_status, 1);
  EXPECT_THAT(damaged.err, HasSubstr("no member is sound as a whole"));
  const CtlRun repaired = group_.Run({"verify", "--dir", group_.dir(), "--repair"});
  EXPECT_EQ(repaired.exit_status, 0) << repaired.err;
  EXPECT_THAT(repaired.out, HasSubstr("repaired; replica0, replica1, replica2"));
  EXPECT_EQ(group_.Run({"verify", "--dir", group_.dir()}).exit_status, 0);
  const nlohmann::json after = group_.StatusJson()["replicas"][0];
  EXPECT_EQ(after["database"], before["database"]);
  EXPECT_EQ(after["directory"], before["directory"]);
  EXPECT_EQ(after["files"], before["files"]);
  for (uint32_t replica = 0; replica < 3; ++replica) {
    const std::string to = To("export") + std::to_string(replica);
    EXPECT_EQ(group_.Export(replica, to).exit_status, 0);
    group_.ExpectFiles(to);
    EXPECT_EQ(Slurp(to + "/000003.log"), std::string(100000, 'v'));
  }
}

}  // namespace
}  // namespace hyperloop::test
