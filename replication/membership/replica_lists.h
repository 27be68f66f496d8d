// The replicas of a configuration, and its branch, as control messages carry them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hyperloop/core/status.h"
#include "membership/configuration.h"

namespace hyperloop {

// Appends each replica's node id and address to the lists.
void ListReplicas(const std::vector<Configuration::Replica>& replicas,
                  std::vector<std::string>* nodes, std::vector<std::string>* addresses);
// kInvalidArgument: the lists differ in length, or an entry of `nodes` is no node id.
Result<std::vector<Configuration::Replica>> ParseReplicas(
    const std::vector<std::string>& nodes, const std::vector<std::string>& addresses);

// The branch of a configuration as messages carry it: `owner` is empty, or a digest.
// kInvalidArgument: it has another length.
Result<Branch> ParseBranch(uint64_t epoch, const std::vector<uint8_t>& owner);
std::vector<uint8_t> BranchOwner(const Branch& branch);

}  // namespace hyperloop
