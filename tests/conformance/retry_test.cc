// Requests that the peer does not answer, or refuses for lack of a receive, and the state of a
// queue pair after an error.
#include <array>

#include "conformance/fixture.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using namespace std::chrono_literals;
using rnic::Opcode;
using rnic::QpState;
using rnic::WcStatus;

class RetryTest : public ConformanceTest {
 protected:
  rnic::SendRequest Send() {
    sge_ = a_.sge(0, 8);
    return {.id = 3, .opcode = Opcode::kSend, .signaled = true, .sges = {&sge_, 1}};
  }
  rnic::SendRequest Write() {
    sge_ = a_.sge(0, 8);
    return {.id = 4,
            .opcode = Opcode::kWrite,
            .signaled = true,
            .sges = {&sge_, 1},
            .remote_addr = b_.addr(64),
            .rkey = b_.mr->rkey()};
  }
  void ExpectExhausted(const rnic::SendRequest& request, WcStatus expected) {
    const rnic::SendRequest nop{.id = 9, .opcode = Opcode::kNop};
    const std::array batch = {request, nop};
    ASSERT_OK(a_.qp->Post(batch));
    const auto got = Await(*a_.send_cq, 2);
    ASSERT_EQ(got.size(), 2u);
    EXPECT_EQ(got[0].status, expected)
        << rnic::WcStatusName(got[0].status) << " instead of " << rnic::WcStatusName(expected);
    EXPECT_EQ(got[0].id, request.id);
    EXPECT_EQ(got[1].status, WcStatus::kFlushed) << "though it was not signaled";
    EXPECT_EQ(got[1].id, 9u);
    EXPECT_EQ(a_.qp->state(), QpState::kError);
  }
  void Reconnect() {
    ASSERT_OK(a_.qp->Reset());
    ASSERT_OK(b_.qp->Reset());
    ASSERT_OK(a_.qp->Connect(b_.qp->address()));
    ASSERT_OK(b_.qp->Connect(a_.qp->address()));
  }
  void ExpectNobodyBehindAResetOf(Endpoint& end, Endpoint& other) {
    ASSERT_NO_FATAL_FAILURE(OpenPair({.retry_count = 1, .ack_timeout = 10ms}));
    EXPECT_EQ(Run(a_, Write()).status, WcStatus::kSuccess);
    ASSERT_OK(end.qp->Reset());
    ASSERT_OK(end.qp->Connect(other.qp->address()));
    a_.word(0) = 4711;
    ASSERT_NO_FATAL_FAILURE(ExpectExhausted(Write(), WcStatus::kRetryExceeded));
    EXPECT_NE(b_.word(64), 4711u);
  }
  rnic::Sge sge_;
};

TEST_P(RetryTest, NoReceiveAtAllEndsInRnrRetryExceeded) {
  for (const uint8_t retries : {0, 1, 3}) {
    ASSERT_NO_FATAL_FAILURE(OpenPair({.rnr_retry = retries, .rnr_timer = 1ms}));
    ASSERT_NO_FATAL_FAILURE(ExpectExhausted(Send(), WcStatus::kRnrRetryExceeded));
    EXPECT_EQ(CountNow(*b_.recv_cq), 0u);
    // Both ends start again.
    ASSERT_NO_FATAL_FAILURE(Reconnect());
    PostReceive(b_, 1, {b_.sge(0, 8)});
    EXPECT_EQ(Run(a_, Send()).status, WcStatus::kSuccess);
    EXPECT_EQ(AwaitOne(*b_.recv_cq).status, WcStatus::kSuccess);
    Close(&a_);
    Close(&b_);
  }
}

TEST_P(RetryTest, WriteWithImmediateNeedsAReceiveToo) {
  ASSERT_NO_FATAL_FAILURE(OpenPair({.rnr_retry = 1, .rnr_timer = 1ms}));
  auto request = Write();
  request.opcode = Opcode::kWriteImm;
  ASSERT_NO_FATAL_FAILURE(ExpectExhausted(request, WcStatus::kRnrRetryExceeded));
}

TEST_P(RetryTest, AReceiveWithinTheRetriesSaves) {
  ASSERT_NO_FATAL_FAILURE(OpenPair({.rnr_retry = 6, .rnr_timer = 400ms}));
  const auto send = Send();
  ASSERT_OK(a_.qp->Post({&send, 1}));
  EXPECT_EQ(CountNow(*a_.send_cq), 0u);
  PostReceive(b_, 1, {b_.sge(0, 8)});
  EXPECT_EQ(AwaitOne(*a_.send_cq).status, WcStatus::kSuccess);
}

TEST_P(RetryTest, ADeadPeerEndsInRetryExceeded) {
  for (const uint8_t retries : {0, 2}) {
    ASSERT_NO_FATAL_FAILURE(OpenPair({.retry_count = retries, .ack_timeout = 10ms}));
    EXPECT_EQ(Run(a_, Write()).status, WcStatus::kSuccess);
    const auto request = Write();
    b_.qp.reset();
    ASSERT_NO_FATAL_FAILURE(ExpectExhausted(request, WcStatus::kRetryExceeded));
    Close(&a_);
    Close(&b_);
  }
}

TEST_P(RetryTest, NobodyAtTheAddressEndsInRetryExceeded) {
  ASSERT_NO_FATAL_FAILURE(OpenPair({.retry_count = 1, .ack_timeout = 10ms}));
  const rnic::QpAddress gone = b_.qp->address();
  const auto request = Write();
  b_.qp.reset();
  ASSERT_OK(a_.qp->Reset());
  ASSERT_OK(a_.qp->Connect(gone));
  ASSERT_NO_FATAL_FAILURE(ExpectExhausted(request, WcStatus::kRetryExceeded));
}

TEST_P(RetryTest, APeerThatConnectsWithinTheRetriesSaves) {
  ASSERT_NO_FATAL_FAILURE(OpenPair({.retry_count = 7, .ack_timeout = 500ms}));
  ASSERT_OK(b_.qp->Reset());
  a_.word(0) = 4711;
  const auto request = Write();
  ASSERT_OK(a_.qp->Post({&request, 1}));
  EXPECT_EQ(CountNow(*a_.send_cq), 0u) << "nobody answers yet, which is no error yet";
  ASSERT_OK(b_.qp->Connect(a_.qp->address()));
  EXPECT_EQ(AwaitOne(*a_.send_cq).status, WcStatus::kSuccess);
  EXPECT_EQ(b_.word(64), 4711u);
}

// Packets are numbered. After requests have passed, an end that starts anew alone expects and sends
// other numbers than its former peer.
TEST_P(RetryTest, NobodyGoesOnWithAPeerThatWasResetAlone) {
  ASSERT_NO_FATAL_FAILURE(ExpectNobodyBehindAResetOf(b_, a_));
}

TEST_P(RetryTest, WhoWasResetAloneDoesNotGoOnWithItsFormerPeer) {
  ASSERT_NO_FATAL_FAILURE(ExpectNobodyBehindAResetOf(a_, b_));
}

TEST_P(RetryTest, ResetEndsTheWaiting) {
  ASSERT_NO_FATAL_FAILURE(OpenPair({.rnr_retry = 0, .rnr_timer = 1ms}));
  PostReceive(b_, 1, {b_.sge(0, 8)});
  ASSERT_OK(b_.qp->Reset());
  const auto request = Write();
  ASSERT_OK(a_.qp->Post({&request, 1}));
  provider_->Drive();
  ASSERT_NO_FATAL_FAILURE(Reconnect());
  EXPECT_EQ(CountNow(*a_.send_cq), 0u);
  EXPECT_EQ(Run(a_, {.id = 77, .opcode = Opcode::kNop}).id, 77u) << "the first completion of all";
  EXPECT_EQ(b_.word(64), 0u);
}

// --- errors

TEST_P(RetryTest, ARefusedRequestFlushesTheRespondersReceives) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  for (uint64_t id = 20; id < 23; ++id) PostReceive(b_, id, {b_.sge(0, 8)});
  auto request = Write();
  request.rkey ^= 0x5a5a;
  EXPECT_EQ(Run(a_, request).status, WcStatus::kRemoteAccess);
  const auto got = Await(*b_.recv_cq, 3);
  ASSERT_EQ(got.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(got[i].status, WcStatus::kFlushed);
    EXPECT_EQ(got[i].id, 20 + i);
  }
  EXPECT_EQ(b_.qp->state(), QpState::kError);
}

TEST_P(RetryTest, ReceivesPostedInErrorAreFlushed) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  auto request = Write();
  request.rkey ^= 0x5a5a;
  EXPECT_EQ(Run(a_, request).status, WcStatus::kRemoteAccess);
  ASSERT_EQ(a_.qp->state(), QpState::kError);
  for (uint64_t id = 30; id < 34; id += 2) {
    PostReceive(a_, id, {a_.sge(0, 8)});
    PostReceive(a_, id + 1, {a_.sge(0, 8)});
    const auto got = Await(*a_.recv_cq, 2);
    ASSERT_EQ(got.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(got[i].status, WcStatus::kFlushed);
      EXPECT_EQ(got[i].id, id + i);
    }
  }
}

TEST_P(RetryTest, ReceivesThatCannotBeWrittenFailBothEnds) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  auto read_only = b_.pd->Register(b_.buffer->data(), 4096, rnic::kRemoteRead, {});
  ASSERT_OK(read_only);
  PostReceive(b_, 5, {{b_.addr(0), 8, (*read_only)->lkey()}});
  EXPECT_EQ(Run(a_, Send()).status, WcStatus::kRemoteOperation);
  const auto got = AwaitOne(*b_.recv_cq);
  EXPECT_TRUE(provider_->Reports(WcStatus::kLocalProtection, got.status));
  EXPECT_EQ(got.id, 5u);
  EXPECT_EQ(b_.word(0), 0u);
}

TEST_P(RetryTest, AReadIntoMemoryThatMayNotBeWrittenFails) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  auto read_only = a_.pd->Register(a_.buffer->data(), 4096, rnic::kRemoteRead, {});
  ASSERT_OK(read_only);
  b_.word(64) = 5;
  auto request = Write();
  request.opcode = Opcode::kRead;
  sge_.lkey = (*read_only)->lkey();
  EXPECT_EQ(Run(a_, request).status, WcStatus::kLocalProtection);
  EXPECT_EQ(a_.word(0), 0u);
}

TEST_P(RetryTest, AReadThatIsNotAllowedIsRefused) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  auto write_only =
      b_.pd->Register(b_.buffer->data(), 4096, rnic::kLocalWrite | rnic::kRemoteWrite, {});
  ASSERT_OK(write_only);
  auto request = Write();
  request.rkey = (*write_only)->rkey();
  EXPECT_EQ(Run(a_, request).status, WcStatus::kSuccess) << "that is all it is for";
  b_.word(64) = 5;
  request.opcode = Opcode::kRead;
  EXPECT_EQ(Run(a_, request).status, WcStatus::kRemoteAccess);
  EXPECT_EQ(a_.word(0), 0u);
}

TEST_P(RetryTest, AnErrorStopsItsQueuePairOnly) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  Endpoint c, d;
  ASSERT_NO_FATAL_FAILURE(Open("a", &c));
  auto other = b_.pd->CreateQueuePair({.send_cq = b_.send_cq.get(), .recv_cq = b_.recv_cq.get()});
  ASSERT_OK(other);
  ASSERT_OK(c.qp->Connect((*other)->address()));
  ASSERT_OK((*other)->Connect(c.qp->address()));
  auto request = Write();
  request.rkey ^= 0x5a5a;
  EXPECT_EQ(Run(a_, request).status, WcStatus::kRemoteAccess);
  c.word(0) = 12;
  const rnic::Sge sge = c.sge(0, 8);
  EXPECT_EQ(Run(c, {.opcode = Opcode::kWrite,
                    .sges = {&sge, 1},
                    .remote_addr = b_.addr(64),
                    .rkey = b_.mr->rkey()})
                .status,
            WcStatus::kSuccess);
  EXPECT_EQ(b_.word(64), 12u);
  (*other).reset();
}

TEST_P(RetryTest, StatesFollowConnectErrorAndReset) {
  ASSERT_NO_FATAL_FAILURE(Open("a", &a_));
  ASSERT_NO_FATAL_FAILURE(Open("b", &b_));
  EXPECT_EQ(a_.qp->state(), QpState::kReset);
  EXPECT_OK(a_.qp->Reset());
  const auto early = Send();
  EXPECT_THAT(a_.qp->Post({&early, 1}), StatusIs(Code::kInvalidArgument));
  PostReceive(a_, 1, {a_.sge(0, 8)});  // allowed before Connect
  ASSERT_OK(a_.qp->Connect(b_.qp->address()));
  EXPECT_EQ(a_.qp->state(), QpState::kReadyToSend);
  EXPECT_THAT(a_.qp->Connect(b_.qp->address()), StatusIs(Code::kInvalidArgument));
  ASSERT_OK(b_.qp->Connect(a_.qp->address()));
  const rnic::Sge sge = b_.sge(0, 8);
  EXPECT_EQ(Run(b_, {.opcode = Opcode::kSend, .sges = {&sge, 1}}).status, WcStatus::kSuccess);
  EXPECT_EQ(AwaitOne(*a_.recv_cq).id, 1u);
  auto request = Write();
  request.rkey ^= 0x5a5a;
  EXPECT_EQ(Run(a_, request).status, WcStatus::kRemoteAccess);
  EXPECT_EQ(a_.qp->state(), QpState::kError);
  EXPECT_THAT(a_.qp->Connect(b_.qp->address()), StatusIs(Code::kInvalidArgument))
      << "ERROR is left through RESET";
  ASSERT_NO_FATAL_FAILURE(Reconnect());
  EXPECT_EQ(Run(a_, Write()).status, WcStatus::kSuccess);
}

INSTANTIATE_TEST_SUITE_P(Providers, RetryTest, testing::ValuesIn(Providers()),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace hyperloop::test
