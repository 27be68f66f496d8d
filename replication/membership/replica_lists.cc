#include "membership/replica_lists.h"

#include <algorithm>

#include "hyperloop/core/text.h"

namespace hyperloop {

void ListReplicas(const std::vector<Configuration::Replica>& replicas,
                  std::vector<std::string>* nodes, std::vector<std::string>* addresses) {
  for (const Configuration::Replica& each : replicas) {
    nodes->push_back(FormatUuid(each.node));
    addresses->push_back(each.address);
  }
}

Result<std::vector<Configuration::Replica>> ParseReplicas(
    const std::vector<std::string>& nodes, const std::vector<std::string>& addresses) {
  if (nodes.size() != addresses.size()) {
    return InvalidArgument(Text("configuration with ", nodes.size(), " node ids and ",
                                addresses.size(), " addresses"));
  }
  std::vector<Configuration::Replica> replicas;
  for (size_t i = 0; i < nodes.size(); ++i) {
    HL_ASSIGN_OR_RETURN(const Uuid node, ParseUuid(nodes[i]));
    replicas.push_back({node, addresses[i]});
  }
  return replicas;
}

Result<Branch> ParseBranch(uint64_t epoch, const std::vector<uint8_t>& owner) {
  Branch branch{epoch, {}};
  if (owner.empty()) return branch;
  if (owner.size() != branch.owner.size())
    return InvalidArgument(Text("branch with an owner of ", owner.size(), " bytes"));
  std::copy(owner.begin(), owner.end(), branch.owner.begin());
  return branch;
}

std::vector<uint8_t> BranchOwner(const Branch& branch) {
  if (branch.owner == kNilUuid) return {};
  return {branch.owner.begin(), branch.owner.end()};
}

}  // namespace hyperloop
