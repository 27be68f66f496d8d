// hyperloop-agent: one node of a service that fails over by itself.
//
// It looks at the group's replicas, decides when this node takes the group (machine.h), and runs
// the service, whose own opening of the database takes it. It shows what it is by HTTP and in a
// file.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/machine.h"
#include "hyperloop/core/log.h"
#include "hyperloop/core/status.h"
#include "hyperloop/metrics/server.h"
#include "hyperloop/replication/options.h"
#include "options/node_group.h"

namespace hyperloop::agent {

enum class Ready : uint8_t {
  kServes,  // its heartbeats are at a majority of the replicas
  kNotify,  // it says so, too (sd_notify, READY=1)
};

struct AgentOptions {
  // Of the group, as a primary on this node opens it. If it names a group of this host's files,
  // these are read again and again, and the replicas that they list are looked at.
  std::string uri;
  std::string group;          // the name of that group; empty: the URI names none
  std::string node;           // this node's name
  std::string db;             // the service's database directory here
  std::string replica_files;  // of a replica on this node, for its tables; empty: none are used
  std::vector<std::string> command;
  std::chrono::milliseconds stop_timeout{10000};
  Ready ready = Ready::kServes;
  std::string role_file;           // replaced whenever the role changes; empty: there is none
  std::string history_file;        // of what it decides; empty: there is none
  std::vector<std::string> hooks;  // programs that are told what becomes of this node
  std::string address;             // of this host, for them; empty: it is not known
  std::chrono::milliseconds hook_timeout{10000};
  std::chrono::milliseconds hook_repeat{0};  // 0: they are told what changes, and that once
  metrics::ServerOptions http;
  Timing timing;
};

// Sets what a group's files say of this host's agent, as far as it is not set. kNotFound: this host
// is none of the group's, or no service is told.
Status TakeGroup(const NodeGroup& group, AgentOptions* options);

// kInvalidArgument: two of these times do not fit together. Part of RunAgent.
Status CheckTimes(const Timing& timing);

// Runs until SIGTERM or SIGINT, which must be blocked in every thread, and ends the service in
// order then. The calling thread is the one that lives as long as the program.
Status RunAgent(const AgentOptions& options, const std::shared_ptr<Log>& log);

}  // namespace hyperloop::agent
