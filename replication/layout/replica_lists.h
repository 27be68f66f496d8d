// The replicas of a configuration as control messages carry them: two lists of texts.
#pragma once

#include <string>
#include <vector>

#include "layout/region_layout.h"

namespace hyperloop {

// Appends each replica's node id and address to the lists.
void ListReplicas(const std::vector<Configuration::Replica>& replicas,
                  std::vector<std::string>* nodes, std::vector<std::string>* addresses);
// kInvalidArgument: the lists differ in length, or an entry of `nodes` is no node id.
Result<std::vector<Configuration::Replica>> ParseReplicas(
    const std::vector<std::string>& nodes, const std::vector<std::string>& addresses);

}  // namespace hyperloop
