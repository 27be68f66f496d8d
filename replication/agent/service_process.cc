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
    if (std::ranges::none_of(command.without, is) &&
        std::ranges::none_of(command.environment, [&](const auto& pair) { return is(pair.first); }))
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

// In the child, between fork and execve: nothing but system calls. Returns the error of execve.
int Execute(pid_t parent, int report, char* const* argv, char* const* variables) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null >= 0) dup2(null, STDIN_FILENO);
  dup2(report, STDERR_FILENO + 1);
  fcntl(STDERR_FILENO + 1, F_SETFD, FD_CLOEXEC);
  syscall(SYS_close_range, STDERR_FILENO + 2, ~0u, CLOSE_RANGE_CLOEXEC);
  for (int each = 1; each < NSIG; ++each) signal(each, SIG_DFL);  // fails for some, as it should
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(argv[0], argv, variables);
  return errno;
}

std::string EndOf(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return Text("exit status ", info.si_status);
  return Text("signal ", info.si_status);
}

}  // namespace

Result<std::unique_ptr<ServiceProcess>> ServiceProcess::Start(const Command& command) {
  std::vector<std::string> arguments = command.argv, variables = EnvironmentOf(command);
  const std::vector<char*> argv = Pointers(arguments), envp = Pointers(variables);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return FromErrno(errno, "pipe");
  const UniqueFd outcome(ends[0]);
  UniqueFd report(ends[1]);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return FromErrno(errno, "starting " + command.argv[0]);
  if (pid == 0) {
    const int error = Execute(parent, report.get(), argv.data(), envp.data());
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO + 1, &error, sizeof error);
    _exit(127);
  }
  setpgid(pid, pid);  // both do it, so that it is done whoever runs first
  report.Reset(-1);
  UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  const int pidfd_error = errno;
  int error = 0;
  const bool failed = TEMP_FAILURE_RETRY(read(outcome.get(), &error, sizeof error)) > 0;
  std::unique_ptr<ServiceProcess> process(new ServiceProcess(pid, std::move(pidfd)));
  if (failed) return FromErrno(error, "executing " + command.argv[0]);
  if (!process->pidfd_) return FromErrno(pidfd_error, "pidfd_open");
  return process;
}

ServiceProcess::~ServiceProcess() {
  if (end_.has_value()) return;
  Kill();
  siginfo_t info{};
  TEMP_FAILURE_RETRY(waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED));
}

void ServiceProcess::Terminate() const {
  if (end_.has_value()) return;
  kill(pid_, SIGTERM);
  kill(pid_, SIGCONT);
}

void ServiceProcess::Kill() const {
  if (!end_.has_value()) kill(-pid_, SIGKILL);
}

// As long as the child was not waited for, its number is its own, and so is that of the group.
std::optional<std::string> ServiceProcess::Reap() {
  if (end_.has_value()) return end_;
  siginfo_t info{};
  const auto id = static_cast<id_t>(pid_);
  if (TEMP_FAILURE_RETRY(waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT)) != 0 ||
      info.si_pid == 0)
    return std::nullopt;
  Kill();
  TEMP_FAILURE_RETRY(waitid(P_PID, id, &info, WEXITED));
  end_ = EndOf(info);
  return end_;
}

}  // namespace hyperloop::agent
