// HookedDevice: a device of an RNIC with moments at which a test does something: before a service
// of another host is connected, before a queue pair is made, before a request is posted, and before
// the device ends.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "hyperloop/core/rnic.h"

namespace hyperloop::test {

class HookedDevice final : public rnic::Device {
 public:
  using BeforePost = std::function<Status(rnic::SendRequest*)>;
  struct Hooks {
    std::function<void()> before_connect = [] {};
    // Whether a service of the host can be connected; null: of each.
    std::function<Status(std::string_view host)> may_connect = nullptr;
    std::function<void(const rnic::QpAttr&)> before_queue_pair = [](const rnic::QpAttr&) {};
    BeforePost before_post = nullptr;  // may change or refuse the request; null: none is looked at
    std::function<void()> before_end = [] {};
  };
  HookedDevice(std::unique_ptr<rnic::Device> device, Hooks hooks)
      : device_(std::move(device)), hooks_(std::move(hooks)) {}
  ~HookedDevice() override { hooks_.before_end(); }

  const rnic::Caps& caps() const override { return device_->caps(); }
  rnic::Gid gid() const override { return device_->gid(); }
  uint64_t rnic() const override { return device_->rnic(); }
  Result<std::unique_ptr<rnic::ProtectionDomain>> AllocatePd() override {
    HL_ASSIGN_OR_RETURN(std::unique_ptr<rnic::ProtectionDomain> pd, device_->AllocatePd());
    return std::unique_ptr<rnic::ProtectionDomain>(std::make_unique<Pd>(std::move(pd), hooks_));
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
    hooks_.before_connect();
    if (hooks_.may_connect) HL_RETURN_IF_ERROR(hooks_.may_connect(host));
    return device_->ConnectService(host, service,
                                   hooks_.before_post ? *static_cast<Queue&>(qp).queue : qp);
  }

 private:
  class Queue final : public rnic::QueuePair {
   public:
    Queue(std::unique_ptr<rnic::QueuePair> own, BeforePost before_post)
        : queue(std::move(own)), before_post_(std::move(before_post)) {}
    uint32_t qpn() const override { return queue->qpn(); }
    rnic::QpAddress address() const override { return queue->address(); }
    rnic::QpState state() const override { return queue->state(); }
    Status Connect(const rnic::QpAddress& peer) override { return queue->Connect(peer); }
    Status Reset() override { return queue->Reset(); }
    Status Post(std::span<const rnic::SendRequest> requests) override {
      std::vector<rnic::SendRequest> hooked(requests.begin(), requests.end());
      for (rnic::SendRequest& each : hooked) HL_RETURN_IF_ERROR(before_post_(&each));
      return queue->Post(hooked);
    }
    Status PostReceive(std::span<const rnic::ReceiveRequest> requests) override {
      return queue->PostReceive(requests);
    }
    void Retire(uint16_t wqe_counter) override { queue->Retire(wqe_counter); }
    Result<rnic::RawQueues> raw_queues() override { return queue->raw_queues(); }
    Status RingDoorbell(uint16_t producer_index) override {
      return queue->RingDoorbell(producer_index);
    }

    const std::unique_ptr<rnic::QueuePair> queue;

   private:
    const BeforePost before_post_;
  };

  class Pd final : public rnic::ProtectionDomain {
   public:
    Pd(std::unique_ptr<rnic::ProtectionDomain> own, const Hooks& hooks)
        : pd(std::move(own)), hooks_(hooks) {}
    Result<std::unique_ptr<rnic::MemoryRegion>> Register(void* addr, size_t length, uint32_t access,
                                                         const Backing& backing) override {
      return pd->Register(addr, length, access, backing);
    }
    Result<std::unique_ptr<rnic::QueuePair>> CreateQueuePair(const rnic::QpAttr& attr) override {
      hooks_.before_queue_pair(attr);
      HL_ASSIGN_OR_RETURN(std::unique_ptr<rnic::QueuePair> queue, pd->CreateQueuePair(attr));
      if (!hooks_.before_post) return queue;
      return std::unique_ptr<rnic::QueuePair>(
          std::make_unique<Queue>(std::move(queue), hooks_.before_post));
    }

    const std::unique_ptr<rnic::ProtectionDomain> pd;

   private:
    const Hooks hooks_;
  };

  const std::unique_ptr<rnic::Device> device_;
  const Hooks hooks_;
};

}  // namespace hyperloop::test
