#include "cluster/process_id.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>

#include "hyperloop/core/unique_fd.h"

namespace hyperloop::cluster {
namespace {

// Takes a number and `behind` off the front of `text`.
template <class Number>
bool TakeNumber(std::string_view* text, char behind, Number* value) {
  const char* const last = text->data() + text->size();
  const auto [end, error] = std::from_chars(text->data(), last, *value);
  if (error != std::errc() || end == last || *end != behind) return false;
  text->remove_prefix(static_cast<size_t>(end - text->data()) + 1);
  return true;
}

}  // namespace

std::optional<ProcessId> ParsePidFile(std::string_view text) {
  ProcessId id;
  if (!TakeNumber(&text, ' ', &id.pid) || id.pid <= 1 || !TakeNumber(&text, ' ', &id.start_time))
    return std::nullopt;
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (text.empty() || text.find_first_of(" \n") != std::string_view::npos) return std::nullopt;
  id.boot = text;
  return id;
}

std::string ReadProcessFile(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char bytes[4096];
  for (ssize_t n = 0; file && (n = ::read(file.get(), bytes, sizeof bytes)) > 0;)
    text.append(bytes, static_cast<size_t>(n));
  return text;
}

bool ParseProcessStat(std::string_view text, ProcessStat* stat) {
  constexpr int kStateField = 3, kUserTimeField = 14, kSystemTimeField = 15, kThreadsField = 20,
                kStartTimeField = 22;
  // Fields count from the last ')', which ends the program's name.
  const size_t name = text.rfind(')');
  if (name == std::string_view::npos) return false;
  text.remove_prefix(name + 1);
  if (!text.starts_with(' ')) return false;
  ProcessStat read;
  for (int i = kStateField; i <= kStartTimeField; ++i) {
    const size_t space = text.find(' ');
    if (space == std::string_view::npos) return false;
    text.remove_prefix(space + 1);
    if (i == kStateField && !text.empty()) read.state = text.front();
    if (i == kThreadsField) {
      std::string_view field = text;
      TakeNumber(&field, ' ', &read.threads);
    }
    if (i == kUserTimeField || i == kSystemTimeField) {
      uint64_t ticks = 0;
      std::string_view field = text;
      if (TakeNumber(&field, ' ', &ticks)) read.cpu_time += ticks;
    }
  }
  if (!TakeNumber(&text, ' ', &read.start_time)) return false;
  *stat = read;
  return true;
}

std::optional<uid_t> ParseProcessUser(std::string_view text) {
  constexpr std::string_view kUser = "\nUid:\t";  // a name has no line feed: the kernel escapes it
  const size_t at = text.find(kUser);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + kUser.size());
  uid_t user = 0;
  if (!TakeNumber(&text, '\t', &user)) return std::nullopt;
  return user;
}

}  // namespace hyperloop::cluster
