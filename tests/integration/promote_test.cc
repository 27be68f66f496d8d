// The machine of a primary is lost, or hands over: hyperloopctl makes a directory on another one
// the database, and links the tables of the replica there instead of copying them.
#include "integration/elsewhere_fixture.h"

namespace hyperloop::test {
namespace {

using testing::HasSubstr;

class PromoteTest : public ElsewhereTest {
 protected:
  void WriteAndClose() {
    TestDatabase database(cluster_.Options(), Directory());
    ASSERT_OK(database.Open());
    ASSERT_OK(database.Fill(kKeys / 2));
    ASSERT_OK(database.db()->Flush({}));
    ASSERT_OK(database.Fill(kKeys));
  }
  std::string Command(const StoreOptions& options) const {
    return "promote --db " + NewDirectory() + " --uri '" + FormatStoreUri(options) + "'";
  }
  Outcome Promote(const StoreOptions& options) const {
    return Ctl(Command(options) + " --replica-files " + FilesOfReplica(1));
  }
};

// A primary that is killed in the middle of its writes. This process must not have used RocksDB
// before, because the child would have none of its threads.
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
  EXPECT_THAT(promoted.text,
              HasSubstr("has not released the group; its last sign of life was at 20"));
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

// A link that an earlier call left is the replica's own file.
TEST_F(PromoteTest, ALeftoverLinkIsNotWrittenThrough) {
  ASSERT_NO_FATAL_FAILURE(WriteAndClose());
  ASSERT_EQ(TablesOfReplica(1).size(), 1u);
  const fs::path table = TablesOfReplica(1)[0];
  const std::string bytes = BytesOf(table);
  const std::string name = table.filename().string();
  fs::create_directory(NewDirectory());
  const std::string leftover =
      NewDirectory() + "/" + name.substr(0, name.find('@')) + ".hyperloop-new";
  fs::create_hard_link(table, leftover);
  // Whoever writes through the link shows in the file, even if the same bytes come in the end.
  const auto written = fs::last_write_time(table);
  const Outcome promoted = Ctl(Command(Elsewhere()));
  ASSERT_EQ(promoted.exit_status, 0) << promoted.text;
  EXPECT_TRUE(fs::last_write_time(table) == written);
  EXPECT_TRUE(BytesOf(table) == bytes);
  EXPECT_EQ(fs::hard_link_count(table), 1u);
  EXPECT_FALSE(fs::exists(leftover));
  ExpectServes(kKeys);
}

TEST_F(PromoteTest, ADamagedTableOfTheReplicaIsNotLinked) {
  ASSERT_NO_FATAL_FAILURE(WriteAndClose());
  ASSERT_EQ(TablesOfReplica(1).size(), 1u);
  const fs::path table = TablesOfReplica(1)[0];
  Damage(table);
  const Outcome promoted = Promote(Elsewhere());
  ASSERT_EQ(promoted.exit_status, 0) << promoted.text;
  EXPECT_THAT(promoted.text, HasSubstr("it fails its checksum"));
  EXPECT_EQ(fs::hard_link_count(table), 1u);
  ExpectServes(kKeys);
}

// What an earlier call left is completed: the directory is the group's already, and lacks files.
TEST_F(PromoteTest, ACallThatWasCutShortIsRepeated) {
  ASSERT_NO_FATAL_FAILURE(WriteAndClose());
  const Outcome first = Promote(Elsewhere());
  ASSERT_EQ(first.exit_status, 0) << first.text;
  std::vector<fs::path> lacking = {NewDirectory() + "/CURRENT"};
  for (const auto& entry : fs::directory_iterator(NewDirectory())) {
    const std::string extension = entry.path().extension();
    if (extension == ".sst" || extension == ".log") lacking.push_back(entry.path());
  }
  EXPECT_GE(lacking.size(), 3u);
  for (const fs::path& path : lacking) fs::remove(path);
  const Outcome second = Promote(Elsewhere());
  ASSERT_EQ(second.exit_status, 0) << second.text;
  ExpectServes(kKeys);
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
  for (uint32_t i = 0; i < cluster_.replicas(); ++i) {
    const auto status = cluster_.ReplicaStatus(i);
    ASSERT_OK(status);
    EXPECT_EQ(status->sealed_epoch, 0u) << "nothing was changed";
  }
  const Outcome nowhere =
      Ctl(Command(Elsewhere()) + " --replica-files " + NewDirectory() + "/no-such-folder");
  EXPECT_THAT(nowhere.text, HasSubstr("--replica-files"));
  TestDatabase database(cluster_.Options(), Directory());
  EXPECT_OK(database.Open());
}

}  // namespace
}  // namespace hyperloop::test
