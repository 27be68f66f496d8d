#include <array>
#include <chrono>
#include <thread>
#include <utility>

#include "simulation/scheduler.h"
#include "simulation/steps.h"

namespace hyperloop::simulation {
namespace {

// More than a primary waits for a replica before it goes on without it.
constexpr std::chrono::seconds kLeavesOut{6};

}  // namespace

void Steps::OpenWithSome() {
  Say("the primary vanishes, and the next one finds some replicas");
  Vanish(primary_);
  CheckMembersAlone();
  Shuffle();
  primary_ = OpenAsNewProcess(host_, Below(2) == 0);
  if (primary_ != nullptr) return;
  Heal();
  OpenSoon();
}

void Steps::CloseAndOpen() {
  Say("the primary closes");
  primary_->Stop();
  primary_->Close().IgnoreError();
  primary_.reset();
  Heal();
  OpenSoon();
}

void Steps::Takeover() {
  Say("another primary takes the group");
  std::unique_ptr<Primary> former = std::move(primary_);
  host_ = 1 - host_;
  primary_ = OpenAsNewProcess(host_, true);
  if (primary_ == nullptr && !former->fenced()) {
    primary_ = std::move(former);
    host_ = 1 - host_;
    return;
  }
  if (primary_ != nullptr) {
    former->Overtaken();
    std::this_thread::sleep_for(std::chrono::milliseconds(Below(1000)));
  }
  former->Stop();
  if (former->broke_fence())
    Wrong("a primary acknowledged a write after another one had the group");
  former.reset();
  if (primary_ != nullptr) return;
  Heal();
  OpenSoon();
}

void Steps::Race() {
  Say("two primaries take the group at the same time");
  Vanish(primary_);
  std::array<std::unique_ptr<Primary>, kPrimaries.size()> takers;
  const std::array<uint64_t, 2> processes{Scheduler::Get().NewProcess(),
                                          Scheduler::Get().NewProcess()};
  const auto take = [&](size_t own) {
    const AsProcess as(processes[own]);
    takers[own] = Open(own, By(sets_.Any(random_), true));
    if (takers[own] == nullptr) return;
    host_ = own;
    if (takers[1 - own] != nullptr) takers[1 - own]->Overtaken();
  };
  std::thread other([&] { take(1); });
  std::thread staller;
  if (Below(2) == 0) staller = std::thread([&] { Stall(processes[Below(2)]); });
  take(0);
  other.join();
  if (staller.joinable()) staller.join();
  std::this_thread::sleep_for(std::chrono::milliseconds(Below(1000)));
  if (takers[0] != nullptr && takers[1] != nullptr && Below(2) == 0) {
    Say("the later one of them vanishes");
    Vanish(takers[host_]);
    std::this_thread::sleep_for(std::chrono::milliseconds(Below(4000)));
  }
  for (const auto& each : takers) {
    if (each != nullptr) each->Stop();
    if (each != nullptr && each->broke_fence())
      Wrong("of two primaries that took the group at once, both acknowledge writes");
  }
  primary_ = std::move(takers[host_]);
  takers = {};
  if (primary_ != nullptr) Vanish(primary_);
  CheckMembersAlone();
  Heal();
  OpenSoon();
}

void Steps::Stall(uint64_t process) {
  std::this_thread::sleep_for(std::chrono::microseconds(Below(30'000)));
  Scheduler::Get().SetStopped(process, true);
  std::this_thread::sleep_for(std::chrono::milliseconds(Below(2000)));
  Scheduler::Get().SetStopped(process, false);
}

void Steps::WakeUpLate() {
  const int replica = AnyReplica();
  if (world_.up(replica) && Below(4) != 0) {
    world_.Kill(replica);
    world_.Start(replica);
  }
  std::this_thread::sleep_for(std::chrono::microseconds(Below(uint64_t{1} << Below(20))));
  if (Below(2) == 0) primary_->BeginLongTable();
  Say("the primary is stopped, and another one takes the group");
  std::unique_ptr<Primary> former = std::move(primary_);
  Scheduler::Get().SetStopped(former->process(), true);
  host_ = 1 - host_;
  Heal();
  OpenSoon();
  if (primary_ == nullptr) return Vanish(former);
  former->Overtaken();
  std::this_thread::sleep_for(std::chrono::milliseconds(Below(500)));
  Say("the former primary wakes up");
  const std::set<uint64_t> held = HeldByAll();
  Scheduler::Get().SetStopped(former->process(), false);
  if (Below(2) == 0) CutAndHeal(AnyReplica());
  std::this_thread::sleep_for(std::chrono::milliseconds(Below(2000)));
  if (former->broke_fence()) Wrong("a primary that woke up late acknowledged a write");
  const std::set<uint64_t> still_held = HeldByAll();
  for (const uint64_t table : held)
    if (tables_.named().contains(table) && !still_held.contains(table))
      Wrong("a primary that woke up late took " + NameOfTable(table) + " from a replica");
  Vanish(former);
  if (Below(2) == 0) return;
  Vanish(primary_);
  CheckMembersAlone();
  Heal();
  OpenSoon();
}

void Steps::DieWhileOpening() {
  const bool takeover = Below(2) == 0;
  Say(std::string("a primary dies while it ") + (takeover ? "takes" : "opens") + " the group");
  if (!takeover) {
    Vanish(primary_);
    CheckMembersAlone();
    Below(2) == 0 ? Heal() : Shuffle();
  }
  OpenAndDie(takeover ? 1 - host_ : host_, By(sets_.Any(random_), takeover || Below(2) == 0));
  if (takeover) {
    std::this_thread::sleep_for(std::chrono::milliseconds(Below(1000)));
    if (primary_->broke_fence())
      Wrong("a primary acknowledged a write after another one had had the group");
    if (!primary_->fenced() && Below(2) == 0) return;
    Vanish(primary_);
  }
  CheckMembersAlone();
  Heal();
  OpenSoon();
}

void Steps::SealOneThatIsBehind() {
  if (!continues_ || sets_.All().size() < 3 || !Settled()) return;
  const int behind = AnyReplica();
  Say("the primary goes on without replica " + std::to_string(behind));
  world_.Kill(behind);
  std::this_thread::sleep_for(kLeavesOut);
  primary_->Hurry();
  std::this_thread::sleep_for(std::chrono::milliseconds(Below(1000)));
  Vanish(primary_);
  CheckMembersAlone();
  Heal();
  OpenAndDie(host_, By(sets_.Any(random_), true), Loss{Loss::kAll, Below(sets_.All().size())});
  CheckMembersAlone();
  Heal();
  OpenSoon();
}

}  // namespace hyperloop::simulation
