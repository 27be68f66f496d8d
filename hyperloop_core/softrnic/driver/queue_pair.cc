#include <endian.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "rnic/checks.h"
#include "softrnic/driver/device_queues.h"

namespace hyperloop::softrnic {
namespace {

using rnic::Opcode;
using rnic::QpState;

uint32_t BlocksFor(uint32_t segments) {
  return rnic::WqeBlocks(size_t{segments} * rnic::kSegmentBytes);
}

Status CheckAttr(const rnic::QpAttr& attr) {
  HL_RETURN_IF_ERROR(rnic::CheckQueues(attr, {rnic::kMaxRingEntries, kMaxReceiveSge}));
  if (attr.max_inline > rnic::kMaxInline) {
    return InvalidArgument("max_inline " + std::to_string(attr.max_inline) + ": at most " +
                           std::to_string(rnic::kMaxInline));
  }
  if (const uint32_t blocks = BlocksFor(2 + rnic::InlineSegments(attr.max_inline));
      blocks > attr.send_wqebbs) {
    return InvalidArgument("max_inline " + std::to_string(attr.max_inline) + " takes up to " +
                           std::to_string(blocks) + " blocks: the send ring has " +
                           std::to_string(attr.send_wqebbs));
  }
  return {};
}

// The opcode of a request that may carry inline data.
rnic::WqeOpcode InlineOpcode(Opcode opcode) {
  switch (opcode) {
    case Opcode::kSendImm:
      return rnic::kWqeSendImm;
    case Opcode::kWrite:
      return rnic::kWqeWrite;
    case Opcode::kWriteImm:
      return rnic::kWqeWriteImm;
    default:
      return rnic::kWqeSend;
  }
}

size_t RoundUp(size_t value, size_t to) { return (value + to - 1) / to * to; }

}  // namespace

SoftQueuePair::SoftQueuePair(std::shared_ptr<DeviceContext> context, const rnic::QpAttr& attr,
                             const rnic::Gid& gid)
    : context_(std::move(context)),
      attr_(attr),
      gid_(gid),
      rq_stride_(16 * std::bit_ceil(attr.recv_max_sge)),
      send_cq_(static_cast<SoftCompletionQueue*>(attr.send_cq)),
      recv_cq_(
          static_cast<SoftCompletionQueue*>(attr.recv_cq != nullptr ? attr.recv_cq : attr.send_cq)),
      sq_ids_(attr.send_wqebbs),
      sq_blocks_(attr.send_wqebbs),
      rq_ids_(attr.recv_wqes) {}

Result<std::unique_ptr<SoftQueuePair>> SoftQueuePair::Create(std::shared_ptr<DeviceContext> context,
                                                             uint32_t pdn, const rnic::QpAttr& attr,
                                                             const rnic::Gid& gid) {
  HL_RETURN_IF_ERROR(CheckAttr(attr));
  std::unique_ptr<SoftQueuePair> qp(new SoftQueuePair(std::move(context), attr, gid));
  HL_RETURN_IF_ERROR(qp->Allocate(pdn));
  return qp;
}

Status SoftQueuePair::Allocate(uint32_t pdn) {
  pdn_ = pdn;
  const size_t rq_bytes = RoundUp(size_t{attr_.recv_wqes} * rq_stride_, rnic::kWqebbBytes);
  const size_t sq_bytes = size_t{attr_.send_wqebbs} * rnic::kWqebbBytes;
  HL_ASSIGN_OR_RETURN(memory_, context_->AllocateShared(rq_bytes + sq_bytes + 64));
  rq_ = memory_->data();
  sq_ = rq_ + rq_bytes;
  doorbell_record_ = sq_ + sq_bytes;
  HL_ASSIGN_OR_RETURN(umem_, context_->RegisterUmem(*memory_));
  memory_->CloseFd();

  Command command = MakeCommand(Op::kCreateQp);
  CreateQpArgs& args = command.args.qp;
  args.pdn = pdn;
  args.send_cqn = send_cq_->cqn();
  args.recv_cqn = recv_cq_->cqn();
  args.umem = umem_->id();
  args.sq_addr = reinterpret_cast<uint64_t>(sq_);
  args.rq_addr = reinterpret_cast<uint64_t>(rq_);
  args.dbrec_addr = reinterpret_cast<uint64_t>(doorbell_record_);
  args.log_sq_wqebbs = static_cast<uint32_t>(std::countr_zero(attr_.send_wqebbs));
  args.has_rq = attr_.recv_wqes != 0 ? 1 : 0;
  if (args.has_rq != 0) {
    args.log_rq_wqes = static_cast<uint32_t>(std::countr_zero(attr_.recv_wqes));
    args.log_rq_stride = static_cast<uint32_t>(std::countr_zero(rq_stride_));
  }
  args.flags = (attr_.cross_channel ? kQpMaster : 0u) | (attr_.managed_send ? kQpSlaveSend : 0u) |
               (attr_.managed_recv ? kQpSlaveReceive : 0u);
  args.max_read_atomic = attr_.max_read_atomic;
  Reply reply;
  HL_RETURN_IF_ERROR(context_->Execute(command, &reply));
  qpn_ = reply.result.qp.qpn;
  register_index_ = reply.result.qp.doorbell_index;
  created_ = true;
  if (register_index_ >= kMaxQpsPerContext) {
    return Internal("the engine gave doorbell register " + std::to_string(register_index_));
  }
  MutexLock lock(context_->qps_mutex());
  if (!context_->qps().Insert(qpn_, this)) return NoSpace("too many queue pairs");
  return {};
}

SoftQueuePair::~SoftQueuePair() {
  if (!created_) return;
  if (has_raw_key_) context_->Destroy(Op::kDestroyMkey, raw_key_.lkey);
  context_->Destroy(Op::kDestroyQp, qpn_);
  MutexLock lock(context_->qps_mutex());
  context_->qps().Remove(qpn_);
}

Status SoftQueuePair::Modify(QpState state, const rnic::QpAddress& peer) {
  Command command = MakeCommand(Op::kModifyQp);
  ModifyQpArgs& args = command.args.modify;
  args.qpn = qpn_;
  args.state = static_cast<uint32_t>(state);
  std::memcpy(args.remote_gid, peer.gid.raw.data(), sizeof args.remote_gid);
  args.remote_qpn = peer.qpn;
  args.access = attr_.remote_access;
  args.rnr_timer_us = static_cast<uint32_t>(attr_.rnr_timer.count());
  args.ack_timeout_ms = static_cast<uint32_t>(attr_.ack_timeout.count());
  args.link_timeout_ms = static_cast<uint32_t>(attr_.link_timeout.count());
  args.retry_count = attr_.retry_count;
  args.rnr_retry = attr_.rnr_retry;
  Reply reply;
  HL_RETURN_IF_ERROR(context_->Execute(command, &reply));
  state_.store(state, std::memory_order_relaxed);
  return {};
}

Status SoftQueuePair::Connect(const rnic::QpAddress& peer) {
  if (state() != QpState::kReset) {
    return InvalidArgument("queue pair " + std::to_string(qpn_) +
                           " is connected already: Reset it first");
  }
  for (QpState next : {QpState::kInit, QpState::kReadyToReceive, QpState::kReadyToSend}) {
    Status status = Modify(next, peer);
    if (status.ok()) continue;
    Modify(QpState::kReset, {}).IgnoreError();
    return status;
  }
  return {};
}

Status SoftQueuePair::Reset() {
  HL_RETURN_IF_ERROR(Modify(QpState::kReset, {}));
  // The device does no more work for this queue pair, so its CQs already hold all CQEs of the old
  // work.
  send_valid_from_.store(send_cq_->Written(), std::memory_order_relaxed);
  recv_valid_from_.store(recv_cq_->Written(), std::memory_order_relaxed);
  for (auto* index : {&sq_producer_, &sq_consumer_, &rq_producer_, &rq_consumer_}) {
    index->store(0, std::memory_order_relaxed);
  }
  std::atomic_ref(*counter(rnic::kReceiveCounterOffset)).store(0, std::memory_order_release);
  std::atomic_ref(*counter(rnic::kSendCounterOffset)).store(0, std::memory_order_release);
  return {};
}

// --- posting

Status SoftQueuePair::CheckInline(const rnic::SendRequest& request, uint32_t* blocks) const {
  const bool write = request.opcode == Opcode::kWrite || request.opcode == Opcode::kWriteImm;
  if (!write && request.opcode != Opcode::kSend && request.opcode != Opcode::kSendImm) {
    return InvalidArgument("inline data is for sends and writes only");
  }
  HL_RETURN_IF_ERROR(rnic::CheckSges(request.sges, kMaxSendSge));
  uint64_t bytes = 0;
  for (const rnic::Sge& sge : request.sges) bytes += sge.length;
  if (bytes > attr_.max_inline) {
    return InvalidArgument(std::to_string(bytes) + " bytes of inline data: this queue pair has " +
                           "max_inline " + std::to_string(attr_.max_inline));
  }
  *blocks = BlocksFor((write ? 2 : 1) + rnic::InlineSegments(bytes));
  return {};
}

Status SoftQueuePair::CheckRequest(const rnic::SendRequest& request, uint32_t* blocks) const {
  uint32_t segments = 1;
  switch (request.opcode) {
    case Opcode::kNop:
      break;
    case Opcode::kSend:
    case Opcode::kSendImm:
      segments = 1 + static_cast<uint32_t>(request.sges.size());
      break;
    case Opcode::kWrite:
    case Opcode::kWriteImm:
    case Opcode::kRead:
      segments = 2 + static_cast<uint32_t>(request.sges.size());
      break;
    case Opcode::kCompareSwap:
    case Opcode::kFetchAdd:
      segments = 4;
      if (request.sges.size() != 1 || request.sges[0].length != 8) {
        return InvalidArgument("an atomic needs one scatter entry of 8 bytes for the old value");
      }
      break;
    case Opcode::kWait:
    case Opcode::kSendEnable:
    case Opcode::kReceiveEnable:
      segments = 2;
      if (!attr_.cross_channel) {
        return InvalidArgument("WAIT and *_ENABLE need a queue pair made with cross_channel");
      }
      break;
    default:
      return NotSupported("opcode " + std::to_string(static_cast<int>(request.opcode)));
  }
  HL_RETURN_IF_ERROR(rnic::CheckSges(request.sges, kMaxSendSge));
  *blocks = BlocksFor(segments);
  return {};
}

size_t SoftQueuePair::Encode(const rnic::SendRequest& request, uint16_t index, void* wqe) const {
  const rnic::WqeControl control{
      .qpn = qpn_,
      .index = index,
      .completion = request.signaled ? rnic::CqeMode::kAlways : rnic::CqeMode::kOnError,
      .fence = request.fence,
      .solicited = request.solicited};
  const uint64_t remote = request.remote_addr;
  if (request.inline_data) [[unlikely]] {
    return rnic::EncodeInline(wqe, control, InlineOpcode(request.opcode), request.sges, remote,
                              request.rkey, request.imm);
  }
  switch (request.opcode) {
    case Opcode::kSend:
      return rnic::EncodeSend(wqe, control, request.sges);
    case Opcode::kSendImm:
      return rnic::EncodeSendImm(wqe, control, request.sges, request.imm);
    case Opcode::kWrite:
      return rnic::EncodeWrite(wqe, control, remote, request.rkey, request.sges);
    case Opcode::kWriteImm:
      return rnic::EncodeWriteImm(wqe, control, remote, request.rkey, request.sges, request.imm);
    case Opcode::kRead:
      return rnic::EncodeRead(wqe, control, remote, request.rkey, request.sges);
    case Opcode::kCompareSwap:
      return rnic::EncodeCompareSwap(wqe, control, remote, request.rkey, request.compare_or_add,
                                     request.swap, request.sges[0]);
    case Opcode::kFetchAdd:
      return rnic::EncodeFetchAdd(wqe, control, remote, request.rkey, request.compare_or_add,
                                  request.sges[0]);
    case Opcode::kWait:
      return rnic::EncodeWait(wqe, control, request.object, request.index);
    case Opcode::kSendEnable:
      return rnic::EncodeSendEnable(wqe, control, request.object,
                                    static_cast<uint16_t>(request.index));
    case Opcode::kReceiveEnable:
      return rnic::EncodeReceiveEnable(wqe, control, request.object,
                                       static_cast<uint16_t>(request.index));
    case Opcode::kNop:
      break;
  }
  return rnic::EncodeNop(wqe, control);
}

Status SoftQueuePair::Post(std::span<const rnic::SendRequest> requests) {
  if (!context_->Usable()) [[unlikely]]
    return context_->DeadStatus();
  const QpState now = state();
  if (!attr_.managed_send && now != QpState::kReadyToSend && now != QpState::kError) [[unlikely]] {
    return InvalidArgument("queue pair " + std::to_string(qpn_) + " is not connected");
  }
  uint32_t needed = 0;
  for (const rnic::SendRequest& request : requests) {
    uint32_t blocks = 0;
    if (request.inline_data) [[unlikely]] {
      HL_RETURN_IF_ERROR(CheckInline(request, &blocks));
    } else {
      HL_RETURN_IF_ERROR(CheckRequest(request, &blocks));
    }
    needed += blocks;
  }
  uint16_t producer = sq_producer_.load(std::memory_order_relaxed);
  // Acquire: pairs with Retire. The blocks behind the consumer index are ours again, and their ids
  // too.
  const uint16_t used = producer - sq_consumer_.load(std::memory_order_acquire);
  if (needed > attr_.send_wqebbs - used) [[unlikely]] {
    return rnic::RingFull("send", "blocks", {used, attr_.send_wqebbs, needed});
  }
  const uint32_t mask = attr_.send_wqebbs - 1;
  for (const rnic::SendRequest& request : requests) {
    size_t bytes;
    std::byte* block = rnic::WqeBlock(sq_, attr_.send_wqebbs, producer);
    // A WQE of one block never wraps around the ring's end. Neither does a longer one that begins
    // so far from that end.
    if ((request.sges.size() <= 2 && !request.inline_data) ||
        (producer & mask) + rnic::kMaxWqeBytes / rnic::kWqebbBytes <= attr_.send_wqebbs) {
      bytes = Encode(request, producer, block);
    } else {
      alignas(64) std::array<std::byte, rnic::kMaxWqeBytes> scratch;
      bytes = Encode(request, producer, scratch.data());
      rnic::CopyToRing(sq_, attr_.send_wqebbs, producer, scratch.data(), bytes);
    }
    const uint32_t blocks = rnic::WqeBlocks(bytes);
    sq_ids_[producer & mask] = request.id;
    sq_blocks_[producer & mask] = static_cast<uint8_t>(blocks);
    producer = static_cast<uint16_t>(producer + blocks);
  }
  sq_producer_.store(producer, std::memory_order_relaxed);
  // A managed queue starts by an enable (or RingDoorbell), not by being posted to.
  if (attr_.managed_send || requests.empty()) return {};
  std::atomic_ref(*counter(rnic::kSendCounterOffset))
      .store(htobe32(producer), std::memory_order_release);
  context_->RingUar(register_index_, producer);
  return {};
}

Status SoftQueuePair::PostReceive(std::span<const rnic::ReceiveRequest> requests) {
  if (!context_->Usable()) [[unlikely]]
    return context_->DeadStatus();
  for (const rnic::ReceiveRequest& request : requests) {
    HL_RETURN_IF_ERROR(rnic::CheckSges(request.sges, rq_stride_ / rnic::kSegmentBytes));
  }
  uint16_t producer = rq_producer_.load(std::memory_order_relaxed);
  const uint16_t used = producer - rq_consumer_.load(std::memory_order_acquire);
  if (requests.size() > attr_.recv_wqes - used) [[unlikely]] {
    return rnic::RingFull("receive", "entries", {used, attr_.recv_wqes, requests.size()});
  }
  if (requests.empty()) return {};
  for (const rnic::ReceiveRequest& request : requests) {
    const uint32_t slot = producer & (attr_.recv_wqes - 1);
    rnic::EncodeReceive(rq_ + size_t{slot} * rq_stride_, rq_stride_, request.sges);
    rq_ids_[slot] = request.id;
    ++producer;
  }
  rq_producer_.store(producer, std::memory_order_relaxed);
  // No register is rung: the device reads the record when a message needs a receive. A device that
  // found no receive reads the record again after it has set engine_sleeping and before it sleeps,
  // in the turn (Engine::Run) that EngineLoop::Sleep makes; hence the seq_cst exchange. If a sender
  // still waits then, the sleep is short (kRetryMs).
  std::atomic_ref(*counter(rnic::kReceiveCounterOffset))
      .exchange(htobe32(producer), std::memory_order_seq_cst);
  context_->KickEngine();
  return {};
}

Status SoftQueuePair::RingDoorbell(uint16_t producer_index) {
  if (!context_->Usable()) [[unlikely]]
    return context_->DeadStatus();
  std::atomic_ref(*counter(rnic::kSendCounterOffset))
      .store(htobe32(producer_index), std::memory_order_release);
  context_->RingUar(register_index_, producer_index);
  return {};
}

// --- completion

void SoftQueuePair::Retire(uint16_t wqe_counter) {
  if (!context_->IsOwner()) [[unlikely]]
    return;
  const uint16_t consumer = sq_consumer_.load(std::memory_order_relaxed);
  const uint16_t end =
      static_cast<uint16_t>(wqe_counter + sq_blocks_[wqe_counter & (attr_.send_wqebbs - 1)]);
  const uint16_t used = sq_producer_.load(std::memory_order_relaxed) - consumer;
  // The index moves only forward, and never past the posted requests: a caller that writes the ring
  // itself has nothing to retire.
  const uint16_t step = end - consumer;
  if (step <= used) sq_consumer_.store(end, std::memory_order_release);
}

bool SoftQueuePair::Resolve(uint64_t position, rnic::Completion* completion) {
  const bool send_side = completion->opcode == rnic::WcOpcode::kSendSide;
  const auto& valid_from = send_side ? send_valid_from_ : recv_valid_from_;
  if (position < valid_from.load(std::memory_order_relaxed)) return false;
  if (completion->status != rnic::WcStatus::kSuccess) [[unlikely]] {
    state_.store(QpState::kError, std::memory_order_relaxed);
  }
  const uint16_t index = completion->wqe_counter;
  if (send_side) {
    completion->id = sq_ids_[index & (attr_.send_wqebbs - 1)];
    Retire(index);
  } else if (attr_.recv_wqes != 0) {
    completion->id = rq_ids_[index & (attr_.recv_wqes - 1)];
    // An entry that RECV scatter re-armed was not posted by PostReceive and frees nothing.
    const uint16_t consumer = rq_consumer_.load(std::memory_order_relaxed);
    const uint16_t used = rq_producer_.load(std::memory_order_relaxed) - consumer;
    const uint16_t step = static_cast<uint16_t>(index + 1) - consumer;
    if (step <= used) {
      rq_consumer_.store(static_cast<uint16_t>(index + 1), std::memory_order_release);
    }
  }
  return true;
}

Result<rnic::RawQueues> SoftQueuePair::raw_queues() {
  if (!context_->IsOwner()) return context_->DeadStatus();
  MutexLock lock(raw_mutex_);
  if (!has_raw_key_) {
    HL_ASSIGN_OR_RETURN(raw_key_,
                        context_->CreateMkey({.pdn = pdn_,
                                              .umem = umem_->id(),
                                              .addr = reinterpret_cast<uint64_t>(memory_->data()),
                                              .length = memory_->size(),
                                              .access = rnic::kLocalWrite,
                                              .media = static_cast<uint32_t>(rnic::Media::kRam)}));
    has_raw_key_ = true;
  }
  return rnic::RawQueues{.sq = sq_,
                         .sq_wqebbs = attr_.send_wqebbs,
                         .rq = attr_.recv_wqes != 0 ? rq_ : nullptr,
                         .rq_wqes = attr_.recv_wqes,
                         .rq_stride = rq_stride_,
                         .doorbell_record = doorbell_record_,
                         .addr = reinterpret_cast<uint64_t>(memory_->data()),
                         .length = memory_->size(),
                         .lkey = raw_key_.lkey};
}

}  // namespace hyperloop::softrnic
