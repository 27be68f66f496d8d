#include "device/remote_access.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "hyperloop/core/text.h"

namespace hyperloop {
namespace {

constexpr auto kSleepAfter = std::chrono::microseconds(200);
constexpr auto kSleep = std::chrono::microseconds(50);

using Clock = std::chrono::steady_clock;

Status FromCompletion(rnic::WcStatus status) {
  std::string text = Text("the other end answered: ", rnic::WcStatusName(status));
  switch (status) {
    case rnic::WcStatus::kRemoteAccess:
    case rnic::WcStatus::kRemoteInvalidRequest:
    case rnic::WcStatus::kRemoteOperation:
      return ProtectionError(std::move(text));
    case rnic::WcStatus::kLocalProtection:
    case rnic::WcStatus::kLocalLength:
    case rnic::WcStatus::kLocalQpOperation:
      return Internal(std::move(text));
    default:
      return Unavailable(std::move(text));
  }
}

Status CheckInside(std::string_view verb, const RemoteMemory& memory, uint64_t offset,
                   size_t size) {
  if (offset <= memory.size && size <= memory.size - offset) return {};
  return InvalidArgument(
      Text(verb, " of ", size, " B at ", offset, " leaves the ", memory.size, " B"));
}

}  // namespace

Result<std::unique_ptr<RemoteAccess>> RemoteAccess::Create(rnic::Device& device,
                                                           std::chrono::nanoseconds timeout,
                                                           std::chrono::nanoseconds silence) {
  std::unique_ptr<RemoteAccess> access(new RemoteAccess(device, timeout));
  HL_ASSIGN_OR_RETURN(access->pd_, device.AllocatePd());
  HL_ASSIGN_OR_RETURN(access->bounce_, device.AllocateBuffer(size_t{kReads} * kPiece));
  HL_ASSIGN_OR_RETURN(access->mr_,
                      access->pd_->Register(access->bounce_->data(), access->bounce_->size(),
                                            rnic::kLocalWrite, {}));
  HL_ASSIGN_OR_RETURN(access->cq_, device.CreateCq({.depth = 16}));
  rnic::QpAttr attr;
  attr.send_cq = attr.recv_cq = access->cq_.get();
  attr.send_wqebbs = 16;
  attr.recv_wqes = 0;
  // A cut between machines is waited for as long as the caller allows.
  attr.link_timeout =
      std::min(std::chrono::duration_cast<std::chrono::milliseconds>(std::min(timeout, silence)),
               std::chrono::milliseconds(rnic::kMaxSilence));
  HL_ASSIGN_OR_RETURN(access->qp_, access->pd_->CreateQueuePair(attr));
  return access;
}

RemoteAccess::~RemoteAccess() = default;

Status RemoteAccess::Post(rnic::Opcode opcode, const RemoteMemory& memory, uint64_t offset,
                          uint32_t length, uint32_t slot) {
  const rnic::Sge sge{mr_->addr() + uint64_t{slot} * kPiece, length, mr_->lkey()};
  rnic::SendRequest request;
  request.opcode = opcode;
  request.signaled = true;
  request.sges = std::span(&sge, 1);
  request.remote_addr = memory.addr + offset;
  request.rkey = memory.rkey;
  return qp_->Post(std::span(&request, 1));
}

Status RemoteAccess::Transfer(rnic::Opcode opcode, const RemoteMemory& memory, uint64_t offset,
                              uint32_t length) {
  HL_RETURN_IF_ERROR(Post(opcode, memory, offset, length));
  return WaitCompletion();
}

Result<bool> RemoteAccess::Completed() {
  rnic::Completion completion;
  HL_ASSIGN_OR_RETURN(const size_t count, cq_->Poll(std::span(&completion, 1)));
  if (count == 0) return false;
  if (completion.status != rnic::WcStatus::kSuccess) return FromCompletion(completion.status);
  return true;
}

Status RemoteAccess::WaitCompletion() {
  const auto start = Clock::now();
  for (uint32_t spins = 0;; ++spins) {
    HL_ASSIGN_OR_RETURN(const bool completed, Completed());
    if (completed) return {};
    if (!device_.alive()) return Unavailable("the RNIC daemon is gone");
    if (spins % 64 == 63) {
      const auto waited = Clock::now() - start;
      if (waited > timeout_) return TimedOut("no completion in time");
      // It does not sleep at once, because reading a log within a machine takes hundreds of
      // transfers of some ten microseconds. Between machines the daemons need the processor.
      if (waited > kSleepAfter) std::this_thread::sleep_for(kSleep);
    }
  }
}

Status RemoteAccess::FinishStarted() {
  if (broken_.ok() && std::exchange(started_, false))
    broken_ = WaitCompletion().WithContext("RDMA WRITE");
  return broken_;
}

Status RemoteAccess::StartWrite(const RemoteMemory& memory, uint64_t offset,
                                std::span<const std::byte> in) {
  HL_RETURN_IF_ERROR(CheckInside("write", memory, offset, in.size()));
  if (in.size() > kMaxStarted) {
    return InvalidArgument(Text("write of ", in.size(), " B: at most ", kMaxStarted,
                                " B are written without waiting"));
  }
  if (!mutex_.try_lock()) return Busy("another call is under way");
  const MutexLock lock(mutex_, std::adopt_lock);
  if (broken_.ok() && started_) {
    const Result<bool> completed = Completed();
    if (completed.ok() && !*completed) return Busy("the write before is under way");
    started_ = false;
    broken_ = completed.status().WithContext("RDMA WRITE");
  }
  if (!broken_.ok()) return broken_;
  std::memcpy(bounce_->data(), in.data(), in.size());
  broken_ = Post(rnic::Opcode::kWrite, memory, offset, static_cast<uint32_t>(in.size()));
  started_ = broken_.ok();
  return broken_;
}

bool RemoteAccess::broken() {
  const MutexLock lock(mutex_);
  return !broken_.ok();
}

Status RemoteAccess::Read(const RemoteMemory& memory, uint64_t offset, std::span<std::byte> out) {
  HL_RETURN_IF_ERROR(CheckInside("read", memory, offset, out.size()));
  const MutexLock lock(mutex_);
  HL_RETURN_IF_ERROR(FinishStarted());
  const size_t pieces = (out.size() + kPiece - 1) / kPiece;
  const auto piece = [out](size_t i) {
    return out.subspan(i * kPiece, std::min<size_t>(kPiece, out.size() - i * kPiece));
  };
  const auto slot = [](size_t i) { return static_cast<uint32_t>(i % kReads); };
  for (size_t posted = 0, done = 0; done < pieces; ++done) {
    for (; broken_.ok() && posted < std::min(pieces, done + kReads); ++posted) {
      const auto length = static_cast<uint32_t>(piece(posted).size());
      broken_ = Post(rnic::Opcode::kRead, memory, offset + posted * kPiece, length, slot(posted));
    }
    if (broken_.ok()) broken_ = WaitCompletion().WithContext("RDMA READ");
    if (!broken_.ok()) return broken_;
    const std::span<std::byte> to = piece(done);
    std::memcpy(to.data(), bounce_->data() + size_t{slot(done)} * kPiece, to.size());
  }
  return {};
}

Status RemoteAccess::Write(const RemoteMemory& memory, uint64_t offset,
                           std::span<const std::byte> in) {
  HL_RETURN_IF_ERROR(CheckInside("write", memory, offset, in.size()));
  const MutexLock lock(mutex_);
  HL_RETURN_IF_ERROR(FinishStarted());
  while (!in.empty()) {
    if (!broken_.ok()) return broken_;
    const auto piece = static_cast<uint32_t>(std::min<size_t>(in.size(), kPiece));
    std::memcpy(bounce_->data(), in.data(), piece);
    broken_ = Transfer(rnic::Opcode::kWrite, memory, offset, piece).WithContext("RDMA WRITE");
    if (!broken_.ok()) return broken_;
    in = in.subspan(piece);
    offset += piece;
  }
  return {};
}

Status RemoteAccess::Flush(const RemoteMemory& memory, uint64_t offset) {
  std::byte last;
  return Read(memory, offset, std::span(&last, 1));
}

}  // namespace hyperloop
