// Rings and their accounting, protection and error states of queue pairs, and the device's other
// services.
#include <array>
#include <set>

#include "conformance/fixture.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using rnic::Opcode;
using rnic::QpState;
using rnic::WcStatus;

class QueueTest : public ConformanceTest {
 protected:
  // A request that fails at the responder as `expected`, or at the requester; then the queue is in
  // error.
  void ExpectFailure(const rnic::SendRequest& request, WcStatus expected) {
    const auto failed = Run(a_, request);
    EXPECT_TRUE(provider_->Reports(expected, failed.status))
        << rnic::WcStatusName(failed.status) << " instead of " << rnic::WcStatusName(expected);
    EXPECT_EQ(failed.id, request.id);
    EXPECT_EQ(failed.qpn, a_.qp->qpn());
    EXPECT_EQ(a_.qp->state(), QpState::kError);
    EXPECT_EQ(Run(a_, {.id = 1234, .opcode = Opcode::kNop}).status, WcStatus::kFlushed);
  }
  rnic::SendRequest WriteTo(uint64_t addr, uint32_t rkey) {
    sge_ = a_.sge(0, 8);
    return {
        .id = 9, .opcode = Opcode::kWrite, .sges = {&sge_, 1}, .remote_addr = addr, .rkey = rkey};
  }
  rnic::Sge sge_;
};

// --- rings

TEST_P(QueueTest, RingsWrapManyTimes) {
  ASSERT_NO_FATAL_FAILURE(OpenPair({.send_wqebbs = 8, .recv_wqes = 4}));
  for (uint64_t i = 0; i < 1000; ++i) {
    PostReceive(b_, 5000 + i, {b_.sge(8 * (i % 100), 8)});
    a_.word(0) = i;
    const std::array sges = {a_.sge(0, 8)};
    const auto sent = Run(a_, {.id = i, .opcode = Opcode::kSend, .sges = sges});
    ASSERT_EQ(sent.status, WcStatus::kSuccess);
    ASSERT_EQ(sent.id, i);
    ASSERT_EQ(AwaitOne(*b_.recv_cq).id, 5000 + i);
    ASSERT_EQ(b_.word(8 * (i % 100)), i);
  }
}

TEST_P(QueueTest, LongRequestsWrapAroundTheRing) {
  ASSERT_NO_FATAL_FAILURE(OpenPair({.send_wqebbs = 8}));
  // 7 entries: 9 segments, 3 blocks; in a ring of 8 every third one wraps.
  for (uint32_t round = 0; round < 200; ++round) {
    a_.Fill(0, 70, static_cast<uint8_t>(round));
    std::vector<rnic::Sge> sges;
    for (uint32_t i = 0; i < 7; ++i) sges.push_back(a_.sge(10 * i, 10));
    const auto done = Run(a_, {.id = round,
                               .opcode = Opcode::kWrite,
                               .sges = sges,
                               .remote_addr = b_.addr(0),
                               .rkey = b_.mr->rkey()});
    ASSERT_EQ(done.status, WcStatus::kSuccess) << "round " << round;
    ASSERT_EQ(done.id, round);
    ASSERT_EQ(std::memcmp(a_.at(0), b_.at(0), 70), 0);
  }
}

TEST_P(QueueTest, FullSendRingRefusesAndPostsNothing) {
  ASSERT_NO_FATAL_FAILURE(OpenPair({.send_wqebbs = 4}));
  // The first SEND waits for a receive, so nothing behind it runs.
  sge_ = a_.sge(0, 8);
  const rnic::SendRequest send{
      .id = 1, .opcode = Opcode::kSend, .signaled = true, .sges = {&sge_, 1}};
  ASSERT_OK(a_.qp->Post({&send, 1}));
  const rnic::SendRequest nop{.id = 2, .opcode = Opcode::kNop, .signaled = true};
  const std::array two = {nop, nop};
  ASSERT_OK(a_.qp->Post(two));
  EXPECT_THAT(a_.qp->Post(two), StatusIs(Code::kNoSpace));
  ASSERT_OK(a_.qp->Post({&nop, 1}));
  EXPECT_THAT(a_.qp->Post({&nop, 1}), StatusIs(Code::kNoSpace));
  PostReceive(b_, 1, {b_.sge(0, 8)});
  std::vector<uint64_t> ids;
  for (const auto& completion : Await(*a_.send_cq, 4)) ids.push_back(completion.id);
  EXPECT_EQ(ids, (std::vector<uint64_t>{1, 2, 2, 2}));
  EXPECT_EQ(CountNow(*a_.send_cq), 0u);
  EXPECT_OK(a_.qp->Post(two));  // completions gave the space back
}

TEST_P(QueueTest, FullReceiveRingRefuses) {
  ASSERT_NO_FATAL_FAILURE(OpenPair({.recv_wqes = 2}));
  PostReceive(b_, 1, {b_.sge(0, 8)});
  PostReceive(b_, 2, {b_.sge(0, 8)});
  sge_ = b_.sge(0, 8);
  const rnic::ReceiveRequest third{.id = 3, .sges = {&sge_, 1}};
  EXPECT_THAT(b_.qp->PostReceive({&third, 1}), StatusIs(Code::kNoSpace));
  const std::array sges = {a_.sge(0, 8)};
  Run(a_, {.opcode = Opcode::kSend, .sges = sges});
  EXPECT_EQ(AwaitOne(*b_.recv_cq).id, 1u);
  EXPECT_OK(b_.qp->PostReceive({&third, 1}));
}

TEST_P(QueueTest, RetireGivesBackSpaceOfUnsignaledWork) {
  ASSERT_NO_FATAL_FAILURE(OpenPair({.send_wqebbs = 4}));
  const rnic::SendRequest nop{.opcode = Opcode::kNop};
  for (int round = 0; round < 20; ++round) {
    rnic::SendRequest last = WriteTo(b_.addr(0), b_.mr->rkey());
    last.opcode = Opcode::kWriteImm;
    const std::array batch = {nop, nop, nop, last};
    PostReceive(b_, 1, {b_.sge(8, 8)});
    ASSERT_OK(a_.qp->Post(batch));
    EXPECT_THAT(a_.qp->Post({&nop, 1}), StatusIs(Code::kNoSpace));
    // No completion of a shows that they ran; b's does.
    ASSERT_EQ(AwaitOne(*b_.recv_cq).status, WcStatus::kSuccess);
    a_.qp->Retire(static_cast<uint16_t>(round * 4 + 3));
  }
  EXPECT_EQ(CountNow(*a_.send_cq), 0u);
}

TEST_P(QueueTest, PostChecksItsArguments) {
  ASSERT_NO_FATAL_FAILURE(Open("a", &a_));
  const rnic::SendRequest nop{.opcode = Opcode::kNop};
  EXPECT_THAT(a_.qp->Post({&nop, 1}), StatusIs(Code::kInvalidArgument)) << "not connected";
  ASSERT_OK(a_.qp->Connect(a_.qp->address()));
  EXPECT_THAT(a_.qp->Connect(a_.qp->address()), StatusIs(Code::kInvalidArgument))
      << "connected already";
  const std::array empty = {rnic::Sge{a_.addr(0), 0, a_.mr->lkey()}};
  const rnic::SendRequest zero{.opcode = Opcode::kSend, .sges = empty};
  EXPECT_THAT(a_.qp->Post({&zero, 1}), StatusIs(Code::kInvalidArgument));
  const std::vector<rnic::Sge> many(a_.device->caps().max_sge + 1, a_.sge(0, 1));
  const rnic::SendRequest wide{.opcode = Opcode::kSend, .sges = many};
  EXPECT_THAT(a_.qp->Post({&wide, 1}), StatusIs(Code::kInvalidArgument));
  const std::array wrong_size = {a_.sge(0, 4)};
  const rnic::SendRequest atomic{.opcode = Opcode::kFetchAdd, .sges = wrong_size};
  EXPECT_THAT(a_.qp->Post({&atomic, 1}), StatusIs(Code::kInvalidArgument));
  EXPECT_EQ(CountNow(*a_.send_cq), 0u);
  rnic::QpAttr odd{.send_cq = a_.send_cq.get(), .recv_cq = a_.recv_cq.get(), .send_wqebbs = 48};
  EXPECT_THAT(a_.pd->CreateQueuePair(odd), StatusIs(Code::kInvalidArgument));
  odd = {.send_cq = nullptr, .recv_cq = a_.recv_cq.get()};
  EXPECT_THAT(a_.pd->CreateQueuePair(odd), StatusIs(Code::kInvalidArgument));
  const auto refused = [&](auto&& change) {
    rnic::QpAttr attr{.send_cq = a_.send_cq.get(), .recv_cq = a_.recv_cq.get()};
    change(attr);
    return a_.pd->CreateQueuePair(attr).status().code();
  };
  using namespace std::chrono_literals;
  EXPECT_EQ(refused([](auto& attr) { attr.retry_count = 8; }), Code::kInvalidArgument);
  EXPECT_EQ(refused([](auto& attr) { attr.rnr_retry = 8; }), Code::kInvalidArgument);
  EXPECT_EQ(refused([](auto& attr) { attr.rnr_timer = 0us; }), Code::kInvalidArgument);
  EXPECT_EQ(refused([](auto& attr) { attr.rnr_timer = 491521us; }), Code::kInvalidArgument);
  EXPECT_EQ(refused([](auto& attr) { attr.ack_timeout = -1ms; }), Code::kInvalidArgument);
  EXPECT_EQ(refused([](auto& attr) { attr.ack_timeout = 9'000'000ms; }), Code::kInvalidArgument);
  EXPECT_EQ(refused([](auto& attr) { attr.link_timeout = -1ms; }), Code::kInvalidArgument);
  EXPECT_EQ(refused([](auto& attr) { attr.link_timeout = 8'796'094ms; }), Code::kInvalidArgument);
  EXPECT_EQ(refused([](auto& attr) { attr.link_timeout = 8'796'093ms; }), Code::kOk);
  EXPECT_EQ(refused([](auto& attr) { attr.retry_count = 0, attr.ack_timeout = 0ms; }), Code::kOk);
}

// --- protection

TEST_P(QueueTest, WrongRemoteKey) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  ExpectFailure(WriteTo(b_.addr(0), b_.mr->rkey() ^ 0x5a5a), WcStatus::kRemoteAccess);
  EXPECT_EQ(b_.word(0), 0u);
}

TEST_P(QueueTest, RemoteRangeOutOfBounds) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  ExpectFailure(WriteTo(b_.addr(Endpoint::kBytes - 4), b_.mr->rkey()), WcStatus::kRemoteAccess);
}

TEST_P(QueueTest, RemoteRangeBelowTheRegion) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  ExpectFailure(WriteTo(b_.addr(0) - 1, b_.mr->rkey()), WcStatus::kRemoteAccess);
}

TEST_P(QueueTest, RemoteRangeThatOverflows) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  ExpectFailure(WriteTo(~uint64_t{0} - 3, b_.mr->rkey()), WcStatus::kRemoteAccess);
}

TEST_P(QueueTest, RemoteWriteNotAllowed) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  auto read_only = b_.pd->Register(b_.buffer->data(), 4096, rnic::kRemoteRead, {});
  ASSERT_OK(read_only);
  auto request = WriteTo(b_.addr(0), (*read_only)->rkey());
  request.opcode = Opcode::kRead;
  EXPECT_EQ(Run(a_, request).status, WcStatus::kSuccess) << "that is all it is for";
  ExpectFailure(WriteTo(b_.addr(0), (*read_only)->rkey()), WcStatus::kRemoteAccess);
}

TEST_P(QueueTest, RemoteAtomicNotAllowed) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  auto no_atomics = b_.pd->Register(b_.buffer->data(), 4096,
                                    rnic::kLocalWrite | rnic::kRemoteRead | rnic::kRemoteWrite, {});
  ASSERT_OK(no_atomics);
  auto only_atomics =
      b_.pd->Register(b_.buffer->data(), 4096, rnic::kLocalWrite | rnic::kRemoteAtomic, {});
  ASSERT_OK(only_atomics);
  sge_ = a_.sge(0, 8);
  rnic::SendRequest add{.id = 1,
                        .opcode = Opcode::kFetchAdd,
                        .sges = {&sge_, 1},
                        .remote_addr = b_.addr(0),
                        .rkey = (*only_atomics)->rkey(),
                        .compare_or_add = 1};
  EXPECT_EQ(Run(a_, add).status, WcStatus::kSuccess);
  add.rkey = (*no_atomics)->rkey();
  ExpectFailure(add, WcStatus::kRemoteAccess);
  EXPECT_EQ(b_.word(0), 1u);
}

TEST_P(QueueTest, RemoteKeyOfAnotherProtectionDomain) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  auto other = b_.device->AllocatePd();
  ASSERT_OK(other);
  auto mr = (*other)->Register(b_.buffer->data(), 4096, Endpoint::kAllAccess, {});
  ASSERT_OK(mr);
  ExpectFailure(WriteTo(b_.addr(0), (*mr)->rkey()), WcStatus::kRemoteAccess);
  EXPECT_EQ(b_.word(0), 0u);
}

TEST_P(QueueTest, LocalKeyOfAnotherProtectionDomain) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  auto other = a_.device->AllocatePd();
  ASSERT_OK(other);
  auto mr = (*other)->Register(a_.buffer->data(), 4096, Endpoint::kAllAccess, {});
  ASSERT_OK(mr);
  auto request = WriteTo(b_.addr(0), b_.mr->rkey());
  sge_.lkey = (*mr)->lkey();
  ExpectFailure(request, WcStatus::kLocalProtection);
}

TEST_P(QueueTest, LocalRangeOutOfBounds) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  auto request = WriteTo(b_.addr(0), b_.mr->rkey());
  sge_.addr = a_.addr(Endpoint::kBytes - 7);
  ExpectFailure(request, WcStatus::kLocalProtection);
}

TEST_P(QueueTest, DeregisteredKeyIsDead) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  auto mr = b_.pd->Register(b_.buffer->data(), 4096, Endpoint::kAllAccess, {});
  ASSERT_OK(mr);
  const uint32_t rkey = (*mr)->rkey();
  EXPECT_EQ(Run(a_, WriteTo(b_.addr(0), rkey)).status, WcStatus::kSuccess);
  mr->reset();
  ExpectFailure(WriteTo(b_.addr(0), rkey), WcStatus::kRemoteAccess);
}

TEST_P(QueueTest, MisalignedAtomic) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  sge_ = a_.sge(0, 8);
  ExpectFailure({.id = 1,
                 .opcode = Opcode::kFetchAdd,
                 .sges = {&sge_, 1},
                 .remote_addr = b_.addr(4),
                 .rkey = b_.mr->rkey(),
                 .compare_or_add = 1},
                WcStatus::kRemoteInvalidRequest);
}

TEST_P(QueueTest, SendLongerThanReceive) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  PostReceive(b_, 11, {b_.sge(0, 16)});
  sge_ = a_.sge(0, 17);
  ExpectFailure({.id = 1, .opcode = Opcode::kSend, .sges = {&sge_, 1}},
                WcStatus::kRemoteInvalidRequest);
  const auto received = AwaitOne(*b_.recv_cq);
  EXPECT_TRUE(provider_->Reports(WcStatus::kLocalLength, received.status))
      << rnic::WcStatusName(received.status);
  EXPECT_EQ(received.id, 11u);
  EXPECT_EQ(b_.qp->state(), QpState::kError);
}

TEST_P(QueueTest, WorkBehindAnErrorIsFlushedInOrder) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  std::vector<rnic::SendRequest> batch = {WriteTo(b_.addr(0), b_.mr->rkey() + 1)};
  for (uint64_t id = 10; id < 13; ++id) {
    batch.push_back(WriteTo(b_.addr(64), b_.mr->rkey()));
    batch.back().id = id;
    batch.back().signaled = true;
  }
  ASSERT_OK(a_.qp->Post(batch));
  const auto got = Await(*a_.send_cq, 4);
  ASSERT_EQ(got.size(), 4u);
  EXPECT_EQ(got[0].status, WcStatus::kRemoteAccess) << "though it was unsignaled";
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(got[i].status, WcStatus::kFlushed);
    EXPECT_EQ(got[i].id, 9 + i);
  }
  EXPECT_EQ(b_.word(64), 0u) << "nothing ran";
}

TEST_P(QueueTest, DestroyedPeerFailsTheRequest) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  b_.qp.reset();
  ExpectFailure(WriteTo(b_.addr(0), b_.mr->rkey()), WcStatus::kRetryExceeded);
}

// --- life of a queue pair

TEST_P(QueueTest, ResetDropsWorkAndStartsAgain) {
  ASSERT_NO_FATAL_FAILURE(OpenPair({.send_wqebbs = 8, .recv_wqes = 4}));
  for (int round = 0; round < 5; ++round) {
    sge_ = a_.sge(0, 8);
    // One completion that nobody polls, one request that cannot run.
    const std::array batch = {
        rnic::SendRequest{.id = 1, .opcode = Opcode::kNop, .signaled = true},
        rnic::SendRequest{.id = 2, .opcode = Opcode::kSend, .signaled = true, .sges = {&sge_, 1}}};
    ASSERT_OK(a_.qp->Post(batch));
    provider_->Drive();
    ASSERT_OK(a_.qp->Reset());
    EXPECT_EQ(a_.qp->state(), QpState::kReset);
    ASSERT_OK(b_.qp->Reset());
    EXPECT_EQ(CountNow(*a_.send_cq), 0u) << "completions of dropped work";
    ASSERT_OK(a_.qp->Connect(b_.qp->address()));
    ASSERT_OK(b_.qp->Connect(a_.qp->address()));
    a_.word(0) = static_cast<uint64_t>(round) + 50;
    PostReceive(b_, 3, {b_.sge(0, 8)});
    const auto sent = Run(a_, {.id = 4, .opcode = Opcode::kSend, .sges = {&sge_, 1}});
    EXPECT_EQ(sent.status, WcStatus::kSuccess);
    EXPECT_EQ(sent.id, 4u);
    EXPECT_EQ(AwaitOne(*b_.recv_cq).id, 3u);
    EXPECT_EQ(b_.word(0), a_.word(0)) << "the dropped request did not consume the receive";
  }
}

TEST_P(QueueTest, ResetDropsReceives) {
  ASSERT_NO_FATAL_FAILURE(OpenPair({.recv_wqes = 4}));
  const auto send = [&] {
    sge_ = a_.sge(0, 8);
    return Run(a_, {.id = 4, .opcode = Opcode::kSend, .sges = {&sge_, 1}});
  };
  PostReceive(b_, 1, {b_.sge(0, 8)});
  PostReceive(b_, 2, {b_.sge(8, 8)});
  PostReceive(b_, 3, {b_.sge(16, 8)});
  EXPECT_EQ(send().status, WcStatus::kSuccess);  // its receive is complete, and nobody polls it
  ASSERT_OK(a_.qp->Reset());
  ASSERT_OK(b_.qp->Reset());
  EXPECT_EQ(CountNow(*b_.recv_cq), 0u);
  ASSERT_OK(a_.qp->Connect(b_.qp->address()));
  ASSERT_OK(b_.qp->Connect(a_.qp->address()));
  a_.word(0) = 77;
  for (uint64_t i = 0; i < 4; ++i) PostReceive(b_, 10 + i, {b_.sge(32 + i * 8, 8)});
  EXPECT_EQ(send().status, WcStatus::kSuccess);
  EXPECT_EQ(AwaitOne(*b_.recv_cq).id, 10u);
  EXPECT_EQ(b_.word(32), 77u);
  EXPECT_EQ(b_.word(8), 0u) << "a receive from before the reset was used";
}

TEST_P(QueueTest, ResetKeepsOthersCompletions) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  auto other = a_.pd->CreateQueuePair({.send_cq = a_.send_cq.get(), .recv_cq = a_.recv_cq.get()});
  ASSERT_OK(other);
  ASSERT_OK((*other)->Connect((*other)->address()));
  const rnic::SendRequest nop{.id = 6, .opcode = Opcode::kNop, .signaled = true};
  ASSERT_OK((*other)->Post({&nop, 1}));
  EXPECT_EQ(AwaitOne(*a_.send_cq).id, 6u);
  ASSERT_OK((*other)->Post({&nop, 1}));
  PostReceive(a_, 5, {a_.sge(0, 8)});
  ASSERT_OK(a_.qp->Reset());
  EXPECT_EQ(AwaitOne(*a_.send_cq).qpn, (*other)->qpn());
}

TEST_P(QueueTest, ResetLeavesTheErrorState) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  ExpectFailure(WriteTo(b_.addr(0), 1), WcStatus::kRemoteAccess);
  ASSERT_OK(a_.qp->Reset());
  ASSERT_OK(b_.qp->Reset());
  ASSERT_OK(a_.qp->Connect(b_.qp->address()));
  ASSERT_OK(b_.qp->Connect(a_.qp->address()));
  EXPECT_EQ(Run(a_, WriteTo(b_.addr(0), b_.mr->rkey())).status, WcStatus::kSuccess);
}

TEST_P(QueueTest, CompletionsOfSeveralQueuePairsShareACq) {
  ASSERT_NO_FATAL_FAILURE(Open("a", &a_));
  std::vector<std::unique_ptr<rnic::QueuePair>> qps;
  std::set<uint32_t> qpns;
  for (uint64_t i = 0; i < 20; ++i) {
    auto qp = a_.pd->CreateQueuePair({.send_cq = a_.send_cq.get(), .recv_cq = a_.recv_cq.get()});
    ASSERT_OK(qp);
    ASSERT_OK((*qp)->Connect((*qp)->address()));
    qpns.insert((*qp)->qpn());
    qps.push_back(std::move(*qp));
  }
  EXPECT_EQ(qpns.size(), 20u);
  for (const auto& qp : qps) {
    const rnic::SendRequest nop{.id = qp->qpn(), .opcode = Opcode::kNop, .signaled = true};
    ASSERT_OK(qp->Post({&nop, 1}));
  }
  for (const auto& completion : Await(*a_.send_cq, 20)) {
    EXPECT_EQ(completion.status, WcStatus::kSuccess);
    EXPECT_EQ(completion.id, completion.qpn);
    EXPECT_EQ(qpns.erase(completion.qpn), 1u);
  }
  EXPECT_TRUE(qpns.empty());
}

TEST_P(QueueTest, ManyQueuePairsComeAndGo) {
  ASSERT_NO_FATAL_FAILURE(Open("a", &a_));
  for (int i = 0; i < 700; ++i) {  // more than there are doorbell registers
    auto qp = a_.pd->CreateQueuePair({.send_cq = a_.send_cq.get(), .recv_cq = a_.recv_cq.get()});
    ASSERT_OK(qp);
    if (i % 50 != 0) continue;
    ASSERT_OK((*qp)->Connect((*qp)->address()));
    const rnic::SendRequest nop{.id = 5, .opcode = Opcode::kNop, .signaled = true};
    ASSERT_OK((*qp)->Post({&nop, 1}));
    EXPECT_EQ(AwaitOne(*a_.send_cq).qpn, (*qp)->qpn());
  }
}

// --- services

TEST_P(QueueTest, PublishedServiceCanBeReadAndNotWritten) {
  ASSERT_NO_FATAL_FAILURE(Open("publisher", &b_));
  ASSERT_NO_FATAL_FAILURE(Open("reader", &a_));
  const std::array<std::byte, 5> note = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4},
                                         std::byte{5}};
  ASSERT_OK(b_.device->Publish("inspect", *b_.pd, note));
  b_.Fill(0, 128, 21);
  EXPECT_THAT(a_.device->ConnectService(provider_->ServiceHost("publisher"), "nothing", *a_.qp),
              StatusIs(Code::kNotFound));
  EXPECT_THAT(a_.device->ConnectService(provider_->ServiceHost("nobody"), "inspect", *a_.qp),
              StatusIs(Code::kNotFound));
  auto got = a_.device->ConnectService(provider_->ServiceHost("publisher"), "inspect", *a_.qp);
  ASSERT_OK(got);
  EXPECT_TRUE(std::equal(got->begin(), got->end(), note.begin(), note.end()));
  sge_ = a_.sge(0, 128);
  EXPECT_EQ(Run(a_, {.opcode = Opcode::kRead,
                     .sges = {&sge_, 1},
                     .remote_addr = b_.addr(0),
                     .rkey = b_.mr->rkey()})
                .status,
            WcStatus::kSuccess);
  EXPECT_EQ(std::memcmp(a_.at(0), b_.at(0), 128), 0);
  const uint64_t before = b_.word(0);
  EXPECT_NE(Run(a_, WriteTo(b_.addr(0), b_.mr->rkey())).status, WcStatus::kSuccess);
  EXPECT_EQ(b_.word(0), before);
}

TEST_P(QueueTest, CountersCount) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  auto before = a_.device->QueryCounters();
  ASSERT_OK(before);
  EXPECT_EQ(Run(a_, WriteTo(b_.addr(0), b_.mr->rkey())).status, WcStatus::kSuccess);
  auto after = a_.device->QueryCounters();
  ASSERT_OK(after);
  EXPECT_EQ((*after)["wqes_executed"], (*before)["wqes_executed"] + 1);
  EXPECT_EQ((*after)["bytes_sent"], (*before)["bytes_sent"] + 8);
}

TEST_P(QueueTest, TheDeviceIsAlive) {
  ASSERT_NO_FATAL_FAILURE(Open("a", &a_));
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(a_.device->alive());
}

INSTANTIATE_TEST_SUITE_P(Providers, QueueTest, testing::ValuesIn(Providers()),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace hyperloop::test
