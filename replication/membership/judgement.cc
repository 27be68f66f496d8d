#include "membership/judgement.h"

#include <algorithm>

#include "hyperloop/core/text.h"
#include "membership/fresh_pool.h"
#include "membership/standing.h"

namespace hyperloop {
namespace {

// The primary that a member served last, as far as the member says.
std::string LastServed(const control::HelloReplyT& hello) {
  return hello.served_owner == hello.sealed_owner ? hello.sealed_owner_name
                                                  : "a primary whose name is not known";
}

std::string NameOf(const Configuration::Replica& replica) { return "replica " + replica.address; }

// Why this replica of `own` counts as missing; empty: it does not.
std::string WhyMissing(const Configuration& own, const Configuration::Replica& replica,
                       const std::optional<control::HelloReplyT>& hello) {
  if (!hello.has_value()) return Text(NameOf(replica), " does not answer");
  const std::string node = FormatUuid(replica.node);
  if (const uint64_t epoch = std::max(hello->sealed_epoch, hello->served_epoch);
      epoch > own.epoch && epoch - own.epoch > kMostAhead)
    return Text(NameOf(replica), " says that it is at epoch ", epoch, ", and the group's is ",
                own.epoch, ", which no takings explain");
  if (hello->node_id == node && !IsOfRival(*hello, own)) return "";
  if (hello->node_id == node)
    return Text(NameOf(replica), " has installed epoch ", own.epoch,
                " for another primary, so its pool is another copy than it had; start it with the "
                "pool that it had, and keep this one, which may be the last copy of what it holds");
  if (hello->served_epoch == 0)
    return Text(NameOf(replica), " has lost its pool: its node has served nobody, and is not node ",
                node);
  return Text(NameOf(replica), " is now node ", hello->node_id, " of group ", hello->group,
              ", not node ", node, "; start it with its own pool");
}

std::string WhyFenced(const Configuration& own, const Configuration::Replica& replica,
                      const control::HelloReplyT& hello) {
  return Text("another primary took the group: epoch ", hello.served_epoch, " by ",
              LastServed(hello), " at ", NameOf(replica), " (ours was epoch ", own.epoch, ")");
}

// Whether more than half of the members have the promise to `own`'s primary as their newest one.
bool MostAreOwn(const Configuration& own,
                std::span<const std::optional<control::HelloReplyT>> now) {
  size_t count = 0;
  for (size_t i = 0; i < own.replicas.size(); ++i) {
    if (WhyMissing(own, own.replicas[i], now[i]).empty() && IsOwner(*now[i], own.owner) &&
        !ServedByAnother(*now[i], own))
      ++count;
  }
  return 2 * count > own.replicas.size();
}

}  // namespace

Judgement JudgeStanding(const Configuration& own,
                        std::span<const std::optional<control::HelloReplyT>> before,
                        std::span<const std::optional<control::HelloReplyT>> now, size_t least,
                        std::span<const std::string> refused) {
  // An epoch that this primary sealed in an attempt that was cut short is still its own.
  const auto mine = [&](const control::HelloReplyT& hello) { return IsOwner(hello, own.owner); };
  Judgement out{Standing::kOwner, own.epoch + 1, "", {}, {}};
  const bool most_are_own = MostAreOwn(own, now);
  std::string missing;  // why each missing one is missing
  for (size_t i = 0; i < own.replicas.size(); ++i) {
    const Configuration::Replica& replica = own.replicas[i];
    std::string why = WhyMissing(own, replica, now[i]);
    if (why.empty() && !refused.empty()) why = refused[i];
    if (why.empty() && most_are_own && ServedByAnother(*now[i], own)) {
      why = Text(NameOf(replica), " alone says that it served another primary under epoch ",
                 now[i]->served_epoch, ", and most others have promised nothing to anybody else");
    }
    if (!why.empty()) {
      out.missing.push_back(i);
      missing += (missing.empty() ? "" : "; ") + why;
      out.reasons.push_back(std::move(why));
      continue;
    }
    const control::HelloReplyT& hello = *now[i];
    if (ServedByAnother(hello, own))
      return {Standing::kFenced, 0, WhyFenced(own, replica, hello), {}, {}};
    if (mine(hello) && hello.sealed_epoch == own.epoch) continue;
    out.epoch = std::max(out.epoch, hello.sealed_epoch + 1);
    if (out.standing == Standing::kOwner) out.standing = Standing::kReclaim;
    if (!mine(hello) && out.why.empty())
      out.why = Text(NameOf(replica), " was sealed for ", hello.sealed_owner_name, " (epoch ",
                     hello.sealed_epoch, ")");
    const bool watched =
        i < before.size() && before[i].has_value() && before[i]->sealed_epoch == hello.sealed_epoch;
    if (mine(hello) || hello.released || (watched && before[i]->heartbeat == hello.heartbeat))
      continue;
    out.standing = Standing::kWait;
    out.why = Text(NameOf(replica), " was sealed for ", hello.sealed_owner_name, " (epoch ",
                   hello.sealed_epoch, "), who may be about to take the group");
  }
  if (out.missing.empty() || out.standing == Standing::kWait) return out;
  if (now.size() - out.missing.size() >= least) {
    out.standing = Standing::kShrink;
    out.why = missing;
    return out;
  }
  out.standing = Standing::kWait;
  out.why = least == SIZE_MAX
                ? Text(missing, "; every replica of the configuration is needed")
                : Text(missing, "; ", now.size() - out.missing.size(), " of ", now.size(),
                       " replicas are there, ", least, " are needed to go on without the others");
  return out;
}

Status CheckJoiner(const Configuration& own, const Uuid& group, uint64_t region_size,
                   const Configuration::Replica& absent, const control::HelloReplyT& before,
                   const control::HelloReplyT& now) {
  const std::string name = NameOf(absent);
  if (now.device != "ready") return Unavailable(Text(name, ": ", now.device));
  // The replica's place counts, and not its node: what the node holds is overwritten, and it has no
  // vote until then.
  if (Counts(own, now.node_id) || (now.installed_epoch != 0 && now.group != FormatUuid(group))) {
    return InvalidArgument(Text(name, " is node ", now.node_id, " of group ", now.group,
                                ", and not the one that was left out; start it with its own pool, "
                                "or ",
                                kFreshPool));
  }
  if (Diverged(now, own, now.node_id == FormatUuid(absent.node))) {
    return InvalidArgument(
        Text(name,
             " has another history of the group since hyperloopctl promote "
             "--force gave up some of its replicas; hyperloopctl export --replica N --to DIR "
             "--partial writes what it holds; ",
             kFreshPool));
  }
  const bool mine = IsOwner(now, own.owner);
  if (ServedByAnother(now, own))
    return InvalidArgument(Text(name, " served ", LastServed(now), " under epoch ",
                                now.served_epoch, ", ours is epoch ", own.epoch));
  if (now.region_size != region_size) {
    return InvalidArgument(Text(name, " has a region of ", now.region_size, " B, the group one of ",
                                region_size, " B: hyperloopctl resize"));
  }
  if (now.sealed_epoch > own.epoch + kMostAhead) {
    return InvalidArgument(Text(name, " has sealed epoch ", now.sealed_epoch, ", more than ",
                                kMostAhead, " beyond the group's epoch ", own.epoch,
                                "; close and open the database to take it in"));
  }
  const bool still = before.node_id == now.node_id && before.sealed_epoch == now.sealed_epoch &&
                     before.heartbeat == now.heartbeat;
  if (now.sealed_epoch <= own.epoch || mine || now.released || still) return {};
  return Unavailable(Text(name, " was sealed for ", now.sealed_owner_name, " (epoch ",
                          now.sealed_epoch, "), who may be about to take the group"));
}

Status CheckNewcomer(const Configuration& own, const Uuid& group, uint64_t region_size,
                     const Configuration::Replica& replica, const control::HelloReplyT& before,
                     const control::HelloReplyT& now) {
  const std::string name = NameOf(replica);
  const std::vector<Configuration::Replica> all = own.All();
  if (replica.address.size() > kMaxReplicaAddress) {
    return InvalidArgument(
        Text("address ", replica.address, " has more than ", kMaxReplicaAddress, " bytes"));
  }
  if (!own.absent.empty()) {
    return Unavailable(Text("the group's replicas change only while all of them are there: ",
                            own.absent.front().address, " is not"));
  }
  if (all.size() >= kMaxConfigurationReplicas)
    return InvalidArgument(Text("a group has at most ", kMaxConfigurationReplicas, " replicas"));
  for (const Configuration::Replica& each : all) {
    if (FormatUuid(each.node) != now.node_id) continue;
    return InvalidArgument(Text(name, " is node ", now.node_id, ", which the group has at ",
                                each.address, "; ", kFreshPool));
  }
  if (now.installed_epoch != 0 && now.group != FormatUuid(group)) {
    return InvalidArgument(Text(name, " belongs to group ", now.group, ", and not to group ",
                                FormatUuid(group), "; ", kFreshPool));
  }
  return CheckJoiner(own, group, region_size, replica, before, now);
}

void LeaveOut(const Judgement& judgement, Configuration* next) {
  std::vector<Configuration::Replica> stay;
  for (size_t i = 0; i < next->replicas.size(); ++i) {
    const bool leaves = std::ranges::count(judgement.missing, i) != 0;
    (leaves ? next->absent : stay).push_back(next->replicas[i]);
  }
  next->replicas = std::move(stay);
}

Status TakeIn(const Configuration& own, const Uuid& group, uint64_t region_size,
              const std::string& address, const control::HelloReplyT& hello,
              const std::vector<std::string>& chain, Configuration* next, uint64_t* epoch) {
  const auto absent = std::ranges::find(next->absent, address, &Configuration::Replica::address);
  if (absent == next->absent.end()) return {};
  HL_RETURN_IF_ERROR(CheckJoiner(own, group, region_size, *absent, hello, hello));
  HL_ASSIGN_OR_RETURN(const Uuid node, ParseUuid(hello.node_id));
  next->absent.erase(absent);
  next->replicas.push_back({node, address});
  std::ranges::sort(next->replicas, {}, [&](const Configuration::Replica& each) {
    return std::ranges::find(chain, each.address) - chain.begin();
  });
  *epoch = std::max(*epoch, hello.sealed_epoch + 1);
  return {};
}

Status Announce(const Uuid& group, uint64_t region_size, const std::string& address,
                const control::HelloReplyT& hello, Configuration* next) {
  HL_ASSIGN_OR_RETURN(const Uuid node, ParseUuid(hello.node_id));
  const Configuration::Replica replica{node, address};
  HL_RETURN_IF_ERROR(CheckNewcomer(*next, group, region_size, replica, hello, hello));
  next->absent.push_back(replica);
  return {};
}

Status CheckLeaver(const Configuration& own, const std::string& address) {
  bool is_absent = false;
  for (const Configuration::Replica& each : own.absent) {
    if (each.address != address) {
      return Unavailable(Text("the group's replicas change only while all of them are there: ",
                              each.address, " is not"));
    }
    is_absent = true;
  }
  return is_absent ? Status() : Unavailable(Text("the group has not left ", address, " out"));
}

}  // namespace hyperloop
