#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <string>

#include "verbs/queues.h"

namespace hyperloop::verbs {
namespace {

using rnic::WcOpcode;
using rnic::WcStatus;

constexpr size_t kBatch = 16;

WcStatus StatusOf(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_SUCCESS:
      return WcStatus::kSuccess;
    case IBV_WC_LOC_LEN_ERR:
      return WcStatus::kLocalLength;
    case IBV_WC_LOC_QP_OP_ERR:
      return WcStatus::kLocalQpOperation;
    case IBV_WC_LOC_PROT_ERR:
      return WcStatus::kLocalProtection;
    case IBV_WC_WR_FLUSH_ERR:
      return WcStatus::kFlushed;
    case IBV_WC_LOC_ACCESS_ERR:
      return WcStatus::kLocalAccess;
    case IBV_WC_REM_INV_REQ_ERR:
      return WcStatus::kRemoteInvalidRequest;
    case IBV_WC_REM_ACCESS_ERR:
      return WcStatus::kRemoteAccess;
    case IBV_WC_REM_OP_ERR:
      return WcStatus::kRemoteOperation;
    case IBV_WC_RETRY_EXC_ERR:
      return WcStatus::kRetryExceeded;
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return WcStatus::kRnrRetryExceeded;
    case IBV_WC_REM_ABORT_ERR:
      return WcStatus::kRemoteAborted;
    default:
      return WcStatus::kOther;
  }
}

// Translates everything but `id`. A failed completion has no valid opcode, so its WorkId tells
// which queue it belongs to.
rnic::Completion Translate(const ibv_wc& wc, const WorkId& id) {
  rnic::Completion out;
  out.status = StatusOf(wc.status);
  out.qpn = wc.qp_num;
  out.wqe_counter = id.index;
  if (!id.receive) return out;
  out.opcode = WcOpcode::kReceive;
  if (wc.status != IBV_WC_SUCCESS) return out;
  out.byte_length = wc.byte_len;
  if ((wc.wc_flags & IBV_WC_WITH_IMM) != 0) {
    out.imm = be32toh(wc.imm_data);
    out.opcode =
        wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM ? WcOpcode::kReceiveWriteImm : WcOpcode::kReceiveImm;
  }
  return out;
}

}  // namespace

Result<std::unique_ptr<VerbsCompletionQueue>> VerbsCompletionQueue::Create(
    std::shared_ptr<VerbsContext> context, const rnic::CqAttr& attr) {
  if (!context->Usable()) return context->DeadStatus();
  if (attr.ignore_overrun) {
    return NotSupported("libibverbs has no completion queues that ignore overrun");
  }
  const auto limit = static_cast<uint32_t>(context->attributes().max_cqe);
  if (attr.depth == 0 || attr.depth > limit) {
    return InvalidArgument("completion queue of " + std::to_string(attr.depth) + " entries: " +
                           context->port().device + " takes 1 to " + std::to_string(limit));
  }
  std::unique_ptr<VerbsCompletionQueue> queue(new VerbsCompletionQueue(context));
  const Library& lib = context->lib();
  if (attr.events) {
    queue->channel_ = lib.ibv_create_comp_channel(context->device());
    if (queue->channel_ == nullptr) return VerbsError(errno, "making a completion channel");
    const int fd = queue->channel_->fd;
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) {
      return FromErrno(errno, "completion channel");
    }
  }
  const uint32_t depth = std::min(std::bit_ceil(attr.depth), limit);
  queue->cq_ =
      lib.ibv_create_cq(context->device(), static_cast<int>(depth), nullptr, queue->channel_, 0);
  if (queue->cq_ == nullptr) {
    return VerbsError(errno, "making a completion queue of " + std::to_string(depth) + " entries");
  }
  return queue;
}

VerbsCompletionQueue::~VerbsCompletionQueue() {
  if (!context_->IsOwner()) return;
  const Library& lib = context_->lib();
  if (cq_ != nullptr) lib.ibv_destroy_cq(cq_);
  if (channel_ != nullptr) lib.ibv_destroy_comp_channel(channel_);
}

Result<size_t> VerbsCompletionQueue::Poll(std::span<rnic::Completion> out) {
  if (!context_->Usable()) [[unlikely]]
    return context_->DeadStatus();
  size_t count = 0;
  while (count < out.size()) {
    std::array<ibv_wc, kBatch> batch;
    const auto wanted = static_cast<int>(std::min(kBatch, out.size() - count));
    const int polled = ibv_poll_cq(cq_, wanted, batch.data());
    if (polled < 0) {
      return Unavailable("completion queue of " + context_->port().device + " failed");
    }
    if (polled == 0) break;
    const SharedLock lock(context_->queue_pairs_mutex());
    for (size_t i = 0; i < static_cast<size_t>(polled); ++i) {
      const WorkId id = WorkId::Unpack(batch[i].wr_id);
      VerbsQueuePair* qp = context_->QueuePairLocked(id.slot);
      if (qp == nullptr) continue;
      out[count] = Translate(batch[i], id);
      if (qp->Resolve(id, &out[count])) ++count;
    }
  }
  if (count == 0 && !context_->Alive()) return context_->DeadStatus();
  return count;
}

Status VerbsCompletionQueue::RequestNotify(bool solicited_only) {
  if (!context_->Usable()) return context_->DeadStatus();
  if (channel_ == nullptr) {
    return NotSupported("this completion queue was made without CqAttr::events");
  }
  const int error = ibv_req_notify_cq(cq_, solicited_only ? 1 : 0);
  return error == 0 ? Status::Ok() : FromErrno(error, "ibv_req_notify_cq");
}

int VerbsCompletionQueue::event_fd() const { return channel_ == nullptr ? -1 : channel_->fd; }

Result<uint32_t> VerbsCompletionQueue::TakeEvents() {
  if (!context_->Usable()) return context_->DeadStatus();
  if (channel_ == nullptr) {
    return NotSupported("this completion queue was made without CqAttr::events");
  }
  uint32_t events = 0;
  for (;;) {
    ibv_cq* cq = nullptr;
    void* user = nullptr;
    if (context_->lib().ibv_get_cq_event(channel_, &cq, &user) != 0) break;
    ++events;
  }
  if (events > 0) context_->lib().ibv_ack_cq_events(cq_, events);
  if (errno != EAGAIN && errno != EINTR) return FromErrno(errno, "ibv_get_cq_event");
  if (!context_->Alive()) return context_->DeadStatus();
  return events;
}

}  // namespace hyperloop::verbs
