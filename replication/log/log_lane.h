// LogLane: the replicated files of one database directory, over a Journal. It keeps what store.h
// promises about files. Taking the group and reconnecting are left to the Session.
//
// Thread safety: all methods may be called from any thread. One mutex guards the journal, the group
// below it, the table and the map in memory. It is held while a call waits for acknowledgements,
// and not while it waits for space.
//
// Space. A log-lane file occupies extents. MANIFEST-*, CURRENT and *.dbtmp, the "reserved class",
// may take extents that all other files must leave free. So a full data area never keeps RocksDB
// from the MANIFEST append that lets it delete WALs. Parts of this reserve have a purpose:
// - one part is for appends to logs that lead to free space (LogLaneOptions::leads_to_space);
// - one part is for the successor of a MANIFEST that has grown into everything else. The successor
//   is short;
// - the last extent is for CURRENT.
// The last few table slots are reserved for the same class, and some more for the files that the
// next opening of the database makes. A caller that finds no space waits up to space_timeout for
// another thread to remove files. Then it gets kNoSpace, and nothing was changed.
//
// An Append of more than about 1 MiB, or of a quarter of the journal, takes several records. If it
// fails in the middle, its first part stays in the log. It fails with kNoSpace if the ring had no
// room for the rest, and with kAborted otherwise.
//
// A file that gets no more bytes can be moved to the bulk lane as it is (Retire). One record says
// so and frees its extents, so a file is in exactly one lane whatever is cut short.
//
// An extent can be reused as soon as it is free, because its bytes and its map entry are changed
// only by records, which are executed and redone in order.
//
// The map in memory has the length and checksum of each extent as of the newest record. An append
// only adds its own bytes to that checksum.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hyperloop/core/mutex.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/options.h"
#include "hyperloop/replication/store.h"
#include "log/file_table.h"
#include "log/journal.h"
#include "log/lane_counters.h"
#include "region/region_layout.h"

namespace hyperloop {

struct LogLaneOptions {
  std::chrono::nanoseconds space_timeout = std::chrono::seconds(10);
  std::function<std::chrono::nanoseconds()> now;  // monotonic; null: steady_clock
  // Called while a call waits for space, and by Describe between two pieces of the file, without
  // the mutex; null: sleeps 0.2 ms.
  std::function<void()> idle;
  // Called without the mutex when a call has waited for space for a tenth of space_timeout, with a
  // sentence for the log; null: nobody hears of it.
  std::function<void(const std::string&)> say;
  // As TakeRequest's. Called under the mutex, when there is little space.
  std::function<bool(std::string_view data, bool begins)> leads_to_space;
};

// Whether it is one of MANIFEST-*, CURRENT and *.dbtmp.
bool IsReservedClass(std::string_view name);

// What a group of this geometry takes as long as it holds no file.
GroupRoom RoomOf(const RegionGeometry& geometry);

class LogLane {
 public:
  // Reads the table from `region`, which is the primary's own, is redone and is written by
  // `journal`. The lane owns the journal; `region` outlives it. kCorruption as FileTable::Load.
  // Unchecked: nobody else has the lane yet.
  static Result<std::unique_ptr<LogLane>> Load(std::unique_ptr<Journal> journal,
                                               std::span<std::byte> region, const RegionInfo& info,
                                               LogLaneOptions options) HL_NO_THREAD_SAFETY_ANALYSIS;

  // While the journal is broken nothing is listed, found or read: nobody may take a group that is
  // out of reach for an empty one.
  //
  // See store.h. Namespace changes (Create, Truncate, Rename, Remove, ListFile, Bind) return when
  // durable on every replica.
  Result<FileId> Create(std::string_view name);
  Result<FileId> Lookup(std::string_view name);
  Result<AppendTicket> Append(FileId file, std::string_view data, uint64_t end = Store::kAnyEnd);
  Status Await(AppendTicket ticket);
  Status Sync();
  Status Truncate(FileId file, uint64_t size);
  Status Rename(std::string_view from, std::string_view to);
  Status Remove(std::string_view name);
  Status ListFile(const WholeFile& file);
  // What would be listed of a log-lane file as it is now. Each extent is checked, and the mutex is
  // released between pieces of the file. kAborted: the file was changed meanwhile. kCorruption: an
  // extent fails its checksum.
  Result<WholeFile> Describe(FileId file);
  // Moves a log-lane file to the bulk lane, and frees its extents, by one record. The file keeps
  // its id. The caller has made sure that `whole` is what the primary's directory and the replicas
  // hold. Nothing changes if the table does not have the file as it is described. kAborted: it has
  // another name or size. kNotFound: it was removed or replaced. Ok also if it was moved before.
  Status Retire(FileId file, const WholeFile& whole);
  Result<std::vector<FileInfo>> Files();
  Result<uint64_t> Read(FileId file, uint64_t offset, std::span<char> out);

  // The database that the files belong to, as the group itself records it.
  Binding binding();
  // Records another one. Durable on every replica on return.
  Status Bind(const Binding& binding);

  // Journal::Drain and Journal::Checkpoint, under the mutex.
  Status Drain();
  Status Checkpoint();
  // Journal::Tick, unless another call holds the mutex: that call does the journal's work itself.
  // Returns the last record's seq; nothing if the mutex was held. Never waits for the mutex. If the
  // group has failed, this brings it back, which takes a while.
  Result<std::optional<uint64_t>> Tick();
  // Ok, or the error that broke the journal.
  Status status();
  // Journal::Recover, if the journal is broken. The files may then differ from what callers were
  // told, because a call that failed may have taken effect.
  Status Recover(std::chrono::nanoseconds patience);

  Store::Statistics statistics();
  // Never waits for the mutex.
  const LaneCounters& counters() const { return counters_; }

 private:
  LogLane(std::unique_ptr<Journal> journal, std::span<std::byte> region, const RegionInfo& info,
          LogLaneOptions options);
  // Reads table and binding from the region.
  Status LoadLocked() HL_REQUIRES(mutex_);
  // The clock in nanoseconds if the next thing that `count` counts is to be timed; else 0.
  uint64_t BeginTiming(const LaneCounters::Number& count) const;
  void EndTiming(uint64_t begun_ns);

  struct MapChange {
    uint32_t extent;
    MapEntry entry;
  };
  class NamespaceChange;

  // Stores what an append changes, or everything, in counters_.
  void CountAppendLocked(uint64_t bytes) HL_REQUIRES(mutex_);
  void CountAllLocked() HL_REQUIRES(mutex_);
  // The slot of a file. kNotFound: there is no such file.
  Result<uint32_t> FindLocked(FileId file) const HL_REQUIRES(mutex_);
  // The same of a file that takes bytes. kInvalidArgument: it is of the bulk lane.
  Result<uint32_t> FindGrowingLocked(FileId file) const HL_REQUIRES(mutex_);
  Result<uint32_t> FindNameLocked(std::string_view name) const HL_REQUIRES(mutex_);
  bool IsReservedLocked(uint32_t slot) const HL_REQUIRES(mutex_);
  // Returns a slot that `name` may take, or kNoSlot. `freed`: the slot that the same record frees,
  // or kNoSlot.
  uint32_t FreeSlotLocked(std::string_view name, uint32_t freed) const HL_REQUIRES(mutex_);
  // How many extents must stay free when `data` is appended to the file in `slot`.
  uint64_t MustLeaveLocked(uint32_t slot, std::string_view data) const HL_REQUIRES(mutex_);
  // The same for ordinary records of logs.
  uint64_t LogsMustLeaveLocked() const HL_REQUIRES(mutex_);
  // Whether such an append may take `count` more extents.
  bool HasExtentsLocked(uint32_t slot, std::string_view data, uint64_t count) const
      HL_REQUIRES(mutex_);
  // How many slots must stay free when `name` is given one.
  uint32_t SlotsMustLeaveLocked(std::string_view name) const HL_REQUIRES(mutex_);
  // Notes a rename. One to CURRENT shows that an opening of the database is almost over.
  void NoteRenamedLocked(std::string_view to) HL_REQUIRES(mutex_);
  // Notes that `name` is given a slot.
  void NoteMadeLocked(std::string_view name) HL_REQUIRES(mutex_) {
    made_at_open_ += IsReservedClass(name) ? 0 : 1;
  }
  // kNoSpace: `count` extents are more than a file of this class can ever have.
  Status CheckEverFitsLocked(std::string_view name, bool reserved, uint64_t count) const
      HL_REQUIRES(mutex_);
  Status NoExtentsLocked(std::string_view name, uint64_t count) const HL_REQUIRES(mutex_);
  Status WrongEndLocked(uint32_t slot, uint64_t end) HL_REQUIRES(mutex_);
  Status NoSlotsLocked(std::string_view name) const HL_REQUIRES(mutex_);
  uint64_t NewExtentsLocked(uint32_t slot, uint64_t bytes) const HL_REQUIRES(mutex_);
  void TakeExtentsLocked(uint32_t slot, uint64_t count) HL_REQUIRES(mutex_);
  void GiveExtentsLocked(uint32_t slot, uint64_t keep) HL_REQUIRES(mutex_);
  Result<uint64_t> AppendChunkLocked(uint32_t slot, std::string_view data) HL_REQUIRES(mutex_);
  // Returns the new map entry of the last extent that a file cut to `size` keeps; nothing if that
  // entry does not change.
  Result<std::optional<MapEntry>> CutExtentLocked(uint32_t slot, uint64_t size) HL_REQUIRES(mutex_);
  // The most bytes that one append record takes.
  uint64_t MaxChunk() const HL_REQUIRES(mutex_);
  // Waits until ready() is true, with the mutex released in between. False: space_timeout is over.
  // `name`: of the file that needs it, for the log.
  bool WaitSpace(const std::string& name, const std::function<bool()>& ready) HL_REQUIRES(mutex_);
  std::string WaitingLocked(const std::string& name) const HL_REQUIRES(mutex_);
  // The error of a call that has waited in WaitSpace.
  Status WaitedInVain(const Status& why) const;
  int64_t SpaceTimeoutMs() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(options_.space_timeout).count();
  }
  Status CommitLocked(NamespaceChange* change) HL_REQUIRES(mutex_);
  static bool IsGrowingManifest(const TableFile& file);
  TableFile& FileAt(uint32_t slot) HL_REQUIRES(mutex_) { return table_.slots[slot].file; }

  Mutex mutex_;
  const std::unique_ptr<Journal> journal_ HL_PT_GUARDED_BY(mutex_);
  const std::span<std::byte> region_;
  const RegionInfo info_;
  const LogLaneOptions options_;
  FileTable table_ HL_GUARDED_BY(mutex_);
  Binding binding_ HL_GUARDED_BY(mutex_);
  LaneCounters counters_;
  std::map<std::string, uint32_t, std::less<>> by_name_ HL_GUARDED_BY(mutex_);
  uint32_t used_slots_ HL_GUARDED_BY(mutex_) = 0;
  uint32_t used_extents_ HL_GUARDED_BY(mutex_) = 0;
  uint32_t used_reserved_extents_ HL_GUARDED_BY(mutex_) = 0;
  uint32_t next_extent_ HL_GUARDED_BY(mutex_) = 0;  // where the search for a free extent begins
  uint32_t next_slot_ HL_GUARDED_BY(mutex_) = 0;    // where the search for a free slot begins
  uint64_t data_waits_ HL_GUARDED_BY(mutex_) = 0;   // how often WaitSpace waited
  // Number of files named MANIFEST-* that hold extents or may take some.
  uint32_t manifests_ HL_GUARDED_BY(mutex_) = 0;
  // How many files outside the reserved class were given a slot since Load. A rename to CURRENT
  // raises it to what an opening makes before that.
  uint32_t made_at_open_ HL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hyperloop
