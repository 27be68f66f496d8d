// RingMap: which bytes of a piece of registered memory belong to the rings of queues, so that
// writes into them are counted apart. It has one bit for each granule of 8 bytes. Pages of the map
// that no ring touched take no memory. Calls nothing of the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace hyperloop::softrnic {

class RingMap {
 public:
  RingMap() = default;
  ~RingMap();
  RingMap(const RingMap&) = delete;
  RingMap& operator=(const RingMap&) = delete;
  static uint64_t BytesFor(uint64_t memory) { return (memory + 63) / 64 + 9; }  // 8 B of padding

  // Makes the map of `memory` bytes; called once. False: there is no memory for it.
  bool Create(uint64_t memory);
  bool empty() const { return bits_ == nullptr; }
  uint64_t bytes() const { return bytes_; }
  // The bytes [offset, offset + length) of the memory belong to a ring from now on, or no longer.
  // Granules that two rings share belong to none when one of the rings goes.
  void Mark(uint64_t offset, uint64_t length, bool present);
  // How many of the bytes [offset, offset + length) belong to rings; `length` is at least 1. Most
  // ranges are covered by one word of the map and are all ring or none; they take no loop.
  uint64_t Count(uint64_t offset, uint64_t length) const {
    if (length > 56 * 8) [[unlikely]]
      return CountAny(offset, length);
    const uint64_t first = offset / 8;
    uint64_t bits;
    std::memcpy(&bits, bits_ + first / 8, 8);
    const uint64_t mask = (1ull << ((offset + length - 1) / 8 - first + 1)) - 1;
    bits = (bits >> (first % 8)) & mask;
    if (bits == mask) return length;
    return bits == 0 ? 0 : CountAny(offset, length);
  }

 private:
  // Count for any range. Each round of its loop takes one word of the map, with up to 57 granules.
  uint64_t CountAny(uint64_t offset, uint64_t length) const;

  uint8_t* bits_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace hyperloop::softrnic
