// Long WRITEs and READs move kTurnBytes at a time, so that one of them holds up the other queues of
// a machine for microseconds only. A refused one is refused as a whole, before its first byte
// moves; keys that go away in between end it in the middle, as on a wire.
#include <algorithm>

#include "softrnic/engine_bytes.h"
#include "softrnic/engine_impl.h"

namespace hyperloop::softrnic {

namespace {

bool IsRead(uint8_t opcode) { return opcode == rnic::kWqeRead; }

}  // namespace

// kInParts: begun. kOk: cannot be cut (source and target overlap: they are copied as if through a
// buffer). Otherwise the failure, or kRnr.
Outcome Engine::Impl::StartParts(Qp& qp, Qp& peer, const Wqe& wqe, const SegmentList& local) {
  const std::byte* const body = wqe.at + rnic::kSegmentBytes;
  const uint32_t need = IsRead(wqe.opcode) ? rnic::kRemoteRead : rnic::kRemoteWrite;
  const std::byte* const remote =
      Translate(rkeys.Find(LoadBe32(body + 8)), peer.pd, LoadBe64(body), local.bytes, need);
  if (remote == nullptr) return Refuse(peer, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
  for (uint32_t i = 0; i < local.count; ++i) {
    const Segment& segment = local.list[i];
    if (segment.at < remote + local.bytes && segment.at + segment.length > remote) return kOk;
  }
  if (wqe.opcode == rnic::kWqeWriteImm && peer.has_rq && !ReceiveAvailable(peer)) return kRnr;
  qp.part = std::make_unique<Part>();
  *qp.part = {wqe.index,  wqe.opcode,
              wqe.flags,  wqe.segments,
              wqe.blocks, wqe.imm,
              0,          {wqe.at, wqe.at + wqe.segments * size_t{rnic::kSegmentBytes}}};
  qp.resume = true;
  return kInParts;
}

Engine::Impl::Next Engine::Impl::ContinueParts(Qp& qp) {
  Wqe wqe;
  wqe.index = qp.part->index;
  wqe.opcode = qp.part->opcode;
  wqe.flags = qp.part->flags;
  wqe.blocks = qp.part->blocks;
  bool last = false;
  const Outcome outcome = NextPart(qp, *qp.part, &last);
  fault = 0;
  if (outcome >= kNoAnswer) return StallForRetry(qp, wqe, outcome);
  if (outcome != kOk) {
    Fail(qp, wqe, outcome);
    return Next::kStop;
  }
  if (!last) return Next::kMore;
  const uint32_t bytes = IsRead(wqe.opcode) ? static_cast<uint32_t>(qp.part->moved) : 0;
  qp.part.reset();
  qp.resume = false;
  return CompleteAndGoOn(qp, wqe, bytes);
}

Outcome Engine::Impl::NextPart(Qp& qp, Part& part, bool* last) {
  const std::byte* const body = part.wqe.data() + rnic::kSegmentBytes;
  const bool read = IsRead(part.opcode);
  SegmentList local;
  if (!ResolveSges(qp, body + rnic::kSegmentBytes, part.segments - 2u,
                   read ? uint32_t{rnic::kLocalWrite} : 0, &local))
    return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
  Qp* const peer = Peer(qp);
  if (peer == nullptr) return kNoAnswer;
  const SegmentList slice = Slice(local, part.moved, kTurnBytes);
  *last = part.moved + slice.bytes == local.bytes;
  const uint64_t addr = LoadBe64(body) + part.moved;
  const uint32_t rkey = LoadBe32(body + 8);
  const ImmData imm{*last && part.opcode == rnic::kWqeWriteImm,
                    (part.flags & rnic::kSolicited) != 0, part.imm,
                    static_cast<uint32_t>(local.bytes)};
  const Outcome outcome =
      read ? ServeRead(*peer, addr, rkey, slice) : ReceiveWrite(*peer, addr, rkey, slice, imm);
  if (outcome != kOk) return outcome;
  for (uint32_t i = 0; i < slice.count; ++i) {
    if (fault != 0 && slice.list[i].key != nullptr && slice.list[i].key->poisoned)
      return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
    if (read) NoteWrite(qp, slice.list[i], /*scatter=*/false);
  }
  // Null: the receiver's CQE overran a CQ that this queue pair uses too, which put it into error
  // and dropped `part`. The last part was moved all the same.
  if (qp.part != nullptr) part.moved += slice.bytes;
  (read ? qp.count.bytes_received : qp.count.bytes_sent) += slice.bytes;
  if (!*last) return kOk;
  ++(read ? qp.count.reads : qp.count.writes);
  if (read) ++peer->count.read_responses_nonzero;
  return kOk;
}

}  // namespace hyperloop::softrnic
