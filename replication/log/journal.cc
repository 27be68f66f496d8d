#include "log/journal.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <thread>
#include <utility>

#include "common/group_error.h"
#include "hyperloop/core/invariant.h"
#include "region/crc32c.h"

namespace hyperloop {
namespace {

std::chrono::nanoseconds SteadyNow() { return std::chrono::steady_clock::now().time_since_epoch(); }

// A wait for ring space looks so many times without a pause, and then pauses so long each time.
constexpr uint32_t kLooksBeforeIdle = 64;
constexpr std::chrono::microseconds kIdle{50};

// The bytes of a record that states so many sizes and map entries.
constexpr uint64_t StatementsLength(uint64_t sizes, uint64_t extents) {
  return RecordLength(sizes + extents, sizes * sizeof(TableSize) + extents * sizeof(MapEntry));
}

}  // namespace

Result<std::unique_ptr<Journal>> Journal::Create(Group* group, std::span<std::byte> region,
                                                 const RegionInfo& info, const LogState& log,
                                                 MediaWriter* media, JournalOptions options) {
  if (region.size() < info.geometry.region_size ||
      group->region_size() < info.geometry.region_size) {
    return InvalidArgument("journal over a region of " + std::to_string(info.geometry.region_size) +
                           " B: " + std::to_string(region.size()) +
                           " B are mapped, and the group replicates " +
                           std::to_string(group->region_size()) + " B");
  }
  if (log.tail.position < log.head.cursor.position ||
      log.tail.position - log.head.cursor.position > info.geometry.journal_size) {
    return InvalidArgument("log from position " + std::to_string(log.head.cursor.position) +
                           " to " + std::to_string(log.tail.position) + " is longer than its ring");
  }
  if (!options.now) options.now = SteadyNow;
  if (!options.idle) options.idle = [] { std::this_thread::sleep_for(kIdle); };
  if (options.checkpoint_bytes == 0) options.checkpoint_bytes = info.geometry.journal_size / 4;
  return std::unique_ptr<Journal>(new Journal(group, region, info, log, media, std::move(options)));
}

Journal::Journal(Group* group, std::span<std::byte> region, const RegionInfo& info,
                 const LogState& log, MediaWriter* media, JournalOptions options)
    : group_(group),
      region_(region),
      info_(info),
      media_(media),
      options_(std::move(options)),
      epoch_(log.tail.epoch),
      head_(log.head),
      tail_(log.tail),
      executed_(log.tail),
      acked_seq_(log.tail.seq),
      ticked_seq_(log.tail.seq) {
  // At most a window of records behind executed_ is unacknowledged. The newest record's copies wait
  // for the next one.
  const uint64_t track = std::bit_ceil(uint64_t{2} * options_.window + 16);
  tracked_.resize(track);
  track_mask_ = track - 1;
}

// Every other record leaves so many bytes of the ring free. So a record that states everything due,
// with a pad before it, always fits. Without it a full ring could never be emptied.
uint64_t Journal::StatementsReserve() {
  return 2 * AlignRecord(StatementsLength(kMaxDue, kMaxDue));
}

Status Journal::Break(const Status& status) {
  if (broken_.ok()) broken_ = status;
  return broken_;
}

// --- an error of the group

Status Journal::Survive(const Status& cause) {
  // The group failed at the epoch's first record. The recovery that appends it tries again.
  if (recovering_) return cause;
  if (!options_.recover || !IsGroupError(cause.code())) return Break(cause);
  recovering_ = true;
  const auto deadline = options_.now() + options_.patience;
  Status status = cause;
  do {
    const auto left = std::max(deadline - options_.now(), std::chrono::nanoseconds(0));
    const Result<Recovered> recovered = options_.recover(status, acked_seq_, left);
    if (!recovered.ok()) {
      status = recovered.status();
      break;  // it has tried as long as it may, or was told to give up
    }
    status = Resume(*recovered);
  } while (IsGroupError(status.code()) && options_.now() < deadline);
  recovering_ = false;
  return status.ok() ? status : Break(status);
}

Status Journal::Resume(const Recovered& recovered) {
  // Records that were never acknowledged may be lost if this node's memory was damaged. The calls
  // that wait for them must fail.
  const bool lost_records = recovered.log.tail.seq < tail_.seq;
  HL_INVARIANT(recovered.log.tail.seq >= acked_seq_);
  group_ = recovered.group;
  head_ = recovered.log.head;
  tail_ = executed_ = recovered.log.tail;
  acked_seq_ = tail_.seq;
  epoch_ = tail_.epoch;
  pending_copy_ = 0;
  acknowledged_ = 0;
  target_ = {};
  next_head_ticket_ = 0;
  sizes_.count = extents_.count = 0;
  broken_ = {};
  ++generation_;
  if (lost_records) {
    return Corruption("records behind " + std::to_string(tail_.seq) +
                      ", not acknowledged, are lost: this node's own memory was damaged");
  }
  if (recovered.configuration.epoch <= epoch_) return {};
  const auto seq = AppendEpoch(recovered.configuration.epoch, recovered.configuration);
  // The head could not move, because the group stood still again. That passes, as it did before.
  if (seq.status().code() == Code::kNoSpace) return Unavailable(seq.status().message());
  HL_RETURN_IF_ERROR(seq.status());
  return WaitDurable(*seq);
}

Status Journal::Recover(std::chrono::nanoseconds patience) {
  const Status cause = broken_.ok() ? Unavailable("a reconnection was asked for") : broken_;
  broken_ = {};
  const auto usual = std::exchange(options_.patience, patience);
  const Status status = IsGroupError(cause.code()) ? Survive(cause) : Break(cause);
  options_.patience = usual;
  return status;
}

// --- acknowledgements

void Journal::TakeAcks(Ticket acknowledged) {
  if (acknowledged <= acknowledged_) return;
  acknowledged_ = acknowledged;
  while (acked_seq_ < tail_.seq && Track(acked_seq_ + 1).written <= acknowledged_) ++acked_seq_;
  while (executed_.seq < acked_seq_) {
    const Tracked& next = Track(executed_.seq + 1);
    if (next.executed == 0 || next.executed > acknowledged_) break;
    HL_INVARIANT(next.cursor.seq == executed_.seq + 1);
    executed_ = next.cursor;
  }
}

Status Journal::Poll() {
  HL_RETURN_IF_ERROR(broken_);
  auto acknowledged = group_->Poll();
  if (!acknowledged.ok()) return Survive(acknowledged.status());
  TakeAcks(*acknowledged);
  return {};
}

Status Journal::WaitTicket(Ticket ticket) {
  if (ticket <= acknowledged_) return {};
  const Status status = group_->Wait(ticket);
  if (!status.ok()) return Survive(status);
  TakeAcks(ticket);
  return {};
}

Status Journal::WaitDurable(uint64_t seq) {
  if (seq <= acked_seq_) return {};
  HL_RETURN_IF_ERROR(broken_);
  if (seq > tail_.seq)
    return InvalidArgument("record " + std::to_string(seq) + " was never appended");
  return WaitTicket(Track(seq).written);
}

// --- operations

Operation::Copy Journal::NextCopy() const {
  const uint64_t record = tracked_[pending_copy_ & track_mask_].ring_offset;
  RecordEntry entry;
  std::memcpy(&entry,
              region_.data() + record + sizeof(RecordHeader) + pending_entry_ * sizeof(entry),
              sizeof(entry));
  return {pending_payload_, entry.destination, entry.length};
}

void Journal::CopySubmitted(const Operation::Copy& copy, Ticket ticket) {
  Tracked& record = Track(pending_copy_);
  HL_INVARIANT(record.cursor.seq == pending_copy_ && pending_entry_ < record.entry_count);
  pending_payload_ += copy.size;
  if (++pending_entry_ != record.entry_count) return;
  record.executed = ticket;
  pending_copy_ = 0;
}

Result<Ticket> Journal::SubmitWrite(Range range) {
  Operation operation;
  operation.write = range;
  operation.flush = true;
  if (pending_copy_ != 0) operation.copy = NextCopy();
  const uint64_t generation = generation_;
  auto ticket = group_->Submit(operation);
  if (!ticket.ok()) {
    HL_RETURN_IF_ERROR(Survive(ticket.status()));
    return Ticket{0};
  }
  if (pending_copy_ != 0) {
    CopySubmitted(operation.copy, *ticket);
    HL_RETURN_IF_ERROR(SubmitPendingCopies());
    if (generation != generation_) return Ticket{0};
  }
  return ticket;
}

Status Journal::SubmitPendingCopies(SubmitCall submit) {
  while (pending_copy_ != 0) {
    Operation operation;
    operation.copy = NextCopy();
    auto ticket = (group_->*submit)(operation);
    if (ticket.status().code() == Code::kBusy) return {};
    if (!ticket.ok()) return Survive(ticket.status());
    CopySubmitted(operation.copy, *ticket);
  }
  return {};
}

Status Journal::Drain() {
  HL_RETURN_IF_ERROR(broken_);
  // A recovery may append the first record of a new epoch, whose copy is then outstanding.
  while (executed_.seq != tail_.seq) {
    HL_RETURN_IF_ERROR(SubmitPendingCopies());
    HL_RETURN_IF_ERROR(WaitTicket(Track(tail_.seq).executed));
  }
  return {};
}

Status Journal::Tick() {
  HL_RETURN_IF_ERROR(broken_);
  if (options_.check) {
    if (const Status seen = options_.check(); !seen.ok()) HL_RETURN_IF_ERROR(Survive(seen));
  }
  HL_RETURN_IF_ERROR(Poll());
  if (ticked_seq_ == tail_.seq) HL_RETURN_IF_ERROR(SubmitPendingCopies(&Group::TrySubmit));
  ticked_seq_ = tail_.seq;
  FinishHead();
  // While operations are under way, a submission might have to wait for them. Appends advance the
  // checkpoint meanwhile.
  const bool idle = executed_.seq == tail_.seq && next_head_ticket_ == 0;
  return idle ? AdvanceCheckpoint(false) : Status();
}

// --- appending

Status Journal::CheckSpec(const RecordSpec& spec, uint64_t* length) const {
  if (spec.pieces.empty() || spec.pieces.size() > UINT16_MAX) {
    return InvalidArgument("record of " + std::to_string(spec.pieces.size()) + " pieces");
  }
  uint64_t payload = 0;
  for (const RecordPiece& piece : spec.pieces) {
    if (piece.length == 0 || !info_.geometry.Applied(piece.destination, piece.length)) {
      return InvalidArgument("record piece of " + std::to_string(piece.length) +
                             " B for region offset " + std::to_string(piece.destination) +
                             " is empty or outside what records may change");
    }
    payload += piece.length;
  }
  *length = RecordLength(spec.pieces.size(), payload);
  if (*length > max_record()) {
    return InvalidArgument("record of " + std::to_string(*length) + " B, the journal takes " +
                           std::to_string(max_record()));
  }
  const bool append = spec.type == RecordType::kAppend;
  if (append != (spec.file_slot != kNoSlot) ||
      (append && spec.file_slot >= info_.geometry.table_capacity)) {
    return InvalidArgument("record's file slot does not fit its type");
  }
  const RecordSpec::Growth& growth = spec.growth;
  if (growth.entry != nullptr &&
      (!append || growth.length > spec.pieces[0].length ||
       growth.extent >= info_.geometry.extent_count ||
       growth.entry->length > info_.geometry.extent_size - growth.length ||
       spec.pieces[0].destination !=
           info_.geometry.ExtentOffset(growth.extent) + growth.entry->length)) {
    return InvalidArgument("record's first piece does not go on with extent " +
                           std::to_string(growth.extent));
  }
  return {};
}

bool Journal::HasRoom(uint64_t length, uint64_t reserve, uint64_t* pad) const {
  const uint64_t to_end = ring_bytes() - tail_.position % ring_bytes();
  *pad = length > to_end ? to_end : 0;
  return ring_bytes_used() + *pad + AlignRecord(length) + reserve <= ring_bytes();
}

Status Journal::MakeRoom(uint64_t length, uint64_t reserve, uint64_t* pad) {
  if (HasRoom(length, reserve, pad)) return {};
  ++statistics_.space_waits;
  const auto deadline = options_.now() + options_.space_timeout;
  uint32_t looks = 0;
  while (true) {
    HL_RETURN_IF_ERROR(Poll());
    HL_RETURN_IF_ERROR(AdvanceCheckpoint(true));
    HL_RETURN_IF_ERROR(SubmitPendingCopies());
    if (HasRoom(length, reserve, pad)) return {};
    if (options_.now() >= deadline) {
      return NoSpace("journal ring full: " + std::to_string(ring_bytes_used()) + " of " +
                     std::to_string(ring_bytes()) + " B in use, records " +
                     std::to_string(head_.cursor.seq + 1) + " to " + std::to_string(tail_.seq) +
                     ", acknowledged up to " + std::to_string(acked_seq_) +
                     "; a replica is slow or gone (see status), or journal_size is too small");
    }
    // Acknowledgements usually come within microseconds. Waiting for a slow replica is not worth a
    // busy processor.
    if (++looks > kLooksBeforeIdle) options_.idle();
  }
}

Status Journal::MakeTrackingRoom() {
  if (tail_.seq - executed_.seq < track_mask_) return {};
  HL_RETURN_IF_ERROR(Poll());
  if (tail_.seq - executed_.seq < track_mask_) return {};
  return WaitTicket(Track(executed_.seq + 1).executed);
}

uint32_t Journal::SumRecord(const RecordSpec& spec, const std::byte* record, uint64_t written,
                            uint32_t* grown) const {
  const RecordSpec::Growth& growth = spec.growth;
  if (growth.entry == nullptr) return Crc32c(info_.seed, record, written);
  const uint64_t before = RecordLength(spec.pieces.size(), 0);
  if (growth.length == written - before && growth.length >= kCrc32cTwiceFrom) {
    const Crc32cPair pair = Crc32cTwice(Crc32c(info_.seed, record, before), growth.entry->crc,
                                        record + before, growth.length);
    *grown = pair.b;
    return pair.a;
  }
  *grown = Crc32c(growth.entry->crc, record + before, growth.length);
  return Crc32c(info_.seed, record, written);
}

// Memory order: the RNIC reads the bytes that are stored here only after the group's doorbell. The
// release before the doorbell orders these stores.
Status Journal::Emit(const RecordSpec& spec, uint64_t length, uint64_t written) {
  const uint64_t at = RingOffset(tail_.position);
  // In one piece, over nothing that the head has not passed, and its tracking entry is free.
  HL_INVARIANT(at + AlignRecord(length) <= kJournalOffset + ring_bytes());
  HL_INVARIANT(ring_bytes_used() + AlignRecord(length) <= ring_bytes());
  HL_INVARIANT(tail_.seq - executed_.seq <= track_mask_);
  std::byte* const record = region_.data() + at;
  RecordHeader header{};
  header.magic = info_.record_magic;
  header.prev_crc = tail_.crc;
  header.type = static_cast<uint8_t>(spec.type);
  header.entry_count = static_cast<uint16_t>(spec.pieces.size());
  header.epoch = epoch_;
  header.seq = tail_.seq + 1;
  header.acked_seq = DecidedUpTo(acked_seq_);
  header.executed_seq = std::min(executed_.seq, header.acked_seq);
  header.length = static_cast<uint32_t>(length);
  header.file_slot = spec.file_slot;
  header.file_end = spec.file_end;
  std::memcpy(record, &header, sizeof(header));
  std::byte* entry_at = record + sizeof(header);
  std::byte* payload_at = entry_at + spec.pieces.size() * sizeof(RecordEntry);
  for (const RecordPiece& piece : spec.pieces) {
    const RecordEntry entry{piece.destination, piece.length, 0};
    std::memcpy(entry_at, &entry, sizeof(entry));
    std::memcpy(payload_at, piece.data, piece.length);
    entry_at += sizeof(entry);
    payload_at += piece.length;
  }
  header.crc = SumRecord(spec, record, written, &grown_crc_);
  std::memcpy(record + offsetof(RecordHeader, crc), &header.crc, sizeof(header.crc));
  const Status persisted = media_->Persist(record, written);
  if (!persisted.ok()) return Break(persisted);
  // The tail moves before the record is submitted, so that the record is part of the log even if
  // the group must be brought back to take it.
  tail_ = {header.seq, epoch_, tail_.position + AlignRecord(length), header.crc};
  auto ticket = SubmitWrite({at, written});
  if (!ticket.ok()) return ticket.status();
  if (*ticket == 0) return {};
  Track(header.seq) = {tail_, at, header.entry_count, *ticket,
                       header.entry_count == 0 ? *ticket : 0};
  if (header.entry_count != 0) {
    pending_copy_ = header.seq;
    pending_entry_ = 0;
    pending_payload_ = at + RecordLength(header.entry_count, 0);
  }
  return {};
}

Status Journal::MakePlace(uint64_t length, uint64_t reserve) {
  while (true) {
    uint64_t pad = 0;
    uint64_t generation = 0;
    do {  // again after a recovery, which moves the log's tail
      generation = generation_;
      HL_RETURN_IF_ERROR(MakeRoom(length, reserve, &pad));
      HL_RETURN_IF_ERROR(MakeTrackingRoom());
    } while (generation != generation_);
    if (pad == 0) return {};
    ++statistics_.pads;
    HL_RETURN_IF_ERROR(Emit({.type = RecordType::kPad, .pieces = {}}, pad, sizeof(RecordHeader)));
  }
}

Result<uint64_t> Journal::EmitChecked(const RecordSpec& spec, uint64_t length, uint64_t reserve) {
  uint64_t pad = 0;
  const bool ready =
      HasRoom(length, reserve, &pad) && pad == 0 && tail_.seq - executed_.seq < track_mask_;
  if (!ready) HL_RETURN_IF_ERROR(MakePlace(length, reserve));
  const uint64_t seq = tail_.seq + 1;
  HL_RETURN_IF_ERROR(Emit(spec, length, length));
  return seq;
}

Result<uint64_t> Journal::Append(const RecordSpec& spec) {
  HL_RETURN_IF_ERROR(broken_);
  uint64_t length = 0;
  HL_RETURN_IF_ERROR(CheckSpec(spec, &length));
  // The header states what is acknowledged, and that should be recent. If the caller waits for each
  // record, it is.
  if (tail_.seq - acked_seq_ >= 4) HL_RETURN_IF_ERROR(Poll());
  if (sizes_.count == kMaxDue || extents_.count == kMaxDue)
    HL_RETURN_IF_ERROR(EmitStatements(StatementsReserve()));
  auto seq = EmitChecked(spec, length, StatementsReserve());
  if (!seq.ok()) return seq;
  // The notes change after the record is in the log and before a checkpoint states anything. A
  // statement before this record must not count it, and one after it must.
  ForgetCovered(spec.pieces);
  if (spec.type == RecordType::kAppend) Note(spec);
  if (next_head_ticket_ != 0 || target_.seq != 0 || ring_bytes_used() > options_.checkpoint_bytes) {
    HL_RETURN_IF_ERROR(AdvanceCheckpoint(false));
  }
  return seq;
}

Result<uint64_t> Journal::AppendEpoch(uint64_t epoch, const Configuration& configuration) {
  HL_RETURN_IF_ERROR(broken_);
  if (epoch <= epoch_) {
    return InvalidArgument("epoch " + std::to_string(epoch) + " does not exceed the log's epoch " +
                           std::to_string(epoch_));
  }
  if (configuration.epoch != epoch) {
    return InvalidArgument("configuration of epoch " + std::to_string(configuration.epoch) +
                           " in the first record of epoch " + std::to_string(epoch));
  }
  HL_ASSIGN_OR_RETURN(const ConfigurationBlock block, MakeConfigurationBlock(info_, configuration));
  const RecordPiece piece{info_.geometry.configuration_offset(), &block, sizeof(block)};
  const uint64_t length = RecordLength(1, sizeof(block));
  HL_RETURN_IF_ERROR(MakePlace(length, StatementsReserve()));
  // The group was brought back while this waited for room, under this epoch or a newer one, whose
  // first record is in the log. Epochs never decrease.
  if (epoch <= epoch_) return tail_.seq;
  // The epoch changes only now, because no record of it, not even a pad, may come before this one.
  const uint64_t before = std::exchange(epoch_, epoch);
  const uint64_t seq = tail_.seq + 1;
  const Status emitted =
      Emit({.type = RecordType::kEpoch, .pieces = std::span(&piece, 1)}, length, length);
  if (emitted.ok()) return seq;
  if (broken_.ok()) epoch_ = before;
  return emitted;
}

// --- statements and the head

void Journal::Note(const RecordSpec& spec) {
  sizes_.Note(spec.file_slot, spec.file_end);
  const auto& [entry, extent, length] = spec.growth;
  if (entry == nullptr) return;
  entry->length += length;
  entry->crc = grown_crc_;
  extents_.Note(extent, *entry);
}

void Journal::ForgetCovered(std::span<const RecordPiece> pieces) {
  const RegionGeometry& g = info_.geometry;
  for (const RecordPiece& piece : pieces) {
    if (piece.destination >= g.data_offset) continue;
    const auto covers = [&](uint64_t at, uint64_t size) {
      return at >= piece.destination && at + size <= piece.destination + piece.length;
    };
    sizes_.Forget([&](uint32_t slot) { return covers(g.SizeOffset(slot), sizeof(TableSize)); });
    extents_.Forget([&](uint32_t extent) { return covers(g.MapOffset(extent), sizeof(MapEntry)); });
  }
}

Status Journal::EmitStatements(uint64_t reserve) {
  const RegionGeometry& g = info_.geometry;
  std::array<RecordPiece, 2 * kMaxDue> pieces;
  std::array<TableSize, kMaxDue> sizes;
  size_t count = 0;
  for (size_t i = 0; i < sizes_.count; ++i) {
    const auto& [slot, size] = sizes_.entries[i];
    sizes[i] = MakeTableSize(info_, size);
    pieces[count++] = {g.SizeOffset(slot), &sizes[i], sizeof(TableSize)};
  }
  for (size_t i = 0; i < extents_.count; ++i) {
    const auto& [extent, entry] = extents_.entries[i];
    pieces[count++] = {g.MapOffset(extent), &entry, sizeof(MapEntry)};
  }
  const uint64_t length = StatementsLength(sizes_.count, extents_.count);
  const RecordSpec spec{.type = RecordType::kStatements, .pieces = std::span(pieces.data(), count)};
  HL_RETURN_IF_ERROR(EmitChecked(spec, length, reserve).status());
  sizes_.count = extents_.count = 0;
  return {};
}

void Journal::FinishHead() {
  if (next_head_ticket_ == 0 || next_head_ticket_ > acknowledged_) return;
  // The head passes only what is executed everywhere, and never goes back.
  HL_INVARIANT(next_head_.cursor.seq <= executed_.seq);
  HL_INVARIANT(next_head_.cursor.position >= head_.cursor.position);
  head_ = next_head_;
  next_head_ticket_ = 0;
  target_ = {};
  ++statistics_.checkpoints;
}

Status Journal::StartCheckpoint() {
  if (target_.seq != 0 || HeadSaysAll()) return {};
  if (sizes_.count + extents_.count != 0) {
    uint64_t pad = 0;
    if (!HasRoom(StatementsLength(sizes_.count, extents_.count), 0, &pad))
      return Internal(
          "journal: the ring has no room for a record of statements, for which some is "
          "always reserved");
    HL_RETURN_IF_ERROR(EmitStatements(0));
  }
  target_ = tail_;
  return {};
}

Status Journal::WriteHeadIfExecuted(bool force) {
  if (target_.seq == 0 || next_head_ticket_ != 0 || executed_.seq < target_.seq) return {};
  const uint64_t undecided = target_.seq - DecidedUpTo(target_.seq);
  if (undecided != 0 && !force) return {};
  next_head_ = {head_.generation + 1, target_, undecided};
  const uint64_t offset = kHeadOffsets[next_head_.generation & 1];
  const HeadBlock block = MakeHeadBlock(info_, next_head_);
  std::memcpy(region_.data() + offset, &block, sizeof(block));
  const Status persisted = media_->Persist(region_.data() + offset, sizeof(block));
  if (!persisted.ok()) return Break(persisted);
  auto ticket = SubmitWrite({offset, sizeof(block)});
  if (!ticket.ok()) return ticket.status();
  next_head_ticket_ = *ticket;  // 0: the group was brought back, with this head
  return {};
}

Status Journal::AdvanceCheckpoint(bool force) {
  FinishHead();
  if (target_.seq == 0 && (force || ring_bytes_used() > options_.checkpoint_bytes)) {
    HL_RETURN_IF_ERROR(StartCheckpoint());
  }
  return WriteHeadIfExecuted(force);
}

Status Journal::Checkpoint() {
  HL_RETURN_IF_ERROR(broken_);
  while (true) {  // two rounds if a checkpoint with an older target is under way
    HL_RETURN_IF_ERROR(AdvanceCheckpoint(true));
    HL_RETURN_IF_ERROR(Drain());
    HL_RETURN_IF_ERROR(WriteHeadIfExecuted(true));
    HL_RETURN_IF_ERROR(WaitTicket(next_head_ticket_));
    FinishHead();
    if (HeadSaysAll()) return {};
  }
}

}  // namespace hyperloop
