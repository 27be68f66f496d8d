#include "rnic/wqe.h"

#include <endian.h>

#include <cassert>
#include <cstring>

namespace hyperloop::rnic {
namespace {

// Appends segments behind the control segment, which Finish writes.
class Writer {
 public:
  explicit Writer(void* wqe) : begin_(static_cast<std::byte*>(wqe)), at_(begin_ + kSegmentBytes) {}

  template <class T>
  Writer& Add(const T& segment) {
    static_assert(sizeof(T) == kSegmentBytes);
    std::memcpy(at_, &segment, sizeof(segment));
    at_ += kSegmentBytes;
    return *this;
  }

  Writer& AddSges(std::span<const Sge> sges) {
    for (const Sge& sge : sges) {
      if (sge.length == 0) continue;
      Add(mlx5_wqe_data_seg{htobe32(sge.length), htobe32(sge.lkey), htobe64(sge.addr)});
    }
    return *this;
  }

  Writer& AddRemote(uint64_t addr, uint32_t rkey) {
    return Add(mlx5_wqe_raddr_seg{htobe64(addr), htobe32(rkey), 0});
  }

  Writer& AddInline(std::span<const Sge> sges) {
    size_t payload = 0;
    for (const Sge& sge : sges) payload += sge.length;
    if (payload == 0) return *this;
    assert(payload <= kMaxInline);
    const uint32_t header = htobe32(static_cast<uint32_t>(payload) | MLX5_INLINE_SEG);
    std::byte* const end = at_ + InlineSegments(payload) * kSegmentBytes;
    std::memcpy(at_, &header, sizeof(header));
    at_ += sizeof(header);
    for (const Sge& sge : sges) {
      std::memcpy(at_, reinterpret_cast<const void*>(sge.addr), sge.length);
      at_ += sge.length;
    }
    std::memset(at_, 0, static_cast<size_t>(end - at_));
    at_ = end;
    return *this;
  }

  size_t Finish(const WqeControl& control, WqeOpcode opcode, uint32_t imm = 0) {
    return FinishWith(control, opcode, static_cast<uint32_t>((at_ - begin_) / kSegmentBytes), imm);
  }

  size_t FinishWith(const WqeControl& control, WqeOpcode opcode, uint32_t segments, uint32_t imm) {
    assert(segments <= kMaxWqeSegments);
    const auto mode = static_cast<uint8_t>(static_cast<uint8_t>(control.completion) << 2);
    const uint8_t flags =
        mode | (control.fence ? kFence : 0) | (control.solicited ? kSolicited : 0);
    mlx5_wqe_ctrl_seg segment;
    mlx5dv_set_ctrl_seg(&segment, control.index, opcode, 0, control.qpn, flags,
                        static_cast<uint8_t>(segments), 0, htobe32(imm));
    segment.dci_stream_channel_id = 0;
    std::memcpy(begin_, &segment, sizeof(segment));
    return static_cast<size_t>(segments) * kSegmentBytes;
  }

 private:
  std::byte* begin_;
  std::byte* at_;
};

size_t EncodeEnable(void* wqe, const WqeControl& control, WqeOpcode opcode, uint32_t object,
                    uint32_t index) {
  return Writer(wqe).Add(EnableSegment{0, htobe32(index), htobe32(object)}).Finish(control, opcode);
}

}  // namespace

size_t EncodeNop(void* wqe, const WqeControl& control, uint32_t segments) {
  return Writer(wqe).FinishWith(control, kWqeNop, segments, 0);
}

size_t EncodeSend(void* wqe, const WqeControl& control, std::span<const Sge> sges) {
  return Writer(wqe).AddSges(sges).Finish(control, kWqeSend);
}

size_t EncodeSendImm(void* wqe, const WqeControl& control, std::span<const Sge> sges,
                     uint32_t imm) {
  return Writer(wqe).AddSges(sges).Finish(control, kWqeSendImm, imm);
}

size_t EncodeWrite(void* wqe, const WqeControl& control, uint64_t remote_addr, uint32_t rkey,
                   std::span<const Sge> sges) {
  return Writer(wqe).AddRemote(remote_addr, rkey).AddSges(sges).Finish(control, kWqeWrite);
}

size_t EncodeWriteImm(void* wqe, const WqeControl& control, uint64_t remote_addr, uint32_t rkey,
                      std::span<const Sge> sges, uint32_t imm) {
  return Writer(wqe).AddRemote(remote_addr, rkey).AddSges(sges).Finish(control, kWqeWriteImm, imm);
}

size_t EncodeRead(void* wqe, const WqeControl& control, uint64_t remote_addr, uint32_t rkey,
                  std::span<const Sge> sges) {
  return Writer(wqe).AddRemote(remote_addr, rkey).AddSges(sges).Finish(control, kWqeRead);
}

size_t EncodeInline(void* wqe, const WqeControl& control, WqeOpcode opcode,
                    std::span<const Sge> sges, uint64_t remote_addr, uint32_t rkey, uint32_t imm) {
  Writer writer(wqe);
  if (opcode == kWqeWrite || opcode == kWqeWriteImm) writer.AddRemote(remote_addr, rkey);
  const bool has_imm = opcode == kWqeSendImm || opcode == kWqeWriteImm;
  return writer.AddInline(sges).Finish(control, opcode, has_imm ? imm : 0);
}

size_t EncodeCompareSwap(void* wqe, const WqeControl& control, uint64_t remote_addr, uint32_t rkey,
                         uint64_t expected, uint64_t desired, const Sge& result) {
  return Writer(wqe)
      .AddRemote(remote_addr, rkey)
      .Add(mlx5_wqe_atomic_seg{htobe64(desired), htobe64(expected)})
      .AddSges({&result, 1})
      .Finish(control, kWqeCompareSwap);
}

size_t EncodeFetchAdd(void* wqe, const WqeControl& control, uint64_t remote_addr, uint32_t rkey,
                      uint64_t addend, const Sge& result) {
  return Writer(wqe)
      .AddRemote(remote_addr, rkey)
      .Add(mlx5_wqe_atomic_seg{htobe64(addend), 0})
      .AddSges({&result, 1})
      .Finish(control, kWqeFetchAdd);
}

size_t EncodeWait(void* wqe, const WqeControl& control, uint32_t cqn, uint32_t last) {
  return EncodeEnable(wqe, control, kWqeWait, cqn, last & kWaitIndexMask);
}

size_t EncodeSendEnable(void* wqe, const WqeControl& control, uint32_t qpn, uint16_t index) {
  return EncodeEnable(wqe, control, kWqeSendEnable, qpn, index);
}

size_t EncodeReceiveEnable(void* wqe, const WqeControl& control, uint32_t qpn, uint16_t index) {
  return EncodeEnable(wqe, control, kWqeReceiveEnable, qpn, index);
}

void CopyToRing(std::byte* ring, uint32_t wqebbs, uint16_t index, const void* wqe, size_t bytes) {
  const size_t start = static_cast<size_t>(index & (wqebbs - 1)) * kWqebbBytes;
  const size_t ring_bytes = static_cast<size_t>(wqebbs) * kWqebbBytes;
  const size_t first = bytes < ring_bytes - start ? bytes : ring_bytes - start;
  std::memcpy(ring + start, wqe, first);
  std::memcpy(ring, static_cast<const std::byte*>(wqe) + first, bytes - first);
}

void EncodeReceive(void* entry, size_t stride, std::span<const Sge> sges) {
  auto* at = static_cast<std::byte*>(entry);
  std::byte* const end = at + stride;
  for (const Sge& sge : sges) {
    if (sge.length == 0) continue;
    assert(at + kSegmentBytes <= end);
    const mlx5_wqe_data_seg segment{htobe32(sge.length), htobe32(sge.lkey), htobe64(sge.addr)};
    std::memcpy(at, &segment, sizeof(segment));
    at += kSegmentBytes;
  }
  if (at + kSegmentBytes <= end) {
    const mlx5_wqe_data_seg terminator{0, htobe32(kReceiveTerminatorLkey), 0};
    std::memcpy(at, &terminator, sizeof(terminator));
  }
}

void InitCqeRing(void* ring, uint32_t depth) {
  std::memset(ring, 0, static_cast<size_t>(depth) * sizeof(mlx5_cqe64));
  auto* cqe = static_cast<mlx5_cqe64*>(ring);
  for (uint32_t i = 0; i < depth; ++i) cqe[i].op_own = kCqeInvalid;
}

WcStatus SyndromeStatus(uint8_t syndrome) {
  switch (syndrome) {
    case MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR:
      return WcStatus::kLocalLength;
    case MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR:
      return WcStatus::kLocalQpOperation;
    case MLX5_CQE_SYNDROME_LOCAL_PROT_ERR:
      return WcStatus::kLocalProtection;
    case MLX5_CQE_SYNDROME_WR_FLUSH_ERR:
      return WcStatus::kFlushed;
    case MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR:
      return WcStatus::kLocalAccess;
    case MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR:
      return WcStatus::kRemoteInvalidRequest;
    case MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR:
      return WcStatus::kRemoteAccess;
    case MLX5_CQE_SYNDROME_REMOTE_OP_ERR:
      return WcStatus::kRemoteOperation;
    case MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR:
      return WcStatus::kRetryExceeded;
    case MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR:
      return WcStatus::kRnrRetryExceeded;
    case MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR:
      return WcStatus::kRemoteAborted;
    default:
      return WcStatus::kOther;
  }
}

Completion DecodeCqe(const mlx5_cqe64& cqe) {
  Completion completion;
  const uint8_t opcode = cqe.op_own >> 4;
  completion.qpn = be32toh(cqe.sop_drop_qpn) & kObjectMask;
  completion.wqe_counter = be16toh(cqe.wqe_counter);
  completion.byte_length = be32toh(cqe.byte_cnt);
  switch (opcode) {
    case MLX5_CQE_REQ:
      break;
    case MLX5_CQE_RESP_WR_IMM:
      completion.opcode = WcOpcode::kReceiveWriteImm;
      completion.imm = be32toh(cqe.imm_inval_pkey);
      break;
    case MLX5_CQE_RESP_SEND:
      completion.opcode = WcOpcode::kReceive;
      break;
    case MLX5_CQE_RESP_SEND_IMM:
      completion.opcode = WcOpcode::kReceiveImm;
      completion.imm = be32toh(cqe.imm_inval_pkey);
      break;
    case MLX5_CQE_REQ_ERR:
    case MLX5_CQE_RESP_ERR: {
      mlx5_err_cqe error;
      std::memcpy(&error, &cqe, sizeof(error));
      completion.status = SyndromeStatus(error.syndrome);
      completion.opcode = opcode == MLX5_CQE_REQ_ERR ? WcOpcode::kSendSide : WcOpcode::kReceive;
      completion.byte_length = 0;
      break;
    }
    default:
      completion.status = WcStatus::kOther;
  }
  return completion;
}

}  // namespace hyperloop::rnic
