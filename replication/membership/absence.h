// Absence: which replicas that a group has left out can be taken in again, which proposed one can
// be added, which one may leave, which members are silent, and whom to ask when. It decides by the
// answers that it is given, and by the time; the watch (primary/absent_watch.h) asks.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/uuid.h"
#include "control/messages.h"
#include "hyperloop/core/status.h"
#include "membership/configuration.h"
#include "membership/keeping.h"
#include "membership/member_silence.h"

namespace hyperloop {

// Not thread safe.
class Absence {
 public:
  using Time = keeping::Time;

  // `heartbeat_timeout`, `rules`: as MemberSilence's.
  Absence(std::chrono::milliseconds heartbeat_timeout, const FailureRules& rules);

  // Watches the absent replicas of this configuration from now on. Members that changed, or were
  // brought back, are judged anew.
  void Set(const Configuration& configuration, const Uuid& group, uint64_t region_size, Time now);
  const Configuration& configuration() const { return configuration_; }
  const Uuid& group() const { return group_; }
  uint64_t generation() const { return generation_; }  // of Set

  // What can be offered. Ready replicas and a newcomer were accepted a moment ago (CheckJoiner,
  // CheckNewcomer), when all members answered. So was a leaver, which is the only absent replica,
  // so that the group changes only while all that stay are there. Silent members have not answered
  // for heartbeat_timeout, at a time when all others answered, and these may go on without them.
  keeping::Offers At(Time now) const;
  // Nobody is ready, new or to leave from then on, unless more is heard.
  Time offers_until() const;
  bool any_silent() const { return !silent_.empty(); }
  // All members that have not answered for a while.
  const std::vector<std::string>& suspected() const { return suspected_; }

  // Notes that this replica could not be taken in, or failed again soon after that. It is not ready
  // before a pause, which doubles each time.
  void Failed(const std::string& address, Time now);
  // Notes that what this replica holds keeps it from being taken in. It is not ready as long as its
  // node has installed nothing else.
  void Refuse(const std::string& address, const Status& why);

  // --- one replica is asked

  bool any_absent() const { return !absent_.empty(); }
  // The replica to ask now, if there is one.
  std::optional<Configuration::Replica> Next(Time now) const;
  // Judges the answer of a replica that Next has named in this generation. Ok: nothing about this
  // replica keeps it from being taken in.
  Status Judge(const std::string& address, uint64_t generation, Result<control::HelloReplyT> hello);
  bool IsProposed(const std::string& address) const;
  // Its last answer; null: there is none, or this is another generation.
  const control::HelloReplyT* AnswerOf(const std::string& address, uint64_t generation) const;
  // Notes what was judged of everything that was asked for it. Returns what is to be logged.
  std::string Note(const std::string& address, uint64_t generation, const Status& judged, Time now);

  // --- all members are asked

  struct Round {
    Time begun{};
    // Addresses: what each member tells that counts, and who did not answer.
    std::vector<std::string> proposed = {}, leaving = {}, unanswered = {};
    bool few_hold = false;                 // of the members, as FewHold
    std::chrono::milliseconds interval{};  // to the next round
  };
  // A proposal counts if most members tell it, and one that is no longer repeated is forgotten. So
  // no member alone keeps alive what nobody proposes any more.
  struct Told {
    std::vector<std::string> suspected = {}, answering = {};  // since this round
    std::string leaver = {};  // why a replica does not leave yet; empty: nothing new
  };
  Told NoteRound(const Round& round, uint64_t generation, Time now);

 private:
  struct Absent {
    Configuration::Replica replica;  // its node is nil while it is proposed and has not answered
    bool proposed = false;           // it is not of the configuration
    std::optional<control::HelloReplyT> before = {};  // its last answer
    Time ready_until{};        // it can be taken in, and need not be asked again, until then
    Time next{};               // when it may be asked next
    std::string refusal = {};  // as it was logged last
  };
  // What is remembered of an address, whether it is absent or not.
  struct History {
    uint32_t failures = 0;
    Time last{};                 // of the last Set at which it was absent or taken in
    std::string refused_node;    // as its Hello said; empty: it was not refused
    uint64_t refused_epoch = 0;  // that it had installed
    Status refusal;
  };

  Absent* Find(const std::string& address);
  const Absent* Find(const std::string& address) const;
  void NoteProposal(const std::string& address);
  std::string NoteLeaver(const std::string& address, const Round& round, Time now);

  Configuration configuration_;
  Uuid group_{};
  uint64_t region_size_ = 0;
  uint64_t generation_ = 0;
  std::vector<Absent> absent_;  // and the proposed one, last
  Time leaver_until_{};         // the only absent replica may leave until then
  std::string leaver_refusal_;  // as it was logged last
  std::vector<std::string> silent_, suspected_;
  std::map<std::string, History> history_;  // by address
  MemberSilence silence_;
  uint64_t silence_generation_ = 0;  // of the rounds that silence_ has seen
};

}  // namespace hyperloop
