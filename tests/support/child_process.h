// A program started by a test. The destructor kills and reaps it, and the kernel kills it if the
// test dies first.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "hyperloop/core/unique_fd.h"

namespace hyperloop::test {

class ChildProcess {
 public:
  // kAsItIs: neither the program nor what it starts can raise its priority. An RNIC daemon with the
  // default options would, and then keeps the tests beside it from the processor.
  enum class Priority { kAsItIs, kMayRise };
  // Starts `argv[0]` (a path) with its standard output readable through ReadLine; standard error is
  // inherited.
  static ChildProcess Spawn(const std::vector<std::string>& argv,
                            Priority priority = Priority::kAsItIs);
  // Forks; the child runs `body` and exits with what it returns. Not for processes with other
  // threads that hold locks.
  static ChildProcess Fork(const std::function<int()>& body);

  ChildProcess() = default;
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  // The next line of its output; empty if the child ended, or nothing came for 300 s.
  std::string ReadLine();
  void Signal(int signal);
  // Waits for its end, at most 300 s (then -1). Exit status, or 128 + signal.
  int Wait();
  // SIGKILL and Wait.
  void Kill();

 private:
  ChildProcess(pid_t pid, UniqueFd output) : pid_(pid), output_(std::move(output)) {}
  pid_t pid_ = -1;
  UniqueFd output_;
};

// The path of one of this build's programs (HYPERLOOP_BIN).
std::string ProgramPath(const std::string& name);

}  // namespace hyperloop::test
