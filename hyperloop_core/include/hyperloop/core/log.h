// Log: where a component writes what a person needs to know. Off the hot path always.
//
// The function that first detects an error logs it once; callers add context to the Status. A Log
// is handed in by the program (stderr) or the plugin (RocksDB's info_log); a null pointer means
// silence. Thread safe: Write may be called from any thread.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string_view>

namespace hyperloop {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

class Log {
 public:
  virtual ~Log() = default;
  virtual void Write(LogLevel level, std::string_view message) = 0;
};

// "2026-11-20T18:26:34.123Z W name: message" to stderr, one write(2) a line; "<4>name: message" if
// that is the journal. Longer messages are cut, and stay one line each. Its Write needs no memory.
std::shared_ptr<Log> StderrLog(std::string_view name, LogLevel at_least = LogLevel::kInfo);

// Writes `parts` as one line, and cuts off what is beyond kMaxLogLine characters. It needs no
// memory but what Log::Write takes, and throws nothing: without that the line is lost. For threads
// that must go on when memory runs out. `log` may be null.
inline constexpr size_t kMaxLogLine = 4096;
void LogLine(Log* log, LogLevel level, std::initializer_list<std::string_view> parts) noexcept;

}  // namespace hyperloop
