// The daemon's listening socket.
#pragma once

#include <sys/types.h>

#include <string>

#include "hyperloop/core/status.h"
#include "softrnic/unix_socket.h"

namespace hyperloop::softrnic {

struct Listener {
  UniqueFd socket;
  ino_t inode = 0;  // of the socket file
};

// Listens at `path`, mode 0600 whatever the umask, and replaces a socket that nobody listens at any
// more. Of two processes that try at once one wins. kAlreadyExists: somebody listens there;
// kInvalidArgument: there is something else than a socket. kPermissionDenied: others could put
// another socket in its place, or another user's is there. Sets the process's umask for a moment:
// call while there are no other threads.
Result<Listener> ListenAt(const std::string& path);

}  // namespace hyperloop::softrnic
