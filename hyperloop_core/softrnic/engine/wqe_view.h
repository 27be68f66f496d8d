// What the engine reads out of a fetched WQE, and how a WQE or a request ends.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rnic/wqe.h"

namespace hyperloop::softrnic {

// How a request ended (kOk, or an MLX5_CQE_SYNDROME_*), or why it has not ended (from kNoEnd up).
using Outcome = uint8_t;
inline constexpr Outcome kOk = 0;
inline constexpr Outcome kRnr = 0xff;       // the peer has no receive
inline constexpr Outcome kInParts = 0xfe;   // it has begun, and Requester goes on with it
inline constexpr Outcome kNoAnswer = 0xfd;  // no peer is there
inline constexpr Outcome kFlushing = 0xfc;  // what the READ flushes is not durable yet
inline constexpr Outcome kNoEnd = kFlushing;

// The control segment of a fetched WQE.
struct Wqe {
  const std::byte* at = nullptr;  // `segments` contiguous segments of 16 B
  uint16_t index = 0;
  uint8_t opcode = 0;
  uint8_t flags = 0;  // fm_ce_se
  uint8_t segments = 0;
  uint8_t blocks = 0;
  uint32_t imm = 0;  // big-endian
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

}  // namespace hyperloop::softrnic
