// hyperloop-replica: one replica of a group.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "device/device_choice.h"
#include "hyperloop/core/log.h"
#include "hyperloop/core/status.h"
#include "hyperloop/metrics/server.h"
#include "options/node_group.h"

namespace hyperloop {

struct ReplicaOptions {
  std::string pool;
  uint64_t size = 0;      // 0: that of the existing pool
  uint64_t new_size = 0;  // without `size`: of a pool that is made
  std::string listen = "127.0.0.1:0";
  std::string bulk_listen;  // of the bulk lane; empty: a free port of the same host
  std::string files;        // directory of whole files; empty: POOL.files
  DeviceChoice device;      // service_port is set to that of the control endpoint
  std::string keys;         // keys directory; empty: none, which needs `insecure`
  bool insecure = false;    // serve every peer, on loopback only
  std::string media = "auto";
  int datapath_cpu = -1;  // processor of the thread of datapaths cpu-polling and cpu-event; −1: any
  metrics::ServerOptions metrics;  // no address: none are shown
};

// Takes from a group's files all that tells this host's replica from others, and where its pool and
// device are if `options` does not say it. kNotFound: this host is none of the group's.
Status TakeGroup(const NodeGroup& group, ReplicaOptions* options);

// Serves until SIGTERM or SIGINT, which must be blocked in every thread. Prints "ready HOST:PORT"
// on stdout once it serves. An error before that leaves nothing behind, except a pool that was just
// made.
Status RunReplica(const ReplicaOptions& options, const std::shared_ptr<Log>& log);

}  // namespace hyperloop
