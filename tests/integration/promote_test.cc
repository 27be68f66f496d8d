// The machine of a primary is lost, or hands over: hyperloopctl makes a directory on another one
// the database, and links the tables of the replica there instead of copying them.
#include <unistd.h>

#include <algorithm>

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

TEST_F(PromoteTest, WithoutADatabaseThereIsNothingToPromote) {
  ASSERT_TRUE(shared_.Untaken().started());
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

TEST_F(PromoteTest, TheFormerPrimarysPoolIsNotCompared) {
  ASSERT_NO_FATAL_FAILURE(WriteAndClose());
  const std::string verify = "verify --uri '" + FormatStoreUri(cluster_.Options()) + "'";
  const Outcome before = Ctl(verify);
  EXPECT_EQ(before.exit_status, 0) << before.text;
  EXPECT_THAT(before.text, HasSubstr("primary: "));
  const Outcome promoted = Promote(Elsewhere());
  ASSERT_EQ(promoted.exit_status, 0) << promoted.text;
  ExpectServes(kKeys);
  const Outcome after = Ctl(verify);
  EXPECT_EQ(after.exit_status, 0) << after.text;
  EXPECT_THAT(after.text, HasSubstr("left out: " + cluster_.Options().pool));
  // Nor where the cluster's directory has it, from where it never goes away by itself.
  const std::string directory = cluster_.folder() + "/cluster";
  fs::rename(cluster_.Options().pool, directory + "/primary.pool");
  const Outcome there = Ctl("verify --dir " + directory);
  EXPECT_EQ(there.exit_status, 0) << there.text;
  EXPECT_THAT(there.text, HasSubstr("left out: " + directory + "/primary.pool"));
}

// As after a power cut that takes the end of the own pool, and of no replica's.
TEST_F(PromoteTest, APoolThatLostItsEndIsComparedAgainAfterAnOpening) {
  ASSERT_NO_FATAL_FAILURE(WriteAndClose());
  const std::string pool = cluster_.Options().pool, kept = cluster_.folder() + "/kept.pool";
  const std::string verify = "verify --uri '" + FormatStoreUri(cluster_.Options()) + "'";
  const auto put = [&](const std::string& key) {
    TestDatabase database(cluster_.Options(), Directory());
    ASSERT_OK(database.Open());
    ASSERT_OK(database.Put(key, "value"));
  };
  fs::copy_file(pool, kept);
  ASSERT_NO_FATAL_FAILURE(put("lost"));
  fs::rename(kept, pool);
  const Outcome without = Ctl(verify);
  EXPECT_EQ(without.exit_status, 0) << without.text;
  EXPECT_THAT(without.text, HasSubstr("left out: " + pool + ", whose log ends before"));
  ASSERT_NO_FATAL_FAILURE(put("another"));
  const Outcome with = Ctl(verify);
  EXPECT_EQ(with.exit_status, 0) << with.text;
  EXPECT_THAT(with.text, HasSubstr("primary: "));
  EXPECT_THAT(with.text, testing::Not(HasSubstr("left out")));
}

// The standby's pool was left out of a resize.
TEST_F(PromoteTest, APoolOfBeforeAResizeIsSetAside) {
  ASSERT_NO_FATAL_FAILURE(WriteAndClose());
  ASSERT_EQ(Promote(Elsewhere()).exit_status, 0);
  ASSERT_NO_FATAL_FAILURE(ExpectServes(kKeys));
  const uint64_t former = cluster_.region_size();
  ASSERT_EQ(cluster_.Resize(2 * former, 256), "");
  fs::remove_all(NewDirectory());
  const Outcome promoted = Promote(Elsewhere());
  ASSERT_EQ(promoted.exit_status, 0) << promoted.text;
  EXPECT_THAT(promoted.text, HasSubstr("holds its group's database"));
  ASSERT_NO_FATAL_FAILURE(ExpectServes(kKeys + 1));
  const std::string pool = Elsewhere().pool;
  EXPECT_TRUE(fs::exists(pool + ".before-resize-" + std::to_string(former)));
  EXPECT_GT(fs::file_size(pool), 2 * former);
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

// One of two replicas is left, and the other one comes back later.
TEST_F(PromoteTest, WhatIsLeftGoesOnByForce) {
  shared_.UseUp();
  ASSERT_NO_FATAL_FAILURE(WriteAndClose());
  const std::string lost = cluster_.endpoint(1);
  const Outcome needless = Ctl(Command(Elsewhere()) + " --force --yes");
  EXPECT_EQ(needless.exit_status, 2);
  EXPECT_THAT(needless.text, HasSubstr("promote without --force"));
  cluster_.KillReplica(1);
  const Outcome refused = Ctl(Command(Elsewhere()));
  EXPECT_EQ(refused.exit_status, 1) << refused.text;
  const auto before = cluster_.ReplicaStatus(0);
  ASSERT_OK(before);
  const Outcome unconfirmed = Ctl(Command(Elsewhere()) + " --force </dev/null");
  EXPECT_EQ(unconfirmed.exit_status, 2);
  EXPECT_THAT(unconfirmed.text,
              testing::AllOf(HasSubstr("lost: " + lost), HasSubstr("not confirmed")));
  EXPECT_EQ(cluster_.ReplicaStatus(0)->sealed_epoch, before->sealed_epoch) << "nothing was changed";

  const std::string typed = cluster_.folder() + "/typed";
  std::ofstream(typed) << "give up " << lost << "\n";
  const Outcome promoted = Ctl(Command(Elsewhere()) + " --force <" + typed);
  ASSERT_EQ(promoted.exit_status, 0) << promoted.text;
  EXPECT_THAT(promoted.text, HasSubstr("open it with hyperloop://" + cluster_.endpoint(0) + "?"));
  StoreOptions left = Elsewhere();
  left.replicas = {cluster_.endpoint(0)};
  const auto open = [&](const StoreOptions& options, const std::string& directory) {
    TestDatabase database(options, directory);
    const rocksdb::Status opened = database.Open();
    EXPECT_EQ(opened.ok() ? database.FirstMissing(kKeys) : "", "");
    return opened.ToString();
  };
  EXPECT_EQ(open(left, NewDirectory()), "OK");

  // The lost one comes back. Neither side takes it for a part of the other one.
  ASSERT_OK(cluster_.Restart());
  const auto returned = cluster_.ReplicaRegion(1);
  ASSERT_OK(returned);
  StoreOptions adding = Elsewhere();
  adding.add_replica = lost;
  for (OnReplicaFailure rule : {OnReplicaFailure::kBlock, OnReplicaFailure::kContinue}) {
    StoreOptions all = Elsewhere();
    adding.on_replica_failure = all.on_replica_failure = rule;
    EXPECT_THAT(open(all, NewDirectory()), HasSubstr("different histories"));
    EXPECT_THAT(open(all, Directory()), HasSubstr("different histories"));
    EXPECT_THAT(open(adding, NewDirectory()), HasSubstr("different histories"));
  }
  EXPECT_TRUE(*cluster_.ReplicaRegion(1) == *returned) << "what it holds is left alone";
  EXPECT_EQ(cluster_.ReplicaStatus(0)->branch_epoch, before->sealed_epoch + 1);
  EXPECT_EQ(cluster_.ReplicaStatus(1)->branch_epoch, 0u);

  cluster_.KillReplica(1);
  fs::remove(cluster_.pool(1));
  fs::remove_all(FilesOfReplica(1));
  ASSERT_OK(cluster_.Restart());
  EXPECT_THAT(open(Elsewhere(), NewDirectory()), HasSubstr("add_replica=" + lost));
  EXPECT_EQ(open(adding, NewDirectory()), "OK");
  ExpectEveryReplicaHoldsAll(kKeys);
}

// The others were out of reach only, and go on: two databases, which stay two.
TEST_F(PromoteTest, AMajorityThatLivesGoesOnApart) {
  ASSERT_TRUE(shared_.Untaken().started());  // the group begins with three replicas
  shared_.UseUp();
  ASSERT_OK(cluster_.AddReplica());
  ASSERT_NO_FATAL_FAILURE(WriteAndClose());
  cluster_.KillReplica(1);
  cluster_.KillReplica(2);
  const Outcome promoted = Ctl(Command(Elsewhere()) + " --force --yes");
  ASSERT_EQ(promoted.exit_status, 0) << promoted.text;
  StoreOptions left = Elsewhere();
  left.replicas = {cluster_.endpoint(0)};
  {
    TestDatabase database(left, NewDirectory());
    ASSERT_OK(database.Open());
    ASSERT_OK(database.Put("side", "forced"));
  }
  const std::string saved = cluster_.folder() + "/saved.pool";
  cluster_.KillReplica(0);
  fs::rename(cluster_.pool(0), saved);
  ASSERT_OK(cluster_.Restart());
  cluster_.KillReplica(0);
  fs::rename(saved, cluster_.pool(0));
  StoreOptions majority = cluster_.Options();
  majority.on_replica_failure = OnReplicaFailure::kContinue;
  const auto side = [](const StoreOptions& options, const std::string& directory) {
    TestDatabase database(options, directory);
    const rocksdb::Status opened = database.Open();
    std::string value = opened.ToString();
    if (opened.ok()) database.db()->Get({}, "side", &value).PermitUncheckedError();
    return value;
  };
  {
    TestDatabase database(majority, Directory());
    ASSERT_OK(database.Open());
    ASSERT_OK(database.Put("side", "majority"));
  }
  ASSERT_OK(cluster_.Restart());
  EXPECT_THAT(side(majority, Directory()), HasSubstr("different histories"));
  EXPECT_EQ(side(left, NewDirectory()), "forced");
  cluster_.KillReplica(0);
  EXPECT_EQ(side(majority, Directory()), "majority");
}

// The ways out of docs/operations.md, "Two pools lost". Half of the keys are in a table that all
// three replicas have.
class TwoPoolsLostTest : public PromoteTest {
 protected:
  void SetUp() override {
    ASSERT_TRUE(shared_.Untaken().started());
    shared_.UseUp();
    ASSERT_OK(cluster_.AddReplica());
    ASSERT_NO_FATAL_FAILURE(Write(kKeys / 2));
  }
  StoreOptions Continuing() const {
    StoreOptions options = cluster_.Options();
    options.on_replica_failure = OnReplicaFailure::kContinue;
    return options;
  }
  // A table, and a log with the last key.
  void Write(int keys, bool flush = true) {
    TestDatabase database(Continuing(), Directory());
    ASSERT_OK(database.Open());
    ASSERT_OK(database.Fill(keys - 1));
    if (flush) {
      ASSERT_OK(database.db()->Flush({}));
    }
    ASSERT_OK(database.Fill(keys));
  }
  void Copy() const {
    for (const uint32_t i : {1u, 2u}) fs::copy_file(cluster_.pool(i), CopyOf(i));
  }
  std::string CopyOf(uint32_t i) const { return cluster_.pool(i) + ".copy"; }
  void SetAside(uint32_t i) {
    fs::rename(cluster_.pool(i), cluster_.pool(i) + ".aside");
    fs::rename(FilesOfReplica(i), FilesOfReplica(i) + ".aside");
  }
  // Replicas 1 and 2 have new pools, and every opening is refused.
  void LosePools() {
    for (const uint32_t i : {1u, 2u}) {
      cluster_.KillReplica(i);
      SetAside(i);
    }
    ASSERT_OK(cluster_.Restart());
    TestDatabase database(Continuing(), Directory());
    const std::string refused = database.Open().ToString();
    ASSERT_THAT(refused, HasSubstr("replicas are there"));
    ASSERT_THAT(refused, testing::Not(HasSubstr("open again when all"))) << "they run";
  }
  // All replicas and the primary begin with new pools, and take this directory in.
  void AdoptInNewGroup(const std::string& directory) {
    for (uint32_t i = 0; i < cluster_.replicas(); ++i) {
      cluster_.KillReplica(i);
      fs::rename(cluster_.pool(i), cluster_.pool(i) + ".former");
    }
    ASSERT_OK(cluster_.Restart());
    const std::string adopt =
        "adopt --db " + directory + " --uri '" + FormatStoreUri(cluster_.Options()) + "'";
    const Outcome refused = Ctl(adopt);
    EXPECT_EQ(refused.exit_status, 2);
    EXPECT_THAT(refused.text, HasSubstr("name another path, or move the file away"));
    fs::rename(cluster_.Options().pool, cluster_.folder() + "/former.pool");
    const Outcome adopted = Ctl(adopt);
    ASSERT_EQ(adopted.exit_status, 0) << adopted.text;
    ExpectHoldsAll(cluster_.Options(), directory);
    ExpectEveryReplicaHoldsAll(kKeys);
  }
  static void ExpectHoldsAll(const StoreOptions& options, const std::string& directory) {
    TestDatabase database(options, directory);
    ASSERT_OK(database.Open());
    EXPECT_EQ(database.FirstMissing(kKeys), "");
    EXPECT_OK(database.db()->VerifyChecksum());
  }
};

// Nor do they without that pool: the doctor and the opening say what they lack.
TEST_F(TwoPoolsLostTest, OldCopiesOfThemDoNoHarmBesideThePrimarysPool) {
  cluster_.KillReplica(0);
  ASSERT_NO_FATAL_FAILURE(Copy());
  ASSERT_NO_FATAL_FAILURE(Write(kKeys));
  ASSERT_OK(cluster_.Restart());
  ASSERT_NO_FATAL_FAILURE(LosePools());
  for (const uint32_t i : {1u, 2u}) {
    cluster_.KillReplica(i);
    fs::rename(CopyOf(i), cluster_.pool(i));
    fs::remove_all(FilesOfReplica(i));
    fs::rename(FilesOfReplica(i) + ".aside", FilesOfReplica(i));
  }
  ASSERT_OK(cluster_.Restart());
  const std::string doctor =
      "doctor --db " + Directory() + " --uri '" + FormatStoreUri(Continuing()) + "'";
  const std::string pool = cluster_.Options().pool, away = cluster_.folder() + "/away.pool";
  fs::rename(pool, away);
  const Outcome without = Ctl(doctor);
  EXPECT_EQ(without.exit_status, 1);
  EXPECT_THAT(without.text, HasSubstr("the directory alone has what was acknowledged since"));
  {
    TestDatabase database(Continuing(), Directory());
    EXPECT_THAT(database.Open().ToString(), HasSubstr("pools are older copies of themselves"));
  }
  fs::rename(away, pool);
  const Outcome with = Ctl(doctor);
  EXPECT_EQ(with.exit_status, 0) << with.text;
  EXPECT_THAT(with.text, HasSubstr("note  the opening: the replicas went back to older copies"));
  ExpectHoldsAll(Continuing(), Directory());
  ExpectEveryReplicaHoldsAll(kKeys);
}

// Replica 1 was down while all others, and the primary's pool, went back to older copies and on.
TEST_F(TwoPoolsLostTest, TheDoctorNamesAReplicaThatProvesMore) {
  const std::string own = cluster_.Options().pool;
  for (const uint32_t i : {0u, 2u}) fs::copy_file(cluster_.pool(i), CopyOf(i));
  fs::copy_file(own, own + ".copy");
  ASSERT_NO_FATAL_FAILURE(Write(kKeys, /*flush=*/false));
  for (const uint32_t i : {0u, 1u, 2u}) cluster_.KillReplica(i);
  for (const uint32_t i : {0u, 2u}) fs::rename(CopyOf(i), cluster_.pool(i));
  fs::rename(own + ".copy", own);
  ASSERT_OK(cluster_.Restart());
  cluster_.KillReplica(1);
  StoreOptions anew = Continuing();
  anew.restore = anew.rebind = true;
  {
    TestDatabase database(anew, NewDirectory());
    ASSERT_OK(database.Open());
  }
  ASSERT_OK(cluster_.Restart());
  const Outcome doctor =
      Ctl("doctor --db " + NewDirectory() + " --uri '" + FormatStoreUri(Continuing()) + "'");
  EXPECT_EQ(doctor.exit_status, 1) << doctor.text;
  const std::string refused = "replica " + cluster_.endpoint(1) + " proves that everything";
  EXPECT_THAT(doctor.text, HasSubstr("BAD   " + refused));
  TestDatabase database(Continuing(), NewDirectory());
  EXPECT_THAT(database.Open().ToString(), AllOf(HasSubstr("Corruption"), HasSubstr(refused)));
}

TEST_F(TwoPoolsLostTest, ThePrimarysDirectoryBecomesTheDatabaseOfANewGroup) {
  if (access("/usr/bin/ldb", X_OK) != 0) GTEST_SKIP() << "needs ldb (Debian package rocksdb-tools)";
  cluster_.KillReplica(0);
  ASSERT_NO_FATAL_FAILURE(Write(kKeys));
  ASSERT_OK(cluster_.Restart());
  ASSERT_NO_FATAL_FAILURE(LosePools());
  const std::string copy = cluster_.folder() + "/copy", scanned = cluster_.folder() + "/scanned";
  fs::copy(Directory(), copy);
  fs::rename(copy + "/HYPERLOOP", cluster_.folder() + "/HYPERLOOP");
  ASSERT_EQ(std::system(("/usr/bin/ldb --db=" + copy + " scan >" + scanned).c_str()), 0);
  const std::string all = BytesOf(scanned);
  EXPECT_EQ(std::ranges::count(all, '\n'), kKeys);
  for (const int key : {0, kKeys - 1}) EXPECT_THAT(all, HasSubstr(TestDatabase::KeyOf(key)));
  AdoptInNewGroup(copy);
}

// It was not left out. Nobody can know that.
TEST_F(TwoPoolsLostTest, AnExportOfTheOneThatIsLeftBecomesTheDatabaseOfANewGroup) {
  ASSERT_NO_FATAL_FAILURE(Write(kKeys));
  ASSERT_NO_FATAL_FAILURE(LosePools());
  fs::remove_all(Directory());
  const std::string rescued = cluster_.folder() + "/rescued";
  const Outcome exported = Export(0, rescued);
  EXPECT_EQ(exported.exit_status, 3) << exported.text;
  for (const std::string name : {"replica1", "replica2"})
    EXPECT_THAT(exported.text, HasSubstr("not compared with " + name + ": it is blank"));
  AdoptInNewGroup(rescued);
}

// What was acknowledged without it is in the primary's pool.
TEST_F(TwoPoolsLostTest, TheOneThatIsLeftGoesOnByForceWithWhatThePrimarysPoolHasMore) {
  cluster_.KillReplica(0);
  ASSERT_NO_FATAL_FAILURE(Write(kKeys, /*flush=*/false));
  ASSERT_OK(cluster_.Restart());
  ASSERT_NO_FATAL_FAILURE(LosePools());
  for (const uint32_t i : {1u, 2u}) cluster_.KillReplica(i);
  fs::remove_all(Directory());
  const Outcome promoted = Ctl("promote --db " + Directory() + " --uri '" +
                               FormatStoreUri(cluster_.Options()) + "' --force --yes");
  ASSERT_EQ(promoted.exit_status, 0) << promoted.text;
  StoreOptions left = cluster_.Options();
  left.replicas = {cluster_.endpoint(0)};
  ExpectHoldsAll(left, Directory());
}

}  // namespace
}  // namespace hyperloop::test
