#include "softrnic/engine/responder.h"

#include <algorithm>
#include <span>

#include "softrnic/engine/bytes.h"

namespace hyperloop::softrnic {
namespace {

// For longer messages the processor's own prefetching does most of the work.
constexpr uint64_t kMaxPrefetch = 1024;
// A log goes on where its last record ended. Fetching the place of the next record into the cache
// saves time if records are at least this long; below that it costs as much as it saves.
constexpr uint64_t kMinPrefetchNext = 512;

// A function of its own, so that it does not lengthen the usual path.
[[gnu::noinline]] void PrefetchNext(const std::byte* at, uint64_t bytes) {
  asm volatile("");  // otherwise a compiler may drop the call of a function without effects
  Prefetch<kToWrite>(at, static_cast<uint32_t>(std::min(bytes, kMaxPrefetch)));
}

// Bits of a CQE's op_own: the event is solicited; the payload is in the CQE's first 32 B.
uint8_t SolicitedBit(bool solicited) { return solicited ? rnic::kSolicited : 0; }
constexpr uint8_t kInlineScatter32 = 1 << 2;

}  // namespace

bool Responder::ReceiveAvailable(Qp& qp) {
  Qp::Receive& receive = qp.receive;
  const auto ahead = [](uint16_t index, uint16_t of) {
    return static_cast<uint16_t>(index - of - 1) < 0x8000;
  };
  if (!ahead(receive.producer, receive.consumer)) {
    uint32_t raw = __atomic_load_n(
        reinterpret_cast<const uint32_t*>(receive.dbrec + rnic::kReceiveCounterOffset),
        __ATOMIC_ACQUIRE);
    receive.producer = static_cast<uint16_t>(be32toh(raw));
    if (!ahead(receive.producer, receive.consumer)) return false;
  }
  return (qp.flags & kQpSlaveReceive) == 0 || ahead(receive.enabled, receive.consumer);
}

// Fails a receive that cannot take its message: an error CQE here, `remote_syndrome` at the
// requester.
Outcome Responder::FailReceive(Qp& qp, uint8_t local_syndrome, uint8_t remote_syndrome) {
  cqs_.PostError(qp, *qp.receive.cq, MLX5_CQE_RESP_ERR, 0, qp.receive.consumer, local_syndrome);
  ++qp.receive.consumer;
  errors_.Enter(qp);
  return remote_syndrome;
}

Outcome Responder::Refuse(Qp& qp, uint8_t syndrome) {
  errors_.Enter(qp);
  return syndrome;
}

// `*to` becomes the places of the next receive's first `bytes` bytes. Not kOk: it cannot take them.
inline Outcome Responder::ResolveReceive(Qp& qp, uint64_t bytes, SegmentList* to) {
  const Qp::Receive& receive = qp.receive;
  const std::byte* at =
      receive.ring + (static_cast<size_t>(receive.consumer & receive.mask) << receive.log_stride);
  const std::byte* const end = at + (size_t{1} << receive.log_stride);
  uint64_t left = bytes;
  MemoryKey* key = nullptr;
  for (; left > 0 && at < end; at += rnic::kSegmentBytes) {
    const uint32_t count = LoadBe32(at);
    const uint32_t lkey = LoadBe32(at + 4);
    if (count == 0 && lkey == rnic::kReceiveTerminatorLkey) break;
    const uint64_t length = count != 0 ? count : 1ull << 31;
    if (key == nullptr || key->lkey != lkey) key = keys_.FindLocal(lkey);
    std::byte* const piece =
        KeyTable::Translate(key, qp.pd, LoadBe64(at + 8), length, rnic::kLocalWrite);
    if (piece == nullptr) [[unlikely]]
      return FailReceive(qp, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
    const auto used = static_cast<uint32_t>(std::min(length, left));
    to->Add(piece, used, key);
    left -= used;
  }
  turn_.AddPieces(to->count);
  if (left > 0) [[unlikely]]
    return FailReceive(qp, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR,
                       MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
  return kOk;
}

void Responder::CompleteSend(Qp& qp, const Request& request, uint8_t op_own_bits) {
  const bool imm = request.opcode == rnic::kWqeSendImm;
  const uint16_t index = qp.receive.consumer++;
  cqs_.Post(qp, *qp.receive.cq, imm ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_SEND, 0, index,
            static_cast<uint32_t>(request.total), imm ? request.imm : 0,
            static_cast<uint8_t>(SolicitedBit(request.solicited) | op_own_bits));
}

Outcome Responder::Send(Qp& qp, const Request& request) {
  if (!request.whole()) [[unlikely]]
    return SendPiece(qp, request);
  if (!qp.receive.exists) [[unlikely]]
    return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
  if (!ReceiveAvailable(qp)) [[unlikely]]
    return kRnr;
  const SegmentList& payload = *request.data;
  if (payload.bytes <= kMaxPrefetch) {
    for (uint32_t i = 0; i < payload.count; ++i)
      Prefetch<kToRead>(payload.list[i].at, payload.list[i].length);
  }
  SegmentList to;
  if (const Outcome outcome = ResolveReceive(qp, payload.bytes, &to); outcome != kOk) [[unlikely]]
    return outcome;
  if (payload.bytes - 1 < cqe_scatter_bytes_) [[unlikely]]
    return SendIntoCqe(qp, request);
  CopyList(to, payload);
  for (uint32_t i = 0; i < to.count; ++i) durability_.NoteWrite(qp, to.list[i], /*scatter=*/true);
  if (keys_.Lost(to)) [[unlikely]]
    return FailReceive(qp, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
  qp.count.bytes_received += payload.bytes;
  qp.count.recv_scatter_bytes += payload.bytes;
  CompleteSend(qp, request, 0);
  return kOk;
}

// Scatter to CQE, for 1 to 32 bytes. The driver copies the payload to the receive's memory when it
// polls.
Outcome Responder::SendIntoCqe(Qp& qp, const Request& request) {
  const SegmentList& payload = *request.data;
  uint8_t owner;
  if (auto* at = reinterpret_cast<std::byte*>(cqs_.NextEntry(*qp.receive.cq, &owner));
      at != nullptr)
    for (uint32_t i = 0; i < payload.count; at += payload.list[i++].length)
      CopyBytes(at, payload.list[i].at, payload.list[i].length);
  qp.count.bytes_received += payload.bytes;
  CompleteSend(qp, request, kInlineScatter32);
  return kOk;
}

// Each piece of a SEND goes to the same receive, which must be long enough for the whole; the last
// piece completes it. A piece whose memory at the requester was lost completes nothing, and the
// requester's WQE fails.
Outcome Responder::SendPiece(Qp& qp, const Request& request) {
  if (!qp.receive.exists) return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
  if (!ReceiveAvailable(qp)) return kRnr;
  const SegmentList& piece = *request.data;
  SegmentList all;
  if (const Outcome outcome = ResolveReceive(qp, request.total, &all); outcome != kOk)
    return outcome;
  const SegmentList to = Slice(all, request.offset, piece.bytes);
  CopyList(to, piece);
  for (uint32_t i = 0; i < to.count; ++i) {
    durability_.NoteWrite(qp, to.list[i], /*scatter=*/true);
    if (keys_.Lost(to.list[i]))
      return FailReceive(qp, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
  }
  qp.count.bytes_received += piece.bytes;
  qp.count.recv_scatter_bytes += piece.bytes;
  if (request.last && !keys_.Lost(piece)) CompleteSend(qp, request, 0);
  return kOk;
}

Outcome Responder::Write(Qp& qp, const Request& request) {
  const bool imm = request.opcode == rnic::kWqeWriteImm && request.last;
  if (imm) {
    if (!qp.receive.exists) [[unlikely]]
      return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
    if (!ReceiveAvailable(qp)) [[unlikely]]
      return kRnr;
  }
  if ((qp.access & rnic::kRemoteWrite) == 0) [[unlikely]]
    return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
  const SegmentList& payload = *request.data;
  if (payload.bytes != 0) {
    MemoryKey* const key = keys_.FindRemote(request.rkey);
    std::byte* to =
        KeyTable::Translate(key, qp.pd, request.addr, payload.bytes, rnic::kRemoteWrite);
    if (to == nullptr) [[unlikely]]
      return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
    PlaceBehind(to);
    std::byte* at = to;
    for (const Segment& piece : std::span(payload.list.data(), payload.count)) {
      const uint32_t length = piece.length;
      CopyBytes(at, piece.at, length);
      at += length;
    }
    if (payload.bytes >= kMinPrefetchNext &&
        reinterpret_cast<uintptr_t>(to) - qp.receive.write_end < 64) [[unlikely]]
      PrefetchNext(at, payload.bytes);
    qp.receive.write_end = reinterpret_cast<uintptr_t>(at);
    durability_.NoteWrite(qp, {to, static_cast<uint32_t>(payload.bytes), key}, /*scatter=*/false);
    if (keys_.Lost(*key)) [[unlikely]]
      return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
    qp.count.bytes_received += payload.bytes;
  }
  if (imm) {
    const uint16_t index = qp.receive.consumer++;
    cqs_.Post(qp, *qp.receive.cq, MLX5_CQE_RESP_WR_IMM, 0, index,
              static_cast<uint32_t>(request.total), request.imm, SolicitedBit(request.solicited));
  }
  return kOk;
}

Outcome Responder::Prepare(Qp& qp, const Request& request, Rights rights, SegmentList* places) {
  if (IsSend(request.opcode)) {
    if (!qp.receive.exists) return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
    return ReceiveAvailable(qp) ? ResolveReceive(qp, request.total, places) : kRnr;
  }
  const bool imm = request.opcode == rnic::kWqeWriteImm;
  if (imm && !qp.receive.exists) return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
  const uint32_t need = request.opcode == rnic::kWqeRead ? rnic::kRemoteRead : rnic::kRemoteWrite;
  MemoryKey* const key = keys_.FindRemote(request.rkey);
  std::byte* const at = KeyTable::Translate(key, qp.pd, request.addr, request.total, need);
  if (at == nullptr || (rights == Rights::kNow && (qp.access & need) == 0))
    return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
  if (imm && !ReceiveAvailable(qp)) return kRnr;
  places->Add(at, static_cast<uint32_t>(request.total), key);
  return kOk;
}

Outcome Responder::FlushFirst(Qp& qp, bool again) {
  const Outcome outcome = durability_.FlushBehindRead(qp, again);
  return outcome == kOk || outcome == kFlushing ? outcome : Refuse(qp, outcome);
}

Outcome Responder::Read(Qp& qp, const Request& request) {
  if ((qp.access & rnic::kRemoteRead) == 0) [[unlikely]]
    return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
  const SegmentList& to = *request.data;
  if (to.bytes == 0) return zero_byte_read_flushes_ ? FlushFirst(qp, request.again) : kOk;
  MemoryKey* const key = keys_.FindRemote(request.rkey);
  const std::byte* from =
      KeyTable::Translate(key, qp.pd, request.addr, to.bytes, rnic::kRemoteRead);
  if (from == nullptr) [[unlikely]]
    return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
  if (qp.dirty.count != 0 || qp.dirty.flushes) [[unlikely]]
    if (const Outcome outcome = FlushFirst(qp, request.again); outcome != kOk) return outcome;
  for (const Segment& piece : std::span(to.list.data(), to.count)) {
    const uint32_t length = piece.length;
    CopyBytes(piece.at, from, length);
    from += length;
  }
  if (keys_.Lost(*key)) [[unlikely]]
    return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
  qp.count.bytes_sent += to.bytes;
  // If the last piece lost its place at the requester, the READ fails there and has no answer to
  // count.
  if (request.whole() || (request.last && !keys_.Lost(to))) ++qp.count.read_responses_nonzero;
  return kOk;
}

Outcome Responder::Atomic(Qp& qp, const Request& request) {
  if ((qp.access & rnic::kRemoteAtomic) == 0) [[unlikely]]
    return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
  if ((request.addr & 7) != 0) [[unlikely]]
    return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
  MemoryKey* const key = keys_.FindRemote(request.rkey);
  std::byte* const at = KeyTable::Translate(key, qp.pd, request.addr, 8, rnic::kRemoteAtomic);
  if (at == nullptr || (reinterpret_cast<uintptr_t>(at) & 7) != 0) [[unlikely]]
    return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
  // Operands arrive big-endian, and memory is in host order. The operation is atomic only with
  // respect to this device's other operations.
  auto* const word = reinterpret_cast<uint64_t*>(at);
  const bool add = request.opcode == rnic::kWqeFetchAdd;
  const uint64_t value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
  const uint64_t next = add                        ? value + request.swap_add
                        : value == request.compare ? request.swap_add
                                                   : value;
  if (keys_.Lost(*key)) [[unlikely]]
    return Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
  if (next != value || add) {
    __atomic_store_n(word, next, __ATOMIC_RELEASE);
    durability_.NoteWrite(qp, {at, 8, key}, /*scatter=*/false);
  }
  qp.count.bytes_received += 8;
  qp.count.bytes_sent += 8;
  CopyBytes(request.data->list[0].at, reinterpret_cast<const std::byte*>(&value), 8);
  return kOk;
}

}  // namespace hyperloop::softrnic
