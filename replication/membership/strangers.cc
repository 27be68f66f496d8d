#include "membership/strangers.h"

#include <algorithm>
#include <set>
#include <string>

#include "hyperloop/core/text.h"
#include "membership/fresh_pool.h"
#include "membership/replica_lists.h"

namespace hyperloop {
namespace {

bool IsOf(const MemberLook& look, const std::string& group) {
  return look.hello.installed_epoch != 0 && look.hello.group == group;
}

// The replicas of the newest configuration that a node of this group has recorded.
std::vector<Configuration::Replica> RecordedBy(const std::vector<MemberLook>& looks,
                                               const std::string& group) {
  const MemberLook* newest = nullptr;
  for (const MemberLook& each : looks)
    if (IsOf(each, group) &&
        (newest == nullptr || each.hello.installed_epoch > newest->hello.installed_epoch))
      newest = &each;
  Configuration recorded;
  if (newest == nullptr) return {};
  const auto replicas =
      ParseReplicas(newest->hello.installed_nodes, newest->hello.installed_replicas);
  const auto absent = ParseReplicas(newest->hello.absent_nodes, newest->hello.absent_replicas);
  if (!replicas.ok() || !absent.ok()) return {};
  recorded.replicas = *replicas;
  recorded.absent = *absent;
  return recorded.All();
}

// The strangers among looks of which some are of one group.
class Strangers {
 public:
  Strangers(const std::vector<MemberLook>& looks, const std::string& group)
      : looks_(looks), group_(group), recorded_(RecordedBy(looks, group)) {}

  // Whether each look may be of the group, or is a stranger to it, and a replica of it answers.
  bool Explain() const {
    return std::ranges::any_of(looks_, [&](const MemberLook& each) { return AtHome(each); }) &&
           std::ranges::all_of(looks_, [&](const MemberLook& each) {
             return !IsForeign(each) || !Why(each).empty();
           });
  }
  // Whether most of the group's replicas answer.
  bool HasMost() const {
    const auto there =
        std::ranges::count_if(looks_, [&](const MemberLook& each) { return AtHome(each); });
    return 2 * static_cast<size_t>(there) > recorded_.size();
  }
  // Empty: it is none.
  std::string Why(const MemberLook& look) const {
    const Configuration::Replica* const place = At(look.address);
    if (place == nullptr || AtHome(look) || !(IsForeign(look) || IsCopy(look))) return "";
    return Text("is now ", IsForeign(look) ? "" : "a copy of ", "node ", look.hello.node_id,
                " of group ", look.hello.group, ", and not node ", FormatUuid(place->node),
                "; start it with its own pool, or ", kFreshPool);
  }

 private:
  const Configuration::Replica* At(const std::string& address) const {
    for (const Configuration::Replica& each : recorded_)
      if (each.address == address) return &each;
    return nullptr;
  }
  bool AtHome(const MemberLook& look) const {
    const Configuration::Replica* const place = At(look.address);
    return place != nullptr && IsOf(look, group_) && FormatUuid(place->node) == look.hello.node_id;
  }
  bool IsForeign(const MemberLook& look) const {
    return look.hello.installed_epoch != 0 && look.hello.group != group_;
  }
  bool IsCopy(const MemberLook& look) const {
    return NewestEpoch(look) <= NewestEpochAtHome() &&
           std::ranges::any_of(looks_, [&](const MemberLook& other) {
             return &other != &look && other.hello.node_id == look.hello.node_id && AtHome(other);
           });
  }
  uint64_t NewestEpochAtHome() const {
    uint64_t newest = 0;
    for (const MemberLook& each : looks_)
      if (AtHome(each)) newest = std::max(newest, NewestEpoch(each));
    return newest;
  }

  const std::vector<MemberLook>& looks_;
  const std::string group_;
  const std::vector<Configuration::Replica> recorded_;
};

}  // namespace

void LeaveOutStrangers(std::vector<MemberLook>* looks, std::vector<MissingReplica>* missing) {
  std::set<std::string> groups;
  for (const MemberLook& each : *looks)
    if (each.hello.installed_epoch != 0) groups.insert(each.hello.group);
  std::vector<std::string> fit;
  for (const std::string& each : groups)
    if (Strangers(*looks, each).Explain()) fit.push_back(each);
  if (fit.size() > 1)
    std::erase_if(fit, [&](const std::string& each) { return !Strangers(*looks, each).HasMost(); });
  if (fit.size() != 1) return;
  const std::vector<MemberLook> all = *looks;
  const Strangers strangers(all, fit.front());
  std::erase_if(*looks, [&](const MemberLook& look) {
    // Found in `all`, where it has another place than here.
    const auto same = std::ranges::find(all, look.address, &MemberLook::address);
    const std::string why = strangers.Why(*same);
    if (!why.empty()) missing->push_back({look.name, look.address, why});
    return !why.empty();
  });
}

void LeaveOutUnfit(std::vector<MemberLook>* looks, std::vector<MissingReplica>* missing) {
  std::erase_if(*looks, [&](const MemberLook& look) {
    if (look.hello.device == "ready") return false;
    missing->push_back({look.name, look.address, look.hello.device});
    return true;
  });
  const std::vector<MemberLook> all = *looks;
  std::erase_if(*looks, [&](const MemberLook& look) {
    const auto same = std::ranges::find(all, look.address, &MemberLook::address);
    std::string why = WhyNonsense(*same);
    if (why.empty()) why = WhyFarAhead(*same, all);
    if (!why.empty()) missing->push_back({look.name, look.address, why});
    return !why.empty();
  });
  LeaveOutStrangers(looks, missing);
}

}  // namespace hyperloop
