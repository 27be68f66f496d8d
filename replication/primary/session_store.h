// SessionStore: the Store that uses a Session. It refuses every call in a forked child.
#pragma once

#include <memory>

#include "primary/session.h"

namespace hyperloop {

// As Store::Open, but with another way to open the device, for tests with an embedded RNIC.
Result<std::unique_ptr<Store>> OpenSessionStore(const StoreOptions& options,
                                                DeviceOpener open_device, std::shared_ptr<Log> log);

}  // namespace hyperloop
