// Which hosts may connect on the control plane, and what strangers and attackers between two hosts
// can do there.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <thread>

#include "control/client.h"
#include "control/server.h"
#include "support/control_host.h"
#include "support/eventually.h"
#include "support/log_lines.h"
#include "support/status_matchers.h"

namespace hyperloop::control {
namespace {

using namespace std::chrono_literals;
using identity::kEveryRole;
using identity::kRoleLink;
using identity::kRolePrimary;
using identity::kRoleReplica;

bool Has(const Status& status, std::string_view text) {
  return status.message().find(text) != std::string::npos;
}

// A server that answers every request with Done, Hello with HelloReply.
class Serving {
 public:
  explicit Serving(Trust trust, const std::shared_ptr<Log>& log = nullptr)
      : host_(
            std::move(trust), [this](const BodyUnion& request) { return Answer(request); }, log) {}
  const Endpoint& endpoint() const { return host_.endpoint(); }
  int handled() const { return handled_; }
  std::string host = "r0";  // set before anybody asks

 private:
  BodyUnion Answer(const BodyUnion& request) {
    ++handled_;
    if (As<HelloRequestT>(request) == nullptr) return MakeBody(DoneT{});
    HelloReplyT reply;
    reply.host = host;
    return MakeBody(std::move(reply));
  }

  std::atomic<int> handled_{0};
  test::ControlHost host_;  // last: it uses the members above
};

class TrustTest : public testing::Test {
 protected:
  TrustTest() {
    std::string pattern = "/dev/shm/hyperloop-trust-XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    for (const char* name : {"ann", "rep", "eve", "tool"}) {
      EXPECT_OK(identity::MakeIdentity(Dir(name), name));
    }
    // ann is a primary of rep, and tool is another replica. eve knows everybody, but nobody knows
    // eve.
    Know("rep", "ann", kRolePrimary);
    Know("rep", "tool", kRoleReplica | kRoleLink);
    Know("ann", "rep", kRoleReplica);
    Know("tool", "rep", kRoleReplica);
    Know("eve", "rep", kRoleReplica);
  }
  ~TrustTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::string Dir(const std::string& name) const { return folder_ + "/" + name; }
  void Know(const std::string& who, const std::string& whom, identity::Roles roles,
            const std::string& endpoint = "", const std::string& as = "") {
    const auto ring = identity::KeyRing::Load(Dir(whom));
    ASSERT_OK(ring);
    const Status trusted =
        identity::Trust(Dir(who), {as.empty() ? whom : as, (*ring)->public_key(), roles, endpoint});
    ASSERT_OK(trusted);
  }
  Trust Of(const std::string& name) const {
    const auto trust = Trust::Load(Dir(name), nullptr);
    EXPECT_OK(trust);
    return trust.ok() ? *trust : Trust();
  }
  static Status Hello(const Endpoint& endpoint, const Trust& trust) {
    auto client = ControlClient::Connect(endpoint, trust, 20s);
    if (!client.ok()) return client.status();
    return (*client)->Call<HelloReplyT>(HelloRequestT{}, 20s).status();
  }
  template <class Request>
  static Status Ask(const Endpoint& endpoint, const Trust& trust) {
    auto client = ControlClient::Connect(endpoint, trust, 20s);
    if (!client.ok()) return client.status();
    return (*client)->Call<DoneT>(Request{}, 20s).status();
  }
  // Every request that only a primary may make, and its name.
  static std::vector<std::pair<const char*, Status (*)(const Endpoint&, const Trust&)>> Changes() {
    return {{"SealRequest", Ask<SealRequestT>},
            {"ExamineRequest", Ask<ExamineRequestT>},
            {"AttachRequest", Ask<AttachRequestT>},
            {"ChecksumsRequest", Ask<ChecksumsRequestT>},
            {"InstallRequest", Ask<InstallRequestT>},
            {"PrepareMemberRequest", Ask<PrepareMemberRequestT>},
            {"ConnectMemberRequest", Ask<ConnectMemberRequestT>},
            {"ReconnectRequest", Ask<ReconnectRequestT>},
            {"ReleaseRequest", Ask<ReleaseRequestT>}};
  }
  std::string folder_;
};

TEST_F(TrustTest, APrimaryThatIsKnownIsServed) {
  const Serving server(Of("rep"));
  EXPECT_OK(Hello(server.endpoint(), Of("ann")));
  for (const auto& [name, ask] : Changes()) EXPECT_OK(ask(server.endpoint(), Of("ann"))) << name;
  EXPECT_EQ(server.handled(), 10);
}

// In an earlier version one message of another user ended a running database.
TEST_F(TrustTest, NoMessageOfAStrangerIsHandled) {
  const auto log = std::make_shared<LogLines>();
  const Serving server(Of("rep"), log);
  EXPECT_THAT(Hello(server.endpoint(), Of("eve")), StatusIs(Code::kPermissionDenied));
  EXPECT_THAT(Ask<ExamineRequestT>(server.endpoint(), Of("eve")),
              StatusIs(Code::kPermissionDenied));
  for (const auto& [name, ask] : Changes()) {
    const Status refused = ask(server.endpoint(), Of("eve"));
    EXPECT_THAT(refused, StatusIs(Code::kPermissionDenied)) << name;
    EXPECT_TRUE(Has(refused, "hyperloopctl keys trust")) << refused.message();
  }
  EXPECT_EQ(server.handled(), 0);
  EXPECT_TRUE(log->Has("is not trusted here; it says that it is eve"));
}

TEST_F(TrustTest, WithoutKeysNoMessageIsHandledEither) {
  const Serving keyed(Of("rep"));
  EXPECT_THAT(Hello(keyed.endpoint(), Trust()), StatusIs(Code::kPermissionDenied));
  EXPECT_THAT(Ask<ExamineRequestT>(keyed.endpoint(), Trust()), StatusIs(Code::kPermissionDenied));
  for (const auto& [name, ask] : Changes()) {
    const Status refused = ask(keyed.endpoint(), Trust());
    EXPECT_THAT(refused, StatusIs(Code::kPermissionDenied)) << name;
    EXPECT_TRUE(Has(refused, "hyperloopctl keys init")) << refused.message();
  }
  EXPECT_EQ(keyed.handled(), 0);
  // An end with keys does not talk to one without either.
  const Serving plain{Trust()};
  EXPECT_THAT(Hello(plain.endpoint(), Of("ann")), StatusIs(Code::kPermissionDenied));
  EXPECT_OK(Hello(plain.endpoint(), Trust()));
  EXPECT_EQ(plain.handled(), 1);
}

TEST_F(TrustTest, WhoIsNoPrimaryMayLookAndNotChange) {
  const Serving server(Of("rep"));
  EXPECT_OK(Hello(server.endpoint(), Of("tool")));
  EXPECT_EQ(server.handled(), 1);
  for (const auto& [name, ask] : Changes()) {
    const Status refused = ask(server.endpoint(), Of("tool"));
    EXPECT_THAT(refused, StatusIs(Code::kPermissionDenied)) << name;
    EXPECT_TRUE(Has(refused, std::string(name) + " needs the role primary, and tool has"))
        << refused.message();
    // The command gives all roles that the line is to have.
    const std::string key =
        identity::KeyText((*identity::KeyRing::Load(Dir("tool")))->public_key());
    EXPECT_TRUE(Has(refused, "hyperloopctl keys trust --dir " + Dir("rep") + " tool " + key +
                                 " primary,replica,link"))
        << refused.message();
  }
  EXPECT_EQ(server.handled(), 1);
}

// Every replica is told the owner's id, and could keep a dead primary alive at all others.
TEST_F(TrustTest, WhoIsNoPrimaryShowsNoOwnerAlive) {
  const Serving server(Of("rep"));
  HelloRequestT request;
  request.owner_id.assign(16, 7);
  const auto hello = [&](const char* who) {
    auto client = ControlClient::Connect(server.endpoint(), Of(who), 20s);
    EXPECT_OK(client);
    return (*client)->Call<HelloReplyT>(request, 20s).status();
  };
  const Status refused = hello("tool");
  EXPECT_THAT(refused, StatusIs(Code::kPermissionDenied));
  EXPECT_TRUE(Has(refused, "HelloRequest of an owner needs the role primary, and tool has"))
      << refused.message();
  EXPECT_EQ(server.handled(), 0);
  EXPECT_OK(hello("ann"));
  EXPECT_EQ(server.handled(), 1);
}

// The primary would refuse it, too, and only its log would say so.
TEST_F(TrustTest, AProposalThatVouchesForNothingIsOfAnOlderRelease) {
  const Serving server(Of("rep"));
  const Status refused = Ask<ProposeRequestT>(server.endpoint(), Of("ann"));
  EXPECT_THAT(refused, StatusIs(Code::kNotSupported));
  EXPECT_TRUE(Has(refused, "hyperloopctl of an older release")) << refused.message();
  EXPECT_THAT(Ask<ProposeRequestT>(server.endpoint(), Of("tool")),
              StatusIs(Code::kPermissionDenied));
  EXPECT_EQ(server.handled(), 0);
}

TEST_F(TrustTest, NobodyElseHasThisHostsNameThoughNoLineHasIt) {
  const auto ring = *identity::KeyRing::Load(Dir("ann"));
  const auto rep = (*identity::KeyRing::Load(Dir("rep")))->public_key();
  const Status refused = Of("ann").CheckHost(*ring->Find(rep), "ann");
  EXPECT_THAT(refused, StatusIs(Code::kPermissionDenied));
  EXPECT_TRUE(
      Has(refused, "keys trust --dir " + Dir("ann") + " ann " + identity::KeyText(rep) + " ROLES"))
      << refused.message();
  EXPECT_OK(Of("ann").CheckHost(*ring->Find(ring->public_key()), "ann"));
}

TEST_F(TrustTest, APrimaryTalksToReplicasItKnowsAlone) {
  Know("eve", "ann", kRolePrimary);
  const Serving eve(Of("eve"));
  EXPECT_THAT(Hello(eve.endpoint(), Of("ann")), StatusIs(Code::kPermissionDenied));
  Know("ann", "eve", kRoleLink);
  const Status refused = Hello(eve.endpoint(), Of("ann"));
  EXPECT_THAT(refused, StatusIs(Code::kPermissionDenied));
  EXPECT_TRUE(Has(refused, "replica " + eve.endpoint().ToString())) << refused.message();
  EXPECT_EQ(eve.handled(), 0);
}

TEST_F(TrustTest, NobodyAnswersInThePlaceOfAnother) {
  Know("tool", "ann", kRolePrimary);
  const Serving rep(Of("rep")), tool(Of("tool"));
  // rep is where `trusted` places it.
  Know("ann", "rep", kRoleReplica, rep.endpoint().ToString());
  Know("ann", "tool", kRoleReplica);
  EXPECT_OK(Hello(rep.endpoint(), Of("ann")));
  EXPECT_OK(Hello(tool.endpoint(), Of("ann")));
  // The reverse: `trusted` places tool somewhere else.
  Know("ann", "tool", kRoleReplica, "127.0.0.1:1");
  const Status elsewhere = Hello(tool.endpoint(), Of("ann"));
  EXPECT_THAT(elsewhere, StatusIs(Code::kPermissionDenied));
  EXPECT_TRUE(Has(elsewhere, "places it at 127.0.0.1:1")) << elsewhere.message();
  // `trusted` places rep where tool is.
  Know("ann", "tool", kRoleReplica);
  Know("ann", "rep", kRoleReplica, tool.endpoint().ToString());
  const Status posing = Hello(tool.endpoint(), Of("ann"));
  EXPECT_THAT(posing, StatusIs(Code::kPermissionDenied));
  EXPECT_TRUE(Has(posing, "expected rep")) << posing.message();
}

TEST_F(TrustTest, NobodysRnicIsThatOfAnother) {
  Serving rep(Of("rep"));
  rep.host = "tool";  // a name that ann knows as another's only later
  EXPECT_OK(Hello(rep.endpoint(), Of("ann")));
  Know("ann", "tool", kRoleReplica);
  const Status posing = Hello(rep.endpoint(), Of("ann"));
  EXPECT_THAT(posing, StatusIs(Code::kPermissionDenied));
  EXPECT_TRUE(Has(posing, "host tool")) << posing.message();
  Know("ann", "rep", kRoleReplica, "", "tool");  // one key of two names
  EXPECT_OK(Hello(rep.endpoint(), Of("ann")));
}

TEST_F(TrustTest, WithoutKeysAServerListensOnLoopbackOnly) {
  const auto handler = [](const BodyUnion&) { return MakeBody(DoneT{}); };
  const auto refused = ControlServer::Listen({"0.0.0.0", 0}, Trust(), handler);
  EXPECT_THAT(refused, StatusIs(Code::kPermissionDenied));
  EXPECT_TRUE(Has(refused.status(), "hyperloopctl keys init")) << refused.status().message();
  EXPECT_THAT(ControlServer::Listen({"::", 0}, Trust(), handler),
              StatusIs(Code::kPermissionDenied));
  EXPECT_OK(ControlServer::Listen({"127.0.0.1", 0}, Trust(), handler));
  EXPECT_OK(ControlServer::Listen({"0.0.0.0", 0}, Of("rep"), handler));
}

// The files are read again when a connection begins; connections that exist go on.
TEST_F(TrustTest, KeysChangeWhileTheServerRuns) {
  const auto log = std::make_shared<LogLines>();
  const auto rep = Trust::Load(Dir("rep"), log);
  ASSERT_OK(rep);
  const Serving server(*rep);
  auto old = ControlClient::Connect(server.endpoint(), Of("ann"), 20s);
  ASSERT_OK(old);
  EXPECT_OK((*old)->Call<DoneT>(SealRequestT{}, 20s));

  // ann gets a second key: it is made, trusted, and put in place of the first.
  ASSERT_OK(identity::MakeIdentity(Dir("ann2"), "ann"));
  Know("rep", "ann2", kRolePrimary, "", "ann");
  const Trust ann = Of("ann");
  std::filesystem::rename(Dir("ann2") + "/identity", Dir("ann") + "/identity");
  EXPECT_OK(Ask<SealRequestT>(server.endpoint(), ann)) << "the same process, the new key";
  EXPECT_OK((*old)->Call<DoneT>(SealRequestT{}, 20s));

  // Nobody is trusted any more, which takes effect at once for new connections.
  const std::string trusted = Dir("rep") + "/trusted";
  std::filesystem::rename(trusted, trusted + ".away");
  std::filesystem::copy(Dir("eve") + "/trusted", trusted);
  EXPECT_THAT(Ask<SealRequestT>(server.endpoint(), ann), StatusIs(Code::kPermissionDenied));
  EXPECT_OK((*old)->Call<DoneT>(SealRequestT{}, 20s));

  // A file that cannot be used is reported, and what was read before stays in force.
  std::filesystem::rename(trusted + ".away", trusted);
  EXPECT_OK(Ask<SealRequestT>(server.endpoint(), ann));
  std::filesystem::permissions(trusted, std::filesystem::perms::all);
  EXPECT_OK(Ask<SealRequestT>(server.endpoint(), ann));
  EXPECT_TRUE(log->Has("what was read before stays in force"));
}

// --- crowds

UniqueFd Connected(const Endpoint& endpoint) {
  auto fd = ConnectTo(endpoint, Clock::now() + 20s);
  EXPECT_OK(fd);
  return fd.ok() ? std::move(fd).value() : UniqueFd();
}

// The same from the address 127.NET.0.HOST.
UniqueFd Connected(const Endpoint& endpoint, uint32_t net, uint32_t host) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl((127u << 24) | (net << 16) | host);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(endpoint.port);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return fd;
}

// True once the server has ended the connection; false while it stands.
bool Ended(const UniqueFd& fd) {
  std::byte byte;
  const ssize_t got = recv(fd.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN);
}

TEST_F(TrustTest, StrangersNeverTakeThePlaceOfThoseWhoAreKnown) {
  const Serving server(Of("rep"));
  std::vector<std::unique_ptr<ControlClient>> known;
  for (size_t i = 0; i < ControlServer::kMaxConnections; ++i) {
    auto client = ControlClient::Connect(server.endpoint(), Of("ann"), 20s);
    ASSERT_OK(client);
    ASSERT_OK((*client)->Call<HelloReplyT>(HelloRequestT{}, 20s));
    known.push_back(std::move(client).value());
  }
  std::vector<UniqueFd> crowd;
  for (size_t i = 0; i < 2 * ControlServer::kStrangerLimits.of_source; ++i)
    crowd.push_back(Connected(server.endpoint()));
  // The first of them has made room, so all were let in.
  const auto deadline = Clock::now() + 20s;
  while (!Ended(crowd[ControlServer::kStrangerLimits.of_source - 1]) && Clock::now() < deadline)
    std::this_thread::yield();
  EXPECT_TRUE(Ended(crowd.front()));
  for (const auto& client : known) EXPECT_OK(client->Call<HelloReplyT>(HelloRequestT{}, 20s));
  // One more connection of a known peer replaces one of its own.
  EXPECT_OK(Hello(server.endpoint(), Of("tool")));
  int lost = 0;
  for (const auto& client : known)
    lost += client->Call<HelloReplyT>(HelloRequestT{}, 20s).ok() ? 0 : 1;
  EXPECT_EQ(lost, 1);
}

// They fill all places of strangers, each from an address of its own.
TEST_F(TrustTest, StrangersFromManyAddressesEndNoKnownPeersIntroduction) {
  const Serving server(Of("rep"));
  ASSERT_OK(Hello(server.endpoint(), Of("ann")));
  const UniqueFd introducing = Connected(server.endpoint());
  std::vector<UniqueFd> crowd;
  for (size_t i = 0; i < ControlServer::kStrangerLimits.all + 50; ++i)
    crowd.push_back(Connected(server.endpoint(), 1 + i / 200, 1 + i % 200));
  EXPECT_TRUE(test::Eventually([&] { return Ended(crowd.front()) || Ended(introducing); }));
  EXPECT_FALSE(Ended(introducing));
}

// Strangers connect without end, some of them with the first words of an introduction.
TEST_F(TrustTest, WhoIsKnownIsLetInWhileStrangersFlood) {
  const Serving server(Of("rep"));
  std::atomic<bool> stop{false};
  std::atomic<int> connections{0};
  std::vector<std::thread> flood;
  const Trust eve = Of("eve");
  for (int i = 0; i < 3; ++i) {
    flood.emplace_back([&, i] {
      std::vector<UniqueFd> held(200);
      for (size_t n = 0; !stop; n = (n + 1) % held.size()) {
        auto fd = ConnectTo(server.endpoint(), Clock::now() + 1s);
        if (!fd.ok()) continue;
        if (i == 0) {
          const auto words = eve.Dial(server.endpoint())->TakeOutput();
          static_cast<void>(send(fd->get(), words.data(), words.size(), MSG_NOSIGNAL));
        }
        held[n] = std::move(fd).value();
        ++connections;
      }
    });
  }
  while (connections < 500) std::this_thread::yield();
  for (int i = 0; i < 20; ++i) {
    EXPECT_OK(Hello(server.endpoint(), Of("ann")));
  }
  EXPECT_EQ(server.handled(), 20);
  stop = true;
  for (std::thread& each : flood) each.join();
}

// --- an attacker between two hosts

// Passes connections on, one at a time, records the bytes of one direction, and may change one of
// them.
class OnTheWay {
 public:
  // Changes byte `at` of the caller's or the server's bytes.
  OnTheWay(const Endpoint& target, bool of_caller, size_t at)
      : target_(target), of_caller_(of_caller), at_(at) {
    auto listener = ListenOn({"127.0.0.1", 0}, &endpoint_);
    EXPECT_OK(listener);
    listener_ = std::move(listener).value();
    thread_ = std::thread([this] { Run(); });
  }
  ~OnTheWay() {
    stop_ = true;
    thread_.join();
  }
  const Endpoint& endpoint() const { return endpoint_; }
  size_t passed() const { return passed_; }  // of the direction in question
  std::vector<std::byte> said() const {
    const std::lock_guard lock(mutex_);
    return said_;
  }

 private:
  void Run() {
    while (!stop_) {
      if (!WaitReady(listener_.get(), POLLIN, Clock::now() + 5ms).ok()) continue;
      const UniqueFd caller(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      auto server = ConnectTo(target_, Clock::now() + 20s);
      if (!server.ok()) return;
      passed_ = 0;
      const std::array<int, 2> ends = {caller.get(), server->get()};
      while (!stop_ && Pass(ends)) {
      }
    }
  }
  bool Pass(const std::array<int, 2>& ends) {
    std::array<pollfd, 2> ready = {pollfd{ends[0], POLLIN, 0}, pollfd{ends[1], POLLIN, 0}};
    if (poll(ready.data(), ready.size(), 5) <= 0) return true;
    for (size_t from = 0; from < 2; ++from) {
      if (ready[from].revents == 0) continue;
      std::array<std::byte, 4096> piece;
      const ssize_t got = recv(ends[from], piece.data(), piece.size(), 0);
      if (got <= 0) return false;
      const auto size = static_cast<size_t>(got);
      if ((from == 0) == of_caller_) {
        const std::lock_guard lock(mutex_);
        said_.insert(said_.end(), piece.begin(), piece.begin() + got);
        if (at_ >= passed_ && at_ < passed_ + size) piece[at_ - passed_] ^= std::byte{0x10};
        passed_ += size;
      }
      if (send(ends[1 - from], piece.data(), size, MSG_NOSIGNAL) != got) return false;
    }
    return true;
  }

  const Endpoint target_;
  const bool of_caller_;
  const size_t at_;
  Endpoint endpoint_;
  UniqueFd listener_;
  std::atomic<bool> stop_{false};
  std::atomic<size_t> passed_{0};
  mutable std::mutex mutex_;
  std::vector<std::byte> said_;  // of the direction in question
  std::thread thread_;
};

constexpr size_t kNowhere = SIZE_MAX;

TEST_F(TrustTest, AByteChangedOnTheWayIsNoticed) {
  const Serving server(Of("rep"));
  const Trust ann = Of("ann");
  for (const bool of_caller : {true, false}) {
    size_t length = 0;
    {
      OnTheWay way(server.endpoint(), of_caller, kNowhere);
      ASSERT_OK(Hello(way.endpoint(), ann));
      length = way.passed();
    }
    ASSERT_GT(length, 200u);
    for (size_t at = 0; at < length; at += 1 + at / 16) {
      OnTheWay way(server.endpoint(), of_caller, at);
      const int before = server.handled();
      auto client = ControlClient::Connect(way.endpoint(), ann, 20s);
      ASSERT_OK(client);
      // A length that grew leaves both ends waiting for more.
      const Status hello = (*client)->Call<HelloReplyT>(HelloRequestT{}, 200ms).status();
      EXPECT_THAT(hello,
                  testing::AnyOf(StatusIs(Code::kUnavailable), StatusIs(Code::kTimedOut),
                                 StatusIs(Code::kNotSupported), StatusIs(Code::kPermissionDenied)))
          << "byte " << at;
      EXPECT_NE(hello.code(), Code::kCorruption) << hello.ToString();
      if (of_caller) {
        EXPECT_EQ(server.handled(), before) << "byte " << at;
      }
    }
  }
}

TEST_F(TrustTest, WhatWasSaidOnceIsNotHeardAgain) {
  const Serving server(Of("rep"));
  std::vector<std::byte> said;
  {
    OnTheWay way(server.endpoint(), true, kNowhere);
    ASSERT_OK(Ask<SealRequestT>(way.endpoint(), Of("ann")));
    said = way.said();
  }
  ASSERT_EQ(server.handled(), 1);
  const UniqueFd again = Connected(server.endpoint());
  ASSERT_EQ(send(again.get(), said.data(), said.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(said.size()));
  const auto deadline = Clock::now() + 20s;
  std::array<std::byte, 4096> answer;
  ssize_t got = 1;
  while (got > 0) {
    ASSERT_OK(WaitReady(again.get(), POLLIN, deadline));
    got = recv(again.get(), answer.data(), answer.size(), 0);
  }
  EXPECT_EQ(server.handled(), 1);
}

}  // namespace
}  // namespace hyperloop::control
