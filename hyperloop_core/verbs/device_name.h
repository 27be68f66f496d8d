// The text by which an option chooses an RDMA device.
#pragma once

#include <cstdint>
#include <string>

#include "hyperloop/core/status.h"

namespace hyperloop::verbs {

struct DeviceName {
  std::string name;  // empty: any
  uint8_t port = 0;  // 0: the first active one
};

// "NAME", "NAME:PORT" or nothing. kInvalidArgument says what is expected.
Result<DeviceName> ParseDeviceName(const std::string& text);

}  // namespace hyperloop::verbs
