// Page: metrics in Prometheus' text format (version 0.0.4), which a server answers with and
// node_exporter reads from files. Samples may be added in any order. Not thread safe.
#pragma once

#include <array>
#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

#include "hyperloop/metrics/histogram.h"
#include "hyperloop/metrics/table.h"

namespace hyperloop::metrics {

struct Label {
  std::string_view name;
  std::string_view value;
};
using Labels = std::initializer_list<Label>;

// Seconds since 1970, as Prometheus has moments.
double NowSeconds();

class Page {
 public:
  // The labels are those that the table names, in its order. In a label's value everything that is
  // not printable ASCII becomes '?'.
  template <std::integral Number>
  void Add(Metric metric, Number value, Labels labels = {}) {
    AddText(metric, "", labels, std::to_string(value));
  }
  void Add(Metric metric, double value, Labels labels = {});
  void Add(Metric metric, const Histogram::Counts& counts, Labels labels = {});

  // What was added, in the table's order, each metric with its help and type.
  std::string Text() const;

 private:
  void AddText(Metric metric, std::string_view suffix, Labels labels, std::string_view value,
               std::string_view less_or_equal = {});

  std::array<std::string, kRows> samples_;
};

}  // namespace hyperloop::metrics
