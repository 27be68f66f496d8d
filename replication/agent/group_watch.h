// GroupWatch: looks at all replicas of a group side by side, again and again, each by a thread of
// its own. A look at a replica that is out of reach may take seconds, and holds up none at another.
//
// One thread uses it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent/replica_way.h"
#include "hyperloop/core/mutex.h"
#include "hyperloop/core/status.h"
#include "hyperloop/core/unique_fd.h"
#include "hyperloop/replication/inspect.h"

namespace hyperloop::agent {

class GroupWatch {
 public:
  // kUnavailable: there is no descriptor for it.
  static Result<std::unique_ptr<GroupWatch>> Start(std::vector<std::unique_ptr<ReplicaWay>> ways);
  // Waits for looks that are under way.
  ~GroupWatch();
  GroupWatch(const GroupWatch&) = delete;
  GroupWatch& operator=(const GroupWatch&) = delete;

  size_t size() const { return places_.size(); }
  const std::string& address(size_t place) const { return places_[place].way->address(); }

  // Begins a look at each replica at which no look is under way.
  void Begin();
  // Readable once each replica has answered or failed that answered the last time, and was looked
  // at by this Begin.
  int ended() const { return ended_.get(); }
  // How many of these replicas have answered the looks of the last Begin so far; none: of all.
  size_t answered(const std::vector<std::string>& addresses) const;
  // What they said. An error says why a replica has not answered, or has not yet.
  std::vector<Result<NodeStatus>> Take() const;

  // Has a replica given what a majority tells agents, which it has missed, as FindDatabase: by its
  // thread, and once that has time. What comes of it shows at a later look.
  void Give(size_t place, const std::string& group, const Directive& directive);

  // Has a replica asked whether it holds a database of the group (ReplicaWay::HoldsDatabase), by
  // its thread and once that has time. Waits for nothing.
  void FindDatabase(size_t place);
  // What was said of it, and what is being asked, counts no more.
  void ForgetDatabase();
  // What came of it; nothing: it has not answered yet, or was not asked.
  std::optional<Result<bool>> database(size_t place) const;

 private:
  enum class Work : uint8_t { kNone, kLook, kGive, kFindDatabase };
  struct Place {
    std::unique_ptr<ReplicaWay> way;
    std::thread thread;
    // Guarded by mutex_.
    Work work = Work::kNone;
    bool expected = true;  // it answered the last time
    uint64_t round = 0;    // of the look that is under way, or was last
    Result<NodeStatus> seen = Unavailable("not looked at yet");  // by it
    std::optional<std::pair<std::string, Directive>> give;       // that is to be begun
    bool find = false;                                           // FindDatabase is to be begun
    std::optional<Result<bool>> database;
  };
  GroupWatch(std::vector<std::unique_ptr<ReplicaWay>> ways, UniqueFd ended);
  void Run(Place& place);
  void NoteEndedLocked() HL_REQUIRES(mutex_);

  const UniqueFd ended_;
  mutable Mutex mutex_;
  ConditionVariable begun_;
  uint64_t round_ HL_GUARDED_BY(mutex_) = 0;
  uint64_t asked_ HL_GUARDED_BY(mutex_) = 0;  // how often ForgetDatabase was called
  bool ending_ HL_GUARDED_BY(mutex_) = false;
  std::vector<Place> places_;  // as many as there are replicas, from the constructor on
};

}  // namespace hyperloop::agent
