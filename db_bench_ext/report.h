// What hyperloop-bench prints of a case.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "hyperloop/core/rnic.h"
#include "workload.h"

namespace hyperloop::bench {

// What the RNIC of one emulated host did during a case.
struct HostWork {
  std::string host;
  rnic::Counters difference;
};

struct CaseReport {
  Case load;
  uint32_t replicas = 0;
  std::string datapath;
  Measurement measured;
  uint64_t ping_pong_p50_ns = 0;
  pid_t daemon_pid = 0;
  std::vector<HostWork> hosts;  // the primary, then the replicas in chain order
};

// after − before, for every counter of a host (not of single queue pairs) that is in both.
rnic::Counters Difference(const rnic::Counters& before, const rnic::Counters& after);

// One JSON object on one line; the fields are listed in docs/operations.md.
std::string ToJson(const CaseReport& report);
// The head of a text table, and one line of it.
std::string TableHead();
std::string TableLine(const CaseReport& report);

}  // namespace hyperloop::bench
