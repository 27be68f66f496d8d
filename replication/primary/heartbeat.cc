#include "primary/heartbeat.h"

#include <algorithm>
#include <array>
#include <span>
#include <system_error>
#include <utility>

#include "common/heartbeat_word.h"

namespace hyperloop {

Heartbeat::Heartbeat(std::vector<Target> targets, int avoid_cpu)
    : members_(MembersOf(std::move(targets))),
      avoid_cpu_(avoid_cpu),
      thread_(
          "hl-heartbeat",
          [this] {
            Beat();
            return kInterval;
          },
          avoid_cpu) {}

std::vector<Heartbeat::Member> Heartbeat::MembersOf(std::vector<Target> targets) {
  std::vector<Member> members;
  for (Target& each : targets)
    members.push_back({std::move(each), false, Clock::now(), false, false});
  return members;
}

void Heartbeat::SetTargets(std::vector<Target> targets) {
  std::vector<Member> next = MembersOf(std::move(targets));
  const MutexLock lock(members_mutex_);
  members_.swap(next);
  lost_name_.clear();
  lost_.store(false, std::memory_order_relaxed);
}

std::string Heartbeat::lost_name() {
  const MutexLock lock(members_mutex_);
  return lost_name_;
}

Heartbeat::Clock::time_point Heartbeat::all_heard() {
  auto heard = Clock::now();
  const MutexLock lock(members_mutex_);
  for (const Member& each : members_)
    if (each.target.access != nullptr) heard = std::min(heard, each.heard);
  return heard;
}

void Heartbeat::SetDamage(std::string_view text) {
  const OwnerDamage damage = EncodeOwnerDamage(text);
  const MutexLock lock(members_mutex_);
  if (damage == damage_) return;
  damage_ = damage;
  for (Member& each : members_) each.told = false;
}

// The former owner's text goes, too.
Status Heartbeat::StartLocked(Member& member) {
  const Target& target = member.target;
  if (target.access == nullptr) return Busy("the member's memory cannot be reached");
  constexpr uint64_t kOffset = kOwnerDamageOffset - kHeartbeatOffset;
  if (member.beaten && !member.told && target.word.size > kOffset) {
    const Status started = target.access->StartWrite(target.word, kOffset, damage_);
    member.told = started.ok();
    member.beaten = !started.ok();
    return started;
  }
  const std::array<uint64_t, 2> words{word_, acked_.load(std::memory_order_relaxed)};
  static_assert(kOwnerAckedOffset == kHeartbeatOffset + sizeof(words[0]));
  const auto fit = std::min<uint64_t>(sizeof(words), target.word.size);
  const Status started =
      target.access->StartWrite(target.word, 0, std::as_bytes(std::span(words)).first(fit));
  member.beaten = member.beaten || started.ok();
  return started;
}

// A member that cannot be reached misses beats. The other members do not.
void Heartbeat::Beat() {
  const MutexLock lock(members_mutex_);
  word_ = NextHeartbeat(word_);
  for (size_t i = 0; i < members_.size(); ++i) {
    Member& each = members_[i];
    const Status started = StartLocked(each);
    each.missed = !started.ok();
    if (started.ok()) each.heard = Clock::now();
    if (each.missed && each.target.tell != nullptr) WakeTeller(i);
    if (started.ok() || started.code() == Code::kBusy) continue;
    if (!lost()) lost_name_ = each.target.name;
    lost_.store(true, std::memory_order_relaxed);
  }
}

// If no thread can be made, the next beat tries again.
void Heartbeat::WakeTeller(size_t place) {
  if (place >= tellers_.size()) tellers_.resize(place + 1);
  std::unique_ptr<PeriodicThread>& teller = tellers_[place];
  if (teller != nullptr) return teller->Wake();
  const auto tell = [this, place] {
    Tell(place);
    return std::chrono::hours(1);  // until it is woken
  };
  try {
    teller = std::make_unique<PeriodicThread>("hl-teller", tell, avoid_cpu_);
  } catch (const std::system_error&) {
  }
}

void Heartbeat::Tell(size_t place) {
  std::function<void()> tell;
  {
    const MutexLock lock(members_mutex_);
    if (place < members_.size() && members_[place].missed) tell = members_[place].target.tell;
  }
  if (tell != nullptr && !ending_) tell();
}

}  // namespace hyperloop
