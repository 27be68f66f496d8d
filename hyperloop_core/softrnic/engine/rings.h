// The rings of queues in registered memory: where they are, and the marks by which
// Durability::NoteWrite counts the bytes that are written into them.
#pragma once

#include "softrnic/engine/objects.h"

namespace hyperloop::softrnic {

// Rings live in registered memory of at most this size, so that maps of them stay small.
inline constexpr uint64_t kMaxRingUmemBytes = 1ull << 30;

// The engine's address of a ring (or doorbell record) of `bytes` bytes at client address `addr`.
// Null: it is not inside `umem`, or not aligned to `align` bytes.
std::byte* RingAt(const Umem& umem, uint64_t addr, uint64_t bytes, uint64_t align);
// Gives `umem` a RingMap if it has none, before a queue has its rings there. kNoSpace: the map
// exceeds the client's limit (ClientLimits::table_bytes), or there is no memory for it.
Status ReserveRings(Umem& umem, const ClientLimits& limits);
// Marks the bytes of a queue's rings, or removes the marks, in the registered memory that the queue
// was created in and in no other: in other registered memory, the same client addresses may mean
// other bytes. ReserveRings must have succeeded for that memory.
void MarkRings(const Qp& qp, bool present);
void MarkRings(const Cq& cq, bool present);

}  // namespace hyperloop::softrnic
