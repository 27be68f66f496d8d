#include "control/endpoint.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <vector>

#include "control/resolve.h"
#include "hyperloop/core/text.h"

namespace hyperloop::control {
namespace {

// The backlog is long, so that a crowd of strangers does not keep known peers from connecting.
constexpr int kBacklog = 1024;

// What can be done if a bind fails so; empty: the error itself says it.
std::string_view RemedyFor(int error) {
  switch (error) {
    case EADDRINUSE:
      return " (ss -tanp shows who has the port; outgoing connections take those of "
             "net.ipv4.ip_local_port_range, unless net.ipv4.ip_local_reserved_ports names them)";
    case EADDRNOTAVAIL:
      return " (this host has no such address; ip address shows those that it has)";
    case EACCES:
      return " (ports below net.ipv4.ip_unprivileged_port_start need CAP_NET_BIND_SERVICE)";
    default:
      return "";
  }
}

Status ConnectOne(int fd, const SocketAddress& address, Deadline deadline, int stop) {
  if (connect(fd, &address.raw(), address.length) == 0) return {};
  if (errno != EINPROGRESS) return FromErrno(errno, "connect");
  HL_RETURN_IF_ERROR(WaitReady(fd, POLLOUT, deadline, stop));
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return FromErrno(error, "connect");
  return {};
}

bool IsLoopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    return ntohl(v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

}  // namespace

std::string Endpoint::ToString() const {
  const bool v6 = host.find(':') != std::string::npos;
  return v6 ? Text("[", host, "]:", port) : Text(host, ":", port);
}

Result<Endpoint> ParseEndpoint(std::string_view text) {
  const auto bad = [&](std::string_view why) {
    return InvalidArgument(
        Text("address \"", text, "\": ", why, "; write HOST:PORT or [IPV6]:PORT"));
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad("it has no port");
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return bad("an IPv6 address needs brackets");
  }
  if (host.empty()) return bad("it has no host");
  Endpoint endpoint{std::string(host), 0};
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  if (port.empty() || error != std::errc() || end != port.data() + port.size()) {
    return bad("the port is not a number from 0 to 65535");
  }
  return endpoint;
}

Status PrepareSocket(int fd) {
  const int on = 1;
  const int idle_seconds = 30;
  if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0 ||
      setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) != 0 ||
      setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_seconds, sizeof(idle_seconds)) != 0) {
    return FromErrno(errno, "setting socket options");
  }
  return {};
}

Status WaitReady(int fd, short events, Deadline deadline, int stop) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entries[] = {{fd, events, 0}, {stop, POLLIN, 0}};
    const int ready =
        poll(entries, stop < 0 ? 1 : 2, static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
    if (ready > 0 && entries[0].revents != 0) return {};
    if (ready >= 0) return TimedOut("no answer in time");
    if (errno != EINTR) return FromErrno(errno, "poll");
  }
}

Result<UniqueFd> ConnectTo(const Endpoint& endpoint, Deadline deadline, int stop) {
  HL_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, ResolveUntil(endpoint, deadline));
  Status last = Unavailable("no address");
  for (const SocketAddress& each : addresses) {
    UniqueFd fd(socket(each.raw().sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd) {
      last = FromErrno(errno, "socket");
      continue;
    }
    last = ConnectOne(fd.get(), each, deadline, stop);
    if (last.ok()) last = PrepareSocket(fd.get());
    if (last.ok()) return fd;
  }
  return last.WithContext(Text("cannot connect to ", endpoint.ToString()));
}

Result<UniqueFd> ListenOn(const Endpoint& endpoint, Endpoint* bound, bool loopback_only) {
  HL_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, Resolve(endpoint, AI_PASSIVE));
  const SocketAddress& address = addresses.front();
  if (loopback_only && !IsLoopback(address.raw())) {
    return PermissionDenied(
        Text(endpoint.ToString(),
             " is reached by other machines, and without keys anybody there could take part; give "
             "a keys directory (hyperloopctl keys init makes one), or listen on 127.0.0.1"));
  }
  UniqueFd fd(socket(address.raw().sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const auto failed = [&](std::string_view what, std::string_view remedy = "") {
    return FromErrno(errno, Text(what, " ", endpoint.ToString(), remedy));
  };
  if (!fd) return failed("cannot make a socket for");
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(fd.get(), &address.raw(), address.length) != 0)
    return failed("cannot listen on", RemedyFor(errno));
  if (listen(fd.get(), kBacklog) != 0) return failed("cannot listen on");
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &length) != 0) {
    return failed("getsockname of");
  }
  const auto port = own.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&own)->sin6_port
                                              : reinterpret_cast<sockaddr_in*>(&own)->sin_port;
  *bound = {endpoint.host, ntohs(port)};
  return fd;
}

}  // namespace hyperloop::control
