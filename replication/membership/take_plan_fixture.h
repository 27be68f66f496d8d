// Fixture for tests of PlanTake: the answers of the three replicas of a group.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "membership/take_plan.h"
#include "support/status_matchers.h"

namespace hyperloop {

inline constexpr char kGroup[] = "11111111-1111-4111-8111-111111111111";
inline constexpr char kOther[] = "22222222-2222-4222-8222-222222222222";

class PlanTest : public testing::Test {
 protected:
  PlanTest() {
    for (int i = 0; i < 3; ++i) {
      MemberLook look;
      look.name = "replica r" + std::to_string(i);
      look.address = "10.0.0." + std::to_string(i) + ":7000";
      look.hello.node_id = NodeId(i);
      look.hello.device = "ready";
      look.hello.region_size = 1 << 20;
      members_.push_back(look);
    }
  }
  static std::string NodeId(int i) {
    return "00000000-0000-4000-8000-00000000000" + std::to_string(i);
  }
  void AllOfGroup(uint64_t epoch) {
    for (MemberLook& each : members_) {
      each.hello.group = kGroup;
      each.hello.sealed_epoch = each.hello.installed_epoch = epoch;
      each.hello.installed_nodes = {NodeId(0), NodeId(1), NodeId(2)};
      each.hello.installed_replicas = {"10.0.0.0:7000", "10.0.0.1:7000", "10.0.0.2:7000"};
    }
  }
  Status Refusal() { return PlanTake(members_, {}, 0, {}).status(); }
  std::vector<MemberLook> members_;
};

}  // namespace hyperloop
