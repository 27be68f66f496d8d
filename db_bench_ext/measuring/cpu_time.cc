#include "measuring/cpu_time.h"

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

namespace hyperloop::bench {
namespace {

std::vector<pid_t> ChildrenOf(pid_t pid) {
  const std::string text = std::to_string(pid);
  std::ifstream file("/proc/" + text + "/task/" + text + "/children");
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

}  // namespace

Result<double> CpuSeconds(pid_t pid) {
  clockid_t clock = 0;
  timespec time{};
  const int error = ::clock_getcpuclockid(pid, &clock);
  if (error != 0 || ::clock_gettime(clock, &time) != 0) {
    return NotFound("no process " + std::to_string(pid) + " whose processor time could be read");
  }
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

Result<double> CpuSecondsOfTree(pid_t pid) {
  HL_ASSIGN_OR_RETURN(double sum, CpuSeconds(pid));
  for (const pid_t child : ChildrenOf(pid)) {
    const Result<double> used = CpuSecondsOfTree(child);
    if (used.ok()) sum += *used;  // else it has just ended
  }
  return sum;
}

double WantedSeconds(pid_t pid) {
  std::error_code gone;
  uint64_t sum_ns = 0;
  for (const auto& thread :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", gone)) {
    uint64_t run_ns = 0, wait_ns = 0;
    std::ifstream(thread.path() / "schedstat") >> run_ns >> wait_ns;
    sum_ns += run_ns + wait_ns;
  }
  return static_cast<double>(sum_ns) / 1e9;
}

size_t Descendants(pid_t pid) {
  size_t count = 0;
  for (const pid_t child : ChildrenOf(pid)) count += 1 + Descendants(child);
  return count;
}

}  // namespace hyperloop::bench
