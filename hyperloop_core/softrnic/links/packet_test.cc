#include "softrnic/links/packet.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "support/status_matchers.h"

namespace hyperloop::softrnic {
namespace {

using Bytes = std::vector<std::byte>;

Packet Write(std::span<const std::byte> payload) {
  return {.type = PacketType::kWrite,
          .flags = kPacketImm | kPacketSolicited,
          .dest_qpn = 0x123456,
          .source_qpn = 0xabcdef,
          .session = 0x1122334455667788,
          .psn = 0xfffffffe,
          .seen = 7,
          .addr = 0x8877665544332211,
          .rkey = 0xdeadbeef,
          .imm = 0x01020304,
          .offset = 10,
          .total = 100,
          .payload = payload};
}

TEST(Packet, WhatWasEncodedIsParsed) {
  const Bytes payload(90, std::byte{0x5a});
  const Bytes bytes = EncodePacket(Write(payload));
  ASSERT_EQ(bytes.size(), kPacketHeaderBytes + 90);
  const auto parsed = ParsePacket(bytes);
  ASSERT_OK(parsed);
  const Packet& p = *parsed;
  EXPECT_EQ(p.type, PacketType::kWrite);
  EXPECT_EQ(p.flags, kPacketImm | kPacketSolicited);
  EXPECT_EQ(p.dest_qpn, 0x123456u);
  EXPECT_EQ(p.source_qpn, 0xabcdefu);
  EXPECT_EQ(p.session, 0x1122334455667788u);
  EXPECT_EQ(p.psn, 0xfffffffeu);
  EXPECT_EQ(p.seen, 7u);
  EXPECT_EQ(p.addr, 0x8877665544332211u);
  EXPECT_EQ(p.rkey, 0xdeadbeefu);
  EXPECT_EQ(p.imm, 0x01020304u);
  EXPECT_EQ(p.offset, 10u);
  EXPECT_EQ(p.total, 100u);
  EXPECT_EQ(p.length, 90u);
  EXPECT_EQ(std::memcmp(p.payload.data(), payload.data(), 90), 0);
}

// Other releases rely on the layout.
TEST(Packet, LiesOnTheWireAsDocumented) {
  const Bytes bytes = EncodePacket({.type = PacketType::kAck,
                                    .dest_qpn = 0x010203,
                                    .source_qpn = 0x040506,
                                    .session = 0x1112131415161718,
                                    .psn = 0x21222324});
  const uint8_t expected[64] = {0x48, 0x4c, 0x50, 0x4b, 1,    9,    0,    0,    0,    1,
                                2,    3,    0,    4,    5,    6,    0x11, 0x12, 0x13, 0x14,
                                0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24};
  ASSERT_EQ(bytes.size(), sizeof expected);
  EXPECT_EQ(std::memcmp(bytes.data(), expected, sizeof expected), 0);
}

TEST(Packet, SeveralAreTakenOneByOne) {
  const Bytes payload(90, std::byte{0x5a});
  Bytes bytes = EncodePacket(Write(payload));
  // A READ names the length that it wants, which does not follow.
  const Bytes read = EncodePacket({.type = PacketType::kRead,
                                   .dest_qpn = 1,
                                   .source_qpn = 2,
                                   .session = 3,
                                   .total = 500,
                                   .length = 500});
  bytes.insert(bytes.end(), read.begin(), read.end());
  bytes.insert(bytes.end(), bytes.begin(), bytes.begin() + 100);  // cut off
  std::span<const std::byte> rest = bytes;
  auto packet = TakePacket(&rest);
  ASSERT_OK(packet);
  EXPECT_EQ(packet->type, PacketType::kWrite);
  EXPECT_EQ(packet->payload.size(), 90u);
  packet = TakePacket(&rest);
  ASSERT_OK(packet);
  EXPECT_EQ(packet->type, PacketType::kRead);
  EXPECT_EQ(packet->length, 500u);
  ASSERT_EQ(rest.size(), 100u);
  EXPECT_THAT(TakePacket(&rest), StatusIs(Code::kCorruption));
  EXPECT_EQ(rest.size(), 100u);
}

Status ParseWith(Bytes bytes, size_t at, uint8_t value) {
  bytes[at] = static_cast<std::byte>(value);
  return ParsePacket(bytes).status();
}

TEST(Packet, MalformedOnesAreRefused) {
  const Bytes payload(90, std::byte{1});
  const Bytes good = EncodePacket(Write(payload));
  EXPECT_THAT(ParseWith(good, 0, 0), StatusIs(Code::kCorruption)) << "magic";
  EXPECT_THAT(ParseWith(good, 4, 2), StatusIs(Code::kNotSupported)) << "version";
  EXPECT_THAT(ParseWith(good, 5, 0), StatusIs(Code::kCorruption)) << "type";
  EXPECT_THAT(ParseWith(good, 5, 200), StatusIs(Code::kCorruption)) << "type";
  EXPECT_THAT(ParseWith(good, 6, 4), StatusIs(Code::kCorruption)) << "flags";
  EXPECT_THAT(ParseWith(good, 6, 0), StatusIs(Code::kCorruption))
      << "immediate data without its flag";
  EXPECT_THAT(ParseWith(good, 7, 1), StatusIs(Code::kCorruption)) << "syndrome of a request";
  EXPECT_THAT(ParseWith(good, 8, 1), StatusIs(Code::kCorruption)) << "25 bits of queue pair number";
  EXPECT_THAT(ParseWith(good, 51, 11), StatusIs(Code::kCorruption)) << "offset + length > total";
  EXPECT_THAT(ParseWith(good, 52, 0x80), StatusIs(Code::kCorruption)) << "total";
  EXPECT_THAT(ParseWith(good, 59, 89), StatusIs(Code::kCorruption)) << "length and payload differ";
  EXPECT_THAT(ParseWith(good, 57, 2), StatusIs(Code::kCorruption)) << "length beyond 64 KiB";
  EXPECT_THAT(ParseWith(good, 63, 1), StatusIs(Code::kCorruption)) << "reserved";
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_THAT(ParsePacket(std::span(good).first(length)), StatusIs(Code::kCorruption)) << length;
  Bytes longer = good;
  longer.push_back({});
  EXPECT_THAT(ParsePacket(longer), StatusIs(Code::kCorruption));
}

TEST(Packet, FieldsThatATypeDoesNotUseMustBeZero) {
  const Packet base{.type = PacketType::kAck, .dest_qpn = 1, .source_qpn = 2, .session = 3};
  ASSERT_OK(ParsePacket(EncodePacket(base)));
  const auto refused = [&base](auto&& change) {
    Packet p = base;
    change(p);
    return ParsePacket(EncodePacket(p)).status().code() == Code::kCorruption;
  };
  EXPECT_TRUE(refused([](Packet& p) { p.session = 0; }));
  EXPECT_TRUE(refused([](Packet& p) { p.dest_qpn = 0; }));
  EXPECT_TRUE(refused([](Packet& p) { p.addr = 1; }));
  EXPECT_TRUE(refused([](Packet& p) { p.rkey = 1; }));
  EXPECT_TRUE(refused([](Packet& p) { p.imm = 1; }));
  EXPECT_TRUE(refused([](Packet& p) { p.flags = kPacketImm; }));
  EXPECT_TRUE(refused([](Packet& p) { p.seen = 1; }));
  EXPECT_TRUE(refused([](Packet& p) { p.total = 1; }));
  EXPECT_TRUE(refused([](Packet& p) { p.length = 1; }));
  EXPECT_TRUE(refused([](Packet& p) { p.syndrome = 1; }));
  EXPECT_TRUE(refused([](Packet& p) { p.type = PacketType::kNak; })) << "no syndrome";
  EXPECT_TRUE(refused([](Packet& p) { p.type = PacketType::kAccept; })) << "no session";
  EXPECT_TRUE(refused([](Packet& p) { p.type = PacketType::kFetchAdd; })) << "no operand";
  EXPECT_TRUE(refused([](Packet& p) {
    p.type = PacketType::kRead;
    p.total = kMaxMessage + 1;
    p.length = 1;
  }));
}

// Every packet that parses is encoded to the same bytes again, so no part of a packet is ignored.
TEST(Packet, NothingIsIgnored) {
  const Bytes payload(32, std::byte{9});
  std::mt19937_64 random(1);
  uint64_t parsed = 0;
  for (int i = 0; i < 200'000; ++i) {
    Packet p = Write(payload);
    if (i % 2 == 0)
      p = {.type = PacketType::kRead, .dest_qpn = 5, .session = 9, .total = 8, .length = 8};
    Bytes bytes = EncodePacket(p);
    for (uint64_t n = random() % 3; n > 0; --n)
      bytes[random() % kPacketHeaderBytes] = static_cast<std::byte>(random());
    const auto again = ParsePacket(bytes);
    if (!again.ok()) continue;
    ++parsed;
    ASSERT_EQ(EncodePacket(*again), bytes);
  }
  EXPECT_GT(parsed, 10'000u);
}

}  // namespace
}  // namespace hyperloop::softrnic
