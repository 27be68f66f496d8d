#include "hyperloop/metrics/page.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace hyperloop::metrics {
namespace {

std::string_view TypeName(Type type) {
  switch (type) {
    case Type::kGauge:
      return "gauge";
    case Type::kCounter:
      return "counter";
    case Type::kHistogram:
      return "histogram";
  }
  return "untyped";
}

// The shortest text that is this number.
std::string NumberText(double value) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  return error == std::errc() ? std::string(text, end) : "NaN";
}

void AppendLabel(std::string_view name, std::string_view value, std::string* out) {
  *out += out->back() == '{' ? "" : ",";
  *out += name;
  *out += "=\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') *out += '\\';
    *out += c >= ' ' && c <= '~' ? c : '?';
  }
  *out += '"';
}

std::string ShownBy(uint8_t who) {
  std::string text;
  const auto add = [&](uint8_t bit, std::string_view name) {
    if ((who & bit) == 0) return;
    text += text.empty() ? "" : ", ";
    text += name;
  };
  add(kRnicd, "rnicd");
  add(kReplica, "replica");
  add(kFollower, "follower");
  add(kAgent, "agent");
  add(kPrimary, "primary");
  return text;
}

}  // namespace

double NowSeconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) /
         1e3;
}

void Page::AddText(Metric metric, std::string_view suffix, Labels labels, std::string_view value,
                   std::string_view less_or_equal) {
  std::string& out = samples_[metric.row()];
  out += kTable[metric.row()].name;
  out += suffix;
  if (labels.size() != 0 || !less_or_equal.empty()) {
    out += '{';
    for (const Label& label : labels) AppendLabel(label.name, label.value, &out);
    if (!less_or_equal.empty()) AppendLabel("le", less_or_equal, &out);
    out += '}';
  }
  out += ' ';
  out += value;
  out += '\n';
}

void Page::Add(Metric metric, double value, Labels labels) {
  AddText(metric, "", labels, NumberText(value));
}

void Page::Add(Metric metric, const Histogram::Counts& counts, Labels labels) {
  uint64_t so_far = 0;
  for (size_t i = 0; i < Histogram::kBuckets; ++i) {
    so_far += counts.buckets[i];
    const bool last = i + 1 == Histogram::kBuckets;
    const std::string limit =
        last ? "+Inf" : NumberText(static_cast<double>(uint64_t{1} << i) / 1e6);
    AddText(metric, "_bucket", labels, std::to_string(so_far), limit);
  }
  AddText(metric, "_sum", labels, NumberText(static_cast<double>(counts.nanoseconds) / 1e9));
  AddText(metric, "_count", labels, std::to_string(so_far));
}

std::string Page::Text() const {
  std::string text;
  for (size_t row = 0; row < kRows; ++row) {
    if (samples_[row].empty()) continue;
    const Info& info = kTable[row];
    text.append("# HELP ").append(info.name).append(" ").append(info.help).append("\n");
    text.append("# TYPE ").append(info.name).append(" ").append(TypeName(info.type)).append("\n");
    text += samples_[row];
  }
  return text;
}

namespace {

// Appends a paragraph of Markdown, as lines of at most 120 columns; `indent` begins those behind
// the first.
void AppendWrapped(std::string_view text, std::string_view indent, std::string* page) {
  constexpr size_t kColumns = 120;
  size_t column = 0;
  while (!text.empty()) {
    const size_t length = std::min(text.find(' '), text.size());
    if (column != 0 && column + 1 + length > kColumns) {
      page->append("\n").append(indent);
      column = indent.size();
    } else if (column != 0) {
      page->append(" ");
      ++column;
    }
    page->append(text.substr(0, length));
    column += length;
    text.remove_prefix(std::min(length + 1, text.size()));
  }
  page->append("\n");
}

}  // namespace

std::string Markdown() {
  std::string page =
      "# Metrics\n\n"
      "<!-- Generated from the table in "
      "hyperloop_core/base/metrics/include/hyperloop/metrics/table.h;\n"
      "     `cmake --build build --target metrics-page` writes it anew. -->\n\n";
  AppendWrapped(
      "These are all metrics of the project, each with its type, who shows it, and its labels. "
      "[monitoring.md](monitoring.md) says how to get at them. `hyperloop-rnicd` and "
      "`hyperloop-replica` show theirs by HTTP, and the primary writes its own into a file. The "
      "counters begin at 0 when the program that shows them starts, or the primary opens its "
      "database.",
      "", &page);
  page += "\n";
  for (const Info& info : kTable) {
    std::string item("- `");
    item.append(info.name).append("` (").append(TypeName(info.type)).append("; ");
    item.append(ShownBy(info.shown_by));
    if (!info.labels.empty()) item.append("; ").append(info.labels);
    item.append("): ").append(info.help).append(".");
    AppendWrapped(item, "  ", &page);
  }
  return page;
}

}  // namespace hyperloop::metrics
