// Which sets of replicas can serve, and what they hold: random openings, changes of the group's
// replicas, lost pools, power failures and primaries that bring their group back, each cut short
// anywhere. Nodes, and what decides of takings and of keeping, are the product's; queues,
// bytes and time are models.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "control/messages.h"
#include "integration/model_keeping.h"
#include "integration/model_taking.h"
#include "options/option_text.h"
#include "region/region_layout.h"

namespace hyperloop {
namespace {

static_assert(option_text::kMaxEndpointBytes + 1 == kConfigurationAddress,
              "every address that the options take has room in the group's record");

// What happens to a group.
enum class Kind {
  kEverything,
  kOpenings,  // nothing but openings, most of them with all replicas within reach
  // Three replicas. Most openings are cut short, most processes start anew, with and without their
  // memory, and one log at a time is damaged. Neither do the replicas change, nor are pools lost.
  kCuts,
};

class Group {
 public:
  Group(uint64_t seed, Kind kind)
      : random_(seed), kind_(kind), model_([this](uint64_t bound) { return Below(bound); }) {
    const uint64_t some = Below(5);
    const uint64_t count = Of(1 + some, 3 + some / 2, 3);
    for (uint64_t i = 0; i < count; ++i) model_.Add();
    model_.operations_fail_in = Of(3, 3, 2);
  }
  // Makes the group of all replicas.
  void Make() {
    steps_left_ = UINT64_MAX;
    Open(model_.Addresses(), {});
    ASSERT_EQ(model_.primaries.size(), 1u);
  }
  void Step() {
    const uint64_t what = Below(Of(12, 1, 6));
    if (what < 5)
      OpenAtRandom();
    else if (what < 8)
      Recover();
    else if (what < 9)
      LosePool();
    else if (what < 10)
      FindPool();
    if (Below(Of(12, 12, 4)) == 0) AnyReplica().Restart(Below(2) == 0);
    if (kind_ == Kind::kCuts && Below(40) == 0) Damage();
    for (ModelPrimary& each : model_.primaries) Work(each);
  }
  // Once nobody is cut short any more, the group opens with all replicas, and with a majority.
  void Settle() {
    ModelReplica* newest = nullptr;
    for (const auto& each : model_.replicas)
      if (each->Hello().branch_epoch != 0) return;
    for (const auto& each : model_.replicas)
      if (!each->address.empty() &&
          (newest == nullptr || each->Hello().installed_epoch > newest->Hello().installed_epoch))
        newest = each.get();
    if (newest != nullptr) ExpectOpens(*newest);
  }
  const std::string& wrong() const { return model_.wrong; }
  uint64_t settled() const { return settled_; }
  uint64_t forced() const { return forced_; }
  uint64_t openings() const { return openings_; }
  uint64_t changes() const { return changes_; }
  uint64_t regained() const { return regained_; }

 private:
  uint64_t Below(uint64_t bound) { return random_() % bound; }
  // The value for this kind of group.
  uint64_t Of(uint64_t everything, uint64_t openings, uint64_t cuts) const {
    return kind_ == Kind::kCuts ? cuts : kind_ == Kind::kOpenings ? openings : everything;
  }
  ModelReplica& AnyReplica() { return *model_.replicas[Below(model_.replicas.size())]; }
  ModelReplica* At(const std::string& address) { return model_.At(address); }

  // --- an opening

  void OpenAtRandom() {
    // Somebody who knows the configuration of one of the replicas, and wants to change it perhaps.
    const control::HelloReplyT known = AnyReplica().Hello();
    std::vector<std::string> list = known.installed_replicas;
    list.insert(list.end(), known.absent_replicas.begin(), known.absent_replicas.end());
    if (list.empty()) return;
    // A replica that has moved is listed where it is.
    for (std::string& address : list) {
      for (const auto& each : model_.replicas)
        if (IsNamed(known, *each, address) && !each->address.empty()) address = each->address;
    }
    taking::Wish wish;
    if (kind_ != Kind::kCuts) wish.change = ChangeAtRandom(&list);
    const uint64_t enough = Of(9, 9, 10) * list.size();
    steps_left_ = Below(Of(3, 3, 5)) == 0 ? UINT64_MAX : Below(enough);
    const bool by_force = kind_ == Kind::kEverything && Below(4) == 0;
    wish.rules = {kind_ == Kind::kCuts || Below(4) != 0, 0};
    Open(list, wish, by_force);
  }
  // Adds a replica to the list, or removes one, perhaps.
  ReplicaChange ChangeAtRandom(std::vector<std::string>* listed) {
    std::vector<std::string>& list = *listed;
    ReplicaChange change;
    if (Below(3) == 0 && list.size() < 7) {
      std::string free = model_.NewAddress();
      for (const auto& each : model_.replicas)
        if (!each->address.empty() && Below(2) == 0 &&
            std::find(list.begin(), list.end(), each->address) == list.end())
          free = each->address;
      if (At(free) == nullptr) model_.Add(free);
      change.added = free;
      list.push_back(free);
    } else if (Below(2) == 0 && list.size() > 1) {
      const auto leaving = list.begin() + static_cast<ptrdiff_t>(Below(list.size()));
      change.removed = *leaving;
      list.erase(leaving);
    }
    return change;
  }
  static bool IsNamed(const control::HelloReplyT& known, ModelReplica& replica,
                      const std::string& address) {
    const std::string node = replica.Hello().node_id;
    for (size_t i = 0; i < known.installed_nodes.size(); ++i)
      if (known.installed_nodes[i] == node && known.installed_replicas[i] == address) return true;
    for (size_t i = 0; i < known.absent_nodes.size(); ++i)
      if (known.absent_nodes[i] == node && known.absent_replicas[i] == address) return true;
    return false;
  }
  void Open(const std::vector<std::string>& list, taking::Wish wish, bool by_force = false) {
    ModelTaking::Caller caller{{}, list, {}};
    const bool all = model_.primaries.empty() || (kind_ == Kind::kOpenings && Below(2) == 0);
    for (const std::string& address : list) {
      const bool reached = At(address) != nullptr && (all || Below(Of(4, 4, 3)) != 0);
      if (reached) caller.reached.insert(address);
      if (!reached && by_force) wish.rules.given_up.push_back(address);
    }
    caller.wish = std::move(wish);
    ModelTaking taking(model_, caller);
    while (!taking.over() && wrong().empty()) {
      if (!taking.may_be_cut() || steps_left_-- != 0) {
        taking.Advance();
        continue;
      }
      if (Below(2) == 0) return;  // the process is dead
      taking.Lose();
    }
    if (!taking.serves()) return;
    ++openings_;
    if (taking.taking().draft().plan.forced) ++forced_;
    if (!taking.taking().draft().plan.change.empty()) ++changes_;
  }

  // --- a primary that brings its group back

  // Only those that had been left out before are watched.
  void Recover() {
    if (model_.primaries.empty()) return;
    ModelPrimary& primary = model_.primaries[Below(model_.primaries.size())];
    const Configuration own = primary.keeping->group().configuration;
    ModelKeeping::Call call;
    for (const auto& each : own.All())
      if (Below(4) != 0) call.reached.insert(each.address);
    if (Below(4) != 0) call.silence = std::chrono::seconds(10);
    if (Below(4) == 0) call.patience = std::chrono::seconds(1);
    if (Below(2) == 0)
      for (const auto& each : own.absent)
        if (call.reached.contains(each.address)) call.offers.ready.push_back(each.address);
    if (kind_ != Kind::kCuts) ProposeAtRandom(own, &call);
    steps_left_ = Below(2) == 0 ? UINT64_MAX : Below(8 * own.replicas.size());
    ModelKeeping keeping(model_, primary, call);
    while (!keeping.over() && wrong().empty()) {
      if (!keeping.may_be_cut() || steps_left_-- != 0) {
        keeping.Advance();
        continue;
      }
      if (Below(2) == 0) return;  // the call ends without a word
      keeping.Lose();
    }
    if (keeping.is_back()) ++regained_;
  }
  // Somebody wants one to come, or to leave, perhaps.
  void ProposeAtRandom(const Configuration& own, ModelKeeping::Call* call) {
    if (Below(8) == 0 && own.absent.empty() && own.replicas.size() < 7) {
      const std::string added = model_.Add().address;
      call->reached.insert(added);
      call->offers.newcomer = added;
    } else if (Below(8) == 0 && own.absent.size() == 1) {
      call->offers.leaver = own.absent.front().address;
    }
  }

  // --- what happens to replicas

  // A fresh node takes the place of a replica, whose pool may be found again.
  void LosePool() {
    ModelReplica& lost = AnyReplica();
    if (lost.address.empty()) return;
    const std::string address = std::exchange(lost.address, "");
    lost.Restart(Below(2) == 0);
    model_.Add(address);
  }
  void FindPool() {
    for (const auto& each : model_.replicas)
      if (each->address.empty() && Below(2) == 0) each->address = model_.NewAddress();
  }

  // One at a time has a damaged log, or damaged bytes of an extent.
  void Damage() {
    for (const auto& each : model_.replicas)
      if (each->region.damaged || each->region.unsound) return;
    ModelRegion& region = AnyReplica().region;
    (Below(2) == 0 ? region.damaged : region.unsound) = SeqOf(region.ring) != 0;
  }

  // --- a primary that serves

  void Work(ModelPrimary& primary) {
    if (primary.broken || Below(2) == 0) return;
    model_.Append(primary, 1 + Below(Below(4) == 0 ? 12 : 3), true);
    if (!primary.broken && Below(3) == 0) model_.Checkpoint(primary);
  }

  // --- at the end

  void ExpectOpens(ModelReplica& newest) {
    const control::HelloReplyT known = newest.Hello();
    if (known.installed_epoch == 0) return;
    std::vector<MemberLook> members;
    std::vector<MissingReplica> missing;
    const auto list = [&](const std::vector<std::string>& nodes,
                          const std::vector<std::string>& addresses) {
      for (size_t i = 0; i < nodes.size(); ++i) {
        ModelReplica* found = nullptr;
        for (const auto& each : model_.replicas)
          if (!each->address.empty() && each->Hello().node_id == nodes[i]) found = each.get();
        if (found == nullptr && At(addresses[i]) != nullptr) found = At(addresses[i]);
        if (found == nullptr)
          missing.push_back({"replica " + addresses[i], addresses[i], "lost"});
        else
          members.push_back({"replica " + found->address, found->address, found->Hello()});
      }
    };
    list(known.installed_nodes, known.installed_replicas);
    list(known.absent_nodes, known.absent_replicas);
    size_t voters = 0;
    for (const std::string& node : known.installed_nodes)
      for (const MemberLook& each : members) voters += each.hello.node_id == node ? 1 : 0;
    const size_t all = known.installed_nodes.size() + known.absent_nodes.size();
    if (voters <= known.installed_nodes.size() / 2 || members.size() <= all / 2) return;
    taking::Draft draft{members, missing, {}};
    Result<TakePlan> plan = PlanTake(members, missing, 0, {true, 0});
    ++settled_;
    if (!plan.ok()) return model_.Fail("no majority opens the group: " + plan.status().ToString());
    draft.plan = std::move(plan).value();
    if (!model_.MayOpen(draft).ok()) return;
    const Result<Choice> choice = model_.ChooseFor(draft);
    model_.CheckContent(draft.plan.configuration, At(members[choice->index].address)->region);
  }

  std::mt19937_64 random_;
  const Kind kind_;
  ModelGroup model_;
  uint64_t steps_left_ = 0;
  uint64_t openings_ = 0, changes_ = 0, settled_ = 0, forced_ = 0, regained_ = 0;
};

uint64_t Seeds(uint64_t usual) {
  const char* const seeds = std::getenv("HYPERLOOP_SEEDS");
  return seeds != nullptr ? std::strtoull(seeds, nullptr, 10) : usual;
}

TEST(ReplicaSetsTest, OneSetServesWhateverWasCutShort) {
  const uint64_t last = Seeds(800);
  uint64_t openings = 0, changes = 0, settled = 0, forced = 0, regained = 0;
  for (uint64_t seed = 1; seed <= last; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Group group(seed, seed % 2 == 0 ? Kind::kEverything : Kind::kOpenings);
    ASSERT_NO_FATAL_FAILURE(group.Make());
    for (int step = 0; step < 60 && group.wrong().empty(); ++step) group.Step();
    if (group.wrong().empty()) group.Settle();
    ASSERT_EQ(group.wrong(), "");
    openings += group.openings();
    changes += group.changes();
    settled += group.settled();
    forced += group.forced();
    regained += group.regained();
  }
  // Most openings are meant to be cut short or refused, but not all.
  EXPECT_GT(openings, 2 * last);
  EXPECT_GT(changes, last / 2);
  EXPECT_GT(settled, last / 2);
  EXPECT_GT(forced, last / 100);
  EXPECT_GT(regained, last / 4);
}

TEST(ReplicaSetsTest, WhatOpeningsThatWereCutShortLeaveIsWholeAndOpens) {
  const uint64_t last = Seeds(1500);
  uint64_t openings = 0, settled = 0;
  for (uint64_t seed = 1; seed <= last; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Group group(seed, Kind::kCuts);
    ASSERT_NO_FATAL_FAILURE(group.Make());
    for (int step = 0; step < 25 && group.wrong().empty(); ++step) group.Step();
    if (group.wrong().empty()) group.Settle();
    ASSERT_EQ(group.wrong(), "");
    openings += group.openings();
    settled += group.settled();
  }
  EXPECT_GT(openings, 2 * last);
  EXPECT_GT(settled, last / 2);
}

}  // namespace
}  // namespace hyperloop
