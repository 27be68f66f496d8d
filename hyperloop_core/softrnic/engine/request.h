// Request: a request, or a piece of one, as the responder's half of a queue pair gets it. It is the
// same for the four ways in which requests come: at once from a WQE, delivered later, moved in
// pieces, or by a link.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rnic/wqe.h"
#include "softrnic/engine/bytes.h"
#include "softrnic/engine/segments.h"
#include "softrnic/engine/wqe_view.h"

namespace hyperloop::softrnic {

struct Request {
  enum class Kind : uint8_t { kSend, kWrite, kRead, kAtomic };
  static Kind KindOf(uint8_t opcode) {
    return IsSend(opcode)             ? Kind::kSend
           : IsWrite(opcode)          ? Kind::kWrite
           : opcode == rnic::kWqeRead ? Kind::kRead
                                      : Kind::kAtomic;
  }

  Kind kind;
  uint8_t opcode;  // of its WQE
  bool solicited = false;
  // A READ that ended in kFlushing before; no other request of its requester has run here since.
  bool again = false;
  // The piece is the last one to move. (In memory it may be the first one.)
  bool last = true;
  uint32_t imm;                // of SEND_IMM and WRITE_IMM, big-endian
  uint32_t rkey;               // WRITE, READ, atomics
  uint64_t addr;               // of the piece's first byte; WRITE, READ, atomics
  uint64_t swap_add, compare;  // atomics
  uint64_t offset;             // of the piece in the message
  uint64_t total = 0;          // bytes of the whole message
  // Memory of the requester or a packet: the bytes that a SEND or WRITE brings, or the place for
  // the bytes of a READ or for the 8 B that an atomic found. Not owned.
  const SegmentList* data = nullptr;

  // Members without a default value stay uninitialised if the request does not have them.
  Request(Kind k, uint8_t op) : kind(k), opcode(op) {}  // NOLINT
  bool whole() const { return data->bytes == total; }
};

// The request of the WQE that begins at `wqe`, without its data and their length. The WQE must be
// as long as its opcode wants. If the caller passes a constant `kind`, the branches below cost
// nothing.
[[gnu::always_inline]] inline Request RequestOf(Request::Kind kind, uint8_t opcode, uint8_t flags,
                                                uint32_t imm, const std::byte* wqe) {
  const std::byte* const body = wqe + rnic::kSegmentBytes;
  Request r(kind, opcode);
  if (kind == Request::Kind::kSend || kind == Request::Kind::kWrite) {
    r.solicited = (flags & rnic::kSolicited) != 0;
    r.imm = imm;
  }
  if (kind == Request::Kind::kSend) return r;
  r.addr = LoadBe64(body);
  r.rkey = LoadBe32(body + 8);
  if (kind == Request::Kind::kAtomic) {
    r.swap_add = LoadBe64(body + 16);
    r.compare = LoadBe64(body + 24);
  }
  return r;
}
inline Request RequestOf(uint8_t opcode, uint8_t flags, uint32_t imm, const std::byte* wqe) {
  return RequestOf(Request::KindOf(opcode), opcode, flags, imm, wqe);
}

}  // namespace hyperloop::softrnic
