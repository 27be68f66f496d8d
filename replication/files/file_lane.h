// FileLane: the replicated files of one database directory, over a Journal. What store.h promises
// of its log lane, minus the session (taking the group, reconnecting).
//
// Space: a log-lane file occupies extents; MANIFEST-*, CURRENT and *.dbtmp ("reserved class") may
// take any free one, all others only while enough are left for the reserved class. So a full data
// area never keeps RocksDB from the MANIFEST append that frees WALs. The same holds for the last
// few table slots. A caller that finds no space waits up to space_timeout for another thread to
// remove files, then gets kNoSpace; nothing was changed.
//
// Reuse of an extent is safe at once: its map entry, and every byte, changes only by records that
// are executed and redone in order.
//
// Thread safety: all methods; one mutex guards the journal, the group below it, the table and the
// map in memory. It is held while waiting for acknowledgements, not while waiting for space.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "files/file_table.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/options.h"
#include "hyperloop/replication/store.h"
#include "journal/journal.h"
#include "layout/region_layout.h"

namespace hyperloop {

struct FileLaneOptions {
  AckMode ack = AckMode::kAppend;
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

  // See store.h. Namespace changes (Create, Truncate, Rename, Remove, ListLocal, Bind) return when
  // durable on every replica, whatever the ack mode.
  Result<FileId> Create(std::string_view name, Lane lane);
  Result<FileId> Lookup(std::string_view name);
  Status Append(FileId file, std::string_view data);
  Status Sync(FileId file);
  Status Truncate(FileId file, uint64_t size);
  Status Rename(std::string_view from, std::string_view to);
  Status Remove(std::string_view name);
  Status ListLocal(std::string_view name, uint64_t size);
  std::vector<FileInfo> Files();
  Result<uint64_t> Read(FileId file, uint64_t offset, std::span<char> out);

  // The database that the files belong to, in the group's own record.
  Binding binding();
  Status Bind(const Binding& binding);

  // Journal::Drain, Checkpoint, Tick, Poll under the mutex.
  Status Drain();
  Status Checkpoint();
  Status Tick();
  Status status();

  Store::Statistics statistics();  // all but `epoch`-independent session fields

 private:
  FileLane(std::unique_ptr<Journal> journal, std::span<std::byte> region, const RegionInfo& info,
           FileLaneOptions options, FileTable table, Binding binding);

  // All of these need mutex_ held.
  Result<uint32_t> FindLocked(FileId file, bool need_log_lane) const;
  Result<uint32_t> FreeSlotLocked(std::string_view name) const;
  bool HasExtentsLocked(std::string_view name, uint64_t count) const;
  Status TakeExtentsLocked(std::string_view name, uint64_t count, std::vector<uint32_t>* taken);
  Status NoExtentsLocked(std::string_view name, uint64_t count) const;
  Status WaitSpace(std::unique_lock<std::mutex>& lock, const std::function<bool()>& ready);
  Status AppendPiecesLocked(uint32_t slot, std::string_view data);
  Result<uint64_t> CommitLocked(RecordType type, std::span<const RecordPiece> pieces);
  Status FinishLocked(uint64_t seq);

  std::mutex mutex_;
  const std::unique_ptr<Journal> journal_;
  const std::span<std::byte> region_;
  const RegionInfo info_;
  const FileLaneOptions options_;
  FileTable table_;
  Binding binding_;
  std::unordered_map<std::string, uint32_t> by_name_;
  uint32_t used_slots_ = 0;
  uint32_t used_extents_ = 0, used_reserved_extents_ = 0;
  uint32_t next_extent_ = 0, next_slot_ = 0;
  uint64_t extent_waits_ = 0;
};

}  // namespace hyperloop
