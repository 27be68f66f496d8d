// Machine: decides when this node's service takes the group, and when it is ended. It is pure: no
// thread, clock, socket or randomness is inside. What was seen and what has happened are handed in
// with the time, and what is to be done comes out.
//
// The replicas keep the group safe: whoever takes it seals a majority of them at a greater epoch,
// on the state that it saw, and the former primary's writes fail from then on. So a machine that
// starts the service too early, or two that do so at a time, lose nothing; they cost a taking. What
// the machine adds is that this happens only when it is due:
//
// - Who has to agree is decided by the group, not by the list of where to look: all replicas are
//   those that the configuration records, which counted last. Others count for nothing, as those
//   that the group has not taken in yet, and those of another group. Until a configuration is
//   known, those that are listed stand in for it.
// - Only looks count which a majority of the configuration, and of all replicas, answered. The
//   configuration, and the epoch, are the newest that a majority of the replicas had reached: what
//   a minority says beyond that may be false, and is left to whoever opens the group. After a gap
//   between two of them the observation begins anew, as when the agent stood still. One whose
//   answers come so late counts as none, and silence is measured to the last that counts.
// - The group is free if its owner has closed it, or was this node's service and has ended, or if
//   for failover_timeout no replica that answers has shown a new heartbeat or a new epoch; for two
//   seconds, if operators want this node to have it, as when they failed it over.
// - This node has a lease from the time at which a majority had last shown, at the latest, a new
//   heartbeat of its service. A heartbeat that is new in one look was written after the look before
//   it had begun. Another node's majority has a replica in common with this one, and that node sees
//   the heartbeat when it looks there, or later, and waits longer than any lease from then on.
// - What operators tell all agents, the directive, is read with each look. It counts as a majority
//   of all replicas tells it; where none is told by a majority that answers, the newest one does,
//   which a majority may have. So what a majority had when a look began is obeyed by each decision
//   that rests on that look, or on a later one. Only one that a majority tells ends a healthy
//   service.
// - A predecessor whose group was taken may have written a heartbeat just before a majority was
//   sealed. So this node is the primary only when a lease from then on would be over, too; or, if
//   the predecessor had closed the group, one from the time at which that was seen. One more
//   thousandth bears clocks that run apart.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/boot_clock.h"
#include "hyperloop/replication/directive.h"

namespace hyperloop::agent {

using Time = BootClock::time_point;

struct Timing {
  std::chrono::milliseconds look_interval{200};
  std::chrono::milliseconds failover_timeout{2000};
  std::chrono::milliseconds lease{1500};              // less than failover_timeout
  std::chrono::milliseconds isolation_timeout{5000};  // 0: the service stays
  std::chrono::milliseconds stagger{400};
  std::chrono::milliseconds hold_off{10000};
  std::chrono::milliseconds start_timeout{60000};
  std::chrono::milliseconds take_timeout{15000};
};

// What a replica says.
struct SeenReplica {
  uint64_t sealed = 0, installed = 0;  // epochs
  std::string owner;   // an id of the sealed epoch's owner, which it keeps in its later epochs
  bool named = false;  // that owner's name is of the service that this node started last; the name
                       // may be the former owner's until the sealed epoch is installed
  bool released = false;  // the owner has closed in order
  uint64_t heartbeat = 0;
  std::vector<std::string> members, absent;  // of the installed configuration; addresses
  Directive directive = {};
  std::string group = {};  // its id; empty: the replica is of none
};
// One look at all replicas.
struct Look {
  Time began{};
  std::map<std::string, SeenReplica> answers;  // by the replicas' addresses
  bool startable = true;  // false: a candidate waits, as for a group that holds a database
};

// What a replica says of the group's database.
struct Held {
  uint64_t installed = 0;     // its epoch
  std::optional<bool> holds;  // one; nothing: it has not said yet
};

enum class State : uint8_t {
  kLost,       // no majority answers
  kFollow,     // somebody has the group
  kSuspect,    // whoever has it has given no sign of life for half of failover_timeout
  kCandidate,  // the group is free, and this node waits for its turn
  kTaking,     // the service runs, and is not known to have the group
  kPrimary,    // it has the group, and is ready
  kStopping,   // it was told to end
};
std::string_view StateName(State state);

enum class Action : uint8_t {
  kNone,
  kStart,  // the service, which does not run
  kStop,   // it, in order
  kKill,   // it, at once
};

// Why an action is due.
enum class Why : uint8_t {
  kNone,
  // To start:
  kReleased,  // whoever had the group has closed it
  kOwn,       // this node's service had it, and has ended
  kSilent,    // whoever has it has shown no sign of life for failover_timeout
  // To stop or to kill:
  kTaken,     // another node has taken the group
  kDirected,  // operators want it elsewhere
  kLate,      // the service is not ready after start_timeout
  kShutdown,
  kIsolated,  // it had no lease for isolation_timeout
};
std::string_view WhyText(Why why);  // for people, and in the history

class Machine {
 public:
  // `replicas`: how many are listed. `node`: this node's name.
  Machine(const Timing& timing, size_t replicas, std::string node)
      : timing_(timing), listed_(replicas), node_(std::move(node)) {}
  // These replicas are listed from now on.
  void SetListed(const std::vector<std::string>& addresses);

  // `random`: from 0 to 1, another one in each call.
  Action OnLook(const Look& look, Time now, double random);
  // Nothing was seen for a while. To be called at least as often as looks are made.
  Action OnTime(Time now);
  // The service that was started is ready for its users, besides having the group.
  void OnReady() { ready_ = true; }
  // The service has ended, or could not be started.
  void OnEnded(Time now);
  // This node gives the group up for good.
  Action OnShutdown();

  // Why the last action but kNone was due.
  Why why() const { return why_; }
  // Why the group may be taken, by the last look that counted; kNone: it may not.
  Why WhyFree() const;

  // At the time of the last call; kPrimary is over with lease_end(), whether anybody calls or not.
  State state() const { return state_; }
  uint64_t epoch() const { return epoch_; }    // the newest that a majority had reached
  bool released() const { return released_; }  // by its owner
  // Until when this node's service is known to have the group; the least time: it is not.
  Time lease_end() const {
    return lease_begin_.has_value() ? *lease_begin_ + timing_.lease : Time::min();
  }
  std::optional<Time> majority_seen() const { return seen_; }
  // The replicas that the group has, by the configuration that counted last, sorted; none: it is
  // not known. And that one's epoch.
  const std::vector<std::string>& recorded() const { return recorded_; }
  uint64_t recorded_epoch() const { return recorded_epoch_; }
  // The id of the group that was the first to count. Those of another one are not listened to.
  const std::string& group() const { return group_; }
  // Whether what is said there counts, as far as its group is the same.
  bool Counts(const std::string& address) const;
  // Whether the group holds a database, by what its replicas say; nothing: that is not known yet.
  // One replica may claim the newest configuration. It need not be believed that there is none.
  std::optional<bool> HoldsDatabase(const std::vector<Held>& held) const;
  // After a failure this node takes the group no earlier, but may be started again once where it
  // was. That is a handicap: longer after more failures of late, and over in minutes.
  Time held_until() const;
  // What operators say, as of the last look that counted; all zero: nothing.
  const Directive& directive() const { return directive_; }
  bool told_by_most() const { return told_by_most_; }  // it is, by a majority of all
  bool was_told_by_most() const { return directive_ == acknowledged_; }  // it is, or was
  // This node takes no group, whoever had it, because of that.
  bool held_back() const { return directive_.paused || directive_.Drains(node_); }
  uint64_t takings() const { return takings_; }
  uint64_t failures() const { return failures_in_all_; }

 private:
  struct Known {
    SeenReplica seen;
    Time read{};  // when the look began that read it last
    // When the last look began that read an older heartbeat: the newest one was written later.
    std::optional<Time> moved;
  };
  // A longer one makes the observation begin anew.
  BootClock::duration MostGap() const { return 3 * timing_.look_interval; }
  size_t Majority() const { return (recorded_.empty() ? listed_ : recorded_.size()) / 2 + 1; }
  bool IsReached(const Look& look, const SeenReplica& configuration) const;
  std::vector<const SeenReplica*> Configurations(const Look& look) const;
  bool IsOfNoGroup(const Look& look) const;
  bool Counts(const Look& look);
  void Record(const SeenReplica& configuration);
  Look OfTheGroup(const Look& look) const;
  void Learn(const Look& look, Time now);
  void LearnOwn(const Look& look);
  void LearnOwner(const Look& look, Time now);
  void LearnDirective(const Look& look);
  void RenewLease();
  bool IsOurs(const SeenReplica& seen) const { return !own_.empty() && seen.owner == own_; }
  bool IsFree() const { return WhyFree() != Why::kNone; }
  bool HasToLeave() const;
  bool IsLeft() const;
  bool IsLeftToAnother(Time now);
  void NoteWatched(Time now);
  void JudgeFailure(Time now);
  std::chrono::nanoseconds OthersLease() const {
    return timing_.lease + std::chrono::microseconds(timing_.lease.count());
  }
  void NoteClaim(Time now);
  Action Start(Time now);
  Action Run(Time now);
  Action Wait(const Look& look, Time now, double random);
  Action End(Action how, Why why);

  const Timing timing_;
  size_t listed_;
  const std::string node_;
  State state_ = State::kLost;
  Why why_ = Why::kNone;
  bool runs_ = false;  // the service, or it is being started
  bool shutdown_ = false;
  std::vector<std::string> recorded_;
  uint64_t recorded_epoch_ = 0;
  std::string group_;
  std::map<std::string, Known> known_;
  std::optional<Time> seen_;  // when the last look began that counted
  Time quiet_since_{};        // no sign of life was seen since then, without a gap
  uint64_t epoch_ = 0;
  bool released_ = false;
  // The id of the owner that is, or was, the service started last, once a majority of all had named
  // it with its epoch installed. It keeps the id when it seals a new epoch, as it does to leave out
  // a replica or to take one in; until that one is installed, the name alone would prove nothing.
  std::string own_;
  std::string owner_;    // of epoch_, as a majority of all names it; empty: none does
  bool ours_ = false;    // own_ has the group, says a majority of all
  bool others_ = false;  // somebody else has installed an epoch, says a majority of all
  std::optional<Time> released_seen_;  // of released_epoch_, first
  uint64_t released_epoch_ = 0;
  Directive directive_;
  bool told_by_most_ = false;  // that
  Directive acknowledged_;     // the newest that a majority has told
  // The group is free, and was left to another node: since when this node knows.
  std::optional<Time> left_since_;
  DirectiveNumber tried_;  // the switchover to this node for which it has taken the group at once
  std::optional<Time> lease_begin_;
  // As far as the agent watched: since the service had a lease, or, if that is earlier, since
  // somebody else has taken the group; and since the start, until it was ready.
  BootClock::duration without_lease_{}, starting_{};
  Time called_{};            // when OnTime was called last
  std::optional<Time> due_;  // when a candidate takes the group
  bool ready_ = false;       // the service, since it was started last
  bool had_group_ = false;   // it had a lease since then
  bool taken_ = false;       // and somebody else has taken the group since
  bool killed_ = false;      // it was told to be, since then
  bool leaves_ = false;      // it was told to end because operators wanted it to
  // When every lease is over of whoever had the group at the start; nothing: that is not known.
  std::optional<Time> predecessor_over_;
  // As that, of whoever had it before this node; nothing: this node has not had it since.
  std::optional<Time> claim_from_;
  uint64_t epoch_at_start_ = 0;
  bool failed_ = false;    // it has ended, and that is not judged yet
  uint32_t failures_ = 0;  // of late
  std::optional<Time> last_failure_, last_restart_;
  uint64_t takings_ = 0, failures_in_all_ = 0;
};

}  // namespace hyperloop::agent
