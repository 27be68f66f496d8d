#include "ycsb/report.h"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace hyperloop::ycsb {
namespace {

double PerSecond(uint64_t operations, double seconds) {
  return seconds <= 0 ? 0 : static_cast<double>(operations) / seconds;
}

nlohmann::ordered_json LatencyOf(const bench::LatencyHistogram& latency) {
  return {{"mean", latency.mean()},
          {"p50", latency.Percentile(50)},
          {"p75", latency.Percentile(75)},
          {"p95", latency.Percentile(95)},
          {"p99", latency.Percentile(99)},
          {"p99_9", latency.Percentile(99.9)},
          {"p99_99", latency.Percentile(99.99)},
          {"max", latency.max()}};
}

nlohmann::ordered_json HistogramOf(const bench::LatencyHistogram& latency) {
  auto buckets = nlohmann::ordered_json::array();
  for (const bench::LatencyHistogram::Bucket& bucket : latency.Buckets()) {
    buckets.push_back({bucket.lower, bucket.upper, bucket.count});
  }
  return buckets;
}

nlohmann::ordered_json PhaseOf(const char* phase, const PhaseOptions& options) {
  return {{"phase", phase},
          {"workload", std::string(1, options.workload.name)},
          {"rate", std::string_view(phase) == "run" ? options.rate : 0.0}};
}

}  // namespace

std::string BeginningToJson(const char* phase, const PhaseOptions& options) {
  nlohmann::ordered_json json = PhaseOf(phase, options);
  json["begins"] = true;
  return json.dump();
}

std::string ToJson(const PhaseReport& report, const PhaseOptions& options, const std::string& uri) {
  nlohmann::ordered_json json = PhaseOf(report.name, options);
  json["replicated"] = !uri.empty();
  json["uri"] = uri;
  json["records"] = options.records;
  json["operations"] = report.operations;
  json["threads"] = options.threads;
  json["sync"] = options.sync;
  json["seed"] = options.seed;
  json["seconds"] = report.seconds;
  json["ops_per_second"] = PerSecond(report.operations, report.seconds);
  json["types"] = nlohmann::ordered_json::array();
  for (size_t type = 0; type < kOperationTypes; ++type) {
    const bench::LatencyHistogram& latency = report.latencies[type];
    if (latency.count() == 0) continue;
    json["types"].push_back({{"type", TypeName(static_cast<OperationType>(type))},
                             {"operations", latency.count()},
                             {"latency_ns", LatencyOf(latency)},
                             {"histogram", HistogramOf(latency)}});
  }
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string ToTable(const PhaseReport& report, const PhaseOptions& options) {
  std::string text = report.name;
  const bool is_run = text == "run";
  if (is_run) text += std::string(" of workload ") + options.workload.name;
  char line[256];
  std::snprintf(line, sizeof line, ": %llu operations, %u threads, %.2f s, %.0f op/s",
                static_cast<unsigned long long>(report.operations), options.threads, report.seconds,
                PerSecond(report.operations, report.seconds));
  text += line;
  if (is_run && options.rate > 0) {
    std::snprintf(line, sizeof line, " of %.6g offered", options.rate);
    text += line;
  }
  text += '\n';
  std::snprintf(line, sizeof line, "  %-18s %12s %10s %10s %10s %10s %10s %12s\n", "type",
                "operations", "mean us", "p50 us", "p95 us", "p99 us", "p99.9 us", "max us");
  text += line;
  for (size_t type = 0; type < kOperationTypes; ++type) {
    const bench::LatencyHistogram& latency = report.latencies[type];
    if (latency.count() == 0) continue;
    const auto us = [&](double percent) {
      return static_cast<double>(latency.Percentile(percent)) / 1000;
    };
    std::snprintf(line, sizeof line, "  %-18s %12llu %10.2f %10.2f %10.2f %10.2f %10.2f %12.1f\n",
                  std::string(TypeName(static_cast<OperationType>(type))).c_str(),
                  static_cast<unsigned long long>(latency.count()), latency.mean() / 1000, us(50),
                  us(95), us(99), us(99.9), static_cast<double>(latency.max()) / 1000);
    text += line;
  }
  return text;
}

}  // namespace hyperloop::ycsb
