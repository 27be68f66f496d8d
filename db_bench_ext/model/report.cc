#include "model/report.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace hyperloop::model {
namespace {

using Json = nlohmann::ordered_json;

[[gnu::format(printf, 1, 2)]] std::string Format(const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return text;
}

std::string DatapathOf(const Case& c) {
  std::string name(DatapathName(c.datapath));
  if (c.datapath == Datapath::kOffload && c.order == FlushOrder::kHopByHop) name += ", hop by hop";
  if (c.datapath == Datapath::kCpuPolling && !c.yields) name += ", no yield";
  return name;
}

// "+66 %", or "x 12" where the two are far apart.
std::string Difference(double here, double paper) {
  const double factor = here / paper;
  if (factor >= 3 || factor <= 1.0 / 3) return Format("x %.3g", factor);
  return Format("%+.0f %%", (factor - 1) * 100);
}

double GreatestOf(const Quotient& quotient, const std::vector<CaseResult>& results) {
  double greatest = 0;
  for (const auto& [above, below] : quotient.lines)
    greatest = std::max(greatest, results[above].p99_us / results[below].p99_us);
  return greatest;
}

}  // namespace

std::string TableHead(const std::string& title) {
  return Format("%s%s%-14s %-21s %6s %6s %6s %5s %10s %10s %10s %10s %10s %8s %6s %6s\n",
                title.c_str(), title.empty() ? "" : "\n", "primitive", "datapath", "bytes", "group",
                "window", "load", "mean us", "p50 us", "p95 us", "p99 us", "max us", "kop/s",
                "WQEs", "trips");
}

std::string ToTable(const Line& line, const CaseResult& result) {
  const Case& c = line.c;
  const bool sized = c.primitive == Primitive::kWrite || c.primitive == Primitive::kMemCopy;
  const std::string primitive = std::string(PrimitiveName(c.primitive)) + (c.flush ? "+flush" : "");
  std::string text = Format(
      "%-14s %-21s %6s %6u %6u %5u %10.2f %10.2f %10.2f %10.2f %10.2f %8.1f %6.1f %6.1f\n",
      primitive.c_str(), DatapathOf(c).c_str(), sized ? std::to_string(c.size).c_str() : "-",
      c.replicas, c.window, c.load, result.mean_us, result.p50_us, result.p95_us, result.p99_us,
      result.max_us, result.operations_per_second / 1000, result.wqes, result.round_trips);
  for (const PaperValue& paper : line.paper) {
    text += Format("    paper: %s %g; here %.6g: %s (%s)\n",
                   std::string(MetricName(paper.metric)).c_str(), paper.value,
                   ValueOf(result, paper.metric),
                   Difference(ValueOf(result, paper.metric), paper.value).c_str(), paper.source);
  }
  return text;
}

std::string ToTable(const Quotient& quotient, const std::vector<CaseResult>& results) {
  const double here = GreatestOf(quotient, results);
  return Format("    paper: %s: %g; here %.3g: %s (%s)\n", quotient.what.c_str(), quotient.paper,
                here, Difference(here, quotient.paper).c_str(), quotient.source);
}

std::string ToJson(const std::string& figure, const Line& line, const CaseResult& result) {
  const Case& c = line.c;
  Json json;
  if (!figure.empty()) json["figure"] = figure;
  json["primitive"] = PrimitiveName(c.primitive);
  json["datapath"] = DatapathName(c.datapath);
  if (c.datapath == Datapath::kOffload)
    json["order"] = c.order == FlushOrder::kPipelined ? "pipelined" : "hop-by-hop";
  if (c.datapath == Datapath::kCpuPolling) json["yields"] = c.yields;
  json["flush"] = c.flush;
  json["size"] = c.size;
  json["replicas"] = c.replicas;
  json["window"] = c.window;
  json["load"] = c.load;
  json["number"] = c.operations;
  json["seed"] = c.seed;
  json["mean_us"] = result.mean_us;
  json["p50_us"] = result.p50_us;
  json["p95_us"] = result.p95_us;
  json["p99_us"] = result.p99_us;
  json["max_us"] = result.max_us;
  json["ops_per_second"] = result.operations_per_second;
  json["wqes"] = result.wqes;
  json["round_trips"] = result.round_trips;
  json["paper"] = Json::array();
  for (const PaperValue& paper : line.paper) {
    json["paper"].push_back({{"metric", MetricName(paper.metric)},
                             {"value", paper.value},
                             {"factor", ValueOf(result, paper.metric) / paper.value},
                             {"source", paper.source}});
  }
  return json.dump();
}

std::string ToJson(const std::string& figure, const Quotient& quotient,
                   const std::vector<CaseResult>& results) {
  const double here = GreatestOf(quotient, results);
  return Json{{"figure", figure},
              {"quotient", quotient.what},
              {"value", here},
              {"paper",
               {{{"value", quotient.paper},
                 {"factor", here / quotient.paper},
                 {"source", quotient.source}}}}}
      .dump();
}

std::string CostsToTable(const Costs& costs) {
  std::string text;
  for (const CostInfo& cost : CostTable())
    text += Format("%-14s %8g  %s\n%24s %s\n", cost.name, costs.*cost.value, cost.text, "",
                   cost.source);
  return text;
}

std::string CostsToJson(const Costs& costs) {
  Json json = Json::array();
  for (const CostInfo& cost : CostTable())
    json.push_back({{"name", cost.name},
                    {"value", costs.*cost.value},
                    {"text", cost.text},
                    {"source", cost.source}});
  return json.dump();
}

}  // namespace hyperloop::model
