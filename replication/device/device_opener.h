// DeviceOpener: attaches to an RNIC; called again after it died.
#pragma once

#include <functional>
#include <memory>

#include "hyperloop/core/rnic.h"
#include "hyperloop/core/status.h"

namespace hyperloop {

using DeviceOpener = std::function<Result<std::unique_ptr<rnic::Device>>()>;

}  // namespace hyperloop
