#include "agent/group_watch.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "hyperloop/core/text.h"

namespace hyperloop::agent {

Result<std::unique_ptr<GroupWatch>> GroupWatch::Start(
    std::vector<std::unique_ptr<ReplicaWay>> ways) {
  UniqueFd ended(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!ended) return FromErrno(errno, "eventfd");
  return std::unique_ptr<GroupWatch>(new GroupWatch(std::move(ways), std::move(ended)));
}

GroupWatch::GroupWatch(std::vector<std::unique_ptr<ReplicaWay>> ways, UniqueFd ended)
    : ended_(std::move(ended)), places_(ways.size()) {
  for (size_t i = 0; i < ways.size(); ++i) places_[i].way = std::move(ways[i]);
  for (Place& place : places_) place.thread = std::thread([this, &place] { Run(place); });
}

GroupWatch::~GroupWatch() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  begun_.notify_all();
  for (Place& place : places_)
    if (place.thread.joinable()) place.thread.join();
}

void GroupWatch::Begin() {
  const MutexLock lock(mutex_);
  // Under the lock: else the last round's end might come after it, and be taken for this one's.
  uint64_t count = 0;
  while (::read(ended_.get(), &count, sizeof count) > 0) continue;
  ++round_;
  for (Place& place : places_) {
    if (place.work != Work::kNone) continue;
    place.work = Work::kLook;
    place.round = round_;
  }
  begun_.notify_all();
  NoteEndedLocked();
}

void GroupWatch::NoteEndedLocked() {
  const bool waits = std::ranges::any_of(places_, [this](const Place& place) {
    mutex_.known_held();
    return place.work == Work::kLook && place.round == round_ && place.expected;
  });
  // It cannot fail but when the counter is at its end, and so readable anyway.
  const uint64_t one = 1;
  if (!waits) [[maybe_unused]]
    const ssize_t written = ::write(ended_.get(), &one, sizeof one);
}

size_t GroupWatch::answered(const std::vector<std::string>& addresses) const {
  const MutexLock lock(mutex_);
  return static_cast<size_t>(std::ranges::count_if(places_, [&, this](const Place& place) {
    mutex_.known_held();
    const bool counts =
        addresses.empty() || std::ranges::count(addresses, place.way->address()) != 0;
    return counts && place.work != Work::kLook && place.round == round_ && place.seen.ok();
  }));
}

std::vector<Result<NodeStatus>> GroupWatch::Take() const {
  const MutexLock lock(mutex_);
  std::vector<Result<NodeStatus>> seen;
  for (const Place& place : places_) {
    if (place.work != Work::kLook && place.round == round_) {
      seen.push_back(place.seen);
    } else {
      seen.push_back(TimedOut(Text("replica ", place.way->address(), " has not answered yet")));
    }
  }
  return seen;
}

void GroupWatch::Give(size_t place, const std::string& group, const Directive& directive) {
  const MutexLock lock(mutex_);
  places_[place].give.emplace(group, directive);
  begun_.notify_all();
}

void GroupWatch::FindDatabase(size_t place) {
  const MutexLock lock(mutex_);
  places_[place].find = true;
  begun_.notify_all();
}

void GroupWatch::ForgetDatabase() {
  const MutexLock lock(mutex_);
  ++asked_;
  for (Place& place : places_) place.database.reset();
}

std::optional<Result<bool>> GroupWatch::database(size_t place) const {
  const MutexLock lock(mutex_);
  return places_[place].database;
}

void GroupWatch::Run(Place& place) {
  MutexLock lock(mutex_);
  while (true) {
    begun_.wait(mutex_, [&]() HL_REQUIRES(mutex_) {
      return ending_ || place.find || place.give.has_value() || place.work != Work::kNone;
    });
    if (ending_) return;
    if (place.work == Work::kNone) {
      place.work = place.find ? Work::kFindDatabase : Work::kGive;
      if (place.find) place.find = false;
    }
    const Work work = place.work;
    const auto give = work == Work::kGive ? std::exchange(place.give, std::nullopt) : std::nullopt;
    const uint64_t asked = asked_;
    lock.unlock();
    Result<NodeStatus> seen = Unavailable("not looked at");
    Result<bool> database = false;
    if (work == Work::kLook) seen = place.way->Look();
    if (work == Work::kFindDatabase) database = place.way->HoldsDatabase();
    if (give.has_value()) place.way->Give(give->first, give->second).IgnoreError();
    lock.lock();
    place.work = Work::kNone;
    if (work == Work::kGive) continue;
    if (work == Work::kFindDatabase) {
      if (asked == asked_) place.database = std::move(database);
      continue;
    }
    place.expected = seen.ok();
    place.seen = std::move(seen);
    NoteEndedLocked();
  }
}

}  // namespace hyperloop::agent
