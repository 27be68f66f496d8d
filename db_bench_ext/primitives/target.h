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
#include "hyperloop/replication/store.h"
#include "measuring/noise.h"
#include "measuring/processor_affinity.h"
#include "primitives/plan.h"
#include "primitives/report.h"
#include "primitives/workload.h"

namespace hyperloop::bench {

// Where the parts of an own cluster run. −1: not bound; the RNIC daemon then chooses itself.
struct Places {
  int primary = -1;
  int daemon = -1;
  int replicas = -1;
  int daemon_spin_us = -1;      // −1: the daemon's default
  std::string daemon_priority;  // empty: the daemon's default
  uint32_t noise_workers = 0;   // of stress-ng, on the daemon's processor
};

// Puts the caller's thread on the first of `processors`, the RNIC daemon on the second.
Places IdlePlaces(std::span<const int> processors);
// Puts the caller's thread alone on the first processor. The second has everything of the replicas'
// machines: their threads and the noise at normal priority, and the RNIC, which never spins there
// and does not wait for them, because it stands for a device. kInvalidArgument: fewer than two
// processors.
Result<Places> NoisyPlaces(std::span<const int> processors, uint32_t workers);

struct ClusterWanted {
  uint32_t replicas = 3;
  uint64_t region_size = 128ull << 20;
  Places places;
  bool hosts_apart = false;
  std::string netem;  // hosts apart
};

// An emulated cluster in a temporary directory of /dev/shm, with its noise. The object's destructor
// ends it and removes the directory. Its processes also end when this process is killed.
class OwnCluster {
 public:
  static Result<std::unique_ptr<OwnCluster>> Start(const ClusterWanted& wanted);
  ~OwnCluster();
  OwnCluster(const OwnCluster&) = delete;
  OwnCluster& operator=(const OwnCluster&) = delete;
  const ClusterInfo& info() const { return info_; }
  const Places& places() const { return places_; }
  const Noise* noise() const { return noise_.get(); }

 private:
  OwnCluster(std::string directory, Places places)
      : directory_(std::move(directory)), places_(std::move(places)) {}
  const std::string directory_;
  const Places places_;
  ClusterInfo info_;
  std::unique_ptr<Noise> noise_;
};

// Reads the work of RNICs and processors so far: counters through devices, times of processes.
class Meters {
 public:
  // An emulated host, and the socket of the RNIC daemon that serves it.
  struct Place {
    std::string host;
    std::string socket;
  };
  // A device on each host; the first one's daemon is the primary's.
  static Result<Meters> Open(const std::vector<Place>& places);
  // Reads the processor times of an own cluster's processes from now on.
  void Watch(const OwnCluster& cluster);

  Result<std::vector<HostWork>> Counters() const;
  Result<CpuTimes> Times() const;
  rnic::Device& device(size_t host) const { return *hosts_[host].device; }
  pid_t daemon_pid() const { return daemon_pid_; }
  const OwnCluster* cluster() const { return cluster_; }

 private:
  struct Host {
    std::string name;
    std::unique_ptr<rnic::Device> device;
  };
  std::vector<Host> hosts_;
  pid_t daemon_pid_ = 0;        // the primary's
  std::vector<pid_t> daemons_;  // of all hosts, each once
  const OwnCluster* cluster_ = nullptr;
};

struct TargetOptions {
  std::string uri;                         // empty: a cluster of its own
  ClusterWanted cluster;                   // its own; of a URI's only where this thread runs
  std::optional<DatapathOption> datapath;  // none: what the URI says
  uint32_t window = 1;                     // of the first use
  WaitMode wait = WaitMode::kPoll;         // of the first use
};

class Target {
 public:
  // The group of a URI is taken at once, so that a refusal comes at once. Errors as
  // ScratchGroup::Take and StartCluster.
  static Result<std::unique_ptr<Target>> Open(const TargetOptions& options);

  // The group's primitives, with exactly that window, because unneeded slots would cost cache. A
  // group or store that was taken before ends.
  Result<Group*> TakeGroup(uint32_t window, WaitMode wait);
  Scratch scratch() { return {scratch_->offset(), scratch_->bytes()}; }
  // The group as a database's files.
  Result<Store*> TakeStore(WaitMode wait);

  const Meters& meters() const { return meters_; }
  uint32_t replicas() const { return static_cast<uint32_t>(options_.replicas.size()); }
  Datapath datapath() const { return *options_.datapath; }

 private:
  Target() = default;
  Result<std::vector<Meters::Place>> MeterPlaces() const;

  std::unique_ptr<OwnCluster> cluster_;  // outlives what uses it
  std::unique_ptr<ProcessorAffinity> affinity_;
  StoreOptions options_;
  Meters meters_;
  std::unique_ptr<ScratchGroup> scratch_;
  std::unique_ptr<Store> store_;
};

}  // namespace hyperloop::bench
