// Loads, stores and copies of client memory. A client may change its memory at any time, so the
// engine loads each field once.
#pragma once

#include <endian.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/thread_sanitizer.h"

namespace hyperloop::softrnic {

template <class T>
inline T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}
inline uint32_t LoadBe32(const std::byte* at) { return be32toh(Load<uint32_t>(at)); }
// A counter of a doorbell record (4 B aligned). The acquire load pairs with the driver's release
// store: the engine sees what the driver wrote before it.
inline uint32_t LoadDoorbellRecord(const std::byte* at) {
  return be32toh(__atomic_load_n(reinterpret_cast<const uint32_t*>(at), __ATOMIC_ACQUIRE));
}
inline uint64_t LoadBe64(const std::byte* at) { return be64toh(Load<uint64_t>(at)); }

// Starts loading `n` bytes that will soon be copied or overwritten. Another processor often wrote
// them, and without this call their cache lines would be fetched one after another.
enum PrefetchFor { kToRead, kToWrite };
template <PrefetchFor kFor>
inline void Prefetch(const std::byte* at, uint32_t n) {
  for (uint32_t i = 0; i < n; i += 64) __builtin_prefetch(at + i, kFor);
}

// Copies `n` bytes; the two ranges may overlap. A copy of 8 (or 4) aligned bytes is one store, so a
// poller never sees half of a word.
inline void CopyBytes(std::byte* to, const std::byte* from, size_t n) {
  struct Half {
    uint64_t a, b;
  };
  if (n > 64) {
    std::memmove(to, from, n);
  } else if (n > 32) {
    const auto a = Load<Half>(from), b = Load<Half>(from + 16), c = Load<Half>(from + n - 32),
               d = Load<Half>(from + n - 16);
    std::memcpy(to, &a, 16);
    std::memcpy(to + 16, &b, 16);
    std::memcpy(to + n - 32, &c, 16);
    std::memcpy(to + n - 16, &d, 16);
  } else if (n > 16) {
    const auto a = Load<Half>(from), b = Load<Half>(from + n - 16);
    std::memcpy(to, &a, 16);
    std::memcpy(to + n - 16, &b, 16);
  } else if (n >= 8) {
    const auto a = Load<uint64_t>(from), b = Load<uint64_t>(from + n - 8);
    std::memcpy(to, &a, 8);
    std::memcpy(to + n - 8, &b, 8);
  } else if (n >= 4) {
    const auto a = Load<uint32_t>(from), b = Load<uint32_t>(from + n - 4);
    std::memcpy(to, &a, 4);
    std::memcpy(to + n - 4, &b, 4);
  } else if (n > 0) {
    const auto a = Load<uint8_t>(from), b = Load<uint8_t>(from + n / 2),
               c = Load<uint8_t>(from + n - 1);
    std::memcpy(to, &a, 1);
    std::memcpy(to + n / 2, &b, 1);
    std::memcpy(to + n - 1, &c, 1);
  }
}

// Before a WRITE is placed at `to`: whoever polls that memory, and sees the WRITE, sees all that
// was placed before. No order is kept among the bytes of one WRITE.
inline void PlaceBehind([[maybe_unused]] std::byte* to) {
#if defined(HL_THREAD_SANITIZER)
  __tsan_release(to);
#else
  std::atomic_thread_fence(std::memory_order_release);
#endif
}

}  // namespace hyperloop::softrnic
