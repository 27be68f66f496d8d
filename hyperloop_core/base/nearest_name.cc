#include "hyperloop/core/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace hyperloop {
namespace {

size_t EditDistance(std::string_view a, std::string_view b) {
  // Rows for the first i-1, i and i+1 letters of `a`; column j is for the first j of `b`.
  std::vector<size_t> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    next[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = row[j] + (a[i] == b[j] ? 0 : 1);
      next[j + 1] = std::min({row[j + 1] + 1, next[j] + 1, replaced});
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j])
        next[j + 1] = std::min(next[j + 1], before[j - 1] + 1);
    }
    before.swap(row);
    row.swap(next);
  }
  return row.back();
}

}  // namespace

std::string_view NearestName(std::string_view text, std::span<const std::string_view> names) {
  return *std::min_element(names.begin(), names.end(),
                           [text](std::string_view a, std::string_view b) {
                             return EditDistance(text, a) < EditDistance(text, b);
                           });
}

std::string DidYouMean(std::string_view text, std::span<const std::string_view> names) {
  constexpr size_t kBeginning = 3;
  if (names.empty()) return "";
  std::string_view meant = NearestName(text, names);
  if (EditDistance(text, meant) * 3 > std::max(text.size(), size_t{3})) {
    const auto begun = std::find_if(names.begin(), names.end(), [text](std::string_view name) {
      return text.size() >= kBeginning && name.starts_with(text);
    });
    if (begun == names.end()) return "";
    meant = *begun;
  }
  return "; did you mean " + std::string(meant) + "?";
}

}  // namespace hyperloop
