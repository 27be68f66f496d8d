#include "hyperloop/core/ready.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include "hyperloop/core/unique_fd.h"

namespace hyperloop {
namespace {

// The protocol of sd_notify(3): one datagram to the socket that the environment names. A name that
// begins with @ is in the abstract namespace, whose names begin with a zero.
void TellServiceManager(std::string_view message) {
  const char* const variable = std::getenv("NOTIFY_SOCKET");
  const std::string_view path = variable == nullptr ? "" : variable;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) return;
  std::copy(path.begin(), path.end(), address.sun_path);
  if (path.front() == '@') address.sun_path[0] = 0;
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return;
  static_cast<void>(
      ::sendto(socket.get(), message.data(), message.size(), MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&address),
               static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size())));
}

}  // namespace

void SayReady(std::string_view endpoint) {
  std::printf("ready %.*s\n", static_cast<int>(endpoint.size()), endpoint.data());
  std::fflush(stdout);
  TellServiceManager("READY=1");
}

}  // namespace hyperloop
