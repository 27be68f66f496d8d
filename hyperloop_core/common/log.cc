#include "hyperloop/core/log.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <string>

#include "hyperloop/core/out_of_memory.h"

namespace hyperloop {
namespace {

class StderrLogImpl final : public Log {
 public:
  StderrLogImpl(std::string_view name, LogLevel at_least) : name_(name), at_least_(at_least) {}

  void Write(LogLevel level, std::string_view message) override {
    if (level < at_least_) return;
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    std::tm utc{};
    gmtime_r(&now.tv_sec, &utc);
    char stamp[40];
    size_t n = std::strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(stamp + n, sizeof stamp - n, ".%03ldZ %c ", now.tv_nsec / 1000000,
             "DIWE"[static_cast<int>(level)]);
    const std::array<iovec, 5> line = {Part(stamp), Part(name_), Part(": "), Part(message),
                                       Part("\n")};
    [[maybe_unused]] ssize_t written = ::writev(STDERR_FILENO, line.data(), line.size());
  }

 private:
  static iovec Part(std::string_view text) { return {const_cast<char*>(text.data()), text.size()}; }

  const std::string name_;
  const LogLevel at_least_;
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
