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
      return InvalidArgument(
          Text(each.name, " has a region of ", each.hello.region_size, " B, ", members.front().name,
               " one of ", first,
               " B; all replicas of a group need the same size: hyperloopctl resize"));
    }
  }
  if (region_size != 0 && region_size != first) {
    return InvalidArgument(Text("region_size=", region_size, " but the replicas have regions of ",
                                first,
                                " B; leave region_size out or set it to that, or give all "
                                "pools another size with hyperloopctl resize"));
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

// Checks that all members belong to the group of `first`, the first one that is installed.
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

std::string Chain(const std::vector<std::string>& addresses) {
  std::string out;
  for (const std::string& each : addresses) out += (out.empty() ? "" : ", ") + each;
  return out;
}

// Checks that the members are exactly the replicas that the newest configuration among them names.
Status CheckRecorded(std::span<const MemberLook> members) {
  const MemberLook* newest = &members.front();
  for (const MemberLook& each : members) {
    if (each.hello.installed_epoch > newest->hello.installed_epoch) newest = &each;
  }
  const auto& recorded = newest->hello.installed_nodes;
  const std::string chain =
      Text("the group's recorded replicas are ", Chain(newest->hello.installed_replicas),
           " (configuration of epoch ", newest->hello.installed_epoch, ", at ", newest->name, ")");
  for (size_t i = 0; i < recorded.size(); ++i) {
    const bool listed = std::any_of(members.begin(), members.end(), [&](const MemberLook& m) {
      return m.hello.node_id == recorded[i];
    });
    if (listed) continue;
    return InvalidArgument(Text(chain, "; ", newest->hello.installed_replicas[i], " (node ",
                                recorded[i],
                                ") is not among those listed, and a part of a group is not the "
                                "group: list all of them, at their present addresses"));
  }
  for (const MemberLook& each : members) {
    if (std::find(recorded.begin(), recorded.end(), each.hello.node_id) != recorded.end()) continue;
    return InvalidArgument(Text(each.name, " (node ", each.hello.node_id,
                                ") is not of this configuration: ", chain, "; list those only"));
  }
  return {};
}

Status CheckNodes(std::span<const MemberLook> members, Configuration* configuration) {
  for (const MemberLook& each : members) {
    HL_ASSIGN_OR_RETURN(const Uuid node, ParseUuid(each.hello.node_id));
    configuration->replicas.push_back({node, each.address});
  }
  return {};
}

}  // namespace

Result<TakePlan> PlanTake(std::span<const MemberLook> members, uint64_t region_size) {
  for (const MemberLook& each : members) {
    if (each.hello.device != "ready") return Unavailable(Text(each.name, ": ", each.hello.device));
  }
  HL_RETURN_IF_ERROR(CheckDistinct(members));
  TakePlan plan;
  const auto installed = std::find_if(members.begin(), members.end(), [](const MemberLook& m) {
    return m.hello.installed_epoch != 0;
  });
  plan.format = installed == members.end();
  if (plan.format) {
    plan.group = RandomUuid();
  } else {
    HL_RETURN_IF_ERROR(CheckGroups(members, *installed));
    HL_RETURN_IF_ERROR(CheckRecorded(members));
    HL_ASSIGN_OR_RETURN(plan.group, ParseUuid(installed->hello.group));
  }
  HL_RETURN_IF_ERROR(CheckSizes(members, region_size));
  plan.region_size = members.front().hello.region_size;
  for (const MemberLook& each : members) {
    plan.epoch = std::max(plan.epoch, each.hello.sealed_epoch + 1);
    plan.installed_epoch = std::max(plan.installed_epoch, each.hello.installed_epoch);
  }
  plan.configuration.epoch = plan.epoch;
  HL_RETURN_IF_ERROR(CheckNodes(members, &plan.configuration));
  return plan;
}

bool IsOwner(const control::HelloReplyT& hello, const Uuid& digest) {
  return std::equal(hello.sealed_owner.begin(), hello.sealed_owner.end(), digest.begin(),
                    digest.end());
}

Judgement JudgeStanding(const Configuration& own,
                        std::span<const std::optional<control::HelloReplyT>> before,
                        std::span<const std::optional<control::HelloReplyT>> now) {
  // An epoch that this primary sealed in an attempt that was cut short is still its own.
  const auto mine = [&](const control::HelloReplyT& hello) { return IsOwner(hello, own.owner); };
  Judgement out{Standing::kOwner, own.epoch + 1, ""};
  for (size_t i = 0; i < own.replicas.size(); ++i) {
    if (!now[i].has_value()) continue;
    const control::HelloReplyT& hello = *now[i];
    const std::string name = "replica " + own.replicas[i].address;
    if (hello.node_id != FormatUuid(own.replicas[i].node)) {
      return {Standing::kFenced, 0,
              Text(name, " is now node ", hello.node_id, ", not node ",
                   FormatUuid(own.replicas[i].node), " of this group's configuration (epoch ",
                   own.epoch, ")")};
    }
    if (hello.installed_epoch > own.epoch && !mine(hello)) {
      return {Standing::kFenced, 0,
              Text("another primary took the group: epoch ", hello.installed_epoch, " by ",
                   hello.sealed_owner_name, " at ", name, " (ours was epoch ", own.epoch, ")")};
    }
    if (mine(hello) && hello.sealed_epoch == own.epoch) continue;
    out.epoch = std::max(out.epoch, hello.sealed_epoch + 1);
    if (out.standing == Standing::kOwner) out.standing = Standing::kReclaim;
    const bool watched =
        i < before.size() && before[i].has_value() && before[i]->sealed_epoch == hello.sealed_epoch;
    if (mine(hello) || hello.released || (watched && before[i]->heartbeat == hello.heartbeat))
      continue;
    out.standing = Standing::kWait;
    out.why = Text(name, " was sealed for ", hello.sealed_owner_name, " (epoch ",
                   hello.sealed_epoch, "), who may be about to take the group");
  }
  for (size_t i = 0; i < own.replicas.size(); ++i) {
    if (now[i].has_value()) continue;
    return {Standing::kWait, 0,
            Text("replica ", own.replicas[i].address,
                 " does not answer; every replica of the configuration is needed")};
  }
  return out;
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

Status CheckPairing(const TakeRequest& request, const StoreOptions& options, const Uuid& group,
                    const Binding& binding, size_t files) {
  const std::string own_group = FormatUuid(group);
  const std::string own_database = FormatUuid(binding.database);
  if (!request.pairing.group.empty()) {
    if (request.pairing.group != own_group) {
      return InvalidArgument(Text(request.directory, " belongs to group ", request.pairing.group,
                                  ", these replicas are group ", own_group,
                                  "; name that group's replicas, or use another directory"));
    }
    if (request.pairing.database == own_database || options.rebind) return {};
    return InvalidArgument(Text(
        "group ", own_group, " now belongs to database ", own_database, " (", binding.directory,
        "), ", request.directory, " holds database ", request.pairing.database,
        "; open that directory, or give rebind=true to bind the group to this one again: it "
        "is then set to what the group holds"));
  }
  if (!request.directory_empty) {
    return InvalidArgument(Text(request.directory, " holds a database that was never in group ",
                                own_group,
                                "; open it without the group, or name an empty directory"));
  }
  if (files == 0) return {};
  if (!options.restore) {
    return InvalidArgument(
        Text(request.directory, " is empty but group ", own_group, " holds the ", files,
             " files of ", binding.directory,
             "; give restore=true and rebind=true to fill this directory from the group, or use "
             "fresh replicas"));
  }
  if (options.rebind || binding.database == kNilUuid) return {};
  return InvalidArgument(
      Text("group ", own_group, " is bound to ", binding.directory, " (database ", own_database,
           "), which would be refused once ", request.directory,
           " has taken its place; open it there, or, if that directory is gone, add rebind=true"));
}

Result<Choice> ChooseMember(std::span<const MemberContent> members) {
  const auto rank = [](const MemberContent& m) {
    return std::tuple(m.content.last_seq, -static_cast<int64_t>(m.content.damage.size()),
                      m.content.executed_seq);
  };
  uint64_t newest = 0;
  for (const MemberContent& each : members) newest = std::max(newest, each.content.installed_epoch);
  Choice choice;
  const MemberContent* best = nullptr;
  std::string damaged;
  for (size_t i = 0; i < members.size(); ++i) {
    const control::ContentT& content = members[i].content;
    // A member of an older epoch counts too: every log that was installed later holds the records
    // that were acknowledged then.
    choice.known_acked = std::max(choice.known_acked, content.acked_seq);
    if (content.installed_epoch != newest) continue;
    if (!content.log_error.empty()) {
      damaged += Text("; ", members[i].name, ": ", content.log_error);
      continue;
    }
    if (best != nullptr && rank(members[i]) <= rank(*best)) continue;
    best = &members[i];
    choice.index = i;
  }
  if (best == nullptr) {
    return Corruption(Text("no replica of epoch ", newest, " has a sound log", damaged));
  }
  if (best->content.last_seq < choice.known_acked) {
    return Corruption(Text("record ", choice.known_acked,
                           " was acknowledged but the best log, that of ", best->name, ", ends at ",
                           best->content.last_seq, damaged));
  }
  return choice;
}

Status CheckLogged(const TakePlan& plan, const Configuration& logged) {
  if (logged.epoch == 0 || logged.epoch < plan.installed_epoch) return {};
  const auto nodes = [](const Configuration& configuration) {
    std::vector<Uuid> out;
    for (const auto& each : configuration.replicas) out.push_back(each.node);
    std::sort(out.begin(), out.end());
    return out;
  };
  if (nodes(plan.configuration) == nodes(logged)) return {};
  std::vector<std::string> chain;
  for (const auto& each : logged.replicas) chain.push_back(each.address);
  return Corruption(Text("the nodes name other replicas than the log itself, which names ",
                         Chain(chain), " (configuration of epoch ", logged.epoch,
                         "); list the replicas of the log"));
}

std::vector<size_t> MembersOf(std::span<const MemberContent> members, uint64_t installed_epoch) {
  std::vector<size_t> out;
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i].content.installed_epoch == installed_epoch) out.push_back(i);
  }
  return out;
}

std::vector<std::string> DescribeDamage(std::span<const MemberContent> members) {
  std::vector<std::string> lines;
  for (const MemberContent& each : members) {
    if (!each.content.log_error.empty())
      lines.push_back(Text(each.name, ": ", each.content.log_error));
    for (const std::string& what : each.content.damage)
      lines.push_back(Text(each.name, ": ", what));
  }
  return lines;
}

}  // namespace hyperloop
