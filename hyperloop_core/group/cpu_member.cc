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
#include <string_view>
#include <thread>

#include "base/cpu_pause.h"
#include "base/signal_event.h"
#include "group/infos.h"
#include "group/polled_memory.h"
#include "hyperloop/core/out_of_memory.h"
#include "hyperloop/core/text.h"
#include "rnic/wqe.h"

namespace hyperloop {

using rnic::Opcode;
using rnic::SendRequest;
using rnic::Sge;

namespace {

constexpr size_t kMaxDirty = 64;       // ranges; more are made durable even without a flush
constexpr uint32_t kBlocksOfSlot = 8;  // of the send ring, where messages are inline
constexpr uint32_t kMostCarriedInline =
    64;  // bytes; more of them cost the CPU more than the device
// Of the largest group's message.
static_assert(rnic::WqeBlocks((2 + rnic::InlineSegments(CpuMessageBytes(kMaxGroupSize) +
                                                        kMostCarriedInline)) *
                              rnic::kSegmentBytes) <= kBlocksOfSlot - 2,
              "a slot has room for a message of 6 blocks and the WRITE of its data");
constexpr uint32_t kClockInterval = 64;
// A polling thread looks so seldom at completions that it does not wait for: those are errors.
constexpr uint32_t kTurnsBetweenLooks = 16;
// The check covers bytes of the primary's region that its device fetches later.
constexpr std::string_view kWhyNotWhole =
    ": either the node before sent something else, or the primary's program changed bytes of a "
    "write that was under way";
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

Status CpuMember::MakeRing(rnic::Device& device, rnic::ProtectionDomain& pd) {
  slot_bytes_ = CpuSlotBytes(geometry_.group_size);
  const size_t bytes = size_t{geometry_.slots} * slot_bytes_;
  HL_ASSIGN_OR_RETURN(ring_, device.AllocateBuffer(bytes));
  HL_ASSIGN_OR_RETURN(ring_mr_, pd.Register(ring_->data(), ring_->size(),
                                            rnic::kLocalWrite | rnic::kRemoteWrite, {}));
  HL_ASSIGN_OR_RETURN(staging_, device.AllocateBuffer(bytes));
  HL_ASSIGN_OR_RETURN(staging_mr_,
                      pd.Register(staging_->data(), staging_->size(), rnic::kLocalWrite, {}));
  slots_ = ring_->data();
  places_ = staging_->data();
  places_lkey_ = staging_mr_->lkey();
  return Status::Ok();
}

Status CpuMember::Build(rnic::Device& device, rnic::ProtectionDomain& pd,
                        rnic::MemoryRegion& region) {
  const uint32_t slots = geometry_.slots;
  HL_RETURN_IF_ERROR(MakeRing(device, pd));
  // Short messages travel inside the request where the device can: it need not fetch them.
  most_inline_ = std::min(device.caps().max_inline,
                          CpuMessageBytes(geometry_.group_size) + kMostCarriedInline);
  // At most half of the slots, a window, have requests here: a WRITE of data, and a message of at
  // most 6 blocks. A smaller ring is no error: what does not fit waits.
  const uint32_t message_blocks =
      rnic::WqeBlocks((2 + rnic::InlineSegments(most_inline_)) * rnic::kSegmentBytes);
  const uint32_t send_ring =
      std::min(message_blocks > 1 ? kBlocksOfSlot * slots : 2 * slots, uint32_t{kMaxRingBlocks});
  HL_ASSIGN_OR_RETURN(
      cq_, device.CreateCq({.depth = (events() ? slots : 1) + send_ring, .events = events()}));
  rnic::QpAttr attr;
  attr.send_cq = attr.recv_cq = cq_.get();
  attr.send_wqebbs = send_ring;
  attr.recv_wqes = 0;
  attr.link_timeout = kMemberPatience;
  attr.max_inline = most_inline_;
  attr.remote_access = 0;  // the next node only answers
  HL_ASSIGN_OR_RETURN(down_, pd.CreateQueuePair(attr));
  attr.remote_access = rnic::kRemoteWrite | rnic::kRemoteRead;
  attr.send_wqebbs = 16;
  attr.max_inline = 0;
  attr.recv_wqes = events() ? slots : 1;
  HL_ASSIGN_OR_RETURN(up_, pd.CreateQueuePair(attr));
  if (events()) {
    stop_fd_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!stop_fd_) return FromErrno(errno, "eventfd");
    receive_sge_ = {reinterpret_cast<uint64_t>(places_), 1, places_lkey_};
    receives_.assign(slots / 4, {.id = 0, .sges = std::span(&receive_sge_, 1)});
  } else {
    receives_.assign(1, {});  // it has no bytes: no request can succeed in writing there
  }
  region_ = reinterpret_cast<std::byte*>(region.addr());
  info_ = InfoOf(device, region, options_.position, geometry_);
  info_.up_qpn = up_->qpn();
  info_.down_qpn = down_->qpn();
  info_.staging_addr = reinterpret_cast<uint64_t>(slots_);
  info_.staging_rkey = ring_mr_->rkey();
  seed_ = CpuRingSeed(info_);
  dirty_.reserve(kMaxDirty);
  outgoing_.reserve(slots + 2 * kBatch);
  outgoing_sges_.reserve(slots + 2 * kBatch);
  // A request gives its room in the ring back when the next signaled request completes. At most a
  // quarter of the ring holds requests behind the last signaled one.
  signal_interval_ = send_ring / (4 * message_blocks);
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
    const MemberInfo& member = chain[options_.position + 1];
    next_region_ = member.region_addr;
    next_region_rkey_ = member.region_rkey;
    next_addr_ = member.staging_addr;
    next_rkey_ = member.staging_rkey;
    next_seed_ = CpuRingSeed(member);
  }
  HL_RETURN_IF_ERROR(down_->Connect(next).WithContext("connecting to the next node"));
  HL_RETURN_IF_ERROR(up_->Connect(previous).WithContext("connecting to the previous node"));
  for (int part = 0; part < (events() ? 4 : 1); ++part) HL_RETURN_IF_ERROR(PostReceives());
  if (driver_ == Driver::kCaller) return Status::Ok();
  return StartThread();
}

Status CpuMember::PostReceives() {
  return up_->PostReceive(receives_).WithContext("posting receives");
}

// --- serving

Result<size_t> CpuMember::Turn() {
  if (!failure_.ok()) [[unlikely]]
    return failure_;
  if (!events() && signaled_ == 0 && NothingCame(LastWord()) &&
      ++turns_ % kTurnsBetweenLooks != 0) {
    return size_t{0};
  }
  size_t done = 0;
  if (!Work(&done)) [[unlikely]]
    return failure_;
  return done;
}

bool CpuMember::Work(size_t* done) {
  if (events()) {
    if (!TakeCompletions(done)) return false;
  } else {
    if (!TakeFromRing(done)) return false;
    if ((*done == 0 || signaled_ != 0) && !TakeCompletions(done)) return false;
  }
  if (*done == 0) return true;
  failure_ = PostOutgoing();
  if (!failure_.ok() || !events()) return failure_.ok();
  for (; failure_.ok() && consumed_ >= receives_.size(); consumed_ -= receives_.size())
    failure_ = PostReceives();
  return failure_.ok();
}

bool CpuMember::TakeFromRing(size_t* done) {
  for (; *done < kBatch && MessageCame(); ++*done)
    if (!Serve()) return false;
  return failure_.ok();
}

bool CpuMember::TakeCompletions(size_t* done) {
  const Result<size_t> taken = cq_->Poll(completions_);
  if (!taken.ok()) {
    failure_ = taken.status();
    return false;
  }
  for (size_t i = 0; i < *taken; ++i)
    if (!Complete(completions_[i])) return false;
  *done += *taken;
  return true;
}

uint64_t CpuMember::LastWord() const {
  const std::byte* const end = slots_ + (size_t{geometry_.slot(served_)} + 1) * slot_bytes_;
  return LoadPolled(reinterpret_cast<const uint64_t*>(end - sizeof(uint64_t)));
}

// In the first lap a slot is empty.
bool CpuMember::NothingCame(uint64_t last_word) const {
  const uint64_t due = served_ + 1;
  return last_word == (due > geometry_.slots ? due - geometry_.slots : 0);
}

bool CpuMember::MessageCame() {
  const uint64_t last_word = LastWord();
  if (NothingCame(last_word)) return false;
  // The place still has the slot's message of the last lap. All that was sent on from there is
  // answered, because the window is at most half a lap.
  const size_t end = (size_t{geometry_.slot(served_)} + 1) * slot_bytes_;
  const CpuPlace place(places_ + end, geometry_.group_size);
  if (!TakeCpuMessage(slots_ + end, seed_, place, &arrived_)) [[unlikely]] {
    if (!TornForTooLong()) return false;
    // That copy may be older than the clock: this thread may have lain still in between.
    if (!TakeCpuMessage(slots_ + end, seed_, place, &arrived_)) {
      failure_ = NotWhole(LastWord());
      return false;
    }
  }
  torn_since_ = {};
  return true;
}

// A message whose bytes are still arriving looks like one that is wrong.
bool CpuMember::TornForTooLong() {
  const auto now = std::chrono::steady_clock::now();
  if (torn_since_ == std::chrono::steady_clock::time_point{}) torn_since_ = now;
  return now - torn_since_ >= kMostTorn;
}

Status CpuMember::NotWhole(uint64_t last_word) const {
  return Corruption(Text(
      "what lies in the ring where operation ", served_ + 1, " was due ends with number ",
      last_word, " and has been no whole message for ", kMostTorn.count(), " s", kWhyNotWhole));
}

bool CpuMember::Complete(const rnic::Completion& completion) {
  if (completion.status != rnic::WcStatus::kSuccess) {
    const char* const queue = completion.qpn == info_.up_qpn ? "the queue from the previous node"
                                                             : "the queue to the next node";
    failure_ = Aborted(Text(queue, " failed: ", rnic::WcStatusName(completion.status), " after ",
                            served_, " operations"));
    return false;
  }
  if (completion.opcode == rnic::WcOpcode::kSendSide) {  // ring room
    if (signaled_ != 0) --signaled_;
    return true;
  }
  if (!events()) {
    failure_ = Corruption(Text("the previous node sent a request that takes a receive, after ",
                               served_, " operations: datapath cpu-polling has none"));
    return false;
  }
  ++consumed_;
  if (completion.opcode != rnic::WcOpcode::kReceiveWriteImm ||
      completion.imm != geometry_.slot(served_) || !MessageCame()) {
    failure_ = Corruption(Text("a message with immediate ", completion.imm, ", of ",
                               completion.byte_length, " B, came where operation ", served_ + 1,
                               " was due, and brought no whole message", kWhyNotWhole));
    return false;
  }
  return Serve();
}

// Serves the message in `arrived_`. A long write has landed already, because the queue keeps the
// order.
bool CpuMember::Serve() {
  if (Status bad = DecodeCpuMessage(arrived_.place().message(), served_ + 1, info_.region_size,
                                    geometry_.group_size, &operation_);
      !bad.ok()) [[unlikely]] {
    failure_ = std::move(bad);
    return false;
  }
  if (!Apply()) return false;
  Forward();
  ++served_;
  return true;
}

// The write, the copy, then the CAS.
bool CpuMember::Apply() {
  const CpuPlace& place = arrived_.place();
  ReplicaResult result{0, place.message().result.sequence};
  const Range& write = operation_.write;
  if (const uint32_t carried = CarriedBytes(write.size); carried != 0)
    std::memcpy(region_ + write.offset, place.carried(carried), carried);
  if (const Operation::Copy& copy = operation_.copy; copy.size != 0)
    std::memcpy(region_ + copy.destination, region_ + copy.source, copy.size);
  const Operation::Cas& cas = operation_.cas;
  if (cas.present && (cas.execute_map >> options_.position & 1) != 0) {
    std::atomic_ref word(*reinterpret_cast<uint64_t*>(region_ + cas.offset));
    result.original = cas.expected;
    word.compare_exchange_strong(result.original, cas.desired);
  }
  if (options_.persist) {
    failure_ = Durable();
    if (!failure_.ok()) return false;
  }
  arrived_.SetResult(options_.position, result);
  return true;
}

Status CpuMember::Durable() {
  const Operation& operation = operation_;
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

// A request that sends `length` bytes of the message in `arrived_`.
SendRequest& CpuMember::Add(const std::byte* at, uint32_t length) {
  outgoing_sges_.push_back({reinterpret_cast<uint64_t>(at), length, places_lkey_});
  SendRequest& request = outgoing_.emplace_back();
  request.inline_data = length <= most_inline_;
  request.rkey = next_rkey_;
  return request;
}

void CpuMember::Forward() {
  const uint32_t slot = geometry_.slot(served_), size = geometry_.group_size;
  const CpuPlace& place = arrived_.place();
  if (geometry_.is_tail(options_.position)) {
    SendRequest& ack = Add(place.begin() + kCpuMessageResult, ResultBytes(size));
    ack.opcode = Opcode::kWriteImm;
    ack.imm = slot;
    ack.remote_addr = next_addr_ + uint64_t{slot} * AckStride(size);
    return;
  }
  const Range& write = operation_.write;
  const uint32_t carried = CarriedBytes(write.size);
  if (carried != write.size) {
    outgoing_sges_.push_back({reinterpret_cast<uint64_t>(region_) + write.offset,
                              static_cast<uint32_t>(write.size), info_.region_lkey});
    SendRequest& data = outgoing_.emplace_back();
    data.opcode = Opcode::kWrite;
    data.remote_addr = next_region_ + write.offset;
    data.rkey = next_region_rkey_;
  }
  arrived_.Finish(next_seed_);
  const uint32_t length = carried + CpuMessageBytes(size);
  SendRequest& message = Add(place.carried(carried), length);
  message.opcode = events() ? Opcode::kWriteImm : Opcode::kWrite;
  message.solicited = events();
  message.imm = slot;
  message.remote_addr = CpuSlotEnd(next_addr_, slot, size) - length;
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
  signaled_ += signaled ? 1 : 0;
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
    if (events()) {
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
