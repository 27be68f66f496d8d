#include "simulation/seeds.h"

#include <charconv>
#include <optional>
#include <string>
#include <system_error>

namespace hyperloop::simulation {
namespace {

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Result<SeedRange> ParseRange(std::string_view text) {
  const size_t dash = text.find('-');
  const auto first = ParseNumber(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : ParseNumber(text.substr(dash + 1));
  if (!first || !last)
    return InvalidArgument("\"" + std::string(text) + "\" is neither a number below 2^64 nor A-B");
  if (*first > *last) return InvalidArgument(std::string(text) + " ends before it begins");
  return SeedRange{*first, *last};
}

}  // namespace

Result<std::vector<SeedRange>> ParseSeeds(std::string_view text) {
  std::vector<SeedRange> seeds;
  for (size_t at = 0; at <= text.size();) {
    const std::string_view part = text.substr(at, text.find(',', at) - at);
    HL_ASSIGN_OR_RETURN(const SeedRange range, ParseRange(part));
    if (!seeds.empty() && range.first <= seeds.back().last)
      return InvalidArgument(std::to_string(range.first) + " is not above " +
                             std::to_string(seeds.back().last) + ", which stands before it");
    seeds.push_back(range);
    at += part.size() + 1;
  }
  return seeds;
}

}  // namespace hyperloop::simulation
