#include "hyperloop/identity/admission.h"

#include <map>

namespace hyperloop {

std::optional<size_t> WhoGivesWay(std::span<const Stranger> strangers, std::string_view source,
                                  const KnownSources& known, const StrangerLimits& limits,
                                  bool full) {
  struct Sum {
    size_t count = 0;
    size_t least = 0;
  };
  std::map<std::string_view, Sum> sources;
  size_t unknown = 0;
  for (size_t i = 0; i < strangers.size(); ++i) {
    Sum& sum = sources[strangers[i].source];
    if (sum.count++ == 0 || strangers[i].rank < strangers[sum.least].rank) sum.least = i;
    if (!known.contains(strangers[i].source)) ++unknown;
  }
  const bool is_known = known.contains(source);
  const auto own = sources.find(source);
  if (own != sources.end() && own->second.count >= (is_known ? limits.of_known : limits.of_source))
    return own->second.least;
  if (!full && (is_known || unknown < limits.all)) return std::nullopt;
  const Sum* most = nullptr;
  for (const auto& [each, sum] : sources) {
    // Strangers beside known peers give way to known sources alone, if there are no others.
    if (known.contains(each) && (!is_known || unknown != 0)) continue;
    if (most == nullptr || sum.count > most->count ||
        (sum.count == most->count && strangers[sum.least].rank < strangers[most->least].rank))
      most = &sum;
  }
  if (most == nullptr) return std::nullopt;
  return most->least;
}

}  // namespace hyperloop
