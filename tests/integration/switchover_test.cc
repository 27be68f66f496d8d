// hyperloopctl switchover moves the database of a living primary to another machine: the tables are
// there before the primary closes it, and nothing is taken from a primary that does not.
#include "hyperloop/replication/store.h"
#include "integration/elsewhere_fixture.h"

namespace hyperloop::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class SwitchoverTest : public ElsewhereTest {
 protected:
  std::string Arguments(const std::string& wait) const {
    return "switchover --db " + NewDirectory() + " --uri '" + FormatStoreUri(Elsewhere()) +
           "' --wait " + wait;
  }
  // A switchover at work, whose standard output can be read. Its other output is in the test's.
  ChildProcess Begin(const std::string& more = "") const {
    const std::string command =
        "exec " + ProgramPath("hyperloopctl") + " " + Arguments("600") + " " + more;
    return ChildProcess::Spawn({"/bin/sh", "-c", command});
  }
  // Reads what is left of its output.
  static std::string RestOf(ChildProcess& child) {
    std::string text;
    for (std::string line = child.ReadLine(); !line.empty(); line = child.ReadLine())
      text += line + "\n";
    return text;
  }
  // Nobody was disturbed, and nothing was taken.
  void ExpectStillServes(uint64_t epoch) {
    ASSERT_OK(former_->Put("it", "goes on"));
    EXPECT_EQ(Epoch(), epoch);
    EXPECT_FALSE(fs::exists(NewDirectory() + "/HYPERLOOP"));
  }
};

// This process must not have used RocksDB before, because the child would have none of its threads.
TEST_F(SwitchoverTest, ADeadPrimaryIsLeftToPromote) {
  ChildProcess primary = ChildProcess::Fork([&] {
    TestDatabase database(cluster_.Options(), Directory());
    const bool filled = database.Open().ok() && database.Fill(kKeys).ok();
    std::puts(filled ? "filled" : "failed");
    std::fflush(stdout);
    pause();
    return 1;
  });
  ASSERT_EQ(primary.ReadLine(), "filled");
  primary.Kill();
  const Outcome status = Ctl("status --dir " + cluster_.folder() + "/cluster");
  EXPECT_THAT(status.text, HasSubstr("no heartbeat since 20"));
  const uint64_t epoch = Epoch();
  const Outcome refused = Ctl(Arguments("0"));
  EXPECT_EQ(refused.exit_status, 1);
  EXPECT_THAT(refused.text, HasSubstr("hyperloopctl promote takes its place"));
  EXPECT_EQ(Epoch(), epoch);
}

TEST_F(SwitchoverTest, WithoutADatabaseThereIsNothingToMove) {
  ASSERT_TRUE(shared_.Untaken().started());
  const Outcome refused = Ctl(Arguments("0"));
  EXPECT_EQ(refused.exit_status, 1);
  EXPECT_THAT(refused.text, HasSubstr("the group holds no database"));
  EXPECT_EQ(Epoch(), 0u);
}

TEST_F(SwitchoverTest, TheTablesAreHereBeforeThePrimaryCloses) {
  ASSERT_NO_FATAL_FAILURE(Serve());
  ChildProcess switchover = Begin();
  const std::string ready = switchover.ReadLine();
  EXPECT_THAT(ready, StartsWith("ready: 1 tables, blob files and logs are here, 1 of them"));
  EXPECT_THAT(ready, HasSubstr("for " + Directory()));
  EXPECT_EQ(CountBrought(), 1u);
  ASSERT_OK(former_->Fill(kKeys + 10));
  ASSERT_OK(former_->db()->Flush({}));
  former_->Close();
  const std::string rest = RestOf(switchover);
  EXPECT_EQ(switchover.Wait(), 0) << rest;
  EXPECT_THAT(rest, HasSubstr("holds its group's database"));
  EXPECT_THAT(rest, HasSubstr("no primary has served the group for "));
  EXPECT_FALSE(fs::exists(Brought()));
  EXPECT_EQ(TablesIn(NewDirectory()).size(), 2u);
  EXPECT_THAT(former_->Open().ToString(), HasSubstr("rebind=true"));
  ExpectServes(kKeys + 10);
  ExpectEveryReplicaHoldsAll(kKeys + 11);
}

TEST_F(SwitchoverTest, TablesOfTheReplicaHereAreLinkedAndNotBrought) {
  ASSERT_NO_FATAL_FAILURE(Serve());
  ChildProcess switchover = Begin("--replica-files " + FilesOfReplica(1));
  EXPECT_THAT(switchover.ReadLine(),
              StartsWith("ready: 1 tables, blob files and logs are here, 0 of them (0 B)"));
  former_->Close();
  const std::string rest = RestOf(switchover);
  EXPECT_EQ(switchover.Wait(), 0) << rest;
  const std::vector<std::string> tables = TablesIn(NewDirectory());
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(fs::hard_link_count(NewDirectory() + "/" + tables[0]), 2u);
  ExpectServes(kKeys);
}

TEST_F(SwitchoverTest, TheWayBackReadsWhatTheDirectoryHas) {
  ASSERT_NO_FATAL_FAILURE(Serve());
  former_->Close();
  ASSERT_EQ(Ctl(Arguments("0")).exit_status, 0);
  const Outcome again = Ctl(Arguments("0"));
  EXPECT_EQ(again.exit_status, 0) << "a call that is repeated: " << again.text;
  EXPECT_THAT(again.text, HasSubstr("since before this call"));
  TestDatabase there(Elsewhere(), NewDirectory());
  ASSERT_OK(there.Open());
  ASSERT_OK(there.Fill(kKeys + 10));
  ASSERT_OK(there.db()->Flush({}));
  ChildProcess back = ChildProcess::Spawn(
      {ProgramPath("hyperloopctl"), "switchover", "--db", Directory(), "--uri", cluster_.uri()});
  EXPECT_THAT(back.ReadLine(),
              StartsWith("ready: 2 tables, blob files and logs are here, 1 of them"));
  there.Close();
  const std::string rest = RestOf(back);
  EXPECT_EQ(back.Wait(), 0) << rest;
  ASSERT_OK(former_->Open());
  EXPECT_EQ(former_->FirstMissing(kKeys + 10), "");
}

TEST_F(SwitchoverTest, APrimaryThatServesOnIsNamedAndKeepsTheGroup) {
  ASSERT_NO_FATAL_FAILURE(Serve());
  const uint64_t epoch = Epoch();
  const Outcome refused = Ctl(Arguments("0"));
  EXPECT_EQ(refused.exit_status, 1);
  EXPECT_THAT(refused.text, HasSubstr("for " + Directory() + " (epoch " + std::to_string(epoch) +
                                      ") still serves the group"));
  ExpectStillServes(epoch);
  EXPECT_EQ(CountBrought(), 1u) << "the next call goes on with it";
  StoreOptions forced = Elsewhere();
  forced.takeover = true;
  const Outcome no =
      Ctl("switchover --db " + NewDirectory() + " --uri '" + FormatStoreUri(forced) + "'");
  EXPECT_EQ(no.exit_status, 2);
  EXPECT_THAT(no.text, HasSubstr("takes nothing from a primary that lives"));
  ExpectStillServes(epoch);
}

TEST_F(SwitchoverTest, ACallThatWasCutShortIsRepeated) {
  ASSERT_NO_FATAL_FAILURE(Serve());
  ChildProcess first = Begin();
  ASSERT_THAT(first.ReadLine(),
              StartsWith("ready: 1 tables, blob files and logs are here, 1 of them"));
  first.Kill();
  // What was brought is damaged meanwhile, and brought again.
  for (const auto& entry : fs::recursive_directory_iterator(Brought()))
    if (entry.is_regular_file()) Damage(entry.path());
  ChildProcess second = Begin();
  ASSERT_THAT(second.ReadLine(),
              StartsWith("ready: 1 tables, blob files and logs are here, 1 of them"));
  second.Kill();
  ChildProcess third = Begin();
  ASSERT_THAT(third.ReadLine(),
              StartsWith("ready: 1 tables, blob files and logs are here, 0 of them"));
  const Outcome beside = Ctl(Arguments("0"));
  EXPECT_EQ(beside.exit_status, 1);
  EXPECT_THAT(beside.text, HasSubstr("is open in another process"));
  former_->Close();
  const std::string rest = RestOf(third);
  EXPECT_EQ(third.Wait(), 0) << rest;
  ExpectServes(kKeys);
}

// Somebody took the group after the primary had closed it, and gave up before serving.
TEST_F(SwitchoverTest, ATakingThatWasGivenUpHoldsNothing) {
  ASSERT_NO_FATAL_FAILURE(Serve());
  former_->Close();
  StoreOptions options = Elsewhere();
  options.restore = options.rebind = true;
  options.pool = cluster_.folder() + "/third.pool";
  auto store = Store::Open(options, nullptr);
  ASSERT_OK(store);
  int judged = 0;
  TakeRequest request;
  request.directory = cluster_.folder() + "/third";
  request.judge = [&](const GroupFiles&) {
    return ++judged < 2 ? Status() : InvalidArgument("not here");
  };
  TakeResult taken;
  const uint64_t epoch = Epoch();
  EXPECT_THAT((*store)->Take(request, &taken).ToString(), HasSubstr("not here"));
  EXPECT_GT(Epoch(), epoch);
  ASSERT_OK((*store)->Close());
  const Outcome moved = Ctl(Arguments("20"));
  EXPECT_EQ(moved.exit_status, 0) << moved.text;
  ExpectServes(kKeys);
}

TEST_F(SwitchoverTest, WhatWasRemovedMeanwhileIsNotKept) {
  ASSERT_NO_FATAL_FAILURE(Serve());
  EXPECT_EQ(Ctl(Arguments("0")).exit_status, 1);
  EXPECT_EQ(CountBrought(), 1u);
  ASSERT_OK(former_->db()->Flush({}));
  rocksdb::CompactRangeOptions all;
  all.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
  ASSERT_OK(former_->db()->CompactRange(all, nullptr, nullptr));
  ASSERT_EQ(TablesIn(Directory()).size(), 1u);
  EXPECT_EQ(Ctl(Arguments("0")).exit_status, 1);
  EXPECT_EQ(CountBrought(), 1u) << "the new table, and none of the old ones";
}

TEST_F(SwitchoverTest, ADirectoryOfAnotherDatabaseIsRefusedAtOnce) {
  ASSERT_NO_FATAL_FAILURE(Serve());
  {
    rocksdb::Options options;
    options.create_if_missing = true;
    rocksdb::DB* db = nullptr;
    ASSERT_OK(rocksdb::DB::Open(options, NewDirectory(), &db));
    const std::unique_ptr<rocksdb::DB> owned(db);
    ASSERT_OK(db->Put({}, "its", "own"));
  }
  const uint64_t epoch = Epoch();
  const auto files = FilesOf(NewDirectory());
  const Outcome refused = Ctl(Arguments("0"));
  EXPECT_EQ(refused.exit_status, 2);
  EXPECT_THAT(refused.text, HasSubstr("holds a database that is of no group"));
  EXPECT_EQ(FilesOf(NewDirectory()), files);
  ExpectStillServes(epoch);
}

TEST_F(SwitchoverTest, TooFewReplicasAreNamedAtOnce) {
  ASSERT_NO_FATAL_FAILURE(Serve());
  former_->Close();
  const uint64_t epoch = Epoch();
  cluster_.KillReplica(1);
  const Outcome refused = Ctl(Arguments("0"));
  EXPECT_EQ(refused.exit_status, 1);
  EXPECT_THAT(refused.text, HasSubstr(cluster_.endpoint(1)));
  EXPECT_EQ(Epoch(), epoch);
  ASSERT_OK(cluster_.Restart());
  EXPECT_EQ(Ctl(Arguments("0")).exit_status, 0);
  ExpectServes(kKeys);
}

}  // namespace
}  // namespace hyperloop::test
