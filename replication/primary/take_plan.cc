#include "primary/take_plan.h"

#include <algorithm>
#include <tuple>

#include "common/text.h"

namespace hyperloop {
namespace {

Status CheckSizes(std::span<const MemberLook> members, uint64_t region_size) {
  const uint64_t first = members.front().hello.region_size;
  for (const MemberLook& each : members) {
    if (each.hello.region_size != first) {
      return InvalidArgument(Text(each.name, " has a region of ", each.hello.region_size, " B, ",
                                  members.front().name, " one of ", first,
                                  " B; all replicas of a group need the same size"));
    }
  }
  if (region_size != 0 && region_size != first) {
    return InvalidArgument(Text("region_size=", region_size, " but the replicas have regions of ",
                                first, " B; leave region_size out or set it to that"));
  }
  return {};
}

Status CheckDistinct(std::span<const MemberLook> members) {
  for (size_t i = 0; i < members.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (members[i].hello.node_id == members[j].hello.node_id) {
        return InvalidArgument(Text(members[i].name, " and ", members[j].name,
                                    " are the same replica (node ", members[i].hello.node_id,
                                    "); list each once"));
      }
    }
  }
  return {};
}

// All members are of the group that the first installed one belongs to.
Status CheckGroups(std::span<const MemberLook> members, const MemberLook& first) {
  for (const MemberLook& each : members) {
    if (each.hello.group == first.hello.group) continue;
    if (each.hello.installed_epoch == 0) {
      return InvalidArgument(
          Text(each.name, " is fresh while ", first.name, " belongs to group ", first.hello.group,
               "; list the replicas that the group was made with, or fresh ones only"));
    }
    return InvalidArgument(Text(each.name, " belongs to group ", each.hello.group, ", ", first.name,
                                " to group ", first.hello.group,
                                "; list the replicas of one group"));
  }
  return {};
}

}  // namespace

Result<TakePlan> PlanTake(std::span<const MemberLook> members, uint64_t region_size) {
  for (const MemberLook& each : members) {
    if (each.hello.device != "ready") return Unavailable(Text(each.name, ": ", each.hello.device));
  }
  HL_RETURN_IF_ERROR(CheckDistinct(members));
  HL_RETURN_IF_ERROR(CheckSizes(members, region_size));
  TakePlan plan;
  plan.region_size = members.front().hello.region_size;
  const auto installed = std::find_if(members.begin(), members.end(), [](const MemberLook& m) {
    return m.hello.installed_epoch != 0;
  });
  plan.format = installed == members.end();
  if (plan.format) {
    plan.group = RandomUuid();
  } else {
    HL_RETURN_IF_ERROR(CheckGroups(members, *installed));
    HL_ASSIGN_OR_RETURN(plan.group, ParseUuid(installed->hello.group));
  }
  for (const MemberLook& each : members)
    plan.epoch = std::max(plan.epoch, each.hello.sealed_epoch + 1);
  return plan;
}

const MemberLook* LivingOwner(std::span<const MemberLook> before,
                              std::span<const MemberLook> after) {
  for (size_t i = 0; i < after.size(); ++i) {
    const auto& now = after[i].hello;
    if (now.sealed_epoch == 0 || now.released) continue;
    if (now.heartbeat != before[i].hello.heartbeat) return &after[i];
  }
  return nullptr;
}

bool NobodyToWatch(std::span<const MemberLook> members) {
  return std::all_of(members.begin(), members.end(), [](const MemberLook& m) {
    return m.hello.sealed_epoch == 0 || m.hello.released;
  });
}

Status CheckPairing(const TakeRequest& request, bool restore, const Uuid& group,
                    const Binding& binding, size_t files) {
  const std::string own_group = FormatUuid(group);
  if (!request.pairing.group.empty()) {
    const std::string own_database = FormatUuid(binding.database);
    if (request.pairing.group == own_group && request.pairing.database == own_database) return {};
    if (request.pairing.group != own_group) {
      return InvalidArgument(Text(request.directory, " belongs to group ", request.pairing.group,
                                  ", these replicas are group ", own_group,
                                  "; name that group's replicas, or use another directory"));
    }
    return InvalidArgument(Text("group ", own_group, " now belongs to database ", own_database,
                                " (", binding.directory, "), ", request.directory,
                                " holds database ", request.pairing.database,
                                "; use another directory"));
  }
  if (!request.directory_empty) {
    return InvalidArgument(Text(request.directory, " holds a database that was never in group ",
                                own_group,
                                "; open it without the group, or name an empty directory"));
  }
  if (files != 0 && !restore) {
    return InvalidArgument(
        Text(request.directory, " is empty but group ", own_group, " holds the ", files,
             " files of ", binding.directory,
             "; give restore=true to fill the directory from the group, or use fresh replicas"));
  }
  return {};
}

Result<Choice> ChooseMember(std::span<const SealedMember> members) {
  const auto rank = [](const SealedMember& m) {
    return std::tuple(m.reply.installed_epoch, m.reply.last_seq, m.reply.executed_seq);
  };
  uint64_t newest = 0;
  for (const SealedMember& each : members) newest = std::max(newest, each.reply.installed_epoch);
  Choice choice;
  const SealedMember* best = nullptr;
  std::string damaged;
  for (size_t i = 0; i < members.size(); ++i) {
    // Also of an older epoch: what was acknowledged then is in every log that was installed later.
    choice.known_acked = std::max(choice.known_acked, members[i].reply.acked_seq);
    if (members[i].reply.installed_epoch != newest) continue;
    if (!members[i].reply.log_error.empty()) {
      damaged += Text("; ", members[i].name, ": ", members[i].reply.log_error);
      continue;
    }
    if (best != nullptr && rank(members[i]) <= rank(*best)) continue;
    best = &members[i];
    choice.index = i;
  }
  if (best == nullptr) {
    return Corruption(Text("no replica of epoch ", newest, " has a sound log", damaged));
  }
  if (best->reply.last_seq < choice.known_acked) {
    return Corruption(Text("record ", choice.known_acked,
                           " was acknowledged but the best log, that of ", best->name, ", ends at ",
                           best->reply.last_seq, damaged));
  }
  return choice;
}

}  // namespace hyperloop
