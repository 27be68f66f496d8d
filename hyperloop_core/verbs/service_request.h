// The contents of a connection request and of its answer, and steps that both ends of a connection
// take.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "verbs/connection.h"

namespace hyperloop::verbs {

// "HLS1", then the service's name, padded with zeros.
class ServiceRequest {
 public:
  explicit ServiceRequest(std::string_view service) {
    std::copy(kMagic.begin(), kMagic.end(), bytes_.begin());
    std::copy_n(service.begin(), std::min(service.size(), kMaxServiceName), bytes_.begin() + 4);
  }
  const void* data() const { return bytes_.data(); }
  uint8_t size() const { return static_cast<uint8_t>(bytes_.size()); }

  // The name in a request that arrived; nullopt if it is not one of ours. It refers to `data`.
  static std::optional<std::string_view> Parse(const void* data, size_t size) {
    const std::string_view text(static_cast<const char*>(data), data == nullptr ? 0 : size);
    if (!text.starts_with(kMagic)) return std::nullopt;
    const std::string_view name = text.substr(kMagic.size(), kMaxServiceName);
    return name.substr(0, name.find('\0'));
  }

 private:
  static constexpr std::string_view kMagic = "HLS1";
  std::array<char, 4 + kMaxServiceName> bytes_{};
};

// The network pads private data, so an answer begins with its length in one byte.
inline std::vector<std::byte> MakeAnswer(std::span<const std::byte> data) {
  std::vector<std::byte> answer{static_cast<std::byte>(data.size())};
  answer.insert(answer.end(), data.begin(), data.end());
  return answer;
}
// What MakeAnswer was given; empty if this is no answer of ours.
inline std::vector<std::byte> ParseAnswer(const void* data, size_t size) {
  const auto* bytes = static_cast<const std::byte*>(data);
  if (bytes == nullptr || size == 0) return {};
  const auto length = static_cast<size_t>(bytes[0]);
  if (length > size - 1) return {};
  return {bytes + 1, bytes + 1 + length};
}

// Moves `qp` to `state` with the attributes that the connection manager knows. `access`: the remote
// access that the INIT state grants.
Status AdvanceQp(const Library& lib, rdma_cm_id* id, ibv_qp* qp, ibv_qp_state state,
                 unsigned access);
// The status of a failed rdma_create_event_channel, with the likely cause.
Status OpenChannelError(int error);

}  // namespace hyperloop::verbs
