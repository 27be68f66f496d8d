// A TCP connection that an input drives, for targets with a real server: one end of a SecureChannel
// whose bytes wait until the input lets them go. On their way they may be changed, repeated and cut
// off.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/frame_reader.h"
#include "fuzz/fuzz.h"
#include "hyperloop/core/unique_fd.h"
#include "hyperloop/identity/secure_channel.h"

namespace hyperloop::fuzz {

class DrivenConnection {
 public:
  using Bytes = std::vector<std::byte>;
  // Gets the body of each frame that comes while the channel is open.
  using Take = std::function<void(std::span<const std::byte>)>;

  // `socket` is connected. Of what was said before, at most `most_repeated` bytes can be repeated.
  DrivenConnection(UniqueFd socket, std::unique_ptr<identity::SecureChannel> channel,
                   size_t most_repeated, Take take)
      : socket_(std::move(socket)),
        channel_(std::move(channel)),
        most_repeated_(most_repeated),
        take_(std::move(take)) {
    const linger reset{.l_onoff = 1, .l_linger = 0};  // leaves no port in TIME_WAIT
    setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    const int little = 4096;
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &little, sizeof little);
    const int on = 1;  // what is sent arrives at once
    setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    Put(channel_->TakeOutput());
  }
  // The channel is open, and no error has ended it.
  bool open() const { return channel_->open() && !refused_; }
  bool ended() const { return ended_; }
  bool waiting() const { return !way_.empty(); }  // bytes wait to be sent

  // A sealed frame; before the connection is open, a plain one. True: sealed.
  bool Say(std::span<const std::byte> body) {
    Bytes frame;
    if (open()) {
      channel_->Seal(body, &frame);
    } else {
      AppendFrame(body, &frame);
    }
    Put(frame);
    return open();
  }
  void Put(std::span<const std::byte> bytes) {
    way_.insert(way_.end(), bytes.begin(), bytes.end());
    record_.insert(record_.end(), bytes.begin(), bytes.end());
    if (record_.size() > most_repeated_) record_.clear();
  }
  void Spoil(size_t at, uint8_t change) {
    if (!way_.empty()) way_[at % way_.size()] ^= static_cast<std::byte>(change);
  }
  void Drop() { way_.clear(); }  // what waits to be sent
  // What was said, from some place on, is said again.
  void Repeat(size_t from) {
    const Bytes again(record_.begin() + static_cast<ptrdiff_t>(from % (record_.size() + 1)),
                      record_.end());
    way_.insert(way_.end(), again.begin(), again.end());
  }

  // Sends at most `most` bytes, and not more than the server takes.
  void Send(size_t most) {
    if (ended_) return;
    const size_t size = std::min(most, way_.size());
    const ssize_t n = send(socket_.get(), way_.data(), size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) way_.erase(way_.begin(), way_.begin() + n);
    ended_ = n < 0 && errno != EAGAIN;
  }
  // Takes what has come. The next step of an introduction waits to be sent.
  void Hear() {
    static Bytes buffer(64 << 10);
    for (ssize_t n = 1; !ended_ && n > 0;) {
      n = recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
      ended_ = n == 0 || (n < 0 && errno != EAGAIN);
      if (n > 0) Understand(std::span(buffer).first(static_cast<size_t>(n)));
    }
  }
  void End(bool reset) {
    if (reset) {
      socket_.Reset(-1);
      ended_ = true;
    } else {
      shutdown(socket_.get(), SHUT_WR);
    }
  }

 private:
  void Understand(std::span<const std::byte> bytes) {
    if (refused_) return;
    channel_->Append(bytes);
    for (;;) {
      const auto frame = channel_->Next();
      Put(channel_->TakeOutput());
      refused_ = !frame.ok();
      if (refused_ || !frame->has_value()) return;
      take_(**frame);
    }
  }

  UniqueFd socket_;
  const std::unique_ptr<identity::SecureChannel> channel_;
  const size_t most_repeated_;
  const Take take_;
  Bytes way_, record_;
  bool refused_ = false;  // the channel has failed
  bool ended_ = false;
};

}  // namespace hyperloop::fuzz
