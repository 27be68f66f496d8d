#include "hyperloop/core/log.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "hyperloop/core/out_of_memory.h"

namespace hyperloop {
namespace {

constexpr size_t kMostPrefix = 256;

// Whether standard error is a stream of the journal's (systemd.exec(5), $JOURNAL_STREAM).
bool StderrIsTheJournal() {
  const char* const stream = std::getenv("JOURNAL_STREAM");
  struct stat info {};
  if (stream == nullptr || fstat(STDERR_FILENO, &info) != 0) return false;
  return stream == std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino);
}

class StderrLogImpl final : public Log {
 public:
  StderrLogImpl(std::string_view name, LogLevel at_least) : name_(name), at_least_(at_least) {}

  void Write(LogLevel level, std::string_view message) override {
    if (level < at_least_) return;
    std::array<char, kMostPrefix + kMaxLogLine + 1> line;
    size_t used = journal_ ? Priority(level, line.data()) : Stamp(level, line.data());
    const auto add = [&](std::string_view text, size_t most) {
      for (const char c : text.substr(0, most)) {
        // Whatever a peer is called, it cannot begin a line, nor speak to a terminal.
        const auto byte = static_cast<unsigned char>(c);
        line[used++] = byte < ' ' || byte == 0x7f ? '?' : c;
      }
    };
    add(name_, kMostPrefix / 2);
    add(": ", 2);
    add(message, kMaxLogLine);
    line[used++] = '\n';
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), used);
  }

 private:
  // The journal has the time, and takes the level from the number (sd-daemon(3)).
  static size_t Priority(LogLevel level, char* out) {
    return static_cast<size_t>(
        snprintf(out, kMostPrefix / 2, "<%c>", "7643"[static_cast<int>(level)]));
  }
  static size_t Stamp(LogLevel level, char* out) {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    std::tm utc{};
    gmtime_r(&now.tv_sec, &utc);
    const size_t n = std::strftime(out, kMostPrefix / 2, "%Y-%m-%dT%H:%M:%S", &utc);
    return n +
           static_cast<size_t>(snprintf(out + n, kMostPrefix / 2 - n, ".%03ldZ %c ",
                                        now.tv_nsec / 1000000, "DIWE"[static_cast<int>(level)]));
  }

  const std::string name_;
  const LogLevel at_least_;
  const bool journal_ = StderrIsTheJournal();
};

}  // namespace

std::shared_ptr<Log> StderrLog(std::string_view name, LogLevel at_least) {
  return std::make_shared<StderrLogImpl>(name, at_least);
}

void LogLine(Log* log, LogLevel level, std::initializer_list<std::string_view> parts) noexcept {
  if (log == nullptr) return;
  std::array<char, kMaxLogLine> line;
  size_t used = 0;
  for (const std::string_view part : parts) {
    const size_t bytes = std::min(part.size(), line.size() - used);
    std::copy_n(part.begin(), bytes, line.begin() + used);
    used += bytes;
  }
  static_cast<void>(
      RanOutOfMemory([&] { log->Write(level, std::string_view(line.data(), used)); }));
}

}  // namespace hyperloop
