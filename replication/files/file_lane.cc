#include "files/file_lane.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <thread>
#include <utility>

#include "files/namespace_change.h"
#include "layout/crc32c.h"

namespace hyperloop {
namespace {

// Table slots that only the reserved class may take.
constexpr uint32_t kReservedSlots = 4;
// Pieces of one append record: data and map runs.
constexpr size_t kMaxPieces = 16;
constexpr uint64_t kMaxExtentsPerChunk = 6;

// extent_size is a power of two that the compiler does not know: shifts, not divisions, on the hot
// path.
uint64_t ExtentsFor(uint64_t size, uint64_t extent_size) {
  return (size + extent_size - 1) >> std::countr_zero(extent_size);
}

}  // namespace

bool IsReservedClass(std::string_view name) {
  return name.starts_with("MANIFEST-") || name == "CURRENT" || name.ends_with(".dbtmp");
}

// --- opening
// ----------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<FileLane>> FileLane::Load(std::unique_ptr<Journal> journal,
                                                 std::span<std::byte> region,
                                                 const RegionInfo& info, FileLaneOptions options) {
  HL_ASSIGN_OR_RETURN(FileTable table, FileTable::Load(region, info));
  HL_ASSIGN_OR_RETURN(
      Binding binding,
      ParseBindingBlock(region.subspan(info.geometry.binding_offset, sizeof(BindingBlock)), info));
  if (!options.now)
    options.now = [] { return std::chrono::steady_clock::now().time_since_epoch(); };
  if (!options.idle)
    options.idle = [] { std::this_thread::sleep_for(std::chrono::microseconds(200)); };
  return std::unique_ptr<FileLane>(new FileLane(
      std::move(journal), region, info, std::move(options), std::move(table), std::move(binding)));
}

FileLane::FileLane(std::unique_ptr<Journal> journal, std::span<std::byte> region,
                   const RegionInfo& info, FileLaneOptions options, FileTable table,
                   Binding binding)
    : journal_(std::move(journal)),
      region_(region),
      info_(info),
      options_(std::move(options)),
      table_(std::move(table)),
      binding_(std::move(binding)) {
  for (uint32_t slot = 0; slot < table_.slots.size(); ++slot) {
    const FileEntry& entry = table_.slots[slot];
    if (!entry.used) continue;
    by_name_[entry.file.name] = slot;
    ++used_slots_;
    used_extents_ += static_cast<uint32_t>(entry.extents.size());
    if (IsReservedClass(entry.file.name))
      used_reserved_extents_ += static_cast<uint32_t>(entry.extents.size());
  }
}

// --- looking up
// -------------------------------------------------------------------------------------------------------

Result<uint32_t> FileLane::FindLocked(FileId file) const {
  const uint32_t slot = SlotOf(file);
  if (slot >= table_.slots.size() || !table_.slots[slot].used ||
      MakeFileId(slot, table_.slots[slot].file.created_seq) != file) {
    return NotFound("file id " + std::to_string(file) + ": removed or replaced");
  }
  return slot;
}

Result<uint32_t> FileLane::FindNameLocked(std::string_view name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end())
    return NotFound("no file \"" + std::string(name) + "\" in the group");
  return found->second;
}

bool FileLane::IsReservedLocked(uint32_t slot) const {
  return IsReservedClass(table_.slots[slot].file.name);
}

Result<FileId> FileLane::Lookup(std::string_view name) {
  std::lock_guard lock(mutex_);
  HL_ASSIGN_OR_RETURN(const uint32_t slot, FindNameLocked(name));
  return MakeFileId(slot, table_.slots[slot].file.created_seq);
}

std::vector<FileInfo> FileLane::Files() {
  std::lock_guard lock(mutex_);
  return table_.List();
}

Result<uint64_t> FileLane::Read(FileId file, uint64_t offset, std::span<char> out) {
  std::lock_guard lock(mutex_);
  HL_ASSIGN_OR_RETURN(const uint32_t slot, FindLocked(file));
  const TableFile& info = table_.slots[slot].file;
  if (info.lane != static_cast<uint8_t>(Lane::kLog)) {
    return InvalidArgument("\"" + info.name +
                           "\" is only listed in the group; its bytes are local");
  }
  if (offset >= info.size) return uint64_t{0};
  if (journal_->executed_seq() < journal_->last_seq()) HL_RETURN_IF_ERROR(journal_->Drain());
  const uint64_t n = std::min<uint64_t>(out.size(), info.size - offset);
  table_.ReadBytes(region_, info_, slot, offset, out.first(n));
  return n;
}

Binding FileLane::binding() {
  std::lock_guard lock(mutex_);
  return binding_;
}

// --- space
// ------------------------------------------------------------------------------------------------------------

uint32_t FileLane::FreeSlotLocked(std::string_view name, uint32_t freed) const {
  const auto capacity = static_cast<uint32_t>(table_.slots.size());
  const uint32_t free = capacity - used_slots_ + (freed != kNoSlot ? 1 : 0);
  if (free <= (IsReservedClass(name) ? 0 : kReservedSlots)) return kNoSlot;
  for (uint32_t i = 0; i < capacity; ++i) {
    const uint32_t slot = (next_slot_ + i) % capacity;
    if (!table_.slots[slot].used) return slot;
  }
  return freed;
}

bool FileLane::HasExtentsLocked(bool reserved, uint64_t count) const {
  const uint64_t free = info_.geometry.extent_count - used_extents_;
  if (reserved) return free >= count;
  // Others leave the reserve, less what the reserved class holds of it, but never less than half: a
  // MANIFEST may have outgrown the reserve, and its successor needs room beside it.
  const uint64_t reserve = info_.geometry.reserved_extents;
  const uint64_t unused = reserve > used_reserved_extents_ ? reserve - used_reserved_extents_ : 0;
  return free >= count + std::max(unused, (reserve + 1) / 2);
}

Status FileLane::NoExtentsLocked(std::string_view name, uint64_t count) const {
  const RegionGeometry& g = info_.geometry;
  return NoSpace("data area full: \"" + std::string(name) + "\" needs " + std::to_string(count) +
                 " more of " + std::to_string(g.extent_count) + " extents of " +
                 std::to_string(g.extent_size) + " B, " + std::to_string(used_extents_) +
                 " are in use and " + std::to_string(g.reserved_extents) +
                 " are kept for MANIFEST and CURRENT; flush memtables (smaller write_buffer_size "
                 "or max_total_wal_size) "
                 "or make the group anew with a larger region_size");
}

Status FileLane::CheckEverFitsLocked(std::string_view name, bool reserved, uint64_t count) const {
  const uint64_t most =
      info_.geometry.extent_count - (reserved ? 0 : info_.geometry.reserved_extents);
  return count <= most ? Status() : NoExtentsLocked(name, count);
}

Status FileLane::NoSlotsLocked(std::string_view name) const {
  return NoSpace(
      "file table full: no slot for \"" + std::string(name) + "\", " + std::to_string(used_slots_) +
      " of " + std::to_string(table_.slots.size()) + " are in use and " +
      std::to_string(kReservedSlots) +
      " are kept for MANIFEST and CURRENT; make the group anew with a larger table_capacity");
}

bool FileLane::WaitSpace(std::unique_lock<std::mutex>& lock, const std::function<bool()>& ready) {
  if (ready()) return true;
  ++space_waits_;
  const auto deadline = options_.now() + options_.space_timeout;
  while (options_.now() < deadline) {
    lock.unlock();
    options_.idle();
    lock.lock();
    if (ready()) return true;
  }
  return false;
}

uint64_t FileLane::NewExtentsLocked(uint32_t slot, uint64_t bytes) const {
  const FileEntry& entry = table_.slots[slot];
  return ExtentsFor(entry.file.size + bytes, info_.geometry.extent_size) - entry.extents.size();
}

// Takes free extents, right behind each other where possible. The caller has checked that there are
// enough.
void FileLane::TakeExtentsLocked(uint32_t slot, uint64_t count) {
  FileEntry& entry = table_.slots[slot];
  if (IsReservedLocked(slot)) used_reserved_extents_ += static_cast<uint32_t>(count);
  used_extents_ += static_cast<uint32_t>(count);
  if (!entry.extents.empty()) next_extent_ = entry.extents.back() + 1;
  for (uint32_t extent = next_extent_; count > 0; ++extent) {
    if (extent >= info_.geometry.extent_count) extent = 0;
    if (table_.map[extent].slot_plus_one != 0) continue;
    table_.map[extent] = {slot + 1, static_cast<uint32_t>(entry.extents.size()), 0, 0};
    entry.extents.push_back(extent);
    next_extent_ = extent + 1;
    --count;
  }
}

// The reverse: keeps the first `keep` of them.
void FileLane::GiveExtentsLocked(uint32_t slot, uint64_t keep) {
  FileEntry& entry = table_.slots[slot];
  const auto count = static_cast<uint32_t>(entry.extents.size() - keep);
  if (IsReservedLocked(slot)) used_reserved_extents_ -= count;
  used_extents_ -= count;
  for (uint64_t i = keep; i < entry.extents.size(); ++i) table_.map[entry.extents[i]] = {};
  entry.extents.resize(keep);
}

// --- appending
// --------------------------------------------------------------------------------------------------------

uint64_t FileLane::MaxChunk() const {
  const uint64_t room = journal_->max_record() -
                        RecordLength(kMaxPieces, (kMaxExtentsPerChunk + 1) * sizeof(MapEntry));
  return std::min(room, kMaxExtentsPerChunk * info_.geometry.extent_size);
}

// One record: bytes that fit into it, and the map entries of the extents that they begin. The entry
// of the extent that they go on with, and the size, are stated later.
Result<uint64_t> FileLane::AppendChunkLocked(uint32_t slot, std::string_view data) {
  const RegionGeometry& g = info_.geometry;
  FileEntry& entry = table_.slots[slot];
  const uint64_t old_extents = entry.extents.size();
  const uint64_t new_extents = NewExtentsLocked(slot, data.size());
  if (new_extents != 0) TakeExtentsLocked(slot, new_extents);
  std::array<RecordPiece, kMaxPieces> pieces;
  size_t count = 0;
  RecordSpec::Growth growth;
  for (uint64_t done = 0; done < data.size();) {
    const uint64_t at = entry.file.size + done, within = at & (g.extent_size - 1);
    const uint64_t n = std::min<uint64_t>(data.size() - done, g.extent_size - within);
    const uint32_t extent = entry.extents[at >> std::countr_zero(g.extent_size)];
    const uint64_t to = g.ExtentOffset(extent) + within;
    MapEntry& counted = table_.map[extent];
    if (within != 0) {
      growth = {&counted, extent, static_cast<uint32_t>(n)};
    } else {
      counted.length = static_cast<uint32_t>(n);
      counted.crc =
          Crc32c(ExtentSeed(info_, counted.slot_plus_one, counted.index), data.data() + done, n);
    }
    if (count > 0 && pieces[count - 1].destination + pieces[count - 1].length == to) {
      pieces[count - 1].length += static_cast<uint32_t>(n);
    } else {
      pieces[count++] = {to, data.data() + done, static_cast<uint32_t>(n)};
    }
    done += n;
  }
  for (uint64_t i = old_extents; i < entry.extents.size(); ++i) {
    const uint32_t extent = entry.extents[i];
    if (i > old_extents && extent == entry.extents[i - 1] + 1) {
      pieces[count - 1].length += sizeof(MapEntry);
    } else {
      pieces[count++] = {g.MapOffset(extent), &table_.map[extent], sizeof(MapEntry)};
    }
  }
  const uint64_t end = entry.file.size + data.size();
  auto seq = journal_->Append({.type = RecordType::kAppend,
                               .file_slot = slot,
                               .file_end = end,
                               .pieces = std::span(pieces.data(), count),
                               .growth = growth});
  if (!seq.ok()) {
    if (new_extents != 0) GiveExtentsLocked(slot, old_extents);
    return seq.status().WithContext("append of " + std::to_string(data.size()) + " B to \"" +
                                    entry.file.name + "\"");
  }
  entry.file.size = end;
  return seq;
}

Status FileLane::Append(FileId file, std::string_view data,
                        const std::function<void()>& meanwhile) {
  std::unique_lock lock(mutex_);
  HL_ASSIGN_OR_RETURN(uint32_t slot, FindLocked(file));
  if (FileAt(slot).lane != static_cast<uint8_t>(Lane::kLog)) {
    return InvalidArgument("\"" + FileAt(slot).name +
                           "\" is only listed in the group; nothing can be appended to it");
  }
  uint64_t extents = NewExtentsLocked(slot, data.size());
  if (extents != 0) {
    const bool reserved = IsReservedLocked(slot);
    HL_RETURN_IF_ERROR(CheckEverFitsLocked(FileAt(slot).name, reserved, extents));
    // While this waits others may remove the file, or append to it.
    const bool room = WaitSpace(lock, [&] {
      if (!FindLocked(file).ok()) return true;
      extents = NewExtentsLocked(slot, data.size());
      return HasExtentsLocked(reserved, extents);
    });
    HL_ASSIGN_OR_RETURN(slot, FindLocked(file));
    if (!room) return NoExtentsLocked(FileAt(slot).name, extents);
  }
  const uint64_t chunk = MaxChunk(), whole = data.size();
  uint64_t seq = 0;
  while (!data.empty()) {
    const std::string_view part = data.substr(0, chunk);
    auto appended = AppendChunkLocked(slot, part);
    if (!appended.ok() && data.size() == whole) return appended.status();
    if (!appended.ok()) {
      const bool full = appended.status().code() == Code::kNoSpace;
      return Status(full ? Code::kNoSpace : Code::kAborted,
                    "only the first " + std::to_string(whole - data.size()) + " of " +
                        std::to_string(whole) +
                        " B are in the log: " + appended.status().message());
    }
    seq = *appended;
    data.remove_prefix(part.size());
  }
  if (meanwhile) {
    lock.unlock();
    meanwhile();
    lock.lock();
  }
  return options_.ack == AckMode::kAppend ? journal_->WaitDurable(seq) : Status();
}

Status FileLane::Sync(FileId) {
  std::lock_guard lock(mutex_);
  return journal_->WaitDurable(journal_->last_seq());
}

// --- the journal, under the mutex
// -------------------------------------------------------------------------------------

Status FileLane::Drain() {
  std::lock_guard lock(mutex_);
  return journal_->Drain();
}
Status FileLane::Checkpoint() {
  std::lock_guard lock(mutex_);
  return journal_->Checkpoint();
}
Result<std::optional<uint64_t>> FileLane::Tick() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return std::optional<uint64_t>();
  HL_RETURN_IF_ERROR(journal_->Tick());
  return std::optional<uint64_t>(journal_->last_seq());
}
Status FileLane::status() {
  std::lock_guard lock(mutex_);
  return journal_->status();
}

Store::Statistics FileLane::statistics() {
  std::lock_guard lock(mutex_);
  const JournalStatistics& j = journal_->statistics();
  Store::Statistics s;
  s.epoch = journal_->epoch();
  s.last_seq = journal_->last_seq();
  s.acked_seq = journal_->acked_seq();
  s.executed_seq = journal_->executed_seq();
  s.records = j.records;
  s.record_bytes = j.record_bytes;
  s.operations = j.operations;
  s.ring_bytes_used = journal_->ring_bytes_used();
  s.ring_bytes = journal_->ring_bytes();
  s.extents_used = used_extents_;
  s.extents = info_.geometry.extent_count;
  s.files = used_slots_;
  s.space_waits = space_waits_ + j.space_waits;
  return s;
}

}  // namespace hyperloop
