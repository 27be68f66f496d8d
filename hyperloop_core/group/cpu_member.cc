#include "group/cpu_member.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string>
#include <thread>

#include "base/cpu_pause.h"
#include "base/signal_event.h"
#include "group/cpu_message.h"
#include "group/infos.h"
#include "hyperloop/core/out_of_memory.h"
#include "hyperloop/core/text.h"

namespace hyperloop {

using rnic::Opcode;
using rnic::SendRequest;
using rnic::Sge;

namespace {

constexpr size_t kMaxDirty = 64;          // ranges; more are made durable even without a flush
constexpr uint32_t kBlocksOfMessage = 4;  // of the send ring at most, inline
constexpr uint32_t kClockInterval = 64;
constexpr auto kMostIdle = std::chrono::microseconds(50);

}  // namespace

CpuMember::CpuMember(const MemberOptions& options, const GroupGeometry& geometry, Driver driver)
    : options_(options), geometry_(geometry), driver_(driver), owner_(getpid()) {}

Result<std::unique_ptr<Member>> CpuMember::Create(rnic::Device& device, rnic::ProtectionDomain& pd,
                                                  rnic::MemoryRegion& region,
                                                  const MemberOptions& options,
                                                  const GroupGeometry& geometry, Driver driver) {
  if (geometry.datapath == Datapath::kCpuEvent && !device.caps().completion_events) {
    return NotSupported(Text("datapath cpu-event sleeps on completion channels; provider '",
                             device.caps().provider,
                             "' has none: use another device, or datapath cpu-polling"));
  }
  if (options.cpu >= CPU_SETSIZE) {
    return InvalidArgument(
        Text("processor ", options.cpu, " for the datapath's thread: below ", CPU_SETSIZE));
  }
  std::unique_ptr<CpuMember> member(new CpuMember(options, geometry, driver));
  HL_RETURN_IF_ERROR(
      member->Build(device, pd, region).WithContext("setting up the replica's queues"));
  return std::unique_ptr<Member>(std::move(member));
}

Status CpuMember::Build(rnic::Device& device, rnic::ProtectionDomain& pd,
                        rnic::MemoryRegion& region) {
  const uint32_t slots = geometry_.slots;
  const size_t stride = (CpuMessageBytes(geometry_.group_size) + 63) / 64 * 64;
  HL_ASSIGN_OR_RETURN(staging_, device.AllocateBuffer(slots * stride));
  HL_ASSIGN_OR_RETURN(staging_mr_,
                      pd.Register(staging_->data(), staging_->size(), rnic::kLocalWrite, {}));
  const bool events = geometry_.datapath == Datapath::kCpuEvent;
  // Messages travel inside the request where the device can: it need not fetch them.
  inline_messages_ = device.caps().max_inline >= CpuMessageBytes(geometry_.group_size);
  // The ring has room for WRITE and SEND of every slot; an inline message takes up to 4 blocks. A
  // smaller ring is no error: what does not fit waits.
  const uint32_t send_ring = std::min(inline_messages_ ? 2 * kBlocksOfMessage * slots : 2 * slots,
                                      uint32_t{kMaxRingBlocks});
  HL_ASSIGN_OR_RETURN(cq_, device.CreateCq({.depth = slots + send_ring, .events = events}));
  rnic::QpAttr attr;
  attr.send_cq = attr.recv_cq = cq_.get();
  attr.send_wqebbs = send_ring;
  attr.recv_wqes = 0;
  attr.link_timeout = kMemberPatience;
  attr.max_inline = inline_messages_ ? CpuMessageBytes(geometry_.group_size) : 0;
  attr.remote_access = 0;  // the next node only answers
  HL_ASSIGN_OR_RETURN(down_, pd.CreateQueuePair(attr));
  attr.remote_access = rnic::kRemoteWrite | rnic::kRemoteRead;
  attr.send_wqebbs = 16;
  attr.max_inline = 0;
  attr.recv_wqes = slots;
  HL_ASSIGN_OR_RETURN(up_, pd.CreateQueuePair(attr));
  if (events) {
    stop_fd_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!stop_fd_) return FromErrno(errno, "eventfd");
  }
  region_ = reinterpret_cast<std::byte*>(region.addr());
  info_ = InfoOf(device, region, options_.position, geometry_);
  info_.up_qpn = up_->qpn();
  info_.down_qpn = down_->qpn();
  dirty_.reserve(kMaxDirty);
  outgoing_.reserve(slots + 2 * kBatch);
  outgoing_sges_.reserve(slots + 2 * kBatch);
  // A request gives its room in the ring back when the next signaled request completes. At most a
  // quarter of the ring holds requests behind the last signaled one.
  signal_interval_ = send_ring / (4 * kBlocksOfMessage);
  receive_sges_.resize(slots / 4);
  receives_.resize(slots / 4);
  return Status::Ok();
}

CpuMember::~CpuMember() {
  EndThread();
  static_cast<void>(RanOutOfMemory([this] {
    if (up_) up_->Reset().IgnoreError();
    if (down_) down_->Reset().IgnoreError();
  }));
}

Status CpuMember::Connect(const PrimaryInfo& primary, std::span<const MemberInfo> chain) {
  if (connected_) return InvalidArgument("this member is connected already; create a new one");
  HL_RETURN_IF_ERROR(CheckInfos(primary, chain, geometry_, info_));
  connected_ = true;
  const auto [previous, next] = Neighbours(primary, chain, options_.position);
  if (geometry_.is_tail(options_.position)) {
    next_addr_ = primary.ack_addr;
    next_rkey_ = primary.ack_rkey;
  } else {
    next_addr_ = chain[options_.position + 1].region_addr;
    next_rkey_ = chain[options_.position + 1].region_rkey;
  }
  HL_RETURN_IF_ERROR(down_->Connect(next).WithContext("connecting to the next node"));
  HL_RETURN_IF_ERROR(up_->Connect(previous).WithContext("connecting to the previous node"));
  for (uint32_t first = 0; first < geometry_.slots; first += geometry_.slots / 4)
    HL_RETURN_IF_ERROR(PostReceives(first, geometry_.slots / 4));
  if (driver_ == Driver::kCaller) return Status::Ok();
  return StartThread();
}

Sge CpuMember::Place(uint32_t slot, uint32_t offset, uint32_t length) const {
  return {reinterpret_cast<uint64_t>(MessageAt(slot)) + offset, length, staging_mr_->lkey()};
}

CpuMessage* CpuMember::MessageAt(uint32_t slot) const {
  const size_t stride = (CpuMessageBytes(geometry_.group_size) + 63) / 64 * 64;
  return reinterpret_cast<CpuMessage*>(staging_->data() + slot * stride);
}

// A slot's buffer receives again a lap later. By then everything that was forwarded from it is
// answered, because the window is at most half a lap.
Status CpuMember::PostReceives(uint32_t first, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t slot = geometry_.slot(first + i);
    receive_sges_[i] = Place(slot, 0, CpuMessageBytes(geometry_.group_size));
    receives_[i] = {.id = slot, .sges = std::span(&receive_sges_[i], 1)};
  }
  return up_->PostReceive(std::span(receives_.data(), count)).WithContext("posting receives");
}

// --- serving

Result<size_t> CpuMember::Turn() {
  if (!failure_.ok()) [[unlikely]]
    return failure_;
  HL_ASSIGN_OR_RETURN(const size_t taken, cq_->Poll(completions_));
  if (taken == 0) [[likely]]
    return taken;
  for (size_t i = 0; i < taken; ++i) {
    if (Status served = Serve(completions_[i]); !served.ok()) {
      failure_ = std::move(served);
      return failure_;
    }
  }
  if (Status posted = PostOutgoing(); !posted.ok()) {
    failure_ = std::move(posted);
    return failure_;
  }
  while (consumed_ >= geometry_.slots / 4) {
    const uint32_t first = geometry_.slot(served_ - consumed_);
    failure_ = PostReceives(first, geometry_.slots / 4);
    HL_RETURN_IF_ERROR(failure_);
    consumed_ -= geometry_.slots / 4;
  }
  return taken;
}

Status CpuMember::Serve(const rnic::Completion& completion) {
  if (completion.status != rnic::WcStatus::kSuccess) {
    const char* const queue = completion.qpn == info_.up_qpn ? "the queue from the previous node"
                                                             : "the queue to the next node";
    return Aborted(Text(queue, " failed: ", rnic::WcStatusName(completion.status), " after ",
                        served_, " operations"));
  }
  if (completion.opcode == rnic::WcOpcode::kSendSide) return Status::Ok();  // ring room
  const uint64_t m = served_;
  CpuMessage* const message = MessageAt(geometry_.slot(m));
  if (completion.id != geometry_.slot(m) ||
      completion.byte_length != CpuMessageBytes(geometry_.group_size)) {
    return Corruption(Text("a message of ", completion.byte_length, " B in place ", completion.id,
                           " where operation ", m + 1, " was due"));
  }
  HL_ASSIGN_OR_RETURN(const Operation operation,
                      DecodeCpuMessage(*message, m + 1, info_.region_size, geometry_.group_size));
  HL_RETURN_IF_ERROR(Apply(operation, message));
  Forward(m, operation);
  ++served_;
  ++consumed_;
  return Status::Ok();
}

// The write has landed already, because the queue keeps the order. The copy follows, then the CAS.
Status CpuMember::Apply(const Operation& operation, CpuMessage* message) {
  ReplicaResult& result = Results(message)[options_.position];
  result.original = 0;
  if (const Operation::Copy& copy = operation.copy; copy.size != 0)
    std::memcpy(region_ + copy.destination, region_ + copy.source, copy.size);
  const Operation::Cas& cas = operation.cas;
  if (cas.present && (cas.execute_map >> options_.position & 1) != 0) {
    std::atomic_ref word(*reinterpret_cast<uint64_t*>(region_ + cas.offset));
    result.original = cas.expected;
    word.compare_exchange_strong(result.original, cas.desired);
  }
  HL_RETURN_IF_ERROR(Durable(operation));
  result.word = message->result.sequence;
  return Status::Ok();
}

Status CpuMember::Durable(const Operation& operation) {
  if (!options_.persist) return Status::Ok();
  const auto note = [this](uint64_t offset, uint64_t size) {
    if (size != 0) dirty_.push_back({offset, offset + size});
  };
  note(operation.write.offset, operation.write.size);
  note(operation.copy.destination, operation.copy.size);
  if (operation.cas.present) note(operation.cas.offset, sizeof(uint64_t));
  if (!operation.flush && operation.copy.size == 0 && !operation.cas.present &&
      dirty_.size() + 3 <= kMaxDirty) {
    return Status::Ok();
  }
  for (const DirtyRange& range : dirty_) {
    HL_RETURN_IF_ERROR(options_.persist(range.begin, range.end - range.begin)
                           .WithContext("making an operation durable"));
  }
  dirty_.clear();
  return Status::Ok();
}

SendRequest& CpuMember::Add(const Sge& sge) {
  outgoing_sges_.push_back(sge);
  return outgoing_.emplace_back();
}

void CpuMember::Forward(uint64_t m, const Operation& operation) {
  const uint32_t slot = geometry_.slot(m);
  if (geometry_.is_tail(options_.position)) {
    SendRequest& ack = Add(Place(slot, kCpuMessageResult, ResultBytes(geometry_.group_size)));
    ack.opcode = Opcode::kWriteImm;
    ack.inline_data = inline_messages_;
    ack.imm = slot;
    ack.remote_addr = next_addr_ + uint64_t{slot} * AckStride(geometry_.group_size);
    ack.rkey = next_rkey_;
    return;
  }
  if (operation.write.size != 0) {
    SendRequest& write = Add({reinterpret_cast<uint64_t>(region_) + operation.write.offset,
                              static_cast<uint32_t>(operation.write.size), info_.region_lkey});
    write.opcode = Opcode::kWrite;
    write.remote_addr = next_addr_ + operation.write.offset;
    write.rkey = next_rkey_;
  }
  SendRequest& send = Add(Place(slot, 0, CpuMessageBytes(geometry_.group_size)));
  send.opcode = Opcode::kSend;
  send.inline_data = inline_messages_;
  send.solicited = true;
}

Status CpuMember::PostOutgoing() {
  const size_t count = outgoing_.size();
  if (count == 0) return Status::Ok();
  for (size_t i = 0; i < count; ++i) outgoing_[i].sges = std::span(&outgoing_sges_[i], 1);
  const bool signaled = unsignaled_ + count > signal_interval_;
  outgoing_.back().signaled = signaled;  // its completion gives the ring's room back
  const Status posted = down_->Post(outgoing_);
  if (posted.code() == Code::kNoSpace) {  // the next completion tries again
    outgoing_.back().signaled = false;
    // An operation has two requests, and the window is half the slots.
    if (count <= geometry_.slots) return Status::Ok();
    return Corruption(
        Text(count, " requests wait for the next node: the primary has more than the window of ",
             geometry_.slots / 2, " operations under way"));
  }
  if (!posted.ok()) return posted.WithContext("posting to the next node");
  unsignaled_ = signaled ? 0 : unsignaled_ + static_cast<uint32_t>(count);
  outgoing_.clear();
  outgoing_sges_.clear();
  return Status::Ok();
}

// --- the thread

// The thread receives none of the process's signals, and is pinned to its processor before it
// serves anything.
Status CpuMember::StartThread() {
  pthread_attr_t attr;
  if (const int error = pthread_attr_init(&attr); error != 0)
    return FromErrno(error, "attributes of the datapath's thread");
  sigset_t all;
  sigfillset(&all);
  pthread_attr_setsigmask_np(&attr, &all);
  std::string what = "starting the datapath's thread";
  if (options_.cpu >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<size_t>(options_.cpu), &set);
    pthread_attr_setaffinity_np(&attr, sizeof set, &set);
    what += Text(" on processor ", options_.cpu);
  }
  const auto body = [](void* self) -> void* {
    auto* const member = static_cast<CpuMember*>(self);
    if (RanOutOfMemory([member] { member->Run(); })) member->Fail(NoSpace("out of memory"));
    return nullptr;
  };
  const int error = pthread_create(&thread_, &attr, body, this);
  pthread_attr_destroy(&attr);
  if (error == EAGAIN) return NoSpace(what + ": no memory for it, or too many threads (ulimit -u)");
  if (error != 0) return FromErrno(error, what);
  started_ = true;
  pthread_setname_np(thread_, "hyperloop-chain");
  return Status::Ok();
}

// A forked child has no such thread, and its stop_fd_ is its parent's.
void CpuMember::EndThread() {
  if (!started_ || getpid() != owner_) return;
  stop_.store(true, std::memory_order_relaxed);
  if (stop_fd_) SignalEvent(stop_fd_.get());
  pthread_join(thread_, nullptr);
}

void CpuMember::Run() {
  using Clock = std::chrono::steady_clock;
  const bool events = geometry_.datapath == Datapath::kCpuEvent;
  Clock::time_point idle_since{};
  uint32_t idle_turns = 0;
  bool yields = false;
  while (!stop_.load(std::memory_order_relaxed)) {
    const Result<size_t> taken = Turn();
    if (!taken.ok()) return Fail(taken.status());
    if (*taken != 0) {
      idle_turns = 0;
      yields = false;
      continue;
    }
    if (events) {
      if (!Sleep()) return;
      continue;
    }
    CpuPause();
    if (yields) std::this_thread::yield();
    if (++idle_turns % kClockInterval != 0 || yields) continue;
    const Clock::time_point now = Clock::now();
    if (idle_turns == kClockInterval) idle_since = now;
    yields = now - idle_since > kMostIdle;
  }
}

bool CpuMember::Sleep() {
  // Errors always notify. While requests wait for room, completions of sends must notify, too.
  const bool solicited_only = outgoing_.empty();
  if (Status asked = cq_->RequestNotify(solicited_only); !asked.ok()) return Fail(asked), false;
  const Result<size_t> taken = Turn();  // takes what came before the request
  if (!taken.ok()) return Fail(taken.status()), false;
  if (*taken != 0) return true;
  std::array<pollfd, 2> waits{pollfd{.fd = cq_->event_fd(), .events = POLLIN, .revents = 0},
                              pollfd{.fd = stop_fd_.get(), .events = POLLIN, .revents = 0}};
  ::poll(waits.data(), waits.size(), -1);
  if (waits[0].revents == 0) return true;
  if (const auto events = cq_->TakeEvents(); !events.ok()) return Fail(events.status()), false;
  return true;
}

void CpuMember::Fail(const Status& status) {
  static_cast<void>(RanOutOfMemory([this] { up_->Reset().IgnoreError(); }));
  static_cast<void>(RanOutOfMemory([&] {
    if (options_.failed) options_.failed(status);
  }));
}

}  // namespace hyperloop
