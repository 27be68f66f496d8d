// AbsentWatch: asks the replicas that a group has left out, again and again, whether they can be
// taken in again. It asks the members, too, whether somebody proposes a replica that the group does
// not have yet, or that it has left out and is to give up (ProposeRequest in control.fbs). It asks
// the new one, too. A member that does not answer is suspected.
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
#include "membership/member_silence.h"
#include "membership/take_plan.h"
#include "primary/ways.h"
#include "region/region_layout.h"

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
  // Whether Ready, Newcomer or Leaver would name a replica.
  bool any_ready() const;
  // The addresses of the replicas that can be taken in: CheckJoiner accepted their answers, a
  // moment ago, when all members answered.
  std::vector<std::string> Ready() const;
  // A replica that most members tell is proposed. CheckNewcomer accepted its answers, a moment ago,
  // when all members answered. Nothing: there is none.
  std::optional<Configuration::Replica> Newcomer() const;
  // The absent replica, if most members say that it is to leave the group for good, and all members
  // answered a moment ago. Nothing also if others are absent, too: the group changes only while
  // all that stay are there.
  std::optional<std::string> Leaver() const;
  // The addresses of members that have not answered for heartbeat_timeout, at a time when all
  // others answered, and these may go on without them. Empty from Set on, until they are found so
  // again.
  std::vector<std::string> Silent() const;
  // The addresses of all members that have not answered for a while.
  std::vector<std::string> Suspected() const;
  bool any_silent() const { return any_silent_.load(std::memory_order_relaxed); }
  // Notes that this replica could not be taken in, or failed again soon after that. It is not ready
  // before a pause, which doubles each time.
  void Failed(const std::string& address);
  // Notes that what this replica holds keeps it from being taken in. It is not ready as long as its
  // node has installed nothing else.
  void Refuse(const std::string& address, const Status& why);

 private:
  using Clock = std::chrono::steady_clock;

  struct Absent {
    Configuration::Replica replica;  // its node is nil while it is proposed and has not answered
    bool proposed = false;           // it is not of the configuration
    std::optional<control::HelloReplyT> before;  // its last answer
    Clock::time_point ready_until{};  // it can be taken in, and need not be asked again, until then
    Clock::time_point next{};         // when it may be asked next
    std::string refusal;              // as it was logged last
  };
  // What is remembered of an address, whether it is absent or not.
  struct History {
    uint32_t failures = 0;
    Clock::time_point last{};    // of the last Set at which it was absent or taken in
    std::string refused_node;    // as its Hello said; empty: it was not refused
    uint64_t refused_epoch = 0;  // that it had installed
    Status refusal;
  };

  // Asks one replica, or the members.
  std::chrono::milliseconds Work();
  // Asks the members, at most once in round_interval_. A proposal counts if more than half of them
  // tell it, and it was repeated there since the last time.
  void AskMembers();
  static std::string ToldByMost(const std::vector<std::string>& told, size_t members);
  // Whether this member tells a replica that is to come, or one that `leaves`, for which somebody
  // vouches who may propose it.
  bool Counts(const std::string& member, const control::HelloReplyT& told, bool leaves);
  // Logs whom it suspects. `begun`: when the round was.
  MemberSilence::Judgement JudgeSilence(const Configuration& configuration,
                                        const std::vector<std::string>& unanswered,
                                        uint64_t generation, Clock::time_point begun);
  void NoteProposalLocked(const std::string& address) HL_REQUIRES(mutex_);
  // The members say that this replica is to leave; empty: none. `answered`: all of them did.
  void NoteLeaverLocked(const std::string& address, bool answered) HL_REQUIRES(mutex_);
  // The replica to ask now, if there is one.
  std::optional<Configuration::Replica> Next(uint64_t* generation);
  struct Answer {
    control::HelloReplyT hello;
    identity::Peer peer;
  };
  // Judges the replica's answer. Ok: nothing about this replica keeps it from being taken in.
  Status Judge(const Configuration::Replica& replica, uint64_t generation,
               Result<control::HelloReplyT> hello);
  void Note(const Configuration::Replica& replica, uint64_t generation, const Status& judged);
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
  Absent* FindLocked(const std::string& address) HL_REQUIRES(mutex_);
  // To be called when a ready_until, or leaver_until_, has changed.
  void UpdateReadyLocked() HL_REQUIRES(mutex_);

  const control::Trust trust_;
  const std::chrono::milliseconds round_interval_;
  const decltype(Options::try_way) try_way_;
  const std::function<bool(size_t of)> few_hold_;
  const std::shared_ptr<Log> log_;
  std::atomic<Clock::time_point> ready_until_{Clock::time_point()};  // the latest of all
  std::atomic<bool> any_silent_{false}, ending_{false};
  control::Stop stop_;  // of all questions

  mutable Mutex mutex_;
  Configuration configuration_ HL_GUARDED_BY(mutex_);
  Uuid group_ HL_GUARDED_BY(mutex_){};
  uint64_t region_size_ HL_GUARDED_BY(mutex_) = 0;
  uint64_t generation_ HL_GUARDED_BY(mutex_) = 0;     // of Set
  std::vector<Absent> absent_ HL_GUARDED_BY(mutex_);  // and the proposed one, last
  // Leaver names the only absent replica until then.
  Clock::time_point leaver_until_ HL_GUARDED_BY(mutex_){};
  std::string leaver_refusal_ HL_GUARDED_BY(mutex_);  // as it was logged last
  std::vector<std::string> silent_ HL_GUARDED_BY(mutex_);
  std::vector<std::string> suspected_ HL_GUARDED_BY(mutex_);
  Clock::time_point next_round_ HL_GUARDED_BY(mutex_){};  // when the members may be asked next
  std::map<std::string, History> history_ HL_GUARDED_BY(mutex_);  // by address

  // Only the thread uses what follows. By member: how many proposals it had at the last round.
  std::map<std::string, uint64_t> proposals_;
  // By member and whether the replica leaves: the refused proposal, as it was logged last.
  std::map<std::pair<std::string, bool>, std::string> refused_;
  MemberSilence silence_;
  uint64_t silence_generation_ = 0;  // of the rounds that silence_ has seen
  std::future<Status> way_;  // of the try that nobody has learnt the outcome of; its end waits
  std::string way_to_;
  Clock::time_point way_asked_{};  // when somebody wanted to know it last

  PeriodicThread thread_;  // last: it uses the members above
};

}  // namespace hyperloop
