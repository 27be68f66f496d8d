#include "region/absences.h"

#include <algorithm>

namespace hyperloop {
namespace {

constexpr std::string_view kBetween = " | ";
constexpr size_t kMaxReason = 340;  // a refusal up to its way out

}  // namespace

std::string FormatAbsences(const Absences& absences) {
  std::string text;
  const size_t share = kMaxAbsences / std::max<size_t>(absences.size(), 1) - kBetween.size();
  for (const auto& [address, reason] : absences) {
    std::string each = (address + " " + reason.substr(0, kMaxReason)).substr(0, share);
    std::replace(each.begin(), each.end(), '|', '/');
    text += (text.empty() ? "" : std::string(kBetween)) + each;
  }
  return text.substr(0, kMaxAbsences);
}

Absences ParseAbsences(std::string_view text) {
  Absences absences;
  while (!text.empty()) {
    const size_t end = std::min(text.find(kBetween), text.size());
    const std::string_view each = text.substr(0, end);
    const size_t space = each.find(' ');
    if (space != std::string_view::npos && space != 0)
      absences.emplace(each.substr(0, space), each.substr(space + 1));
    text.remove_prefix(std::min(end + kBetween.size(), text.size()));
  }
  return absences;
}

}  // namespace hyperloop
