// What a LinkServer holds for peers that take nothing. The test is the engine behind it.
#include "softrnic/daemon/link_server.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>

#include <chrono>
#include <sstream>
#include <string>

#include "softrnic/daemon/link_connection.h"
#include "softrnic/links/packet.h"

namespace hyperloop::softrnic {
namespace {

constexpr std::chrono::seconds kPatience{30};

// A peer without a key, as any process of this machine can be.
class RawPeer {
 public:
  explicit RawPeer(const std::string& address)
      : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const auto to = ParseLinkAddress(address, /*any_port=*/false);
    EXPECT_TRUE(to.ok()) << to.status().ToString();
    const timeval patience{kPatience.count(), 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    EXPECT_EQ(connect(socket_.get(), reinterpret_cast<const sockaddr*>(&to->storage), to->length),
              0);
    Say(channel_.TakeOutput());
    while (!channel_.open() && Read()) EXPECT_TRUE(channel_.Next().ok());
  }

  void Ask() {
    std::vector<std::byte> out;
    channel_.Seal(EncodePacket({.type = PacketType::kRead,
                                .dest_qpn = 1,
                                .source_qpn = 1,
                                .session = 1,
                                .total = kMaxPayload,
                                .length = kMaxPayload}),
                  &out);
    Say(out);
  }
  // True if as many answers came. They are all the same.
  bool Take(uint64_t answers) {
    while (answers != 0) {
      const auto frame = channel_.Next();
      if (!frame.ok()) return false;
      if (frame->has_value() ? (--answers, false) : !Read()) return false;
    }
    return true;
  }

 private:
  void Say(const std::vector<std::byte>& bytes) {
    EXPECT_EQ(send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  bool Read() {
    std::vector<std::byte> buffer(256 << 10);
    const ssize_t n = recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (n > 0) channel_.Append(std::span(buffer).first(static_cast<size_t>(n)));
    return n > 0;
  }

  UniqueFd socket_;
  LinkChannel channel_{true, nullptr};
};

class LinkServerTest : public testing::Test {
 protected:
  void SetUp() override {
    LinkOptions options;
    options.listen = *ParseLinkAddress("127.0.0.1:0", /*any_port=*/true);
    auto server = LinkServer::Create(options, &engine_, StderrLog("link_server_test"));
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = std::move(*server);
    auto loop = EngineLoop::Create(&engine_, {});
    ASSERT_TRUE(loop.ok()) << loop.status().ToString();
    loop_ = std::move(*loop);
    server_->Start(loop_.get());
  }
  void TearDown() override {
    if (server_ != nullptr) server_->Stop();
  }
  // The link on which the next request arrived.
  LinkId NextRequest() {
    LinkEvent event;
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!server_->Receive(&event)) {
      if (std::chrono::steady_clock::now() > deadline) return kNoLink;
      sched_yield();
    }
    return event.link;
  }
  void Answer(LinkId link, uint64_t times) {
    const auto answer = std::make_shared<const std::vector<std::byte>>(kMaxPacketBytes);
    for (uint64_t i = 0; i < times; ++i) server_->Send(link, answer);
    server_->Flush();
  }
  uint64_t Counter(const std::string& name) const {
    std::istringstream lines(server_->CounterText());
    std::string each;
    for (uint64_t value; lines >> each >> value;)
      if (each == name) return value;
    ADD_FAILURE() << "no counter " << name;
    return 0;
  }

  Engine engine_{EngineOptions{}};
  std::unique_ptr<LinkServer> server_;
  std::unique_ptr<EngineLoop> loop_;
};

TEST_F(LinkServerTest, APeerThatTakesNoAnswersIsKeptABoundedNumber) {
  constexpr uint64_t kAnswers = 4096;  // 256 MiB
  constexpr size_t kFrameBytes = kMaxPacketBytes + kFrameLengthBytes;
  RawPeer greedy(server_->listening());
  greedy.Ask();
  const LinkId link = NextRequest();
  ASSERT_GE(link, kIncomingLinks);
  Answer(link, kAnswers);
  // Another is served meanwhile; its answer comes after those.
  RawPeer other(server_->listening());
  other.Ask();
  const LinkId others = NextRequest();
  ASSERT_GE(others, kIncomingLinks);
  Answer(others, 1);
  EXPECT_TRUE(other.Take(1));
  const uint64_t kept = Counter("link_frames_sent") - 1;
  EXPECT_EQ(kept + Counter("link_answers_dropped"), kAnswers);
  EXPECT_GT(kept * kFrameBytes, kLinkAnswerBytes);
  EXPECT_LE(kept * kFrameBytes, kLinkAnswerBytes + kFrameBytes);
  // Once it has taken what was kept, it is answered again.
  EXPECT_TRUE(greedy.Take(kept));
  greedy.Ask();
  ASSERT_EQ(NextRequest(), link);
  Answer(link, 1);
  EXPECT_TRUE(greedy.Take(1));
}

}  // namespace
}  // namespace hyperloop::softrnic
