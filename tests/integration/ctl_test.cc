// Tests hyperloopctl as a user runs it: real daemons, a real group, the program's output and exit
// status.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "integration/store_fixture.h"
#include "support/append_durably.h"
#include "support/child_process.h"

namespace hyperloop::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

struct Outcome {
  int exit_status = -1;
  std::string out;
  std::string err;
};

std::string Slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string Quoted(const std::string& word) { return "'" + word + "'"; }

// Runs hyperloopctl with `arguments`; its output goes through files in `folder`.
Outcome Ctl(const std::string& folder, const std::vector<std::string>& arguments) {
  std::string command = Quoted(ProgramPath("hyperloopctl"));
  for (const std::string& argument : arguments) command += " " + Quoted(argument);
  command += " </dev/null >" + folder + "/out 2>" + folder + "/err";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), Slurp(folder + "/out"),
          Slurp(folder + "/err")};
}

// A zombie that init has not reaped counts as gone.
bool Gone(pid_t pid) {
  const std::string stat = Slurp("/proc/" + std::to_string(pid) + "/stat");
  const size_t name_end = stat.rfind(')');
  return name_end == std::string::npos || stat[name_end + 2] == 'Z' || stat[name_end + 2] == 'X';
}

std::string LastLine(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  const size_t begin = text.rfind('\n', end);
  return text.substr(begin + 1, end - begin);
}

// A cluster started by the program itself.
class ClusterCommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/dev/shm/hyperloop-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    dir_ = folder_ + "/c";
  }
  void TearDown() override {
    StopCluster(dir_).status().IgnoreError();
    fs::remove_all(folder_);
  }
  Outcome Run(const std::vector<std::string>& arguments) { return Ctl(folder_, arguments); }
  Outcome Start() {
    return Run({"cluster", "start", "--dir", dir_, "--replicas", "2", "--region-size", "32M",
                "--spin-us", "0"});
  }
  std::string folder_, dir_;
};

TEST_F(ClusterCommandTest, StartsLooksStopsAndRepeatsEach) {
  const Outcome first = Start();
  ASSERT_EQ(first.exit_status, 0) << first.err;
  EXPECT_THAT(LastLine(first.out), HasSubstr("uri: hyperloop://127.0.0.1:"));
  const Outcome again = Start();
  EXPECT_EQ(again.exit_status, 0);
  EXPECT_EQ(LastLine(again.out), LastLine(first.out));
  EXPECT_THAT(again.out, HasSubstr("0 of 3 processes started"));

  Outcome status = Run({"cluster", "status", "--dir", dir_});
  EXPECT_EQ(status.exit_status, 0) << status.out << status.err;
  EXPECT_EQ(LastLine(status.out), LastLine(first.out));

  const pid_t replica = ReadCluster(dir_)->processes[2].pid;
  ASSERT_EQ(kill(replica, SIGKILL), 0);
  ASSERT_TRUE(
      Eventually([this] { return ReadCluster(dir_)->processes[2].state == ProcessState::kDead; }));
  status = Run({"cluster", "status", "--dir", dir_});
  EXPECT_EQ(status.exit_status, 1);
  EXPECT_THAT(status.out, HasSubstr("cluster start --dir " + dir_ + " completes"));
  const Outcome completed = Start();
  EXPECT_EQ(completed.exit_status, 0) << completed.err;
  EXPECT_THAT(completed.out, HasSubstr("1 of 3 processes started"));
  EXPECT_EQ(LastLine(completed.out), LastLine(first.out));

  const ClusterInfo info = ReadCluster(dir_).value();
  EXPECT_EQ(Run({"cluster", "stop", "--dir", dir_}).exit_status, 0);
  for (const ClusterProcess& process : info.processes) EXPECT_TRUE(Gone(process.pid));
  EXPECT_EQ(Run({"cluster", "stop", "--dir", dir_}).exit_status, 0);
  EXPECT_TRUE(fs::exists(dir_ + "/replica0.pool"));
  const Outcome restarted = Start();
  EXPECT_EQ(restarted.exit_status, 0) << restarted.err;
  EXPECT_EQ(LastLine(restarted.out), LastLine(first.out)) << "old pools, old ports";
}

TEST_F(ClusterCommandTest, AForeignPoolFailsTheStartAndLeavesNothingRunning) {
  ASSERT_EQ(Start().exit_status, 0);
  ASSERT_EQ(Run({"cluster", "stop", "--dir", dir_}).exit_status, 0);
  std::ofstream(dir_ + "/replica1.pool", std::ios::trunc) << "not a pool";
  const Outcome start = Start();
  EXPECT_EQ(start.exit_status, 1);
  EXPECT_THAT(start.err, HasSubstr("replica1"));
  const ClusterInfo info = ReadCluster(dir_).value();
  for (const ClusterProcess& process : info.processes) {
    EXPECT_EQ(process.state, ProcessState::kDead) << process.name;
  }
}

// Two daemons that are told to run on one processor.
TEST_F(ClusterCommandTest, DaemonsThatShareAProcessorAreNamed) {
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  if (processors < 2) GTEST_SKIP() << "needs two processors";
  const std::string last = std::to_string(processors - 1), other = folder_ + "/other";
  const auto start = [&](const std::string& dir) {
    const Outcome outcome = Run({"cluster", "start", "--dir", dir, "--replicas", "1",
                                 "--region-size", "16M", "--spin-us", "0", "--cpu", last});
    EXPECT_EQ(outcome.exit_status, 0) << outcome.err;
    return ReadCluster(dir)->processes[0].pid;
  };
  const std::string first = std::to_string(start(dir_)), second = std::to_string(start(other));
  EXPECT_THAT(
      Slurp(other + "/rnicd.log"),
      testing::ContainsRegex("another hyperloop-rnicd \\(process [0-9]+\\) keeps to processor " +
                             last + ", too"));
  const auto named = testing::AllOf(HasSubstr("RNIC daemons share processor " + last),
                                    HasSubstr(first), HasSubstr(second));
  EXPECT_THAT(Run({"status", "--dir", dir_}).out, named);
  EXPECT_THAT(Run({"status", "--dir", dir_, "--json"}).out, named);
  EXPECT_THAT(Run({"doctor"}).out, named);
  EXPECT_EQ(Run({"cluster", "stop", "--dir", other}).exit_status, 0);
  EXPECT_THAT(Run({"status", "--dir", dir_}).out,
              Not(testing::ContainsRegex("[ (]" + second + "[,)]")));
}

TEST_F(ClusterCommandTest, StatusOfReplicasThatNobodyTook) {
  ASSERT_EQ(Start().exit_status, 0);
  const Outcome status = Run({"status", "--dir", dir_});
  EXPECT_EQ(status.exit_status, 0) << status.err;
  EXPECT_THAT(status.out, HasSubstr("never taken"));
  const Outcome exported =
      Run({"export", "--dir", dir_, "--replica", "0", "--to", folder_ + "/to"});
  EXPECT_EQ(exported.exit_status, 1);
  EXPECT_THAT(exported.err, HasSubstr("holds no database"));
  EXPECT_FALSE(fs::exists(folder_ + "/to"));
}

TEST_F(ClusterCommandTest, DestroyRemovesWhatTheClusterMadeOnceThatIsConfirmed) {
  ASSERT_EQ(Start().exit_status, 0);
  fs::create_directory(dir_ + "/db");
  const ClusterInfo info = ReadCluster(dir_).value();
  const Outcome asked = Run({"cluster", "destroy", "--dir", dir_});
  EXPECT_EQ(asked.exit_status, 2);
  EXPECT_THAT(asked.err, HasSubstr("--yes"));
  EXPECT_THAT(asked.out, HasSubstr("to be ended: rnicd, replica0, replica1\n"));
  EXPECT_THAT(asked.out, HasSubstr("\n  replica1.pool\n"));
  EXPECT_THAT(asked.out, HasSubstr("not the cluster's, stays: db/\n"));
  EXPECT_TRUE(ReadCluster(dir_)->AllAlive());

  const Outcome done = Run({"cluster", "destroy", "--dir", dir_, "--yes"});
  EXPECT_EQ(done.exit_status, 0) << done.err;
  EXPECT_EQ(done.out.substr(0, asked.out.size()), asked.out);
  for (const ClusterProcess& process : info.processes) EXPECT_TRUE(Gone(process.pid));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 1) << "db";
  const Outcome not_ours = Run({"cluster", "destroy", "--dir", dir_, "--yes"});
  EXPECT_EQ(not_ours.exit_status, 1);
  EXPECT_THAT(not_ours.err, HasSubstr("it has no cluster.json"));
  EXPECT_TRUE(fs::exists(dir_ + "/db"));

  fs::remove(dir_ + "/db");
  ASSERT_EQ(Start().exit_status, 0) << "in the directory that was left";
  EXPECT_EQ(Run({"cluster", "destroy", "--dir", dir_, "--yes"}).exit_status, 0);
  EXPECT_FALSE(fs::exists(dir_));
  const Outcome again = Run({"cluster", "destroy", "--dir", dir_, "--yes"});
  EXPECT_EQ(again.exit_status, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("nothing to destroy"));
}

// Two hosts' directories, as their operators make them.
TEST_F(ClusterCommandTest, KeysAreMadeShownTrustedAndVerified) {
  const std::string a = folder_ + "/a", b = folder_ + "/b";
  ASSERT_EQ(Run({"keys", "init", "--dir", a, "--name", "a"}).exit_status, 0);
  const Outcome made = Run({"keys", "init", "--dir", b, "--name", "b", "--roles", "link,replica"});
  ASSERT_EQ(made.exit_status, 0) << made.err;
  const std::string identity = Slurp(a + "/identity");
  const Outcome again = Run({"keys", "init", "--dir", a, "--name", "a"});
  EXPECT_EQ(again.exit_status, 1);
  EXPECT_THAT(again.err, HasSubstr("never overwritten"));
  EXPECT_EQ(Slurp(a + "/identity"), identity);

  EXPECT_THAT(Run({"keys", "show", "--dir", b}).out, testing::EndsWith(" ROLES\n"));
  const Outcome shown = Run({"keys", "show", "--dir", b, "--roles", "link,replica"});
  EXPECT_EQ(shown.out, made.out);
  const size_t key = shown.out.find(' ') + 1, roles = shown.out.find(' ', key) + 1;
  const std::string key_text = shown.out.substr(key, roles - key - 1);
  EXPECT_EQ(shown.out.substr(roles), "replica,link\n");
  const Outcome trusted =
      Run({"keys", "trust", "--dir", a, "b", key_text, "replica,link", "10.0.0.2:7000"});
  EXPECT_EQ(trusted.exit_status, 0) << trusted.err;
  const Outcome verified = Run({"keys", "verify", "--dir", a});
  EXPECT_EQ(verified.exit_status, 0) << verified.err;
  EXPECT_THAT(verified.out, HasSubstr("trusted    b " + key_text + " replica,link 10.0.0.2:7000"));

  EXPECT_EQ(Run({"keys", "trust", "--dir", a, "b", "short", "link"}).exit_status, 2);
  EXPECT_EQ(Run({"keys", "trust", "--dir", a, "b", key_text, "boss"}).exit_status, 2);
  EXPECT_EQ(Run({"keys", "show"}).exit_status, 2);
  fs::permissions(a + "/identity", fs::perms::owner_all | fs::perms::others_read);
  const Outcome open = Run({"keys", "verify", "--dir", a});
  EXPECT_EQ(open.exit_status, 1);
  EXPECT_THAT(open.err, HasSubstr("chmod 600"));
}

TEST_F(ClusterCommandTest, WrongCommandLinesSayWhatIsWrong) {
  EXPECT_EQ(Run({}).exit_status, 2);
  EXPECT_EQ(Run({"cluster", "start"}).exit_status, 2);
  EXPECT_EQ(Run({"status"}).exit_status, 2);
  EXPECT_EQ(Run({"status", "--dir", "x", "--uri", "y"}).exit_status, 2);
  EXPECT_EQ(Run({"no-such-command"}).exit_status, 2);
  const auto said = [this](const std::vector<std::string>& arguments) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.exit_status, 2);
    return outcome.err;
  };
  EXPECT_EQ(said({"statsu"}),
            "hyperloopctl: no command statsu; did you mean status?\nSee hyperloopctl --help.\n");
  EXPECT_EQ(said({"start", "--dir", "x"}),
            "hyperloopctl: no command start; did you mean cluster start?\n"
            "See hyperloopctl --help.\n");
  EXPECT_EQ(said({"cluster", "stpo", "--dir", "x"}),
            "hyperloopctl cluster: no command stpo; did you mean stop?\n"
            "See hyperloopctl cluster --help.\n");
  EXPECT_EQ(said({"cluster", "start", "--dir", "x", "--reigon-size=1G"}),
            "hyperloopctl cluster start: no option --reigon-size; did you mean --region-size?\n"
            "See hyperloopctl cluster start --help.\n");
  EXPECT_THAT(said({"status", "--dri", "x"}), HasSubstr("no option --dri; did you mean --dir?"));
  EXPECT_THAT(said({"exec", "--ur", "x", "--", "ls"}), HasSubstr("did you mean --uri?"));
  EXPECT_THAT(said({"status", "--dir", "x", "y"}), HasSubstr("unexpected word 'y'"));
  EXPECT_THAT(said({"status", "--nonsense"}), Not(HasSubstr("did you mean")));
  EXPECT_EQ(Run({"--help"}).exit_status, 0);
  EXPECT_EQ(Run({"status", "--dir", folder_}).exit_status, 1);
  const Outcome uri = Run({"status", "--uri", "hyperloop://h:1?colour=red"});
  EXPECT_EQ(uri.exit_status, 2);
  EXPECT_THAT(uri.err, HasSubstr("colour"));
}

// Inspects and exports a group that a Store of this process fills.
class GroupCommandTest : public StoreTest {
 protected:
  void SetUp() override {
    StoreTest::SetUp();
    if (HasFatalFailure()) return;
    dir_ = cluster_.folder() + "/cluster";
    StoreOptions options = Options();
    options.pool = dir_ + "/primary.pool";
    store_ = Taken(options);
    ASSERT_NE(store_, nullptr);
    Put("CURRENT", "MANIFEST-000001\n");
    Put("000002.log", std::string(100000, 'w'));
  }
  void Put(const std::string& name, const std::string& bytes) {
    const Result<FileId> file = store_->Create(name);
    ASSERT_OK(file.status());
    ASSERT_OK(AppendDurably(*store_, *file, bytes));
  }
  void CloseStore() {
    ASSERT_OK(store_->Close());
    store_.reset();
  }
  Outcome Run(const std::vector<std::string>& arguments) {
    return Ctl(cluster_.folder(), arguments);
  }
  Outcome Export(uint32_t replica, const std::string& to, bool live = false) {
    std::vector<std::string> arguments{
        "export", "--dir", dir_, "--replica", std::to_string(replica), "--to", to};
    if (live) arguments.emplace_back("--live");
    return Run(arguments);
  }
  nlohmann::json StatusJson() {
    const Outcome status = Run({"status", "--dir", dir_, "--json"});
    EXPECT_EQ(status.exit_status, 0) << status.err << status.out;
    return nlohmann::json::parse(status.out, nullptr, false);
  }
  static void PutByte(const std::string& path, size_t at, char byte) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte);
  }
  // Flips the lowest bit of byte `at` of a file's extent, in the pool of a dead replica. The extent
  // is found by its content: the file's 100,000 bytes are all `fill`.
  void Flip(uint32_t replica, size_t at, char fill = 'w') {
    const std::string pool = Slurp(cluster_.pool(replica));
    const size_t end = pool.rfind(std::string(1000, fill));
    ASSERT_NE(end, std::string::npos);
    const size_t place = end + 1000 - 100000 + at;
    PutByte(cluster_.pool(replica), place, static_cast<char>(pool[place] ^ 1));
  }
  // 000009.log gets "first words, " and then `last`, in a record that stays in the log.
  void KillEverybodyBehind(const std::string& last) {
    Put("000009.log", "first words, ");
    ASSERT_OK(AppendDurably(*store_, *store_->Lookup("000009.log"), last));
    cluster_.KillRnicd();  // before the primary's Close, which would empty the log
    store_.reset();
    for (uint32_t i = 0; i < 3; ++i) cluster_.KillReplica(i);
  }
  // Writes zeros over header and entry of the record with this payload, in the ring of a dead
  // replica.
  void WipeRecord(uint32_t replica, const std::string& payload) {
    const size_t at = Slurp(cluster_.pool(replica)).find(payload);
    ASSERT_NE(at, std::string::npos);
    const size_t header = at / 64 * 64 - 64;
    for (size_t i = header; i < header + 128; ++i) PutByte(cluster_.pool(replica), i, 0);
  }
  void ExpectFiles(const std::string& to) {
    EXPECT_EQ(Slurp(to + "/CURRENT"), "MANIFEST-000001\n");
    EXPECT_EQ(Slurp(to + "/000002.log"), std::string(100000, 'w'));
  }
  std::string dir_;
  std::unique_ptr<Store> store_;
};

TEST_F(GroupCommandTest, StatusTellsOwnerLogAndFiles) {
  cluster_.SignalReplica(1, SIGSTOP);  // it can still be read
  const nlohmann::json living = StatusJson();
  cluster_.SignalReplica(1, SIGCONT);
  ASSERT_EQ(living["replicas"].size(), 3u);
  for (const nlohmann::json& replica : living["replicas"]) {
    EXPECT_EQ(replica["owner_lives"], true) << replica.dump();
    EXPECT_EQ(replica["epoch"], taken_.epoch);
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
  const Outcome text = Run({"status", "--dir", dir_});
  EXPECT_THAT(text.out, HasSubstr("000002.log"));
  EXPECT_THAT(text.out, HasSubstr("the same files as replica0"));
  const Outcome by_uri = Run({"status", "--uri", cluster_.uri()});
  EXPECT_EQ(by_uri.out, text.out) << by_uri.err;
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
  EXPECT_THAT(top.ReadLine(), HasSubstr("  epoch " + std::to_string(taken_.epoch)));
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
  const Outcome nowhere = Run({"top", "--dir", dir_ + "/none"});
  EXPECT_NE(nowhere.exit_status, 0);
  EXPECT_NE(nowhere.err, "");
}

TEST_F(GroupCommandTest, StatusSaysSinceWhenAndWhyAReplicaIsLeftOut) {
  CloseStore();
  StoreOptions options = Options();
  options.pool = dir_ + "/primary.pool";
  options.on_replica_failure = OnReplicaFailure::kContinue;
  options.ack_timeout = std::chrono::seconds(8);
  store_ = Taken(options);
  ASSERT_NE(store_, nullptr);
  cluster_.KillReplica(2);
  Put("000010.log", "words");
  const Outcome status = Run({"status", "--dir", dir_});
  EXPECT_THAT(status.out, testing::ContainsRegex(
                              "SHRUNKEN: goes on without " + cluster_.endpoint(2) +
                              " until it is back; left out since 20[0-9-]*T[0-9:]*Z: replica " +
                              cluster_.endpoint(2) + " does not answer"));
  const Outcome as_json = Run({"status", "--dir", dir_, "--json"});
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
  const Outcome status = Run({"status", "--uri", uri, "--json"});
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
  const Outcome none = Run({"status", "--uri", uri});
  EXPECT_EQ(none.exit_status, 1);
  EXPECT_THAT(none.err, HasSubstr(cluster_.endpoint(0)));
}

TEST_F(GroupCommandTest, DestroyRefusesALivingPrimary) {
  const Outcome refused = Run({"cluster", "destroy", "--dir", dir_, "--yes"});
  EXPECT_EQ(refused.exit_status, 1);
  EXPECT_THAT(refused.err, HasSubstr("the group is in use by process " + std::to_string(getpid())));
  EXPECT_TRUE(ReadCluster(dir_)->AllAlive());
}

TEST_F(GroupCommandTest, ADirectoryStandsForItsUri) {
  CloseStore();
  const Outcome reset = Run({"reset", "--dir", dir_, "--yes"});
  EXPECT_EQ(reset.exit_status, 0) << reset.err;
  EXPECT_THAT(reset.out, HasSubstr("2 files removed"));
  EXPECT_EQ(Run({"reset", "--dir", dir_, "--uri", cluster_.uri(), "--yes"}).exit_status, 2);
  const Outcome none = Run({"reset", "--dir", cluster_.folder(), "--yes"});
  EXPECT_EQ(none.exit_status, 1);
  EXPECT_THAT(none.err, HasSubstr("it has no cluster.json"));
}

TEST_F(GroupCommandTest, ExportWaitsForNobodyButRefusesALivingPrimary) {
  const std::string to = cluster_.folder() + "/export";
  const Outcome refused = Export(0, to);
  EXPECT_EQ(refused.exit_status, 1);
  EXPECT_THAT(refused.err, HasSubstr("--live"));
  EXPECT_FALSE(fs::exists(to));
  EXPECT_EQ(Export(0, to, /*live=*/true).exit_status, 0);
  ExpectFiles(to);
}

TEST_F(GroupCommandTest, ExportNamesTheReplicasThatItCouldNotCompare) {
  CloseStore();
  cluster_.KillReplica(2);
  fs::rename(cluster_.pool(2), cluster_.pool(2) + ".lost");
  const std::string to = cluster_.folder() + "/export";
  const Outcome exported = Export(0, to);
  EXPECT_EQ(exported.exit_status, 0) << exported.err;
  EXPECT_THAT(exported.err, HasSubstr("not compared with replica2"));
  EXPECT_THAT(exported.err, Not(HasSubstr("not compared with replica1")));
  ExpectFiles(to);
}

TEST_F(GroupCommandTest, ExportsFromRunningStoppedAndDeadReplicasAlike) {
  CloseStore();
  cluster_.SignalReplica(1, SIGSTOP);
  cluster_.KillReplica(2);
  const std::string pool = Slurp(cluster_.pool(2));
  for (uint32_t replica = 0; replica < 3; ++replica) {
    const std::string to = cluster_.folder() + "/export" + std::to_string(replica);
    const Outcome exported = Export(replica, to);
    EXPECT_EQ(exported.exit_status, 0) << exported.err;
    EXPECT_THAT(exported.err, Not(HasSubstr("not compared")));
    ExpectFiles(to);
    const Outcome again = Export(replica, to);
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
  const Outcome complete = Export(1, first, /*live=*/true);
  EXPECT_EQ(complete.exit_status, 0) << "RocksDB makes OPTIONS anew: " << complete.err;
  EXPECT_THAT(complete.err, HasSubstr("left out (RocksDB makes its own): OPTIONS-000005"));
  ASSERT_OK(store_->ListFile({"000007.sst", 4711, 1}));
  CloseStore();
  const Outcome exported = Export(1, cluster_.folder() + "/export");
  EXPECT_EQ(exported.exit_status, 3) << exported.err;
  EXPECT_THAT(exported.err, HasSubstr("missing: 000007.sst"));
  ExpectFiles(cluster_.folder() + "/export");
}

TEST_F(GroupCommandTest, VerifyComparesAllAndNamesTheFirstDifference) {
  const Outcome busy = Run({"verify", "--dir", dir_});
  EXPECT_EQ(busy.exit_status, 1);
  EXPECT_THAT(busy.err, HasSubstr("in use"));
  CloseStore();
  const Outcome equal = Run({"verify", "--dir", dir_});
  EXPECT_EQ(equal.exit_status, 0) << equal.err;
  EXPECT_THAT(equal.out, HasSubstr("replica0, replica1, replica2, primary: "));
  EXPECT_THAT(equal.out, HasSubstr(" B in use are equal"));

  // A byte that nobody reads before it is written again: behind the file's end in its extent.
  cluster_.KillReplica(1);
  Flip(1, 100000);
  const Outcome unread = Run({"verify", "--dir", dir_});
  EXPECT_EQ(unread.exit_status, 0) << unread.err;

  // A byte of the journal's ring, in an old record.
  const size_t ring = Slurp(cluster_.pool(1)).find(std::string(1000, 'w'));
  ASSERT_NE(ring, std::string::npos);
  PutByte(cluster_.pool(1), ring, 'v');
  const Outcome different = Run({"verify", "--dir", dir_});
  EXPECT_EQ(different.exit_status, 1);
  EXPECT_THAT(different.err, HasSubstr("replica0 and replica1 have 0x77 and 0x76"));
  EXPECT_THAT(different.err, HasSubstr("bytes that no file has"));
}

TEST_F(GroupCommandTest, DamageIsNamedNeverExported) {
  CloseStore();
  cluster_.KillReplica(0);
  Flip(0, 50000);
  const Outcome verify = Run({"verify", "--dir", dir_});
  EXPECT_EQ(verify.exit_status, 1);
  EXPECT_THAT(verify.err,
              HasSubstr("replica0 is damaged: extent 1 (\"000002.log\", bytes 0 to "
                        "99999) fails its checksum; replica1, replica2, primary sound"));
  const std::string to = cluster_.folder() + "/export";
  const Outcome refused = Export(0, to);
  EXPECT_EQ(refused.exit_status, 1);
  EXPECT_THAT(refused.err, HasSubstr("replica0 is damaged: extent 1 (\"000002.log\""));
  EXPECT_THAT(refused.err, HasSubstr("replica1 (--replica 1), replica2 (--replica 2)"));
  EXPECT_FALSE(fs::exists(to));
  const Outcome partial =
      Run({"export", "--dir", dir_, "--replica", "0", "--to", to + "-partial", "--partial"});
  EXPECT_EQ(partial.exit_status, 3) << partial.err;
  EXPECT_THAT(partial.err, HasSubstr("exported all the same: replica0: extent 1"));
  EXPECT_EQ(Export(1, to).exit_status, 0);
  ExpectFiles(to);
}

// No member is sound as a whole; each has what another lacks.
TEST_F(GroupCommandTest, VerifyRepairPutsTogetherWhatIsSound) {
  Put("000003.log", std::string(100000, 'v'));
  CloseStore();
  const nlohmann::json before = StatusJson()["replicas"][0];
  const std::vector<std::string> repair{"verify", "--dir", dir_, "--repair"};
  EXPECT_EQ(Run(repair).exit_status, 0) << "nothing to do";
  EXPECT_EQ(StatusJson()["replicas"][0]["epoch"], before["epoch"]);
  for (uint32_t i = 0; i < 3; ++i) cluster_.KillReplica(i);
  Flip(0, 50000);
  Flip(1, 7, 'v');
  Flip(2, 99999, 'w');
  Flip(2, 0, 'v');
  ASSERT_OK(cluster_.Restart());
  fs::remove(dir_ + "/primary.pool");
  const Outcome damaged = Run({"verify", "--dir", dir_});
  EXPECT_EQ(damaged.exit_status, 1);
  EXPECT_THAT(damaged.err, HasSubstr("no member is sound as a whole"));
  const Outcome repaired = Run(repair);
  EXPECT_EQ(repaired.exit_status, 0) << repaired.err;
  EXPECT_THAT(repaired.out, HasSubstr("repaired; replica0, replica1, replica2"));
  EXPECT_EQ(Run({"verify", "--dir", dir_}).exit_status, 0);
  const nlohmann::json after = StatusJson()["replicas"][0];
  EXPECT_EQ(after["database"], before["database"]);
  EXPECT_EQ(after["directory"], before["directory"]);
  EXPECT_EQ(after["files"], before["files"]);
  for (uint32_t replica = 0; replica < 3; ++replica) {
    const std::string to = cluster_.folder() + "/export" + std::to_string(replica);
    EXPECT_EQ(Export(replica, to).exit_status, 0);
    ExpectFiles(to);
    EXPECT_EQ(Slurp(to + "/000003.log"), std::string(100000, 'v'));
  }
}

// No member has one extent sound: the repair is refused with the extent's name, and nothing
// changes.
TEST_F(GroupCommandTest, VerifyRepairRefusesWhatNobodyHas) {
  CloseStore();
  for (uint32_t i = 0; i < 3; ++i) {
    cluster_.KillReplica(i);
    Flip(i, 1000 + i);
  }
  ASSERT_OK(cluster_.Restart());
  const nlohmann::json before = StatusJson()["replicas"];
  const Outcome refused = Run({"verify", "--dir", dir_, "--repair"});
  EXPECT_EQ(refused.exit_status, 1);
  EXPECT_THAT(refused.err, HasSubstr("extent 1 (\"000002.log\", bytes 0 to 99999)"));
  EXPECT_THAT(refused.err, HasSubstr("has a sound copy of it"));
  for (uint32_t i = 0; i < 3; ++i)
    EXPECT_EQ(StatusJson()["replicas"][i]["epoch"], before[i]["epoch"]);
}

// The last record of a log may be damaged without a trace in its own member; only the others show
// it.
TEST_F(GroupCommandTest, AShorterLogIsNotExportedForTheWhole) {
  KillEverybodyBehind("the last words");
  const std::string pool = Slurp(cluster_.pool(0));
  const size_t first = pool.find("the last words");  // in the ring, before the data area
  ASSERT_NE(first, std::string::npos);
  PutByte(cluster_.pool(0), first, 'X');
  const std::string to = cluster_.folder() + "/export";
  const Outcome refused = Export(0, to);
  EXPECT_EQ(refused.exit_status, 1);
  EXPECT_THAT(refused.err, HasSubstr("the log of replica0 ends at sequence"));
  EXPECT_THAT(refused.err, HasSubstr("export from replica1 (--replica 1)"));
  EXPECT_FALSE(fs::exists(to));
  const Outcome verify = Run({"verify", "--dir", dir_});
  EXPECT_EQ(verify.exit_status, 1);
  EXPECT_THAT(verify.err, HasSubstr("the log of replica0 ends at sequence"));
  const Outcome partial = Run({"export", "--dir", dir_, "--replica", "0", "--to", to, "--partial"});
  EXPECT_EQ(partial.exit_status, 3) << partial.err;
  EXPECT_EQ(Slurp(to + "/000009.log"), "first words, ");
  EXPECT_EQ(Export(1, to + "1").exit_status, 0);
  EXPECT_EQ(Slurp(to + "1/000009.log"), "first words, the last words");
}

// A primary that is killed while a record is on its way leaves it on the first replicas only. If
// only one replica lacks it, or a later one in the chain has it, then the record was lost.
TEST_F(GroupCommandTest, ARecordThatNeverCameIsNotMissed) {
  KillEverybodyBehind("on its way");
  const std::string to = cluster_.folder() + "/export";
  WipeRecord(2, "on its way");
  EXPECT_THAT(Export(2, to).err, HasSubstr("export from replica0 (--replica 0)"));
  WipeRecord(1, "on its way");
  for (uint32_t i : {1u, 2u}) {
    const std::string there = to + std::to_string(i);
    const Outcome exported = Export(i, there);
    EXPECT_EQ(exported.exit_status, 0) << exported.err;
    EXPECT_THAT(exported.err, HasSubstr("replica0 has 1 records more, which were on their way"));
    EXPECT_EQ(Slurp(there + "/000009.log"), "first words, ");
  }
  EXPECT_EQ(Export(0, to).exit_status, 0);
  EXPECT_EQ(Slurp(to + "/000009.log"), "first words, on its way");
}

TEST_F(GroupCommandTest, TheFirstReplicaAloneCannotHaveMissedARecord) {
  KillEverybodyBehind("acknowledged");
  WipeRecord(0, "acknowledged");
  const Outcome refused = Export(0, cluster_.folder() + "/export");
  EXPECT_EQ(refused.exit_status, 1);
  EXPECT_THAT(refused.err, HasSubstr("export from replica1 (--replica 1)"));
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
  const Outcome raw = dump("4K", "3000000", false);
  EXPECT_EQ(raw.exit_status, 0) << raw.err;
  ASSERT_EQ(raw.out.size(), 3000000u);
  EXPECT_EQ(std::memcmp(raw.out.data(), region->data() + 4096, raw.out.size()), 0);
  EXPECT_THAT(dump("0", "16", true).out, HasSubstr("HLREGION"));
  EXPECT_EQ(dump("64M", "1", false).exit_status, 2);
  EXPECT_EQ(dump("67108863", "2", false).exit_status, 2);
  EXPECT_EQ(dump("18446744073709551615", "2", false).exit_status, 2);
  EXPECT_EQ(dump("0", "0", false).exit_status, 2);
  EXPECT_EQ(dump("67108863", "1", false).exit_status, 0);
  EXPECT_EQ(Run({"dump", "--dir", dir_, "--replica", "3", "--length", "1"}).exit_status, 2);
}

TEST_F(GroupCommandTest, ResetEmptiesOnlyWhenAskedTwiceAndNobodyLives) {
  const std::string uri = cluster_.uri();
  EXPECT_EQ(Run({"reset", "--uri", uri}).exit_status, 2);
  const Outcome held = Run({"reset", "--uri", uri, "--yes"});
  EXPECT_EQ(held.exit_status, 1);
  EXPECT_EQ(StatusJson()["replicas"][0]["files"].size(), 2u);
  CloseStore();
  const Outcome reset = Run({"reset", "--uri", uri, "--yes"});
  EXPECT_EQ(reset.exit_status, 0) << reset.err;
  EXPECT_EQ(StatusJson()["replicas"][0]["files"].size(), 0u);
}

TEST_F(GroupCommandTest, CountersShowThatOnlyReceivesRewroteTheRings) {
  for (const std::string host : {"replica0", "replica1", "replica2"}) {
    const auto value = [&](const std::string& name) {
      const Outcome outcome = Run({"counters", "--dir", dir_, "--host", host, "--name", name});
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
  const Outcome after = sent();
  EXPECT_EQ(after.exit_status, 0) << after.err;
  EXPECT_GT(std::stoull(after.out), 100'000u);
  EXPECT_EQ(sent().out, after.out);
  const Outcome table = Run({"counters", "--dir", dir_});
  EXPECT_THAT(table.out, HasSubstr("RNIC daemon " + dir_ + "/rnicd.sock of user "));
  EXPECT_THAT(table.out, HasSubstr(": primary replica0 replica1 replica2\n"));
}

TEST_F(GroupCommandTest, CountersOfAnUnknownHostAreRefusedAndMakeNoHost) {
  for (int i = 0; i < 2; ++i) {
    const Outcome unknown =
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

}  // namespace
}  // namespace hyperloop::test
