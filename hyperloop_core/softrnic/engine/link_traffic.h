// LinkTraffic: the engine's port to links, and how many bytes a turn has moved over it, so that
// links leave the queues of this machine their share.
//
// Calls nothing of the engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "softrnic/links/link_port.h"
#include "softrnic/links/packet.h"

namespace hyperloop::softrnic {

// Packets are longer than what one queue does at a time: each costs its link much besides its
// bytes. A turn moves no more than that each way.
inline constexpr uint64_t kPacketBytes = 64 << 10;

class LinkTraffic {
 public:
  // Before the first context is opened.
  void Attach(LinkPort* port) { port_ = port; }
  bool attached() const { return port_ != nullptr; }
  // Not null once one is attached.
  LinkPort* port() const { return port_; }
  // The configured link is up and takes a packet.
  bool Ready(LinkId link) { return port_->Ready(link); }
  void Send(LinkId link, PacketBytes packet) { port_->Send(link, std::move(packet)); }
  // A packet that nobody keeps to send it again.
  void Send(LinkId link, const Packet& packet) {
    port_->Send(link, std::make_shared<const std::vector<std::byte>>(EncodePacket(packet)));
  }

  // --- the turn's bytes
  void BeginTurn() { sent_ = received_ = 0; }
  void CountSent(size_t packet_bytes) { sent_ += Cost(packet_bytes); }
  void CountReceived(size_t packet_bytes) { received_ += Cost(packet_bytes); }
  // An answer goes out for what was received.
  void CountAnswer(uint64_t bytes) { received_ += bytes; }
  bool MaySend() const { return sent_ < kPacketBytes; }
  bool MayReceive() const { return received_ < kPacketBytes; }

 private:
  // What a packet counts: small ones cost more than their bytes.
  static uint64_t Cost(size_t bytes) { return std::max<uint64_t>(bytes, 1024); }

  LinkPort* port_ = nullptr;
  uint64_t sent_ = 0;
  uint64_t received_ = 0;  // and the bytes of the answers
};

}  // namespace hyperloop::softrnic
