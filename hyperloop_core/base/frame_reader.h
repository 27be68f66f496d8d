// Frames carry packets in a byte stream. A frame is a length, 4 bytes big-endian, and that many
// bytes: a packet, sealed or plain. A frame of length 0 is a sign of life.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "hyperloop/core/status.h"

namespace hyperloop {

inline constexpr size_t kFrameLengthBytes = 4;

void AppendFrame(std::span<const std::byte> body, std::vector<std::byte>* stream);

// Cuts a stream into frames of at most `max_body` bytes, into whatever pieces the stream was split
// on its way. Holds at most one frame and the piece that was appended last. Not thread safe.
class FrameReader {
 public:
  explicit FrameReader(size_t max_body) : max_body_(max_body) {}
  // The limit for the frames that Next has not returned yet.
  void set_max_body(size_t max_body) { max_body_ = max_body; }
  void Append(std::span<const std::byte> bytes);
  // The body of the next whole frame, valid until the next call of Append or Next. Nothing: more
  // bytes are needed. kCorruption: the frame is longer than allowed; the rest of the stream cannot
  // be read.
  Result<std::optional<std::span<const std::byte>>> Next();

 private:
  size_t max_body_;
  std::vector<std::byte> bytes_;
  size_t used_ = 0;  // the bytes of bytes_ that Next has returned
};

}  // namespace hyperloop
