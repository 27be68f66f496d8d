#include "files/namespace_change.h"

#include <algorithm>
#include <utility>

namespace hyperloop {
namespace {

// Map entries between two that change are written again unchanged if there are at most so many: a
// few bytes cost less than one more copy operation on each node. This also bounds the record: all
// of the map is its worst case.
constexpr uint32_t kMergeGap = 16;

bool IsManifest(std::string_view name) { return name.starts_with("MANIFEST-"); }

}  // namespace

void FileLane::NamespaceChange::SetEntry(uint32_t slot, const TableFile& file) {
  entries_.push_back({slot, true, file, MakeTableEntry(lane_->info_, file)});
}

void FileLane::NamespaceChange::Free(uint32_t slot) {
  entries_.push_back({slot, false, {}, {}});
  shrinks_.push_back({slot, 0});
}

void FileLane::NamespaceChange::SetSize(uint32_t slot, uint64_t size) {
  sized_slot_ = slot;
  new_size_ = size;
  const uint64_t extent = lane_->info_.geometry.extent_size;
  const uint64_t keep = (size + extent - 1) / extent;
  if (keep < lane_->table_.slots[slot].extents.size()) shrinks_.push_back({slot, keep});
}

void FileLane::NamespaceChange::SetBinding(const Binding& binding) {
  bind_ = true;
  binding_ = binding;
  binding_bytes_ = MakeBindingBlock(lane_->info_, binding);
}

// The map as it will be, from the first entry that changes to the last, in runs.
void FileLane::NamespaceChange::AddMapPieces(std::vector<MapEntry>* storage) {
  std::vector<uint32_t> freed;
  for (const Shrink& shrink : shrinks_) {
    const auto& extents = lane_->table_.slots[shrink.slot].extents;
    freed.insert(freed.end(), extents.begin() + static_cast<long>(shrink.keep), extents.end());
  }
  if (freed.empty()) return;
  std::sort(freed.begin(), freed.end());
  const uint32_t first = freed.front();
  const auto& map = lane_->table_.map;
  storage->assign(map.begin() + first, map.begin() + freed.back() + 1);
  for (const uint32_t extent : freed) (*storage)[extent - first] = {0, 0};
  for (size_t i = 0; i < freed.size();) {
    size_t last = i;
    while (last + 1 < freed.size() && freed[last + 1] - freed[last] <= kMergeGap) ++last;
    const uint32_t count = freed[last] - freed[i] + 1;
    pieces_.push_back({lane_->info_.geometry.MapOffset(freed[i]), &(*storage)[freed[i] - first],
                       count * static_cast<uint32_t>(sizeof(MapEntry))});
    i = last + 1;
  }
}

Result<uint64_t> FileLane::NamespaceChange::Commit() {
  const RegionGeometry& g = lane_->info_.geometry;
  std::vector<uint32_t> restated;
  std::vector<MapEntry> map_storage;
  for (const Entry& entry : entries_) {
    pieces_.push_back({g.EntryOffset(entry.slot), &entry.bytes, sizeof(TableEntry)});
    restated.push_back(entry.slot);
  }
  if (sized_slot_ != kNoSlot) {
    pieces_.push_back(
        {g.EntryOffset(sized_slot_) + offsetof(TableEntry, size), &new_size_, sizeof(new_size_)});
    restated.push_back(sized_slot_);
  }
  if (bind_) pieces_.push_back({g.binding_offset, &binding_bytes_, sizeof(binding_bytes_)});
  AddMapPieces(&map_storage);
  const RecordType type = bind_ ? RecordType::kBinding : RecordType::kNamespace;
  HL_ASSIGN_OR_RETURN(
      const uint64_t seq,
      lane_->journal_->Append({.type = type, .pieces = pieces_, .restated = restated}));
  Apply();
  return seq;
}

void FileLane::NamespaceChange::Apply() {
  auto& slots = lane_->table_.slots;
  for (const Shrink& shrink : shrinks_) lane_->GiveExtentsLocked(shrink.slot, shrink.keep);
  for (const Entry& entry :
       entries_) {  // all old names first: a slot's new name may be another's old one
    if (!slots[entry.slot].used) continue;
    lane_->by_name_.erase(slots[entry.slot].file.name);
    const auto extents = static_cast<uint32_t>(slots[entry.slot].extents.size());
    if (lane_->IsReservedLocked(entry.slot)) lane_->used_reserved_extents_ -= extents;
    --lane_->used_slots_;
    if (IsManifest(slots[entry.slot].file.name)) --lane_->manifests_;
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
    if (IsManifest(slot.file.name)) ++lane_->manifests_;
    lane_->next_slot_ = entry.slot + 1;
  }
  if (sized_slot_ != kNoSlot) slots[sized_slot_].file.size = new_size_;
  if (bind_) lane_->binding_ = binding_;
}

// --- the namespace calls of FileLane
// ----------------------------------------------------------------------------------

Status FileLane::CommitLocked(NamespaceChange* change) {
  HL_ASSIGN_OR_RETURN(const uint64_t seq, change->Commit());
  return journal_->WaitDurable(seq);
}

Result<FileId> FileLane::Create(std::string_view name, Lane lane) {
  HL_RETURN_IF_ERROR(CheckFileName(name));
  std::unique_lock lock(mutex_);
  uint32_t replaced = kNoSlot, slot = kNoSlot;
  const auto ready = [&] {
    const auto found = FindNameLocked(name);
    replaced = found.ok() ? *found : kNoSlot;
    slot = FreeSlotLocked(name, replaced);
    return slot != kNoSlot;
  };
  if (!WaitSpace(lock, ready)) return NoSlotsLocked(name);
  const TableFile file{std::string(name), static_cast<uint8_t>(lane), 0, journal_->last_seq() + 1};
  NamespaceChange change(this);
  if (replaced != kNoSlot) change.Free(replaced);
  change.SetEntry(slot, file);  // behind the other, in case it is the same slot
  HL_RETURN_IF_ERROR(CommitLocked(&change));
  if (replaced == kNoSlot) NoteMadeLocked(name);
  return MakeFileId(slot, file.created_seq);
}

Status FileLane::ListLocal(std::string_view name, uint64_t size) {
  HL_RETURN_IF_ERROR(CheckFileName(name));
  std::unique_lock lock(mutex_);
  uint32_t present = kNoSlot, slot = kNoSlot;
  const auto ready = [&] {
    const auto found = FindNameLocked(name);
    present = found.ok() ? *found : kNoSlot;
    if (present == kNoSlot) slot = FreeSlotLocked(name, kNoSlot);
    return present != kNoSlot || slot != kNoSlot;
  };
  if (!WaitSpace(lock, ready)) return NoSlotsLocked(name);
  NamespaceChange change(this);
  if (present == kNoSlot) {
    NoteMadeLocked(name);
    change.SetEntry(slot, {std::string(name), static_cast<uint8_t>(Lane::kLocal), size,
                           journal_->last_seq() + 1});
  } else if (FileAt(present).lane != static_cast<uint8_t>(Lane::kLocal)) {
    return InvalidArgument("\"" + std::string(name) +
                           "\" holds its bytes in the group; it cannot be listed as local");
  } else if (FileAt(present).size == size) {
    return {};
  } else {
    change.SetSize(present, size);
  }
  return CommitLocked(&change);
}

Status FileLane::Truncate(FileId file, uint64_t size) {
  std::lock_guard lock(mutex_);
  HL_ASSIGN_OR_RETURN(const uint32_t slot, FindLocked(file));
  if (FileAt(slot).lane != static_cast<uint8_t>(Lane::kLog)) {
    return InvalidArgument("\"" + FileAt(slot).name + "\" is only listed in the group");
  }
  if (size > FileAt(slot).size) {
    return InvalidArgument("\"" + FileAt(slot).name + "\" has " +
                           std::to_string(FileAt(slot).size) + " B, it cannot be truncated to " +
                           std::to_string(size));
  }
  if (size == FileAt(slot).size) return {};
  NamespaceChange change(this);
  change.SetSize(slot, size);
  return CommitLocked(&change);
}

Status FileLane::Rename(std::string_view from, std::string_view to) {
  HL_RETURN_IF_ERROR(CheckFileName(to));
  std::lock_guard lock(mutex_);
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

Status FileLane::Remove(std::string_view name) {
  std::lock_guard lock(mutex_);
  HL_ASSIGN_OR_RETURN(const uint32_t slot, FindNameLocked(name));
  NamespaceChange change(this);
  change.Free(slot);
  return CommitLocked(&change);
}

Status FileLane::Bind(const Binding& binding) {
  std::lock_guard lock(mutex_);
  NamespaceChange change(this);
  change.SetBinding(binding);
  return CommitLocked(&change);
}

}  // namespace hyperloop
