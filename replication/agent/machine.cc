#include "agent/machine.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace hyperloop::agent {
namespace {

// A service that ends by itself is started again where it was, once in so long a time.
constexpr std::chrono::seconds kRestartInterval{60};
// More than that of a primary that lives, whatever is busy.
constexpr std::chrono::milliseconds kOrderedSilence{2000};
// Failures further back count no more.
constexpr std::chrono::hours kForget{1};
constexpr uint32_t kMostDoublings = 4;

// The greatest value that so many have reached.
std::optional<uint64_t> ReachedBy(size_t count, std::vector<uint64_t> values) {
  if (values.size() < count) return std::nullopt;
  std::ranges::sort(values, std::greater<>());
  return values[count - 1];
}

// All that it records.
std::vector<std::string> ReplicasOf(const SeenReplica& configuration) {
  std::vector<std::string> all = configuration.members;
  all.insert(all.end(), configuration.absent.begin(), configuration.absent.end());
  std::ranges::sort(all);
  return all;
}

}  // namespace

std::string_view StateName(State state) {
  switch (state) {
    case State::kLost:
      return "lost";
    case State::kFollow:
      return "follow";
    case State::kSuspect:
      return "suspect";
    case State::kCandidate:
      return "candidate";
    case State::kTaking:
      return "taking";
    case State::kPrimary:
      return "primary";
    case State::kStopping:
      return "stopping";
  }
  return "unknown";
}

std::string_view WhyText(Why why) {
  switch (why) {
    case Why::kNone:
      return "";
    case Why::kReleased:
      return "whoever had the group has closed it";
    case Why::kOwn:
      return "this node's service had the group, and has ended";
    case Why::kSilent:
      return "whoever has the group has shown no sign of life for so long";
    case Why::kTaken:
      return "another node has taken the group";
    case Why::kDirected:
      return "operators want the group elsewhere";
    case Why::kLate:
      return "the service is not ready in time";
    case Why::kShutdown:
      return "the agent ends";
    case Why::kIsolated:
      return "no majority of the replicas has shown for so long that the service has the group";
  }
  return "unknown";
}

// Whether so many have reached it that it is the group's. One replica may say what is not so. So
// where the group has got to in the meantime its replicas decide by themselves only if they are
// three or more: then two say so.
bool Machine::IsReached(const Look& look, const SeenReplica& configuration) const {
  const std::vector<std::string> all = ReplicasOf(configuration);
  size_t of_known = 0, of_its = 0;
  for (const auto& [address, seen] : look.answers) {
    if (seen.installed < configuration.installed || seen.group != configuration.group) continue;
    of_known += recorded_.empty() || std::ranges::count(recorded_, address) != 0 ? 1 : 0;
    of_its += std::ranges::count(all, address) != 0 ? 1 : 0;
  }
  const bool by_itself = all.size() >= 3 && configuration.installed > recorded_epoch_;
  return of_known >= Majority() || (by_itself && 2 * of_its > all.size());
}

// The newest that is reached, as most say it: more than one if as many say another one.
std::vector<const SeenReplica*> Machine::Configurations(const Look& look) const {
  std::vector<const SeenReplica*> newest;
  uint64_t epoch = 1;
  ptrdiff_t most = 0;
  for (const auto& [address, seen] : look.answers) {
    if (seen.installed < epoch || !IsReached(look, seen)) continue;
    const auto say = std::ranges::count_if(look.answers, [&](const auto& other) {
      const SeenReplica& it = other.second;
      return it.installed == seen.installed && it.group == seen.group &&
             it.members == seen.members && it.absent == seen.absent;
    });
    if (seen.installed > epoch || say > most) newest.clear();
    if (newest.empty() || say == most) newest.push_back(&seen);
    if (newest.back() == &seen) epoch = seen.installed, most = say;
  }
  return newest;
}

// What one that is neither listed nor recorded any more has said proves nothing of the others.
void Machine::SetListed(const std::vector<std::string>& addresses) {
  listed_ = addresses.size();
  std::erase_if(known_, [&](const auto& each) {
    return std::ranges::count(addresses, each.first) == 0 &&
           std::ranges::count(recorded_, each.first) == 0;
  });
}

// A group that nobody has opened yet.
bool Machine::IsOfNoGroup(const Look& look) const {
  return recorded_.empty() && look.answers.size() >= Majority() &&
         std::ranges::all_of(look.answers,
                             [](const auto& each) { return each.second.installed == 0; });
}

// Whether a majority of the configuration's replicas, and of all, has answered.
bool Machine::Counts(const Look& look) {
  const std::vector<const SeenReplica*> newest = Configurations(look);
  const auto answered = [&](const std::vector<std::string>& addresses) {
    const auto count = std::ranges::count_if(
        addresses, [&](const std::string& each) { return look.answers.contains(each); });
    return 2 * static_cast<size_t>(count) > addresses.size();
  };
  for (const SeenReplica* each : newest)
    if (!answered(ReplicasOf(*each)) || !answered(each->members)) return false;
  const bool alike = std::ranges::all_of(newest, [&](const SeenReplica* each) {
    return ReplicasOf(*each) == ReplicasOf(*newest.front());
  });
  // What is told in two ways changes nothing, and must not be the first that counts.
  if (!alike) return !recorded_.empty() && answered(recorded_);
  if (!newest.empty()) Record(*newest.front());
  return !newest.empty() || IsOfNoGroup(look);
}

void Machine::Record(const SeenReplica& configuration) {
  recorded_ = ReplicasOf(configuration);
  recorded_epoch_ = configuration.installed;
  if (group_.empty()) group_ = configuration.group;
  std::erase_if(known_, [&](const auto& each) { return !Counts(each.first); });
}

// What its replicas say. Those that it does not record, or not yet, count for nothing.
Look Machine::OfTheGroup(const Look& look) const {
  Look group = look;
  std::erase_if(group.answers, [&](const auto& each) { return !Counts(each.first); });
  return group;
}

void Machine::Learn(const Look& look, Time now) {
  for (const auto& [address, seen] : look.answers) {
    Known& known = known_[address];
    const bool first = known.read == Time();
    const bool beats = !first && seen.heartbeat != known.seen.heartbeat;
    if (first || beats || seen.sealed != known.seen.sealed) quiet_since_ = now;
    if (beats && IsOurs(seen) && IsOurs(known.seen)) known.moved = known.read;
    if (!IsOurs(seen)) known.moved.reset();
    known.seen = seen;
    known.read = look.began;
  }
}

// A service that opens its database again is another owner, of the same name.
void Machine::LearnOwn(const Look& look) {
  std::map<std::string_view, size_t> named;
  for (const auto& [address, seen] : look.answers) {
    if (!seen.named || seen.sealed != seen.installed) continue;
    if (++named[seen.owner] >= Majority()) own_ = seen.owner;
  }
}

void Machine::LearnOwner(const Look& look, Time now) {
  std::vector<uint64_t> sealed;
  for (const auto& [address, seen] : look.answers) sealed.push_back(seen.sealed);
  epoch_ = ReachedBy(Majority(), std::move(sealed)).value_or(epoch_);
  size_t released = 0, ours = 0, others = 0;
  for (const auto& [address, seen] : look.answers) {
    released += seen.sealed == epoch_ && seen.released ? 1 : 0;
    const bool installed = seen.sealed == seen.installed && seen.installed != 0;
    ours += IsOurs(seen) ? 1 : 0;
    others += installed && !IsOurs(seen) && !seen.named ? 1 : 0;
  }
  std::map<std::string_view, size_t> owners;
  owner_.clear();
  for (const auto& [address, seen] : look.answers)
    if (seen.sealed == epoch_ && ++owners[seen.owner] >= Majority()) owner_ = seen.owner;
  released_ = released >= Majority();
  if (released_ && std::exchange(released_epoch_, epoch_) != epoch_) released_seen_ = now;
  ours_ = ours >= Majority();
  others_ = others >= Majority();
}

// Whoever changes it reaches a majority, which any majority that answers has a replica in common
// with; and a newer one was made by somebody who knew the older one.
void Machine::LearnDirective(const Look& look) {
  const Directive* told = nullptr;
  for (const auto& [address, seen] : look.answers) {
    const auto alike = std::ranges::count_if(
        look.answers, [&](const auto& other) { return other.second.directive == seen.directive; });
    told_by_most_ = static_cast<size_t>(alike) >= Majority();
    if (told_by_most_ || told == nullptr || seen.directive.number > told->number)
      told = &seen.directive;
    if (told_by_most_) break;
  }
  if (told_by_most_ && told->number >= acknowledged_.number) acknowledged_ = *told;
  // New members say nothing, and more of them than of those that told it make no older one true.
  const bool forgotten = told->number < acknowledged_.number;
  if (forgotten) told_by_most_ = false;
  directive_ = forgotten ? acknowledged_ : *told;
}

// Any majority of all replicas has one of those whose heartbeats were new at this time or later.
void Machine::RenewLease() {
  std::vector<Time> moved;
  for (const auto& [address, known] : known_) {
    const bool serves = IsOurs(known.seen) && !known.seen.released;
    if (serves && known.moved.has_value()) moved.push_back(*known.moved);
  }
  if (moved.size() < Majority()) return;
  had_group_ = true;
  std::ranges::sort(moved, std::greater<>());
  lease_begin_ = std::max(lease_begin_.value_or(Time::min()), moved[Majority() - 1]);
}

bool Machine::Counts(const std::string& address) const {
  return recorded_.empty() || std::ranges::count(recorded_, address) != 0;
}

// One that was left out may be of before the database, or of before it was emptied.
std::optional<bool> Machine::HoldsDatabase(const std::vector<Held>& held) const {
  uint64_t newest = 0;
  for (const Held& each : held) newest = std::max(newest, each.installed);
  size_t some = 0, none = 0;
  for (const Held& each : held) {
    if (each.installed < recorded_epoch_ || !each.holds.has_value()) continue;
    if (*each.holds && each.installed == newest) return true;
    ++(*each.holds ? some : none);
  }
  if (some >= Majority()) return true;
  if (none >= Majority()) return false;
  return std::nullopt;
}

Action Machine::OnLook(const Look& all, Time now, double random) {
  Look answered = all;
  std::erase_if(answered.answers, [&](const auto& each) {
    const std::string& group = each.second.group;
    return !group_.empty() && !group.empty() && group != group_;
  });
  const bool counts = now - all.began <= MostGap() && Counts(answered);
  const Look look = OfTheGroup(answered);
  LearnOwn(look);
  Learn(look, now);
  if (runs_ && state_ != State::kStopping) RenewLease();
  if (!counts) return OnTime(now);
  if (!seen_.has_value() || look.began - *seen_ > MostGap()) quiet_since_ = now;
  seen_ = look.began;
  LearnOwner(look, now);
  LearnDirective(look);
  NoteClaim(now);
  JudgeFailure(now);
  return runs_ ? Run(now) : Wait(look, now, random);
}

Action Machine::End(Action how, Why why) {
  why_ = why;
  lease_begin_.reset();
  state_ = State::kStopping;
  return how;
}

// If there was another owner between the one of the start and this node, it may have had a lease.
void Machine::NoteClaim(Time now) {
  if (!ours_ || claim_from_.has_value()) return;
  const bool next = epoch_ == epoch_at_start_ + 1;
  claim_from_ = next ? predecessor_over_.value_or(now + OthersLease()) : now + OthersLease();
}

Action Machine::Run(Time now) {
  taken_ = taken_ || (had_group_ && others_);
  if (state_ == State::kStopping || (!taken_ && !HasToLeave())) return OnTime(now);
  leaves_ = !taken_;
  return End(Action::kStop, taken_ ? Why::kTaken : Why::kDirected);
}

// Operators want the group elsewhere, and this node's service has it.
bool Machine::HasToLeave() const {
  if (!told_by_most_ || directive_.paused || !had_group_ || !ours_) return false;
  const bool switches = directive_.owner == own_ && !directive_.node.empty();
  return (switches && directive_.node != node_) || directive_.Drains(node_);
}

// Of a time in which the agent stood still, no more counts than a gap between looks may last.
void Machine::NoteWatched(Time now) {
  const auto watched = std::min<BootClock::duration>(now - called_, MostGap());
  called_ = now;
  if ((!had_group_ || !ready_) && !directive_.paused) starting_ += watched;
  if (taken_) {
    without_lease_ += watched;
  } else if (directive_.paused) {
    without_lease_ = BootClock::duration(0);
  } else if (!lease_begin_.has_value() || now < lease_end()) {
    without_lease_ = BootClock::duration(0);
  } else {
    without_lease_ += std::min(watched, now - lease_end());
  }
}

Action Machine::OnTime(Time now) {
  NoteWatched(now);
  if (!runs_) {
    const bool lost = !seen_.has_value() || now - *seen_ > MostGap();
    if (lost) state_ = State::kLost;
    if (lost) due_.reset();
    return Action::kNone;
  }
  const auto isolation = timing_.isolation_timeout;
  if (isolation.count() != 0 && without_lease_ >= isolation && !std::exchange(killed_, true))
    return End(Action::kKill, taken_ ? Why::kTaken : Why::kIsolated);
  if (state_ == State::kStopping) return Action::kNone;
  const bool ready = had_group_ && ready_;
  if (!ready && starting_ >= timing_.start_timeout) return End(Action::kStop, Why::kLate);
  const bool claims = ready && claim_from_.has_value() && now >= *claim_from_ && now < lease_end();
  state_ = claims ? State::kPrimary : State::kTaking;
  return Action::kNone;
}

Why Machine::WhyFree() const {
  if (released_) return Why::kReleased;
  if (ours_) return Why::kOwn;
  // Who is to take it by order need not be as patient: somebody has looked.
  const bool ordered = told_by_most_ && IsLeft() && directive_.node == node_;
  const auto enough =
      ordered ? std::min(kOrderedSilence, timing_.failover_timeout) : timing_.failover_timeout;
  return seen_.has_value() && *seen_ - quiet_since_ >= enough ? Why::kSilent : Why::kNone;
}

// Whoever lost a race to another node has not failed.
void Machine::JudgeFailure(Time now) {
  if (last_failure_.has_value() && now - *last_failure_ >= kForget) failures_ = 0;
  if (!failed_ || runs_) return;
  failed_ = false;
  if (!had_group_ && epoch_ > epoch_at_start_ && !ours_) return;
  last_failure_ = now;
  ++failures_in_all_;
  ++failures_;
}

Time Machine::held_until() const {
  if (failures_ == 0 || !last_failure_.has_value()) return Time::min();
  return *last_failure_ + timing_.hold_off * (1u << std::min(failures_ - 1, kMostDoublings));
}

// Whoever has the group, or had it last, is to leave it to a node.
bool Machine::IsLeft() const {
  return !directive_.node.empty() && !owner_.empty() && directive_.owner == owner_;
}

// For a bounded time.
bool Machine::IsLeftToAnother(Time now) {
  const bool left = IsLeft() && directive_.node != node_;
  if (!left) left_since_.reset();
  if (left && !left_since_.has_value()) left_since_ = now;
  return left && now - *left_since_ < timing_.take_timeout;
}

Action Machine::Wait(const Look& look, Time now, double random) {
  if (shutdown_ || !IsFree()) {
    due_.reset();
    left_since_.reset();
    const bool quiet = now - quiet_since_ >= timing_.failover_timeout / 2;
    state_ = quiet && !shutdown_ ? State::kSuspect : State::kFollow;
    return Action::kNone;
  }
  if (held_back() || IsLeftToAnother(now)) {
    due_.reset();
    state_ = State::kCandidate;
    return Action::kNone;
  }
  // At once, and no second time after a start that failed.
  const bool left_to_me = IsLeft() && directive_.node == node_ && tried_ != directive_.number;
  if (left_to_me) due_ = now;
  if (!due_.has_value()) {
    const bool restarts = had_group_ && ours_ &&
                          (!last_restart_.has_value() || now - *last_restart_ >= kRestartInterval);
    if (restarts) last_restart_ = now;
    const auto wait =
        std::chrono::duration_cast<BootClock::duration>(timing_.stagger * (2 * random));
    due_ = restarts ? now : std::max(now, held_until()) + wait;
  }
  state_ = State::kCandidate;
  return now < *due_ || !look.startable ? Action::kNone : Start(now);
}

Action Machine::Start(Time now) {
  why_ = WhyFree();
  due_.reset();
  if (IsLeft() && directive_.node == node_) tried_ = directive_.number;
  state_ = State::kTaking;
  runs_ = true;
  ready_ = had_group_ = failed_ = taken_ = killed_ = leaves_ = false;
  called_ = now;
  starting_ = without_lease_ = BootClock::duration(0);
  epoch_at_start_ = epoch_;
  lease_begin_.reset();
  own_.clear();
  for (auto& [address, known] : known_) known.moved.reset();
  predecessor_over_.reset();
  if (ours_) {
    predecessor_over_ = claim_from_;
  } else if (released_) {
    predecessor_over_ = released_seen_.value_or(now) + OthersLease();
  }
  claim_from_.reset();
  ++takings_;
  return Action::kStart;
}

void Machine::OnEnded(Time) {
  if (!runs_) return;
  failed_ = state_ != State::kStopping || !had_group_ || (!shutdown_ && !leaves_);
  runs_ = false;
  lease_begin_.reset();
  state_ = State::kFollow;
}

Action Machine::OnShutdown() {
  shutdown_ = true;
  return runs_ ? End(Action::kStop, Why::kShutdown) : Action::kNone;
}

}  // namespace hyperloop::agent
