// Tests how often a client wakes an engine that sleeps: each wake-up is a system call, and a thread
// that runs.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <memory>

#include "softrnic/driver/device_context.h"
#include "softrnic/engine/testing/engine_test_util.h"
#include "softrnic/loop/event_pipe.h"
#include "support/must.h"
#include "support/rnic_end.h"
#include "support/status_matchers.h"

namespace hyperloop::softrnic {
namespace {

// What the test and the port share. The port ends with its device.
struct Sleeper {
  Engine engine{EngineOptions{}};
  UarPage* page = nullptr;
  int wakes = 0;

  // As EngineLoop does before it waits.
  void Sleep() const { std::atomic_ref(page->header.engine_sleeping).store(1); }
};

// A port to an engine that is stepped by hand, whose sleep the test declares.
class WakePort final : public CommandPort {
 public:
  explicit WakePort(Sleeper* sleeper) : sleeper_(*sleeper) {
    uar_.header.engine_alive = 1;
    sleeper_.page = &uar_;
    context_ = Must(sleeper_.engine.OpenContext("host", &uar_, &attachment_));
  }
  ~WakePort() override { sleeper_.engine.CloseContext(context_); }

  Status Execute(const Command& command, Reply* reply, std::string* text) override {
    std::string ignored;
    return sleeper_.engine.Execute(context_, command, reply, text != nullptr ? text : &ignored);
  }
  Result<uint32_t> RegisterUmem(const RegisterUmemArgs& args, int) override {
    auto* const memory = reinterpret_cast<std::byte*>(args.client_addr);
    HL_ASSIGN_OR_RETURN(const IdReply reply, sleeper_.engine.RegisterUmem(
                                                 context_, args, {memory, args.length, nullptr}));
    return reply.id;
  }
  Result<UniqueFd> CreateEventCq(const Command& command, Reply* reply) override {
    HL_ASSIGN_OR_RETURN(const auto channel, EventPipe::Create());
    HL_ASSIGN_OR_RETURN(
        reply->result.cq,
        sleeper_.engine.CreateEventCq(context_, command.args.cq, [channel] { channel->Signal(); }));
    return UniqueFd(fcntl(channel->reader(), F_DUPFD_CLOEXEC, 0));
  }
  bool needs_fd() const override { return false; }
  const OpenReply& attachment() const override { return attachment_; }
  UarPage* uar() const override { return &uar_; }
  void WakeEngine() override { ++sleeper_.wakes; }
  bool EngineGone() override { return false; }

 private:
  Sleeper& sleeper_;
  alignas(4096) mutable UarPage uar_{};
  ContextId context_ = kNoContext;
  OpenReply attachment_{};
};

class WakeTest : public testing::Test {
 protected:
  WakeTest() { EXPECT_OK(end_.qp->Connect(end_.qp->address())); }
  void PostNop() {
    const rnic::SendRequest nop{.opcode = rnic::Opcode::kNop, .signaled = true};
    EXPECT_OK(end_.qp->Post({&nop, 1}));
  }

  Sleeper sleeper_;
  RnicEnd end_ =
      Must(RnicEnd::Make(Must(MakeDevice(std::make_unique<WakePort>(&sleeper_))), {}, 4096));
};

TEST_F(WakeTest, AnEngineThatIsAwakeIsNotWoken) {
  PostNop();
  EXPECT_EQ(sleeper_.wakes, 0);
}

TEST_F(WakeTest, OneSleepIsEndedOnce) {
  for (int sleep = 1; sleep <= 2; ++sleep) {
    sleeper_.Sleep();
    for (int i = 0; i < 3; ++i) PostNop();
    EXPECT_EQ(sleeper_.wakes, sleep);
  }
}

// It finds the request before it completes anything.
TEST_F(WakeTest, ARequestForAnEventWakesNobodyAndIsKept) {
  const auto cq = Must(end_.device->CreateCq({.depth = 16, .events = true}));
  rnic::QpAttr attr;
  attr.send_cq = attr.recv_cq = cq.get();
  const auto qp = Must(end_.pd->CreateQueuePair(attr));
  ASSERT_OK(qp->Connect(qp->address()));
  sleeper_.Sleep();
  ASSERT_OK(cq->RequestNotify(/*solicited_only=*/false));
  EXPECT_EQ(sleeper_.wakes, 0);
  const rnic::SendRequest nop{.opcode = rnic::Opcode::kNop, .signaled = true};
  ASSERT_OK(qp->Post({&nop, 1}));
  EXPECT_EQ(sleeper_.wakes, 1);
  RunAll(sleeper_.engine);
  EXPECT_EQ(Must(cq->TakeEvents()), 1u);
}

}  // namespace
}  // namespace hyperloop::softrnic
