// FreePort, FreeAddress: where a test, or a program of one, can listen.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <mutex>
#include <random>
#include <set>
#include <string>

namespace hyperloop::test {

// A port of the loopback device at which nobody listens, at any address. It is below those that the
// kernel gives to connections, so none takes it before it is used, or between two uses. No call
// returns what another one has returned.
inline uint16_t FreePort() {
  static std::mutex mutex;
  static std::set<int> returned;
  const std::lock_guard lock(mutex);
  constexpr int kFirst = 10'000;
  int given_out = 0;  // from here on
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> given_out;
  std::random_device random;
  std::uniform_int_distribution<int> any(kFirst, given_out > kFirst ? given_out - 1 : 65'535);
  while (true) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    const int port = any(random);
    if (returned.contains(port)) continue;
    address.sin_port = htons(static_cast<uint16_t>(port));
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const bool free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    close(fd);
    if (!free) continue;
    returned.insert(port);
    return static_cast<uint16_t>(port);
  }
}

// The same, as an address of the loopback device.
inline std::string FreeAddress() { return "127.0.0.1:" + std::to_string(FreePort()); }

}  // namespace hyperloop::test
