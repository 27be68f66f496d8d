#include "ctl/acknowledgement_times.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "hyperloop/core/text.h"

namespace hyperloop::ctl {
namespace {

std::optional<double> NumberOf(std::string_view text) {
  if (text == "+Inf") return std::numeric_limits<double>::infinity();
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !(number >= 0)) return {};
  return number;
}

}  // namespace

void AcknowledgementTimes::Read(std::string_view page, std::string_view group) {
  const std::string prefix =
      Text("hyperloop_primary_acknowledgement_seconds_bucket{group=\"", group, "\",le=\"");
  constexpr std::string_view kBetween = "\"} ";
  Counts counts;
  while (!page.empty()) {
    const size_t end = std::min(page.find('\n'), page.size());
    std::string_view line = page.substr(0, end);
    page.remove_prefix(std::min(end + 1, page.size()));
    if (!line.starts_with(prefix)) continue;
    line.remove_prefix(prefix.size());
    const size_t between = line.find(kBetween);
    if (between == std::string_view::npos) continue;
    const std::optional<double> limit = NumberOf(line.substr(0, between));
    const std::optional<double> count = NumberOf(line.substr(between + kBetween.size()));
    if (limit.has_value() && count.has_value()) counts[*limit] = *count;
  }
  if (counts != now_) before_ = std::exchange(now_, std::move(counts));
}

std::optional<double> AcknowledgementTimes::Quantile(double share) const {
  if (before_.empty() || now_.empty()) return {};
  const auto grown = [this](double limit, double count) {
    const auto found = before_.find(limit);
    return count - (found == before_.end() ? 0 : found->second);
  };
  const double all = grown(now_.rbegin()->first, now_.rbegin()->second);
  if (!(all > 0)) return {};
  for (const auto& [limit, count] : now_)
    if (grown(limit, count) >= share * all) return limit;
  return {};
}

}  // namespace hyperloop::ctl
