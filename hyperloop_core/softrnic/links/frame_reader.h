// Frames carry packets in a byte stream. A frame is a length, 4 bytes big-endian, and that many
// bytes: a packet, sealed or plain. A frame of length 0 is a sign of life.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "hyperloop/core/status.h"

namespace hyperloop::softrnic {

inline constexpr size_t kFrameLengthBytes = 4;

void AppendFrame(std::span<const std::byte> body, std::vector<std::byte>* stream);

// Cuts a stream, however it arrives, into frames of at most `max_body` bytes. Holds at most one
// frame and the bytes that were appended last.
class FrameReader {
 public:
  explicit FrameReader(size_t max_body) : max_body_(max_body) {}
  // Applies to the frames that Next has not returned yet.
  void set_max_body(size_t max_body) { max_body_ = max_body; }
  void Append(std::span<const std::byte> bytes);
  // The next whole frame's body, valid until the next call of either function; nothing: more bytes
  // are needed. kCorruption: a longer frame than allowed; the stream cannot be used any more.
  Result<std::optional<std::span<const std::byte>>> Next();

 private:
  size_t max_body_;
  std::vector<std::byte> bytes_;
  size_t used_ = 0;  // of bytes_, taken by Next
};

}  // namespace hyperloop::softrnic
