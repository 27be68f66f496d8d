#include "agent/notify_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "common/random_uuid.h"
#include "common/uuid.h"

namespace hyperloop::agent {
namespace {

// The rest is taken at the next call.
constexpr int kMostMessages = 64;

bool IsBelieved(const ucred& sender, pid_t group) {
  if (sender.uid == 0 || sender.uid == geteuid()) return true;
  return sender.pid > 0 && getpgid(sender.pid) == group;
}

// Who has sent it, says the kernel.
bool SenderOf(msghdr& message, ucred* sender) {
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_level != SOL_SOCKET ||
      header->cmsg_type != SCM_CREDENTIALS || header->cmsg_len < CMSG_LEN(sizeof *sender))
    return false;
  std::memcpy(sender, CMSG_DATA(header), sizeof *sender);
  return true;
}

bool SaysReady(std::string_view text) {
  return ("\n" + std::string(text) + "\n").find("\nREADY=1\n") != std::string::npos;
}

}  // namespace

Result<NotifySocket> NotifySocket::Make() {
  const std::string name = "hyperloop-agent-" + FormatUuid(RandomUuid());
  UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (!fd || ::setsockopt(fd.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0)
    return FromErrno(errno, "making a socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::ranges::copy(name, address.sun_path + 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0)
    return FromErrno(errno, "binding a socket");
  return NotifySocket("@" + name, std::move(fd));
}

bool NotifySocket::Hears(pid_t group) const {
  bool ready = false;
  for (int i = 0; i < kMostMessages; ++i) {
    char text[512];
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
    iovec piece{text, sizeof text};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = ::recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    ucred sender{};
    ready = ready || (SenderOf(message, &sender) && IsBelieved(sender, group) &&
                      SaysReady({text, static_cast<size_t>(n)}));
  }
  return ready;
}

}  // namespace hyperloop::agent
