// ReplicaSets: which replicas the group has, as far as its callers know. Each caller opens the
// group by a list of replicas, perhaps with a word that changes the group. Whether a change that
// was cut short has been made is known after the next opening that was granted.
#pragma once

#include <cstddef>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace hyperloop::simulation {

// What a caller's URI says of replicas. They are numbers, as in World; -1: none.
struct ReplicaList {
  std::vector<int> replicas;
  int added = -1;    // add_replica=
  int removed = -1;  // remove_replica=

  bool operator==(const ReplicaList&) const = default;
  bool changes() const { return added != -1 || removed != -1; }
  std::set<int> Set() const { return {replicas.begin(), replicas.end()}; }
  // The list without the word.
  ReplicaList Plain() const { return {replicas}; }
  std::string Text() const;
};

class ReplicaSets {
 public:
  explicit ReplicaSets(int count);  // the group is made of the first ones

  // By one of these lists the group opens while all replicas are well. Several lists can be of the
  // same set.
  const std::vector<ReplicaList>& lists() const { return lists_; }
  const ReplicaList& Any(std::mt19937_64& random) const { return lists_[random() % lists_.size()]; }
  // Whether all lists are of one set.
  bool known() const;
  // The replicas of any list, in order.
  std::set<int> All() const;
  bool Has(const std::set<int>& set) const;
  // Sets that were asked for or opened, and are of no list now.
  std::vector<std::set<int>> Former() const;

  // Somebody is about to open the group by this list.
  void MayServe(const ReplicaList& list);
  // An opening by this list was granted.
  void Serves(const ReplicaList& list);

 private:
  std::vector<ReplicaList> lists_;
  std::set<std::set<int>> seen_;
};

}  // namespace hyperloop::simulation
