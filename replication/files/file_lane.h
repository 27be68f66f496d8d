// FileLane: the replicated files of one database directory, over a Journal. What store.h promises
// of its log lane, minus the session (taking the group, reconnecting).
//
// Space: a log-lane file occupies extents; MANIFEST-*, CURRENT and *.dbtmp ("reserved class") may
// take what all others leave. So a full data area never keeps RocksDB from the MANIFEST append that
// frees WALs. A part of the reserve is kept for log records that lead to free space (log_marker.h),
// and a part for the successor of a MANIFEST that has outgrown everything else; the successor is
// short. The last extent is CURRENT's. The same holds for the last few table slots,
// of which some are kept for the files that the next opening of the database makes. A caller that
// finds no space waits up to space_timeout for another thread to remove files, then gets kNoSpace;
// nothing was changed.
//
// An Append that takes several records (more than about 1 MiB, or a quarter of the journal) and
// fails in the middle leaves its first part in the log. It answers kNoSpace when the ring had no
// room for the rest, kAborted otherwise.
//
// Reuse of an extent is safe at once: its map entry, and every byte, changes only by records that
// are executed and redone in order.
//
// The map in memory has the length and checksum of each file's extents as of the newest record, so
// that an append only counts its own bytes in.
//
// Thread safety: all methods; one mutex guards the journal, the group below it, the table and the
// map in memory. It is held while waiting for acknowledgements, not while waiting for space.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/file_table.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/options.h"
#include "hyperloop/replication/store.h"
#include "journal/journal.h"
#include "layout/region_layout.h"

namespace hyperloop {

struct FileLaneOptions {
  std::chrono::nanoseconds space_timeout = std::chrono::seconds(10);
  std::function<std::chrono::nanoseconds()> now;  // monotonic; null: steady_clock
  std::function<void()> idle;  // while waiting for space, mutex not held; null: sleeps 0.2 ms
};

// MANIFEST-*, CURRENT, *.dbtmp.
bool IsReservedClass(std::string_view name);

class FileLane {
 public:
  // Reads the table from `region` (the primary's own, redone, the one that `journal` writes). The
  // lane owns the journal.
  static Result<std::unique_ptr<FileLane>> Load(std::unique_ptr<Journal> journal,
                                                std::span<std::byte> region, const RegionInfo& info,
                                                FileLaneOptions options);

  // While the journal is broken nothing is listed, found or read: nobody may take a group that is
  // out of reach for an empty one.
  //
  // See store.h. Namespace changes (Create, Truncate, Rename, Remove, ListFile, Bind) return when
  // durable on every replica.
  Result<FileId> Create(std::string_view name, Lane lane);
  Result<FileId> Lookup(std::string_view name);
  Result<AppendTicket> Append(FileId file, std::string_view data, uint64_t end = Store::kAnyEnd);
  Status Await(AppendTicket ticket);
  Status Sync();
  Status Truncate(FileId file, uint64_t size);
  Status Rename(std::string_view from, std::string_view to);
  Status Remove(std::string_view name);
  Status ListFile(const WholeFile& file);
  Result<std::vector<FileInfo>> Files();
  Result<uint64_t> Read(FileId file, uint64_t offset, std::span<char> out);

  // The database that the files belong to, in the group's own record.
  Binding binding();
  Status Bind(const Binding& binding);

  // Journal::Drain, Checkpoint, Tick, Poll under the mutex.
  Status Drain();
  Status Checkpoint();
  // The last record's number; none: another call has the mutex, and so does the journal's work
  // itself. Never waits for it. A group that failed is brought back here, which takes a while.
  Result<std::optional<uint64_t>> Tick();
  Status status();
  // Journal::Recover, if the journal is broken. The lane may differ then from what its callers saw:
  // what failed before may have happened.
  Status Recover(std::chrono::nanoseconds patience);

  Store::Statistics statistics();

 private:
  FileLane(std::unique_ptr<Journal> journal, std::span<std::byte> region, const RegionInfo& info,
           FileLaneOptions options);
  // Table and binding from the region.
  Status LoadLocked();

  struct MapChange {
    uint32_t extent;
    MapEntry entry;
  };
  class NamespaceChange;

  // All of these need mutex_ held.
  Result<uint32_t> FindLocked(FileId file) const;
  Result<uint32_t> FindNameLocked(std::string_view name) const;  // kNotFound
  bool IsReservedLocked(uint32_t slot) const;
  // A free slot for `name`; `freed`: slots that the same record frees. kNoSlot: none.
  uint32_t FreeSlotLocked(std::string_view name, uint32_t freed) const;
  // How many extents an append must leave free.
  uint64_t MustLeaveLocked(uint32_t slot, std::string_view data) const;
  uint64_t LogsMustLeaveLocked() const;
  bool HasExtentsLocked(uint32_t slot, std::string_view data, uint64_t count) const;
  uint32_t SlotsMustLeaveLocked(std::string_view name) const;
  // An opening of the database is almost over once it has renamed a file to CURRENT.
  void NoteRenamedLocked(std::string_view to);
  // `name` is being given a slot.
  void NoteMadeLocked(std::string_view name) { made_at_open_ += IsReservedClass(name) ? 0 : 1; }
  Status CheckEverFitsLocked(std::string_view name, bool reserved, uint64_t count) const;
  Status NoExtentsLocked(std::string_view name, uint64_t count) const;
  Status WrongEndLocked(uint32_t slot, uint64_t end);
  Status NoSlotsLocked(std::string_view name) const;
  uint64_t NewExtentsLocked(uint32_t slot, uint64_t bytes) const;
  void TakeExtentsLocked(uint32_t slot, uint64_t count);
  void GiveExtentsLocked(uint32_t slot, uint64_t keep);
  Result<uint64_t> AppendChunkLocked(uint32_t slot, std::string_view data);
  // The map entry of the file's last extent when the file is cut to `size`; none: it stays.
  Result<std::optional<MapEntry>> CutExtentLocked(uint32_t slot, uint64_t size);
  uint64_t MaxChunk() const;
  // Waits, the mutex released, until ready() or space_timeout; false: timed out.
  bool WaitSpace(std::unique_lock<std::mutex>& lock, const std::function<bool()>& ready);
  Status CommitLocked(NamespaceChange* change);
  TableFile& FileAt(uint32_t slot) { return table_.slots[slot].file; }

  std::mutex mutex_;
  const std::unique_ptr<Journal> journal_;
  const std::span<std::byte> region_;
  const RegionInfo info_;
  const FileLaneOptions options_;
  FileTable table_;
  Binding binding_;
  std::map<std::string, uint32_t, std::less<>> by_name_;
  uint32_t used_slots_ = 0;
  uint32_t used_extents_ = 0, used_reserved_extents_ = 0;
  uint32_t next_extent_ = 0;  // where the search for a free one begins
  uint32_t next_slot_ = 0;
  uint32_t manifests_ = 0;     // files of that name
  uint32_t made_at_open_ = 0;  // files of the other class that were given a slot since Load
  uint64_t space_waits_ = 0;
};

}  // namespace hyperloop
