// A connection of the LinkServer, and what its files share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "softrnic/daemon/link_server.h"

namespace hyperloop::softrnic {

// Of requests that no socket has taken, per link; packets that the engine has not looked at.
inline constexpr int64_t kLinkQueueBytes = 1 << 20;
inline constexpr size_t kLinkInboxBytes = 4 << 20;
// Of answers that a peer's connection has not taken; with more, further ones are dropped. (A
// request of 64 bytes can ask for 64 KiB: what is in the inbox already may be answered by
// gigabytes.)
inline constexpr size_t kLinkAnswerBytes = 64 << 20;
// What epoll calls the server's own descriptors; connections have their serial numbers.
inline constexpr uint64_t kListenerEvents = 1;
inline constexpr uint64_t kWakeEvents = 2;
// Ids of links that peers made; below are configured ones.
inline constexpr LinkId kIncomingLinks = 0x80000000;

inline void Count(std::atomic<uint64_t>* counter, uint64_t n) {
  counter->fetch_add(n, std::memory_order_relaxed);
}

struct LinkServer::Connection {
  Connection(uint64_t s, UniqueFd fd, bool dialer, const LinkKey* key)
      : serial(s), socket(std::move(fd)), channel(dialer, key) {}

  const uint64_t serial;
  UniqueFd socket;
  LinkChannel channel;
  LinkId link = kNoLink;
  std::string name;
  bool dialed = false;
  bool connecting = false;
  std::vector<std::byte> out;
  size_t written = 0;  // of `out`
  uint32_t watched = 0;
  Clock::time_point begun, heard, said;

  size_t unsent() const { return out.size() - written; }
};

}  // namespace hyperloop::softrnic
