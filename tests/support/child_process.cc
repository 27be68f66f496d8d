#include "support/child_process.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace hyperloop::test {
namespace {

constexpr int kPatienceMs = 300'000;  // a net against hanging, on a busy machine too

// In the child, between fork and exec.
void DieWithParent(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
}

// In the child, between fork and exec, which takes the right from root, too.
void KeepPriority() {
  prctl(PR_CAPBSET_DROP, CAP_SYS_NICE, 0, 0, 0);  // fails for a user who has none
  const rlimit none{0, 0};
  setrlimit(RLIMIT_NICE, &none);
  setrlimit(RLIMIT_RTPRIO, &none);
}

}  // namespace

ChildProcess ChildProcess::Spawn(const std::vector<std::string>& argv, Priority priority) {
  std::vector<char*> args;
  for (const std::string& arg : argv) args.push_back(const_cast<char*>(arg.c_str()));
  args.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    DieWithParent(parent);
    if (priority == Priority::kAsItIs) KeepPriority();
    dup2(ends[1], STDOUT_FILENO);
    execv(args[0], args.data());
    std::perror(args[0]);
    _exit(127);
  }
  close(ends[1]);
  return ChildProcess(pid, UniqueFd(ends[0]));
}

ChildProcess ChildProcess::Fork(const std::function<int()>& body) {
  std::fflush(stdout);  // or the child writes it once more, as its first lines
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    DieWithParent(parent);
    dup2(ends[1], STDOUT_FILENO);
    const int status = body();
    std::fflush(stdout);
    _exit(status);
  }
  close(ends[1]);
  return ChildProcess(pid, UniqueFd(ends[0]));
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), output_(std::move(other.output_)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this != &other) {
    Kill();
    pid_ = std::exchange(other.pid_, -1);
    output_ = std::move(other.output_);
  }
  return *this;
}

ChildProcess::~ChildProcess() { Kill(); }

std::string ChildProcess::ReadLine() {
  std::string line;
  char c;
  for (;;) {
    pollfd ready{output_.get(), POLLIN, 0};
    if (poll(&ready, 1, kPatienceMs) != 1 || read(output_.get(), &c, 1) != 1) return {};
    if (c == '\n') return line;
    line.push_back(c);
  }
}

void ChildProcess::Signal(int signal) {
  if (pid_ > 0) kill(pid_, signal);
}

int ChildProcess::Wait() {
  if (pid_ <= 0) return -1;
  const int handle = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  pollfd ended{handle, POLLIN, 0};
  const bool done = poll(&ended, 1, kPatienceMs) == 1;
  close(handle);
  if (!done) return -1;
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void ChildProcess::Kill() {
  if (pid_ <= 0) return;
  Signal(SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

std::string ProgramPath(const std::string& name) {
  const char* folder = std::getenv("HYPERLOOP_BIN");
  return std::string(folder != nullptr ? folder : "build/bin") + "/" + name;
}

}  // namespace hyperloop::test
