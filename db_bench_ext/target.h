// The group that a benchmark drives: one that a URI names, or an emulated cluster of its own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/emulated_cluster.h"
#include "hyperloop/replication/scratch_group.h"
#include "report.h"
#include "workload.h"

namespace hyperloop::bench {

struct TargetOptions {
  std::string uri;                      // empty: a cluster of its own
  uint32_t replicas = 3;                // own cluster
  uint64_t region_size = 128ull << 20;  // own cluster
  int daemon_cpu = -1;                  // own cluster; −1: not pinned
  int daemon_spin_us = -1;              // own cluster; −1: the daemon's default
  uint32_t window = 64;                 // the greatest of the cases
  std::optional<Datapath> datapath;     // none: what the URI says
};

// An emulated cluster in a temporary directory of /dev/shm. It ends, and the directory goes, with
// the object; its processes end also when this process is killed.
class OwnCluster {
 public:
  static Result<std::unique_ptr<OwnCluster>> Start(const TargetOptions& options);
  ~OwnCluster();
  OwnCluster(const OwnCluster&) = delete;
  OwnCluster& operator=(const OwnCluster&) = delete;
  const ClusterInfo& info() const { return info_; }

 private:
  explicit OwnCluster(std::string directory) : directory_(std::move(directory)) {}
  const std::string directory_;
  ClusterInfo info_;
};

class Target {
 public:
  // Errors as ScratchGroup::Take and StartCluster.
  static Result<std::unique_ptr<Target>> Open(const TargetOptions& options);

  Group& group() { return scratch_->group(); }
  rnic::Device& device() { return scratch_->device(); }
  Scratch scratch() { return {scratch_->offset(), scratch_->bytes()}; }
  pid_t daemon_pid() const { return daemon_pid_; }
  Datapath datapath() const { return datapath_; }
  // Counters of each host, the primary first.
  Result<std::vector<HostWork>> Counters();

 private:
  Target() = default;
  struct Host {
    std::string name;
    std::unique_ptr<rnic::Device> device;
  };
  Status OpenHosts(const StoreOptions& options);

  std::unique_ptr<OwnCluster> cluster_;  // outlives what uses it
  std::vector<Host> hosts_;
  std::unique_ptr<ScratchGroup> scratch_;
  pid_t daemon_pid_ = 0;
  Datapath datapath_ = Datapath::kOffload;
};

}  // namespace hyperloop::bench
