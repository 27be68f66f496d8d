// LinkTraffic: the engine's port to links. It counts the bytes that a turn moves over links, so
// that they leave the queues of this machine their share.
//
// Calls nothing of the engine.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "softrnic/links/link_port.h"
#include "softrnic/links/packet.h"

namespace hyperloop::softrnic {

// About the most payload that a turn moves over links in each direction: a full packet. It is more
// than a queue of this machine moves in its turn (kTurnBytes), because a packet costs much besides
// its bytes.
inline constexpr uint64_t kTurnLinkBytes = kMaxPayload;

class LinkTraffic {
 public:
  // Called before the first context is opened, if at all.
  void Attach(LinkPort* port) { port_ = port; }
  bool attached() const { return port_ != nullptr; }
  // Not null once one is attached.
  LinkPort* port() const { return port_; }
  // Whether `link` is up and has room for a packet.
  bool Ready(LinkId link) { return port_->Ready(link); }
  void Send(LinkId link, std::span<const std::byte> packet) { port_->Send(link, packet); }
  // Sends a packet that nobody keeps to send it again.
  void Send(LinkId link, const Packet& packet) {
    if (!packet.payload.empty()) return port_->Send(link, EncodePacket(packet));
    std::array<std::byte, kPacketHeaderBytes> bytes;
    EncodeHeader(packet, bytes.data());
    port_->Send(link, bytes);
  }

  // --- the turn's bytes
  void BeginTurn() { sent_ = received_ = 0; }
  void CountSent(size_t packet_bytes) { sent_ += Cost(packet_bytes); }
  void CountReceived(size_t packet_bytes) { received_ += Cost(packet_bytes); }
  // An answer of `bytes` bytes was sent. It counts as received, since a request asked for it.
  void CountAnswer(uint64_t bytes) { received_ += bytes; }
  bool MaySend() const { return sent_ < kTurnLinkBytes; }
  bool MayReceive() const { return received_ < kTurnLinkBytes; }

 private:
  // What a packet counts as. A small one costs more than its bytes.
  static uint64_t Cost(size_t bytes) { return std::max<uint64_t>(bytes, 1024); }

  LinkPort* port_ = nullptr;
  uint64_t sent_ = 0;
  uint64_t received_ = 0;  // with the bytes of the answers
};

}  // namespace hyperloop::softrnic
