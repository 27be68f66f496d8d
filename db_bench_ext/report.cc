#include "report.h"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace hyperloop::bench {
namespace {

double OpsPerSecond(const CaseReport& report) {
  return report.measured.seconds <= 0
             ? 0
             : static_cast<double>(report.load.number) / report.measured.seconds;
}
bool Sized(const Case& load) {
  return load.primitive == Primitive::kWrite || load.primitive == Primitive::kMemCopy;
}
bool Flushes(const Case& load) {
  return load.flush || load.primitive != Primitive::kWrite;  // copies and CASes always are flushed
}
uint64_t Counter(const HostWork& work, const char* name) {
  const auto found = work.difference.find(name);
  return found == work.difference.end() ? 0 : found->second;
}

}  // namespace

rnic::Counters Difference(const rnic::Counters& before, const rnic::Counters& after) {
  rnic::Counters difference;
  for (const auto& [name, value] : after) {
    if (name.rfind("qp.", 0) == 0) continue;
    const auto earlier = before.find(name);
    if (earlier != before.end()) difference[name] = value - earlier->second;
  }
  return difference;
}

std::string ToJson(const CaseReport& report) {
  const LatencyHistogram& latency = report.measured.latency;
  nlohmann::ordered_json json;
  json["datapath"] = report.datapath;
  json["primitive"] = PrimitiveName(report.load.primitive);
  json["flush"] = Flushes(report.load);
  json["size"] = Sized(report.load) ? report.load.size : 0;
  json["window"] = report.load.window;
  json["replicas"] = report.replicas;
  json["loop"] = report.load.rate > 0 ? "open" : "closed";
  json["rate"] = report.load.rate;
  json["number"] = report.load.number;
  json["seconds"] = report.measured.seconds;
  json["ops_per_second"] = OpsPerSecond(report);
  json["mean_ns"] = latency.mean();
  json["min_ns"] = latency.min();
  json["p50_ns"] = latency.Percentile(50);
  json["p95_ns"] = latency.Percentile(95);
  json["p99_ns"] = latency.Percentile(99);
  json["p999_ns"] = latency.Percentile(99.9);
  json["max_ns"] = latency.max();
  json["ping_pong_p50_ns"] = report.ping_pong_p50_ns;
  json["p50_to_ping_pong"] = report.ping_pong_p50_ns == 0
                                 ? 0.0
                                 : static_cast<double>(latency.Percentile(50)) /
                                       static_cast<double>(report.ping_pong_p50_ns);
  json["daemon_pid"] = report.daemon_pid;
  uint64_t wqes = 0;
  json["hosts"] = nlohmann::ordered_json::array();
  for (const HostWork& work : report.hosts) {
    wqes += Counter(work, "wqes_executed");
    json["hosts"].push_back({{"host", work.host},
                             {"wqes", Counter(work, "wqes_executed")},
                             {"read_responses", Counter(work, "read_responses_nonzero")},
                             {"bytes_sent", Counter(work, "bytes_sent")},
                             {"counters", work.difference}});
  }
  json["wqes"] = wqes;
  json["wqes_per_operation"] =
      static_cast<double>(wqes) / static_cast<double>(std::max<uint64_t>(report.load.number, 1));
  return json.dump();
}

std::string TableHead() {
  char line[256];
  std::snprintf(line, sizeof line, "%-11s %-8s %-5s %9s %6s %8s %9s %11s %9s %9s %9s %9s %10s %9s",
                "datapath", "op", "flush", "size", "window", "replicas", "rate", "op/s", "p50 us",
                "p95 us", "p99 us", "p99.9 us", "max us", "ping us");
  return line;
}

std::string TableLine(const CaseReport& report) {
  const LatencyHistogram& latency = report.measured.latency;
  const auto us = [](uint64_t ns) { return static_cast<double>(ns) / 1000; };
  char rate[32] = "closed";
  if (report.load.rate > 0) std::snprintf(rate, sizeof rate, "%.0f", report.load.rate);
  char line[320];
  std::snprintf(line, sizeof line,
                "%-11s %-8s %-5s %9llu %6u %8u %9s %11.0f %9.2f %9.2f %9.2f %9.2f %10.1f %9.2f",
                report.datapath.c_str(), std::string(PrimitiveName(report.load.primitive)).c_str(),
                Flushes(report.load) ? "yes" : "no",
                static_cast<unsigned long long>(Sized(report.load) ? report.load.size : 0),
                report.load.window, report.replicas, rate, OpsPerSecond(report),
                us(latency.Percentile(50)), us(latency.Percentile(95)), us(latency.Percentile(99)),
                us(latency.Percentile(99.9)), us(latency.max()), us(report.ping_pong_p50_ns));
  return line;
}

}  // namespace hyperloop::bench
