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

#include "base/frame_reader.h"
#include "hyperloop/identity/openssl_ciphers.h"
#include "hyperloop/identity/secure_channel.h"
#include "integration/rnicd_fixture.h"
#include "support/eventually.h"
#include "support/free_address.h"
#include "support/keys.h"
#include "support/status_matchers.h"
#include "support/tcp_proxy.h"

namespace hyperloop::test {
namespace {

using rnic::Opcode;
using rnic::WcStatus;
using std::chrono::milliseconds;
namespace fs = std::filesystem;

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

// Hosts a and b, each with a daemon, and what the tests do with them.
struct TwoDaemons {
  TwoDaemons() {
    std::string path = std::filesystem::temp_directory_path() / "hyperloop-link-XXXXXX";
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    folder = path;
  }
  TwoDaemons(const TwoDaemons&) = delete;
  TwoDaemons& operator=(const TwoDaemons&) = delete;
  ~TwoDaemons() {
    a_daemon.Kill();
    b_daemon.Kill();
    std::filesystem::remove_all(folder);
  }

  std::string WriteFile(const std::string& name, const std::string& text, mode_t mode = 0600) {
    const std::string path = folder + "/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }
  std::string Socket(const std::string& name) const { return folder + "/" + name + ".sock"; }
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
  // Host a's requests go through `network`, host b's straight.
  void StartBoth(const std::vector<std::string>& a_more = {"--insecure"},
                 const std::vector<std::string>& b_more = {"--insecure"}) {
    const std::string a_at = FreeAddress(), b_at = FreeAddress();
    network.SetTarget(b_at);
    a_args = {"--listen", a_at, "--peer", "b=" + network.address()};
    b_args = {"--listen", b_at, "--peer", "a=" + a_at};
    a_args.insert(a_args.end(), a_more.begin(), a_more.end());
    b_args.insert(b_args.end(), b_more.begin(), b_more.end());
    a_daemon = StartDaemon("a", a_args);
    b_daemon = StartDaemon("b", b_args);
  }
  void OpenPair(RnicNode* a, RnicNode* b, const rnic::QpAttr& attr = {}) {
    auto opened = RnicNode::Open(Socket("a"), "a", attr);
    ASSERT_OK(opened);
    *a = std::move(*opened);
    opened = RnicNode::Open(Socket("b"), "b", attr);
    ASSERT_OK(opened);
    *b = std::move(*opened);
    ASSERT_OK(a->qp->Connect(b->qp->address()));
    ASSERT_OK(b->qp->Connect(a->qp->address()));
  }
  // Raises the word at `remote` by one; its old value is in node.word(8).
  static Status Raise(RnicNode& node, const RnicNode& remote) {
    const rnic::Sge result = node.sge(8, 8);
    return node.Run({.opcode = Opcode::kFetchAdd,
                     .sges = {&result, 1},
                     .remote_addr = remote.mr->addr() + 256,
                     .rkey = remote.mr->rkey(),
                     .compare_or_add = 1});
  }
  static uint64_t Counter(RnicNode& node, const std::string& name) {
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

  std::string folder;
  TcpProxy network;
  std::vector<std::string> a_args, b_args;
  ChildProcess a_daemon, b_daemon;
};

class LinkTest : public testing::Test, protected TwoDaemons {};

// What the links carry: packets as they are, or sealed.
enum class Sealing { kNone, kChaCha, kAes };

// The tests of this suite share two daemons. Each leaves the network as it found it, and new queue
// pairs work afterwards.
class SharedLinkTest : public testing::TestWithParam<Sealing> {
 protected:
  void SetUp() override {
    if (daemons_ != nullptr) return;
    daemons_ = std::make_unique<TwoDaemons>();
    if (GetParam() == Sealing::kNone) return daemons_->StartBoth();
    const std::string& folder = daemons_->folder;
    ASSERT_NO_FATAL_FAILURE(MakeKeys(folder, {"a", "b"}, identity::kRoleLink));
    if (GetParam() == Sealing::kChaCha) {
      // A machine's administrator may restrict OpenSSL, here so much that it has no cipher at all.
      const std::string text =
          "openssl_conf = all\n[all]\nalg_section = few\n[few]\ndefault_properties = none=yes\n";
      setenv("OPENSSL_CONF", daemons_->WriteFile("openssl.cnf", text).c_str(), 1);
    }
    daemons_->StartBoth({"--keys", KeysDir(folder, "a")}, {"--keys", KeysDir(folder, "b")});
    unsetenv("OPENSSL_CONF");
  }
  static void TearDownTestSuite() { daemons_.reset(); }
  void TearDown() override {
    RnicNode a, b;
    ASSERT_NO_FATAL_FAILURE(OpenPair(&a, &b));
    EXPECT_OK(TwoDaemons::Raise(a, b));
  }
  static TcpProxy& network() { return daemons_->network; }
  static TwoDaemons& daemons() { return *daemons_; }
  static void OpenPair(RnicNode* a, RnicNode* b, const rnic::QpAttr& attr = {}) {
    daemons_->OpenPair(a, b, attr);
  }
  static Status Raise(RnicNode& node, const RnicNode& remote) {
    return TwoDaemons::Raise(node, remote);
  }
  static uint64_t Counter(RnicNode& node, const std::string& name) {
    return TwoDaemons::Counter(node, name);
  }

 private:
  static inline std::unique_ptr<TwoDaemons> daemons_;
};
// Suites of their own, each with its daemons.
INSTANTIATE_TEST_SUITE_P(Plain, SharedLinkTest, testing::Values(Sealing::kNone));
INSTANTIATE_TEST_SUITE_P(ChaCha, SharedLinkTest, testing::Values(Sealing::kChaCha));
INSTANTIATE_TEST_SUITE_P(Aes, SharedLinkTest, testing::Values(Sealing::kAes));

TEST_P(SharedLinkTest, OperationsCrossBetweenDaemons) {
  RnicNode a, b;
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
  const bool aes = GetParam() == Sealing::kAes && identity::OpenSslCiphers().aes_256_gcm;
  EXPECT_EQ(Counter(a, "links_aes_256_gcm"), aes ? 1u : 0u);
  EXPECT_GE(Counter(a, "link_frames_sent"), 102u);
}

// A daemon talks to nobody in another host's place: not to one without keys, nor to one whose key
// it trusts under another name. (link_server_test.cc checks who is let in.)
TEST_F(LinkTest, WhoDoesNotProveWhomItClaimsToBeIsNotTalkedTo) {
  MakeKeys(folder, {"a", "b", "c"}, identity::kRoleLink);
  rnic::QpAttr attr;
  attr.link_timeout = milliseconds(100);
  for (const std::vector<std::string>& of_b :
       {std::vector<std::string>{"--keys", KeysDir(folder, "c")},
        std::vector<std::string>{"--insecure"}}) {
    SCOPED_TRACE(of_b[0]);
    const uint64_t before = network.accepted();
    StartBoth({"--keys", KeysDir(folder, "a")}, of_b);
    RnicNode a, b;
    ASSERT_NO_FATAL_FAILURE(OpenPair(&a, &b, attr));
    // Each attempt makes a connection through the network; the second one follows a refusal.
    ASSERT_TRUE(Eventually([&] { return network.accepted() > before + 1; }));
    const Status status = a.WriteWord(b.mr->addr() + 128, b.mr->rkey(), 1);
    EXPECT_THAT(status.message(), testing::HasSubstr(rnic::WcStatusName(WcStatus::kRetryExceeded)));
    EXPECT_EQ(b.word(128), 0u);
    EXPECT_EQ(Counter(a, "links_up"), 0u);
    a_daemon.Kill();
    b_daemon.Kill();
  }
}

// A key is changed while both daemons run and the link is used.
TEST_F(LinkTest, KeysChangeWithoutARestart) {
  ASSERT_NO_FATAL_FAILURE(MakeKeys(folder, {"a", "b"}, identity::kRoleLink));
  const std::string a_dir = KeysDir(folder, "a"), b_dir = KeysDir(folder, "b");
  StartBoth({"--keys", a_dir}, {"--keys", b_dir});
  RnicNode a, b;
  ASSERT_NO_FATAL_FAILURE(OpenPair(&a, &b));
  ASSERT_OK(Raise(a, b));
  const auto old = identity::KeyRing::Load(a_dir);
  ASSERT_OK(old);
  ASSERT_OK(identity::MakeIdentity(folder + "/next", "a"));
  const auto next = identity::KeyRing::Load(folder + "/next");
  ASSERT_OK(next);
  ASSERT_OK(identity::Trust(b_dir, {"a", (*next)->public_key(), identity::kRoleLink}));
  fs::rename(folder + "/next/identity", a_dir + "/identity");
  ASSERT_OK(Raise(a, b));  // on the connection that is there
  network.ResetAfter(1);
  for (int i = 0; i < 20; ++i) ASSERT_OK(Raise(a, b));
  EXPECT_EQ(Counter(a, "link_reconnects"), 1u);
  // The old key's line goes; the new one alone is enough.
  std::ofstream(b_dir + "/trusted")
      << identity::TrustedPeer{"a", (*next)->public_key(), identity::kRoleLink}.Line() << "\n";
  network.ResetAfter(1);
  for (int i = 0; i < 20; ++i) ASSERT_OK(Raise(a, b));
  EXPECT_EQ(Counter(a, "link_reconnects"), 2u);
  // Without a line no new connection is made.
  std::ofstream(b_dir + "/trusted")
      << identity::TrustedPeer{"c", (*old)->public_key(), identity::kRoleLink}.Line() << "\n";
  RnicNode c, d;
  rnic::QpAttr attr;
  attr.link_timeout = milliseconds(100);
  ASSERT_NO_FATAL_FAILURE(OpenPair(&c, &d, attr));
  network.ResetAfter(1);
  Status last;
  for (int i = 0; i < 20 && last.ok(); ++i) last = Raise(c, d);
  EXPECT_EQ(last.message(), "transport retry exceeded");
  EXPECT_EQ(Counter(a, "link_reconnects"), 2u);
}

TEST_P(SharedLinkTest, ResetsAtManyBytesRepeatNoAtomic) {
  RnicNode a, b;
  ASSERT_NO_FATAL_FAILURE(OpenPair(&a, &b));
  uint64_t done = 0;
  for (uint64_t at = 1; at <= 300; at += 7) {
    SCOPED_TRACE("reset after " + std::to_string(at) + " bytes");
    network().ResetAfter(at);
    while (network().reset_pending()) {
      ASSERT_OK(Raise(a, b));
      ASSERT_EQ(a.word(8), done);
      ++done;
    }
  }
  ASSERT_OK(Raise(a, b));
  EXPECT_EQ(b.word(256), done + 1);
  EXPECT_GE(network().resets(), 43u);
  EXPECT_GE(Counter(a, "link_reconnects"), 30u) << "some resets meet the introduction";
}

TEST_P(SharedLinkTest, ACutIsAnErrorAfterTheTimeoutOrForgottenBeforeIt) {
  network().SetDelay(std::chrono::milliseconds(5));
  for (const bool healed : {true, false}) {
    SCOPED_TRACE(healed);
    RnicNode a, b;
    rnic::QpAttr attr;
    attr.link_timeout = healed ? std::chrono::minutes(5) : milliseconds(100);
    ASSERT_NO_FATAL_FAILURE(OpenPair(&a, &b, attr));
    if (healed) {
      ASSERT_OK(Raise(a, b));
    }
    network().SetCut(true);
    const uint64_t before = Counter(a, "link_retransmits");
    const rnic::Sge result = a.sge(8, 8);
    const rnic::SendRequest request{.opcode = Opcode::kFetchAdd,
                                    .signaled = true,
                                    .sges = {&result, 1},
                                    .remote_addr = b.mr->addr() + 256,
                                    .rkey = b.mr->rkey(),
                                    .compare_or_add = 1};
    ASSERT_OK(a.qp->Post({&request, 1}));
    if (healed) {
      ASSERT_TRUE(Eventually([&] { return Counter(a, "link_retransmits") > before; }));
      network().SetCut(false);
    }
    const auto completion = a.Await();
    network().SetCut(false);
    ASSERT_OK(completion);
    EXPECT_EQ(completion->status, healed ? WcStatus::kSuccess : WcStatus::kRetryExceeded);
    EXPECT_EQ(b.word(256), healed ? 2u : 0u);
    if (healed) {
      EXPECT_EQ(a.word(8), 1u);
    }
  }
  network().SetDelay({});
}

// Other machines reach the service that a process published, also while the process is stopped.
TEST_P(SharedLinkTest, APublishedServiceIsReachedAcrossALink) {
  ChildProcess publisher = ChildProcess::Fork([] {
    auto node = RnicNode::Open(daemons().Socket("b"), "b");
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
  auto a = RnicNode::Open(daemons().Socket("a"), "a");
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
  network().SetCut(true);
  EXPECT_THAT(a->device->ConnectService("b", "look", *a->qp), StatusIs(Code::kUnavailable));
  network().SetCut(false);
}

// A client that still holds a service of another machine is closed when the daemon stops.
TEST_F(LinkTest, ADaemonThatClientsAskedForServicesStopsCleanly) {
  StartBoth();
  auto b = RnicNode::Open(Socket("b"), "b");
  ASSERT_OK(b);
  ASSERT_OK(b->device->Publish("look", *b->pd, {}));
  auto a = RnicNode::Open(Socket("a"), "a");
  ASSERT_OK(a);
  ASSERT_OK(a->device->ConnectService("b", "look", *a->qp));
  a_daemon.Signal(SIGTERM);
  EXPECT_EQ(a_daemon.Wait(), 0);
}

// The peer's daemon restarts: queue pairs that were connected to the old daemon end with an error,
// and new ones connect.
TEST_F(LinkTest, ARestartedDaemonKnowsNoOldQueuePair) {
  StartBoth();
  RnicNode a, b;
  ASSERT_NO_FATAL_FAILURE(OpenPair(&a, &b));
  ASSERT_OK(Raise(a, b));
  b_daemon.Kill();
  b_daemon = StartDaemon("b", b_args);
  const Status status = Raise(a, b);
  EXPECT_NE(status.message().find(std::string(rnic::WcStatusName(WcStatus::kRetryExceeded))),
            std::string::npos)
      << status.ToString();
  RnicNode c, d;
  ASSERT_NO_FATAL_FAILURE(OpenPair(&c, &d));
  EXPECT_OK(Raise(c, d));
}

TEST_P(SharedLinkTest, GarbageOnThePortClosesItsConnectionAndNothingElse) {
  RnicNode a, b;
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
    const int fd = ConnectTo(daemons().b_args[1]);
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

// A daemon without free descriptors does not spin.
TEST_F(LinkTest, WithoutDescriptorsTheDaemonWaitsAndGoesOn) {
  const std::string a_at = FreeAddress(), b_at = FreeAddress();
  b_daemon = ChildProcess::Spawn(
      {"/bin/sh", "-c",
       "ulimit -n 28; exec " + ProgramPath("hyperloop-rnicd") + " --socket " + Socket("b") +
           " --priority none --spin-us 0 --insecure --listen " + b_at + " --peer a=" + a_at});
  ASSERT_EQ(b_daemon.ReadLine(), "ready " + Socket("b"));
  // UBSan needs descriptors to check the first virtual call on an object. The engine's thread has
  // made most of them when it has served somebody, and another one when the last client goes, which
  // is at the end.
  const auto first = RnicNode::Open(Socket("b"), "b");
  ASSERT_OK(first);
  std::vector<int> silent;
  for (int i = 0; i < 30; ++i) silent.push_back(ConnectTo(b_at));
  const uint64_t before = CpuTicks(b_daemon.pid());
  std::this_thread::sleep_for(milliseconds(1000));  // in which nothing happens
  EXPECT_LT(CpuTicks(b_daemon.pid()) - before, 10u) << "of 100 in a second";
  for (const int fd : silent) close(fd);
  a_daemon = StartDaemon("a", {"--listen", a_at, "--peer", "b=" + b_at, "--insecure"});
  RnicNode a, b;
  ASSERT_NO_FATAL_FAILURE(OpenPair(&a, &b));
  EXPECT_OK(Raise(a, b));
}

// With one list for all machines, a daemon that listens at every address dials only the others.
TEST_F(LinkTest, ADaemonAtEveryAddressKnowsItsOwnHosts) {
  const std::string a_at = FreeAddress(), b_at = FreeAddress();
  ASSERT_NO_FATAL_FAILURE(MakeKeys(folder, {"a", "b"}));
  const std::string keys = KeysDir(folder, "a");
  const std::string peers = WriteFile("peers", "a=" + a_at + "\nb=" + b_at + "\n");
  const std::string port = a_at.substr(a_at.find(':'));
  for (const std::string any : {"0.0.0.0", "[::]"}) {
    a_daemon = StartDaemon("a", {"--listen", any + port, "--peers-file", peers, "--keys", keys});
    auto a = RnicNode::Open(Socket("a"), "a");
    ASSERT_OK(a);
    EXPECT_EQ(Counter(*a, "links_configured"), 1u) << any;
    a_daemon.Kill();
  }
}

// The file of peers of host a's daemon changes while it runs.
TEST_F(LinkTest, PeersComeAndGoWithoutARestart) {
  const std::string b_at = FreeAddress();
  network.SetTarget(b_at);
  const std::string a_at = FreeAddress();
  const std::string own = "a=" + a_at + "\n", theirs = "b=" + network.address() + "\n";
  const std::string peers = WriteFile("peers", own);
  const auto write = [&](const std::string& text) {
    WriteFile("next", text);
    fs::rename(folder + "/next", peers);
  };
  a_daemon = StartDaemon("a", {"--listen", a_at, "--peers-file", peers, "--insecure"});
  b_daemon = StartDaemon("b", {"--listen", b_at, "--peer", "a=" + a_at, "--insecure"});
  rnic::QpAttr attr;
  attr.link_timeout = std::chrono::minutes(5);  // what takes less was not waited for
  auto observer = RnicNode::Open(Socket("a"), "observer");
  ASSERT_OK(observer);
  const auto links_up = [&](uint64_t count) {
    return Eventually([&] { return Counter(*observer, "links_up") == count; });
  };
  RnicNode a, b, refused;
  auto opened = RnicNode::Open(Socket("b"), "b", attr);
  ASSERT_OK(opened);
  b = std::move(*opened);
  opened = RnicNode::Open(Socket("a"), "a", attr);
  ASSERT_OK(opened);
  refused = std::move(*opened);
  EXPECT_THAT(refused.qp->Connect(b.qp->address()).message(),
              testing::HasSubstr("=ADDRESS:PORT, where that host's daemon listens"));

  write(own + theirs);
  ASSERT_TRUE(links_up(1));
  ASSERT_NO_FATAL_FAILURE(OpenPair(&a, &b, attr));
  ASSERT_OK(Raise(a, b));
  write(own);
  ASSERT_TRUE(links_up(0));
  EXPECT_EQ(Raise(a, b).message(), rnic::WcStatusName(WcStatus::kRetryExceeded));
  EXPECT_EQ(Counter(*observer, "links_configured"), 0u);

  write(own + theirs);
  ASSERT_TRUE(links_up(1));
  RnicNode again, other;
  ASSERT_NO_FATAL_FAILURE(OpenPair(&again, &other, attr));
  EXPECT_OK(Raise(again, other));
}

TEST_F(LinkTest, BadOptionsAreRefusedWithTheirRemedy) {
  ASSERT_NO_FATAL_FAILURE(MakeKeys(folder, {"a", "open", "bad"}));
  const std::string keys = KeysDir(folder, "a"), open_keys = KeysDir(folder, "open"),
                    bad_keys = KeysDir(folder, "bad");
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
      {{"--listen", "0.0.0.0:0", "--keys", folder + "/none"}, "hyperloopctl keys init", 1},
      {{"--listen", "localhost:1"}, "numeric"},
      {{"--listen", "127.0.0.1"}, "no port"},
      {{"--listen", "127.0.0.1:70000"}, "port is 1 to 65535"},
      {{"--listen", "::1:7000"}, "brackets"},
      {{"--listen", "192.0.2.1:7471", "--keys", keys}, "192.0.2.1:7471", 1},
      {{"--peer", "b"}, "HOST=ADDRESS:PORT"},
      {{"--peer", "b/c=127.0.0.1:1"}, "HOST=ADDRESS:PORT"},
      {{"--peer", "b=127.0.0.1:0"}, "port is 1 to 65535"},
      {{"--peer", "b=127.0.0.1:1", "--peer", "b=127.0.0.1:2", "--insecure"}, "named twice"},
      {{"--peers-file", peers, "--insecure"}, "peers:3"},
      {{"--peers-file", folder + "/none", "--insecure"}, "No such file", 1},
      {{"--peers-file", folder, "--insecure"}, "not a regular file"},
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
  a_daemon = StartDaemon("a", {});
  // The daemon's own descriptors: none is a TCP socket.
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(a_daemon.pid()) + "/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (target.rfind("socket:[", 0) != 0) continue;
    const std::string inode = target.substr(8, target.size() - 9);
    for (const char* table : {"tcp", "tcp6", "udp", "udp6"}) {
      std::ifstream lines("/proc/" + std::to_string(a_daemon.pid()) + "/net/" + table);
      for (std::string line; std::getline(lines, line);)
        EXPECT_EQ(line.find(" " + inode + " "), std::string::npos) << table << ": " << line;
    }
  }
}

}  // namespace
}  // namespace hyperloop::test
