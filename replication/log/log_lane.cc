#include "log/log_lane.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <thread>
#include <utility>

#include "log/namespace_change.h"
#include "region/crc32c.h"

namespace hyperloop {
namespace {

// Table slots that only the reserved class may take: for a MANIFEST's successor, for the temporary
// names of CURRENT and OPTIONS, and one to spare.
constexpr uint32_t kReservedSlots = 4;
// Table slots for the files that an opening of the database makes: a new log, OPTIONS, and the
// tables of memtables that recovery flushes. A small table keeps fewer: see OpenSlots.
constexpr uint32_t kOpenSlots = 12;
// The most pieces of one append record: runs of data and of map entries.
constexpr size_t kMaxPieces = 16;
constexpr uint64_t kMaxExtentsPerChunk = 6;

constexpr std::string_view kManifest = "MANIFEST-";

// What an opening makes after CURRENT: a new log, OPTIONS, and one to spare.
constexpr uint32_t kSlotsAfterCurrent = 3;

static_assert(kMaxFileNameBytes == kMaxNameLength);

uint32_t OpenSlots(uint32_t capacity) { return std::min(kOpenSlots, capacity / 5); }

// Parts of the reserve, in extents. The reserve has at least four.
struct Reserve {
  uint64_t current = 1;       // for CURRENT and its temporary name alone
  uint64_t successor = 0;     // for a MANIFEST that replaces another one, and for `current`
  uint64_t transactions = 0;  // for appends that lead to free space
};
Reserve ReserveOf(const RegionGeometry& g) {
  return {1, std::max<uint64_t>(2, g.reserved_extents / 2),
          std::clamp<uint64_t>(g.reserved_extents / 8, 1, 4)};
}

// What logs leave, however much of the reserve is in use: half of it, and at least what a MANIFEST
// must leave (`successor` and `transactions`), as much again as records that lead to free space may
// take (`transactions`), and one extent for the MANIFEST to grow into.
uint64_t LogsAlwaysLeave(const RegionGeometry& g) {
  const Reserve parts = ReserveOf(g);
  return std::max<uint64_t>((g.reserved_extents + 1) / 2,
                            parts.successor + 2 * parts.transactions + 1);
}

}  // namespace

bool IsReservedClass(std::string_view name) {
  return name.starts_with(kManifest) || name == "CURRENT" || name.ends_with(".dbtmp");
}

GroupRoom RoomOf(const RegionGeometry& g) {
  const uint64_t kept = LogsAlwaysLeave(g);
  const auto bytes_without = [&](uint64_t extents) {
    return (g.extent_count - std::min<uint64_t>(extents, g.extent_count)) * g.extent_size;
  };
  // Those that are kept for the next opening, and as many for the flushes after it.
  const uint64_t slots_kept = kReservedSlots + 2 * OpenSlots(g.table_capacity);
  return {g.extent_size, bytes_without(std::max<uint64_t>(g.reserved_extents, kept)),
          bytes_without(kept), g.table_capacity - std::min<uint64_t>(slots_kept, g.table_capacity)};
}

// --- opening

Result<std::unique_ptr<LogLane>> LogLane::Load(std::unique_ptr<Journal> journal,
                                               std::span<std::byte> region, const RegionInfo& info,
                                               LogLaneOptions options) {
  if (!options.now)
    options.now = [] { return std::chrono::steady_clock::now().time_since_epoch(); };
  if (!options.idle)
    options.idle = [] { std::this_thread::sleep_for(std::chrono::microseconds(200)); };
  std::unique_ptr<LogLane> lane(new LogLane(std::move(journal), region, info, std::move(options)));
  HL_RETURN_IF_ERROR(lane->LoadLocked());
  const RegionGeometry& geometry = info.geometry;
  LaneCounters& counters = lane->counters_;
  LaneCounters::Set(counters.ring, geometry.journal_size);
  LaneCounters::Set(counters.data, geometry.data_bytes());
  LaneCounters::Set(counters.data_reserved,
                    uint64_t{geometry.reserved_extents} * geometry.extent_size);
  lane->CountAllLocked();
  return lane;
}

LogLane::LogLane(std::unique_ptr<Journal> journal, std::span<std::byte> region,
                 const RegionInfo& info, LogLaneOptions options)
    : journal_(std::move(journal)), region_(region), info_(info), options_(std::move(options)) {}

Status LogLane::LoadLocked() {
  HL_ASSIGN_OR_RETURN(FileTable table, FileTable::Load(region_, info_));
  HL_ASSIGN_OR_RETURN(
      binding_, ParseBindingBlock(
                    region_.subspan(info_.geometry.binding_offset, sizeof(BindingBlock)), info_));
  table_ = std::move(table);
  by_name_.clear();
  used_slots_ = used_extents_ = used_reserved_extents_ = manifests_ = 0;
  for (uint32_t slot = 0; slot < table_.slots.size(); ++slot) {
    const FileEntry& entry = table_.slots[slot];
    if (!entry.used) continue;
    by_name_[entry.file.name] = slot;
    ++used_slots_;
    if (IsGrowingManifest(entry.file)) ++manifests_;
    used_extents_ += static_cast<uint32_t>(entry.extents.size());
    if (IsReservedClass(entry.file.name))
      used_reserved_extents_ += static_cast<uint32_t>(entry.extents.size());
  }
  return {};
}

// A MANIFEST in the bulk lane neither takes extents nor needs a successor.
bool LogLane::IsGrowingManifest(const TableFile& file) {
  return file.lane == static_cast<uint8_t>(Lane::kLog) && file.name.starts_with(kManifest);
}

Status LogLane::Recover(std::chrono::nanoseconds patience) {
  MutexLock lock(mutex_);
  if (journal_->status().ok()) return {};  // another call was faster
  HL_RETURN_IF_ERROR(journal_->Recover(patience));
  return LoadLocked();
}

// --- looking up

Result<uint32_t> LogLane::FindLocked(FileId file) const {
  const uint32_t slot = SlotOf(file);
  if (slot >= table_.slots.size() || !table_.slots[slot].used ||
      MakeFileId(slot, table_.slots[slot].file.created_seq) != file) {
    return NotFound("file id " + std::to_string(file) + ": removed or replaced");
  }
  return slot;
}

Result<uint32_t> LogLane::FindGrowingLocked(FileId file) const {
  HL_ASSIGN_OR_RETURN(const uint32_t slot, FindLocked(file));
  const TableFile& info = table_.slots[slot].file;
  if (info.lane == static_cast<uint8_t>(Lane::kLog)) return slot;
  return InvalidArgument("\"" + info.name +
                         "\" is only listed in the group; nothing can be appended to it");
}

Result<uint32_t> LogLane::FindNameLocked(std::string_view name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end())
    return NotFound("no file \"" + std::string(name) + "\" in the group");
  return found->second;
}

bool LogLane::IsReservedLocked(uint32_t slot) const {
  return IsReservedClass(table_.slots[slot].file.name);
}

Result<FileId> LogLane::Lookup(std::string_view name) {
  MutexLock lock(mutex_);
  HL_RETURN_IF_ERROR(journal_->status());
  HL_ASSIGN_OR_RETURN(const uint32_t slot, FindNameLocked(name));
  return MakeFileId(slot, table_.slots[slot].file.created_seq);
}

Result<std::vector<FileInfo>> LogLane::Files() {
  MutexLock lock(mutex_);
  HL_RETURN_IF_ERROR(journal_->status());
  return table_.List();
}

Result<uint64_t> LogLane::Read(FileId file, uint64_t offset, std::span<char> out) {
  MutexLock lock(mutex_);
  HL_RETURN_IF_ERROR(journal_->status());
  HL_ASSIGN_OR_RETURN(const uint32_t slot, FindLocked(file));
  const TableFile& info = table_.slots[slot].file;
  if (info.lane != static_cast<uint8_t>(Lane::kLog)) {
    return InvalidArgument("\"" + info.name + "\" is only listed in the log lane");
  }
  if (offset >= info.size) return uint64_t{0};
  if (journal_->executed_seq() < journal_->last_seq()) HL_RETURN_IF_ERROR(journal_->Drain());
  const uint64_t n = std::min<uint64_t>(out.size(), info.size - offset);
  table_.ReadBytes(region_, info_, slot, offset, out.first(n));
  return n;
}

Result<WholeFile> LogLane::Describe(FileId file) {
  constexpr uint64_t kPiece = 128u << 10;
  MutexLock lock(mutex_);
  HL_RETURN_IF_ERROR(journal_->status());
  HL_ASSIGN_OR_RETURN(uint32_t slot, FindLocked(file));
  WholeFile whole{FileAt(slot).name, FileAt(slot).size, 0};
  if (journal_->executed_seq() < journal_->last_seq()) HL_RETURN_IF_ERROR(journal_->Drain());
  FileChecksum checksum;
  uint32_t crc = 0;
  for (uint64_t at = 0; at < whole.size;) {
    HL_ASSIGN_OR_RETURN(slot, FindLocked(file));
    const TableFile& now = FileAt(slot);
    if (now.lane != static_cast<uint8_t>(Lane::kLog) || now.size != whole.size)
      return Aborted("\"" + now.name + "\" was changed while it was read");
    const RegionGeometry& g = info_.geometry;
    const uint64_t within = at & (g.extent_size - 1);
    const uint32_t extent = table_.slots[slot].extents[at / g.extent_size];
    const MapEntry& entry = table_.map[extent];
    const uint64_t n = std::min<uint64_t>(kPiece, entry.length - within);
    const std::byte* const bytes = region_.data() + g.ExtentOffset(extent) + within;
    if (within == 0) crc = ExtentSeed(info_, entry.slot_plus_one, entry.index);
    crc = Crc32c(crc, bytes, n);
    if (within + n == entry.length && crc != entry.crc)
      return Corruption("extent " + std::to_string(extent) + " (\"" + now.name +
                        "\") of the primary's pool fails its checksum; close the database and run "
                        "hyperloopctl verify");
    checksum.Add({reinterpret_cast<const char*>(bytes), n});
    at += n;
    if (at == whole.size) break;
    lock.unlock();
    options_.idle();  // a mutex has no queue, so appends get it in a pause alone
    lock.lock();
  }
  whole.checksum = checksum.value();
  return whole;
}

Binding LogLane::binding() {
  MutexLock lock(mutex_);
  return binding_;
}

// --- space

uint32_t LogLane::FreeSlotLocked(std::string_view name, uint32_t freed) const {
  const auto capacity = static_cast<uint32_t>(table_.slots.size());
  const uint32_t free = capacity - used_slots_ + (freed != kNoSlot ? 1 : 0);
  if (free <= SlotsMustLeaveLocked(name)) return kNoSlot;
  for (uint32_t i = 0; i < capacity; ++i) {
    const uint32_t slot = (next_slot_ + i) % capacity;
    if (!table_.slots[slot].used) return slot;
  }
  return freed;
}

uint32_t LogLane::SlotsMustLeaveLocked(std::string_view name) const {
  if (IsReservedClass(name)) return 0;
  const uint32_t for_opening = OpenSlots(static_cast<uint32_t>(table_.slots.size()));
  // While the database is being opened, the MANIFEST's successor may already have its slot.
  return made_at_open_ < for_opening ? kReservedSlots / 2 : kReservedSlots + for_opening;
}

void LogLane::NoteRenamedLocked(std::string_view to) {
  if (to != "CURRENT") return;
  const uint32_t for_opening = OpenSlots(static_cast<uint32_t>(table_.slots.size()));
  const uint32_t left = std::min(kSlotsAfterCurrent, for_opening);
  made_at_open_ = std::max(made_at_open_, for_opening - left);
}

// Logs leave what the reserved class has not yet used of the reserve, and at least LogsAlwaysLeave.
uint64_t LogLane::LogsMustLeaveLocked() const {
  const uint64_t reserve = info_.geometry.reserved_extents;
  const uint64_t unused = reserve > used_reserved_extents_ ? reserve - used_reserved_extents_ : 0;
  return std::max(unused, LogsAlwaysLeave(info_.geometry));
}

uint64_t LogLane::MustLeaveLocked(uint32_t slot, std::string_view data) const {
  const Reserve parts = ReserveOf(info_.geometry);
  const std::string_view name = table_.slots[slot].file.name;
  if (name.starts_with(kManifest))
    return manifests_ > 1 ? parts.current : parts.successor + parts.transactions;
  if (IsReservedClass(name)) return 0;
  const bool begins = table_.slots[slot].file.size == 0;
  const bool leads_to_space = options_.leads_to_space && options_.leads_to_space(data, begins);
  return leads_to_space ? parts.successor : LogsMustLeaveLocked();
}

bool LogLane::HasExtentsLocked(uint32_t slot, std::string_view data, uint64_t count) const {
  const uint64_t free = info_.geometry.extent_count - used_extents_;
  if (free < count) return false;
  // The common case: what stays free is enough, whatever is appended.
  return free - count >= LogsMustLeaveLocked() || free - count >= MustLeaveLocked(slot, data);
}

Status LogLane::NoExtentsLocked(std::string_view name, uint64_t count) const {
  const RegionGeometry& g = info_.geometry;
  return NoSpace(
      "data area full: flush memtables (smaller write_buffer_size, max_total_wal_size or "
      "max_manifest_file_size), end prepared transactions, or hyperloopctl resize the region; \"" +
      std::string(name) + "\" needs " + std::to_string(count) + " more of " +
      std::to_string(g.extent_count) + " extents of " + std::to_string(g.extent_size) + " B, " +
      std::to_string(used_extents_) + " are in use and " + std::to_string(g.reserved_extents) +
      " are kept for MANIFEST and CURRENT");
}

Status LogLane::WrongEndLocked(uint32_t slot, uint64_t end) {
  return InvalidArgument("nothing was added to \"" + FileAt(slot).name + "\": it has " +
                         std::to_string(FileAt(slot).size) +
                         " B, and its writer takes it to have " + std::to_string(end) + " B");
}

Status LogLane::CheckEverFitsLocked(std::string_view name, bool reserved, uint64_t count) const {
  const uint64_t most =
      info_.geometry.extent_count - (reserved ? 0 : info_.geometry.reserved_extents);
  return count <= most ? Status() : NoExtentsLocked(name, count);
}

Status LogLane::NoSlotsLocked(std::string_view name) const {
  return NoSpace(
      "file table full: close the database and give it a larger table_capacity (hyperloopctl "
      "resize); no slot for \"" +
      std::string(name) + "\", " + std::to_string(used_slots_) + " of " +
      std::to_string(table_.slots.size()) + " are in use and " +
      std::to_string(kReservedSlots + OpenSlots(static_cast<uint32_t>(table_.slots.size()))) +
      " are kept for MANIFEST, CURRENT and the next opening");
}

std::string LogLane::WaitingLocked(const std::string& name) const {
  const RegionGeometry& g = info_.geometry;
  return "\"" + name + "\" waits for space in the group: " + std::to_string(used_extents_) +
         " of " + std::to_string(g.extent_count) + " extents of " + std::to_string(g.extent_size) +
         " B are in use (" + std::to_string(g.reserved_extents) +
         " are kept for MANIFEST and CURRENT), and " + std::to_string(used_slots_) + " of " +
         std::to_string(table_.slots.size()) +
         " files. Space comes from logs that are deleted or leave the region; without any, the "
         "call "
         "fails after space_timeout = " +
         std::to_string(SpaceTimeoutMs()) + " ms";
}

Status LogLane::WaitedInVain(const Status& why) const {
  return why.WithContext("waited for space_timeout = " + std::to_string(SpaceTimeoutMs()) + " ms");
}

bool LogLane::WaitSpace(const std::string& name, const std::function<bool()>& ready) {
  if (ready()) return true;
  ++data_waits_;
  const auto begun = options_.now();
  const auto deadline = begun + options_.space_timeout;
  bool said = options_.say == nullptr;
  while (options_.now() < deadline) {
    const bool says = !said && options_.now() - begun >= options_.space_timeout / 10;
    const std::string text = says ? WaitingLocked(name) : std::string();
    said = said || says;
    {
      const MutexUnlock meanwhile(mutex_);
      if (says) options_.say(text);
      options_.idle();
    }
    if (ready()) return true;
  }
  return false;
}

uint64_t LogLane::NewExtentsLocked(uint32_t slot, uint64_t bytes) const {
  const FileEntry& entry = table_.slots[slot];
  return info_.geometry.ExtentsFor(entry.file.size + bytes) - entry.extents.size();
}

// Takes `count` free extents, adjacent ones where possible. The caller has checked that there are
// enough.
void LogLane::TakeExtentsLocked(uint32_t slot, uint64_t count) {
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

// Frees all extents of the file except the first `keep`.
void LogLane::GiveExtentsLocked(uint32_t slot, uint64_t keep) {
  FileEntry& entry = table_.slots[slot];
  const auto count = static_cast<uint32_t>(entry.extents.size() - keep);
  if (IsReservedLocked(slot)) used_reserved_extents_ -= count;
  used_extents_ -= count;
  for (uint64_t i = keep; i < entry.extents.size(); ++i) table_.map[entry.extents[i]] = {};
  entry.extents.resize(keep);
}

// --- appending

uint64_t LogLane::MaxChunk() const {
  const uint64_t room = journal_->max_record() -
                        RecordLength(kMaxPieces, (kMaxExtentsPerChunk + 1) * sizeof(MapEntry));
  return std::min(room, kMaxExtentsPerChunk * info_.geometry.extent_size);
}

// Appends one record with `data`, which fits into it, and with the map entries of the extents that
// `data` begins. A later kStatements record states the entry of the extent that `data` continues,
// and the file's size.
Result<uint64_t> LogLane::AppendChunkLocked(uint32_t slot, std::string_view data) {
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

Result<AppendTicket> LogLane::Append(FileId file, std::string_view data, uint64_t end) {
  AppendTicket ticket;
  ticket.begun_ns = BeginTiming(counters_.appends);
  MutexLock lock(mutex_);
  HL_ASSIGN_OR_RETURN(uint32_t slot, FindGrowingLocked(file));
  uint64_t extents = NewExtentsLocked(slot, data.size());
  if (extents != 0) {
    const bool reserved = IsReservedLocked(slot);
    HL_RETURN_IF_ERROR(CheckEverFitsLocked(FileAt(slot).name, reserved, extents));
    // While this call waits, others may remove the file, append to it or let it leave the region.
    const std::string name = FileAt(slot).name;
    const bool room = WaitSpace(name, [&]() HL_REQUIRES(mutex_) {
      const Result<uint32_t> found = FindGrowingLocked(file);
      if (!found.ok()) return true;
      slot = *found;
      extents = NewExtentsLocked(slot, data.size());
      return HasExtentsLocked(slot, data, extents);
    });
    HL_ASSIGN_OR_RETURN(slot, FindGrowingLocked(file));
    if (!room) return WaitedInVain(NoExtentsLocked(FileAt(slot).name, extents));
  }
  if (end != Store::kAnyEnd && end != FileAt(slot).size) return WrongEndLocked(slot, end);
  const uint64_t chunk = MaxChunk(), whole = data.size();
  ticket.before = journal_->last_seq();
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
    ticket.record = *appended;
    data.remove_prefix(part.size());
  }
  CountAppendLocked(whole);
  return ticket;
}

Status LogLane::Await(AppendTicket ticket) {
  MutexLock lock(mutex_);
  HL_RETURN_IF_ERROR(journal_->WaitDurable(ticket.record));
  EndTiming(ticket.begun_ns);
  return {};
}

Status LogLane::Sync() {
  const uint64_t begun_ns = BeginTiming(counters_.syncs);
  MutexLock lock(mutex_);
  HL_RETURN_IF_ERROR(journal_->WaitDurable(journal_->last_seq()));
  LaneCounters::Add(counters_.syncs, 1);
  EndTiming(begun_ns);
  return {};
}

// --- counting

uint64_t LogLane::BeginTiming(const LaneCounters::Number& count) const {
  if (LaneCounters::Get(count) % LaneCounters::kTimed != 0) return 0;
  return static_cast<uint64_t>(options_.now().count());
}

void LogLane::EndTiming(uint64_t begun_ns) {
  if (begun_ns == 0) return;
  const auto now_ns = static_cast<uint64_t>(options_.now().count());
  counters_.acknowledgements.Add(now_ns - begun_ns);
}

void LogLane::CountAppendLocked(uint64_t bytes) {
  LaneCounters::Add(counters_.appends, 1);
  LaneCounters::Add(counters_.append_bytes, bytes);
  LaneCounters::Set(counters_.last_seq, journal_->last_seq());
  LaneCounters::Set(counters_.acked_seq, journal_->acked_seq());
  LaneCounters::Set(counters_.ring_used, journal_->ring_bytes_used());
}

void LogLane::CountAllLocked() {
  const JournalStatistics& journal = journal_->statistics();
  LaneCounters::Set(counters_.last_seq, journal_->last_seq());
  LaneCounters::Set(counters_.acked_seq, journal_->acked_seq());
  LaneCounters::Set(counters_.ring_used, journal_->ring_bytes_used());
  LaneCounters::Set(counters_.ring_waits, journal.space_waits);
  LaneCounters::Set(counters_.checkpoints, journal.checkpoints);
  LaneCounters::Set(counters_.data_used, uint64_t{used_extents_} * info_.geometry.extent_size);
  LaneCounters::Set(counters_.data_waits, data_waits_);
}

// --- the journal, under the mutex

Status LogLane::Drain() {
  MutexLock lock(mutex_);
  return journal_->Drain();
}
Status LogLane::Checkpoint() {
  MutexLock lock(mutex_);
  return journal_->Checkpoint();
}
Result<std::optional<uint64_t>> LogLane::Tick() {
  if (!mutex_.try_lock()) return std::optional<uint64_t>();
  const MutexLock lock(mutex_, std::adopt_lock);
  const Status ticked = journal_->Tick();
  CountAllLocked();
  HL_RETURN_IF_ERROR(ticked);
  return std::optional<uint64_t>(journal_->last_seq());
}
Status LogLane::status() {
  MutexLock lock(mutex_);
  return journal_->status();
}

Store::Statistics LogLane::statistics() {
  MutexLock lock(mutex_);
  const RegionGeometry& g = info_.geometry;
  Store::Statistics s;
  s.epoch = journal_->epoch();
  s.last_seq = journal_->last_seq();
  s.acked_seq = journal_->acked_seq();
  s.data_bytes = uint64_t{g.extent_count} * g.extent_size;
  s.data_bytes_used = uint64_t{used_extents_} * g.extent_size;
  s.data_bytes_reserved = uint64_t{g.reserved_extents} * g.extent_size;
  return s;
}

}  // namespace hyperloop
