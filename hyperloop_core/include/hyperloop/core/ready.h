// What a daemon says when it accepts clients.
#pragma once

#include <string_view>

namespace hyperloop {

// Prints "ready ENDPOINT" on stdout, and tells the service manager (sd_notify(3), READY=1) if one
// waits for it: that is, if NOTIFY_SOCKET is in the environment. A service manager that cannot be
// told is not waited for; it ends the program after a while, and says why. Call it once.
void SayReady(std::string_view endpoint);

}  // namespace hyperloop
