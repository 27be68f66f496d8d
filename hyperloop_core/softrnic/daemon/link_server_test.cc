// Tests how much a LinkServer holds for neighbours that take nothing, which neighbours it lets in,
// and what they may send. The test takes the place of the engine.
#include "softrnic/daemon/link_server.h"

#include <endian.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <list>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hyperloop/core/name.h"
#include "hyperloop/core/text.h"
#include "hyperloop/identity/hosts.h"
#include "hyperloop/identity/openssl_ciphers.h"
#include "softrnic/daemon/link_connection.h"
#include "softrnic/daemon/testing/raw_neighbour.h"
#include "softrnic/links/packet.h"
#include "support/eventually.h"
#include "support/log_lines.h"
#include "support/status_matchers.h"

namespace hyperloop::softrnic {
namespace {

class LinkServerTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.listen = *ParseLinkAddress("127.0.0.1:0", /*any_port=*/true);
    StartServer();
  }
  void StartServer() {
    auto server = LinkServer::Create(options_, &engine_, log_);
    ASSERT_OK(server);
    server_ = std::move(*server);
    auto loop = EngineLoop::Create(&engine_, {});
    ASSERT_OK(loop);
    loop_ = std::move(*loop);
    server_->Start(loop_.get());
  }
  void TearDown() override {
    if (server_ != nullptr) server_->Stop();
  }
  // A turn of the engine: answers each request that has arrived. Returns how many came on links
  // other than `apart`; `*came` says whether one came on `apart`.
  uint64_t AnswerAll(LinkId apart = kNoLink, bool* came = nullptr) {
    uint64_t others = 0;
    for (LinkEvent event; server_->Receive(&event);) {
      server_->Send(event.link, answer_);
      if (event.link != apart) ++others;
      if (event.link == apart && came != nullptr) *came = true;
    }
    server_->Flush();
    return others;
  }
  // Takes turns until three in a row bring only requests of `polite`: then the server's thread has
  // done all that it can for the others. Returns how many requests came from the others.
  uint64_t AnswerWhatComes(RawNeighbour& polite, LinkId polites) {
    uint64_t all = 0;
    for (int quiet = 0; quiet < 3; ++quiet) {
      polite.Ask(1);
      uint64_t others = 0;
      bool came = false;
      const auto deadline = std::chrono::steady_clock::now() + kPatience;
      while (!came && std::chrono::steady_clock::now() < deadline) {
        others += AnswerAll(polites, &came);
        sched_yield();
      }
      EXPECT_TRUE(came && polite.AwaitAnswers(1)) << "kept out by the others";
      if (!came) return all;
      if (others != 0) quiet = -1;
      all += others;
    }
    return all;
  }
  // The link on which the next request arrives.
  LinkId NextRequest() {
    LinkEvent event;
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!server_->Receive(&event) || event.kind != LinkEvent::Kind::kPacket) {
      if (std::chrono::steady_clock::now() > deadline) return kNoLink;
      sched_yield();
    }
    server_->Send(event.link, answer_);
    server_->Flush();
    return event.link;
  }
  uint64_t Counter(const std::string& name) const {
    std::istringstream lines(server_->CounterText());
    std::string each;
    for (uint64_t value; lines >> each >> value;)
      if (each == name) return value;
    ADD_FAILURE() << "no counter " << name;
    return 0;
  }

  const std::vector<std::byte> answer_ = std::vector<std::byte>(kMaxPacketBytes);
  LinkOptions options_;
  std::shared_ptr<Log> log_ = StderrLog("link_server_test");
  Engine engine_{EngineOptions{}};
  std::unique_ptr<LinkServer> server_;
  std::unique_ptr<EngineLoop> loop_;
};

// Each of them would make two lines.
TEST(LinkServerLogTest, NeighboursThatComeAndGoDoNotFillTheLog) {
  constexpr size_t kNeighbours = 200;
  const auto log = std::make_shared<LogLines>();
  LinkOptions options;
  options.listen = *ParseLinkAddress("127.0.0.1:0", /*any_port=*/true);
  Engine engine{EngineOptions{}};
  auto server = LinkServer::Create(options, &engine, log);
  ASSERT_OK(server);
  auto loop = EngineLoop::Create(&engine, {});
  ASSERT_OK(loop);
  (*server)->Start(loop->get());
  for (size_t i = 0; i < kNeighbours; ++i) {
    RawNeighbour neighbour((*server)->listening());
    ASSERT_OK(neighbour.Introduce());
  }
  (*server)->Stop();
  EXPECT_TRUE(log->Has("is up"));
  EXPECT_LT(log->lines().size(), kNeighbours);
}

// Without keys, too: the newest connections of a source that says nothing are kept, and its oldest
// ones make room.
TEST_F(LinkServerTest, SilentConnectionsKeepNoNeighbourOut) {
  std::list<UniqueFd> silent;
  for (size_t i = 0; i < 300; ++i) silent.push_back(ConnectTo(server_->listening()));
  EXPECT_OK(RawNeighbour(server_->listening()).Introduce());
  EXPECT_GE(Counter("link_connections_refused"), 300 - kStrangerLimits.of_source);
}

// Each neighbour asks for 12 MiB, and all together ask for more than the daemon holds.
TEST_F(LinkServerTest, AnswersThatNobodyTakesAreBoundedInAllAndNoneIsLost) {
  constexpr uint64_t kGreedy = 24;
  constexpr uint64_t kAsked = 192;
  const uint64_t kFrameBytes = kMaxPacketBytes + identity::SecureChannel::FrameOverhead(false);
  RawNeighbour polite(server_->listening());
  ASSERT_OK(polite.Introduce());
  polite.Ask(1);
  const LinkId polites = NextRequest();
  ASSERT_GE(polites, kIncomingLinks);
  ASSERT_TRUE(polite.AwaitAnswers(1));
  std::list<RawNeighbour> greedy;
  for (uint64_t i = 0; i < kGreedy; ++i) {
    ASSERT_OK(greedy.emplace_back(server_->listening()).Introduce());
    greedy.back().Ask(kAsked);
  }

  const uint64_t sent_before = Counter("link_bytes_sent");
  const uint64_t polite_before = polite.answers();
  uint64_t answered = AnswerWhatComes(polite, polites);
  const uint64_t polite_answers = polite.answers() - polite_before;
  const uint64_t held =
      (answered + polite_answers) * kFrameBytes - (Counter("link_bytes_sent") - sent_before);
  EXPECT_GE(held, kAllAnswerBytes - kConnectionAnswerBytes) << "too few asked";
  EXPECT_LE(held, kAllAnswerBytes + kLinkInFlightBytes + (kGreedy + 1) * kLeastAnswerBytes);
  EXPECT_LT(answered, kGreedy * kAsked);

  std::atomic<bool> stop{false};
  std::thread engine([&] {
    while (!stop) {
      answered += AnswerAll();
      sched_yield();
    }
  });
  bool all = true;
  for (uint64_t i = 0; i < kAsked; ++i)
    for (RawNeighbour& each : greedy) all = all && each.AwaitAnswers(1);
  EXPECT_TRUE(all);
  stop = true;
  engine.join();
  EXPECT_EQ(answered, kGreedy * kAsked);
}

// A frame of 4 KiB can ask for 4 MiB. What may not be handed over yet waits, and nothing is lost.
TEST_F(LinkServerTest, TheRequestsOfOneFrameAreHandedOverAsThereIsRoom) {
  constexpr uint64_t kAsked = 1000;
  RawNeighbour neighbour(server_->listening());
  ASSERT_OK(neighbour.Introduce());
  neighbour.AskAtOnce(kAsked);
  ASSERT_NE(NextRequest(), kNoLink);
  uint64_t at_once = 1;
  for (LinkEvent event; server_->Receive(&event); ++at_once) server_->Send(event.link, answer_);
  EXPECT_LE(at_once * kMaxPacketBytes, kLinkInFlightBytes + 2 * kMaxPacketBytes);
  server_->Flush();
  uint64_t answered = at_once;
  std::atomic<bool> stop{false};
  std::thread engine([&] {
    for (; !stop; sched_yield()) answered += AnswerAll();
  });
  EXPECT_TRUE(neighbour.AwaitAnswers(kAsked));
  stop = true;
  engine.join();
  EXPECT_EQ(answered, kAsked);
}

TEST_F(LinkServerTest, PacketsThatLeaveTogetherShareAFrame) {
  RawNeighbour neighbour(server_->listening());
  ASSERT_OK(neighbour.Introduce());
  neighbour.Say({.type = PacketType::kSend, .dest_qpn = 1, .source_qpn = 1, .session = 1});
  LinkEvent event;
  while (!server_->Receive(&event)) sched_yield();
  const uint64_t before = Counter("link_frames_sent");
  for (uint32_t psn = 0; psn < 3; ++psn)
    server_->Send(
        event.link,
        EncodePacket(
            {.type = PacketType::kAck, .dest_qpn = 1, .source_qpn = 1, .session = 1, .psn = psn}));
  server_->Flush();
  for (uint32_t psn = 0; psn < 3; ++psn) {
    const auto answer = neighbour.Hear();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->psn, psn);
  }
  EXPECT_EQ(Counter("link_frames_sent") - before, 1u);
}

// A packet of the wrong kind ends its connection: an answer where requests are expected, or the
// reverse.
TEST_F(LinkServerTest, AnAnswerToAQuestionThatWasNotAskedThereEndsTheConnection) {
  RawNeighbour neighbour(server_->listening());
  ASSERT_OK(neighbour.Introduce());
  neighbour.Say({.type = PacketType::kRefuse, .dest_qpn = 1, .source_qpn = 1, .session = 1});
  EXPECT_FALSE(neighbour.Hear().has_value());
  LinkEvent event;
  EXPECT_FALSE(server_->Receive(&event));
}

// A server of host "a" with keys, which knows host "b" at 127.0.0.1.
class KeyedLinkServerTest : public LinkServerTest {
 protected:
  void SetUp() override {
    std::string pattern = std::filesystem::temp_directory_path() / "hyperloop-links-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    options_.keys = MakeHost("a");
    b_ = MakeHost("b");
    LetTrust("a", *b_, "b");
    LetTrust("b", *options_.keys, "a");
    WritePeers(FirstPeers());
    options_.peers_file = Dir("peers");
    LinkServerTest::SetUp();
  }
  virtual std::string FirstPeers() { return "b=127.0.0.1:1\n"; }  // where nobody listens
  void TearDown() override {
    LinkServerTest::TearDown();
    std::filesystem::remove_all(root_);
  }

  std::string Dir(const std::string& name) const { return root_ + "/" + name; }
  std::shared_ptr<identity::KeyRing> MakeHost(const std::string& name) {
    EXPECT_OK(identity::MakeIdentity(Dir(name), name));
    const auto ring = identity::KeyRing::Load(Dir(name));
    EXPECT_OK(ring);
    return *ring;
  }
  // Changes the files only; the server reads them again.
  void LetTrust(const std::string& who, const identity::KeyRing& whom, const std::string& as,
                identity::Roles roles = identity::kRoleLink) {
    EXPECT_OK(identity::Trust(Dir(who), {as, whom.public_key(), roles}));
    if (who != "a") {
      EXPECT_OK(b_->Refresh());
    }
  }
  // As MakeHost; a and the new host trust each other.
  std::shared_ptr<identity::KeyRing> MakeNeighbour(const std::string& name) {
    auto host = MakeHost(name);
    LetTrust("a", *host, name);
    LetTrust(name, *options_.keys, "a");
    EXPECT_OK(host->Refresh());
    return host;
  }
  // The server may read at any time, so files are replaced whole.
  void Replace(const std::string& path, const std::string& text) const {
    { std::ofstream(path + ".new") << text; }
    std::filesystem::rename(path + ".new", path);
  }
  void WritePeers(const std::string& text) const { Replace(Dir("peers"), text); }
  // Host a trusts only these, as these names.
  void LetTrustOnly(
      const std::vector<std::pair<std::string, std::shared_ptr<identity::KeyRing>>>& whom) const {
    std::string text;
    for (const auto& [name, host] : whom)
      text += identity::TrustedPeer{name, host->public_key(), identity::kRoleLink}.Line() + "\n";
    Replace(Dir("a") + "/trusted", text);
  }
  bool LinksBecome(const std::vector<std::string>& names) const {
    return test::Eventually([&] {
      std::vector<std::string> now;
      for (const auto& link : server_->LinkStates()) now.push_back(link.peer);
      return now == names;
    });
  }
  // A socket for the server to dial, at `*at`.
  static UniqueFd Listen(std::string* at) {
    UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    LinkAddress address = *ParseLinkAddress("127.0.0.1:0", /*any_port=*/true);
    auto* const where = reinterpret_cast<sockaddr*>(&address.storage);
    EXPECT_EQ(bind(listener.get(), where, address.length), 0);
    EXPECT_EQ(listen(listener.get(), 16), 0);
    SetPatience(listener);
    getsockname(listener.get(), where, &address.length);
    *at = address.ToString();
    return listener;
  }
  // Host b at the other end of the next connection there.
  RawNeighbour NextOf(const UniqueFd& listener) const {
    return {UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)), b_};
  }
  // Whether the server closes the connection, though the neighbour is not silent; nor is `other`.
  static bool Ends(RawNeighbour& neighbour, RawNeighbour* other = nullptr) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (neighbour.Lives()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      if (other != nullptr) other->Lives();
    }
    return true;
  }
  // Whether a request of `neighbour` arrives, and its answer.
  bool IsServed(RawNeighbour& neighbour) {
    neighbour.Ask(1);
    return NextRequest() != kNoLink && neighbour.AwaitAnswers(1);
  }
  // True once `name` has reached `value`.
  bool CounterReaches(const std::string& name, uint64_t value) const {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (Counter(name) < value) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      sched_yield();
    }
    return true;
  }
  // Makes `count` connections from each of `sources` addresses, which send only `first`, and waits
  // until the server has seen all of them.
  void LetStrangersCome(size_t sources, size_t count, const std::vector<std::byte>& first) {
    const uint64_t before = Counter("link_connections_refused");
    for (size_t i = 0; i < sources * count; ++i) {
      const std::string from = "127.0.1." + std::to_string(1 + i % sources);
      strangers_.push_back(ConnectTo(server_->listening(), from));
      send(strangers_.back().get(), first.data(), first.size(), MSG_NOSIGNAL);
    }
    const size_t kept = std::min(kStrangerLimits.all, sources * kStrangerLimits.of_source);
    ASSERT_TRUE(CounterReaches("link_connections_refused", before + sources * count - kept));
  }
  // A connection request in the name of `host`.
  static Packet Connect(const std::string& host, std::array<std::byte, 32>* gids) {
    const uint64_t prefix = htobe64(GidPrefix(host));
    gids->fill(std::byte{1});
    std::memcpy(gids->data() + 16, &prefix, sizeof prefix);
    return {.type = PacketType::kConnect,
            .dest_qpn = 5,
            .source_qpn = 6,
            .session = 7,
            .payload = *gids};
  }

  std::string root_;
  std::shared_ptr<identity::KeyRing> b_;
  std::list<UniqueFd> strangers_;
};

TEST_F(KeyedLinkServerTest, OnlyATrustedKeyWithTheRoleLinkIsLetIn) {
  RawNeighbour good(server_->listening(), b_);
  EXPECT_OK(good.Introduce());
  EXPECT_THAT(RawNeighbour(server_->listening()).Introduce(), StatusIs(Code::kPermissionDenied));
  const auto c = MakeHost("c");
  LetTrust("c", *options_.keys, "a");
  ASSERT_OK(c->Refresh());
  EXPECT_THAT(RawNeighbour(server_->listening(), c).Introduce(), StatusIs(Code::kPermissionDenied));
  LetTrust("a", *c, "c", identity::kRolePrimary | identity::kRoleReplica);
  EXPECT_THAT(RawNeighbour(server_->listening(), c).Introduce(), StatusIs(Code::kPermissionDenied));
}

class LoggedLinkServerTest : public KeyedLinkServerTest {
 protected:
  void SetUp() override {
    log_ = lines_;
    KeyedLinkServerTest::SetUp();
  }
  const std::shared_ptr<LogLines> lines_ = std::make_shared<LogLines>();
};

class OpenSslLinkServerTest : public LoggedLinkServerTest {
 protected:
  void SetUp() override {
    options_.ciphers = identity::OpenSslCiphers();
    LoggedLinkServerTest::SetUp();
  }
};

// Host a's keys point to a file of hosts; nothing else names a peer, or whom it trusts.
class HostsLinkServerTest : public KeyedLinkServerTest {
 protected:
  void SetUp() override {
    std::string pattern = std::filesystem::temp_directory_path() / "hyperloop-links-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    log_ = lines_;
    options_.keys = MakeHost("a");
    b_ = MakeHost("b");
    ASSERT_OK(identity::TrustHosts(Dir("a"), Dir("hosts")));
    LetTrust("b", *options_.keys, "a");
    WriteHosts({LineOf(*options_.keys, 1), LineOf(*b_, 2)});
    ASSERT_OK(options_.keys->Refresh());
    LinkServerTest::SetUp();
  }
  static std::string LineOf(const identity::KeyRing& host, int number) {
    return identity::HostLine{host.name(), "127.0.0." + std::to_string(number), host.public_key()}
               .Line() +
           "\n";
  }
  void WriteHosts(const std::vector<std::string>& lines) const {
    std::string text;
    for (const std::string& line : lines) text += line;
    Replace(Dir("hosts"), text);
  }
  const std::shared_ptr<LogLines> lines_ = std::make_shared<LogLines>();
};

TEST_F(HostsLinkServerTest, PeersAndTrustFollowFromOneFileWithoutARestart) {
  const auto c = MakeHost("c");
  ASSERT_OK(identity::Trust(Dir("c"), {"a", options_.keys->public_key(), identity::kRoleLink}));
  ASSERT_OK(c->Refresh());
  ASSERT_TRUE(LinksBecome({"b (127.0.0.2:7471)"})) << "this host is no peer of its own";
  RawNeighbour of_b(server_->listening(), b_);
  ASSERT_OK(of_b.Introduce());
  EXPECT_FALSE(RawNeighbour(server_->listening(), c).Introduce().ok());
  const std::string own = LineOf(*options_.keys, 1);
  WriteHosts({own, LineOf(*b_, 2), LineOf(*c, 3)});
  ASSERT_TRUE(LinksBecome({"b (127.0.0.2:7471)", "c (127.0.0.3:7471)"}));
  RawNeighbour of_c(server_->listening(), c);
  ASSERT_OK(of_c.Introduce());
  EXPECT_TRUE(IsServed(of_b));
  WriteHosts({own, LineOf(*c, 3)});
  EXPECT_TRUE(Ends(of_b, &of_c)) << "its key is in no line any more";
  EXPECT_TRUE(LinksBecome({"c (127.0.0.3:7471)"}));
  EXPECT_TRUE(IsServed(of_c));
  EXPECT_FALSE(RawNeighbour(server_->listening(), b_).Introduce().ok());
}

TEST_F(HostsLinkServerTest, AFileOfHostsThatCannotBeUsedEndsNoLinkAndMakesNone) {
  const auto c = MakeHost("c");
  ASSERT_OK(identity::Trust(Dir("c"), {"a", options_.keys->public_key(), identity::kRoleLink}));
  ASSERT_OK(c->Refresh());
  RawNeighbour of_b(server_->listening(), b_);
  ASSERT_OK(of_b.Introduce());
  const std::string own = LineOf(*options_.keys, 1);
  WriteHosts({own, LineOf(*c, 3), LineOf(*c, 4)});
  ASSERT_TRUE(test::Eventually([&] { return lines_->Has("c is named twice"); }));
  EXPECT_FALSE(RawNeighbour(server_->listening(), c).Introduce().ok());
  WriteHosts({});
  ASSERT_TRUE(test::Eventually([&] { return lines_->Has("names no host"); }));
  std::filesystem::remove(Dir("hosts"));
  ASSERT_TRUE(test::Eventually([&] { return lines_->Has("No such file"); }));
  // A file that is cut where a line ends can be read, and names nobody else.
  WriteHosts({own});
  ASSERT_TRUE(test::Eventually([&] { return lines_->Has("names no other host any more"); }));
  EXPECT_TRUE(LinksBecome({"b (127.0.0.2:7471)"}));
  EXPECT_TRUE(IsServed(of_b));
}

// The server is started before this machine is a host, as by its package.
class LaterLinkServerTest : public HostsLinkServerTest {
 protected:
  void SetUp() override {
    std::string pattern = std::filesystem::temp_directory_path() / "hyperloop-links-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    log_ = lines_;
    b_ = MakeHost("b");
    LinkArguments arguments;
    arguments.node = root_;
    const auto options = MakeLinkOptions(arguments);
    ASSERT_OK(options);
    options_ = *options;
    StartServer();
  }
};

TEST_F(LaterLinkServerTest, OpensItsPortOnceKeysAndLineAreThere) {
  // Of this machine, as are all that begin with 127: the port is the same for everybody.
  const std::string address = Text("127.", getpid() % 200 + 20, ".", getpid() / 200 % 250, ".3");
  ASSERT_OK(identity::MakeIdentity(Dir("keys"), "a"));
  ASSERT_OK(identity::TrustHosts(Dir("keys"), Dir("hosts")));
  ASSERT_TRUE(
      test::Eventually([&] { return lines_->Has("no links yet: this host's line is not"); }));
  EXPECT_TRUE(LinksBecome({}));
  const auto a = identity::KeyRing::Load(Dir("keys"));
  ASSERT_OK(a);
  LetTrust("b", **a, "a");
  const std::string own = identity::HostLine{"a", address, (*a)->public_key()}.Line() + "\n";
  WriteHosts({own, LineOf(*b_, 2)});
  ASSERT_TRUE(LinksBecome({"b (127.0.0.2:7471)"}));
  RawNeighbour of_b(address + ":7471", b_);
  ASSERT_OK(of_b.Introduce());
  EXPECT_TRUE(IsServed(of_b));
  const auto c = MakeHost("c");
  EXPECT_FALSE(RawNeighbour(address + ":7471", c).Introduce().ok());
  WriteHosts({own, LineOf(*b_, 2), LineOf(*c, 3)});
  EXPECT_TRUE(LinksBecome({"b (127.0.0.2:7471)", "c (127.0.0.3:7471)"}));
}

// As a file that is copied in pieces: what a part of it does not name has not gone, whatever comes
// next.
TEST_F(HostsLinkServerTest, AShortFileBeforeOneThatCannotBeUsedEndsNoLink) {
  const auto c = MakeHost("c");
  RawNeighbour of_b(server_->listening(), b_);
  ASSERT_OK(of_b.Introduce());
  const std::string own = LineOf(*options_.keys, 1);
  WriteHosts({own, LineOf(*c, 3)});
  ASSERT_OK(options_.keys->Refresh());
  WriteHosts({own, "d 10.0.0.4\n"});
  ASSERT_TRUE(test::Eventually([&] { return lines_->Has("links stay as they are until it can"); }));
  EXPECT_TRUE(IsServed(of_b));
  EXPECT_TRUE(LinksBecome({"b (127.0.0.2:7471)"}));
  WriteHosts({own, LineOf(*c, 3)});
  EXPECT_TRUE(LinksBecome({"c (127.0.0.3:7471)"}));
}

// Neighbours with OpenSSL and without it, at the same server.
TEST_F(OpenSslLinkServerTest, EachNeighboursLinkIsSealedByWhatBothHave) {
  for (const identity::Ciphers& ciphers : {identity::Ciphers{}, identity::OpenSslCiphers()}) {
    RawNeighbour neighbour(server_->listening(), b_, "", ciphers);
    ASSERT_OK(neighbour.Introduce());
    for (int i = 0; i < 10; ++i) {
      neighbour.AskAtOnce(5);
      for (int answers = 0; answers < 5; ++answers) ASSERT_NE(NextRequest(), kNoLink);
      ASSERT_TRUE(neighbour.AwaitAnswers(5));
    }
    const identity::Cipher cipher =
        ciphers.aes_256_gcm ? identity::Cipher::kAes256Gcm : identity::Cipher::kChaCha20Poly1305;
    EXPECT_TRUE(lines_->Has(Text(" is up, sealed with ", identity::CipherName(cipher))));
  }
}

// A neighbour's introduction crosses a slow network while many strangers come from everywhere.
TEST_F(KeyedLinkServerTest, StrangersEvictNoKnownNeighboursIntroduction) {
  RawNeighbour slow(server_->listening(), b_);
  slow.HearAnswer();
  LetStrangersCome(/*sources=*/50, /*count=*/8, {});
  EXPECT_OK(slow.Introduce()) << "evicted by strangers";
}

// The same for a neighbour at an unknown address, and one crowded address.
TEST_F(KeyedLinkServerTest, OneSourcesStrangersEvictOnlyEachOther) {
  RawNeighbour slow(server_->listening(), b_, "127.0.0.77");
  slow.HearAnswer();
  LetStrangersCome(/*sources=*/1, /*count=*/400, {});
  EXPECT_OK(slow.Introduce()) << "evicted by strangers";
}

// An address at which a neighbour proved itself is known from then on.
TEST_F(KeyedLinkServerTest, WhereANeighbourProvedItselfIsKnown) {
  RawNeighbour first(server_->listening(), b_, "127.0.0.77");
  ASSERT_OK(first.Introduce());
  RawNeighbour slow(server_->listening(), b_, "127.0.0.77");
  slow.HearAnswer();
  LetStrangersCome(/*sources=*/50, /*count=*/8, {});
  EXPECT_OK(slow.Introduce()) << "evicted by strangers";
}

// Strangers that begin an introduction each, which costs the server arithmetic.
TEST_F(KeyedLinkServerTest, AnOpenLinkIsServedWhileStrangersIntroduceThemselves) {
  RawNeighbour neighbour(server_->listening(), b_);
  ASSERT_OK(neighbour.Introduce());
  std::vector<std::byte> first = identity::SecureChannel(LinkChannel(true, b_))
                                     .TakeOutput();  // nothing in it says whose it is
  LetStrangersCome(/*sources=*/50, /*count=*/8, first);
  for (int i = 0; i < 100; ++i) {
    neighbour.Ask(1);
    ASSERT_NE(NextRequest(), kNoLink);
    ASSERT_TRUE(neighbour.AwaitAnswers(1));
  }
}

// One trusted neighbour cannot speak for another.
TEST_F(KeyedLinkServerTest, ANeighbourSpeaksOnlyForHostsThatItProvedToBe) {
  RawNeighbour neighbour(server_->listening(), b_);
  ASSERT_OK(neighbour.Introduce());
  std::array<std::byte, 32> gids;
  neighbour.Say(Connect("c", &gids));
  auto answer = neighbour.Hear();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->type, PacketType::kRefuse);
  EXPECT_EQ(answer->dest_qpn, 6u);
  EXPECT_EQ(answer->session, 7u);
  std::array<std::byte, 16 + 2 * kNameBytes> service{};
  const uint64_t prefix = htobe64(GidPrefix("c"));
  std::memcpy(service.data(), &prefix, sizeof prefix);
  service[16] = service[16 + kNameBytes] = std::byte{'x'};
  neighbour.Say(
      {.type = PacketType::kServiceRequest, .source_qpn = 6, .session = 8, .payload = service});
  answer = neighbour.Hear();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->type, PacketType::kServiceReply);
  EXPECT_EQ(answer->syndrome, static_cast<uint8_t>(Code::kPermissionDenied));
  EXPECT_EQ(Counter("link_claims_refused"), 2u);
  LinkEvent event;
  EXPECT_FALSE(server_->Receive(&event)) << "the engine was asked";

  neighbour.Say(Connect("b", &gids));
  EXPECT_NE(NextRequest(), kNoLink);
  // The same key under a second name: a daemon of two hosts.
  LetTrust("a", *b_, "c");
  RawNeighbour both(server_->listening(), b_);
  ASSERT_OK(both.Introduce());
  both.Say(Connect("c", &gids));
  EXPECT_NE(NextRequest(), kNoLink);
}

// A tool's host is trusted because its use was refused, and the link stays open meanwhile.
TEST_F(KeyedLinkServerTest, AnOpenLinkSpeaksForHostsThatAreTrustedMeanwhile) {
  RawNeighbour neighbour(server_->listening(), b_);
  ASSERT_OK(neighbour.Introduce());
  std::array<std::byte, 16 + 2 * kNameBytes> service{};
  const uint64_t prefix = htobe64(GidPrefix("c"));
  std::memcpy(service.data(), &prefix, sizeof prefix);
  service[16] = service[16 + kNameBytes] = std::byte{'x'};
  const auto ask = [&] {
    neighbour.Say(
        {.type = PacketType::kServiceRequest, .source_qpn = 6, .session = 8, .payload = service});
  };
  ask();
  const auto refused = neighbour.Hear();
  ASSERT_TRUE(refused.has_value());
  const std::string why(reinterpret_cast<const char*>(refused->payload.data()),
                        refused->payload.size());
  EXPECT_NE(why.find("On the machine of a: hyperloopctl keys trust --dir " + Dir("a") + " HOST " +
                     identity::KeyText(b_->public_key()) + " link"),
            std::string::npos)
      << why;
  LetTrust("a", *b_, "c");
  LinkEvent event;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  bool asked = false;
  for (uint64_t refusals = 1; !asked && std::chrono::steady_clock::now() < deadline; ++refusals) {
    ask();
    while (!(asked = server_->Receive(&event)) && Counter("link_claims_refused") == refusals &&
           std::chrono::steady_clock::now() < deadline)
      sched_yield();
    if (!asked) {
      ASSERT_TRUE(neighbour.Hear().has_value());
    }
  }
  EXPECT_TRUE(asked);
  EXPECT_EQ(event.kind, LinkEvent::Kind::kPacket);
  EXPECT_NE(event.link, kNoLink);
}

TEST_F(KeyedLinkServerTest, ChangedKeysTakeEffectForNewConnectionsWithoutARestart) {
  RawNeighbour before(server_->listening(), b_);
  ASSERT_OK(before.Introduce());
  const auto next = MakeHost("next");  // what b will be
  LetTrust("next", *options_.keys, "a");
  ASSERT_OK(next->Refresh());
  EXPECT_THAT(RawNeighbour(server_->listening(), next).Introduce(),
              StatusIs(Code::kPermissionDenied));
  LetTrust("a", *next, "b");
  EXPECT_OK(RawNeighbour(server_->listening(), next).Introduce());
  EXPECT_OK(RawNeighbour(server_->listening(), b_).Introduce()) << "both keys are b's";

  // A broken file changes nothing.
  Replace(Dir("a") + "/trusted", "nonsense\n");
  EXPECT_OK(RawNeighbour(server_->listening(), b_).Introduce());
  RawNeighbour with_next(server_->listening(), next);
  ASSERT_OK(with_next.Introduce());
  LetTrustOnly({{"b", next}});
  EXPECT_THAT(RawNeighbour(server_->listening(), b_).Introduce(),
              StatusIs(Code::kPermissionDenied));
  EXPECT_OK(RawNeighbour(server_->listening(), next).Introduce());

  // The host's own key changes too.
  const auto old = options_.keys->public_key();
  std::filesystem::remove(Dir("a") + "/identity");
  ASSERT_OK(identity::MakeIdentity(Dir("a"), "a"));
  EXPECT_THAT(RawNeighbour(server_->listening(), next).Introduce(),
              StatusIs(Code::kPermissionDenied));
  const auto now = identity::KeyRing::Load(Dir("a"));
  ASSERT_OK(now);
  ASSERT_NE((*now)->public_key(), old);
  LetTrust("next", **now, "a");
  ASSERT_OK(next->Refresh());
  EXPECT_OK(RawNeighbour(server_->listening(), next).Introduce());
  EXPECT_TRUE(Ends(before, &with_next)) << "its key's line is gone";
  EXPECT_TRUE(IsServed(with_next)) << "this host has another key only for new connections";
}

TEST_F(KeyedLinkServerTest, AHostThatIsNotTrustedAnyMoreLosesItsOpenLink) {
  const auto c = MakeNeighbour("c");
  RawNeighbour of_b(server_->listening(), b_), of_c(server_->listening(), c);
  ASSERT_OK(of_b.Introduce());
  ASSERT_OK(of_c.Introduce());
  LetTrustOnly({{"c", c}});
  EXPECT_TRUE(Ends(of_b, &of_c));
  EXPECT_THAT(RawNeighbour(server_->listening(), b_).Introduce(),
              StatusIs(Code::kPermissionDenied));
  EXPECT_TRUE(IsServed(of_c));
  Replace(Dir("a") + "/trusted",
          identity::TrustedPeer{"c", c->public_key(), identity::kRolePrimary}.Line() + "\n" +
              identity::TrustedPeer{"b", b_->public_key(), identity::kRoleLink}.Line() + "\n");
  EXPECT_TRUE(Ends(of_c)) << "the role is gone";
}

// The daemon of two hosts: with one of them, its connection is made anew.
TEST_F(KeyedLinkServerTest, AHostThatIsNotTrustedAnyMoreIsNotSpokenFor) {
  LetTrust("a", *b_, "c");
  RawNeighbour both(server_->listening(), b_);
  ASSERT_OK(both.Introduce());
  std::array<std::byte, 32> gids;
  both.Say(Connect("c", &gids));
  EXPECT_NE(NextRequest(), kNoLink);
  ASSERT_TRUE(both.AwaitAnswers(1));
  LetTrustOnly({{"b", b_}});
  EXPECT_TRUE(Ends(both));
  RawNeighbour again(server_->listening(), b_);
  ASSERT_OK(again.Introduce());
  again.Say(Connect("c", &gids));
  const auto answer = again.Hear();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->type, PacketType::kRefuse);
  EXPECT_TRUE(IsServed(again));
}

// The directory of the keys was others' to write for a moment, and `trusted` is the same since.
TEST_F(LoggedLinkServerTest, AHostLosesItsLinkAlsoWhereTheKeysCouldNotBeReadAtFirst) {
  const auto c = MakeNeighbour("c");
  RawNeighbour of_b(server_->listening(), b_), of_c(server_->listening(), c);
  ASSERT_OK(of_b.Introduce());
  ASSERT_OK(of_c.Introduce());
  ASSERT_EQ(chmod(Dir("a").c_str(), 0770), 0);
  LetTrustOnly({{"c", c}});
  WritePeers("b=127.0.0.2:1\n");
  ASSERT_TRUE(LinksBecome({"b (127.0.0.2:1)"}));  // so both files were looked at
  EXPECT_TRUE(test::Eventually([&] { return lines_->Has("changed keys are not used"); }));
  ASSERT_EQ(chmod(Dir("a").c_str(), 0700), 0);
  EXPECT_TRUE(Ends(of_b, &of_c));
  EXPECT_TRUE(IsServed(of_c));
}

TEST_F(KeyedLinkServerTest, TheQueuePairsOfAHostThatIsNotTrustedAnyMoreEnd) {
  LetTrust("a", *b_, "c");
  const auto expect_route = [this](const std::string& host, LinkId link) {
    LinkEvent event;
    ASSERT_TRUE(test::Eventually(
        [&] { return server_->Receive(&event) && event.kind == LinkEvent::Kind::kRoute; }));
    EXPECT_EQ(event.prefix, GidPrefix(host));
    EXPECT_EQ(event.link, link);
  };
  RawNeighbour first(server_->listening(), b_);
  ASSERT_OK(first.Introduce());
  ASSERT_TRUE(IsServed(first));
  LetTrustOnly({{"c", b_}});
  expect_route("b", kNoLink);
  expect_route("b", 1);  // by which it is reached once it is trusted again
  LetTrustOnly({{"b", b_}});
  expect_route("c", kNoLink);
  // Names that are trusted for a moment only, too.
  LetTrust("a", *b_, "d");
  RawNeighbour second(server_->listening(), b_);
  ASSERT_OK(second.Introduce());
  ASSERT_TRUE(IsServed(second));
  LetTrustOnly({{"b", b_}});
  expect_route("d", kNoLink);
}

TEST_F(KeyedLinkServerTest, AHostThatIsNotTrustedAnyMoreIsNotTalkedTo) {
  std::string at;
  const UniqueFd listener = Listen(&at);
  WritePeers("b=" + at + "\n");
  RawNeighbour dialed = NextOf(listener);
  ASSERT_OK(dialed.Introduce());
  LetTrustOnly({{"c", MakeHost("c")}});
  EXPECT_TRUE(Ends(dialed));
  EXPECT_FALSE(NextOf(listener).Introduce().ok());
}

// The daemon there goes on to serve the other one.
TEST_F(KeyedLinkServerTest, AHostThatIsNotTrustedAnyMoreCutsNoOtherHostThere) {
  LetTrust("a", *b_, "c");
  std::string at;
  const UniqueFd listener = Listen(&at);
  WritePeers("b=" + at + "\nc=" + at + "\n");
  RawNeighbour dialed = NextOf(listener);
  ASSERT_OK(dialed.Introduce());
  ASSERT_TRUE(LinksBecome({"b,c (" + at + ")"}));
  LetTrustOnly({{"b", b_}});
  RawNeighbour of_c = NextOf(listener);
  EXPECT_EQ(of_c.Introduce().ok(), false);
  EXPECT_TRUE(LinksBecome({"b (" + at + ")", "c (" + at + ")"}));
  EXPECT_TRUE(dialed.Lives());
  EXPECT_EQ(server_->totals().up, 1u);
}

// A server that starts with three hosts at one address: b, its second name d, and c, whom nobody
// knows yet.
class OneAddressLinkServerTest : public KeyedLinkServerTest {
 protected:
  std::string FirstPeers() override {
    listener_ = Listen(&at_);
    LetTrust("a", *b_, "d");
    EXPECT_OK(options_.keys->Refresh());
    return "c=" + at_ + "\nb=" + at_ + "\nd=" + at_ + "\n";
  }
  std::string Name(const std::string& hosts) const { return hosts + " (" + at_ + ")"; }

  std::string at_;
  UniqueFd listener_;
};

TEST_F(OneAddressLinkServerTest, AHostThatNobodyKnowsYetKeepsNoOtherHostThereDown) {
  RawNeighbour of_b = NextOf(listener_);
  ASSERT_OK(of_b.Introduce());
  ASSERT_TRUE(LinksBecome({Name("b,d"), Name("c")}));
  EXPECT_FALSE(NextOf(listener_).Introduce().ok());
  ASSERT_TRUE(CounterReaches("links_up", 1));
  LetTrust("a", *b_, "c");
  std::unique_ptr<RawNeighbour> of_c;
  EXPECT_TRUE(test::Eventually([&] {
    of_c.reset(new RawNeighbour(NextOf(listener_)));
    return of_b.Lives() && of_c->Introduce().ok();
  }));
  ASSERT_TRUE(CounterReaches("links_up", 2));
  // Nor do those that come later, several at once.
  const std::string there = "127.0.0.2:1";
  LetTrust("a", *b_, "e");
  WritePeers("c=" + at_ + "\nb=" + at_ + "\nd=" + at_ + "\nf=" + there + "\ne=" + there + "\n");
  EXPECT_TRUE(LinksBecome({Name("b,d"), Name("c"), "e (" + there + ")", "f (" + there + ")"}));
}

// As on a disk that was full while somebody wrote it.
TEST_F(LoggedLinkServerTest, AFileOfTrustThatLostItsLinesEndsNoLink) {
  const auto c = MakeNeighbour("c");
  RawNeighbour of_b(server_->listening(), b_), of_c(server_->listening(), c);
  ASSERT_OK(of_b.Introduce());
  ASSERT_OK(of_c.Introduce());
  Replace(Dir("a") + "/trusted", "");
  const std::string error = "lets nobody make links any more";
  ASSERT_TRUE(test::Eventually([&] { return of_b.Lives() && of_c.Lives() && lines_->Has(error); }));
  EXPECT_THAT(RawNeighbour(server_->listening(), b_).Introduce(),
              StatusIs(Code::kPermissionDenied));
  WritePeers("b=127.0.0.2:1\n");
  ASSERT_TRUE(LinksBecome({"b (127.0.0.2:1)"}));  // so it was looked at again
  EXPECT_TRUE(IsServed(of_b));
  EXPECT_TRUE(IsServed(of_c));
  EXPECT_EQ(std::ranges::count_if(
                lines_->lines(),
                [&](const std::string& line) { return line.find(error) != std::string::npos; }),
            1);
  LetTrustOnly({{"c", c}});
  EXPECT_TRUE(Ends(of_b, &of_c));
  EXPECT_TRUE(IsServed(of_c));
}

// A host that has moved is the same one as before.
TEST_F(KeyedLinkServerTest, AHostThatIsNoPeerAnyMoreLosesTheLinkThatItMade) {
  const auto c = MakeNeighbour("c");
  RawNeighbour of_b(server_->listening(), b_), of_c(server_->listening(), c);
  ASSERT_OK(of_b.Introduce());
  ASSERT_OK(of_c.Introduce());
  WritePeers("b=127.0.0.2:1\nc=127.0.0.3:1\n");
  ASSERT_TRUE(LinksBecome({"b (127.0.0.2:1)", "c (127.0.0.3:1)"}));
  EXPECT_TRUE(IsServed(of_b));
  WritePeers("c=127.0.0.3:1\n");
  EXPECT_TRUE(Ends(of_b, &of_c));
  EXPECT_TRUE(IsServed(of_c));
  EXPECT_OK(RawNeighbour(server_->listening(), b_).Introduce()) << "it is trusted still";
}

TEST_F(KeyedLinkServerTest, WhereNobodyIsAnyMoreIsNotKnown) {
  const auto c = MakeNeighbour("c");
  RawNeighbour former(server_->listening(), c, "127.0.0.77");
  ASSERT_OK(former.Introduce());
  LetTrustOnly({{"b", b_}});
  ASSERT_TRUE(Ends(former));
  RawNeighbour slow(server_->listening(), b_, "127.0.0.77");
  slow.HearAnswer();
  LetStrangersCome(/*sources=*/70, /*count=*/8, {});
  EXPECT_FALSE(slow.Introduce().ok());
}

TEST_F(KeyedLinkServerTest, WhereANeighbourProvedItselfIsKnownHoweverManyPeersThereWere) {
  std::string peers = "b=127.0.0.1:1\n";
  for (size_t i = 1; i < kMaxNeighbours; ++i)
    peers += Text("p", i, "=127.1.", i / 250, ".", i % 250 + 1, ":1\n");
  WritePeers(peers);
  ASSERT_TRUE(test::Eventually([&] { return server_->totals().configured == kMaxNeighbours; }));
  WritePeers("b=127.0.0.1:1\n");
  ASSERT_TRUE(LinksBecome({"b (127.0.0.1:1)"}));
  RawNeighbour first(server_->listening(), b_, "127.0.0.77");
  ASSERT_OK(first.Introduce());
  RawNeighbour slow(server_->listening(), b_, "127.0.0.77");
  slow.HearAnswer();
  LetStrangersCome(/*sources=*/70, /*count=*/8, {});
  EXPECT_OK(slow.Introduce()) << "evicted by strangers";
}

// Each of many peers is dialed, and dials, too.
TEST_F(KeyedLinkServerTest, ConnectionsThatItMakesTakeNoRoomFromThoseOfOthers) {
  const UniqueFd silent(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(silent.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(silent.get(), SOMAXCONN), 0);
  ASSERT_EQ(getsockname(silent.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  std::string peers;
  for (size_t i = 0; i <= kMaxConnections; ++i)
    peers += Text("p", i, "=127.1.", i / 250, ".", i % 250 + 1, ":", ntohs(address.sin_port), "\n");
  WritePeers(peers);
  std::list<UniqueFd> dialed;
  for (size_t i = 0; i <= kMaxConnections; ++i)
    dialed.emplace_back(accept4(silent.get(), nullptr, nullptr, SOCK_CLOEXEC));
  EXPECT_OK(RawNeighbour(server_->listening(), b_).Introduce());
}

// A neighbour that leaves old connections behind keeps neither itself nor others out.
TEST_F(KeyedLinkServerTest, OneNeighboursConnectionsAreBounded) {
  std::list<RawNeighbour> all;
  for (size_t i = 0; i < kMaxConnectionsOfNeighbour + 3; ++i)
    ASSERT_OK(all.emplace_back(server_->listening(), b_).Introduce());
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(all.front().Hear().has_value()) << "the oldest is still open";
    all.pop_front();
  }
  for (RawNeighbour& each : all) {
    each.Ask(1);
    ASSERT_NE(NextRequest(), kNoLink);
    EXPECT_TRUE(each.AwaitAnswers(1));
  }
}

}  // namespace
}  // namespace hyperloop::softrnic
