// Cuts a stream of the control plane into messages, as the other end has to, for fuzz targets.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "control/messages.h"

namespace hyperloop::fuzz {

class MessageStream {
 public:
  // Messages have at most `limit` bytes. A longer one ends the stream.
  explicit MessageStream(uint32_t limit) : limit_(limit) {}
  void Append(std::span<const std::byte> bytes) {
    const auto* const at = reinterpret_cast<const uint8_t*>(bytes.data());
    if (!ended_) bytes_.insert(bytes_.end(), at, at + bytes.size());
  }
  bool ended() const { return ended_; }
  // The next message without its length. Nothing: it has not come yet.
  std::optional<std::vector<uint8_t>> Next() {
    if (ended_ || bytes_.size() < control::kFrameHeader) return std::nullopt;
    const auto length = control::ParseFrameHeader(
        std::span<const uint8_t>(bytes_).first<control::kFrameHeader>(), limit_);
    ended_ = !length.ok();
    if (ended_ || bytes_.size() - control::kFrameHeader < *length) return std::nullopt;
    const auto begin = bytes_.begin() + control::kFrameHeader;
    std::vector<uint8_t> message(begin, begin + static_cast<ptrdiff_t>(*length));
    bytes_.erase(bytes_.begin(), begin + static_cast<ptrdiff_t>(*length));
    return message;
  }

 private:
  const uint32_t limit_;
  std::vector<uint8_t> bytes_;
  bool ended_ = false;
};

}  // namespace hyperloop::fuzz
