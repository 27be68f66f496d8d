#include "membership/configuration.h"

#include <algorithm>

namespace hyperloop {

std::vector<Configuration::Replica> Configuration::All() const {
  std::vector<Replica> all = replicas;
  all.insert(all.end(), absent.begin(), absent.end());
  return all;
}

bool Configuration::Has(const std::string& address) const {
  const std::vector<Replica> all = All();
  return std::ranges::any_of(all, [&](const Replica& each) { return each.address == address; });
}

}  // namespace hyperloop
