// Configuration: who a group is from an epoch on, and what a node promises and knows of it. The
// terms are explained in docs/glossary.md. layout/ says how these values lie on media, and
// membership/replica_lists.h how messages carry them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/uuid.h"
#include "hyperloop/replication/directive.h"

namespace hyperloop {

inline constexpr size_t kMaxConfigurationReplicas = 8;  // the absent ones included
inline constexpr size_t kMaxReplicaAddress = 79;        // bytes

// The history of a group splits if replicas are given up without a majority (hyperloopctl promote
// --force), because those may live. What follows such a promotion is a branch. Nodes of different
// branches never serve together, and none is made equal to the other.
struct Branch {
  uint64_t epoch = 0;  // the one with which it began; 0: it began with the group
  Uuid owner{};        // digest of the id of that epoch's owner, which makes it unique
  friend bool operator==(const Branch&, const Branch&) = default;
};

// Says who a group is from an epoch on. Changing it needs a majority of `replicas`.
struct Configuration {
  uint64_t epoch = 0;
  Uuid owner{};  // digest of the id of the primary of that epoch (control/owner.h)
  struct Replica {
    Uuid node{};
    std::string address;  // "host:port" of its control endpoint, at most kMaxReplicaAddress bytes
    friend bool operator==(const Replica&, const Replica&) = default;
  };
  std::vector<Replica> replicas;  // in the order of the chain; each holds what is acknowledged
  // Replicas that failed and were left out. Nothing is acknowledged by them until they are back.
  std::vector<Replica> absent = {};
  Branch branch = {};

  // `replicas`, then `absent`.
  std::vector<Replica> All() const;
  // Whether one of All() has this address.
  bool Has(const std::string& address) const;
};

// Whether a configuration may have so many replicas, the absent ones included.
constexpr bool CountsFit(uint32_t replicas, uint32_t absent) {
  return replicas <= kMaxConfigurationReplicas && absent <= kMaxConfigurationReplicas - replicas;
}

// The promises and the knowledge of one node.
struct NodeState {
  uint64_t generation = 0;  // of the copy on media, which whoever writes it sets
  Uuid node{};
  Uuid group{};  // nil: the node was never sealed for a group
  uint64_t sealed_epoch = 0;
  Uuid sealed_owner{};      // digest of its id, as Configuration::owner
  Configuration installed;  // epoch 0: none
  bool released = false;    // the owner of the sealed epoch has released the node
  // That owner only made the database ready for a program that is to open it.
  bool awaits_opening = false;
  // What operators told the group's agents last, as far as this node knows, and the greatest number
  // that it has promised to whoever changes that.
  Directive directive;
  DirectiveNumber promised;
};

}  // namespace hyperloop
