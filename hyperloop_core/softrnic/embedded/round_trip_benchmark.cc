// Measures round trips between a process and its RNIC, through a running hyperloop-rnicd:
//   round_trip_benchmark SOCKET [NUMBER]
// nop: one WQE and its completion. write: 8 B loopback WRITE. send: 8 B SEND to a second queue pair
// of this process, until its receive completes. Prints percentiles in nanoseconds.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "hyperloop/core/softrnic.h"

namespace hyperloop::softrnic {
namespace {

struct Side {
  std::unique_ptr<rnic::CompletionQueue> send_cq, recv_cq;
  std::unique_ptr<rnic::QueuePair> qp;
};

Result<Side> MakeSide(rnic::Device& device, rnic::ProtectionDomain& pd) {
  Side side;
  HL_ASSIGN_OR_RETURN(side.send_cq, device.CreateCq({}));
  HL_ASSIGN_OR_RETURN(side.recv_cq, device.CreateCq({}));
  HL_ASSIGN_OR_RETURN(
      side.qp, pd.CreateQueuePair({.send_cq = side.send_cq.get(), .recv_cq = side.recv_cq.get()}));
  return side;
}

Status AwaitOne(rnic::CompletionQueue& cq) {
  rnic::Completion completion;
  for (;;) {
    HL_ASSIGN_OR_RETURN(size_t n, cq.Poll({&completion, 1}));
    if (n == 0) continue;
    if (completion.status == rnic::WcStatus::kSuccess) return {};
    return Aborted(std::string(rnic::WcStatusName(completion.status)));
  }
}

template <class F>
Status Measure(const char* name, size_t number, F round) {
  std::vector<uint64_t> times(number);
  for (uint64_t& time : times) {
    const auto begin = std::chrono::steady_clock::now();
    HL_RETURN_IF_ERROR(round());
    time = static_cast<uint64_t>((std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(times.begin(), times.end());
  std::printf("%-6s p50 %lu  p90 %lu  p99 %lu  p99.9 %lu  max %lu ns\n", name, times[number / 2],
              times[number * 9 / 10], times[number * 99 / 100], times[number * 999 / 1000],
              times.back());
  return {};
}

Status Run(const std::string& socket, size_t number) {
  HL_ASSIGN_OR_RETURN(auto device, OpenDaemonDevice({socket, "benchmark"}));
  HL_ASSIGN_OR_RETURN(auto pd, device->AllocatePd());
  HL_ASSIGN_OR_RETURN(auto buffer, device->AllocateBuffer(4096));
  HL_ASSIGN_OR_RETURN(
      auto mr, pd->Register(buffer->data(), 4096, rnic::kLocalWrite | rnic::kRemoteWrite, {}));
  HL_ASSIGN_OR_RETURN(Side a, MakeSide(*device, *pd));
  HL_ASSIGN_OR_RETURN(Side b, MakeSide(*device, *pd));
  HL_ASSIGN_OR_RETURN(Side loop, MakeSide(*device, *pd));
  HL_RETURN_IF_ERROR(a.qp->Connect(b.qp->address()));
  HL_RETURN_IF_ERROR(b.qp->Connect(a.qp->address()));
  HL_RETURN_IF_ERROR(loop.qp->Connect(loop.qp->address()));

  const rnic::Sge from{mr->addr(), 8, mr->lkey()};
  const rnic::Sge to{mr->addr() + 2048, 8, mr->lkey()};
  const rnic::SendRequest nop{.opcode = rnic::Opcode::kNop, .signaled = true};
  const rnic::SendRequest write{.opcode = rnic::Opcode::kWrite,
                                .signaled = true,
                                .sges = {&from, 1},
                                .remote_addr = to.addr,
                                .rkey = mr->rkey()};
  const rnic::SendRequest send{.opcode = rnic::Opcode::kSend, .sges = {&from, 1}};
  const rnic::ReceiveRequest receive{.id = 0, .sges = {&to, 1}};
  const auto post_and_wait = [&loop](const rnic::SendRequest& request) -> Status {
    HL_RETURN_IF_ERROR(loop.qp->Post({&request, 1}));
    return AwaitOne(*loop.send_cq);
  };
  uint16_t sent = 0;
  HL_RETURN_IF_ERROR(Measure("nop", number, [&] { return post_and_wait(nop); }));
  HL_RETURN_IF_ERROR(Measure("write", number, [&] { return post_and_wait(write); }));
  return Measure("send", number, [&]() -> Status {
    HL_RETURN_IF_ERROR(b.qp->PostReceive({&receive, 1}));
    HL_RETURN_IF_ERROR(a.qp->Post({&send, 1}));
    HL_RETURN_IF_ERROR(AwaitOne(*b.recv_cq));
    a.qp->Retire(sent++);
    return {};
  });
}

}  // namespace
}  // namespace hyperloop::softrnic

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: round_trip_benchmark SOCKET [NUMBER]\n");
    return 2;
  }
  const size_t number = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 200'000;
  if (number < 1000) {
    std::fprintf(stderr, "NUMBER: at least 1000\n");
    return 2;
  }
  const hyperloop::Status status = hyperloop::softrnic::Run(argv[1], number);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
