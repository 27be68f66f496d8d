// Runs a plan: starts groups one after another, measures each case, and prints it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "primitives/plan.h"
#include "primitives/target.h"

namespace hyperloop::bench {

struct RunOptions {
  std::string uri;           // of the group; empty: own clusters
  uint64_t region_size = 0;  // of own clusters; 0: what the cases need
  Places places;
  bool hosts_apart = false;  // of the own cluster
  std::string netem;
  bool json = false;
  // Cases for which this machine has too little memory are left out, and named, instead of ending
  // the run.
  bool leave_out = false;
  // The provider of raw verbs. softrnic: two emulated hosts of an own daemon; verbs: an RDMA
  // device.
  std::string provider = "softrnic";
  std::string device;
};

// kAborted: `interrupted` was set. Otherwise the first failure, naming its case.
Status RunPlan(const Plan& plan, const RunOptions& options, const std::atomic<bool>& interrupted);

}  // namespace hyperloop::bench
