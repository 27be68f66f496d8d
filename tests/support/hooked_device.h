// HookedDevice: a device of an RNIC with a moment at which a test does something: before a service
// of another host is connected.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "hyperloop/core/rnic.h"

namespace hyperloop::test {

class HookedDevice final : public rnic::Device {
 public:
  HookedDevice(std::unique_ptr<rnic::Device> device, std::function<void()> before_connect)
      : device_(std::move(device)), before_connect_(std::move(before_connect)) {}

  const rnic::Caps& caps() const override { return device_->caps(); }
  rnic::Gid gid() const override { return device_->gid(); }
  uint64_t rnic() const override { return device_->rnic(); }
  Result<std::unique_ptr<rnic::ProtectionDomain>> AllocatePd() override {
    return device_->AllocatePd();
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
    return device_->Publish(service, pd, private_data);
  }
  Result<std::vector<std::byte>> ConnectService(std::string_view host, std::string_view service,
                                                rnic::QueuePair& qp) override {
    before_connect_();
    return device_->ConnectService(host, service, qp);
  }

 private:
  const std::unique_ptr<rnic::Device> device_;
  const std::function<void()> before_connect_;
};

}  // namespace hyperloop::test
