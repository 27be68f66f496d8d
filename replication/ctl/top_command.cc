// hyperloopctl top
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <optional>

#include "common/heartbeat_word.h"
#include "common/printable.h"
#include "ctl/acknowledgement_times.h"
#include "ctl/command.h"
#include "ctl/nodes.h"
#include "ctl/reading.h"
#include "ctl/repeat.h"
#include "hyperloop/replication/options.h"
#include "primary/asking.h"

namespace hyperloop::ctl {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMostPage = 1u << 20;

struct TopOptions {
  Where where;
  double interval = 2;
  std::string metrics_file;
};

// One node at one moment. The primary itself has counters only.
struct Sample {
  Clock::time_point at{};
  Status error;  // why `status` is empty
  NodeStatus status;
  std::optional<rnic::Counters> counters;
};
using Samples = std::map<std::string, Sample>;  // by name

std::string Short(const std::string& text) { return Printable(text, 256); }

// "1234567" → "1.23M": four characters or five.
std::string Short(double number) {
  constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P"};
  size_t unit = 0;
  while (number >= 1000 && unit + 1 < std::size(kUnits)) {
    number /= 1000;
    ++unit;
  }
  char text[32];
  const bool whole = unit == 0 || number >= 100;
  std::snprintf(text, sizeof text, whole ? "%.0f%s" : "%.3g%s", number, kUnits[unit]);
  return text;
}

std::string Percent(uint64_t part, uint64_t whole) {
  if (whole == 0) return "-";
  return Short(100 * static_cast<double>(part) / static_cast<double>(whole)) + "%";
}

std::string Duration(double seconds) {
  if (std::isinf(seconds)) return "over 8 s";
  if (seconds < 1e-3) return Short(seconds * 1e6) + " us";
  return seconds < 1 ? Short(seconds * 1e3) + " ms" : Short(seconds) + " s";
}

// How fast a number grew between two samples of one node; "-" if that is not known, or it fell
// because it began anew.
class Rates {
 public:
  Rates(const Sample* before, const Sample& now) : before_(before), now_(now) {
    if (before != nullptr) seconds_ = std::chrono::duration<double>(now.at - before->at).count();
  }
  std::string Of(uint64_t NodeStatus::*number) const {
    const bool known = before_ != nullptr && before_->error.ok() && now_.error.ok() &&
                       before_->status.formatted && now_.status.formatted;
    return known ? Grown(before_->status.*number, now_.status.*number) : "-";
  }
  std::string Of(const char* counter) const {
    if (before_ == nullptr || !before_->counters || !now_.counters) return "-";
    const auto before = before_->counters->find(counter), now = now_.counters->find(counter);
    if (before == before_->counters->end() || now == now_.counters->end()) return "-";
    return Grown(before->second, now->second);
  }

 private:
  std::string Grown(uint64_t before, uint64_t now) const {
    if (seconds_ <= 0 || now < before) return "-";
    return Short(static_cast<double>(now - before) / seconds_);
  }

  const Sample* const before_;
  const Sample& now_;
  double seconds_ = 0;
};

Sample SampleOf(const Nodes& nodes, const NodePlace& place, const FoundView& view) {
  Sample sample;
  Result<NodeStatus> status = view.ok() ? (*view)->ReadStatus() : Result<NodeStatus>(view.status());
  sample.at = Clock::now();
  sample.error = status.status();
  if (status.ok()) sample.status = std::move(*status);
  if (place.silent.ok()) {
    Result<HostCounters> counted = nodes.CountersOf(place.host);
    if (counted.ok()) sample.counters = std::move(counted->counters);
  }
  return sample;
}

class Top {
 public:
  explicit Top(const TopOptions& options) : options_(options) {}

  int Show() {
    Result<Nodes> nodes = Nodes::Find(options_.where);
    if (!nodes.ok()) return Fail(nodes.status());
    Samples now;
    const std::vector<FoundView> views = nodes->ViewAll();
    std::vector<Sample> samples = AtOnce(
        views.size(), [&](size_t i) { return SampleOf(*nodes, nodes->replicas()[i], views[i]); });
    for (size_t i = 0; i < samples.size(); ++i)
      now[nodes->replicas()[i].name] = std::move(samples[i]);
    Sample primary{Clock::now(), NotFound("it is read nowhere"), {}, {}};
    if (Result<HostCounters> counted = nodes->CountersOf(PrimaryHost(*nodes)); counted.ok())
      primary.counters = std::move(counted->counters);
    now["primary"] = std::move(primary);
    PrintHead(*nodes, now);
    std::printf("%-22s %-8s %9s %12s %7s %7s %6s %6s %7s %7s %7s\n", "NODE", "PROCESS", "HEARTBEAT",
                "SEQUENCE", "REC/S", "B/S", "RING", "DATA", "WQE/S", "FLUSH/S", "ERR/S");
    PrintCounters("primary", now["primary"], std::string(61, ' '));
    for (const NodePlace& place : nodes->replicas()) PrintReplica(place, now);
    PrintUncounted(*nodes, now);
    before_ = std::move(now);
    return kExitOk;
  }

 private:
  const Sample* Before(const std::string& name) const {
    const auto found = before_.find(name);
    return found == before_.end() ? nullptr : &found->second;
  }

  // The host that the URI names, unless that is a replica's: then the primary's is elsewhere.
  static std::string PrimaryHost(const Nodes& nodes) {
    const std::string host = nodes.CountingHosts().front();
    const auto is_its = [&](const NodePlace& place) { return place.host == host; };
    return std::ranges::any_of(nodes.replicas(), is_its) ? "" : host;
  }

  // Each machine's daemon counts what its own hosts do.
  static void PrintUncounted(const Nodes& nodes, const Samples& now) {
    std::string names;
    for (const NodePlace& place : nodes.replicas())
      if (place.socket.empty() && !now.at(place.name).counters.has_value())
        names += ", " + Short(place.name);
    if (names.empty()) return;
    if (!now.at("primary").counters.has_value()) names = ", primary" + names;
    std::printf(
        "RNICs not shown: %s: this machine's daemon does not serve them. hyperloopctl "
        "counters on their machines, or --metrics of the daemons there, shows them\n",
        names.c_str() + 2);
  }

  // The file that the URI or the command line names.
  void ReadTimes(const Nodes& nodes, const std::string& group) {
    StoreOptions store;
    std::string path = options_.metrics_file;
    if (path.empty() && ParseStoreUri(nodes.uri(), &store).ok()) path = store.metrics_file;
    if (path.empty()) return;
    std::string page(kMostPage, '\0');
    std::ifstream file(path, std::ios::binary);
    file.read(page.data(), static_cast<std::streamsize>(page.size()));
    page.resize(static_cast<size_t>(file.gcount()));
    times_.Read(page, group);
  }

  void PrintHead(const Nodes& nodes, const Samples& now) {
    const Sample* newest = nullptr;
    for (const auto& [name, sample] : now) {
      const bool newer =
          newest == nullptr || sample.status.sealed_epoch > newest->status.sealed_epoch;
      if (sample.error.ok() && newer) newest = &sample;
    }
    std::printf("%s", TimeNow().c_str());
    if (newest == nullptr || newest->status.sealed_epoch == 0) {
      std::printf("  %s\n", newest == nullptr ? "no replica can be read" : "never taken");
      return;
    }
    const NodeStatus& status = newest->status;
    std::printf("  group %s  epoch %llu  owner %s%s\n", Short(status.group).c_str(),
                static_cast<unsigned long long>(status.sealed_epoch),
                Short(status.owner_name.empty() ? status.owner : status.owner_name).c_str(),
                status.released ? " (closed)" : "");
    for (const std::string& absent : status.absent)
      std::printf("SHRUNKEN: goes on without %s\n", Short(absent).c_str());
    ReadTimes(nodes, status.group);
    const std::optional<double> half = times_.Quantile(0.5), most = times_.Quantile(0.99);
    if (half.has_value() && most.has_value()) {
      std::printf("acknowledged within %s (half), %s (99 of 100)\n", Duration(*half).c_str(),
                  Duration(*most).c_str());
    } else {
      std::printf("acknowledged within -\n");
    }
  }

  void PrintCounters(const std::string& name, const Sample& sample, const std::string& middle) {
    const Rates rates(Before(name), sample);
    std::printf("%-22s %s %7s %7s %7s\n", name.c_str(), middle.c_str(),
                rates.Of("wqes_executed").c_str(), rates.Of("read_responses_nonzero").c_str(),
                rates.Of("error_cqes").c_str());
  }

  void PrintReplica(const NodePlace& place, const Samples& now) {
    const Sample& sample = now.at(place.name);
    const std::string process(place.silent.ok() ? ProcessStateName(place.state) : "silent");
    if (!sample.error.ok()) {
      std::printf("%-22s %-8s %s\n", place.name.c_str(), process.c_str(),
                  Printable(sample.error.message(), 4096).c_str());
      return;
    }
    const NodeStatus& status = sample.status;
    const Sample* const before = Before(place.name);
    const Rates rates(before, sample);
    char middle[160];
    std::snprintf(
        middle, sizeof middle, "%-8s %9s %12llu %7s %7s %6s %6s", process.c_str(),
        HeartbeatText(before, sample).c_str(), static_cast<unsigned long long>(status.last_seq),
        rates.Of(&NodeStatus::last_seq).c_str(), rates.Of(&NodeStatus::tail_position).c_str(),
        Percent(status.tail_position - status.head_position, status.journal_size).c_str(),
        Percent(status.extents_used, status.extents).c_str());
    PrintCounters(place.name, sample, middle);
  }

  // "moves", or since when it stands still by its writer's clock.
  static std::string HeartbeatText(const Sample* before, const Sample& now) {
    if (now.status.released) return "closed";
    if (now.status.sealed_epoch == 0) return "-";
    if (before == nullptr) return "?";
    if (before->status.heartbeat != now.status.heartbeat) return "moves";
    return HeartbeatTime(now.status.heartbeat).substr(11);  // the time of the day
  }

  const TopOptions options_;
  Samples before_;
  AcknowledgementTimes times_;
};

int Run(const TopOptions& options) {
  Top top(options);
  return Repeat(std::chrono::duration<double>(options.interval), /*give_up=*/true,
                [&] { return top.Show(); });
}

}  // namespace

void AddTop(CLI::App& app, Action* chosen) {
  auto options = std::make_shared<TopOptions>();
  CLI::App* top = app.add_subcommand(
      "top",
      "show again and again, until Ctrl-C, how fast the group's log grows, how full ring and data "
      "area are, and what the RNICs do; disturbs nobody");
  AddWhere(top, &options->where);
  top->add_option("--interval", options->interval, "seconds between two looks")
      ->capture_default_str()
      ->check(CLI::Range(kShortestInterval, kLongestInterval))
      ->type_name("SECONDS");
  top->add_option("--metrics-file", options->metrics_file,
                  "the file that the primary writes (option metrics_file), from which the times of "
                  "acknowledgements are taken; default: the URI's")
      ->type_name("FILE");
  top->callback([=] { *chosen = [=] { return Run(*options); }; });
}

}  // namespace hyperloop::ctl
