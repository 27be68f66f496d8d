#include "ctl/agent_orders.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <random>
#include <thread>
#include <utility>

#include "common/agent_mark.h"
#include "common/group_error.h"
#include "common/printable.h"
#include "common/uuid.h"
#include "control/client.h"
#include "control/directive.h"
#include "control/proposal.h"
#include "hyperloop/core/text.h"
#include "hyperloop/replication/options.h"
#include "primary/asking.h"

namespace hyperloop::ctl {
namespace {

constexpr std::chrono::seconds kReplicaPatience{5};
constexpr int kTries = 8;
constexpr char kPerhaps[] = "it is not known whether the agents obey this; repeat the command";

Directive Empty(const DirectiveNumber& number) {
  Directive directive;
  directive.number = number;
  return directive;
}

Status KeepsNone(const std::string& address) {
  return NotSupported(Text("install this release at replica ", address,
                           ": its own keeps nothing that agents are told"));
}

std::string Who() {
  const char* const user = std::getenv("USER");
  char host[65] = {};
  if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  return Printable(Text(user == nullptr ? Text("uid ", getuid()) : std::string(user), " on ", host),
                   kMaxDirectiveBy);
}

}  // namespace

std::string OwnerSentence(const GroupOwner& owner) {
  if (owner.id.empty()) return "no majority says who has the group";
  if (owner.released)
    return Text("nobody has the group: ", Printable(owner.name, 256), " closed it");
  if (owner.node.empty())
    return Text("owner ", Printable(owner.name, 256), ", which no agent has started");
  return Text("node ", owner.node, " has the group (epoch ", owner.epoch, ")");
}

AgentOrders::AgentOrders(std::vector<std::string> listed, control::Trust trust)
    : listed_(std::move(listed)), trust_(std::move(trust)) {}

Result<AgentOrders> AgentOrders::Create(const Where& where) {
  HL_ASSIGN_OR_RETURN(const std::string uri, UriOf(where));
  StoreOptions options;
  HL_RETURN_IF_ERROR(ParseStoreUri(uri, &options));
  HL_ASSIGN_OR_RETURN(control::Trust trust, control::Trust::Load(options.keys, nullptr));
  std::vector<std::string> listed;
  for (const std::string& each : options.replicas) {
    HL_ASSIGN_OR_RETURN(const control::Endpoint endpoint, control::ParseEndpoint(each));
    listed.push_back(endpoint.ToString());
  }
  return AgentOrders(std::move(listed), std::move(trust));
}

Status AgentOrders::Look() {
  std::map<std::string, Result<control::HelloReplyT>> answers = HelloEach(listed_);
  std::vector<control::HelloReplyT> hellos;
  std::vector<Status> reasons;
  for (const std::string& address : listed_) {
    const Result<control::HelloReplyT>& answer = answers.at(address);
    if (answer.ok()) hellos.push_back(*answer);
    if (!answer.ok()) reasons.push_back(answer.status());
  }
  if (hellos.empty()) return AllReasons(reasons);
  const control::HelloReplyT* const seen = control::ToldByMost(hellos, listed_.size());
  if (seen == nullptr) {
    // Most answer, and they differ: the group is being changed.
    const bool changes = 2 * hellos.size() > listed_.size();
    reasons.insert(reasons.begin(),
                   Status(changes ? Code::kBusy : Code::kUnavailable,
                          "try again when more of the replicas answer alike: no configuration of "
                          "one group is told by more than half of those that the URI lists"));
    return AllReasons(reasons);
  }
  if (seen->installed_epoch == 0)
    return InvalidArgument("the listed replicas are not a group yet: open a database on them");
  group_ = seen->group;
  replicas_ = seen->installed_replicas;
  std::ranges::copy(seen->absent_replicas, std::back_inserter(replicas_));
  std::vector<std::string> others;
  std::ranges::copy_if(replicas_, std::back_inserter(others),
                       [&](const std::string& each) { return !answers.contains(each); });
  answers.merge(HelloEach(others));
  std::erase_if(answers,
                [&](const auto& each) { return std::ranges::count(replicas_, each.first) == 0; });
  answers_ = std::move(answers);
  for (const auto& [address, answer] : answers_)
    if (answer.ok() && answer->directive != nullptr)
      greatest_ = std::max(greatest_, answer->directive->count);
  return {};
}

GroupOwner AgentOrders::Owner() const {
  std::map<std::pair<uint64_t, std::vector<uint8_t>>, size_t> told;
  GroupOwner owner;
  size_t released = 0, serves = 0;
  for (const auto& [address, answer] : answers_) {
    if (!answer.ok() || answer->sealed_owner.size() != sizeof(Uuid)) continue;
    if (++told[{answer->sealed_epoch, answer->sealed_owner}] < Majority()) continue;
    Uuid id{};
    std::ranges::copy(answer->sealed_owner, id.begin());
    owner.id = FormatUuid(id);
    owner.epoch = answer->sealed_epoch;
  }
  for (const auto& [address, answer] : answers_) {
    if (owner.id.empty() || !answer.ok() || answer->sealed_epoch != owner.epoch) continue;
    released += answer->released ? 1 : 0;
    const bool installed = answer->installed_epoch == owner.epoch;
    serves += installed ? 1 : 0;
    // The name may be the former owner's until its epoch is installed.
    if (installed || owner.name.empty()) owner.name = answer->sealed_owner_name;
  }
  const std::string_view tag = AgentTagOf(owner.name);
  owner.node = tag.substr(0, tag.find('/'));
  owner.released = released >= Majority();
  owner.serves = serves >= Majority();
  return owner;
}

std::map<std::string, uint64_t> AgentOrders::Heartbeats() const {
  const GroupOwner owner = Owner();
  std::map<std::string, uint64_t> beats;
  for (const auto& [address, answer] : answers_)
    if (answer.ok() && answer->sealed_epoch == owner.epoch) beats[address] = answer->heartbeat;
  return beats;
}

Directive AgentOrders::Told(size_t* alike) const {
  Directive told;
  *alike = 0;
  for (const auto& [address, answer] : answers_) {
    if (!answer.ok()) continue;
    const Directive each = control::FromMessage(answer->directive.get());
    const size_t same = static_cast<size_t>(std::ranges::count_if(answers_, [&](const auto& it) {
      return it.second.ok() && control::FromMessage(it.second->directive.get()) == each;
    }));
    if (same < Majority() && each.number < told.number) continue;
    told = each;
    *alike = same;
    if (same >= Majority()) break;
  }
  return told;
}

Status AgentOrders::Tells(const std::string& address, const Directive& told) const {
  const Result<control::HelloReplyT>& answer = answers_.at(address);
  if (!answer.ok()) return answer.status();
  if (answer->directive == nullptr) return KeepsNone(address);
  if (control::FromMessage(answer->directive.get()) == told) return {};
  return Unavailable("it has another one: " +
                     control::DirectiveText(control::FromMessage(answer->directive.get())));
}

Result<Directive> AgentOrders::Change(const Edit& edit) {
  std::random_device random;
  bool perhaps = false;  // an earlier try may be obeyed
  for (int i = 0; i < kTries; ++i) {
    if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(50 + random() % 300));
    const Status seen = Look();
    if (seen.code() == Code::kBusy && i + 1 < kTries) continue;
    HL_RETURN_IF_ERROR(seen);
    const DirectiveNumber number{greatest_ + 1, (uint64_t{random()} << 32) | random()};
    const Round promised = Ask(number, nullptr);
    if (promised.granted < Majority()) {
      if (promised.rivals) continue;
      return Missing(promised, perhaps ? kPerhaps : "agents are told nothing new");
    }
    Directive directive = promised.newest;
    const Status edited = edit(Owner(), &directive);
    // What was promised is kept, with what agents are told already: else no agent could give that
    // to a replica that has missed it.
    if (!edited.ok()) directive = promised.newest;
    directive.number = number;
    if (!edited.ok()) {
      if (directive != Empty(number)) Ask(number, &directive);
      return edited;
    }
    directive.by = Who();
    directive.when = static_cast<uint64_t>(std::time(nullptr));
    const Round given = Ask(number, &directive);
    if (given.granted >= Majority()) return directive;
    perhaps = true;
    if (given.rivals) continue;
    return Missing(given, kPerhaps);
  }
  return Busy(Text("repeat the command: another one changes what the agents are told just now",
                   perhaps ? Text(", and ", kPerhaps) : ""));
}

template <class Reply, class Request>
Result<Reply> AgentOrders::Call(const std::string& address, Request request) const {
  HL_ASSIGN_OR_RETURN(const control::Endpoint endpoint, control::ParseEndpoint(address));
  HL_ASSIGN_OR_RETURN(const auto client,
                      control::ControlClient::Connect(endpoint, trust_, kReplicaPatience));
  return client->Call<Reply>(std::move(request), kReplicaPatience);
}

std::map<std::string, Result<control::HelloReplyT>> AgentOrders::HelloEach(
    const std::vector<std::string>& addresses) const {
  std::map<std::string, Result<control::HelloReplyT>> answers;
  if (addresses.empty()) return answers;
  std::vector<Result<control::HelloReplyT>> hellos = AtOnce(addresses.size(), [&](size_t i) {
    return Call<control::HelloReplyT>(addresses[i], control::HelloRequestT{});
  });
  for (size_t i = 0; i < addresses.size(); ++i) answers.emplace(addresses[i], std::move(hellos[i]));
  return answers;
}

AgentOrders::Round AgentOrders::Ask(const DirectiveNumber& number, const Directive* directive) {
  const auto replies = AtOnce(replicas_.size(), [&](size_t i) -> Result<control::DirectReplyT> {
    const Result<control::HelloReplyT>& hello = answers_.at(replicas_[i]);
    if (!hello.ok()) return hello.status();
    if (hello->directive == nullptr) return KeepsNone(replicas_[i]);
    control::DirectRequestT request;
    request.group = group_;
    request.count = number.count;
    request.writer = number.writer;
    if (directive != nullptr) request.directive = control::ToMessage(*directive);
    return Call<control::DirectReplyT>(replicas_[i], std::move(request));
  });
  Round round;
  for (size_t i = 0; i < replies.size(); ++i) {
    if (!replies[i].ok()) {
      round.reasons.push_back(replies[i].status());
      continue;
    }
    greatest_ = std::max(greatest_, replies[i]->promised_count);
    const Directive has = control::FromMessage(replies[i]->directive.get());
    if (replies[i]->granted) {
      ++round.granted;
      if (has.number > round.newest.number) round.newest = has;
    } else {
      round.rivals = true;
    }
  }
  return round;
}

Status AgentOrders::Missing(const Round& round, const std::string& what) const {
  std::vector<Status> reasons = round.reasons;
  const Status first = round.reasons.empty() ? Unavailable("") : round.reasons.front();
  reasons.insert(reasons.begin(),
                 Status(first.code(), Text("only ", round.granted, " of ", replicas_.size(),
                                           " replicas took it, and ", what)));
  return AllReasons(reasons);
}

}  // namespace hyperloop::ctl
