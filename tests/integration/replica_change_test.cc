// A replica more, and a replica less, in a group that holds a database.
#include <atomic>
#include <thread>

#include "integration/whole_database_fixture.h"
#include "support/eventually.h"

namespace hyperloop::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ReplicaChangeTest : public WholeDatabaseTest {
 protected:
  // Nobody has to wait for this primary, however slow the machine is.
  StoreOptions Options() const {
    StoreOptions options = cluster_.Options();
    options.ack_timeout = options.connect_timeout = std::chrono::seconds(60);
    return options;
  }
  // A table and a log with half of the keys each, in a group of the first two replicas.
  void WriteHalves(const StoreOptions& options) {
    TestDatabase database(options, Directory());
    ASSERT_OK(database.Open());
    ASSERT_OK(database.Fill(kKeys / 2));
    ASSERT_OK(database.db()->Flush({}));
    ASSERT_OK(database.Fill(kKeys));
  }
  // The options of the uri that hyperloopctl printed last.
  static StoreOptions Printed(const Outcome& outcome) {
    StoreOptions options;
    const std::string uri = outcome.text.substr(outcome.text.find("uri: ") + 5);
    EXPECT_OK(ParseStoreUri(uri.substr(0, uri.find('\n')), &options));
    return options;
  }
  std::string Refusal(const StoreOptions& options) const {
    TestDatabase database(options, Directory());
    return database.Open().ToString();
  }
  void ExpectServes(const StoreOptions& options) {
    TestDatabase database(options, Directory());
    ASSERT_OK(database.Open());
    EXPECT_EQ(database.FirstMissing(kKeys), "");
    ASSERT_OK(database.db()->Put({}, "after", "change"));
  }
};

// Not the one that takes it in, and not a later one, while it has not been sent them.
TEST_F(ReplicaChangeTest, NoOpeningWaitsForTheTablesOfTheNewReplica) {
  ASSERT_NO_FATAL_FAILURE(WriteHalves(Options()));
  const std::vector<fs::path> tables = TablesOfReplica(0);
  ASSERT_OK(cluster_.AddReplica());
  // Where the new replica would begin each table there is a directory.
  std::vector<fs::path> in_the_way;
  for (const fs::path& table : tables) {
    const std::string part =
        table.filename().string() + "-" + std::to_string(fs::file_size(table)) + ".part";
    in_the_way.push_back(fs::path(FilesOfReplica(2)) / table.parent_path().filename() / part);
    fs::create_directories(in_the_way.back());
  }
  StoreOptions adding = Options();
  adding.add_replica = cluster_.endpoint(2);
  adding.bulk_timeout = std::chrono::seconds(2);
  for (int opening = 0; opening < 2; ++opening) {
    TestDatabase database(adding, Directory());
    database.options.disable_auto_compactions = true;  // the first table stays
    ASSERT_OK(database.Open()) << opening;
    ASSERT_OK(database.Put("opening", std::to_string(opening)));
    ASSERT_OK(database.db()->Flush({})) << opening;
    EXPECT_EQ(database.FirstMissing(kKeys), "");
  }
  EXPECT_THAT(TablesOfReplica(2), testing::IsSupersetOf(in_the_way));
  for (const fs::path& each : in_the_way) fs::remove(each);
  {
    TestDatabase database(Options(), Directory());
    ASSERT_OK(database.Open());
    ASSERT_OK(database.db()->CompactRange({}, nullptr, nullptr));
  }
  ExpectEveryReplicaHoldsAll(kKeys);
}

TEST_F(ReplicaChangeTest, ARemovedReplicaIsNeitherNeededNorBelieved) {
  ASSERT_OK(cluster_.AddReplica());
  ASSERT_NO_FATAL_FAILURE(WriteHalves(Options()));
  const std::string removed = cluster_.endpoint(2);
  cluster_.KillReplica(2);
  StoreOptions fewer = Options();
  fewer.replicas.pop_back();
  EXPECT_THAT(Refusal(fewer), HasSubstr("remove_replica=" + removed));
  fewer.remove_replica = removed;
  ExpectServes(fewer);
  ExpectServes(fewer);
  ASSERT_OK(cluster_.Restart());
  // It holds the database as it was when it left.
  StoreOptions alone = fewer;
  alone.remove_replica.clear();
  alone.replicas = {cluster_.endpoint(2)};
  EXPECT_THAT(Refusal(alone), HasSubstr("list all of them"));
  EXPECT_THAT(Refusal(Options()), HasSubstr("add_replica=" + cluster_.endpoint(2)));
  StoreOptions adding = Options();
  adding.add_replica = cluster_.endpoint(2);
  ASSERT_NO_FATAL_FAILURE(ExpectServes(adding));
  ExpectEveryReplicaHoldsAll(kKeys);
  StoreOptions former = fewer;
  former.remove_replica.clear();
  EXPECT_THAT(Refusal(former), AllOf(HasSubstr(cluster_.endpoint(2)), HasSubstr("list all")));
  // One of the first two may fail from now on.
  cluster_.KillReplica(0);
  StoreOptions continuing = Options();
  continuing.on_replica_failure = OnReplicaFailure::kContinue;
  ExpectServes(continuing);
}

// The one that would leave is the last that holds them.
TEST_F(ReplicaChangeTest, NoReplicaIsRemovedWhileTheOthersLackTheTables) {
  ASSERT_OK(cluster_.AddReplica());
  ASSERT_NO_FATAL_FAILURE(WriteHalves(Options()));
  for (const uint32_t i : {0u, 1u}) {
    cluster_.KillReplica(i);
    fs::remove_all(FilesOfReplica(i));
  }
  ASSERT_OK(cluster_.Restart());
  StoreOptions fewer = Options();
  fewer.replicas.pop_back();
  fewer.remove_replica = cluster_.endpoint(2);
  EXPECT_THAT(Refusal(fewer), AllOf(HasSubstr("no replica is removed now"), HasSubstr(".sst")));
  ASSERT_NO_FATAL_FAILURE(ExpectServes(Options()));  // it sends them the tables
  ExpectServes(fewer);
}

// hyperloopctl goes by the cluster's directory, so the replica has to leave that too.
TEST_F(ReplicaChangeTest, AnEmulatedClusterForgetsARemovedReplica) {
  ASSERT_OK(cluster_.AddReplica());
  ASSERT_NO_FATAL_FAILURE(WriteHalves(Options()));
  const std::string directory = cluster_.folder() + "/cluster", removed = cluster_.endpoint(2);
  const Outcome out = Ctl("cluster remove --dir " + directory + " --replica replica2");
  ASSERT_EQ(out.exit_status, 0) << out.text;
  EXPECT_THAT(out.text, HasSubstr("remove_replica=" + removed));
  StoreOptions fewer = Options();
  fewer.replicas.pop_back();
  EXPECT_EQ(Printed(out).replicas, fewer.replicas);
  EXPECT_THAT(Refusal(fewer), HasSubstr("remove_replica=" + removed));
  fewer.remove_replica = removed;
  ASSERT_NO_FATAL_FAILURE(ExpectServes(fewer));
  const Outcome verified = Ctl("verify --dir " + directory);
  EXPECT_EQ(verified.exit_status, 0) << verified.text;
  ASSERT_EQ(Ctl("cluster stop --dir " + directory).exit_status, 0);
  fs::rename(cluster_.folder() + "/primary.pool", directory + "/primary.pool");
  // One pool alone does not help.
  ASSERT_EQ(Ctl("resize --pool " + directory + "/replica0.pool --region-size 64M").exit_status, 0);
  const Outcome refused = Ctl("cluster start --dir " + directory);
  EXPECT_EQ(refused.exit_status, 2);
  EXPECT_THAT(refused.text,
              HasSubstr("hyperloopctl resize --dir " + directory + " --region-size 67108864;"));
  const Outcome resized = Ctl("resize --dir " + directory + " --region-size 64M");
  ASSERT_EQ(resized.exit_status, 0) << resized.text;
  const Outcome started = Ctl("cluster start --dir " + directory + " --region-size 64M");
  ASSERT_EQ(started.exit_status, 0) << started.text;
  ExpectServes(Printed(started));
}

TEST_F(ReplicaChangeTest, AReplicaIsAddedWhileTheDatabaseIsInUse) {
  const StoreOptions former = Options();
  const std::string directory = cluster_.folder() + "/cluster";
  ASSERT_NO_FATAL_FAILURE(WriteHalves(former));
  ASSERT_OK(cluster_.AddReplica());
  const std::string added = cluster_.endpoint(2);
  const std::string add = "add --dir " + directory + " ";
  EXPECT_THAT(Ctl(add + added).text, HasSubstr("no primary serves the group"));
  {
    TestDatabase database(former, Directory());
    ASSERT_OK(database.Open());
    EXPECT_EQ(Ctl(add + "nonsense").exit_status, 2);
    EXPECT_THAT(Ctl(add + "127.0.0.1:1").text, HasSubstr("127.0.0.1:1"));
    // While a member's process is stopped, the group serves only as long as nobody interrupts it.
    // Nobody waits without end for a primary that cannot add the replica.
    cluster_.SignalReplica(1, SIGSTOP);
    const Outcome in_vain = Ctl(add + added + " --wait 1");
    EXPECT_EQ(in_vain.exit_status, 1) << in_vain.text;
    EXPECT_THAT(in_vain.text, HasSubstr("did not answer"));
    ASSERT_OK(database.Put("served", "meanwhile"));
    cluster_.SignalReplica(1, SIGCONT);

    std::atomic<bool> done{false};
    std::thread writer([&] {
      for (int i = 0; !done; ++i) ASSERT_OK(database.Put("meanwhile", std::to_string(i)));
    });
    const Outcome out = Ctl(add + added);
    done = true;
    writer.join();
    ASSERT_EQ(out.exit_status, 0) << out.text;
    // The call in vain may have been carried out by now.
    EXPECT_THAT(out.text, AllOf(HasSubstr(added), HasSubstr("in the group")));
    ASSERT_OK(database.db()->Put({}, "after", "change"));
    const Outcome again = Ctl(add + added);
    EXPECT_EQ(again.exit_status, 0) << again.text;
    EXPECT_THAT(again.text, HasSubstr("already in the group"));
    // The bulk lane brings it the tables, too.
    ASSERT_OK(database.db()->CompactRange({}, nullptr, nullptr));
    EXPECT_TRUE(Eventually([&] { return !TablesOfReplica(2).empty(); }));
  }
  ExpectEveryReplicaHoldsAll(kKeys);
  EXPECT_THAT(Refusal(former), AllOf(HasSubstr(added), HasSubstr("list all")));
}

TEST_F(ReplicaChangeTest, AReplicaThatWasLeftOutIsRemovedWhileTheDatabaseIsInUse) {
  ASSERT_OK(cluster_.AddReplica());
  StoreOptions options = Options();
  options.on_replica_failure = OnReplicaFailure::kContinue;
  options.ack_timeout = std::chrono::seconds(10);
  const std::string leaver = cluster_.endpoint(2);
  const std::string remove = "remove --dir " + cluster_.folder() + "/cluster " + leaver;
  {
    TestDatabase database(options, Directory());
    ASSERT_OK(database.Open());
    ASSERT_OK(database.Fill(kKeys));
    EXPECT_THAT(Ctl(remove).text, HasSubstr("end that replica first"));
    cluster_.KillReplica(2);
    EXPECT_TRUE(Eventually([&] { return database.Put("without", "it").ok(); }));
    EXPECT_TRUE(Eventually([&] { return Ctl(remove).exit_status == 0; }));
    EXPECT_THAT(Ctl(remove).text, HasSubstr(leaver + " is not in the group"));
    EXPECT_TRUE(Eventually([&] { return database.Put("still", "there").ok(); }));
  }
  EXPECT_THAT(Refusal(options), HasSubstr("is not of this configuration"));
  std::erase(options.replicas, leaver);
  ExpectServes(options);
}

}  // namespace
}  // namespace hyperloop::test
