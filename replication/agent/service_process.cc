#include "agent/service_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "hyperloop/core/text.h"

extern char** environ;

namespace hyperloop::agent {
namespace {

// "NAME=value" for each variable that the child gets.
std::vector<std::string> EnvironmentOf(const ServiceProcess::Command& command) {
  std::vector<std::string> out;
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    const std::string text = *each;
    const auto is = [&](const std::string& name) { return text.starts_with(name + "="); };
    if (std::ranges::none_of(command.environment, [&](const auto& pair) { return is(pair.first); }))
      out.push_back(text);
  }
  for (const auto& [name, value] : command.environment) out.push_back(Text(name, "=", value));
  return out;
}

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& each : words) out.push_back(each.data());
  out.push_back(nullptr);
  return out;
}

// The two ends of a pipe.
struct Pipe {
  UniqueFd read, write;
};
Result<Pipe> MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return FromErrno(errno, "pipe");
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// What the child needs between fork and execve, where it makes nothing but system calls.
struct Child {
  // Where the two have their places.
  static constexpr int kReport = STDERR_FILENO + 1, kGate = kReport + 1;
  pid_t parent;
  int gate;    // a byte comes once the watcher is there
  int report;  // takes the error of execve
  int output;  // becomes stdout and stderr; −1: they stay
  char* const* argv;
  char* const* variables;

  [[noreturn]] void Run() const {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    KeepOnlyOwn();
    char byte = 0;
    if (getppid() != parent || TEMP_FAILURE_RETRY(read(kGate, &byte, 1)) != 1) _exit(127);
    close(kGate);
    for (int each = 1; each < NSIG; ++each) signal(each, SIG_DFL);  // fails for some, as it should
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execve(argv[0], argv, variables);
    const int error = errno;
    [[maybe_unused]] const ssize_t written = write(kReport, &error, sizeof error);
    _exit(127);
  }

 private:
  void KeepOnlyOwn() const {
    // Out of each other's way.
    const int upper_report = fcntl(report, F_DUPFD, kGate + 1);
    const int upper_gate = fcntl(gate, F_DUPFD, kGate + 1);
    const int upper_output = output < 0 ? -1 : fcntl(output, F_DUPFD, kGate + 1);
    if (upper_report < 0 || upper_gate < 0) _exit(127);
    if (output >= 0) {
      dup2(upper_output, STDOUT_FILENO);
      dup2(upper_output, STDERR_FILENO);
    }
    const int null = open("/dev/null", O_RDONLY);
    if (null >= 0) dup2(null, STDIN_FILENO);
    dup2(upper_report, kReport);
    fcntl(kReport, F_SETFD, FD_CLOEXEC);
    dup2(upper_gate, kGate);
    syscall(SYS_close_range, kGate + 1, ~0u, 0);
  }
};

// The watcher, with nothing but system calls: it is forked from a program with several threads. It
// is itself in the group, whose number is nobody else's as long as it lives.
[[noreturn]] void WatchOver(pid_t group, int lifeline) {
  if (setpgid(0, group) != 0) _exit(127);
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  prctl(PR_SET_NAME, "hl-death-watch");
  dup2(lifeline, STDIN_FILENO);
  syscall(SYS_close_range, STDIN_FILENO + 1, ~0u, 0);
  char byte = 0;
  TEMP_FAILURE_RETRY(read(STDIN_FILENO, &byte, 1));
  kill(0, SIGKILL);
  _exit(0);
}

void Await(pid_t pid) {
  siginfo_t info{};
  if (pid > 0) TEMP_FAILURE_RETRY(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED));
}

bool HasEnded(pid_t pid) {
  siginfo_t info{};
  const int flags = WEXITED | WNOHANG | WNOWAIT;
  return TEMP_FAILURE_RETRY(waitid(P_PID, static_cast<id_t>(pid), &info, flags)) == 0 &&
         info.si_pid != 0;
}

std::string EndOf(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return Text("exit status ", info.si_status);
  return Text("signal ", info.si_status);
}

}  // namespace

// The watcher is in the group before the child executes anything.
Result<std::unique_ptr<ServiceProcess>> ServiceProcess::Start(const Command& command) {
  std::vector<std::string> arguments = command.argv, variables = EnvironmentOf(command);
  const std::vector<char*> argv = Pointers(arguments), envp = Pointers(variables);
  HL_ASSIGN_OR_RETURN(Pipe outcome, MakePipe());
  HL_ASSIGN_OR_RETURN(Pipe gate, MakePipe());
  const Child child{getpid(),       gate.read.get(), outcome.write.get(),
                    command.output, argv.data(),     envp.data()};
  const pid_t pid = fork();
  if (pid < 0) return FromErrno(errno, "starting " + command.argv[0]);
  if (pid == 0) child.Run();
  std::unique_ptr<ServiceProcess> process(new ServiceProcess(pid));
  setpgid(pid, pid);  // both do it, so that it is done whoever runs first
  process->pidfd_.Reset(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process->pidfd_) return FromErrno(errno, "pidfd_open");
  HL_RETURN_IF_ERROR(process->StartWatcher());
  outcome.write.Reset(-1);
  const char byte = 0;
  if (TEMP_FAILURE_RETRY(write(gate.write.get(), &byte, 1)) != 1)
    return FromErrno(errno, "starting " + command.argv[0]);
  int error = 0;
  if (TEMP_FAILURE_RETRY(read(outcome.read.get(), &error, sizeof error)) > 0)
    return FromErrno(error, "executing " + command.argv[0]);
  return process;
}

Status ServiceProcess::StartWatcher() {
  HL_ASSIGN_OR_RETURN(Pipe lifeline, MakePipe());
  watcher_ = fork();
  if (watcher_ < 0) return FromErrno(errno, "starting the service's watcher");
  if (watcher_ == 0) WatchOver(pid_, lifeline.read.get());
  if (setpgid(watcher_, pid_) != 0)
    return FromErrno(errno, "putting the watcher into the service's process group");
  lifeline_ = std::move(lifeline.write);
  return {};
}

ServiceProcess::~ServiceProcess() {
  if (end_.has_value()) return;
  Kill();
  ReapAll();
}

void ServiceProcess::ReapAll() {
  Await(pid_);
  if (watcher_ > 0) kill(watcher_, SIGKILL);  // where it never came into the group
  Await(watcher_);
}

void ServiceProcess::Terminate() const {
  if (end_.has_value()) return;
  kill(pid_, SIGTERM);
  kill(pid_, SIGCONT);
}

void ServiceProcess::Kill() const {
  if (end_.has_value()) return;
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);  // where it has left the group
}

// As long as the child was not waited for, its number is its own, and so is that of the group.
std::optional<std::string> ServiceProcess::Reap() {
  if (end_.has_value()) return end_;
  if (HasEnded(watcher_)) Kill();
  if (!HasEnded(pid_)) return std::nullopt;
  Kill();
  siginfo_t info{};
  TEMP_FAILURE_RETRY(waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT));
  end_ = EndOf(info);
  ReapAll();
  return end_;
}

}  // namespace hyperloop::agent
