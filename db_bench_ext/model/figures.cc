#include "model/figures.h"

namespace hyperloop::model {
namespace {

// The paper's evaluation was not at hand: docs/model.md says so, too.
constexpr char kTable2[] = "HyperLoop table 2, from memory";
constexpr char kFigure8[] = "HyperLoop section 6.1, from memory";
constexpr char kFigure9[] = "HyperLoop figure 9, as estimated by Jang and Kim (2020), figure 5.3";
constexpr char kFigure10[] = "HyperLoop figure 10, from memory";

constexpr uint32_t kPaperLoad = 10;
constexpr uint32_t kPaperGroup = 3;
// Figure 9: bytes, and operations a second.
constexpr std::pair<uint64_t, double> kPaperRates[] = {
    {1 << 10, 737e3},  {2 << 10, 460e3},  {4 << 10, 380e3}, {8 << 10, 365e3},
    {16 << 10, 263e3}, {32 << 10, 161e3}, {64 << 10, 88e3}};

// Of Metric, in its order.
constexpr std::string_view kMetricNames[] = {"mean_us", "p95_us", "p99_us", "ops_per_second"};

// The datapaths in the order in which they are shown, as cases.
std::vector<Case> Datapaths(const Case& base) {
  std::vector<Case> cases(5, base);
  cases[1].datapath = Datapath::kFanout;
  cases[2].datapath = Datapath::kCpuPolling;
  cases[3].datapath = Datapath::kCpuPolling;
  cases[3].yields = false;
  cases[4].datapath = Datapath::kCpuEvent;
  return cases;
}
// The places in Datapaths of the paper's HyperLoop, and of its Naive-RDMA.
constexpr size_t kOffload = 0, kNeverYields = 3, kEvent = 4, kDatapaths = 5;

Figure Latency(const Case& base) {
  Figure figure{.name = "latency",
                .title = "Latency on idle machines, by group size (the paper gives none)",
                .lines = {}};
  for (const auto primitive :
       {Primitive::kWrite, Primitive::kMemCopy, Primitive::kCompareAndSwap}) {
    for (const bool flush : {false, true}) {
      if (flush && primitive != Primitive::kWrite) continue;
      for (const uint32_t replicas : {3u, 5u, 7u}) {
        Case c = base;
        c.primitive = primitive;
        c.flush = flush;
        c.replicas = replicas;
        std::vector<Case> cases = Datapaths(c);
        cases[1] = c;
        cases[1].order = FlushOrder::kHopByHop;
        cases[kNeverYields].datapath = Datapath::kFanout;
        for (const Case& each : cases) figure.lines.push_back({each});
      }
    }
  }
  return figure;
}

Figure Table2(const Case& base) {
  Figure figure{.name = "table2",
                .title = "Table 2: latency of gCAS, 10 threads a core on the replicas",
                .lines = {}};
  Case c = base;
  c.primitive = Primitive::kCompareAndSwap;
  c.replicas = kPaperGroup;
  c.load = kPaperLoad;
  for (const Case& each : Datapaths(c)) figure.lines.push_back({each});
  figure.lines[kOffload].paper = {
      {Metric::kMean, 10, kTable2}, {Metric::kP95, 13, kTable2}, {Metric::kP99, 14, kTable2}};
  for (const size_t naive : {kNeverYields, kEvent}) {
    figure.lines[naive].paper = {{Metric::kMean, 539, kTable2},
                                 {Metric::kP95, 3928, kTable2},
                                 {Metric::kP99, 11886, kTable2}};
  }
  return figure;
}

Figure Figure8(const Case& base) {
  Figure figure{.name = "figure8",
                .title = "Figure 8: latency by message size, 10 threads a core on the replicas",
                .lines = {}};
  for (const auto primitive : {Primitive::kWrite, Primitive::kMemCopy}) {
    const bool write = primitive == Primitive::kWrite;
    const std::string name(PrimitiveName(primitive));
    const double paper = write ? 801 : 848;
    Quotient polling{name + " p99, cpu-polling without yielding over offload", {}, paper, kFigure8};
    Quotient event{name + " p99, cpu-event over offload", {}, paper, kFigure8};
    for (uint64_t size = 128; size <= 8192; size *= 2) {
      Case c = base;
      c.primitive = primitive;
      c.size = size;
      c.replicas = kPaperGroup;
      c.load = kPaperLoad;
      const size_t first = figure.lines.size();
      for (const Case& each : Datapaths(c)) figure.lines.push_back({each});
      polling.lines.emplace_back(first + kNeverYields, first + kOffload);
      event.lines.emplace_back(first + kEvent, first + kOffload);
    }
    figure.quotients.push_back(std::move(polling));
    figure.quotients.push_back(std::move(event));
  }
  return figure;
}

Figure Figure9(const Case& base) {
  Figure figure{.name = "figure9",
                .title = "Figure 9: throughput of gWRITE by message size, window 64",
                .lines = {}};
  for (const auto& [size, paper] : kPaperRates) {
    Case c = base;
    c.size = size;
    c.replicas = kPaperGroup;
    c.window = 64;
    for (const Case& each : Datapaths(c))
      if (each.yields) figure.lines.push_back({each});
    figure.lines[figure.lines.size() - (kDatapaths - 1)].paper = {
        {Metric::kThroughput, paper, kFigure9}};
  }
  return figure;
}

Figure Figure10(const Case& base) {
  Figure figure{
      .name = "figure10",
      .title = "Figure 10: latency of gWRITE by group size, 10 threads a core on the replicas",
      .lines = {}};
  for (const uint32_t replicas : {3u, 5u, 7u}) {
    Case c = base;
    c.replicas = replicas;
    c.load = kPaperLoad;
    for (const Case& each : Datapaths(c)) figure.lines.push_back({each});
  }
  const size_t last = 2 * kDatapaths;
  figure.quotients = {
      {"offload p99, 7 replicas over 3", {{last + kOffload, kOffload}}, 1, kFigure10},
      {"cpu-polling without yielding p99, 7 replicas over 3",
       {{last + kNeverYields, kNeverYields}},
       3,
       kFigure10},
      {"cpu-event p99, 7 replicas over 3", {{last + kEvent, kEvent}}, 3, kFigure10}};
  return figure;
}

}  // namespace

std::string_view MetricName(Metric metric) { return kMetricNames[static_cast<size_t>(metric)]; }

double ValueOf(const CaseResult& result, Metric metric) {
  switch (metric) {
    case Metric::kMean:
      return result.mean_us;
    case Metric::kP95:
      return result.p95_us;
    case Metric::kP99:
      return result.p99_us;
    default:
      return result.operations_per_second;
  }
}

const std::vector<std::string>& FigureNames() {
  static const std::vector<std::string> names = {"latency", "table2", "figure8", "figure9",
                                                 "figure10"};
  return names;
}

Figure MakeFigure(const std::string& name, const Case& base) {
  if (name == "latency") return Latency(base);
  if (name == "table2") return Table2(base);
  if (name == "figure8") return Figure8(base);
  if (name == "figure9") return Figure9(base);
  return Figure10(base);
}

}  // namespace hyperloop::model
