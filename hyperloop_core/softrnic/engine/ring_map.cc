#include "softrnic/engine/ring_map.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>

namespace hyperloop::softrnic {

RingMap::~RingMap() {
  if (bits_ != nullptr) munmap(bits_, bytes_);
}

bool RingMap::Create(uint64_t memory) {
  void* const at = mmap(nullptr, BytesFor(memory), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return false;
  bits_ = static_cast<uint8_t*>(at);
  bytes_ = BytesFor(memory);
  return true;
}

void RingMap::Mark(uint64_t offset, uint64_t length, bool present) {
  const uint64_t end = (offset + length + 7) / 8;
  for (uint64_t i = offset / 8; i < end;) {
    if (i % 8 == 0 && end - i >= 8) {  // most of a ring goes fast this way; all hosts wait for it
      std::memset(&bits_[i / 8], present ? 0xff : 0, (end - i) / 8);
      i += (end - i) / 8 * 8;
    } else {
      const auto bit = static_cast<uint8_t>(1u << (i % 8));
      bits_[i / 8] = static_cast<uint8_t>(present ? bits_[i / 8] | bit : bits_[i / 8] & ~bit);
      ++i;
    }
  }
}

uint64_t RingMap::CountAny(uint64_t offset, uint64_t length) const {
  uint64_t bytes = 0;
  const uint64_t end = offset + length;
  for (uint64_t at = offset; at < end;) {
    const uint64_t first = at / 8;
    const uint64_t granules = std::min<uint64_t>((end - 1) / 8 - first + 1, 57);
    const uint64_t next = std::min(end, (first + granules) * 8);
    uint64_t bits;
    std::memcpy(&bits, bits_ + first / 8, 8);
    const uint64_t mask = (1ull << granules) - 1;
    bits = (bits >> (first % 8)) & mask;
    if (bits == mask) {
      bytes += next - at;
    } else if (bits != 0) {
      // Counts whole granules, less what the range leaves out of the first and the last one.
      bytes += 8 * static_cast<uint64_t>(std::popcount(bits));
      if ((bits & 1) != 0) bytes -= at - first * 8;
      if ((bits >> (granules - 1)) != 0) bytes -= (first + granules) * 8 - next;
    }
    at = next;
  }
  return bytes;
}

}  // namespace hyperloop::softrnic
