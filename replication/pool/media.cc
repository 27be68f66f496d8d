#include "pool/media.h"

#include <libpmem.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstdint>
#include <string>

namespace hyperloop {
namespace {

class RamWriter : public MediaWriter {
 public:
  rnic::Media level() const override { return rnic::Media::kRam; }
  Status Persist(const void*, size_t) override { return {}; }
};

class FileWriter : public MediaWriter {
 public:
  rnic::Media level() const override { return rnic::Media::kFile; }
  Status Persist(const void* data, size_t size) override {
    constexpr uintptr_t kPage = 4096;
    const uintptr_t begin = reinterpret_cast<uintptr_t>(data) & ~(kPage - 1);
    const uintptr_t end = reinterpret_cast<uintptr_t>(data) + size;
    if (size == 0) return {};
    if (::msync(reinterpret_cast<void*>(begin), end - begin, MS_SYNC) != 0) {
      return Unavailable(
          FromErrno(errno, "msync of " + std::to_string(size) + " B of the pool").message());
    }
    return {};
  }
};

class PmemWriter : public MediaWriter {
 public:
  rnic::Media level() const override { return rnic::Media::kPmem; }
  Status Persist(const void* data, size_t size) override {
    pmem_persist(data, size);
    return {};
  }
};

}  // namespace

std::unique_ptr<MediaWriter> MakeMediaWriter(rnic::Media level) {
  switch (level) {
    case rnic::Media::kRam:
      return std::make_unique<RamWriter>();
    case rnic::Media::kFile:
      return std::make_unique<FileWriter>();
    case rnic::Media::kPmem:
      return std::make_unique<PmemWriter>();
  }
  return nullptr;
}

std::string_view MediaName(rnic::Media level) {
  switch (level) {
    case rnic::Media::kRam:
      return "ram";
    case rnic::Media::kFile:
      return "file";
    case rnic::Media::kPmem:
      return "pmem";
  }
  return "unknown";
}

std::string_view MediaPromise(rnic::Media level) {
  switch (level) {
    case rnic::Media::kRam:
      return "survives any failure that leaves one member of the group with power";
    case rnic::Media::kFile:
      return "survives power failure of all members, by msync";
    case rnic::Media::kPmem:
      return "survives power failure of all members, by cache flush and drain";
  }
  return "unknown";
}

Result<rnic::Media> ParseMedia(std::string_view name) {
  for (const rnic::Media level : {rnic::Media::kRam, rnic::Media::kFile, rnic::Media::kPmem}) {
    if (name == MediaName(level)) return level;
  }
  return InvalidArgument("media \"" + std::string(name) + "\" is not one of auto, ram, file, pmem");
}

Result<rnic::Media> DetectMedia(int fd, const void* data, size_t size) {
  struct statfs fs;
  if (::fstatfs(fd, &fs) != 0) return FromErrno(errno, "ask for the file system of the pool");
  if (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC || fs.f_type == HUGETLBFS_MAGIC)
    return rnic::Media::kRam;
  return pmem_is_pmem(data, size) != 0 ? rnic::Media::kPmem : rnic::Media::kFile;
}

}  // namespace hyperloop
