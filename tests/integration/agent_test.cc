// hyperloop-agent: two nodes of a service, each with an agent, a directory and a pool of its own,
// over one group of three replicas. What a node acknowledged is served by the next one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "integration/ctl_run.h"
#include "support/child_process.h"
#include "support/eventually.h"
#include "support/free_address.h"
#include "support/http_get.h"
#include "support/shared_cluster.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// One node: its agent, and what its service says.
class Node {
 public:
  Node(const TestCluster& cluster, std::string name)
      : name_(std::move(name)), folder_(cluster.folder() + "/" + name_) {
    std::filesystem::create_directory(folder_);
    StoreOptions store = cluster.Options();
    store.pool = folder_ + "/primary.pool";
    store.on_replica_failure = OnReplicaFailure::kAuto;
    uri_ = FormatStoreUri(store);
  }

  const std::string& name() const { return name_; }
  const std::string& address() const { return address_; }
  std::string RoleFile() const { return folder_ + "/role.json"; }
  std::string HistoryFile() const { return folder_ + "/history"; }
  std::string Directory() const { return folder_ + "/db"; }
  std::string Brought() const { return Directory() + "/hyperloop-switchover"; }
  std::vector<std::string> Command(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> argv{ProgramPath("hyperloop-agent"),
                                  "--node",
                                  name_,
                                  "--uri",
                                  uri_,
                                  "--db",
                                  Directory(),
                                  "--ready",
                                  "notify",
                                  "--role-file",
                                  RoleFile(),
                                  "--history",
                                  HistoryFile()};
    argv.insert(argv.end(), {"--http", address_.empty() ? "127.0.0.1:0" : address_});
    argv.insert(argv.end(), more.begin(), more.end());
    argv.insert(argv.end(),
                {"--", ProgramPath("../tests/agent_service"), Directory(), folder_ + "/progress"});
    return argv;
  }
  // The service as somebody starts it by hand.
  std::vector<std::string> ServiceAlone() const {
    return {ProgramPath("hyperloopctl"),
            "exec",
            "--bind",
            Directory() + "=" + uri_,
            "--",
            ProgramPath("../tests/agent_service"),
            Directory(),
            folder_ + "/progress"};
  }
  void Start(const std::vector<std::string>& more = {}) {
    agent_ = ChildProcess::Spawn(Command(more));
    const std::string ready = agent_.ReadLine();
    ASSERT_THAT(ready, StartsWith("ready 127.0.0.1:"));
    if (address_.empty()) address_ = ready.substr(6);  // it stays, as others may use it meanwhile
  }
  ChildProcess& agent() { return agent_; }

  // What /cluster says; null: nobody answers.
  nlohmann::json Cluster() const {
    const std::string answer = HttpGet(address_, "/cluster");
    const size_t body = answer.find("\r\n\r\n");
    if (body == std::string::npos) return nullptr;
    return nlohmann::json::parse(answer.substr(body + 4), nullptr, false);
  }
  bool Says(const std::string& path) const {
    return HttpGet(address_, path).starts_with("HTTP/1.1 200 ");
  }
  bool AwaitPrimary() const {
    return Eventually([this] { return Says("/primary"); });
  }
  nlohmann::json Role() const { return nlohmann::json::parse(Slurp(RoleFile()), nullptr, false); }
  // How many keys its service has acknowledged.
  uint64_t Acknowledged() const {
    uint64_t number = 0;
    std::ifstream(folder_ + "/progress", std::ios::binary)
        .read(reinterpret_cast<char*>(&number), sizeof number);
    return number;
  }
  // How many keys the service found when it opened the database last: the next such line.
  uint64_t Serves() {
    constexpr std::string_view kServes = "ready serves ";
    std::string line = agent_.ReadLine();
    while (!line.empty() && !line.starts_with(kServes)) {
      EXPECT_THAT(line, Not(HasSubstr("wrong"))) << name_;
      line = agent_.ReadLine();
    }
    return line.empty() ? 0 : std::stoull(line.substr(kServes.size()));
  }
  bool Writes() const {
    const uint64_t before = Acknowledged();
    return Eventually([&] { return Acknowledged() > before + 20; });
  }

 private:
  const std::string name_, folder_;
  std::string uri_, address_;
  ChildProcess agent_;
};

// Asks both nodes all the time whether they are the primary.
class DualWatch {
 public:
  DualWatch(const Node& a, const Node& b) : thread_([this, &a, &b] { Run(a, b); }) {}
  ~DualWatch() { Stop(); }
  // How often both were, with one question between two.
  int Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return dual_;
  }

 private:
  // The first node was the primary before and after the second one was, in one epoch. So both were
  // at a time.
  void Run(const Node& a, const Node& b) {
    while (!stop_) {
      for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
        const std::string before = HttpGet(one->address(), "/primary");
        const bool between = other->Says("/primary");
        const std::string after = HttpGet(one->address(), "/primary");
        if (between && before == after && before.starts_with("HTTP/1.1 200 ")) ++dual_;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  std::atomic<bool> stop_{false};
  std::atomic<int> dual_{0};
  std::thread thread_;
};

class AgentTest : public SharedClusterTest<3, 64 << 20> {
 protected:
  // A group that holds a database, closed in order. The agents would not format one.
  void MakeDatabase() {
    const std::string directory = a_.Directory();
    const CtlRun made =
        RunCtl(cluster_.folder(), {"exec", "--bind", directory + "=" + cluster_.uri(), "--", "ldb",
                                   "--db=" + directory, "--create_if_missing", "put", "x", "y"});
    ASSERT_EQ(made.exit_status, 0) << made.err;
    const CtlRun removed =
        RunCtl(cluster_.folder(), {"exec", "--bind", directory + "=" + cluster_.uri(), "--", "ldb",
                                   "--db=" + directory, "delete", "x"});
    ASSERT_EQ(removed.exit_status, 0) << removed.err;
    std::filesystem::remove_all(directory);
  }
  void StartBoth(const std::vector<std::string>& more = {}) {
    ASSERT_NO_FATAL_FAILURE(MakeDatabase());
    ASSERT_NO_FATAL_FAILURE(a_.Start(more));
    ASSERT_TRUE(a_.AwaitPrimary());
    ASSERT_EQ(a_.Serves(), 0u);
    ASSERT_NO_FATAL_FAILURE(b_.Start(more));
    ASSERT_TRUE(Eventually([&] { return b_.Says("/replica"); }));
  }
  CtlRun Agents(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "agent");
    arguments.insert(arguments.end(), {"--uri", cluster_.uri()});
    return RunCtl(cluster_.folder(), arguments);
  }
  void Tell(const std::vector<std::string>& arguments, const std::string& expected) {
    const CtlRun told = Agents(arguments);
    ASSERT_EQ(told.exit_status, 0) << told.err;
    EXPECT_THAT(told.out, HasSubstr(expected));
  }
  // How many replicas tell what most tell.
  size_t TellingReplicas() {
    const auto status = nlohmann::json::parse(Agents({"status", "--json"}).out, nullptr, false);
    if (!status.is_object() || status["told_by_most"] != true) return 0;
    size_t tell = 0;
    for (const auto& each : status["replicas"]) tell += each["error"] == "" ? 1 : 0;
    return tell;
  }
  uint64_t Epoch() const {
    const auto status = cluster_.ReplicaStatus(0);
    EXPECT_OK(status);
    return status.ok() ? status->sealed_epoch : 0;
  }

  Node a_{cluster_, "a"}, b_{cluster_, "b"};
};

TEST_F(AgentTest, WhatALostNodeAcknowledgedIsServedByTheOther) {
  const std::vector<std::string> patient{"--failover-timeout",  "20s", "--lease", "5s",
                                         "--isolation-timeout", "20s"};
  ASSERT_NO_FATAL_FAILURE(StartBoth(patient));
  DualWatch watch(a_, b_);
  ASSERT_TRUE(a_.Writes());
  EXPECT_FALSE(b_.Says("/primary"));
  EXPECT_EQ(b_.Cluster()["owner_node"], "a");
  EXPECT_TRUE(Eventually([&] { return a_.Role()["primary"] == true; }));
  EXPECT_TRUE(Eventually([&] { return b_.Cluster()["standby_ready"] == true; }));
  EXPECT_TRUE(std::filesystem::exists(b_.Brought()));
  EXPECT_FALSE(std::filesystem::exists(a_.Brought()));

  a_.agent().Kill();  // and the service with it
  ASSERT_TRUE(b_.AwaitPrimary());
  EXPECT_FALSE(std::filesystem::exists(b_.Brought()));
  EXPECT_GE(b_.Serves(), a_.Acknowledged());
  EXPECT_GT(a_.Acknowledged(), 20u);
  ASSERT_TRUE(b_.Writes());
  EXPECT_TRUE(Eventually([&] { return b_.Role()["primary"] == true; }));

  // The lost node comes back, and follows. Its directory is of before.
  ASSERT_NO_FATAL_FAILURE(a_.Start(patient));
  ASSERT_TRUE(Eventually([&] { return a_.Says("/replica"); }));
  EXPECT_FALSE(a_.Says("/primary"));

  // The other agent is ended in order, which hands the group over.
  b_.agent().Signal(SIGTERM);
  EXPECT_EQ(b_.agent().Wait(), 0);
  ASSERT_TRUE(a_.AwaitPrimary());
  EXPECT_GE(a_.Serves(), b_.Acknowledged());
  ASSERT_TRUE(a_.Writes());
  EXPECT_EQ(watch.Stop(), 0);

  // b is gone, and has left its file.
  const CtlRun history =
      RunCtl(cluster_.folder(), {"agent", "history", "--agent", a_.address(), "--file",
                                 b_.HistoryFile(), "--last", "1000000"});
  EXPECT_EQ(history.exit_status, 0) << history.err;
  EXPECT_THAT(history.out, HasSubstr("b  epoch "));
  EXPECT_THAT(history.out, HasSubstr("service-started: the group is free (epoch "));
  EXPECT_THAT(history.out, HasSubstr("because whoever has the group has shown no sign of life"));
  EXPECT_THAT(history.out, HasSubstr("because whoever had the group has closed it"));
  const size_t lost = history.out.find("has shown no sign of life for so long; started");
  const size_t back = history.out.find("has closed it; started", lost);
  EXPECT_NE(lost, std::string::npos) << history.out;
  EXPECT_NE(back, std::string::npos) << "in the order of their times: " << history.out;
}

// Nobody starts it, whatever becomes of it; and a replica may be away when that is said.
TEST_F(AgentTest, PausedAServiceThatEndedIsStartedByNobodyUntilItIsResumed) {
  ASSERT_NO_FATAL_FAILURE(StartBoth({"--failover-timeout", "6s", "--lease", "4s"}));
  cluster_.KillReplica(2);
  ASSERT_NO_FATAL_FAILURE(Tell({"pause"}, "agents: paused"));
  ASSERT_OK(cluster_.Restart());
  ASSERT_TRUE(Eventually([&] { return a_.Cluster()["paused"] == true && !b_.Says("/replica"); }));
  ASSERT_TRUE(a_.AwaitPrimary()) << "what serves goes on";
  ASSERT_TRUE(a_.Writes());
  EXPECT_TRUE(Eventually([&] { return TellingReplicas() == 3; }))
      << "agents give it to a replica that has missed it";
  const uint64_t epoch = Epoch();
  a_.agent().Kill();
  // The other one looks for longer than it would wait otherwise: there are no more than five looks
  // a second.
  const uint64_t looks = b_.Cluster()["looks"];
  ASSERT_TRUE(Eventually([&] { return b_.Cluster()["looks"] > looks + 50; }));
  EXPECT_EQ(Epoch(), epoch);
  EXPECT_EQ(b_.Cluster()["takings"], 0);
  EXPECT_EQ(b_.Cluster()["state"], "candidate");
  EXPECT_THAT(b_.Cluster()["why"].get<std::string>(), HasSubstr("operators hold it back: paused"));
  ASSERT_NO_FATAL_FAILURE(Tell({"resume"}, "agents: not paused"));
  ASSERT_TRUE(b_.AwaitPrimary());
  EXPECT_GE(b_.Serves(), a_.Acknowledged());
}

TEST_F(AgentTest, ASwitchoverMovesTheServiceAndIsDoneOnce) {
  ASSERT_NO_FATAL_FAILURE(
      StartBoth({"--take-timeout", "600s", "--failover-timeout", "20s", "--lease", "5s"}));
  DualWatch watch(a_, b_);
  ASSERT_TRUE(a_.Writes());
  ASSERT_NO_FATAL_FAILURE(
      Tell({"switchover", "--to", "b", "--wait", "600"}, "node b has the group"));
  ASSERT_TRUE(b_.AwaitPrimary());
  EXPECT_GE(b_.Serves(), a_.Acknowledged());
  ASSERT_TRUE(b_.Writes());
  EXPECT_EQ(a_.Cluster()["takings"], 1);
  EXPECT_EQ(b_.Cluster()["takings"], 1);
  EXPECT_THAT(HttpGet(a_.address(), "/metrics"),
              HasSubstr("\nhyperloop_agent_start_failures_total 0\n"));
  EXPECT_TRUE(Eventually([&] { return a_.Says("/replica"); }));
  // It does not go to b once more when the group changes hands again.
  b_.agent().Signal(SIGTERM);
  EXPECT_EQ(b_.agent().Wait(), 0);
  ASSERT_TRUE(a_.AwaitPrimary());
  EXPECT_GE(a_.Serves(), b_.Acknowledged());
  EXPECT_EQ(watch.Stop(), 0);
}

TEST_F(AgentTest, AServiceLeavesADrainedNodeAndNoneIsStartedThere) {
  ASSERT_NO_FATAL_FAILURE(StartBoth({"--failover-timeout", "20s", "--lease", "5s"}));
  ASSERT_NO_FATAL_FAILURE(Tell({"drain", "a", "--wait", "600"}, "no service on a"));
  ASSERT_TRUE(b_.AwaitPrimary());
  EXPECT_FALSE(a_.Says("/replica"));
  EXPECT_EQ(a_.Cluster()["drained"], true);
  const CtlRun refused = Agents({"switchover", "--to", "a"});
  EXPECT_EQ(refused.exit_status, 2);
  EXPECT_THAT(refused.err, HasSubstr("agent undrain a comes first"));
  b_.agent().Signal(SIGTERM);
  EXPECT_EQ(b_.agent().Wait(), 0);
  const uint64_t looks = a_.Cluster()["looks"];
  ASSERT_TRUE(Eventually([&] { return a_.Cluster()["looks"] > looks + 20; }));
  EXPECT_EQ(a_.Cluster()["takings"], 1);
  ASSERT_NO_FATAL_FAILURE(Tell({"undrain", "a"}, "agents: not paused"));
  ASSERT_TRUE(a_.AwaitPrimary());
}

TEST_F(AgentTest, AFailoverIsRefusedWhileAPrimaryLivesAndIsOrderedWhenItIsDead) {
  ASSERT_NO_FATAL_FAILURE(StartBoth({"--failover-timeout", "600s", "--lease", "5s"}));
  ASSERT_TRUE(a_.Writes());
  const CtlRun lives = Agents({"failover", "--node", "b", "--yes"});
  EXPECT_EQ(lives.exit_status, 1);
  EXPECT_THAT(lives.err, HasSubstr("agent switchover --to b moves a service that lives"));
  EXPECT_THAT(lives.err, HasSubstr("has seen a sign of life of it just now"));
  a_.agent().Kill();
  EXPECT_EQ(Agents({"failover", "--node", "a", "--yes"}).exit_status, 2) << "it is the dead one";
  const uint64_t epoch = Epoch();
  const std::string before = Agents({"status"}).out;
  const CtlRun said = Agents({"failover", "--node", "b"});
  EXPECT_EQ(said.exit_status, 2);
  EXPECT_THAT(said.out, HasSubstr("would be told to leave the group to node b"));
  EXPECT_THAT(said.err, HasSubstr("say --yes if that is meant: nothing was done"));
  EXPECT_EQ(Epoch(), epoch);
  EXPECT_EQ(Agents({"status"}).out, before);
  ASSERT_NO_FATAL_FAILURE(
      Tell({"failover", "--node", "b", "--yes", "--wait", "600"}, "node b has the group"));
  ASSERT_TRUE(b_.AwaitPrimary());
  EXPECT_GE(b_.Serves(), a_.Acknowledged());
}

TEST_F(AgentTest, ACheckNamesWhatIsMissingForFailover) {
  ASSERT_NO_FATAL_FAILURE(StartBoth({"--failover-timeout", "20s", "--lease", "5s"}));
  const std::vector<std::string> check{"check", "--agent", a_.address(), "--agent", b_.address()};
  CtlRun said;
  EXPECT_TRUE(Eventually([&] {
    said = Agents(check);
    return said.exit_status == 0;
  })) << said.out
      << said.err;
  EXPECT_THAT(said.out, HasSubstr("ok    node a could take the group"));
  EXPECT_THAT(said.out, HasSubstr("ok    node b could take the group"));
  ASSERT_NO_FATAL_FAILURE(Tell({"drain", "b", "--wait", "600"}, "no service on b"));
  ASSERT_TRUE(Eventually([&] { return b_.Cluster()["drained"] == true; }));
  said = Agents(check);
  EXPECT_EQ(said.exit_status, 1);
  EXPECT_THAT(said.out, HasSubstr("BAD   node b: hyperloopctl agent undrain b: "));
  EXPECT_THAT(said.out, HasSubstr("BAD   mend what is said above: 1 nodes could serve"));
  ASSERT_NO_FATAL_FAILURE(Tell({"undrain", "b"}, "agents: not paused"));
  ASSERT_NO_FATAL_FAILURE(Tell({"pause"}, "agents: paused"));
  EXPECT_THAT(Agents(check).out, HasSubstr("BAD   hyperloopctl agent resume: "));
  ASSERT_NO_FATAL_FAILURE(Tell({"resume"}, "agents: not paused"));
  b_.agent().Kill();
  said = Agents(check);
  EXPECT_EQ(said.exit_status, 1);
  EXPECT_THAT(said.out, HasSubstr("BAD   " + b_.address() + ": start its agent"));
}

// What hangs delays neither the agent nor what others are told.
TEST_F(AgentTest, HooksAreToldWhoIsThePrimaryAndOneThatHangsDelaysNobody) {
  const auto program = [&](const std::string& name, const std::string& script) {
    const std::string path = cluster_.folder() + "/" + name;
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    EXPECT_EQ(chmod(path.c_str(), 0700), 0);
    return path;
  };
  const std::string told = program("told", "echo $1 >>$0.$HYPERLOOP_HOOK_NODE");
  const std::string hangs = program("hangs", "sleep 1000");
  const auto last_of = [&](const Node& node) {
    std::string line, last;
    for (std::ifstream in(told + "." + node.name()); std::getline(in, line);)
      if (line.ends_with("-primary")) last = line;
    return last;
  };
  const std::vector<std::string> patient{"--failover-timeout",
                                         "20s",
                                         "--lease",
                                         "5s",
                                         "--hook-timeout",
                                         "600s",
                                         "--hook",
                                         hangs,
                                         "--hook",
                                         told};
  ASSERT_NO_FATAL_FAILURE(StartBoth(patient));
  EXPECT_TRUE(Eventually([&] { return last_of(a_) == "became-primary"; }));
  EXPECT_TRUE(Eventually([&] { return last_of(b_) == "lost-primary"; }));
  EXPECT_THAT(HttpGet(a_.address(), "/metrics"),
              testing::ContainsRegex("hyperloop_agent_hook_waiting_seconds[{]hook=\"[^\"]*/hangs"
                                     "\"[}] [0-9.]*[1-9]"));
  a_.agent().Kill();
  ASSERT_TRUE(b_.AwaitPrimary());
  EXPECT_TRUE(Eventually([&] { return last_of(b_) == "became-primary"; }));
  EXPECT_EQ(last_of(a_), "became-primary") << "nobody could say so";
  ASSERT_NO_FATAL_FAILURE(a_.Start(patient));
  EXPECT_TRUE(Eventually([&] { return last_of(a_) == "lost-primary"; }));
  ASSERT_EQ(chmod(told.c_str(), 0722), 0);
  a_.agent().Kill();
  ChildProcess refused = ChildProcess::Spawn(a_.Command(patient));
  EXPECT_EQ(refused.Wait(), 1) << "others may write the hook";
}

// HAProxy itself, which asks /primary of each node and sends whoever comes to the one that says so.
TEST_F(AgentTest, HaProxyFollowsThePrimary) {
  const std::string haproxy = "/usr/sbin/haproxy";
  if (access(haproxy.c_str(), X_OK) != 0)
    GTEST_SKIP() << "no HAProxy here: apt-get install haproxy (scripts/setup --tests does it)";
  ASSERT_NO_FATAL_FAILURE(StartBoth({"--failover-timeout", "20s", "--lease", "5s"}));
  const std::string proxy = FreeAddress(), file = cluster_.folder() + "/haproxy.cfg";
  std::ofstream(file) << "defaults\n  mode http\n  timeout connect 5s\n  timeout client 60s\n"
                      << "  timeout server 60s\n  option httpclose\nlisten orders\n  bind " << proxy
                      << "\n  option httpchk GET /primary\n"
                      << "  default-server inter 200ms fall 2 rise 1 on-marked-down "
                         "shutdown-sessions\n"
                      << "  server a " << a_.address() << " check\n  server b " << b_.address()
                      << " check\n";
  const ChildProcess running = ChildProcess::Spawn({haproxy, "-db", "-f", file});
  // To whom it sends.
  const auto node = [&]() -> std::string {
    const std::string answer = HttpGet(proxy, "/cluster");
    const size_t body = answer.find("\r\n\r\n");
    if (!answer.starts_with("HTTP/1.1 200") || body == std::string::npos) return "";
    const auto json = nlohmann::json::parse(answer.substr(body + 4), nullptr, false);
    return json.is_object() ? json["node"].get<std::string>() : "";
  };
  EXPECT_TRUE(Eventually([&] { return node() == "a"; }));
  ASSERT_NO_FATAL_FAILURE(
      Tell({"switchover", "--to", "b", "--wait", "600"}, "node b has the group"));
  EXPECT_TRUE(Eventually([&] { return node() == "b"; }));
  b_.agent().Kill();
  EXPECT_TRUE(Eventually([&] { return node().empty(); }))
      << "nobody is sent to a node that is lost";
  EXPECT_TRUE(Eventually([&] { return node() == "a"; }));
}

TEST_F(AgentTest, OrdersThatCannotBeCarriedOutAreRefused) {
  shared_.UseUp();  // it stays paused
  ASSERT_NO_FATAL_FAILURE(MakeDatabase());
  const CtlRun nobody = Agents({"switchover", "--to", "b"});
  EXPECT_EQ(nobody.exit_status, 1);
  EXPECT_THAT(nobody.err, HasSubstr("only a service that an agent has started is moved"));
  EXPECT_EQ(Agents({"drain", "b c"}).exit_status, 2);
  ASSERT_NO_FATAL_FAILURE(Tell({"pause"}, "agents: paused"));
  const CtlRun paused = Agents({"switchover", "--to", "b"});
  EXPECT_EQ(paused.exit_status, 2);
  EXPECT_THAT(paused.err, HasSubstr("agent resume comes first"));
  const CtlRun status = Agents({"status"});
  EXPECT_EQ(status.exit_status, 0) << status.err;
  EXPECT_THAT(status.out, HasSubstr("agents: paused ("));
  EXPECT_THAT(status.out, HasSubstr("nobody has the group"));
  EXPECT_EQ(TellingReplicas(), 3u);
  cluster_.KillReplica(1);
  cluster_.KillReplica(2);
  const CtlRun alone = Agents({"resume"});
  EXPECT_EQ(alone.exit_status, 1);
  EXPECT_THAT(alone.err, HasSubstr("when more of the replicas answer alike"));
}

// The group goes on without a replica that is lost, and takes it in when it is back, each under a
// new epoch of the same owner. Neither agent takes that for a change of owner.
TEST_F(AgentTest, AReplicaThatIsLostAndComesBackChangesNoRole) {
  ASSERT_NO_FATAL_FAILURE(StartBoth());
  DualWatch watch(a_, b_);
  ASSERT_TRUE(a_.Writes());
  const nlohmann::json service = a_.Cluster()["service_pid"];
  ASSERT_NE(service, 0);
  const auto await_absent = [&](size_t absent, uint64_t after) {
    return Eventually([&] {
      const auto status = cluster_.ReplicaStatus(0);
      return status.ok() && status->installed_epoch > after &&
             status->installed_epoch == status->sealed_epoch && status->absent.size() == absent;
    });
  };
  for (int i = 0; i < 2; ++i) {
    const uint64_t before = Epoch();
    cluster_.KillReplica(2);
    ASSERT_TRUE(await_absent(1, before));
    ASSERT_TRUE(a_.Writes());
    const uint64_t without = Epoch();
    ASSERT_OK(cluster_.Restart());
    ASSERT_TRUE(await_absent(0, without));
    ASSERT_TRUE(a_.Writes());
  }
  EXPECT_TRUE(a_.AwaitPrimary());
  const nlohmann::json a = a_.Cluster(), b = b_.Cluster();
  EXPECT_EQ(a["service_pid"], service);
  EXPECT_EQ(a["takings"], 1);
  EXPECT_EQ(b["takings"], 0);
  EXPECT_TRUE(b_.Says("/replica"));
  EXPECT_EQ(watch.Stop(), 0);
}

// Where it served last the directory is the group's already: it keeps its name there, and no table
// is read before the service is back.
TEST_F(AgentTest, AServiceThatIsStartedAgainKeepsItsDirectory) {
  ASSERT_NO_FATAL_FAILURE(MakeDatabase());
  ASSERT_NO_FATAL_FAILURE(a_.Start());
  ASSERT_TRUE(a_.AwaitPrimary());
  ASSERT_EQ(a_.Serves(), 0u);
  ASSERT_TRUE(a_.Writes());
  const std::string pairing = Slurp(a_.Directory() + "/HYPERLOOP");
  const pid_t service = a_.Cluster()["service_pid"];
  const uint64_t epoch = Epoch(), acknowledged = a_.Acknowledged();
  ASSERT_EQ(kill(-service, SIGKILL), 0);
  EXPECT_GE(a_.Serves(), acknowledged);
  EXPECT_GT(Epoch(), epoch);
  EXPECT_EQ(Slurp(a_.Directory() + "/HYPERLOOP"), pairing);
  EXPECT_FALSE(std::filesystem::exists(a_.Brought()));
}

TEST_F(AgentTest, AGroupWithoutADatabaseIsLeftAlone) {
  const uint64_t epoch = Epoch();
  ASSERT_NO_FATAL_FAILURE(a_.Start());
  ASSERT_TRUE(Eventually([&] {
    const auto why = a_.Cluster()["why"];
    return why.is_string() &&
           why.get<std::string>().find("the group holds none") != std::string::npos;
  }));
  EXPECT_EQ(Epoch(), epoch);
  EXPECT_FALSE(a_.Says("/primary"));
  // To wait is no failure, and holds nothing off.
  EXPECT_EQ(a_.Cluster()["takings"], 0);
  EXPECT_THAT(HttpGet(a_.address(), "/metrics"),
              HasSubstr("\nhyperloop_agent_start_failures_total 0\n"));
  // Its directory is free for whoever makes the database there. Then the agent serves it.
  ChildProcess first = ChildProcess::Spawn(a_.ServiceAlone());
  ASSERT_EQ(first.ReadLine(), "ready serves 0");
  first.Signal(SIGTERM);
  EXPECT_EQ(first.Wait(), 0);
  EXPECT_TRUE(a_.AwaitPrimary());
  a_.agent().Signal(SIGTERM);
  EXPECT_EQ(a_.agent().Wait(), 0);
}

TEST_F(AgentTest, ARoleFileThatCannotBeWrittenIsTriedAgain) {
  std::filesystem::create_directory(a_.RoleFile());
  ASSERT_NO_FATAL_FAILURE(a_.Start());
  ASSERT_TRUE(Eventually([&] { return a_.Cluster()["state"] == "candidate"; }));
  const uint64_t looks = a_.Cluster()["looks"];
  ASSERT_TRUE(Eventually([&] { return a_.Cluster()["looks"] > looks + 2; }));
  std::filesystem::remove(a_.RoleFile());
  EXPECT_TRUE(
      Eventually([&] { return a_.Role().is_object() && a_.Role()["state"] == "candidate"; }));
  EXPECT_EQ(a_.Role()["primary"], false);
}

TEST_F(AgentTest, AQuietTimeChangesNoRole) {
  ASSERT_NO_FATAL_FAILURE(
      StartBoth({"--failover-timeout", "10s", "--lease", "7s", "--isolation-timeout", "20s"}));
  const uint64_t epoch = Epoch();
  // Longer than the failover timeout: there are no more looks than five a second.
  constexpr uint64_t kLooks = 75;
  const uint64_t a = a_.Cluster()["looks"], b = b_.Cluster()["looks"];
  ASSERT_TRUE(Eventually(
      [&] { return a_.Cluster()["looks"] > a + kLooks && b_.Cluster()["looks"] > b + kLooks; }));
  EXPECT_EQ(Epoch(), epoch);
  EXPECT_TRUE(a_.Says("/health"));
  EXPECT_TRUE(b_.Says("/health"));
  EXPECT_FALSE(b_.Says("/primary"));
  EXPECT_EQ(b_.Cluster()["takings"], 0);
}

}  // namespace
}  // namespace hyperloop::test
