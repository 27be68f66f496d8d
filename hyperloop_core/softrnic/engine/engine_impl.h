// Engine::Impl: the state of an engine and what its parts offer each other.
//
// Cost of a WQE on the fast path (Schedule::kRunToStall, no deferred delivery): one 16 B header
// load and compare against the expected index and queue number, one switch, one table load per
// local key, one hash probe per remote key, one copy from source to destination, at most one CQE
// store. No allocation, no virtual call, no system call.
#pragma once

#include <algorithm>
#include <bit>
#include <csignal>
#include <cstring>
#include <deque>
#include <new>
#include <random>
#include <utility>

#include "softrnic/engine/bytes.h"
#include "softrnic/engine/flusher.h"
#include "softrnic/engine/objects.h"

namespace hyperloop::softrnic {

// A resolved piece of memory.
struct Segment {
  std::byte* at;
  uint32_t length;
  MemoryKey* key;  // null: inline payload or a packet's own copy
};
// A receive entry has at most 2^kMaxLogStride bytes.
inline constexpr uint32_t kMaxLogStride = 10;
// What a WQE or a receive entry names, without empty pieces: CopyList ends with the last byte.
struct SegmentList {
  std::array<Segment, 64> list;
  static_assert((1u << kMaxLogStride) / rnic::kSegmentBytes <= 64);
  static_assert(rnic::kMaxWqeSegments <= 64);
  uint32_t count = 0;
  uint64_t bytes = 0;

  SegmentList() {}  // NOLINT: leaves `list` uninitialised on purpose
  void Add(std::byte* at, uint32_t length, MemoryKey* key) {
    if (length == 0) return;
    list[count++] = {at, length, key};
    bytes += length;
  }
};

// [from, from + bytes) of `list`.
inline SegmentList Slice(const SegmentList& list, uint64_t from, uint64_t bytes) {
  SegmentList out;
  for (uint32_t i = 0; i < list.count && bytes != 0; ++i) {
    const Segment& segment = list.list[i];
    if (from >= segment.length) {
      from -= segment.length;
      continue;
    }
    const auto n = static_cast<uint32_t>(std::min<uint64_t>(segment.length - from, bytes));
    out.Add(segment.at + from, n, segment.key);
    from = 0;
    bytes -= n;
  }
  return out;
}

inline constexpr uint32_t kQpSlotBits = 14;
inline constexpr size_t kMaxQps = size_t{1} << kQpSlotBits;
// Lkeys below 0x200 are nobody's: 0x100 ends a receive's list.
inline constexpr uint32_t kFirstKeySlot = 2;

// How a request ended at the responder: 0, an MLX5_CQE_SYNDROME_*, or kRnr.
using Outcome = uint8_t;
inline constexpr Outcome kOk = 0;
inline constexpr Outcome kRnr = 0xff;
inline constexpr Outcome kInParts = 0xfe;   // begun: long_transfers.cc goes on
inline constexpr Outcome kNoAnswer = 0xfd;  // no peer is there
inline constexpr Outcome kFlushing = 0xfc;  // what it flushes is not durable yet
// This one and those above are no end of a request.
inline constexpr Outcome kNoEnd = kFlushing;
// What one queue does at a time; then other clients get their turn. Packets to other engines are
// longer: each costs its link much besides its bytes.
inline constexpr uint64_t kTurnBytes = 16 << 10;
inline constexpr size_t kTurnSteps = 16;
inline constexpr uint32_t kPiecesPerStep = 16;  // of a WQE or a receive; more count as more steps
inline constexpr uint64_t kBytesPerStep = kTurnBytes / kTurnSteps;
inline constexpr uint64_t kPacketBytes = 64 << 10;
// Rings live in registered memory of at most this size, so that maps of them stay small.
inline constexpr uint64_t kMaxRingUmemBytes = 1ull << 30;
inline constexpr uint64_t kMaxMessage = 1ull << 30;

// What a WRITE_IMM tells the receiver.
struct ImmData {
  bool present = false;
  bool solicited = false;
  uint32_t value = 0;  // as in memory
  uint32_t bytes = 0;  // of the whole message
};

// The control segment of a fetched WQE.
struct Wqe {
  const std::byte* at = nullptr;  // contiguous, ds segments
  uint16_t index = 0;
  uint8_t opcode = 0;
  uint8_t flags = 0;  // fm_ce_se
  uint8_t segments = 0;
  uint8_t blocks = 0;
  uint32_t imm = 0;  // as in memory
};

inline bool IsFence(uint8_t flags) {
  return (flags & rnic::kFenceMask) == rnic::kFence ||
         (flags & rnic::kFenceMask) == rnic::kStrongOrdering;
}
inline bool HasAnswer(uint8_t opcode) {
  return opcode == rnic::kWqeRead || opcode == rnic::kWqeCompareSwap ||
         opcode == rnic::kWqeFetchAdd;
}
inline bool IsSend(uint8_t opcode) {
  return opcode == rnic::kWqeSend || opcode == rnic::kWqeSendImm;
}
inline bool IsWrite(uint8_t opcode) {
  return opcode == rnic::kWqeWrite || opcode == rnic::kWqeWriteImm;
}
// Where a WQE's SGEs begin.
inline uint32_t SgeOffset(uint8_t opcode) {
  return rnic::kSegmentBytes * (IsSend(opcode)                                ? 1
                                : opcode == rnic::kWqeRead || IsWrite(opcode) ? 2
                                                                              : 3);
}

// Slots to be used again, the longest free first. Only Add needs memory.
class FreeSlots {
 public:
  bool empty() const { return count_ == 0; }
  // A new slot, free.
  void Add() {
    next_.push_back(0);
    Put(static_cast<uint32_t>(next_.size() - 1));
  }
  void Put(uint32_t slot) {
    if (count_++ == 0) {
      head_ = slot;
    } else {
      next_[tail_] = slot;
    }
    tail_ = slot;
  }
  uint32_t front() const { return head_; }
  void Pop() {
    head_ = next_[head_];
    --count_;
  }
  size_t slots() const { return next_.size(); }

 private:
  std::vector<uint32_t> next_;
  uint32_t head_ = 0;
  uint32_t tail_ = 0;
  size_t count_ = 0;
};

// Objects by number: slot in the low bits, generation above, so that a stale number finds nothing.
template <class T, uint32_t kSlotBits>
class NumberTable {
 public:
  T* Find(uint32_t number) const {
    const uint32_t slot = number & ((1u << kSlotBits) - 1);
    if (slot >= slots_.size()) return nullptr;
    const Entry& entry = slots_[slot];
    return entry.number == number ? entry.object.get() : nullptr;
  }
  // 0: table full.
  uint32_t Insert(std::unique_ptr<T> object) {
    if (free_.empty()) {
      if ((free_.slots() + 1) >> kSlotBits) return 0;
      slots_.resize(free_.slots() + 2);  // number 0 is nobody
      slots_.back().number = static_cast<uint32_t>(slots_.size() - 1);
      free_.Add();
    }
    const uint32_t slot = free_.front() + 1;
    free_.Pop();
    slots_[slot].object = std::move(object);
    return slots_[slot].number;
  }
  void Erase(uint32_t number) {
    const uint32_t slot = number & ((1u << kSlotBits) - 1);
    slots_[slot].object.reset();
    slots_[slot].number = (number + (1u << kSlotBits)) & 0xffffff;
    free_.Put(slot - 1);
  }
  template <class F>
  void ForEach(F&& f) {
    for (Entry& entry : slots_)
      if (entry.object) f(*entry.object);
  }

 private:
  struct Entry {
    uint32_t number = 0;
    std::unique_ptr<T> object;
  };
  std::vector<Entry> slots_;
  FreeSlots free_;
};

// Remote keys are random, so the key is its own hash. Each function takes a few steps however many
// keys there are, Insert when it grows excepted: all hosts wait for them.
class RkeyTable {
 public:
  MemoryKey* Find(uint32_t rkey) const {
    for (size_t i = rkey & mask_;; i = (i + 1) & mask_) {
      if (entries_[i].rkey == rkey) return entries_[i].key;
      if (entries_[i].key == nullptr) return nullptr;
    }
  }
  void Insert(MemoryKey* key);
  // `key` is in the table.
  void Erase(const MemoryKey* key);

 private:
  struct Entry {
    uint32_t rkey = 0;
    MemoryKey* key = nullptr;
  };
  void Grow();
  std::vector<Entry> entries_ = std::vector<Entry>(64);
  size_t mask_ = 63;
  size_t count_ = 0;
};

// How many of the bytes (at least 1) belong to rings: any range. One word of the map, 57 granules,
// a round.
uint64_t RingBytesOfAny(const Umem& umem, uint64_t offset, uint64_t length);

// The same; for what one word of the map covers and is all ring or none, as pieces of a receive
// are, without a loop.
inline uint64_t RingBytes(const Umem& umem, uint64_t offset, uint64_t length) {
  if (length > 56 * 8) [[unlikely]]
    return RingBytesOfAny(umem, offset, length);
  const uint64_t first = offset / 8;
  uint64_t bits;
  std::memcpy(&bits, umem.ring_map.data() + first / 8, 8);
  const uint64_t mask = (1ull << ((offset + length - 1) / 8 - first + 1)) - 1;
  bits = (bits >> (first % 8)) & mask;
  if (bits == mask) return length;
  return bits == 0 ? 0 : RingBytesOfAny(umem, offset, length);
}

// Why a client is evicted.
inline constexpr char kNoMemory[] = "out of memory in a request";

struct Engine::Impl {
  explicit Impl(EngineOptions o);

  // --- control.cc: control path
  Result<ContextId> OpenContext(const std::string& name, UarPage* uar, OpenReply* reply,
                                ClientNumber client);
  Account& AccountOf(ClientNumber client);
  bool CloseContextPart(ContextId id, size_t objects);
  void ReleaseAccount(Account& account);
  void Evict(Account& account, const char* why);
  Result<IdReply> RegisterUmem(Context& c, const RegisterUmemArgs& args, UmemMapping mapping);
  Status Execute(Context& c, const Command& command, Reply* reply, std::string* text);
  Status FreeUmem(Context& c, uint32_t id);
  Status FreePd(Context& c, uint32_t id);
  Status CreateMkey(Context& c, const CreateMkeyArgs& args, CreateMkeyReply* reply);
  Status DestroyMkey(Context& c, uint32_t lkey);
  void ReleaseKey(uint32_t lkey);
  void Erase(Cq& cq);
  void Erase(Context& c, const Umem& umem);
  uint32_t RandomRkey();
  Status CreateCq(Context& c, const CreateCqArgs& args, std::function<void()> notify,
                  CreateCqReply* reply);
  Status DestroyCq(Context& c, uint32_t cqn);
  // --- queue_pairs.cc: life of a queue pair
  Status CreateQp(Context& c, const CreateQpArgs& args, CreateQpReply* reply);
  Status ModifyQp(Context& c, const ModifyQpArgs& args);
  Status DestroyQp(Context& c, uint32_t qpn);
  Status Publish(Context& c, const PublishArgs& args);
  Status ConnectService(Context& c, const ConnectServiceArgs& args, ConnectServiceReply* reply);
  Result<Qp*> MakeResponder(Service& service, Host& host, const GidBytes& gid, uint32_t qpn,
                            const Account* asker);
  void Destroy(Qp& qp);
  static void Enlist(Qp& qp, Context& c);
  static void Delist(const Qp& qp);
  void StartCounters(Qp& qp) const;
  void ResetQueues(Qp& qp);
  void DropPeer(Qp& qp);
  void EnterError(Qp& qp);
  // --- counters.cc
  std::function<std::string()> Counters(const Context& c) const;

  // --- memory.cc
  MemoryKey* FindLkey(uint32_t lkey) const {
    const uint32_t slot = lkey >> 8;
    if (slot >= keys.size()) [[unlikely]]
      return nullptr;
    MemoryKey* key = keys[slot].get();
    return key != nullptr && key->lkey == lkey ? key : nullptr;
  }
  // Null: not allowed. `need`: rnic::Access bits; 0 for a local read.
  static std::byte* Translate(const MemoryKey* key, const Pd* pd, uint64_t addr, uint64_t length,
                              uint32_t need) {
    if (key == nullptr || key->pd != pd || (key->access & need) != need || key->poisoned)
        [[unlikely]]
      return nullptr;
    const uint64_t offset = addr - key->addr;
    if (offset > key->length || length > key->length - offset) [[unlikely]]
      return nullptr;
    return key->base + offset;
  }
  // The SGEs at `at`; false: one of them is not allowed.
  bool ResolveSges(const Qp& qp, const std::byte* at, uint32_t segments, uint32_t need,
                   SegmentList* out) const;
  // Marks the bytes of a new queue's rings in the registered memory that it was created in, and in
  // no other: one client address may stand for different bytes there. Not OK: over the limit.
  Status ReserveRings(Umem& umem);
  static void MarkRings(const Qp& qp, bool present);
  static void MarkRings(const Cq& cq, bool present);
  void NoteWrite(Qp& qp, const Segment& segment, bool scatter) {
    const MemoryKey* const key = segment.key;
    if (key == nullptr) return;
    if (key->has_rings)
      (scatter ? qp.count.ring_bytes_by_scatter : qp.count.ring_bytes_by_other) += RingBytes(
          *key->umem, static_cast<uint64_t>(segment.at - key->umem->base), segment.length);
    if (key->has_media) [[unlikely]]
      NoteDirty(qp, segment);
  }
  void NoteDirty(Qp& qp, const Segment& segment);
  void FlushRange(Qp& qp, const DirtyRange& range);
  void FlushDirty(Qp& qp);
  bool FlushLater(Qp& qp, FileRange range);
  void ForgetDirty(Qp& qp);
  Outcome FlushBehindRead(Qp& qp, bool again);
  static bool Flushing(const Qp& qp) {
    return qp.flush != nullptr && qp.flush->left.load(std::memory_order_acquire) != 0;
  }
  bool HandleFault(void* address);
  static bool HasRingsIn(const Context& c, const Umem& umem, const std::byte* begin,
                         const std::byte* end);
  // In a signal handler: the client is evicted when the running WQE has ended.
  void Doom(Account& account, const char* why) {
    account.doomed = why;
    doomed = true;
  }
  void EvictDoomed();
  // True once if a page fault was handled since the last call.
  bool TakeFault() {
    if (fault == 0) [[likely]]
      return false;
    fault = 0;
    return true;
  }

  // --- completion_queues.cc
  void PostCqe(Qp& qp, Cq& cq, uint8_t cqe_opcode, uint8_t wqe_opcode, uint16_t counter,
               uint32_t bytes, uint32_t imm, uint8_t op_own_bits);
  void PostErrorCqe(Qp& qp, Cq& cq, uint8_t cqe_opcode, uint8_t wqe_opcode, uint16_t counter,
                    uint8_t syndrome);
  mlx5_cqe64* NextCqe(Cq& cq, uint8_t* owner);
  // `urgent`: solicited, or an error.
  void CqProduced(Cq& cq, bool urgent) {
    if (urgent) cq.had_solicited = true, cq.last_solicited = cq.producer;
    ++cq.producer;
    if (cq.waiters != nullptr) WakeWaiters(cq);
    if (cq.armed != Armed::kNo) [[unlikely]]
      if (urgent || cq.armed == Armed::kAny) Notify(cq);
  }
  void Arm(Cq& cq, uint64_t value);
  static void Notify(Cq& cq);
  void WakeWaiters(Cq& cq);
  void StartWaiting(Qp& qp, Cq& cq);
  void StopWaiting(Qp& qp);
  // CQE number `index` was produced: cyclic on 24 bits, half range.
  static bool WaitMet(const Cq& cq, uint32_t index) {
    return ((cq.producer - 1 - index) & 0x800000) == 0;
  }

  // --- requester.cc
  enum class Next { kMore, kStop };
  size_t RunQueue(Qp& qp, size_t budget);
  Next ExecuteOne(Qp& qp);
  bool Decode(Qp& qp, const std::byte* base, Wqe* wqe);
  Outcome Request(Qp& qp, const Wqe& wqe, uint32_t* bytes);
  Next Resume(Qp& qp);
  Next ExecuteWait(Qp& qp, const Wqe& wqe);
  Outcome ExecuteEnable(Qp& qp, const Wqe& wqe);
  void Complete(Qp& qp, const Wqe& wqe, uint32_t bytes);
  // The completion may overrun its CQ, which puts the queue into error.
  Next CompleteAndGoOn(Qp& qp, const Wqe& wqe, uint32_t bytes) {
    Complete(qp, wqe, bytes);
    return qp.state == rnic::QpState::kReadyToSend ? Next::kMore : Next::kStop;
  }
  void Fail(Qp& qp, const Wqe& wqe, uint8_t syndrome);
  size_t FlushStep(Qp& qp);
  Qp* FindPeer(Qp& qp);
  Qp* Peer(Qp& qp) {
    Qp* peer = qp.peer != nullptr ? qp.peer : FindPeer(qp);
    if (peer == nullptr || (peer->state != rnic::QpState::kReadyToSend &&
                            peer->state != rnic::QpState::kReadyToReceive)) [[unlikely]]
      return nullptr;
    return peer;
  }
  void MakeReady(Qp& qp) {
    if (qp.ready) return;
    qp.ready = true;
    qp.next_ready = nullptr;
    Account& account = *qp.account;
    if (account.ready_head != nullptr) {
      account.ready_tail->next_ready = &qp;
    } else {
      account.ready_head = &qp;
      if (account.listed == Account::Listed::kNo) {
        account.listed = Account::Listed::kFresh;
        fresh_accounts.Push(account);
      }
    }
    account.ready_tail = &qp;
  }
  Qp* NextReady();
  void Unready(Qp& qp);
  template <class F>
  static void ForEachQp(const Context& c, F&& f) {
    for (Qp* qp = c.first_qp; qp != nullptr;) {
      Qp* const next = qp->next_of_context;
      f(*qp);
      qp = next;
    }
  }
  void Advance(Qp& qp, uint16_t index);
  bool CollectDoorbells();

  // --- retries.cc
  // Whether request number `request` of `qp` is tried again because of its peer's disk.
  static bool WaitedForDisk(const Qp& qp, uint64_t request) {
    return qp.retry.why == kFlushing && qp.retry.request == request;
  }
  uint64_t Now() const;
  bool MayTryAgain(Qp& qp, Outcome why, uint64_t request);
  static uint8_t Exhausted(Outcome why);
  bool RetryDue(Qp& qp);
  Next StallForRetry(Qp& qp, const Wqe& wqe, Outcome why);
  void LookAgain(Qp& qp);
  void LookNoMore(Qp& qp);
  bool LookAt(Qp& qp);
  bool FindReceivesToFlush(Qp& qp);
  bool RetryStalled(size_t most);

  // --- testing/schedule.cc
  void TakeSnapshots(Qp& qp, bool executing);
  bool SlowStep();
  void RereadReceiveCounters();
  bool StepOnce();
  Next ExecuteDeferred(Qp& qp, const Wqe& wqe);
  void Defer(Qp& qp, const Wqe& wqe, uint8_t outcome);
  bool Gather(Qp& qp, const Inflight& entry, std::vector<std::byte>* payload);
  bool Deliverable(Qp& qp);
  static bool Answered(const Qp& qp);
  void Deliver(Qp& qp);
  Outcome DeliverTo(Qp& peer, Inflight& entry, bool again);
  void Retransmit(Qp& qp);
  void Acknowledge(Qp& qp);
  void FlushInflight(Qp& qp);
  Outcome TakeAnswer(Qp& qp, Inflight& entry);
  size_t Pick(size_t n) {
    return options.schedule == EngineOptions::Schedule::kRandom ? random() % n : 0;
  }

  // --- links.cc: sessions, events, timers of queue pairs with a remote peer
  Status AddPeer(const std::string& host, LinkId link);
  // Out of memory in `run` for `qp` ends its client.
  template <class F>
  void ForRemote(Qp& qp, F&& run) {
    try {
      run();
    } catch (const std::bad_alloc&) {
      Evict(*qp.account, kNoMemory);
    }
  }
  LinkId RouteTo(const GidBytes& gid) const;
  Status CheckRoute(const ModifyQpArgs& args) const;
  size_t PollLinks(size_t budget);
  void HandlePacket(LinkId from, std::span<const std::byte> bytes);
  void Dispatch(LinkId from, const Packet& packet);
  void HandleLinkUp(LinkId link);
  void HandleRoom(LinkId link);
  bool LinkTakes(Qp& qp);
  void HandleConnect(LinkId from, const Packet& p);
  void HandleSession(LinkId from, const Packet& p);
  void SendConnect(Qp& qp);
  void StartRemote(Qp& qp, LinkId link);
  void StopRemote(Qp& qp);
  // What a packet counts of a turn's bytes: small ones cost more than their bytes.
  static uint64_t TurnCost(size_t bytes) { return std::max<uint64_t>(bytes, 1024); }
  void Watch(Qp& qp);
  bool CheckTimers();
  bool TimerDue(Qp& qp, uint64_t now);

  // --- services.cc
  Status AskService(Context& c, Qp& client, LinkId link, const ConnectServiceArgs& a,
                    ConnectServiceReply* reply);
  void HandleServiceRequest(LinkId from, const Packet& p);
  void HandleServiceReply(LinkId from, const Packet& p);
  void HandleServiceRelease(const Packet& p);
  void ReleaseService(Qp& qp);

  // --- remote_requester.cc: the requester's half
  void Pump(Qp& qp);
  void PumpLater(Qp& qp);
  bool PackNext(Qp& qp, Inflight& entry);
  void HandleAnswer(LinkId from, const Packet& p);
  void TakeAnswers(Qp& qp, const Packet& p);
  void PopSent(Qp& qp);
  bool TakeRemoteAnswer(Qp& qp, Inflight& entry, const Packet& p);
  Inflight* FirstUnanswered(Qp& qp);
  void FailEntry(Qp& qp, Inflight& entry, uint8_t syndrome);
  void FailSent(Qp& qp, uint8_t syndrome);
  void CompleteRemote(Qp& qp);

  // --- remote_responder.cc
  void HandleRequest(LinkId from, const Packet& p, HeldRequest* held = nullptr);
  void RunNext(LinkId from, Qp& qp, const Packet& p, bool again);
  void AcknowledgeLater(LinkId to, Qp& qp, uint32_t psn);
  void HandleDuplicate(LinkId from, Qp& qp, const Packet& p);
  Outcome RunRequest(Qp& qp, const Packet& p, bool again, std::vector<std::byte>* answer);
  Outcome RunSend(Qp& qp, const Packet& p);
  Outcome RunWrite(Qp& qp, const Packet& p);
  Outcome RunRead(Qp& qp, const Packet& p, bool again, std::vector<std::byte>* answer);
  void Answer(LinkId to, const Packet& request, PacketType type, uint8_t syndrome, uint32_t length);
  void Hold(LinkId from, Qp& qp, const Packet& p);
  size_t ServeHeld(size_t budget);
  bool ServeHeldOf(Qp& qp, size_t budget, size_t* done);
  void SendAcks();

  // --- long_transfers.cc
  Outcome StartParts(Qp& qp, Qp& peer, const Wqe& wqe, const SegmentList& local);
  Next ContinueParts(Qp& qp);
  Outcome NextPart(Qp& qp, Part& part, bool* last);

  // --- responder.cc
  bool ReceiveAvailable(Qp& qp);
  Outcome ReceiveSend(Qp& qp, const SegmentList& payload, uint8_t cqe_opcode, uint32_t imm,
                      bool solicited);
  Outcome ResolveReceive(Qp& qp, uint64_t bytes, SegmentList* to);
  void CompleteReceive(Qp& qp, uint8_t cqe_opcode, uint32_t bytes, uint32_t imm, bool solicited);
  Outcome ReceiveSendPart(Qp& qp, const SegmentList& part, uint64_t offset, uint64_t total);
  Outcome ReceiveWrite(Qp& qp, uint64_t addr, uint32_t rkey, const SegmentList& payload,
                       const ImmData& imm);
  Outcome FindTarget(Qp& peer, const Wqe& wqe, uint64_t bytes, SegmentList* remote);
  // `again`: it came to kFlushing before, and nothing of its requester's has run here since.
  Outcome ServeRead(Qp& qp, uint64_t addr, uint32_t rkey, const SegmentList& to, bool again);
  Outcome ServeAtomic(Qp& qp, uint64_t addr, uint32_t rkey, uint8_t opcode, uint64_t swap_add,
                      uint64_t compare, uint64_t* old);
  [[gnu::cold]] Outcome ReceiveIntoCqe(Qp& qp, const SegmentList& payload, uint8_t cqe_opcode,
                                       uint32_t imm, bool solicited);
  Outcome FailReceive(Qp& qp, uint8_t local_syndrome, uint8_t remote_syndrome);
  Outcome Refuse(Qp& qp, uint8_t syndrome);

  // --- state
  EngineOptions options;
  std::function<void(ContextId, const char*)> evict;
  bool slow = false;      // single steps chosen by SlowStep
  bool deferred = false;  // requests and answers travel: Inflight
  uint16_t overrun_blocks =
      0;  // how far a managed queue runs past its enabled index: 0 unless broken on purpose
  uint64_t cqe_scatter_bytes = 0;  // receives of so many bytes at most land in their CQE
  uint64_t header_mask = 0;        // bits of a WQE's first 8 bytes (host order) that are checked
  AccountQueue fresh_accounts;
  AccountQueue old_accounts;
  std::map<ClientNumber, std::unique_ptr<Account>> accounts;
  // What the running turn costs beyond its steps: of WQEs and receives with many pieces.
  size_t extra_steps = 0;
  bool undrained = false;  // write-backs of pmem have begun since the last pmem_drain
  // Steps, and bytes as steps, since the doorbells were collected.
  size_t work = 0;
  uint32_t all_umems = 0;
  std::vector<Context*> open;                    // for doorbells
  std::vector<std::unique_ptr<MemoryKey>> keys;  // by lkey >> 8
  RkeyTable rkeys;
  NumberTable<Qp, kQpSlotBits> qps;
  NumberTable<Cq, 14> cqs;
  // To be looked at now and then, a few each turn: who waits for a receive or a peer (and some who
  // no longer do),
  std::vector<Qp*> retries;
  // and who is in error with a receive queue.
  std::vector<Qp*> broken;
  size_t next_retry = 0;
  size_t next_broken = 0;
  volatile sig_atomic_t fault = 0;
  volatile bool doomed = false;  // some Account::doomed is set
  std::map<ContextId, std::unique_ptr<Context>> contexts;
  std::map<std::string, std::unique_ptr<Host>> hosts;
  FreeSlots free_keys;  // from kFirstKeySlot on
  std::vector<uint8_t> key_tags;
  ContextId next_context = 1;
  uint64_t next_host;
  // Links: of no use without a port.
  LinkPort* port = nullptr;
  std::map<uint64_t, LinkId> peers;  // by GID prefix
  std::deque<uint32_t> to_pump;      // queue pairs that have packets for a link
  std::map<LinkId, std::vector<uint32_t>> room_wanted;
  std::vector<uint32_t> watched;  // by timers
  std::vector<uint32_t> acks;     // queue pairs with Remote::ack_due
  std::deque<uint32_t> holding;   // queue pairs with Remote::held
  uint64_t held_bytes = 0;        // there
  uint64_t services_asked = 0;
  uint64_t timers_ns = 0;      // when CheckTimers looked last
  uint64_t turn_sent = 0;      // packets' bytes in this turn
  uint64_t turn_received = 0;  // and the bytes of answers to them
  uint32_t next_pd = 1;
  uint32_t next_umem = 1;
  std::mt19937_64 random;
  alignas(64)
      std::array<std::byte, rnic::kMaxWqeBytes> wrapped;  // a WQE that goes around its ring's end
};

}  // namespace hyperloop::softrnic
