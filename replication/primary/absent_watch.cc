#include "primary/absent_watch.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "hyperloop/core/text.h"
#include "primary/asking.h"
#include "primary/replica_handle.h"

namespace hyperloop {
namespace {

// A living owner's heartbeat moves ten times between two questions.
constexpr std::chrono::milliseconds kInterval{1000}, kAnswer{1000}, kRoundInterval{3000};
// An outcome that nobody wanted to know for so long is forgotten.
constexpr std::chrono::seconds kForgetWay{5};

// As configurations name it; empty: it is not one, or there is none.
std::string AddressOf(const std::string& proposed) {
  const Result<control::Endpoint> endpoint = control::ParseEndpoint(proposed);
  return endpoint.ok() ? endpoint->ToString() : "";
}

}  // namespace

AbsentWatch::AbsentWatch(control::Trust trust, const Options& options, std::shared_ptr<Log> log,
                         int avoid_cpu)
    : trust_(std::move(trust)),
      round_interval_(options.heartbeat_timeout.count() == 0 ? kRoundInterval : kInterval),
      try_way_(options.try_way),
      few_hold_(options.few_hold),
      log_(std::move(log)),
      absence_(options.heartbeat_timeout, options.rules),
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
    absence_.Set(configuration, group, region_size, Clock::now());
    UpdateLocked();
  }
  thread_.Wake();
}

keeping::Offers AbsentWatch::Offered() const {
  const MutexLock lock(mutex_);
  return absence_.At(Clock::now());
}

std::vector<std::string> AbsentWatch::Suspected() const {
  const MutexLock lock(mutex_);
  return absence_.suspected();
}

void AbsentWatch::Failed(const std::string& address) {
  const MutexLock lock(mutex_);
  absence_.Failed(address, Clock::now());
  UpdateLocked();
}

void AbsentWatch::Refuse(const std::string& address, const Status& why) {
  const MutexLock lock(mutex_);
  absence_.Refuse(address, why);
}

bool AbsentWatch::any_ready() const {
  const Clock::time_point until = ready_until_.load(std::memory_order_relaxed);
  return until != Clock::time_point() && Clock::now() < until;
}

void AbsentWatch::UpdateLocked() {
  ready_until_.store(absence_.offers_until(), std::memory_order_relaxed);
  any_silent_.store(absence_.any_silent(), std::memory_order_relaxed);
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
  std::optional<Configuration::Replica> replica;
  uint64_t generation = 0;
  {
    const MutexLock lock(mutex_);
    replica = absence_.Next(Clock::now());
    generation = absence_.generation();
    if (!replica.has_value()) return absence_.any_absent() ? kInterval : round_interval_;
  }
  const Result<Answer> answer = Ask(replica->address);
  Status judged;
  {
    const MutexLock lock(mutex_);
    judged =
        absence_.Judge(replica->address, generation,
                       answer.ok() ? answer->hello : Result<control::HelloReplyT>(answer.status()));
  }
  std::vector<control::Seat> members;
  std::vector<Answered> answered;
  if (judged.ok()) judged = CheckMembersAnswer(&members, &answered);
  if (judged.ok()) judged = CheckHost(*replica, answer->peer, members);
  if (judged.ok()) judged = TryWayTo(*replica, generation, answered);
  std::string refused;
  {
    const MutexLock lock(mutex_);
    refused = absence_.Note(replica->address, generation, judged, Clock::now());
    UpdateLocked();
  }
  if (!refused.empty()) LogLine(log_.get(), LogLevel::kInfo, {refused});
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
    group = FormatUuid(absence_.group());
    epoch = absence_.configuration().epoch;
    owner = absence_.configuration().owner;
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

void AbsentWatch::AskMembers() {
  Configuration configuration;
  uint64_t generation = 0;
  Absence::Round round;
  round.interval = round_interval_;
  {
    const MutexLock lock(mutex_);
    if (Clock::now() < next_round_) return;
    round.begun = Clock::now();
    next_round_ = round.begun + round_interval_;
    configuration = absence_.configuration();
    generation = absence_.generation();
  }
  std::map<std::string, uint64_t> proposals;
  const std::vector<Result<Answer>> answers = AskAll(configuration.replicas);
  if (ending_) return;
  for (size_t i = 0; i < answers.size(); ++i) {
    const Configuration::Replica& each = configuration.replicas[i];
    const Result<Answer>& answer = answers[i];
    if (!answer.ok()) round.unanswered.push_back(each.address);
    if (!answer.ok() || answer->hello.node_id != FormatUuid(each.node)) continue;
    const control::HelloReplyT& hello = answer->hello;
    proposals[each.address] = hello.proposals;
    const auto before = proposals_.find(each.address);
    const bool repeated = before != proposals_.end() && before->second < hello.proposals;
    if (repeated && Counts(each.address, hello, false))
      round.proposed.push_back(AddressOf(hello.proposed_replica));
    if (repeated && Counts(each.address, hello, true))
      round.leaving.push_back(AddressOf(hello.leaving_replica));
  }
  proposals_ = std::move(proposals);
  Absence::Told told;
  {
    const MutexLock lock(mutex_);
    if (ending_) return;
    const bool asks = few_hold_ != nullptr && !round.leaving.empty();
    round.few_hold = asks && few_hold_(configuration.replicas.size());
    told = absence_.NoteRound(round, generation, Clock::now());
    UpdateLocked();
  }
  for (const std::string& each : told.suspected) {
    LogLine(log_.get(), LogLevel::kWarn,
            {"replica ", each, " is suspected: it answers no request; its RNIC may serve on"});
  }
  for (const std::string& each : told.answering)
    LogLine(log_.get(), LogLevel::kInfo, {"replica ", each, " answers requests again"});
  if (!told.leaver.empty()) LogLine(log_.get(), LogLevel::kInfo, {told.leaver});
}

// Taking a replica in interrupts the group, and needs every member to answer requests. A member
// whose process is stopped serves on only as long as the group is not interrupted.
Status AbsentWatch::CheckMembersAnswer(std::vector<control::Seat>* members,
                                       std::vector<Answered>* answered) {
  std::vector<Configuration::Replica> replicas;
  {
    const MutexLock lock(mutex_);
    replicas = absence_.configuration().replicas;
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
    if (!absence_.IsProposed(replica.address)) return {};
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
    const control::HelloReplyT* const answer = absence_.AnswerOf(replica.address, generation);
    if (answer == nullptr) return Unavailable("no longer asked for");
    if (try_way_ == nullptr) return {};
    joiner.hello = *answer;
  }
  return TryWithin(joiner, members);
}

Status AbsentWatch::TryWithin(const Answered& joiner, const std::vector<Answered>& members) {
  using std::chrono::milliseconds;
  const auto ended = [&](milliseconds within) {
    return way_.wait_for(within) == std::future_status::ready;
  };
  const auto now = Clock::now();
  if (way_.valid() && now - way_asked_ > kForgetWay && ended(milliseconds(0))) way_ = {};
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

}  // namespace hyperloop
