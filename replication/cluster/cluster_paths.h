// Where the parts of an emulated cluster are kept in its directory, and which of its processes
// live.
#pragma once

#include <string>

#include "cluster/cluster_file.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/emulated_cluster.h"

namespace hyperloop::cluster {

// The RNIC daemon of the primary's node, which serves all nodes unless each has a network of its
// own.
inline constexpr char kPrimaryDaemon[] = "rnicd";

struct Paths {
  std::string directory;
  std::string File(const std::string& name) const { return directory + "/" + name; }
  std::string Description() const { return File("cluster.json"); }
  std::string Socket(const std::string& daemon) const { return File(daemon + ".sock"); }
  std::string Pid(const std::string& name) const { return File(name + ".pid"); }
  std::string Log(const std::string& name) const { return File(name + ".log"); }
  std::string Pool(const std::string& name) const { return File(name + ".pool"); }
  std::string Keys() const { return File("keys"); }
  std::string Peers() const { return File("peers"); }
};

// The RNIC daemon that serves `replica`.
std::string DaemonOf(const ClusterFile& file, const std::string& replica);
// The names of all processes, in the order in which they start: each daemon before the replicas
// that it serves.
std::vector<std::string> ProcessNames(const ClusterFile& file);

// kPermissionDenied: somebody else may have written the pid file. A missing or damaged pid file
// means that the process is dead.
Result<ClusterProcess> Look(const Paths& paths, const std::string& name);

}  // namespace hyperloop::cluster
