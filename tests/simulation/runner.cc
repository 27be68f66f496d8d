#include "simulation/runner.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string_view>
#include <thread>

#include "hyperloop/core/log.h"
#include "hyperloop/core/unique_fd.h"
#include "simulation/scheduler.h"

// Of gcov: writes which lines have run. Null in other builds.
extern "C" void __gcov_dump() __attribute__((weak));  // NOLINT(bugprone-reserved-identifier)

namespace hyperloop::simulation {
namespace {

constexpr size_t kMostText = 1000;

// Of the real clock, for a run that hangs without computing. Other processes may take most of the
// processors meanwhile.
unsigned RealPatience(const RunnerOptions& options) { return std::max(60U, 10 * options.patience); }

void Remove(const std::string& folder) {
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

// What the process of a run writes into its pipe.
struct Message {
  uint64_t acknowledged, faults, trace, nanoseconds;
  char wrong[kMostText];
};

struct Child {
  uint64_t seed = 0;
  int pipe = -1;
  std::string folder;
};

// Prints without a look at the clock or a lock, so that a run with it is the same as without.
class PrintingLog final : public Log {
 public:
  void Write(LogLevel, std::string_view text) override {
    std::fprintf(stderr, "%12.6f %.*s\n", static_cast<double>(Scheduler::Get().Now()) / 1e9,
                 static_cast<int>(text.size()), text.data());
  }
};

[[noreturn]] void GiveUp(const std::string& what) {
  std::perror(what.c_str());
  std::exit(2);
}

// Where runs make their folders. All of it is removed when this process and its runs have ended,
// however they ended: by a process of its own, which waits for that.
class SharedFolder {
 public:
  explicit SharedFolder(const std::string& parent) : path_(parent + "/hyperloop-simulate-XXXXXX") {
    int ends[2];
    if (mkdtemp(path_.data()) == nullptr || pipe2(ends, O_CLOEXEC) != 0) GiveUp(path_);
    sweeper_ = fork();
    if (sweeper_ == 0) {
      close(ends[1]);
      SweepAfter(ends[0]);
    }
    if (sweeper_ < 0) GiveUp("fork");
    close(ends[0]);
    ours_.Reset(ends[1]);
  }
  ~SharedFolder() {
    ours_.Reset(-1);
    waitpid(sweeper_, nullptr, 0);
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  // Nobody writes into this pipe. Its other end is closed when the last one that has it has ended.
  [[noreturn]] void SweepAfter(int pipe) const {
    setsid();  // what a terminal ends, it would end as well
    char nothing = 0;
    while (read(pipe, &nothing, 1) < 0 && errno == EINTR) {
    }
    Remove(path_);
    _exit(0);
  }

  std::string path_;
  UniqueFd ours_;
  pid_t sweeper_ = -1;
};

// Whatever the run does, it ends: with its parent, or when it has used up the patience.
void LimitRun(pid_t parent, const RunnerOptions& options) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  rlimit processor{};
  getrlimit(RLIMIT_CPU, &processor);
  processor.rlim_cur = std::min<rlim_t>(options.patience, processor.rlim_max);
  setrlimit(RLIMIT_CPU, &processor);
  alarm(RealPatience(options));
}

[[noreturn]] void RunHere(const Child& child, int pipe, const RunnerOptions& options) {
  // Addresses follow from the seed, too, as far as anything depends on them. So the run gets memory
  // that no other one has used, by a thread of its own.
  Outcome outcome;
  std::thread([&] {
    outcome = options.run(child.seed, child.folder,
                          options.verbose ? std::make_shared<PrintingLog>() : nullptr);
  }).join();
  Message message{outcome.acknowledged, outcome.faults, outcome.trace, outcome.nanoseconds, {}};
  outcome.wrong.copy(message.wrong, kMostText - 1);
  const bool written = write(pipe, &message, sizeof message) == sizeof message;
  if (__gcov_dump != nullptr) __gcov_dump();
  _exit(written ? 0 : 1);
}

class Runner {
 public:
  explicit Runner(const RunnerOptions& options) : options_(options), folder_(options.folder) {}

  void Begin(uint64_t seed) {
    Child child{seed, -1, folder_.path() + "/" + std::to_string(seed)};
    int ends[2];
    if (mkdir(child.folder.c_str(), 0700) != 0 || pipe2(ends, O_CLOEXEC) != 0) GiveUp(child.folder);
    child.pipe = ends[0];
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
      LimitRun(parent, options_);
      RunHere(child, ends[1], options_);
    }
    close(ends[1]);
    if (pid < 0) GiveUp("fork");
    children_[pid] = std::move(child);
  }
  size_t running() const { return children_.size(); }
  Report AwaitOne() {
    int status = 0;
    auto found = children_.end();
    while (found == children_.end()) {
      const pid_t pid = wait(&status);
      if (pid < 0 && errno != EINTR) GiveUp("wait");
      found = children_.find(pid);
    }
    Report report = ReportOf(found->second, status);
    close(found->second.pipe);
    Remove(found->second.folder);
    children_.erase(found);
    return report;
  }

 private:
  Report ReportOf(const Child& child, int status) const {
    Report report{child.seed, {}, ""};
    Message message;
    if (read(child.pipe, &message, sizeof message) == sizeof message) {
      report.outcome = {message.wrong, message.acknowledged, message.faults, message.trace,
                        message.nanoseconds};
    } else if (WIFSIGNALED(status)) {
      report.ended = EndedBy(WTERMSIG(status));
    } else {
      report.ended = "the run ended with status " + std::to_string(WEXITSTATUS(status));
    }
    return report;
  }

  std::string EndedBy(int signal) const {
    if (signal == SIGXCPU)
      return "the run took more than " + std::to_string(options_.patience) + " s of a processor";
    if (signal == SIGALRM)
      return "the run took more than " + std::to_string(RealPatience(options_)) + " s";
    return std::string("the run was ended by ") + strsignal(signal);
  }

  const RunnerOptions& options_;
  const SharedFolder folder_;
  std::map<pid_t, Child> children_;
};

}  // namespace

void RunSeeds(const std::vector<SeedRange>& seeds, const RunnerOptions& options,
              const std::function<bool(const Report&)>& report) {
  Runner runner(options);
  bool more = true;
  std::map<uint64_t, uint64_t> traces;  // of seeds that run a second time
  const auto await = [&] {
    Report ended = runner.AwaitOne();
    const auto before = traces.find(ended.seed);
    if (options.twice && before == traces.end() && ended.wrong().empty()) {
      traces[ended.seed] = ended.outcome.trace;
      return runner.Begin(ended.seed);
    }
    if (before != traces.end() && before->second != ended.outcome.trace)
      ended.ended = "two runs of this seed differ";
    more = report(ended) && more;
  };
  for (const SeedRange& range : seeds) {
    for (uint64_t seed = range.first;; ++seed) {
      while (runner.running() >= options.jobs) await();
      if (!more) break;
      runner.Begin(seed);
      if (seed == range.last) break;
    }
  }
  while (runner.running() != 0) await();
}

}  // namespace hyperloop::simulation
