// Several agents' machines over a simulated group, in true time that none of them knows: each
// host's clock runs up to 200 ppm wrong, a look takes time and an agent may stand still in the
// midst of one, messages are under way, and ways fail in one direction or both. A failure prints
// its seed, and the command that replays it.
//
// What happens after each failure (machine.h tells the rules), and which test holds it:
//
//   the service ends               ServiceEnds: it is started again where it was, once
//   the service cannot be started  StartFails: another node serves; FailedNodeIsNotShutOut
//   the primary's host is lost     HostLost
//   it reaches one replica only    BeatsAtAMinority: its agent ends it, and then another serves
//   the primary is cut off         CutOffPrimary: its claim ends with the lease, then its process
//   another host is cut off        CutOffOther: nothing happens
//   a way from the primary fails   OneWayLost: nothing happens, whichever direction it is
//   every way fails                AllWaysLost: nobody serves; and somebody when they are back
//   a replica is lost, or is back  ReplicaLost: the service goes on under new epochs
//   the service stands still       ServiceStandsStill: another node serves, and stays
//   an agent stands still          AgentStandsStill: it decides nothing from what it did not see
//   two want the group             OneOfTwoGetsIt
//   agents are paused              PauseIsObeyed: nothing is started or ended, whatever happens
//   the group is to change nodes   Switchover: the other node has it; nobody else tries
//   a cut amid that                SwitchoverThatIsCut: somebody serves in the end
//   a node is drained              Drain: another one serves, and it never does
//   all begin at once              AllBegin
//   nothing fails                  NothingFails: nobody changes places in an hour
//   any of these, in any order     AnySchedule: no two claim to be primary, somebody is in the end
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/machine.h"
#include "support/seeds.h"

namespace hyperloop::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using Moment = std::chrono::nanoseconds;  // of true time

constexpr size_t kHosts = 3, kMajority = 2;
constexpr seconds kMostHeld{160};  // 16 times Timing::hold_off
// Each host has a replica, an agent, and the service while the agent runs it.

using Set = unsigned;  // of replicas: a bit each
constexpr Set kAll = (1u << kHosts) - 1;
Set One(size_t replica) { return 1u << replica; }
bool Contains(Set set, size_t replica) { return (set & One(replica)) != 0; }
size_t Size(Set set) { return static_cast<size_t>(std::popcount(set)); }

struct Replica {
  uint64_t sealed = 1, installed = 1;
  int owner = 0;       // a service's number
  int name = 0;        // which service its name is of; the owner's at the latest when it installs
  Set members = kAll;  // of the installed configuration
  bool released = true;
  uint64_t heartbeat = 1;
  Moment beaten{};  // when it was written last
  Directive directive;
  DirectiveNumber promised;
};

std::string NameOf(size_t host) { return std::string(1, static_cast<char>('a' + host)); }
std::string OwnerOf(int service) { return "owner " + std::to_string(service); }

struct Group {
  Moment now{};
  Timing timing;  // all agents'
  std::mt19937_64 random;
  std::array<Replica, kHosts> replicas;
  std::array<bool, kHosts> up;      // hosts
  std::array<bool, kHosts> lost{};  // replicas whose hosts may be up
  // From a host to a replica: for its agent's looks, and for what its service writes.
  std::array<std::array<bool, kHosts>, kHosts> looks_cut{}, writes_cut{};
  std::set<uint64_t> served;  // epochs that a service has served
  int services = 0;
  int operators = 0;  // at work
  int commands = 0;   // begun
  int epochs_served_twice = 0;
  std::array<bool, kHosts> orders_cut{};  // from operators to a replica
  // Since when agents are paused, as an operator was told, and nobody has asked for another thing.
  std::optional<Moment> paused_since;
  std::array<std::optional<Moment>, kHosts> drained_since;

  explicit Group(uint64_t seed) : random(seed) { up.fill(true); }
  double Luck() { return std::uniform_real_distribution<double>()(random); }
  bool Chance(double part) { return Luck() < part; }
  Moment Between(Moment least, Moment most) {
    return least +
           Moment(static_cast<int64_t>(Luck() * static_cast<double>((most - least).count())));
  }
  // A message's.
  Moment Delay() {
    return Chance(0.01) ? Between(milliseconds(10), milliseconds(200))
                        : Between(Moment(20'000), milliseconds(5));
  }
  bool Runs(size_t replica) const { return up[replica] && !lost[replica]; }
  bool Looks(size_t host, size_t replica) const {
    return Runs(replica) && !looks_cut[host][replica];
  }
  bool Writes(size_t host, size_t replica) const {
    return Runs(replica) && !writes_cut[host][replica];
  }

  void After(Moment wait, std::function<void()> what) {
    queue_.push({now + wait, ++count_, std::move(what)});
  }
  // The next event, if it is due by then.
  bool Step(Moment until) {
    if (queue_.empty() || queue_.top().when > until) {
      now = until;
      return false;
    }
    const std::function<void()> what = queue_.top().what;
    now = queue_.top().when;
    queue_.pop();
    what();
    return true;
  }

 private:
  struct Item {
    Moment when;
    uint64_t number;
    std::function<void()> what;
    bool operator<(const Item& other) const {
      return std::pair(when, number) > std::pair(other.when, other.number);
    }
  };
  std::priority_queue<Item> queue_;
  uint64_t count_ = 0;
};

// An operator, who changes what all agents are told, in two steps, as hyperloopctl does. What he
// sends arrives at each replica that he reaches then, or not at all.
class Operator : public std::enable_shared_from_this<Operator> {
 public:
  Operator(Group& group, std::function<void(Directive*)> edit)
      : group_(group), edit_(std::move(edit)) {}
  bool done() const { return done_; }

  void Begin() {
    alone_ = ++group_.operators == 1;
    command_ = ++group_.commands;
    group_.paused_since.reset();  // from now on another thing may hold
    group_.drained_since = {};
    Try();
  }

 private:
  using Step = void (Operator::*)(size_t);
  // What `step` does at each replica that is reached, and `next` when all that answer have.
  void Ask(Step step, void (Operator::*next)()) {
    granted_ = 0;
    Moment longest{};
    for (size_t i = 0; i < kHosts; ++i) {
      const Moment there = group_.Delay();
      longest = std::max(longest, there + group_.Delay());
      group_.After(there, [self = shared_from_this(), step, i] {
        if (self->group_.Runs(i) && !self->group_.orders_cut[i]) ((*self).*step)(i);
      });
    }
    group_.After(longest, [self = shared_from_this(), next] { ((*self).*next)(); });
  }
  void Try() {
    number_ = {greatest_ + 1, group_.random()};
    newest_ = {};
    Ask(&Operator::Promise, &Operator::Promised);
  }
  void Promise(size_t i) {
    Replica& replica = group_.replicas[i];
    greatest_ = std::max(greatest_, replica.promised.count);
    if (number_ <= replica.promised) return;
    replica.promised = number_;
    ++granted_;
    if (replica.directive.number > newest_.number) newest_ = replica.directive;
  }
  void Promised() {
    if (granted_ < kMajority) return Again();
    edit_(&newest_);
    newest_.number = number_;
    Ask(&Operator::Give, &Operator::Given);
  }
  void Give(size_t i) {
    Replica& replica = group_.replicas[i];
    greatest_ = std::max(greatest_, replica.promised.count);
    if (number_ < replica.promised) return;
    replica.promised = number_;
    replica.directive = newest_;
    ++granted_;
  }
  void Given() {
    if (granted_ < kMajority) return Again();
    done_ = true;
    --group_.operators;
    // What somebody else does meanwhile may count as done after it, also if he fails.
    if (!alone_ || command_ != group_.commands) return;
    if (newest_.paused) group_.paused_since = group_.now;
    for (size_t i = 0; i < kHosts; ++i)
      if (newest_.Drains(NameOf(i))) group_.drained_since[i] = group_.now;
  }
  void Again() {
    if (++tries_ == 5) return static_cast<void>(--group_.operators);
    group_.After(group_.Between(Moment(0), milliseconds(300)),
                 [self = shared_from_this()] { self->Try(); });
  }

  Group& group_;
  const std::function<void(Directive*)> edit_;
  DirectiveNumber number_;
  Directive newest_;
  uint64_t greatest_ = 0;
  size_t granted_ = 0;
  int tries_ = 0, command_ = 0;
  bool done_ = false, alone_ = false;
};

// A service that opens its database on the group: it looks, watches for a sign of life, seals one
// replica after the other on the state that it saw, installs its epoch, and beats. Some do not
// watch: what machines promise must not rest on that.
//
// While it serves, it leaves out a replica that is away, takes in one that is back, and takes the
// group back from who sealed replicas and gave up. For each of these it seals all replicas that it
// reaches under a new epoch, and installs that much later.
class Service : public std::enable_shared_from_this<Service> {
 public:
  Service(Group& group, size_t host, std::function<void()> on_end)
      : group_(group), host_(host), number_(++group.services), on_end_(std::move(on_end)) {}
  int number() const { return number_; }
  bool serves() const { return serves_ && !ended_; }
  // Nobody else has sealed a majority.
  bool has_group() const { return Size(Held()) >= kMajority; }
  void StandStill(Moment time) { still_until_ = std::max(still_until_, group_.now + time); }

  void Begin(bool broken) {
    After(group_.Between(milliseconds(5), milliseconds(100)),
          broken ? &Service::End : &Service::Look);
  }
  void End() {
    if (std::exchange(ended_, true)) return;
    group_.After(Moment(0), on_end_);
  }
  // In order, if it can.
  void Close() {
    if (ended_) return;
    if (group_.now >= still_until_) Release();
    End();
  }

 private:
  void After(Moment wait, void (Service::*what)()) {
    group_.After(wait, [self = shared_from_this(), what] { self->Do(what); });
  }
  void Do(void (Service::*what)()) {
    if (ended_) return;
    if (group_.now < still_until_) return After(still_until_ - group_.now, what);
    (this->*what)();
  }
  bool Has(const Replica& replica) const { return replica.owner == number_; }
  // Somebody else has served since.
  bool Lost(const Replica& replica) const {
    return !Has(replica) && replica.installed > installed_;
  }
  void Look() {
    for (size_t i = 0; i < kHosts; ++i)
      if (group_.Writes(host_, i)) seen_[i] = group_.replicas[i];
    const bool watches = !group_.Chance(0.3);
    const bool released = std::ranges::all_of(
        seen_, [](const auto& each) { return !each.has_value() || each->released; });
    if (!watches || released) return After(group_.Delay(), &Service::Judge);
    After(group_.Between(milliseconds(500), milliseconds(1500)), &Service::Judge);
  }
  void Judge() {
    for (size_t i = 0; i < kHosts; ++i) {
      if (!group_.Writes(host_, i)) seen_[i].reset();
      if (!seen_[i].has_value()) continue;
      const Replica& replica = group_.replicas[i];
      const bool lives = !replica.released && replica.heartbeat != seen_[i]->heartbeat;
      if (lives || replica.sealed != seen_[i]->sealed) return End();
      epoch_ = std::max(epoch_, replica.sealed + 1);
    }
    Set seen = 0;
    const Replica* newest = nullptr;
    for (size_t i = 0; i < kHosts; ++i) {
      if (!seen_[i].has_value()) continue;
      seen |= One(i);
      if (newest == nullptr || seen_[i]->installed > newest->installed) newest = &*seen_[i];
    }
    if (!IsEnough(seen, newest == nullptr ? kAll : newest->members)) return End();
    Seal();
  }
  static bool IsEnough(Set reached, Set members) {
    return Size(reached) >= kMajority && 2 * Size(reached & members) > Size(members);
  }
  void Seal() {
    if (sealing_ == kHosts) return Sealed();
    const size_t i = sealing_++;
    Replica& replica = group_.replicas[i];
    if (!seen_[i].has_value() || !group_.Writes(host_, i)) return Seal();
    if (replica.sealed != seen_[i]->sealed) return GiveUp();
    replica.sealed = epoch_;
    replica.owner = number_;
    replica.released = false;
    After(group_.Delay(), &Service::Seal);
  }
  Set Held() const {
    Set held = 0;
    for (size_t i = 0; i < kHosts; ++i) held |= Has(group_.replicas[i]) ? One(i) : 0;
    return held;
  }
  void Sealed() {
    members_ = Held();
    if (Size(members_) < kMajority) return GiveUp();
    installed_ = epoch_ - 1;
    Beat();
    After(group_.Between(milliseconds(1), milliseconds(1000)), &Service::Install);
  }
  void GiveUp() {
    if (group_.Chance(0.5)) Release();
    End();
  }
  void Install() {
    size_t installed = 0;
    for (size_t i = 0; i < kHosts; ++i) {
      Replica& replica = group_.replicas[i];
      if (!group_.Writes(host_, i) || !Has(replica) || !Contains(members_, i)) continue;
      replica.installed = epoch_;
      replica.name = number_;
      replica.members = members_;
      ++installed;
    }
    if (installed < kMajority && !serves_) return GiveUp();
    if (installed >= kMajority && !group_.served.insert(epoch_).second)
      ++group_.epochs_served_twice;
    installed_ = epoch_;
    serves_ = true;
    since_ = group_.now;
    After(milliseconds(100), &Service::Watch);
  }
  // Whether the members, and who has sealed them, have to change. What somebody else has sealed is
  // his as long as it shows his heartbeats.
  void Watch() {
    Set reached = 0;
    bool changes = false;
    for (size_t i = 0; i < kHosts; ++i) {
      if (!group_.Writes(host_, i)) continue;
      reached |= One(i);
      const Replica& replica = group_.replicas[i];
      if (Lost(replica)) return End();
      const bool is_his = !Has(replica) && Contains(members_, i);
      const bool lives = is_his && (!seen_[i].has_value() || seen_[i]->sealed != replica.sealed ||
                                    seen_[i]->heartbeat != replica.heartbeat);
      if (lives) since_ = group_.now;
      changes = changes || is_his || replica.installed != epoch_;
      seen_[i] = replica;
    }
    changes = changes || reached != members_;
    if (!changes || !IsEnough(reached, members_)) since_ = group_.now;
    if (group_.now - since_ < milliseconds(1000)) return After(milliseconds(100), &Service::Watch);
    since_ = group_.now;
    members_ = reached;
    for (const Replica& each : group_.replicas) epoch_ = std::max(epoch_, each.sealed + 1);
    sealing_ = 0;
    SealAnew();
  }
  void SealAnew() {
    if (sealing_ == kHosts) {
      // It attaches to the members, brings their regions up to date, and installs.
      return After(group_.Between(milliseconds(1), seconds(12)), &Service::Install);
    }
    const size_t i = sealing_++;
    if (!Contains(members_, i)) return SealAnew();
    Replica& replica = group_.replicas[i];
    if (!group_.Writes(host_, i) || replica.sealed >= epoch_)
      return After(milliseconds(100), &Service::Watch);
    if (Lost(replica)) return End();
    replica.sealed = epoch_;
    replica.owner = number_;
    replica.released = false;
    beats_from_[i] = group_.now + group_.Between(Moment(0), milliseconds(300));
    After(group_.Delay(), &Service::SealAnew);
  }
  void Release() {
    for (size_t i = 0; i < kHosts; ++i)
      if (group_.Writes(host_, i) && Has(group_.replicas[i])) group_.replicas[i].released = true;
  }
  // A beat that is under way arrives whatever becomes of its sender.
  void Beat() {
    for (size_t i = 0; i < kHosts; ++i) {
      if (!group_.Writes(host_, i)) continue;
      group_.After(group_.Delay(), [self = shared_from_this(), i] { self->Arrive(i); });
    }
    After(milliseconds(100), &Service::Beat);
  }
  void Arrive(size_t i) {
    Replica& replica = group_.replicas[i];
    if (Lost(replica) && group_.now >= still_until_) return End();  // it is fenced
    if (!Has(replica) || !group_.Writes(host_, i) || group_.now < beats_from_[i]) return;
    ++replica.heartbeat;
    replica.beaten = group_.now;
  }

  Group& group_;
  const size_t host_;
  const int number_;
  const std::function<void()> on_end_;
  std::array<std::optional<Replica>, kHosts> seen_;
  size_t sealing_ = 0;
  uint64_t epoch_ = 0, installed_ = 0;
  Set members_ = 0;
  Moment since_{};                           // when the members were last as they are to be
  std::array<Moment, kHosts> beats_from_{};  // when each is attached after it was sealed anew
  bool serves_ = false, ended_ = false;
  Moment still_until_{};
};

// Whoever drives a machine, as long as its process lives.
class Agent : public std::enable_shared_from_this<Agent> {
 public:
  Agent(Group& group, size_t host, double rate)
      : group_(group),
        host_(host),
        rate_(rate),
        timing_(group.timing),
        machine_(timing_, kHosts, NameOf(host)) {}

  void Begin() { After(group_.Between(Moment(0), milliseconds(200)), &Agent::BeginLook); }
  // What a request would be told now. One that stands still says nothing.
  bool Claims() const {
    return !ended_ && group_.now >= still_until_ && machine_.state() == State::kPrimary &&
           Local() < machine_.lease_end();
  }
  bool serves() const { return service_ != nullptr && service_->serves(); }
  bool stands_still() const { return group_.now < still_until_; }
  const Machine& machine() const { return machine_; }
  Service* service() { return service_.get(); }
  int starts() const { return starts_; }
  const std::string& wrong() const { return wrong_; }
  void ShutDown() {
    shut_down_ = true;
    CarryOut(machine_.OnShutdown());
  }
  void Break(bool broken) { broken_ = broken; }
  // When it goes on, requests may be answered before it has seen what has happened.
  void StandStill(Moment time) {
    still_until_ = std::max(still_until_, group_.now + time);
    group_.After(time, [] {});
  }
  // With its host, or alone: the service does not survive it.
  void Kill() {
    if (service_ != nullptr) service_->End();
    ended_ = true;
  }
  Time Local() const {
    return Time(seconds(1000 * (host_ + 1))) +
           Moment(static_cast<int64_t>(static_cast<double>(group_.now.count()) * rate_));
  }
  // How long it is held off from now on.
  Moment Held() const {
    const Time now = Local(), until = machine_.held_until();
    return until > now ? until - now : Moment(0);
  }

 private:
  struct Answer {
    Replica seen;
    Moment read{};
  };
  void After(Moment wait, void (Agent::*what)()) {
    group_.After(wait, [self = shared_from_this(), what] { self->Do(what); });
  }
  void Do(void (Agent::*what)()) {
    if (ended_) return;
    if (group_.now < still_until_) return After(still_until_ - group_.now + group_.Delay(), what);
    (this->*what)();
  }
  void BeginLook() {
    CarryOut(machine_.OnTime(Local()));
    began_ = Local();
    began_truly_ = group_.now;
    ++look_;
    answers_ = {};
    Moment longest{};
    for (size_t i = 0; i < kHosts; ++i) {
      if (!group_.Looks(host_, i)) continue;
      const Moment there = group_.Delay(), back = group_.Delay();
      longest = std::max(longest, there + back);
      group_.After(there, [self = shared_from_this(), i, look = look_] { self->Read(i, look); });
    }
    After(longest, &Agent::EndLook);
  }
  // The replica answers, although the agent may stand still.
  void Read(size_t i, uint64_t look) {
    if (look == look_ && group_.Looks(host_, i))
      answers_[i] = Answer{group_.replicas[i], group_.now};
  }
  bool Ours(const Replica& seen) const { return last_service_ != 0 && seen.owner == last_service_; }
  void EndLook() {
    using Addresses = std::vector<std::string>;
    static const Addresses addresses = {NameOf(0), NameOf(1), NameOf(2)};
    agent::Look look{began_, {}};
    for (size_t i = 0; i < kHosts; ++i) {
      if (!answers_[i].has_value()) continue;
      const Replica& seen = answers_[i]->seen;
      SeenReplica& says = look.answers[addresses[i]];
      says = {seen.sealed,
              seen.installed,
              OwnerOf(seen.owner),
              false,
              seen.released,
              seen.heartbeat,
              {},
              {}};
      says.directive = seen.directive;
      says.named = last_service_ != 0 && seen.name == last_service_;
      for (size_t j = 0; j < kHosts; ++j)
        (Contains(seen.members, j) ? says.members : says.absent).push_back(addresses[j]);
    }
    NoteWatched();
    const Action action = machine_.OnLook(look, Local(), group_.Luck());
    if (machine_.majority_seen() == began_) counted_ = began_truly_;
    CarryOut(action);
    CarryOut(machine_.OnTime(Local()));
    const Moment wait = began_ + timing_.look_interval - Local();
    After(std::max(wait, Moment(0)), &Agent::BeginLook);
  }
  void NoteWatched() {
    if (group_.now - watched_ > 4 * timing_.look_interval) watched_since_ = group_.now;
    watched_ = group_.now;
  }
  void CarryOut(Action action) {
    if (action == Action::kStart) return Start();
    if (action == Action::kNone || service_ == nullptr) return;
    if (IsPaused() && !shut_down_ && service_->serves() && service_->has_group())
      wrong_ = "it ended a healthy service in spite of a pause";
    if (action == Action::kKill) return service_->End();
    group_.After(group_.Between(Moment(0), seconds(3)), [service = service_] { service->Close(); });
  }
  void Start() {
    if (service_ != nullptr) wrong_ = "it started a service beside the one that it had";
    CheckSilence();
    if (IsPaused()) wrong_ = "it started a service in spite of a pause";
    const std::optional<Moment> drained = group_.drained_since[host_];
    if (drained.has_value() && *drained <= counted_) wrong_ = "it started a drained service";
    ++starts_;
    const auto note_end = [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->Do(&Agent::NoteEnd);
    };
    service_ = std::make_shared<Service>(group_, host_, note_end);
    last_service_ = service_->number();
    service_->Begin(broken_);
    machine_.OnReady();
  }
  // It was acknowledged before the look began on which this decision rests.
  bool IsPaused() const {
    return group_.paused_since.has_value() && *group_.paused_since <= counted_;
  }
  void NoteEnd() {
    service_ = nullptr;
    machine_.OnEnded(Local());
  }
  // A group that its owner has not closed, and that is not this node's, is free only after silence
  // that was watched, and watched until just now.
  void CheckSilence() {
    size_t owned = 0;
    for (const auto& each : answers_) owned += each.has_value() && Ours(each->seen) ? 1 : 0;
    if (machine_.released() || owned >= kMajority) return;
    const double rate = 0.999;  // of the slowest clock, and less
    const auto answered =
        std::ranges::count_if(answers_, [](const auto& each) { return each.has_value(); });
    if (answered < 2) wrong_ = "it judged by a minority";
    if (group_.now - watched_since_ < timing_.failover_timeout * rate)
      wrong_ = "it judged what it did not watch";
    for (const auto& each : answers_) {
      if (!each.has_value()) continue;
      if (group_.now - each->read > 4 * timing_.look_interval) wrong_ = "it judged by an old look";
      const Moment silent = each->read - each->seen.beaten;
      if (silent < timing_.failover_timeout * rate) wrong_ = "it started in spite of a heartbeat";
    }
  }

  Group& group_;
  const size_t host_;
  const double rate_;  // of its clock
  const Timing timing_;
  Machine machine_;
  std::array<std::optional<Answer>, kHosts> answers_;  // of the last look
  Time began_{};
  Moment began_truly_{}, counted_{};  // of the last look; of the last one that counted
  uint64_t look_ = 0;
  Moment watched_ = -seconds(10), watched_since_{};  // looks have ended since then without a gap
  std::shared_ptr<Service> service_;
  int last_service_ = 0, starts_ = 0;
  bool broken_ = false, ended_ = false, shut_down_ = false;
  std::string wrong_;
  Moment still_until_{};
};

class AgentsTest : public testing::Test {
 protected:
  void Begin(uint64_t seed, const Timing& timing = {}) {
    group_.emplace(seed);
    group_->timing = timing;
    most_claims_ = 0;
    wrong_.clear();
    agents_ = {};
    for (size_t i = 0; i < kHosts; ++i) {
      rates_[i] = 1 + (group_->Luck() * 2 - 1) * 200e-6;
      Boot(i);
    }
  }
  void BeginServed(uint64_t seed, const Timing& timing = {}) {
    Begin(seed, timing);
    ASSERT_TRUE(RunUntilServed(seconds(10)));
    Run(seconds(3));
    for (int i = 0; i < 30 && !IsWhole(); ++i) Run(seconds(1));
    ASSERT_TRUE(IsWhole());
    primary_ = Primary();
    ASSERT_TRUE(primary_.has_value());
  }
  // Whether all replicas are members, and no epoch waits to be installed.
  bool IsWhole() const {
    return std::ranges::all_of(group_->replicas, [this](const Replica& each) {
      return each.members == kAll && each.sealed == each.installed &&
             each.installed == group_->replicas[0].installed;
    });
  }
  void Boot(size_t host) {
    group_->up[host] = true;
    StartAgent(host);
  }
  void StartAgent(size_t host) {
    if (agents_[host] != nullptr) return;
    agents_[host] = std::make_shared<Agent>(*group_, host, rates_[host]);
    agents_[host]->Begin();
  }
  void KillAgent(size_t host) {
    if (agents_[host] == nullptr) return;
    NoteWrong(host);
    agents_[host]->Kill();
    agents_[host] = nullptr;
  }
  void Crash(size_t host) {
    KillAgent(host);
    group_->up[host] = false;
  }
  void Cut(size_t host) {
    group_->looks_cut[host].fill(true);
    group_->writes_cut[host].fill(true);
  }
  void CutWrites(size_t host) { group_->writes_cut[host].fill(true); }
  std::shared_ptr<Operator> BeginToTell(std::function<void(Directive*)> edit) {
    auto teller = std::make_shared<Operator>(*group_, std::move(edit));
    teller->Begin();
    return teller;
  }
  // Until it is acknowledged.
  void Tell(const std::function<void(Directive*)>& edit) {
    const std::shared_ptr<Operator> teller = BeginToTell(edit);
    for (int i = 0; i < 100 && !teller->done(); ++i) Run(milliseconds(20));
    ASSERT_TRUE(teller->done());
  }
  static void Pause(Directive* directive) { directive->paused = true; }
  static void Resume(Directive* directive) { *directive = {}; }
  // From whoever has the group.
  std::function<void(Directive*)> SwitchoverTo(size_t host) const {
    const int owner = group_->replicas[host].owner;
    return [=](Directive* directive) {
      directive->owner = OwnerOf(owner);
      directive->node = NameOf(host);
    };
  }
  static std::function<void(Directive*)> DrainOf(size_t host) {
    return [=](Directive* directive) { directive->drained = {NameOf(host)}; };
  }
  Agent& primary() { return *agents_[*primary_]; }
  size_t Another() const { return (*primary_ + 1) % kHosts; }
  // Once its agent knows that it has the group.
  void EndNextService() {
    for (int i = 0; i < 400; ++i) {
      Run(milliseconds(10));
      for (size_t host = 0; host < kHosts; ++host) {
        if (host == *primary_ || agents_[host]->machine().lease_end() == Time::min()) continue;
        if (agents_[host]->serves()) agents_[host]->service()->End();
        return;
      }
    }
  }
  // Whether another host serves by then, and goes on to serve.
  bool AnotherServes(Moment most) {
    const Moment until = group_->now + most;
    while (group_->now < until && (!Primary().has_value() || *Primary() == *primary_))
      Run(milliseconds(50));
    const std::optional<size_t> found = Primary();
    const int starts = Starts();
    Run(seconds(30));
    return found.has_value() && *found != *primary_ && Primary() == found && Starts() == starts;
  }
  // Whether nobody has started anything, or changed places, since BeginServed and for a minute.
  bool NothingHappens() {
    const int starts = Starts();
    Run(minutes(1));
    return Starts() == starts && primary().serves();
  }
  void Mend() {
    group_->looks_cut = group_->writes_cut = {};
    group_->lost = {};
    group_->orders_cut = {};
    for (size_t i = 0; i < kHosts; ++i) {
      Boot(i);
      agents_[i]->Break(false);
    }
  }
  void Run(Moment time) {
    const Moment until = group_->now + time;
    while (group_->Step(until)) Watch();
  }
  bool RunUntilServed(Moment most) {
    const Moment until = group_->now + most;
    while (!Primary().has_value() && group_->Step(until)) Watch();
    return Primary().has_value();
  }
  // Whoever claims to be it.
  std::optional<size_t> Primary() const {
    for (size_t i = 0; i < kHosts; ++i)
      if (agents_[i] != nullptr && agents_[i]->Claims()) return i;
    return std::nullopt;
  }
  int Starts() const {
    int starts = 0;
    for (const auto& each : agents_) starts += each == nullptr ? 0 : each->starts();
    return starts;
  }
  uint64_t Epoch() const {
    uint64_t epoch = 0;
    for (const Replica& each : group_->replicas) epoch = std::max(epoch, each.sealed);
    return epoch;
  }
  void CheckPromises(uint64_t seed) {
    for (size_t i = 0; i < kHosts; ++i) NoteWrong(i);
    EXPECT_LE(most_claims_, 1) << "nodes claimed to be the primary at one time";
    EXPECT_EQ(group_->epochs_served_twice, 0);
    EXPECT_EQ(wrong_, "");
    if (HasFailure()) GTEST_FAIL() << test::Replay(seed);
  }
  void Disturb();

  std::optional<Group> group_;
  std::array<std::shared_ptr<Agent>, kHosts> agents_;
  std::optional<size_t> primary_;  // BeginServed's

 private:
  void Watch() {
    int claims = 0;
    for (const auto& each : agents_) claims += each != nullptr && each->Claims() ? 1 : 0;
    most_claims_ = std::max(most_claims_, claims);
  }
  void NoteWrong(size_t host) {
    if (agents_[host] != nullptr && wrong_.empty()) wrong_ = agents_[host]->wrong();
  }

  std::array<double, kHosts> rates_{};
  int most_claims_ = 0;
  std::string wrong_;
};

void AgentsTest::Disturb() {
  const size_t host = group_->random() % kHosts, replica = group_->random() % kHosts;
  const std::shared_ptr<Agent>& agent = agents_[host];
  const Moment time = group_->Between(Moment(0), seconds(6));
  Service* const service = agent == nullptr ? nullptr : agent->service();
  switch (group_->random() % 21) {
    case 0:
      return Crash(host);
    case 1:
    case 2:
      return Boot(host);
    case 3:
      return KillAgent(host);
    case 4:
      if (group_->up[host]) StartAgent(host);
      return;
    case 5:
      if (service != nullptr) group_->Chance(0.5) ? service->End() : service->Close();
      return;
    case 6:
      if (service != nullptr) service->StandStill(time);
      return;
    case 7:
      if (agent != nullptr) agent->StandStill(time);
      return;
    case 8:
      if (service != nullptr) service->StandStill(time);
      if (agent != nullptr) agent->StandStill(time);
      return;
    case 9:
      group_->looks_cut[host][replica] = true;
      return;
    case 10:
      group_->writes_cut[host][replica] = true;
      return;
    case 11:
      return Cut(host);
    case 12:
    case 13:
      group_->lost[replica] = !group_->lost[replica];
      return;
    case 14:
      group_->looks_cut[host].fill(false);
      group_->writes_cut[host].fill(false);
      return;
    case 15:
      BeginToTell(Pause);
      return;
    case 16:
      BeginToTell(Resume);
      return;
    case 17:
      BeginToTell(SwitchoverTo(host));
      return;
    case 18:
      BeginToTell(DrainOf(host));
      return;
    case 19:
      group_->orders_cut[replica] = !group_->orders_cut[replica];
      return;
    default:
      if (agent != nullptr) agent->Break(group_->Chance(0.5));
      return;
  }
}

TEST_F(AgentsTest, AllBegin) {
  for (const uint64_t seed : test::Seeds(500)) {
    Begin(seed);
    EXPECT_TRUE(RunUntilServed(seconds(10)));
    CheckPromises(seed);
    if (HasFailure()) return;
  }
}

TEST_F(AgentsTest, NothingFails) {
  for (const uint64_t seed : test::Seeds(10)) {
    BeginServed(seed);
    const uint64_t epoch = Epoch();
    const int starts = Starts();
    for (int i = 0; i < 60; ++i) {
      Run(minutes(1));
      EXPECT_EQ(Primary(), primary_);
    }
    EXPECT_EQ(Epoch(), epoch);
    EXPECT_EQ(Starts(), starts);
    CheckPromises(seed);
    if (HasFailure()) return;
  }
}

TEST_F(AgentsTest, ServiceEnds) {
  for (const uint64_t seed : test::Seeds(200)) {
    BeginServed(seed);
    primary().service()->StandStill(seconds(1));
    Run(milliseconds(400));  // until no heartbeat of it is under way
    primary().service()->End();
    Run(milliseconds(10));
    EXPECT_FALSE(Primary().has_value());
    EXPECT_TRUE(RunUntilServed(seconds(5))) << test::Replay(seed);
    ASSERT_EQ(Primary(), primary_) << test::Replay(seed);
    // Once more within a minute: another node is to try.
    primary().service()->End();
    EXPECT_TRUE(AnotherServes(seconds(8)));
    CheckPromises(seed);
    if (HasFailure()) return;
  }
}

TEST_F(AgentsTest, StartFails) {
  for (const uint64_t seed : test::Seeds(200)) {
    BeginServed(seed);
    const size_t broken = Another(), last = 3 - broken - *primary_;
    agents_[broken]->Break(true);
    Crash(*primary_);
    EXPECT_TRUE(AnotherServes(seconds(10)));
    EXPECT_EQ(Primary(), last);
    CheckPromises(seed);
    if (HasFailure()) return;
  }
}

// A failure makes a node step back for a while, and only then.
TEST_F(AgentsTest, FailedNodeIsNotShutOut) {
  for (const uint64_t seed : test::Seeds(100)) {
    BeginServed(seed);
    const size_t left = Another();
    KillAgent(3 - left - *primary_);
    agents_[left]->Break(true);
    KillAgent(*primary_);
    Run(minutes(2));
    EXPECT_FALSE(Primary().has_value());
    EXPECT_GE(agents_[left]->machine().failures(), 3u);
    agents_[left]->Break(false);
    if (group_->Chance(0.5)) {
      EXPECT_TRUE(RunUntilServed(kMostHeld + seconds(10)));
    } else {
      StartAgent(*primary_);
      EXPECT_TRUE(RunUntilServed(seconds(10)));
      EXPECT_EQ(Primary(), primary_);
      // Its failures are long ago when the group is free again.
      Run(minutes(5));
      KillAgent(*primary_);
      EXPECT_TRUE(RunUntilServed(seconds(10)));
    }
    EXPECT_EQ(Primary(), left);
    CheckPromises(seed);
    if (HasFailure()) return;
  }
}

TEST_F(AgentsTest, HostLost) {
  for (const uint64_t seed : test::Seeds(500)) {
    BeginServed(seed);
    Crash(*primary_);
    EXPECT_TRUE(AnotherServes(seconds(8)));
    CheckPromises(seed);
    if (HasFailure()) return;
  }
}

TEST_F(AgentsTest, CutOffPrimary) {
  for (const uint64_t seed : test::Seeds(500)) {
    BeginServed(seed);
    Cut(*primary_);
    Run(Timing().lease + milliseconds(2));
    EXPECT_FALSE(primary().Claims());
    EXPECT_TRUE(primary().serves());
    Run(Timing().isolation_timeout + Timing().look_interval);
    EXPECT_FALSE(primary().serves());
    EXPECT_TRUE(AnotherServes(seconds(3)));
    // It does not take the group from the other one when it is back.
    const std::optional<size_t> other = Primary();
    const int starts = Starts();
    Mend();
    Run(minutes(1));
    EXPECT_EQ(Primary(), other);
    EXPECT_EQ(Starts(), starts);
    CheckPromises(seed);
    if (HasFailure()) return;
  }
}

// A heartbeat at any replica shows that the primary lives. So nobody takes the group before its own
// agent has ended it, and nobody at all if that was told to leave it.
TEST_F(AgentsTest, BeatsAtAMinority) {
  for (const uint64_t seed : test::Seeds(200)) {
    const bool stays = seed % 2 == 0;
    Timing timing;
    if (stays) timing.isolation_timeout = milliseconds(0);
    BeginServed(seed, timing);
    CutWrites(*primary_);
    group_->writes_cut[*primary_][group_->random() % kHosts] = false;
    const int starts = Starts();
    Run(Timing().lease + milliseconds(500));
    EXPECT_FALSE(primary().Claims());
    Run(stays ? minutes(3) : seconds(4));
    EXPECT_EQ(Starts(), starts);
    EXPECT_TRUE(primary().serves());
    EXPECT_EQ(AnotherServes(seconds(10)), !stays);
    CheckPromises(seed);
    if (HasFailure()) return;
  }
}

TEST_F(AgentsTest, CutOffOther) {
  for (const uint64_t seed : test::Seeds(100)) {
    BeginServed(seed);
    Cut(Another());
    EXPECT_TRUE(NothingHappens());
    EXPECT_EQ(agents_[Another()]->machine().state(), State::kLost);
    CheckPromises(seed);
    if (HasFailure()) return;
  }
}

TEST_F(AgentsTest, OneWayLost) {
  for (const uint64_t seed : test::Seeds(100)) {
    BeginServed(seed);
    (group_->Chance(0.5) ? group_->looks_cut : group_->writes_cut)[*primary_][Another()] = true;
    EXPECT_TRUE(NothingHappens());
    EXPECT_EQ(Primary(), primary_);
    CheckPromises(seed);
    if (HasFailure()) return;
  }
}

// The service leaves it out and takes it in under new epochs, each of which it seals long before it
// installs it. Its node claims to be the primary all the time.
TEST_F(AgentsTest, ReplicaLost) {
  for (const uint64_t seed : test::Seeds(50)) {
    BeginServed(seed);
    const int starts = Starts();
    const uint64_t epoch = Epoch();
    const auto watch = [&](Moment time) {
      const Moment until = group_->now + time;
      while (group_->now < until && Primary() == primary_) Run(milliseconds(10));
    };
    for (int i = 0; i < 4; ++i) {
      const size_t replica = group_->random() % kHosts;
      group_->lost[replica] = true;
      watch(group_->Between(seconds(2), seconds(40)));
      group_->lost[replica] = false;
      watch(seconds(40));
    }
    EXPECT_EQ(Primary(), primary_);
    EXPECT_EQ(Starts(), starts);
    EXPECT_GE(Epoch(), epoch + 8);
    CheckPromises(seed);
    if (HasFailure()) return;
  }
}

TEST_F(AgentsTest, AllWaysLost) {
  for (const uint64_t seed : test::Seeds(200)) {
    BeginServed(seed);
    for (size_t i = 0; i < kHosts; ++i) Cut(i);
    const uint64_t epoch = Epoch();
    Run(seconds(30));
    for (const auto& each : agents_) EXPECT_FALSE(each->Claims() || each->serves());
    EXPECT_EQ(Epoch(), epoch);
    Mend();
    EXPECT_TRUE(RunUntilServed(seconds(10)));
    CheckPromises(seed);
    if (HasFailure()) return;
  }
}

TEST_F(AgentsTest, ServiceStandsStill) {
  for (const uint64_t seed : test::Seeds(200)) {
    BeginServed(seed);
    primary().service()->StandStill(seconds(20));
    EXPECT_TRUE(AnotherServes(seconds(10)));
    CheckPromises(seed);
    if (HasFailure()) return;
  }
}

// Also in the midst of a look, whose answers it finds when it goes on.
TEST_F(AgentsTest, AgentStandsStill) {
  for (const uint64_t seed : test::Seeds(500)) {
    BeginServed(seed);
    const uint64_t epoch = Epoch();
    for (int i = 0; i < 20; ++i) {
      agents_[group_->random() % kHosts]->StandStill(group_->Between(Moment(0), seconds(10)));
      Run(group_->Between(Moment(0), seconds(2)));
    }
    Run(seconds(15));
    EXPECT_EQ(Primary(), primary_);
    EXPECT_EQ(Epoch(), epoch);
    CheckPromises(seed);
    if (HasFailure()) return;
  }
}

TEST_F(AgentsTest, OneOfTwoGetsIt) {
  for (const uint64_t seed : test::Seeds(500)) {
    BeginServed(seed);
    primary().ShutDown();
    EXPECT_TRUE(AnotherServes(seconds(8)));
    CheckPromises(seed);
    if (HasFailure()) return;
  }
}

// The service ends in order while its agent stands still, and claims on from the lease when it
// wakes.
TEST_F(AgentsTest, ClosedBehindTheAgentsBack) {
  for (const uint64_t seed : test::Seeds(1000)) {
    BeginServed(seed);
    const std::shared_ptr<Agent> agent = agents_[*primary_];
    agent->StandStill(group_->Between(milliseconds(200), milliseconds(1490)));
    agent->service()->Close();
    Run(seconds(5));
    CheckPromises(seed);
    if (HasFailure()) return;
  }
}

// The last that arrives of a cut off primary are heartbeats, when another node has already seen
// silence for long enough. The other one's service may end then, and be started again.
TEST_F(AgentsTest, HeartbeatsAtTheLastMoment) {
  for (const uint64_t seed : test::Seeds(1000)) {
    BeginServed(seed);
    CutWrites(*primary_);
    Run(group_->Between(milliseconds(1800), milliseconds(3500)));
    group_->writes_cut = {};
    Run(group_->Between(milliseconds(50), milliseconds(400)));
    Cut(*primary_);
    if (group_->Chance(0.5)) EndNextService();
    Run(seconds(5));
    CheckPromises(seed);
    if (HasFailure()) return;
  }
}

// Two start on a group that was closed, and the slower one follows on the other, who is cut off.
TEST_F(AgentsTest, AnotherOwnerInBetween) {
  for (const uint64_t seed : test::Seeds(1000)) {
    BeginServed(seed);
    primary().ShutDown();
    std::shared_ptr<Agent> slow;
    for (int i = 0; i < 1000 && slow == nullptr; ++i) {
      Run(milliseconds(10));
      for (const auto& each : agents_)
        if (each != agents_[*primary_] && each->service() != nullptr) slow = each;
    }
    ASSERT_NE(slow, nullptr);
    slow->service()->StandStill(group_->Between(seconds(2), seconds(5)));
    EXPECT_TRUE(RunUntilServed(seconds(8)));
    const std::optional<size_t> next = Primary();
    Run(group_->Between(Moment(0), seconds(2)));
    if (next.has_value()) Cut(*next);
    Run(seconds(6));
    CheckPromises(seed);
    if (HasFailure()) return;
  }
}

TEST_F(AgentsTest, PauseIsObeyed) {
  for (const uint64_t seed : test::Seeds(500)) {
    BeginServed(seed);
    const size_t missing = group_->random() % kHosts;
    group_->orders_cut[missing] = group_->Chance(0.5);
    Tell(Pause);
    group_->orders_cut = {};
    Run(seconds(1));
    int starts = Starts();
    switch (group_->random() % 4) {
      case 0:
        primary().service()->End();
        break;
      case 1:
        Crash(*primary_);
        starts = Starts();
        break;
      case 2:
        Cut(*primary_);
        Run(minutes(1));
        EXPECT_TRUE(primary().serves());
        EXPECT_FALSE(primary().Claims());
        break;
      default:
        // Of those that know of the pause one answers, besides one that may have missed it.
        group_->lost[(missing + 1) % kHosts] = true;
        Run(seconds(2));
        primary().service()->End();
    }
    Run(minutes(1));
    EXPECT_EQ(Starts(), starts);
    Mend();
    Run(seconds(1));
    EXPECT_EQ(Starts(), starts);
    Tell(Resume);
    EXPECT_TRUE(RunUntilServed(seconds(20)));
    CheckPromises(seed);
    if (HasFailure()) return;
  }
}

// A command reached one replica, and failed. It has a smaller number than any that is acknowledged
// after it, because a majority had promised its number before.
TEST_F(AgentsTest, ACommandThatFailedHidesNoLaterPause) {
  for (const uint64_t seed : test::Seeds(100)) {
    BeginServed(seed);
    for (int i = 0; i < 2; ++i) {
      group_->orders_cut = {true, false, false};
      const auto failed = BeginToTell(Resume);
      // Until two have promised the same; then one of them is cut off.
      const auto promised = [this](size_t replica) { return group_->replicas[replica].promised; };
      const DirectiveNumber before = promised(1);
      while (promised(1) == before || promised(1) != promised(2)) Run(Moment(1'000));
      group_->orders_cut[1] = true;
      Run(seconds(10));
      EXPECT_FALSE(failed->done());
    }
    EXPECT_GT(group_->replicas[2].directive.number, group_->replicas[1].directive.number);
    group_->orders_cut = {false, false, true};
    Tell(Pause);
    group_->lost[0] = true;
    Run(seconds(10));
    primary().service()->End();
    const int starts = Starts();
    Run(seconds(30));
    EXPECT_EQ(Starts(), starts);
    CheckPromises(seed);
    if (HasFailure()) return;
  }
}

TEST_F(AgentsTest, Switchover) {
  for (const uint64_t seed : test::Seeds(500)) {
    BeginServed(seed);
    const size_t next = group_->Chance(0.5) ? Another() : 3 - Another() - *primary_;
    const int starts = Starts();
    group_->orders_cut[group_->random() % kHosts] = group_->Chance(0.5);
    Tell(SwitchoverTo(next));
    EXPECT_TRUE(AnotherServes(seconds(8)));
    EXPECT_EQ(Primary(), next);
    EXPECT_EQ(Starts(), starts + 1) << "nobody else tried";
    // It was done, and is not done again when the group changes hands once more.
    Crash(next);
    EXPECT_TRUE(RunUntilServed(seconds(8)));
    CheckPromises(seed);
    if (HasFailure()) return;
  }
}

TEST_F(AgentsTest, SwitchoverThatIsCut) {
  for (const uint64_t seed : test::Seeds(1000)) {
    BeginServed(seed);
    const size_t next = Another(), third = 3 - next - *primary_;
    BeginToTell(SwitchoverTo(next));
    Run(group_->Between(Moment(0), seconds(4)));
    switch (group_->random() % 6) {
      case 0:
        Crash(next);
        break;
      case 1:
        Cut(next);
        break;
      case 2:
        Crash(*primary_);
        break;
      case 3:
        Cut(*primary_);
        break;
      case 4:
        Cut(third);
        break;
      default:
        agents_[next]->Break(true);
        if (agents_[next]->service() != nullptr) agents_[next]->service()->End();
    }
    Run(group_->timing.take_timeout + seconds(20));
    EXPECT_TRUE(RunUntilServed(group_->timing.hold_off));
    Mend();
    Run(seconds(20));
    EXPECT_TRUE(Primary().has_value());
    CheckPromises(seed);
    if (HasFailure()) return;
  }
}

TEST_F(AgentsTest, Drain) {
  for (const uint64_t seed : test::Seeds(200)) {
    BeginServed(seed);
    const size_t drained = *primary_;
    Tell(DrainOf(drained));
    EXPECT_TRUE(AnotherServes(seconds(8)));
    const std::optional<size_t> next = Primary();
    if (next.has_value()) KillAgent(*next);
    EXPECT_TRUE(RunUntilServed(seconds(8)));
    const std::optional<size_t> last = Primary();
    EXPECT_TRUE(last.has_value() && *last != drained && last != next);
    if (last.has_value()) KillAgent(*last);
    Run(minutes(1));
    EXPECT_FALSE(Primary().has_value());
    Tell(Resume);
    EXPECT_TRUE(RunUntilServed(seconds(8)));
    CheckPromises(seed);
    if (HasFailure()) return;
  }
}

TEST_F(AgentsTest, AnySchedule) {
  for (const uint64_t seed : test::Seeds(1000)) {
    Begin(seed);
    for (int i = 0; i < 30; ++i) {
      Disturb();
      Run(group_->Between(Moment(0), seconds(3)));
    }
    Mend();
    Run(seconds(6));  // until nothing stands still
    Tell(Resume);
    Moment held = kMostHeld;
    for (const auto& each : agents_) held = std::min(held, each->Held());
    // A service that was told to leave may be ending yet.
    EXPECT_TRUE(RunUntilServed(held + seconds(20)));
    CheckPromises(seed);
    if (HasFailure()) return;
  }
}

// What does not depend on chance: a machine by itself, and looks at three replicas.
class WatchTest : public testing::Test {
 protected:
  Look Seen(uint64_t epoch, bool ours, uint64_t heartbeat) {
    Look look{now_, {}};
    for (const char* each : {"a", "b", "c"})
      look.answers[each] = {
          epoch,           epoch, "owner " + std::to_string(epoch), ours, false, heartbeat,
          {"a", "b", "c"}, {}};
    return look;
  }
  // Looks that are answered at once, of an unmoved group, until then.
  void WatchSilence(milliseconds time) {
    for (const Time until = now_ + time; now_ < until; now_ += timing_.look_interval)
      EXPECT_EQ(machine_.OnLook(Seen(5, false, 9), now_, 0), Action::kNone);
  }

  const Timing timing_;
  Machine machine_{timing_, 3, "a"};
  Time now_{seconds(1000)};
};

TEST_F(WatchTest, SilenceLastsUntilTheLookBegan) {
  WatchSilence(milliseconds(2000));
  now_ -= milliseconds(50);
  const Look look = Seen(5, false, 9);
  // It began 1950 ms after the first one.
  EXPECT_EQ(machine_.OnLook(look, now_ + milliseconds(400), 0), Action::kNone);
  EXPECT_EQ(machine_.state(), State::kSuspect);
  now_ += milliseconds(450);
  EXPECT_EQ(machine_.OnLook(Seen(5, false, 9), now_, 0), Action::kStart);
}

TEST_F(WatchTest, AClaimBearsClocksThatRunApart) {
  WatchSilence(milliseconds(2000));
  ASSERT_EQ(machine_.OnLook(Seen(5, false, 9), now_, 0), Action::kStart);
  machine_.OnReady();
  now_ += milliseconds(200);
  const Time taken = now_;  // that is seen then
  uint64_t heartbeat = 9;
  for (; now_ <= taken + timing_.lease; now_ += milliseconds(100))
    EXPECT_EQ(machine_.OnLook(Seen(6, true, ++heartbeat), now_, 0), Action::kNone);
  // Two clocks that are each 200 ppm wrong differ by 0.6 ms in that time.
  machine_.OnTime(taken + timing_.lease + std::chrono::microseconds(600));
  EXPECT_EQ(machine_.state(), State::kTaking);
  machine_.OnTime(taken + timing_.lease + milliseconds(2));
  EXPECT_EQ(machine_.state(), State::kPrimary);
}

// Its service has begun again, and the predecessor of both may have a lease yet.
TEST_F(WatchTest, AServiceStartedAgainClaimsNoEarlier) {
  WatchSilence(milliseconds(2000));
  ASSERT_EQ(machine_.OnLook(Seen(5, false, 9), now_, 0), Action::kStart);
  machine_.OnReady();
  const Time taken = now_ + milliseconds(100);
  uint64_t heartbeat = 9;
  for (int i = 0; i < 4; ++i) {
    now_ += milliseconds(100);
    EXPECT_EQ(machine_.OnLook(Seen(6, true, ++heartbeat), now_, 0), Action::kNone);
  }
  machine_.OnEnded(now_);
  now_ += milliseconds(100);
  ASSERT_EQ(machine_.OnLook(Seen(6, true, heartbeat), now_, 0), Action::kStart);
  machine_.OnReady();
  for (; now_ <= taken + timing_.lease; now_ += milliseconds(100)) {
    EXPECT_EQ(machine_.OnLook(Seen(7, true, ++heartbeat), now_, 0), Action::kNone);
    EXPECT_EQ(machine_.state(), State::kTaking);
  }
  machine_.OnLook(Seen(7, true, ++heartbeat), now_, 0);
  EXPECT_EQ(machine_.state(), State::kPrimary);
}

}  // namespace
}  // namespace hyperloop::agent
