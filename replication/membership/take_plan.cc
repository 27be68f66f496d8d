#include "membership/take_plan.h"

#include <algorithm>

#include "hyperloop/core/text.h"
#include "membership/fresh_pool.h"
#include "membership/replica_lists.h"
#include "membership/strangers.h"

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

// The missing replicas with their reasons, to go on a message.
std::string WhyEach(std::span<const MissingReplica> missing) {
  std::string why;
  for (const MissingReplica& each : missing) why += Text("; ", each.name, ": ", each.why);
  return why;
}

// Which of two pools of one node is to be kept.
std::string WhichIsNewer(const MemberLook& a, const MemberLook& b) {
  if (NewestEpoch(a) == NewestEpoch(b)) return "";
  const MemberLook& newer = NewestEpoch(a) > NewestEpoch(b) ? a : b;
  return Text(": what ", newer.name, " holds is the newer, of epoch ", NewestEpoch(newer),
              "; start that pool at the replica's own address, and set the other one aside");
}

Status CheckDistinct(std::span<const MemberLook> members) {
  for (size_t i = 0; i < members.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (members[i].hello.node_id == members[j].hello.node_id) {
        return InvalidArgument(Text(members[i].name, " and ", members[j].name,
                                    " are the same replica (node ", members[i].hello.node_id,
                                    "); list each once", WhichIsNewer(members[i], members[j])));
      }
    }
  }
  return {};
}

Status CheckSense(std::span<const MemberLook> members) {
  for (const MemberLook& each : members) {
    const std::string why = WhyNonsense(each);
    if (why.empty()) continue;
    return InvalidArgument(Text(each.name, " ", why, "; end it and see to its host"));
  }
  return {};
}

Status CheckEpochs(std::span<const MemberLook> members) {
  for (const MemberLook& each : members) {
    const std::string why = WhyFarAhead(each, members);
    if (why.empty()) continue;
    return InvalidArgument(Text(each.name, " ", why,
                                "; end it and see to its host: on_replica_failure=continue goes on "
                                "without it where a majority is left"));
  }
  return {};
}

Status CheckGivenUp(std::span<const MemberLook> members, const std::vector<std::string>& given_up) {
  for (const MemberLook& each : members) {
    if (std::find(given_up.begin(), given_up.end(), each.address) == given_up.end()) continue;
    return InvalidArgument(Text(each.name,
                                " was to be given up as lost, but answers; nothing was "
                                "changed"));
  }
  return {};
}

// Checks that all members that ever served belong to the group of `first`, one of them.
Status CheckGroups(std::span<const MemberLook> members, const MemberLook& first) {
  for (const MemberLook& each : members) {
    if (each.hello.group == first.hello.group || each.hello.installed_epoch == 0) continue;
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

// The ways out if too few replicas are left to agree on anything.
constexpr char kForce[] =
    "; if the others are lost for good: list all of them, and hyperloopctl promote --force goes on "
    "with what is left";
// It is not known then whether the others have gone on without those that are left.
constexpr char kNewGroup[] =
    "; if the others are lost for good: the last primary's directory, where it is whole, holds all "
    "that was acknowledged; hyperloopctl export writes what one that is left holds, and says "
    "whether it may lack something; hyperloopctl adopt takes either into a new group";

// Checks what is listed against the newest configuration that a member has recorded. A refusal
// names only ways out that would be granted, which a second check finds out: that one has not
// `names_ways_out`.
class ListCheck {
 public:
  ListCheck(std::span<const MemberLook> members, std::span<const MissingReplica> missing,
            const FailureRules& rules, const ReplicaChange& change, bool names_ways_out = true)
      : members_(members),
        missing_(missing),
        rules_(rules),
        change_(change),
        names_ways_out_(names_ways_out) {}

  // Fills the plan's recorded configuration, joiners, absent replicas and change.
  Status Plan(TakePlan* plan) {
    HL_ASSIGN_OR_RETURN(const MemberLook* const newest, Newest());
    const control::HelloReplyT& hello = newest->hello;
    HL_ASSIGN_OR_RETURN(recorded_, ConfigurationOf(*newest));
    std::vector<std::string> addresses;
    for (const auto& each : recorded_.All()) addresses.push_back(each.address);
    chain_ = Text("the group's recorded replicas are ", Chain(addresses),
                  " (configuration of epoch ", hello.installed_epoch, ", at ", newest->name, ")");
    HL_RETURN_IF_ERROR(CheckBranches(*newest));
    HL_RETURN_IF_ERROR(CheckListed());
    HL_RETURN_IF_ERROR(CheckMembers(&plan->joiners));
    HL_RETURN_IF_ERROR(CheckEnough(&plan->forced));
    HL_ASSIGN_OR_RETURN(plan->change, CheckChange());
    plan->configuration.branch = recorded_.branch;
    for (const auto& each : recorded_.All())
      if (Member(each) == nullptr && Replacement(each) == nullptr && !Leaves(each) && !plan->forced)
        plan->configuration.absent.push_back(each);
    plan->recorded = recorded_;
    plan->unserved = Unserved();
    return {};
  }

 private:
  using Replica = Configuration::Replica;

  // The member whose configuration is the group's: the newest one. If two owners have one of that
  // epoch, it is the one that most of its replicas have installed.
  Result<const MemberLook*> Newest() const {
    const MemberLook* newest = &members_.front();
    for (const MemberLook& each : members_)
      if (each.hello.installed_epoch > newest->hello.installed_epoch) newest = &each;
    const MemberLook* known = nullptr;  // one that tells its owner
    const MemberLook* rival = nullptr;  // one that tells another owner
    const MemberLook* most = nullptr;
    for (const MemberLook& each : members_) {
      if (each.hello.installed_epoch != newest->hello.installed_epoch) continue;
      HL_ASSIGN_OR_RETURN(const Configuration installed, ConfigurationOf(each));
      if (!IsOfBranch(newest->hello, installed)) return newest;  // CheckBranches refuses it
      if (installed.owner == kNilUuid) continue;
      if (known == nullptr) known = &each;
      if (IsOfRival(known->hello, installed)) rival = &each;
      if (!HaveMost(installed)) continue;
      if (most != nullptr && IsOfRival(most->hello, installed)) return Contradict(*most, each);
      most = &each;
    }
    if (rival != nullptr && most == nullptr) return Contradict(*known, *rival);
    return rival != nullptr ? most : known != nullptr ? known : newest;
  }
  // Whether most of its replicas have installed this configuration, and are there.
  bool HaveMost(const Configuration& configuration) const {
    const auto has = [&](const MemberLook& each) {
      return HasInstalled(each.hello, configuration) && Counts(configuration, each.hello.node_id);
    };
    return static_cast<size_t>(std::count_if(members_.begin(), members_.end(), has)) >=
           MajorityOf(configuration.replicas.size());
  }
  static Status Contradict(const MemberLook& one, const MemberLook& other) {
    return InvalidArgument(
        Text("start all replicas on the pools that they had (hyperloopctl export --partial writes "
             "what each of them holds): ",
             one.name, " and ", other.name, " have installed epoch ", one.hello.installed_epoch,
             " for different primaries, and what one acknowledged may be missing at the other"));
  }

  const MemberLook* Member(const Replica& replica) const {
    const std::string node = FormatUuid(replica.node);
    for (const MemberLook& each : members_)
      if (each.hello.node_id == node) return &each;
    return nullptr;
  }
  // The new node at the address of one that is gone: a fresh one, or one whose first joining was
  // cut short after it had installed a configuration that nobody served.
  const MemberLook* Replacement(const Replica& replica) const {
    if (Member(replica) != nullptr) return nullptr;
    for (const MemberLook& each : members_) {
      if (each.address == replica.address && each.hello.installed_epoch < recorded_.epoch &&
          !IsRecorded(each.hello.node_id))
        return &each;
    }
    return nullptr;
  }
  // The owner connects all its replicas before it acknowledges anything, so one that has not served
  // would do. But it may have been put back on an old copy of its pool.
  bool Unserved() const {
    return std::none_of(recorded_.replicas.begin(), recorded_.replicas.end(),
                        [&](const Replica& replica) {
                          const MemberLook* const member = Member(replica);
                          return member != nullptr && member->hello.served_epoch >= recorded_.epoch;
                        });
  }
  bool IsRecorded(const std::string& node) const {
    const std::vector<Replica> all = recorded_.All();
    return std::any_of(all.begin(), all.end(),
                       [&](const Replica& each) { return FormatUuid(each.node) == node; });
  }
  bool IsMissing(const Replica& replica) const {
    return std::any_of(missing_.begin(), missing_.end(),
                       [&](const MissingReplica& each) { return each.address == replica.address; });
  }

  bool Leaves(const Replica& replica) const {
    return replica.address == change_.removed && Member(replica) == nullptr;
  }
  bool IsNew(const MemberLook& member) const {
    return member.address == change_.added && !IsRecorded(member.hello.node_id) &&
           member.hello.installed_epoch < recorded_.epoch && !recorded_.Has(member.address);
  }
  Status CheckBranches(const MemberLook& newest) const {
    for (const MemberLook& each : members_) {
      if (!Diverged(each.hello, recorded_, IsRecorded(each.hello.node_id))) continue;
      return InvalidArgument(
          Text("list the replicas of one history only; hyperloopctl export --replica N --to DIR "
               "--partial writes what one of the other holds, and to take it in, ",
               kFreshPool, ": ", each.name, " and ", newest.name,
               " have different histories since hyperloopctl promote --force (epochs ",
               each.hello.branch_epoch, " and ", newest.hello.branch_epoch,
               "; 0: as the group was before)"));
    }
    return {};
  }

  Status CheckListed() const {
    for (const Replica& each : recorded_.All()) {
      if (Member(each) != nullptr || IsMissing(each) || Leaves(each)) continue;
      if (const MemberLook* other = Replacement(each)) {
        if (rules_.may_leave_out) continue;
        return InvalidArgument(Text(
            other->name, " is a new node, and not node ", FormatUuid(each.node),
            ": give that replica its former pool",
            MayGoOn(missing_) ? ", or on_replica_failure=continue to fill the new one from the "
                                "others"
                              : WayWithoutMajority(),
            "; ", chain_));
      }
      return InvalidArgument(
          Text("a part of a group is not the group: list all of them, at their "
               "present addresses",
               WayWithout(each), "; ", each.address, " (node ", FormatUuid(each.node),
               ") is not listed, and ", chain_));
    }
    return {};
  }

  // --- ways out, which follow the cause

  bool Granted(std::span<const MissingReplica> missing, const FailureRules& rules,
               const ReplicaChange& change) const {
    TakePlan ignored;
    return names_ways_out_ &&
           ListCheck(members_, missing, rules, change, false).Plan(&ignored).ok();
  }
  // Whether on_replica_failure=continue is all that is needed to go on without `missing`.
  bool MayGoOn(std::span<const MissingReplica> missing) const {
    return Granted(missing, {true, rules_.min_replicas}, change_);
  }
  // How to take a replica into the group that it does not have.
  std::string WayWith(const MemberLook& member) const {
    if (Granted(missing_, rules_, {member.address, change_.removed}))
      return Text(", or give add_replica=", member.address, " to take it into the group");
    return "; one replica at a time is added, while all recorded ones are there";
  }
  std::string WayWithoutMajority() const {
    FailureRules rules = rules_;
    std::vector<MissingReplica> missing(missing_.begin(), missing_.end());
    for (const Replica& each : recorded_.All())
      if (Member(each) == nullptr && Replacement(each) == nullptr && !IsMissing(each))
        missing.push_back({each.address, each.address, ""});
    for (const MissingReplica& each : missing) rules.given_up.push_back(each.address);
    TakePlan plan;
    const bool granted =
        names_ways_out_ && ListCheck(members_, missing, rules, {}, false).Plan(&plan).ok();
    return granted && plan.forced ? kForce : kNewGroup;
  }
  // How to go on with the replicas that are there.
  std::string WayWithFew() const {
    if (!rules_.may_leave_out && MayGoOn(missing_))
      return "; on_replica_failure=continue goes on without the others";
    if (Granted(missing_, {rules_.may_leave_out, 0}, change_))
      return Text("; min_replicas=", rules_.min_replicas, " keeps it from going on with these");
    return WayWithoutMajority();
  }
  // How to go on without a recorded replica that is not listed.
  std::string WayWithout(const Replica& replica) const {
    if (Granted(missing_, rules_, {change_.added, replica.address}))
      return Text(", or give remove_replica=", replica.address, " to go on for good without it");
    std::vector<MissingReplica> missing(missing_.begin(), missing_.end());
    for (const Replica& each : recorded_.All())
      if (Member(each) == nullptr && Replacement(each) == nullptr && !IsMissing(each))
        missing.push_back({each.address, each.address, ""});
    if (MayGoOn(missing))
      return "; on_replica_failure=continue goes on without those that are dead";
    return WayWithoutMajority();
  }

  Status CheckMembers(std::vector<size_t>* joiners) const {
    const std::vector<Replica> all = recorded_.All();
    for (const MissingReplica& each : missing_) {
      if (recorded_.Has(each.address)) continue;
      return InvalidArgument(Text(each.name,
                                  " is not of this configuration, and cannot be taken in: list "
                                  "those only that are recorded; ",
                                  chain_, " (", each.why, ")"));
    }
    for (size_t i = 0; i < members_.size(); ++i) {
      const auto is_this = [&](const Replica& replica) {
        return Member(replica) == &members_[i] || Replacement(replica) == &members_[i];
      };
      const auto found = std::find_if(all.begin(), all.end(), is_this);
      if (found == all.end() && IsNew(members_[i])) {
        joiners->push_back(i);
        continue;
      }
      if (found == all.end()) {
        return InvalidArgument(
            Text(members_[i].name, " (node ", members_[i].hello.node_id,
                 ") is not of this configuration: list those only that are recorded",
                 WayWith(members_[i]), "; ", chain_));
      }
      const auto index = static_cast<size_t>(found - all.begin());
      if (index >= recorded_.replicas.size() || Member(*found) == nullptr ||
          IsOfRival(members_[i].hello, recorded_))
        joiners->push_back(i);
    }
    return {};
  }

  // Whether each recorded replica that is not there is to be given up, and one is there. A new node
  // at a replica's address is neither.
  bool MayForce(size_t there) const {
    const auto is_given_up = [&](const Replica& replica) {
      const auto& list = rules_.given_up;
      return IsMissing(replica) &&
             std::find(list.begin(), list.end(), replica.address) != list.end();
    };
    const std::vector<Replica> all = recorded_.All();
    return there != 0 && std::all_of(all.begin(), all.end(), [&](const Replica& each) {
             return Member(each) != nullptr || is_given_up(each);
           });
  }

  Status CheckEnough(bool* forced) const {
    const auto there = static_cast<size_t>(std::count_if(
        recorded_.replicas.begin(), recorded_.replicas.end(), [&](const Replica& each) {
          const MemberLook* const member = Member(each);
          return member != nullptr && !IsOfRival(member->hello, recorded_);
        }));
    const size_t majority = MajorityOf(recorded_.replicas.size());
    const size_t least = LeastReplicas(recorded_, rules_);
    const size_t all = recorded_.replicas.size();
    if (there >= majority && (missing_.empty() || members_.size() >= least)) return {};
    const bool may_go_on =
        there >= majority && members_.size() >= LeastReplicas(recorded_, {true, 0});
    if (!may_go_on && MayForce(there)) {
      *forced = true;
      return {};
    }
    const size_t for_missing = rules_.may_leave_out ? std::max(majority, least) : all;
    const size_t needed = missing_.empty() ? majority : for_missing;
    return Unavailable(Text("only ", there, " of the group's ", all, " replicas are there, and ",
                            needed, " are needed to go on without the others", WayWithFew(), ": ",
                            chain_, WhyEach(missing_)));
  }

  // How the replicas change. A majority before a change by one replica shares a replica with a
  // majority after it. Majorities of two changes that were both cut short need not share one. So a
  // change is made only while all replicas that stay are there, and each of them first records
  // TakePlan::before_change: then nobody decides any more by what an earlier change left.
  Result<std::string> CheckChange() const {
    std::string change;
    for (const MemberLook& each : members_)
      if (IsNew(each)) change = Text(each.name, " is added to the group");
    for (const Replica& each : recorded_.All())
      if (Leaves(each)) change = Text("replica ", each.address, " is removed from the group");
    if (change.empty()) return change;
    for (const Replica& each : recorded_.All()) {
      if (Member(each) != nullptr || Leaves(each)) continue;
      return Unavailable(
          Text("the group's replicas change only while all of them are there: ", each.address,
               " (node ", FormatUuid(each.node), ") is not, start it; ", chain_));
    }
    return change;
  }

  const std::span<const MemberLook> members_;
  const std::span<const MissingReplica> missing_;
  const FailureRules rules_;
  const ReplicaChange change_;
  const bool names_ways_out_;
  Configuration recorded_;
  std::string chain_;  // the recorded replicas, for messages
};

Status CheckNodes(std::span<const MemberLook> members, Configuration* configuration) {
  for (const MemberLook& each : members) {
    HL_ASSIGN_OR_RETURN(const Uuid node, ParseUuid(each.hello.node_id));
    configuration->replicas.push_back({node, each.address});
  }
  return {};
}

bool HasNode(const std::vector<Configuration::Replica>& replicas, const Uuid& node) {
  return std::any_of(replicas.begin(), replicas.end(),
                     [&](const Configuration::Replica& each) { return each.node == node; });
}

// As TakePlan::before_change.
std::optional<Configuration> BeforeChange(const Configuration& recorded,
                                          const Configuration& next) {
  const std::vector<Configuration::Replica> all = recorded.All();
  Configuration before;
  for (const auto& each : next.replicas)
    if (HasNode(all, each.node)) before.replicas.push_back(each);
  for (const auto& each : all)
    if (!HasNode(before.replicas, each.node)) before.absent.push_back(each);
  if (before.replicas.size() == next.replicas.size() && before.absent.size() == next.absent.size())
    return std::nullopt;
  before.branch = recorded.branch;
  return before;
}

// The error of looks of which some are of the group and some are strangers to it, with the way out
// if there is one.
Status WithWayWithoutStrangers(const Status& refused, std::span<const MemberLook> members,
                               std::span<const MissingReplica> missing, const FailureRules& rules) {
  std::vector<MemberLook> looks(members.begin(), members.end());
  std::vector<MissingReplica> without(missing.begin(), missing.end());
  LeaveOutStrangers(&looks, &without);
  if (rules.may_leave_out || looks.size() == members.size()) return refused;
  const FailureRules going_on{true, rules.min_replicas, rules.given_up};
  if (!PlanTake(looks, without, 0, going_on).ok()) return refused;
  return {refused.code(), Text(refused.message(),
                               "; if it took the place of a replica that is "
                               "lost, on_replica_failure=continue goes on "
                               "without it")};
}

}  // namespace

Result<TakePlan> PlanTake(std::span<const MemberLook> members,
                          std::span<const MissingReplica> missing, uint64_t region_size,
                          const FailureRules& rules, const ReplicaChange& change) {
  for (const MemberLook& each : members) {
    if (each.hello.device != "ready") return Unavailable(Text(each.name, ": ", each.hello.device));
  }
  if (members.empty() && missing.empty()) return InvalidArgument("no replica is listed");
  if (members.empty()) return Unavailable(Text("no replica can serve", WhyEach(missing)));
  if (const Status distinct = CheckDistinct(members); !distinct.ok())
    return WithWayWithoutStrangers(distinct, members, missing, rules);
  HL_RETURN_IF_ERROR(CheckGivenUp(members, rules.given_up));
  HL_RETURN_IF_ERROR(CheckSense(members));
  HL_RETURN_IF_ERROR(CheckEpochs(members));
  TakePlan plan;
  const auto installed = std::find_if(members.begin(), members.end(), [](const MemberLook& m) {
    return m.hello.installed_epoch != 0;
  });
  plan.format = installed == members.end();
  if (!plan.format) {
    if (const Status one = CheckGroups(members, *installed); !one.ok())
      return WithWayWithoutStrangers(one, members, missing, rules);
    HL_RETURN_IF_ERROR(ListCheck(members, missing, rules, change).Plan(&plan));
    HL_ASSIGN_OR_RETURN(plan.group, ParseUuid(installed->hello.group));
  } else if (!missing.empty()) {
    return Unavailable(Text("all listed replicas are needed to make a group", WhyEach(missing)));
  }
  HL_RETURN_IF_ERROR(CheckSizes(members, region_size));
  plan.region_size = members.front().hello.region_size;
  for (const MemberLook& each : members)
    plan.epoch = std::max(plan.epoch, each.hello.sealed_epoch + 1);
  plan.ahead = WhoIsAhead(members);
  plan.configuration.epoch = plan.epoch;
  HL_RETURN_IF_ERROR(CheckNodes(members, &plan.configuration));
  if (!plan.format && !plan.forced)
    plan.before_change = BeforeChange(plan.recorded, plan.configuration);
  return plan;
}

Status CheckLogged(const TakePlan& plan, const Configuration& logged) {
  if (logged.epoch == 0 || logged.epoch < plan.recorded.epoch) return {};
  const auto nodes = [](const Configuration& configuration) {
    std::vector<Uuid> out;
    for (const auto& each : configuration.replicas) out.push_back(each.node);
    std::sort(out.begin(), out.end());
    return out;
  };
  if (nodes(plan.recorded) == nodes(logged)) return {};
  std::vector<std::string> chain;
  for (const auto& each : logged.replicas) chain.push_back(each.address);
  return Corruption(Text("the nodes name other replicas than the log itself, which names ",
                         Chain(chain), " (configuration of epoch ", logged.epoch,
                         "); start the replicas on the pools that they had"));
}

}  // namespace hyperloop
