#include "membership/standing.h"

#include <algorithm>

#include "hyperloop/core/text.h"
#include "membership/replica_lists.h"

namespace hyperloop {
namespace {

size_t LeastOf(size_t voters, size_t all, size_t min_replicas) {
  return std::max({MajorityOf(voters), MajorityOf(all), min_replicas});
}

uint64_t NewestOfOthers(const MemberLook& look, std::span<const MemberLook> looks) {
  uint64_t newest = 0;
  for (const MemberLook& each : looks)
    if (&each != &look) newest = std::max(newest, NewestEpoch(each));
  return newest;
}

// Whether no other one has installed anything.
bool AreNew(const MemberLook& look, std::span<const MemberLook> looks) {
  return std::ranges::all_of(looks, [&](const MemberLook& each) {
    return &each == &look || each.hello.installed_epoch == 0;
  });
}

}  // namespace

// --- who counts

bool Counts(const Configuration& configuration, const std::string& node_id) {
  return std::ranges::any_of(configuration.replicas, [&](const Configuration::Replica& each) {
    return FormatUuid(each.node) == node_id;
  });
}

size_t LeastReplicas(const Configuration& configuration, const FailureRules& rules) {
  if (!rules.may_leave_out) return SIZE_MAX;
  const size_t voters = configuration.replicas.size();
  return LeastOf(voters, voters + configuration.absent.size(), rules.min_replicas);
}

// --- who has caught up

std::string NextFailure(const Redundancy& now, const FailureRules& rules) {
  if (!rules.may_leave_out) return "on_replica_failure=block, so that writes wait for each replica";
  const size_t all = now.members + now.absent;
  const size_t there = now.members - now.silent;
  const size_t least = LeastOf(now.members, all, rules.min_replicas);
  if (there < least + 1)
    return Text(there, " of ", all, " replicas are there, and ", least, " are needed");
  // One holder less.
  if (!now.catching_up || !FewHold(now.holders, all + 2)) return "";
  return Text(now.holders, " of ", all,
              " replicas hold the files of the database, and with fewer than half flushes wait for "
              "those that are being filled");
}

// --- who is older, and who is of another history

uint64_t NewestEpoch(const MemberLook& look) {
  return std::max({look.hello.installed_epoch, look.hello.served_epoch, look.hello.sealed_epoch});
}

std::string WhyFarAhead(const MemberLook& look, std::span<const MemberLook> looks) {
  const uint64_t others = NewestOfOthers(look, looks);
  const uint64_t newest = NewestEpoch(look);
  const bool is_old = look.hello.installed_epoch != 0;
  if (is_old && AreNew(look, looks))
    return "";  // an opening that was cut short may have sealed them
  if (looks.size() < 2 || newest <= others || newest - others <= kMostAhead) return "";
  return Text("says that it is at epoch ", newest, ", and the newest of all others is ", others,
              ", which no takings explain");
}

// Takings that were cut short before they reached the others are fewer.
std::string WhoIsAhead(std::span<const MemberLook> members) {
  constexpr uint64_t kFar = 1024;
  for (const MemberLook& each : members) {
    const uint64_t others = NewestOfOthers(each, members);
    if (others == 0 || NewestEpoch(each) < others + kFar) continue;
    return Text(each.name, " alone says that it is at epoch ", NewestEpoch(each),
                ", so that the others are sealed beyond it, whose newest is ", others,
                "; if not so many openings were cut short, see to its host");
  }
  return "";
}

std::optional<Uuid> InstalledOwner(const control::HelloReplyT& hello) {
  const std::vector<uint8_t>* owner = nullptr;
  if (hello.sealed_epoch == hello.installed_epoch) owner = &hello.sealed_owner;
  if (hello.served_epoch == hello.installed_epoch) owner = &hello.served_owner;
  Uuid installed{};
  if (owner == nullptr || owner->size() != installed.size()) return {};
  std::ranges::copy(*owner, installed.begin());
  return installed;
}

Result<Configuration> ConfigurationOf(const MemberLook& look) {
  const control::HelloReplyT& hello = look.hello;
  Configuration installed;
  installed.epoch = hello.installed_epoch;
  installed.owner = InstalledOwner(hello).value_or(kNilUuid);
  HL_ASSIGN_OR_RETURN(installed.replicas,
                      ParseReplicas(hello.installed_nodes, hello.installed_replicas));
  HL_ASSIGN_OR_RETURN(installed.absent, ParseReplicas(hello.absent_nodes, hello.absent_replicas));
  HL_ASSIGN_OR_RETURN(installed.branch, ParseBranch(hello.branch_epoch, hello.branch_owner));
  return installed;
}

std::string WhyNonsense(const MemberLook& look) {
  const control::HelloReplyT& hello = look.hello;
  Status sense = ParseUuid(hello.node_id).status();
  if (sense.ok()) sense = ConfigurationOf(look).status();
  if (sense.ok() && hello.installed_epoch != 0) sense = ParseUuid(hello.group).status();
  return sense.ok() ? "" : Text("says of itself what makes no sense: ", sense.message());
}

bool IsOfBranch(const control::HelloReplyT& hello, const Configuration& own) {
  return hello.branch_epoch == own.branch.epoch &&
         std::ranges::equal(hello.branch_owner, BranchOwner(own.branch));
}

bool IsOlder(const control::HelloReplyT& hello, const Configuration& own) {
  const uint64_t began = own.branch.epoch;
  return hello.branch_epoch < began && hello.installed_epoch < began;
}

bool Diverged(const control::HelloReplyT& hello, const Configuration& own, bool named) {
  if (hello.installed_epoch == 0) return false;
  return !IsOfBranch(hello, own) && !(named && IsOlder(hello, own));
}

bool HasInstalled(const control::HelloReplyT& hello, const Configuration& own) {
  return hello.installed_epoch == own.epoch && own.owner != kNilUuid &&
         InstalledOwner(hello) == own.owner;
}

bool IsOfRival(const control::HelloReplyT& hello, const Configuration& own) {
  const std::optional<Uuid> owner = InstalledOwner(hello);
  return own.epoch != 0 && hello.installed_epoch == own.epoch && own.owner != kNilUuid &&
         owner.has_value() && *owner != own.owner;
}

bool IsOfRival(const control::HelloReplyT& hello, const Configuration& own,
               const KnownOwners& known) {
  Configuration then = own;
  if (hello.installed_epoch >= known.since && hello.installed_epoch <= own.epoch)
    then.epoch = hello.installed_epoch;
  return IsOfRival(hello, then) || IsOfRival(hello, known.former);
}

bool WentBack(const control::HelloReplyT& hello, const Configuration& own) {
  return Counts(own, hello.node_id) && hello.installed_epoch < own.epoch;
}

// --- whose the node is

bool IsOwner(const control::HelloReplyT& hello, const Uuid& digest) {
  return std::ranges::equal(hello.sealed_owner, digest);
}

bool ServedByAnother(const control::HelloReplyT& hello, const Configuration& own) {
  return hello.served_epoch > own.epoch && !std::ranges::equal(hello.served_owner, own.owner);
}

bool IsHeld(const control::HelloReplyT& hello) {
  return hello.sealed_epoch != 0 && !hello.released;
}

bool NobodyToWatch(std::span<const MemberLook> members) {
  return std::ranges::none_of(members, [](const MemberLook& each) { return IsHeld(each.hello); });
}

const MemberLook* LivingOwner(std::span<const MemberLook> before,
                              std::span<const MemberLook> after) {
  for (size_t i = 0; i < after.size(); ++i) {
    const auto& now = after[i].hello;
    if (IsHeld(now) && now.heartbeat != before[i].hello.heartbeat) return &after[i];
  }
  return nullptr;
}

const MemberLook* MovedMember(std::span<const MemberLook> before,
                              std::span<const MemberLook> after) {
  for (size_t i = 0; i < after.size(); ++i) {
    const auto& was = before[i].hello;
    const auto& now = after[i].hello;
    if (now.sealed_epoch != was.sealed_epoch || now.installed_epoch != was.installed_epoch)
      return &after[i];
  }
  return nullptr;
}

}  // namespace hyperloop
