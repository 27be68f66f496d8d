// Tests queue pairs whose link is down, full or busy, or whose peer is gone.
#include <gtest/gtest.h>

#include <cstring>

#include "softrnic/engine/testing/engine_link_fixture.h"
#include "support/status_matchers.h"

namespace hyperloop::softrnic {
namespace {

using rnic::WcStatus;

// Runs one WRITE, which opens the session.
void OpenSession(Linked& p) {
  p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Run();
  ExpectAllGood(p.a_cq.PollAll(), 1);
}

TEST(EngineLinkRecovery, ARequestPostedWhileTheLinkIsDownTimesOut) {
  Linked p;
  OpenSession(p);
  p.Pass(3);
  p.network.Reset(p.ab);
  p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Pass(8 * 500 - 1);
  EXPECT_TRUE(p.a_cq.PollAll().empty()) << "7 retries of 500 ms";
  EXPECT_TRUE(p.a_engine.RetryPending());
  p.Pass(3);
  const auto ends = p.a_cq.PollAll();
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].status, WcStatus::kRetryExceeded);
  p.Pass(3);
  EXPECT_FALSE(p.a_engine.RetryPending()) << "nothing left to wait for";
}

TEST(EngineLinkRecovery, ARequestPostedWhileTheLinkIsDownGoesWhenItIsUp) {
  Linked p;
  OpenSession(p);
  p.network.Reset(p.ab);
  p.a_qp.Write(p.Dst(64), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Pass(3900);
  p.network.Open(p.ab);
  p.Run();
  ExpectAllGood(p.a_cq.PollAll(), 1);
  EXPECT_EQ(std::memcmp(p.dst + 64, p.src, 8), 0);
}

// The peer is destroyed while requests that found no receive are under way. What its engine says
// about the later ones acknowledges none.
TEST(EngineLinkRecovery, AVanishedPeerAcknowledgesNothing) {
  Linked p;
  OpenSession(p);
  const int count = 60;
  for (int i = 0; i < count; ++i) p.a_qp.Send(p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.StepEngines();
  ASSERT_GT(p.ab.requests.size(), count * kPacketHeaderBytes);
  p.network.Deliver(p.ab, true, p.ab.requests.size() / 2);
  p.StepEngines();  // the first finds no receive, the others are ahead of it
  p.b->Modify(p.b_qp, QpState::kReset);
  p.Run();
  const auto ends = p.a_cq.PollAll();
  ASSERT_EQ(ends.size(), static_cast<size_t>(count));
  EXPECT_EQ(ends[0].status, WcStatus::kRetryExceeded);
  for (size_t i = 1; i < ends.size(); ++i) EXPECT_EQ(ends[i].status, WcStatus::kFlushed);
}

// A queue pair that has nothing under way yet meets a link that others have filled.
TEST(EngineLinkRecovery, AConnectThatMeetsAFullLinkGoesWhenThereIsRoom) {
  Linked p;
  TestQp second = p.a->Qp(p.a_cq, p.a_recv), second_peer = p.b->Qp(p.b_cq, p.b_recv);
  p.a->Connect(second, second_peer);
  p.b->Connect(second_peer, second);
  OpenSession(p);
  p.network.room = 1;
  p.ab.cut = true;
  p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 100'000), CqeMode::kAlways);
  p.a_qp.Ring();
  p.StepEngines();
  second.Write(p.Dst(200'000), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
  second.Ring();
  p.StepEngines();
  p.ab.cut = false;
  p.Run();  // no time passes
  ExpectAllGood(p.a_cq.PollAll(), 2);
  EXPECT_EQ(std::memcmp(p.dst + 200'000, p.src, 8), 0);
}

// However many packets wait, queue pairs inside the engine get their part of each turn.
TEST(EngineLinkRecovery, PacketsLeaveHalfOfATurnToLocalQueues) {
  Linked p;
  Client c(p.b_engine, "c");
  TestCq cq = c.Cq();
  TestQp qp = c.Qp(cq, cq);
  c.Connect(qp, qp);
  OpenSession(p);
  for (int i = 0; i < 60; ++i)
    p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  while (p.a_engine.Run(100) != 0) {
  }
  p.network.DeliverAll();
  for (int i = 0; i < 8; ++i) qp.Nop(CqeMode::kAlways);
  qp.Ring();
  p.b_engine.Run(8);
  EXPECT_GE(cq.PollAll().size(), 4u);
  p.b_engine.Run(1);
  EXPECT_GE(cq.PollAll().size(), 1u);
  p.Run();
  ExpectAllGood(p.a_cq.PollAll(), 60);
}

// When an old request comes again among new ones, the new ones must still be acknowledged.
TEST(EngineLinkRecovery, ADuplicateDoesNotHideANewerAcknowledgement) {
  Linked p;
  OpenSession(p);
  for (int i = 0; i < 10; ++i)
    p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.StepEngines();
  p.network.Deliver(p.ab, true, SIZE_MAX);
  p.network.Reset(p.ab);
  p.network.Open(p.ab);
  while (p.a_engine.Run(100) != 0) {
  }
  p.network.Deliver(p.ab, true, kFrameLengthBytes + kPacketHeaderBytes + 8);
  p.StepEngines();
  EXPECT_EQ(p.b->Counter("link_duplicates"), 1u);
  p.network.Deliver(p.ab, false, SIZE_MAX);
  p.StepEngines();
  ExpectAllGood(p.a_cq.PollAll(), 10);
}

// A peer that is not connected yet is as silent over a link as at home.
TEST(EngineLinkRecovery, APeerThatConnectsWithinTheRetriesSaves) {
  Linked p;
  p.b->Modify(p.b_qp, QpState::kReset);
  p.a_qp.Write(p.Dst(), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Pass(1200);
  p.b->Modify(p.b_qp, QpState::kInit, 0xf);
  p.Pass(1200);
  EXPECT_TRUE(p.a_cq.PollAll().empty());
  p.b->Connect(p.b_qp, p.a_qp);
  p.Pass(600);
  ExpectAllGood(p.a_cq.PollAll(), 1);
  EXPECT_EQ(std::memcmp(p.dst, p.src, 8), 0);
}

// Two services of one host, one asked for while the other's answer is under way.
TEST(EngineLinkRecovery, AnotherServiceIsNotAnsweredWithTheFirstOnes) {
  Linked p;
  const auto publish = [&p](const char* name, uint8_t data) {
    Command command = p.b->Make(Op::kPublish);
    std::strcpy(command.args.publish.service, name);
    command.args.publish.pdn = p.b->pdn;
    command.args.publish.private_length = 1;
    command.args.publish.private_data[0] = data;
    p.b->Must(command);
  };
  publish("one", 1);
  publish("two", 2);
  TestQp qp = p.a->Qp(p.a_cq, p.a_recv);
  p.a->Modify(qp, QpState::kReset);
  Reply reply;
  const auto ask = [&](const char* name) {
    Command command = p.a->Make(Op::kConnectService);
    std::strcpy(command.args.connect.host, "b");
    std::strcpy(command.args.connect.service, name);
    command.args.connect.qpn = qp.qpn;
    return p.a->Try(command, &reply);
  };
  EXPECT_THAT(ask("one"), StatusIs(Code::kBusy));
  p.Run();
  EXPECT_THAT(ask("two"), StatusIs(Code::kBusy));
  p.Run();
  ASSERT_OK(ask("two"));
  ASSERT_EQ(reply.result.connect.private_length, 1u);
  EXPECT_EQ(reply.result.connect.private_data[0], 2);
}

// The text of an error comes from another machine. It must not forge lines of a log or move a
// terminal's cursor.
TEST(EngineLinkRecovery, AnErrorOfAnotherDaemonIsBoundedAndMadePrintable) {
  Linked p;
  TestQp qp = p.a->Qp(p.a_cq, p.a_recv);
  p.a->Modify(qp, QpState::kReset);
  Command connect = p.a->Make(Op::kConnectService);
  std::strcpy(connect.args.connect.host, "b");
  std::strcpy(connect.args.connect.service, "one");
  connect.args.connect.qpn = qp.qpn;
  Reply reply;
  ASSERT_THAT(p.a->Try(connect, &reply), StatusIs(Code::kBusy));
  FrameReader requests(kMaxPacketBytes);
  requests.Append(std::vector<std::byte>(p.ab.requests.begin(), p.ab.requests.end()));
  p.network.Lose(p.ab, /*requests=*/true);  // so that b itself does not answer
  const auto frame = requests.Next();
  ASSERT_TRUE(frame.ok() && frame->has_value());
  const auto asked = ParsePacket(**frame);
  ASSERT_OK(asked);
  ASSERT_EQ(asked->type, PacketType::kServiceRequest);
  const auto refuse = [&](std::string_view text) {
    p.b_port->Send(p.ab.incoming, EncodePacket({.type = PacketType::kServiceReply,
                                                .syndrome = static_cast<uint8_t>(Code::kNotFound),
                                                .dest_qpn = asked->source_qpn,
                                                .session = asked->session,
                                                .payload = std::as_bytes(std::span(text))}));
    p.Run();
    return p.a->Try(connect, &reply);
  };
  EXPECT_THAT(refuse(std::string(kMaxServiceReply + 1, 'x')), StatusIs(Code::kBusy));
  const Status refused = refuse("gone\n[error] all is lost\x1b[2J \x7f\xc2\x9b");
  EXPECT_THAT(refused, StatusIs(Code::kNotFound));
  EXPECT_EQ(refused.message(), "host a asked b: gone?[error] all is lost?[2J ???");
}

// The first copy of a SEND finds no receive, a second copy finds one, and the requester hears of
// both. What it sends next must not wait for a timer that nobody looks at any more.
TEST(EngineLinkRecovery, NoReceiveForACopyOfWhatIsTakenStopsNothing) {
  Linked p;
  OpenSession(p);
  p.a_qp.Send(p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.StepEngines();
  p.network.Deliver(p.ab, true, SIZE_MAX);
  p.StepEngines();
  p.now += 501'000'000;
  p.StepEngines();  // sent again
  p.b_qp.Receive(p.b->At(p.dst, 8));
  p.network.Deliver(p.ab, true, SIZE_MAX);
  p.Run();
  ExpectAllGood(p.a_cq.PollAll(), 1);
  EXPECT_EQ(p.a->Counter("rnr_stalls"), 1u);
  p.a_qp.Write(p.Dst(64), p.b->rkey, p.a->At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Pass(10'000);
  ExpectAllGood(p.a_cq.PollAll(), 1);
}

}  // namespace
}  // namespace hyperloop::softrnic
