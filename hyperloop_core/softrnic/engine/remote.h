// Remote: what a queue pair knows about a peer in another engine. One half is the requester's: its
// session at the responder, and request packets without an acknowledgement. The other half is the
// responder's: the session that it granted, the number of the request to run next, and answers that
// it may have to give again.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "softrnic/links/link_port.h"
#include "softrnic/links/packet.h"

namespace hyperloop::softrnic {

// Bounds per queue pair. The requester keeps them; the responder enforces them.
inline constexpr size_t kMaxUnacknowledged = 128;               // packets
inline constexpr uint64_t kMaxUnacknowledgedBytes = 512 << 10;  // sent, or asked for
inline constexpr size_t kMaxRemoteInflight = 64;                // WQEs begun and not completed
// The most memory, in bytes, that all queue pairs together use to hold requests behind READs that
// wait for a disk. Further requests are dropped, and come again. The READ itself is always held.
inline constexpr uint64_t kMaxHeldBytes = 4 << 20;
inline constexpr uint64_t kSignOfLifeNs = 20'000'000;
// How long an acknowledgement may be late for which nobody waits (kPacketAckLater).
inline constexpr uint64_t kAckDelayNs = 2'000'000;

// The number of the first packet. Numbers wrap around after 64 packets, so that a mistake there
// shows early on every queue pair.
inline constexpr uint32_t kFirstPsn = ~0u - 63;

struct SentPacket {
  PacketType type = PacketType::kSend;
  bool last = false;   // of its WQE
  bool again = false;  // was sent before
  uint32_t bytes = 0;  // of payload, there or back
  std::vector<std::byte> packet;
};

struct KeptAnswer {
  uint32_t psn = 0;
  std::vector<std::byte> packet;
};

// A request that waits for the one before it.
struct HeldRequest {
  LinkId from = kNoLink;
  bool flushing = false;  // a READ whose flush has begun
  uint64_t bytes = 0;     // counted against kMaxHeldBytes
  std::vector<std::byte> packet;
};

struct Remote {
  LinkId link = kNoLink;

  // --- requester
  enum class Phase : uint8_t { kIdle, kConnecting, kOpen, kStopped };
  Phase phase = Phase::kIdle;
  bool listed = false;      // in LinkWork's list of running timers
  bool waiting = false;     // in LinkWork's list of those that wait for room on their link
  bool pumping = false;     // in LinkWork's list of those that have packets to send
  bool halted = false;      // a WQE failed, and nothing after it is sent
  uint64_t checked_ns = 0;  // when the timers were looked at last
  uint8_t rnr_retries = 0;
  uint64_t nonce = 0;
  uint64_t session = 0;
  uint32_t first_psn = kFirstPsn;  // of `sent`
  std::deque<SentPacket> sent;     // without an acknowledgement
  size_t next_sent = 0;            // index in `sent` of what the link gets next
  uint64_t sent_bytes = 0;
  size_t packed = 0;  // entries at the front of Qp::InTransit::inflight that are wholly in packets
  uint64_t progress_ns = 0;   // when it last got an answer, or began to wait for one
  uint64_t again_ns = 0;      // when everything without an answer was last sent again
  uint64_t rnr_until_ns = 0;  // not 0: the peer had no receive, and nothing is sent until then

  // --- responder
  bool shut = false;  // no route leads to the peer's host any more, and its requests are refused
  uint64_t granted_nonce = 0;
  uint64_t granted = 0;  // the session; 0: none
  bool began = false;    // a request of the session ran
  uint32_t expected = kFirstPsn;
  uint32_t nak_psn = 0;
  uint8_t nak_syndrome = 0;  // not 0: request nak_psn failed so; later ones get the same answer
  uint64_t received = 0;     // bytes of a SEND that has begun
  // A READ that waits for a disk, and the requests behind it, which are numbered from `expected`
  // on.
  std::deque<HeldRequest> held;
  uint64_t sign_ns = 0;  // when the requester was last told that this end is at work
  std::deque<KeptAnswer> kept;
  uint64_t kept_bytes = 0;
  bool ack_due = false;
  bool ack_awaited = false;   // the requester wants the acknowledgement at once
  bool ack_listed = false;    // in LinkWork's list of acknowledgements
  uint64_t ack_since_ns = 0;  // when the oldest request ran that it is for
  uint32_t ack_psn = 0;
  LinkId ack_link = kNoLink;
};

}  // namespace hyperloop::softrnic
