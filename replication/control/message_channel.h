// MessageChannel: messages over a SecureChannel. It has no socket, but takes and returns bytes.
//
// The bodies of the channel's frames are pieces of a stream in which each message follows its
// length (messages.h), so a long reply needs no long frame.
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

  // Whether the other end is known and accepted.
  bool open() const { return channel_->open(); }
  const identity::Peer& peer() const { return channel_->peer(); }

  // Append takes bytes from the other end. Next returns the next message in them, without its
  // length, or nothing if more bytes are needed. Errors are SecureChannel's, and kCorruption for a
  // length out of bounds. After an error TakeOutput may return a message that tells the other end
  // the reason.
  void Append(std::span<const std::byte> bytes) { channel_->Append(bytes); }
  Result<std::optional<std::vector<uint8_t>>> Next();

  // Sends a frame of EncodeFrame. The channel must be open.
  void Send(std::span<const uint8_t> frame);
  // Bytes for the other end.
  std::vector<std::byte> TakeOutput();

 private:
  const std::unique_ptr<identity::SecureChannel> channel_;
  const uint32_t limit_;
  std::vector<uint8_t> in_;  // bytes of the stream that arrived and were not returned yet
  std::vector<std::byte> out_;
};

}  // namespace hyperloop::control
