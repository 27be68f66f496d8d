// hyperloop-rnicd as a service: start and stop, clients that stop, die, fork or truncate their
// files, and its own death.
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <functional>
#include <set>
#include <thread>

#include "integration/raw_client.h"
#include "integration/rnicd_fixture.h"
#include "rnic/wqe.h"
#include "support/eventually.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using testing::HasSubstr;

// What looks at a daemon, or is refused by it.
class OneRnicdTest : public SharedRnicdTest {};

// --- start and stop

TEST_F(RnicdTest, SocketIsForThisUserOnlyWhateverTheUmask) {
  const mode_t old = umask(0);
  StartDaemon();
  umask(old);
  struct stat info {};
  ASSERT_EQ(stat(socket_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
}

TEST_F(OneRnicdTest, AnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const auto folder = std::filesystem::path(socket_).parent_path();
  std::filesystem::permissions(folder, std::filesystem::perms::all);
  // Even if somebody changes the socket's mode, the daemon checks the user of its peer.
  for (const mode_t mode : {0600, 0666}) {
    ASSERT_EQ(chmod(socket_.c_str(), mode), 0);
    auto other = ChildProcess::Fork([&] {
      if (setgid(65534) != 0 || setuid(65534) != 0) return 2;
      auto device = softrnic::OpenDaemonDevice({socket_, "h"});
      return device.status().code() == Code::kPermissionDenied ? 0 : 1;
    });
    EXPECT_EQ(other.Wait(), 0) << "mode " << mode;
  }
  ASSERT_EQ(chmod(socket_.c_str(), 0600), 0);
  std::filesystem::permissions(folder, std::filesystem::perms::owner_all);
}

TEST_F(OneRnicdTest, SecondDaemonIsRefusedAndTheFirstGoesOn) {
  auto second = ChildProcess::Spawn(DaemonArgs());
  EXPECT_EQ(second.ReadLine(), "");
  EXPECT_EQ(second.Wait(), 1);
}

TEST_F(RnicdTest, StaleSocketIsReplaced) {
  ASSERT_NO_FATAL_FAILURE(StartDaemon());
  daemon_.Kill();
  ASSERT_TRUE(std::filesystem::exists(socket_));
  auto nobody = softrnic::OpenDaemonDevice({socket_, "h"});
  EXPECT_THAT(nobody, StatusIs(Code::kUnavailable, HasSubstr("hyperloop-rnicd --socket")));
  ASSERT_NO_FATAL_FAILURE(StartDaemon());
  ExpectDaemonServes();
}

TEST_F(RnicdTest, FileInTheSocketsPlaceIsLeftAlone) {
  std::ofstream(socket_) << "precious";
  auto refused = ChildProcess::Spawn(DaemonArgs());
  EXPECT_EQ(refused.Wait(), 2) << "another --socket has to be chosen";
  std::string content;
  std::ifstream(socket_) >> content;
  EXPECT_EQ(content, "precious");
}

// A daemon whose messages come through ReadLine, too. `prepare` runs in its process first.
ChildProcess SpawnHeard(std::vector<std::string> args, const std::function<void()>& prepare) {
  args.insert(args.begin(), ProgramPath("hyperloop-rnicd"));
  return ChildProcess::Fork([args, prepare] {
    dup2(STDOUT_FILENO, STDERR_FILENO);
    prepare();
    std::vector<char*> argv;
    for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    return 127;
  });
}

TEST_F(RnicdTest, BadArgumentsAreRefusedWithTheReason) {
  struct Case {
    std::vector<std::string> args;
    std::string reason;
  };
  const std::vector<std::string> socket{"--socket", socket_};
  const std::vector<Case> bad = {
      {{"--spin-us", "-1"}, "--spin-us"},
      {{"--spin-us", "x"}, "--spin-us"},
      {{"--priority", "high"}, "--priority"},
      {{"--cpu", "99999"}, "--cpu: '99999' is no processor of this machine: 0 to "},
      {{"--cpu", "first"}, "--cpu: 'first' is no processor of this machine: 0 to "},
      {{"--cpu", "-7"}, "--cpu: '-7' is no processor of this machine: 0 to "},
      {{"--unknown"}, "--unknown"},
      {{"--priority", "fifo", "--spin-us", "50"}, "--priority fifo with --spin-us"},
  };
  const auto expect_refusal = [](const std::vector<std::string>& args, const std::string& reason) {
    auto refused = SpawnHeard(args, [] {});
    const int status = refused.Wait();
    EXPECT_GT(status, 0) << reason;
    EXPECT_LT(status, 127) << reason;
    std::string text;
    for (int i = 0; i < 20; ++i) text += refused.ReadLine() + "\n";
    EXPECT_THAT(text, HasSubstr(reason));
    EXPECT_THAT(text, testing::Not(HasSubstr("ready ")));
  };
  for (const Case& each : bad) {
    std::vector<std::string> args = socket;
    args.insert(args.end(), each.args.begin(), each.args.end());
    expect_refusal(args, each.reason);
    EXPECT_FALSE(std::filesystem::exists(socket_)) << each.reason;
  }
  expect_refusal({"--socket", "/nowhere/at/all"}, "the socket's directory /nowhere/at/");
  expect_refusal({"--socket", "/dev/null/rnicd.sock"}, "the socket's directory /dev/null/");
  expect_refusal({"--socket", folder_ + "/" + std::string(200, 'x')}, "socket path of");
  expect_refusal({}, "--socket is required");
}

// Runs without the right to raise priorities, as for an ordinary user, and says what that costs.
TEST_F(RnicdTest, WithoutPermissionForItsPriorityItWarnsAndGoesOn) {
  for (const std::string priority : {"nice", "fifo", "none"}) {
    daemon_ = SpawnHeard({"--socket", socket_, "--spin-us", "0", "--priority", priority}, [] {
      prctl(PR_CAPBSET_DROP, CAP_SYS_NICE, 0, 0, 0);  // fails for a user who has none
      const rlimit none{0, 0};
      setrlimit(RLIMIT_NICE, &none);
      setrlimit(RLIMIT_RTPRIO, &none);
    });
    const std::string warning = priority == "none" ? "" : daemon_.ReadLine();
    const std::string expected = priority == "nice"   ? "no permission for nice -20"
                                 : priority == "fifo" ? "no permission for SCHED_FIFO"
                                                      : "";
    EXPECT_THAT(warning, HasSubstr(expected));
    EXPECT_EQ(daemon_.ReadLine(), "ready " + socket_) << priority;
    ExpectDaemonServes();
    daemon_.Kill();
  }
}

// The first one spins on the last processor of those that this process may use.
TEST_F(RnicdTest, ASecondDaemonOnTheProcessorOfASpinningOneSaysSo) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  if (CPU_COUNT(&allowed) < 2) GTEST_SKIP() << "needs two processors";
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &allowed)) --last;
  const auto here = [this] { setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1); };  // the lock files
  const std::string one = folder_ + "/one.sock", two = folder_ + "/two.sock";
  auto first = SpawnHeard({"--socket", one, "--priority", "none", "--spin-us", "1"}, here);
  ASSERT_EQ(first.ReadLine(), "ready " + one);
  const std::string other = "another hyperloop-rnicd (process " + std::to_string(first.pid()) +
                            ") spins on processor " + std::to_string(last);
  for (const auto& [cpu, consequence] :
       {std::pair<std::string, std::string>("auto", "this one is not pinned"),
        std::pair<std::string, std::string>(std::to_string(last), "this one will not spin")}) {
    auto second =
        SpawnHeard({"--socket", two, "--priority", "none", "--spin-us", "1", "--cpu", cpu}, here);
    EXPECT_THAT(second.ReadLine(), testing::AllOf(HasSubstr(other), HasSubstr(consequence)));
    EXPECT_EQ(second.ReadLine(), "ready " + two);
    second.Kill();
  }
  first.Kill();
}

// A sleeping engine that is woken on the client's own processor would take it: the client moves.
TEST_F(RnicdTest, ClientStepsOffTheProcessorOfASleepingEngine) {
  cpu_set_t allowed, last_only, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  if (CPU_COUNT(&allowed) < 2) GTEST_SKIP() << "needs two processors";
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &allowed)) --last;
  CPU_ZERO(&last_only);
  CPU_SET(last, &last_only);
  daemon_ = ChildProcess::Spawn(DaemonArgs({"--spin-us", "0", "--cpu", std::to_string(last)}));
  ASSERT_EQ(daemon_.ReadLine(), "ready " + socket_);
  RnicNode node;
  ASSERT_NO_FATAL_FAILURE(OpenLoopback(&node));
  auto counters = node.device->QueryCounters();
  ASSERT_OK(counters);
  EXPECT_EQ((*counters)["daemon_cpu"], static_cast<uint64_t>(last));
  // On a busy machine the engine may be awake for another reason, or not asleep again yet. Where
  // clients do not move, they are elsewhere by chance only.
  constexpr int kRounds = 20;
  const auto moved = [&] {
    int times = 0;
    for (int i = 0; i < kRounds; ++i) {
      EXPECT_EQ(sched_setaffinity(0, sizeof last_only, &last_only), 0);
      EXPECT_OK(node.RunNop());  // the engine was seen there, and sleeps again
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // it moves once per ms at most
      EXPECT_EQ(sched_setaffinity(0, sizeof allowed, &allowed), 0);
      const rnic::SendRequest nop{.opcode = rnic::Opcode::kNop, .signaled = true};
      EXPECT_OK(node.qp->Post({&nop, 1}));
      times += sched_getcpu() != last;
      EXPECT_OK(node.Await());
    }
    return times;
  };
  EXPECT_TRUE(Eventually([&] { return HasFailure() || moved() >= kRounds / 2; }));
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&after, &allowed)) << "its affinity is what it was";
}

TEST_F(RnicdTest, HelpNamesUnitsAndDefaults) {
  auto help = ChildProcess::Spawn({ProgramPath("hyperloop-rnicd"), "--help"});
  std::string text;
  for (std::string line = help.ReadLine();; line = help.ReadLine()) {
    text += line + "\n";
    if (line.find("--priority") != std::string::npos) break;
    ASSERT_LT(text.size(), 10'000u);
  }
  EXPECT_THAT(text, HasSubstr("microseconds"));
  EXPECT_THAT(text, HasSubstr("=50"));
}

TEST_F(RnicdTest, TerminationIsCleanAndSeenByClients) {
  for (const int signal : {SIGTERM, SIGINT}) {
    ASSERT_NO_FATAL_FAILURE(StartDaemon());
    RnicNode node;
    ASSERT_NO_FATAL_FAILURE(OpenLoopback(&node));
    ASSERT_OK(node.RunNop());
    daemon_.Signal(signal);
    EXPECT_EQ(daemon_.Wait(), 0);
    EXPECT_FALSE(std::filesystem::exists(socket_));
    EXPECT_FALSE(node.device->alive());
    EXPECT_THAT(node.Await(), StatusIs(Code::kUnavailable));
    EXPECT_THAT(node.RunNop(), StatusIs(Code::kUnavailable));
    EXPECT_THAT(node.device->CreateCq({}), StatusIs(Code::kUnavailable));
    EXPECT_THAT(node.device->QueryCounters(), StatusIs(Code::kUnavailable));
  }
}

// One client sleeps on a completion channel and waits for a completion, another one only asks
// whether its device is alive. The daemon cannot clear engine_alive in the UAR page.
TEST_F(RnicdTest, AKilledDaemonEndsSleepsAndWaitingLoops) {
  ASSERT_NO_FATAL_FAILURE(StartDaemon());
  RnicNode node, looker;
  ASSERT_NO_FATAL_FAILURE(OpenLoopback(&node));
  ASSERT_NO_FATAL_FAILURE(OpenLoopback(&looker));
  ASSERT_OK(node.RunNop());
  auto cq = node.device->CreateCq({.depth = 16, .events = true});
  ASSERT_OK(cq);
  ASSERT_OK((*cq)->RequestNotify(false));
  pollfd waits{.fd = (*cq)->event_fd(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&waits, 1, 0), 0);
  daemon_.Kill();
  EXPECT_EQ(poll(&waits, 1, 60'000), 1) << "sleeps on a dead device";
  EXPECT_THAT((*cq)->TakeEvents(), StatusIs(Code::kUnavailable));
  EXPECT_THAT(node.Await(), StatusIs(Code::kUnavailable))
      << "what timed out is the test's patience";
  EXPECT_FALSE(node.device->alive());
  EXPECT_THAT(node.RunNop(), StatusIs(Code::kUnavailable));
  EXPECT_TRUE(Eventually([&looker] { return !looker.device->alive(); }));
}

// --- clients

// A child process with a node "child", connected to `peer`'s queue pair, that has posted 64
// receives and then sleeps.
class RnicdClientTest : public SharedRnicdTest {
 protected:
  void SetUp() override {
    SharedRnicdTest::SetUp();
    auto opened = RnicNode::Open(socket_, "parent");
    ASSERT_OK(opened);
    parent_ = std::move(*opened);
  }
  // `before_sleep` runs in the child.
  void StartChild(const std::function<void()>& before_sleep = [] {}) {
    const rnic::QpAddress address = parent_.qp->address();
    child_ = ChildProcess::Fork([this, address, &before_sleep] {
      auto node = RnicNode::Open(socket_, "child");
      if (!node.ok() || !node->qp->Connect(address).ok()) return 1;
      const rnic::Sge sge = node->sge(4096, 8);
      for (uint64_t i = 0; i < 64; ++i) {
        const rnic::ReceiveRequest receive{.id = i, .sges = {&sge, 1}};
        if (!node->qp->PostReceive({&receive, 1}).ok()) return 1;
      }
      std::printf("%u %lu %u\n", node->qp->qpn(), node->mr->addr(), node->mr->rkey());
      for (const uint8_t byte : node->qp->address().gid.raw) std::printf("%u ", byte);
      std::printf("\n");
      std::fflush(stdout);
      before_sleep();
      for (;;) pause();
    });
    rnic::QpAddress peer;
    ASSERT_EQ(
        std::sscanf(child_.ReadLine().c_str(), "%u %lu %u", &peer.qpn, &child_addr_, &child_rkey_),
        3);
    std::istringstream gid(child_.ReadLine());
    for (uint8_t& byte : peer.gid.raw) {
      int value = 0;
      gid >> value;
      byte = static_cast<uint8_t>(value);
    }
    ASSERT_OK(parent_.qp->Connect(peer));
  }
  // Writes to the child's memory until that fails, and returns how.
  std::string WriteUntilFailure() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < deadline) {
      const Status status = parent_.WriteWord(child_addr_, child_rkey_, 1);
      if (!status.ok()) return status.message();
    }
    return "never";
  }

  RnicNode parent_;
  ChildProcess child_;
  uint64_t child_addr_ = 0;
  uint32_t child_rkey_ = 0;
};

TEST_F(RnicdClientTest, StoppedClientsQueuesKeepWorking) {
  ASSERT_NO_FATAL_FAILURE(StartChild());
  child_.Signal(SIGSTOP);
  for (uint64_t i = 1; i <= 64; ++i) {
    ASSERT_OK(parent_.WriteWord(child_addr_, child_rkey_, i));
    parent_.word(8) = 100 + i;
    const rnic::Sge payload = parent_.sge(8, 8);
    ASSERT_OK(parent_.Run({.opcode = rnic::Opcode::kSend, .sges = {&payload, 1}}));
    // The memory of the stopped process now has the written word, and the one that a receive took.
    const rnic::Sge back = parent_.sge(16, 8);
    ASSERT_OK(parent_.Run({.opcode = rnic::Opcode::kRead,
                           .sges = {&back, 1},
                           .remote_addr = child_addr_,
                           .rkey = child_rkey_}));
    ASSERT_EQ(parent_.word(16), i);
    ASSERT_OK(parent_.Run({.opcode = rnic::Opcode::kRead,
                           .sges = {&back, 1},
                           .remote_addr = child_addr_ + 4096,
                           .rkey = child_rkey_}));
    ASSERT_EQ(parent_.word(16), 100 + i);
  }
  child_.Signal(SIGCONT);
}

TEST_F(RnicdClientTest, KilledClientsQueuesAreDestroyed) {
  ASSERT_NO_FATAL_FAILURE(StartChild());
  ASSERT_OK(parent_.WriteWord(child_addr_, child_rkey_, 1));
  child_.Kill();
  EXPECT_EQ(WriteUntilFailure(), "transport retry exceeded");
  ExpectDaemonServes();
}

TEST_F(RnicdClientTest, DeathIsSeenThoughAForkedChildHoldsTheSocket) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ASSERT_NO_FATAL_FAILURE(StartChild([&ends] {
    if (fork() != 0) return;
    close(ends[1]);
    close(STDOUT_FILENO);
    char byte;
    // Until the test closes its end, or dies.
    [[maybe_unused]] ssize_t n = read(ends[0], &byte, 1);
    _exit(0);
  }));
  ASSERT_OK(parent_.WriteWord(child_addr_, child_rkey_, 1));
  child_.Kill();
  EXPECT_EQ(WriteUntilFailure(), "transport retry exceeded");
  close(ends[0]);
  close(ends[1]);
}

TEST_F(OneRnicdTest, ForkedChildCannotUseTheParentsDevice) {
  auto node = std::make_unique<RnicNode>();
  ASSERT_NO_FATAL_FAILURE(OpenLoopback(node.get()));
  ASSERT_OK(node->RunNop());
  auto child = ChildProcess::Fork([&node] {
    const rnic::SendRequest nop{.opcode = rnic::Opcode::kNop, .signaled = true};
    const rnic::Sge sge = {1, 1, 1};
    const rnic::ReceiveRequest receive{.id = 1, .sges = {&sge, 1}};
    rnic::Completion completion;
    const auto unavailable = [](const Status& s) { return s.code() == Code::kUnavailable; };
    int wrong = 0;
    wrong += node->device->alive();
    wrong += !unavailable(node->qp->Post({&nop, 1}));
    wrong += !unavailable(node->qp->PostReceive({&receive, 1}));
    wrong += !unavailable(node->qp->RingDoorbell(1));
    wrong += !unavailable(node->qp->Reset());
    wrong += !unavailable(node->qp->raw_queues().status());
    wrong += !unavailable(node->cq->Poll({&completion, 1}).status());
    wrong += !unavailable(node->device->CreateCq({}).status());
    wrong += !unavailable(node->device->AllocatePd().status());
    wrong += !unavailable(node->device->AllocateBuffer(1).status());
    wrong += !unavailable(node->device->QueryCounters().status());
    node->qp->Retire(0);
    node.reset();  // does nothing
    return wrong;
  });
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_OK(node->RunNop());
  // The queue memory was not there in the child: its copy-on-write cannot have moved ours either.
  EXPECT_OK(node->WriteWord(node->mr->addr() + 64, node->mr->rkey(), 7));
  EXPECT_EQ(node->word(64), 7u);
}

TEST_F(OneRnicdTest, TruncatedFileIsAProtectionErrorAndTheDaemonLives) {
  const std::string path = folder_ + "/region";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(ftruncate(fd, 1 << 20), 0);
  void* map = mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(map, MAP_FAILED);
  RnicNode node;
  ASSERT_NO_FATAL_FAILURE(OpenLoopback(&node));
  auto mr = node.pd->Register(map, 1 << 20, RnicNode::kAllAccess, {.fd = fd});
  ASSERT_OK(mr);
  const uint64_t addr = (*mr)->addr() + (512 << 10);
  ASSERT_OK(node.WriteWord(addr, (*mr)->rkey(), 5));
  ASSERT_EQ(ftruncate(fd, 0), 0);
  const Status refused = node.WriteWord(addr, (*mr)->rkey(), 6);
  EXPECT_EQ(refused.message(), "remote access error");
  ASSERT_OK(node.qp->Reset());
  ASSERT_OK(node.qp->Connect(node.qp->address()));
  EXPECT_OK(node.WriteWord(node.mr->addr() + 64, node.mr->rkey(), 7));
  EXPECT_THAT(node.WriteWord(addr, (*mr)->rkey(), 8), StatusIs(Code::kAborted))
      << "the key stays bad";
  ExpectDaemonServes();
  munmap(map, 1 << 20);
  close(fd);
}

TEST_F(OneRnicdTest, KeysOfTheSameMemoryShareOneMapping) {
  const std::string path = folder_ + "/shared-region";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(ftruncate(fd, 1 << 20), 0);
  void* map = mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(map, MAP_FAILED);
  const auto mappings = [&] {
    std::ifstream maps("/proc/" + std::to_string(daemon().pid()) + "/maps");
    size_t n = 0;
    for (std::string line; std::getline(maps, line);) n += line.find("shared-region") != line.npos;
    return n;
  };
  RnicNode node;
  ASSERT_NO_FATAL_FAILURE(OpenLoopback(&node));
  auto first = node.pd->Register(map, 1 << 20, rnic::kRemoteRead, {.fd = fd});
  ASSERT_OK(first);
  auto second = node.pd->Register(map, 1 << 20, RnicNode::kAllAccess, {.fd = fd});
  ASSERT_OK(second);
  EXPECT_EQ(mappings(), 1u);
  const auto part = node.pd->Register(map, 4096, RnicNode::kAllAccess, {.fd = fd});
  ASSERT_OK(part);
  EXPECT_EQ(mappings(), 2u) << "another range";
  // Each key has its own rights, and goes alone.
  const uint64_t addr = (*second)->addr() + 64;
  EXPECT_OK(node.WriteWord(addr, (*second)->rkey(), 5));
  const uint32_t gone = (*second)->rkey();
  second->reset();
  EXPECT_EQ(mappings(), 2u);
  EXPECT_EQ(node.WriteWord(addr, gone, 6).message(), "remote access error");
  ASSERT_OK(node.qp->Reset());
  ASSERT_OK(node.qp->Connect(node.qp->address()));
  EXPECT_EQ(node.WriteWord(addr, (*first)->rkey(), 7).message(), "remote access error");
  munmap(map, 1 << 20);
  close(fd);
}

TEST_F(OneRnicdTest, ClientsThatComeAndGoLeaveNothingBehind) {
  const std::string proc = "/proc/" + std::to_string(daemon().pid());
  const auto count = [&proc] {
    size_t n = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(proc + "/fd"))
      ++n;
    std::ifstream maps(proc + "/maps");
    for (std::string line; std::getline(maps, line);) n += line.find("hyperloop-") != line.npos;
    return n;
  };
  ExpectDaemonServes();
  // A device's destruction closes its socket; the next one's open is answered after the daemon has
  // seen that.
  RnicNode witness;
  ASSERT_NO_FATAL_FAILURE(OpenLoopback(&witness));
  const size_t before = count();
  for (int i = 0; i < 50; ++i) {
    RnicNode node;
    ASSERT_NO_FATAL_FAILURE(OpenLoopback(&node));
    ASSERT_OK(node.RunNop());
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(300);
  while (count() > before) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  EXPECT_OK(witness.RunNop());
}

// Ten NOPs stand behind a WAIT, and are rewritten after the daemon has met the WAIT. It runs those
// that it took ahead of their turn as they were.
TEST_F(RnicdTest, WqesAreTakenAheadOfTheirTurnUnlessToldOtherwise) {
  constexpr uint16_t kNops = 10;
  const std::vector<std::pair<std::vector<std::string>, uint64_t>> cases = {
      {{}, 7}, {{"--prefetch", "3"}, 2}, {{"--prefetch", "0"}, 0}};
  for (const auto& [args, stale] : cases) {
    ASSERT_NO_FATAL_FAILURE(StartDaemon(args));
    auto device = softrnic::OpenDaemonDevice({socket_, "host"});
    ASSERT_OK(device);
    auto end = RnicEnd::Make(std::move(*device), {.cross_channel = true});
    ASSERT_OK(end);
    RnicNode waits;
    static_cast<RnicEnd&>(waits) = std::move(*end);
    ASSERT_OK(waits.qp->Connect(waits.qp->address()));
    const auto counter = [&waits](const char* name) {
      auto counters = waits.device->QueryCounters();
      EXPECT_OK(counters);
      return counters.ok() ? (*counters)[name] : 0;
    };
    auto cq = waits.device->CreateCq({});
    ASSERT_OK(cq);
    rnic::QpAttr attr;
    attr.send_cq = attr.recv_cq = cq->get();
    auto other = waits.pd->CreateQueuePair(attr);
    ASSERT_OK(other);
    ASSERT_OK((*other)->Connect((*other)->address()));

    std::array<rnic::SendRequest, 1 + kNops> requests;
    requests.fill({.opcode = rnic::Opcode::kNop});
    requests[0] = {.opcode = rnic::Opcode::kWait, .object = (*cq)->cqn(), .index = 0};
    ASSERT_OK(waits.qp->Post(requests));
    ASSERT_TRUE(Eventually([&] { return counter("wait_stalls") == 1; }));
    const auto queues = waits.qp->raw_queues();
    ASSERT_OK(queues);
    for (uint16_t i = 1; i <= kNops; ++i)
      rnic::EncodeNop(queues->sq + i * rnic::kWqebbBytes,
                      {.qpn = waits.qp->qpn(), .index = i, .completion = rnic::CqeMode::kAlways});
    const rnic::SendRequest nop{.opcode = rnic::Opcode::kNop, .signaled = true};
    ASSERT_OK((*other)->Post({&nop, 1}));
    ASSERT_TRUE(Eventually([&] { return counter("nops") == 1 + kNops; }));
    EXPECT_EQ(counter("stale_fetches"), stale);
    EXPECT_EQ(counter("cqes"), 1 + kNops - stale) << "only those that were rewritten in time";
    daemon_.Kill();
  }
}

// A connection to the daemon's socket, with a device on it.
Result<std::unique_ptr<rnic::Device>> Connection(const std::string& socket) {
  return softrnic::OpenDaemonDevice({socket, "host"});
}
bool IsRefused(const Result<std::unique_ptr<rnic::Device>>& device, const std::string& option) {
  return device.status().code() == Code::kNoSpace &&
         device.status().message().find("(" + option + ")") != std::string::npos;
}

TEST_F(RnicdTest, AProcessWithTheMostConnectionsIsRefusedAndOthersAreNot) {
  ASSERT_NO_FATAL_FAILURE(StartDaemon({"--client-connections", "2"}));
  auto first = Connection(socket_), second = Connection(socket_);
  ASSERT_OK(first);
  ASSERT_OK(second);
  for (int i = 0; i < 3; ++i) {
    const auto third = Connection(socket_);
    EXPECT_TRUE(IsRefused(third, "--client-connections")) << third.status().ToString();
  }
  auto other = ChildProcess::Fork([this] {
    const auto a = Connection(socket_), b = Connection(socket_), c = Connection(socket_);
    return a.ok() && b.ok() && IsRefused(c, "--client-connections") ? 0 : 1;
  });
  EXPECT_EQ(other.Wait(), 0);
  first->reset();
  ASSERT_OK((*second)->QueryCounters());  // the daemon has seen the end of the first by now
  EXPECT_OK(Connection(socket_));
}

TEST_F(RnicdTest, ConnectionsOfAllProcessesAreBoundedTogether) {
  ASSERT_NO_FATAL_FAILURE(StartDaemon({"--connections", "3"}));
  auto other = ChildProcess::Fork([this]() -> int {
    const auto device = Connection(socket_);
    std::printf("%s\n", device.status().ToString().c_str());
    std::fflush(stdout);
    for (;;) pause();
  });
  ASSERT_EQ(other.ReadLine(), Status().ToString());
  auto second = Connection(socket_), third = Connection(socket_);
  ASSERT_OK(second);
  ASSERT_OK(third);
  for (int i = 0; i < 3; ++i) {
    const auto fourth = Connection(socket_);
    EXPECT_TRUE(IsRefused(fourth, "--connections")) << fourth.status().ToString();
  }
  second->reset();
  ASSERT_OK((*third)->QueryCounters());  // the daemon has seen the end of the second by now
  EXPECT_OK(Connection(socket_));
}

// The command of the second client has its answer before the memory of the first one is populated.
TEST_F(OneRnicdTest, LargeMemoryIsPopulatedWhileOthersAreAnswered) {
  constexpr uint64_t kSize = 256 << 20;
  const UniqueFd memory(memfd_create("large", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(fallocate(memory.get(), 0, 0, kSize), 0);
  ASSERT_EQ(fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  softrnic::Command large = RawClient::Make(softrnic::Op::kRegisterUmem);
  large.args.umem = {0x10000, 0, kSize};
  const softrnic::Command small = RawClient::Make(softrnic::Op::kQueryCounters);
  bool told = false;
  for (int i = 0; i < 100 && !told; ++i) {
    RawClient first(socket_), second(socket_);
    ASSERT_EQ(first.Attach().code, Code::kOk);
    ASSERT_EQ(second.Attach().code, Code::kOk);
    daemon().Signal(SIGSTOP);
    ASSERT_TRUE(first.Send(&large, sizeof large, {memory.get()}));
    ASSERT_TRUE(second.Send(&small, sizeof small));
    daemon().Signal(SIGCONT);
    std::array<pollfd, 2> ready{pollfd{first.fd(), POLLIN, 0}, pollfd{second.fd(), POLLIN, 0}};
    ASSERT_GT(poll(ready.data(), ready.size(), 20'000), 0);
    ASSERT_TRUE(ready[1].revents != 0) << "the second command waited for the first one's memory";
    told = ready[0].revents == 0;  // else this thread slept, and the order cannot be told
    EXPECT_EQ(first.Receive().code, Code::kOk);
    EXPECT_EQ(second.Receive().code, Code::kOk);
  }
  EXPECT_TRUE(told);
}

TEST_F(OneRnicdTest, CountersShowTheDaemonAndItsLoop) {
  RnicNode node;
  ASSERT_NO_FATAL_FAILURE(OpenLoopback(&node));
  auto counters = node.device->QueryCounters();
  ASSERT_OK(counters);
  EXPECT_EQ((*counters)["daemon_pid"], static_cast<uint64_t>(daemon().pid()));
  for (const char* name : {"host_stalls", "engine_turns", "engine_idle_turns", "engine_sleeps"}) {
    EXPECT_EQ(counters->count(name), 1u) << name;
  }
}

TEST_F(OneRnicdTest, NoDoorbellIsLostAcrossProcesses) {
  RnicNode node;
  ASSERT_NO_FATAL_FAILURE(OpenLoopback(&node));
  const auto sleeps = [&node] {
    auto counters = node.device->QueryCounters();
    EXPECT_OK(counters);
    return counters.ok() ? (*counters)["engine_sleeps"] : 0;
  };
  const uint64_t before = sleeps();
  for (int i = 0; i < 2'000; ++i) ASSERT_OK(node.RunNop());
  EXPECT_GT(sleeps() - before, 50u) << "this test is about a daemon that sleeps";
}

}  // namespace
}  // namespace hyperloop::test
