#include "cluster/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>
#include <thread>

#include "cluster/patience.h"
#include "hyperloop/core/trusted_files.h"
#include "hyperloop/core/unique_fd.h"

namespace hyperloop::cluster {
namespace {

// Async-signal-safe, for use between fork and exec too.
bool ReadStat(pid_t pid, ProcessStat* stat) {
  char path[40];
  snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char text[1024];
  const ssize_t n = ::read(fd, text, sizeof text);
  ::close(fd);
  return n > 0 && ParseProcessStat({text, static_cast<size_t>(n)}, stat);
}

// Whether the process runs for this user. The owner of /proc/PID does not show that, because it is
// root for a program with file capabilities.
bool IsOurs(pid_t pid) {
  return ParseProcessUser(ReadProcessFile("/proc/" + std::to_string(pid) + "/status")) ==
         ::geteuid();
}

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id.empty() ? "unknown" : id;
}

// A handle that can never refer to another process. None, with errno ESRCH, when the process is
// gone.
UniqueFd OpenExactly(const ProcessId& id) {
  UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, id.pid, 0)));
  if (!fd) return fd;
  ProcessStat stat;
  if (id.boot != BootId() || !ReadStat(id.pid, &stat) || stat.start_time != id.start_time ||
      !IsOurs(id.pid)) {
    fd.Reset(-1);
    errno = ESRCH;
  }
  return fd;
}

std::string ReadOrNothing(const std::string& path, uint64_t from) {
  Result<std::string> text = ReadTrustedFile(path, from);
  return text.ok() ? *std::move(text) : std::string();
}

std::string TailOf(const std::string& path, uint64_t from) {
  std::istringstream file(ReadOrNothing(path, from));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  constexpr size_t kLines = 8;
  std::string text;
  for (size_t i = lines.size() > kLines ? lines.size() - kLines : 0; i < lines.size(); ++i) {
    text += "\n    " + lines[i];
  }
  return text.empty() ? " (it wrote nothing)" : text;
}

// Whether a thread of the process waits for a processor or its disk.
bool HasBusyThread(pid_t pid) {
  std::error_code gone;
  for (std::filesystem::directory_iterator thread("/proc/" + std::to_string(pid) + "/task", gone),
       end;
       !gone && thread != end; thread.increment(gone)) {
    ProcessStat stat;
    if (ParseProcessStat(ReadProcessFile(thread->path() / "stat"), &stat) &&
        (stat.state == 'R' || stat.state == 'D'))
      return true;
  }
  return false;
}

// A process that is waited for, looked at again and again.
class Watch {
 public:
  Watch(const ProcessId& id, std::chrono::milliseconds patience) : id_(id), patience_(patience) {}

  // How long to wait before the next look.
  int pause_ms() const { return looks_ < 200 ? 2 : 20; }
  // Looks at it; `written` grows with what it writes. False: it has done nothing for too long.
  bool GoOn(uint64_t written) {
    const auto now = Clock::now();
    ProcessStat stat;
    if (ReadStat(id_.pid, &stat)) {
      stopped_ = stat.state == 'T' || stat.state == 't';
      patience_.Look({stat.cpu_time + written, stopped_ || HasBusyThread(id_.pid)}, now - looked_);
    }
    looked_ = now;
    ++looks_;
    return !patience_.IsOver();
  }
  // Says, every ten seconds, that it is waited for until it `does`.
  void Say(const SayWaiting& say, const std::string& does) {
    if (!say || looked_ - said_ < std::chrono::seconds(10)) return;
    said_ = looked_;
    const std::string pid = std::to_string(id_.pid);
    say((stopped_ ? "process " + pid + " is stopped (kill -CONT " + pid + " lets it go on)"
                  : "process " + pid + " takes its time") +
        "; waiting until it " + does);
  }

 private:
  using Clock = std::chrono::steady_clock;
  const ProcessId id_;
  Patience patience_;
  Clock::time_point looked_ = Clock::now(), said_ = looked_;
  uint64_t looks_ = 0;
  bool stopped_ = false;
};

// The new process between fork and exec; it makes only async-signal-safe calls.
struct Child {
  const char* program;
  char* const* argv;
  const char* pid_file;
  const char* pid_file_temporary;
  const char* boot;
  int log = -1;
  int report = -1;  // errno is written there when a step fails
  bool die_with_caller = false;
  pid_t caller = 0;
  int cpu = -1;
  int network = -1;

  [[noreturn]] void Fail(int step) const {
    const int report_text[2] = {step, errno};
    [[maybe_unused]] const ssize_t n = ::write(report, report_text, sizeof report_text);
    ::_exit(127);
  }
  [[noreturn]] void Run() const {
    ::setsid();
    if (die_with_caller) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != caller) ::_exit(127);
    }
    ::umask(077);
    if (cpu >= 0) Bind();
    if (network >= 0 && ::setns(network, CLONE_NEWNET) != 0) Fail(5);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
    WritePidFile();
    const int null = ::open("/dev/null", O_RDONLY);
    if (null < 0 || ::dup2(null, 0) < 0 || ::dup2(log, 1) < 0 || ::dup2(log, 2) < 0) Fail(1);
    // All other descriptors are marked to close at exec, the report pipe included: its end of file
    // shows that exec succeeded.
    ::syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */);
    ::execv(program, argv);
    Fail(2);
  }
  void Bind() const {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (cpu < CPU_SETSIZE) CPU_SET(static_cast<size_t>(cpu), &set);
    if (::sched_setaffinity(0, sizeof set, &set) != 0) Fail(4);
  }
  void WritePidFile() const {
    ProcessStat stat;
    if (!ReadStat(::getpid(), &stat)) Fail(3);
    char text[128];
    const int n = snprintf(text, sizeof text, "%d %llu %s\n", static_cast<int>(::getpid()),
                           static_cast<unsigned long long>(stat.start_time), boot);
    ::unlink(pid_file_temporary);
    const int fd = ::open(pid_file_temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ::write(fd, text, static_cast<size_t>(n)) != n || ::close(fd) != 0 ||
        ::rename(pid_file_temporary, pid_file) != 0) {
      Fail(3);
    }
  }
};

}  // namespace

Result<ProcessId> IdentifyProcess(pid_t pid) {
  ProcessStat stat;
  if (!ReadStat(pid, &stat)) return NotFound("no process " + std::to_string(pid));
  return ProcessId{pid, stat.start_time, BootId()};
}

Result<ProcessId> ReadPidFile(const std::string& path) {
  const Result<std::string> text = ReadTrustedFile(path);
  if (!text.ok()) return text.status().WithContext("pid file");
  std::optional<ProcessId> id = ParsePidFile(*text);
  if (!id) return Corruption(path + " is not a pid file (\"PID START_TIME BOOT_ID\")");
  return *std::move(id);
}

ProcessState StateOf(const ProcessId& id) {
  ProcessStat stat;
  if (id.pid <= 1 || id.boot != BootId() || !ReadStat(id.pid, &stat) ||
      stat.start_time != id.start_time || !IsOurs(id.pid)) {
    return ProcessState::kDead;
  }
  // As long as other threads end, the process has its ports and locks.
  const bool ended = stat.state == 'Z' || stat.state == 'X';
  if (ended && stat.threads <= 1) return ProcessState::kDead;
  return stat.state == 'T' || stat.state == 't' ? ProcessState::kStopped : ProcessState::kRunning;
}

Result<ProcessId> Spawn(const SpawnOptions& options) {
  const std::string& program = options.argv.at(0);
  const Result<UniqueFd> log = OpenTrustedFile(options.log, O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (!log.ok()) return log.status().WithContext("log file");
  int pipe_ends[2];
  if (::pipe2(pipe_ends, O_CLOEXEC) != 0) return FromErrno(errno, "pipe");
  const UniqueFd report(pipe_ends[0]);
  UniqueFd report_child(pipe_ends[1]);

  std::vector<char*> argv;
  for (const std::string& argument : options.argv) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  const std::string boot = BootId();
  const std::string temporary = options.pid_file + ".new";
  const Child child{program.c_str(), argv.data(), options.pid_file.c_str(), temporary.c_str(),
                    boot.c_str(),    log->get(),  report_child.get(),       options.die_with_caller,
                    ::getpid(),      options.cpu, options.network};
  const pid_t pid = ::fork();
  if (pid < 0) return FromErrno(errno, "fork for " + program);
  if (pid == 0) child.Run();

  report_child.Reset(-1);
  int failure[2] = {0, 0};
  ssize_t n = 0;
  do {
    n = ::read(report.get(), failure, sizeof failure);
  } while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(sizeof failure)) {
    ::waitpid(pid, nullptr, 0);
    ::unlink(options.pid_file.c_str());
    static constexpr const char* kSteps[] = {"",
                                             "redirecting output of ",
                                             "executing ",
                                             "writing the pid file of ",
                                             "choosing the processor of ",
                                             "entering the network namespace of "};
    return FromErrno(failure[1], kSteps[failure[0]] + program);
  }
  return ReadPidFile(options.pid_file);
}

Status Signal(const ProcessId& id, int signal) {
  const UniqueFd fd = OpenExactly(id);
  if (fd && ::syscall(SYS_pidfd_send_signal, fd.get(), signal, nullptr, 0) == 0) {
    return Status::Ok();
  }
  if (errno == ESRCH) return Status::Ok();
  return FromErrno(errno,
                   "signal " + std::to_string(signal) + " to process " + std::to_string(id.pid));
}

bool WaitGone(const ProcessId& id, std::chrono::milliseconds patience, const SayWaiting& say,
              std::chrono::hours most) {
  const UniqueFd fd = OpenExactly(id);
  if (!fd) return true;
  pollfd entry{fd.get(), POLLIN, 0};
  Watch watch(id, patience);
  const auto end = std::chrono::steady_clock::now() + most;
  for (;;) {
    const int ready = ::poll(&entry, 1, watch.pause_ms());
    if (ready > 0) break;
    if (ready < 0 && errno != EINTR) return StateOf(id) == ProcessState::kDead;
    if (!watch.GoOn(0) || std::chrono::steady_clock::now() >= end) return false;
    watch.Say(say, "ends (kill -KILL " + std::to_string(id.pid) + " ends it at once)");
  }
  ::waitpid(id.pid, nullptr, WNOHANG);  // where it is a child of ours; harmless elsewhere
  return true;
}

Result<bool> Terminate(const ProcessId& id, std::chrono::milliseconds patience,
                       const SayWaiting& say) {
  HL_RETURN_IF_ERROR(Signal(id, SIGTERM));
  HL_RETURN_IF_ERROR(Signal(id, SIGCONT));  // a stopped process takes no SIGTERM
  if (WaitGone(id, patience, say, std::chrono::hours(1))) return false;
  HL_RETURN_IF_ERROR(Signal(id, SIGKILL));
  constexpr std::chrono::minutes kPatience{2};  // the kernel works for it, or its disk does
  if (WaitGone(id, kPatience, say)) return true;
  return TimedOut("process " + std::to_string(id.pid) +
                  " still exists after SIGKILL, and does nothing");
}

Result<std::string> AwaitLine(const std::string& file, uint64_t from, const std::string& prefix,
                              const ProcessId& writer, std::chrono::milliseconds patience,
                              const SayWaiting& say) {
  Watch watch(writer, patience);
  for (;;) {
    // The state is read before the file: a process that has ended writes no more.
    const bool dead = StateOf(writer) == ProcessState::kDead;
    const std::string text = ReadOrNothing(file, from);
    std::istringstream stream(text);
    std::string last;
    for (std::string line; std::getline(stream, line) && !stream.eof(); last = line) {
      if (line.starts_with(prefix)) return line;
    }
    if (dead) {
      return Unavailable("process " + std::to_string(writer.pid) + " ended before it was ready; " +
                         file + " says:" + TailOf(file, from));
    }
    if (!watch.GoOn(text.size())) {
      return TimedOut(
          "process " + std::to_string(writer.pid) + " is not ready, and has done nothing for " +
          std::to_string(patience.count()) + " ms; " + file + " says:" + TailOf(file, from));
    }
    watch.Say(say, "is ready" + (last.empty() ? "" : "; " + file + " says: " + last));
    std::this_thread::sleep_for(std::chrono::milliseconds(watch.pause_ms()));
  }
}

}  // namespace hyperloop::cluster
