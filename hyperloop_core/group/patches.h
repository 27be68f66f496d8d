// The patches of the offload datapath: what a metadata message carries for one replica, part by
// part, and where in the replica's WQEs its RECV puts each part. docs/group-primitives.md has the
// table of bytes.
//
// A part completes one WQE, in one of two ways:
//
//   WholeParts  the bytes from the WQE's beginning through the last field that changes, in one
//               place. A place costs more than its bytes where one RNIC serves all nodes
//               (FlushOrder::kHopByHop).
//   FieldParts  only the fields that change from lap to lap or with the operation. Bytes cost more
//               than places between machines (FlushOrder::kPipelined).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "rnic/wqe.h"

namespace hyperloop {

struct PatchPlace {  // of bytes in a WQE
  uint32_t offset;
  uint32_t length;
};

// The bytes of some places of a WQE, one place after another.
template <PatchPlace... kEach>
struct PatchPart {
  static constexpr std::array kPlaces = {kEach...};

  // Stores what the places have of the field at byte kOffset of the WQE. `field` is in ring byte
  // order.
  template <uint32_t kOffset, class Field>
  void Set(Field field) {
    std::byte* place = bytes;
    ((Store<kEach, kOffset>(place, field), place += kEach.length), ...);
  }
  // Takes all its bytes from a WQE.
  void CopyFrom(const std::byte* wqe) {
    std::byte* place = bytes;
    ((std::memcpy(place, wqe + kEach.offset, kEach.length), place += kEach.length), ...);
  }

  std::byte bytes[(kEach.length + ...)];

 private:
  template <PatchPlace kPlace, uint32_t kOffset, class Field>
  static void Store(std::byte* place, const Field& field) {
    constexpr uint32_t begin = std::max(kPlace.offset, kOffset);
    constexpr uint32_t end =
        std::min<uint32_t>(kPlace.offset + kPlace.length, kOffset + sizeof(Field));
    if constexpr (begin < end) {
      std::memcpy(place + (begin - kPlace.offset),
                  reinterpret_cast<const std::byte*>(&field) + (begin - kOffset), end - begin);
    }
  }
};

// Where the fields lie that change.
inline constexpr uint32_t kWord0At = 0;  // opmod, index, opcode
inline constexpr uint32_t kRemoteAddrAt = 16;
inline constexpr uint32_t kByteCountAt = 32, kLocalAddrAt = 40;  // of WRITE
inline constexpr uint32_t kSwapAt = 32, kCompareAt = 40;         // of CAS
inline constexpr uint32_t kIndexAt = 24;                         // of WAIT and SEND_EN

static_assert(kRemoteAddrAt == sizeof(mlx5_wqe_ctrl_seg) + offsetof(mlx5_wqe_raddr_seg, raddr));
static_assert(kIndexAt == sizeof(mlx5_wqe_ctrl_seg) + offsetof(rnic::EnableSegment, index));
static_assert(kByteCountAt == 32 + offsetof(mlx5_wqe_data_seg, byte_count) &&
              kLocalAddrAt == 32 + offsetof(mlx5_wqe_data_seg, addr));
static_assert(kSwapAt == 32 + offsetof(mlx5_wqe_atomic_seg, swap_add) &&
              kCompareAt == 32 + offsetof(mlx5_wqe_atomic_seg, compare));

struct WholeParts {
  using Write = PatchPart<PatchPlace{0, 48}>;
  using Cas = PatchPart<PatchPlace{0, 48}>;  // except where the original value goes
  using Step = PatchPart<PatchPlace{0, 4}>;  // of any WQE
  using Enable = PatchPart<PatchPlace{0, 28}>;
  using Wait = Enable;  // the object behind the index stays
};

struct FieldParts {
  using Write = PatchPart<PatchPlace{0, 4}, PatchPlace{16, 8}, PatchPlace{32, 16}>;
  using Cas = PatchPart<PatchPlace{0, 4}, PatchPlace{16, 8}, PatchPlace{32, 16}>;
  using Step = PatchPart<PatchPlace{1, 2}>;  // the opcode stays
  using Enable = PatchPart<PatchPlace{1, 2}, PatchPlace{26, 2}>;
  using Wait = PatchPart<PatchPlace{1, 2}, PatchPlace{24, 4}>;  // its index has 24 bits
};

// --- patches

// The part that every replica has: local's slot, and up's slot of an earlier operation.
template <class Parts>
struct CommonPatch {
  typename Parts::Write copy;
  typename Parts::Cas cas;
  typename Parts::Step read;
  typename Parts::Enable enable_down;
  typename Parts::Wait wait;
  typename Parts::Enable enable_local;
};

// The RECV of each N/4-th slot scatters it to the doorbell record of up's RQ, that of another slot
// to the staging buffer. So it is the last part of a patch.
struct ReceiveCounter {
  std::byte be32[4];
};

// FlushOrder::kHopByHop. The flush is a READ or a NOP.
struct ForwardPatch {
  using Parts = WholeParts;
  CommonPatch<Parts> common;
  Parts::Write write;
  Parts::Step flush;
  Parts::Step send;
  Parts::Enable enable_up;
  ReceiveCounter receive_counter;
};
// FlushOrder::kPipelined: of `down`, then of `ack`.
struct PipelinedPatch {
  using Parts = FieldParts;
  CommonPatch<Parts> common;
  Parts::Write write;
  Parts::Step send;
  Parts::Step flush;
  Parts::Enable enable_ack;
  Parts::Wait wait_flush;
  Parts::Step proof;
  Parts::Step read;
  Parts::Enable enable_up;
  ReceiveCounter receive_counter;
};
template <class Parts>
struct TailPatch {
  CommonPatch<Parts> common;
  typename Parts::Step ack;
  typename Parts::Enable follow;  // a READ has part of its rkey where SEND_EN has its index
  ReceiveCounter receive_counter;
};
static_assert(sizeof(ForwardPatch) == 272 && sizeof(TailPatch<WholeParts>) == 220);
static_assert(sizeof(PipelinedPatch) == 126 && sizeof(TailPatch<FieldParts>) == 82);

}  // namespace hyperloop
