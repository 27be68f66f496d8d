#include "agent/pages.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "agent/machine.h"
#include "hyperloop/core/text.h"
#include "hyperloop/core/trusted_files.h"

namespace hyperloop::agent {
namespace {

using Json = nlohmann::ordered_json;
using metrics::Answer;

// A look takes far less.
constexpr std::chrono::minutes kCheckedStale{5};

std::string Dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// The machine's state is that of its last call, and a lease ends by the clock.
std::string StateAt(const Picture& picture, Picture::Time now) {
  if (!picture.primary || IsPrimary(picture, now)) return picture.state;
  return std::string(StateName(State::kTaking));
}

bool IsSeen(const Picture& picture, Picture::Time now, std::chrono::nanoseconds stale) {
  return picture.seen.has_value() && now - *picture.seen < stale;
}

double Seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

Json Brief(const Picture& picture, Picture::Time now) {
  return {{"node", picture.node},
          {"state", StateAt(picture, now)},
          {"primary", IsPrimary(picture, now)},
          {"epoch", picture.epoch},
          {"why", picture.why}};
}

Json Whole(const Picture& picture, Picture::Time now) {
  Json json = Brief(picture, now);
  json["group"] = picture.group;
  json["owner"] = picture.owner;
  json["owner_node"] = picture.owner_node;
  json["released"] = picture.released;
  json["directive"] = picture.directive;
  json["paused"] = picture.paused;
  json["drained"] = picture.drained;
  json["lease_seconds"] = IsPrimary(picture, now) ? Seconds(picture.lease_end - now) : 0.0;
  json["service_pid"] = picture.service_pid;
  json["standby_ready"] = picture.standby_ready;
  json["looks"] = picture.looks;
  json["takings"] = picture.takings;
  json["replicas"] = Json::array();
  for (const Picture::Replica& each : picture.replicas) {
    json["replicas"].push_back({{"address", each.address},
                                {"error", each.error},
                                {"epoch", each.sealed_epoch},
                                {"installed_epoch", each.installed_epoch},
                                {"released", each.released}});
  }
  return json;
}

Json Checked(const Picture& picture, Picture::Time now, std::chrono::nanoseconds stale) {
  const std::vector<std::string> lacks = LacksAt(picture, now, stale);
  Json json = Brief(picture, now);
  json["group"] = picture.group;
  json["paused"] = picture.paused;
  json["able"] = lacks.empty();
  json["lacks"] = lacks;
  json["files"] = {{"hosts", Json::object()}, {"group", Json::object()}};
  if (picture.checked != nullptr) {
    for (const auto& [name, digest] : picture.checked->files.hosts)
      json["files"]["hosts"][name] = digest;
    for (const auto& [name, digest] : picture.checked->files.group)
      json["files"]["group"][name] = digest;
  }
  return json;
}

void AddHooks(const Picture& picture, Picture::Time now, metrics::Page& page) {
  for (const Picture::Hook& each : picture.hooks) {
    page.Add("hyperloop_agent_hook_calls_total", each.calls, {{"hook", each.program}});
    page.Add("hyperloop_agent_hook_failures_total", each.failures, {{"hook", each.program}});
    page.Add("hyperloop_agent_hook_waiting_seconds",
             each.waiting_since.has_value() ? Seconds(now - *each.waiting_since) : 0.0,
             {{"hook", each.program}});
  }
}

std::string MetricsText(const Picture& picture, Picture::Time now, std::chrono::nanoseconds stale,
                        double started) {
  metrics::Page page;
  page.Add("hyperloop_build_info", 1,
           {{"program", "hyperloop-agent"}, {"version", HYPERLOOP_VERSION}});
  page.Add("process_start_time_seconds", started);
  page.Add("hyperloop_agent_info", 1, {{"group", picture.group}, {"node", picture.node}});
  page.Add("hyperloop_agent_state", 1, {{"node", picture.node}, {"state", StateAt(picture, now)}});
  page.Add("hyperloop_agent_primary", IsPrimary(picture, now) ? 1 : 0);
  page.Add("hyperloop_agent_able", LacksAt(picture, now, stale).empty() ? 1 : 0);
  page.Add("hyperloop_agent_standby_ready", picture.standby_ready ? 1 : 0);
  page.Add("hyperloop_agent_epoch", picture.epoch);
  page.Add("hyperloop_agent_paused", picture.paused ? 1 : 0);
  page.Add("hyperloop_agent_drained", picture.drained ? 1 : 0);
  page.Add("hyperloop_agent_visible_replicas",
           std::ranges::count_if(picture.replicas,
                                 [](const Picture::Replica& each) { return each.error.empty(); }));
  page.Add("hyperloop_agent_looks_total", picture.looks);
  page.Add("hyperloop_agent_looks_without_majority_total", picture.looks_without_majority);
  page.Add("hyperloop_agent_takings_total", picture.takings);
  page.Add("hyperloop_agent_start_failures_total", picture.start_failures);
  page.Add("hyperloop_agent_service_ends_total", picture.service_ends);
  AddHooks(picture, now, page);
  return page.Text();
}

Answer Say(bool yes, const char* type, std::string text) {
  return {yes ? 200 : 503, type, std::make_shared<const std::string>(std::move(text))};
}

}  // namespace

bool IsPrimary(const Picture& picture, Picture::Time now) {
  return picture.primary && now < picture.lease_end;
}

std::vector<std::string> LacksAt(const Picture& picture, Picture::Time now,
                                 std::chrono::nanoseconds stale) {
  std::vector<std::string> lacks;
  const SelfChecked* const checked = picture.checked.get();
  if (checked == nullptr) {
    lacks.emplace_back("ask again in a minute: the agent has not looked at its host yet");
  } else {
    lacks = checked->lacks;
    if (!checked->files_error.empty()) lacks.push_back(checked->files_error);
    if (now - checked->when > kCheckedStale)
      lacks.push_back(
          Text("see whether a disk of the host hangs: the agent has looked at its host "
               "last ",
               static_cast<int64_t>(Seconds(now - checked->when)), " s ago"));
  }
  if (picture.drained)
    lacks.push_back(Text("hyperloopctl agent undrain ", picture.node,
                         ": operators want no service on this node"));
  if (!IsSeen(picture, now, stale))
    lacks.emplace_back(
        "look at the network and at the RNIC daemon of the host: its agent sees no majority of the "
        "replicas");
  return lacks;
}

void Pages::Set(Picture picture) {
  const MutexLock lock(mutex_);
  picture_ = std::move(picture);
}

Answer Pages::Get(std::string_view path) const {
  MutexLock lock(mutex_);
  const Picture picture = picture_;
  lock.unlock();
  const Picture::Time now = BootClock::now();
  if (path == "/metrics")
    return Say(true, Answer::kPage, MetricsText(picture, now, stale_, started_));
  if (path == "/check") return Say(true, Answer::kJson, Dump(Checked(picture, now, stale_)));
  if (path == "/cluster") return Say(true, Answer::kJson, Dump(Whole(picture, now)));
  const std::string brief = Dump(Brief(picture, now));
  const bool seen = IsSeen(picture, now, stale_);
  if (path == "/primary") return Say(IsPrimary(picture, now), Answer::kJson, brief);
  if (path == "/replica") return Say(picture.standby && seen, Answer::kJson, brief);
  if (path == "/health") return Say(seen, Answer::kJson, brief);
  return {404, Answer::kText,
          std::make_shared<const std::string>(
              "there are /primary, /replica, /health, /cluster, /check, /history and /metrics\n")};
}

std::string RoleText(const Picture& picture, Picture::Time now) {
  return Dump({{"node", picture.node},
               {"group", picture.group},
               {"state", StateAt(picture, now)},
               {"primary", IsPrimary(picture, now)},
               {"epoch", picture.epoch},
               {"owner_node", picture.owner_node}});
}

Status WriteRoleFile(const std::string& path, std::string_view text) {
  return ReplaceFile(path, path + ".new", text, 0644);
}

}  // namespace hyperloop::agent
