// Tests hyperloopctl's commands for keys and for the processes of a cluster.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <future>

#include "integration/ctl_run.h"
#include "integration/store_fixture.h"
#include "region/pool.h"
#include "support/eventually.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

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
  CtlRun Run(const std::vector<std::string>& arguments) { return RunCtl(folder_, arguments); }
  CtlRun Start() {
    return Run({"cluster", "start", "--dir", dir_, "--replicas", "2", "--region-size", "48M",
                "--spin-us", "0"});
  }
  std::string folder_, dir_;
};

TEST_F(ClusterCommandTest, StartsLooksStopsAndRepeatsEach) {
  const CtlRun first = Start();
  ASSERT_EQ(first.exit_status, 0) << first.err;
  EXPECT_THAT(LastLine(first.out), HasSubstr("uri: hyperloop://127.0.0.1:"));
  const CtlRun again = Start();
  EXPECT_EQ(again.exit_status, 0);
  EXPECT_EQ(LastLine(again.out), LastLine(first.out));
  EXPECT_THAT(again.out, HasSubstr("0 of 3 processes started"));

  CtlRun status = Run({"cluster", "status", "--dir", dir_});
  EXPECT_EQ(status.exit_status, 0) << status.out << status.err;
  EXPECT_EQ(LastLine(status.out), LastLine(first.out));

  const pid_t replica = ReadCluster(dir_)->processes[2].pid;
  ASSERT_EQ(kill(replica, SIGKILL), 0);
  ASSERT_TRUE(
      Eventually([this] { return ReadCluster(dir_)->processes[2].state == ProcessState::kDead; }));
  status = Run({"cluster", "status", "--dir", dir_});
  EXPECT_EQ(status.exit_status, 1);
  EXPECT_THAT(status.out, HasSubstr("cluster start --dir " + dir_ + " completes"));
  const CtlRun completed = Start();
  EXPECT_EQ(completed.exit_status, 0) << completed.err;
  EXPECT_THAT(completed.out, HasSubstr("1 of 3 processes started"));
  EXPECT_EQ(LastLine(completed.out), LastLine(first.out));

  const ClusterInfo info = ReadCluster(dir_).value();
  EXPECT_EQ(Run({"cluster", "stop", "--dir", dir_}).exit_status, 0);
  for (const ClusterProcess& process : info.processes) EXPECT_TRUE(Gone(process.pid));
  EXPECT_EQ(Run({"cluster", "stop", "--dir", dir_}).exit_status, 0);
  EXPECT_TRUE(fs::exists(dir_ + "/replica0.pool"));
  const CtlRun restarted = Start();
  EXPECT_EQ(restarted.exit_status, 0) << restarted.err;
  EXPECT_EQ(LastLine(restarted.out), LastLine(first.out)) << "old pools, old ports";
}

// As a verify of a large pool, or an RNIC daemon that still maps one, on a busy machine.
TEST_F(ClusterCommandTest, AStartWaitsForWhoeverStillReadsAPool) {
  ASSERT_EQ(Start().exit_status, 0);
  ASSERT_EQ(Run({"cluster", "stop", "--dir", dir_}).exit_status, 0);
  auto reader = Pool::OpenCopyOnWrite(dir_ + "/replica1.pool");
  ASSERT_OK(reader);
  auto started = std::async(std::launch::async, [this] { return Start(); });
  EXPECT_TRUE(Eventually([&] {
    return Slurp(dir_ + "/replica1.log").find("waiting: pool") != std::string::npos ||
           started.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }));
  // Longer than anybody else waits for readers.
  EXPECT_THAT(Pool::Open(dir_ + "/replica1.pool"), StatusIs(Code::kBusy));
  reader->reset();
  const CtlRun run = started.get();
  EXPECT_EQ(run.exit_status, 0) << run.err;
}

// With options as they are by default, the group would have no room.
TEST_F(ClusterCommandTest, ARegionInWhichNothingOpensIsRefused) {
  const CtlRun small = Run({"cluster", "start", "--dir", dir_, "--region-size", "18M"});
  EXPECT_EQ(small.exit_status, 2);
  EXPECT_THAT(small.err, HasSubstr("give --region-size 41M or more"));
  EXPECT_FALSE(fs::exists(dir_));
}

// JSON is UTF-8, and a file's name is any bytes.
TEST_F(ClusterCommandTest, ADirectoryWhoseNameIsNoUtf8IsShown) {
  dir_ = folder_ + "/\xff";
  const CtlRun started = Start();
  ASSERT_EQ(started.exit_status, 0) << started.err;
  EXPECT_THAT(LastLine(started.out), HasSubstr("/%FF/"));
  const CtlRun status = Run({"cluster", "status", "--dir", dir_, "--json"});
  EXPECT_EQ(status.exit_status, 0) << status.err;
  EXPECT_THAT(status.out, HasSubstr("/\xef\xbf\xbd/replica0.pool\""));
  EXPECT_EQ(Run({"status", "--dir", dir_, "--json"}).exit_status, 0);
}

TEST_F(ClusterCommandTest, ADirectoryThatNoUriCanNameIsRefused) {
  dir_ = folder_ + "/a\nb";
  const CtlRun started = Start();
  EXPECT_EQ(started.exit_status, 2);
  EXPECT_THAT(started.err, HasSubstr("give another --dir: the path " + folder_ + "/a\\x0ab"));
  EXPECT_FALSE(fs::exists(dir_));
}

TEST_F(ClusterCommandTest, AForeignPoolFailsTheStartAndLeavesNothingRunning) {
  ASSERT_EQ(Start().exit_status, 0);
  ASSERT_EQ(Run({"cluster", "stop", "--dir", dir_}).exit_status, 0);
  std::ofstream(dir_ + "/replica1.pool", std::ios::trunc) << "not a pool";
  const CtlRun start = Start();
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
    const CtlRun outcome = Run({"cluster", "start", "--dir", dir, "--replicas", "1",
                                "--region-size", "48M", "--spin-us", "0", "--cpu", last});
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
  const CtlRun status = Run({"status", "--dir", dir_});
  EXPECT_EQ(status.exit_status, 0) << status.err;
  EXPECT_THAT(status.out, HasSubstr("never taken"));
  const CtlRun exported = Run({"export", "--dir", dir_, "--replica", "0", "--to", folder_ + "/to"});
  EXPECT_EQ(exported.exit_status, 1);
  EXPECT_THAT(exported.err, HasSubstr("holds no database"));
  EXPECT_FALSE(fs::exists(folder_ + "/to"));
}

TEST_F(ClusterCommandTest, DestroyRemovesWhatTheClusterMadeOnceThatIsConfirmed) {
  ASSERT_EQ(Start().exit_status, 0);
  fs::create_directory(dir_ + "/db");
  const ClusterInfo info = ReadCluster(dir_).value();
  const CtlRun asked = Run({"cluster", "destroy", "--dir", dir_});
  EXPECT_EQ(asked.exit_status, 2);
  EXPECT_THAT(asked.err, HasSubstr("--yes"));
  EXPECT_THAT(asked.out, HasSubstr("to be ended: rnicd, replica0, replica1\n"));
  EXPECT_THAT(asked.out, HasSubstr("\n  replica1.pool\n"));
  EXPECT_THAT(asked.out, HasSubstr("not the cluster's, stays: db/\n"));
  EXPECT_TRUE(ReadCluster(dir_)->AllAlive());

  const CtlRun done = Run({"cluster", "destroy", "--dir", dir_, "--yes"});
  EXPECT_EQ(done.exit_status, 0) << done.err;
  EXPECT_EQ(done.out.substr(0, asked.out.size()), asked.out);
  for (const ClusterProcess& process : info.processes) EXPECT_TRUE(Gone(process.pid));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 1) << "db";
  const CtlRun not_ours = Run({"cluster", "destroy", "--dir", dir_, "--yes"});
  EXPECT_EQ(not_ours.exit_status, 1);
  EXPECT_THAT(not_ours.err, HasSubstr("it has no cluster.json"));
  EXPECT_TRUE(fs::exists(dir_ + "/db"));

  fs::remove(dir_ + "/db");
  ASSERT_EQ(Start().exit_status, 0) << "in the directory that was left";
  EXPECT_EQ(Run({"cluster", "destroy", "--dir", dir_, "--yes"}).exit_status, 0);
  EXPECT_FALSE(fs::exists(dir_));
  const CtlRun again = Run({"cluster", "destroy", "--dir", dir_, "--yes"});
  EXPECT_EQ(again.exit_status, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("nothing to destroy"));
}

// Two hosts' directories, as their operators make them.
TEST_F(ClusterCommandTest, KeysAreMadeShownTrustedAndVerified) {
  const std::string a = folder_ + "/a", b = folder_ + "/b";
  ASSERT_EQ(Run({"keys", "init", "--dir", a, "--name", "a"}).exit_status, 0);
  const CtlRun made = Run({"keys", "init", "--dir", b, "--name", "b", "--roles", "link,replica"});
  ASSERT_EQ(made.exit_status, 0) << made.err;
  const std::string identity = Slurp(a + "/identity");
  const CtlRun again = Run({"keys", "init", "--dir", a, "--name", "a"});
  EXPECT_EQ(again.exit_status, 1);
  EXPECT_THAT(again.err, HasSubstr("never overwritten"));
  EXPECT_EQ(Slurp(a + "/identity"), identity);

  EXPECT_THAT(Run({"keys", "show", "--dir", b}).out, testing::EndsWith(" ROLES\n"));
  const CtlRun shown = Run({"keys", "show", "--dir", b, "--roles", "link,replica"});
  EXPECT_EQ(shown.out, made.out);
  const size_t key = shown.out.find(' ') + 1, roles = shown.out.find(' ', key) + 1;
  const std::string key_text = shown.out.substr(key, roles - key - 1);
  EXPECT_EQ(shown.out.substr(roles), "replica,link\n");
  const CtlRun trusted =
      Run({"keys", "trust", "--dir", a, "b", key_text, "replica,link", "10.0.0.2:7000"});
  EXPECT_EQ(trusted.exit_status, 0) << trusted.err;
  const CtlRun verified = Run({"keys", "verify", "--dir", a});
  EXPECT_EQ(verified.exit_status, 0) << verified.err;
  EXPECT_THAT(verified.out, HasSubstr("trusted    b " + key_text + " replica,link 10.0.0.2:7000"));

  EXPECT_EQ(Run({"keys", "trust", "--dir", a, "b", "short", "link"}).exit_status, 2);
  EXPECT_EQ(Run({"keys", "trust", "--dir", a, "b", key_text, "boss"}).exit_status, 2);
  EXPECT_EQ(Run({"keys", "show"}).exit_status, 2);
  fs::permissions(a + "/identity", fs::perms::owner_all | fs::perms::others_read);
  const CtlRun open = Run({"keys", "verify", "--dir", a});
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
    const CtlRun outcome = Run(arguments);
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
  const CtlRun uri = Run({"status", "--uri", "hyperloop://h:1?colour=red"});
  EXPECT_EQ(uri.exit_status, 2);
  EXPECT_THAT(uri.err, HasSubstr("colour"));
}

}  // namespace
}  // namespace hyperloop::test
