// An emulated cluster on this machine: one hyperloop-rnicd, or one for each node, and a chain of
// hyperloop-replica processes, kept in one directory. These functions are what `hyperloopctl
// cluster` does; tests and hyperloop-bench use them too.
//
// The directory holds cluster.json (what the cluster is), rnicd.sock, keys (the identity that the
// replicas and their primaries share, made at the first start), and for each process NAME.pid,
// NAME.log and, for replicas, NAME.pool and NAME.pool.files. Pools stay when the cluster stops, so
// the next start finds the data again. A lock file serialises calls on one directory, across
// processes. A process is identified by pid, start time, boot and user, so that a recycled pid is
// never mistaken for it or signalled.
//
// The directory belongs to this user, and nobody else can write to it or put another in its place
// (see CheckDirectory); its files are followed only if they are this user's or root's. Otherwise
// each call fails with kPermissionDenied before it changes anything.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "hyperloop/core/status.h"

namespace hyperloop {

// Hears now and then, while one of the cluster's processes is waited for, what is waited for. A
// process that works, or waits for its disk or for a processor, or that somebody has stopped, is
// waited for however long that takes.
using SayWaiting = std::function<void(const std::string& what)>;

// For how long a process that is to end may do nothing before it is killed.
inline constexpr std::chrono::milliseconds kEndPatience{30000};

// What is left at its default is, of an existing cluster, as it has it.
struct ClusterOptions {
  std::string directory;  // made when absent; on tmpfs for media=ram, on a disk for media=file
  // 1 to 8; one more than an existing cluster has: it gets another; 0: as many as it has, 3 for a
  // new one.
  uint32_t replicas = 0;
  uint64_t region_size = 0;  // bytes of each replica's region; 0: 256 MiB for a new cluster
  std::string media;         // auto, ram, file, pmem, …-emulated; empty: auto for a new cluster
  // softrnic, or verbs: all nodes on one RDMA device, no daemon; empty: softrnic for a new cluster
  std::string provider;
  std::string device;    // verbs: NAME or NAME:PORT; empty: the first active
  int spin_us = -1;      // of the RNIC daemon; -1: its default
  int cpu = -1;          // processor for the RNIC daemon; -1: its choice
  std::string priority;  // of the RNIC daemon: nice, fifo, none; empty: its default
  // Softrnic: each replica has an RNIC daemon and a network namespace of its own, so that
  // everything between nodes passes through links; the primary's node is the machine itself. It
  // needs root. No daemon spins unless spin_us says so.
  bool hosts_apart = false;
  std::string netem;     // hosts apart: how each node's cable is shaped, as arguments of tc's netem
  int replica_cpu = -1;  // processor for every replica; -1: as the caller's
  std::string programs;  // folder of hyperloop-rnicd and hyperloop-replica; empty: this program's
  bool die_with_caller = false;  // the processes are killed when the calling thread ends
  std::chrono::milliseconds start_timeout{120000};  // for which a process may do nothing
  SayWaiting waiting;                               // may be empty
};

enum class ProcessState { kRunning, kStopped, kDead };  // kStopped: by SIGSTOP or a debugger
std::string_view ProcessStateName(ProcessState state);

struct ClusterProcess {
  std::string name;  // "rnicd", "replica0" …; of replicas also the emulated host
  pid_t pid = 0;     // 0 when dead
  ProcessState state = ProcessState::kDead;
  std::string listen;  // replicas: HOST:PORT of the control endpoint
  std::string pool;    // replicas: path
  std::string socket;  // replicas: of the RNIC daemon that serves it; verbs: empty
  std::string log;     // path
};

struct ClusterInfo {
  std::string directory;  // absolute
  uint64_t region_size = 0;
  std::string media;
  std::string provider;  // softrnic, verbs
  std::string socket;    // of the primary's RNIC daemon; verbs: empty
  // That daemon (softrnic), the replicas in chain order, and their daemons (hosts apart).
  std::vector<ClusterProcess> processes;
  size_t replica_count = 0;
  // Hosts apart: the name of the machine's interface to the nodes. Their network namespaces are
  // NAME-replica0 and so on. Empty: one daemon serves all nodes.
  std::string network;
  std::string network_address;  // of that interface
  std::string netem;
  std::string uri;       // of the whole group, for a primary whose pool is in the directory
  uint32_t started = 0;  // how many processes this start began
  // Where the replica listens that this start added to an existing cluster: the next opening of the
  // database needs it as add_replica. Empty: none was added.
  std::string added;
  // Where the replica listened that RemoveReplica took out: the next opening of the database needs
  // it as remove_replica. Empty: none was.
  std::string removed;

  bool AllAlive() const;
  std::span<const ClusterProcess> replicas() const {
    return std::span(processes).subspan(provider == "softrnic" ? 1 : 0, replica_count);
  }
};

// Starts the cluster, or completes it: running processes are left alone, and dead ones are started
// again on their old pools and ports. If anything fails, every process that this call started is
// ended again and the message quotes the failing program's log. kInvalidArgument: options out of
// range, or other than those with which the directory's cluster was made. kAlreadyExists: the
// directory holds other things. kPermissionDenied, kNotFound, kNotSupported: hosts apart without
// root, without the programs ip and tc, or on a kernel that lacks what they need.
// kUnavailable, kTimedOut: a process ended or did not become ready.
Result<ClusterInfo> StartCluster(const ClusterOptions& options);

// Describes the directory's cluster and says which of its processes live. kNotFound: no cluster.
Result<ClusterInfo> ReadCluster(const std::string& directory);

// Ends a replica's process and takes the replica out of the cluster. Its pool and its files stay. A
// later start with one replica more gives it back. `replica`: its name, or where it listens.
// kNotFound: no cluster, or no such replica. kInvalidArgument: the cluster has no more than two, of
// which a group cannot go on with one.
Result<ClusterInfo> RemoveReplica(const std::string& directory, const std::string& replica,
                                  std::chrono::milliseconds patience = kEndPatience,
                                  const SayWaiting& say = {});

// Runs `change` on a cluster at rest, then records that its regions have `region_size` bytes. The
// cluster cannot be started in between. kBusy: a process lives. If `change` fails, its error is
// returned and nothing is recorded.
Status ChangeRegionSize(const std::string& directory, uint64_t region_size,
                        const std::function<Status(const ClusterInfo& cluster)>& change);

// Ends every process of the cluster: SIGTERM (and SIGCONT); SIGKILL for one that then does nothing
// for `patience`. Returns those that needed SIGKILL. Nothing running is success. kNotFound: no
// cluster there.
Result<std::vector<std::string>> StopCluster(const std::string& directory,
                                             std::chrono::milliseconds patience = kEndPatience,
                                             const SayWaiting& say = {});

// What is in a directory that has a cluster.
struct ClusterContents {
  std::string directory;             // absolute
  std::vector<std::string> running;  // names of the processes that live
  // Paths below the directory. That of a directory ends with '/' and follows what it holds.
  std::vector<std::string> made;    // by the cluster, its tools, and primaries whose pool is here
  std::vector<std::string> others;  // everything else
  uint64_t bytes = 0;               // that `made` takes of the disk or of memory
};

// kNotFound: no cluster there.
Result<ClusterContents> ReadContents(const std::string& directory);

// Stops the cluster and removes what it made, and the directory, unless something else is in it.
// Returns what was removed, and what stays. A call that was cut short can be repeated. kNotFound:
// no cluster there.
Result<ClusterContents> DestroyCluster(const std::string& directory,
                                       std::chrono::milliseconds patience = kEndPatience,
                                       const SayWaiting& say = {});

// The folder of the program that runs now.
Result<std::string> ProgramFolder();

}  // namespace hyperloop
