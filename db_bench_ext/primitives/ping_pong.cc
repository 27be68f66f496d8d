#include "primitives/ping_pong.h"

#include <array>
#include <chrono>

namespace hyperloop::bench {

Result<LatencyHistogram> PingPong(rnic::Device& device, uint64_t number,
                                  const std::atomic<bool>& interrupted) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kPatience = std::chrono::seconds(10);
  constexpr size_t kBytes = 4096;
  HL_ASSIGN_OR_RETURN(const auto buffer, device.AllocateBuffer(kBytes));
  HL_ASSIGN_OR_RETURN(const auto pd, device.AllocatePd());
  HL_ASSIGN_OR_RETURN(const auto region,
                      pd->Register(buffer->data(), kBytes, rnic::kLocalWrite | rnic::kRemoteWrite,
                                   rnic::ProtectionDomain::Backing{}));
  HL_ASSIGN_OR_RETURN(const auto cq, device.CreateCq({}));
  rnic::QpAttr attr;
  attr.send_cq = cq.get();
  attr.recv_cq = cq.get();
  attr.recv_wqes = 0;
  HL_ASSIGN_OR_RETURN(const auto qp, pd->CreateQueuePair(attr));
  HL_RETURN_IF_ERROR(qp->Connect(qp->address()));

  const std::array<rnic::Sge, 1> sges{rnic::Sge{region->addr(), sizeof(uint64_t), region->lkey()}};
  rnic::SendRequest request;
  request.opcode = rnic::Opcode::kWrite;
  request.signaled = true;
  request.sges = sges;
  request.remote_addr = region->addr() + 64;
  request.rkey = region->rkey();
  LatencyHistogram latency;
  std::array<rnic::Completion, 1> completion;
  for (uint64_t i = 0; i < number; ++i) {
    const Clock::time_point start = Clock::now();
    HL_RETURN_IF_ERROR(qp->Post({&request, 1}));
    for (uint64_t turn = 1;; ++turn) {
      HL_ASSIGN_OR_RETURN(const size_t polled, cq->Poll(completion));
      if (polled != 0) break;
      if (turn % 4096 != 0) continue;
      if (interrupted.load(std::memory_order_relaxed)) return Aborted("interrupted");
      if (Clock::now() - start > kPatience) return TimedOut("the RNIC did not answer for 10 s");
    }
    if (completion[0].status != rnic::WcStatus::kSuccess) {
      return Internal("ping-pong: " + std::string(rnic::WcStatusName(completion[0].status)));
    }
    latency.Record(static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count()));
  }
  return latency;
}

}  // namespace hyperloop::bench
