#include "ctl/agent_history.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "common/printable.h"
#include "hyperloop/core/text.h"
#include "hyperloop/core/unique_fd.h"

namespace hyperloop::ctl {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostLine = 16 << 10;
constexpr size_t kMostEventWord = 64;
constexpr std::string_view kTimeForm = "0000-00-00T00:00:00.000Z";

bool IsTime(std::string_view text) {
  return std::ranges::equal(text, kTimeForm, [](char c, char form) {
    return form == '0' ? std::isdigit(static_cast<unsigned char>(c)) != 0 : c == form;
  });
}

bool TakeText(const Json& json, const char* name, std::string* text) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_string()) return false;
  *text = found->get<std::string>();
  return true;
}

bool TakeNumber(const Json& json, const char* name, uint64_t* number) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number_unsigned()) return false;
  *number = found->get<uint64_t>();
  return true;
}

std::optional<AgentEvent> ParseLine(std::string_view line) {
  if (line.size() > kMostLine) return {};
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return {};
  AgentEvent event;
  const bool whole =
      TakeText(json, "time", &event.time) && TakeText(json, "run", &event.run) &&
      TakeNumber(json, "number", &event.number) && TakeText(json, "node", &event.node) &&
      TakeNumber(json, "epoch", &event.epoch) && TakeText(json, "state", &event.state) &&
      TakeText(json, "event", &event.event) && TakeText(json, "why", &event.why);
  if (!whole || !IsTime(event.time) || event.run.size() > kMostEventWord) return {};
  return event;
}

}  // namespace

std::string EventTimeNow() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  std::tm parts{};
  char text[64] = "", whole[96] = "";
  if (gmtime_r(&now.tv_sec, &parts) != nullptr)
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(whole, sizeof whole, "%s.%03ldZ", text, now.tv_nsec / 1'000'000);
  return whole;
}

std::string FormatAgentEvent(const AgentEvent& event) {
  const Json json{{"time", event.time},
                  {"run", event.run},
                  {"number", event.number},
                  {"node", Printable(event.node, kMostEventWord)},
                  {"epoch", event.epoch},
                  {"state", Printable(event.state, kMostEventWord)},
                  {"event", Printable(event.event, kMostEventWord)},
                  {"why", Printable(event.why, kMostEventText)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<AgentEvent> ParseAgentEvents(std::string_view text, size_t* bad) {
  std::vector<AgentEvent> events;
  *bad = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty()) continue;
    std::optional<AgentEvent> event = ParseLine(line);
    const bool torn = end == std::string_view::npos;
    if (event.has_value()) events.push_back(*std::move(event));
    if (!event.has_value() && !torn) ++*bad;
  }
  return events;
}

std::vector<AgentEvent> MergeAgentEvents(std::vector<AgentEvent> events) {
  std::ranges::stable_sort(events, {}, [](const AgentEvent& each) {
    return std::tie(each.time, each.node, each.run, each.number);
  });
  const auto [first, last] = std::ranges::unique(events);
  events.erase(first, last);
  return events;
}

Result<std::string> ReadHistoryFile(const std::string& path, size_t most) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (!fd || fstat(fd.get(), &info) != 0) return FromErrno(errno, path);
  if (!S_ISREG(info.st_mode)) return InvalidArgument(path + " is no regular file");
  const auto size = static_cast<uint64_t>(info.st_size);
  const uint64_t from = size > most ? size - most : 0;
  std::string text(static_cast<size_t>(size - from), '\0');
  size_t read = 0;
  while (read < text.size()) {
    const ssize_t got =
        pread(fd.get(), text.data() + read, text.size() - read, static_cast<off_t>(from + read));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FromErrno(errno, path);
    if (got == 0) break;
    read += static_cast<size_t>(got);
  }
  text.resize(read);
  if (from == 0) return text;
  const size_t line = text.find('\n');
  return line == std::string::npos ? std::string() : text.substr(line + 1);
}

}  // namespace hyperloop::ctl
