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

WaitChoice ChooseWait(const rnic::Caps& caps, uint64_t own, std::span<const uint64_t> rnics,
                      int processors) {
  constexpr int kMany = 4;
  if (!caps.completion_events) return {WaitMode::kPoll, "this node's RNIC wakes nobody"};
  if (std::ranges::any_of(rnics, [own](uint64_t each) { return each != own; }))
    return {WaitMode::kHybrid, "a replica has another RNIC than this node"};
  if (processors < kMany)
    return {WaitMode::kHybrid, "this program may use fewer than four processors"};
  return {WaitMode::kPoll, "one RNIC serves all nodes, and there are processors"};
}

}  // namespace hyperloop
