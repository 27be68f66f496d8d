#include "hyperloop/replication/survivors.h"

#include <algorithm>

#include "common/heartbeat_word.h"
#include "control/trust.h"
#include "hyperloop/core/text.h"
#include "membership/strangers.h"
#include "primary/look.h"

namespace hyperloop {
namespace {

// The last look that the newest sealed epoch's owner left.
void DescribeOwner(const std::vector<MemberLook>& looks, Survivors* survivors) {
  const auto newest =
      std::max_element(looks.begin(), looks.end(), [](const MemberLook& a, const MemberLook& b) {
        return a.hello.sealed_epoch < b.hello.sealed_epoch;
      });
  survivors->owner = newest->hello.sealed_owner_name;
  survivors->alive_at = HeartbeatTime(newest->hello.heartbeat);
}

}  // namespace

Result<Survivors> FindSurvivors(const StoreOptions& options) {
  HL_RETURN_IF_ERROR(ValidateStoreOptions(options));
  HL_ASSIGN_OR_RETURN(const control::Trust trust, control::Trust::Load(options.keys, nullptr));
  HL_ASSIGN_OR_RETURN(const auto replicas, ReplicasOf(options, trust));
  std::vector<MissingReplica> missing;
  HL_ASSIGN_OR_RETURN(std::vector<MemberLook> looks,
                      LookAtReplicas(replicas, LookTimes(options, true), true, &missing));
  LeaveOutUnfit(&looks, &missing);
  FailureRules rules = RulesOf(options);
  for (const MissingReplica& each : missing) rules.given_up.push_back(each.address);
  HL_ASSIGN_OR_RETURN(const TakePlan plan, PlanTake(looks, missing, options.region_size, rules));
  if (!plan.forced) {
    return InvalidArgument(Text(
        "enough of the group's replicas are there to go on without giving any up: promote "
        "without --force",
        missing.empty() || rules.may_leave_out ? ""
                                               : ", with on_replica_failure=continue in the URI"));
  }
  Survivors survivors;
  survivors.epoch = plan.recorded.epoch;
  for (const Configuration::Replica& each : plan.configuration.replicas)
    survivors.left.push_back(each.address);
  for (const Configuration::Replica& each : plan.recorded.All()) {
    const auto& left = survivors.left;
    if (std::find(left.begin(), left.end(), each.address) == left.end())
      survivors.lost.push_back(each.address);
  }
  DescribeOwner(looks, &survivors);
  return survivors;
}

}  // namespace hyperloop
