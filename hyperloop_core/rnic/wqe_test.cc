// The byte tables of mlx5's queue formats, written out by hand: an encoder that moves a field or
// forgets a byte swap fails.
#include "rnic/wqe.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

namespace hyperloop::rnic {
namespace {

using Bytes = std::vector<uint8_t>;

struct Scratch {
  std::array<std::byte, kMaxWqeBytes> raw;
  Scratch() { raw.fill(std::byte{0xee}); }
  Bytes First(size_t bytes) const {
    Bytes out(bytes);
    std::memcpy(out.data(), raw.data(), bytes);
    return out;
  }
};

constexpr WqeControl kControl{.qpn = 0xabcdef, .index = 0x1234};

TEST(WqeFormat, NopKeepsTheSizeOfWhatItReplaces) {
  Scratch s;
  const size_t n = EncodeNop(s.raw.data(), kControl, 3);
  EXPECT_EQ(n, 48u);
  EXPECT_EQ(s.First(17),
            (Bytes{0, 0x12, 0x34, 0x00, 0xab, 0xcd, 0xef, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0xee}));
}

TEST(WqeFormat, CompletionFenceAndSolicitedBits) {
  Scratch s;
  WqeControl c = kControl;
  c.completion = CqeMode::kAlways;
  c.fence = true;
  c.solicited = true;
  EncodeNop(s.raw.data(), c);
  EXPECT_EQ(std::to_integer<int>(s.raw[11]), 0x80 | 0x08 | 0x02);
  EXPECT_EQ(CqeModeOf(0x8a), CqeMode::kAlways);
}

TEST(WqeFormat, SendWithTwoSgesSkipsEmptyOnes) {
  Scratch s;
  const Sge sges[] = {{0x1122334455667788, 0x10, 0xa1b2c3d4}, {1, 0, 7}, {0x99, 0x01020304, 5}};
  const size_t n = EncodeSendImm(s.raw.data(), kControl, sges, 0xcafebabe);
  EXPECT_EQ(s.First(n),
            (Bytes{0,    0x12, 0x34, 0x0b, 0xab, 0xcd, 0xef, 3,    0,    0,    0,    0,
                   0xca, 0xfe, 0xba, 0xbe, 0,    0,    0,    0x10, 0xa1, 0xb2, 0xc3, 0xd4,
                   0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x01, 0x02, 0x03, 0x04,
                   0,    0,    0,    5,    0,    0,    0,    0,    0,    0,    0,    0x99}));
}

TEST(WqeFormat, InlinePayloadFollowsItsLengthAndIsPadded) {
  Scratch s;
  const std::byte payload[] = {std::byte{1}, std::byte{2}, std::byte{3}};
  // Two pieces and an empty one make one segment; their keys do not count.
  const auto at = reinterpret_cast<uint64_t>(payload);
  const Sge sges[] = {{at, 1, 77}, {at, 0, 77}, {at + 1, 2, 88}};
  size_t n = EncodeInline(s.raw.data(), kControl, kWqeSend, sges);
  EXPECT_EQ(s.First(n),
            (Bytes{0,    0x12, 0x34, 0x0a, 0xab, 0xcd, 0xef, 2, 0, 0, 0, 0, 0, 0, 0, 0,
                   0x80, 0,    0,    3,    1,    2,    3,    0, 0, 0, 0, 0, 0, 0, 0, 0}));
  n = EncodeInline(s.raw.data(), kControl, kWqeWriteImm, sges, 0x10, 0x20, 0x77);
  const Bytes write = s.First(n);
  ASSERT_EQ(write.size(), 48u);
  EXPECT_EQ(write[3], 0x09);
  EXPECT_EQ(Bytes(write.begin() + 32, write.begin() + 40), (Bytes{0x80, 0, 0, 3, 1, 2, 3, 0}));
  EXPECT_EQ(EncodeInline(s.raw.data(), kControl, kWqeSend, {}), 16u)
      << "nothing to send: no segment";
}

TEST(WqeFormat, LongestInlinePayloadFits) {
  Scratch s;
  const std::vector<std::byte> payload(kMaxInline, std::byte{0x5a});
  const Sge sge{reinterpret_cast<uint64_t>(payload.data()), kMaxInline, 0};
  const size_t n = EncodeInline(s.raw.data(), kControl, kWqeWrite, {&sge, 1}, 0x10, 0x20);
  EXPECT_EQ(n, 62u * kSegmentBytes);
  EXPECT_EQ(std::to_integer<int>(s.raw[7]), 62);
  EXPECT_EQ(s.raw[36 + kMaxInline - 1], std::byte{0x5a});
  EXPECT_EQ(InlineSegments(12), 1u);
  EXPECT_EQ(InlineSegments(13), 2u);
}

TEST(WqeFormat, WriteAndReadCarryRemoteAddressAndKey) {
  Scratch s;
  const Sge sge{0x55, 0x40, 0x66};
  const auto expected = [](uint8_t opcode, uint8_t imm) {
    return Bytes{0, 0x12, 0x34, opcode, 0xab, 0xcd, 0xef, 3,    0, 0,   0,   0,   0, 0, 0, imm,  //
                 1, 2,    3,    4,      5,    6,    7,    8,    9, 0xa, 0xb, 0xc, 0, 0, 0, 0,    //
                 0, 0,    0,    0x40,   0,    0,    0,    0x66, 0, 0,   0,   0,   0, 0, 0, 0x55};
  };
  size_t n = EncodeWrite(s.raw.data(), kControl, 0x0102030405060708, 0x090a0b0c, {&sge, 1});
  EXPECT_EQ(s.First(n), expected(0x08, 0));
  n = EncodeRead(s.raw.data(), kControl, 0x0102030405060708, 0x090a0b0c, {&sge, 1});
  EXPECT_EQ(s.First(n), expected(0x10, 0));
  n = EncodeWriteImm(s.raw.data(), kControl, 0x0102030405060708, 0x090a0b0c, {&sge, 1}, 0x77);
  EXPECT_EQ(s.First(n), expected(0x09, 0x77));
}

TEST(WqeFormat, AtomicsFillOneBlock) {
  Scratch s;
  const Sge sge{0x55, 8, 0x66};
  size_t n = EncodeCompareSwap(s.raw.data(), kControl, 0x10, 0x20, /*expected=*/0x30,
                               /*desired=*/0x4000000000000040, sge);
  ASSERT_EQ(n, 64u);
  Bytes bytes = s.First(n);
  EXPECT_EQ(bytes[3], 0x11);
  EXPECT_EQ(bytes[7], 4);
  EXPECT_EQ(Bytes(bytes.begin() + 32, bytes.begin() + 48),
            (Bytes{0x40, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0x30}));
  n = EncodeFetchAdd(s.raw.data(), kControl, 0x10, 0x20, 0x0102, sge);
  bytes = s.First(n);
  EXPECT_EQ(bytes[3], 0x12);
  EXPECT_EQ(Bytes(bytes.begin() + 32, bytes.begin() + 48),
            (Bytes{0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(WqeFormat, WaitAndEnablesHaveIndexAt24AndObjectAt28) {
  Scratch s;
  size_t n = EncodeWait(s.raw.data(), kControl, 0x112233, 0xff445566);
  EXPECT_EQ(s.First(n), (Bytes{0, 0x12, 0x34, 0x0f, 0xab, 0xcd, 0xef, 2,    0,    0,   0,
                               0, 0,    0,    0,    0,    0,    0,    0,    0,    0,   0,
                               0, 0,    0,    0x44, 0x55, 0x66, 0,    0x11, 0x22, 0x33}));
  n = EncodeSendEnable(s.raw.data(), kControl, 0x112233, 0x5566);
  EXPECT_EQ(s.First(n), (Bytes{0, 0x12, 0x34, 0x17, 0xab, 0xcd, 0xef, 2,    0,    0,   0,
                               0, 0,    0,    0,    0,    0,    0,    0,    0,    0,   0,
                               0, 0,    0,    0,    0x55, 0x66, 0,    0x11, 0x22, 0x33}));
  EncodeReceiveEnable(s.raw.data(), kControl, 1, 2);
  EXPECT_EQ(std::to_integer<int>(s.raw[3]), 0x16);
}

TEST(WqeFormat, LongWqeWrapsAroundTheRingsEnd) {
  std::vector<std::byte> ring(4 * kWqebbBytes);
  std::array<std::byte, 3 * kWqebbBytes> wqe;
  for (size_t i = 0; i < wqe.size(); ++i) wqe[i] = static_cast<std::byte>(i);
  CopyToRing(ring.data(), 4, /*index=*/0xfffe, wqe.data(), wqe.size());
  EXPECT_EQ(0, std::memcmp(ring.data() + 128, wqe.data(), 128));
  EXPECT_EQ(0, std::memcmp(ring.data(), wqe.data() + 128, 64));
  EXPECT_EQ(WqeBlock(ring.data(), 4, 0xfffe), ring.data() + 128);
  EXPECT_EQ(WqeBlocks(64), 1u);
  EXPECT_EQ(WqeBlocks(80), 2u);
}

TEST(WqeFormat, ReceiveEntryEndsWithTerminatorOnlyIfThereIsRoom) {
  std::array<uint8_t, 48> entry;
  entry.fill(0xee);
  const Sge sges[] = {{0x55, 8, 0x66}, {0x77, 4, 0x88}};
  EncodeReceive(entry.data(), 48, {sges, 1});
  EXPECT_EQ(Bytes(entry.begin(), entry.begin() + 33),
            (Bytes{0, 0, 0, 8, 0, 0, 0, 0x66, 0, 0, 0, 0, 0, 0, 0, 0x55, 0,
                   0, 0, 0, 0, 0, 1, 0, 0,    0, 0, 0, 0, 0, 0, 0, 0xee}));
  entry.fill(0xee);
  EncodeReceive(entry.data(), 32, sges);
  EXPECT_EQ(entry[31], 0x77);
  EXPECT_EQ(entry[32], 0xee);
}

TEST(CqeFormat, OwnerBitFollowsTheLap) {
  std::array<mlx5_cqe64, 4> ring;
  InitCqeRing(ring.data(), 4);
  EXPECT_FALSE(CqeReady(&ring[1], 1, 4));
  ring[1].op_own = MLX5_CQE_RESP_SEND << 4;
  EXPECT_TRUE(CqeReady(&ring[1], 1, 4));
  EXPECT_FALSE(CqeReady(&ring[1], 5, 4)) << "a CQE of the first lap is not one of the second";
  ring[1].op_own |= 1;
  EXPECT_TRUE(CqeReady(&ring[1], 5, 4));
}

TEST(CqeFormat, Decode) {
  std::array<uint8_t, 64> raw{};
  raw[39] = 9;                            // imm
  raw[46] = 1;                            // byte_cnt 256
  raw[57] = 1, raw[58] = 2, raw[59] = 3;  // qpn
  raw[60] = 0x12, raw[61] = 0x34;
  raw[63] = MLX5_CQE_RESP_SEND_IMM << 4;
  mlx5_cqe64 cqe;
  std::memcpy(&cqe, raw.data(), 64);
  Completion c = DecodeCqe(cqe);
  EXPECT_EQ(c.status, WcStatus::kSuccess);
  EXPECT_EQ(c.opcode, WcOpcode::kReceiveImm);
  EXPECT_EQ(c.imm, 9u);
  EXPECT_EQ(c.byte_length, 256u);
  EXPECT_EQ(c.qpn, 0x010203u);
  EXPECT_EQ(c.wqe_counter, 0x1234);
  raw[55] = 0x13;
  raw[63] = MLX5_CQE_REQ_ERR << 4;
  std::memcpy(&cqe, raw.data(), 64);
  c = DecodeCqe(cqe);
  EXPECT_EQ(c.status, WcStatus::kRemoteAccess);
  EXPECT_EQ(c.opcode, WcOpcode::kSendSide);
  EXPECT_EQ(c.byte_length, 0u);
}

}  // namespace
}  // namespace hyperloop::rnic
