// Taking: how a primary takes a group, as a machine that decides and does nothing else. It has no
// thread, clock, socket or file, and randomness is handed in. Whoever drives it carries out the one
// effect that Step returned, and answers it with the event of that effect. The session drives it
// with replicas, RDMA and time, and tests drive it with models of them.
//
// A state is a value that owns what is valid in it. Everything that can be refused is refused
// before Sealing, which is the first state in which anything has changed. kTable below says what
// follows what; docs/glossary.md explains the terms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/uuid.h"
#include "hyperloop/core/status.h"
#include "membership/choose_member.h"
#include "membership/configuration.h"
#include "membership/standing.h"
#include "membership/take_plan.h"

namespace hyperloop::taking {

// What the caller wants.
struct Wish {
  FailureRules rules;        // replicas that are given up are a promotion by force
  ReplicaChange change;      // an addition or a removal
  uint64_t region_size = 0;  // as PlanTake's
  bool takeover = false;     // a living owner is fenced, and not asked to stop first
};

// A planned taking, of which nothing is changed yet.
struct Draft {
  std::vector<MemberLook> looks;  // of the members, in the order of plan.configuration.replicas
  std::vector<MissingReplica> missing;
  TakePlan plan;
  // Set: the own pool was judged to have what all members lost, whose logs ended there.
  std::optional<LogsEnd> stands_in_for = {};
};

// --- states

struct Closed {
  static constexpr std::string_view kName = "Closed";
};
struct Looking {
  static constexpr std::string_view kName = "Looking";
};
struct Judging {
  static constexpr std::string_view kName = "Judging";
  Draft draft;
};
// What was read contradicts itself: there is damage, or a rival moved the members meanwhile.
struct Doubting {
  static constexpr std::string_view kName = "Doubting";
  std::vector<MemberLook> looks;
  Status damage;
};
struct Opening {
  static constexpr std::string_view kName = "Opening";
  Draft draft;
  uint64_t epoch = 0;  // the one to seal
};
struct Sealing {
  static constexpr std::string_view kName = "Sealing";
  Draft draft;
  Configuration next;                       // to be installed; its epoch is the one to seal
  std::vector<MemberContent> content = {};  // of the members, once they are sealed
};
struct Equalising {
  static constexpr std::string_view kName = "Equalising";
  Draft draft;
  Configuration next;
};
// The group's replicas change, in two steps (TakePlan::before_change).
struct Changing {
  static constexpr std::string_view kName = "Changing";
  Draft draft;
  Configuration next;
};
struct Arming {
  static constexpr std::string_view kName = "Arming";
  Draft draft;
  Configuration next;
};
struct Serving {
  static constexpr std::string_view kName = "Serving";
  Draft draft;
  Configuration configuration;
};
struct GivingBack {
  static constexpr std::string_view kName = "GivingBack";
  Status why;
};
struct Refused {
  static constexpr std::string_view kName = "Refused";
  Status why;
};
using State = std::variant<Closed, Looking, Judging, Doubting, Opening, Sealing, Equalising,
                           Changing, Arming, Serving, GivingBack, Refused>;

// --- effects, and the events that answer them

// Asks every replica of the caller's list.
struct AskAll {
  static constexpr std::string_view kName = "AskAll";
};
struct Looked {
  Result<std::vector<MemberLook>> looks;
  std::vector<MissingReplica> missing;  // those that do not answer
};
// Waits a little, and asks the members of the plan.
struct Watch {
  static constexpr std::string_view kName = "Watch";
};
struct Watched {
  Result<std::vector<MemberLook>> looks;
  bool enough = false;  // a living owner's heartbeat has moved since AskAll
};
// Judges what the members hold, and what the own pool holds, and changes nothing.
struct Judge {
  static constexpr std::string_view kName = "Judge";
};
struct Judged {
  Status status;
  std::optional<size_t> refused = {};  // the member whose content must not be overwritten
  std::optional<LogsEnd> stands_in_for = {};
};
// Asks the members of the plan once more.
struct Ask {
  static constexpr std::string_view kName = "Ask";
};
struct Asked {
  Result<std::vector<MemberLook>> looks;
};
// Opens the own pool, or makes it.
struct OpenPool {
  static constexpr std::string_view kName = "OpenPool";
  bool stands_in = false;
};
struct Opened {
  Status status;
  uint64_t last_epoch = 0;  // of a record in a pool that stands in
};
// Seals `epoch` at each member, at the first one before all others, for the owner with this id: so
// one of two that take the group gets it, and not each a part. Each member must be as it was when
// it was asked first; a rival may have sealed those behind the first one meanwhile. From now on the
// members are shown that the owner lives.
struct Seal {
  static constexpr std::string_view kName = "Seal";
  uint64_t epoch = 0;
  Uuid owner{};
};
struct Sealed {
  // What each member holds; MemberContent::joins is not set.
  Result<std::vector<MemberContent>> content;
};
// Reaches the members' memory.
struct Attach {
  static constexpr std::string_view kName = "Attach";
};
// Makes the own region what the group's is to be, and then every member's region equal to it.
struct Equalise {
  static constexpr std::string_view kName = "Equalise";
  struct Fresh {};  // an empty group
  struct Chosen {
    Choice choice;
    SourceOrder sources;
    std::vector<bool> cut;            // as CutLogs
    std::vector<std::string> damage;  // of members, for people
  };
  struct OwnPool {
    uint64_t known_acked = 0;
    std::string lost;  // what the members lost, for people
    std::vector<MemberContent> content;
  };
  std::variant<Fresh, Chosen, OwnPool> from;
};
// Installs the configuration at its replicas. `lasting`: even if this owner never serves.
struct Install {
  static constexpr std::string_view kName = "Install";
  Configuration configuration;
  bool lasting = false;
};
// Seals the epoch at each member as it is now, if nobody else has served it since.
struct SealAnew {
  static constexpr std::string_view kName = "SealAnew";
  uint64_t epoch = 0;
};
// Makes and connects the queues of all members.
struct Arm {
  static constexpr std::string_view kName = "Arm";
};
// Assigns the own pool to the group.
struct Remember {
  static constexpr std::string_view kName = "Remember";
};
// Writes the epoch's first record, and begins to serve.
struct Serve {
  static constexpr std::string_view kName = "Serve";
};
// Gives the members back. `never_served`: no record was written under this epoch.
struct Release {
  static constexpr std::string_view kName = "Release";
  bool never_served = false;
};
// The taking is over: the state is Serving or Refused.
struct End {
  static constexpr std::string_view kName = "End";
};
using Effect = std::variant<AskAll, Watch, Judge, Ask, OpenPool, Seal, Attach, Equalise, Install,
                            SealAnew, Arm, Remember, Serve, Release, End>;

struct Begin {
  Wish wish;
};
// Answers an effect that has no event of its own.
template <class Answered>
struct Done {
  Status status;
};
using Event = std::variant<Begin, Looked, Watched, Judged, Asked, Opened, Sealed, Done<Attach>,
                           Done<Equalise>, Done<Install>, Done<SealAnew>, Done<Arm>, Done<Remember>,
                           Done<Serve>, Done<Release>>;

// --- the table

// In `state`, the event that answers `answered` leads to `next`, and to `effect`. One that says
// that it failed, or shows that the group may not be taken, leads elsewhere: before Sealing to
// Refused and End, and from then on to GivingBack and Release. Step does nothing else, which a test
// checks.
struct Row {
  std::string_view state, answered, next, effect;
  std::string_view where = "";  // where several rows may follow
};
inline constexpr Row kTable[] = {
    // clang-format off
    // state         answers       next          effect       where
    {"Closed",      "",           "Looking",    "AskAll"},
    {"Looking",     "AskAll",     "Judging",    "Watch",     "PlanTake agrees, and an owner may live"},
    {"Looking",     "AskAll",     "Judging",    "Judge",     "PlanTake agrees, and nobody can live, or takeover"},
    {"Judging",     "Watch",      "Judging",    "Watch",     "no heartbeat has moved yet"},
    {"Judging",     "Watch",      "Judging",    "Judge",     "no heartbeat has moved in all the time"},
    {"Judging",     "Judge",      "Doubting",   "Ask",       "it is damaged, or was written to"},
    {"Judging",     "Judge",      "Judging",    "Watch",     "a member is left out; then as Looking"},
    {"Judging",     "Judge",      "Judging",    "Judge",     "a member is left out; then as Looking"},
    {"Judging",     "Judge",      "Opening",    "OpenPool",  "it may be taken"},
    {"Opening",     "OpenPool",   "Opening",    "Ask"},
    {"Opening",     "OpenPool",   "Sealing",    "Seal",      "takeover"},
    {"Opening",     "Ask",        "Sealing",    "Seal",      "no owner came back"},
    {"Sealing",     "Seal",       "Sealing",    "Attach"},
    {"Sealing",     "Attach",     "Equalising", "Equalise",  "a log will do, or the own pool's"},
    {"Equalising",  "Equalise",   "Changing",   "Install",   "the group's replicas change"},
    {"Equalising",  "Equalise",   "Arming",     "Install",   "they stay"},
    {"Changing",    "Install",    "Changing",   "SealAnew"},
    {"Changing",    "SealAnew",   "Changing",   "Attach"},
    {"Changing",    "Attach",     "Arming",     "Install"},
    {"Arming",      "Install",    "Arming",     "Arm"},
    {"Arming",      "Arm",        "Arming",     "Remember"},
    {"Arming",      "Remember",   "Arming",     "Serve"},
    {"Arming",      "Serve",      "Serving",    "End"},
    {"GivingBack",  "Release",    "Refused",    "End"},
    // clang-format on
};

// --- the machine

// The refusal of a taking whose members are not as they were when it looked at them.
Status TakenMeanwhile(std::string_view how);

// Gives a uuid that nobody else has.
using Random = std::function<Uuid()>;

class Taking {
 public:
  // The next effect. `event` answers the one before; the first is Begin. kInternal, in Refused: it
  // answers another one.
  Effect Step(Event event, const Random& random);
  const State& state() const { return state_; }
  // What is planned. For states that have one: Judging, and from Opening until Serving.
  const Draft& draft() const;

 private:
  Wish wish_;
  State state_;
};

std::string_view NameOf(const State& state);
std::string_view NameOf(const Effect& effect);

}  // namespace hyperloop::taking
