// A region as a model: a log of records, of which each changes some cells. It holds no bytes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "region/region_layout.h"

namespace hyperloop {

inline constexpr size_t kCells = 3;

// A record, and with it the log that it ends.
struct ModelRecord {
  uint64_t seq = 0, acked = 0;
  const ModelRecord* before = nullptr;  // null: it is the first one
  std::vector<size_t> changes;          // cells, in the order of the copies
  Configuration configuration;          // the newest one in the log
  // What the cells hold when all of the log is executed: the record that changed them last.
  std::array<const ModelRecord*, kCells> cells{};
};

inline uint64_t SeqOf(const ModelRecord* record) { return record == nullptr ? 0 : record->seq; }
// Whether the log that `last` ends begins with the log that `first` ends.
inline bool Contains(const ModelRecord* last, const ModelRecord* first) {
  while (SeqOf(last) > SeqOf(first)) last = last->before;
  return last == first;
}

// All records that were ever made.
class ModelRecords {
 public:
  const ModelRecord* Add(const ModelRecord* before, uint64_t acked, std::vector<size_t> changes,
                         const Configuration* configuration) {
    auto record = std::make_unique<ModelRecord>();
    record->seq = SeqOf(before) + 1;
    record->acked = acked;
    record->before = before;
    record->changes = std::move(changes);
    if (before != nullptr) {
      record->cells = before->cells;
      record->configuration = before->configuration;
    }
    if (configuration != nullptr) record->configuration = *configuration;
    for (const size_t cell : record->changes) record->cells[cell] = record.get();
    return records_.emplace_back(std::move(record)).get();
  }

 private:
  std::vector<std::unique_ptr<ModelRecord>> records_;
};

// The bytes of a region.
struct ModelRegion {
  const ModelRecord* ring = nullptr;  // the newest record in the ring
  uint64_t oldest = 1;                // the ring holds the records from this seq on
  const ModelRecord* head = nullptr;  // behind it the log begins
  std::array<const ModelRecord*, kCells> cells{};
  bool damaged = false;  // the log
  bool unsound = false;  // bytes that were executed

  // The last record of the log.
  const ModelRecord* tail() const {
    return oldest <= SeqOf(head) + 1 && Contains(ring, head) ? ring : head;
  }
  uint64_t acked() const { return std::max(SeqOf(head), ring == nullptr ? 0 : ring->acked); }
  // Whether redo makes the cells those of the log.
  bool whole() const {
    auto redone = cells;
    std::vector<const ModelRecord*> log;
    for (const ModelRecord* each = tail(); each != head; each = each->before) log.push_back(each);
    for (auto each = log.rbegin(); each != log.rend(); ++each)
      for (const size_t cell : (*each)->changes) redone[cell] = *each;
    return tail() == nullptr ? redone == decltype(redone){} : redone == tail()->cells;
  }
  void Redo() {
    if (tail() != nullptr) cells = tail()->cells;
  }
};

}  // namespace hyperloop
