#include <set>
#include <thread>

#include "simulation/steps.h"

namespace hyperloop::simulation {
namespace {

constexpr std::chrono::seconds kComesBack{10};     // a replica that started again
constexpr std::chrono::seconds kGoesOn{20};        // a group, once it leaves a replica out
constexpr std::chrono::seconds kFindsDamage{140};  // a minute until the check, one until the list

}  // namespace

void Steps::StopOrStart(int replica) {
  if (!world_.up(replica)) return world_.Start(replica);
  Say("replica " + std::to_string(replica) + " ends");
  world_.Kill(replica);
}

void Steps::CutAndHeal(int replica) {
  Say("replica " + std::to_string(replica) + " is out of reach");
  world_.SetReachable(replica, false);
  std::this_thread::sleep_for(std::chrono::milliseconds(Below(1500)));
  world_.SetReachable(replica, true);
}

void Steps::StopReplica(int replica) {
  if (!world_.up(replica)) return world_.Start(replica);
  Say("replica " + std::to_string(replica) + " is stopped for a while");
  world_.SetStopped(replica, true);
  std::this_thread::sleep_for(std::chrono::milliseconds(Below(3000)));
  world_.SetStopped(replica, false);
}

void Steps::StopAllReplicas() {
  if (!Settled()) return;
  Say("all replicas are stopped for a while");
  const std::set<int> all = sets_.All();
  for (const int each : all) world_.SetStopped(each, true);
  primary_->Hurry();
  std::this_thread::sleep_for(std::chrono::milliseconds(Below(1500)));
  for (const int each : all) world_.SetStopped(each, false);
  if (Below(2) == 0) LoseDirectoriesNow();
}

void Steps::SilenceReplica() {
  const std::chrono::milliseconds timeout = world_.options().heartbeat_timeout;
  if (timeout.count() == 0 || sets_.All().size() < 3 || !Settled()) return;
  const int silent = AnyReplica();
  Say("replica " + std::to_string(silent) + " is silent");
  std::set<int> others = sets_.All();
  others.erase(silent);
  world_.SetStopped(silent, true);
  std::this_thread::sleep_for(timeout + kGoesOn);
  if (!Holds({{others.begin(), others.end()}}))
    Wrong("the group waits for replica " + std::to_string(silent) + ", which is silent");
  world_.SetStopped(silent, false);
  if (Below(2) == 0) Restart(silent, Below(2) == 0);
  if (Below(2) == 0) return;
  Vanish(primary_);
  CheckMembersAlone();
  Heal();
  OpenSoon();
}

void Steps::LoseAllPower() {
  Say("all replicas lose power");
  for (int i = 0; i < world_.count(); ++i)
    if (world_.up(i)) world_.LosePower(i);
  Vanish(primary_);
  CheckMembersAlone();
  Heal();
  for (uint64_t times = Below(3); times > 0; --times) {
    OpenAndDie(host_, By(sets_.Any(random_), true));
    CheckMembersAlone();
  }
  OpenSoon();
}

void Steps::LosePool() {
  const bool lives = continues_ && Below(2) == 0;
  if (!lives) {
    Vanish(primary_);
    CheckMembersAlone();
  }
  Heal();
  // A majority must be left, of what any replica has recorded.
  if (Settled() && sets_.All().size() >= 3) {
    const int lost = AnyReplica();
    Say("the pool of replica " + std::to_string(lost) + " is lost");
    lost_pool_ = true;
    world_.LosePool(lost);
    std::this_thread::sleep_for(std::chrono::milliseconds(Below(2) == 0 ? 0 : Below(3000)));
    world_.Start(lost);
  }
  if (!lives) OpenSoon();
}

void Steps::DamageOne() {
  // Not the only copy, and nothing that is not written yet.
  const std::set<int> all = sets_.All();
  if (!sets_.known() || all.size() == 1) return;
  if (std::ranges::any_of(all, [this](int each) { return Recorded(each) == 0; })) return;
  Vanish(primary_);
  CheckMembersAlone();
  Heal();
  const bool own = Below(all.size() + 1) == 0;
  const int replica = AnyReplica();
  const std::string damaged = own ? kPrimaries[host_] : World::NameOf(replica);
  if (!own) world_.Kill(replica);
  const uint64_t at = world_.Damage(damaged);
  Say("the pool of " + damaged + " is damaged at " + std::to_string(at));
  Heal();
  OpenSoon();
}

void Steps::DamageTable() {
  if (!Settled()) return;
  const std::set<uint64_t> whole = HeldByAll();
  if (whole.empty()) return;
  const int replica = AnyReplica();
  const WholeFile file = FileOfTable(AnyOf(whole));
  Say("the disk of replica " + std::to_string(replica) + " changes " + file.name);
  world_.DamageFile(replica, file);
  if (sets_.All().size() > 1 && Below(2) == 0) {
    LoseDirectoriesNow();
    if (!wrong_.empty()) return;
  }
  // A replica that starts again checks its files soon, and not in an hour.
  world_.Kill(replica);
  world_.Start(replica);
  std::this_thread::sleep_for(kComesBack);
  primary_->Rest(true);
  std::this_thread::sleep_for(kFindsDamage);
  const auto listed = primary_->ListedTables();
  if (!world_.HoldsSound(replica, file) && listed.ok() && listed->contains(file))
    Wrong("replica " + std::to_string(replica) + " still has " + file.name + " damaged");
  primary_->Rest(false);
}

void Steps::LoseDirectories() {
  if (Settled()) LoseDirectoriesNow();
}

void Steps::LoseDirectoriesNow() {
  Say("the directories of all primaries are lost");
  Vanish(primary_);
  CheckMembersAlone();
  for (size_t host = 0; host < kPrimaries.size(); ++host) tables_.directory(host).clear();
  if (Below(2) == 0) host_ = 1 - host_;
  OpenSoon();
}

void Steps::RestartRnic() {
  for (uint64_t times = 1 + Below(2); times > 0; --times) {
    const std::string host = AnyHost();
    Say("the RNIC of " + host + "'s machine restarts");
    world_.fabric().Restart(host);
    std::this_thread::sleep_for(std::chrono::microseconds(Below(uint64_t{1} << Below(22))));
  }
}

void Steps::FailDisk() {
  if (!world_.on_disks()) return;
  const int replica = AnyReplica();
  if (!world_.up(replica)) return;
  Say("the disk of replica " + std::to_string(replica) + " fails");
  world_.FailDisk(replica);
  std::this_thread::sleep_for(std::chrono::milliseconds(Below(2) == 0 ? 0 : Below(1500)));
  if (Below(2) == 0) {
    Vanish(primary_);
    CheckMembersAlone();
    primary_ = OpenAsNewProcess(host_, true);
  }
  if (world_.up(replica)) world_.LosePower(replica);
  world_.Start(replica);
  if (primary_ != nullptr) return;
  Heal();
  OpenSoon();
}

void Steps::DisturbLink() {
  if (!world_.fabric().apart()) return;
  const std::string one = World::NameOf(AnyReplica());
  const std::string other = AnyHost();
  if (one == other) return;
  if (Below(3) == 0) {
    Say("the link between " + one + " and " + other + " breaks");
    return world_.fabric().Reset(one, other);
  }
  Say("the link between " + one + " and " + other + " is cut");
  world_.fabric().SetCut(one, other, true);
  std::this_thread::sleep_for(std::chrono::milliseconds(Below(Below(2) == 0 ? 20 : 3000)));
  world_.fabric().SetCut(one, other, false);
}

}  // namespace hyperloop::simulation
