// Keeping: how a primary keeps a group that it took, as a machine that decides and does nothing
// else: it serves, regains a group that stopped answering, goes on without replicas, takes replicas
// in, is fenced, and closes. It has no thread, clock, socket or file; the time is handed in.
// Whoever drives it carries out the one effect that Step returned, and answers it with the event of
// that effect. The session drives it with replicas, RDMA and time, and tests drive it with models
// of them.
//
// No write goes through it. While the group serves, the lane appends and waits without a word to
// this machine, which hears of a group only once it fails, is to change, closes, or is found
// working with the member that was taken in last. So what ends
// the writing, which is the checkpoint of a close, comes before Close, and may itself need the
// group to be brought back.
//
// A state is a value that owns what is valid in it. All states between Serving and Fenced have an
// Outage: in them the group is being regained. kTable below says what follows what;
// docs/glossary.md explains the terms.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/uuid.h"
#include "control/messages.h"
#include "hyperloop/core/status.h"
#include "membership/configuration.h"
#include "membership/judgement.h"
#include "membership/standing.h"

namespace hyperloop::keeping {

using Time = std::chrono::steady_clock::time_point;
using Duration = std::chrono::nanoseconds;

// What stays the same for as long as a primary keeps a group.
struct Terms {
  FailureRules rules;
  // With rules.may_leave_out a member that does not answer, or fails at its work, is left out once
  // so much time has passed since it was heard of last.
  Duration absence{};
  Duration answer{};  // a member that runs answers within it
  Uuid group{};
  uint64_t region_size = 0;
};

// What is on offer at the moment of an event. A store that is being closed is offered no replica to
// take in, to add, or to lose.
struct Offers {
  std::vector<std::string> ready;       // absent replicas that can be taken in now, by address
  std::optional<std::string> newcomer;  // a proposed replica that can be added now
  std::optional<std::string> leaver;    // the absent replica that is to leave, and may
  std::vector<std::string> silent;      // members that have answered nobody for heartbeat_timeout
  bool few_hold = false;                // of the members, as FewHold
};

// A group, as its primary knows it. Replicas are told apart by their addresses.
struct Group {
  Configuration configuration;  // that all of its replicas have installed
  // The member that was taken in last, until the group is found working with it.
  std::string unproven = {};
  // The replica that was recorded last as one that is to come, and was no member since.
  std::string announced = {};
  // A replica whose addition did not come about, or that is to leave, while the group has it.
  std::string taken_back = {};
  bool leaves = false;  // taken_back is to leave, for as long as somebody proposes that
  // The members are to be told anew why replicas are absent.
  bool tells_absences = false;
};

// A group that does not answer, or is to change.
struct Outage {
  Group group;
  Time since{};            // the group was heard of last
  std::string cause = {};  // of it, for people
  bool planned = false;    // it was made to change the group
  bool tried = false;      // members were asked to work again
  // The members' answers at `looked`, with which later ones are compared.
  std::vector<std::optional<control::HelloReplyT>> before = {};
  Time looked{};

  // Of the call that brings it back now.
  std::string joiner = {};  // the replica that is to be taken in, or to be added; empty: none
  Duration patience{};
  Time deadline{};
  bool repeated = false;  // the members worked, and were interrupted once more
};

// How one attempt brings the group back.
struct Plan {
  Judgement judgement;
  Configuration next;  // to be installed, if `anew`
  uint64_t epoch = 0;  // the one to seal, if `anew`
  bool anew = true;    // false: the members serve on under the epoch that they have
  // It records the joiner as an absent replica: the first step of an addition (Announce).
  bool announces = false;
};

// --- states

struct Serving {
  static constexpr std::string_view kName = "Serving";
  Group group;
};
struct Asking {
  static constexpr std::string_view kName = "Asking";
  Outage outage;
};
struct Joining {
  static constexpr std::string_view kName = "Joining";
  Outage outage;
  Plan plan;
};
struct Sealing {
  static constexpr std::string_view kName = "Sealing";
  Outage outage;
  Plan plan;
};
struct Equalising {
  static constexpr std::string_view kName = "Equalising";
  Outage outage;
  Plan plan;
};
struct Arming {
  static constexpr std::string_view kName = "Arming";
  Outage outage;
  Plan plan;
};
// The attempt has failed.
struct Withdrawing {
  static constexpr std::string_view kName = "Withdrawing";
  Outage outage;
  Status why;
};
struct PuttingOff {
  static constexpr std::string_view kName = "PuttingOff";
  Outage outage;
};
struct Pausing {
  static constexpr std::string_view kName = "Pausing";
  Outage outage;
};
// The call has failed. The next one goes on.
struct OutOfReach {
  static constexpr std::string_view kName = "OutOfReach";
  Outage outage;
};
// Another primary has the group. This one never leaves the state but to close.
struct Fenced {
  static constexpr std::string_view kName = "Fenced";
  Group group;
  std::string why;
};
struct Closing {
  static constexpr std::string_view kName = "Closing";
};
struct Closed {
  static constexpr std::string_view kName = "Closed";
};
using State = std::variant<Serving, Asking, Joining, Sealing, Equalising, Arming, Withdrawing,
                           PuttingOff, Pausing, OutOfReach, Fenced, Closing, Closed>;

// --- effects, and the events that answer them

// Ends the queues and the access to memory, and asks all members whether they are there.
struct Ask {
  static constexpr std::string_view kName = "Ask";
  Duration most{};       // no answer is waited for longer
  bool forgives = true;  // what members failed at before does not count any more
  // What this attempt asks members for that takes long must have ended by then; nothing: it may
  // take the time that it needs.
  std::optional<Time> until = {};
};
struct Asked {
  struct Member {
    std::optional<control::HelloReplyT> hello = {};  // nothing: it did not answer
    bool failed = false;   // it, or the way to it, failed at work since that was forgiven
    std::string why = {};  // it must not be made equal to the primary; empty: it may
  };
  std::vector<Member> members;  // in the order of the configuration
  Offers offers = {};
};
struct AskJoiner {
  static constexpr std::string_view kName = "AskJoiner";
  std::string address;
};
struct JoinerAsked {
  Result<control::HelloReplyT> hello;
  std::vector<std::string> chain = {};  // all replicas, in the order in which they form chains
};
// Judges whether what the joiner holds may be overwritten. kInvalidArgument: never.
struct JudgeJoiner {
  static constexpr std::string_view kName = "JudgeJoiner";
  std::string address;
  control::HelloReplyT hello;
};
// Seals the epoch at each member of plan.next as it is now, if nobody else has served it since.
struct Seal {
  static constexpr std::string_view kName = "Seal";
  uint64_t epoch = 0;
};
// Asks the members to serve on under their epoch.
struct Reconnect {
  static constexpr std::string_view kName = "Reconnect";
};
// Reaches the members' memory.
struct Attach {
  static constexpr std::string_view kName = "Attach";
};
// Redoes the own region, and makes every member's region equal to it.
struct Equalise {
  static constexpr std::string_view kName = "Equalise";
};
// Installs the configuration at its replicas. `lasting`: even if this owner never serves by it.
struct Install {
  static constexpr std::string_view kName = "Install";
  Configuration configuration;
  bool lasting = false;
};
// Makes and connects the queues of all members.
struct Arm {
  static constexpr std::string_view kName = "Arm";
};
struct Armed {
  Status status;
  bool closing = false;  // the store is being closed
  Offers offers = {};
};
// Ends what the attempt made.
struct Withdraw {
  static constexpr std::string_view kName = "Withdraw";
};
struct Withdrawn {
  bool own_fault = false;  // this node's own RNIC daemon had failed
  bool closing = false;
};
// The joiner is tried again after a pause.
struct PutOff {
  static constexpr std::string_view kName = "PutOff";
  std::string joiner;
  Status why;
  bool taken_back = false;  // its addition is taken back
};
// Waits a little.
struct Pause {
  static constexpr std::string_view kName = "Pause";
};
struct Paused {
  bool closing = false;
};
// The call has ended: the group is back.
struct Resume {
  static constexpr std::string_view kName = "Resume";
  std::string joined = {};  // the joiner that took part
  std::string gone = {};    // a replica that is not of the group any more
  bool left = false;        // it was to leave; otherwise it could not be taken in
};
// The call has ended without the group. `lasts`: the error is not one that may pass.
struct GiveUp {
  static constexpr std::string_view kName = "GiveUp";
  Status why;
  bool lasts = false;
};
// The call has ended, and no other one will ever write.
struct Fence {
  static constexpr std::string_view kName = "Fence";
  std::string why;
};
// Gives the members back.
struct Release {
  static constexpr std::string_view kName = "Release";
};
// There is nothing to be done.
struct End {
  static constexpr std::string_view kName = "End";
};
using Effect = std::variant<Ask, AskJoiner, JudgeJoiner, Seal, Reconnect, Attach, Equalise, Install,
                            Arm, Withdraw, PutOff, Pause, Resume, GiveUp, Fence, Release, End>;

// An operation of the group failed, or the group is to change. A call begins that brings it back.
struct Lost {
  static constexpr std::string_view kName = "Lost";
  Status cause;
  Time heard{};  // when the group was heard of last
  Duration patience{};
  bool own_fault = false;
  bool closing = false;
  Offers offers = {};
};
// The group was found working.
struct Worked {
  static constexpr std::string_view kName = "Worked";
};
struct Close {
  static constexpr std::string_view kName = "Close";
};
// Answers an effect that has no event of its own.
template <class Answered>
struct Done {
  Status status;
};
using Event = std::variant<Lost, Worked, Close, Asked, JoinerAsked, Done<JudgeJoiner>, Done<Seal>,
                           Done<Reconnect>, Done<Attach>, Done<Equalise>, Done<Install>, Armed,
                           Withdrawn, Done<PutOff>, Paused, Done<Release>>;

// --- the table

// In `state`, the event, or the one that answers the effect `event`, leads to `next`, and to
// `effect`. One that says that it failed leads to Withdrawing and Withdraw, and so does a joiner
// that answers, but may not be taken in. Whether Release and PutOff failed makes no difference. In
// each state that has an Outage, Lost and Close lead where they lead from OutOfReach. Step does
// nothing else, which a test checks.
struct Row {
  std::string_view state, event, next, effect;
  std::string_view where = "";  // where several rows may follow
};
inline constexpr Row kTable[] = {
    // clang-format off
    // state          event          next           effect         where
    {"Serving",      "Worked",      "Serving",      "End"},
    {"Serving",      "Lost",        "Asking",       "Ask"},
    {"Serving",      "Lost",        "Withdrawing",  "Withdraw",    "the store is being closed"},
    {"Serving",      "Close",       "Closing",      "Release"},
    {"Asking",       "Ask",         "Fenced",       "Fence",       "another primary has served the group"},
    {"Asking",       "Ask",         "Withdrawing",  "Withdraw",    "too few are there, or a rival may live"},
    {"Asking",       "Ask",         "Joining",      "AskJoiner",   "a replica joins"},
    {"Asking",       "Ask",         "Sealing",      "Seal",        "a member is left out, leaves, or was promised to a rival"},
    {"Asking",       "Ask",         "Sealing",      "Reconnect",   "nothing has changed"},
    {"Joining",      "AskJoiner",   "Joining",      "JudgeJoiner", "it can be taken in, or added"},
    {"Joining",      "JudgeJoiner", "Sealing",      "Seal"},
    {"Sealing",      "Seal",        "Sealing",      "Attach"},
    {"Sealing",      "Reconnect",   "Sealing",      "Attach"},
    {"Sealing",      "Attach",      "Equalising",   "Equalise"},
    {"Equalising",   "Equalise",    "Arming",       "Install",     "they were sealed anew"},
    {"Equalising",   "Equalise",    "Arming",       "Arm",         "they were not"},
    {"Arming",       "Install",     "Arming",       "Arm"},
    {"Arming",       "Arm",         "Serving",      "Resume"},
    {"Arming",       "Arm",         "Asking",       "Ask",         "now a replica may leave"},
    {"Withdrawing",  "Withdraw",    "PuttingOff",   "PutOff",      "a replica was to join"},
    {"Withdrawing",  "Withdraw",    "Pausing",      "Pause",       "there is time left"},
    {"Withdrawing",  "Withdraw",    "OutOfReach",   "GiveUp",      "there is none, or it would not help"},
    {"PuttingOff",   "PutOff",      "Asking",       "Ask"},
    {"Pausing",      "Pause",       "Asking",       "Ask"},
    {"Pausing",      "Pause",       "OutOfReach",   "GiveUp",      "the store is being closed"},
    {"OutOfReach",   "Lost",        "Asking",       "Ask"},
    {"OutOfReach",   "Lost",        "Withdrawing",  "Withdraw",    "the store is being closed"},
    {"OutOfReach",   "Close",       "Closing",      "Release"},
    {"Fenced",       "Lost",        "Fenced",       "Fence"},
    {"Fenced",       "Close",       "Closed",       "End"},
    {"Closing",      "Release",     "Closed",       "End"},
    // clang-format on
};

// --- the machine

class Keeping {
 public:
  // Begins in Serving: `configuration` is installed at all of its replicas.
  Keeping(Terms terms, Configuration configuration);
  // The next effect. `event` answers the one before, or is Lost, Worked or Close. An event that
  // nobody asked for changes nothing, and the effect is GiveUp with kInternal.
  Effect Step(Event event, Time now);
  const State& state() const { return state_; }
  // Null in states that have none.
  const Outage* outage() const;
  const Plan* plan() const;
  // The group; in Closing and Closed, one of nobody.
  const Group& group() const;

 private:
  Terms terms_;
  State state_;
};

std::string_view NameOf(const State& state);
std::string_view NameOf(const Effect& effect);
// Whether a call ends with it.
bool EndsCall(const Effect& effect);

}  // namespace hyperloop::keeping
