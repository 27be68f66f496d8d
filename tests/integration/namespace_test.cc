// A group that spans machines: each node is in a network namespace of its own, with its own RNIC
// daemon, and a bridge joins them. Connections are killed, and cables are pulled and plugged in
// again. Operators use their tools on each machine.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "hyperloop/core/softrnic.h"
#include "integration/ctl_run.h"
#include "integration/store_fixture.h"
#include "support/append_durably.h"
#include "support/child_process.h"
#include "support/keys.h"

namespace hyperloop::test {
namespace {

using std::chrono::seconds;
namespace fs = std::filesystem;

constexpr int kReplicas = 3;
constexpr int kNodes = kReplicas + 1;  // the primary is node 0
constexpr int kSpare = kNodes;         // a machine that has nothing of the group at first
constexpr int kMachines = kNodes + 1;
constexpr char kFile[] = "000001.log";
constexpr size_t kLine = 9;  // bytes: a number of 8 digits and a newline

// Namespaces, their bridge, and a daemon in each; gone with the object.
class Machines {
 public:
  ~Machines() {
    writer.Kill();
    for (auto& each : replicas_) each.Kill();
    for (auto& each : daemons_) each.Kill();
    for (int i = 0; i < kMachines; ++i) Run("ip netns del " + Name(i) + " 2>/dev/null");
    Run("ip netns del " + hub_ + " 2>/dev/null");
    std::error_code ignored;
    if (!folder_.empty()) fs::remove_all(folder_, ignored);
  }

  // Makes the network. Returns an empty text, or why this machine cannot.
  std::string MakeNetwork() {
    if (geteuid() != 0) return "network namespaces need root";
    if (Run("ip -V >/dev/null 2>&1") != 0) return "no ip command (Debian package iproute2)";
    if (Run("ip netns add " + hub_ + " 2>/dev/null") != 0) return "no network namespaces here";
    if (Run("ip -n " + hub_ + " link add br0 type bridge && ip -n " + hub_ + " link set br0 up") !=
        0)
      return "this kernel has no bridges";
    for (int i = 0; i < kMachines; ++i) {
      const std::string n = Name(i), cable = Cable(i);
      if (Run("ip netns add " + n) != 0 ||
          Run("ip -n " + hub_ + " link add " + cable + " type veth peer name eth0 netns " + n) !=
              0 ||
          Run("ip -n " + hub_ + " link set " + cable + " master br0 up") != 0 ||
          Run("ip -n " + n + " addr add " + Address(i) + "/24 dev eth0") != 0 ||
          Run("ip -n " + n + " link set eth0 up && ip -n " + n + " link set lo up") != 0)
        return "this kernel has no veth devices";
    }
    return {};
  }

  void Start() {
    std::string pattern = "/dev/shm/hyperloop-ns-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    if (hosts_alike) return StartAlike();
    for (int i = 0; i < kMachines; ++i)
      ASSERT_OK(identity::MakeIdentity(KeysDir(folder_, Host(i)), Host(i)));
    // As docs/operations.md has it: each host trusts the others. A replica's host may take the
    // primary's place.
    for (int i = 0; i < kNodes; ++i) {
      for (int other = 0; other < kNodes; ++other) {
        if (i == other) continue;
        const identity::Roles replica = other == 0 ? 0 : identity::kRoleReplica;
        ASSERT_NO_FATAL_FAILURE(
            LetTrust(i, other, identity::kRoleLink | identity::kRolePrimary | replica));
      }
    }
    for (int i = 0; i < kNodes; ++i) ListPeer(i);
    for (int i = 0; i < kNodes; ++i) ASSERT_NO_FATAL_FAILURE(StartDaemon(i));
    for (int i = 1; i < kNodes; ++i) ASSERT_NO_FATAL_FAILURE(StartReplica(i));
  }

  // As docs/operations.md, "Hosts alike", has it: the lines of all hosts are one file everywhere,
  // and so is the file of the group.
  void StartAlike() {
    for (int i = 0; i < kNodes; ++i) ASSERT_NO_FATAL_FAILURE(InitNode(i));
    ShareFiles(kNodes);
    for (int i = 0; i < kNodes; ++i) ASSERT_NO_FATAL_FAILURE(StartDaemon(i));
    for (int i = 1; i < kNodes; ++i) ASSERT_NO_FATAL_FAILURE(StartReplica(i));
  }
  // Makes machine `i` a host, and keeps its line.
  void InitNode(int i) {
    fs::create_directory(NodeDir(i));
    const std::vector<std::string> init{"node",      "init",     "--name",   Host(i),
                                        "--address", Address(i), "--folder", NodeDir(i)};
    const CtlRun made = Ctl(i, init);
    ASSERT_EQ(made.exit_status, 0) << made.err;
    EXPECT_EQ(made.out, Ctl(i, init).out) << "a second call changes nothing";
    host_lines_ += made.out;
  }
  // Gives the first `count` machines the same files.
  void ShareFiles(int count) const {
    std::string hosts;
    for (int i = 0; i < count; ++i) hosts += (i == 0 ? "hosts = " : ", ") + Host(i);
    for (int i = 0; i < count; ++i) {
      fs::create_directory(NodeDir(i) + "/groups");
      Replace(NodeDir(i) + "/groups/g.conf", hosts + "\n");
      Replace(NodeDir(i) + "/hosts", host_lines_);
    }
  }
  static void Replace(const std::string& path, const std::string& text) {
    { std::ofstream(path + "~") << text; }
    fs::rename(path + "~", path);
  }

  // Adds machine `i` to the file of peers, which all machines share.
  void ListPeer(int i) const {
    std::ofstream(folder_ + "/peers", std::ios::app) << Host(i) << "=" << Address(i) << ":7471\n";
  }
  // Takes the lines of machine `i` out of a file.
  void TakeOut(int i, const std::string& path) const {
    std::ifstream file(path);
    std::string rest;
    for (std::string line; std::getline(file, line);)
      if (!line.starts_with(Host(i) + "=") && !line.starts_with(Host(i) + " ")) rest += line + "\n";
    { std::ofstream(path + ".new") << rest; }
    fs::rename(path + ".new", path);
  }
  std::string TrustedFile(int i) const { return KeysDir(folder_, Host(i)) + "/trusted"; }
  void StartReplica(int i) {
    replicas_[i] =
        Spawn(i, {ProgramPath("hyperloop-replica"), "--pool", folder_ + "/" + Host(i) + ".pool",
                  "--size", "16M", "--listen", Endpoint(i), "--device", Socket(i), "--host",
                  Host(i), "--keys", Keys(i)});
    ASSERT_THAT(replicas_[i].ReadLine(), testing::HasSubstr("ready"));
  }
  // Of the replica on machine `i`.
  static std::string Endpoint(int i) { return Address(i) + ":7000"; }

  void StartDaemon(int i) {
    std::vector<std::string> argv{ProgramPath("hyperloop-rnicd"),
                                  "--socket",
                                  Socket(i),
                                  "--spin-us",
                                  "0",
                                  "--priority",
                                  "none",
                                  "--cpu",
                                  "none"};
    const std::vector<std::string> links =
        hosts_alike ? std::vector<std::string>{"--node", NodeDir(i)}
                    : std::vector<std::string>{"--listen",     Address(i) + ":7471",
                                               "--peers-file", folder_ + "/peers",
                                               "--keys",       Keys(i)};
    argv.insert(argv.end(), links.begin(), links.end());
    daemons_[i] = Spawn(i, argv);
    ASSERT_EQ(daemons_[i].ReadLine(), "ready " + Socket(i));
  }
  // The host of machine `i` trusts that of machine `other`.
  void LetTrust(int i, int other, identity::Roles roles, const std::string& endpoint = "") const {
    const auto ring = identity::KeyRing::Load(KeysDir(folder_, Host(other)));
    ASSERT_OK(ring);
    ASSERT_OK(identity::Trust(KeysDir(folder_, Host(i)),
                              {Host(other), (*ring)->public_key(), roles, endpoint}));
  }

  // Runs `arguments` of hyperloopctl on machine `i`.
  CtlRun Ctl(int i, const std::vector<std::string>& arguments) const {
    std::string command = "ip netns exec " + Name(i) + " " + ProgramPath("hyperloopctl");
    for (const std::string& argument : arguments) command += " '" + argument + "'";
    const std::string out = folder_ + "/out", err = folder_ + "/err";
    const int status = Run(command + " </dev/null >" + out + " 2>" + err);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), Slurp(out),
            Slurp(err)};
  }
  // What it says about a host's files.
  std::string Doctor(int i) const { return Ctl(i, {"doctor", "--node", NodeDir(i)}).out; }
  // Starts hyperloopctl there.
  ChildProcess StartCtl(int i, std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), ProgramPath("hyperloopctl"));
    return Spawn(i, std::move(arguments));
  }
  // The group, as machine `i` names it.
  std::string Uri(int i) const { return FormatStoreUri(Options(Host(i) + "-own.pool", i)); }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  void SignalReplica(int i, int signal) { replicas_[i].Signal(signal); }
  void KillReplica(int i) { replicas_[i].Kill(); }

  // Of a primary on machine `i`.
  StoreOptions Options(const std::string& pool, int i = 0) const {
    StoreOptions options;
    for (int r = 1; r < kNodes; ++r) options.replicas.push_back(Endpoint(r));
    if (has_spare) options.replicas.push_back(Endpoint(kSpare));
    options.device = Socket(i);
    options.host = Host(i);
    options.keys = Keys(i);
    options.pool = folder_ + "/" + pool;
    options.journal_size = 1 << 20;
    options.table_capacity = 64;
    options.ack_timeout = ack_timeout;
    options.on_replica_failure = on_replica_failure;
    options.datapath = datapath;
    options.wait = WaitMode::kEvent;
    return options;
  }

  // Resets every connection of node `i`'s daemon to or from others, whatever is under way.
  int KillConnections(int i) {
    return Run("ip netns exec " + Name(i) +
               " ss -K sport = :7471 or dport = :7471 >/dev/null 2>&1");
  }
  void SetCable(int i, bool plugged) {
    ASSERT_EQ(Run("ip -n " + hub_ + " link set " + Cable(i) + (plugged ? " up" : " down")), 0);
  }
  // Nothing that one of these two sends arrives at the other one from now on. Both reach all
  // others.
  void CutBetween(int i, int other) {
    for (const auto& [from, to] : {std::pair(i, other), std::pair(other, i)})
      ASSERT_EQ(Run("ip -n " + Name(from) + " neigh replace " + Address(to) +
                    " lladdr 02:00:00:00:00:01 dev eth0 nud permanent"),
                0);
  }
  uint64_t Counter(int i, const std::string& name) const {
    auto device = softrnic::OpenDaemonDevice({Socket(i), "observer"});
    if (!device.ok()) return 0;
    auto counters = (*device)->QueryCounters();
    return counters.ok() ? (*counters)[name] : 0;
  }
  // Moves the calling process into the namespace of node `i`.
  bool Enter(int i) const {
    const int fd = open(("/run/netns/" + Name(i)).c_str(), O_RDONLY | O_CLOEXEC);
    const bool entered = fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
    close(fd);
    return entered;
  }

  ChildProcess writer;
  seconds ack_timeout{60};
  OnReplicaFailure on_replica_failure = OnReplicaFailure::kBlock;
  bool hosts_alike = false;  // by one file of hosts
  bool has_spare = false;    // the spare machine's replica is one of the group
  std::optional<Datapath> datapath;

  // The daemon ends, and the replica that uses it lives.
  void KillDaemon(int i) { daemons_[i].Kill(); }

 private:
  static int Run(const std::string& command) { return std::system(command.c_str()); }
  std::string Name(int i) const { return hub_ + "n" + std::to_string(i); }
  static std::string Cable(int i) { return "cable" + std::to_string(i); }
  static std::string Host(int i) {
    return i == 0 ? "primary" : i == kSpare ? "spare" : "replica" + std::to_string(i - 1);
  }
  static std::string Address(int i) { return "10.77.0." + std::to_string(i + 1); }
  std::string NodeDir(int i) const { return folder_ + "/node-" + Host(i); }
  std::string Keys(int i) const {
    return hosts_alike ? NodeDir(i) + "/keys" : KeysDir(folder_, Host(i));
  }
  std::string Socket(int i) const { return folder_ + "/" + Host(i) + ".sock"; }
  ChildProcess Spawn(int i, std::vector<std::string> argv) const {
    const std::vector<std::string> inside{"/sbin/ip", "netns", "exec", Name(i)};
    argv.insert(argv.begin(), inside.begin(), inside.end());
    return ChildProcess::Spawn(argv);
  }

  const std::string hub_ = "hl" + std::to_string(getpid());
  std::string folder_, host_lines_;
  ChildProcess daemons_[kMachines], replicas_[kMachines];
};

struct Progress {
  std::atomic<uint64_t> acknowledged{0};
  // failed: an append; written, read: the writer's, the reader's work is done.
  std::atomic<bool> stop{false}, failed{false}, written{false}, read{false};
  char group[64] = {}, database[64] = {};
  char failure[4096] = {};  // the error of the append; set before `failed`
};

// Appends numbered lines until told to stop, or an append fails. 0: closed in order; 7: an append
// failed with an error that may pass.
int WriteLines(const Machines& machines, Progress* progress) {
  const auto fail = [](const char* what, const Status& status) {
    std::fprintf(stderr, "writer: %s: %s\n", what, status.ToString().c_str());
    return 1;
  };
  if (!machines.Enter(0)) return 2;
  if (std::freopen(machines.Path("writer.log").c_str(), "a", stderr) == nullptr) return 2;
  auto store = Store::Open(machines.Options("first.pool"), StderrLog("writer", LogLevel::kInfo));
  if (!store.ok()) return fail("open", store.status());
  TakeRequest request;
  request.directory = "/somewhere/db";
  TakeResult taken;
  if (const Status status = (*store)->Take(request, &taken); !status.ok())
    return fail("take", status);
  taken.pairing.group.copy(progress->group, sizeof progress->group - 1);
  taken.pairing.database.copy(progress->database, sizeof progress->database - 1);
  auto file = (*store)->Create(kFile);
  if (!file.ok()) return fail("create", file.status());
  std::printf("writing\n");
  std::fflush(stdout);
  for (uint64_t n = 1; !progress->stop; ++n) {
    char line[kLine + 1];
    std::snprintf(line, sizeof line, "%08u\n", static_cast<unsigned>(n));
    if (const Status status = AppendDurably(**store, *file, std::string_view(line, kLine));
        !status.ok()) {
      std::fprintf(stderr, "writer: append: %s\n", status.ToString().c_str());
      status.message().copy(progress->failure, sizeof progress->failure - 1);
      progress->failed = true;
      return status.code() == Code::kUnavailable || status.code() == Code::kTimedOut ||
                     status.code() == Code::kAborted
                 ? 7
                 : 1;
    }
    progress->acknowledged = n;
  }
  const Status closed = (*store)->Close();
  return closed.ok() ? 0 : fail("close", closed);
}

// Another primary, on `machine` and with an empty pool, takes the group and reads the file. Every
// line up to the last acknowledged one must be there, in order, and then at most one that was under
// way.
int ReadLines(const Machines& machines, const Progress& progress, int machine) {
  const auto fail = [](const std::string& what) {
    std::fprintf(stderr, "reader: %s\n", what.c_str());
    return 1;
  };
  if (!machines.Enter(machine)) return 2;
  StoreOptions options = machines.Options("second.pool", machine);
  options.takeover = true;
  auto store = Store::Open(options, StderrLog("reader", LogLevel::kWarn));
  if (!store.ok()) return fail("open: " + store.status().ToString());
  TakeRequest request;
  request.directory = "/somewhere/db";
  request.directory_empty = false;
  request.pairing = {progress.group, progress.database};
  TakeResult taken;
  if (const Status status = (*store)->Take(request, &taken); !status.ok())
    return fail("take: " + status.ToString());
  const auto file = (*store)->Lookup(kFile);
  if (!file.ok()) return fail(file.status().ToString());
  std::string content((progress.acknowledged + 10) * kLine, '\0');
  const auto got = (*store)->Read(*file, 0, content);
  if (!got.ok()) return fail(got.status().ToString());
  const uint64_t lines = *got / kLine;
  if (*got % kLine != 0 || lines < progress.acknowledged || lines > progress.acknowledged + 1)
    return fail(std::to_string(*got) + " bytes for " + std::to_string(progress.acknowledged) +
                " acknowledged lines");
  for (uint64_t n = 1; n <= lines; ++n) {
    char line[kLine + 1];
    std::snprintf(line, sizeof line, "%08u\n", static_cast<unsigned>(n));
    if (content.compare((n - 1) * kLine, kLine, line) != 0)
      return fail("line " + std::to_string(n) + " is " + content.substr((n - 1) * kLine, kLine));
  }
  return (*store)->Close().ok() ? 0 : 1;
}

class NamespaceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = machines_.MakeNetwork(); !why.empty()) GTEST_SKIP() << why;
    progress_ = new (mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Progress();
    ASSERT_NO_FATAL_FAILURE(machines_.Start());
  }
  void StartWriter(seconds ack_timeout) {
    machines_.ack_timeout = ack_timeout;
    machines_.writer = ChildProcess::Fork([this] {
      const int status = WriteLines(machines_, progress_);
      progress_->written = true;
      return status;
    });
    ASSERT_EQ(machines_.writer.ReadLine(), "writing");
  }
  void TearDown() override {
    if (progress_ != nullptr) munmap(progress_, sizeof(Progress));
  }
  bool WaitForLines(uint64_t more) {
    const uint64_t until = progress_->acknowledged + more;
    return Eventually([&] { return progress_->acknowledged >= until; });
  }
  int WriterStatus() {
    EXPECT_TRUE(Eventually([&] { return progress_->written.load(); }));
    return machines_.writer.Wait();
  }
  // Whoever reads is a primary on this machine.
  void ExpectNothingLost(int machine = 0) {
    ChildProcess reader = ChildProcess::Fork([this, machine] {
      const int status = ReadLines(machines_, *progress_, machine);
      progress_->read = true;
      return status;
    });
    EXPECT_TRUE(Eventually([&] { return progress_->read.load(); }));
    EXPECT_EQ(reader.Wait(), 0);
  }

  // With on_replica_failure=continue, no write fails. How long it took is only printed, because it
  // depends on how fast the machine is.
  void ExpectGoesOnAfter(const std::function<void()>& fault) {
    machines_.on_replica_failure = OnReplicaFailure::kContinue;
    ASSERT_NO_FATAL_FAILURE(StartWriter(seconds(10)));
    ASSERT_TRUE(WaitForLines(50));
    const auto begun = std::chrono::steady_clock::now();
    fault();
    ASSERT_TRUE(WaitForLines(50));  // a few may still be acknowledged by all
    const auto took = std::chrono::steady_clock::now() - begun;
    std::printf("writes went on within %lld ms\n",
                static_cast<long long>(
                    std::chrono::duration_cast<std::chrono::milliseconds>(took).count()));
    EXPECT_FALSE(progress_->failed) << progress_->failure;
    progress_->stop = true;
    EXPECT_EQ(WriterStatus(), 0);
    ExpectNothingLost();
  }

  Machines machines_;
  Progress* progress_ = nullptr;
};

TEST_F(NamespaceTest, ResetsAndAPulledCableLoseNothing) {
  ASSERT_NO_FATAL_FAILURE(StartWriter(seconds(60)));
  ASSERT_TRUE(WaitForLines(50));
  for (int round = 0; round < 12; ++round) {
    ASSERT_EQ(machines_.KillConnections(round % kNodes), 0) << "ss -K needs INET_DIAG_DESTROY";
    ASSERT_TRUE(WaitForLines(20)) << "after reset " << round;
  }
  EXPECT_GE(machines_.Counter(0, "link_reconnects"), 3u);
  for (int i = 0; i < kNodes; ++i) {
    // The sleeps are the cuts; they order nothing. Two cuts last longer than the 8 tries of a
    // request at 500 ms each: only ack_timeout ends the wait, at the primary and between replicas.
    const seconds length(i % 2 == 0 ? 5 : 1);
    machines_.SetCable(i, false);
    const uint64_t before = progress_->acknowledged;
    std::this_thread::sleep_for(length);
    EXPECT_LE(progress_->acknowledged, before + 2) << "acknowledged without node " << i;
    machines_.SetCable(i, true);
    ASSERT_TRUE(WaitForLines(20)) << "after node " << i << " was back";
  }
  progress_->stop = true;
  EXPECT_EQ(WriterStatus(), 0);
  ExpectNothingLost();
}

// A machine that is gone is silent; of a daemon that is gone the kernel tells at once.
TEST_F(NamespaceTest, TheOthersGoOnWithoutAMachineThatIsGone) {
  ExpectGoesOnAfter([this] { machines_.SetCable(1, false); });
}

TEST_F(NamespaceTest, TheOthersGoOnWithoutADaemonThatIsGone) {
  ExpectGoesOnAfter([this] { machines_.KillDaemon(2); });
}

TEST_F(NamespaceTest, ACableThatStaysOutIsAnErrorAndNothingIsLost) {
  ASSERT_NO_FATAL_FAILURE(StartWriter(seconds(6)));
  ASSERT_TRUE(WaitForLines(50));
  machines_.SetCable(1, false);
  // The primary's RNIC notices the cut shortly before ack_timeout. If the first replica had already
  // received the requests under way, only ack_timeout does, because nobody reports a failure
  // further down the chain to the primary.
  EXPECT_TRUE(Eventually([&] { return progress_->failed.load(); }));
  EXPECT_THAT(progress_->failure,
              testing::AllOf(testing::ContainsRegex("out of reach since 20[0-9-]*T[0-9:]*Z: "),
                             testing::HasSubstr(machines_.Options("").replicas[0]),
                             testing::HasSubstr("hyperloopctl status")));
  // Then the primary asks every replica for its owner, and releases every replica. The replica out
  // of reach takes connect_timeout, 5 s.
  EXPECT_EQ(WriterStatus(), 7);
  machines_.SetCable(1, true);
  ExpectNothingLost();
}

// docs/operations.md, "A group on several machines": no daemon, replica or database is restarted.
TEST_F(NamespaceTest, AMachineJoinsAGroupThatIsInUse) {
  ASSERT_NO_FATAL_FAILURE(StartWriter(seconds(60)));
  ASSERT_TRUE(WaitForLines(50));
  machines_.ListPeer(kSpare);
  for (int i = 0; i < kNodes; ++i) {
    const identity::Roles replica = i == 0 ? 0 : identity::kRoleReplica;
    ASSERT_NO_FATAL_FAILURE(
        machines_.LetTrust(kSpare, i, identity::kRoleLink | identity::kRolePrimary | replica));
    ASSERT_NO_FATAL_FAILURE(machines_.LetTrust(
        i, kSpare, identity::kRoleLink | identity::kRoleReplica, machines_.Endpoint(kSpare)));
  }
  ASSERT_NO_FATAL_FAILURE(machines_.StartDaemon(kSpare));
  ASSERT_NO_FATAL_FAILURE(machines_.StartReplica(kSpare));
  for (int i = 0; i < kNodes; ++i)
    EXPECT_TRUE(Eventually([&] { return machines_.Counter(i, "links_up") == kNodes; })) << i;
  const CtlRun added =
      machines_.Ctl(0, {"add", "--uri", machines_.Uri(0), machines_.Endpoint(kSpare)});
  EXPECT_EQ(added.exit_status, 0) << added.out << added.err;
  machines_.has_spare = true;
  ASSERT_TRUE(WaitForLines(50));
  EXPECT_FALSE(progress_->failed) << progress_->failure;
  progress_->stop = true;
  EXPECT_EQ(WriterStatus(), 0);
  ExpectNothingLost();
}

// docs/operations.md, "A group on several machines": no daemon of the others is restarted.
TEST_F(NamespaceTest, AMachineThatIsTakenOutHasNoLinkToTheOthersAnyMore) {
  for (int i = 0; i < kNodes; ++i) {
    ASSERT_NO_FATAL_FAILURE(machines_.LetTrust(kSpare, i, identity::kRoleLink));
    ASSERT_NO_FATAL_FAILURE(machines_.LetTrust(i, kSpare, identity::kRoleLink));
  }
  machines_.ListPeer(kSpare);
  ASSERT_NO_FATAL_FAILURE(machines_.StartDaemon(kSpare));
  const auto links_up = [&](int i, uint64_t count) {
    return Eventually([&] { return machines_.Counter(i, "links_up") == count; });
  };
  ASSERT_TRUE(links_up(kSpare, kNodes));
  ASSERT_NO_FATAL_FAILURE(StartWriter(seconds(60)));
  ASSERT_TRUE(WaitForLines(50));
  for (int i = 0; i < kNodes; ++i) machines_.TakeOut(kSpare, machines_.TrustedFile(i));
  machines_.TakeOut(kSpare, machines_.Path("peers"));
  EXPECT_TRUE(links_up(kSpare, 0));
  for (int i = 0; i < kNodes; ++i) EXPECT_TRUE(links_up(i, kNodes - 1)) << i;
  ASSERT_TRUE(WaitForLines(50));
  EXPECT_EQ(machines_.Counter(0, "link_reconnects"), 0u) << "a link of the others was cut";
  progress_->stop = true;
  EXPECT_EQ(WriterStatus(), 0);
  ExpectNothingLost();
}

// The replicas' RNICs forward to each other, or their processors do.
class ChainTest : public NamespaceTest, public testing::WithParamInterface<Datapath> {};
INSTANTIATE_TEST_SUITE_P(Datapaths, ChainTest,
                         testing::Values(Datapath::kOffload, Datapath::kCpuPolling,
                                         Datapath::kCpuEvent));

TEST_P(ChainTest, GoesAroundACutBetweenTwoReplicas) {
  machines_.datapath = GetParam();
  ASSERT_NO_FATAL_FAILURE(StartWriter(seconds(10)));
  ASSERT_TRUE(WaitForLines(50));
  ASSERT_NO_FATAL_FAILURE(machines_.CutBetween(1, 2));
  EXPECT_TRUE(WaitForLines(20)) << progress_->failure;
  progress_->stop = true;
  EXPECT_EQ(WriterStatus(), 0);
  ExpectNothingLost();
}

void ExpectWorks(const CtlRun& run, const std::string& shows) {
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(run.out, testing::HasSubstr(shows)) << run.err;
}

// docs/operations.md, "A group on several machines": nothing but what it says was done.
TEST_F(NamespaceTest, ToolsWorkOnEachMachineAndAReplicasBecomesThePrimarys) {
  if (access("/usr/bin/ldb", X_OK) != 0) GTEST_SKIP() << "needs ldb (Debian package rocksdb-tools)";
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "ldb is not instrumented, and loads the plugin";
#endif
  machines_.on_replica_failure = OnReplicaFailure::kContinue;
  const auto on = [this](int i, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin() + 1, {"--uri", machines_.Uri(i)});
    return machines_.Ctl(i, arguments);
  };
  const auto ldb = [&](int i, const std::string& db, std::vector<std::string> what) {
    std::vector<std::string> arguments{"exec", "--", "/usr/bin/ldb", "--db=" + machines_.Path(db)};
    arguments.insert(arguments.end(), what.begin(), what.end());
    return on(i, arguments);
  };
  ExpectWorks(ldb(0, "db", {"put", "--create_if_missing", "key", "value"}), "OK");
  const auto expect_tools = [&](int i) {
    SCOPED_TRACE(i);
    ExpectWorks(on(i, {"status"}), "replica2");
    EXPECT_THAT(on(i, {"status"}).out, testing::Not(testing::HasSubstr("no route")));
    ChildProcess top = machines_.StartCtl(i, {"top", "--uri", machines_.Uri(i)});
    std::string row = top.ReadLine();
    while (!row.empty() && !row.starts_with("replica2")) row = top.ReadLine();
    EXPECT_THAT(row, testing::ContainsRegex("running +closed +[1-9]"));
    EXPECT_THAT(top.ReadLine(),
                testing::HasSubstr(i == 2 ? "RNICs not shown: primary, replica0, replica2:"
                                          : "RNICs not shown: "));
    ExpectWorks(on(i, {"verify"}), "B in use are equal");
    ExpectWorks(on(i, {"dump", "--replica", "2", "--length", "16", "--hex"}), "0000000000");
    ExpectWorks(on(i, {"export", "--replica", "1", "--to", machines_.Path("to" + std::to_string(i)),
                       "--files", machines_.Path("replica1.pool.files")}),
                "");
    EXPECT_TRUE(fs::exists(machines_.Path("to" + std::to_string(i)) + "/CURRENT"));
  };
  expect_tools(0);
  expect_tools(1);

  // A machine that nobody knows yet; the daemons' links are open meanwhile.
  machines_.ListPeer(kSpare);
  ASSERT_NO_FATAL_FAILURE(machines_.StartDaemon(kSpare));
  for (int i = 1; i < kNodes; ++i)
    ASSERT_NO_FATAL_FAILURE(
        machines_.LetTrust(kSpare, i, identity::kRoleLink | identity::kRoleReplica));
  const CtlRun refused = on(kSpare, {"status"});
  EXPECT_NE(refused.exit_status, 0);
  EXPECT_THAT(refused.err, testing::HasSubstr("on replica0: hyperloopctl keys trust --dir DIR "
                                              "spare "));
  for (int i = 1; i < kNodes; ++i)
    ASSERT_NO_FATAL_FAILURE(machines_.LetTrust(i, kSpare, identity::kRoleLink));
  expect_tools(kSpare);

  // A replica that does not answer is looked at by its RNIC once its line says where it is.
  machines_.SignalReplica(2, SIGSTOP);
  const std::string there = machines_.Options("").replicas[1];
  const CtlRun unknown = on(0, {"status"});
  EXPECT_THAT(unknown.out, testing::HasSubstr("keys trust --dir " + machines_.Options("").keys +
                                              " NAME KEY ROLES " + there));
  ASSERT_NO_FATAL_FAILURE(
      machines_.LetTrust(0, 2, identity::kRoleLink | identity::kRoleReplica, there));
  const CtlRun known = on(0, {"status", "--json"});
  EXPECT_EQ(known.exit_status, 0) << known.err;
  EXPECT_THAT(known.out, testing::HasSubstr("\"process\": \"silent\""));
  EXPECT_THAT(known.out, testing::Not(testing::HasSubstr("\"error\": \"n")));
  EXPECT_THAT(known.out, testing::Not(testing::HasSubstr("its process:")));
  machines_.SignalReplica(2, SIGCONT);

  // The primary's machine is gone.
  machines_.SetCable(0, false);
  ExpectWorks(on(1, {"promote", "--db", machines_.Path("promoted")}), "");
  ExpectWorks(ldb(1, "promoted", {"get", "key"}), "value");
  ExpectWorks(ldb(1, "promoted", {"put", "key", "another"}), "OK");
  expect_tools(2);
}

class HostsAlikeTest : public NamespaceTest {
 protected:
  void SetUp() override {
    machines_.hosts_alike = true;
    NamespaceTest::SetUp();
  }
};

// docs/operations.md, "Hosts alike": nothing but what it says was done. No daemon, replica or
// database is restarted for the host that comes.
TEST_F(HostsAlikeTest, OneFileMakesAGroupAHostComesAndAReplicasHostBecomesThePrimarys) {
  ASSERT_NO_FATAL_FAILURE(StartWriter(seconds(60)));
  ASSERT_TRUE(WaitForLines(50));
  ExpectWorks(machines_.Ctl(1, {"status", "--uri", machines_.Uri(1)}), "replica2");
  ASSERT_NO_FATAL_FAILURE(machines_.InitNode(kSpare));
  EXPECT_THAT(machines_.Doctor(kSpare), testing::HasSubstr("BAD   hosts file"));
  machines_.ShareFiles(kMachines);
  EXPECT_THAT(
      machines_.Doctor(kSpare),
      testing::AllOf(testing::HasSubstr("/hosts names 5 hosts; this one is spare at "),
                     testing::HasSubstr("ok    group g has 5 hosts, replicas at port 7000")));
  ASSERT_NO_FATAL_FAILURE(machines_.StartDaemon(kSpare));
  ASSERT_NO_FATAL_FAILURE(machines_.StartReplica(kSpare));
  for (int i = 0; i < kNodes; ++i)
    EXPECT_TRUE(Eventually([&] { return machines_.Counter(i, "links_up") == kNodes; })) << i;
  ExpectWorks(machines_.Ctl(0, {"add", "--uri", machines_.Uri(0), machines_.Endpoint(kSpare)}), "");
  machines_.has_spare = true;
  ASSERT_TRUE(WaitForLines(50));
  EXPECT_FALSE(progress_->failed) << progress_->failure;
  progress_->stop = true;
  EXPECT_EQ(WriterStatus(), 0);
  ExpectNothingLost(1);
}

// docs/operations.md, "Keys": hosts trust each other as what they are here. Only those that may be
// primaries propose changes, and only a replica whose ENDPOINT is known is added.
TEST_F(NamespaceTest, WhoMayProposeAddsAndRemovesAReplicaAndNobodyElseDoes) {
  constexpr int kOrdinary = kNodes - 1;  // its host may be a replica, and no primary
  constexpr identity::Roles kReplica = identity::kRoleLink | identity::kRoleReplica;
  for (int i = 0; i < kNodes; ++i) {
    if (i != kOrdinary) {
      ASSERT_NO_FATAL_FAILURE(machines_.LetTrust(i, kOrdinary, kReplica));
    }
    ASSERT_NO_FATAL_FAILURE(machines_.LetTrust(i, kSpare, kReplica));
    ASSERT_NO_FATAL_FAILURE(machines_.LetTrust(
        kSpare, i, i == kOrdinary ? kReplica : kReplica | identity::kRolePrimary));
  }
  machines_.ListPeer(kSpare);
  ASSERT_NO_FATAL_FAILURE(machines_.StartDaemon(kSpare));
  ASSERT_NO_FATAL_FAILURE(machines_.StartReplica(kSpare));
  machines_.on_replica_failure = OnReplicaFailure::kContinue;
  ASSERT_NO_FATAL_FAILURE(StartWriter(seconds(10)));
  const auto asks = [&](int i, const char* what) {
    return std::vector<std::string>{what, "--uri", machines_.Uri(i), machines_.Endpoint(kSpare)};
  };
  const auto in_group = [&](const std::string& chain, size_t of) {
    return Eventually([&] {
      const CtlRun status = machines_.Ctl(0, {"status", "--json", "--uri", machines_.Uri(0)});
      const auto json = nlohmann::json::parse(status.out, nullptr, false);
      return json.is_object() && json["replicas"][0][chain].size() == of;
    });
  };
  const auto writer_says = [&](const std::string& what) {
    return Eventually(
        [&] { return Slurp(machines_.Path("writer.log")).find(what) != std::string::npos; });
  };

  // A host that is no primary anywhere but at itself. Its replica tells what it asks for.
  ChildProcess refused = machines_.StartCtl(kOrdinary, asks(kOrdinary, "add"));
  EXPECT_THAT(refused.ReadLine(), testing::HasSubstr("proposed"));
  const std::string there = "replica " + machines_.Endpoint(kOrdinary);
  EXPECT_TRUE(writer_says("which " + there + " says is proposed, is not added: no host"));
  refused.Kill();
  const CtlRun stranger = machines_.Ctl(kSpare, asks(kSpare, "add"));
  EXPECT_NE(stranger.exit_status, 0);
  EXPECT_THAT(stranger.err, testing::HasSubstr("ProposeRequest needs the role primary"));
  EXPECT_TRUE(in_group("chain", kReplicas));

  // The host of a replica that may take the primary's place. The line of the new one is missing.
  ChildProcess adding = machines_.StartCtl(1, asks(1, "add"));
  EXPECT_THAT(adding.ReadLine(), testing::HasSubstr("proposed"));
  EXPECT_TRUE(writer_says("says that its ENDPOINT is " + machines_.Endpoint(kSpare)));
  ASSERT_NO_FATAL_FAILURE(machines_.LetTrust(0, kSpare, kReplica, machines_.Endpoint(kSpare)));
  EXPECT_EQ(adding.Wait(), 0);
  EXPECT_TRUE(in_group("chain", kReplicas + 1));
  ASSERT_TRUE(WaitForLines(50));

  machines_.KillReplica(kSpare);
  EXPECT_TRUE(in_group("left_out", 1));
  refused = machines_.StartCtl(kOrdinary, asks(kOrdinary, "remove"));
  EXPECT_THAT(refused.ReadLine(), testing::HasSubstr("proposed"));
  EXPECT_TRUE(writer_says("which " + there + " says is to leave, does not leave the group"));
  refused.Kill();
  EXPECT_TRUE(in_group("left_out", 1));
  ExpectWorks(machines_.Ctl(0, asks(0, "remove")), "is not in the group");
  EXPECT_TRUE(in_group("left_out", 0));

  ASSERT_TRUE(WaitForLines(50));
  progress_->stop = true;
  EXPECT_EQ(WriterStatus(), 0);
  ExpectNothingLost();
}

}  // namespace
}  // namespace hyperloop::test
