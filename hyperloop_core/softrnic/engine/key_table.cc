#include "softrnic/engine/key_table.h"

#include "softrnic/engine/bytes.h"
#include "softrnic/engine/random_number.h"

namespace hyperloop::softrnic {
namespace {

// No key has an lkey below 0x200, because 0x100 ends a receive's list.
constexpr uint32_t kFirstSlot = 2;
constexpr uint32_t kMaxSlots = 1 << 20;

}  // namespace

void RkeyTable::Grow() {
  std::vector<Entry> old(2 * entries_.size());
  old.swap(entries_);
  mask_ = entries_.size() - 1;
  count_ = 0;
  for (const Entry& entry : old)
    if (entry.key != nullptr) Insert(entry.key);
}

void RkeyTable::Insert(MemoryKey* key) {
  if (2 * (count_ + 1) > entries_.size()) Grow();
  size_t i = key->rkey & mask_;
  while (entries_[i].key != nullptr) i = (i + 1) & mask_;
  entries_[i] = {key->rkey, key};
  ++count_;
}

void RkeyTable::Erase(const MemoryKey* key) {
  size_t hole = key->rkey & mask_;
  while (entries_[hole].key != key) hole = (hole + 1) & mask_;
  // A search ends at the first empty entry. So an entry behind the hole whose home is at or before
  // the hole moves into it.
  for (size_t i = (hole + 1) & mask_; entries_[i].key != nullptr; i = (i + 1) & mask_) {
    const size_t home = entries_[i].rkey & mask_;
    if (((i - home) & mask_) < ((i - hole) & mask_)) continue;
    entries_[hole] = entries_[i];
    hole = i;
  }
  entries_[hole] = {};
  --count_;
}

bool KeyTable::ResolveSges(const Pd* pd, const std::byte* at, uint32_t segments, uint32_t need,
                           SegmentList* out) const {
  const std::byte* const end = at + static_cast<size_t>(segments) * rnic::kSegmentBytes;
  while (at < end) {
    const uint32_t count = LoadBe32(at);
    if ((count & MLX5_INLINE_SEG) != 0) {
      const uint32_t length = count & ~MLX5_INLINE_SEG;
      if (need != 0 || length > static_cast<size_t>(end - at) - 4) return false;
      out->Add(const_cast<std::byte*>(at) + 4, length, nullptr);
      at += (length + 4 + rnic::kSegmentBytes - 1) / rnic::kSegmentBytes * rnic::kSegmentBytes;
      continue;
    }
    const uint64_t length = count != 0 ? count : 1ull << 31;
    MemoryKey* key = FindLocal(LoadBe32(at + 4));
    std::byte* const bytes = Translate(key, pd, LoadBe64(at + 8), length, need);
    if (bytes == nullptr) [[unlikely]]
      return false;
    out->Add(bytes, static_cast<uint32_t>(length), key);
    at += rnic::kSegmentBytes;
  }
  return true;
}

uint32_t KeyTable::RandomRkey() {
  for (;;) {
    const auto rkey = static_cast<uint32_t>(RandomNumber());
    if (rkey != 0 && by_rkey_.Find(rkey) == nullptr) return rkey;
  }
}

MemoryKey* KeyTable::Insert(std::unique_ptr<MemoryKey> key) {
  if (free_.empty()) {
    const size_t slots = free_.slots() + kFirstSlot + 1;
    if (slots > kMaxSlots) return nullptr;
    keys_.resize(slots);
    tags_.resize(slots);
    free_.Add();
  }
  const uint32_t slot = free_.front() + kFirstSlot;
  key->lkey = slot << 8 | ++tags_[slot];
  key->rkey = RandomRkey();
  by_rkey_.Insert(key.get());
  free_.Pop();
  keys_[slot] = std::move(key);
  return keys_[slot].get();
}

void KeyTable::Erase(MemoryKey& key) {
  const uint32_t slot = key.lkey >> 8;
  by_rkey_.Erase(&key);
  keys_[slot].reset();
  free_.Put(slot - kFirstSlot);
}

}  // namespace hyperloop::softrnic
