// KeyTable owns the memory keys, and translates the addresses of WQEs and packets under them.
//
// Each key is checked at each use: its generation, its protection domain, its rights and its
// bounds. TruncatedFiles tells the table, in a signal handler, that it handled a page fault in a
// client's truncated file. Memory of a poisoned key may be lost then, and what touched it ends with
// a protection error.
//
// Calls nothing of the engine.
#pragma once

#include <csignal>
#include <memory>
#include <vector>

#include "softrnic/engine/objects.h"
#include "softrnic/engine/segments.h"
#include "softrnic/engine/tables.h"

namespace hyperloop::softrnic {

// A hash table of keys by rkey. An rkey is random, so it is its own hash. All hosts wait while one
// of these functions runs, so each takes a few steps however many keys there are. Only an Insert
// that grows the table takes more.
class RkeyTable {
 public:
  MemoryKey* Find(uint32_t rkey) const {
    for (size_t i = rkey & mask_;; i = (i + 1) & mask_) {
      if (entries_[i].rkey == rkey) return entries_[i].key;
      if (entries_[i].key == nullptr) return nullptr;
    }
  }
  void Insert(MemoryKey* key);
  // `key` is in the table.
  void Erase(const MemoryKey* key);

 private:
  struct Entry {
    uint32_t rkey = 0;
    MemoryKey* key = nullptr;
  };
  void Grow();
  std::vector<Entry> entries_ = std::vector<Entry>(64);
  size_t mask_ = 63;
  size_t count_ = 0;
};

class KeyTable {
 public:
  // Null: there is none.
  MemoryKey* FindLocal(uint32_t lkey) const {
    const uint32_t slot = lkey >> 8;
    if (slot >= keys_.size()) [[unlikely]]
      return nullptr;
    MemoryKey* key = keys_[slot].get();
    return key != nullptr && key->lkey == lkey ? key : nullptr;
  }
  MemoryKey* FindRemote(uint32_t rkey) const { return by_rkey_.Find(rkey); }
  // The engine's address of client address `addr` under `key`. Null: `key` does not allow the
  // access. `need`: rnic::Access bits; 0 for a local read.
  static std::byte* Translate(const MemoryKey* key, const Pd* pd, uint64_t addr, uint64_t length,
                              uint32_t need) {
    if (key == nullptr || key->pd != pd || (key->access & need) != need || key->poisoned)
        [[unlikely]]
      return nullptr;
    const uint64_t offset = addr - key->addr;
    if (offset > key->length || length > key->length - offset) [[unlikely]]
      return nullptr;
    return key->base + offset;
  }
  // Adds to `out` the memory that the SGEs at `at` name, which take `segments` segments of 16 B.
  // False: one of them is not allowed.
  bool ResolveSges(const Pd* pd, const std::byte* at, uint32_t segments, uint32_t need,
                   SegmentList* out) const;

  // Gives the key its lkey and rkey. Null: the table is full.
  MemoryKey* Insert(std::unique_ptr<MemoryKey> key);
  void Erase(MemoryKey& key);

  // --- faults
  // Notes that a fault was handled. Async-signal-safe.
  void NoteFault() { fault_ = 1; }
  bool fault() const { return fault_ != 0; }
  void ForgetFault() { fault_ = 0; }
  // Whether a fault that was handled since ForgetFault may have cost the memory under `key`, the
  // memory of a segment, or any memory of a list.
  bool Lost(const MemoryKey& key) const { return fault_ != 0 && key.poisoned; }
  bool Lost(const Segment& segment) const { return segment.key != nullptr && Lost(*segment.key); }
  bool Lost(const SegmentList& list) const {
    if (fault_ == 0) [[likely]]
      return false;
    for (uint32_t i = 0; i < list.count; ++i)
      if (Lost(list.list[i])) return true;
    return false;
  }

 private:
  uint32_t RandomRkey();

  std::vector<std::unique_ptr<MemoryKey>> keys_;  // by lkey >> 8
  RkeyTable by_rkey_;
  FreeSlots free_;  // from kFirstSlot on
  std::vector<uint8_t> tags_;
  volatile sig_atomic_t fault_ = 0;
};

}  // namespace hyperloop::softrnic
