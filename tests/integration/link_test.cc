// Two RNIC daemons and the links between them, through a proxy that plays the network.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "common/frame_reader.h"
#include "hyperloop/identity/secure_channel.h"
#include "integration/rnicd_fixture.h"
#include "support/free_address.h"
#include "support/keys.h"
#include "support/status_matchers.h"
#include "support/tcp_proxy.h"

namespace hyperloop::test {
namespace {

using rnic::Opcode;
using rnic::WcStatus;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

// The time until an unanswered request fails; a shorter cut has no effect.
constexpr milliseconds kTimeout{4000};
constexpr milliseconds kHealAfter{1000};

// A connection to "127.0.0.1:PORT" on which nothing is said.
int ConnectTo(const std::string& address) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.find(':') + 1))));
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  return fd;
}

// Processor time that a process has used, in 1/100 s.
uint64_t CpuTicks(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string skipped;
  uint64_t user = 0, system = 0;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  fields >> user >> system;
  return user + system;
}

class LinkTest : public testing::Test {
 protected:
  LinkTest() {
    std::string path = std::filesystem::temp_directory_path() / "hyperloop-link-XXXXXX";
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    folder_ = path;
  }
  ~LinkTest() override {
    a_.Kill();
    b_.Kill();
    std::filesystem::remove_all(folder_);
  }

  std::string WriteFile(const std::string& name, const std::string& text, mode_t mode = 0600) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }
  std::string Socket(const std::string& name) const { return folder_ + "/" + name + ".sock"; }
  ChildProcess StartDaemon(const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> args = {ProgramPath("hyperloop-rnicd"),
                                     "--socket",
                                     Socket(name),
                                     "--priority",
                                     "none",
                                     "--spin-us",
                                     "0"};
    args.insert(args.end(), more.begin(), more.end());
    ChildProcess daemon = ChildProcess::Spawn(args);
    EXPECT_EQ(daemon.ReadLine(), "ready " + Socket(name));
    return daemon;
  }
  // Host a's requests go through `network_`, host b's straight.
  void StartBoth(const std::vector<std::string>& a_more = {"--insecure"},
                 const std::vector<std::string>& b_more = {"--insecure"}) {
    const std::string a_at = FreeAddress(), b_at = FreeAddress();
    network_.SetTarget(b_at);
    a_args_ = {"--listen", a_at, "--peer", "b=" + network_.address()};
    b_args_ = {"--listen", b_at, "--peer", "a=" + a_at};
    a_args_.insert(a_args_.end(), a_more.begin(), a_more.end());
    b_args_.insert(b_args_.end(), b_more.begin(), b_more.end());
    a_ = StartDaemon("a", a_args_);
    b_ = StartDaemon("b", b_args_);
  }
  void OpenPair(Node* a, Node* b) {
    auto opened = Node::Open(Socket("a"), "a");
    ASSERT_OK(opened);
    *a = std::move(*opened);
    opened = Node::Open(Socket("b"), "b");
    ASSERT_OK(opened);
    *b = std::move(*opened);
    ASSERT_OK(a->qp->Connect(b->qp->address()));
    ASSERT_OK(b->qp->Connect(a->qp->address()));
  }
  // Raises the word at `remote` by one; its old value is in node.word(8).
  static Status Raise(Node& node, const Node& remote) {
    const rnic::Sge result = node.sge(8, 8);
    return node.Run({.opcode = Opcode::kFetchAdd,
                     .sges = {&result, 1},
                     .remote_addr = remote.mr->addr() + 256,
                     .rkey = remote.mr->rkey(),
                     .compare_or_add = 1});
  }
  static uint64_t Counter(Node& node, const std::string& name) {
    auto counters = node.device->QueryCounters();
    return counters.ok() ? (*counters)[name] : 0;
  }
  // The output and exit status of a daemon that refuses its command line.
  std::string Refusal(const std::vector<std::string>& more) {
    std::string command = ProgramPath("hyperloop-rnicd") + " --socket " + Socket("x");
    for (const std::string& each : more) command += " '" + each + "'";
    command += " 2>&1; echo status $?";
    ChildProcess shell = ChildProcess::Spawn({"/bin/sh", "-c", command});
    std::string text;
    for (std::string line = shell.ReadLine(); !line.empty(); line = shell.ReadLine())
      text += line + "\n";
    return text;
  }

  std::string folder_;
  TcpProxy network_;
  std::vector<std::string> a_args_, b_args_;
  ChildProcess a_, b_;
};

TEST_F(LinkTest, OperationsCrossBetweenDaemons) {
  StartBoth();
  Node a, b;
  ASSERT_NO_FATAL_FAILURE(OpenPair(&a, &b));
  EXPECT_OK(a.WriteWord(b.mr->addr() + 128, b.mr->rkey(), 4711));
  EXPECT_EQ(b.word(128), 4711u);
  for (uint64_t i = 0; i < 100; ++i) {
    ASSERT_OK(Raise(a, b));
    ASSERT_EQ(a.word(8), i);
  }
  // The other way, on the other link.
  EXPECT_OK(b.WriteWord(a.mr->addr() + 128, a.mr->rkey(), 815));
  EXPECT_EQ(a.word(128), 815u);
  const Status bad = a.WriteWord(b.mr->addr(), b.mr->rkey() + 1, 1);
  EXPECT_NE(bad.message().find(std::string(rnic::WcStatusName(WcStatus::kRemoteAccess))),
            std::string::npos)
      << bad.ToString();
  EXPECT_EQ(Counter(a, "links_up"), 1u);
  EXPECT_GE(Counter(a, "link_frames_sent"), 102u);
  EXPECT_EQ(Counter(a, "link_reconnects"), 0u);
}

// A link with keys works, also after a reset. (secure_channel_test.cc checks the bytes on the
// wire.)
TEST_F(LinkTest, AKeyedLinkWorks) {
  ASSERT_NO_FATAL_FAILURE(MakeKeys(folder_, {"a", "b"}, identity::kRoleLink));
  StartBoth({"--keys", KeysDir(folder_, "a")}, {"--keys", KeysDir(folder_, "b")});
  Node a, b;
  ASSERT_NO_FATAL_FAILURE(OpenPair(&a, &b));
  for (uint64_t i = 0; i < 20; ++i) {
    ASSERT_OK(Raise(a, b));
    ASSERT_EQ(a.word(8), i);
  }
  network_.ResetAfter(1);
  for (uint64_t i = 20; i < 40; ++i) {
    ASSERT_OK(Raise(a, b));
    ASSERT_EQ(a.word(8), i);
  }
  EXPECT_EQ(Counter(a, "link_reconnects"), 1u);
}

// The cases: nobody is trusted, the role is wrong, another trusted host is in b's place, or one end
// has no keys.
TEST_F(LinkTest, WhoDoesNotProveWhomItClaimsToBeIsRefused) {
  MakeKeys(folder_, {"a", "b", "c"}, identity::kRoleLink);
  MakeKeys(folder_ + "/keys-c", {"a"});  // another key that calls itself a
  fs::create_directory(folder_ + "/others");
  MakeKeys(folder_ + "/others", {"a", "b"}, identity::kRolePrimary | identity::kRoleReplica);
  const auto keys = [](const std::string& dir) { return std::vector<std::string>{"--keys", dir}; };
  const std::string a_dir = KeysDir(folder_, "a"), b_dir = KeysDir(folder_, "b");
  const std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>> cases = {
      {keys(KeysDir(folder_ + "/keys-c", "a")), keys(b_dir)},
      {keys(KeysDir(folder_ + "/others", "a")), keys(KeysDir(folder_ + "/others", "b"))},
      {keys(a_dir), keys(KeysDir(folder_, "c"))},
      {keys(a_dir), {"--insecure"}},
      {{"--insecure"}, keys(b_dir)},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    StartBoth(cases[i].first, cases[i].second);
    Node a, b;
    ASSERT_NO_FATAL_FAILURE(OpenPair(&a, &b));
    const Status status = a.WriteWord(b.mr->addr() + 128, b.mr->rkey(), 1);
    EXPECT_NE(status.message().find(std::string(rnic::WcStatusName(WcStatus::kRetryExceeded))),
              std::string::npos)
        << status.ToString();
    EXPECT_EQ(b.word(128), 0u);
    EXPECT_EQ(Counter(a, "links_up"), 0u);
    a_.Kill();
    b_.Kill();
  }
}

// A program that takes another host's name at a daemon reaches nobody in that name, and the
// daemon's own host goes on.
TEST_F(LinkTest, AHostThatIsNotTheDaemonsReachesNobody) {
  ASSERT_NO_FATAL_FAILURE(MakeKeys(folder_, {"a", "b"}, identity::kRoleLink));
  StartBoth({"--keys", KeysDir(folder_, "a")}, {"--keys", KeysDir(folder_, "b")});
  Node a, b;
  ASSERT_NO_FATAL_FAILURE(OpenPair(&a, &b));
  ASSERT_OK(Raise(a, b));
  auto pretender = Node::Open(Socket("a"), "c");
  ASSERT_OK(pretender);
  auto asked = Node::Open(Socket("b"), "b");
  ASSERT_OK(asked);
  ASSERT_OK(pretender->qp->Connect(asked->qp->address()));
  EXPECT_THAT(pretender->WriteWord(asked->mr->addr(), asked->mr->rkey(), 1),
              StatusIs(Code::kAborted));
  EXPECT_EQ(asked->word(0), 0u);
  EXPECT_GE(Counter(b, "link_claims_refused"), 1u);
  EXPECT_OK(Raise(a, b));
}

// A key is changed while both daemons run and the link is used.
TEST_F(LinkTest, KeysChangeWithoutARestart) {
  ASSERT_NO_FATAL_FAILURE(MakeKeys(folder_, {"a", "b"}, identity::kRoleLink));
  const std::string a_dir = KeysDir(folder_, "a"), b_dir = KeysDir(folder_, "b");
  StartBoth({"--keys", a_dir}, {"--keys", b_dir});
  Node a, b;
  ASSERT_NO_FATAL_FAILURE(OpenPair(&a, &b));
  ASSERT_OK(Raise(a, b));
  const auto old = identity::KeyRing::Load(a_dir);
  ASSERT_OK(old);
  ASSERT_OK(identity::MakeIdentity(folder_ + "/next", "a"));
  const auto next = identity::KeyRing::Load(folder_ + "/next");
  ASSERT_OK(next);
  ASSERT_OK(identity::Trust(b_dir, {"a", (*next)->public_key(), identity::kRoleLink}));
  fs::rename(folder_ + "/next/identity", a_dir + "/identity");
  ASSERT_OK(Raise(a, b));  // on the connection that is there
  network_.ResetAfter(1);
  for (int i = 0; i < 20; ++i) ASSERT_OK(Raise(a, b));
  EXPECT_EQ(Counter(a, "link_reconnects"), 1u);
  // The old key's line goes; the new one alone is enough.
  std::ofstream(b_dir + "/trusted")
      << identity::TrustedPeer{"a", (*next)->public_key(), identity::kRoleLink}.Line() << "\n";
  network_.ResetAfter(1);
  for (int i = 0; i < 20; ++i) ASSERT_OK(Raise(a, b));
  EXPECT_EQ(Counter(a, "link_reconnects"), 2u);
  // Without a line no new connection is made.
  std::ofstream(b_dir + "/trusted")
      << identity::TrustedPeer{"c", (*old)->public_key(), identity::kRoleLink}.Line() << "\n";
  network_.ResetAfter(1);
  Status last;
  for (int i = 0; i < 20 && last.ok(); ++i) last = Raise(a, b);
  EXPECT_EQ(last.message(), "transport retry exceeded");
  EXPECT_EQ(Counter(a, "link_reconnects"), 2u);
}

TEST_F(LinkTest, ResetsAtManyBytesRepeatNoAtomic) {
  StartBoth();
  Node a, b;
  ASSERT_NO_FATAL_FAILURE(OpenPair(&a, &b));
  uint64_t done = 0;
  for (uint64_t at = 1; at <= 300; at += 7) {
    SCOPED_TRACE("reset after " + std::to_string(at) + " bytes");
    network_.ResetAfter(at);
    while (network_.reset_pending()) {
      ASSERT_OK(Raise(a, b));
      ASSERT_EQ(a.word(8), done);
      ++done;
    }
  }
  ASSERT_OK(Raise(a, b));
  EXPECT_EQ(b.word(256), done + 1);
  EXPECT_GE(network_.resets(), 43u);
  EXPECT_GE(Counter(a, "link_reconnects"), 30u) << "some resets meet the introduction";
}

TEST_F(LinkTest, ACutIsAnErrorAfterTheTimeoutOrForgottenBeforeIt) {
  StartBoth();
  Node a, b;
  ASSERT_NO_FATAL_FAILURE(OpenPair(&a, &b));
  network_.SetDelay(std::chrono::milliseconds(5));
  ASSERT_OK(Raise(a, b));
  network_.SetCut(true);
  const rnic::Sge result = a.sge(8, 8);
  const rnic::SendRequest request{.opcode = Opcode::kFetchAdd,
                                  .signaled = true,
                                  .sges = {&result, 1},
                                  .remote_addr = b.mr->addr() + 256,
                                  .rkey = b.mr->rkey(),
                                  .compare_or_add = 1};
  ASSERT_OK(a.qp->Post({&request, 1}));
  std::this_thread::sleep_for(kHealAfter);  // the cut lasts, it orders nothing
  network_.SetCut(false);
  auto completion = a.Await();
  ASSERT_OK(completion);
  EXPECT_EQ(completion->status, WcStatus::kSuccess);
  EXPECT_EQ(a.word(8), 1u);
  network_.SetCut(true);
  const auto begin = Clock::now();
  ASSERT_OK(a.qp->Post({&request, 1}));
  completion = a.Await();
  ASSERT_OK(completion);
  EXPECT_EQ(completion->status, WcStatus::kRetryExceeded);
  EXPECT_GE(Clock::now() - begin, kTimeout);
}

// Other machines reach the service that a process published, also while the process is stopped.
TEST_F(LinkTest, APublishedServiceIsReachedAcrossALink) {
  StartBoth();
  ChildProcess publisher = ChildProcess::Fork([this] {
    auto node = Node::Open(Socket("b"), "b");
    if (!node.ok()) return 1;
    node->word(64) = 4711;
    const std::array<uint64_t, 2> where = {node->mr->addr() + 64, node->mr->rkey()};
    if (!node->device->Publish("look", *node->pd, std::as_bytes(std::span(where))).ok()) return 1;
    std::printf("published\n");
    std::fflush(stdout);
    pause();
    return 0;
  });
  ASSERT_EQ(publisher.ReadLine(), "published");
  publisher.Signal(SIGSTOP);
  auto a = Node::Open(Socket("a"), "a");
  ASSERT_OK(a);
  EXPECT_THAT(a->device->ConnectService("b", "other", *a->qp), StatusIs(Code::kNotFound));
  EXPECT_THAT(a->device->ConnectService("c", "look", *a->qp), StatusIs(Code::kNotFound));
  for (int round = 0; round < 3; ++round) {  // also again, with the same queue pair
    const auto data = a->device->ConnectService("b", "look", *a->qp);
    ASSERT_OK(data);
    std::array<uint64_t, 2> where;
    ASSERT_EQ(data->size(), sizeof where);
    std::memcpy(where.data(), data->data(), sizeof where);
    const rnic::Sge to = a->sge(8, 8);
    EXPECT_OK(a->Run({.opcode = Opcode::kRead,
                      .sges = {&to, 1},
                      .remote_addr = where[0],
                      .rkey = static_cast<uint32_t>(where[1])}));
    EXPECT_EQ(a->word(8), 4711u);
    const Status write = a->WriteWord(where[0], static_cast<uint32_t>(where[1]), 1);
    EXPECT_THAT(write, StatusIs(Code::kAborted)) << "it is for reading only";
    ASSERT_OK(a->qp->Reset());
  }
  network_.SetCut(true);
  EXPECT_THAT(a->device->ConnectService("b", "look", *a->qp), StatusIs(Code::kUnavailable));
}

// A client that still holds a service of another machine is closed when the daemon stops.
TEST_F(LinkTest, ADaemonThatClientsAskedForServicesStopsCleanly) {
  StartBoth();
  auto b = Node::Open(Socket("b"), "b");
  ASSERT_OK(b);
  ASSERT_OK(b->device->Publish("look", *b->pd, {}));
  auto a = Node::Open(Socket("a"), "a");
  ASSERT_OK(a);
  ASSERT_OK(a->device->ConnectService("b", "look", *a->qp));
  a_.Signal(SIGTERM);
  EXPECT_EQ(a_.Wait(), 0);
}

// The peer's daemon restarts: queue pairs that were connected to the old daemon end with an error,
// and new ones connect.
TEST_F(LinkTest, ARestartedDaemonKnowsNoOldQueuePair) {
  StartBoth();
  Node a, b;
  ASSERT_NO_FATAL_FAILURE(OpenPair(&a, &b));
  ASSERT_OK(Raise(a, b));
  b_.Kill();
  b_ = StartDaemon("b", b_args_);
  const Status status = Raise(a, b);
  EXPECT_NE(status.message().find(std::string(rnic::WcStatusName(WcStatus::kRetryExceeded))),
            std::string::npos)
      << status.ToString();
  Node c, d;
  ASSERT_NO_FATAL_FAILURE(OpenPair(&c, &d));
  EXPECT_OK(Raise(c, d));
}

TEST_F(LinkTest, GarbageOnThePortClosesItsConnectionAndNothingElse) {
  StartBoth();
  Node a, b;
  ASSERT_NO_FATAL_FAILURE(OpenPair(&a, &b));
  ASSERT_OK(Raise(a, b));
  const std::vector<std::byte> wrong_packet(80, std::byte{1});
  std::vector<std::byte> stream =
      identity::SecureChannel({.dialer = true, .purpose = "hyperloop link 4"}).TakeOutput();
  std::vector<std::vector<std::byte>> inputs = {std::vector<std::byte>(4, std::byte{0xff}),
                                                std::vector<std::byte>(5000, std::byte{'G'}),
                                                std::vector<std::byte>(3)};
  AppendFrame(wrong_packet, &stream);
  inputs.push_back(stream);
  const uint64_t refused = Counter(b, "link_connections_refused");
  for (const auto& input : inputs) {
    const int fd = ConnectTo(b_args_[1]);
    ASSERT_EQ(send(fd, input.data(), input.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(input.size()));
    shutdown(fd, SHUT_WR);
    const timeval patience{10, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    char buffer[256];
    ssize_t n;
    while ((n = recv(fd, buffer, sizeof buffer, 0)) > 0) {
    }
    EXPECT_TRUE(n == 0 || errno == ECONNRESET) << "the connection was not closed";
    close(fd);
  }
  EXPECT_GE(Counter(b, "link_connections_refused"), refused + 2);
  EXPECT_OK(Raise(a, b));
  EXPECT_EQ(a.word(8), 1u);
}

// Silent connections at the port keep no peer out.
TEST_F(LinkTest, SilentConnectionsKeepNoPeerOut) {
  const std::string a_at = FreeAddress(), b_at = FreeAddress();
  b_ = StartDaemon("b", {"--listen", b_at, "--peer", "a=" + a_at, "--insecure"});
  std::vector<int> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(ConnectTo(b_at));
  a_ = StartDaemon("a", {"--listen", a_at, "--peer", "b=" + b_at, "--insecure"});
  const auto begin = Clock::now();
  Node a, b;
  ASSERT_NO_FATAL_FAILURE(OpenPair(&a, &b));
  ASSERT_OK(Raise(a, b));
  EXPECT_LT(Clock::now() - begin, milliseconds(1500)) << "as long as silence is suffered: 3 s";
  EXPECT_GE(Counter(b, "link_connections_refused"), 200u);
  for (const int fd : silent) close(fd);
}

// A daemon without free descriptors does not spin.
TEST_F(LinkTest, WithoutDescriptorsTheDaemonWaitsAndGoesOn) {
  const std::string a_at = FreeAddress(), b_at = FreeAddress();
  b_ = ChildProcess::Spawn({"/bin/sh", "-c",
                            "ulimit -n 28; exec " + ProgramPath("hyperloop-rnicd") + " --socket " +
                                Socket("b") + " --priority none --spin-us 0 --insecure --listen " +
                                b_at + " --peer a=" + a_at});
  ASSERT_EQ(b_.ReadLine(), "ready " + Socket("b"));
  // UBSan needs descriptors to check the first virtual call on an object. The engine's thread has
  // made most of them when it has served somebody, and another one when the last client goes, which
  // is at the end.
  const auto first = Node::Open(Socket("b"), "b");
  ASSERT_OK(first);
  std::vector<int> silent;
  for (int i = 0; i < 30; ++i) silent.push_back(ConnectTo(b_at));
  const uint64_t before = CpuTicks(b_.pid());
  std::this_thread::sleep_for(milliseconds(1000));  // in which nothing happens
  EXPECT_LT(CpuTicks(b_.pid()) - before, 10u) << "of 100 in a second";
  for (const int fd : silent) close(fd);
  a_ = StartDaemon("a", {"--listen", a_at, "--peer", "b=" + b_at, "--insecure"});
  Node a, b;
  ASSERT_NO_FATAL_FAILURE(OpenPair(&a, &b));
  EXPECT_OK(Raise(a, b));
}

// With one list for all machines, a daemon that listens at every address dials only the others.
TEST_F(LinkTest, ADaemonAtEveryAddressKnowsItsOwnHosts) {
  const std::string a_at = FreeAddress(), b_at = FreeAddress();
  ASSERT_NO_FATAL_FAILURE(MakeKeys(folder_, {"a", "b"}));
  const std::string keys = KeysDir(folder_, "a");
  const std::string peers = WriteFile("peers", "a=" + a_at + "\nb=" + b_at + "\n");
  const std::string port = a_at.substr(a_at.find(':'));
  for (const std::string any : {"0.0.0.0", "[::]"}) {
    a_ = StartDaemon("a", {"--listen", any + port, "--peers-file", peers, "--keys", keys});
    auto a = Node::Open(Socket("a"), "a");
    ASSERT_OK(a);
    EXPECT_EQ(Counter(*a, "links_configured"), 1u) << any;
    a_.Kill();
  }
}

TEST_F(LinkTest, BadOptionsAreRefusedWithTheirRemedy) {
  ASSERT_NO_FATAL_FAILURE(MakeKeys(folder_, {"a", "open", "bad"}));
  const std::string keys = KeysDir(folder_, "a"), open_keys = KeysDir(folder_, "open"),
                    bad_keys = KeysDir(folder_, "bad");
  chmod((open_keys + "/identity").c_str(), 0640);
  std::ofstream(bad_keys + "/trusted", std::ios::app) << "nonsense\n";
  const std::string peers = WriteFile("peers", "# hosts\na=127.0.0.1:1\nnonsense\n");
  struct Case {
    std::vector<std::string> arguments;
    std::string expected;
    int status = 2;  // 1: the words are right, but what they name cannot be used
  };
  const std::vector<Case> cases = {
      {{"--listen", "127.0.0.1:0"}, "give --keys DIR"},
      {{"--peer", "b=127.0.0.1:1"}, "or --insecure"},
      {{"--listen", "0.0.0.0:0", "--insecure"}, "--insecure does not allow that"},
      {{"--listen", "10.1.2.3:7471", "--insecure"}, "hyperloopctl keys init"},
      {{"--peer", "b=10.1.2.3:7471", "--insecure"}, "is not loopback"},
      {{"--listen", "127.0.0.1:0", "--insecure", "--keys", keys}, "contradicts"},
      {{"--listen", "0.0.0.0:0", "--keys", open_keys}, "chmod 600", 1},
      {{"--listen", "0.0.0.0:0", "--keys", bad_keys}, "trusted: line 6"},
      {{"--listen", "0.0.0.0:0", "--keys", folder_ + "/none"}, "hyperloopctl keys init", 1},
      {{"--listen", "localhost:1"}, "numeric"},
      {{"--listen", "127.0.0.1"}, "no port"},
      {{"--listen", "127.0.0.1:70000"}, "port is 1 to 65535"},
      {{"--listen", "::1:7000"}, "brackets"},
      {{"--listen", "192.0.2.1:7471", "--keys", keys}, "192.0.2.1:7471", 1},
      {{"--peer", "b"}, "HOST=ADDRESS:PORT"},
      {{"--peer", "b/c=127.0.0.1:1"}, "HOST=ADDRESS:PORT"},
      {{"--peer", "b=127.0.0.1:0"}, "port is 1 to 65535"},
      {{"--peer", "b=127.0.0.1:1", "--peer", "b=127.0.0.1:2", "--insecure"}, "named twice"},
      {{"--peers-file", peers}, "peers:3"},
      {{"--peers-file", folder_ + "/none"}, "No such file", 1},
      {{"--peers-file", folder_}, "not a regular file"},
      {{"--keys", keys}, "--listen, --peer"},
  };
  for (const auto& [arguments, expected, status] : cases) {
    const std::string text = Refusal(arguments);
    EXPECT_NE(text.find(expected), std::string::npos)
        << arguments[0] << " " << arguments[1] << ": " << text;
    EXPECT_THAT(text, testing::EndsWith("status " + std::to_string(status) + "\n"))
        << arguments[0] << " " << arguments[1];
    EXPECT_FALSE(std::filesystem::exists(Socket("x"))) << "the socket was left behind";
  }
}

TEST_F(LinkTest, NoPortIsOpenUnlessAskedFor) {
  a_ = StartDaemon("a", {});
  // The daemon's own descriptors: none is a TCP socket.
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(a_.pid()) + "/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (target.rfind("socket:[", 0) != 0) continue;
    const std::string inode = target.substr(8, target.size() - 9);
    for (const char* table : {"tcp", "tcp6", "udp", "udp6"}) {
      std::ifstream lines("/proc/" + std::to_string(a_.pid()) + "/net/" + table);
      for (std::string line; std::getline(lines, line);)
        EXPECT_EQ(line.find(" " + inode + " "), std::string::npos) << table << ": " << line;
    }
  }
}

TEST_F(LinkTest, AHostThatNobodyNamesIsRefusedAtConnect) {
  const std::string a_at = FreeAddress();
  a_ = StartDaemon("a", {"--listen", a_at, "--insecure"});
  b_ = StartDaemon("b", {});
  auto a = Node::Open(Socket("a"), "a"), b = Node::Open(Socket("b"), "b");
  ASSERT_OK(a);
  ASSERT_OK(b);
  const Status status = a->qp->Connect(b->qp->address());
  EXPECT_THAT(status, StatusIs(Code::kUnavailable));
  EXPECT_NE(status.message().find("--peer"), std::string::npos) << status.ToString();
}

}  // namespace
}  // namespace hyperloop::test
