// Texts that identify a process: a pid file, and what /proc says of the process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hyperloop::cluster {

// Identifies one process, also against a later one with the same pid.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start_time = 0;  // clock ticks since boot
  std::string boot;         // the kernel's boot id
};

// A pid file is one line, "PID START_TIME BOOT_ID". Nothing: `text` is none.
std::optional<ProcessId> ParsePidFile(std::string_view text);

// What can be read of a file in /proc, up to its end or an error; empty: nothing can. Its process
// may end between opening and reading, after which reading fails.
std::string ReadProcessFile(const std::string& path);

// From /proc/PID/stat.
struct ProcessStat {
  uint64_t start_time = 0;
  char state = 0;         // a letter
  uint64_t cpu_time = 0;  // of all its threads; clock ticks
  uint64_t threads = 0;
};
// The program's name in `text` may hold anything. Async-signal-safe.
bool ParseProcessStat(std::string_view text, ProcessStat* stat);

// The real user in /proc/PID/status. The program's name in `text` may look like another line.
std::optional<uid_t> ParseProcessUser(std::string_view text);

}  // namespace hyperloop::cluster
