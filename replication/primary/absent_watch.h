// AbsentWatch: asks the replicas that a group has left out, again and again, whether they can be
// taken in again. It asks the members, too, whether somebody proposes a replica that the group does
// not have yet, or that it has left out and is to give up (ProposeRequest in control.fbs). It asks
// the new one, too. A member that does not answer is suspected. What follows from the answers is
// decided in membership/absence.h.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/periodic_thread.h"
#include "control/proposal.h"
#include "control/stop.h"
#include "control/trust.h"
#include "hyperloop/core/log.h"
#include "hyperloop/core/mutex.h"
#include "membership/absence.h"
#include "membership/keeping.h"
#include "primary/ways.h"

namespace hyperloop {

// Thread safe.
class AbsentWatch {
 public:
  struct Options {
    // As StoreOptions::heartbeat_timeout; 0: no member is silent.
    std::chrono::milliseconds heartbeat_timeout{0};
    FailureRules rules = {};
    // Whether the RNIC of a replica that is to be taken in can be reached from here and by the
    // members, and what it holds be read, which may take long. A replica of which it cannot is not
    // taken in. It is called on a thread of its own, one call at a time. Null: it is not asked.
    std::function<Status(const Answered& joiner, const std::vector<Answered>& members)> try_way =
        nullptr;
    // Whether fewer than half of so many replicas are known to hold the database's tables. None
    // leaves the group then. Must not wait. Null: there are no tables.
    std::function<bool(size_t of)> few_hold = nullptr;
  };
  // `log` may be null; `avoid_cpu` as PeriodicThread's.
  AbsentWatch(control::Trust trust, const Options& options, std::shared_ptr<Log> log,
              int avoid_cpu);
  // Waits for the way that is tried. A question that is under way ends at once.
  ~AbsentWatch();
  // Ends the question that is under way, begins no other one, and calls few_hold no more. Does not
  // wait.
  void End();

  // Watches the absent replicas of this configuration from now on, and asks its members.
  void Set(const Configuration& configuration, const Uuid& group, uint64_t region_size);
  // Whether a replica is ready, new or to leave.
  bool any_ready() const;
  bool any_silent() const { return any_silent_.load(std::memory_order_relaxed); }
  // What can be offered now (Absence::At).
  keeping::Offers Offered() const;
  // The addresses of all members that have not answered for a while.
  std::vector<std::string> Suspected() const;
  // As Absence's.
  void Failed(const std::string& address);
  void Refuse(const std::string& address, const Status& why);

 private:
  using Clock = std::chrono::steady_clock;

  // Asks one replica, or the members.
  std::chrono::milliseconds Work();
  // Asks the members, at most once in round_interval_. A proposal counts if it was repeated at the
  // member since the last time.
  void AskMembers();
  // Whether this member tells a replica that is to come, or one that `leaves`, for which somebody
  // vouches who may propose it.
  bool Counts(const std::string& member, const control::HelloReplyT& told, bool leaves);
  struct Answer {
    control::HelloReplyT hello;
    identity::Peer peer;
  };
  // Whether all members answer. Sets who they are, and what they answered.
  Status CheckMembersAnswer(std::vector<control::Seat>* members, std::vector<Answered>* answered);
  // Whether the host of the replica may have one more replica in the group, if it is proposed.
  Status CheckHost(const Configuration::Replica& replica, const identity::Peer& peer,
                   const std::vector<control::Seat>& members);
  // Whether the ways to and from the replica work.
  Status TryWayTo(const Configuration::Replica& replica, uint64_t generation,
                  const std::vector<Answered>& members);
  // As Options::try_way, but waits a second at most. kBusy: a try is not over; its outcome counts
  // for the next call.
  Status TryWithin(const Answered& joiner, const std::vector<Answered>& members);
  Result<Answer> Ask(const std::string& address) const;
  // All of them at once.
  std::vector<Result<Answer>> AskAll(const std::vector<Configuration::Replica>& replicas) const;
  // To be called when absence_ has changed.
  void UpdateLocked() HL_REQUIRES(mutex_);

  const control::Trust trust_;
  const std::chrono::milliseconds round_interval_;
  const decltype(Options::try_way) try_way_;
  const std::function<bool(size_t of)> few_hold_;
  const std::shared_ptr<Log> log_;
  std::atomic<Clock::time_point> ready_until_{Clock::time_point()};  // Absence::offers_until
  std::atomic<bool> any_silent_{false}, ending_{false};
  control::Stop stop_;  // of all questions

  mutable Mutex mutex_;
  Absence absence_ HL_GUARDED_BY(mutex_);
  Clock::time_point next_round_ HL_GUARDED_BY(mutex_){};  // when the members may be asked next

  // Only the thread uses what follows. By member: how many proposals it had at the last round.
  std::map<std::string, uint64_t> proposals_;
  // By member and whether the replica leaves: the refused proposal, as it was logged last.
  std::map<std::pair<std::string, bool>, std::string> refused_;
  std::future<Status> way_;  // of the try that nobody has learnt the outcome of; its end waits
  std::string way_to_;
  Clock::time_point way_asked_{};  // when somebody wanted to know it last

  PeriodicThread thread_;  // last: it uses the members above
};

}  // namespace hyperloop
