// mlx5 work queue formats: what a driver writes into a send or receive ring, and what a device
// writes into a completion ring. Shared by the providers, the slot program and the software RNIC's
// engine.
//
// The structs and constants come from <infiniband/mlx5dv.h>; this header adds what that one lacks
// (WAIT, RECV_EN, SEND_EN and their segment, the CE modes) and encoders. Everything in a ring is
// big-endian; every argument here is in host order. An encoder writes the segments of one WQE
// contiguously from `wqe` and returns the bytes written, a multiple of 16; bytes behind them are
// left alone. A WQE that fits one 64 B block (WQEBB) can be encoded in place; a longer one may wrap
// around the ring's end: encode it into scratch memory and CopyToRing it.
//
// Nothing here orders memory: the doorbell does.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "hyperloop/core/rnic.h"

namespace hyperloop::rnic {

inline constexpr uint32_t kWqebbBytes = 64;
inline constexpr uint32_t kSegmentBytes = 16;  // unit of `ds`
inline constexpr uint32_t kMaxWqeSegments = 63;
inline constexpr size_t kMaxWqeBytes = 1024;  // 63 segments, in whole WQEBBs
inline constexpr uint32_t kMaxInline = 956;   // bytes: an inline WRITE then has 62 segments
inline constexpr uint32_t kReceiveTerminatorLkey = MLX5_INVALID_LKEY;
inline constexpr uint32_t kWaitIndexMask = 0xffffff;  // WAIT's index, a CQ's counters: 24 bits
inline constexpr uint32_t kObjectMask = 0xffffff;     // cqn, qpn: 24 bits

enum WqeOpcode : uint8_t {
  kWqeNop = MLX5_OPCODE_NOP,
  kWqeWrite = MLX5_OPCODE_RDMA_WRITE,
  kWqeWriteImm = MLX5_OPCODE_RDMA_WRITE_IMM,
  kWqeSend = MLX5_OPCODE_SEND,
  kWqeSendImm = MLX5_OPCODE_SEND_IMM,
  kWqeWait = 0x0f,
  kWqeRead = MLX5_OPCODE_RDMA_READ,
  kWqeCompareSwap = MLX5_OPCODE_ATOMIC_CS,
  kWqeFetchAdd = MLX5_OPCODE_ATOMIC_FA,
  kWqeReceiveEnable = 0x16,
  kWqeSendEnable = 0x17,
};

// CE, bits 3:2 of fm_ce_se: when a WQE makes a CQE.
enum class CqeMode : uint8_t {
  kOnError = 0,       // only if it fails (or is flushed)
  kOnFirstError = 1,  // only if it is the one that puts the queue into error; flushed silently
  kAlways = 2,        // "signaled"
  kAlwaysEvent = 3,   // and an event
};

// fm_ce_se bits.
inline constexpr uint8_t kFenceMask = 0xe0;
// The WQE runs after all earlier READs and atomics of its SQ.
inline constexpr uint8_t kFence = MLX5_WQE_CTRL_FENCE;
inline constexpr uint8_t kStrongOrdering = 3 << 5;
inline constexpr uint8_t kSolicited = MLX5_WQE_CTRL_SOLICITED;
constexpr CqeMode CqeModeOf(uint8_t fm_ce_se) { return static_cast<CqeMode>((fm_ce_se >> 2) & 3); }

// WAIT, SEND_EN, RECV_EN: the segment after the control segment.
struct EnableSegment {
  uint64_t reserved;
  __be32 index;  // WAIT: 0-based number of the last CQE to wait for; *_EN: exclusive producer index
  __be32 object;  // cqn, or qpn
};

static_assert(sizeof(mlx5_wqe_ctrl_seg) == kSegmentBytes &&
              sizeof(mlx5_wqe_raddr_seg) == kSegmentBytes);
static_assert(sizeof(mlx5_wqe_data_seg) == kSegmentBytes &&
              sizeof(mlx5_wqe_atomic_seg) == kSegmentBytes);
static_assert(sizeof(EnableSegment) == kSegmentBytes && offsetof(EnableSegment, index) == 8);
static_assert(offsetof(EnableSegment, object) == 12);
static_assert(offsetof(mlx5_wqe_ctrl_seg, qpn_ds) == 4 &&
              offsetof(mlx5_wqe_ctrl_seg, fm_ce_se) == 11);
static_assert(offsetof(mlx5_wqe_ctrl_seg, imm) == 12 && offsetof(mlx5_wqe_raddr_seg, rkey) == 8);
static_assert(offsetof(mlx5_wqe_data_seg, lkey) == 4 && offsetof(mlx5_wqe_data_seg, addr) == 8);
static_assert(offsetof(mlx5_wqe_atomic_seg, compare) == 8);
static_assert(sizeof(mlx5_cqe64) == 64 && sizeof(mlx5_err_cqe) == 64);
static_assert(offsetof(mlx5_cqe64, imm_inval_pkey) == 36 && offsetof(mlx5_cqe64, byte_cnt) == 44);
static_assert(offsetof(mlx5_cqe64, sop_drop_qpn) == 56 && offsetof(mlx5_cqe64, wqe_counter) == 60);
static_assert(offsetof(mlx5_cqe64, op_own) == 63 && offsetof(mlx5_err_cqe, op_own) == 63);
static_assert(offsetof(mlx5_err_cqe, vendor_err_synd) == 54 &&
              offsetof(mlx5_err_cqe, syndrome) == 55);
static_assert(offsetof(mlx5_err_cqe, s_wqe_opcode_qpn) == 56 &&
              offsetof(mlx5_err_cqe, wqe_counter) == 60);
static_assert(kWqeRead == 0x10 && kWqeCompareSwap == 0x11 && kWqeFetchAdd == 0x12 &&
              kReceiveTerminatorLkey == 0x100);

// What every control segment says.
struct WqeControl {
  uint32_t qpn = 0;
  uint16_t index = 0;  // producer index of the first WQEBB: free running, whatever the ring's size
  CqeMode completion = CqeMode::kOnError;
  bool fence = false;
  bool solicited = false;
};

// --- send queue

// `segments` counts the control segment: a NOP that takes the place of a longer WQE keeps that
// one's ds.
size_t EncodeNop(void* wqe, const WqeControl& control, uint32_t segments = 1);
// SGEs of length 0 are left out (byte_count 0 means 2 GB). At most 62 SGEs.
size_t EncodeSend(void* wqe, const WqeControl& control, std::span<const Sge> sges);
size_t EncodeSendImm(void* wqe, const WqeControl& control, std::span<const Sge> sges, uint32_t imm);
// At most 61 SGEs.
size_t EncodeWrite(void* wqe, const WqeControl& control, uint64_t remote_addr, uint32_t rkey,
                   std::span<const Sge> sges);
size_t EncodeWriteImm(void* wqe, const WqeControl& control, uint64_t remote_addr, uint32_t rkey,
                      std::span<const Sge> sges, uint32_t imm);
size_t EncodeRead(void* wqe, const WqeControl& control, uint64_t remote_addr, uint32_t rkey,
                  std::span<const Sge> sges);
// kWqeSend, kWqeSendImm, kWqeWrite, kWqeWriteImm with the payload in the WQE: one inline segment
// (no segment for 0 bytes) with the bytes of all SGEs, at most kMaxInline. They are read now, from
// this process's addresses; lkeys are not used. The remote address and rkey count for WRITEs only,
// imm for those with one.
size_t EncodeInline(void* wqe, const WqeControl& control, WqeOpcode opcode,
                    std::span<const Sge> sges, uint64_t remote_addr = 0, uint32_t rkey = 0,
                    uint32_t imm = 0);
// The 8 bytes at remote_addr (8 B aligned) in host byte order; the old value goes to `result` (8
// B), in host order too.
size_t EncodeCompareSwap(void* wqe, const WqeControl& control, uint64_t remote_addr, uint32_t rkey,
                         uint64_t expected, uint64_t desired, const Sge& result);
size_t EncodeFetchAdd(void* wqe, const WqeControl& control, uint64_t remote_addr, uint32_t rkey,
                      uint64_t addend, const Sge& result);
// Holds the SQ until CQ `cqn` has produced CQE number `last` (0-based, 24 bits, cyclic): for n CQEs
// in all, last = n - 1.
size_t EncodeWait(void* wqe, const WqeControl& control, uint32_t cqn, uint32_t last);
// Lets the managed queue of `qpn` run below `index` (16 bits, exclusive; WQEBBs for a SQ, entries
// for a RQ).
size_t EncodeSendEnable(void* wqe, const WqeControl& control, uint32_t qpn, uint16_t index);
size_t EncodeReceiveEnable(void* wqe, const WqeControl& control, uint32_t qpn, uint16_t index);

// Segments of an inline payload of `bytes`; none for 0.
constexpr uint32_t InlineSegments(size_t bytes) {
  return bytes == 0 ? 0 : static_cast<uint32_t>((bytes + 4 + kSegmentBytes - 1) / kSegmentBytes);
}
constexpr uint32_t WqeBlocks(size_t bytes) {
  return static_cast<uint32_t>((bytes + kWqebbBytes - 1) / kWqebbBytes);
}
// The block of producer index `index` in a ring of `wqebbs` blocks (a power of two).
inline std::byte* WqeBlock(std::byte* ring, uint32_t wqebbs, uint16_t index) {
  return ring + static_cast<size_t>(index & (wqebbs - 1)) * kWqebbBytes;
}
// Copies an encoded WQE to its place, around the ring's end where needed.
void CopyToRing(std::byte* ring, uint32_t wqebbs, uint16_t index, const void* wqe, size_t bytes);

// --- receive queue

// One RQ entry of `stride` bytes: the SGEs, then a terminator if there is room. SGEs of length 0
// are left out.
void EncodeReceive(void* entry, size_t stride, std::span<const Sge> sges);
// Doorbell record: be32 receive counter, be32 send counter (low 16 bits count).
inline constexpr size_t kDoorbellRecordBytes = 8;
inline constexpr size_t kReceiveCounterOffset = 0;
inline constexpr size_t kSendCounterOffset = 4;

// --- completion queue

inline constexpr uint8_t kCqeInvalid = MLX5_CQE_INVALID << 4;

// Makes a new ring of `depth` CQEs unowned by software.
void InitCqeRing(void* ring, uint32_t depth);
// True if the CQE at `consumer_index` of a ring of `depth` (a power of two) belongs to software.
// Acquire: pairs with the device's release store of the CQE's last 8 bytes (op_own among them), so
// the rest of the CQE and the payload behind it may be read.
inline bool CqeReady(const mlx5_cqe64* cqe, uint32_t consumer_index, uint32_t depth) {
  const auto* tail =
      reinterpret_cast<const uint64_t*>(reinterpret_cast<const std::byte*>(cqe) + 56);
  const uint64_t word = __atomic_load_n(tail, __ATOMIC_ACQUIRE);
  const uint8_t op_own = reinterpret_cast<const uint8_t*>(&word)[7];
  return (op_own >> 4) != MLX5_CQE_INVALID &&
         (op_own & 1) == ((consumer_index & depth) != 0 ? 1 : 0);
}
// Everything but `id`, which a driver finds by qpn and wqe_counter. opcode kSendSide: wqe_counter
// is a WQEBB index; otherwise an RQ index.
Completion DecodeCqe(const mlx5_cqe64& cqe);
WcStatus SyndromeStatus(uint8_t syndrome);

}  // namespace hyperloop::rnic
