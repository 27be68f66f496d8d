#include "primitives/target.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "hyperloop/core/softrnic.h"
#include "hyperloop/replication/options.h"
#include "measuring/cpu_time.h"
#include "measuring/processor_affinity.h"

namespace hyperloop::bench {
namespace {

constexpr char kDaemonPid[] = "daemon_pid";  // a counter that the daemon answers with its own pid
constexpr char kOwner[] = "hyperloop-bench";

}  // namespace

Places IdlePlaces(std::span<const int> processors) {
  Places places;
  if (processors.size() < 2) return places;
  places.primary = processors[0];
  places.daemon = processors[1];
  return places;
}

Result<Places> NoisyPlaces(std::span<const int> processors, uint32_t workers) {
  if (processors.size() < 2) {
    return InvalidArgument(
        "--noise needs two processors: one for the primary alone, one for all the rest");
  }
  Places places = IdlePlaces(processors);
  places.replicas = places.daemon;
  places.daemon_spin_us = 0;
  places.daemon_priority = "fifo";
  places.noise_workers = workers;
  return places;
}

// --- the cluster

Result<std::unique_ptr<OwnCluster>> OwnCluster::Start(const ClusterWanted& wanted) {
  char directory[] = "/dev/shm/hyperloop-bench.XXXXXX";
  if (::mkdtemp(directory) == nullptr) return FromErrno(errno, "a directory in /dev/shm");
  std::unique_ptr<OwnCluster> cluster(new OwnCluster(directory, wanted.places));
  ClusterOptions options;
  options.directory = directory;
  options.replicas = wanted.replicas;
  options.region_size = wanted.region_size;
  options.cpu = wanted.places.daemon;
  options.spin_us = wanted.places.daemon_spin_us;
  options.priority = wanted.places.daemon_priority;
  options.replica_cpu = wanted.places.replicas;
  options.die_with_caller = true;
  HL_ASSIGN_OR_RETURN(cluster->info_, StartCluster(options));
  if (wanted.places.noise_workers > 0) {
    HL_ASSIGN_OR_RETURN(cluster->noise_,
                        Noise::Start(wanted.places.daemon, wanted.places.noise_workers));
  }
  return cluster;
}

OwnCluster::~OwnCluster() {
  noise_.reset();
  StopCluster(directory_).status().IgnoreError();
  std::error_code error;
  std::filesystem::remove_all(directory_, error);
}

// --- meters

Result<Meters> Meters::Open(const std::string& socket, const std::vector<std::string>& hosts) {
  Meters meters;
  for (const std::string& name : hosts) {
    HL_ASSIGN_OR_RETURN(auto device, softrnic::OpenDaemonDevice({socket, name}));
    meters.hosts_.push_back({name, std::move(device)});
  }
  HL_ASSIGN_OR_RETURN(const rnic::Counters counters, meters.hosts_.front().device->QueryCounters());
  const auto pid = counters.find(kDaemonPid);
  if (pid != counters.end()) meters.daemon_pid_ = static_cast<pid_t>(pid->second);
  return meters;
}

void Meters::Watch(const OwnCluster& cluster) { cluster_ = &cluster; }

Result<std::vector<HostWork>> Meters::Counters() const {
  std::vector<HostWork> work;
  for (const Host& host : hosts_) {
    HL_ASSIGN_OR_RETURN(rnic::Counters counters, host.device->QueryCounters());
    counters.erase(kDaemonPid);
    work.push_back({host.name, std::move(counters)});
  }
  return work;
}

Result<CpuTimes> Meters::Times() const {
  CpuTimes times;
  HL_ASSIGN_OR_RETURN(times.primary, CpuSeconds(::getpid()));
  if (daemon_pid_ > 0) {
    const Result<double> rnic = CpuSeconds(daemon_pid_);
    if (rnic.ok()) times.rnic = *rnic;
  }
  if (cluster_ == nullptr) return times;
  for (const ClusterProcess& replica : cluster_->info().replicas()) {
    HL_ASSIGN_OR_RETURN(const double used, CpuSeconds(replica.pid));
    times.replicas.push_back(used);
    times.replicas_wanted += WantedSeconds(replica.pid);
  }
  if (cluster_->noise() != nullptr) {
    HL_ASSIGN_OR_RETURN(times.noise, cluster_->noise()->CpuSeconds());
  }
  return times;
}

// --- the group

Result<std::unique_ptr<Target>> Target::Open(const TargetOptions& options) {
  std::unique_ptr<Target> target(new Target);
  std::string uri = options.uri;
  if (uri.empty()) {
    HL_ASSIGN_OR_RETURN(target->cluster_, OwnCluster::Start(options.cluster));
    uri = target->cluster_->info().uri;
  }
  if (const int cpu = options.cluster.places.primary; cpu >= 0) {
    HL_ASSIGN_OR_RETURN(target->affinity_, ProcessorAffinity::To(cpu));
  }
  StoreOptions& store = target->options_;
  HL_RETURN_IF_ERROR(ParseStoreUri(uri, &store).WithContext("--uri"));
  if (store.provider != "softrnic") {
    return NotSupported(
        "hyperloop-bench reads the counters of emulated hosts: it measures groups of "
        "provider=softrnic only (--raw has --provider)");
  }
  if (options.datapath) store.datapath = *options.datapath;
  store.takeover = false;  // whatever the URI says: a benchmark disturbs nobody
  store.restore = false;
  std::vector<std::string> hosts{store.host};
  if (target->cluster_) {
    for (const ClusterProcess& replica : target->cluster_->info().replicas()) {
      hosts.push_back(replica.name);
    }
  } else {
    HL_RETURN_IF_ERROR(target->TakeGroup(options.window, options.wait).status());
    const std::vector<std::string>& replicas = target->scratch_->replica_hosts();
    hosts.insert(hosts.end(), replicas.begin(), replicas.end());
  }
  HL_ASSIGN_OR_RETURN(target->meters_, Meters::Open(store.device, hosts));
  if (target->cluster_) target->meters_.Watch(*target->cluster_);
  return target;
}

Result<Group*> Target::TakeGroup(uint32_t window, WaitMode wait) {
  if (scratch_ && options_.window == window && options_.wait == wait) return &scratch_->group();
  store_.reset();
  scratch_.reset();
  options_.window = window;
  options_.wait = wait;
  Result<std::unique_ptr<ScratchGroup>> taken = ScratchGroup::Take(options_, kOwner, nullptr);
  if (!taken.ok()) {
    return taken.status().WithContext(
        "a benchmark needs a group without primary and without files (hyperloopctl reset)");
  }
  scratch_ = std::move(*taken);
  return &scratch_->group();
}

Result<Store*> Target::TakeStore(WaitMode wait) {
  store_.reset();
  scratch_.reset();  // it made sure that a URI's group holds no files
  StoreOptions options = options_;
  options.wait = wait;
  options.window = StoreOptions().window;
  HL_ASSIGN_OR_RETURN(store_, Store::Open(options, nullptr));
  TakeRequest request;
  request.directory = kOwner;
  TakeResult taken;
  HL_RETURN_IF_ERROR(store_->Take(request, &taken));
  return store_.get();
}

}  // namespace hyperloop::bench
