#include "primitives/target.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "hyperloop/core/softrnic.h"
#include "hyperloop/replication/options.h"
#include "measuring/cpu_time.h"
#include "measuring/processor_affinity.h"

namespace hyperloop::bench {
namespace {

constexpr char kDaemonPid[] = "daemon_pid";  // a counter that the daemon answers with its own pid
constexpr char kLinks[] = "links_configured";
constexpr char kOwner[] = "hyperloop-bench";

// Whether the primary's daemon has links to others.
Result<bool> HasLinks(const StoreOptions& options) {
  HL_ASSIGN_OR_RETURN(const auto device,
                      softrnic::OpenDaemonDevice({options.device, options.host}));
  HL_ASSIGN_OR_RETURN(const rnic::Counters counters, device->QueryCounters());
  const auto links = counters.find(kLinks);
  return links != counters.end() && links->second != 0;
}

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
  options.hosts_apart = wanted.hosts_apart;
  options.netem = wanted.netem;
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

Result<Meters> Meters::Open(const std::vector<Place>& places) {
  Meters meters;
  for (const Place& place : places) {
    HL_ASSIGN_OR_RETURN(auto device, softrnic::OpenDaemonDevice({place.socket, place.host}));
    HL_ASSIGN_OR_RETURN(const rnic::Counters counters, device->QueryCounters());
    meters.hosts_.push_back({place.host, std::move(device)});
    const auto found = counters.find(kDaemonPid);
    const pid_t pid = found == counters.end() ? 0 : static_cast<pid_t>(found->second);
    if (meters.hosts_.size() == 1) meters.daemon_pid_ = pid;
    if (pid > 0 &&
        std::find(meters.daemons_.begin(), meters.daemons_.end(), pid) == meters.daemons_.end())
      meters.daemons_.push_back(pid);
  }
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
  for (const pid_t daemon : daemons_) {
    const Result<double> rnic = CpuSeconds(daemon);
    if (rnic.ok()) times.rnic = times.rnic.value_or(0) + *rnic;
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
  // Taking the group refuses a URI's at once, and makes the choice that `auto` leaves.
  if (!target->cluster_ || !store.datapath) {
    HL_ASSIGN_OR_RETURN(const Group* const group, target->TakeGroup(options.window, options.wait));
    store.datapath = static_cast<Datapath>(group->info().datapath);
  }
  HL_ASSIGN_OR_RETURN(const std::vector<Meters::Place> places, target->MeterPlaces());
  HL_ASSIGN_OR_RETURN(target->meters_, Meters::Open(places));
  if (target->cluster_) target->meters_.Watch(*target->cluster_);
  return target;
}

// The hosts whose counters can be read here, in chain order: of a cluster on this machine all, else
// those that the primary's daemon serves. A daemon with links serves only the primary.
Result<std::vector<Meters::Place>> Target::MeterPlaces() const {
  const Result<ClusterInfo> known =
      ReadCluster(std::filesystem::path(options_.device).parent_path().string());
  std::vector<Meters::Place> places{{options_.host, options_.device}};
  if (cluster_) {
    for (const ClusterProcess& replica : cluster_->info().replicas())
      places.push_back({replica.name, replica.socket});
    return places;
  }
  HL_ASSIGN_OR_RETURN(const bool linked, HasLinks(options_));
  for (const std::string& host : scratch_->replica_hosts()) {
    std::string socket = linked ? "" : options_.device;
    if (known.ok() && known->socket == options_.device)
      for (const ClusterProcess& replica : known->replicas())
        if (replica.name == host) socket = replica.socket;
    if (!socket.empty()) places.push_back({host, socket});
  }
  return places;
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
