#include "control/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "common/printable.h"
#include "hyperloop/replication/directive.h"
#include "support/status_matchers.h"

namespace hyperloop::control {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Lt;
using testing::SizeIs;

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
  ASSERT_OK(body);
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
  ASSERT_OK(body);
  const Status status = ErrorStatus(*As<ErrorT>(*body));
  EXPECT_THAT(status, StatusIs(Code::kFenced));
  EXPECT_EQ(status.message(), "epoch 9 is another's");
  ErrorT odd;
  odd.code = 0;  // an error that says "ok" must not read as success
  EXPECT_THAT(ErrorStatus(odd), StatusIs(Code::kInternal));
  odd.code = 4711;
  EXPECT_THAT(ErrorStatus(odd), StatusIs(Code::kInternal));
}

TEST(MessagesTest, AnotherVersionIsNamed) {
  flatbuffers::FlatBufferBuilder builder;
  const auto body = CreateHelloRequest(builder);
  FinishMessageBuffer(
      builder, CreateMessage(builder, kProtocolVersion + 1, Body::HelloRequest, body.Union()));
  const auto parsed = ParseMessage({builder.GetBufferPointer(), builder.GetSize()});
  EXPECT_THAT(parsed, StatusIs(Code::kNotSupported,
                               HasSubstr("version " + std::to_string(kProtocolVersion + 1))));
}

TEST(MessagesTest, UnknownOrAbsentBodyIsRefused) {
  flatbuffers::FlatBufferBuilder builder;
  FinishMessageBuffer(builder, CreateMessage(builder, kProtocolVersion, Body::NONE, 0));
  EXPECT_THAT(ParseMessage({builder.GetBufferPointer(), builder.GetSize()}),
              StatusIs(Code::kNotSupported));
  builder.Clear();
  const auto body = CreateHelloRequest(builder);
  FinishMessageBuffer(
      builder, CreateMessage(builder, kProtocolVersion, static_cast<Body>(200), body.Union()));
  EXPECT_THAT(ParseMessage({builder.GetBufferPointer(), builder.GetSize()}),
              StatusIs(Code::kNotSupported));
  builder.Clear();
  FinishMessageBuffer(builder, CreateMessage(builder, kProtocolVersion, Body::SealRequest, 0));
  EXPECT_THAT(ParseMessage({builder.GetBufferPointer(), builder.GetSize()}),
              StatusIs(Code::kNotSupported));
}

// The vector is moved by four bytes, and all else says so.
TEST(MessagesTest, ChecksumsThatAreNotAlignedAreRefused) {
  ChecksumsReplyT reply;
  reply.checksums = {1, 2, 3};
  const auto frame = EncodeFrame(MakeBody(std::move(reply)));
  std::vector<uint64_t> buffer(frame.size());  // more than enough, and aligned
  auto* const bytes = reinterpret_cast<uint8_t*>(buffer.data());
  const size_t size = frame.size() - kFrameHeader;
  std::copy_n(frame.begin() + kFrameHeader, size, bytes);
  const auto* body = GetMessage(bytes)->body_as_ChecksumsReply();
  const auto* vector = reinterpret_cast<const uint8_t*>(body->checksums());
  const size_t at = static_cast<size_t>(vector - bytes);
  const auto* field =
      reinterpret_cast<const flatbuffers::Table*>(body)->GetAddressOf(ChecksumsReply::VT_CHECKSUMS);
  ASSERT_NE(field, nullptr);
  bytes[field - bytes] += 4;
  std::memmove(bytes + at + 4, bytes + at, size - at);
  EXPECT_THAT(ParseMessage({bytes, size + 4}),
              StatusIs(Code::kCorruption, HasSubstr("not aligned")));
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
    EXPECT_THAT(ParseMessage(std::span(good).first(i)), StatusIs(Code::kCorruption))
        << "cut at " << i;
  }
  EXPECT_GT(refused, good.size() / 4);
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<uint8_t> noise(random() % 200);
    for (uint8_t& byte : noise) byte = static_cast<uint8_t>(random());
    EXPECT_THAT(ParseMessage(noise), StatusIs(Code::kCorruption));
  }
}

// --- the fields of a message are bounded

template <class Message>
Result<BodyUnion> Received(Message message) {
  const auto frame = EncodeFrame(MakeBody(std::move(message)));
  return ParseMessage(Payload(frame));
}

template <class Message>
void ExpectRefused(Message message, const std::string& field) {
  EXPECT_THAT(Received(std::move(message)),
              StatusIs(Code::kInvalidArgument, AllOf(HasSubstr(field), SizeIs(Lt(1000u)))));
}

// Each field that ends up in a log, on a terminal or in a pool is refused by name when it is too
// long, because a peer may be anybody.
class LimitsTest : public testing::Test {
 protected:
  // Refused if `field` is `value`, and by that name.
  template <class Message, class Value>
  void ExpectRefusedWith(Message message, Value Message::*field, const Value& value,
                         const std::string& name) {
    message.*field = value;
    ExpectRefused(std::move(message), name);
  }

  const std::string novel_ = std::string(60000, 'x');
};

TEST_F(LimitsTest, LongFieldsOfAHelloAreRefusedByName) {
  const HelloReplyT hello;
  ExpectRefusedWith(hello, &HelloReplyT::node_id, novel_, "node_id");
  ExpectRefusedWith(hello, &HelloReplyT::host, novel_, "host");
  ExpectRefusedWith(hello, &HelloReplyT::media, novel_, "media");
  ExpectRefusedWith(hello, &HelloReplyT::device, novel_, "device");
  ExpectRefusedWith(hello, &HelloReplyT::group, novel_, "group");
  ExpectRefusedWith(hello, &HelloReplyT::sealed_owner_name, novel_, "sealed_owner_name");
  HelloReplyT chain;
  chain.installed_nodes = chain.installed_replicas = {novel_};
  ExpectRefused(chain, "installed_nodes");
  chain.installed_nodes = chain.installed_replicas = std::vector<std::string>(9, "x");
  ExpectRefused(chain, "installed_nodes");
  chain.installed_nodes = {"one"};
  chain.installed_replicas = {"one:1", "two:2"};
  ExpectRefused(chain, "installed_replicas");
  chain.installed_replicas = {"one:1"};
  chain.absent_replicas = {"two:2"};
  ExpectRefused(chain, "absent_replicas");
}

TEST_F(LimitsTest, LongFieldsAreRefusedByName) {
  const SealRequestT seal = Sample();
  ExpectRefusedWith(seal, &SealRequestT::owner_name, novel_, "owner_name");
  ExpectRefusedWith(seal, &SealRequestT::group, novel_, "group");
  ExpectRefusedWith(seal, &SealRequestT::owner_id, std::vector<uint8_t>(17, 1), "owner_id");
  ExpectRefusedWith(seal, &SealRequestT::epoch, ~uint64_t{0}, "epoch");
  InstallRequestT install;
  install.nodes = install.replicas = {novel_};
  ExpectRefused(install, "nodes");
  install.nodes = {"one"};
  ExpectRefused(install, "replicas");
  ExpectRefusedWith(PrepareMemberRequestT(), &PrepareMemberRequestT::datapath, novel_, "datapath");
  ExpectRefusedWith(AttachRequestT(), &AttachRequestT::gid, std::vector<uint8_t>(600, 1), "gid");
  ExpectRefusedWith(ErrorT(), &ErrorT::message, novel_, "message");
  ExamineReplyT damaged, torn;
  damaged.content = std::make_unique<ContentT>();
  damaged.content->damage = {"extent 1", novel_};
  ExpectRefused(std::move(damaged), "damage");
  torn.content = std::make_unique<ContentT>();
  torn.content->log_error = novel_;
  ExpectRefused(std::move(torn), "log_error");
}

TEST_F(LimitsTest, LongFieldsOfADirectiveAreRefusedByName) {
  const auto expect_refused = [this](auto field, const auto& value, const std::string& name) {
    for (int i = 0; i < 3; ++i) {
      auto directive = std::make_unique<AgentDirectiveT>();
      (*directive).*field = value;
      HelloReplyT hello;
      DirectRequestT request;
      DirectReplyT reply;
      if (i == 0) hello.directive = std::move(directive), ExpectRefused(std::move(hello), name);
      if (i == 1) request.directive = std::move(directive), ExpectRefused(std::move(request), name);
      if (i == 2) reply.directive = std::move(directive), ExpectRefused(std::move(reply), name);
    }
  };
  expect_refused(&AgentDirectiveT::owner, novel_, "owner");
  expect_refused(&AgentDirectiveT::node, std::string(kMaxDirectiveNode + 1, 'n'), "node");
  expect_refused(&AgentDirectiveT::node, std::string("a\nb"), "node");
  expect_refused(&AgentDirectiveT::by, novel_, "by");
  expect_refused(&AgentDirectiveT::drained, std::vector<std::string>{"a", novel_}, "drained");
  expect_refused(&AgentDirectiveT::drained, std::vector<std::string>(kMaxDrained + 1, "a"),
                 "drained");
  ExpectRefusedWith(DirectRequestT(), &DirectRequestT::group, novel_, "group");
}

// A line break in a name would forge a line of a log.
TEST_F(LimitsTest, TextsArriveEscapedAndNamesMustBePrintable) {
  SealRequestT seal = Sample();
  seal.owner_name = "ann\n[error] all is lost\x1b[2J \xc2\x9b \xe2\x80\xae é…";
  auto received = Received(seal);
  ASSERT_OK(received);
  EXPECT_EQ(As<SealRequestT>(*received)->owner_name,
            "ann\\x0a[error] all is lost\\x1b[2J \\xc2\\x9b \\xe2\\x80\\xae é…");
  seal.owner_name = std::string(kMaxOwnerName, '\n');
  received = Received(seal);
  ASSERT_OK(received);
  EXPECT_LE(As<SealRequestT>(*received)->owner_name.size(), kMaxOwnerName);
  received = Received(*As<SealRequestT>(*received));
  EXPECT_OK(received) << "said again";
  HelloReplyT hello;
  hello.host = "r0\nready";
  EXPECT_THAT(Received(hello), StatusIs(Code::kInvalidArgument));
  EXPECT_EQ(Received(hello).status().message().find('\n'), std::string::npos);
  const auto frame = EncodeFrame(MakeError(Fenced("a\nb" + std::string(60000, 'c'))));
  const auto error = ParseMessage(Payload(frame));
  ASSERT_OK(error);
  EXPECT_EQ(ErrorStatus(*As<ErrorT>(*error)).message().substr(0, 6), "a\\x0ab");
}

TEST(PrintableTest, CutsBetweenCharactersAndSaysSo) {
  EXPECT_EQ(Printable("plain", 5), "plain");
  EXPECT_EQ(Printable("plainer", 5), "pl…");
  EXPECT_EQ(Printable("ééé", 6), "ééé");
  EXPECT_EQ(Printable("éééé", 7), "éé…");
  EXPECT_EQ(Printable("\xff", 9), "\\xff");
  EXPECT_EQ(Printable("\xed\xa0\x80", 99), "\\xed\\xa0\\x80");  // half of a surrogate pair
  EXPECT_EQ(Printable("\xc0\xaf", 99), "\\xc0\\xaf");           // longer than it need be
  EXPECT_EQ(Printable("\xf0\x9f\x98\x80", 99), "\xf0\x9f\x98\x80");
  EXPECT_FALSE(IsPrintable(std::string_view("a\0b", 3)));
}

TEST(MessagesTest, FrameLengthIsBounded) {
  const std::array<uint8_t, 4> zero{0, 0, 0, 0};
  const std::array<uint8_t, 4> limit{0, 0, 1, 0};
  const std::array<uint8_t, 4> beyond{1, 0, 1, 0};
  EXPECT_THAT(ParseFrameHeader(zero, kMaxRequest), StatusIs(Code::kCorruption));
  EXPECT_EQ(*ParseFrameHeader(limit, kMaxRequest), kMaxRequest);
  EXPECT_THAT(ParseFrameHeader(beyond, kMaxRequest), StatusIs(Code::kCorruption));
}

}  // namespace
}  // namespace hyperloop::control
