// Journal: the primary's end of the replicated redo log.
//
// Append makes a record in the primary's own ring and sends it down the chain; the copies
// ("execution") that bring its payload to its place on every node ride in later operations.
// Everything that may be reused is reused only after an acknowledgement: ring space after that of
// the head write, the head only over records whose copies are acknowledged.
//
// Steps of Append, for one piece of 100 B, besides the group's Submit:
//   space check (2 compares) · header and entry stores (80 B, one line and a quarter) · one memcpy
//   of the payload · one CRC over the record (~0.1 ns a byte), one over the payload for its
//   extent (from 512 B on, the payload is read once for both) · persist of the range (nothing
//   on ram) · notes of size and map entry (2 compares) · tracking entry (40 B in a preallocated
//   ring) · one group operation: write + flush + first copy of record n-1.
// Together about 100 ns with the file lane above it (file_lane_benchmark).
// No allocation, no system call (ram, pmem), no clock. Copies beyond a record's first entry are
// operations of their own.
//
// Sizes and the checksums of extents are lazy: an append record changes them only by what redo
// derives from it. Before the head passes append records, one kStatements record states what they
// made of the sizes and map entries that they touched. Redo that begins between an append and its
// statement may find the statement executed already; it comes by the statement itself again, which
// restates what it stated, so whatever it derived before that is of no consequence.
//
// An error of the group is not the caller's yet: the journal asks `recover` for a group that works
// again, whose members hold everything that was ever written here, and goes on, so that the call
// succeeds late. Only when that fails the journal is broken: it answers with the error until
// Recover succeeds, and records not known durable are indeterminate.
//
// Thread safety: none; the owner locks. Time is injected, waiting calls `idle`.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "hyperloop/core/group.h"
#include "hyperloop/core/status.h"
#include "journal/log_scan.h"
#include "layout/record.h"
#include "pool/media.h"

namespace hyperloop {

// What `recover` brings back: members whose regions equal the journal's own, all of whose records
// are executed; the head is at the tail.
struct Recovered {
  Group* group = nullptr;
  LogState log;
  Configuration configuration;  // its epoch exceeds the log's when the members were sealed anew
};

struct JournalOptions {
  uint32_t window = 64;  // the group's
  std::chrono::nanoseconds space_timeout = std::chrono::seconds(10);
  std::function<std::chrono::nanoseconds()> now;  // monotonic; null: steady_clock
  std::function<void()> idle;  // while waiting for ring space; null: sleeps 50 µs
  // Brings the group back after `cause`, trying for `patience`; its log must reach `acked`, or it
  // is kCorruption. Null: an error of the group is for good. From its call until its success the
  // former group is not touched.
  std::function<Result<Recovered>(const Status& cause, uint64_t acked,
                                  std::chrono::nanoseconds patience)>
      recover;
  std::chrono::nanoseconds patience = std::chrono::seconds(5);
  // Asked by Tick, which looks after an idle group: an error is one of the group. Null: none.
  std::function<Status()> check;
  // The head is moved when this much of the ring is in use; 0: a quarter of it.
  uint64_t checkpoint_bytes = 0;
};

struct RecordPiece {
  uint64_t destination = 0;
  const void* data = nullptr;
  uint32_t length = 0;  // at least 1
};
struct RecordSpec {
  RecordType type = RecordType::kNamespace;
  uint32_t file_slot = kNoSlot;  // kAppend only
  uint64_t file_end = 0;         // kAppend only: the file's size after it, greater than before
  std::span<const RecordPiece> pieces;
  // kAppend only: the extent in whose middle the first piece begins, if it does, how many bytes of
  // the piece lie in it, and its map entry in the caller's memory. Once the record is in the log,
  // they are counted into that entry.
  struct Growth {
    MapEntry* entry = nullptr;
    uint32_t extent = 0;
    uint32_t length = 0;
  };
  Growth growth = {};
};

struct JournalStatistics {
  uint64_t records = 0, record_bytes = 0, operations = 0, copy_operations = 0, recoveries = 0;
  uint64_t pads = 0, checkpoints = 0, space_waits = 0;
};

class Journal {
 public:
  // `region`: the primary's own, equal to the members' and redone up to `log.tail`, whose
  // durability on all members the caller has seen to. `group`, `region`, `media` outlive the
  // journal. kInvalidArgument: sizes that do not agree.
  static Result<std::unique_ptr<Journal>> Create(Group* group, std::span<std::byte> region,
                                                 const RegionInfo& info, const LogState& log,
                                                 MediaWriter* media, JournalOptions options);

  // First record of a new epoch, greater than the log's; every later record carries it, and it
  // carries who must agree from now on: `configuration`, of that epoch. Without it the journal goes
  // on in the epoch of the log's tail, as after a reconnection.
  Result<uint64_t> AppendEpoch(uint64_t epoch, const Configuration& configuration);
  // Starts a record on its way; returns its seq. It is durable once acked_seq() reaches that.
  // kInvalidArgument: longer than max_record(), no or empty pieces, or a destination outside the
  // applied bytes. kNoSpace: the ring stayed full for space_timeout; nothing was appended. Anything
  // else: broken until Recover succeeds.
  Result<uint64_t> Append(const RecordSpec& spec);

  // Record `seq` is durable on every replica; bounded by the group's ack_timeout and by patience.
  Status WaitDurable(uint64_t seq);
  // Takes in acknowledgements without waiting.
  Status Poll();
  // Submits what copies are outstanding and waits until every record is executed on every node.
  Status Drain();
  // Brings a broken journal back, or gives a working one new queues. Ok: every record that was ever
  // begun is durable and executed, also those whose call failed.
  Status Recover(std::chrono::nanoseconds patience);
  // Drain, with all that is due stated and the head moved to the tail: the ring is empty, the
  // applied bytes are the whole truth.
  Status Checkpoint();
  // To be called now and then (about every millisecond while there is traffic): when nothing was
  // appended since the last call, submits outstanding copies, and once they are acknowledged moves
  // the head if that is due, so that an idle group is an executed one. Waits for nothing in a group
  // that works: what would make it wait is left to a later call. One that failed it brings back.
  Status Tick();

  uint64_t last_seq() const { return tail_.seq; }
  uint64_t acked_seq() const { return acked_seq_; }
  uint64_t executed_seq() const { return executed_.seq; }
  uint64_t epoch() const { return epoch_; }
  const LogCursor& tail() const { return tail_; }
  const LogCursor& head() const { return head_.cursor; }
  uint64_t ring_bytes() const { return info_.geometry.journal_size; }
  uint64_t ring_bytes_used() const { return tail_.position - head_.cursor.position; }
  // Longest record, and the payload that fits beside `entries` entries.
  uint64_t max_record() const { return info_.geometry.max_record; }
  const JournalStatistics& statistics() const { return statistics_; }
  const Status& status() const { return broken_; }

 private:
  struct Tracked {
    LogCursor cursor;
    uint64_t ring_offset = 0;  // of the record
    uint32_t entry_count = 0;
    Ticket written = 0;   // operation that wrote it
    Ticket executed = 0;  // operation with its last copy; 0: not submitted
  };
  Journal(Group* group, std::span<std::byte> region, const RegionInfo& info, const LogState& log,
          MediaWriter* media, JournalOptions options);

  uint64_t RingOffset(uint64_t position) const {
    return kJournalOffset + position % info_.geometry.journal_size;
  }
  Tracked& Track(uint64_t seq) { return tracked_[seq & track_mask_]; }
  Status CheckSpec(const RecordSpec& spec, uint64_t* length) const;
  // Room for `length` bytes in one piece with `reserve` bytes left over? Sets the bytes that a pad
  // must fill first.
  bool HasRoom(uint64_t length, uint64_t reserve, uint64_t* pad) const;
  Status MakeRoom(uint64_t length, uint64_t reserve, uint64_t* pad);
  Status MakeTrackingRoom();
  // Makes a record in the ring and submits it. `spec` was checked, there is room for it and for
  // tracking it; `length` is its length, its CRC covers `written`.
  Status Emit(const RecordSpec& spec, uint64_t length, uint64_t written);
  // Room for a record of `length` bytes right behind the tail, and for tracking it.
  Status MakePlace(uint64_t length, uint64_t reserve);
  Result<uint64_t> EmitChecked(const RecordSpec& spec, uint64_t length, uint64_t reserve);
  using SubmitCall = Result<Ticket> (Group::*)(const Operation&);
  // One operation: write + flush of `range`, with the first outstanding copy riding; then the other
  // outstanding copies. 0: the group had to be brought back, and has all that it was to have.
  Result<Ticket> SubmitWrite(Range range);
  // The outstanding copies, each by `submit`. Ok: all, or those that TrySubmit took.
  Status SubmitPendingCopies(SubmitCall submit = &Group::Submit);
  void CopySubmitted(const Operation::Copy& copy, Ticket ticket);
  Operation::Copy NextCopy() const;
  Status EmitStatements(uint64_t reserve);
  static uint64_t StatementsReserve();
  // CRC of a record in the ring whose crc field is still 0. Sets what growth.entry's becomes.
  uint32_t SumRecord(const RecordSpec& spec, const std::byte* record, uint64_t written,
                     uint32_t* grown) const;
  void Note(const RecordSpec& spec);
  // Drops what is due for places that the pieces, now in the log, have stated.
  void ForgetCovered(std::span<const RecordPiece> pieces);
  void TakeAcks(Ticket acknowledged);
  Status WaitTicket(Ticket ticket);
  // The three steps that move the head; each does what is possible now, without waiting.
  void FinishHead();
  Status StartCheckpoint();
  Status WriteHeadIfExecuted();
  Status AdvanceCheckpoint(bool force);
  Status Break(const Status& status);
  // What becomes of an error of the group: ok, everything in the log is durable and executed (and
  // generation_ has grown); or the journal is broken.
  Status Survive(const Status& cause);
  Status Resume(const Recovered& recovered);

  Group* group_;
  const std::span<std::byte> region_;
  const RegionInfo info_;
  MediaWriter* const media_;
  JournalOptions options_;
  Status broken_;
  bool recovering_ = false;
  uint64_t generation_ = 0;  // grows when tickets lose their meaning
  uint64_t epoch_ = 0;

  Head head_;           // acknowledged: what lies before it may be overwritten
  LogCursor tail_;      // behind the newest record
  LogCursor executed_;  // every record up to here executed and acknowledged
  uint64_t acked_seq_ = 0;
  // Seq of the newest record when its copies are not all submitted, 0: none; and the first entry
  // that is not, with where its payload is.
  uint64_t pending_copy_ = 0;
  uint32_t pending_entry_ = 0;
  uint64_t pending_payload_ = 0;
  Ticket acknowledged_ = 0;
  uint64_t ticked_seq_ = 0;

  std::vector<Tracked> tracked_;  // by seq, of the records behind executed_
  uint64_t track_mask_ = 0;

  // Checkpoint in progress: everything due for records up to target_ is stated by then; once
  // executed, the head goes there.
  LogCursor target_;  // seq 0: none
  Head next_head_;    // written with next_head_ticket_, not yet acknowledged
  Ticket next_head_ticket_ = 0;
  static constexpr size_t kMaxDue = 32;
  // What is due of one kind, by slot or extent, the last noted in front: the next append is most
  // likely to the same.
  template <class Value>
  struct Due {
    struct Entry {
      uint32_t key = 0;
      Value value{};
    };
    std::array<Entry, kMaxDue> entries;
    size_t count = 0;

    void Note(uint32_t key, const Value& value) {
      size_t at = 0;
      while (at < count && entries[at].key != key) ++at;
      if (at == count) ++count;
      if (at != 0) std::swap(entries[at], entries[0]);
      entries[0] = {key, value};
    }
    template <class Covered>
    void Forget(Covered covered) {
      for (size_t i = count; i-- > 0;) {
        if (covered(entries[i].key)) entries[i] = entries[--count];
      }
    }
  };
  Due<uint64_t> sizes_;
  Due<MapEntry> extents_;
  uint32_t grown_crc_ = 0;  // of the extent that the last record grew
  JournalStatistics statistics_;
};

}  // namespace hyperloop
