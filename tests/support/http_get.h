// For tests of what is shown by HTTP: bare connections to the loopback device.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "hyperloop/core/unique_fd.h"

namespace hyperloop::test {

// A connection to the port of "ADDRESS:PORT" on this machine; none if nobody listens. Receiving
// from it waits at most 30 s.
inline UniqueFd ConnectToPort(const std::string& address) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval limit{30, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) return UniqueFd();
  return fd;
}

// Everything that comes until the other end closes.
inline std::string ReceiveAll(const UniqueFd& fd) {
  std::string all;
  char piece[4096];
  for (ssize_t n = 0; (n = recv(fd.get(), piece, sizeof piece, 0)) > 0;)
    all.append(piece, static_cast<size_t>(n));
  return all;
}

// The answer to a request, with its header.
inline std::string HttpAnswer(const std::string& address, const std::string& request) {
  const UniqueFd fd = ConnectToPort(address);
  if (send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return "";
  return ReceiveAll(fd);
}
inline std::string HttpGet(const std::string& address, const std::string& path) {
  return HttpAnswer(address, "GET " + path + " HTTP/1.1\r\nHost: test\r\n\r\n");
}

}  // namespace hyperloop::test
