// SessionStore: Store's face of a Session. It refuses every call in a forked child.
#pragma once

#include <memory>

#include "primary/session.h"

namespace hyperloop {

// As Store::Open, with another way to the device: for tests with an embedded RNIC.
Result<std::unique_ptr<Store>> OpenSessionStore(const StoreOptions& options,
                                                DeviceOpener open_device, std::shared_ptr<Log> log);

}  // namespace hyperloop
