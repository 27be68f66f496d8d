#include "softrnic/engine_loop.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "softrnic/embedded.h"
#include "support/must.h"
#include "support/rnic_end.h"
#include "support/status_matchers.h"

namespace hyperloop::softrnic {
namespace {

constexpr auto kPatience = std::chrono::seconds(20);

// A loop that sleeps at once and, having missed a wake-up, for ever.
const EngineLoopOptions kSleepy = {.spin_us = 0, .sleep_ms = -1, .about_to_sleep = nullptr};

// A client with one loopback queue pair.
struct Client : RnicEnd {
  explicit Client(EmbeddedRnic& rnic)
      : RnicEnd(Must(Make(Must(rnic.OpenDevice("host")), {}, 4096, rnic::kLocalWrite))) {
    EXPECT_OK(qp->Connect(qp->address()));
  }
  // Polls until `n` completions came. False: they did not come.
  bool Await(size_t n) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    std::array<rnic::Completion, 4> some;
    while (n > 0) {
      auto polled = cq->Poll(std::span(some).first(std::min(n, some.size())));
      if (!polled.ok()) return false;
      for (size_t i = 0; i < *polled; ++i) {
        if (some[i].status != rnic::WcStatus::kSuccess) return false;
      }
      n -= *polled;
      if (*polled != 0) continue;
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }
};

// The narrow place: rung after the loop's last look, before it says that it sleeps.
TEST(EngineLoopTest, DoorbellJustBeforeTheSleepIsSeen) {
  EmbeddedRnic rnic;
  Client client(rnic);
  const rnic::SendRequest nop{.opcode = rnic::Opcode::kNop, .signaled = true};
  int left = 20;
  EngineLoopOptions options = kSleepy;
  options.about_to_sleep = [&] {
    if (left-- > 0) {
      EXPECT_OK(client.qp->Post({&nop, 1}));
    }
  };
  ASSERT_OK(rnic.StartThread(options));
  EXPECT_TRUE(client.Await(20)) << "the loop sleeps on a doorbell";
}

// The wide place: either side may be anywhere. Fails (20 s) if the client looks before it stores.
TEST(EngineLoopTest, NoDoorbellIsLostToASleepingEngine) {
  EmbeddedRnic rnic;
  ASSERT_OK(rnic.StartThread(kSleepy));
  // Two clients, so that one rings while the other's doorbell puts the loop to sleep and wakes it.
  const auto run = [&rnic](uint32_t seed) {
    Client client(rnic);
    std::minstd_rand random(seed);
    volatile uint32_t delay = 0;
    const rnic::SendRequest nop{.opcode = rnic::Opcode::kNop, .signaled = true};
    for (int i = 0; i < 20'000; ++i) {
      // The loop needs a few hundred nanoseconds from its last look to its sleep: ring anywhere in
      // that time.
      for (delay = random() % 512; delay > 0;) delay = delay - 1;
      ASSERT_OK(client.qp->Post({&nop, 1}));
      ASSERT_TRUE(client.Await(1)) << "doorbell " << i << " was lost";
    }
  };
  run(3);  // alone: nobody else's doorbell makes up for a lost one
  std::thread other(run, 1);
  run(2);
  other.join();
}

// Receives ring no doorbell: the loop must come back to a sender that waits for one.
TEST(EngineLoopTest, SenderFindsAReceivePostedWhileTheEngineSleeps) {
  EmbeddedRnic rnic;
  ASSERT_OK(rnic.StartThread(kSleepy));
  Client client(rnic);
  const rnic::Sge sge{client.mr->addr(), 8, client.mr->lkey()};
  const rnic::SendRequest send{.opcode = rnic::Opcode::kSend, .signaled = true, .sges = {&sge, 1}};
  const rnic::ReceiveRequest receive{.id = 1, .sges = {&sge, 1}};
  for (int i = 0; i < 3'000; ++i) {
    ASSERT_OK(client.qp->Post({&send, 1}));
    ASSERT_OK(client.qp->PostReceive({&receive, 1}));
    ASSERT_TRUE(client.Await(2)) << "receive " << i << " was not found";
  }
}

TEST(EngineLoopTest, NoTaskIsLostToASleepingEngine) {
  Engine engine{EngineOptions{}};
  auto loop = EngineLoop::Create(&engine, kSleepy);
  ASSERT_OK(loop);
  std::thread runner([&] { (*loop)->Run(); });
  int ran = 0;  // only ever touched by the loop's thread
  const std::thread::id loop_thread = runner.get_id();
  for (int i = 0; i < 5'000; ++i) {
    (*loop)->Submit([&] {
      ++ran;
      EXPECT_EQ(std::this_thread::get_id(), loop_thread);
    });
  }
  EXPECT_EQ(ran, 5'000);
  (*loop)->Stop();
  runner.join();
  EXPECT_GT((*loop)->counters().sleeps.load(), 0u);
}

TEST(EngineLoopTest, StopEndsASleep) {
  for (int i = 0; i < 500; ++i) {
    Engine engine{EngineOptions{}};
    auto loop = EngineLoop::Create(&engine, kSleepy);
    ASSERT_OK(loop);
    std::thread runner([&] { (*loop)->Run(); });
    (*loop)->Stop();
    runner.join();
  }
}

TEST(EngineLoopTest, DeadPagesAreSeenByClients) {
  Engine engine{EngineOptions{}};
  auto loop = EngineLoop::Create(&engine, kSleepy);
  ASSERT_OK(loop);
  auto page = std::make_unique<UarPage>();
  (*loop)->AddPage(page.get());
  EXPECT_EQ(page->header.engine_alive, 1u);
  (*loop)->MarkPagesDead();
  EXPECT_EQ(page->header.engine_alive, 0u);
}

TEST(EngineLoopTest, EngineRunsByHandBeforeAndAfterAThread) {
  EmbeddedRnic rnic;
  Client client(rnic);
  const rnic::SendRequest nop{.opcode = rnic::Opcode::kNop, .signaled = true};
  ASSERT_OK(client.qp->Post({&nop, 1}));
  EXPECT_TRUE(rnic.engine().Step());
  EXPECT_TRUE(client.Await(1));
  ASSERT_OK(rnic.StartThread(kSleepy));
  EXPECT_THAT(rnic.StartThread(kSleepy), StatusIs(Code::kAlreadyExists));
  ASSERT_OK(client.qp->Post({&nop, 1}));
  EXPECT_TRUE(client.Await(1));
  rnic.StopThread();
  ASSERT_OK(client.qp->Post({&nop, 1}));
  EXPECT_TRUE(rnic.engine().Step());
  EXPECT_TRUE(client.Await(1));
}

}  // namespace
}  // namespace hyperloop::softrnic
