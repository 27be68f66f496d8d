// Directive: what operators tell all agents of a group. The group's replicas keep it, and it
// survives their restarts and whoever takes the group.
//
// It is one value, which is replaced as a whole. Whoever changes it makes a new number, has a
// majority of the replicas promise to take no directive of a smaller one, changes the newest
// directive that these have, and gives them the result. So of two that change it at a time one
// begins anew, and each directive was made by somebody who knew all that were acknowledged before.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hyperloop {

inline constexpr size_t kMaxDirectiveNode = 40;  // bytes of a node's name
inline constexpr size_t kMaxDrained = 8;         // nodes
inline constexpr size_t kMaxDirectiveBy = 120;   // bytes
// A number may exceed the one that a replica has promised by at most this, so that nobody can use
// all of them up.
inline constexpr uint64_t kMaxDirectiveStep = 1u << 20;

struct DirectiveNumber {
  uint64_t count = 0;   // 0: none was ever made
  uint64_t writer = 0;  // random, so that no two are equal
  friend auto operator<=>(const DirectiveNumber&, const DirectiveNumber&) = default;
};

struct Directive {
  DirectiveNumber number;
  bool paused = false;  // nobody starts a service, or ends a healthy one
  // A switchover: the owner of this id (NodeStatus::owner) is to leave the group to the agent of
  // this node. It is over once another owner has the group. Empty: there is none.
  std::string owner, node;
  std::vector<std::string> drained;  // nodes on which no service is to run
  std::string by;                    // for people: who made it
  uint64_t when = 0;                 // and when; seconds since 1970

  bool Drains(const std::string& name) const {
    for (const std::string& each : drained)
      if (each == name) return true;
    return false;
  }
  friend bool operator==(const Directive&, const Directive&) = default;
};

}  // namespace hyperloop
