#include <algorithm>
#include <thread>
#include <utility>

#include "simulation/scheduler.h"
#include "simulation/steps.h"

namespace hyperloop::simulation {
namespace {

constexpr size_t kMostReplicas = 6;

}  // namespace

ReplicaList Steps::Changed(const ReplicaList& list) {
  ReplicaList next = list.Plain();
  std::set<int> others;
  for (int i = 0; i < world_.count(); ++i)
    if (!list.Set().contains(i)) others.insert(i);
  const bool adds = !others.empty() && next.replicas.size() < kMostReplicas &&
                    (next.replicas.size() < 3 || Below(2) == 0);
  // A new one that is the first of the chain is often the first to install anything.
  const bool first = adds && Below(2) == 0;
  const uint64_t place = first ? 0 : Below(next.replicas.size() + (adds ? 1 : 0));
  const auto at = next.replicas.begin() + static_cast<ptrdiff_t>(place);
  if (adds) {
    next.added = AnyOf(others);
    next.replicas.insert(at, next.added);
  } else {
    next.removed = *at;
    next.replicas.erase(at);
  }
  return next;
}

void Steps::Enlist(int replica) {
  const bool fresh = !world_.exists(replica) || Below(2) == 0;
  if (fresh && !sets_.All().contains(replica) && world_.exists(replica)) world_.LosePool(replica);
  if (!world_.up(replica)) world_.Start(replica);
}

void Steps::ChangeReplicas() {
  const ReplicaList next = Changed(sets_.Any(random_));
  if (next.replicas.empty()) return;
  const bool takeover = Below(2) == 0;
  Say("the group's replicas change to " + next.Text() +
      (takeover ? ", while a primary has it" : ""));
  if (!takeover) {
    Vanish(primary_);
    CheckMembersAlone();
  }
  Below(8) == 0 ? Shuffle() : Heal();
  if (next.added != -1) Enlist(next.added);
  sets_.MayServe(next);
  const size_t host = takeover ? 1 - host_ : host_;
  std::unique_ptr<Primary> opened = Change(host, By(next, takeover || Below(2) == 0));
  if (takeover)
    Replace(std::move(opened), host);
  else
    primary_ = std::move(opened);
  if (primary_ == nullptr) {
    CheckMembersAlone();
    Shuffle();
    for (int tries = 0; tries < 2 && primary_ == nullptr; ++tries)
      primary_ = OpenAsNewProcess(host_, Below(2) == 0);
  }
  if (primary_ == nullptr) {
    Heal();
    OpenSoon();
  }
  if (wrong_.empty() && Below(2) == 0) TryFormerSet();
}

void Steps::AddWhileItServes() {
  if (!sets_.known() || sets_.All().size() >= kMostReplicas) return;
  const std::set<int> before = sets_.All();
  std::set<int> others;
  for (int i = 0; i < world_.count(); ++i)
    if (!before.contains(i)) others.insert(i);
  if (others.empty()) return;
  ReplicaList next = sets_.lists().front().Plain();
  next.added = AnyOf(others);
  next.replicas.push_back(next.added);
  Say("replica " + std::to_string(next.added) + " is proposed to the group");
  Heal();
  Enlist(next.added);
  world_.Place(next.added);
  sets_.MayServe(next);
  const bool disturbs = Below(2) == 0;
  // As for `hyperloopctl add`: what was only installed may be taken back.
  const auto taken_in = [&] {
    return Holds(next) &&
           std::ranges::all_of(next.replicas, [this](int each) { return world_.HasServed(each); });
  };
  for (uint64_t rounds = Below(16); rounds > 0 && !taken_in(); --rounds) {
    for (const int each : before)
      if (world_.up(each)) world_.Propose(each, next.added).IgnoreError();
    std::this_thread::sleep_for(std::chrono::milliseconds(Below(2000)));
    if (disturbs && Below(6) == 0) Restart(AnyReplica(), Below(2) == 0);
  }
  if (taken_in()) {
    sets_.Serves(next.Plain());
    if (Below(2) == 0) return;
  }
  Vanish(primary_);
  CheckMembersAlone();
  Heal();
  OpenSoon();
  if (wrong_.empty() && Below(2) == 0) TryFormerSet();
}

std::unique_ptr<Primary> Steps::Change(size_t host, const Opening& opening) {
  switch (Below(5)) {
    case 0:
      return OpenAsNewProcess(host, opening);
    case 1:
      return OpenInTrouble(host, opening, LossAt(Below(2) == 0 ? Loss::kRequest : Loss::kReply),
                           [](uint64_t) {});
    case 2:
      return OpenInTrouble(host, opening, LossAt(Loss::kRequest),
                           [this](uint64_t) { Restart(AnyReplica(), Below(2) == 0); });
    default:
      OpenAndDie(host, opening);
      return nullptr;
  }
}

void Steps::ChangesCutShort() {
  Vanish(primary_);
  CheckMembersAlone();
  const ReplicaList before = sets_.Any(random_);
  for (uint64_t times = 2 + Below(2); times > 0; --times) {
    const ReplicaList next = Changed(before);
    if (next.replicas.empty()) return OpenSoon();
    Say("a primary dies while it changes the group's replicas to " + next.Text());
    Heal();
    if (next.added != -1) Enlist(next.added);
    sets_.MayServe(next);
    OpenAndDie(host_, By(next, true), LossOfInstalls(next.replicas.size()));
    if (Below(4) == 0) Restart(AnyReplica(), Below(2) == 0);
  }
  CheckMembersAlone();
  Heal();
  KillOneThatIsBehind();
  for (int tries = 0; tries < 4 && primary_ == nullptr && wrong_.empty(); ++tries) {
    const bool newest = Below(2) == 0;
    const ReplicaList list = newest ? sets_.lists().back() : sets_.Any(random_);
    primary_ = OpenAsNewProcess(host_, {list, true, Below(4) != 0});
  }
  if (primary_ != nullptr) ServeWithoutThese();
  Heal();
  OpenSoon();
}

Loss Steps::LossOfInstalls(uint64_t replicas) {
  const uint64_t spared = Below(2) == 0 ? 1 + Below(replicas - 1) : Below(2 * replicas);
  return {Loss::kAll, spared, true};
}

void Steps::KillOneThatIsBehind() {
  const std::set<int> all = sets_.All();
  std::set<int> behind;
  uint64_t newest = 0;
  for (const int each : all) newest = std::max(newest, Recorded(each));
  for (const int each : all)
    if (Recorded(each) < newest) behind.insert(each);
  if (Below(4) != 0) world_.Kill(AnyOf(behind.empty() ? all : behind));
}

void Steps::ServeWithoutThese() {
  primary_->Hurry();
  std::this_thread::sleep_for(std::chrono::milliseconds(Below(200)));
  Vanish(primary_);
  CheckMembersAlone();
  std::vector<ReplicaList> lists = sets_.lists();
  for (const std::set<int>& each : sets_.Former()) lists.push_back({{each.begin(), each.end()}});
  for (int i = 0; i < world_.count(); ++i) {
    if (!world_.exists(i)) continue;
    const bool serves = Recorded(i) >= history_.epoch();
    if (serves && world_.up(i)) world_.Kill(i);
    if (!serves && !world_.up(i)) world_.Start(i);
  }
  for (const ReplicaList& each : lists) MustNotServe(each, true);
}

void Steps::Replace(std::unique_ptr<Primary> next, size_t host) {
  std::this_thread::sleep_for(std::chrono::milliseconds(Below(1000)));
  if (primary_->broke_fence())
    Wrong("a primary acknowledged a write after another one had had the group");
  if (next == nullptr && !primary_->fenced() && Below(2) == 0) return;
  Vanish(primary_);
  primary_ = std::move(next);
  if (primary_ != nullptr) host_ = host;
}

}  // namespace hyperloop::simulation
