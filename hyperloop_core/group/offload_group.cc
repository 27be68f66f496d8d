#include "group/offload_group.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <thread>

#include "group/offload_member.h"
#include "group/text.h"

namespace hyperloop {

using rnic::Opcode;
using rnic::SendRequest;
using rnic::Sge;

namespace {

constexpr size_t kPollBatch = 16;
constexpr uint32_t kCheckInterval = 64;  // turns of a waiting loop between two looks at the clock
constexpr auto kYieldAfter = std::chrono::microseconds(50);

void CpuPause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

bool Overlap(uint64_t a, uint64_t a_size, uint64_t b, uint64_t b_size) {
  return a < b + b_size && b < a + a_size;
}

Code CodeOf(rnic::WcStatus status) {
  switch (status) {
    case rnic::WcStatus::kLocalProtection:
    case rnic::WcStatus::kLocalAccess:
    case rnic::WcStatus::kRemoteAccess:
    case rnic::WcStatus::kRemoteInvalidRequest:
      return Code::kProtection;
    case rnic::WcStatus::kRetryExceeded:
    case rnic::WcStatus::kRnrRetryExceeded:
      return Code::kUnavailable;
    default:
      return Code::kAborted;
  }
}

}  // namespace

OffloadGroup::OffloadGroup(rnic::Device& device, const GroupOptions& options,
                           const SlotProgram& program)
    : device_(device), options_(options), program_(program), ordering_(program.window) {
  pending_.resize(std::bit_ceil(size_t{program.window}));
  pending_mask_ = pending_.size() - 1;
}

Result<std::unique_ptr<Group>> OffloadGroup::Create(rnic::Device& device,
                                                    rnic::ProtectionDomain& pd,
                                                    rnic::MemoryRegion& region,
                                                    const GroupOptions& options,
                                                    const SlotProgram& program) {
  HL_RETURN_IF_ERROR(CheckRegion(region));
  if (options.ack_timeout <= std::chrono::nanoseconds::zero()) {
    return InvalidArgument("ack_timeout must be above 0: it bounds every wait for the replicas");
  }
  std::unique_ptr<OffloadGroup> group(new OffloadGroup(device, options, program));
  HL_RETURN_IF_ERROR(group->Build(pd, region).WithContext("setting up the primary's queues"));
  return std::unique_ptr<Group>(std::move(group));
}

Status OffloadGroup::Build(rnic::ProtectionDomain& pd, rnic::MemoryRegion& region) {
  const uint32_t window = program_.window;
  const size_t ack_bytes = size_t{program_.slots} * AckStride(program_.group_size);
  const size_t message_bytes = MessageRing::Bytes(program_);
  HL_ASSIGN_OR_RETURN(buffer_,
                      device_.AllocateBuffer(ack_bytes + message_bytes + rnic::kWqebbBytes));
  // Remote write: the last replica's result areas. Remote read: its proof that they arrived.
  HL_ASSIGN_OR_RETURN(buffer_mr_,
                      pd.Register(buffer_->data(), buffer_->size(),
                                  rnic::kLocalWrite | rnic::kRemoteWrite | rnic::kRemoteRead, {}));
  ack_area_ = buffer_->data();
  sink_ = {reinterpret_cast<uint64_t>(buffer_->data() + ack_bytes + message_bytes), kFlushReadBytes,
           buffer_mr_->lkey()};

  // A block is written again only when an operation behind its own that had a READ, N/2 apart at
  // most, is acknowledged (docs/rnic.md): room for N/2 operations of 2 blocks and W of 3.
  const uint32_t down_ring = std::bit_ceil(program_.slots + 3 * window + 1);
  const uint32_t local_ring = std::bit_ceil(std::max(64u, 2 * window));
  const uint32_t receives = std::bit_ceil(std::max(16u, 2 * window));
  // Room for every acknowledgement and copy under way, and for all queues flushed at once.
  HL_ASSIGN_OR_RETURN(
      cq_, device_.CreateCq({.depth = std::bit_ceil(down_ring + local_ring + 2 * receives)}));
  rnic::QpAttr attr;
  // A dead first replica is to be named before ack_timeout, which can only say that something is.
  const auto transport = std::chrono::duration_cast<std::chrono::milliseconds>(
      options_.ack_timeout / (2 * (attr.retry_count + 1)));
  attr.ack_timeout = std::clamp(transport, std::chrono::milliseconds(1), attr.ack_timeout);
  attr.send_cq = attr.recv_cq = cq_.get();
  attr.recv_wqes = 0;
  attr.send_wqebbs = down_ring;
  HL_ASSIGN_OR_RETURN(down_, pd.CreateQueuePair(attr));
  attr.send_wqebbs = local_ring;
  HL_ASSIGN_OR_RETURN(local_, pd.CreateQueuePair(attr));
  attr.send_wqebbs = 64;
  attr.recv_wqes = receives;
  HL_ASSIGN_OR_RETURN(ack_, pd.CreateQueuePair(attr));
  // WRITE_IMM takes a receive and leaves its SGEs alone.
  receive_batch_.assign(receives / 2,
                        rnic::ReceiveRequest{.id = 0, .sges = std::span<const Sge>(&sink_, 1)});

  info_.down_qpn = down_->qpn();
  info_.ack_qpn = ack_->qpn();
  info_.group_size = program_.group_size;
  info_.gid = device_.gid().raw;
  info_.ack_addr = reinterpret_cast<uint64_t>(ack_area_);
  info_.ack_size = ack_bytes;
  info_.ack_rkey = buffer_mr_->rkey();
  info_.window = window;
  info_.slots = program_.slots;
  region_addr_ = region.addr();
  info_region_size_ = region.length();
  region_lkey_ = region.lkey();
  region_rkey_ = region.rkey();
  return Status::Ok();
}

OffloadGroup::~OffloadGroup() {
  if (down_) down_->Reset().IgnoreError();
  if (ack_) ack_->Reset().IgnoreError();
  if (local_) local_->Reset().IgnoreError();
}

Status OffloadGroup::Connect(std::span<const MemberInfo> chain) {
  if (connected_) return InvalidArgument("this group is connected already; create a new one");
  HL_RETURN_IF_ERROR(CheckChain(chain, program_, info_region_size_));
  next_addr_ = chain.front().region_addr;
  next_rkey_ = chain.front().region_rkey;
  std::byte* messages = buffer_->data() + info_.ack_size;
  messages_ = std::make_unique<MessageRing>(program_, info_, chain, messages);
  HL_RETURN_IF_ERROR(
      local_->Connect(local_->address()).WithContext("connecting the loopback queue"));
  HL_RETURN_IF_ERROR(ack_->Connect({{chain.back().gid}, chain.back().down_qpn})
                         .WithContext("connecting to the last replica"));
  HL_RETURN_IF_ERROR(down_->Connect({{chain.front().gid}, chain.front().up_qpn})
                         .WithContext("connecting to the first replica"));
  for (int half = 0; half < 2; ++half) {
    HL_RETURN_IF_ERROR(
        ack_->PostReceive(receive_batch_).WithContext("posting receives for acknowledgements"));
  }
  connected_ = true;
  return Status::Ok();
}

// --- submission
// -----------------------------------------------------------------------------------------------------

Status OffloadGroup::CheckRange(const char* what, uint64_t offset, uint64_t size) const {
  if (size > kMaxPart) {
    return InvalidArgument(
        Concat(what, " of ", size, " B: at most ", kMaxPart, " B in one operation; split it"));
  }
  if (offset > info_region_size_ || size > info_region_size_ - offset) {
    return InvalidArgument(Concat(what, " of ", size, " B at offset ", offset,
                                  " leaves the region of ", info_region_size_, " B"));
  }
  return Status::Ok();
}

Status OffloadGroup::Check(const Operation& op) const {
  const uint64_t size = info_region_size_;
  const auto inside = [size](uint64_t offset, uint64_t bytes) {
    return bytes <= kMaxPart && offset <= size && bytes <= size - offset;
  };
  if (!inside(op.write.offset, op.write.size))
    return CheckRange("gWRITE", op.write.offset, op.write.size);
  if (op.copy.size != 0) {
    const Operation::Copy& copy = op.copy;
    if (!inside(copy.source, copy.size))
      return CheckRange("gMEMCPY source", copy.source, copy.size);
    if (!inside(copy.destination, copy.size))
      return CheckRange("gMEMCPY destination", copy.destination, copy.size);
    if (Overlap(copy.source, copy.size, copy.destination, copy.size)) {
      return InvalidArgument(Concat("gMEMCPY of ", copy.size, " B from ", copy.source, " to ",
                                    copy.destination, ": source and destination overlap"));
    }
    if (op.write.size != 0 &&
        (Overlap(op.write.offset, op.write.size, copy.source, copy.size) ||
         Overlap(op.write.offset, op.write.size, copy.destination, copy.size))) {
      return InvalidArgument(Concat("gWRITE of ", op.write.size, " B at ", op.write.offset,
                                    " overlaps the gMEMCPY of ", copy.size, " B from ", copy.source,
                                    " to ", copy.destination,
                                    " in the same operation; make it two operations"));
    }
  }
  if (op.cas.present) {
    if (!inside(op.cas.offset, sizeof(uint64_t)))
      return CheckRange("gCAS", op.cas.offset, sizeof(uint64_t));
    if (op.cas.offset % sizeof(uint64_t) != 0) {
      return InvalidArgument(
          Concat("gCAS at offset ", op.cas.offset, ": it must be a multiple of 8"));
    }
    if (op.cas.execute_map >> program_.group_size != 0) {
      return InvalidArgument(Concat("gCAS execute map 0x", std::hex, op.cas.execute_map, std::dec,
                                    " names replicas beyond the ", program_.group_size,
                                    " of the group"));
    }
    if (op.write.size != 0 &&
        Overlap(op.write.offset, op.write.size, op.cas.offset, sizeof(uint64_t))) {
      return InvalidArgument(Concat("gWRITE of ", op.write.size, " B at ", op.write.offset,
                                    " overlaps the gCAS at ", op.cas.offset,
                                    " in the same operation; make it two operations"));
    }
  }
  return Status::Ok();
}

Ticket OffloadGroup::Blocker(const Operation& operation) const {
  Ticket blocker = 0;
  if (submitted_ - acknowledged_ >= program_.window) blocker = submitted_ - program_.window + 1;
  if (options_.check_ordering && submitted_ != acknowledged_) {
    blocker = std::max(blocker, ordering_.Conflict(operation, acknowledged_));
  }
  return blocker;
}

Result<Ticket> OffloadGroup::Submit(const Operation& operation) {
  HL_RETURN_IF_ERROR(Check(operation));
  if (const Ticket blocker = Blocker(operation); blocker != 0) [[unlikely]] {
    HL_RETURN_IF_ERROR(WaitFor(blocker));
  }
  return Start(operation);
}

Result<Ticket> OffloadGroup::TrySubmit(const Operation& operation) {
  HL_RETURN_IF_ERROR(Check(operation));
  if (Blocker(operation) != 0) {
    Drain();
    if (!broken_.ok()) return broken_;
    if (const Ticket blocker = Blocker(operation); blocker != 0) {
      LookNowAndThen();
      if (!broken_.ok()) return broken_;
      return Busy(Concat("operation ", blocker, " must be acknowledged first; ",
                         submitted_ - acknowledged_, " of at most ", program_.window,
                         " are under way"));
    }
  }
  return Start(operation);
}

Result<Ticket> OffloadGroup::Start(const Operation& operation) {
  if (!broken_.ok()) [[unlikely]] {
    return broken_;
  }
  if (!connected_) [[unlikely]] {
    return InvalidArgument("the group is not connected yet");
  }
  const uint64_t m = submitted_;
  const Ticket ticket = m + 1;
  const bool flush = operation.flush || program_.forces_flush(m);
  messages_->Encode(m, operation, flush);
  Status posted = PostDown(m, operation, flush);
  if (posted.ok() && operation.copy.size != 0) posted = PostCopy(operation.copy);
  if (!posted.ok()) [[unlikely]] {
    // Part of it may have been posted: nothing can follow.
    Break(posted.WithContext(Concat("starting operation ", ticket)));
    return broken_;
  }
  ordering_.Add(operation, ticket, acknowledged_);
  pending_[ticket & pending_mask_] = {Clock::now(), copies_posted_,
                                      static_cast<uint16_t>(down_blocks_ - 1)};
  submitted_ = ticket;
  messages_->Prefetch(ticket);
  return ticket;
}

Status OffloadGroup::PostDown(uint64_t m, const Operation& operation, bool flush) {
  std::array<SendRequest, 3> requests;
  size_t n = 0;
  Sge data;
  if (operation.write.size != 0) {
    data = {region_addr_ + operation.write.offset, static_cast<uint32_t>(operation.write.size),
            region_lkey_};
    SendRequest& write = requests[n++];
    write.opcode = Opcode::kWrite;
    write.sges = std::span(&data, 1);
    write.remote_addr = next_addr_ + operation.write.offset;
    write.rkey = next_rkey_;
  }
  if (flush) {
    SendRequest& read = requests[n++];
    read.opcode = Opcode::kRead;
    read.sges = std::span(&sink_, 1);
    read.remote_addr = next_addr_;
    read.rkey = next_rkey_;
  }
  const Sge message{reinterpret_cast<uint64_t>(messages_->message(m)), messages_->message_bytes(),
                    buffer_mr_->lkey()};
  SendRequest& send = requests[n++];
  send.opcode = Opcode::kSend;
  send.fence = true;
  send.sges = std::span(&message, 1);
  HL_RETURN_IF_ERROR(down_->Post(std::span(requests.data(), n)));
  down_blocks_ = static_cast<uint16_t>(down_blocks_ + n);  // each takes one block
  return Status::Ok();
}

Status OffloadGroup::PostCopy(const Operation::Copy& copy) {
  const Sge source{region_addr_ + copy.source, static_cast<uint32_t>(copy.size), region_lkey_};
  std::array<SendRequest, 2> requests;
  requests[0].opcode = Opcode::kWrite;
  requests[0].fence = true;  // behind the READ of the copy before, whose bytes this one may take
  requests[0].sges = std::span(&source, 1);
  requests[0].remote_addr = region_addr_ + copy.destination;
  requests[0].rkey = region_rkey_;
  requests[1].opcode = Opcode::kRead;  // the copy's flush and its proof
  requests[1].signaled = true;
  requests[1].sges = std::span(&sink_, 1);
  requests[1].remote_addr = region_addr_;
  requests[1].rkey = region_rkey_;
  HL_RETURN_IF_ERROR(local_->Post(requests));
  ++copies_posted_;
  return Status::Ok();
}

// --- acknowledgements
// -----------------------------------------------------------------------------------------------

void OffloadGroup::Drain() {
  std::array<rnic::Completion, kPollBatch> completions;
  size_t taken = 0, total = 0;
  do {
    Result<size_t> polled = cq_->Poll(completions);
    if (!polled.ok()) [[unlikely]] {
      Break(polled.status());
      break;
    }
    taken = *polled;
    total += taken;
    for (size_t i = 0; i < taken && broken_.ok(); ++i) {
      const rnic::Completion& completion = completions[i];
      if (completion.status != rnic::WcStatus::kSuccess) [[unlikely]] {
        BreakOn(completion);
      } else if (completion.opcode == rnic::WcOpcode::kSendSide) {
        ++copies_done_;  // only the copies' READs are signaled
      } else {
        TakeAck(completion);
      }
    }
  } while (taken == completions.size() && broken_.ok());
  if (total == 0) return;
  AdvanceAcknowledged();
  if (receives_consumed_ >= receive_batch_.size()) ReplenishReceives();
}

void OffloadGroup::BreakOn(const rnic::Completion& completion) {
  const char* const queue = completion.qpn == info_.down_qpn  ? "the queue to the first replica"
                            : completion.qpn == info_.ack_qpn ? "the queue from the last replica"
                                                              : "the loopback queue for copies";
  Break({CodeOf(completion.status),
         Concat(queue, " failed: ", rnic::WcStatusName(completion.status), "; ", Progress())});
}

void OffloadGroup::TakeAck(const rnic::Completion& completion) {
  const Ticket ticket = remote_acked_ + 1;
  const uint32_t slot = program_.slot(ticket - 1);
  const std::byte* entry = ack_area_ + size_t{slot} * AckStride(program_.group_size);
  // The CQE, read with acquire, says that the device wrote the entry before it.
  const auto* header = reinterpret_cast<const ResultHeader*>(entry);
  const auto* results = reinterpret_cast<const ReplicaResult*>(entry + sizeof(ResultHeader));
  if (completion.opcode != rnic::WcOpcode::kReceiveWriteImm || completion.imm != slot ||
      header->sequence != ticket || ticket > submitted_) [[unlikely]] {
    Break(Corruption(Concat("the last replica acknowledged slot ", completion.imm, " with number ",
                            header->sequence, " where operation ", ticket, " in slot ", slot,
                            " was due; ", Progress())));
    return;
  }
  for (uint32_t i = 0; i < program_.group_size; ++i) {
    if (results[i].word == ticket) continue;
    Break(Corruption(Concat("operation ", ticket, " came back without replica ", i,
                            "'s proof that its copies ran (word ", results[i].word, "); ",
                            Progress())));
    return;
  }
  remote_acked_ = ticket;
  ++receives_consumed_;
}

void OffloadGroup::AdvanceAcknowledged() {
  const Ticket before = acknowledged_;
  while (acknowledged_ < remote_acked_ &&
         pending_[(acknowledged_ + 1) & pending_mask_].copies <= copies_done_)
    ++acknowledged_;
  if (acknowledged_ != before) down_->Retire(pending_[acknowledged_ & pending_mask_].last_block);
}

void OffloadGroup::ReplenishReceives() {
  if (Status posted = ack_->PostReceive(receive_batch_); !posted.ok()) {
    Break(posted.WithContext("posting receives for acknowledgements"));
    return;
  }
  receives_consumed_ -= static_cast<uint32_t>(receive_batch_.size());
}

Status OffloadGroup::WaitFor(Ticket ticket) {
  Clock::time_point started{};
  for (uint32_t turn = 1;; ++turn) {
    if (!broken_.ok()) [[unlikely]] {
      return broken_;
    }
    Drain();
    if (acknowledged_ >= ticket) return Status::Ok();
    if (options_.idle) {
      options_.idle();
    } else {
      CpuPause();
    }
    if (turn % kCheckInterval != 0) continue;
    CheckWaiting(ticket);
    const Clock::time_point now = Clock::now();
    if (started == Clock::time_point{}) started = now;
    if (now - started > kYieldAfter) std::this_thread::yield();
  }
}

void OffloadGroup::LookNowAndThen() {
  if (++looks_ % kCheckInterval == 0) CheckWaiting(acknowledged_ + 1);
}

void OffloadGroup::CheckWaiting(Ticket waits_for) {
  if (!device_.alive()) {
    Break(Unavailable(
        Concat("the RNIC is gone (its daemon ended, or this is a forked child); ", Progress())));
    return;
  }
  const Ticket oldest = acknowledged_ + 1;
  if (Clock::now() - pending_[oldest & pending_mask_].submitted <= options_.ack_timeout) return;
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(options_.ack_timeout).count();
  Break(TimedOut(Concat("no acknowledgement of operation ", oldest, " within ack_timeout = ",
                        milliseconds, " ms (waiting for ", waits_for, "); ", Progress(),
                        "; a replica or the network is down, see the replicas' status")));
}

std::string OffloadGroup::Progress() const {
  return Concat(acknowledged_, " of ", submitted_,
                " operations acknowledged, the last replica answered ", remote_acked_, ", ",
                copies_done_, " of ", copies_posted_, " copies here done");
}

void OffloadGroup::Break(Status status) {
  if (broken_.ok()) broken_ = std::move(status);
}

Status OffloadGroup::Wait(Ticket ticket, OperationResult* result) {
  if (ticket == 0 || ticket > submitted_) {
    return InvalidArgument(
        Concat("ticket ", ticket, " was never given out; the newest is ", submitted_));
  }
  if (acknowledged_ < ticket) HL_RETURN_IF_ERROR(WaitFor(ticket));
  if (result == nullptr) return Status::Ok();
  if (submitted_ - ticket > program_.window) {
    return NotFound(Concat("the result of operation ", ticket,
                           " is no longer kept: ", submitted_ - ticket,
                           " were submitted since, and a result is kept for ", program_.window));
  }
  const std::byte* entry =
      ack_area_ + size_t{program_.slot(ticket - 1)} * AckStride(program_.group_size);
  const auto* results = reinterpret_cast<const ReplicaResult*>(entry + sizeof(ResultHeader));
  *result = {};
  for (uint32_t i = 0; i < program_.group_size; ++i) result->original[i] = results[i].original;
  return Status::Ok();
}

Status OffloadGroup::WaitAll() {
  if (acknowledged_ == submitted_) return broken_;
  return WaitFor(submitted_);
}

Result<Ticket> OffloadGroup::Poll() {
  if (broken_.ok()) Drain();
  if (broken_.ok() && acknowledged_ != submitted_) LookNowAndThen();
  if (!broken_.ok()) return broken_;
  return acknowledged_;
}

Status OffloadGroup::Lock(uint64_t offset, uint64_t expected, uint64_t desired) {
  const uint32_t everyone = (1u << program_.group_size) - 1;
  HL_ASSIGN_OR_RETURN(const Ticket taken, CompareAndSwap(offset, expected, desired, everyone));
  OperationResult found;
  HL_RETURN_IF_ERROR(Wait(taken, &found));
  uint32_t changed = 0, holder = program_.group_size;
  for (uint32_t i = 0; i < program_.group_size; ++i) {
    if (found.original[i] == expected) {
      changed |= 1u << i;
    } else if (holder == program_.group_size) {
      holder = i;
    }
  }
  if (changed == everyone) return Status::Ok();
  if (changed != 0) {
    HL_ASSIGN_OR_RETURN(const Ticket undone, CompareAndSwap(offset, desired, expected, changed));
    OperationResult undo;
    HL_RETURN_IF_ERROR(Wait(undone, &undo));
    for (uint32_t i = 0; i < program_.group_size; ++i) {
      if ((changed >> i & 1) == 0 || undo.original[i] == desired) continue;
      return Aborted(Concat("undoing the lock at offset ", offset, ": replica ", i, " holds ",
                            undo.original[i], " where ", desired,
                            " was put; someone else writes this word"));
    }
  }
  return Busy(Concat("the lock at offset ", offset, " is held: replica ", holder, " holds ",
                     found.original[holder], ", not ", expected));
}

}  // namespace hyperloop
