#include "model/costs.h"

#include <cmath>
#include <cstdlib>

namespace hyperloop::model {
namespace {

constexpr char kRedn[] = "RedN (NSDI'22) table 1: ConnectX-3, 2 units, 15 M verbs/s";
constexpr char kPcie[] = "Neugebauer et al. (SIGCOMM'18): median DMA read of 64 B, Xeon E5";
constexpr char kFair[] = "Linux kernel/sched/fair.c, defaults for 8 or more processors";

// clang-format off
constexpr CostInfo kTable[] = {
    {"units", &Costs::units, "processing units of an RNIC", kRedn},
    {"wqe_ns", &Costs::wqe_ns, "a unit's time for a WQE of any kind", kRedn},
    {"request_ns", &Costs::request_ns, "a unit's time for a request from the wire",
     "HERD (SIGCOMM'14) figure 3: ConnectX-3 takes 35 M WRITEs/s"},
    {"pcie_read_ns", &Costs::pcie_read_ns,
     "a read of host memory: WQEs after a doorbell or enable, payload, READ, atomic", kPcie},
    {"pcie_write_ns", &Costs::pcie_write_ns, "a posted write, one way: doorbell, CQE, payload",
     "half of pcie_read_ns; Kalia et al. (ATC'16) section 2: a write waits for no answer"},
    {"pcie_gbps", &Costs::pcie_gbps, "payload rate of PCI Express 3.0 x8, in Gb/s",
     "Neugebauer et al. (SIGCOMM'18): 32 to 50 Gb/s"},
    {"hop_ns", &Costs::hop_ns, "wire and switch, one way",
     "Mellanox SX6036 product brief: 170 ns; 6 m of cable: 30 ns"},
    {"link_gbps", &Costs::link_gbps, "data rate of the link, in Gb/s",
     "FDR 4x: 4 lanes of 14.0625 Gb/s, 64b/66b code; HyperLoop section 6: 56 Gb/s"},
    {"mtu_bytes", &Costs::mtu_bytes, "payload of a packet on the wire", "OpenSM's default"},
    {"header_bytes", &Costs::header_bytes, "headers of a packet on the wire",
     "InfiniBand specification: LRH 8, BTH 12, RETH 16, ICRC 4, VCRC 2"},
    {"message_ns", &Costs::message_ns, "a processor's time to take or make a message",
     "Fent (TU Munich, 2018) section 4.2.4: 4 M messages/s a thread, ConnectX-3"},
    {"copy_gbps", &Costs::copy_gbps, "memcpy of one processor, in Gb/s",
     "assumed: 10 GB/s, one core of a Xeon E5-2650v2"},
    {"wakeup_ns", &Costs::wakeup_ns, "cpu-event: from the event to the running thread",
     "Li et al. (ExpCS'07): 3.8 us a context switch; the interrupt's 1.2 us are assumed"},
    {"slice_us", &Costs::slice_us, "under load: how long a thread runs before another", kFair},
    {"tick_us", &Costs::tick_us, "under load: between timer interrupts, of which one ends a slice",
     "Linux CONFIG_HZ=250, Ubuntu's and Debian's"},
    {"credit_us", &Costs::credit_us, "under load: what a thread that slept is ahead by, at most", kFair},
    {"preempt_us", &Costs::preempt_us, "under load: how far ahead it must be to run at once", kFair},
    {"yield_us", &Costs::yield_us,
     "cpu-polling: how long the thread polls in vain before it yields; 0: it never does",
     "hyperloop_core/group/cpu_member.cc, kYieldAfter"},
};
// clang-format on

}  // namespace

std::span<const CostInfo> CostTable() { return kTable; }

Status SetCost(const std::string& assignment, Costs* costs) {
  const size_t equals = assignment.find('=');
  const std::string name = assignment.substr(0, equals);
  for (const CostInfo& cost : kTable) {
    if (name != cost.name) continue;
    const std::string number = equals == std::string::npos ? "" : assignment.substr(equals + 1);
    char* end = nullptr;
    const double value = std::strtod(number.c_str(), &end);
    const bool divides = name.ends_with("_gbps") || name == "units" || name == "mtu_bytes";
    const bool needs_time = name == "slice_us";
    if (number.empty() || *end != '\0' || !std::isfinite(value) || value > 1e9 ||
        value < (divides || needs_time ? 1 : 0)) {
      return InvalidArgument("--set: '" + assignment + "' needs a number from " +
                             (divides || needs_time ? "1" : "0") + " to 1e9");
    }
    costs->*cost.value = value;
    return Status::Ok();
  }
  return InvalidArgument("--set: '" + name + "' is no cost; --costs shows them");
}

}  // namespace hyperloop::model
