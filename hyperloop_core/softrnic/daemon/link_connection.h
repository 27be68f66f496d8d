// A connection of the LinkServer, and the declarations that the LinkServer's files share.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hyperloop/core/out_of_memory.h"
#include "softrnic/daemon/link_server.h"
#include "softrnic/links/packet.h"

namespace hyperloop::softrnic {

// Limit of connections that others made. This daemon makes one for each neighbour besides.
inline constexpr size_t kMaxConnections = 256;
// Packets that leave together share a frame, which is sealed as one. A frame that has so many bytes
// takes no more.
inline constexpr size_t kFullFrameBytes = 16 << 10;
inline constexpr StrangerLimits kStrangerLimits{.of_source = 8, .of_known = 64, .all = 64};
// Limit of connections that one neighbour made, with keys.
inline constexpr size_t kMaxConnectionsOfNeighbour = 8;
// Steps of strangers' introductions in a turn. Each takes some 0.2 ms of arithmetic, and all other
// connections are served between two of them.
inline constexpr int kIntroductionsInTurn = 1;
// Bytes of requests that no socket has taken, per link.
inline constexpr int64_t kLinkQueueBytes = 1 << 20;
// Bytes of packets that the engine has and has not answered yet. Each counts as the larger of
// packet and answer, because a request of 64 bytes can ask for 64 KiB.
inline constexpr uint64_t kLinkInFlightBytes = 4 << 20;
// Bytes of answers that a connection's socket has not taken, with the answers to its packets that
// the engine has. A connection may hold kConnectionAnswerBytes, but only kLeastAnswerBytes once all
// connections that neighbours made hold kAllAnswerBytes. Together these hold at most
// kAllAnswerBytes + kMaxConnections * kLeastAnswerBytes + kLinkInFlightBytes.
inline constexpr size_t kConnectionAnswerBytes = 4 << 20;
inline constexpr size_t kAllAnswerBytes = 64 << 20;
inline constexpr size_t kLeastAnswerBytes = 256 << 10;
// The epoll ids of the server's own descriptors; a connection's id is its serial number.
inline constexpr uint64_t kListenerEvents = 1;
inline constexpr uint64_t kWakeEvents = 2;
inline constexpr std::string_view kNoMemory = "out of memory";
// The ids of links that neighbours made have this bit; those of configured links do not.
inline constexpr LinkId kIncomingLinks = 0x80000000;

inline void Count(std::atomic<uint64_t>* counter, uint64_t n) {
  counter->fetch_add(n, std::memory_order_relaxed);
}

// Bytes that wait for a socket, in pieces that are freed as the socket takes them.
class OutBytes {
 public:
  size_t size() const { return size_; }

  // Calls `add` with a vector that has room for a frame, to which it appends. If memory runs out,
  // nothing is appended.
  template <typename Add>
  void Append(Add&& add) {
    if (pieces_.empty() || pieces_.back().capacity() - pieces_.back().size() < kMostAdded) {
      pieces_.emplace_back();
      pieces_.back().reserve(kPieceBytes);
    }
    const size_t before = pieces_.back().size();
    add(&pieces_.back());
    size_ += pieces_.back().size() - before;
  }
  void Append(const std::vector<std::byte>& bytes) {
    if (bytes.empty()) return;
    Append([&bytes](auto* piece) { piece->insert(piece->end(), bytes.begin(), bytes.end()); });
  }

  // Puts the first pieces into `to`, as many as fit; returns their number.
  size_t Front(std::span<iovec> to) {
    const size_t count = std::min(to.size(), pieces_.size());
    for (size_t i = 0; i < count; ++i) to[i] = {pieces_[i].data(), pieces_[i].size()};
    if (count != 0) to[0] = {pieces_[0].data() + taken_, pieces_[0].size() - taken_};
    return count;
  }
  void Drop(size_t bytes) {
    size_ -= bytes;
    taken_ += bytes;
    while (!pieces_.empty() && taken_ >= pieces_.front().size()) {
      taken_ -= pieces_.front().size();
      if (pieces_.size() == 1) return pieces_.front().clear();  // the last one is used again
      pieces_.pop_front();
    }
  }

 private:
  static constexpr size_t kMostAdded = kMaxPacketBytes + 64;
  static constexpr size_t kPieceBytes = 2 * kMostAdded;

  std::deque<std::vector<std::byte>> pieces_;
  size_t taken_ = 0;  // bytes of the first piece that the socket has taken
  size_t size_ = 0;
};

struct LinkServer::Connection {
  static constexpr uint32_t kUnwatched = ~0u;

  Connection(uint64_t s, UniqueFd fd, identity::SecureChannelOptions options)
      : serial(s), socket(std::move(fd)), channel(std::move(options)) {}

  const uint64_t serial;
  UniqueFd socket;
  identity::SecureChannel channel;
  LinkId link = kNoLink;
  std::string name;
  std::string source;         // LinkAddress::Source of the end that made it
  std::set<uint64_t> proven;  // the GID prefixes of the hosts that its other end has proved to be
  bool dialed = false;
  bool spoke = false;  // the end that made it has sent bytes
  bool connecting = false;
  bool more = false;             // there are packets that may not be handed to the engine yet
  uint64_t in_flight = 0;        // bytes of its packets that the engine has
  std::vector<std::byte> kept;   // packets of a frame that was taken from `channel`, for later
  std::vector<std::byte> frame;  // the engine's packets, to be sealed
  bool awaited = false;          // Batch::awaited, of these and those sealed in this turn
  OutBytes out;
  uint32_t watched = kUnwatched;
  SteadyClock::time_point begun, heard, said;

  // The order in which frames leave. The next host of a chain waits for requests, and has more to
  // do then than whoever waits for an answer.
  enum class Urgency : uint8_t { kRequestsAwaited, kAnswers, kRequests };
  Urgency urgency() const {
    if (!dialed) return Urgency::kAnswers;
    return awaited ? Urgency::kRequestsAwaited : Urgency::kRequests;
  }
  size_t unsent() const { return out.size() + frame.size(); }
  bool stranger() const { return !dialed && !channel.open(); }
};

// Runs `event`, which does something for the connection. False: memory ran out in it, and the
// connection is closed.
template <class Event>
bool LinkServer::Guard(Connection& c, Event&& event) {
  const uint64_t serial = c.serial;
  if (!RanOutOfMemory(event)) return true;
  Close(serial, kNoMemory);
  return false;
}

}  // namespace hyperloop::softrnic
