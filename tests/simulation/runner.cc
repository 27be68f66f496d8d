#include "simulation/runner.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string_view>
#include <thread>

#include "hyperloop/core/log.h"
#include "simulation/scheduler.h"

// Of gcov: writes which lines have run. Null in other builds.
extern "C" void __gcov_dump() __attribute__((weak));  // NOLINT(bugprone-reserved-identifier)

namespace hyperloop::simulation {
namespace {

constexpr size_t kMostText = 1000;

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

// A run has one thread of the kernel that works.
void StayOnOneProcessor(uint64_t number) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  uint64_t skip = number % static_cast<uint64_t>(CPU_COUNT(&allowed));
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || skip-- != 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

[[noreturn]] void RunHere(const Child& child, int pipe, const RunnerOptions& options) {
  StayOnOneProcessor(child.seed);
  alarm(options.patience);
  // Addresses follow from the seed, too, as far as anything depends on them. So the run gets memory
  // that no other one has used, by a thread of its own.
  Outcome outcome;
  std::thread([&] {
    outcome =
        Run(child.seed, child.folder, options.verbose ? std::make_shared<PrintingLog>() : nullptr);
  }).join();
  Message message{outcome.acknowledged, outcome.faults, outcome.trace, outcome.nanoseconds, {}};
  outcome.wrong.copy(message.wrong, kMostText - 1);
  const bool written = write(pipe, &message, sizeof message) == sizeof message;
  if (__gcov_dump != nullptr) __gcov_dump();
  _exit(written ? 0 : 1);
}

class Runner {
 public:
  explicit Runner(const RunnerOptions& options) : options_(options) {}

  void Begin(uint64_t seed) {
    Child child{seed, -1, options_.folder + "/hyperloop-simulate-XXXXXX"};
    int ends[2];
    if (mkdtemp(child.folder.data()) == nullptr || pipe2(ends, O_CLOEXEC) != 0) {
      std::perror(child.folder.c_str());
      std::exit(2);
    }
    child.pipe = ends[0];
    const pid_t pid = fork();
    if (pid == 0) RunHere(child, ends[1], options_);
    close(ends[1]);
    if (pid < 0) {
      std::perror("fork");
      std::exit(2);
    }
    children_[pid] = std::move(child);
  }
  size_t running() const { return children_.size(); }
  Report AwaitOne() {
    int status = 0;
    const pid_t pid = wait(&status);
    const auto found = children_.find(pid);
    Report report = ReportOf(found->second, status);
    close(found->second.pipe);
    std::error_code ignored;
    std::filesystem::remove_all(found->second.folder, ignored);
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
      report.ended = std::string("the run was ended by ") + strsignal(WTERMSIG(status));
      if (WTERMSIG(status) == SIGALRM)
        report.ended += ": it took more than " + std::to_string(options_.patience) + " s";
    } else {
      report.ended = "the run ended with status " + std::to_string(WEXITSTATUS(status));
    }
    return report;
  }

  const RunnerOptions& options_;
  std::map<pid_t, Child> children_;
};

}  // namespace

void RunSeeds(uint64_t first, uint64_t last, const RunnerOptions& options,
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
  for (uint64_t seed = first;; ++seed) {
    while (runner.running() >= options.jobs) await();
    if (!more) break;
    runner.Begin(seed);
    if (seed == last) break;
  }
  while (runner.running() != 0) await();
}

}  // namespace hyperloop::simulation
