// Pieces of memory that a WQE, a receive entry or a packet names, and copies between them. They are
// plain values; the memory belongs to clients or to the packet.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "rnic/wqe.h"
#include "softrnic/engine/bytes.h"

namespace hyperloop::softrnic {

struct MemoryKey;

// A resolved piece of memory.
struct Segment {
  std::byte* at;
  uint32_t length;
  MemoryKey* key;  // null: inline payload or a packet's own copy
};
// A receive entry has at most 2^kMaxLogStride bytes.
inline constexpr uint32_t kMaxLogStride = 10;
// The pieces that a WQE or a receive entry names, without empty ones, on which CopyList relies.
struct SegmentList {
  std::array<Segment, 64> list;
  static_assert((1u << kMaxLogStride) / rnic::kSegmentBytes <= 64);
  static_assert(rnic::kMaxWqeSegments <= 64);
  uint32_t count = 0;
  uint64_t bytes = 0;

  SegmentList() {}  // NOLINT: leaves `list` uninitialised on purpose
  void Add(std::byte* at, uint32_t length, MemoryKey* key) {
    if (length == 0) return;
    list[count++] = {at, length, key};
    bytes += length;
  }
};

// The bytes [from, from + bytes) of `list`.
inline SegmentList Slice(const SegmentList& list, uint64_t from, uint64_t bytes) {
  SegmentList out;
  for (uint32_t i = 0; i < list.count && bytes != 0; ++i) {
    const Segment& segment = list.list[i];
    if (from >= segment.length) {
      from -= segment.length;
      continue;
    }
    const auto n = static_cast<uint32_t>(std::min<uint64_t>(segment.length - from, bytes));
    out.Add(segment.at + from, n, segment.key);
    from = 0;
    bytes -= n;
  }
  return out;
}

// Copies the bytes of `from` to `to`, in order. `to` must be at least as long.
inline void CopyList(const SegmentList& to, const SegmentList& from) {
  uint32_t t = 0, f = 0, t_done = 0, f_done = 0;
  while (f < from.count) {
    const Segment& source = from.list[f];
    const Segment& target = to.list[t];
    const uint32_t n = std::min(source.length - f_done, target.length - t_done);
    CopyBytes(target.at + t_done, source.at + f_done, n);
    if ((f_done += n) == source.length) ++f, f_done = 0;
    if ((t_done += n) == target.length) ++t, t_done = 0;
  }
}

}  // namespace hyperloop::softrnic
