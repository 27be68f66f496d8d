// Tables of objects by number, which own the objects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace hyperloop::softrnic {

// The free slots of a table. The one that has been free longest is used first. Only Add needs
// memory.
class FreeSlots {
 public:
  bool empty() const { return count_ == 0; }
  // Adds a new slot, which is free.
  void Add() {
    next_.push_back(0);
    Put(static_cast<uint32_t>(next_.size() - 1));
  }
  void Put(uint32_t slot) {
    if (count_++ == 0) {
      head_ = slot;
    } else {
      next_[tail_] = slot;
    }
    tail_ = slot;
  }
  uint32_t front() const { return head_; }
  void Pop() {
    head_ = next_[head_];
    --count_;
  }
  size_t slots() const { return next_.size(); }

 private:
  std::vector<uint32_t> next_;
  uint32_t head_ = 0;
  uint32_t tail_ = 0;
  size_t count_ = 0;
};

// Objects by number. A number has 24 bits: the slot in the low bits, and above it a generation, so
// that a stale number finds nothing.
template <class T, uint32_t kSlotBits>
class NumberTable {
 public:
  T* Find(uint32_t number) const {
    const uint32_t slot = number & ((1u << kSlotBits) - 1);
    if (slot >= slots_.size()) return nullptr;
    const Entry& entry = slots_[slot];
    return entry.number == number ? entry.object.get() : nullptr;
  }
  // Returns the object's number. 0: the table is full.
  uint32_t Insert(std::unique_ptr<T> object) {
    if (free_.empty()) {
      if ((free_.slots() + 1) >> kSlotBits) return 0;
      slots_.resize(free_.slots() + 2);  // no object has number 0
      slots_.back().number = static_cast<uint32_t>(slots_.size() - 1);
      free_.Add();
    }
    const uint32_t slot = free_.front() + 1;
    free_.Pop();
    slots_[slot].object = std::move(object);
    return slots_[slot].number;
  }
  void Erase(uint32_t number) {
    const uint32_t slot = number & ((1u << kSlotBits) - 1);
    slots_[slot].object.reset();
    slots_[slot].number = (number + (1u << kSlotBits)) & 0xffffff;
    free_.Put(slot - 1);
  }
  template <class F>
  void ForEach(F&& f) {
    for (Entry& entry : slots_)
      if (entry.object) f(*entry.object);
  }

 private:
  struct Entry {
    uint32_t number = 0;
    std::unique_ptr<T> object;
  };
  std::vector<Entry> slots_;
  FreeSlots free_;
};

}  // namespace hyperloop::softrnic
