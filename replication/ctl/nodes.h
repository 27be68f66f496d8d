// The nodes that a command reads: those of a cluster's directory, or of a URI.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "control/client.h"
#include "device/device_choice.h"
#include "hyperloop/replication/emulated_cluster.h"
#include "hyperloop/replication/inspect.h"

namespace CLI {
class App;
class Option_group;
}  // namespace CLI

namespace hyperloop::ctl {

// Which group, from the command line: one of the two.
struct Where {
  std::string directory;
  std::string uri;
};
// Adds --dir and --uri to a subcommand, exactly one of which must be given, unless the group of the
// two options that is returned gets another rule. `uri` is the help of --uri.
CLI::Option_group* AddWhere(CLI::App* command, Where* where,
                            const std::string& uri = "URI of the group");
// What --uri says, or the URI of the cluster in --dir. Empty if neither was given.
Result<std::string> UriOf(const Where& where);

struct NodePlace {
  std::string name;    // "replica0" …
  std::string host;    // as ConnectService takes it; "" when only the replica knows it
  std::string listen;  // control endpoint
  std::string pool;    // path; "" when only the URI is known
  std::string files;   // directory of its whole files; "" as for `pool`
  std::string socket;  // of the RNIC daemon that serves it; "": taken for the primary's
  ProcessState state = ProcessState::kRunning;
  Status silent;  // why nobody answers at `listen`; ok: somebody does. `host` may be known still
};

// What an RNIC has counted for a host.
struct HostCounters {
  std::string host;  // as `counters --host` takes it
  std::string rnic;  // which RNIC that is, in words
  rnic::Counters counters;
};

// The replicas of a group and a device to reach them with.
class Nodes {
 public:
  // Reads no replica yet. A URI is looked up in the cluster.json beside its device (verbs: its
  // pool); without one, the replicas are asked for the names of their hosts. One that does not
  // answer is `silent`, and is read through its RNIC if the keys tell the name of its host. If none
  // of them answers or can be read, that is an error.
  static Result<Nodes> Find(const Where& where);

  const std::vector<NodePlace>& replicas() const { return replicas_; }
  const std::string& primary_pool() const { return primary_pool_; }
  const std::string& uri() const { return uri_; }  // of the whole group
  // kInvalidArgument: no such replica.
  Result<const NodePlace*> Replica(uint32_t index) const;
  // The one whose control endpoint is an address of this machine; of several, the one whose host
  // has the name of this machine's identity. kUnavailable: there is none now, and there may be one
  // once the network is up. kInvalidArgument: it is not clear.
  Result<const NodePlace*> OwnReplica() const;
  // Reads a replica that runs or is stopped through its RNIC, and a dead one through its pool.
  // kUnavailable: also for a stopped replica over provider verbs, because its process has to
  // answer. A replica that is `silent` and whose host is not known: why.
  Result<std::unique_ptr<NodeView>> View(const NodePlace& place);
  // The same for each of replicas(), all at once.
  std::vector<Result<std::unique_ptr<NodeView>>> ViewAll();
  // A connection that answers a running replica's requests of the bulk lane.
  Result<std::unique_ptr<control::ControlClient>> BulkLane(const NodePlace& place) const;
  // The names by which CountersOf knows the primary and the replicas that are not `silent`.
  std::vector<std::string> CountingHosts() const;
  // The counters of an emulated host, at the RNIC daemon that serves it or else at the primary's;
  // provider verbs: those of this machine's device, for each of CountingHosts. kNotFound: that RNIC
  // has never had such a host.
  Result<HostCounters> CountersOf(const std::string& host) const;
  // The RNIC daemons of this machine that serve the group: numbers of the processes. None over
  // provider verbs, and none that do not answer.
  std::vector<pid_t> Daemons() const;
  // The name and directory of a primary whose heartbeat moves at some replica; "" when there is
  // none. Replicas that cannot be read are skipped.
  Result<std::string> LivingPrimary();

 private:
  Result<rnic::Device*> Device();
  // `device`: what Device() gives; not used for a replica that is dead.
  Result<std::unique_ptr<NodeView>> ViewOver(const Result<rnic::Device*>& device,
                                             const NodePlace& place) const;
  NodePlace PlaceOf(const ClusterProcess& process) const;
  Result<NodePlace> Ask(const std::string& listen) const;
  NodePlace Silent(const std::string& listen, const Status& why) const;

  std::vector<NodePlace> replicas_;
  DeviceChoice choice_;
  std::string keys_;  // keys directory; empty: none
  // The emulated host as which tools attach: this machine's own name, which the other machines know
  // already, for they trust and reach it.
  std::string own_host_;
  std::string primary_pool_;
  std::string uri_;
  std::unique_ptr<rnic::Device> device_;
};

}  // namespace hyperloop::ctl
