#include "base/frame_reader.h"

#include <endian.h>

#include <cstring>
#include <string>

namespace hyperloop {

void AppendFrame(std::span<const std::byte> body, std::vector<std::byte>* stream) {
  const uint32_t length = htobe32(static_cast<uint32_t>(body.size()));
  const auto* const at = reinterpret_cast<const std::byte*>(&length);
  stream->insert(stream->end(), at, at + sizeof length);
  stream->insert(stream->end(), body.begin(), body.end());
}

void FrameReader::Append(std::span<const std::byte> bytes) {
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(used_));
  used_ = 0;
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

Result<std::optional<std::span<const std::byte>>> FrameReader::Next() {
  using Frame = std::optional<std::span<const std::byte>>;
  const std::span<const std::byte> left = std::span(bytes_).subspan(used_);
  if (left.size() < kFrameLengthBytes) return Frame();
  uint32_t length;
  std::memcpy(&length, left.data(), sizeof length);
  length = be32toh(length);
  if (length > max_body_)
    return Corruption("frame of " + std::to_string(length) + " bytes; at most " +
                      std::to_string(max_body_));
  if (left.size() - kFrameLengthBytes < length) return Frame();
  used_ += kFrameLengthBytes + length;
  return Frame(left.subspan(kFrameLengthBytes, length));
}

}  // namespace hyperloop
