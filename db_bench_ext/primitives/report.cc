#include "primitives/report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace hyperloop::bench {
namespace {

using Json = nlohmann::ordered_json;

double OpsPerSecond(const Measurement& measured) {
  return measured.seconds <= 0 ? 0
                               : static_cast<double>(measured.latency.count()) / measured.seconds;
}
bool Flushes(const Case& load) {
  return load.flush || load.primitive != Primitive::kWrite;  // the others always are
}
uint64_t Counter(const HostWork& work, const char* name) {
  const auto found = work.difference.find(name);
  return found == work.difference.end() ? 0 : found->second;
}
double Us(uint64_t ns) { return static_cast<double>(ns) / 1000; }

double PerOperation(uint64_t count, uint64_t operations) {
  return static_cast<double>(count) / static_cast<double>(std::max<uint64_t>(operations, 1));
}
// The mean over the replicas, for each operation.
double PerReplica(const Surroundings& around, const char* name, uint64_t operations) {
  if (around.hosts.size() < 2) return 0;
  uint64_t sum = 0;
  for (size_t i = 1; i < around.hosts.size(); ++i) sum += Counter(around.hosts[i], name);
  return PerOperation(sum, operations) / static_cast<double>(around.hosts.size() - 1);
}

void AddLatency(const Measurement& measured, Json* json) {
  const LatencyHistogram& latency = measured.latency;
  Json& out = *json;
  out["number"] = latency.count();
  out["seconds"] = measured.seconds;
  out["ops_per_second"] = OpsPerSecond(measured);
  out["mean_ns"] = latency.mean();
  out["min_ns"] = latency.min();
  out["p50_ns"] = latency.Percentile(50);
  out["p75_ns"] = latency.Percentile(75);
  out["p95_ns"] = latency.Percentile(95);
  out["p99_ns"] = latency.Percentile(99);
  out["p999_ns"] = latency.Percentile(99.9);
  out["p9999_ns"] = latency.Percentile(99.99);
  out["max_ns"] = latency.max();
}

Json CpuSeconds(const CpuTimes& cpu) {
  const auto value = [](const std::optional<double>& seconds) {
    return seconds ? Json(*seconds) : Json(nullptr);
  };
  Json json;
  json["primary"] = cpu.primary;
  json["replicas"] = cpu.replicas;
  json["rnic"] = value(cpu.rnic);
  json["noise"] = value(cpu.noise);
  return json;
}

Json CpuShare(const Surroundings& around, double seconds) {
  Json json = Json::object();
  if (!around.shared_cpu || seconds <= 0) return json;
  double replicas = 0;
  for (const double each : around.cpu.replicas) replicas += each;
  json[std::to_string(*around.shared_cpu)] = {{"rnic", around.cpu.rnic.value_or(0) / seconds},
                                              {"replicas", replicas / seconds},
                                              {"noise", around.cpu.noise.value_or(0) / seconds}};
  return json;
}

void AddSurroundings(const Surroundings& around, const Measurement& measured, Json* json) {
  const uint64_t operations = measured.latency.count();
  Json& out = *json;
  out["provider"] = around.provider;
  out["load"] = around.load;
  out["valid"] = around.reasons.empty();
  out["reasons"] = around.reasons;
  out["cpu_seconds"] = CpuSeconds(around.cpu);
  out["cpu_share"] = CpuShare(around, measured.seconds);
  out["ping_pong_p50_ns"] = around.ping_pong_p50_ns;
  if (around.tcp_chain_p50_ns != 0) {
    out["tcp_chain_p50_ns"] = around.tcp_chain_p50_ns;
    out["tcp_fanout_p50_ns"] = around.tcp_fanout_p50_ns;
  }
  out["p50_to_ping_pong"] = around.ping_pong_p50_ns == 0
                                ? 0.0
                                : static_cast<double>(measured.latency.Percentile(50)) /
                                      static_cast<double>(around.ping_pong_p50_ns);
  out["daemon_pid"] = around.daemon_pid;
  uint64_t wqes = 0;
  out["hosts"] = Json::array();
  for (const HostWork& work : around.hosts) {
    wqes += Counter(work, "wqes_executed");
    out["hosts"].push_back({{"host", work.host},
                            {"wqes", Counter(work, "wqes_executed")},
                            {"read_responses", Counter(work, "read_responses_nonzero")},
                            {"bytes_sent", Counter(work, "bytes_sent")},
                            {"counters", work.difference}});
  }
  out["wqes"] = wqes;
  out["wqes_per_operation"] = PerOperation(wqes, operations);
  Json histogram = Json::array();
  for (const LatencyHistogram::Bucket& bucket : measured.latency.Buckets()) {
    histogram.push_back({bucket.lower, bucket.upper, bucket.count});
  }
  out["histogram"] = std::move(histogram);
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

CpuTimes Difference(const CpuTimes& before, const CpuTimes& after) {
  const auto minus = [](const std::optional<double>& b, const std::optional<double>& a) {
    return a && b ? std::optional<double>(*a - *b) : std::nullopt;
  };
  CpuTimes difference;
  difference.primary = after.primary - before.primary;
  for (size_t i = 0; i < std::min(before.replicas.size(), after.replicas.size()); ++i) {
    difference.replicas.push_back(after.replicas[i] - before.replicas[i]);
  }
  difference.rnic = minus(before.rnic, after.rnic);
  difference.noise = minus(before.noise, after.noise);
  difference.replicas_wanted = after.replicas_wanted - before.replicas_wanted;
  return difference;
}

std::vector<std::string> UnfairBecause(const std::string& datapath, const CpuTimes& cpu,
                                       uint32_t noise_workers, double seconds) {
  const bool by_cpu = datapath == "cpu-polling" || datapath == "cpu-event";
  if (!by_cpu || !cpu.rnic || !cpu.noise || noise_workers == 0 || seconds <= 0) return {};
  constexpr double kLeastOfFair = 0.8;
  const double wanted = noise_workers + cpu.replicas_wanted / seconds;
  const double fair = 1 / (wanted + 1);
  const double had = *cpu.noise / seconds / noise_workers;
  if (*cpu.rnic <= fair * seconds || had >= kLeastOfFair * fair) return {};
  char text[240];
  std::snprintf(
      text, sizeof text,
      "the RNIC ran %.1f %% of the time and kept the threads beside it from their fair "
      "share, %.1f %% of the processor: one that wanted it all the time had %.1f %%, less "
      "than %.0f %% of that",
      *cpu.rnic / seconds * 100, fair * 100, had * 100, kLeastOfFair * 100);
  return {text};
}

std::string ToJson(const CaseReport& report) {
  const uint64_t operations = report.measured.latency.count();
  Json json;
  json["datapath"] = report.datapath;
  json["primitive"] = PrimitiveName(report.load.primitive);
  json["flush"] = Flushes(report.load);
  json["size"] = Sized(report.load.primitive) ? report.load.size : 0;
  json["window"] = report.load.window;
  json["replicas"] = report.replicas;
  json["loop"] = report.load.rate > 0 ? "open" : "closed";
  json["rate"] = report.load.rate;
  json["wait"] = WaitModeName(report.load.wait);
  AddLatency(report.measured, &json);
  // The re-arming of used slots, for each replica and operation.
  const auto per_replica = [&](const char* name) {
    return PerReplica(report.around, name, operations);
  };
  json["rearming"] = {{"ring_bytes_by_scatter", per_replica("ring_bytes_by_scatter")},
                      {"ring_bytes_by_other", per_replica("ring_bytes_by_other")},
                      {"waits", per_replica("waits")},
                      {"enables", per_replica("enables")},
                      {"doorbells", per_replica("doorbells")}};
  AddSurroundings(report.around, report.measured, &json);
  return json.dump();
}

std::string ToJson(const RawReport& report) {
  const RawCase& load = report.load;
  Json json;
  json["datapath"] = "none";
  json["primitive"] = "verb-" + std::string(VerbName(load.verb));
  json["flush"] = false;
  json["size"] = load.size;
  json["window"] = 1;
  json["replicas"] = 0;
  json["inline"] = load.inline_data;
  json["signal_every"] = load.signal_every;
  json["requests"] = load.requests;
  json["chained"] = load.chained;
  json["wait"] = WaitModeName(load.wait);
  AddLatency(report.measured, &json);
  uint64_t doorbells = 0, cqes = 0;
  for (const HostWork& work : report.around.hosts) {
    doorbells += Counter(work, "doorbells");
    cqes += Counter(work, "cqes");
  }
  const uint64_t rounds = report.measured.latency.count();
  json["doorbells_per_operation"] = PerOperation(doorbells, rounds);
  json["cqes_per_operation"] = PerOperation(cqes, rounds);
  AddSurroundings(report.around, report.measured, &json);
  return json.dump();
}

std::string TableHead(bool apart) {
  char line[256];
  std::snprintf(line, sizeof line,
                "%-11s %-8s %-5s %8s %6s %4s %9s %11s %9s %9s %9s %9s %10s %8s %8s %s%s",
                "datapath", "op", "flush", "size", "window", "repl", "rate", "op/s", "p50 us",
                "p95 us", "p99 us", "p99.9 us", "max us", "ping us", "re-arm B", "load",
                apart ? "  TCP chain us  TCP fan-out us" : "");
  return line;
}

std::string TableLine(const CaseReport& report) {
  const LatencyHistogram& latency = report.measured.latency;
  char rate[32] = "closed";
  if (report.load.rate > 0) std::snprintf(rate, sizeof rate, "%.0f", report.load.rate);
  char bare_tcp[64] = "";
  if (report.around.tcp_chain_p50_ns != 0)
    std::snprintf(bare_tcp, sizeof bare_tcp, "%14.2f%16.2f", Us(report.around.tcp_chain_p50_ns),
                  Us(report.around.tcp_fanout_p50_ns));
  char line[320];
  std::snprintf(
      line, sizeof line,
      "%-11s %-8s %-5s %8llu %6u %4u %9s %11.0f %9.2f %9.2f %9.2f %9.2f %10.1f %8.2f %8.0f %s%s%s",
      report.datapath.c_str(), std::string(PrimitiveName(report.load.primitive)).c_str(),
      Flushes(report.load) ? "yes" : "no",
      static_cast<unsigned long long>(Sized(report.load.primitive) ? report.load.size : 0),
      report.load.window, report.replicas, rate, OpsPerSecond(report.measured),
      Us(latency.Percentile(50)), Us(latency.Percentile(95)), Us(latency.Percentile(99)),
      Us(latency.Percentile(99.9)), Us(latency.max()), Us(report.around.ping_pong_p50_ns),
      PerReplica(report.around, "ring_bytes_by_scatter", latency.count()),
      report.around.load.c_str(), report.around.reasons.empty() ? "" : " INVALID", bare_tcp);
  return line;
}

std::string RawTableHead() {
  char line[256];
  std::snprintf(line, sizeof line, "%-11s %8s %6s %6s %8s %7s %5s %11s %9s %9s %9s %10s %8s %s",
                "verb", "size", "inline", "signal", "requests", "chained", "wait", "round/s",
                "p50 us", "p99 us", "p99.9 us", "max us", "ping us", "load");
  return line;
}

std::string TableLine(const RawReport& report) {
  const RawCase& load = report.load;
  const LatencyHistogram& latency = report.measured.latency;
  char line[320];
  std::snprintf(line, sizeof line,
                "%-11s %8u %6s 1/%-4u %8u %7s %5s %11.0f %9.2f %9.2f %9.2f %10.1f %8.2f %s",
                std::string(VerbName(load.verb)).c_str(), load.size,
                load.inline_data ? "yes" : "no", load.signal_every, load.requests,
                load.chained ? "yes" : "no", std::string(WaitModeName(load.wait)).c_str(),
                OpsPerSecond(report.measured), Us(latency.Percentile(50)),
                Us(latency.Percentile(99)), Us(latency.Percentile(99.9)), Us(latency.max()),
                Us(report.around.ping_pong_p50_ns), report.around.load.c_str());
  return line;
}

}  // namespace hyperloop::bench
