// Tests that clients share a link fairly, as engine_fairness_test.cc does for one engine.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "hyperloop/core/name.h"
#include "softrnic/engine/remote.h"
#include "softrnic/engine/testing/engine_link_fixture.h"
#include "support/status_matchers.h"

namespace hyperloop::softrnic {
namespace {

// A host of the first engine whose queue pair is connected to one of host b.
struct Quiet {
  explicit Quiet(Linked& p) : client(p.a_engine, "quiet", rnic::Media::kRam, nullptr, 9) {
    EXPECT_OK(p.b_engine.AddRoute("quiet", p.ba.id));
    cq = client.Cq();
    qp = client.Qp(cq, cq);
    peer = p.b->Qp(p.b_cq, p.b_recv);
    client.Connect(qp, peer);
    p.b->Connect(peer, qp);
    from = client.Allocate(64);
  }
  void Write(Linked& p) {
    qp.Write(p.Dst(), p.b->rkey, client.At(from, 8), CqeMode::kAlways);
    qp.Ring();
  }
  Client client;
  TestCq cq;
  TestQp qp, peer;
  std::byte* from;
};

TEST(EngineLinkFairness, AnotherClientsManyQueuePairsCostOneTurn) {
  Linked p;
  Quiet quiet(p);
  quiet.Write(p);  // opens the session
  std::vector<TestQp> busy;
  for (int i = 0; i < 40; ++i) {
    TestQp from = p.a->Qp(p.a_cq, p.a_recv, {.log_sq = 2, .has_rq = false});
    TestQp to = p.b->Qp(p.b_cq, p.b_recv, {.log_sq = 2, .has_rq = false});
    p.a->Connect(from, to);
    p.b->Connect(to, from);
    from.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 8));
    from.Ring();
    busy.push_back(from);
  }
  p.Run();
  ExpectAllGood(quiet.cq.PollAll(), 1);
  for (TestQp& each : busy) {
    each.Write(p.Dst(), p.b->rkey, p.a->At(p.src, Linked::kBytes));
    each.Ring();
  }
  p.StepEngines();  // until the link is full
  quiet.Write(p);
  const uint64_t before = p.ab.bytes_delivered;
  while (quiet.cq.PollAll().empty()) {
    ASSERT_NE(p.network.DeliverAll(), 0u);
    p.StepEngines();
  }
  EXPECT_LE(p.ab.bytes_delivered - before, 2u << 20);
}

// After a cut all open queue pairs are listed, and one short turn serves but one of them.
TEST(EngineLinkFairness, AClientThatEndsHasNoTurnAnyMore) {
  Linked p;
  p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 8));
  p.a_qp.Ring();
  auto quiet = std::make_unique<Quiet>(p);
  quiet->Write(p);
  p.Run();
  p.network.Reset(p.ab);
  p.network.Open(p.ab);
  p.a_engine.Run(1);
  quiet.reset();
  p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Pass(1000);
  ExpectAllGood(p.a_cq.PollAll(), 1);
}

void PublishInspect(Linked& p) {
  Command publish = p.b->Make(Op::kPublish);
  std::strcpy(publish.args.publish.service, "inspect");
  publish.args.publish.pdn = p.b->pdn;
  p.b->Must(publish);
}

// Queue pair `qpn` of host a asks host b for that service.
void AskForInspect(Linked& p, uint32_t qpn) {
  std::vector<std::byte> asks(16 + 2 * kNameBytes);
  std::memcpy(asks.data(), p.a->gid.data(), 16);
  std::memcpy(asks.data() + 16, "b", 1);
  std::memcpy(asks.data() + 16 + kNameBytes, "inspect", 7);
  p.a_port->Send(p.ab.id, EncodePacket({.type = PacketType::kServiceRequest,
                                        .source_qpn = qpn,
                                        .session = 7 + qpn,
                                        .payload = asks}));
}

TEST(EngineLinkFairness, ARequestForAServiceCountsAsATurn) {
  constexpr uint32_t kRequests = 20;
  Linked p;
  PublishInspect(p);
  p.Run();
  AskForInspect(p, 999);
  p.network.DeliverAll();
  p.b_engine.Run(64);
  const size_t answer = p.ab.answers.size();
  ASSERT_NE(answer, 0u);
  p.Run();
  for (uint32_t i = 0; i < kRequests; ++i) AskForInspect(p, 1000 + i);
  p.network.DeliverAll();
  p.b_engine.Run(64);
  EXPECT_LE(p.ab.answers.size(), 2 * answer);
  for (int i = 0; i < 100 && p.ab.answers.size() != kRequests * answer; ++i) p.b_engine.Run(64);
  EXPECT_EQ(p.ab.answers.size(), kRequests * answer);
}

// They may be left behind by clients that ended without a word.
TEST(EngineLinkFairness, ManyConnectionsOfOneHostDisplaceItsOwn) {
  Linked p;
  EXPECT_OK(p.b_engine.AddRoute("quiet", p.ba.id));
  Client quiet(p.a_engine, "quiet");
  PublishInspect(p);
  TestCq cq = quiet.Cq();
  TestQp qp = quiet.Qp(cq, cq);
  quiet.Modify(qp, QpState::kReset);
  Command connect = quiet.Make(Op::kConnectService);
  std::strcpy(connect.args.connect.host, "b");
  std::strcpy(connect.args.connect.service, "inspect");
  connect.args.connect.qpn = qp.qpn;
  Reply reply;
  EXPECT_THAT(quiet.Try(connect, &reply), StatusIs(Code::kBusy));
  p.Run();
  ASSERT_OK(quiet.Try(connect, &reply));
  TestQp peer;
  peer.qpn = reply.result.connect.remote_qpn;
  std::memcpy(peer.gid.data(), reply.result.connect.gid, 16);
  quiet.Modify(qp, QpState::kInit, 0);
  quiet.Connect(qp, peer);

  for (uint32_t i = 0; i < 2 * kMaxQpsPerContext; ++i) {
    AskForInspect(p, 1000 + i);
    p.Run();
  }
  std::byte* const at = quiet.Allocate(64);
  qp.Read(p.Dst(), p.b->rkey, quiet.At(at, 8), CqeMode::kAlways);
  qp.Ring();
  p.Pass(2000);
  ExpectAllGood(cq.PollAll(), 1);
}

}  // namespace
}  // namespace hyperloop::softrnic
