// TestCluster: a real hyperloop-rnicd and real hyperloop-replica processes for one test, in a
// folder of their own on /dev/shm. Destruction ends all of them and removes the folder; they are
// killed, too, when the thread that started them ends.
//
// Programs are taken from the folder that the environment variable HYPERLOOP_BIN names (ctest sets
// it).
#pragma once

#include <signal.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hyperloop/core/log.h"
#include "hyperloop/core/rnic.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/emulated_cluster.h"
#include "hyperloop/replication/inspect.h"
#include "hyperloop/replication/options.h"
#include "support/child_process.h"
#include "support/eventually.h"

namespace hyperloop::test {

class TestCluster {
 public:
  // `replicas` regions of `region_size` bytes. No daemon thread spins or has a raised priority.
  // Fails the running test when it does not start.
  explicit TestCluster(uint32_t replicas = 3, uint64_t region_size = 32ull << 20);
  ~TestCluster();
  TestCluster(const TestCluster&) = delete;
  TestCluster& operator=(const TestCluster&) = delete;

  bool started() const { return started_; }
  const std::string& folder() const { return folder_; }
  const std::string& socket() const { return info_.socket; }
  const std::string& uri() const { return info_.uri; }
  uint32_t replicas() const { return options_.replicas; }
  uint64_t region_size() const { return options_.region_size; }
  const std::string& endpoint(uint32_t i) const { return process(i).listen; }
  const std::string& pool(uint32_t i) const { return process(i).pool; }
  pid_t rnicd_pid() const { return info_.processes[0].pid; }
  pid_t replica_pid(uint32_t i) const { return process(i).pid; }

  // Options for a primary of this cluster: small journal and table, short timeouts. It waits by
  // event.
  StoreOptions Options() const;

  // After SIGSTOP it waits until the process has stopped.
  void SignalReplica(uint32_t i, int signal) const;
  void SignalAllReplicas(int signal) const;
  // SIGKILL, and waits until the process is gone and a running RNIC daemon has
  // ended its queue pairs.
  void KillReplica(uint32_t i);
  // SIGKILL, and waits until the process is gone.
  void KillRnicd();
  // Starts dead processes again, on the old pools and ports.
  Status Restart();
  // Whether each process runs that the cluster was started with, on its old port.
  bool Runs() const;
  // Starts another replica, which no group has yet.
  Status AddReplica();
  // Stops the cluster, gives every pool a larger region with hyperloopctl, and starts it again.
  // Returns the output of hyperloopctl if it failed, else an empty text.
  std::string Resize(uint64_t region_size, uint32_t table_capacity);
  // Empties the group, which must have no primary. Returns the output of hyperloopctl if it failed,
  // else an empty text.
  std::string Reset() const;
  // The same without a process for it. The replicas' files go, too.
  Status Empty() const;
  // Starts only a new RNIC daemon; the replicas live on. For Runs and Restart there is none then.
  void RestartRnicd();

  // A device at the cluster's daemon, on an emulated host of its own.
  Result<std::unique_ptr<rnic::Device>> OpenDevice(const std::string& host = "observer") const;
  // The status of replica i, read by RDMA.
  Result<NodeStatus> ReplicaStatus(uint32_t i) const;
  // What replica i has in use, read by RDMA; zeros elsewhere.
  Result<RegionImage> ReplicaImage(uint32_t i) const;
  // The replicated bytes of replica i, read by RDMA.
  Result<std::vector<std::byte>> ReplicaRegion(uint32_t i) const;
  // The first offset at which two regions differ in what replica 0 has in use. The group is at
  // rest. Nothing: they do not.
  std::optional<uint64_t> FirstDifferenceInUse(std::span<const std::byte> a,
                                               std::span<const std::byte> b) const;

 private:
  const ClusterProcess& process(uint32_t i) const { return info_.processes[1 + i]; }
  void Kill(pid_t pid);
  // Runs hyperloopctl. What it printed when it failed; else empty.
  std::string Ctl(const std::string& arguments) const;

  ClusterOptions options_;
  ClusterInfo info_;
  std::string folder_;
  bool started_ = false;
  ChildProcess rnicd_;  // the one that RestartRnicd started
};

}  // namespace hyperloop::test
