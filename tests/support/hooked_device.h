// HookedDevice: a device of an RNIC with moments at which a test does something: before a service
// of another host is connected, before a queue pair is made, and before the device ends.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "hyperloop/core/rnic.h"

namespace hyperloop::test {

class HookedDevice final : public rnic::Device {
 public:
  using BeforeQueuePair = std::function<void(const rnic::QpAttr&)>;
  HookedDevice(
      std::unique_ptr<rnic::Device> device, std::function<void()> before_connect,
      BeforeQueuePair before_queue_pair = [](const rnic::QpAttr&) {},
      std::function<void()> before_end = [] {})
      : device_(std::move(device)),
        before_connect_(std::move(before_connect)),
        before_queue_pair_(std::move(before_queue_pair)),
        before_end_(std::move(before_end)) {}
  ~HookedDevice() override { before_end_(); }

  const rnic::Caps& caps() const override { return device_->caps(); }
  rnic::Gid gid() const override { return device_->gid(); }
  uint64_t rnic() const override { return device_->rnic(); }
  Result<std::unique_ptr<rnic::ProtectionDomain>> AllocatePd() override {
    HL_ASSIGN_OR_RETURN(std::unique_ptr<rnic::ProtectionDomain> pd, device_->AllocatePd());
    return std::unique_ptr<rnic::ProtectionDomain>(
        std::make_unique<Pd>(std::move(pd), before_queue_pair_));
  }
  Result<std::unique_ptr<rnic::CompletionQueue>> CreateCq(const rnic::CqAttr& attr) override {
    return device_->CreateCq(attr);
  }
  Result<std::unique_ptr<rnic::Buffer>> AllocateBuffer(size_t size) override {
    return device_->AllocateBuffer(size);
  }
  bool alive() const override { return device_->alive(); }
  Result<rnic::Counters> QueryCounters() override { return device_->QueryCounters(); }
  Status Publish(std::string_view service, rnic::ProtectionDomain& pd,
                 std::span<const std::byte> private_data) override {
    return device_->Publish(service, *static_cast<Pd&>(pd).pd, private_data);
  }
  Result<std::vector<std::byte>> ConnectService(std::string_view host, std::string_view service,
                                                rnic::QueuePair& qp) override {
    before_connect_();
    return device_->ConnectService(host, service, qp);
  }

 private:
  class Pd final : public rnic::ProtectionDomain {
   public:
    Pd(std::unique_ptr<rnic::ProtectionDomain> own, BeforeQueuePair before_queue_pair)
        : pd(std::move(own)), before_queue_pair_(std::move(before_queue_pair)) {}
    Result<std::unique_ptr<rnic::MemoryRegion>> Register(void* addr, size_t length, uint32_t access,
                                                         const Backing& backing) override {
      return pd->Register(addr, length, access, backing);
    }
    Result<std::unique_ptr<rnic::QueuePair>> CreateQueuePair(const rnic::QpAttr& attr) override {
      before_queue_pair_(attr);
      return pd->CreateQueuePair(attr);
    }

    const std::unique_ptr<rnic::ProtectionDomain> pd;

   private:
    const BeforeQueuePair before_queue_pair_;
  };

  const std::unique_ptr<rnic::Device> device_;
  const std::function<void()> before_connect_;
  const BeforeQueuePair before_queue_pair_;
  const std::function<void()> before_end_;
};

}  // namespace hyperloop::test
