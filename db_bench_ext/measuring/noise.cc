#include "measuring/noise.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

#include "measuring/cpu_time.h"

namespace hyperloop::bench {
namespace {

// Between fork and exec: async-signal-safe calls only. Writes errno to `report` when it fails.
[[noreturn]] void BecomeStress(int cpu, int report, pid_t caller) {
  ::setsid();  // the terminal's Ctrl-C is this program's; the destructor ends stress-ng
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != caller) ::_exit(127);
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  const int null = ::open("/dev/null", O_RDWR);
  if (null >= 0 && ::dup2(null, 0) >= 0 && ::dup2(null, 1) >= 0 && ::dup2(null, 2) >= 0 &&
      ::sched_setaffinity(0, sizeof set, &set) == 0) {
    ::execlp("stress-ng", "stress-ng", "--quiet", "--matrix", "1",
             static_cast<const char*>(nullptr));
  }
  const int error = errno;
  [[maybe_unused]] const ssize_t n = ::write(report, &error, sizeof error);
  ::_exit(127);
}

bool Ended(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
         info.si_pid != 0;
}

}  // namespace

Result<std::unique_ptr<Noise>> Noise::Start(int cpu, uint32_t workers) {
  std::unique_ptr<Noise> noise(new Noise);
  for (uint32_t i = 0; i < workers; ++i) HL_RETURN_IF_ERROR(noise->Add(cpu));
  HL_RETURN_IF_ERROR(noise->AwaitWorkers());
  return noise;
}

Status Noise::Add(int cpu) {
  std::array<int, 2> report{};
  if (::pipe2(report.data(), O_CLOEXEC) != 0) return FromErrno(errno, "pipe");
  const pid_t caller = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) BecomeStress(cpu, report[1], caller);
  ::close(report[1]);
  int error = pid < 0 ? errno : 0;
  if (pid > 0) {
    while (::read(report[0], &error, sizeof error) < 0 && errno == EINTR) {
    }
  }
  ::close(report[0]);
  if (pid > 0 && error != 0) ::waitpid(pid, nullptr, 0);
  if (error == ENOENT) {
    return NotFound("stress-ng is not in PATH, and noise needs it: install package stress-ng");
  }
  if (error != 0) return FromErrno(error, "starting stress-ng");
  pids_.push_back(pid);
  return Status::Ok();
}

Status Noise::AwaitWorkers() const {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  for (const pid_t pid : pids_) {
    while (Descendants(pid) == 0) {
      if (Ended(pid)) return Unavailable("stress-ng ended at once; try: stress-ng --matrix 1 -t 1");
      if (std::chrono::steady_clock::now() > deadline) {
        return TimedOut("stress-ng did not start its worker within 30 s");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  return Status::Ok();
}

Noise::~Noise() {
  for (const pid_t pid : pids_) ::kill(pid, SIGTERM);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (const pid_t pid : pids_) {
    while (!Ended(pid) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ::kill(-pid,
           SIGKILL);  // for a worker that ignored SIGTERM: it is in its parent's process group
    ::waitpid(pid, nullptr, 0);
  }
}

Result<double> Noise::CpuSeconds() const {
  double sum = 0;
  for (const pid_t pid : pids_) {
    if (Ended(pid)) return Unavailable("stress-ng ended before the measurement did");
    HL_ASSIGN_OR_RETURN(const double used, CpuSecondsOfTree(pid));
    sum += used;
  }
  return sum;
}

}  // namespace hyperloop::bench
