#include "link/rdma_link.h"

#include <gtest/gtest.h>

#include "softrnic/embedded.h"

namespace hyperloop {
namespace {

using softrnic::EmbeddedRnic;

// A link to 8 bytes of another host in one engine, which runs by hand.
struct Linked {
  explicit Linked(std::chrono::seconds timeout = std::chrono::seconds(60))
      : link(RdmaLink::Create(*near, timeout).value()) {
    rnic::QpAttr attr;
    attr.send_cq = attr.recv_cq = cq.get();
    far_qp = pd->CreateQueuePair(attr).value();
    EXPECT_TRUE(link->qp().Connect(far_qp->address()).ok());
    EXPECT_TRUE(far_qp->Connect(link->qp().address()).ok());
  }
  Status Start(uint64_t value) {
    return link->StartWrite(memory, 0, std::as_bytes(std::span(&value, 1)));
  }
  void Run() {
    while (rnic.engine().Step()) {
    }
  }

  EmbeddedRnic rnic;
  std::unique_ptr<rnic::Device> near = rnic.OpenDevice("near").value();
  std::unique_ptr<rnic::Device> far = rnic.OpenDevice("far").value();
  std::unique_ptr<rnic::ProtectionDomain> pd = far->AllocatePd().value();
  std::unique_ptr<rnic::CompletionQueue> cq = far->CreateCq({.depth = 16}).value();
  uint64_t word = 0;
  std::unique_ptr<rnic::MemoryRegion> mr =
      pd->Register(&word, sizeof word, rnic::kLocalWrite | rnic::kRemoteWrite, {}).value();
  RemoteMemory memory{mr->addr(), sizeof word, mr->rkey()};
  std::unique_ptr<rnic::QueuePair> far_qp;
  std::unique_ptr<RdmaLink> link;
};

TEST(RdmaLink, StartWriteDoesNotWait) {
  Linked p;
  ASSERT_TRUE(p.Start(7).ok());
  EXPECT_EQ(p.Start(8).code(), Code::kBusy) << "nothing ran yet";
  EXPECT_EQ(p.word, 0u);
  p.Run();
  EXPECT_EQ(p.word, 7u);
  ASSERT_TRUE(p.Start(9).ok());
  p.Run();
  EXPECT_EQ(p.word, 9u);
}

TEST(RdmaLink, StartWriteLearnsOfAFailureWithTheNextCall) {
  Linked p;
  p.mr.reset();
  ASSERT_TRUE(p.Start(7).ok());
  p.Run();
  EXPECT_EQ(p.Start(8).code(), Code::kProtection);
  EXPECT_EQ(p.Start(9).code(), Code::kProtection) << "for good";
  std::byte out;
  EXPECT_EQ(p.link->Read(p.memory, 0, std::span(&out, 1)).code(), Code::kProtection);
}

TEST(RdmaLink, WhatWaitsComesBehindAStartedWrite) {
  Linked p;
  ASSERT_TRUE(p.Start(7).ok());
  ASSERT_TRUE(p.rnic.StartThread({.spin_us = 0}).ok());
  const uint64_t value = 8;
  const Status written = p.link->Write(p.memory, 0, std::as_bytes(std::span(&value, 1)));
  EXPECT_TRUE(written.ok()) << written.ToString();
  p.rnic.StopThread();
  EXPECT_EQ(p.word, 8u);
}

TEST(RdmaLink, RefusesWhatIsOutsideTheMemory) {
  Linked p;
  const uint64_t two[2] = {};
  EXPECT_EQ(p.link->StartWrite(p.memory, 0, std::as_bytes(std::span(two))).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(p.link->StartWrite(p.memory, 1, std::as_bytes(std::span(two, 1))).code(),
            Code::kInvalidArgument);
  EXPECT_TRUE(p.Start(1).ok()) << "the link is as good as before";
}

}  // namespace
}  // namespace hyperloop
