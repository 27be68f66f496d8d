// Remote: what a queue pair knows about a peer in another engine. One half is the requester's (its
// session at the responder, request packets without an acknowledgement), the other the responder's
// (the session that it gave, the next number to run, answers that may have to be given again).
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "softrnic/links/link_port.h"
#include "softrnic/links/packet.h"

namespace hyperloop::softrnic {

// Bounds of both halves, per queue pair. The requester keeps to them, the responder insists.
inline constexpr size_t kMaxUnacknowledged = 128;               // packets
inline constexpr uint64_t kMaxUnacknowledgedBytes = 512 << 10;  // sent, or asked for
inline constexpr size_t kMaxRemoteInflight = 64;                // WQEs begun and not completed
// Of all queue pairs together: requests behind READs that wait for a disk. More are dropped, and
// come again.
inline constexpr uint64_t kMaxHeldBytes = 4 << 20;
inline constexpr uint64_t kSignOfLifeNs = 20'000'000;

// Packets are numbered from here, 64 before the numbers wrap: every queue pair gets used to it
// early.
inline constexpr uint32_t kFirstPsn = ~0u - 63;

// Of a session, or of a request for one: random, and never 0.
uint64_t RandomNumber();

struct SentPacket {
  PacketType type = PacketType::kSend;
  bool last = false;   // of its WQE
  bool again = false;  // was sent before
  uint32_t bytes = 0;  // of payload, there or back
  PacketBytes packet;
};

struct KeptAnswer {
  uint32_t psn = 0;
  uint32_t bytes = 0;
  PacketBytes packet;
};

// A request that waits for the one before it.
struct HeldRequest {
  LinkId from = kNoLink;
  bool flushing = false;  // a READ whose flush has begun
  uint64_t bytes = 0;     // of payload, here or asked for
  std::vector<std::byte> packet;
};

struct Remote {
  LinkId link = kNoLink;

  // --- requester
  enum class Phase : uint8_t { kIdle, kConnecting, kOpen, kStopped };
  Phase phase = Phase::kIdle;
  bool listed = false;   // among those that timers look at
  bool waiting = false;  // for room on the link
  bool pumping = false;  // among those that LinkWork has to pump
  bool halted = false;   // a WQE failed: nothing after it is sent
  uint8_t rnr_retries = 0;
  uint64_t nonce = 0;
  uint64_t session = 0;
  uint32_t first_psn = kFirstPsn;  // of `sent`
  std::deque<SentPacket> sent;     // without an acknowledgement
  size_t next_sent = 0;            // of `sent`: to be handed to the link next
  uint64_t sent_bytes = 0;
  size_t packed = 0;  // entries at the front of Qp::InTransit::inflight that are wholly in packets
  uint64_t progress_ns = 0;   // when it last got an answer, or began to wait for one
  uint64_t again_ns = 0;      // when everything without an answer was last sent again
  uint64_t rnr_until_ns = 0;  // not 0: the peer had no receive

  // --- responder
  uint64_t granted_nonce = 0;
  uint64_t granted = 0;  // session; 0: none
  bool began = false;    // a request of it ran
  uint32_t expected = kFirstPsn;
  uint32_t nak_psn = 0;
  uint8_t nak_syndrome = 0;  // not 0: request nak_psn failed, which is what every later one hears
  uint64_t received = 0;     // bytes of a SEND that has begun
  // A READ that waits for a disk, and what came behind it: numbered from `expected` on.
  std::deque<HeldRequest> held;
  uint64_t sign_ns = 0;  // when the requester was told last that this end is at work
  std::deque<KeptAnswer> kept;
  uint64_t kept_bytes = 0;
  bool ack_due = false;
  uint32_t ack_psn = 0;
  LinkId ack_link = kNoLink;
};

}  // namespace hyperloop::softrnic
