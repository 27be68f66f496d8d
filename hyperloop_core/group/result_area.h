// The result area of an operation in a chain (datapaths offload, cpu-polling, cpu-event): every
// replica adds its ReplicaResult, and the last one writes the whole area into the primary's ack
// area. Host byte order is little-endian on all nodes.
#pragma once

#include <cstdint>

namespace hyperloop {

// Behind the header lies a ReplicaResult for each replica, in the order of the chain.
struct ResultHeader {
  uint64_t sequence;  // the ticket
};
struct ReplicaResult {
  // What the CAS found; 0 where none ran.
  uint64_t original;
  // The operation's sequence number: the replica's proof that its part of the operation ran. With
  // offload the last READ of its local slot copies it here.
  uint64_t word;
};
constexpr uint32_t ResultBytes(uint32_t group_size) {
  return static_cast<uint32_t>(sizeof(ResultHeader) + group_size * sizeof(ReplicaResult));
}
// The ack area has one entry a slot, of this size.
constexpr uint32_t AckStride(uint32_t group_size) {
  return (ResultBytes(group_size) + 63) / 64 * 64;
}

// Behind the entries of all slots lie the proofs of FlushOrder::kPipelined, one word for each slot
// and replica: the operation's sequence number, which the replica's READ brought back from the next
// replica. So everything that arrived there before is durable.
constexpr uint32_t ProofOffset(uint32_t slots, uint32_t group_size, uint32_t slot,
                               uint32_t replica) {
  return slots * AckStride(group_size) +
         (slot * group_size + replica) * static_cast<uint32_t>(sizeof(uint64_t));
}
constexpr uint32_t AckAreaBytes(uint32_t slots, uint32_t group_size) {
  return (ProofOffset(slots, group_size, slots, 0) + 63) / 64 * 64;
}

}  // namespace hyperloop
