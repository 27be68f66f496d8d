#include "primary/absent_watch.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "hyperloop/core/text.h"
#include "membership/judgement.h"
#include "primary/asking.h"
#include "primary/replica_handle.h"

namespace hyperloop {
namespace {

// A living owner's heartbeat moves ten times between two questions.
constexpr std::chrono::milliseconds kInterval{1000}, kAnswer{1000}, kRoundInterval{3000};
constexpr std::chrono::seconds kFirstPause{5};
constexpr uint32_t kMostPauseDoublings = 6;
// How long an answer counts. The replica is asked again before that.
constexpr std::chrono::milliseconds kFresh = kInterval + kAnswer;
// A replica that fails within this time after it was taken in is waited for longer.
constexpr std::chrono::minutes kSoon{10};

// As configurations name it; empty: it is not one, or there is none.
std::string AddressOf(const std::string& proposed) {
  const Result<control::Endpoint> endpoint = control::ParseEndpoint(proposed);
  return endpoint.ok() ? endpoint->ToString() : "";
}

std::chrono::seconds PauseAfter(uint32_t failures) {
  return kFirstPause * (1u << std::min(failures - 1, kMostPauseDoublings));
}

}  // namespace

AbsentWatch::AbsentWatch(control::Trust trust, const Options& options, std::shared_ptr<Log> log,
                         int avoid_cpu)
    : trust_(std::move(trust)),
      round_interval_(options.heartbeat_timeout.count() == 0 ? kRoundInterval : kInterval),
      try_way_(options.try_way),
      few_hold_(options.few_hold),
      log_(std::move(log)),
      silence_(options.heartbeat_timeout, options.rules),
      thread_(
          "hl-absent", [this] { return Work(); }, avoid_cpu) {}

AbsentWatch::~AbsentWatch() { End(); }

void AbsentWatch::End() {
  const MutexLock lock(mutex_);
  ending_ = true;
  stop_.Set();
}

void AbsentWatch::Set(const Configuration& configuration, const Uuid& group, uint64_t region_size) {
  {
    const MutexLock lock(mutex_);
    const auto now = Clock::now();
    for (const Absent& each : absent_) history_[each.replica.address].last = now;
    std::vector<Absent> absent;
    for (const Configuration::Replica& each : configuration.absent) {
      absent.push_back({each, false, {}, {}, {}, {}});
      History& history = history_[each.address];
      if (const Absent* known = FindLocked(each.address)) {
        absent.back().next = known->next;
        absent.back().refusal = known->refusal;
      } else if (history.last != Clock::time_point() && now - history.last < kSoon) {
        absent.back().next = now + PauseAfter(++history.failures);
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
    any_silent_.store(false, std::memory_order_relaxed);
    group_ = group;
    region_size_ = region_size;
    ++generation_;
    UpdateReadyLocked();
  }
  thread_.Wake();
}

std::vector<std::string> AbsentWatch::Ready() const {
  const auto now = Clock::now();
  const MutexLock lock(mutex_);
  std::vector<std::string> addresses;
  for (const Absent& each : absent_)
    if (now < each.ready_until && !each.proposed) addresses.push_back(each.replica.address);
  return addresses;
}

std::optional<Configuration::Replica> AbsentWatch::Newcomer() const {
  const MutexLock lock(mutex_);
  if (absent_.empty() || !absent_.back().proposed) return {};
  if (Clock::now() >= absent_.back().ready_until) return {};
  return absent_.back().replica;
}

std::optional<std::string> AbsentWatch::Leaver() const {
  const MutexLock lock(mutex_);
  if (Clock::now() >= leaver_until_) return {};
  return configuration_.absent.front().address;
}

std::vector<std::string> AbsentWatch::Silent() const {
  const MutexLock lock(mutex_);
  return silent_;
}

std::vector<std::string> AbsentWatch::Suspected() const {
  const MutexLock lock(mutex_);
  return suspected_;
}

void AbsentWatch::Failed(const std::string& address) {
  const MutexLock lock(mutex_);
  Absent* const absent = FindLocked(address);
  if (absent == nullptr) return;
  absent->ready_until = {};
  absent->before.reset();
  absent->next = Clock::now() + PauseAfter(++history_[address].failures);
  UpdateReadyLocked();
}

void AbsentWatch::Refuse(const std::string& address, const Status& why) {
  const MutexLock lock(mutex_);
  const Absent* const absent = FindLocked(address);
  if (absent == nullptr || !absent->before.has_value()) return;
  History& history = history_[address];
  history.refused_node = absent->before->node_id;
  history.refused_epoch = absent->before->installed_epoch;
  history.refusal = why;
}

AbsentWatch::Absent* AbsentWatch::FindLocked(const std::string& address) {
  const auto found = std::find_if(absent_.begin(), absent_.end(), [&](const Absent& each) {
    return each.replica.address == address;
  });
  return found == absent_.end() ? nullptr : &*found;
}

bool AbsentWatch::any_ready() const {
  const Clock::time_point until = ready_until_.load(std::memory_order_relaxed);
  return until != Clock::time_point() && Clock::now() < until;
}

void AbsentWatch::UpdateReadyLocked() {
  Clock::time_point until = leaver_until_;
  for (const Absent& each : absent_) until = std::max(until, each.ready_until);
  ready_until_.store(until, std::memory_order_relaxed);
}

// Uses a handle of its own, because the session's handles are not thread safe.
Result<AbsentWatch::Answer> AbsentWatch::Ask(const std::string& address) const {
  HL_ASSIGN_OR_RETURN(const control::Endpoint endpoint, control::ParseEndpoint(address));
  ReplicaHandle replica(endpoint, trust_, kAnswer);
  replica.SetStop(stop_.fd());
  HL_ASSIGN_OR_RETURN(control::HelloReplyT hello, replica.Hello());
  return Answer{std::move(hello), replica.peer()};
}

std::vector<Result<AbsentWatch::Answer>> AbsentWatch::AskAll(
    const std::vector<Configuration::Replica>& replicas) const {
  return AtOnce(replicas.size(), [&](size_t i) { return Ask(replicas[i].address); });
}

std::chrono::milliseconds AbsentWatch::Work() {
  if (!ending_) AskMembers();
  if (ending_) return kInterval;
  uint64_t generation = 0;
  const auto replica = Next(&generation);
  if (!replica.has_value()) {
    const MutexLock lock(mutex_);
    return absent_.empty() ? round_interval_ : kInterval;
  }
  const Result<Answer> answer = Ask(replica->address);
  Status judged =
      Judge(*replica, generation,
            answer.ok() ? answer->hello : Result<control::HelloReplyT>(answer.status()));
  std::vector<control::Seat> members;
  std::vector<Answered> answered;
  if (judged.ok()) judged = CheckMembersAnswer(&members, &answered);
  if (judged.ok()) judged = CheckHost(*replica, answer->peer, members);
  if (judged.ok()) judged = TryWayTo(*replica, generation, answered);
  Note(*replica, generation, judged);
  return std::chrono::milliseconds(0);
}

bool AbsentWatch::Counts(const std::string& member, const control::HelloReplyT& told, bool leaves) {
  const std::string& replica = leaves ? told.leaving_replica : told.proposed_replica;
  if (AddressOf(replica).empty()) return false;
  std::string group;
  uint64_t epoch = 0;
  Uuid owner;
  {
    const MutexLock lock(mutex_);
    group = FormatUuid(group_);
    epoch = configuration_.epoch;
    owner = configuration_.owner;
  }
  const Status vouched = control::CheckProposal(trust_, told, leaves, group, epoch, owner);
  // What was proposed before a change is vouched for anew in a moment, if it still is proposed.
  const bool outdated = !told.proposal_vouchers.empty() && told.proposal_epoch < epoch;
  if (vouched.ok() || outdated) return vouched.ok();
  const std::string refused = Text("replica ", replica, ", which replica ", member,
                                   leaves ? " says is to leave, does not leave the group: "
                                          : " says is proposed, is not added: ",
                                   vouched.message());
  if (std::exchange(refused_[{member, leaves}], refused) != refused)
    LogLine(log_.get(), LogLevel::kWarn, {refused});
  return false;
}

// The first that most members tell, in the order of the chain. So no member alone keeps alive what
// nobody proposes any more. Empty: none.
std::string AbsentWatch::ToldByMost(const std::vector<std::string>& told, size_t members) {
  for (const std::string& each : told)
    if (2 * static_cast<size_t>(std::ranges::count(told, each)) > members) return each;
  return "";
}

// One that is no longer repeated is forgotten.
void AbsentWatch::AskMembers() {
  Configuration configuration;
  uint64_t generation = 0;
  Clock::time_point begun;
  {
    const MutexLock lock(mutex_);
    if (Clock::now() < next_round_) return;
    begun = Clock::now();
    next_round_ = begun + round_interval_;
    configuration = configuration_;
    generation = generation_;
  }
  std::vector<std::string> proposed, leaving;  // as each member tells that counts
  std::map<std::string, uint64_t> proposals;
  std::vector<std::string> unanswered;
  const std::vector<Result<Answer>> answers = AskAll(configuration.replicas);
  if (ending_) return;
  for (size_t i = 0; i < answers.size(); ++i) {
    const Configuration::Replica& each = configuration.replicas[i];
    const Result<Answer>& answer = answers[i];
    if (!answer.ok()) unanswered.push_back(each.address);
    if (!answer.ok() || answer->hello.node_id != FormatUuid(each.node)) continue;
    const control::HelloReplyT& hello = answer->hello;
    proposals[each.address] = hello.proposals;
    const auto before = proposals_.find(each.address);
    const bool repeated = before != proposals_.end() && before->second < hello.proposals;
    if (repeated && Counts(each.address, hello, false))
      proposed.push_back(AddressOf(hello.proposed_replica));
    if (repeated && Counts(each.address, hello, true))
      leaving.push_back(AddressOf(hello.leaving_replica));
  }
  proposals_ = std::move(proposals);
  MemberSilence::Judgement silence = JudgeSilence(configuration, unanswered, generation, begun);
  const MutexLock lock(mutex_);
  if (ending_ || generation != generation_) return;
  const size_t members = configuration.replicas.size();
  NoteProposalLocked(ToldByMost(proposed, members));
  NoteLeaverLocked(ToldByMost(leaving, members), unanswered.empty());
  silent_ = std::move(silence.to_leave_out);
  suspected_ = std::move(silence.all_suspected);
  any_silent_.store(!silent_.empty(), std::memory_order_relaxed);
}

// Members that changed, or were brought back, begin anew.
MemberSilence::Judgement AbsentWatch::JudgeSilence(const Configuration& configuration,
                                                   const std::vector<std::string>& unanswered,
                                                   uint64_t generation, Clock::time_point begun) {
  if (std::exchange(silence_generation_, generation) != generation) silence_.Forget();
  MemberSilence::Judgement judged = silence_.Judge(configuration, unanswered, begun);
  for (const std::string& each : judged.suspected) {
    LogLine(log_.get(), LogLevel::kWarn,
            {"replica ", each, " is suspected: it answers no request; its RNIC may serve on"});
  }
  for (const std::string& each : judged.answering)
    LogLine(log_.get(), LogLevel::kInfo, {"replica ", each, " answers requests again"});
  return judged;
}

void AbsentWatch::NoteProposalLocked(const std::string& address) {
  const bool known = !absent_.empty() && absent_.back().proposed;
  if (known && absent_.back().replica.address == address) return;
  if (known) absent_.pop_back();
  if (!address.empty() && !configuration_.Has(address)) {
    absent_.push_back({{kNilUuid, address}, true, {}, {}, {}, {}});
    // As for one that was left out: what failed a moment ago is tried after a pause.
    const History& history = history_[address];
    if (history.failures != 0) absent_.back().next = history.last + PauseAfter(history.failures);
  }
  UpdateReadyLocked();
}

void AbsentWatch::NoteLeaverLocked(const std::string& address, bool answered) {
  Status judged = CheckLeaver(configuration_, address);
  if (judged.ok() && !answered) judged = Unavailable("a member is silent");
  if (judged.ok() && few_hold_ != nullptr && few_hold_(configuration_.replicas.size())) {
    judged = Unavailable(
        "fewer than half of those that stay hold the tables of the database; they are sent them");
  }
  leaver_until_ = judged.ok() ? Clock::now() + 2 * round_interval_ : Clock::time_point();
  UpdateReadyLocked();
  if (address.empty() || std::exchange(leaver_refusal_, judged.message()) == judged.message())
    return;
  if (!judged.ok())
    LogLine(log_.get(), LogLevel::kInfo,
            {"replica ", address, " does not leave the group yet: ", judged.message()});
}

// Taking a replica in interrupts the group, and needs every member to answer requests. A member
// whose process is stopped serves on only as long as the group is not interrupted.
Status AbsentWatch::CheckMembersAnswer(std::vector<control::Seat>* members,
                                       std::vector<Answered>* answered) {
  std::vector<Configuration::Replica> replicas;
  {
    const MutexLock lock(mutex_);
    replicas = configuration_.replicas;
  }
  std::vector<Result<Answer>> answers = AskAll(replicas);
  if (ending_) return Unavailable("no longer asked for");
  for (size_t i = 0; i < answers.size(); ++i) {
    if (!answers[i].ok()) return answers[i].status().WithContext("a member is silent");
    HL_ASSIGN_OR_RETURN(const control::Endpoint endpoint,
                        control::ParseEndpoint(replicas[i].address));
    members->push_back({endpoint, std::move(answers[i]->peer)});
    answered->push_back({replicas[i].address, std::move(answers[i]->hello)});
  }
  return {};
}

Status AbsentWatch::CheckHost(const Configuration::Replica& replica, const identity::Peer& peer,
                              const std::vector<control::Seat>& members) {
  {
    const MutexLock lock(mutex_);
    const Absent* const absent = FindLocked(replica.address);
    if (absent == nullptr || !absent->proposed) return {};
  }
  HL_ASSIGN_OR_RETURN(const control::Endpoint endpoint, control::ParseEndpoint(replica.address));
  return control::CheckNewcomer(trust_, {endpoint, peer}, members);
}

// Taking a replica in interrupts the group, and a new one is recorded before that. So a replica
// that could not come is not tried.
Status AbsentWatch::TryWayTo(const Configuration::Replica& replica, uint64_t generation,
                             const std::vector<Answered>& members) {
  Answered joiner{replica.address, {}};
  {
    const MutexLock lock(mutex_);
    const Absent* const absent = FindLocked(replica.address);
    if (generation != generation_ || absent == nullptr || !absent->before.has_value())
      return Unavailable("no longer asked for");
    if (try_way_ == nullptr) return {};
    joiner.hello = *absent->before;
  }
  return TryWithin(joiner, members);
}

Status AbsentWatch::TryWithin(const Answered& joiner, const std::vector<Answered>& members) {
  using std::chrono::milliseconds;
  const auto ended = [&](milliseconds within) {
    return way_.wait_for(within) == std::future_status::ready;
  };
  const auto now = Clock::now();
  if (way_.valid() && now - way_asked_ > kFirstPause && ended(milliseconds(0))) way_ = {};
  if (!way_.valid()) {
    try {
      // With the signal mask of this thread.
      way_ = std::async(std::launch::async, try_way_, joiner, members);
    } catch (const std::system_error& error) {
      return Unavailable(Text("no thread can be made: ", error.what()));
    }
    way_to_ = joiner.address;
    (void)ended(kAnswer);
  }
  if (way_to_ != joiner.address) return Busy("the way to another replica is tried");
  way_asked_ = now;
  if (!ended(milliseconds(0))) return Busy("the way is still tried");
  return way_.get();
}

std::optional<Configuration::Replica> AbsentWatch::Next(uint64_t* generation) {
  const MutexLock lock(mutex_);
  const Absent* first = nullptr;
  for (const Absent& each : absent_)
    if (first == nullptr || each.next < first->next) first = &each;
  if (first == nullptr || Clock::now() < first->next) return {};
  *generation = generation_;
  return first->replica;
}

Status AbsentWatch::Judge(const Configuration::Replica& replica, uint64_t generation,
                          Result<control::HelloReplyT> hello) {
  const MutexLock lock(mutex_);
  Absent* const absent = FindLocked(replica.address);
  if (generation != generation_ || absent == nullptr) return Unavailable("no longer asked for");
  if (!hello.ok()) {
    absent->before.reset();
    return hello.status();
  }
  const auto before = std::exchange(absent->before, std::move(hello).value());
  if (!before.has_value()) return Busy("its owner is watched for a second");
  const History& history = history_[replica.address];
  if (history.refused_node == absent->before->node_id &&
      history.refused_epoch == absent->before->installed_epoch)
    return history.refusal;
  if (!absent->proposed)
    return CheckJoiner(configuration_, group_, region_size_, replica, *before, *absent->before);
  HL_ASSIGN_OR_RETURN(absent->replica.node, ParseUuid(absent->before->node_id));
  return CheckNewcomer(configuration_, group_, region_size_, absent->replica, *before,
                       *absent->before);
}

void AbsentWatch::Note(const Configuration::Replica& replica, uint64_t generation,
                       const Status& judged) {
  const MutexLock lock(mutex_);
  Absent* const absent = FindLocked(replica.address);
  if (generation != generation_ || absent == nullptr) return;
  const auto now = Clock::now();
  absent->next = now + kInterval;
  absent->ready_until = judged.ok() ? now + kFresh : Clock::time_point();
  UpdateReadyLocked();
  if (judged.ok() || judged.code() == Code::kBusy || judged.message() == absent->refusal) return;
  absent->refusal = judged.message();
  if (log_ != nullptr) {
    log_->Write(LogLevel::kInfo,
                Text("replica ", replica.address, " is not ",
                     absent->proposed ? "added" : "taken in again", " yet: ", absent->refusal));
  }
}

}  // namespace hyperloop
