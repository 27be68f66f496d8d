// Tests hyperloopctl's commands for a group: real daemons, which the tests share, and a log that a
// Store fills.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "control/client.h"
#include "control/trust.h"
#include "files/file_store.h"
#include "hyperloop/replication/store.h"
#include "integration/ctl_group_files.h"
#include "integration/ctl_run.h"
#include "region/region_layout.h"
#include "support/child_process.h"
#include "support/rival_seal.h"
#include "support/shared_cluster.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

// A primary that has been promised a replica, lives, and has not installed an epoch yet.
class LivingRival {
 public:
  LivingRival(const std::string& address, const std::string& keys) {
    const auto endpoint = control::ParseEndpoint(address).value();
    const auto trust = control::Trust::Load(keys, nullptr).value();
    client_ = control::ControlClient::Connect(endpoint, trust, kPatience).value();
    const auto hello = client_->Call<control::HelloReplyT>(control::HelloRequestT{}, kPatience);
    const control::SealRequestT seal = RivalSeal(hello.value());
    EXPECT_OK(client_->Call<control::SealReplyT>(seal, kPatience).status());
    thread_ = std::thread([this, owner = seal.owner_id] {
      while (lives_) {
        control::HelloRequestT request;
        request.owner_id = owner;
        EXPECT_OK(client_->Call<control::HelloReplyT>(std::move(request), kPatience).status());
      }
    });
  }
  ~LivingRival() {
    lives_ = false;
    thread_.join();
  }
  LivingRival(const LivingRival&) = delete;
  LivingRival& operator=(const LivingRival&) = delete;

 private:
  static constexpr std::chrono::seconds kPatience{60};
  std::unique_ptr<control::ControlClient> client_;
  std::atomic<bool> lives_{true};
  std::thread thread_;
};

// Writes zeros over both copies of the log's head in a pool's region.
void WipeHeads(const std::string& pool) {
  const size_t region = Slurp(pool).find("HLREGION");
  ASSERT_NE(region, std::string::npos);
  std::fstream file(pool, std::ios::in | std::ios::out | std::ios::binary);
  for (const uint64_t head : kHeadOffsets) {
    file.seekp(static_cast<std::streamoff>(region + head));
    file << std::string(64, '\0');
  }
}

// Inspects and exports a group that a Store of this process fills. All tests share one cluster.
class GroupCommandTest : public SharedClusterTest<3, kRegion>, public GroupCommandFiles {
 protected:
  using GroupCommandFiles::Run;  // testing::Test has another one
  GroupCommandTest() : GroupCommandFiles(cluster_) {}
  void SetUp() override {
    SharedClusterTest::SetUp();
    if (!HasFatalFailure()) Serve();
    if (!HasFatalFailure()) PutFiles();
  }
};

TEST_F(GroupCommandTest, StatusTellsOwnerLogAndFiles) {
  cluster_.SignalReplica(1, SIGSTOP);  // it can still be read
  const nlohmann::json living = StatusJson();
  cluster_.SignalReplica(1, SIGCONT);
  ASSERT_EQ(living["replicas"].size(), 3u);
  for (const nlohmann::json& replica : living["replicas"]) {
    EXPECT_EQ(replica["owner_lives"], true) << replica.dump();
    EXPECT_EQ(replica["epoch"], epoch_);
    EXPECT_GE(replica["sequence"], 4);
    EXPECT_GT(replica["tail"], 0);
    ASSERT_EQ(replica["files"].size(), 2u) << replica.dump();
    EXPECT_EQ(replica["files"][0]["name"], "000002.log");
    EXPECT_EQ(replica["files"][0]["size"], 100000);
  }
  EXPECT_EQ(living["replicas"][1]["process"], "stopped");
  CloseStore();
  cluster_.KillReplica(2);
  const nlohmann::json closed = StatusJson();
  for (const nlohmann::json& replica : closed["replicas"]) {
    EXPECT_EQ(replica["owner_lives"], false);
    EXPECT_EQ(replica["released"], true);
    EXPECT_EQ(replica["files"].size(), 2u);
  }
  EXPECT_EQ(closed["replicas"][2]["process"], "dead");
  const CtlRun text = Run({"status", "--dir", dir_});
  EXPECT_THAT(text.out, HasSubstr("000002.log"));
  EXPECT_THAT(text.out, HasSubstr("the same files as replica0"));
  const CtlRun by_uri = Run({"status", "--uri", cluster_.uri()});
  EXPECT_EQ(by_uri.out, text.out) << by_uri.err;
}

// Nothing ships the file, because this Store has no directory.
TEST_F(GroupCommandTest, AReplicaThatLacksFilesIsNotWhole) {
  const auto wait = [&](std::vector<std::string> goal) {
    std::vector<std::string> arguments{"wait", "--dir", dir_, "--timeout", "1"};
    arguments.insert(arguments.end(), goal.begin(), goal.end());
    return Run(arguments);
  };
  EXPECT_EQ(StatusJson()["replicas"][1]["files_lacking"], 0);
  EXPECT_THAT(Run({"status", "--dir", dir_}).out, Not(HasSubstr("FILLED")));
  const CtlRun whole = wait({"--whole"});
  EXPECT_EQ(whole.exit_status, 0) << whole.err;
  EXPECT_THAT(whole.out, HasSubstr("3 of 3 replicas are whole"));
  ASSERT_OK(store_->ListFile({"000007.sst", 4711, 1}));
  const nlohmann::json replica = StatusJson()["replicas"][1];
  EXPECT_EQ(replica["files_lacking"], 1);
  EXPECT_EQ(replica["files_lacking_bytes"], 4711);
  EXPECT_THAT(Run({"status", "--dir", dir_}).out,
              HasSubstr("  BEING FILLED: 1 file (4711 B) lacking\n"));
  const CtlRun late = wait({"--whole"});
  EXPECT_EQ(late.exit_status, 1);
  EXPECT_THAT(late.out, HasSubstr("0 of 3 replicas are whole; replica0 " + cluster_.endpoint(0) +
                                  " 1 file (4711 B) lacking; replica1"));
  EXPECT_THAT(late.err, HasSubstr("after 1 s: 0 of 3"));
  EXPECT_EQ(wait({"--members", "1"}).exit_status, 1);
  CloseStore();
  EXPECT_THAT(Run({"status", "--dir", dir_}).out,
              HasSubstr("  NOT FILLED: 1 file (4711 B) lacking\n"));
}

// A log that was archived a moment ago, or while a replica was away.
TEST_F(GroupCommandTest, AnArchivedLogIsThereUnderItsFormerNameToo) {
  const std::string bytes = "the bytes of a log";
  FileChecksum checksum;
  checksum.Add({bytes.data(), bytes.size()});
  const WholeFile log{"000034.log", bytes.size(), checksum.value()};
  WholeFile archived = log;
  archived.name = "archive/" + log.name;
  ASSERT_OK(store_->ListFile(archived));
  CloseStore();  // so that nobody drops the file
  EXPECT_EQ(StatusJson()["replicas"][1]["files_lacking"], 1);
  const auto group = ParseUuid(std::string(StatusJson()["replicas"][0]["group"]));
  ASSERT_OK(group);
  for (uint32_t i = 0; i < cluster_.replicas(); ++i) {
    const std::string root = cluster_.pool(i) + ".files";
    ASSERT_OK(MakeDurableDirectory(root));
    const auto store = FileStore::Open(GroupDirectory(root, *group));
    ASSERT_OK(store);
    ASSERT_OK((*store)->Write(log, 0, std::as_bytes(std::span(bytes))));
  }
  EXPECT_EQ(StatusJson()["replicas"][1]["files_lacking"], 0);
  const CtlRun verified = Run({"verify", "--dir", dir_, "--files"});
  EXPECT_EQ(verified.exit_status, 0) << verified.err;
}

TEST_F(GroupCommandTest, WaitEndsWhenEnoughReplicasAreWhole) {
  ASSERT_OK(store_->ListFile({"000007.sst", 4711, 1}));
  auto wait =
      ChildProcess::Spawn({ProgramPath("hyperloopctl"), "wait", "--dir", dir_, "--members", "2"});
  EXPECT_THAT(wait.ReadLine(), HasSubstr("0 of 3 replicas are whole"));
  cluster_.SignalReplica(1, SIGSTOP);
  ASSERT_OK(store_->Remove("000007.sst"));
  EXPECT_EQ(wait.Wait(), 0);
  const CtlRun all = Run({"wait", "--dir", dir_, "--whole", "--timeout", "1"});
  cluster_.SignalReplica(1, SIGCONT);
  EXPECT_EQ(all.exit_status, 1);
  EXPECT_THAT(all.err, HasSubstr("replica1 " + cluster_.endpoint(1) + " is stopped"));
  EXPECT_EQ(Run({"wait", "--dir", dir_}).exit_status, 2);
  EXPECT_EQ(Run({"wait", "--dir", dir_, "--whole", "--members", "2"}).exit_status, 2);
  EXPECT_EQ(Run({"wait", "--dir", dir_ + "/none", "--whole", "--timeout", "1"}).exit_status, 1);
}

TEST_F(GroupCommandTest, StatusSaysWhetherTheNextFailureStopsWrites) {
  const std::string blocked = "the next failure stops writes: on_replica_failure=block";
  const std::string& uri = cluster_.uri();
  EXPECT_THAT(Run({"status", "--uri", uri + "&on_replica_failure=block"}).out, HasSubstr(blocked));
  EXPECT_THAT(Run({"status", "--uri", uri}).out, Not(HasSubstr("the next failure")));
  cluster_.SignalReplica(1, SIGSTOP);
  const CtlRun one_is_stopped = Run({"status", "--uri", uri});
  cluster_.SignalReplica(1, SIGCONT);
  EXPECT_THAT(one_is_stopped.out, HasSubstr("the next failure stops writes: 2 of 3 replicas"));
}

// The half-written region of a replica that a living primary has sealed, and not installed yet.
TEST_F(GroupCommandTest, ARegionThatIsBeingFilledIsNotDamaged) {
  CloseStore();
  shared_.UseUp();
  std::vector<std::unique_ptr<LivingRival>> rivals;
  for (uint32_t i = 0; i < 3; ++i)
    rivals.push_back(std::make_unique<LivingRival>(cluster_.endpoint(i), cluster_.Options().keys));
  WipeHeads(cluster_.pool(2));
  const CtlRun status = Run({"status", "--dir", dir_});
  rivals.clear();
  EXPECT_THAT(status.out, HasSubstr("  BEING FILLED: the primary is writing the region\n"));
  EXPECT_THAT(status.out, Not(HasSubstr("DAMAGED")));
  EXPECT_EQ(status.exit_status, 0) << status.out << status.err;
  EXPECT_THAT(Run({"status", "--dir", dir_}).out, HasSubstr("DAMAGED")) << "its owner is gone";
}

TEST_F(GroupCommandTest, WatchingShowsABlockEachTimeUntilItIsInterrupted) {
  auto watch = ChildProcess::Spawn(
      {ProgramPath("hyperloopctl"), "status", "--dir", dir_, "--watch", "0.1", "--json"});
  for (int look = 0; look < 3; ++look) {
    const nlohmann::json shown = nlohmann::json::parse(watch.ReadLine(), nullptr, false);
    ASSERT_TRUE(shown.is_object());
    EXPECT_EQ(shown["replicas"].size(), 3u);
    EXPECT_EQ(watch.ReadLine(), "") << "an empty line stands between two blocks";
  }
  watch.Signal(SIGINT);
  EXPECT_EQ(watch.Wait(), 0);
  auto text =
      ChildProcess::Spawn({ProgramPath("hyperloopctl"), "status", "--dir", dir_, "--watch"});
  EXPECT_THAT(text.ReadLine(), testing::MatchesRegex("....-..-..T..:..:..Z"));
  EXPECT_THAT(text.ReadLine(), HasSubstr("replica0"));
  text.Signal(SIGTERM);
  EXPECT_EQ(text.Wait(), 0);
}

TEST_F(GroupCommandTest, TopShowsHowFastTheLogGrows) {
  auto top =
      ChildProcess::Spawn({ProgramPath("hyperloopctl"), "top", "--dir", dir_, "--interval", "0.1"});
  EXPECT_THAT(top.ReadLine(), HasSubstr("  epoch " + std::to_string(epoch_)));
  // Columns: node, process, heartbeat, sequence, records a second, …, WQEs a second, …
  const auto moves = [&] {
    for (int line = 0; line < 20; ++line) {
      std::istringstream words(top.ReadLine());
      std::vector<std::string> columns(std::istream_iterator<std::string>(words), {});
      if (columns.size() != 11 || columns[0] != "replica2") continue;
      return columns[1] == "running" && columns[2] == "moves" && columns[4] != "-" &&
             columns[4] != "0" && columns[8] != "0";
    }
    return false;
  };
  EXPECT_TRUE(Eventually([&] {
    Put("000003.log", std::string(100, 'x'));
    return moves();
  }));
  top.Signal(SIGINT);
  EXPECT_EQ(top.Wait(), 0);
  const CtlRun nowhere = Run({"top", "--dir", dir_ + "/none"});
  EXPECT_NE(nowhere.exit_status, 0);
  EXPECT_NE(nowhere.err, "");
}

// As in another pid namespace.
TEST_F(GroupCommandTest, AReplicaWhosePoolIsInUseIsNotCalledDead) {
  const std::string pid = dir_ + "/replica1.pid";
  fs::rename(pid, pid + ".kept");
  const CtlRun status = Run({"status", "--dir", dir_});
  fs::rename(pid + ".kept", pid);
  EXPECT_THAT(status.out, HasSubstr("look from where replica1 was started"));
  EXPECT_THAT(status.out, Not(HasSubstr("replica1 is dead, and its pool")));
}

TEST_F(GroupCommandTest, StatusSaysSinceWhenAndWhyAReplicaIsLeftOut) {
  CloseStore();
  ASSERT_NO_FATAL_FAILURE(Serve([](StoreOptions& options) {
    options.on_replica_failure = OnReplicaFailure::kContinue;
    options.ack_timeout = std::chrono::seconds(16);
  }));
  cluster_.KillReplica(2);
  Put("000010.log", "words");
  const CtlRun status = Run({"status", "--dir", dir_});
  EXPECT_THAT(status.out, testing::ContainsRegex(
                              "SHRUNKEN: goes on without " + cluster_.endpoint(2) +
                              " until it is back; left out since 20[0-9-]*T[0-9:]*Z: replica " +
                              cluster_.endpoint(2) + " does not answer"));
  const CtlRun as_json = Run({"status", "--dir", dir_, "--json"});
  const auto json = nlohmann::json::parse(as_json.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << as_json.err;
  ASSERT_EQ(json["replicas"][0]["left_out_why"].size(), 1u) << as_json.out;
  EXPECT_THAT(std::string(json["replicas"][0]["left_out_why"][0]), HasSubstr("since 20"));
}

// As on a machine that has no cluster.json: only the replicas themselves know their hosts.
TEST_F(GroupCommandTest, AReplicaThatDoesNotAnswerKeepsNobodyFromLookingAtTheOthers) {
  CloseStore();
  StoreOptions options = cluster_.Options();
  const std::string elsewhere = cluster_.folder() + "/elsewhere";
  fs::create_directory(elsewhere);
  fs::create_symlink(options.device, elsewhere + "/rnicd.sock");
  options.device = elsewhere + "/rnicd.sock";
  const std::string uri = FormatStoreUri(options);
  ASSERT_EQ(Run({"status", "--uri", uri}).exit_status, 0);
  cluster_.KillReplica(2);
  const CtlRun status = Run({"status", "--uri", uri, "--json"});
  EXPECT_EQ(status.exit_status, 1);
  const auto json = nlohmann::json::parse(status.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << status.err;
  const auto& replicas = json["replicas"];
  ASSERT_EQ(replicas.size(), 3u);
  EXPECT_EQ(replicas[0]["files"].size(), 2u);
  EXPECT_EQ(replicas[1]["files"].size(), 2u);
  EXPECT_EQ(replicas[2]["process"], "silent");
  EXPECT_THAT(std::string(replicas[2]["error"]), HasSubstr(cluster_.endpoint(2)));
  EXPECT_THAT(Run({"status", "--uri", uri}).out, HasSubstr(cluster_.endpoint(2) + "  silent"));
  EXPECT_EQ(Run({"dump", "--uri", uri, "--replica", "1", "--offset", "0", "--length", "8", "--hex"})
                .exit_status,
            0);
  cluster_.KillReplica(0);
  cluster_.KillReplica(1);
  const CtlRun none = Run({"status", "--uri", uri});
  EXPECT_EQ(none.exit_status, 1);
  EXPECT_THAT(none.err, HasSubstr(cluster_.endpoint(0)));
}

TEST_F(GroupCommandTest, DestroyRefusesALivingPrimary) {
  const CtlRun refused = Run({"cluster", "destroy", "--dir", dir_, "--yes"});
  EXPECT_EQ(refused.exit_status, 1);
  EXPECT_THAT(refused.err, HasSubstr("the group is in use by process " + std::to_string(getpid())));
  EXPECT_TRUE(ReadCluster(dir_)->AllAlive());
}

TEST_F(GroupCommandTest, ADirectoryStandsForItsUri) {
  CloseStore();
  const CtlRun reset = Run({"reset", "--dir", dir_, "--yes"});
  EXPECT_EQ(reset.exit_status, 0) << reset.err;
  EXPECT_THAT(reset.out, HasSubstr("2 files removed"));
  EXPECT_EQ(Run({"reset", "--dir", dir_, "--uri", cluster_.uri(), "--yes"}).exit_status, 2);
  const CtlRun none = Run({"reset", "--dir", cluster_.folder(), "--yes"});
  EXPECT_EQ(none.exit_status, 1);
  EXPECT_THAT(none.err, HasSubstr("it has no cluster.json"));
}

TEST_F(GroupCommandTest, ExportWaitsForNobodyButRefusesALivingPrimary) {
  const std::string to = cluster_.folder() + "/export";
  const CtlRun refused = Export(0, to);
  EXPECT_EQ(refused.exit_status, 1);
  EXPECT_THAT(refused.err, HasSubstr("--live"));
  EXPECT_FALSE(fs::exists(to));
  EXPECT_EQ(Export(0, to, /*live=*/true).exit_status, 0);
  ExpectFiles(to);
}

TEST_F(GroupCommandTest, ExportsFromRunningStoppedAndDeadReplicasAlike) {
  CloseStore();
  cluster_.SignalReplica(1, SIGSTOP);
  cluster_.KillReplica(2);
  const std::string pool = Slurp(cluster_.pool(2));
  for (uint32_t replica = 0; replica < 3; ++replica) {
    const std::string to = cluster_.folder() + "/export" + std::to_string(replica);
    const CtlRun exported = Export(replica, to);
    EXPECT_EQ(exported.exit_status, 0) << exported.err;
    EXPECT_THAT(exported.err, Not(HasSubstr("not compared")));
    ExpectFiles(to);
    const CtlRun again = Export(replica, to);
    EXPECT_EQ(again.exit_status, 1) << "the target is not empty";
    ExpectFiles(to);
    EXPECT_EQ(Export(replica, to + "-again").exit_status, 0);
    ExpectFiles(to + "-again");
  }
  EXPECT_TRUE(pool == Slurp(cluster_.pool(2))) << "export wrote to the pool";
  cluster_.SignalReplica(1, SIGCONT);
}

TEST_F(GroupCommandTest, ExportNamesFilesThatOnlyThePrimaryHas) {
  ASSERT_OK(store_->ListFile({"OPTIONS-000005", 100, 1}));
  const std::string first = cluster_.folder() + "/first";
  const CtlRun complete = Export(1, first, /*live=*/true);
  EXPECT_EQ(complete.exit_status, 0) << "RocksDB makes OPTIONS anew: " << complete.err;
  EXPECT_THAT(complete.err, HasSubstr("left out (RocksDB makes its own): OPTIONS-000005"));
  ASSERT_OK(store_->ListFile({"000007.sst", 4711, 1}));
  CloseStore();
  const CtlRun exported = Export(1, cluster_.folder() + "/export");
  EXPECT_EQ(exported.exit_status, 3) << exported.err;
  EXPECT_THAT(exported.err, HasSubstr("missing: 000007.sst"));
  ExpectFiles(cluster_.folder() + "/export");
}

// A database is being taken into the group: first it holds nothing, then the name that becomes
// CURRENT in the end.
TEST_F(GroupCommandTest, AnExportOfNoDatabaseIsNoSuccess) {
  ASSERT_OK(store_->Remove("CURRENT"));
  ASSERT_OK(store_->Remove("000002.log"));
  const CtlRun empty = Export(0, cluster_.folder() + "/export", /*live=*/true);
  EXPECT_EQ(empty.exit_status, 3) << empty.err;
  EXPECT_THAT(empty.err, HasSubstr("no whole database"));
  Put("CURRENT.adopting", "MANIFEST-000001\n");
  CloseStore();
  const CtlRun begun = Export(0, cluster_.folder() + "/begun");
  EXPECT_EQ(begun.exit_status, 3) << begun.err;
  EXPECT_THAT(begun.err, HasSubstr("no whole database"));
}

TEST_F(GroupCommandTest, DumpStaysWithinTheRegion) {
  CloseStore();
  const auto dump = [this](const std::string& offset, const std::string& length, bool hex) {
    std::vector<std::string> arguments{"dump",     "--dir", dir_,       "--replica", "0",
                                       "--offset", offset,  "--length", length};
    if (hex) arguments.emplace_back("--hex");
    return Run(arguments);
  };
  const auto region = cluster_.ReplicaRegion(0);
  ASSERT_OK(region.status());
  const CtlRun raw = dump("4K", "3000000", false);
  EXPECT_EQ(raw.exit_status, 0) << raw.err;
  ASSERT_EQ(raw.out.size(), 3000000u);
  EXPECT_EQ(std::memcmp(raw.out.data(), region->data() + 4096, raw.out.size()), 0);
  EXPECT_THAT(dump("0", "16", true).out, HasSubstr("HLREGION"));
  EXPECT_EQ(dump("16M", "1", false).exit_status, 2);
  EXPECT_EQ(dump("16777215", "2", false).exit_status, 2);
  EXPECT_EQ(dump("18446744073709551615", "2", false).exit_status, 2);
  EXPECT_EQ(dump("0", "0", false).exit_status, 2);
  EXPECT_EQ(dump("16777215", "1", false).exit_status, 0);
  EXPECT_EQ(Run({"dump", "--dir", dir_, "--replica", "3", "--length", "1"}).exit_status, 2);
}

TEST_F(GroupCommandTest, ResetEmptiesOnlyWhenAskedTwiceAndNobodyLives) {
  const std::string uri = cluster_.uri();
  EXPECT_EQ(Run({"reset", "--uri", uri}).exit_status, 2);
  const CtlRun held = Run({"reset", "--uri", uri, "--yes"});
  EXPECT_EQ(held.exit_status, 1);
  EXPECT_EQ(StatusJson()["replicas"][0]["files"].size(), 2u);
  CloseStore();
  const CtlRun reset = Run({"reset", "--uri", uri, "--yes"});
  EXPECT_EQ(reset.exit_status, 0) << reset.err;
  EXPECT_EQ(StatusJson()["replicas"][0]["files"].size(), 0u);
}

TEST_F(GroupCommandTest, CountersShowThatOnlyReceivesRewroteTheRings) {
  for (const std::string host : {"replica0", "replica1", "replica2"}) {
    const auto value = [&](const std::string& name) {
      const CtlRun outcome = Run({"counters", "--dir", dir_, "--host", host, "--name", name});
      EXPECT_EQ(outcome.exit_status, 0) << outcome.err;
      return outcome.out;
    };
    EXPECT_EQ(value("ring_bytes_by_other"), "0\n");
    EXPECT_NE(value("ring_bytes_by_scatter"), "0\n");
  }
  EXPECT_EQ(Run({"counters", "--dir", dir_, "--host", "replica0", "--name", "x"}).exit_status, 2);
}

TEST_F(GroupCommandTest, CountersOutliveThePrimaryAndSayWhoWasAsked) {
  const auto sent = [&] {
    return Run({"counters", "--dir", dir_, "--host", "primary", "--name", "bytes_sent"});
  };
  CloseStore();
  const CtlRun after = sent();
  EXPECT_EQ(after.exit_status, 0) << after.err;
  EXPECT_GT(std::stoull(after.out), 100'000u);
  EXPECT_EQ(sent().out, after.out);
  const CtlRun table = Run({"counters", "--dir", dir_});
  EXPECT_THAT(table.out, HasSubstr("RNIC daemon " + dir_ + "/rnicd.sock of user "));
  EXPECT_THAT(table.out,
              testing::ContainsRegex(": ([a-z]+ )*primary replica0 replica1 replica2\n"));
}

TEST_F(GroupCommandTest, CountersOfAnUnknownHostAreRefusedAndMakeNoHost) {
  for (int i = 0; i < 2; ++i) {
    const CtlRun unknown =
        Run({"counters", "--dir", dir_, "--host", "replica7", "--name", "bytes_sent"});
    EXPECT_EQ(unknown.exit_status, 1);
    EXPECT_EQ(unknown.out, "");
    EXPECT_THAT(unknown.err, HasSubstr("rnicd.sock"));
    EXPECT_THAT(unknown.err, HasSubstr("no host replica7 has been attached"));
  }
}

TEST_F(GroupCommandTest, ExecExplainsWhatItCannotRun) {
  const auto exec = [this](const std::string& program) {
    return Run({"exec", "--uri", cluster_.uri(), "--", program, "--x"});
  };
  EXPECT_EQ(exec("/no/such/program").exit_status, 1);
  EXPECT_THAT(exec("/no/such/program").err, HasSubstr("/no/such/program"));
  EXPECT_THAT(exec("/bin/true").err, HasSubstr("does not load a shared RocksDB"));
  const std::string script = cluster_.folder() + "/run.sh";
  std::ofstream(script) << "#!/bin/sh\n";
  fs::permissions(script, fs::perms::owner_all);
  EXPECT_THAT(exec(script).err, HasSubstr("script for /bin/sh"));
  EXPECT_EQ(Run({"exec", "--", "ldb"}).exit_status, 2) << "no URI";
}

TEST_F(GroupCommandTest, VerifyComparesAClosedGroup) {
  const std::vector<std::string> verify{"verify", "--dir", dir_};
  const CtlRun busy = Run(verify);
  EXPECT_EQ(busy.exit_status, 1);
  EXPECT_THAT(busy.err, HasSubstr("in use"));
  CloseStore();
  const CtlRun equal = Run(verify);
  EXPECT_EQ(equal.exit_status, 0) << equal.err;
  EXPECT_THAT(equal.out, HasSubstr("replica0, replica1, replica2, primary: "));
  EXPECT_THAT(equal.out, HasSubstr(" B in use are equal"));
  const nlohmann::json before = StatusJson()["replicas"][0];
  EXPECT_EQ(Run({"verify", "--dir", dir_, "--repair"}).exit_status, 0) << "nothing to do";
  EXPECT_EQ(StatusJson()["replicas"][0]["epoch"], before["epoch"]);
}

}  // namespace
}  // namespace hyperloop::test
