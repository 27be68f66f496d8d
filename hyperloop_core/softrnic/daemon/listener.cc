#include "softrnic/daemon/listener.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "hyperloop/core/trusted_files.h"

namespace hyperloop::softrnic {
namespace {

// Removes the socket at `path` if nobody listens there.
Status RemoveStale(const std::string& path, const std::pair<sockaddr_un, unsigned>& address) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? Status() : FromErrno(errno, "looking at " + path);
  }
  if (!S_ISSOCK(info.st_mode)) {
    return InvalidArgument(path + " exists and is not a socket: choose another --socket");
  }
  if (info.st_uid != geteuid() && info.st_uid != 0) {
    return PermissionDenied(path + " is a socket of user " + std::to_string(info.st_uid) +
                            ": choose another --socket, in a directory of your own");
  }
  UniqueFd probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) return FromErrno(errno, "creating a Unix socket");
  if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&address.first), address.second) ==
          0 ||
      errno != ECONNREFUSED) {
    return AlreadyExists("another hyperloop-rnicd listens at " + path +
                         ": use that one, or choose another --socket");
  }
  if (unlink(path.c_str()) != 0) return FromErrno(errno, "removing the stale socket " + path);
  return {};
}

}  // namespace

Result<Listener> ListenAt(const std::string& path) {
  HL_ASSIGN_OR_RETURN(auto address, UnixAddress(path));
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  UniqueFd lock(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock) return FromErrno(errno, "opening the socket's directory " + folder);
  // A sticky directory suffices, because clients check who listens.
  HL_RETURN_IF_ERROR(CheckDirectory(folder, DirectoryRule::kShared)
                         .status()
                         .WithContext("the socket's directory"));
  // The lock is held from the check of the old socket until the new one listens. It is best effort,
  // because some file systems have no locks.
  flock(lock.get(), LOCK_EX);
  HL_RETURN_IF_ERROR(RemoveStale(path, address));

  Listener listener;
  listener.socket.Reset(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.socket) return FromErrno(errno, "creating a Unix socket");
  const mode_t old_mask = umask(0177);
  const int bound =
      bind(listener.socket.get(), reinterpret_cast<sockaddr*>(&address.first), address.second);
  const int bind_errno = errno;
  umask(old_mask);
  if (bound != 0) return FromErrno(bind_errno, "binding the socket " + path);
  struct stat info {};
  if (listen(listener.socket.get(), 64) != 0 || lstat(path.c_str(), &info) != 0) {
    Status status = FromErrno(errno, "listening at " + path);
    unlink(path.c_str());
    return status;
  }
  listener.inode = info.st_ino;
  return listener;
}

}  // namespace hyperloop::softrnic
