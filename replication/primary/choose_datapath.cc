#include "primary/choose_datapath.h"

#include <algorithm>

namespace hyperloop {

DatapathChoice ChooseDatapath(std::span<const uint64_t> rnics) {
  if (std::ranges::find(rnics, 0) != rnics.end())
    return {Datapath::kFanout, "the RNIC of a replica has no cross-channel operations"};
  if (std::ranges::adjacent_find(rnics, std::ranges::not_equal_to{}) != rnics.end())
    return {Datapath::kFanout, "the replicas' RNICs are apart"};
  return {Datapath::kOffload, "one RNIC serves all replicas"};
}

}  // namespace hyperloop
