// Journal: the primary's end of the replicated redo log.
//
// Append makes a record in the primary's own ring and sends it to the replicas. To execute a record
// is to copy its payload to its place on every node; later operations carry these copies. The head
// passes a record only when its copies are acknowledged. Ring space is reused only when the write
// of a head behind it is acknowledged.
//
// Steps of Append, for one piece of 100 B, besides the group's Submit:
//   - check of the space (3 comparisons)
//   - stores of header and entry (80 B), and one memcpy of the payload
//   - one CRC over the record (~0.1 ns a byte), and one over the payload for its extent; from 512 B
//     on, the payload is read once for both
//   - persisting the range (nothing on ram)
//   - notes of size and map entry (2 comparisons)
//   - a tracking entry (64 B in a preallocated array)
//   - one group operation: write, flush and the first copy of the record before
// docs/performance.md has the instructions of each. There is no allocation, no system call (on ram
// and pmem) and no reading of the clock. Copies beyond a record's first entry are operations of
// their own.
//
// Files' sizes and extents' checksums are written lazily. An append record holds neither the file's
// new size nor the map entry of an extent that it continues; redo derives them. Before the head
// passes append records, one kStatements record states the sizes and map entries that result from
// them. A redo that begins between an append record and its statement may find the statement
// executed already, and then derives wrong values. That does no harm, because it also redoes the
// statement, which sets the right ones. The records that the journal finds need no statement: every
// member has what redo derived from them.
//
// When the group fails, a call does not fail at once. The journal asks `recover` for a group that
// works again and whose members hold everything that was ever written here. With such a group the
// call succeeds late. Without one the journal is broken: calls fail with the error until Recover
// succeeds, and it is indeterminate which records are durable beyond those that are known to be.
//
// Not thread safe: the owner locks. JournalOptions injects the clock and the pauses.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
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
#include "log/log_scan.h"
#include "region/media.h"
#include "region/record.h"

namespace hyperloop {

// What `recover` returns: a group whose members' regions equal the journal's own. Every record is
// executed, but the head may lie behind.
struct Recovered {
  Group* group = nullptr;
  LogState log;
  Configuration configuration;  // its epoch exceeds the log's if the members were sealed anew
};

struct JournalOptions {
  uint32_t window = 64;  // GroupOptions::window of the group
  std::chrono::nanoseconds space_timeout = std::chrono::seconds(10);
  std::function<std::chrono::nanoseconds()> now;  // monotonic; null: steady_clock
  std::function<void()> idle;  // called while a call waits for ring space; null: sleeps 50 µs
  // Brings the group back after `cause`, and tries for `patience`. An error is final for the call
  // that waits: it is not asked again. kCorruption: no log reaches record `acked`. The journal does
  // not touch the former group from this call on until one has succeeded. Null: an error of the
  // group is final.
  std::function<Result<Recovered>(const Status& cause, uint64_t acked,
                                  std::chrono::nanoseconds patience)>
      recover;
  std::chrono::nanoseconds patience = std::chrono::seconds(5);
  // Called by Tick, because no operation tells that an idle group has failed. An error means that
  // it has. Null: not called.
  std::function<Status()> check;
  // The head is moved when this much of the ring is in use; 0: a quarter of it.
  uint64_t checkpoint_bytes = 0;
  // Decisions::decided_word, which outlives the journal. Records and heads state nothing behind it
  // as acknowledged. Null: everything is decided.
  const std::atomic<uint64_t>* decided = nullptr;
};

struct RecordPiece {
  uint64_t destination = 0;  // region offset
  const void* data = nullptr;
  uint32_t length = 0;  // at least 1
};
struct RecordSpec {
  RecordType type = RecordType::kNamespace;
  uint32_t file_slot = kNoSlot;  // kAppend only
  uint64_t file_end = 0;         // kAppend only: the file's size after it, greater than before
  std::span<const RecordPiece> pieces;
  // kAppend only, if the first piece begins in the middle of an extent. Append adds the bytes to
  // the map entry once the record is in the log.
  struct Growth {
    MapEntry* entry = nullptr;  // of that extent, in the caller's memory; null: none
    uint32_t extent = 0;
    uint32_t length = 0;  // how many bytes of the first piece lie in it
  };
  Growth growth = {};
};

struct JournalStatistics {
  uint64_t pads = 0, checkpoints = 0, space_waits = 0;
};

class Journal {
 public:
  // `region` is the primary's own, equals the members' regions and is redone up to `log.tail`. The
  // caller has made all of this durable on every member. `group`, `region` and `media` outlive the
  // journal. kInvalidArgument: sizes do not agree.
  static Result<std::unique_ptr<Journal>> Create(Group* group, std::span<std::byte> region,
                                                 const RegionInfo& info, const LogState& log,
                                                 MediaWriter* media, JournalOptions options);

  // Appends the first record of `epoch`, and returns its seq. The record holds `configuration`,
  // which says who must agree from now on, and every later record carries the epoch. If the group
  // has to be brought back before that, the log may begin a newer epoch instead. Without this
  // call the journal continues the epoch of the log's tail, as after a reconnection.
  // kInvalidArgument: the epoch does not exceed the log's, or is not that of the configuration.
  // Other errors are those of Append.
  Result<uint64_t> AppendEpoch(uint64_t epoch, const Configuration& configuration);
  // Appends a record and starts to replicate it. Returns its seq; the record is durable once
  // acked_seq() reaches that. kInvalidArgument: the record is longer than max_record(), has no
  // pieces or empty ones, has a destination outside the applied bytes, or its slot or growth does
  // not fit the rest. kNoSpace: the ring stayed full for space_timeout; nothing was appended. After
  // any other error the journal is broken until Recover succeeds.
  Result<uint64_t> Append(const RecordSpec& spec);

  // Waits until record `seq` is durable on every replica, for at most the group's ack_timeout and
  // then `patience`. kInvalidArgument: no such record was appended.
  Status WaitDurable(uint64_t seq);
  // Processes the acknowledgements that have arrived, without waiting.
  Status Poll();
  // Submits the outstanding copies, and waits until every record is executed on every node.
  Status Drain();
  // Brings a broken journal back, or gives a working one new queues. Ok: every record that was ever
  // begun is durable and executed, even if the call that began it failed.
  Status Recover(std::chrono::nanoseconds patience);
  // Drains the log, states everything that is due, and moves the head to the tail. Then the log is
  // empty, and the applied bytes alone hold the content.
  Status Checkpoint();
  // Must be called now and then, every few milliseconds while there is traffic, so that the records
  // of an idle group get executed. If nothing was appended since the last call, it submits the
  // outstanding copies. Once these are acknowledged, it moves the head if that is due. While the
  // group works this never waits: whatever would make it wait is left to a later call. It brings
  // back a group that has failed.
  Status Tick();

  uint64_t last_seq() const { return tail_.seq; }
  uint64_t acked_seq() const { return acked_seq_; }
  uint64_t executed_seq() const { return executed_.seq; }
  uint64_t epoch() const { return epoch_; }
  const LogCursor& tail() const { return tail_; }
  uint64_t ring_bytes() const { return info_.geometry.journal_size; }
  uint64_t ring_bytes_used() const { return tail_.position - head_.cursor.position; }
  // Bytes of the longest record, with its header and entries.
  uint64_t max_record() const { return info_.geometry.max_record; }
  const JournalStatistics& statistics() const { return statistics_; }
  // Ok, or the error that broke the journal.
  const Status& status() const { return broken_; }

 private:
  struct Tracked {
    LogCursor cursor;          // right behind the record
    uint64_t ring_offset = 0;  // region offset of the record
    uint32_t entry_count = 0;
    Ticket written = 0;   // the operation that writes it
    Ticket executed = 0;  // the operation with its last copy; 0: not submitted
  };
  Journal(Group* group, std::span<std::byte> region, const RegionInfo& info, const LogState& log,
          MediaWriter* media, JournalOptions options);

  // The region offset of a position in the log.
  uint64_t RingOffset(uint64_t position) const {
    return kJournalOffset + position % info_.geometry.journal_size;
  }
  Tracked& Track(uint64_t seq) { return tracked_[seq & track_mask_]; }
  Status CheckSpec(const RecordSpec& spec, uint64_t* length) const;
  // Whether the ring has room for `length` bytes in one piece and for `reserve` more bytes. Sets
  // `pad` to how many bytes a pad must fill first.
  bool HasRoom(uint64_t length, uint64_t reserve, uint64_t* pad) const;
  // Waits for that room. kNoSpace after space_timeout.
  Status MakeRoom(uint64_t length, uint64_t reserve, uint64_t* pad);
  Status MakeTrackingRoom();
  // Writes a record into the ring and submits it. The caller has checked `spec`, and made room for
  // the record and for tracking it. `length`: the bytes that the record takes; `written`: how many
  // of them are written and under its CRC, which of a pad is the header alone.
  Status Emit(const RecordSpec& spec, uint64_t length, uint64_t written);
  // Makes room for a record of `length` bytes right behind the tail, and for tracking it.
  Status MakePlace(uint64_t length, uint64_t reserve);
  // MakePlace, if needed, and Emit. Returns the record's seq.
  Result<uint64_t> EmitChecked(const RecordSpec& spec, uint64_t length, uint64_t reserve);
  using SubmitCall = Result<Ticket> (Group::*)(const Operation&);
  // Submits one operation that writes and flushes `range` and makes the first outstanding copy.
  // Then submits the other outstanding copies. Returns the ticket of the first operation. 0: the
  // group was brought back meanwhile, and its members have the range.
  Result<Ticket> SubmitWrite(Range range);
  // Submits the outstanding copies by `submit`. Ok also if TrySubmit did not take all of them.
  Status SubmitPendingCopies(SubmitCall submit = &Group::Submit);
  void CopySubmitted(const Operation::Copy& copy, Ticket ticket);
  Operation::Copy NextCopy() const;
  // Appends a kStatements record of everything that is due.
  Status EmitStatements(uint64_t reserve);
  static uint64_t StatementsReserve();
  // Returns the CRC of a record in the ring whose crc field is still 0. Sets `grown` to the new CRC
  // of the extent of spec.growth, if there is one.
  uint32_t SumRecord(const RecordSpec& spec, const std::byte* record, uint64_t written,
                     uint32_t* grown) const;
  // Notes the size and the map entry that an append record leaves due.
  void Note(const RecordSpec& spec);
  // Drops notes about places that `pieces`, which are in the log now, write.
  void ForgetCovered(std::span<const RecordPiece> pieces);
  void TakeAcks(Ticket acknowledged);
  Status WaitTicket(Ticket ticket);
  // The three steps that move the head. Each does what is possible now, without waiting.
  void FinishHead();
  Status StartCheckpoint();
  // `force`: also if not all up to the target is decided, which the head then says.
  Status WriteHeadIfExecuted(bool force);
  // How much of what is acknowledged up to `seq` is decided.
  uint64_t DecidedUpTo(uint64_t seq) const {
    return options_.decided == nullptr
               ? seq
               : std::min(seq, options_.decided->load(std::memory_order_acquire));
  }
  // Whether the head is at the end of the log, and says no less of it than is decided.
  bool HeadSaysAll() const {
    return head_.cursor.seq == tail_.seq && head_.undecided <= tail_.seq - DecidedUpTo(tail_.seq);
  }
  // Makes these steps. `force`: also if checkpoint_bytes of the ring are not in use.
  Status AdvanceCheckpoint(bool force);
  // Breaks the journal, and returns the error that broke it first.
  Status Break(const Status& status);
  // Handles an error of the group. Ok: the group was brought back, everything in the log is durable
  // and executed, and generation_ has grown. Otherwise the journal is broken, unless a recovery is
  // under way already: that one handles the error.
  Status Survive(const Status& cause);
  // Goes on with the group that `recover` returned.
  Status Resume(const Recovered& recovered);

  Group* group_;
  const std::span<std::byte> region_;
  const RegionInfo info_;
  MediaWriter* const media_;
  JournalOptions options_;
  Status broken_;
  bool recovering_ = false;
  uint64_t generation_ = 0;  // grows when the group is brought back, which invalidates all tickets
  uint64_t epoch_ = 0;

  Head head_;           // acknowledged: what lies before it may be overwritten
  LogCursor tail_;      // behind the newest record
  LogCursor executed_;  // every record up to here is executed, and that is acknowledged
  uint64_t acked_seq_ = 0;
  // The newest record, if not all of its copies are submitted: its seq (0: they are), its first
  // entry that is not submitted, and the region offset of that entry's payload.
  uint64_t pending_copy_ = 0;
  uint32_t pending_entry_ = 0;
  uint64_t pending_payload_ = 0;
  Ticket acknowledged_ = 0;
  uint64_t ticked_seq_ = 0;  // the tail's seq at the last Tick

  std::vector<Tracked> tracked_;  // the records behind executed_, by seq & track_mask_
  uint64_t track_mask_ = 0;

  // The checkpoint in progress. The log up to target_ states everything that its records leave due.
  // Once that is executed, the head moves to target_.
  LogCursor target_;  // seq 0: no checkpoint is in progress
  Head next_head_;    // written by next_head_ticket_, not yet acknowledged
  Ticket next_head_ticket_ = 0;
  static constexpr size_t kMaxDue = 32;
  // The values of one kind that the next statement must state, by slot or by extent. The last one
  // noted stands in front, because the next append most likely concerns it again.
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
  Due<uint64_t> sizes_;     // by slot
  Due<MapEntry> extents_;   // by extent
  uint32_t grown_crc_ = 0;  // of the extent that the last record grew
  JournalStatistics statistics_;
};

}  // namespace hyperloop
