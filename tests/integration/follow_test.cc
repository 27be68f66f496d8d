// hyperloopctl follow: a directory that grows while a real RocksDB writes elsewhere, read by stock
// RocksDB.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/db.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "hyperloop/plugin/reader.h"
#include "integration/ctl_run.h"
#include "support/child_process.h"
#include "support/database.h"
#include "support/eventually.h"
#include "support/shared_cluster.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class FollowTest : public SharedClusterTest<3, 64 << 20> {
 protected:
  FollowTest() : database_(cluster_.Options(), cluster_.folder() + "/db") {}

  ChildProcess Follow() const {
    return ChildProcess::Spawn({ProgramPath("hyperloopctl"), "follow", "--dir", dir_, "--replica",
                                "2", "--to", to_, "--retain", "1"});
  }
  // Whether it comes to say that. A slow machine may let it speak of a lag before.
  static bool Says(ChildProcess& follower, const std::string& text) {
    std::string line = follower.ReadLine();
    while (!line.empty() && line.find(text) == std::string::npos) line = follower.ReadLine();
    return !line.empty();
  }
  // Whether stock RocksDB, opened now as a secondary, finds all of these keys in the directory.
  bool Reads(int count) const {
    rocksdb::Options options;
    options.max_open_files = -1;
    rocksdb::DB* opened = nullptr;
    const rocksdb::Status status =
        rocksdb::DB::OpenAsSecondary(options, to_, to_ + ".secondary", &opened);
    const std::unique_ptr<rocksdb::DB> db(opened);
    if (!status.ok()) return false;
    for (int i = 0; i < count; ++i) {
      std::string value;
      if (!db->Get({}, TestDatabase::KeyOf(i), &value).ok()) return false;
      EXPECT_EQ(value, TestDatabase::ValueOf(i));
    }
    return true;
  }

  TestDatabase database_;
  const std::string dir_ = cluster_.folder() + "/cluster";
  const std::string to_ = cluster_.folder() + "/followed";
};

TEST_F(FollowTest, ASecondaryReadsWhatIsWrittenMeanwhile) {
  ASSERT_OK(database_.Open());
  ASSERT_OK(database_.Fill(100));
  ChildProcess follower = Follow();
  ASSERT_THAT(follower.ReadLine(), HasSubstr("follows epoch"));
  ASSERT_TRUE(Eventually([&] { return Reads(100); }));
  ASSERT_OK(database_.Fill(200));
  ASSERT_OK(database_.db()->Flush({}));
  ASSERT_OK(database_.Fill(300));
  ASSERT_TRUE(Eventually([&] { return Reads(300); })) << "a table, and the log behind it";

  const CtlRun status =
      RunCtl(cluster_.folder(), {"status", "--dir", dir_, "--followed", to_, "--json"});
  EXPECT_EQ(status.exit_status, 0) << status.err;
  EXPECT_THAT(status.out, HasSubstr("\"age_seconds\": "));
  EXPECT_THAT(status.out, Not(HasSubstr("\"age_seconds\": null")));
  EXPECT_THAT(RunCtl(cluster_.folder(), {"status", "--dir", dir_, "--followed", to_}).out,
              HasSubstr("all that was acknowledged until "));

  // No process of a replica does anything for it.
  cluster_.SignalAllReplicas(SIGSTOP);
  ASSERT_OK(database_.Fill(400));
  ASSERT_TRUE(Eventually([&] { return Reads(400); }));
  cluster_.SignalAllReplicas(SIGCONT);

  database_.Close();
  ASSERT_OK(database_.Open());
  ASSERT_OK(database_.Fill(500));
  ASSERT_TRUE(Eventually([&] { return Reads(500); })) << "in the next epoch";
  follower.Signal(SIGTERM);
  EXPECT_EQ(follower.Wait(), 0);

  ASSERT_OK(database_.Fill(600));
  EXPECT_TRUE(Reads(500)) << "what was shown stays when nobody follows";
  follower = Follow();
  ASSERT_TRUE(Eventually([&] { return Reads(600); })) << "a follower that was started again";
  follower.Kill();
  follower = Follow();
  ASSERT_OK(database_.Fill(700));
  ASSERT_TRUE(Eventually([&] { return Reads(700); })) << "after a kill";
}

// The writer's side and the reader's know the same history, and nothing of each other.
TEST_F(FollowTest, AReaderWaitsForAWritersToken) {
  ASSERT_OK(database_.Open());
  ASSERT_OK(database_.Fill(100));
  Origin origin;
  ASSERT_OK(Origin::OfPrimary(database_.db(), &origin));
  const auto token_text = [&] {
    return Token{origin, database_.db()->GetLatestSequenceNumber()}.ToText();
  };
  ChildProcess follower = Follow();
  ASSERT_THAT(follower.ReadLine(), HasSubstr("follows epoch"));
  std::unique_ptr<Reader> reader;
  ASSERT_OK(Reader::Open(rocksdb::Options(), to_, to_ + ".scratch", &reader));
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK(database_.Put("key", std::to_string(i)));
    Token token;
    ASSERT_OK(Token::Parse(token_text(), &token));
    ASSERT_OK(reader->WaitFor(token, std::chrono::seconds(120)));
    std::string value;
    ASSERT_OK(reader->view()->db()->Get({}, "key", &value));
    EXPECT_EQ(value, std::to_string(i));
    if (i % 5 == 4) {
      ASSERT_OK(database_.db()->Flush({}));
    }
  }

  // A program of C, with the same words.
  const std::string printed = to_ + ".printed", c_scratch = to_ + ".c-scratch";
  const std::string command = "'" + ProgramPath("../examples/follower") + "' '" + to_ + "' '" +
                              c_scratch + "' " + token_text() + " >'" + printed + "'";
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_THAT(Slurp(printed), HasSubstr("key 19\nkey0 "));

  // Also when nobody writes, and when the primary has closed: a majority vouches for the replica.
  const auto moment = std::chrono::system_clock::now();
  const auto shows_all_until = [&](Reader::Time then) {
    return Eventually([&] { return reader->CatchUp().ok() && reader->view()->as_of() >= then; });
  };
  EXPECT_TRUE(shows_all_until(moment));
  database_.Close();
  EXPECT_TRUE(shows_all_until(std::chrono::system_clock::now()));

  // Without a majority nobody knows whether others have gone on.
  shared_.UseUp();
  cluster_.KillReplica(0);
  cluster_.KillReplica(1);
  const auto later = std::chrono::system_clock::now();
  EXPECT_TRUE(Says(follower, "nobody vouches for the replica"));
  EXPECT_TRUE(reader->WaitForFresh(std::chrono::milliseconds(0), {}).IsTimedOut());
  EXPECT_LT(reader->view()->as_of(), later);
}

// A backup while the primary serves: the database as of some moment after the call.
TEST_F(FollowTest, ASnapshotIsADatabaseOfItsOwn) {
  const std::string snapshot = cluster_.folder() + "/snapshot";
  const std::vector<std::string> take{"snapshot", "--dir", dir_,    "--replica",
                                      "1",        "--to",  snapshot};
  CtlRun run = RunCtl(cluster_.folder(), take);
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_THAT(run.err, HasSubstr("holds no database"));

  ASSERT_OK(database_.Open());
  ASSERT_OK(database_.Fill(200));
  ASSERT_OK(database_.db()->Flush({}));
  ASSERT_OK(database_.Fill(300));
  run = RunCtl(cluster_.folder(), take);
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("holds everything up to record"));
  EXPECT_FALSE(std::filesystem::exists(snapshot + ".partial"));
  for (const auto& each : std::filesystem::directory_iterator(snapshot))
    EXPECT_TRUE(each.path().extension() != ".sst" || each.hard_link_count() >= 2) << each.path();

  // It is taken once, and nothing of it is changed.
  const CtlRun again = RunCtl(cluster_.folder(), take);
  EXPECT_EQ(again.exit_status, 1);
  EXPECT_THAT(again.err, HasSubstr("holds a snapshot already"));
  const CtlRun follow =
      RunCtl(cluster_.folder(), {"follow", "--dir", dir_, "--replica", "1", "--to", snapshot});
  EXPECT_EQ(follow.exit_status, 1);
  EXPECT_THAT(follow.err, HasSubstr("name a new or empty directory"));

  const CtlRun deep = RunCtl(cluster_.folder(), {"verify", "--deep", snapshot});
  EXPECT_EQ(deep.exit_status, 0) << deep.err;
  EXPECT_THAT(deep.out, HasSubstr("300 keys in 1 column families were read"));

  // The group goes on, and whoever writes to the snapshot writes to nothing else.
  ASSERT_OK(database_.Fill(400));
  rocksdb::DB* opened = nullptr;
  ASSERT_OK(rocksdb::DB::Open({}, snapshot, &opened));
  const std::unique_ptr<rocksdb::DB> copy(opened);
  std::string value;
  EXPECT_OK(copy->Get({}, TestDatabase::KeyOf(299), &value));
  EXPECT_TRUE(copy->Get({}, TestDatabase::KeyOf(399), &value).IsNotFound());
  ASSERT_OK(copy->Put({}, TestDatabase::KeyOf(0), "changed"));
  ASSERT_OK(copy->CompactRange({}, nullptr, nullptr));
  EXPECT_EQ(database_.FirstMissing(400), "");
  database_.Close();
  EXPECT_EQ(RunCtl(cluster_.folder(), {"verify", "--dir", dir_, "--files"}).exit_status, 0);
}

// The replica may have been left out, and then it holds an older database.
TEST_F(FollowTest, NoSnapshotOfAReplicaThatNobodyVouchesFor) {
  ASSERT_OK(database_.Open());
  ASSERT_OK(database_.Fill(10));
  database_.Close();
  shared_.UseUp();
  cluster_.KillReplica(0);
  cluster_.KillReplica(2);
  const std::string snapshot = cluster_.folder() + "/snapshot";
  const CtlRun run = RunCtl(cluster_.folder(), {"snapshot", "--dir", dir_, "--replica", "1", "--to",
                                                snapshot, "--wait", "1"});
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_THAT(run.err, HasSubstr("nobody vouches for the replica"));
  EXPECT_FALSE(std::filesystem::exists(snapshot));
  EXPECT_TRUE(std::filesystem::exists(snapshot + ".partial"));
}

TEST_F(FollowTest, SeveralReplicasHereAreNoSelf) {
  const CtlRun run =
      RunCtl(cluster_.folder(), {"follow", "--dir", dir_, "--replica", "self", "--to", to_});
  EXPECT_EQ(run.exit_status, 2);
  EXPECT_THAT(run.err, HasSubstr("say which one to use: 0, 1, 2"));
}

using OwnReplicaTest = SharedClusterTest<1, 64 << 20>;

TEST_F(OwnReplicaTest, IsFollowedAsSelf) {
  TestDatabase database(cluster_.Options(), cluster_.folder() + "/db");
  ASSERT_OK(database.Open());
  ASSERT_OK(database.Fill(10));
  ChildProcess follower = ChildProcess::Spawn({ProgramPath("hyperloopctl"), "follow", "--dir",
                                               cluster_.folder() + "/cluster", "--replica", "self",
                                               "--to", cluster_.folder() + "/followed"});
  EXPECT_THAT(follower.ReadLine(), HasSubstr("follows epoch"));
  follower.Signal(SIGTERM);
  EXPECT_EQ(follower.Wait(), 0);
}

TEST_F(FollowTest, OutlivesTheReplica) {
  ASSERT_OK(database_.Open());
  ASSERT_OK(database_.Fill(50));
  ChildProcess follower = Follow();
  ASSERT_THAT(follower.ReadLine(), HasSubstr("follows epoch"));
  ASSERT_TRUE(Eventually([&] { return Reads(50); }));
  cluster_.KillReplica(2);
  EXPECT_TRUE(Says(follower, "what is shown stays, and it is tried again"));
  EXPECT_TRUE(Says(follower, "is dead")) << "it must not hold the pool";
  EXPECT_TRUE(Reads(50));
  ASSERT_OK(cluster_.Restart());
  ASSERT_TRUE(Eventually([&] { return database_.Fill(80).ok(); }));
  ASSERT_TRUE(Eventually([&] { return Reads(80); }));
}

TEST_F(FollowTest, RefusesADirectoryThatIsNotItsOwn) {
  ASSERT_OK(database_.Open());
  std::filesystem::create_directory(to_);
  std::filesystem::copy_file(cluster_.pool(2), to_ + "/precious");
  const CtlRun run =
      RunCtl(cluster_.folder(), {"follow", "--dir", dir_, "--replica", "2", "--to", to_});
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_THAT(run.err, HasSubstr("name a new or empty directory"));
  EXPECT_TRUE(std::filesystem::exists(to_ + "/precious"));
}

}  // namespace
}  // namespace hyperloop::test
