#include "primary/heartbeat.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "common/heartbeat_word.h"

namespace hyperloop {

Heartbeat::Heartbeat(std::vector<Target> targets, int avoid_cpu)
    : members_(MembersOf(std::move(targets))),
      teller_(
          "hl-teller",
          [this] {
            Tell();
            return std::chrono::hours(1);  // Beat wakes it
          },
          avoid_cpu),
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
  const std::lock_guard lock(members_mutex_);
  members_.swap(next);
  lost_name_.clear();
  lost_.store(false, std::memory_order_relaxed);
}

std::string Heartbeat::lost_name() {
  const std::lock_guard lock(members_mutex_);
  return lost_name_;
}

Heartbeat::Clock::time_point Heartbeat::all_heard() {
  auto heard = Clock::now();
  const std::lock_guard lock(members_mutex_);
  for (const Member& each : members_)
    if (each.target.access != nullptr) heard = std::min(heard, each.heard);
  return heard;
}

void Heartbeat::SetDamage(std::string_view text) {
  const OwnerDamage damage = EncodeOwnerDamage(text);
  const std::lock_guard lock(members_mutex_);
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
  const std::lock_guard lock(members_mutex_);
  word_ = NextHeartbeat(word_);
  for (Member& each : members_) {
    const Status started = StartLocked(each);
    each.missed = !started.ok();
    if (started.ok()) each.heard = Clock::now();
    if (each.missed) teller_.Wake();
    if (started.ok() || started.code() == Code::kBusy) continue;
    if (!lost()) lost_name_ = each.target.name;
    lost_.store(true, std::memory_order_relaxed);
  }
}

void Heartbeat::Tell() {
  std::vector<std::function<void()>> tells;
  {
    const std::lock_guard lock(members_mutex_);
    for (const Member& each : members_)
      if (each.missed && each.target.tell != nullptr) tells.push_back(each.target.tell);
  }
  for (const auto& tell : tells)
    if (!ending_) tell();
}

}  // namespace hyperloop
