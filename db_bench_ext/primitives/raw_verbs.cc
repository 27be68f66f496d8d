#include "primitives/raw_verbs.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace hyperloop::bench {
namespace {

using Clock = std::chrono::steady_clock;
using rnic::Opcode;

constexpr uint64_t kLine = 64;
constexpr auto kPatience = std::chrono::seconds(10);
constexpr auto kYieldAfter = std::chrono::milliseconds(1);  // the RNIC may need this processor
constexpr uint32_t kMaxRing = 32768;
constexpr uint32_t kMinReceives = 64;

bool Reads(Verb verb) { return verb == Verb::kRead || verb == Verb::kReadMemory; }
bool PollsMemory(Verb verb) { return verb == Verb::kWrite || verb == Verb::kReadMemory; }
bool Receives(Verb verb) { return verb == Verb::kSend || verb == Verb::kWriteImm; }

Status Check(const RawCase& load, const rnic::Caps& caps) {
  const std::string name(VerbName(load.verb));
  if (load.size == 0) return InvalidArgument("--size 0: a request has at least 1 byte");
  if (load.requests == 0 || load.signal_every == 0) {
    return InvalidArgument("--requests and --signal_every are at least 1");
  }
  if (load.wait == WaitMode::kEvent && PollsMemory(load.verb)) {
    return InvalidArgument("verb " + name +
                           " is noticed in memory, without a completion that --use_notify could "
                           "wait for; use send, write-imm or read");
  }
  if (load.wait == WaitMode::kEvent && !caps.completion_events) {
    return NotSupported("--use_notify: provider " + caps.provider + " has no completion channels");
  }
  if (load.inline_data && load.size > caps.max_inline) {
    return InvalidArgument("--inline carries at most " + std::to_string(caps.max_inline) +
                           " B on this device, not " + std::to_string(load.size));
  }
  return Status::Ok();
}

}  // namespace

Result<Verb> ParseVerb(std::string_view name) {
  for (const Verb verb :
       {Verb::kWrite, Verb::kSend, Verb::kWriteImm, Verb::kRead, Verb::kReadMemory}) {
    if (name == VerbName(verb)) return verb;
  }
  return InvalidArgument("no verb '" + std::string(name) +
                         "'; there are write, send, write-imm, read, read-memory and all");
}

std::string_view VerbName(Verb verb) {
  switch (verb) {
    case Verb::kWrite:
      return "write";
    case Verb::kSend:
      return "send";
    case Verb::kWriteImm:
      return "write-imm";
    case Verb::kRead:
      return "read";
    case Verb::kReadMemory:
      break;
  }
  return "read-memory";
}

// One of the two hosts: its queue pair, its outgoing and its incoming bytes.
class RawVerbs::End {
 public:
  End(rnic::Device& device, const RawCase& load, const std::atomic<bool>& interrupted)
      : device_(device),
        case_(load),
        interrupted_(interrupted),
        stride_((load.size + kLine - 1) / kLine * kLine) {}
  ~End() {
    if (qp_) qp_->Reset().IgnoreError();
  }

  Status Build() {
    const size_t area = size_t{case_.requests} * stride_;
    HL_ASSIGN_OR_RETURN(buffer_, device_.AllocateBuffer(2 * area));
    HL_ASSIGN_OR_RETURN(pd_, device_.AllocatePd());
    HL_ASSIGN_OR_RETURN(
        region_, pd_->Register(buffer_->data(), buffer_->size(),
                               rnic::kLocalWrite | rnic::kRemoteWrite | rnic::kRemoteRead, {}));
    const uint32_t blocks = case_.inline_data ? 1 + (case_.size + 40 + 63) / 64 : 1;
    const uint64_t ring = std::bit_ceil(
        uint64_t{blocks} * 2 * (case_.signal_every + 2 * uint64_t{case_.requests}) + 64);
    if (ring > kMaxRing) {
      return InvalidArgument("--signal_every and --requests need a send queue of " +
                             std::to_string(ring) + " blocks, the most is " +
                             std::to_string(kMaxRing));
    }
    const bool events = case_.wait == WaitMode::kEvent;
    rnic::QpAttr attr;
    attr.send_wqebbs = static_cast<uint32_t>(ring);
    attr.recv_wqes =
        Receives(case_.verb) ? std::bit_ceil(std::max(kMinReceives, 2 * case_.requests)) : 0;
    attr.max_inline = case_.inline_data ? case_.size : 0;
    HL_ASSIGN_OR_RETURN(send_cq_, device_.CreateCq({.depth = attr.send_wqebbs, .events = events}));
    HL_ASSIGN_OR_RETURN(
        recv_cq_, device_.CreateCq({.depth = std::max(attr.recv_wqes, 16u), .events = events}));
    attr.send_cq = send_cq_.get();
    attr.recv_cq = recv_cq_.get();
    HL_ASSIGN_OR_RETURN(qp_, pd_->CreateQueuePair(attr));
    for (uint32_t i = 0; i < case_.requests; ++i) {
      for (uint32_t at = 0; at < case_.size; ++at) out(i)[at] = std::byte(i * 7 + at * 131);
    }
    return Status::Ok();
  }

  Status Connect(const End& peer) {
    HL_RETURN_IF_ERROR(qp_->Connect(peer.qp_->address()));
    MakeRequests(peer);
    if (!Receives(case_.verb)) return Status::Ok();
    HL_RETURN_IF_ERROR(PostReceives());
    return PostReceives();  // twice: the next round's receives are posted before this round's are used
  }

  // Marks the outgoing bytes with the round's number and posts them.
  Status PostMessages(uint64_t round) {
    for (uint32_t i = 0; i < case_.requests; ++i) {
      std::memcpy(&out(i)[case_.size - 1], &round, 1);  // differs from that of the round before
    }
    return PostAll(messages_, /*last_signaled=*/false);
  }
  // Fetches the peer's incoming bytes into the own ones.
  Status PostReads() { return PostAll(reads_, /*last_signaled=*/case_.verb == Verb::kRead); }

  // Waits until all bytes of this round have come from the peer, or from its memory.
  Status Await(uint64_t round) {
    if (PollsMemory(case_.verb)) return AwaitByte(round);
    if (!Receives(case_.verb)) return AwaitRead();
    HL_RETURN_IF_ERROR(AwaitCompletions(*recv_cq_, case_.requests));
    return Status::Ok();
  }
  Status PrepareNext() {
    if (Receives(case_.verb)) HL_RETURN_IF_ERROR(PostReceives());
    return PollSendCompletions().status();
  }

  // Checks that the incoming bytes are those that `peer` sent.
  Status Compare(const End& peer) const {
    for (uint32_t i = 0; i < case_.requests; ++i) {
      if (std::memcmp(in(i), peer.out(i), case_.size) == 0) continue;
      return Corruption("request " + std::to_string(i) + " brought other bytes than were sent");
    }
    return Status::Ok();
  }

 private:
  std::byte* out(uint32_t i) const { return buffer_->data() + i * stride_; }
  std::byte* in(uint32_t i) const { return out(case_.requests + i); }
  rnic::Sge Place(const std::byte* at) const {
    return {reinterpret_cast<uint64_t>(at), case_.size, region_->lkey()};
  }

  void MakeRequests(const End& peer) {
    for (uint32_t i = 0; i < case_.requests; ++i) {
      out_sges_.push_back(Place(out(i)));
      in_sges_.push_back(Place(in(i)));
    }
    for (uint32_t i = 0; i < case_.requests; ++i) {
      rnic::SendRequest message;
      message.opcode = case_.verb == Verb::kSend       ? Opcode::kSend
                       : case_.verb == Verb::kWriteImm ? Opcode::kWriteImm
                                                       : Opcode::kWrite;
      message.inline_data = case_.inline_data;
      message.sges = std::span(&out_sges_[i], 1);
      message.remote_addr = reinterpret_cast<uint64_t>(peer.in(i));
      message.rkey = peer.region_->rkey();
      messages_.push_back(message);
      rnic::SendRequest read = message;
      read.opcode = Opcode::kRead;
      read.inline_data = false;
      read.sges = std::span(&in_sges_[i], 1);
      reads_.push_back(read);
      receives_.push_back({.id = i, .sges = std::span(&in_sges_[i], 1)});
    }
  }

  Status PostReceives() { return qp_->PostReceive(receives_); }

  Status PostAll(std::vector<rnic::SendRequest>& requests, bool last_signaled) {
    for (rnic::SendRequest& request : requests) {
      request.signaled = ++posted_ % case_.signal_every == 0;
    }
    if (last_signaled) requests.back().signaled = true;
    for (const rnic::SendRequest& request : requests) signaled_ += request.signaled ? 1 : 0;
    if (case_.chained) return Post(requests);
    for (const rnic::SendRequest& request : requests) HL_RETURN_IF_ERROR(Post({&request, 1}));
    return Status::Ok();
  }
  Status Post(std::span<const rnic::SendRequest> requests) {
    const Clock::time_point start = Clock::now();
    for (;;) {
      Status posted = qp_->Post(requests);
      if (posted.code() != Code::kNoSpace) return posted;
      HL_RETURN_IF_ERROR(PollSendCompletions().status());
      if (Clock::now() - start > kPatience) return posted;
    }
  }

  Result<size_t> PollSendCompletions() {
    if (completed_ == signaled_) return size_t{0};
    HL_ASSIGN_OR_RETURN(const size_t taken, PollCompletions(*send_cq_));
    completed_ += taken;
    return taken;
  }
  Result<size_t> PollCompletions(rnic::CompletionQueue& cq) {
    std::array<rnic::Completion, 32> completions;
    HL_ASSIGN_OR_RETURN(const size_t taken, cq.Poll(completions));
    for (size_t i = 0; i < taken; ++i) {
      if (completions[i].status == rnic::WcStatus::kSuccess) continue;
      return Internal("verb " + std::string(VerbName(case_.verb)) +
                      " failed: " + std::string(rnic::WcStatusName(completions[i].status)));
    }
    return taken;
  }

  // The last READ of a round is signaled, so it has completed when all signaled requests have.
  Status AwaitRead() {
    const uint64_t open = signaled_ - completed_;
    HL_RETURN_IF_ERROR(AwaitCompletions(*send_cq_, open));
    completed_ += open;
    return Status::Ok();
  }

  Status AwaitCompletions(rnic::CompletionQueue& cq, uint64_t wanted) {
    const Clock::time_point start = Clock::now();
    uint64_t taken = 0;
    for (uint64_t turn = 1;; ++turn) {
      HL_ASSIGN_OR_RETURN(const size_t polled, PollCompletions(cq));
      taken += polled;
      if (taken >= wanted) return Status::Ok();
      if (case_.wait == WaitMode::kEvent) {
        HL_ASSIGN_OR_RETURN(const size_t late, Sleep(cq));
        taken += late;
        if (taken >= wanted) return Status::Ok();
      }
      HL_RETURN_IF_ERROR(LookAround(turn, start));
    }
  }
  // Requests an event, polls once more, and sleeps if nothing had completed. Returns the number of
  // completions that it took.
  Result<size_t> Sleep(rnic::CompletionQueue& cq) {
    HL_RETURN_IF_ERROR(cq.RequestNotify(/*solicited_only=*/false));
    HL_ASSIGN_OR_RETURN(const size_t taken, PollCompletions(cq));
    if (taken != 0) return taken;
    pollfd event{cq.event_fd(), POLLIN, 0};
    constexpr int kLongestSleepMs = 50;
    if (::poll(&event, 1, kLongestSleepMs) > 0) HL_RETURN_IF_ERROR(cq.TakeEvents().status());
    return size_t{0};
  }

  Status AwaitByte(uint64_t round) {
    const Clock::time_point start = Clock::now();
    const auto wanted = static_cast<std::byte>(round);
    // Requests of a queue take effect in order: the last byte of the last one comes last.
    std::byte* last = &in(case_.requests - 1)[case_.size - 1];
    for (uint64_t turn = 1;; ++turn) {
      if (std::atomic_ref(*last).load(std::memory_order_acquire) == wanted) return Status::Ok();
      // Only these completions would show an error.
      if (turn % 256 == 0) HL_RETURN_IF_ERROR(PollSendCompletions().status());
      HL_RETURN_IF_ERROR(LookAround(turn, start));
    }
  }

  Status LookAround(uint64_t turn, Clock::time_point start) const {
    if (case_.wait == WaitMode::kPoll && turn % 4096 != 0) return Status::Ok();
    const Clock::duration waited = Clock::now() - start;
    if (waited > kYieldAfter) std::this_thread::yield();
    if (interrupted_.load(std::memory_order_relaxed)) return Aborted("interrupted");
    if (!device_.alive()) return Unavailable("the RNIC is gone");
    if (waited > kPatience) return TimedOut("no answer for 10 s");
    return Status::Ok();
  }

  rnic::Device& device_;
  const RawCase& case_;
  const std::atomic<bool>& interrupted_;
  const uint64_t stride_;
  std::unique_ptr<rnic::Buffer> buffer_;
  std::unique_ptr<rnic::ProtectionDomain> pd_;
  std::unique_ptr<rnic::MemoryRegion> region_;
  std::unique_ptr<rnic::CompletionQueue> send_cq_, recv_cq_;
  std::unique_ptr<rnic::QueuePair> qp_;
  std::vector<rnic::Sge> out_sges_, in_sges_;
  std::vector<rnic::SendRequest> messages_, reads_;
  std::vector<rnic::ReceiveRequest> receives_;
  uint64_t posted_ = 0;                    // requests
  uint64_t signaled_ = 0, completed_ = 0;  // posted requests with a signal; completed ones of them
};

RawVerbs::RawVerbs(const RawCase& load, const std::atomic<bool>& interrupted, Progress progress)
    : case_(load), interrupted_(interrupted), progress_(std::move(progress)) {}
RawVerbs::~RawVerbs() = default;

Result<std::unique_ptr<RawVerbs>> RawVerbs::Create(rnic::Device& client, rnic::Device& server,
                                                   const RawCase& load,
                                                   const std::atomic<bool>& interrupted,
                                                   Progress progress) {
  HL_RETURN_IF_ERROR(Check(load, client.caps()));
  std::unique_ptr<RawVerbs> made(new RawVerbs(load, interrupted, std::move(progress)));
  made->client_ = std::make_unique<End>(client, made->case_, interrupted);
  made->server_ = std::make_unique<End>(server, made->case_, interrupted);
  HL_RETURN_IF_ERROR(made->client_->Build());
  HL_RETURN_IF_ERROR(made->server_->Build());
  HL_RETURN_IF_ERROR(made->client_->Connect(*made->server_));
  HL_RETURN_IF_ERROR(made->server_->Connect(*made->client_));
  return made;
}

Status RawVerbs::Prepare() {
  return Loop(case_.warmup, case_.max_seconds / 10, /*report=*/false).status();
}

Result<Measurement> RawVerbs::Run() {
  HL_ASSIGN_OR_RETURN(const Measurement measured,
                      Loop(case_.number, case_.max_seconds, /*report=*/true));
  if (Reads(case_.verb)) {
    // The client wrote into the server's incoming bytes and read them back.
    HL_RETURN_IF_ERROR(client_->Compare(*client_));
  } else {
    HL_RETURN_IF_ERROR(client_->Compare(*server_));
  }
  HL_RETURN_IF_ERROR(server_->Compare(*client_));
  return measured;
}

Result<Measurement> RawVerbs::Loop(uint64_t number, double seconds, bool report) {
  constexpr auto kReportEvery = std::chrono::milliseconds(250);
  Measurement measurement;
  const Clock::time_point begin = Clock::now();
  Clock::time_point now = begin, next_report = begin + kReportEvery;
  for (uint64_t done = 0; done < number;) {
    const Clock::time_point start = now;
    ++round_;
    HL_RETURN_IF_ERROR(Reads(case_.verb) ? ReadRoundTrip() : RoundTrip());
    now = Clock::now();
    measurement.latency.Record(static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(now - start).count()));
    ++done;
    const double elapsed = std::chrono::duration<double>(now - begin).count();
    if (seconds > 0 && elapsed >= seconds) break;
    if (interrupted_.load(std::memory_order_relaxed)) return Aborted("interrupted");
    if (!report || !progress_ || now < next_report) continue;
    const double share = static_cast<double>(done) / static_cast<double>(number);
    progress_(std::min(1.0, seconds > 0 ? std::max(share, elapsed / seconds) : share));
    next_report = now + kReportEvery;
  }
  measurement.seconds = std::chrono::duration<double>(now - begin).count();
  return measurement;
}

Status RawVerbs::RoundTrip() {
  HL_RETURN_IF_ERROR(client_->PostMessages(round_));
  HL_RETURN_IF_ERROR(server_->Await(round_));
  HL_RETURN_IF_ERROR(server_->PostMessages(round_));
  HL_RETURN_IF_ERROR(server_->PrepareNext());  // while the answer is under way
  HL_RETURN_IF_ERROR(client_->Await(round_));
  return client_->PrepareNext();
}

Status RawVerbs::ReadRoundTrip() {
  HL_RETURN_IF_ERROR(client_->PostMessages(round_));
  HL_RETURN_IF_ERROR(client_->PostReads());
  HL_RETURN_IF_ERROR(client_->Await(round_));
  return client_->PrepareNext();
}

}  // namespace hyperloop::bench
