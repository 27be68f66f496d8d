// Drives an Engine over plain memory. A Client is the driver of one process in its simplest form.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "rnic/wqe.h"
#include "softrnic/engine/engine.h"
#include "support/must.h"

namespace hyperloop::softrnic {

using rnic::CqeMode;
using rnic::QpState;
using rnic::Sge;

struct TestCq {
  uint32_t cqn = 0;
  uint32_t depth = 0;
  mlx5_cqe64* ring = nullptr;
  uint32_t consumer = 0;
  std::byte* dbrec = nullptr;

  // Takes the next CQE, but does not tell the device so.
  std::optional<rnic::Completion> Poll() {
    mlx5_cqe64* const cqe = &ring[consumer & (depth - 1)];
    if (!rnic::CqeReady(cqe, consumer, depth)) return std::nullopt;
    ++consumer;
    return rnic::DecodeCqe(*cqe);
  }
  std::vector<rnic::Completion> PollAll() {
    std::vector<rnic::Completion> all;
    while (auto one = Poll()) all.push_back(*one);
    return all;
  }
  void Release() {
    const uint32_t be = htobe32(consumer);
    std::memcpy(dbrec, &be, 4);
  }
};

class Client;

struct TestQp {
  Client* client = nullptr;
  uint32_t qpn = 0;
  uint32_t doorbell = 0;
  std::byte* sq = nullptr;
  uint32_t sq_wqebbs = 0;
  std::byte* rq = nullptr;
  uint32_t rq_wqes = 0;
  uint32_t rq_stride = 0;
  std::byte* dbrec = nullptr;
  uint16_t next = 0;       // producer index of the SQ
  uint16_t next_recv = 0;  // producer index of the RQ
  ModifyQpArgs attr{};     // timers and retries
  std::array<uint8_t, 16> gid{};

  rnic::WqeControl Control(CqeMode mode = CqeMode::kOnError, bool fence = false) const {
    return {.qpn = qpn, .index = next, .completion = mode, .fence = fence};
  }
  // Places the WQE that `encode(void* wqe)` writes, which returns its bytes. Rings no doorbell.
  template <class F>
  void Put(F&& encode) {
    alignas(64) std::array<std::byte, rnic::kMaxWqeBytes> wqe;
    const size_t bytes = encode(static_cast<void*>(wqe.data()));
    rnic::CopyToRing(sq, sq_wqebbs, next, wqe.data(), bytes);
    next = static_cast<uint16_t>(next + rnic::WqeBlocks(bytes));
  }
  void Nop(CqeMode mode = CqeMode::kOnError) {
    Put([&](void* w) { return rnic::EncodeNop(w, Control(mode)); });
  }
  void Send(std::span<const Sge> sges, CqeMode mode = CqeMode::kOnError, bool fence = false) {
    Put([&](void* w) { return rnic::EncodeSend(w, Control(mode, fence), sges); });
  }
  void Send(const Sge& sge, CqeMode mode = CqeMode::kOnError) { Send(std::span(&sge, 1), mode); }
  void SendInline(std::span<const std::byte> payload, CqeMode mode = CqeMode::kOnError) {
    const Sge sge{reinterpret_cast<uint64_t>(payload.data()), static_cast<uint32_t>(payload.size()),
                  0};
    Put([&](void* w) { return rnic::EncodeInline(w, Control(mode), rnic::kWqeSend, {&sge, 1}); });
  }
  void Write(uint64_t to, uint32_t rkey, const Sge& sge, CqeMode mode = CqeMode::kOnError) {
    Put([&](void* w) { return rnic::EncodeWrite(w, Control(mode), to, rkey, {&sge, 1}); });
  }
  void WriteImm(uint64_t to, uint32_t rkey, const Sge& sge, uint32_t imm,
                CqeMode mode = CqeMode::kOnError) {
    Put([&](void* w) { return rnic::EncodeWriteImm(w, Control(mode), to, rkey, {&sge, 1}, imm); });
  }
  void Read(uint64_t from, uint32_t rkey, const Sge& sge, CqeMode mode = CqeMode::kOnError) {
    Put([&](void* w) { return rnic::EncodeRead(w, Control(mode), from, rkey, {&sge, 1}); });
  }
  void Cas(uint64_t at, uint32_t rkey, uint64_t expected, uint64_t desired, const Sge& result,
           CqeMode mode = CqeMode::kOnError) {
    Put([&](void* w) {
      return rnic::EncodeCompareSwap(w, Control(mode), at, rkey, expected, desired, result);
    });
  }
  void Add(uint64_t at, uint32_t rkey, uint64_t addend, const Sge& result,
           CqeMode mode = CqeMode::kOnError) {
    Put([&](void* w) { return rnic::EncodeFetchAdd(w, Control(mode), at, rkey, addend, result); });
  }
  void Wait(const TestCq& cq, uint32_t last, CqeMode mode = CqeMode::kOnError) {
    Put([&](void* w) { return rnic::EncodeWait(w, Control(mode), cq.cqn, last); });
  }
  void Enable(const TestQp& target, uint16_t index, CqeMode mode = CqeMode::kOnError,
              bool fence = false) {
    Put([&](void* w) {
      return rnic::EncodeSendEnable(w, Control(mode, fence), target.qpn, index);
    });
  }
  inline void Ring(uint16_t producer) const;
  void Ring() const { Ring(next); }
  void Receive(std::span<const Sge> sges) {
    rnic::EncodeReceive(rq + static_cast<size_t>(next_recv & (rq_wqes - 1)) * rq_stride, rq_stride,
                        sges);
    SetReceiveCounter(++next_recv);
  }
  void Receive(const Sge& sge) { Receive(std::span(&sge, 1)); }
  void SetReceiveCounter(uint32_t counter) const {
    const uint32_t be = htobe32(counter);
    std::memcpy(dbrec, &be, 4);
  }
};

struct QpSpec {
  uint32_t log_sq = 6;
  uint32_t log_rq = 4;
  uint32_t log_stride = 6;
  bool has_rq = true;
  uint32_t flags = 0;
  uint32_t access = rnic::kRemoteWrite | rnic::kRemoteRead | rnic::kRemoteAtomic;
  uint32_t max_read_atomic = 16;
  uint32_t rnr_timer_us = 640;
  uint32_t ack_timeout_ms = 64;
  uint32_t link_timeout_ms = 0;
  uint32_t retry_count = 7;
  uint32_t rnr_retry = 7;
};

// One process: a context on `host`, one arena that is registered with all rights, and objects in
// the arena.
class Client {
 public:
  static constexpr size_t kArena = 1 << 20;

  Client(Engine& engine, const std::string& host, rnic::Media media = rnic::Media::kRam,
         std::byte* arena = nullptr, ClientNumber number = 0, int fd = -1,
         bool waits_for_disk = false)
      : engine_(engine) {
    uar_ = std::make_unique<UarStorage>();
    std::memset(static_cast<void*>(uar_->bytes), 0, sizeof(uar_->bytes));
    OpenReply open;
    id_ = hyperloop::Must(engine_.OpenContext(host, uar(), &open, number));
    std::memcpy(gid.data(), open.gid, 16);
    if (arena == nullptr) {
      owner_ = MakeArena();
      arena = static_cast<std::byte*>(owner_.get());
    }
    memory = arena;
    umem =
        hyperloop::Must(engine_.RegisterUmem(id_, {reinterpret_cast<uint64_t>(memory), 0, kArena},
                                             {memory, kArena, owner_, fd, 0, waits_for_disk}))
            .id;
    pdn = Must(Op::kAllocPd).result.id.id;
    const auto key = Key(memory, kArena, 0xf, media);
    lkey = key.lkey, rkey = key.rkey;
  }
  ~Client() { Close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  void Close() {
    if (id_ != kNoContext) engine_.CloseContext(id_);
    id_ = kNoContext;
  }

  Command Make(Op op) {
    Command command;
    command.op = op;
    return command;
  }
  Status Try(const Command& command, Reply* reply) {
    return engine_.Execute(id_, command, reply, &text);
  }
  Reply Must(const Command& command) {
    Reply reply;
    hyperloop::Must(Try(command, &reply));
    return reply;
  }
  Reply Must(Op op) { return Must(Make(op)); }
  Status Destroy(Op op, uint32_t id) {
    Command command = Make(op);
    command.args.id.id = id;
    Reply reply;
    return Try(command, &reply);
  }

  CreateMkeyReply Key(const std::byte* at, size_t length, uint32_t access,
                      rnic::Media media = rnic::Media::kRam, uint32_t pd = 0) {
    Command command = Make(Op::kCreateMkey);
    command.args.mkey = {
        pd != 0 ? pd : pdn,          umem, reinterpret_cast<uint64_t>(at), length, access,
        static_cast<uint32_t>(media)};
    return Must(command).result.mkey;
  }
  // Takes `size` bytes of the arena, aligned to 64.
  std::byte* Allocate(size_t size) {
    std::byte* const at = memory + used_;
    used_ += (size + 63) / 64 * 64;
    EXPECT_LE(used_, kArena);
    return at;
  }
  Sge At(const std::byte* at, size_t length) const {
    return {reinterpret_cast<uint64_t>(at), static_cast<uint32_t>(length), lkey};
  }

  TestCq Cq(uint32_t log_size = 6, bool ignore_overrun = false) {
    TestCq cq;
    cq.depth = 1u << log_size;
    cq.consumer = engine_.options().test.first_cqe;
    cq.ring = reinterpret_cast<mlx5_cqe64*>(Allocate(cq.depth * 64));
    rnic::InitCqeRing(cq.ring, cq.depth);
    cq.dbrec = Allocate(64);
    Command command = Make(Op::kCreateCq);
    command.args.cq = {umem,
                       log_size,
                       reinterpret_cast<uint64_t>(cq.ring),
                       reinterpret_cast<uint64_t>(cq.dbrec),
                       ignore_overrun ? 1u : 0u,
                       0};
    cq.cqn = Must(command).result.id.id;
    return cq;
  }
  TestQp Qp(const TestCq& send_cq, const TestCq& recv_cq, const QpSpec& spec = {}) {
    TestQp qp;
    qp.client = this;
    qp.gid = gid;
    qp.sq_wqebbs = 1u << spec.log_sq;
    qp.sq = Allocate(qp.sq_wqebbs * 64);
    qp.dbrec = Allocate(64);
    if (spec.has_rq) {
      qp.rq_wqes = 1u << spec.log_rq;
      qp.rq_stride = 1u << spec.log_stride;
      qp.rq = Allocate(qp.rq_wqes * qp.rq_stride);
    }
    Command command = Make(Op::kCreateQp);
    command.args.qp = {pdn,
                       send_cq.cqn,
                       recv_cq.cqn,
                       umem,
                       reinterpret_cast<uint64_t>(qp.sq),
                       reinterpret_cast<uint64_t>(qp.rq),
                       reinterpret_cast<uint64_t>(qp.dbrec),
                       spec.log_sq,
                       spec.log_rq,
                       spec.log_stride,
                       spec.has_rq ? 1u : 0u,
                       spec.flags,
                       spec.max_read_atomic};
    qp.next = engine_.options().test.first_wqe;
    qp.next_recv = engine_.options().test.first_receive;
    if (spec.has_rq) qp.SetReceiveCounter(qp.next_recv);
    qp.attr.rnr_timer_us = spec.rnr_timer_us;
    qp.attr.ack_timeout_ms = spec.ack_timeout_ms;
    qp.attr.link_timeout_ms = spec.link_timeout_ms;
    qp.attr.retry_count = spec.retry_count;
    qp.attr.rnr_retry = spec.rnr_retry;
    const auto reply = Must(command).result.qp;
    qp.qpn = reply.qpn;
    qp.doorbell = reply.doorbell_index;
    Modify(qp, QpState::kInit, spec.access);
    return qp;
  }
  Status TryModify(const TestQp& qp, QpState state, uint32_t access = 0,
                   const TestQp* peer = nullptr) {
    Command command = Make(Op::kModifyQp);
    auto& modify = command.args.modify;
    modify = qp.attr;
    modify.qpn = qp.qpn;
    modify.state = static_cast<uint32_t>(state);
    modify.access = access;
    if (peer != nullptr) {
      std::memcpy(modify.remote_gid, peer->gid.data(), 16);
      modify.remote_qpn = peer->qpn;
    }
    Reply reply;
    return Try(command, &reply);
  }
  void Modify(const TestQp& qp, QpState state, uint32_t access = 0, const TestQp* peer = nullptr) {
    hyperloop::Must(TryModify(qp, state, access, peer));
  }
  void Connect(const TestQp& qp, const TestQp& peer) {
    Modify(qp, QpState::kReadyToReceive, 0, &peer);
    Modify(qp, QpState::kReadyToSend);
  }
  // Of `host`, or of the client's own.
  uint64_t Counter(const std::string& name, const std::string& host = "") {
    Command command = Make(Op::kQueryCounters);
    std::strcpy(command.args.counters.host, host.c_str());
    Must(command);
    std::istringstream lines(text);
    std::string key;
    uint64_t value;
    while (lines >> key >> value)
      if (key == name) return value;
    return 0;
  }
  UarPage* uar() { return reinterpret_cast<UarPage*>(uar_->bytes); }
  ContextId id() const { return id_; }

  std::byte* memory = nullptr;
  uint32_t umem = 0;
  uint32_t pdn = 0;
  uint32_t lkey = 0;
  uint32_t rkey = 0;
  std::array<uint8_t, 16> gid{};
  std::string text;

 private:
  struct UarStorage {
    alignas(64) std::byte bytes[kUarBytes];
  };
  // Zeros, of which only those pages take memory that are used, between two pages that nobody can
  // touch.
  static std::shared_ptr<void> MakeArena() {
    constexpr size_t kPage = 4096, kAll = kArena + 2 * kPage;
    void* const all = mmap(nullptr, kAll, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::byte* const arena = static_cast<std::byte*>(all) + kPage;
    if (all == MAP_FAILED || mprotect(arena, kArena, PROT_READ | PROT_WRITE) != 0) std::abort();
    return {arena, [all](void*) { munmap(all, kAll); }};
  }
  Engine& engine_;
  ContextId id_ = kNoContext;
  std::unique_ptr<UarStorage> uar_;
  std::shared_ptr<void> owner_;
  size_t used_ = 0;
};

inline void TestQp::Ring(uint16_t producer) const {
  UarPage* const page = client->uar();
  __atomic_store_n(&page->registers[doorbell], 1ull << 63 | producer, __ATOMIC_RELEASE);
  __atomic_fetch_or(&page->header.summary[doorbell / 64], 1ull << (doorbell % 64),
                    __ATOMIC_SEQ_CST);
}

inline void RunAll(Engine& engine) {
  for (int i = 0; engine.Run(1000) != 0; ++i)
    ASSERT_LT(i, 100000) << "the engine does not come to rest";
}

// Another client, which comes to `host` now, is served.
inline void ExpectServed(Engine& engine, const std::string& host) {
  Client client(engine, host);
  TestCq cq = client.Cq();
  TestQp qp = client.Qp(cq, cq, {.has_rq = false});
  client.Connect(qp, qp);
  qp.Nop(CqeMode::kAlways);
  qp.Ring();
  RunAll(engine);
  EXPECT_TRUE(cq.Poll().has_value());
}

// `options` with a clock that stands still unless the test moves it.
inline EngineOptions WithClock(EngineOptions options, const uint64_t* now) {
  options.now_ns = [now] { return *now; };
  return options;
}
// How long a queue pair with default attributes tries again where nobody answers.
inline constexpr uint32_t kDefaultPatienceMs = 8 * 64 + 1;

// Two hosts with one queue pair each, which are connected.
struct Pair {
  explicit Pair(EngineOptions options = {}, const QpSpec& a_spec = {}, const QpSpec& b_spec = {})
      : engine(WithClock(options, &now)),
        a(engine, "a"),
        b(engine, "b"),
        a_cq(a.Cq()),
        a_recv(a.Cq()),
        b_cq(b.Cq()),
        b_recv(b.Cq()),
        a_qp(a.Qp(a_cq, a_recv, a_spec)),
        b_qp(b.Qp(b_cq, b_recv, b_spec)) {
    a.Connect(a_qp, b_qp);
    b.Connect(b_qp, a_qp);
    src = a.Allocate(4096), dst = b.Allocate(4096);
    for (int i = 0; i < 4096; ++i) src[i] = static_cast<std::byte>(i * 7 + 1);
  }
  void Run() { RunAll(engine); }
  // Lets time pass, a millisecond a step, with all that can run in it.
  void Elapse(uint32_t milliseconds) {
    for (uint32_t i = 0; i < milliseconds; ++i) {
      now += 1'000'000;
      Run();
    }
  }
  uint64_t Remote(const std::byte* at) const { return reinterpret_cast<uint64_t>(at); }

  uint64_t now = 1;  // the engine's clock, in nanoseconds
  Engine engine;
  Client a, b;
  TestCq a_cq, a_recv, b_cq, b_recv;
  TestQp a_qp, b_qp;
  std::byte* src;
  std::byte* dst;
};

}  // namespace hyperloop::softrnic
