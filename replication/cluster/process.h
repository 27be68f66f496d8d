// Background processes that outlive the caller and are found again through a pid file.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "cluster/process_id.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/emulated_cluster.h"

namespace hyperloop::cluster {

// The identity of a process that exists now. kNotFound.
Result<ProcessId> IdentifyProcess(pid_t pid);
// kNotFound: no such file. kCorruption: not a pid file. kPermissionDenied: others may have written
// it.
Result<ProcessId> ReadPidFile(const std::string& path);

// Whether exactly this process exists and is this user's; a zombie is dead.
ProcessState StateOf(const ProcessId& id);

struct SpawnOptions {
  std::vector<std::string> argv;  // argv[0] is a path
  std::string log;  // stdout and stderr are appended there; never another user's file, nor a link
  std::string pid_file;  // written by the new process itself, before it executes the program
  bool die_with_caller = false;
  int cpu = -1;      // the processor that it and its threads are bound to; -1: as the caller
  int network = -1;  // the network namespace that it is in; -1: the caller's
};
// Starts a process in a session of its own, with stdin from /dev/null, no other descriptor, default
// signals and umask 077. Errors of execve are returned here.
Result<ProcessId> Spawn(const SpawnOptions& options);

// Sends `signal` to exactly this process, of this user. Ok also when it is gone.
Status Signal(const ProcessId& id, int signal);
// All three wait for a process that works, or waits for its disk or for a processor, or was
// stopped by somebody, however long that takes. `patience` is for how long it may do nothing.

// Waits until the process is gone. False: it still exists, and has done nothing for `patience`, or
// `most` is over.
bool WaitGone(const ProcessId& id, std::chrono::milliseconds patience, const SayWaiting& say = {},
              std::chrono::hours most = std::chrono::hours(87600));
// SIGTERM and SIGCONT, then, unless WaitGone, SIGKILL; an hour is the most that one gets which
// works. True: SIGKILL was needed.
Result<bool> Terminate(const ProcessId& id, std::chrono::milliseconds patience,
                       const SayWaiting& say = {});

// Waits until the file has, behind `from`, a line that starts with `prefix`; returns the line.
// kUnavailable: the process ended first (the message quotes the end of the file). kTimedOut: it did
// nothing for `patience`, likewise.
Result<std::string> AwaitLine(const std::string& file, uint64_t from, const std::string& prefix,
                              const ProcessId& writer, std::chrono::milliseconds patience,
                              const SayWaiting& say = {});

}  // namespace hyperloop::cluster
