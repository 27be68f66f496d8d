#include "primary/metrics_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>
#include <utility>

#include "hyperloop/core/out_of_memory.h"
#include "hyperloop/core/text.h"
#include "hyperloop/core/trusted_files.h"
#include "hyperloop/core/unique_fd.h"

namespace hyperloop {
namespace {

constexpr mode_t kMode = 0644;

// Makes a file that was not there.
Result<UniqueFd> MakeNew(const std::string& path) {
  for (const bool again : {false, true}) {
    UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kMode));
    if (fd) return fd;
    // A process of this number may have died while it wrote.
    if (errno != EEXIST || again || unlink(path.c_str()) != 0) break;
  }
  return FromErrno(errno, Text("making ", path));
}

Status WriteAll(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FromErrno(errno, Text("writing ", path));
    text.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

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
  HL_ASSIGN_OR_RETURN(const UniqueFd fd, MakeNew(beside));
  Status status = WriteAll(fd.get(), text, beside);
  if (status.ok() && fchmod(fd.get(), kMode) != 0)
    status = FromErrno(errno, Text("setting the mode of ", beside));
  if (status.ok() && rename(beside.c_str(), path.c_str()) != 0)
    status = FromErrno(errno, Text("putting ", path, " into place"));
  if (!status.ok()) {
    unlink(beside.c_str());
    return status;
  }
  written_ = true;
  return {};
}

}  // namespace hyperloop
