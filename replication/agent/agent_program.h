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

namespace hyperloop::agent {

enum class Ready : uint8_t {
  kServes,  // its heartbeats are at a majority of the replicas
  kNotify,  // it says so, too (sd_notify, READY=1)
};

struct AgentOptions {
  std::string uri;            // of the group, as a primary on this node opens it
  std::string node;           // this node's name
  std::string db;             // the service's database directory here
  std::string replica_files;  // of a replica on this node, for its tables; empty: none are used
  std::vector<std::string> command;
  std::chrono::milliseconds stop_timeout{10000};
  Ready ready = Ready::kServes;
  std::string role_file;  // replaced whenever the role changes; empty: there is none
  metrics::ServerOptions http;
  Timing timing;
};

// Runs until SIGTERM or SIGINT, which must be blocked in every thread, and ends the service in
// order then. The calling thread is the one that lives as long as the program.
Status RunAgent(const AgentOptions& options, const std::shared_ptr<Log>& log);

}  // namespace hyperloop::agent
