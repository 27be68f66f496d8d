// Cross-channel: WAIT, enables, managed queues, queues rewritten by a receive, completion queues as
// counters.
#include <array>
#include <atomic>

#include "conformance/fixture.h"
#include "rnic/wqe.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using rnic::Opcode;
using rnic::WcStatus;

class CrossChannelTest : public ConformanceTest {
 protected:
  static constexpr rnic::QpAttr kMaster = {.recv_max_sge = 8, .cross_channel = true};
  static constexpr rnic::QpAttr kManaged = {.cross_channel = true, .managed_send = true};

  void SetUp() override {
    ConformanceTest::SetUp();
    HL_SKIP_WITHOUT_CROSS_CHANNEL();
    ASSERT_NO_FATAL_FAILURE(OpenPair(kMaster));
    // A managed loopback queue pair at b, with a completion queue of its own.
    auto cq = b_.device->CreateCq({});
    ASSERT_OK(cq);
    managed_cq_ = std::move(*cq);
    auto qp = MakeQp(kManaged);
    ASSERT_OK(qp);
    managed_ = std::move(*qp);
    ASSERT_OK(managed_->Connect(managed_->address()));
  }
  Result<std::unique_ptr<rnic::QueuePair>> MakeQp(rnic::QpAttr attr) {
    attr.send_cq = managed_cq_.get();
    attr.recv_cq = managed_cq_.get();
    return b_.pd->CreateQueuePair(attr);
  }
  // A copy inside b's buffer by the managed queue.
  void PostCopy(size_t from, size_t to, uint64_t id) {
    const std::array sges = {b_.sge(from, 8)};
    const rnic::SendRequest write{.id = id,
                                  .opcode = Opcode::kWrite,
                                  .signaled = true,
                                  .sges = sges,
                                  .remote_addr = b_.addr(to),
                                  .rkey = b_.mr->rkey()};
    ASSERT_OK(managed_->Post({&write, 1}));
  }
  void PostTo(rnic::QueuePair& qp, const rnic::SendRequest& request) {
    ASSERT_OK(qp.Post({&request, 1}));
  }

  std::unique_ptr<rnic::CompletionQueue> managed_cq_;
  std::unique_ptr<rnic::QueuePair> managed_;
};

TEST_P(CrossChannelTest, ManagedQueueRunsOnlyWhenEnabled) {
  b_.word(0) = 5;
  for (uint64_t i = 0; i < 3; ++i) PostCopy(0, 100 * 8 + i * 8, i);
  EXPECT_EQ(CountNow(*managed_cq_), 0u);
  EXPECT_EQ(b_.word(800), 0u);
  ASSERT_OK(managed_->RingDoorbell(1));
  EXPECT_EQ(AwaitOne(*managed_cq_).id, 0u);
  EXPECT_EQ(CountNow(*managed_cq_), 0u) << "only below the index";
  EXPECT_EQ(b_.word(800), 5u);
  EXPECT_EQ(b_.word(808), 0u);
  PostTo(*b_.qp, {.opcode = Opcode::kSendEnable, .object = managed_->qpn(), .index = 3});
  EXPECT_EQ(Await(*managed_cq_, 2)[1].id, 2u);
  EXPECT_EQ(b_.word(816), 5u);
}

TEST_P(CrossChannelTest, EnableOfAQueueThatIsNotManagedFails) {
  const auto failed = Run(b_, {.opcode = Opcode::kSendEnable, .object = b_.qp->qpn(), .index = 1});
  EXPECT_EQ(failed.status, WcStatus::kLocalQpOperation) << rnic::WcStatusName(failed.status);
}

TEST_P(CrossChannelTest, EnableOfAnUnknownQueueFails) {
  const auto failed = Run(b_, {.opcode = Opcode::kSendEnable, .object = 0xabcdef, .index = 1});
  EXPECT_EQ(failed.status, WcStatus::kLocalQpOperation) << rnic::WcStatusName(failed.status);
}

TEST_P(CrossChannelTest, WaitNeedsACrossChannelQueue) {
  auto plain = MakeQp({});
  ASSERT_OK(plain);
  ASSERT_OK((*plain)->Connect((*plain)->address()));
  const rnic::SendRequest wait{.opcode = Opcode::kWait, .object = b_.recv_cq->cqn(), .index = 0};
  EXPECT_THAT((*plain)->Post({&wait, 1}), StatusIs(Code::kInvalidArgument));
}

TEST_P(CrossChannelTest, WaitHoldsTheQueueUntilTheCompletion) {
  // b: WAIT for the second receive, then enable the managed queue.
  b_.word(0) = 1;
  PostCopy(0, 64, 1);
  PostReceive(b_, 1, {b_.sge(1024, 8)});
  PostReceive(b_, 2, {b_.sge(1024, 8)});
  PostTo(*b_.qp, {.opcode = Opcode::kWait, .object = b_.recv_cq->cqn(), .index = 1});
  PostTo(*b_.qp,
         {.opcode = Opcode::kSendEnable, .signaled = true, .object = managed_->qpn(), .index = 1});
  const std::array sges = {a_.sge(0, 8)};
  EXPECT_EQ(Run(a_, {.opcode = Opcode::kSend, .sges = sges}).status, WcStatus::kSuccess);
  EXPECT_EQ(CountNow(*managed_cq_), 0u);
  EXPECT_EQ(b_.word(64), 0u) << "one receive is not two";
  EXPECT_EQ(Run(a_, {.opcode = Opcode::kSend, .sges = sges}).status, WcStatus::kSuccess);
  EXPECT_EQ(AwaitOne(*managed_cq_).status, WcStatus::kSuccess);
  EXPECT_EQ(b_.word(64), 1u);
}

TEST_P(CrossChannelTest, WaitOnThePastIsMetAtOnce) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Run(b_, {.opcode = Opcode::kNop}).status, WcStatus::kSuccess);
  }
  const auto waited = Run(b_, {.opcode = Opcode::kWait, .object = b_.send_cq->cqn(), .index = 2});
  EXPECT_EQ(waited.status, WcStatus::kSuccess);
}

TEST_P(CrossChannelTest, QueuesOfAnotherProcessCannotBeEnabledOrAwaited) {
  // Another open of the same host is another client, with a UAR page of its own.
  Endpoint other;
  ASSERT_NO_FATAL_FAILURE(Open("b", &other, kMaster));
  ASSERT_OK(other.qp->Connect(other.qp->address()));
  const auto waited =
      Run(other, {.opcode = Opcode::kWait, .object = b_.recv_cq->cqn(), .index = 0});
  EXPECT_EQ(waited.status, WcStatus::kLocalQpOperation) << rnic::WcStatusName(waited.status);
  ASSERT_OK(other.qp->Reset());
  ASSERT_OK(other.qp->Connect(other.qp->address()));
  const auto enabled =
      Run(other, {.opcode = Opcode::kSendEnable, .object = managed_->qpn(), .index = 1});
  EXPECT_EQ(enabled.status, WcStatus::kLocalQpOperation) << rnic::WcStatusName(enabled.status);
}

TEST_P(CrossChannelTest, ReceiveRewritesAWaitingRequest) {
  // The managed queue holds a NOP as long as a WRITE. The message turns it into a WRITE with source
  // and target, and the receive's completion starts it. No code of b takes part.
  auto raw = managed_->raw_queues();
  ASSERT_OK(raw);
  ASSERT_EQ(reinterpret_cast<uintptr_t>(raw->sq) % 64, 0u);
  EXPECT_EQ(raw->sq_wqebbs, 64u);
  std::byte* block = rnic::WqeBlock(raw->sq, raw->sq_wqebbs, 0);
  rnic::EncodeNop(block, {.qpn = managed_->qpn(), .index = 0, .completion = rnic::CqeMode::kAlways},
                  3);
  const auto block_addr = static_cast<uint64_t>(raw->addr) +
                          static_cast<uint64_t>(block - reinterpret_cast<std::byte*>(raw->addr));
  // The receive scatters 5 unused bytes, then the WQE. Odd pieces show that any granularity works.
  PostReceive(b_, 1,
              {b_.sge(2048, 5),
               {block_addr, 1, raw->lkey},
               {block_addr + 1, 22, raw->lkey},
               {block_addr + 23, 25, raw->lkey}});
  PostTo(*b_.qp, {.opcode = Opcode::kWait, .object = b_.recv_cq->cqn(), .index = 0});
  PostTo(*b_.qp, {.opcode = Opcode::kSendEnable, .object = managed_->qpn(), .index = 1});
  provider_->Drive();

  b_.word(512) = 0xfeed;
  const std::array source = {b_.sge(512, 8)};
  rnic::EncodeWrite(a_.at(5),
                    {.qpn = managed_->qpn(), .index = 0, .completion = rnic::CqeMode::kAlways},
                    b_.addr(4096), b_.mr->rkey(), source);
  const std::array sges = {a_.sge(0, 53)};
  EXPECT_EQ(Run(a_, {.opcode = Opcode::kSend, .sges = sges}).status, WcStatus::kSuccess);
  EXPECT_EQ(AwaitOne(*managed_cq_).status, WcStatus::kSuccess);
  EXPECT_EQ(b_.word(4096), 0xfeedu);
}

TEST_P(CrossChannelTest, ReceiveRefillsItsOwnQueue) {
  // One receive entry in a ring of one; each message writes the doorbell record's receive counter
  // for the next.
  auto qp = b_.pd->CreateQueuePair({.send_cq = b_.send_cq.get(),
                                    .recv_cq = b_.recv_cq.get(),
                                    .recv_wqes = 1,
                                    .recv_max_sge = 2,
                                    .cross_channel = true});
  ASSERT_OK(qp);
  b_.qp = std::move(*qp);
  ASSERT_OK(a_.qp->Reset());
  ASSERT_OK(a_.qp->Connect(b_.qp->address()));
  ASSERT_OK(b_.qp->Connect(a_.qp->address()));
  auto raw = b_.qp->raw_queues();
  ASSERT_OK(raw);
  const uint64_t counter =
      raw->addr +
      static_cast<uint64_t>(raw->doorbell_record - reinterpret_cast<std::byte*>(raw->addr));
  PostReceive(b_, 1, {b_.sge(0, 8), {counter, 4, raw->lkey}});
  const auto scattered = [this] {
    auto counters = b_.device->QueryCounters();
    EXPECT_OK(counters);
    return counters.ok() ? (*counters)["ring_bytes_by_scatter"] : 0;
  };
  const uint64_t before = scattered();
  for (uint32_t i = 0; i < 100; ++i) {
    a_.word(0) = i;
    const uint32_t next = __builtin_bswap32(i + 2);
    std::memcpy(a_.at(8), &next, 4);
    const std::array sges = {a_.sge(0, 12)};
    ASSERT_EQ(Run(a_, {.opcode = Opcode::kSend, .sges = sges}).status, WcStatus::kSuccess);
    ASSERT_EQ(AwaitOne(*b_.recv_cq).wqe_counter, i);
    ASSERT_EQ(b_.word(0), i);
  }
  EXPECT_EQ(scattered() - before, 4u * 100);
}

TEST_P(CrossChannelTest, OverrunIgnoredCqKeepsCounting) {
  auto counter = b_.device->CreateCq({.depth = 4, .ignore_overrun = true});
  ASSERT_OK(counter);
  auto qp = b_.pd->CreateQueuePair(
      {.send_cq = counter->get(), .recv_cq = counter->get(), .cross_channel = true});
  ASSERT_OK(qp);
  ASSERT_OK((*qp)->Connect((*qp)->address()));
  PostTo(*b_.qp,
         {.opcode = Opcode::kWait, .signaled = true, .object = (*counter)->cqn(), .index = 19});
  const rnic::SendRequest nop{.opcode = Opcode::kNop, .signaled = true};
  for (int i = 0; i < 19; ++i) ASSERT_OK((*qp)->Post({&nop, 1}));
  EXPECT_EQ(CountNow(*b_.send_cq), 0u);
  ASSERT_OK((*qp)->Post({&nop, 1}));
  EXPECT_EQ(AwaitOne(*b_.send_cq).status, WcStatus::kSuccess);
  (*qp).reset();
}

TEST_P(CrossChannelTest, WqeIndexIsChecked) {
  auto raw = managed_->raw_queues();
  ASSERT_OK(raw);
  rnic::EncodeNop(rnic::WqeBlock(raw->sq, raw->sq_wqebbs, 0),
                  {.qpn = managed_->qpn(), .index = 64, .completion = rnic::CqeMode::kAlways});
  ASSERT_OK(managed_->RingDoorbell(1));
  EXPECT_EQ(AwaitOne(*managed_cq_).status, WcStatus::kLocalQpOperation)
      << "the index of the next lap";
}

INSTANTIATE_TEST_SUITE_P(Providers, CrossChannelTest, testing::ValuesIn(Providers()),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace hyperloop::test
