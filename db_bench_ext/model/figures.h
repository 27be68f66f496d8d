// Figures: which cases reproduce which figure of the HyperLoop paper, and what it says there.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/workload.h"

namespace hyperloop::model {

enum class Metric : uint8_t { kMean, kP95, kP99, kThroughput };
std::string_view MetricName(Metric metric);
double ValueOf(const CaseResult& result, Metric metric);

// A number of the paper's: microseconds, or operations a second.
struct PaperValue {
  Metric metric;
  double value;
  const char* source;
};

struct Line {
  Case c;
  std::vector<PaperValue> paper = {};  // empty: the paper gives none
};

// The greatest quotient of two lines' 99th percentiles.
struct Quotient {
  std::string what;
  std::vector<std::pair<size_t, size_t>> lines;  // above, below
  double paper;
  const char* source;
};

struct Figure {
  std::string name;
  std::string title;
  std::vector<Line> lines;
  std::vector<Quotient> quotients = {};
};

const std::vector<std::string>& FigureNames();
// `name`: one of these. `base` has the number of operations and the seed.
Figure MakeFigure(const std::string& name, const Case& base);

}  // namespace hyperloop::model
