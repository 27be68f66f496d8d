// RnicEnd: a queue pair with all objects that it needs, not connected yet. It uses no gtest, so it
// may be made in a forked child.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "hyperloop/core/rnic.h"
#include "hyperloop/core/status.h"

namespace hyperloop {

struct RnicEnd {
  static constexpr size_t kBytes = 64 * 1024;
  static constexpr uint32_t kAllAccess =
      rnic::kLocalWrite | rnic::kRemoteWrite | rnic::kRemoteRead | rnic::kRemoteAtomic;

  std::unique_ptr<rnic::Device> device;
  std::unique_ptr<rnic::ProtectionDomain> pd;
  std::unique_ptr<rnic::CompletionQueue> cq;  // of both rings
  std::unique_ptr<rnic::Buffer> buffer;
  std::unique_ptr<rnic::MemoryRegion> mr;
  std::unique_ptr<rnic::QueuePair> qp;

  // `attr`'s completion queues are filled in.
  static Result<RnicEnd> Make(std::unique_ptr<rnic::Device> device, rnic::QpAttr attr = {},
                              size_t bytes = kBytes, uint32_t access = kAllAccess) {
    RnicEnd end;
    end.device = std::move(device);
    HL_ASSIGN_OR_RETURN(end.pd, end.device->AllocatePd());
    HL_ASSIGN_OR_RETURN(end.cq, end.device->CreateCq({}));
    HL_ASSIGN_OR_RETURN(end.buffer, end.device->AllocateBuffer(bytes));
    HL_ASSIGN_OR_RETURN(end.mr, end.pd->Register(end.buffer->data(), bytes, access, {}));
    attr.send_cq = attr.recv_cq = end.cq.get();
    HL_ASSIGN_OR_RETURN(end.qp, end.pd->CreateQueuePair(attr));
    return end;
  }
  rnic::Sge sge(size_t offset, uint32_t length) const {
    return {mr->addr() + offset, length, mr->lkey()};
  }
  uint64_t& word(size_t offset) { return *reinterpret_cast<uint64_t*>(buffer->data() + offset); }
};

}  // namespace hyperloop
