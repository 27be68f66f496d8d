// Starter makes the processes of an emulated cluster run.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cluster/cluster_file.h"
#include "cluster/cluster_paths.h"
#include "cluster/process_id.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/emulated_cluster.h"

namespace hyperloop::cluster {

// Where the daemons of nodes apart listen for one another.
inline constexpr int kLinkPort = 7471;

// One call of StartCluster: unless Run succeeds, the processes that it began end with the object.
class Starter {
 public:
  Starter(const ClusterOptions& options, Paths paths, ClusterFile file)
      : options_(options), paths_(std::move(paths)), file_(std::move(file)) {}
  ~Starter();
  Starter(const Starter&) = delete;
  Starter& operator=(const Starter&) = delete;

  // Starts what does not run, waits until it is ready, and saves where the replicas listen. Errors
  // as StartCluster.
  Status Run();

  const ClusterFile& file() const { return file_; }
  uint32_t started() const { return static_cast<uint32_t>(started_.size()); }

 private:
  struct Started {
    std::string name;
    ProcessId id;
    uint64_t log_start = 0;
    ClusterFile::Replica* replica = nullptr;
  };

  Status Start(const std::string& name, const char* program, std::vector<std::string> arguments,
               const std::string& node, ClusterFile::Replica* replica);
  Status StartDaemons();
  Status StartDaemon(const std::string& name, const std::string& node,
                     const std::vector<std::string>& served);
  std::vector<std::string> DaemonArguments(const std::string& name, const std::string& node) const;
  Status StartReplica(ClusterFile::Replica* replica);
  Status AwaitReady(const Started& process);

  const ClusterOptions& options_;
  const Paths paths_;
  ClusterFile file_;
  std::string programs_;
  std::vector<Started> started_;
  bool done_ = false;
};

}  // namespace hyperloop::cluster
