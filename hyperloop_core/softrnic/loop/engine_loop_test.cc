#include "softrnic/loop/engine_loop.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "softrnic/embedded/embedded.h"
#include "softrnic/links/link_port.h"
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
    for (int i = 0; i < 6'000; ++i) {
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

// Runs a sleeping engine again and again.
class Guest {
 public:
  explicit Guest(EmbeddedRnic& rnic)
      : thread_([this, &rnic] {
          while (!stop_) ran_ += rnic.RunWhileAsleep() ? 1 : 0;
        }) {}
  ~Guest() {
    stop_ = true;
    thread_.join();
  }
  size_t ran() const { return ran_; }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<size_t> ran_{0};
  std::thread thread_;
};

// What comes while a guest runs the engine wakes nobody: the guest's last look must find it.
TEST(EngineLoopTest, NothingIsLostBesideAGuest) {
  EmbeddedRnic rnic;
  EngineLoopOptions options = kSleepy;
  options.allow_guests = true;
  ASSERT_OK(rnic.StartThread(options));
  const Guest guest(rnic);
  const rnic::SendRequest nop{.opcode = rnic::Opcode::kNop, .signaled = true};
  for (int i = 0; i < 40; ++i) {
    Client client(rnic);  // makes its queue pair by tasks of the loop
    for (int k = 0; k < 100; ++k) {
      ASSERT_OK(client.qp->Post({&nop, 1}));
      ASSERT_TRUE(client.Await(1)) << "doorbell " << k << " of client " << i << " was lost";
    }
  }
  EXPECT_GT(guest.ran(), 0u);
}

// A link with events of which the engine makes nothing. It counts those that each thread took.
class BusyLink final : public LinkPort {
 public:
  void Start(size_t events) { left_ = events; }
  bool Ready(LinkId) override { return false; }
  void Send(LinkId, std::span<const std::byte>) override {}
  void Flush() override {}
  bool Receive(LinkEvent* event) override {
    if (left_ == 0) return false;
    *event = {.kind = LinkEvent::Kind::kRoom, .link = 1};
    ++(std::this_thread::get_id() == test_ ? taken_here_ : taken_elsewhere_);
    --left_;
    return true;
  }
  bool Pending() const override { return left_ != 0; }
  size_t left() const { return left_; }
  size_t taken_here() const { return taken_here_; }
  size_t taken_elsewhere() const { return taken_elsewhere_; }

 private:
  const std::thread::id test_ = std::this_thread::get_id();
  std::atomic<size_t> left_{0}, taken_here_{0}, taken_elsewhere_{0};
};

// A neighbour that sends without end must not keep the engine on the thread of its guest.
TEST(EngineLoopTest, AGuestStopsAndTheLoopGoesOn) {
  constexpr size_t kEvents = 100'000;
  BusyLink link;
  Engine engine{EngineOptions{}};
  engine.AttachPort(&link);
  EngineLoopOptions options = kSleepy;
  options.allow_guests = true;
  auto loop = EngineLoop::Create(&engine, options);
  ASSERT_OK(loop);
  std::thread runner([&] { (*loop)->Run(); });
  while ((*loop)->counters().sleeps.load() == 0) std::this_thread::yield();
  link.Start(kEvents);
  while (!(*loop)->RunWhileAsleep()) std::this_thread::yield();
  const size_t taken = link.taken_here();
  EXPECT_GT(taken, 0u);
  EXPECT_LE(taken, 1'000u);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (link.left() != 0 && std::chrono::steady_clock::now() < deadline) {
    (*loop)->RunWhileAsleep();
    std::this_thread::yield();
  }
  EXPECT_EQ(link.left(), 0u) << "the loop was not woken for the rest";
  EXPECT_EQ(link.taken_here(), taken) << "a guest took what was the loop's";
  EXPECT_EQ(link.taken_elsewhere(), kEvents - taken);
  (*loop)->Stop();
  runner.join();
}

TEST(EngineLoopTest, WithoutConsentThereAreNoGuests) {
  Engine engine{EngineOptions{}};
  auto loop = EngineLoop::Create(&engine, kSleepy);
  ASSERT_OK(loop);
  std::thread runner([&] { (*loop)->Run(); });
  while ((*loop)->counters().sleeps.load() == 0) std::this_thread::yield();
  EXPECT_FALSE((*loop)->RunWhileAsleep());
  (*loop)->Stop();
  runner.join();
  EXPECT_EQ((*loop)->counters().guests.load(), 0u);
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
