// Tests completion channels in the engine: registers, arming, and when `notify` is called.
#include "softrnic/engine/testing/engine_test_util.h"
#include "support/status_matchers.h"

namespace hyperloop::softrnic {
namespace {

// A client whose one CQ has a channel, and a queue pair on itself that fills it.
struct Channel {
  explicit Channel(uint32_t log_size = 4) : client(engine, "a") {
    CreateCqArgs args{};
    args.umem = client.umem;
    args.log_size = log_size;
    args.events = 1;
    cq.depth = 1u << log_size;
    cq.ring = reinterpret_cast<mlx5_cqe64*>(client.Allocate(cq.depth * 64));
    cq.dbrec = client.Allocate(64);
    args.ring_addr = reinterpret_cast<uint64_t>(cq.ring);
    args.dbrec_addr = reinterpret_cast<uint64_t>(cq.dbrec);
    auto reply = engine.CreateEventCq(client.id(), args, [this] { ++events; });
    EXPECT_OK(reply);
    cq.cqn = reply->cqn;
    arm_index = reply->arm_index;
    qp = client.Qp(cq, cq);
    client.Connect(qp, qp);
  }
  void Complete() {
    qp.Nop(CqeMode::kAlways);
    qp.Ring();
    RunAll(engine);
  }
  void Arm(uint64_t consumed, bool solicited_only = false, uint32_t completions = 1) {
    __atomic_store_n(&client.uar()->registers[arm_index],
                     1ull << 63 | ArmValue(consumed, solicited_only, completions),
                     __ATOMIC_RELEASE);
    __atomic_fetch_or(&client.uar()->header.summary[arm_index / 64], 1ull << (arm_index % 64),
                      __ATOMIC_SEQ_CST);
    RunAll(engine);
  }

  Engine engine{EngineOptions{}};
  Client client;
  TestCq cq;
  uint32_t arm_index = 0;
  TestQp qp;
  int events = 0;
};

// The client's last poll saw one CQE. The second one came before the engine saw that the client
// armed the channel.
TEST(EngineEvents, ArmingBehindTheProducerTellsAtOnce) {
  Channel c;
  c.Complete();
  c.Complete();
  c.Arm(1);
  EXPECT_EQ(c.events, 1);
  c.Complete();
  EXPECT_EQ(c.events, 1);
}

TEST(EngineEvents, SolicitedOnlyCountsErrorsAndWhatWasMissed) {
  Channel c;
  c.Complete();
  c.Arm(0, true);
  c.Complete();
  EXPECT_EQ(c.events, 0) << "a send completion is never solicited";
  c.qp.Write(0, 0xdead, c.client.At(c.client.memory, 8));
  c.qp.Ring();
  RunAll(c.engine);
  EXPECT_EQ(c.events, 1);
  c.Arm(2, true);
  EXPECT_EQ(c.events, 2) << "the error was CQE number 2";
  c.Arm(3, true);
  EXPECT_EQ(c.events, 2);
}

TEST(EngineEvents, OneEventTellsOfAllThatWereAskedFor) {
  Channel c;
  c.Complete();
  c.Arm(1, false, 3);
  c.Complete();
  c.Complete();
  EXPECT_EQ(c.events, 0);
  c.Complete();
  EXPECT_EQ(c.events, 1);
  c.Complete();
  EXPECT_EQ(c.events, 1) << "once";
  c.Arm(2, false, 3);
  EXPECT_EQ(c.events, 2) << "they had come before the engine saw the request";
  c.Arm(2, false, 4);
  EXPECT_EQ(c.events, 2);
  c.Arm(5, false, kMostArmed);
  EXPECT_EQ(c.events, 2);
}

TEST(EngineEvents, AnErrorTellsBeforeAllHaveCome) {
  Channel c;
  const auto fail = [&c] {
    c.qp.Write(0, 0xdead, c.client.At(c.client.memory, 8));
    c.qp.Ring();
    RunAll(c.engine);
  };
  c.Arm(0, false, 3);
  fail();
  EXPECT_EQ(c.events, 1);
  c.Arm(0, false, 3);
  EXPECT_EQ(c.events, 2) << "the error had come before the engine saw the request";
  c.Arm(1, false, 3);
  EXPECT_EQ(c.events, 2);
}

TEST(EngineEvents, OverrunTells) {
  Channel c(1);
  c.Complete();
  c.Complete();
  c.Arm(2);
  c.Complete();
  EXPECT_EQ(c.events, 1);
  c.Arm(2);
  EXPECT_EQ(c.events, 2) << "nothing will come any more";
}

TEST(EngineEvents, BadRequestsAreRefused) {
  Channel c;
  CreateCqArgs args{};
  args.umem = c.client.umem;
  args.ring_addr = reinterpret_cast<uint64_t>(c.client.Allocate(64));
  args.dbrec_addr = reinterpret_cast<uint64_t>(c.client.Allocate(64));
  EXPECT_THAT(c.engine.CreateEventCq(c.client.id(), args, [] {}).status(),
              StatusIs(Code::kInvalidArgument))
      << "a channel without events";
  args.events = 1;
  EXPECT_THAT(c.engine.CreateEventCq(c.client.id(), args, nullptr).status(),
              StatusIs(Code::kInvalidArgument));
  args.ignore_overrun = 1;
  EXPECT_THAT(c.engine.CreateEventCq(c.client.id(), args, [] {}).status(),
              StatusIs(Code::kInvalidArgument));
  args.ignore_overrun = 0;
  args.events = 2;
  EXPECT_THAT(c.engine.CreateEventCq(c.client.id(), args, [] {}).status(),
              StatusIs(Code::kInvalidArgument));
  Command command = c.client.Make(Op::kCreateCq);
  command.args.cq = args;
  command.args.cq.events = 1;
  Reply reply;
  EXPECT_THAT(c.client.Try(command, &reply), StatusIs(Code::kInvalidArgument));
}

}  // namespace
}  // namespace hyperloop::softrnic
