// Inline data: the bytes of a request are taken when it is posted, from memory that need not be
// registered.
#include <algorithm>
#include <array>

#include "conformance/fixture.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using rnic::Opcode;
using rnic::WcOpcode;
using rnic::WcStatus;

class InlineTest : public ConformanceTest {
 protected:
  void SetUp() override {
    ConformanceTest::SetUp();
    auto device = provider_->Open("caps");
    ASSERT_OK(device);
    max_inline_ = (*device)->caps().max_inline;
    if (max_inline_ == 0) GTEST_SKIP() << "the device takes no inline data";
    payload_.resize(max_inline_ + 1);
  }
  // The first `n` bytes of memory that no device knows.
  rnic::Sge Own(size_t n, size_t skip = 0) {
    return {reinterpret_cast<uint64_t>(payload_.data() + skip), static_cast<uint32_t>(n), 0};
  }
  void FillOwn(uint8_t seed) {
    for (size_t i = 0; i < payload_.size(); ++i)
      payload_[i] = static_cast<std::byte>(seed + i * 5 + i / 256);
  }

  uint32_t max_inline_ = 0;
  std::vector<std::byte> payload_;
};

TEST_P(InlineTest, EverySizeArrives) {
  ASSERT_NO_FATAL_FAILURE(OpenPair({.max_inline = max_inline_}));
  uint8_t seed = 1;
  for (const uint32_t size : {1u, 2u, 11u, 12u, 13u, 27u, 28u, 29u, 44u, 60u, 61u, max_inline_}) {
    if (size > max_inline_) continue;
    FillOwn(++seed);
    const std::array sges = {Own(size)};
    PostReceive(b_, size, {b_.sge(0, max_inline_)});
    ASSERT_EQ(Run(a_, {.opcode = Opcode::kSend, .inline_data = true, .sges = sges}).status,
              WcStatus::kSuccess)
        << size;
    const auto got = AwaitOne(*b_.recv_cq);
    EXPECT_EQ(got.byte_length, size);
    EXPECT_EQ(std::memcmp(b_.at(0), payload_.data(), size), 0) << size;
    EXPECT_EQ(Run(a_, {.opcode = Opcode::kWrite,
                       .inline_data = true,
                       .sges = sges,
                       .remote_addr = b_.addr(4096),
                       .rkey = b_.mr->rkey()})
                  .status,
              WcStatus::kSuccess);
    EXPECT_EQ(std::memcmp(b_.at(4096), payload_.data(), size), 0) << size;
    std::memset(b_.at(0), 0, 8192);
  }
}

TEST_P(InlineTest, SeveralPiecesGatherAndScatterInOrder) {
  ASSERT_NO_FATAL_FAILURE(OpenPair({.recv_max_sge = 4, .max_inline = 20}));
  FillOwn(9);
  PostReceive(b_, 1, {b_.sge(100, 3), b_.sge(200, 4), b_.sge(300, 100)});
  const std::array sges = {Own(1, 19), Own(9, 0), Own(10, 9)};
  EXPECT_EQ(
      Run(a_, {.opcode = Opcode::kSendImm, .inline_data = true, .sges = sges, .imm = 77}).status,
      WcStatus::kSuccess);
  const auto got = AwaitOne(*b_.recv_cq);
  EXPECT_EQ(got.opcode, WcOpcode::kReceiveImm);
  EXPECT_EQ(got.imm, 77u);
  EXPECT_EQ(got.byte_length, 20u);
  EXPECT_EQ(b_.at(100)[0], payload_[19]);
  EXPECT_EQ(std::memcmp(b_.at(101), payload_.data(), 2), 0);
  EXPECT_EQ(std::memcmp(b_.at(200), payload_.data() + 2, 4), 0);
  EXPECT_EQ(std::memcmp(b_.at(300), payload_.data() + 6, 13), 0);
  EXPECT_EQ(b_.at(313)[0], std::byte{0});
}

TEST_P(InlineTest, TheMemoryIsTheCallersAgainAfterPost) {
  ASSERT_NO_FATAL_FAILURE(OpenPair({.max_inline = 16}));
  FillOwn(3);
  const std::vector<std::byte> before = payload_;
  const std::array sges = {Own(16)};
  const rnic::SendRequest send{
      .opcode = Opcode::kSend, .signaled = true, .inline_data = true, .sges = sges};
  ASSERT_OK(a_.qp->Post({&send, 1}));  // waits: no receive is posted
  FillOwn(200);
  PostReceive(b_, 1, {b_.sge(0, 16)});
  EXPECT_EQ(AwaitOne(*a_.send_cq).status, WcStatus::kSuccess);
  EXPECT_EQ(AwaitOne(*b_.recv_cq).status, WcStatus::kSuccess);
  EXPECT_EQ(std::memcmp(b_.at(0), before.data(), 16), 0);
}

TEST_P(InlineTest, NothingToSendIsAMessageToo) {
  ASSERT_NO_FATAL_FAILURE(OpenPair({.max_inline = 16}));
  PostReceive(b_, 5, {b_.sge(0, 16)});
  EXPECT_EQ(Run(a_, {.opcode = Opcode::kSend, .inline_data = true}).status, WcStatus::kSuccess);
  const auto got = AwaitOne(*b_.recv_cq);
  EXPECT_EQ(got.id, 5u);
  EXPECT_EQ(got.byte_length, 0u);
}

TEST_P(InlineTest, LongOnesWrapAroundTheRing) {
  const uint32_t size = std::min(max_inline_, 200u);
  ASSERT_NO_FATAL_FAILURE(OpenPair({.send_wqebbs = 16, .max_inline = size}));
  for (uint32_t round = 0; round < 100; ++round) {
    FillOwn(static_cast<uint8_t>(round));
    const std::array sges = {Own(size - round % 7 * (size / 20))};  // of unequal numbers of blocks
    ASSERT_EQ(Run(a_, {.opcode = Opcode::kWrite,
                       .inline_data = true,
                       .sges = sges,
                       .remote_addr = b_.addr(0),
                       .rkey = b_.mr->rkey()})
                  .status,
              WcStatus::kSuccess)
        << round;
    ASSERT_EQ(std::memcmp(b_.at(0), payload_.data(), sges[0].length), 0) << round;
  }
}

TEST_P(InlineTest, LimitsAreChecked) {
  ASSERT_NO_FATAL_FAILURE(OpenPair({.max_inline = 32}));
  const std::array longer = {Own(20), Own(13)};
  const std::array word = {a_.sge(0, 8)};
  const rnic::SendRequest refused[] = {
      {.opcode = Opcode::kSend, .inline_data = true, .sges = longer},
      {.opcode = Opcode::kWrite,
       .inline_data = true,
       .sges = longer,
       .remote_addr = b_.addr(0),
       .rkey = b_.mr->rkey()},
      {.opcode = Opcode::kRead,
       .inline_data = true,
       .sges = word,
       .remote_addr = b_.addr(0),
       .rkey = b_.mr->rkey()},
      {.opcode = Opcode::kFetchAdd,
       .inline_data = true,
       .sges = word,
       .remote_addr = b_.addr(0),
       .rkey = b_.mr->rkey()},
  };
  for (const auto& request : refused)
    EXPECT_THAT(a_.qp->Post({&request, 1}), StatusIs(Code::kInvalidArgument));
  const rnic::SendRequest good{.id = 8, .opcode = Opcode::kNop};
  EXPECT_EQ(Run(a_, good).wqe_counter, 0u) << "a refused request takes no place";
  rnic::QpAttr attr{.send_cq = a_.send_cq.get(), .recv_cq = a_.recv_cq.get()};
  attr.max_inline = max_inline_ + 1;
  EXPECT_THAT(a_.pd->CreateQueuePair(attr), StatusIs(Code::kInvalidArgument));
}

INSTANTIATE_TEST_SUITE_P(Providers, InlineTest, testing::ValuesIn(Providers()),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace hyperloop::test
