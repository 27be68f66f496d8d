// Costs: what a step of the modelled hardware takes, with the source of each number. One set of
// numbers serves all figures; docs/model.md says what they leave out.
#pragma once

#include <span>
#include <string>

#include "hyperloop/core/status.h"

namespace hyperloop::model {

struct Costs {
  // --- the RNIC: a ConnectX-3, as in HyperLoop's testbed
  double units = 2;
  double wqe_ns = 133;
  double request_ns = 57;
  // --- PCI Express 3.0 x8
  double pcie_read_ns = 547;
  double pcie_write_ns = 274;
  double pcie_gbps = 50;
  // --- the wire: InfiniBand FDR 4x through one switch
  double hop_ns = 200;
  double link_gbps = 54.5;
  double mtu_bytes = 2048;
  double header_bytes = 42;
  // --- processors
  double message_ns = 250;
  double copy_gbps = 80;
  double wakeup_ns = 5000;
  // --- the scheduler of a loaded processor
  double slice_us = 3000;
  double tick_us = 4000;
  double credit_us = 12000;
  double preempt_us = 4000;
  double yield_us = 50;

  // Nanoseconds of `bytes` at `gbps`.
  static double Transfer(double bytes, double gbps) { return bytes * 8 / gbps; }
};

struct CostInfo {
  const char* name;
  double Costs::*value;
  const char* text;
  const char* source;
};
std::span<const CostInfo> CostTable();

// Takes NAME=NUMBER. kInvalidArgument: no such cost, or a number that is negative or, for what is
// divided by or counted, below 1.
Status SetCost(const std::string& assignment, Costs* costs);

}  // namespace hyperloop::model
