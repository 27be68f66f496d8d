// ControlClient and ControlServer against each other, and against peers that do not keep to the
// protocol.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <optional>
#include <thread>

#include "control/client.h"
#include "control/server.h"
#include "support/status_matchers.h"

namespace hyperloop::control {
namespace {

using namespace std::chrono_literals;

// A server on a thread of its own; it answers Hello with a region size and everything else with an
// error.
class ServerFixture : public testing::Test {
 protected:
  ServerFixture() {
    auto server =
        ControlServer::Listen({"127.0.0.1", 0}, Trust(), [this](const BodyUnion& request) {
          ++handled_;
          if (As<HelloRequestT>(request) != nullptr) {
            HelloReplyT reply;
            reply.region_size = 4096;
            return MakeBody(std::move(reply));
          }
          if (As<ChecksumsRequestT>(request) != nullptr) {
            ChecksumsReplyT reply;
            reply.checksums.assign(512 << 10, 1);  // larger than socket buffers
            return MakeBody(std::move(reply));
          }
          return MakeError(Fenced("no"));
        });
    EXPECT_OK(server);
    server_ = std::move(server).value();
    wake_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
    thread_ = std::thread([this] {
      while (!stop_) EXPECT_OK(server_->Serve(Deadline::max(), wake_.get()));
    });
  }
  ~ServerFixture() override {
    stop_ = true;
    const uint64_t one = 1;
    EXPECT_EQ(write(wake_.get(), &one, sizeof(one)), 8);
    thread_.join();
  }
  UniqueFd RawConnection() {
    auto fd = ConnectTo(server_->endpoint(), Clock::now() + 5s);
    EXPECT_OK(fd);
    return std::move(fd).value();
  }
  static void SendBytes(const UniqueFd& fd, std::span<const uint8_t> bytes) {
    ASSERT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Everything until the peer closes.
  static std::vector<uint8_t> Drain(const UniqueFd& fd) {
    std::vector<uint8_t> all(64 << 10);
    size_t have = 0;
    ssize_t got = 1;
    while (got > 0) {
      EXPECT_OK(WaitReady(fd.get(), POLLIN, Clock::now() + 20s)) << "not closed";
      got = recv(fd.get(), all.data() + have, all.size() - have, 0);
      have += static_cast<size_t>(std::max<ssize_t>(got, 0));
    }
    EXPECT_EQ(got, 0);
    all.resize(have);
    return all;
  }
  Status Hello() {
    auto client = ControlClient::Connect(server_->endpoint(), Trust(), 5s);
    if (!client.ok()) return client.status();
    return (*client)->Call<HelloReplyT>(HelloRequestT{}, 5s).status();
  }

  std::atomic<bool> stop_{false};
  std::atomic<int> handled_{0};
  UniqueFd wake_;
  std::unique_ptr<ControlServer> server_;
  std::thread thread_;
};

TEST_F(ServerFixture, AnswersManyRequestsOnOneConnection) {
  auto client = ControlClient::Connect(server_->endpoint(), Trust(), 5s);
  ASSERT_OK(client);
  for (int i = 0; i < 100; ++i) {
    const auto reply = (*client)->Call<HelloReplyT>(HelloRequestT{}, 5s);
    ASSERT_OK(reply);
    EXPECT_EQ(reply->region_size, 4096u);
  }
  // An error is an answer: the connection goes on.
  const auto refused = (*client)->Call<DoneT>(ReleaseRequestT{}, 5s);
  EXPECT_THAT(refused, StatusIs(Code::kFenced));
  EXPECT_NE(refused.status().message().find(server_->endpoint().ToString()), std::string::npos);
  EXPECT_OK((*client)->Call<HelloReplyT>(HelloRequestT{}, 5s));
  // An answer of another type is not taken for the right one.
  EXPECT_THAT((*client)->Call<SealReplyT>(HelloRequestT{}, 5s), StatusIs(Code::kCorruption));
}

// While a peer waits to be accepted and no descriptor is left, the server must not spin.
TEST(ControlServer, OutOfDescriptorsItPausesAndRecovers) {
  auto server = ControlServer::Listen({"127.0.0.1", 0}, Trust(),
                                      [](const BodyUnion&) { return MakeError(Fenced("no")); });
  ASSERT_OK(server);
  const UniqueFd wake(eventfd(0, EFD_CLOEXEC));
  auto waiting = ConnectTo((*server)->endpoint(), Clock::now() + 5s);
  ASSERT_OK(waiting);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 3;  // for new descriptors; those that are open stay
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  int turns = 0;
  for (const auto until = Clock::now() + 350ms; Clock::now() < until; ++turns) {
    EXPECT_OK((*server)->Serve(until, wake.get()));
  }
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_LT(turns, 20);
  const auto words = Trust().Dial((*server)->endpoint())->TakeOutput();
  ASSERT_EQ(send(waiting->get(), words.data(), words.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(words.size()));
  const auto deadline = Clock::now() + 5s;
  while (!WaitReady(waiting->get(), POLLIN, Clock::now()).ok() && Clock::now() < deadline) {
    EXPECT_OK((*server)->Serve(Clock::now() + 20ms, wake.get()));
  }
  EXPECT_OK(WaitReady(waiting->get(), POLLIN, Clock::now() + 1s)) << "not accepted later";
}

// Several become known in one turn of the server. Each of them displaces another one.
TEST(ControlServer, PeersThatIntroduceThemselvesAtOnceKeepToTheirPlaces) {
  auto server = ControlServer::Listen({"127.0.0.1", 0}, Trust(),
                                      [](const BodyUnion&) { return MakeError(Fenced("no")); });
  ASSERT_OK(server);
  const auto words = Trust().Dial((*server)->endpoint())->TakeOutput();
  const auto serve = [&server] {
    for (int turn = 0; turn < 10; ++turn) EXPECT_OK((*server)->Serve(Clock::now(), -1));
  };
  std::vector<UniqueFd> crowd;
  while (crowd.size() < 3 * ControlServer::kMaxConnections) {
    const size_t before = crowd.size();
    for (size_t i = 0; i < ControlServer::kMaxConnections / 2; ++i) {
      auto fd = ConnectTo((*server)->endpoint(), Clock::now() + 5s);
      ASSERT_OK(fd);
      crowd.push_back(std::move(fd).value());
    }
    serve();
    for (size_t i = before; i < crowd.size(); ++i)
      ASSERT_EQ(send(crowd[i].get(), words.data(), words.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(words.size()));
    serve();
  }
  const auto kept = std::count_if(crowd.begin(), crowd.end(), [](const UniqueFd& fd) {
    std::array<std::byte, 4096> answer;
    ssize_t got = 1;
    while (got > 0) got = recv(fd.get(), answer.data(), answer.size(), 0);
    return got < 0 && errno == EAGAIN;
  });
  EXPECT_EQ(static_cast<size_t>(kept), ControlServer::kMaxConnections);
}

TEST_F(ServerFixture, LongAnswersPassInPieces) {
  auto client = ControlClient::Connect(server_->endpoint(), Trust(), 5s);
  ASSERT_OK(client);
  const auto reply = (*client)->Call<ChecksumsReplyT>(ChecksumsRequestT{}, 10s);
  ASSERT_OK(reply);
  EXPECT_EQ(reply->checksums.size(), 512u << 10);
}

// A connection whose peer has introduced itself.
class SpokenConnection {
 public:
  explicit SpokenConnection(UniqueFd fd)
      : fd_(std::move(fd)), channel_(Trust().Dial({"127.0.0.1", 1}), kMaxReply) {
    Flush();
    while (!channel_.open()) EXPECT_FALSE(Hear().has_value());
  }
  // Without an introduction.
  void SayRaw(std::span<const uint8_t> bytes) {
    EXPECT_EQ(send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Sends the bytes as one piece of the stream of messages.
  void Say(std::span<const uint8_t> bytes) {
    channel_.Send(bytes);
    Flush();
  }
  // The next message; nothing if only a part arrived, the stream ended, or the channel just opened.
  std::optional<BodyUnion> Hear() {
    const bool before = channel_.open();
    const auto message = channel_.Next();
    EXPECT_OK(message);
    if (channel_.open() != before) return std::nullopt;
    if (message.ok() && message->has_value()) {
      auto body = ParseMessage(**message);
      EXPECT_OK(body);
      if (body.ok()) return std::move(body).value();
    }
    std::array<std::byte, 4096> piece;
    EXPECT_OK(WaitReady(fd_.get(), POLLIN, Clock::now() + 20s));
    const ssize_t got = recv(fd_.get(), piece.data(), piece.size(), 0);
    ended_ = got <= 0;
    if (!ended_) channel_.Append(std::span(piece).first(static_cast<size_t>(got)));
    return std::nullopt;
  }
  bool ended() const { return ended_; }

 private:
  void Flush() {
    const auto output = channel_.TakeOutput();
    EXPECT_EQ(send(fd_.get(), output.data(), output.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(output.size()));
  }
  UniqueFd fd_;
  MessageChannel channel_;
  bool ended_ = false;
};

TEST_F(ServerFixture, MalformedMessageGetsAnErrorAndNothingMore) {
  const std::vector<std::vector<uint8_t>> attacks = {
      {0, 0, 0, 0},                          // empty
      {0xff, 0xff, 0xff, 0xff},              // 4 GiB announced
      {8, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8},  // not a message
      {'G', 'E', 'T', ' '}};
  for (const auto& attack : attacks) {
    SpokenConnection connection(RawConnection());
    connection.Say(attack);
    std::optional<BodyUnion> answer;
    while (!answer.has_value() && !connection.ended()) answer = connection.Hear();
    ASSERT_TRUE(answer.has_value());
    EXPECT_NE(As<ErrorT>(*answer), nullptr);
    while (!connection.ended()) EXPECT_FALSE(connection.Hear().has_value());
  }
  EXPECT_EQ(handled_, 0);
  EXPECT_OK(Hello());
}

TEST_F(ServerFixture, WhoDoesNotIntroduceItselfIsClosed) {
  const auto request = EncodeFrame(MakeBody(HelloRequestT{}));  // as earlier releases began
  const std::vector<uint8_t> attacks[] = {{0, 0, 0, 0},
                                          {0xff, 0xff, 0xff, 0xff},
                                          request,
                                          {'G', 'E', 'T', ' ', '/', ' ', 'H', 'T', 'T', 'P'}};
  for (const auto& attack : attacks) {
    const UniqueFd fd = RawConnection();
    SendBytes(fd, attack);
    EXPECT_TRUE(Drain(fd).empty());
  }
  EXPECT_EQ(handled_, 0);
  EXPECT_OK(Hello());
}

TEST_F(ServerFixture, PipelinedRequestsAreAnsweredInOrder) {
  SpokenConnection connection(RawConnection());
  const auto frame = EncodeFrame(MakeBody(HelloRequestT{}));
  std::vector<uint8_t> three;
  for (int i = 0; i < 3; ++i) three.insert(three.end(), frame.begin(), frame.end());
  connection.Say(three);
  int answered = 0;
  while (answered < 3 && !connection.ended()) answered += connection.Hear().has_value() ? 1 : 0;
  EXPECT_EQ(answered, 3);
  EXPECT_EQ(handled_, 3);
}

// Half a frame neither blocks others nor keeps its place for ever.
TEST_F(ServerFixture, SlowSenderIsDroppedAndDisturbsNobody) {
  const UniqueFd stranger = RawConnection();
  const auto words = Trust().Dial(server_->endpoint())->TakeOutput();
  SendBytes(stranger, std::span(reinterpret_cast<const uint8_t*>(words.data()), words.size() / 2));
  SpokenConnection slow(RawConnection());
  const auto frame = EncodeFrame(MakeBody(HelloRequestT{}));
  slow.Say(std::span(frame).first(frame.size() / 2));
  EXPECT_OK(Hello());
  EXPECT_TRUE(Drain(stranger).empty());  // ends only when the server closes
  while (!slow.ended()) EXPECT_FALSE(slow.Hear().has_value());
  EXPECT_OK(Hello());
}

TEST_F(ServerFixture, CrowdOfIdleConnectionsLeavesRoom) {
  std::vector<UniqueFd> crowd;
  for (size_t i = 0; i < 2 * ControlServer::kMaxConnections; ++i) crowd.push_back(RawConnection());
  EXPECT_OK(Hello());
}

TEST(ControlClientTest, NobodyThereIsNamedWithTheRemedy) {
  Endpoint bound;
  {
    const auto listener = ListenOn({"127.0.0.1", 0}, &bound);
    ASSERT_OK(listener);
  }
  const auto client = ControlClient::Connect(bound, Trust(), 2s);
  ASSERT_THAT(client, StatusIs(Code::kUnavailable));
  EXPECT_NE(client.status().message().find(bound.ToString()), std::string::npos);
  EXPECT_NE(client.status().message().find("hyperloop-replica"), std::string::npos);
}

TEST(ControlClientTest, SilentPeerTimesOut) {
  Endpoint bound;
  const auto listener = ListenOn({"127.0.0.1", 0}, &bound);  // accepts by backlog, never answers
  ASSERT_OK(listener);
  auto client = ControlClient::Connect(bound, Trust(), 2s);
  ASSERT_OK(client);
  const auto reply = (*client)->Call<HelloReplyT>(HelloRequestT{}, 50ms);
  EXPECT_THAT(reply, StatusIs(Code::kTimedOut));
  EXPECT_NE(reply.status().message().find(bound.ToString()), std::string::npos);
  // A late answer must never be taken for that of the next request.
  EXPECT_THAT((*client)->Call<HelloReplyT>(HelloRequestT{}, 50ms), StatusIs(Code::kUnavailable));
}

TEST(EndpointTest, TextIsChecked) {
  EXPECT_EQ(ParseEndpoint("h:1")->ToString(), "h:1");
  EXPECT_EQ(ParseEndpoint("[::1]:70")->host, "::1");
  EXPECT_EQ(ParseEndpoint("[::1]:70")->ToString(), "[::1]:70");
  for (const char* bad :
       {"", "h", ":1", "h:", "h:x", "h:65536", "h:-1", "h:1x", "::1:70", "[]:1"}) {
    EXPECT_THAT(ParseEndpoint(bad), StatusIs(Code::kInvalidArgument)) << bad;
  }
}

TEST(EndpointTest, WhereNobodyCanListenTheErrorNamesTheWayOut) {
  Endpoint bound, unused;
  const auto listener = ListenOn({"127.0.0.1", 0}, &bound, true);
  ASSERT_OK(listener);
  const auto message = [&](const Endpoint& endpoint) {
    return ListenOn(endpoint, &unused, false).status().message();
  };
  EXPECT_NE(message(bound).find(bound.ToString()), std::string::npos);
  EXPECT_NE(message(bound).find("net.ipv4.ip_local_reserved_ports"), std::string::npos);
  EXPECT_NE(message({"192.0.2.1", 0}).find("ip address shows"), std::string::npos);
}

}  // namespace
}  // namespace hyperloop::control
