// With which datapath a group is armed, and how its primary waits, if its options leave the choice
// (datapath=auto, wait=auto).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "hyperloop/core/group.h"
#include "hyperloop/core/rnic.h"

namespace hyperloop {

struct DatapathChoice {
  Datapath datapath{};
  std::string_view why;  // for people; points to static text
};

struct WaitChoice {
  WaitMode wait{};
  std::string_view why;  // as above
};

// `rnics`: that of each replica, in the order of the chain (rnic::Device::rnic). A chain that RNICs
// forward needs more requests for an operation than writes to each replica. Within one RNIC they
// cost nothing but its time; between RNICs each hop waits for a network.
DatapathChoice ChooseDatapath(std::span<const uint64_t> rnics);

// `own`: the primary's RNIC. `processors`: on so many it may run. A primary that polls without end
// takes a processor that with few of them its RNIC, or its program, has need of; and what passes
// between machines takes so long that sleeping costs little.
WaitChoice ChooseWait(const rnic::Caps& caps, uint64_t own, std::span<const uint64_t> rnics,
                      int processors);

}  // namespace hyperloop
