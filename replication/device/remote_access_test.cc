#include "device/remote_access.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "softrnic/embedded/embedded.h"
#include "support/eventually.h"
#include "support/hooked_device.h"
#include "support/must.h"
#include "support/rnic_end.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using softrnic::EmbeddedRnic;

// Access to 8 bytes of another host in one engine, which runs by hand.
struct FarWord {
  explicit FarWord(std::chrono::seconds timeout = std::chrono::seconds(60))
      : access(RemoteAccess::Create(*near, timeout).value()) {
    EXPECT_OK(access->qp().Connect(far.qp->address()));
    EXPECT_OK(far.qp->Connect(access->qp().address()));
  }
  Status Start(uint64_t value) {
    return access->StartWrite(memory, 0, std::as_bytes(std::span(&value, 1)));
  }
  void Run() {
    while (rnic.engine().Step()) {
    }
  }

  EmbeddedRnic rnic;
  std::unique_ptr<rnic::Device> near = rnic.OpenDevice("near").value();
  RnicEnd far = Must(RnicEnd::Make(rnic.OpenDevice("far").value()));
  uint64_t& word = far.word(0);
  RemoteMemory memory{far.mr->addr(), sizeof word, far.mr->rkey()};
  std::unique_ptr<RemoteAccess> access;
};

TEST(RemoteAccess, StartWriteDoesNotWait) {
  FarWord p;
  ASSERT_OK(p.Start(7));
  EXPECT_THAT(p.Start(8), StatusIs(Code::kBusy)) << "nothing ran yet";
  EXPECT_EQ(p.word, 0u);
  p.Run();
  EXPECT_EQ(p.word, 7u);
  ASSERT_OK(p.Start(9));
  p.Run();
  EXPECT_EQ(p.word, 9u);
}

TEST(RemoteAccess, StartWriteLearnsOfAFailureWithTheNextCall) {
  FarWord p;
  p.far.mr.reset();
  ASSERT_OK(p.Start(7));
  p.Run();
  EXPECT_THAT(p.Start(8), StatusIs(Code::kProtection));
  EXPECT_THAT(p.Start(9), StatusIs(Code::kProtection)) << "for good";
  std::byte out;
  EXPECT_THAT(p.access->Read(p.memory, 0, std::span(&out, 1)), StatusIs(Code::kProtection));
}

TEST(RemoteAccess, WhatWaitsComesBehindAStartedWrite) {
  FarWord p;
  ASSERT_OK(p.Start(7));
  ASSERT_OK(p.rnic.StartThread({.spin_us = 0}));
  const uint64_t value = 8;
  EXPECT_OK(p.access->Write(p.memory, 0, std::as_bytes(std::span(&value, 1))));
  p.rnic.StopThread();
  EXPECT_EQ(p.word, 8u);
}

// Each piece waits for the way to the node and back.
TEST(RemoteAccess, PiecesOfALongReadAreUnderWayTogether) {
  constexpr size_t kSize = (2u << 20) + 5;
  EmbeddedRnic rnic;
  RnicEnd far = Must(RnicEnd::Make(rnic.OpenDevice("far").value(), {}, kSize));
  for (size_t i = 0; i < kSize; i += 8) far.buffer->data()[i] = static_cast<std::byte>(i >> 12);
  std::atomic<int> posts{0};
  test::HookedDevice near(rnic.OpenDevice("near").value(), {.before_post = [&](rnic::SendRequest*) {
                            ++posts;
                            return Status();
                          }});
  const auto access = Must(RemoteAccess::Create(near, std::chrono::seconds(60)));
  ASSERT_OK(access->qp().Connect(far.qp->address()));
  ASSERT_OK(far.qp->Connect(access->qp().address()));
  std::vector<std::byte> out(kSize);
  auto read = std::async(std::launch::async, [&] {
    return access->Read({far.mr->addr(), kSize, far.mr->rkey()}, 0, out);
  });
  EXPECT_TRUE(test::Eventually([&] { return posts == 4; })) << posts;
  ASSERT_OK(rnic.StartThread({.spin_us = 0}));
  EXPECT_OK(read.get());
  rnic.StopThread();
  EXPECT_EQ(posts, 9);
  EXPECT_TRUE(std::ranges::equal(out, std::span(far.buffer->data(), kSize)));
}

TEST(RemoteAccess, RefusesWhatIsOutsideTheMemory) {
  FarWord p;
  const uint64_t two[2] = {};
  EXPECT_THAT(p.access->StartWrite(p.memory, 0, std::as_bytes(std::span(two))),
              StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(p.access->StartWrite(p.memory, 1, std::as_bytes(std::span(two, 1))),
              StatusIs(Code::kInvalidArgument));
  EXPECT_OK(p.Start(1)) << "the queue pair is as good as before";
}

}  // namespace
}  // namespace hyperloop
