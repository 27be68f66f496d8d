#include "hyperloop/core/log.h"

#include <unistd.h>

#include <ctime>
#include <string>

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
    snprintf(stamp + n, sizeof stamp - n, ".%03ldZ", now.tv_nsec / 1000000);
    std::string line =
        std::string(stamp) + " " + "DIWE"[static_cast<int>(level)] + " " + name_ + ": ";
    line.append(message).push_back('\n');
    [[maybe_unused]] ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  }

 private:
  const std::string name_;
  const LogLevel at_least_;
};

}  // namespace

std::shared_ptr<Log> StderrLog(std::string_view name, LogLevel at_least) {
  return std::make_shared<StderrLogImpl>(name, at_least);
}

}  // namespace hyperloop
