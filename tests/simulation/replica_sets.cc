#include "simulation/replica_sets.h"

#include <algorithm>

namespace hyperloop::simulation {

std::string ReplicaList::Text() const {
  std::string text;
  for (const int each : replicas) text += (text.empty() ? "" : ",") + std::to_string(each);
  if (added != -1) text += "?add_replica=" + std::to_string(added);
  if (removed != -1) text += "?remove_replica=" + std::to_string(removed);
  return text;
}

ReplicaSets::ReplicaSets(int count) {
  ReplicaList first;
  for (int i = 0; i < count; ++i) first.replicas.push_back(i);
  MayServe(first);
}

bool ReplicaSets::known() const {
  return std::ranges::all_of(
      lists_, [this](const ReplicaList& each) { return each.Set() == lists_.front().Set(); });
}

std::set<int> ReplicaSets::All() const {
  std::set<int> all;
  for (const ReplicaList& each : lists_) all.merge(each.Set());
  return all;
}

bool ReplicaSets::Has(const std::set<int>& set) const {
  return std::ranges::any_of(lists_, [&](const ReplicaList& each) { return each.Set() == set; });
}

std::vector<std::set<int>> ReplicaSets::Former() const {
  std::vector<std::set<int>> former;
  for (const std::set<int>& each : seen_)
    if (!Has(each)) former.push_back(each);
  return former;
}

void ReplicaSets::MayServe(const ReplicaList& list) {
  if (std::ranges::find(lists_, list) == lists_.end()) lists_.push_back(list);
  seen_.insert(list.Set());
}

void ReplicaSets::Serves(const ReplicaList& list) { lists_ = {list}; }

}  // namespace hyperloop::simulation
