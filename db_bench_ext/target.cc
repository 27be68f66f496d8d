#include "target.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "hyperloop/core/softrnic.h"
#include "hyperloop/replication/options.h"

namespace hyperloop::bench {
namespace {

constexpr char kDaemonPid[] = "daemon_pid";  // a counter that the daemon answers with its own pid

}  // namespace

Result<std::unique_ptr<OwnCluster>> OwnCluster::Start(const TargetOptions& options) {
  char directory[] = "/dev/shm/hyperloop-bench.XXXXXX";
  if (::mkdtemp(directory) == nullptr) return FromErrno(errno, "a directory in /dev/shm");
  std::unique_ptr<OwnCluster> cluster(new OwnCluster(directory));
  ClusterOptions wanted;
  wanted.directory = directory;
  wanted.replicas = options.replicas;
  wanted.region_size = options.region_size;
  wanted.cpu = options.daemon_cpu;
  wanted.spin_us = options.daemon_spin_us;
  wanted.die_with_caller = true;
  HL_ASSIGN_OR_RETURN(cluster->info_, StartCluster(wanted));
  return cluster;
}

OwnCluster::~OwnCluster() {
  StopCluster(directory_).status().IgnoreError();
  std::error_code error;
  std::filesystem::remove_all(directory_, error);
}

Result<std::unique_ptr<Target>> Target::Open(const TargetOptions& options) {
  std::unique_ptr<Target> target(new Target);
  std::string uri = options.uri;
  if (uri.empty()) {
    HL_ASSIGN_OR_RETURN(target->cluster_, OwnCluster::Start(options));
    uri = target->cluster_->info().uri;
  }
  StoreOptions store;
  HL_RETURN_IF_ERROR(ParseStoreUri(uri, &store).WithContext("--uri"));
  if (store.provider != "softrnic") {
    return NotSupported(
        "hyperloop-bench reads the counters of emulated hosts: it measures provider=softrnic only");
  }
  store.window = options.window;
  if (options.datapath) store.datapath = *options.datapath;
  target->datapath_ = store.datapath;
  store.takeover = false;  // whatever the URI says: a benchmark disturbs nobody
  store.restore = false;
  Result<std::unique_ptr<ScratchGroup>> scratch =
      ScratchGroup::Take(store, "hyperloop-bench", nullptr);
  if (!scratch.ok()) {
    return scratch.status().WithContext(
        "a benchmark needs a group without primary and without files (hyperloopctl reset)");
  }
  target->scratch_ = std::move(*scratch);
  HL_RETURN_IF_ERROR(target->OpenHosts(store));
  return target;
}

// A device on each host, to read its counters.
Status Target::OpenHosts(const StoreOptions& options) {
  std::vector<std::string> names{options.host};
  const std::vector<std::string>& replicas = scratch_->replica_hosts();
  names.insert(names.end(), replicas.begin(), replicas.end());
  for (std::string& name : names) {
    HL_ASSIGN_OR_RETURN(auto device, softrnic::OpenDaemonDevice({options.device, name}));
    hosts_.push_back({std::move(name), std::move(device)});
  }
  HL_ASSIGN_OR_RETURN(const rnic::Counters counters, hosts_.front().device->QueryCounters());
  const auto pid = counters.find(kDaemonPid);
  if (pid != counters.end()) daemon_pid_ = static_cast<pid_t>(pid->second);
  return Status::Ok();
}

Result<std::vector<HostWork>> Target::Counters() {
  std::vector<HostWork> work;
  for (const Host& host : hosts_) {
    HL_ASSIGN_OR_RETURN(rnic::Counters counters, host.device->QueryCounters());
    counters.erase(kDaemonPid);
    work.push_back({host.name, std::move(counters)});
  }
  return work;
}

}  // namespace hyperloop::bench
