// RawNeighbour: the other end of one of a LinkServer's connections, for tests.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hyperloop/identity/secure_channel.h"
#include "softrnic/commands/unix_socket.h"
#include "softrnic/daemon/link_options.h"
#include "softrnic/links/packet.h"
#include "support/status_matchers.h"

namespace hyperloop::softrnic {

inline constexpr std::chrono::seconds kPatience{30};

inline void SetPatience(const UniqueFd& fd) {
  const timeval patience{kPatience.count(), 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
}

// A socket that is connected to `address`, from a loopback address of its own where `from` is one.
inline UniqueFd ConnectTo(const std::string& address, const std::string& from = "") {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto to = ParseLinkAddress(address, /*any_port=*/false);
  EXPECT_OK(to);
  if (!from.empty()) {
    const auto own = ParseLinkAddress(from + ":0", /*any_port=*/true);
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&own->storage), own->length), 0);
  }
  SetPatience(fd);
  EXPECT_EQ(TEMP_FAILURE_RETRY(
                connect(fd.get(), reinterpret_cast<const sockaddr*>(&to->storage), to->length)),
            0);
  return fd;
}

inline identity::SecureChannelOptions LinkChannel(bool dialer,
                                                  std::shared_ptr<identity::KeyRing> ring,
                                                  const identity::Ciphers& ciphers = {}) {
  return {.dialer = dialer,
          .purpose = "hyperloop link 4",
          .ring = std::move(ring),
          .max_body = kMaxPacketBytes,
          .ciphers = ciphers};
}

// The request whose answer is the longest: a READ of as much as a packet can hold.
inline std::vector<std::byte> LongestRequest() {
  return EncodePacket({.type = PacketType::kRead,
                       .dest_qpn = 1,
                       .source_qpn = 1,
                       .session = 1,
                       .total = kMaxPayload,
                       .length = kMaxPayload});
}

// A neighbour. Without `ring` it has no keys, as any process of this machine could connect.
class RawNeighbour {
 public:
  explicit RawNeighbour(const std::string& address,
                        std::shared_ptr<identity::KeyRing> ring = nullptr,
                        const std::string& from = "", const identity::Ciphers& ciphers = {})
      : socket_(ConnectTo(address, from)), channel_(LinkChannel(true, std::move(ring), ciphers)) {
    Say(channel_.TakeOutput());
  }
  // `accepted`: the test's end of a connection that the server dialed.
  RawNeighbour(UniqueFd accepted, std::shared_ptr<identity::KeyRing> ring)
      : socket_(std::move(accepted)), channel_(LinkChannel(false, std::move(ring))) {
    SetPatience(socket_);
  }

  // The rest of the introduction. Not ok: it was refused, or the connection ended.
  Status Introduce() {
    while (!channel_.open()) {
      HL_RETURN_IF_ERROR(channel_.Next().status());
      Say(channel_.TakeOutput());
      if (!channel_.open() && !Read()) return Unavailable("closed");
    }
    return {};
  }
  // Makes only the first step of an introduction, and waits for the other end's answer.
  void HearAnswer() { EXPECT_TRUE(Read()); }
  // True once the server has closed the connection and everything that it said was heard.
  bool closed() const {
    std::byte next;
    const ssize_t n = recv(socket_.get(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN);
  }

  void Say(const Packet& packet) {
    std::vector<std::byte> out;
    channel_.Seal(EncodePacket(packet), &out);
    Say(out);
  }
  // The next packet; valid until the next call. Nothing: the connection was closed.
  std::optional<Packet> Hear() {
    while (rest_.empty()) {
      const auto frame = channel_.Next();
      if (!frame.ok()) return std::nullopt;
      if (frame->has_value()) {
        rest_ = **frame;
      } else if (!Read()) {
        return std::nullopt;
      }
    }
    const auto packet = TakePacket(&rest_);
    EXPECT_OK(packet);
    return *packet;
  }

  // Says a sign of life, and waits for the other end's. False: the connection ended.
  bool Lives() {
    std::vector<std::byte> out;
    channel_.Seal({}, &out);
    Say(out);
    return AwaitAnswers(1);
  }

  void Ask(uint64_t times) {
    std::vector<std::byte> out;
    for (; times != 0; --times) channel_.Seal(LongestRequest(), &out);
    Say(out);
  }
  // The same, as one frame.
  void AskAtOnce(uint64_t times) {
    std::vector<std::byte> body, out;
    for (const auto question = LongestRequest(); times != 0; --times)
      body.insert(body.end(), question.begin(), question.end());
    channel_.Seal(body, &out);
    Say(out);
  }
  // Waits for so many answers, each in a frame of its own and of any content. False: the
  // connection ended before.
  bool AwaitAnswers(uint64_t answers) {
    while (answers != 0) {
      const auto frame = channel_.Next();
      if (!frame.ok()) return false;
      if (frame->has_value() ? (--answers, ++answers_, false) : !Read()) return false;
    }
    return true;
  }
  // How many answers came in all.
  uint64_t answers() const { return answers_; }

 private:
  // An error of send means that the connection is closed. The test notices that by missing answers.
  void Say(const std::vector<std::byte>& bytes) {
    const ssize_t n = send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    EXPECT_TRUE(n < 0 || n == static_cast<ssize_t>(bytes.size()));
  }
  bool Read() {
    std::vector<std::byte> buffer(256 << 10);
    const ssize_t n = TEMP_FAILURE_RETRY(recv(socket_.get(), buffer.data(), buffer.size(), 0));
    if (n > 0) channel_.Append(std::span(buffer).first(static_cast<size_t>(n)));
    return n > 0;
  }

  UniqueFd socket_;
  identity::SecureChannel channel_;
  std::span<const std::byte> rest_;  // of the last frame
  uint64_t answers_ = 0;
};

}  // namespace hyperloop::softrnic
