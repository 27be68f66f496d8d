// AgentOrders: reads and changes what a group's agents are told, which its replicas keep
// (hyperloop/replication/directive.h). It asks each time on connections of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "control/messages.h"
#include "control/trust.h"
#include "ctl/nodes.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/directive.h"

namespace hyperloop::ctl {

// Who has the group, as a majority of its replicas says.
struct GroupOwner {
  std::string id;    // as Directive::owner; empty: no majority says the same
  std::string name;  // for people
  std::string node;  // whose agent started it; empty: none did
  uint64_t epoch = 0;
  bool released = false;
  bool serves = false;  // its epoch is installed
};
// For people.
std::string OwnerSentence(const GroupOwner& owner);

class AgentOrders {
 public:
  using Edit = std::function<Status(const GroupOwner& owner, Directive* directive)>;

  // Asks nobody yet. An error is one of the URI or the keys.
  static Result<AgentOrders> Create(const Where& where);

  // Asks all replicas of the group, those that are left out, too. The rest follows from the last
  // call. kUnavailable: too few of them answer; kBusy: the group is being changed.
  Status Look();

  const std::string& group() const { return group_; }
  const std::vector<std::string>& replicas() const { return replicas_; }
  size_t Majority() const { return replicas_.size() / 2 + 1; }
  GroupOwner Owner() const;
  // The heartbeat of the owner at each replica that answered and has its epoch.
  std::map<std::string, uint64_t> Heartbeats() const;
  // What agents that see all these replicas obey, and by how many of them it is told alike.
  Directive Told(size_t* alike) const;
  // Why the replica does not tell it; ok: it does.
  Status Tells(const std::string& address, const Directive& told) const;

  // Durable at a majority when it returns. Of two that change it at a time, each knows the other's
  // change or begins anew. An error says whether agents may obey it nevertheless; that of `edit`
  // changes nothing.
  Result<Directive> Change(const Edit& edit);

 private:
  struct Round {
    size_t granted = 0;
    bool rivals = false;  // a replica has promised a greater number
    Directive newest;     // of those that granted it
    std::vector<Status> reasons;
  };

  AgentOrders(std::vector<std::string> listed, control::Trust trust);

  template <class Reply, class Request>
  Result<Reply> Call(const std::string& address, Request request) const;
  std::map<std::string, Result<control::HelloReplyT>> HelloEach(
      const std::vector<std::string>& addresses) const;
  Round Ask(const DirectiveNumber& number, const Directive* directive);
  Status Missing(const Round& round, const std::string& what) const;

  std::vector<std::string> listed_;
  control::Trust trust_;
  std::string group_;
  std::vector<std::string> replicas_;  // of the group
  std::map<std::string, Result<control::HelloReplyT>> answers_;
  uint64_t greatest_ = 0;  // number that was seen
};

}  // namespace hyperloop::ctl
