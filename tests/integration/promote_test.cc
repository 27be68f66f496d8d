// The machine of a primary is lost, or hands over: hyperloopctl makes a directory on another one
// the database, and links the tables of the replica there instead of copying them.
#include "integration/whole_database_fixture.h"

namespace hyperloop::test {
namespace {

using testing::HasSubstr;

class PromoteTest : public WholeDatabaseTest {
 protected:
  // Options of a primary on another machine, with a pool of its own there.
  StoreOptions Elsewhere() const {
    StoreOptions options = cluster_.Options();
    options.pool = cluster_.folder() + "/elsewhere.pool";
    return options;
  }
  std::string NewDirectory() const { return cluster_.folder() + "/elsewhere"; }
  Outcome Promote(const StoreOptions& options) const {
    return Ctl("promote --db " + NewDirectory() + " --uri '" + FormatStoreUri(options) +
               "' --replica-files " + FilesOfReplica(1));
  }
  void ExpectServes(int keys) {
    TestDatabase database(Elsewhere(), NewDirectory());
    ASSERT_OK(database.Open());
    EXPECT_EQ(database.FirstMissing(keys), "");
    EXPECT_OK(database.db()->VerifyChecksum());
    ASSERT_OK(database.Fill(keys + 1));
    ASSERT_OK(database.db()->Flush({}));
  }
};

// A primary that is killed in the middle of its writes.
void WriteUntilKilled(const StoreOptions& options, const std::string& directory) {
  ChildProcess primary = ChildProcess::Fork([&] {
    TestDatabase database(options, directory);
    const bool filled = database.Open().ok() && database.Fill(kKeys / 2).ok() &&
                        database.db()->Flush({}).ok() && database.Fill(kKeys).ok();
    std::puts(filled ? "filled" : "failed");
    std::fflush(stdout);
    for (int i = 0; filled; ++i)
      if (!database.Put("more", std::to_string(i)).ok()) return 1;
    return 1;
  });
  ASSERT_EQ(primary.ReadLine(), "filled");
  primary.Kill();
}

TEST_F(PromoteTest, AReplicasMachineTakesThePlaceOfALostPrimary) {
  ASSERT_NO_FATAL_FAILURE(WriteUntilKilled(cluster_.Options(), Directory()));
  fs::remove_all(Directory());
  fs::remove(cluster_.folder() + "/primary.pool");
  const Outcome promoted = Promote(Elsewhere());
  ASSERT_EQ(promoted.exit_status, 0) << promoted.text;
  EXPECT_THAT(promoted.text, HasSubstr("linked from the replica on this machine"));
  EXPECT_THAT(promoted.text, HasSubstr("holds its group's database"));
  int tables = 0;
  for (const auto& entry : fs::directory_iterator(NewDirectory())) {
    if (entry.path().extension() != ".sst") continue;
    ++tables;
    EXPECT_EQ(entry.hard_link_count(), 2u) << "the replica's own";
  }
  EXPECT_GT(tables, 0);
  ExpectServes(kKeys);
  ExpectEveryReplicaHoldsAll(kKeys + 1);
}

TEST_F(PromoteTest, ALivingPrimaryIsReplacedOnlyWithAWord) {
  TestDatabase former(cluster_.Options(), Directory());
  ASSERT_OK(former.Open());
  ASSERT_OK(former.Fill(kKeys));
  const Outcome refused = Promote(Elsewhere());
  EXPECT_EQ(refused.exit_status, 1);
  EXPECT_THAT(refused.text, HasSubstr("takeover=true"));
  ASSERT_OK(former.Put("it", "goes on"));
  StoreOptions with_a_word = Elsewhere();
  with_a_word.takeover = true;
  const Outcome promoted = Promote(with_a_word);
  ASSERT_EQ(promoted.exit_status, 0) << promoted.text;
  EXPECT_TRUE(former.Put("late", "1").IsIOFenced());
  ExpectServes(kKeys);
  former.Close();
  EXPECT_THAT(former.Open().ToString(), HasSubstr("rebind=true"));
}

TEST_F(PromoteTest, WithoutADatabaseThereIsNothingToPromote) {
  const Outcome promoted = Promote(Elsewhere());
  EXPECT_EQ(promoted.exit_status, 1);
  EXPECT_THAT(promoted.text, HasSubstr("the group holds no database"));
  EXPECT_FALSE(fs::exists(NewDirectory() + "/HYPERLOOP"));
  TestDatabase database(cluster_.Options(), Directory());
  EXPECT_OK(database.Open());
}

}  // namespace
}  // namespace hyperloop::test
