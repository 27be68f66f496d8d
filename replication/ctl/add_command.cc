// hyperloopctl add
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "control/client.h"
#include "ctl/command.h"
#include "ctl/nodes.h"
#include "hyperloop/core/text.h"
#include "hyperloop/replication/options.h"

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

// Proposes a replica to the members of a group, and waits until the group's primary has taken it
// in. It asks each time on connections of its own, so that replicas may restart meanwhile.
class Adding {
 public:
  static Result<Adding> Create(const std::string& uri, const std::string& newcomer) {
    StoreOptions options;
    HL_RETURN_IF_ERROR(ParseStoreUri(uri, &options));
    HL_ASSIGN_OR_RETURN(const control::Endpoint endpoint, control::ParseEndpoint(newcomer));
    HL_ASSIGN_OR_RETURN(const control::Trust trust, control::Trust::Load(options.keys, nullptr));
    Adding adding(endpoint.ToString(), trust, options.ack_timeout / 2 + kPause);
    for (const std::string& each : options.replicas) {
      HL_ASSIGN_OR_RETURN(const control::Endpoint listed, control::ParseEndpoint(each));
      if (listed.ToString() != adding.newcomer_) adding.listed_.push_back(listed.ToString());
    }
    if (adding.listed_.empty())
      return InvalidArgument("the URI lists no other replica than the one that is to be added");
    return adding;
  }

  // Refuses what no primary would take in, before anything is proposed.
  Status Check() {
    HL_RETURN_IF_ERROR(Look());
    if (IsMember()) return {};
    for (const std::string& absent : newest_.absent_replicas) {
      if (absent == newcomer_) continue;
      return Unavailable(
          Text("the group's replicas change only while all of them are there: it "
               "goes on without ",
               absent));
    }
    HL_ASSIGN_OR_RETURN(const control::HelloReplyT hello, Hello(newcomer_));
    if (hello.device != "ready")
      return Unavailable(Text("replica ", newcomer_, ": ", hello.device));
    if (hello.region_size != newest_.region_size) {
      return InvalidArgument(Text("replica ", newcomer_, " has a region of ", hello.region_size,
                                  " B, the group one of ", newest_.region_size,
                                  " B: hyperloopctl resize"));
    }
    if (hello.installed_epoch != 0 && hello.group != newest_.group) {
      return InvalidArgument(Text("replica ", newcomer_, " belongs to group ", hello.group,
                                  ", and not to group ", newest_.group,
                                  "; start it with a fresh pool"));
    }
    return CheckPrimary();
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
      if (!IsAbsent()) Propose().IgnoreError();  // while the group changes, a replica may be slow
      std::this_thread::sleep_for(kPause);
      Look().IgnoreError();
    }
    return IsMember() ? AwaitSteady() : GiveUp(patience);
  }

  // In a configuration that has served.
  bool IsMember() const {
    return newest_.served_epoch == newest_.installed_epoch &&
           Has(newest_.installed_replicas, newcomer_);
  }
  uint64_t epoch() const { return newest_.installed_epoch; }
  size_t size() const { return newest_.installed_replicas.size(); }

 private:
  Adding(std::string newcomer, const control::Trust& trust, std::chrono::nanoseconds steady)
      : newcomer_(std::move(newcomer)), trust_(trust), steady_(steady) {}

  bool IsAbsent() const { return Has(newest_.absent_replicas, newcomer_); }

  void Say(const std::string& text) const {
    std::printf("%s\n", text.c_str());
    std::fflush(stdout);
  }

  template <class Reply, class Request>
  Result<Reply> Call(const std::string& address, Request request) const {
    HL_ASSIGN_OR_RETURN(const control::Endpoint endpoint, control::ParseEndpoint(address));
    HL_ASSIGN_OR_RETURN(const auto client,
                        control::ControlClient::Connect(endpoint, trust_, kAnswer));
    return client->Call<Reply>(std::move(request), kAnswer);
  }
  Result<control::HelloReplyT> Hello(const std::string& address) const {
    return Call<control::HelloReplyT>(address, control::HelloRequestT{});
  }

  // Sets newest_: the answer of the replica with the newest configuration.
  Status Look() {
    Status why;
    control::HelloReplyT newest;
    for (const std::string& address : listed_) {
      Result<control::HelloReplyT> hello = Hello(address);
      if (!hello.ok()) {
        why = hello.status();
        continue;
      }
      if (newest.installed_epoch != 0 && hello->installed_epoch != 0 &&
          hello->group != newest.group)
        return InvalidArgument(Text("replica ", address, " belongs to group ", hello->group,
                                    ", others of the URI to group ", newest.group,
                                    "; list the replicas of one group"));
      if (hello->installed_epoch > newest.installed_epoch) newest = std::move(hello).value();
    }
    if (newest.installed_epoch == 0) {
      if (!why.ok()) return why;
      return InvalidArgument(
          "the listed replicas are not a group yet; list all that it is to have when the database "
          "is opened for the first time");
    }
    newest_ = std::move(newest);
    return {};
  }

  Status CheckPrimary() {
    const control::HelloReplyT before = newest_;
    std::this_thread::sleep_for(kWatch);
    HL_RETURN_IF_ERROR(Look());
    const bool moved = newest_.node_id != before.node_id || newest_.heartbeat != before.heartbeat;
    if (!newest_.released && moved) return {};
    return Unavailable(
        Text("no primary serves the group, and only a primary takes a replica in: "
             "open the database with the new replica in the URI's list and "
             "add_replica=",
             newcomer_));
  }

  // To each member that answers. An error: to none.
  Status Propose() {
    control::ProposeRequestT request;
    request.group = newest_.group;
    request.replica = newcomer_;
    Status last;
    size_t told = 0;
    for (const std::string& address : newest_.installed_replicas) {
      const Status status = Call<control::DoneT>(address, request).status();
      told += status.ok() ? 1 : 0;
      if (!status.ok()) last = status;
    }
    return told == 0 ? last : Status();
  }

  // A member whose first operations fail is left out again, or the group stops, within half of
  // ack_timeout.
  Status AwaitSteady() {
    const uint64_t taken_in = newest_.installed_epoch;
    Status seen;  // what the last look has not seen is not claimed
    for (const auto until = Clock::now() + steady_; Clock::now() < until;) {
      std::this_thread::sleep_for(kPause);
      seen = Look();
      if (newest_.installed_epoch == taken_in && IsMember()) continue;
      return Unavailable(Text("the group had taken ", newcomer_,
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
      return TimedOut(Text("the group has recorded ", newcomer_, " but did not take it in for ",
                           patience.count(),
                           " s; it does so as soon as it can, and the primary's log says what is "
                           "in the way. From now on the database's URI has to list it, or, to be "
                           "opened without it, to have remove_replica=",
                           newcomer_));
    }
    if (!seen.ok()) return seen;
    return TimedOut(Text("the primary did not add ", newcomer_, " for ", patience.count(),
                         " s, and its log says why; the group has not recorded it"));
  }

  std::string newcomer_;
  control::Trust trust_;
  std::vector<std::string> listed_;
  std::chrono::nanoseconds steady_;
  control::HelloReplyT newest_;
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

}  // namespace

void AddAdd(CLI::App& app, Action* chosen) {
  struct Options {
    Where where;
    std::string replica;
    uint32_t wait = 60;
  };
  auto options = std::make_shared<Options>();
  CLI::App* add = app.add_subcommand(
      "add",
      "take one more replica into a group while its primary serves; the replica runs already, with "
      "a fresh pool of the same size. A call that was interrupted is repeated");
  AddWhere(add, &options->where,
           "URI of the group; whether it lists the new replica does not matter");
  add->add_option("replica", options->replica, "HOST:PORT of the new replica")
      ->type_name("HOST:PORT")
      ->required();
  add->add_option("--wait", options->wait, "how many seconds it may take")
      ->check(CLI::Range(1u, 86400u))
      ->type_name("SECONDS")
      ->capture_default_str();
  add->callback([=] {
    *chosen = [=] {
      return Add(options->where, options->replica, std::chrono::seconds(options->wait));
    };
  });
}

}  // namespace hyperloop::ctl
