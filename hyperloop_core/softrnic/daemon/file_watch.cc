#include "softrnic/daemon/file_watch.h"

#include <sys/stat.h>

#include <cerrno>

namespace hyperloop::softrnic {
namespace {

int64_t Nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

FileWatch::Stamp FileWatch::Now() const {
  struct stat info {};
  if (stat(path_.c_str(), &info) != 0) return {.error = errno};
  return {.device = info.st_dev,
          .inode = info.st_ino,
          .size = info.st_size,
          .modified_ns = Nanoseconds(info.st_mtim),
          .changed_ns = Nanoseconds(info.st_ctim),
          .error = 0};
}

bool FileWatch::Look() {
  const Stamp now = Now();
  const bool quiet = now == seen_;
  seen_ = now;
  restless_ = quiet ? 0 : restless_ + 1;
  if (!quiet || now == taken_) return false;
  taken_ = now;
  return true;
}

}  // namespace hyperloop::softrnic
