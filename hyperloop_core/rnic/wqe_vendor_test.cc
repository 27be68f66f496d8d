// Our encoders against the vendor's own: every WQE is read field by field through rdma-core's mlx5
// structs and compared with what its inline helpers (mlx5dv_set_ctrl_seg, mlx5dv_set_data_seg)
// write for the same values. What the vendor's header has no helper for is stated by hand from its
// structs, or, for WAIT, SEND_EN and RECV_EN (which it lacks altogether), from public sources:
//
//   PCX (Mellanox): struct mlx5_wqe_coredirect_seg { uint64_t rsvd; uint32_t index;
//     uint32_t number }
//   DPDK, drivers/common/mlx5/mlx5_prm.h: struct mlx5_wqe_qseg { reserved0, reserved1, max_index,
//     qpn_cqn }; MLX5_OPCODE_SEND_EN 0x17, MLX5_OPCODE_WAIT 0x0f
//   RedN, src/rdma/mlx5_intf.h: opcodes SEND_ENABLE 0x17, RECV_ENABLE 0x16, CQE_WAIT 0x0f;
//     set_wait_en_seg
//   MLNX libmlx5 (in eRPC's history, drivers/4.4/…/src/{wqe.h,qp.c}): struct mlx5_wqe_wait_en_seg
//
// Values differ in every byte, so that a swapped, shifted or byte-reversed field shows.
#include <endian.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "rnic/wqe.h"

namespace hyperloop::rnic {
namespace {

// The segments of one encoded WQE, read as the vendor's structs.
class Reader {
 public:
  explicit Reader(size_t bytes, const std::byte* wqe) : at_(wqe), end_(wqe + bytes) {}
  template <class T>
  T Next() {
    static_assert(sizeof(T) == 16);
    T segment{};
    EXPECT_LE(at_ + sizeof(T), end_) << "the WQE ends too early";
    if (at_ + sizeof(T) <= end_) std::memcpy(&segment, at_, sizeof(T));
    at_ += sizeof(T);
    return segment;
  }
  const std::byte* at() const { return at_; }
  bool done() const { return at_ == end_; }

 private:
  const std::byte* at_;
  const std::byte* end_;
};

struct Values {
  WqeControl control;
  uint64_t remote = 0;
  uint32_t rkey = 0;
  uint32_t imm = 0;
  uint64_t first = 0, second = 0;  // operands of atomics
  std::vector<Sge> sges;
};

uint8_t Flags(const WqeControl& control) {
  return static_cast<uint8_t>(
      (control.completion == CqeMode::kAlways ? MLX5_WQE_CTRL_CQ_UPDATE : 0) |
      (control.fence ? MLX5_WQE_CTRL_FENCE : 0) |
      (control.solicited ? MLX5_WQE_CTRL_SOLICITED : 0));
}

std::vector<Values> Samples() {
  std::vector<Values> samples;
  Values plain;
  plain.control = {.qpn = 0x123456, .index = 0x789a};
  plain.remote = 0x0102030405060708;
  plain.rkey = 0x090a0b0c;
  plain.imm = 0x0d0e0f10;
  plain.first = 0x1112131415161718;
  plain.second = 0x191a1b1c1d1e1f20;
  plain.sges = {{0x2122232425262728, 0x292a2b2c, 0x2d2e2f30}};
  samples.push_back(plain);
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    Values v;
    v.control.qpn = static_cast<uint32_t>(random()) & 0xffffff;
    v.control.index = static_cast<uint16_t>(random());
    v.control.completion = random() % 2 != 0 ? CqeMode::kAlways : CqeMode::kOnError;
    v.control.fence = random() % 2 != 0;
    v.control.solicited = random() % 2 != 0;
    v.remote = random(), v.rkey = static_cast<uint32_t>(random());
    v.imm = static_cast<uint32_t>(random());
    v.first = random(), v.second = random();
    v.sges.resize(1 + random() % 6);
    for (Sge& sge : v.sges) {
      sge = {random(), 1 + static_cast<uint32_t>(random() % 0x7ffffffe),
             static_cast<uint32_t>(random())};
    }
    samples.push_back(v);
  }
  return samples;
}

void ExpectControl(Reader& in, const Values& v, uint8_t opcode, size_t segments, uint32_t imm = 0) {
  const auto got = in.Next<mlx5_wqe_ctrl_seg>();
  mlx5_wqe_ctrl_seg want{};
  mlx5dv_set_ctrl_seg(&want, v.control.index, opcode, /*opmod=*/0, v.control.qpn, Flags(v.control),
                      static_cast<uint8_t>(segments), /*signature=*/0, htobe32(imm));
  EXPECT_EQ(got.opmod_idx_opcode, want.opmod_idx_opcode);
  EXPECT_EQ(got.qpn_ds, want.qpn_ds);
  EXPECT_EQ(got.signature, want.signature);
  EXPECT_EQ(got.dci_stream_channel_id, 0);
  EXPECT_EQ(got.fm_ce_se, want.fm_ce_se);
  EXPECT_EQ(got.imm, want.imm);
}

void ExpectRemote(Reader& in, const Values& v) {
  const auto got = in.Next<mlx5_wqe_raddr_seg>();
  EXPECT_EQ(be64toh(got.raddr), v.remote);
  EXPECT_EQ(be32toh(got.rkey), v.rkey);
  EXPECT_EQ(got.reserved, 0u);
}

void ExpectData(Reader& in, const Sge& sge) {
  const auto got = in.Next<mlx5_wqe_data_seg>();
  mlx5_wqe_data_seg want;
  mlx5dv_set_data_seg(&want, sge.length, sge.lkey, sge.addr);
  EXPECT_EQ(got.byte_count, want.byte_count);
  EXPECT_EQ(got.lkey, want.lkey);
  EXPECT_EQ(got.addr, want.addr);
}

void ExpectAtomic(Reader& in, uint64_t swap_add, uint64_t compare) {
  const auto got = in.Next<mlx5_wqe_atomic_seg>();
  EXPECT_EQ(be64toh(got.swap_add), swap_add);
  EXPECT_EQ(be64toh(got.compare), compare);
}

struct Encoded {
  std::array<std::byte, kMaxWqeBytes> raw;
  size_t bytes = 0;
  template <class F>
  explicit Encoded(F&& encode) {
    raw.fill(std::byte{0xee});
    bytes = encode(static_cast<void*>(raw.data()));
    EXPECT_EQ(raw[bytes], std::byte{0xee}) << "wrote behind the WQE";
  }
  Reader Read() const { return Reader(bytes, raw.data()); }
};

// Runs `check` over all samples and says which one failed.
template <class F>
void ForSamples(F&& check) {
  int number = 0;
  for (const Values& v : Samples()) {
    SCOPED_TRACE("sample " + std::to_string(number++));
    check(v);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(WqeVendor, Nop) {
  ForSamples([](const Values& v) {
    Encoded wqe([&](void* at) { return EncodeNop(at, v.control); });
    Reader in = wqe.Read();
    ExpectControl(in, v, MLX5_OPCODE_NOP, 1);
    EXPECT_TRUE(in.done());
  });
}

TEST(WqeVendor, SendAndSendImm) {
  ForSamples([](const Values& v) {
    for (const bool imm : {false, true}) {
      Encoded wqe([&](void* at) {
        return imm ? EncodeSendImm(at, v.control, v.sges, v.imm)
                   : EncodeSend(at, v.control, v.sges);
      });
      Reader in = wqe.Read();
      ExpectControl(in, v, imm ? MLX5_OPCODE_SEND_IMM : MLX5_OPCODE_SEND, 1 + v.sges.size(),
                    imm ? v.imm : 0);
      for (const Sge& sge : v.sges) ExpectData(in, sge);
      EXPECT_TRUE(in.done());
    }
  });
}

TEST(WqeVendor, SendInline) {
  for (const size_t length : {1, 11, 12, 13, 28, 29, 255, 956}) {
    SCOPED_TRACE(length);
    std::vector<std::byte> payload(length);
    for (size_t i = 0; i < length; ++i) payload[i] = static_cast<std::byte>(i * 5 + 1);
    const Values v = Samples()[0];
    const Sge sge{reinterpret_cast<uint64_t>(payload.data()), static_cast<uint32_t>(length), 0};
    Encoded wqe([&](void* at) { return EncodeInline(at, v.control, kWqeSend, {&sge, 1}); });
    Reader in = wqe.Read();
    const size_t padded = (sizeof(mlx5_wqe_inl_data_seg) + length + 15) / 16 * 16;
    ExpectControl(in, v, MLX5_OPCODE_SEND, 1 + padded / 16);
    mlx5_wqe_inl_data_seg segment;
    std::memcpy(&segment, in.at(), sizeof(segment));
    EXPECT_EQ(be32toh(segment.byte_count), MLX5_INLINE_SEG | static_cast<uint32_t>(length));
    EXPECT_EQ(0, std::memcmp(in.at() + sizeof(segment), payload.data(), length));
    EXPECT_EQ(wqe.bytes, 16 + padded);
  }
}

TEST(WqeVendor, WriteWriteImmAndRead) {
  ForSamples([](const Values& v) {
    struct {
      uint8_t opcode;
      uint32_t imm;
      Encoded wqe;
    } const cases[] = {
        {MLX5_OPCODE_RDMA_WRITE, 0,
         Encoded([&](void* at) { return EncodeWrite(at, v.control, v.remote, v.rkey, v.sges); })},
        {MLX5_OPCODE_RDMA_WRITE_IMM, v.imm, Encoded([&](void* at) {
           return EncodeWriteImm(at, v.control, v.remote, v.rkey, v.sges, v.imm);
         })},
        {MLX5_OPCODE_RDMA_READ, 0,
         Encoded([&](void* at) { return EncodeRead(at, v.control, v.remote, v.rkey, v.sges); })},
    };
    for (const auto& c : cases) {
      SCOPED_TRACE(c.opcode);
      Reader in = c.wqe.Read();
      ExpectControl(in, v, c.opcode, 2 + v.sges.size(), c.imm);
      ExpectRemote(in, v);
      for (const Sge& sge : v.sges) ExpectData(in, sge);
      EXPECT_TRUE(in.done());
    }
  });
}

TEST(WqeVendor, Atomics) {
  ForSamples([](const Values& v) {
    Encoded cas([&](void* at) {
      return EncodeCompareSwap(at, v.control, v.remote, v.rkey, /*expected=*/v.first,
                               /*desired=*/v.second, v.sges[0]);
    });
    Reader in = cas.Read();
    ExpectControl(in, v, MLX5_OPCODE_ATOMIC_CS, 4);
    ExpectRemote(in, v);
    ExpectAtomic(in, /*swap_add=*/v.second, /*compare=*/v.first);
    ExpectData(in, v.sges[0]);
    EXPECT_TRUE(in.done());

    Encoded add([&](void* at) {
      return EncodeFetchAdd(at, v.control, v.remote, v.rkey, v.first, v.sges[0]);
    });
    in = add.Read();
    ExpectControl(in, v, MLX5_OPCODE_ATOMIC_FA, 4);
    ExpectRemote(in, v);
    ExpectAtomic(in, v.first, 0);
    ExpectData(in, v.sges[0]);
    EXPECT_TRUE(in.done());
  });
}

// Both public names of the segment behind a WAIT, SEND_EN or RECV_EN, as their layouts say.
struct CoredirectSegment {  // PCX
  uint64_t reserved;
  uint32_t index;
  uint32_t number;
};
struct QueueSegment {  // DPDK
  uint32_t reserved0;
  uint32_t reserved1;
  uint32_t max_index;
  uint32_t qpn_cqn;
};

TEST(WqeVendor, WaitSendEnableReceiveEnable) {
  ForSamples([](const Values& v) {
    const auto object = static_cast<uint32_t>(v.first) & 0xffffff;
    const auto wide = static_cast<uint32_t>(v.second) & 0xffffff;  // a CQ's counter has 24 bits
    const auto narrow = static_cast<uint16_t>(v.second);           // a queue's index has 16
    struct {
      uint8_t opcode;
      uint32_t index;
      Encoded wqe;
    } const cases[] = {
        {0x0f, wide, Encoded([&](void* at) { return EncodeWait(at, v.control, object, wide); })},
        {0x17, narrow,
         Encoded([&](void* at) { return EncodeSendEnable(at, v.control, object, narrow); })},
        {0x16, narrow,
         Encoded([&](void* at) { return EncodeReceiveEnable(at, v.control, object, narrow); })},
    };
    for (const auto& c : cases) {
      SCOPED_TRACE(c.opcode);
      Reader in = c.wqe.Read();
      ExpectControl(in, v, c.opcode, 2);
      Reader again = in;
      const auto pcx = in.Next<CoredirectSegment>();
      EXPECT_EQ(pcx.reserved, 0u);
      EXPECT_EQ(be32toh(pcx.index), c.index);
      EXPECT_EQ(be32toh(pcx.number), object);
      const auto dpdk = again.Next<QueueSegment>();
      EXPECT_EQ(be32toh(dpdk.max_index), c.index);
      EXPECT_EQ(be32toh(dpdk.qpn_cqn), object);
      EXPECT_TRUE(in.done());
    }
  });
}

TEST(WqeVendor, ReceiveEntry) {
  ForSamples([](const Values& v) {
    constexpr size_t kStride = 128;
    std::array<std::byte, kStride> entry;
    entry.fill(std::byte{0xee});
    EncodeReceive(entry.data(), kStride, v.sges);
    Reader in(kStride, entry.data());
    for (const Sge& sge : v.sges) ExpectData(in, sge);
    const auto terminator = in.Next<mlx5_wqe_data_seg>();
    EXPECT_EQ(terminator.byte_count, 0u);
    EXPECT_EQ(be32toh(terminator.lkey), static_cast<uint32_t>(MLX5_INVALID_LKEY));
    EXPECT_EQ(terminator.addr, 0u);
  });
}

// A CQE filled in through the vendor's struct reads as what was put in.
TEST(WqeVendor, CqeFieldsAndAccessors) {
  const struct {
    uint8_t opcode;
    WcOpcode want;
    bool has_imm;
  } cases[] = {{MLX5_CQE_REQ, WcOpcode::kSendSide, false},
               {MLX5_CQE_RESP_WR_IMM, WcOpcode::kReceiveWriteImm, true},
               {MLX5_CQE_RESP_SEND, WcOpcode::kReceive, false},
               {MLX5_CQE_RESP_SEND_IMM, WcOpcode::kReceiveImm, true}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.opcode);
    mlx5_cqe64 cqe{};
    cqe.imm_inval_pkey = htobe32(0x01020304);
    cqe.byte_cnt = htobe32(0x05060708);
    cqe.sop_drop_qpn = htobe32(0x0a0b0c0d);
    cqe.wqe_counter = htobe16(0x0e0f);
    cqe.op_own = static_cast<uint8_t>(c.opcode << 4);
    const Completion got = DecodeCqe(cqe);
    EXPECT_EQ(got.status, WcStatus::kSuccess);
    EXPECT_EQ(got.opcode, c.want);
    EXPECT_EQ(got.imm, c.has_imm ? 0x01020304u : 0u);
    EXPECT_EQ(got.byte_length, 0x05060708u);
    EXPECT_EQ(got.qpn, 0x0b0c0du);
    EXPECT_EQ(got.wqe_counter, 0x0e0f);
    for (const uint32_t index : {0u, 3u, 4u, 7u, 8u, 12u}) {
      for (const uint8_t owner : {0, 1}) {
        mlx5dv_set_cqe_owner(&cqe, owner);
        EXPECT_EQ(mlx5dv_get_cqe_opcode(&cqe), c.opcode);
        EXPECT_EQ(CqeReady(&cqe, index, 4), mlx5dv_get_cqe_owner(&cqe) == (index / 4) % 2)
            << "index " << index << " owner " << int{owner};
      }
    }
  }
}

TEST(WqeVendor, ErrorCqeFields) {
  for (const uint8_t opcode : {MLX5_CQE_REQ_ERR, MLX5_CQE_RESP_ERR}) {
    mlx5_err_cqe error;
    std::memset(&error, 0x05, sizeof(error));  // another syndrome, in every byte around the field
    error.syndrome = MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
    error.s_wqe_opcode_qpn = htobe32(MLX5_OPCODE_RDMA_WRITE << 24 | 0x0b0c0d);
    error.wqe_counter = htobe16(0x0e0f);
    error.op_own = static_cast<uint8_t>(opcode << 4);
    mlx5_cqe64 cqe;
    static_assert(sizeof(cqe) == sizeof(error));
    std::memcpy(&cqe, &error, sizeof(cqe));
    const Completion got = DecodeCqe(cqe);
    EXPECT_EQ(got.status, WcStatus::kRemoteAccess);
    EXPECT_EQ(got.opcode, opcode == MLX5_CQE_REQ_ERR ? WcOpcode::kSendSide : WcOpcode::kReceive);
    EXPECT_EQ(got.qpn, 0x0b0c0du);
    EXPECT_EQ(got.wqe_counter, 0x0e0f);
  }
}

TEST(WqeVendor, NewCqeRingIsInvalidForTheVendorToo) {
  std::array<mlx5_cqe64, 8> ring;
  InitCqeRing(ring.data(), 8);
  for (mlx5_cqe64& cqe : ring) EXPECT_EQ(mlx5dv_get_cqe_opcode(&cqe), MLX5_CQE_INVALID);
}

}  // namespace
}  // namespace hyperloop::rnic
