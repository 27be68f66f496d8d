#include "softrnic/commands/unix_socket.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>

namespace hyperloop::softrnic {

Status SendMessage(int socket, std::span<const iovec> parts, std::span<const int> fds, int flags) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxMessageFds)] = {};
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, flags | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return FromErrno(errno, "sending to the RNIC's socket");
  return {};
}

Result<ReceivedMessage> ReceiveMessage(int socket, std::span<std::byte> buffer, int flags) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxMessageFds)];
  iovec part{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t received;
  do {
    received = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) return FromErrno(errno, "receiving from the RNIC's socket");

  ReceivedMessage result;
  result.bytes = static_cast<size_t>(received);
  result.truncated = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
    if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(h) + i * sizeof fd, sizeof fd);
      result.fds.Add(UniqueFd(fd));
    }
  }
  return result;
}

Result<bool> NextBringsDescriptors(int socket) {
  msghdr message{};  // without room for any, the kernel says whether there are some
  ssize_t received;
  do {
    received = recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT);
  } while (received < 0 && errno == EINTR);
  if (received < 0) return FromErrno(errno, "looking into the RNIC's socket");
  return (message.msg_flags & MSG_CTRUNC) != 0;
}

namespace {

// What to add where another user is refused.
std::string PerhapsElsewhere(uid_t user) {
  uid_t unmapped = 65534;
  std::ifstream("/proc/sys/kernel/overflowuid") >> unmapped;
  if (user != unmapped) return "";
  return ". User " + std::to_string(user) +
         " stands for all users whom this user namespace does not have, as those of another "
         "container";
}

}  // namespace

Status CheckClient(const ucred& client) {
  if (client.pid <= 0) {
    return PermissionDenied(
        "run the RNIC daemon and its clients in one pid namespace (containers: --pid): the daemon "
        "does not see this client's process, so it could not tell when it ends");
  }
  if (client.uid == geteuid() || client.uid == 0) return {};
  return PermissionDenied("this RNIC daemon serves user " + std::to_string(geteuid()) +
                          " only, not user " + std::to_string(client.uid) +
                          PerhapsElsewhere(client.uid));
}

Status CheckListener(int socket, const std::string& path) {
  ucred listener{};
  socklen_t size = sizeof listener;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &listener, &size) != 0) {
    return FromErrno(errno, "asking who listens at " + path);
  }
  if (listener.uid == geteuid() || listener.uid == 0) return {};
  return PermissionDenied("user " + std::to_string(listener.uid) + " listens at " + path +
                          ", not user " + std::to_string(geteuid()) +
                          ", who runs this: run it as that user, or start a daemon of your own" +
                          PerhapsElsewhere(listener.uid));
}

Result<std::pair<sockaddr_un, unsigned>> UnixAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return InvalidArgument("socket path of " + std::to_string(path.size()) + " bytes: 1 to " +
                           std::to_string(sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return std::pair(address,
                   static_cast<unsigned>(offsetof(sockaddr_un, sun_path) + path.size() + 1));
}

}  // namespace hyperloop::softrnic
