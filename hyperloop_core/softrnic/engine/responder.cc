// The responder side of a queue pair: receives, remote writes, reads and atomics.
//
// Every check comes before the first byte is moved, so a refused request leaves memory as it was.
#include "softrnic/engine/bytes.h"
#include "softrnic/engine/engine_impl.h"

namespace hyperloop::softrnic {
namespace {

// Of longer messages the processor's own prefetching sees the most.
constexpr uint64_t kMaxPrefetch = 1024;
// A log goes on where its last record ended. Fetching the next one's place pays where it is not in
// the cache; below this size it costs as much as it saves.
constexpr uint64_t kMinPrefetchNext = 512;

// Out of the way of the usual path.
[[gnu::noinline]] void PrefetchNext(const std::byte* at, uint64_t bytes) {
  asm volatile("");  // or a compiler may drop the call: a function without effects
  Prefetch<kToWrite>(at, static_cast<uint32_t>(std::min(bytes, kMaxPrefetch)));
}

// op_own of a CQE.
uint8_t SolicitedBit(bool solicited) { return solicited ? rnic::kSolicited : 0; }
constexpr uint8_t kInlineScatter32 = 1 << 2;  // format: the payload is in the CQE's first 32 B

}  // namespace

// True if a receive is posted (and enabled). The producer counter lives in the client's doorbell
// record: it is read when the last value read is used up.
bool Engine::Impl::ReceiveAvailable(Qp& qp) {
  const auto ahead = [](uint16_t index, uint16_t of) {
    return static_cast<uint16_t>(index - of - 1) < 0x8000;
  };
  if (!ahead(qp.rq_producer, qp.rq_consumer)) {
    uint32_t raw =
        __atomic_load_n(reinterpret_cast<const uint32_t*>(qp.dbrec + rnic::kReceiveCounterOffset),
                        __ATOMIC_ACQUIRE);
    qp.rq_producer = static_cast<uint16_t>(be32toh(raw));
    if (!ahead(qp.rq_producer, qp.rq_consumer)) return false;
  }
  return (qp.flags & kQpSlaveReceive) == 0 || ahead(qp.rq_enabled, qp.rq_consumer);
}

// A receive that cannot take its message: an error CQE here, `remote_syndrome` at the requester.
Outcome Engine::Impl::FailReceive(Qp& qp, uint8_t local_syndrome, uint8_t remote_syndrome) {
  cqs.PostError(qp, *qp.recv_cq, MLX5_CQE_RESP_ERR, 0, qp.rq_consumer, local_syndrome);
  ++qp.rq_consumer;
  errors.Enter(qp);
  return remote_syndrome;
}

Outcome Engine::Impl::Refuse(Qp& qp, uint8_t syndrome) {
  errors.Enter(qp);
  return syndrome;
}

// The places of the next receive's first `bytes` bytes. Not kOk: it cannot take them.
inline Outcome Engine::Impl::ResolveReceive(Qp& qp, uint64_t bytes, SegmentList* to) {
  const std::byte* at =
      qp.rq + (static_cast<size_t>(qp.rq_consumer & qp.rq_mask) << qp.rq_log_stride);
  const std::byte* const end = at + (size_t{1} << qp.rq_log_stride);
  uint64_t left = bytes;
  MemoryKey* key = nullptr;
  for (; left > 0 && at < end; at += rnic::kSegmentBytes) {
    const uint32_t count = LoadBe32(at);
    const uint32_t lkey = LoadBe32(at + 4);
    if (count == 0 && lkey == rnic::kReceiveTerminatorLkey) break;
    const uint64_t length = count != 0 ? count : 1ull << 31;
    if (key == nullptr || key->lkey != lkey) key = keys.FindLocal(lkey);
    std::byte* const piece =
        KeyTable::Translate(key, qp.pd, LoadBe64(at + 8), length, rnic::kLocalWrite);
    if (piece == nullptr) [[unlikely]]
      return FailReceive(qp, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
    const auto used = static_cast<uint32_t>(std::min(length, left));
    to->Add(piece, used, key);
    left -= used;
  }
  turn.AddPieces(to->count);
  if (left > 0) [[unlikely]]
    return FailReceive(qp, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR,
                       MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
  return kOk;
}

Outcome Engine::Impl::ReceiveSend(Qp& qp, const SegmentList& payload, uint8_t cqe_opcode,
                                  uint32_t imm, bool solicited) {
  if (!qp.has_rq) [[unlikely]]
    return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
  if (!ReceiveAvailable(qp)) [[unlikely]]
    return kRnr;
  if (payload.bytes <= kMaxPrefetch) {
    for (uint32_t i = 0; i < payload.count; ++i)
      Prefetch<kToRead>(payload.list[i].at, payload.list[i].length);
  }
  SegmentList to;
  if (const Outcome outcome = ResolveReceive(qp, payload.bytes, &to); outcome != kOk) [[unlikely]]
    return outcome;
  if (payload.bytes - 1 < cqe_scatter_bytes) [[unlikely]]
    return ReceiveIntoCqe(qp, payload, cqe_opcode, imm, solicited);
  CopyList(to, payload);
  for (uint32_t i = 0; i < to.count; ++i) durability.NoteWrite(qp, to.list[i], /*scatter=*/true);
  if (keys.Lost(to)) [[unlikely]]
    return FailReceive(qp, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
  qp.count.bytes_received += payload.bytes;
  qp.count.recv_scatter_bytes += payload.bytes;
  const uint16_t index = qp.rq_consumer++;
  cqs.Post(qp, *qp.recv_cq, cqe_opcode, 0, index, static_cast<uint32_t>(payload.bytes), imm,
           SolicitedBit(solicited));
  return kOk;
}

// Scatter to CQE (1 to 32 bytes): a driver is to copy the payload to the receive's memory when it
// polls.
Outcome Engine::Impl::ReceiveIntoCqe(Qp& qp, const SegmentList& payload, uint8_t cqe_opcode,
                                     uint32_t imm, bool solicited) {
  uint8_t owner;
  if (auto* at = reinterpret_cast<std::byte*>(cqs.NextEntry(*qp.recv_cq, &owner)); at != nullptr)
    for (uint32_t i = 0; i < payload.count; at += payload.list[i++].length)
      CopyBytes(at, payload.list[i].at, payload.list[i].length);
  qp.count.bytes_received += payload.bytes;
  const uint16_t index = qp.rq_consumer++;
  cqs.Post(qp, *qp.recv_cq, cqe_opcode, 0, index, static_cast<uint32_t>(payload.bytes), imm,
           static_cast<uint8_t>(SolicitedBit(solicited) | kInlineScatter32));
  return kOk;
}

// A part of a SEND that moves in several: no completion yet (CompleteReceive). Each goes to the
// next receive, which must be long enough for the whole.
Outcome Engine::Impl::ReceiveSendPart(Qp& qp, const SegmentList& part, uint64_t offset,
                                      uint64_t total) {
  if (!qp.has_rq) return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
  if (!ReceiveAvailable(qp)) return kRnr;
  SegmentList whole;
  if (const Outcome outcome = ResolveReceive(qp, total, &whole); outcome != kOk) return outcome;
  const SegmentList to = Slice(whole, offset, part.bytes);
  CopyList(to, part);
  for (uint32_t i = 0; i < to.count; ++i) {
    durability.NoteWrite(qp, to.list[i], /*scatter=*/true);
    if (keys.fault() && to.list[i].key->poisoned)
      return FailReceive(qp, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
  }
  qp.count.bytes_received += part.bytes;
  qp.count.recv_scatter_bytes += part.bytes;
  return kOk;
}

// All parts of a SEND are there.
void Engine::Impl::CompleteReceive(Qp& qp, uint8_t cqe_opcode, uint32_t bytes, uint32_t imm,
                                   bool solicited) {
  const uint16_t index = qp.rq_consumer++;
  cqs.Post(qp, *qp.recv_cq, cqe_opcode, 0, index, bytes, imm, SolicitedBit(solicited));
}

Outcome Engine::Impl::ReceiveWrite(Qp& qp, uint64_t addr, uint32_t rkey, const SegmentList& payload,
                                   const ImmData& imm) {
  if (imm.present) {
    if (!qp.has_rq) [[unlikely]]
      return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
    if (!ReceiveAvailable(qp)) [[unlikely]]
      return kRnr;
  }
  if ((qp.access & rnic::kRemoteWrite) == 0) [[unlikely]]
    return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
  if (payload.bytes != 0) {
    MemoryKey* const key = keys.FindRemote(rkey);
    std::byte* to = KeyTable::Translate(key, qp.pd, addr, payload.bytes, rnic::kRemoteWrite);
    if (to == nullptr) [[unlikely]]
      return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
    std::byte* at = to;
    for (uint32_t i = 0; i < payload.count; ++i) {
      CopyBytes(at, payload.list[i].at, payload.list[i].length);
      at += payload.list[i].length;
    }
    if (payload.bytes >= kMinPrefetchNext && reinterpret_cast<uintptr_t>(to) - qp.write_end < 64)
        [[unlikely]]
      PrefetchNext(at, payload.bytes);
    qp.write_end = reinterpret_cast<uintptr_t>(at);
    durability.NoteWrite(qp, {to, static_cast<uint32_t>(payload.bytes), key}, /*scatter=*/false);
    if (keys.Lost(*key)) [[unlikely]]
      return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
    qp.count.bytes_received += payload.bytes;
  }
  if (imm.present) {
    const uint16_t index = qp.rq_consumer++;
    cqs.Post(qp, *qp.recv_cq, MLX5_CQE_RESP_WR_IMM, 0, index, imm.bytes, imm.value,
             SolicitedBit(imm.solicited));
  }
  return kOk;
}

// The bytes at `peer` that a long request reads or writes; every check of the whole comes first.
Outcome Engine::Impl::FindTarget(Qp& peer, const Wqe& wqe, uint64_t bytes, SegmentList* remote) {
  if (IsSend(wqe.opcode)) {
    if (!peer.has_rq) return Refuse(peer, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
    return ReceiveAvailable(peer) ? ResolveReceive(peer, bytes, remote) : kRnr;
  }
  if (wqe.opcode == rnic::kWqeWriteImm && !peer.has_rq)
    return Refuse(peer, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
  const std::byte* const body = wqe.at + rnic::kSegmentBytes;
  const uint32_t need = wqe.opcode == rnic::kWqeRead ? rnic::kRemoteRead : rnic::kRemoteWrite;
  MemoryKey* const key = keys.FindRemote(LoadBe32(body + 8));
  std::byte* const at = KeyTable::Translate(key, peer.pd, LoadBe64(body), bytes, need);
  if (at == nullptr) return Refuse(peer, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
  if (wqe.opcode == rnic::kWqeWriteImm && !ReceiveAvailable(peer)) return kRnr;
  remote->Add(at, static_cast<uint32_t>(bytes), key);
  return kOk;
}

// Not kOk: the READ waits for its flush, or fails with it.
Outcome Engine::Impl::FlushFirst(Qp& qp, bool again) {
  const Outcome outcome = durability.FlushBehindRead(qp, again);
  return outcome == kOk || outcome == kFlushing ? outcome : Refuse(qp, outcome);
}

Outcome Engine::Impl::ServeRead(Qp& qp, uint64_t addr, uint32_t rkey, const SegmentList& to,
                                bool again) {
  if ((qp.access & rnic::kRemoteRead) == 0) [[unlikely]]
    return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
  if (to.bytes == 0) return options.zero_byte_read_flushes ? FlushFirst(qp, again) : kOk;
  MemoryKey* const key = keys.FindRemote(rkey);
  const std::byte* from = KeyTable::Translate(key, qp.pd, addr, to.bytes, rnic::kRemoteRead);
  if (from == nullptr) [[unlikely]]
    return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
  if (qp.dirty_count != 0 || qp.flushes) [[unlikely]]
    if (const Outcome outcome = FlushFirst(qp, again); outcome != kOk) return outcome;
  for (uint32_t i = 0; i < to.count; ++i) {
    CopyBytes(to.list[i].at, from, to.list[i].length);
    from += to.list[i].length;
  }
  if (keys.Lost(*key)) [[unlikely]]
    return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
  qp.count.bytes_sent += to.bytes;
  return kOk;
}

Outcome Engine::Impl::ServeAtomic(Qp& qp, uint64_t addr, uint32_t rkey, uint8_t opcode,
                                  uint64_t swap_add, uint64_t compare, uint64_t* old) {
  if ((qp.access & rnic::kRemoteAtomic) == 0) [[unlikely]]
    return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
  if ((addr & 7) != 0) [[unlikely]]
    return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
  MemoryKey* const key = keys.FindRemote(rkey);
  std::byte* const at = KeyTable::Translate(key, qp.pd, addr, 8, rnic::kRemoteAtomic);
  if (at == nullptr || (reinterpret_cast<uintptr_t>(at) & 7) != 0) [[unlikely]]
    return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
  // Operands arrive big-endian and memory is in host order. Atomic among this device's operations
  // only.
  auto* const word = reinterpret_cast<uint64_t*>(at);
  const uint64_t value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
  const uint64_t next = opcode == rnic::kWqeFetchAdd ? value + swap_add
                        : value == compare           ? swap_add
                                                     : value;
  if (keys.Lost(*key)) [[unlikely]]
    return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
  if (next != value || opcode == rnic::kWqeFetchAdd) {
    __atomic_store_n(word, next, __ATOMIC_RELEASE);
    durability.NoteWrite(qp, {at, 8, key}, /*scatter=*/false);
  }
  qp.count.bytes_received += 8;
  qp.count.bytes_sent += 8;
  *old = value;
  return kOk;
}

}  // namespace hyperloop::softrnic
