// The output of hyperloop-bench about a case.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hyperloop/core/rnic.h"
#include "primitives/case.h"
#include "primitives/raw_verbs.h"

namespace hyperloop::bench {

// The work of one emulated host's RNIC during a case.
struct HostWork {
  std::string host;
  rnic::Counters difference;
};

// Processor time in seconds. Empty: not known (a group that others run), or no such part.
struct CpuTimes {
  double primary = 0;
  std::vector<double> replicas;  // in chain order
  std::optional<double> rnic;
  std::optional<double> noise;
  // The time for which all replicas' threads together ran or waited for a processor.
  double replicas_wanted = 0;
};
CpuTimes Difference(const CpuTimes& before, const CpuTimes& after);

// The fields that all measurements have, whatever was measured.
struct Surroundings {
  std::string provider = "softrnic";
  std::string load = "idle";  // or noise
  uint64_t ping_pong_p50_ns = 0;
  // Over bare TCP (bare_tcp.h); 0: the hosts are not apart.
  uint64_t tcp_chain_p50_ns = 0;
  uint64_t tcp_fanout_p50_ns = 0;
  pid_t daemon_pid = 0;
  std::vector<HostWork> hosts;  // the primary, then the replicas in chain order
  CpuTimes cpu;
  // Under noise: the processor that RNIC, replicas and noise share, and why the run is invalid.
  std::optional<int> shared_cpu;
  std::vector<std::string> reasons;
};

struct CaseReport {
  Case load;
  uint32_t replicas = 0;
  std::string datapath;
  Measurement measured;
  Surroundings around;
};

struct RawReport {
  RawCase load;
  Measurement measured;
  Surroundings around;  // hosts: client, server
};

// after − before, for every counter of a host (not of single queue pairs) that is in both.
rnic::Counters Difference(const rnic::Counters& before, const rnic::Counters& after);

// Why a run of `seconds` under noise is invalid; empty: it is valid. With cpu-polling and cpu-event
// replicas' threads want the shared processor, and the RNIC must leave them their fair share: one
// of n + 1, where n threads of normal priority wanted it on average. The noise shows how much it
// left, because each of its workers always wants the processor. An RNIC with a fair share or less
// kept nobody from theirs. This is the rule of db_bench_ext (docs/benchmarking.md).
std::vector<std::string> UnfairBecause(const std::string& datapath, const CpuTimes& cpu,
                                       uint32_t noise_workers, double seconds);

// One JSON object on one line; the fields are listed in docs/primitive-benchmarks.md.
std::string ToJson(const CaseReport& report);
std::string ToJson(const RawReport& report);
// The head of a text table, and one line of it.
// `apart`: with bare TCP beside it.
std::string TableHead(bool apart);
std::string TableLine(const CaseReport& report);
std::string RawTableHead();
std::string TableLine(const RawReport& report);

}  // namespace hyperloop::bench
