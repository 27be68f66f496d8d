// MessageChannel: messages over a SecureChannel. No sockets: bytes in, bytes out.
//
// The bodies of the channel's frames are pieces of a stream in which each message follows its
// length (messages.h): so a long reply needs no long frame.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "control/messages.h"
#include "hyperloop/identity/secure_channel.h"

namespace hyperloop::control {

class MessageChannel {
 public:
  // Messages of the other end have at most `limit` bytes.
  MessageChannel(std::unique_ptr<identity::SecureChannel> channel, uint32_t limit)
      : channel_(std::move(channel)), limit_(limit) {}

  // Who is at the other end is known and accepted.
  bool open() const { return channel_->open(); }
  const identity::Peer& peer() const { return channel_->peer(); }

  // Bytes from the other end. Next gives the messages in them, without their lengths; nothing: more
  // bytes are needed. After an error, which is SecureChannel's, or kCorruption of a length that is
  // out of bounds, TakeOutput may hold what tells the other end why.
  void Append(std::span<const std::byte> bytes) { channel_->Append(bytes); }
  Result<std::optional<std::vector<uint8_t>>> Next();

  // A message as EncodeFrame makes it. Only when open.
  void Send(std::span<const uint8_t> frame);
  // Bytes for the other end.
  std::vector<std::byte> TakeOutput();

 private:
  const std::unique_ptr<identity::SecureChannel> channel_;
  const uint32_t limit_;
  std::vector<uint8_t> in_;  // of the stream, as far as it arrived and is not given out
  std::vector<std::byte> out_;
};

}  // namespace hyperloop::control
