// The daemon's listening socket.
#pragma once

#include <sys/types.h>

#include <string>

#include "hyperloop/core/status.h"
#include "softrnic/commands/unix_socket.h"

namespace hyperloop::softrnic {

struct Listener {
  UniqueFd socket;
  ino_t inode = 0;  // of the socket file
};

// Listens at `path`, with mode 0600 whatever the umask, and replaces a socket at which nobody
// listens any more. If two processes try at once, one of them succeeds. kAlreadyExists: a process
// listens there. kInvalidArgument: the file is not a socket. kPermissionDenied: others could
// replace the socket, or another user's is there. It sets the process's umask for a moment, so call
// it while there are no other threads.
Result<Listener> ListenAt(const std::string& path);

}  // namespace hyperloop::softrnic
