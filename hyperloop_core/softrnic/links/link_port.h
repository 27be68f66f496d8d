// LinkPort: the interface through which an engine exchanges packets with engines on other machines.
// The daemon's TCP links implement it (daemon/link_server.h), and a test's network in memory.
//
// A link carries packets whole, unchanged and in order, or breaks; after a break packets that were
// under way may be lost. The engine resends packets that were not acknowledged. All calls come from
// whoever runs the engine. Only Send needs memory: std::bad_alloc leaves the packet unsent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace hyperloop::softrnic {

// The number of a link. This engine's requests go on links that were configured. The requests of a
// neighbour (another machine's daemon) arrive on links that the neighbour made. Answers go back on
// the link that the request came on.
using LinkId = uint32_t;
inline constexpr LinkId kNoLink = 0;

// The links that lead to hosts, by the GidPrefix of a host's name. A route can be made in one place
// and kept in another one, which needs no memory for it.
using RouteMap = std::map<uint64_t, LinkId>;
using Route = RouteMap::node_type;
inline Route MakeRoute(uint64_t prefix, LinkId link) {
  RouteMap map{{prefix, link}};
  return map.extract(map.begin());
}

struct LinkEvent {
  enum class Kind : uint8_t {
    kPacket,
    kUp,    // a configured link carries packets (again)
    kRoom,  // it takes more packets, after Ready returned false
    // From now on `link` leads to the host with `prefix`, by `route`. kNoLink: none does any more.
    kRoute,
  };
  Kind kind = Kind::kPacket;
  LinkId link = kNoLink;
  std::span<const std::byte> packet{};  // valid until the next call of Receive
  uint64_t prefix = 0;                  // GidPrefix of a host's name
  Route* route = nullptr;               // may be taken until the next call of Receive
};

class LinkPort {
 public:
  virtual ~LinkPort() = default;
  // True if a configured link is up and takes another packet. After false, kUp or kRoom follows.
  virtual bool Ready(LinkId link) = 0;
  // Queues a copy of a packet, which is dropped if the link is down. A request may be sent only
  // after Ready said true, and at most one answer for each packet that was received.
  virtual void Send(LinkId link, std::span<const std::byte> packet) = 0;
  // The end of a turn: queued packets leave, and received packets count as answered. So do
  // requests that wait behind a READ which waits for a disk; the engine bounds their memory, and
  // that of their answers, itself (kMaxHeldBytes).
  virtual void Flush() = 0;
  // Takes the next event. False: there is none.
  virtual bool Receive(LinkEvent* event) = 0;
  // True if Receive would return an event. It is called before sleeping, so it must see
  // (sequentially consistent) every event that was there when the port skipped its wake-up.
  virtual bool Pending() const = 0;
  // The name of the host with this GID prefix, for messages. Empty: nobody has told it.
  virtual std::string NameOf(uint64_t /*prefix*/) const { return {}; }
};

}  // namespace hyperloop::softrnic
