#include "cluster/cluster_paths.h"

#include "cluster/process.h"

namespace hyperloop::cluster {

std::string DaemonOf(const ClusterFile& file, const std::string& replica) {
  return file.network ? replica + "-" + kPrimaryDaemon : kPrimaryDaemon;
}

std::vector<std::string> ProcessNames(const ClusterFile& file) {
  std::vector<std::string> names;
  if (file.provider == "softrnic") names.emplace_back(kPrimaryDaemon);
  for (const ClusterFile::Replica& replica : file.replicas) {
    if (file.network) names.push_back(DaemonOf(file, replica.name));
    names.push_back(replica.name);
  }
  return names;
}

Result<ClusterProcess> Look(const Paths& paths, const std::string& name) {
  ClusterProcess process;
  process.name = name;
  process.log = paths.Log(name);
  const Result<ProcessId> id = ReadPidFile(paths.Pid(name));
  if (id.status().code() == Code::kPermissionDenied) return id.status();
  if (!id.ok()) return process;
  process.state = StateOf(*id);
  if (process.state != ProcessState::kDead) process.pid = id->pid;
  return process;
}

}  // namespace hyperloop::cluster
