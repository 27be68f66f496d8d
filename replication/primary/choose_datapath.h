// Which datapath a group is armed with if its options leave the choice (datapath=auto).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "hyperloop/core/group.h"

namespace hyperloop {

struct DatapathChoice {
  Datapath datapath{};
  std::string_view why;  // for people; points to static text
};

// `rnics`: that of each replica, in the order of the chain (rnic::Device::rnic). A chain that RNICs
// forward needs more requests for an operation than writes to each replica. Within one RNIC they
// cost nothing but its time; between RNICs each hop waits for a network.
DatapathChoice ChooseDatapath(std::span<const uint64_t> rnics);

}  // namespace hyperloop
