// NamespaceChange: changes to the file table and the extent map that one record makes.
//
// It collects what the record will write, appends the record to the journal, and only then changes
// the lane's memory. So a record that is refused changes nothing.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "log/log_lane.h"

namespace hyperloop {

class LogLane::NamespaceChange {
 public:
  explicit NamespaceChange(LogLane* lane) : lane_(lane) {}

  // Sets the whole entry of `slot`, for a new or renamed file. A change has at most two entries.
  void SetEntry(uint32_t slot, const TableFile& file);
  // Empties `slot` and frees its extents.
  void Free(uint32_t slot);
  // Sets the whole entry of `slot` and frees its extents.
  void SetEntryAndFree(uint32_t slot, const TableFile& file);
  // Sets only the size, and frees the extents beyond it. `tail`: the new map entry of the extent
  // that becomes the file's last one, if that entry changes.
  void SetSize(uint32_t slot, uint64_t size, std::optional<MapEntry> tail = std::nullopt);
  void SetBinding(const Binding& binding);

  // Appends the record and applies the change to the lane. Returns the record's seq.
  Result<uint64_t> Commit();

 private:
  struct Entry {
    uint32_t slot = 0;
    bool used = false;
    TableFile file;
    TableEntry bytes{};
  };
  struct Shrink {
    uint32_t slot = 0;
    uint64_t keep = 0;  // how many extents the file keeps
  };

  // The map entries that change, sorted by extent.
  std::vector<MapChange> MapChanges() const;
  void AddMapPieces(std::span<const MapChange> changes, std::vector<MapEntry>* storage);
  void Apply();

  LogLane* const lane_;
  std::vector<Entry> entries_;
  std::vector<Shrink> shrinks_;
  uint32_t sized_slot_ = kNoSlot;
  TableSize new_size_{};
  std::optional<MapEntry> new_tail_;
  bool bind_ = false;
  Binding binding_;
  BindingBlock binding_bytes_{};
  std::vector<RecordPiece> pieces_;
};

}  // namespace hyperloop
