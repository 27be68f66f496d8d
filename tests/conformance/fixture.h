// The fixture of every conformance test: a provider, endpoints, and waiting without sleeping.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "conformance/provider.h"
#include "hyperloop/core/rnic.h"
#include "support/status_matchers.h"

namespace hyperloop::test {

// One side of a connection: a queue pair with its completion queues and 64 KiB of registered
// memory.
struct Endpoint {
  static constexpr size_t kBytes = 64 * 1024;
  static constexpr uint32_t kAllAccess =
      rnic::kLocalWrite | rnic::kRemoteWrite | rnic::kRemoteRead | rnic::kRemoteAtomic;

  std::unique_ptr<rnic::Device> device;
  std::unique_ptr<rnic::ProtectionDomain> pd;
  std::unique_ptr<rnic::CompletionQueue> send_cq;
  std::unique_ptr<rnic::CompletionQueue> recv_cq;
  std::unique_ptr<rnic::Buffer> buffer;
  std::unique_ptr<rnic::MemoryRegion> mr;
  std::unique_ptr<rnic::QueuePair> qp;

  std::byte* at(size_t offset) { return buffer->data() + offset; }
  uint64_t addr(size_t offset) { return mr->addr() + offset; }
  rnic::Sge sge(size_t offset, uint32_t length) { return {addr(offset), length, mr->lkey()}; }
  uint64_t& word(size_t offset) { return *reinterpret_cast<uint64_t*>(at(offset)); }
  void Fill(size_t offset, size_t length, uint8_t seed) {
    for (size_t i = 0; i < length; ++i) at(offset)[i] = static_cast<std::byte>(seed + i * 7);
  }
};

class ConformanceTest : public testing::TestWithParam<ProviderKind> {
 protected:
  void SetUp() override {
    provider_ = GetParam().make();
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    const std::string full = std::string(test->test_suite_name()) + "." + test->name();
    // "Providers/QueueTest.Name/provider" → "QueueTest.Name"
    const size_t start = full.find('/') + 1;
    const std::string reason =
        AllowedSkip(GetParam().name, full.substr(start, full.rfind('/') - start));
    if (!reason.empty()) GTEST_SKIP() << reason;
  }

  // `attr`'s completion queues are filled in.
  void Open(const std::string& host, Endpoint* e, rnic::QpAttr attr = {}, uint32_t cq_depth = 256) {
    auto device = provider_->Open(host);
    ASSERT_OK(device);
    e->device = std::move(*device);
    auto pd = e->device->AllocatePd();
    ASSERT_OK(pd);
    e->pd = std::move(*pd);
    auto send_cq = e->device->CreateCq({.depth = cq_depth, .ignore_overrun = false});
    ASSERT_OK(send_cq);
    e->send_cq = std::move(*send_cq);
    auto recv_cq = e->device->CreateCq({.depth = cq_depth, .ignore_overrun = false});
    ASSERT_OK(recv_cq);
    e->recv_cq = std::move(*recv_cq);
    auto buffer = e->device->AllocateBuffer(Endpoint::kBytes);
    ASSERT_OK(buffer);
    e->buffer = std::move(*buffer);
    auto mr = e->pd->Register(e->buffer->data(), Endpoint::kBytes, Endpoint::kAllAccess, {});
    ASSERT_OK(mr);
    e->mr = std::move(*mr);
    AddQp(e, attr);
  }
  void AddQp(Endpoint* e, rnic::QpAttr attr) {
    attr.send_cq = e->send_cq.get();
    attr.recv_cq = e->recv_cq.get();
    auto qp = e->pd->CreateQueuePair(attr);
    ASSERT_OK(qp);
    e->qp = std::move(*qp);
  }
  // Endpoints a_ and b_ on two hosts, connected.
  void OpenPair(rnic::QpAttr attr = {}) {
    ASSERT_NO_FATAL_FAILURE(Open("a", &a_, attr));
    ASSERT_NO_FATAL_FAILURE(Open("b", &b_, attr));
    ASSERT_OK(a_.qp->Connect(b_.qp->address()));
    ASSERT_OK(b_.qp->Connect(a_.qp->address()));
  }
  // Takes an endpoint's objects apart, the last one first.
  static void Close(Endpoint* e) { const Endpoint gone = std::move(*e); }
  bool SkipWithoutCrossChannel() {
    auto device = provider_->Open("caps");
    if (device.ok() && (*device)->caps().cross_channel) return false;
    return true;
  }

  // Waits until `cq` has `n` completions, and returns them.
  std::vector<rnic::Completion> Await(rnic::CompletionQueue& cq, size_t n) {
    std::vector<rnic::Completion> got;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(300);
    while (got.size() < n) {
      rnic::Completion one[16];
      auto polled = cq.Poll(std::span(one, std::min<size_t>(16, n - got.size())));
      if (!polled.ok()) {
        ADD_FAILURE() << polled.status().ToString();
        return got;
      }
      got.insert(got.end(), one, one + *polled);
      if (*polled == 0) provider_->Drive();
      if (*polled == 0 && std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << got.size() << " of " << n << " completions came";
        return got;
      }
    }
    return got;
  }
  rnic::Completion AwaitOne(rnic::CompletionQueue& cq) {
    auto got = Await(cq, 1);
    return got.empty() ? rnic::Completion{.status = rnic::WcStatus::kOther} : got[0];
  }
  // The number of completions by the time that all earlier requests of `witness` have completed; it
  // shows that nothing came, without waiting.
  size_t CountNow(rnic::CompletionQueue& cq) {
    provider_->Drive();
    rnic::Completion some[64];
    auto polled = cq.Poll(some);
    return polled.ok() ? *polled : 999;
  }
  // Posts one request, signaled, and returns how it ended.
  rnic::Completion Run(Endpoint& e, rnic::SendRequest request) {
    request.signaled = true;
    const Status posted = e.qp->Post({&request, 1});
    EXPECT_OK(posted);
    if (!posted.ok()) return {.status = rnic::WcStatus::kOther};
    return AwaitOne(*e.send_cq);
  }
  void PostReceive(Endpoint& e, uint64_t id, const std::vector<rnic::Sge>& sges) {
    rnic::ReceiveRequest request{.id = id, .sges = sges};
    ASSERT_OK(e.qp->PostReceive({&request, 1}));
  }

  std::unique_ptr<Provider> provider_;
  Endpoint a_;
  Endpoint b_;
};

#define HL_SKIP_WITHOUT_CROSS_CHANNEL() \
  if (SkipWithoutCrossChannel()) GTEST_SKIP() << "the device has no cross-channel capability"

}  // namespace hyperloop::test
