// hyperloopctl add, hyperloopctl remove
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/group_error.h"
#include "control/client.h"
#include "control/proposal.h"
#include "ctl/command.h"
#include "ctl/nodes.h"
#include "hyperloop/core/text.h"
#include "hyperloop/replication/options.h"
#include "membership/fresh_pool.h"
#include "options/node_group.h"
#include "primary/asking.h"

namespace hyperloop::ctl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kAnswer{10};
constexpr std::chrono::milliseconds kPause{500};
// Longer than the primary takes to ask all members again.
constexpr std::chrono::seconds kLastRound{8};
// A living primary's heartbeat moves ten times in this time.
constexpr std::chrono::milliseconds kWatch{1000};

bool Has(const std::vector<std::string>& addresses, const std::string& address) {
  return std::ranges::count(addresses, address) != 0;
}

// HOST:PORT, or a host of the group that the URI names.
Result<control::Endpoint> EndpointOf(const std::string& uri, const std::string& replica) {
  const std::string_view name = GroupOfUri(uri);
  if (name.empty() || replica.find(':') != std::string::npos)
    return control::ParseEndpoint(replica);
  HL_ASSIGN_OR_RETURN(const NodeGroup group, ReadNodeGroup(name));
  const auto found = group.endpoints.find(replica);
  if (found != group.endpoints.end()) return control::ParseEndpoint(found->second);
  return NotFound(Text(group.hosts_file, " has no line of ", replica, ": add it, on all hosts ",
                       "alike, or give HOST:PORT"));
}

// A change of a group that is proposed to its members, for its primary to make. It asks each time
// on connections of its own, so that replicas may restart meanwhile.
class Proposal {
 public:
  uint64_t epoch() const { return seen_.installed_epoch; }
  size_t size() const { return seen_.installed_replicas.size(); }

 protected:
  // `replica`: the one that comes or leaves.
  Proposal(std::string replica, bool leaves, const control::Trust& trust,
           std::vector<std::string> others)
      : replica_(std::move(replica)), leaves_(leaves), trust_(trust), others_(std::move(others)) {}

  struct Parsed {
    std::string replica;
    control::Trust trust;
    std::vector<std::string> others;  // those that the URI lists
    std::chrono::nanoseconds ack_timeout;
  };
  static Result<Parsed> Parse(const std::string& uri, const std::string& replica) {
    StoreOptions options;
    HL_RETURN_IF_ERROR(ParseStoreUri(uri, &options).WithContext("--uri"));
    HL_ASSIGN_OR_RETURN(const control::Endpoint endpoint, EndpointOf(uri, replica));
    HL_ASSIGN_OR_RETURN(control::Trust trust, control::Trust::Load(options.keys, nullptr));
    Parsed parsed{endpoint.ToString(), std::move(trust), {}, options.ack_timeout};
    for (const std::string& each : options.replicas) {
      HL_ASSIGN_OR_RETURN(const control::Endpoint listed, control::ParseEndpoint(each));
      if (listed.ToString() != parsed.replica) parsed.others.push_back(listed.ToString());
    }
    if (parsed.others.empty())
      return InvalidArgument(Text("the URI lists no other replica than ", parsed.replica));
    return parsed;
  }

  const control::HelloReplyT& seen() const { return seen_; }
  const std::string& replica() const { return replica_; }
  bool HasReplica() const { return Has(seen_.installed_replicas, replica_); }
  bool IsAbsent() const { return Has(seen_.absent_replicas, replica_); }
  // Whether the configuration has served.
  bool HasServed() const { return seen_.served_epoch == seen_.installed_epoch; }

  static void Say(const std::string& text) {
    std::printf("%s\n", text.c_str());
    std::fflush(stdout);
  }

  Result<control::HelloReplyT> Hello(const std::string& address) const {
    return Call<control::HelloReplyT>(address, control::HelloRequestT{});
  }

  // Sets seen(): what more than half of the others tell of the group. So no member alone has the
  // host vouch for a configuration that is not, or says in vain that the change was made.
  Status Look() {
    std::vector<control::HelloReplyT> answers;
    std::vector<Status> failed;
    std::string told;
    std::vector<Result<control::HelloReplyT>> hellos =
        AtOnce(others_.size(), [this](size_t i) { return Hello(others_[i]); });
    for (size_t i = 0; i < hellos.size(); ++i) {
      const std::string& address = others_[i];
      Result<control::HelloReplyT>& hello = hellos[i];
      if (!hello.ok()) {
        failed.push_back(hello.status());
        told += "; " + hello.status().message();
        continue;
      }
      told += Text("; replica ", address, " tells epoch ", hello->installed_epoch,
                   hello->served_epoch == hello->installed_epoch ? "" : ", which has not served",
                   hello->group.empty() ? "" : ", of group ", hello->group);
      answers.push_back(std::move(hello).value());
    }
    if (answers.empty()) return AllReasons(failed);
    const control::HelloReplyT* const seen = control::ToldByMost(answers, others_.size());
    if (seen == nullptr) {
      return Unavailable(
          Text("try again when more of the replicas answer, and list all of one group: no "
               "configuration is told by more than half of those that the URI lists",
               told));
    }
    if (seen->installed_epoch == 0) {
      return InvalidArgument(
          "the listed replicas are not a group yet; list all that it is to have when the database "
          "is opened for the first time");
    }
    seen_ = *seen;
    return {};
  }

  Status CheckOthersAreThere() const {
    for (const std::string& absent : seen_.absent_replicas) {
      if (absent == replica_) continue;
      return Unavailable(
          Text("the group's replicas change only while all of them are there: it "
               "goes on without ",
               absent));
    }
    return {};
  }

  // `remedy`: what to do where nobody serves.
  Status CheckPrimary(const std::string& remedy) {
    const control::HelloReplyT before = seen_;
    std::this_thread::sleep_for(kWatch);
    HL_RETURN_IF_ERROR(Look());
    const bool moved = seen_.node_id != before.node_id || seen_.heartbeat != before.heartbeat;
    if (!seen_.released && moved) return {};
    return Unavailable(
        Text("no primary serves the group, and only a primary changes it: ", remedy));
  }

  // To each member that answers. An error: to none.
  Status Propose() {
    if (!HasServed()) return Unavailable("the group is being changed just now; try again");
    const control::ProposeRequestT request =
        control::MakeProposal(trust_, seen_, replica_, leaves_);
    const std::vector<std::string>& members = seen_.installed_replicas;
    const std::vector<Status> told = AtOnce(members.size(), [&](size_t i) {
      return Call<control::DoneT>(members[i], request)
          .status()
          .WithContext("replica " + members[i]);
    });
    std::vector<Status> failed;
    std::ranges::copy_if(told, std::back_inserter(failed),
                         [](const Status& each) { return !each.ok(); });
    return failed.empty() || failed.size() < seen_.installed_replicas.size() ? Status()
                                                                             : AllReasons(failed);
  }

 private:
  template <class Reply, class Request>
  Result<Reply> Call(const std::string& address, Request request) const {
    HL_ASSIGN_OR_RETURN(const control::Endpoint endpoint, control::ParseEndpoint(address));
    HL_ASSIGN_OR_RETURN(const auto client,
                        control::ControlClient::Connect(endpoint, trust_, kAnswer));
    return client->Call<Reply>(std::move(request), kAnswer);
  }

  std::string replica_;
  bool leaves_;
  control::Trust trust_;
  std::vector<std::string> others_;
  control::HelloReplyT seen_;
};

// Waits until the group's primary has taken the replica in.
class Adding : public Proposal {
 public:
  static Result<Adding> Create(const std::string& uri, const std::string& newcomer) {
    HL_ASSIGN_OR_RETURN(const Parsed parsed, Parse(uri, newcomer));
    return Adding(parsed);
  }

  // Refuses what no primary would take in, before anything is proposed.
  Status Check() {
    HL_RETURN_IF_ERROR(Look());
    if (IsMember()) return {};
    HL_RETURN_IF_ERROR(CheckOthersAreThere());
    HL_ASSIGN_OR_RETURN(const control::HelloReplyT hello, Hello(replica()));
    if (hello.device != "ready")
      return Unavailable(Text("replica ", replica(), ": ", hello.device));
    if (hello.region_size != seen().region_size) {
      return InvalidArgument(Text("replica ", replica(), " has a region of ", hello.region_size,
                                  " B, the group one of ", seen().region_size,
                                  " B: hyperloopctl resize"));
    }
    if (hello.installed_epoch != 0 && hello.group != seen().group) {
      return InvalidArgument(Text("replica ", replica(), " belongs to group ", hello.group,
                                  ", and not to group ", seen().group, "; ", kFreshPool));
    }
    return CheckPrimary(Text(
        "open the database with the new replica in the URI's list and add_replica=", replica()));
  }

  // Whether the primary has taken it in before `patience` has passed.
  Status Await(std::chrono::seconds patience) {
    const auto until = Clock::now() + patience;
    HL_RETURN_IF_ERROR(Propose());
    Say("proposed to the group's replicas, which the primary asks every few seconds");
    bool announced = false;
    while (!IsMember() && Clock::now() < until) {
      if (IsAbsent() && !std::exchange(announced, true))
        Say("the group has recorded it, and takes it in");
      if (std::string obstacle = Obstacle(); obstacle != obstacle_) {
        obstacle_ = std::move(obstacle);
        if (!obstacle_.empty()) Say("it is not added yet: " + obstacle_);
      }
      if (!IsAbsent()) Propose().IgnoreError();  // while the group changes, a replica may be slow
      std::this_thread::sleep_for(kPause);
      Look().IgnoreError();
    }
    return IsMember() ? AwaitSteady() : GiveUp(patience);
  }

  // In a configuration that has served.
  bool IsMember() const { return HasServed() && HasReplica(); }

 private:
  explicit Adding(const Parsed& parsed)
      : Proposal(parsed.replica, false, parsed.trust, parsed.others),
        steady_(parsed.ack_timeout / 2 + kPause) {}

  // A member whose first operations fail is left out again, or the group stops, within half of
  // ack_timeout.
  Status AwaitSteady() {
    const uint64_t taken_in = epoch();
    Status seen;  // what the last look has not seen is not claimed
    for (const auto until = Clock::now() + steady_; Clock::now() < until;) {
      std::this_thread::sleep_for(kPause);
      seen = Look();
      if (epoch() == taken_in && IsMember()) continue;
      return Unavailable(Text("the group had taken ", replica(),
                              " in, and has changed again since; the primary's log says why, and "
                              "hyperloopctl status what it is now"));
    }
    return seen;
  }

  // A primary that has just read the proposal may still follow it.
  Status GiveUp(std::chrono::seconds patience) {
    Status seen;
    for (const auto until = Clock::now() + kLastRound; Clock::now() < until;) {
      std::this_thread::sleep_for(kPause);
      seen = Look();
      if (IsMember()) return AwaitSteady();
      if (IsAbsent()) break;
    }
    if (IsAbsent()) {
      return TimedOut(Text("the group has recorded ", replica(),
                           ": list it in the database's URI "
                           "from now on, or open without it with remove_replica=",
                           replica(), "; it was not taken in for ", patience.count(),
                           " s, is as soon as it can be, and the primary's log says what is in "
                           "the way"));
    }
    if (!seen.ok()) return seen;
    return TimedOut(Text("the primary did not add ", replica(), " for ", patience.count(), " s",
                         obstacle_.empty() ? ", and its log says why; " : ": " + obstacle_ + "; ",
                         "the group has not recorded it"));
  }

  // What keeps the newcomer out, as far as the replicas know: their RNICs have to reach each other,
  // and the primary asks them to try. Empty: nothing.
  std::string Obstacle() const {
    for (const std::string& address : seen().installed_replicas) {
      const Result<control::HelloReplyT> hello = Hello(address);
      if (hello.ok() && !hello->failed_way.empty() && hello->failed_way_to == replica())
        return Text("replica ", address, " does not reach it by RDMA: ", hello->failed_way);
    }
    const Result<control::HelloReplyT> hello = Hello(replica());
    if (!hello.ok() || hello->failed_way.empty()) return "";
    return Text("it does not reach ",
                hello->failed_way_to.empty() ? "the primary" : "replica " + hello->failed_way_to,
                " by RDMA: ", hello->failed_way);
  }

  std::chrono::nanoseconds steady_;
  std::string obstacle_;  // as it was said last
};

// Waits until the group does without a replica, which it has left out before, for good.
class Removing : public Proposal {
 public:
  static Result<Removing> Create(const std::string& uri, const std::string& leaver) {
    HL_ASSIGN_OR_RETURN(const Parsed parsed, Parse(uri, leaver));
    return Removing(parsed);
  }

  // Refuses what no primary would do, before anything is proposed.
  Status Check() {
    HL_RETURN_IF_ERROR(Look());
    if (IsGone()) return {};
    if (HasReplica()) {
      return InvalidArgument(Text(
          "the group does not go on without ", replica(),
          " now: end that replica first, with on_replica_failure=continue, or open the database "
          "without it and with remove_replica=",
          replica(), "; while its primary serves, only what it has left out leaves it"));
    }
    HL_RETURN_IF_ERROR(CheckOthersAreThere());
    return CheckPrimary(
        Text("open the database without it in the URI's list and with remove_replica=", replica()));
  }

  Status Await(std::chrono::seconds patience) {
    const auto until = Clock::now() + patience;
    HL_RETURN_IF_ERROR(Propose());
    Say("proposed to the group's replicas, which the primary asks every few seconds");
    while (!IsGone() && Clock::now() < until) {
      Propose().IgnoreError();  // while the group changes, a replica may be slow
      std::this_thread::sleep_for(kPause);
      Look().IgnoreError();
    }
    // A primary that has just read the proposal may still follow it.
    for (const auto last = Clock::now() + kLastRound; !IsGone() && Clock::now() < last;) {
      std::this_thread::sleep_for(kPause);
      Look().IgnoreError();
    }
    if (IsGone()) return {};
    return TimedOut(Text("the group still has ", replica(), " after ", patience.count(),
                         " s, and the primary's log says why; it may have taken it in again"));
  }

  bool IsGone() const { return HasServed() && !HasReplica() && !IsAbsent(); }

 private:
  explicit Removing(const Parsed& parsed)
      : Proposal(parsed.replica, true, parsed.trust, parsed.others) {}
};

int Add(const Where& where, const std::string& newcomer, std::chrono::seconds patience) {
  const Result<std::string> uri = UriOf(where);
  if (!uri.ok()) return Fail(uri.status());
  Result<Adding> adding = Adding::Create(*uri, newcomer);
  if (!adding.ok()) return Fail(adding.status());
  if (const Status status = adding->Check(); !status.ok()) return Fail(status);
  const bool was_member = adding->IsMember();
  if (!was_member)
    if (const Status status = adding->Await(patience); !status.ok()) return Fail(status);
  std::printf("%s %s the group (epoch %llu, %zu replicas)\n", newcomer.c_str(),
              was_member ? "is already in" : "is in",
              static_cast<unsigned long long>(adding->epoch()), adding->size());
  std::printf(
      "It has all of the log. The primary sends it the SST and blob files, and logs when it holds "
      "all.\nFrom now on the database's URI has to list it.\n");
  return kExitOk;
}

int Remove(const Where& where, const std::string& leaver, std::chrono::seconds patience) {
  const Result<std::string> uri = UriOf(where);
  if (!uri.ok()) return Fail(uri.status());
  Result<Removing> removing = Removing::Create(*uri, leaver);
  if (!removing.ok()) return Fail(removing.status());
  if (const Status status = removing->Check(); !status.ok()) return Fail(status);
  if (!removing->IsGone())
    if (const Status status = removing->Await(patience); !status.ok()) return Fail(status);
  std::printf(
      "%s is not in the group (epoch %llu, %zu replicas)\n"
      "The database's URI must not list it.\n",
      leaver.c_str(), static_cast<unsigned long long>(removing->epoch()), removing->size());
  return kExitOk;
}

struct ChangeOptions {
  Where where;
  std::string replica;
  uint32_t wait = 60;
};

void AddChange(CLI::App* command, ChangeOptions* options, const std::string& uri,
               const std::string& replica) {
  AddWhere(command, &options->where, uri);
  command->add_option("replica", options->replica, replica)->type_name("HOST:PORT")->required();
  command->add_option("--wait", options->wait, "how many seconds it may take")
      ->check(CLI::Range(1u, 86400u))
      ->type_name("SECONDS")
      ->capture_default_str();
}

}  // namespace

void AddAdd(CLI::App& app, Action* chosen) {
  auto options = std::make_shared<ChangeOptions>();
  CLI::App* add = app.add_subcommand(
      "add",
      "take one more replica into a group while its primary serves; the replica runs already, with "
      "a fresh pool of the same size. A call that was interrupted is repeated");
  AddChange(add, options.get(),
            "URI of the group; whether it lists the new replica does not matter",
            "HOST:PORT of the new replica; with a URI hyperloop:///NAME also the name of its host");
  add->callback([=] {
    *chosen = [=] {
      return Add(options->where, options->replica, std::chrono::seconds(options->wait));
    };
  });
}

void AddRemoveReplica(CLI::App& app, Action* chosen) {
  auto options = std::make_shared<ChangeOptions>();
  CLI::App* remove = app.add_subcommand(
      "remove",
      "take a replica that the group has left out, dead or alive, out of it for good, while its "
      "primary serves; all others are there. A call that was interrupted is repeated");
  AddChange(remove, options.get(),
            "URI of the group; whether it lists that replica does not matter",
            "HOST:PORT of the replica that leaves; with a URI hyperloop:///NAME also the name of "
            "its host");
  remove->callback([=] {
    *chosen = [=] {
      return Remove(options->where, options->replica, std::chrono::seconds(options->wait));
    };
  });
}

}  // namespace hyperloop::ctl
