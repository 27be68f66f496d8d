#include "control/messages.h"

#include <gtest/gtest.h>

#include <random>

namespace hyperloop::control {
namespace {

std::span<const uint8_t> Payload(const std::vector<uint8_t>& frame) {
  return std::span(frame).subspan(kFrameHeader);
}

SealRequestT Sample() {
  SealRequestT seal;
  seal.epoch = 7;
  seal.owner_id.assign(16, 0xab);
  seal.owner_name = "pid 1 on somewhere";
  seal.group = "00000000-0000-4000-8000-000000000001";
  return seal;
}

TEST(MessagesTest, ComesBackAsItWentOut) {
  const auto frame = EncodeFrame(MakeBody(Sample()));
  const auto body = ParseMessage(Payload(frame));
  ASSERT_TRUE(body.ok()) << body.status().ToString();
  const auto* seal = As<SealRequestT>(*body);
  ASSERT_NE(seal, nullptr);
  EXPECT_EQ(seal->epoch, 7u);
  EXPECT_EQ(seal->owner_id, Sample().owner_id);
  EXPECT_EQ(seal->owner_name, Sample().owner_name);
  EXPECT_EQ(As<HelloRequestT>(*body), nullptr);
}

TEST(MessagesTest, StatusTravels) {
  const auto frame = EncodeFrame(MakeError(Fenced("epoch 9 is another's")));
  const auto body = ParseMessage(Payload(frame));
  ASSERT_TRUE(body.ok());
  const Status status = ErrorStatus(*As<ErrorT>(*body));
  EXPECT_EQ(status.code(), Code::kFenced);
  EXPECT_EQ(status.message(), "epoch 9 is another's");
  ErrorT odd;
  odd.code = 0;  // an error that says "ok" must not read as success
  EXPECT_EQ(ErrorStatus(odd).code(), Code::kInternal);
  odd.code = 4711;
  EXPECT_EQ(ErrorStatus(odd).code(), Code::kInternal);
}

TEST(MessagesTest, AnotherVersionIsNamed) {
  flatbuffers::FlatBufferBuilder builder;
  const auto body = CreateHelloRequest(builder);
  FinishMessageBuffer(
      builder, CreateMessage(builder, kProtocolVersion + 1, Body::HelloRequest, body.Union()));
  const auto parsed = ParseMessage({builder.GetBufferPointer(), builder.GetSize()});
  EXPECT_EQ(parsed.status().code(), Code::kNotSupported);
  EXPECT_NE(parsed.status().message().find("version " + std::to_string(kProtocolVersion + 1)),
            std::string::npos);
}

TEST(MessagesTest, UnknownOrAbsentBodyIsRefused) {
  flatbuffers::FlatBufferBuilder builder;
  FinishMessageBuffer(builder, CreateMessage(builder, kProtocolVersion, Body::NONE, 0));
  EXPECT_EQ(ParseMessage({builder.GetBufferPointer(), builder.GetSize()}).status().code(),
            Code::kNotSupported);
  builder.Clear();
  const auto body = CreateHelloRequest(builder);
  FinishMessageBuffer(
      builder, CreateMessage(builder, kProtocolVersion, static_cast<Body>(200), body.Union()));
  EXPECT_EQ(ParseMessage({builder.GetBufferPointer(), builder.GetSize()}).status().code(),
            Code::kNotSupported);
  builder.Clear();
  FinishMessageBuffer(builder, CreateMessage(builder, kProtocolVersion, Body::SealRequest, 0));
  EXPECT_FALSE(ParseMessage({builder.GetBufferPointer(), builder.GetSize()}).ok());
}

// Any single flipped byte and any cut gives a message or an error, never a read beyond the buffer
// (sanitizers see it).
TEST(MessagesTest, DamagedBytesAreHandled) {
  const auto frame = EncodeFrame(MakeBody(Sample()));
  const std::vector<uint8_t> good(frame.begin() + kFrameHeader, frame.end());
  size_t refused = 0;
  for (size_t i = 0; i < good.size(); ++i) {
    for (const uint8_t flip : {0x01, 0x80, 0xff}) {
      std::vector<uint8_t> bad = good;
      bad[i] ^= flip;
      if (!ParseMessage(bad).ok()) ++refused;
    }
    EXPECT_FALSE(ParseMessage(std::span(good).first(i)).ok()) << "cut at " << i;
  }
  EXPECT_GT(refused, good.size() / 4);
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<uint8_t> noise(random() % 200);
    for (uint8_t& byte : noise) byte = static_cast<uint8_t>(random());
    EXPECT_FALSE(ParseMessage(noise).ok());
  }
}

TEST(MessagesTest, FrameLengthIsBounded) {
  const std::array<uint8_t, 4> zero{0, 0, 0, 0};
  const std::array<uint8_t, 4> limit{0, 0, 1, 0};
  const std::array<uint8_t, 4> beyond{1, 0, 1, 0};
  EXPECT_EQ(ParseFrameHeader(zero, kMaxRequest).status().code(), Code::kCorruption);
  EXPECT_EQ(*ParseFrameHeader(limit, kMaxRequest), kMaxRequest);
  EXPECT_EQ(ParseFrameHeader(beyond, kMaxRequest).status().code(), Code::kCorruption);
}

}  // namespace
}  // namespace hyperloop::control
