#include "membership/absence.h"

#include <algorithm>
#include <utility>

#include "hyperloop/core/text.h"
#include "membership/judgement.h"

namespace hyperloop {
namespace {

// A living owner's heartbeat moves ten times between two questions.
constexpr std::chrono::milliseconds kAskAbsentAgain{1000}, kAbsentAnswer{1000};
// How long an answer counts. The replica is asked again before that.
constexpr std::chrono::milliseconds kFresh = kAskAbsentAgain + kAbsentAnswer;
constexpr std::chrono::seconds kFirstPause{5};
constexpr uint32_t kMostPauseDoublings = 6;
// A replica that fails within this time after it was taken in is waited for longer.
constexpr std::chrono::minutes kSoon{10};

std::chrono::seconds PauseAfter(uint32_t failures) {
  return kFirstPause * (1u << std::min(failures - 1, kMostPauseDoublings));
}

// The first that most members tell, in the order of the chain. Empty: none.
std::string ToldByMost(const std::vector<std::string>& told, size_t members) {
  for (const std::string& each : told)
    if (2 * static_cast<size_t>(std::ranges::count(told, each)) > members) return each;
  return "";
}

}  // namespace

Absence::Absence(std::chrono::milliseconds heartbeat_timeout, const FailureRules& rules)
    : silence_(heartbeat_timeout, rules) {}

const Absence::Absent* Absence::Find(const std::string& address) const {
  const auto found = std::ranges::find_if(
      absent_, [&](const Absent& each) { return each.replica.address == address; });
  return found == absent_.end() ? nullptr : &*found;
}
Absence::Absent* Absence::Find(const std::string& address) {
  return const_cast<Absent*>(std::as_const(*this).Find(address));
}

void Absence::Set(const Configuration& configuration, const Uuid& group, uint64_t region_size,
                  Time now) {
  for (const Absent& each : absent_) history_[each.replica.address].last = now;
  std::vector<Absent> absent;
  for (const Configuration::Replica& each : configuration.absent) {
    Absent& out = absent.emplace_back(Absent{each});
    History& history = history_[each.address];
    if (const Absent* known = Find(each.address)) {
      out.next = known->next;
      out.refusal = known->refusal;
    } else if (history.last != Time() && now - history.last < kSoon) {
      out.next = now + PauseAfter(++history.failures);
    } else {
      history.failures = 0;
    }
  }
  configuration_ = configuration;
  if (!absent_.empty() && absent_.back().proposed &&
      !configuration.Has(absent_.back().replica.address)) {
    absent.push_back(absent_.back());
    absent.back().before.reset();
    absent.back().ready_until = {};
  }
  absent_ = std::move(absent);
  leaver_until_ = {};
  silent_.clear();
  suspected_.clear();
  group_ = group;
  region_size_ = region_size;
  ++generation_;
}

keeping::Offers Absence::At(Time now) const {
  keeping::Offers offers;
  offers.silent = silent_;
  for (const Absent& each : absent_) {
    if (now >= each.ready_until) continue;
    if (each.proposed)
      offers.newcomer = each.replica.address;
    else
      offers.ready.push_back(each.replica.address);
  }
  if (now < leaver_until_) offers.leaver = configuration_.absent.front().address;
  return offers;
}

Absence::Time Absence::offers_until() const {
  Time until = leaver_until_;
  for (const Absent& each : absent_) until = std::max(until, each.ready_until);
  return until;
}

void Absence::Failed(const std::string& address, Time now) {
  Absent* const absent = Find(address);
  if (absent == nullptr) return;
  absent->ready_until = {};
  absent->before.reset();
  absent->next = now + PauseAfter(++history_[address].failures);
}

void Absence::Refuse(const std::string& address, const Status& why) {
  const Absent* const absent = Find(address);
  if (absent == nullptr || !absent->before.has_value()) return;
  History& history = history_[address];
  history.refused_node = absent->before->node_id;
  history.refused_epoch = absent->before->installed_epoch;
  history.refusal = why;
}

// --- one replica is asked

std::optional<Configuration::Replica> Absence::Next(Time now) const {
  const auto first = std::ranges::min_element(absent_, {}, &Absent::next);
  if (first == absent_.end() || now < first->next) return {};
  return first->replica;
}

Status Absence::Judge(const std::string& address, uint64_t generation,
                      Result<control::HelloReplyT> hello) {
  Absent* const absent = Find(address);
  if (generation != generation_ || absent == nullptr) return Unavailable("no longer asked for");
  if (!hello.ok()) {
    absent->before.reset();
    return hello.status();
  }
  const auto before = std::exchange(absent->before, std::move(hello).value());
  if (!before.has_value()) return Busy("its owner is watched for a second");
  const control::HelloReplyT& now = *absent->before;
  const History& history = history_[address];
  if (history.refused_node == now.node_id && history.refused_epoch == now.installed_epoch)
    return history.refusal;
  if (!absent->proposed)
    return CheckJoiner(configuration_, group_, region_size_, absent->replica, *before, now);
  HL_ASSIGN_OR_RETURN(absent->replica.node, ParseUuid(now.node_id));
  return CheckNewcomer(configuration_, group_, region_size_, absent->replica, *before, now);
}

bool Absence::IsProposed(const std::string& address) const {
  const Absent* const absent = Find(address);
  return absent != nullptr && absent->proposed;
}

const control::HelloReplyT* Absence::AnswerOf(const std::string& address,
                                              uint64_t generation) const {
  const Absent* const absent = Find(address);
  const bool known = generation == generation_ && absent != nullptr && absent->before.has_value();
  return known ? &*absent->before : nullptr;
}

std::string Absence::Note(const std::string& address, uint64_t generation, const Status& judged,
                          Time now) {
  Absent* const absent = Find(address);
  if (generation != generation_ || absent == nullptr) return "";
  absent->next = now + kAskAbsentAgain;
  absent->ready_until = judged.ok() ? now + kFresh : Time();
  if (judged.ok() || judged.code() == Code::kBusy || judged.message() == absent->refusal) return "";
  absent->refusal = judged.message();
  return Text("replica ", address, " is not ", absent->proposed ? "added" : "taken in again",
              " yet: ", absent->refusal);
}

// --- all members are asked

Absence::Told Absence::NoteRound(const Round& round, uint64_t generation, Time now) {
  if (std::exchange(silence_generation_, generation) != generation) silence_.Forget();
  Told told;
  if (generation != generation_) return told;
  MemberSilence::Judgement silence = silence_.Judge(configuration_, round.unanswered, round.begun);
  const size_t members = configuration_.replicas.size();
  NoteProposal(ToldByMost(round.proposed, members));
  told.leaver = NoteLeaver(ToldByMost(round.leaving, members), round, now);
  told.suspected = std::move(silence.suspected);
  told.answering = std::move(silence.answering);
  silent_ = std::move(silence.to_leave_out);
  suspected_ = std::move(silence.all_suspected);
  return told;
}

void Absence::NoteProposal(const std::string& address) {
  const bool known = !absent_.empty() && absent_.back().proposed;
  if (known && absent_.back().replica.address == address) return;
  if (known) absent_.pop_back();
  if (address.empty() || configuration_.Has(address)) return;
  absent_.push_back({{kNilUuid, address}, true});
  // As for one that was left out: what failed a moment ago is tried after a pause.
  const History& history = history_[address];
  if (history.failures != 0) absent_.back().next = history.last + PauseAfter(history.failures);
}

std::string Absence::NoteLeaver(const std::string& address, const Round& round, Time now) {
  Status judged = CheckLeaver(configuration_, address);
  if (judged.ok() && !round.unanswered.empty()) judged = Unavailable("a member is silent");
  if (judged.ok() && round.few_hold) {
    judged = Unavailable(
        "fewer than half of those that stay hold the tables of the database; they are sent them");
  }
  leaver_until_ = judged.ok() ? now + 2 * round.interval : Time();
  if (address.empty() || std::exchange(leaver_refusal_, judged.message()) == judged.message())
    return "";
  if (judged.ok()) return "";
  return Text("replica ", address, " does not leave the group yet: ", judged.message());
}

}  // namespace hyperloop
