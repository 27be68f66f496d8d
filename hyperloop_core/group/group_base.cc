#include "group/group_base.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <bit>
#include <thread>

#include "base/cpu_pause.h"
#include "group/check_operation.h"
#include "group/infos.h"
#include "hyperloop/core/invariant.h"
#include "hyperloop/core/text.h"

namespace hyperloop {

using rnic::Opcode;
using rnic::SendRequest;
using rnic::Sge;

namespace {

constexpr uint32_t kCheckInterval = 64;  // turns of a waiting loop between two looks at the clock
constexpr auto kYieldAfter = std::chrono::microseconds(50);
// No sleep is longer than this, so that a dead device, and what GroupOptions::watch learns, is
// noticed even if nothing signals an event.
constexpr auto kLongestSleep = std::chrono::milliseconds(250);

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

GroupBase::GroupBase(rnic::Device& device, const GroupOptions& options,
                     const GroupGeometry& geometry, Ordering::CopiesTake copies_take)
    : device_(device),
      options_(options),
      geometry_(geometry),
      ordering_(geometry.window, copies_take) {
  pending_.resize(std::bit_ceil(size_t{geometry.window}));
  pending_mask_ = pending_.size() - 1;
}

Status GroupBase::BuildCommon(rnic::ProtectionDomain& pd, rnic::MemoryRegion& region, size_t bytes,
                              uint32_t completions) {
  HL_RETURN_IF_ERROR(CheckRegion(region));
  if (options_.ack_timeout <= std::chrono::nanoseconds::zero()) {
    return InvalidArgument("ack_timeout must be above 0: it bounds every wait for the replicas");
  }
  HL_ASSIGN_OR_RETURN(fork_detector_, ForkDetector::Create());
  HL_ASSIGN_OR_RETURN(buffer_, device_.AllocateBuffer(bytes + kSinkBytes));
  HL_ASSIGN_OR_RETURN(buffer_mr_,
                      pd.Register(buffer_->data(), buffer_->size(), rnic::kLocalWrite, {}));
  sink_ = {reinterpret_cast<uint64_t>(buffer_->data() + bytes), kFlushReadBytes,
           buffer_mr_->lkey()};

  const uint32_t local_ring = std::bit_ceil(std::max(64u, 2 * geometry_.window));
  // There is room for every acknowledgement and copy under way, and for the flush of all queues at
  // once.
  HL_ASSIGN_OR_RETURN(cq_, device_.CreateCq({.depth = std::bit_ceil(completions + local_ring),
                                             .events = options_.wait != WaitMode::kPoll}));
  HL_ASSIGN_OR_RETURN(local_, pd.CreateQueuePair(QueueAttr(local_ring)));

  info_.datapath = static_cast<uint32_t>(geometry_.datapath);
  info_.group_size = geometry_.group_size;
  info_.gid = device_.gid().raw;
  info_.rnic = device_.rnic();
  info_.window = geometry_.window;
  info_.slots = geometry_.slots;
  region_addr_ = region.addr();
  region_size_ = region.length();
  region_lkey_ = region.lkey();
  region_rkey_ = region.rkey();
  return Status::Ok();
}

rnic::QpAttr GroupBase::QueueAttr(uint32_t send_wqebbs) const {
  rnic::QpAttr attr;
  // When a replica next to this node dies, the error of its queue pair names it. An expired
  // ack_timeout names no replica, so the queue pair must give up first. Where no packet can be lost
  // it gives up soon. Over a link it gives up as late as it may, because a link that was cut may
  // heal.
  using std::chrono::milliseconds;
  const auto patience = std::chrono::duration_cast<milliseconds>(options_.ack_timeout);
  attr.ack_timeout =
      std::clamp(patience / (2 * (attr.retry_count + 1)), milliseconds(1), attr.ack_timeout);
  const auto link = std::chrono::duration_cast<milliseconds>(options_.link_timeout);
  attr.link_timeout = std::clamp(link == milliseconds(0) ? patience * 9 / 10 : link,
                                 milliseconds(1), rnic::kMaxSilence);
  attr.send_cq = attr.recv_cq = cq_.get();
  attr.recv_wqes = 0;
  attr.send_wqebbs = send_wqebbs;
  return attr;
}

Status GroupBase::ConnectLoopback() {
  return local_->Connect(local_->address()).WithContext("connecting the loopback queue");
}

// --- submission

Ticket GroupBase::Blocker(const Operation& operation) const {
  Ticket blocker = 0;
  if (submitted_ - acknowledged_ >= geometry_.window) blocker = submitted_ - geometry_.window + 1;
  if (options_.check_ordering && submitted_ != acknowledged_) {
    blocker = std::max(blocker, ordering_.Conflict(operation, acknowledged_));
  }
  return blocker;
}

Status GroupBase::ForkedStatus() const {
  return Unavailable("this group belongs to the parent process: make one of its own after fork");
}

Result<Ticket> GroupBase::Submit(const Operation& operation) {
  HL_RETURN_IF_ERROR(CheckOperation(operation, region_size_, geometry_.group_size));
  if (const Ticket blocker = Blocker(operation); blocker != 0) [[unlikely]] {
    HL_RETURN_IF_ERROR(WaitFor(blocker));
  }
  return Start(operation);
}

Result<Ticket> GroupBase::TrySubmit(const Operation& operation) {
  HL_RETURN_IF_ERROR(CheckOperation(operation, region_size_, geometry_.group_size));
  if (Blocker(operation) != 0) {
    Drain();
    if (!broken_.ok()) return broken_;
    if (const Ticket blocker = Blocker(operation); blocker != 0) {
      LookNowAndThen();
      if (!broken_.ok()) return broken_;
      return Busy(Text("operation ", blocker, " must be acknowledged first; ",
                       submitted_ - acknowledged_, " of at most ", geometry_.window,
                       " are under way"));
    }
  }
  return Start(operation);
}

Result<Ticket> GroupBase::Start(const Operation& operation) {
  if (!broken_.ok()) [[unlikely]] {
    return broken_;
  }
  if (!connected_) [[unlikely]] {
    return InvalidArgument("the group is not connected yet");
  }
  if (forked()) [[unlikely]] {
    return ForkedStatus();
  }
  // An operation takes the slot of the one that is a window older, so that one is acknowledged.
  HL_INVARIANT(submitted_ - acknowledged_ < geometry_.window);
  const Ticket ticket = submitted_ + 1;
  Status posted = Post(submitted_, operation);
  if (posted.ok() && operation.copy.size != 0) posted = PostCopy(operation.copy);
  if (!posted.ok()) [[unlikely]] {
    // Part of the operation may have been posted, so nothing can follow it.
    Break(posted.WithContext(Text("starting operation ", ticket)));
    return broken_;
  }
  ordering_.Add(operation, ticket, acknowledged_);
  pending_[ticket & pending_mask_] = {Clock::now(), copies_posted_};
  submitted_ = ticket;
  return ticket;
}

Status GroupBase::PostCopy(const Operation::Copy& copy) {
  const Sge source{region_addr_ + copy.source, static_cast<uint32_t>(copy.size), region_lkey_};
  std::array<SendRequest, 2> requests;
  requests[0].opcode = Opcode::kWrite;
  requests[0].fence = true;  // waits for the previous copy's READ: it may copy that copy's bytes
  requests[0].sges = std::span(&source, 1);
  requests[0].remote_addr = region_addr_ + copy.destination;
  requests[0].rkey = region_rkey_;
  requests[1].opcode = Opcode::kRead;  // flushes the copy and proves that it ran
  requests[1].signaled = true;
  requests[1].sges = std::span(&sink_, 1);
  requests[1].remote_addr = region_addr_;
  requests[1].rkey = region_rkey_;
  HL_RETURN_IF_ERROR(local_->Post(requests));
  ++copies_posted_;
  return Status::Ok();
}

// --- acknowledgements

void GroupBase::Drain() {
  size_t taken = 0, total = 0;
  do {
    Result<size_t> polled = cq_->Poll(completions_);
    if (!polled.ok()) [[unlikely]] {
      Break(polled.status());
      break;
    }
    taken = *polled;
    total += taken;
    for (size_t i = 0; i < taken && broken_.ok(); ++i) {
      const rnic::Completion& completion = completions_[i];
      if (completion.status != rnic::WcStatus::kSuccess) [[unlikely]] {
        BreakOn(completion);
      } else if (completion.qpn == local_->qpn()) {
        ++copies_done_;  // only the copies' READs are signaled
      } else {
        OnCompletion(completion);
      }
    }
  } while (taken == completions_.size() && broken_.ok());
  if (total == 0) return;
  AdvanceAcknowledged();
  OnCompletionsDone();
}

void GroupBase::BreakOn(const rnic::Completion& completion) {
  const std::string queue =
      completion.qpn == local_->qpn() ? "the loopback queue for copies" : QueueName(completion.qpn);
  Break({CodeOf(completion.status),
         Text(queue, " failed: ", rnic::WcStatusName(completion.status), "; ", Progress())});
}

void GroupBase::AdvanceAcknowledged() {
  const Ticket before = acknowledged_, remote = remote_acked();
  while (acknowledged_ < remote &&
         pending_[(acknowledged_ + 1) & pending_mask_].copies <= copies_done_)
    ++acknowledged_;
  HL_INVARIANT(acknowledged_ <= submitted_ && copies_done_ <= copies_posted_);
  if (acknowledged_ != before) Acknowledged(acknowledged_);
}

Status GroupBase::WaitFor(Ticket ticket) {
  constexpr auto kForEver = std::chrono::nanoseconds::max();
  if (options_.wait == WaitMode::kPoll || options_.idle) return PollFor(ticket, kForEver);
  if (options_.wait == WaitMode::kHybrid && PollingPays()) {
    HL_RETURN_IF_ERROR(PollFor(ticket, options_.poll_time));
    const bool polled = acknowledged_ >= ticket;
    vain_polls_ = polled ? 0 : vain_polls_ + 1;
    if (polled) return Status::Ok();
  }
  return SleepFor(ticket);
}

// Not after a row of polls that all ended in a sleep; then a wait now and then tries again.
bool GroupBase::PollingPays() {
  constexpr uint32_t kManyInVain = 8, kTryAgain = 64;
  return vain_polls_ < kManyInVain || ++waits_without_poll_ % kTryAgain == 0;
}

Status GroupBase::SleepFor(Ticket ticket) {
  for (;;) {
    if (!broken_.ok()) return broken_;
    Drain();
    if (acknowledged_ >= ticket) return Status::Ok();
    CheckWaiting(ticket);
    if (Status asked = RequestNotifyOf(ticket); !asked.ok()) {
      Break(std::move(asked));
      continue;
    }
    // A completion that came before the request makes no event.
    const Ticket before = acknowledged_;
    Drain();
    if (acknowledged_ == before && broken_.ok()) SleepUntilEvent();
  }
}

// An event that comes before `ticket` is done wakes this thread for nothing.
Status GroupBase::RequestNotifyOf(Ticket ticket) {
  constexpr uint64_t kMost = 1u << 16;  // of CompletionQueue::RequestNotifyAfter
  const uint64_t completions = remote_acked() < ticket ? CompletionsUntil(ticket) : 1;
  return cq_->RequestNotifyAfter(static_cast<uint32_t>(std::min(completions, kMost)));
}

void GroupBase::SleepUntilEvent() {
  const Clock::time_point oldest = pending_[(acknowledged_ + 1) & pending_mask_].submitted;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(oldest + options_.ack_timeout - Clock::now());
  const auto timeout = std::clamp(left, std::chrono::milliseconds(0), kLongestSleep);
  pollfd event{cq_->event_fd(), POLLIN, 0};
  if (::poll(&event, 1, static_cast<int>(timeout.count())) <= 0) return;  // nothing, or a signal
  if (const auto taken = cq_->TakeEvents(); !taken.ok()) Break(taken.status());
}

Status GroupBase::PollFor(Ticket ticket, std::chrono::nanoseconds time) {
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
    if (now - started >= time) return Status::Ok();
    if (now - started > kYieldAfter) std::this_thread::yield();
  }
}

void GroupBase::LookNowAndThen() {
  if (++looks_ % kCheckInterval == 0) CheckWaiting(acknowledged_ + 1);
}

void GroupBase::CheckWaiting(Ticket waits_for) {
  if (!device_.alive()) {
    Break(Unavailable(
        Text("the RNIC is gone (its daemon ended, or this is a forked child); ", Progress())));
    return;
  }
  if (options_.watch) {
    if (Status seen = options_.watch(); !seen.ok()) {
      Break({seen.code(), Text(seen.message(), "; ", Progress())});
      return;
    }
  }
  const Ticket oldest = acknowledged_ + 1;
  if (Clock::now() - pending_[oldest & pending_mask_].submitted <= options_.ack_timeout) return;
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(options_.ack_timeout).count();
  const std::string hint =
      remote_acked() >= oldest ? "this node has not done its own copy" : TimeoutHint();
  Break(TimedOut(Text("no acknowledgement of operation ", oldest, " within ", milliseconds,
                      " ms (waiting for ", waits_for, "); ", Progress(), "; ", hint)));
}

std::string GroupBase::NameOf(uint32_t replica) const {
  const std::string number = Text("replica ", replica);
  if (replica >= options_.replica_names.size()) return number;
  return number + " (" + options_.replica_names[replica] + ")";
}

std::string GroupBase::Progress() const {
  return Text(acknowledged_, " of ", submitted_, " operations acknowledged, ", Answers(), ", ",
              copies_done_, " of ", copies_posted_, " copies here done");
}

void GroupBase::Break(Status status) {
  if (broken_.ok()) broken_ = std::move(status);
}

Status GroupBase::Wait(Ticket ticket, OperationResult* result) {
  if (ticket == 0 || ticket > submitted_) {
    return InvalidArgument(
        Text("ticket ", ticket, " was never given out; the newest is ", submitted_));
  }
  if (forked()) [[unlikely]] {
    return ForkedStatus();
  }
  if (acknowledged_ < ticket) HL_RETURN_IF_ERROR(WaitFor(ticket));
  if (result == nullptr) return Status::Ok();
  if (submitted_ - ticket > geometry_.window) {
    return NotFound(Text("the result of operation ", ticket,
                         " is no longer kept: ", submitted_ - ticket,
                         " were submitted since, and a result is kept for ", geometry_.window));
  }
  *result = {};
  ReadResult(ticket, result);
  return Status::Ok();
}

Status GroupBase::WaitAll() {
  if (forked()) [[unlikely]] {
    return ForkedStatus();
  }
  if (acknowledged_ == submitted_) return broken_;
  return WaitFor(submitted_);
}

Result<Ticket> GroupBase::Poll() {
  if (forked()) [[unlikely]] {
    return ForkedStatus();
  }
  if (broken_.ok()) Drain();
  if (broken_.ok() && acknowledged_ != submitted_) LookNowAndThen();
  if (!broken_.ok()) return broken_;
  return acknowledged_;
}

Status GroupBase::Lock(uint64_t offset, uint64_t expected, uint64_t desired) {
  const uint32_t everyone = (1u << geometry_.group_size) - 1;
  HL_ASSIGN_OR_RETURN(const Ticket taken, CompareAndSwap(offset, expected, desired, everyone));
  OperationResult found;
  HL_RETURN_IF_ERROR(Wait(taken, &found));
  uint32_t changed = 0, holder = geometry_.group_size;
  for (uint32_t i = 0; i < geometry_.group_size; ++i) {
    if (found.original[i] == expected) {
      changed |= 1u << i;
    } else if (holder == geometry_.group_size) {
      holder = i;
    }
  }
  if (changed == everyone) return Status::Ok();
  if (changed != 0) {
    HL_ASSIGN_OR_RETURN(const Ticket undone, CompareAndSwap(offset, desired, expected, changed));
    OperationResult undo;
    HL_RETURN_IF_ERROR(Wait(undone, &undo));
    for (uint32_t i = 0; i < geometry_.group_size; ++i) {
      if ((changed >> i & 1) == 0 || undo.original[i] == desired) continue;
      return Aborted(Text("undoing the lock at offset ", offset, ": replica ", i, " holds ",
                          undo.original[i], " where ", desired,
                          " was put; someone else writes this word"));
    }
  }
  return Busy(Text("the lock at offset ", offset, " is held: replica ", holder, " holds ",
                   found.original[holder], ", not ", expected));
}

}  // namespace hyperloop
