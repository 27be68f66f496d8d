#include "primary/metrics_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "hyperloop/core/out_of_memory.h"
#include "hyperloop/core/text.h"
#include "hyperloop/core/trusted_files.h"

namespace hyperloop {
namespace {

constexpr mode_t kMode = 0644;

}  // namespace

MetricsFile::MetricsFile(std::string path, std::function<std::string()> page,
                         std::shared_ptr<Log> log, int avoid_cpu)
    : path_(std::move(path)),
      page_(std::move(page)),
      log_(std::move(log)),
      thread_(std::make_unique<PeriodicThread>(
          "hl-metrics", [this] { return Work(); }, avoid_cpu)) {}

MetricsFile::~MetricsFile() {
  thread_.reset();
  if (written_) unlink(path_.c_str());
}

std::chrono::milliseconds MetricsFile::Work() {
  // If memory runs out, the next page is tried.
  static_cast<void>(RanOutOfMemory([this] {
    const Status status = Write(page_());
    if (!status.ok() && status.message() != said_) {
      LogLine(log_.get(), LogLevel::kWarn,
              {"metrics_file: ", status.message(), "; it is tried again every few seconds"});
    }
    said_ = status.message();
  }));
  return kInterval;
}

Status MetricsFile::Write(const std::string& text) {
  const size_t slash = path_.rfind('/');
  HL_ASSIGN_OR_RETURN(
      const std::string folder,
      CheckDirectory(slash == 0 ? "/" : path_.substr(0, slash), DirectoryRule::kShared));
  const std::string name = path_.substr(slash + 1);
  const std::string path = Text(folder, "/", name);
  const std::string beside = Text(folder, "/.", name, ".", getpid(), ".tmp");
  HL_RETURN_IF_ERROR(ReplaceFile(path, beside, text, kMode));
  written_ = true;
  return {};
}

}  // namespace hyperloop
