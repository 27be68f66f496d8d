// Long SENDs, WRITEs and READs move kTurnBytes at a time, so that one of them holds up the other
// queues of a machine for microseconds only. A refused transfer is refused as a whole, before its
// first byte moves. A key that is destroyed in between ends it in the middle, as on a wire.
#include <algorithm>

#include "softrnic/engine/bytes.h"
#include "softrnic/engine/requester.h"
#include "softrnic/links/packet.h"

namespace hyperloop::softrnic {

namespace {

bool IsRead(uint8_t opcode) { return opcode == rnic::kWqeRead; }

// True if `to` and `from` are one piece each, and `to` begins inside `from`, behind its first byte.
bool MovesUp(const SegmentList& to, const SegmentList& from) {
  return to.count == 1 && from.count == 1 && to.list[0].at > from.list[0].at &&
         to.list[0].at < from.list[0].at + from.list[0].length;
}

}  // namespace

// kInParts: the transfer has begun. Otherwise the failure, or why it cannot begin yet.
Outcome Requester::StartParts(Qp& qp, Qp& peer, const Wqe& wqe, const Request& request) {
  const SegmentList& local = *request.data;
  if (local.bytes > kMaxMessage) return MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
  SegmentList remote;
  if (const Outcome outcome =
          responder_.Prepare(peer, request, Responder::Rights::kWithEachPiece, &remote);
      outcome != kOk)
    return outcome;
  const bool backward = IsRead(wqe.opcode) ? MovesUp(local, remote) : MovesUp(remote, local);
  qp.send.part = std::make_unique<Part>();
  *qp.send.part = {wqe.index,
                   wqe.opcode,
                   wqe.flags,
                   wqe.segments,
                   wqe.blocks,
                   wqe.imm,
                   0,
                   backward,
                   {wqe.at, wqe.at + wqe.segments * size_t{rnic::kSegmentBytes}}};
  qp.send.resume = true;
  return kInParts;
}

Requester::Next Requester::ContinueParts(Qp& qp) {
  Wqe wqe;
  wqe.index = qp.send.part->index;
  wqe.opcode = qp.send.part->opcode;
  wqe.flags = qp.send.part->flags;
  wqe.blocks = qp.send.part->blocks;
  bool last = false;
  const Outcome outcome = NextPart(qp, *qp.send.part, &last);
  keys_.ForgetFault();
  if (outcome >= kNoEnd) return StallForRetry(qp, wqe, outcome);
  if (outcome != kOk) {
    Fail(qp, wqe, outcome);
    return Next::kStop;
  }
  if (!last) return Next::kMore;
  const uint32_t bytes = IsRead(wqe.opcode) ? static_cast<uint32_t>(qp.send.part->moved) : 0;
  qp.send.part.reset();
  qp.send.resume = false;
  return CompleteAndGoOn(qp, wqe, bytes);
}

Outcome Requester::NextPart(Qp& qp, Part& part, bool* last) {
  const bool read = IsRead(part.opcode);
  const uint32_t sges = SgeOffset(part.opcode);
  SegmentList local;
  if (!keys_.ResolveSges(qp.pd, part.wqe.data() + sges, part.segments - sges / rnic::kSegmentBytes,
                         read ? uint32_t{rnic::kLocalWrite} : 0, &local))
    return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
  Qp* const peer = qps_.Peer(qp);
  if (peer == nullptr) return kNoAnswer;
  const uint64_t bytes = std::min(local.bytes - part.moved, kTurnBytes);
  const uint64_t offset = part.backward ? local.bytes - part.moved - bytes : part.moved;
  const SegmentList slice = Slice(local, offset, bytes);
  *last = part.moved + slice.bytes == local.bytes;
  Request request = RequestOf(part.opcode, part.flags, part.imm, part.wqe.data());
  request.again = Retries::WaitedForDisk(qp, qp.count.wqes_executed);
  request.last = *last;
  if (!IsSend(part.opcode)) request.addr += offset;
  request.offset = offset;
  request.total = local.bytes;
  request.data = &slice;
  const Outcome outcome = responder_.Serve(*peer, request);
  if (outcome != kOk) return outcome;
  for (uint32_t i = 0; i < slice.count; ++i) {
    if (keys_.Lost(slice.list[i])) return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
    if (read) durability_.NoteWrite(qp, slice.list[i], /*scatter=*/false);
  }
  // `part` is null if the receiver's CQE overran a CQ that this queue pair uses too: that put the
  // queue pair into error and dropped `part`. The last part was moved all the same.
  if (qp.send.part != nullptr) part.moved += slice.bytes;
  if (*last)
    CountRequest(qp, request.kind, slice.bytes);
  else
    (read ? qp.count.bytes_received : qp.count.bytes_sent) += slice.bytes;
  return kOk;
}

}  // namespace hyperloop::softrnic
