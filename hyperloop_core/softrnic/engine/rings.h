// The rings of queues in registered memory, as RingMap and Durability::NoteWrite count them.
#pragma once

#include "softrnic/engine/objects.h"

namespace hyperloop::softrnic {

// Rings live in registered memory of at most this size, so that maps of them stay small.
inline constexpr uint64_t kMaxRingUmemBytes = 1ull << 30;

// A queue is going to have its rings in `umem`. Not OK: the table for that is over the client's
// limit, or there is no memory for it.
Status ReserveRings(Umem& umem, const ClientLimits& limits);
// Marks the bytes of a queue's rings, or takes the marks away, in the registered memory that the
// queue was created in, and in no other: one client address may stand for different bytes there.
// ReserveRings came before.
void MarkRings(const Qp& qp, bool present);
void MarkRings(const Cq& cq, bool present);

}  // namespace hyperloop::softrnic
