#include "log/namespace_change.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "region/crc32c.h"

namespace hyperloop {
namespace {

// At most so many unchanged map entries between two changed ones are written again, because a few
// bytes cost less than one more copy operation on each node. This also bounds the record: in the
// worst case it holds the whole map.
constexpr uint32_t kMergeGap = 16;

}  // namespace

void LogLane::NamespaceChange::SetEntry(uint32_t slot, const TableFile& file) {
  entries_.push_back({slot, true, file, MakeTableEntry(lane_->info_, file)});
}

void LogLane::NamespaceChange::Free(uint32_t slot) {
  entries_.push_back({slot, false, {}, {}});
  shrinks_.push_back({slot, 0});
}

void LogLane::NamespaceChange::SetEntryAndFree(uint32_t slot, const TableFile& file) {
  SetEntry(slot, file);
  shrinks_.push_back({slot, 0});
}

void LogLane::NamespaceChange::SetSize(uint32_t slot, uint64_t size, std::optional<MapEntry> tail) {
  lane_->mutex_.known_held();
  sized_slot_ = slot;
  new_size_ = MakeTableSize(lane_->info_, size);
  new_tail_ = tail;
  const uint64_t extent = lane_->info_.geometry.extent_size;
  const uint64_t keep = (size + extent - 1) / extent;
  if (keep < lane_->table_.slots[slot].extents.size()) shrinks_.push_back({slot, keep});
}

void LogLane::NamespaceChange::SetBinding(const Binding& binding) {
  bind_ = true;
  binding_ = binding;
  binding_bytes_ = MakeBindingBlock(lane_->info_, binding);
}

std::vector<LogLane::MapChange> LogLane::NamespaceChange::MapChanges() const {
  lane_->mutex_.known_held();
  std::vector<MapChange> changes;
  for (const Shrink& shrink : shrinks_) {
    const auto& extents = lane_->table_.slots[shrink.slot].extents;
    for (uint64_t i = shrink.keep; i < extents.size(); ++i) changes.push_back({extents[i], {}});
  }
  if (new_tail_.has_value()) {
    const auto& extents = lane_->table_.slots[sized_slot_].extents;
    changes.push_back({extents[new_tail_->index], *new_tail_});
  }
  std::sort(changes.begin(), changes.end(),
            [](const MapChange& a, const MapChange& b) { return a.extent < b.extent; });
  return changes;
}

// Adds pieces with the new map entries. `storage` gets the entries from the first that changes to
// the last, and the pieces point into it.
void LogLane::NamespaceChange::AddMapPieces(std::span<const MapChange> changes,
                                            std::vector<MapEntry>* storage) {
  lane_->mutex_.known_held();
  if (changes.empty()) return;
  const uint32_t first = changes.front().extent;
  const auto& map = lane_->table_.map;
  storage->assign(map.begin() + first, map.begin() + changes.back().extent + 1);
  for (const MapChange& change : changes) (*storage)[change.extent - first] = change.entry;
  for (size_t i = 0; i < changes.size();) {
    size_t last = i;
    while (last + 1 < changes.size() &&
           changes[last + 1].extent - changes[last].extent <= kMergeGap)
      ++last;
    const uint32_t count = changes[last].extent - changes[i].extent + 1;
    pieces_.push_back({lane_->info_.geometry.MapOffset(changes[i].extent),
                       &(*storage)[changes[i].extent - first],
                       count * static_cast<uint32_t>(sizeof(MapEntry))});
    i = last + 1;
  }
}

Result<uint64_t> LogLane::NamespaceChange::Commit() {
  lane_->mutex_.known_held();
  const RegionGeometry& g = lane_->info_.geometry;
  std::vector<MapEntry> map_storage;
  for (const Entry& entry : entries_)
    pieces_.push_back({g.EntryOffset(entry.slot), &entry.bytes, sizeof(TableEntry)});
  if (sized_slot_ != kNoSlot)
    pieces_.push_back({g.SizeOffset(sized_slot_), &new_size_, sizeof(new_size_)});
  if (bind_) pieces_.push_back({g.binding_offset, &binding_bytes_, sizeof(binding_bytes_)});
  AddMapPieces(MapChanges(), &map_storage);
  const RecordType type = bind_ ? RecordType::kBinding : RecordType::kNamespace;
  HL_ASSIGN_OR_RETURN(const uint64_t seq,
                      lane_->journal_->Append({.type = type, .pieces = pieces_}));
  Apply();
  return seq;
}

void LogLane::NamespaceChange::Apply() {
  lane_->mutex_.known_held();
  auto& slots = lane_->table_.slots;
  for (const Shrink& shrink : shrinks_) lane_->GiveExtentsLocked(shrink.slot, shrink.keep);
  // All old names go first, because the new name of one slot may be the old name of another.
  for (const Entry& entry : entries_) {
    if (!slots[entry.slot].used) continue;
    lane_->by_name_.erase(slots[entry.slot].file.name);
    const auto extents = static_cast<uint32_t>(slots[entry.slot].extents.size());
    if (lane_->IsReservedLocked(entry.slot)) lane_->used_reserved_extents_ -= extents;
    --lane_->used_slots_;
    if (IsGrowingManifest(slots[entry.slot].file)) --lane_->manifests_;
    slots[entry.slot].used = false;
  }
  for (Entry& entry : entries_) {
    FileEntry& slot = slots[entry.slot];
    slot.used = entry.used;
    slot.file = std::move(entry.file);
    if (!entry.used) continue;
    lane_->by_name_[slot.file.name] = entry.slot;
    const auto extents = static_cast<uint32_t>(slot.extents.size());
    if (lane_->IsReservedLocked(entry.slot)) lane_->used_reserved_extents_ += extents;
    ++lane_->used_slots_;
    if (IsGrowingManifest(slot.file)) ++lane_->manifests_;
    lane_->next_slot_ = entry.slot + 1;
  }
  if (sized_slot_ != kNoSlot) slots[sized_slot_].file.size = new_size_.size;
  if (new_tail_.has_value())
    lane_->table_.map[slots[sized_slot_].extents[new_tail_->index]] = *new_tail_;
  if (bind_) lane_->binding_ = binding_;
}

// --- the namespace calls of LogLane

Status LogLane::CommitLocked(NamespaceChange* change) {
  HL_ASSIGN_OR_RETURN(const uint64_t seq, change->Commit());
  return journal_->WaitDurable(seq);
}

Result<FileId> LogLane::Create(std::string_view name) {
  HL_RETURN_IF_ERROR(CheckFileName(name));
  MutexLock lock(mutex_);
  uint32_t replaced = kNoSlot, slot = kNoSlot;
  const auto ready = [&]() HL_REQUIRES(mutex_) {
    const auto found = FindNameLocked(name);
    replaced = found.ok() ? *found : kNoSlot;
    slot = FreeSlotLocked(name, replaced);
    return slot != kNoSlot;
  };
  if (!WaitSpace(std::string(name), ready)) return WaitedInVain(NoSlotsLocked(name));
  const TableFile file{std::string(name), static_cast<uint8_t>(Lane::kLog), 0,
                       journal_->last_seq() + 1};
  NamespaceChange change(this);
  if (replaced != kNoSlot) change.Free(replaced);
  change.SetEntry(slot, file);  // after Free, because both may change the same slot
  HL_RETURN_IF_ERROR(CommitLocked(&change));
  if (replaced == kNoSlot) NoteMadeLocked(name);
  return MakeFileId(slot, file.created_seq);
}

Status LogLane::ListFile(const WholeFile& whole) {
  const std::string& name = whole.name;
  HL_RETURN_IF_ERROR(CheckFileName(name));
  if (whole.checksum == 0)
    return InvalidArgument("\"" + name + "\" is to be listed without a checksum");
  MutexLock lock(mutex_);
  uint32_t present = kNoSlot, slot = kNoSlot;
  const auto ready = [&]() HL_REQUIRES(mutex_) {
    const auto found = FindNameLocked(name);
    present = found.ok() ? *found : kNoSlot;
    if (present == kNoSlot) slot = FreeSlotLocked(name, kNoSlot);
    return present != kNoSlot || slot != kNoSlot;
  };
  if (!WaitSpace(name, ready)) return WaitedInVain(NoSlotsLocked(name));
  TableFile file{name, static_cast<uint8_t>(Lane::kBulk), whole.size, journal_->last_seq() + 1,
                 whole.checksum};
  if (present == kNoSlot) {
    NoteMadeLocked(name);
  } else {
    const TableFile& listed = FileAt(present);
    if (listed.lane != file.lane) {
      return InvalidArgument("\"" + name +
                             "\" holds its bytes in the log lane; it cannot be listed");
    }
    if (listed.size == file.size && listed.checksum == file.checksum) return {};
    slot = present;
    file.created_seq = listed.created_seq;
  }
  NamespaceChange change(this);
  change.SetEntry(slot, file);
  return CommitLocked(&change);
}

Status LogLane::Retire(FileId file, const WholeFile& whole) {
  if (whole.checksum == 0)
    return InvalidArgument("\"" + whole.name + "\" is to be listed without a checksum");
  MutexLock lock(mutex_);
  HL_ASSIGN_OR_RETURN(const uint32_t slot, FindLocked(file));
  TableFile listed = FileAt(slot);
  if (listed.name != whole.name || listed.size != whole.size) {
    return Aborted("\"" + whole.name + "\" of " + std::to_string(whole.size) + " B is \"" +
                   listed.name + "\" of " + std::to_string(listed.size) +
                   " B now; it stays where it is");
  }
  if (listed.lane != static_cast<uint8_t>(Lane::kLog)) {
    if (listed.checksum == whole.checksum) return {};
    return Aborted("\"" + whole.name + "\" is in the bulk lane with other bytes");
  }
  listed.lane = static_cast<uint8_t>(Lane::kBulk);
  listed.checksum = whole.checksum;
  NamespaceChange change(this);
  change.SetEntryAndFree(slot, listed);
  HL_RETURN_IF_ERROR(CommitLocked(&change));
  CountAllLocked();
  return {};
}

Status LogLane::Truncate(FileId file, uint64_t size) {
  MutexLock lock(mutex_);
  HL_ASSIGN_OR_RETURN(const uint32_t slot, FindLocked(file));
  if (size == FileAt(slot).size) return {};
  if (FileAt(slot).lane != static_cast<uint8_t>(Lane::kLog)) {
    return InvalidArgument("\"" + FileAt(slot).name + "\" is only listed in the group");
  }
  if (size > FileAt(slot).size) {
    return InvalidArgument("\"" + FileAt(slot).name + "\" has " +
                           std::to_string(FileAt(slot).size) + " B, it cannot be truncated to " +
                           std::to_string(size));
  }
  HL_ASSIGN_OR_RETURN(const std::optional<MapEntry> tail, CutExtentLocked(slot, size));
  NamespaceChange change(this);
  change.SetSize(slot, size, tail);
  return CommitLocked(&change);
}

// The shorter extent gets a new checksum only if its bytes match the present one, so that damage
// never gets a valid checksum.
Result<std::optional<MapEntry>> LogLane::CutExtentLocked(uint32_t slot, uint64_t size) {
  const RegionGeometry& g = info_.geometry;
  const auto keep = static_cast<uint32_t>(size & (g.extent_size - 1));
  if (keep == 0) return std::optional<MapEntry>();
  const auto index = static_cast<uint32_t>(size >> std::countr_zero(g.extent_size));
  const uint32_t extent = table_.slots[slot].extents[index];
  const MapEntry present = table_.map[extent];
  if (keep == present.length) return std::optional<MapEntry>();
  HL_RETURN_IF_ERROR(journal_->Drain());
  const std::byte* const bytes = region_.data() + g.ExtentOffset(extent);
  MapEntry cut = present;
  cut.length = keep;
  cut.crc = Crc32c(ExtentSeed(info_, present.slot_plus_one, present.index), bytes, keep);
  if (Crc32c(cut.crc, bytes + keep, present.length - keep) == present.crc)
    return std::optional(cut);
  return Corruption("\"" + FileAt(slot).name + "\" is not truncated to " + std::to_string(size) +
                    " B: its bytes in extent " + std::to_string(extent) +
                    " of the primary's pool fail their checksum; close the database and run "
                    "hyperloopctl verify");
}

Status LogLane::Rename(std::string_view from, std::string_view to) {
  HL_RETURN_IF_ERROR(CheckFileName(to));
  MutexLock lock(mutex_);
  HL_ASSIGN_OR_RETURN(const uint32_t slot, FindNameLocked(from));
  if (from == to) return {};
  NamespaceChange change(this);
  const auto replaced = FindNameLocked(to);
  if (replaced.ok()) change.Free(*replaced);
  TableFile file = FileAt(slot);
  file.name = std::string(to);
  change.SetEntry(slot, file);
  NoteRenamedLocked(to);
  return CommitLocked(&change);
}

Status LogLane::Remove(std::string_view name) {
  MutexLock lock(mutex_);
  HL_ASSIGN_OR_RETURN(const uint32_t slot, FindNameLocked(name));
  NamespaceChange change(this);
  change.Free(slot);
  return CommitLocked(&change);
}

Status LogLane::Bind(const Binding& binding) {
  MutexLock lock(mutex_);
  NamespaceChange change(this);
  change.SetBinding(binding);
  return CommitLocked(&change);
}

}  // namespace hyperloop
