#include "control/message_channel.h"

#include <algorithm>
#include <cstring>

namespace hyperloop::control {
namespace {

constexpr size_t kPiece = 32u << 10;

}  // namespace

Result<std::optional<std::vector<uint8_t>>> MessageChannel::Next() {
  using Outcome = std::optional<std::vector<uint8_t>>;
  while (true) {
    if (in_.size() >= kFrameHeader) {
      const auto header = std::span<const uint8_t>(in_).first<kFrameHeader>();
      HL_ASSIGN_OR_RETURN(const uint32_t length, ParseFrameHeader(header, limit_));
      const size_t end = kFrameHeader + length;
      if (in_.size() >= end) {
        const auto at = [&](size_t i) { return in_.begin() + static_cast<ptrdiff_t>(i); };
        Outcome message(std::in_place, at(kFrameHeader), at(end));
        in_.erase(in_.begin(), at(end));
        return message;
      }
    }
    HL_ASSIGN_OR_RETURN(const auto piece, channel_->Next());
    if (!piece.has_value()) return Outcome();
    const auto* bytes = reinterpret_cast<const uint8_t*>(piece->data());
    in_.insert(in_.end(), bytes, bytes + piece->size());
  }
}

void MessageChannel::Send(std::span<const uint8_t> frame) {
  // The rest of the introduction goes first.
  const std::vector<std::byte> introduction = channel_->TakeOutput();
  out_.insert(out_.end(), introduction.begin(), introduction.end());
  for (auto left = std::as_bytes(frame); !left.empty();) {
    const auto piece = left.first(std::min(left.size(), kPiece));
    channel_->Seal(piece, &out_);
    left = left.subspan(piece.size());
  }
}

std::vector<std::byte> MessageChannel::TakeOutput() {
  std::vector<std::byte> out = std::exchange(out_, {});
  const std::vector<std::byte> introduction = channel_->TakeOutput();
  out.insert(out.end(), introduction.begin(), introduction.end());
  return out;
}

}  // namespace hyperloop::control
