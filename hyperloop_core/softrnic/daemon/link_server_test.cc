// What a LinkServer holds for peers that take nothing. The test is the engine behind it.
#include "softrnic/daemon/link_server.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <list>
#include <sstream>
#include <string>
#include <thread>

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

  void Ask(uint64_t times) {
    std::vector<std::byte> out;
    for (; times != 0; --times)
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
      if (frame->has_value() ? (--answers, ++taken_, false) : !Read()) return false;
    }
    return true;
  }
  uint64_t taken() const { return taken_; }

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
  uint64_t taken_ = 0;
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
  // The engine's turn: an answer to each request that has arrived. Returns how many came on links
  // other than `apart`, of which `*came` tells.
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
  // As many turns as bring nothing but `polite`'s requests three times in a row: by then the
  // server's thread has done for the others what it can. Returns how many came from those.
  uint64_t AnswerWhatComes(RawPeer& polite, LinkId polites) {
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
      EXPECT_TRUE(came && polite.Take(1)) << "kept out by the others";
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
    while (!server_->Receive(&event)) {
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

  const PacketBytes answer_ = std::make_shared<const std::vector<std::byte>>(kMaxPacketBytes);
  Engine engine_{EngineOptions{}};
  std::unique_ptr<LinkServer> server_;
  std::unique_ptr<EngineLoop> loop_;
};

// Each asks for 12 MiB, all together for more than the daemon holds.
TEST_F(LinkServerTest, AnswersThatNobodyTakesAreBoundedInAllAndNoneIsLost) {
  constexpr uint64_t kGreedy = 24;
  constexpr uint64_t kAsked = 192;
  constexpr uint64_t kFrameBytes = kMaxPacketBytes + kFrameLengthBytes;
  RawPeer polite(server_->listening());
  polite.Ask(1);
  const LinkId polites = NextRequest();
  ASSERT_GE(polites, kIncomingLinks);
  ASSERT_TRUE(polite.Take(1));
  std::list<RawPeer> greedy;
  for (uint64_t i = 0; i < kGreedy; ++i) greedy.emplace_back(server_->listening()).Ask(kAsked);

  const uint64_t sent_before = Counter("link_bytes_sent");
  const uint64_t polite_before = polite.taken();
  uint64_t answered = AnswerWhatComes(polite, polites);
  const uint64_t polite_answers = polite.taken() - polite_before;
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
    for (RawPeer& each : greedy) all = all && each.Take(1);
  EXPECT_TRUE(all);
  stop = true;
  engine.join();
  EXPECT_EQ(answered, kGreedy * kAsked);
}

}  // namespace
}  // namespace hyperloop::softrnic
