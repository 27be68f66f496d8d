// hyperloop-model: the group primitives on modelled hardware, beside the figures of the HyperLoop
// paper.
#include <gflags/gflags.h>

#include <cstdio>
#include <string>
#include <vector>

#include "command_line/flags.h"
#include "model/costs.h"
#include "model/figures.h"
#include "model/report.h"
#include "model/workload.h"

DEFINE_string(
    figure, "all",
    "list of latency, table2, figure8, figure9, figure10; or all; or none, which runs the "
    "cases that the lists below name");

// --- cases: each combination of the lists' entries is one

DEFINE_string(primitive, "gwrite", "list of gwrite, gcas, gmemcpy, gflush");
DEFINE_string(size, "1024", "list of bytes an operation: gwrite, gmemcpy");
DEFINE_string(replicas, "3", "list of group sizes, in replicas");
DEFINE_string(window, "1", "list of operations in flight");
DEFINE_string(datapath, "offload", "list of offload, fanout, cpu-polling, cpu-event");
DEFINE_string(order, "pipelined",
              "offload: list of pipelined, hop-by-hop: whether each hop waits until the one before "
              "it is durable");
DEFINE_string(load, "0", "list of threads that compute on the processor of each replica's thread");
DEFINE_bool(flush, false, "gwrite: durable on every replica before the acknowledgement");

// --- all cases

DEFINE_uint64(number, 10000, "operations measured a case");
DEFINE_uint64(seed, 1, "of the scheduler's chances under load, any number");
DEFINE_string(set, "", "list of NAME=NUMBER: costs of the hardware that --costs shows");
DEFINE_bool(costs, false, "print the costs of the hardware with their sources, and run nothing");
DEFINE_bool(json, false, "one JSON object a case instead of tables");

namespace hyperloop::model {
namespace {

constexpr char kUsage[] =
    "the group primitives on modelled hardware, beside the HyperLoop paper's figures.\n"
    "The product's engine and both ends of its groups run, on a clock by which each work\n"
    "queue entry, packet and wake-up takes the time that --costs shows.\n"
    "Exit status: 0 done; 1 failed, the reason is on stderr; 2 the command line is\n"
    "wrong.";

void Print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

Status CheckCombination() {
  if (FLAGS_figure != "none") {
    for (const char* flag :
         {"primitive", "size", "replicas", "window", "datapath", "order", "load", "flush"}) {
      if (bench::IsGiven(flag)) {
        return InvalidArgument(std::string("--") + flag +
                               " needs --figure=none: figures have cases of their own");
      }
    }
  }
  HL_RETURN_IF_ERROR(bench::CheckRange("number", FLAGS_number, uint64_t{1}, uint64_t{1} << 30));
  return bench::CheckRange("seed", FLAGS_seed, uint64_t{0}, uint64_t{1} << 60);
}

Result<Costs> ChooseCosts() {
  Costs costs;
  if (bench::IsGiven("set"))
    for (const std::string& each : bench::SplitList(FLAGS_set))
      HL_RETURN_IF_ERROR(SetCost(each, &costs));
  return costs;
}

Result<std::vector<Figure>> ChooseFigures(const Case& base) {
  std::vector<std::string> names = FigureNames();
  if (FLAGS_figure != "all") {
    names = bench::SplitList(FLAGS_figure);
    HL_RETURN_IF_ERROR(bench::CheckWords("figure", names, FigureNames()));
  }
  std::vector<Figure> figures;
  figures.reserve(names.size());
  for (const std::string& name : names) figures.push_back(MakeFigure(name, base));
  return figures;
}

// Appends the cases that differ in what concerns their datapath alone.
Status AddDatapaths(Case c, const std::vector<uint32_t>& loads, Figure* figure) {
  for (const std::string& name : bench::SplitList(FLAGS_datapath)) {
    HL_RETURN_IF_ERROR(
        bench::CheckWord("datapath", name, {"offload", "fanout", "cpu-polling", "cpu-event"}));
    HL_ASSIGN_OR_RETURN(c.datapath, ParseDatapath(name));
    for (const std::string& order : bench::SplitList(FLAGS_order)) {
      HL_RETURN_IF_ERROR(bench::CheckWord("order", order, {"pipelined", "hop-by-hop"}));
      c.order = order == "pipelined" ? FlushOrder::kPipelined : FlushOrder::kHopByHop;
      for (const uint32_t load : loads) {
        c.load = load;
        figure->lines.push_back({c});
      }
      if (c.datapath != Datapath::kOffload) break;
    }
  }
  return Status::Ok();
}

// The cases of the lists, as a figure without a name.
Result<Figure> Combine(const Case& base) {
  Figure figure;
  HL_ASSIGN_OR_RETURN(const auto sizes, bench::NumberList("size", FLAGS_size, 1u, 1u << 20));
  HL_ASSIGN_OR_RETURN(const auto replicas,
                      bench::NumberList("replicas", FLAGS_replicas, 1u, kMaxGroupSize));
  HL_ASSIGN_OR_RETURN(const auto windows, bench::NumberList("window", FLAGS_window, 1u, 512u));
  HL_ASSIGN_OR_RETURN(const auto loads, bench::NumberList("load", FLAGS_load, 0u, 1000u));
  for (const std::string& name : bench::SplitList(FLAGS_primitive)) {
    Case c = base;
    HL_RETURN_IF_ERROR(
        bench::CheckWord("primitive", name, {"gwrite", "gcas", "gmemcpy", "gflush"}));
    HL_ASSIGN_OR_RETURN(c.primitive, ParsePrimitive(name));
    c.flush = FLAGS_flush;
    for (const uint32_t size : sizes) {
      for (const uint32_t group : replicas) {
        for (const uint32_t window : windows) {
          c.size = size;
          c.replicas = group;
          c.window = window;
          HL_RETURN_IF_ERROR(AddDatapaths(c, loads, &figure));
        }
      }
    }
  }
  return figure;
}

Status RunFigure(const Figure& figure, const Costs& costs) {
  if (!FLAGS_json) Print(TableHead(figure.title));
  std::vector<CaseResult> results;
  for (const Line& line : figure.lines) {
    HL_ASSIGN_OR_RETURN(const CaseResult result, RunCase(line.c, costs));
    results.push_back(result);
    Print(FLAGS_json ? ToJson(figure.name, line, result) + "\n" : ToTable(line, result));
  }
  for (const Quotient& quotient : figure.quotients)
    Print(FLAGS_json ? ToJson(figure.name, quotient, results) + "\n" : ToTable(quotient, results));
  if (!FLAGS_json && !figure.name.empty()) Print("\n");
  return Status::Ok();
}

Status Run() {
  HL_RETURN_IF_ERROR(CheckCombination());
  HL_ASSIGN_OR_RETURN(const Costs costs, ChooseCosts());
  const Case base{.operations = FLAGS_number, .seed = FLAGS_seed};
  std::vector<Figure> figures;
  if (FLAGS_figure == "none") {
    HL_ASSIGN_OR_RETURN(Figure figure, Combine(base));
    figures.push_back(std::move(figure));
  } else {
    HL_ASSIGN_OR_RETURN(figures, ChooseFigures(base));
  }
  if (FLAGS_costs) {
    Print(FLAGS_json ? CostsToJson(costs) + "\n" : CostsToTable(costs));
    return Status::Ok();
  }
  for (const Figure& figure : figures) HL_RETURN_IF_ERROR(RunFigure(figure, costs));
  return Status::Ok();
}

int Main() {
  const Status status = Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "hyperloop-model: %s\n", status.message().c_str());
  return status.code() == Code::kInvalidArgument ? 2 : 1;
}

}  // namespace
}  // namespace hyperloop::model

int main(int argc, char** argv) {
  gflags::SetUsageMessage(hyperloop::model::kUsage);
  gflags::SetVersionString(HYPERLOOP_VERSION);
  if (const auto status = hyperloop::bench::TakeCommandLine(argc, argv, __FILE__)) return *status;
  return hyperloop::model::Main();
}
