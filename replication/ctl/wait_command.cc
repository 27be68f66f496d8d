// hyperloopctl wait
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/printable.h"
#include "ctl/command.h"
#include "ctl/nodes.h"
#include "ctl/reading.h"
#include "ctl/repeat.h"
#include "ctl/standing.h"
#include "hyperloop/core/text.h"

namespace hyperloop::ctl {
namespace {

constexpr std::chrono::seconds kLookInterval{1}, kReportInterval{5};

struct WaitOptions {
  Where where;
  bool whole = false;
  uint32_t members = 0;
  uint32_t timeout = 0;  // seconds; 0: for ever
};

struct Progress {
  size_t whole = 0, of = 0;  // replicas
  bool done = false;
  std::string others;  // which replicas are not whole, and why
};

std::string WhyNotWhole(const Standing& standing) {
  if (!standing.place->silent.ok()) return "does not answer";
  if (standing.place->state != ProcessState::kRunning)
    return Text("is ", ProcessStateName(standing.place->state));
  if (standing.status == nullptr) return "cannot be looked at, or its region is being filled";
  if (!standing.member) return "is no member of the group";
  return LackText(standing);
}

Result<Progress> LookOnce(const WaitOptions& options) {
  HL_ASSIGN_OR_RETURN(Nodes nodes, Nodes::Find(options.where));
  std::vector<NodeStatus> read(nodes.replicas().size());
  std::vector<const NodeStatus*> statuses;
  for (Result<NodeStatus>& status : ReadAtOnce(nodes.ViewAll())) {
    NodeStatus& here = read[statuses.size()];
    if (status.ok()) here = std::move(*status);
    statuses.push_back(status.ok() ? &here : nullptr);
  }
  Progress progress;
  for (const Standing& each : StandingsOf(nodes, statuses)) {
    ++progress.of;
    if (each.whole()) {
      ++progress.whole;
      continue;
    }
    progress.others += Text("; ", each.place->name, " ", each.place->listen, " ",
                            Printable(WhyNotWhole(each), 1024));
  }
  const NodeStatus* const newest = NewestOf(statuses);
  if (newest != nullptr)
    progress.of = std::max(progress.of, newest->replicas.size() + newest->absent.size());
  progress.done = newest != nullptr &&
                  progress.whole >= (options.whole ? progress.of : size_t{options.members});
  return progress;
}

std::string TextOf(const Result<Progress>& progress) {
  if (!progress.ok()) return Printable(progress.status().message(), 4096);
  return Text(progress->whole, " of ", progress->of, " replicas are whole", progress->others);
}

// Says how it stands when that has changed, but for what one replica still lacks, which it says now
// and then.
class Reporter {
 public:
  void Say(const Result<Progress>& progress, bool last) {
    const std::string text = TextOf(progress);
    const auto now = std::chrono::steady_clock::now();
    const size_t whole = progress.ok() ? progress->whole : 0;
    if (text == said_ || (!last && whole == whole_ && now < next_)) return;
    std::printf("%s  %s\n", TimeNow().c_str(), text.c_str());
    std::fflush(stdout);
    said_ = text;
    whole_ = whole;
    next_ = now + kReportInterval;
  }

 private:
  std::string said_;
  size_t whole_ = SIZE_MAX;
  std::chrono::steady_clock::time_point next_{};
};

int Run(const WaitOptions& options) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(options.timeout);
  Reporter reporter;
  while (true) {
    const Result<Progress> progress = LookOnce(options);
    if (progress.status().code() == Code::kInvalidArgument) return Fail(progress.status());
    const bool done = progress.ok() && progress->done;
    const bool late = options.timeout != 0 && std::chrono::steady_clock::now() >= until;
    reporter.Say(progress, done || late);
    if (done) return kExitOk;
    if (late) return Fail(TimedOut(Text("after ", options.timeout, " s: ", TextOf(progress))));
    std::this_thread::sleep_for(kLookInterval);
  }
}

}  // namespace

void AddWait(CLI::App& app, Action* chosen) {
  auto options = std::make_shared<WaitOptions>();
  CLI::App* wait = app.add_subcommand(
      "wait",
      "wait until replicas are whole: members of the group that run and hold all of its files, so "
      "that another one may be taken away; shows meanwhile which are not, and why; disturbs "
      "nobody");
  AddWhere(wait, &options->where);
  CLI::Option_group* const goal = wait->add_option_group("goal", "for how many");
  goal->add_flag("--whole", options->whole,
                 "until all replicas that the group has, and all that are listed, are whole");
  goal->add_option("--members", options->members, "until so many replicas are whole")
      ->check(CLI::Range(1u, 64u))
      ->type_name("N");
  goal->require_option(1);
  wait->add_option("--timeout", options->timeout,
                   "how many seconds to wait at most, with exit status 1 then; left out: for ever")
      ->check(CLI::Range(1u, 31536000u))
      ->type_name("SECONDS");
  wait->callback([=] { *chosen = [=] { return Run(*options); }; });
}

}  // namespace hyperloop::ctl
