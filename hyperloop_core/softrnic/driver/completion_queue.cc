#include <endian.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <string>

#include "softrnic/driver/device_queues.h"

namespace hyperloop::softrnic {
namespace {

constexpr uint32_t kMaxCqDepth = 1u << 20;

}  // namespace

SoftCompletionQueue::SoftCompletionQueue(std::shared_ptr<DeviceContext> context,
                                         std::unique_ptr<SharedMemory> memory, uint32_t depth)
    : context_(std::move(context)),
      memory_(std::move(memory)),
      depth_(depth),
      doorbell_record_(reinterpret_cast<uint32_t*>(memory_->data() + size_t{depth} * 64)) {}

Result<std::unique_ptr<SoftCompletionQueue>> SoftCompletionQueue::Create(
    std::shared_ptr<DeviceContext> context, const rnic::CqAttr& attr) {
  if (attr.depth == 0 || attr.depth > kMaxCqDepth) {
    return InvalidArgument("completion queue of " + std::to_string(attr.depth) + " entries: 1 to " +
                           std::to_string(kMaxCqDepth));
  }
  const uint32_t depth = std::bit_ceil(attr.depth);
  HL_ASSIGN_OR_RETURN(auto memory, context->AllocateShared(size_t{depth} * 64 + 64));
  rnic::InitCqeRing(memory->data(), depth);
  std::unique_ptr<SoftCompletionQueue> cq(
      new SoftCompletionQueue(std::move(context), std::move(memory), depth));
  HL_ASSIGN_OR_RETURN(cq->umem_, cq->context_->RegisterUmem(*cq->memory_));
  cq->memory_->CloseFd();

  Command command = MakeCommand(Op::kCreateCq);
  command.args.cq.umem = cq->umem_->id();
  command.args.cq.log_size = static_cast<uint32_t>(std::countr_zero(depth));
  command.args.cq.ring_addr = reinterpret_cast<uint64_t>(cq->memory_->data());
  command.args.cq.dbrec_addr = reinterpret_cast<uint64_t>(cq->doorbell_record_);
  command.args.cq.ignore_overrun = attr.ignore_overrun ? 1 : 0;
  command.args.cq.events = attr.events ? 1 : 0;
  Reply reply;
  if (attr.events) {
    HL_ASSIGN_OR_RETURN(cq->channel_, cq->context_->CreateEventCq(command, &reply));
  } else {
    HL_RETURN_IF_ERROR(cq->context_->Execute(command, &reply));
  }
  cq->cqn_ = reply.result.cq.cqn;
  cq->arm_index_ = reply.result.cq.arm_index;
  cq->created_ = true;
  if (cq->arm_index_ >= kMaxQpsPerContext) {
    return Internal("the engine gave arm register " + std::to_string(cq->arm_index_));
  }
  return cq;
}

SoftCompletionQueue::~SoftCompletionQueue() {
  if (created_) context_->Destroy(Op::kDestroyCq, cqn_);
}

const mlx5_cqe64* SoftCompletionQueue::CqeAt(uint64_t position) const {
  return reinterpret_cast<const mlx5_cqe64*>(memory_->data() + (position & (depth_ - 1)) * 64);
}

Result<size_t> SoftCompletionQueue::Poll(std::span<rnic::Completion> out) {
  if (!context_->IsOwner()) [[unlikely]]
    return context_->DeadStatus();
  const uint64_t begin = consumer_.load(std::memory_order_relaxed);
  uint64_t position = begin;
  size_t count = 0;
  for (; count < out.size(); ++position) {
    const mlx5_cqe64* cqe = CqeAt(position);
    if (!rnic::CqeReady(cqe, static_cast<uint32_t>(position), depth_)) break;
    rnic::Completion& completion = out[count];
    completion = rnic::DecodeCqe(*cqe);
    // Unknown: the queue pair was destroyed; nobody waits for its work.
    SoftQueuePair* qp = context_->qps().Find(completion.qpn);
    if (qp != nullptr && qp->Resolve(position, &completion)) ++count;
  }
  if (position != begin) {
    consumer_.store(position, std::memory_order_relaxed);
    // Release: the device may overwrite these CQEs once it sees the index.
    std::atomic_ref(*doorbell_record_)
        .store(htobe32(static_cast<uint32_t>(position) & 0xffffff), std::memory_order_release);
  } else if (!context_->Alive()) [[unlikely]] {
    return context_->DeadStatus();
  }
  return count;
}

Status SoftCompletionQueue::Arm(bool solicited_only, uint32_t completions) {
  if (!channel_) return NotSupported("this completion queue was created without events");
  if (!context_->Usable()) return context_->DeadStatus();
  // An engine that sleeps has nothing to complete: what it has completed, the caller's next Poll
  // finds. Of a queue that has overrun the engine tells when it wakes for its heartbeat.
  context_->WriteUar(arm_index_, ArmValue(consumer_.load(std::memory_order_relaxed), solicited_only,
                                          std::clamp(completions, 1u, kMostArmed)));
  return {};
}

Result<uint32_t> SoftCompletionQueue::TakeEvents() {
  if (!channel_) return NotSupported("this completion queue was created without events");
  if (!context_->IsOwner()) return context_->DeadStatus();
  std::array<std::byte, 64> events;
  uint32_t taken = 0;
  for (;;) {
    const ssize_t n = read(channel_.get(), events.data(), events.size());
    if (n > 0) taken += static_cast<uint32_t>(n);
    if (n == 0) return context_->DeadStatus();
    if (n < 0 && errno == EINTR) continue;
    if (n < static_cast<ssize_t>(events.size())) return taken;
  }
}

uint64_t SoftCompletionQueue::Written() const {
  uint64_t position = consumer_.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < depth_; ++i, ++position) {
    if (!rnic::CqeReady(CqeAt(position), static_cast<uint32_t>(position), depth_)) break;
  }
  return position;
}

}  // namespace hyperloop::softrnic
