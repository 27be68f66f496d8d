#include "verbs/device_name.h"

#include <charconv>

namespace hyperloop::verbs {

Result<DeviceName> ParseDeviceName(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return DeviceName{text, 0};
  uint8_t port = 0;
  const char* end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data() + colon + 1, end, port);
  if (error != std::errc() || parsed != end || port == 0 || colon == 0) {
    return InvalidArgument("RDMA device \"" + text +
                           "\": expected NAME or NAME:PORT, such as mlx5_0:1");
  }
  return DeviceName{text.substr(0, colon), port};
}

}  // namespace hyperloop::verbs
