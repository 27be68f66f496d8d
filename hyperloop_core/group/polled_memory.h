// Memory that a device writes while a thread of this process polls it, without a completion that
// would say that the device is done.
//
// What is relied on: a WRITE is visible only behind the WRITEs that were posted before it to the
// same queue pair. The software RNIC keeps that by PlaceBehind (softrnic/engine/bytes.h), and
// Soft-RoCE copies packet by packet in their order. No card was tried. On one it holds because
// writes by PCIe stay in order, as long as they are not posted with relaxed ordering: by a key
// (ours do not ask for it), by the firmware (PCI_WR_ORDERING must not be force_relax), or by a
// bridge. It does not hold with iWARP. cpu-event needs none of this: it has a completion, which
// every device orders.
//
// What is not relied on: that the bytes of one WRITE become visible in any order, or all at once.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/thread_sanitizer.h"

namespace hyperloop {

// TSan takes what these two do for a race, which it is. They read bytes that somebody may be
// writing, and nobody but CheckedMessage::IsWhole says what they are worth.
//
// CopyPolled is the last read of `from`: the compiler may not read there again where the copy is
// used, nor may anything that is read behind it be older than what was copied.
#if defined(HL_THREAD_SANITIZER)
__attribute__((no_sanitize("thread"), noinline)) inline uint64_t LoadPolled(const uint64_t* at) {
  return *static_cast<const volatile uint64_t*>(at);
}
__attribute__((no_sanitize("thread"), noinline)) inline void CopyPolled(std::byte* to,
                                                                        const std::byte* from,
                                                                        size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    static_cast<volatile std::byte*>(to)[i] = static_cast<const volatile std::byte*>(from)[i];
  }
  std::atomic_signal_fence(std::memory_order_seq_cst);
}
#else
inline uint64_t LoadPolled(const uint64_t* at) {
  return *static_cast<const volatile uint64_t*>(at);
}
inline void CopyPolled(std::byte* to, const std::byte* from, size_t bytes) {
  std::memcpy(to, from, bytes);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_acquire);
}
#endif

// After the copy of a WRITE at `at` was seen to be whole: what the device placed before it is
// visible, too. Pairs with PlaceBehind of the software RNIC. CopyPolled has seen to that already;
// TSan, which knows no fences, is told here.
inline void AcquirePolled([[maybe_unused]] const std::byte* at) {
#if defined(HL_THREAD_SANITIZER)
  __tsan_acquire(const_cast<std::byte*>(at));
#endif
}

}  // namespace hyperloop
