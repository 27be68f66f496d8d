// MetricsFile: writes a page of metrics into a file again and again, for node_exporter's textfile
// collector, on a thread of its own.
//
// The file appears whole: it is written under another name and renamed. It has mode 0644 whatever
// the umask, because another user reads it. Its directory must be one in which nobody else can
// replace files (CheckDirectory, kShared). A link in its place is replaced, never followed.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "common/periodic_thread.h"
#include "hyperloop/core/log.h"
#include "hyperloop/core/status.h"

namespace hyperloop {

class MetricsFile {
 public:
  static constexpr std::chrono::seconds kInterval{5};

  // The first page is written at once. `page` is called by the thread until the destructor returns.
  // A failure to write is logged when it begins and when its reason changes; the next page is tried
  // all the same. `log` may be null; `avoid_cpu` as PeriodicThread's.
  MetricsFile(std::string path, std::function<std::string()> page, std::shared_ptr<Log> log,
              int avoid_cpu);
  // Removes the file, if it was written: who reads it must not take it for the state of a database
  // that is closed.
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

 private:
  std::chrono::milliseconds Work();
  Status Write(const std::string& text);

  const std::string path_;
  const std::function<std::string()> page_;
  const std::shared_ptr<Log> log_;
  bool written_ = false;  // these two are used by the thread, and by the destructor behind it
  std::string said_;      // the failure that was logged last
  std::unique_ptr<PeriodicThread> thread_;
};

}  // namespace hyperloop
