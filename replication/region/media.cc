#include "region/media.h"

#include <libpmem.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "hyperloop/core/mutex.h"

namespace hyperloop {
namespace {

class RamWriter : public MediaWriter {
 public:
  rnic::Media level() const override { return rnic::Media::kRam; }
  Status Persist(const void*, size_t) override { return {}; }
};

class FileWriter : public MediaWriter {
 public:
  FileWriter(bool emulated, std::string pool) : emulated_(emulated), pool_(std::move(pool)) {}
  rnic::Media level() const override { return rnic::Media::kFile; }
  MediaKind kind() const override { return {rnic::Media::kFile, emulated_}; }
  // One call at a time, because the kernel tells only one of two that wait for the same failure.
  Status Persist(const void* data, size_t size) override {
    const MutexLock lock(mutex_);
    if (error_ != 0) return FailedLocked();
    constexpr uintptr_t kMultiple = 4096;  // msync takes whole pages
    const uintptr_t begin = reinterpret_cast<uintptr_t>(data) & ~(kMultiple - 1);
    const uintptr_t end = reinterpret_cast<uintptr_t>(data) + size;
    if (size == 0) return {};
    if (::msync(reinterpret_cast<void*>(begin), end - begin, MS_SYNC) == 0) return {};
    error_ = errno;  // noted before anything that needs memory
    return FailedLocked();
  }
  Status state() const override {
    const MutexLock lock(mutex_);
    return error_ == 0 ? Status() : FailedLocked();
  }

 private:
  Status FailedLocked() const HL_REQUIRES(mutex_) {
    return Unavailable(FromErrno(error_, "the disk failed to write pool " + pool_).message() +
                       ". When it is in order, start the process that serves the pool, or open the "
                       "database, again: that reads what the disk holds, and takes the rest from "
                       "the group");
  }

  const bool emulated_;
  const std::string pool_;
  mutable Mutex mutex_;
  int error_ HL_GUARDED_BY(mutex_) = 0;  // of the msync that failed
};

class PmemWriter : public MediaWriter {
 public:
  explicit PmemWriter(bool emulated) : emulated_(emulated) {}
  rnic::Media level() const override { return rnic::Media::kPmem; }
  MediaKind kind() const override { return {rnic::Media::kPmem, emulated_}; }
  Status Persist(const void* data, size_t size) override {
    pmem_persist(data, size);
    return {};
  }

 private:
  const bool emulated_;
};

constexpr uint32_t kEmulatedBit = 0x100;

struct KnownMedia {
  MediaKind kind;
  std::string_view name;
  std::string_view promise;
};

constexpr std::string_view kRamPromise =
    "survives any failure that leaves one member of the group with power";

std::span<const KnownMedia> AllMedia() {
  static const std::array<KnownMedia, 5> kAll = {{
      {rnic::Media::kRam, "ram", kRamPromise},
      {rnic::Media::kFile, "file", "survives power failure of all members, by msync"},
      {rnic::Media::kPmem, "pmem",
       "survives power failure of all members, by cache flush and drain"},
      {{rnic::Media::kFile, true},
       "file-emulated",
       "emulated: msync is called, but nothing is promised beyond any failure that leaves one "
       "member of the group with power"},
      {{rnic::Media::kPmem, true},
       "pmem-emulated",
       "emulated: caches are flushed, but nothing is promised beyond any failure that leaves one "
       "member of the group with power"},
  }};
  return kAll;
}

}  // namespace

std::unique_ptr<MediaWriter> MakeMediaWriter(MediaKind kind, const std::string& pool) {
  switch (kind.level) {
    case rnic::Media::kRam:
      return std::make_unique<RamWriter>();
    case rnic::Media::kFile:
      return std::make_unique<FileWriter>(kind.emulated, pool);
    case rnic::Media::kPmem:
      return std::make_unique<PmemWriter>(kind.emulated);
  }
  return nullptr;
}

std::string_view MediaName(MediaKind kind) {
  for (const KnownMedia& known : AllMedia()) {
    if (known.kind == kind) return known.name;
  }
  return "unknown";
}

std::string_view MediaPromise(MediaKind kind) {
  for (const KnownMedia& known : AllMedia()) {
    if (known.kind == kind) return known.promise;
  }
  return "unknown";
}

Result<MediaKind> ParseMedia(std::string_view name) {
  for (const KnownMedia& known : AllMedia()) {
    if (known.name == name) return known.kind;
  }
  return InvalidArgument("media \"" + std::string(name) +
                         "\" is not one of auto, ram, file, pmem, file-emulated, pmem-emulated");
}

uint32_t EncodeMedia(MediaKind kind) {
  return static_cast<uint32_t>(kind.level) | (kind.emulated ? kEmulatedBit : 0);
}

Result<MediaKind> DecodeMedia(uint32_t code) {
  for (const KnownMedia& known : AllMedia()) {
    if (EncodeMedia(known.kind) == code) return known.kind;
  }
  return Corruption("no medium has the number " + std::to_string(code));
}

Result<bool> IsInMemory(int fd) {
  struct statfs fs;
  if (::fstatfs(fd, &fs) != 0) return FromErrno(errno, "ask for the file system of the pool");
  return fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC || fs.f_type == HUGETLBFS_MAGIC;
}

Result<rnic::Media> DetectMedia(int fd, const void* data, size_t size) {
  HL_ASSIGN_OR_RETURN(const bool in_memory, IsInMemory(fd));
  if (in_memory) return rnic::Media::kRam;
  return pmem_is_pmem(data, size) != 0 ? rnic::Media::kPmem : rnic::Media::kFile;
}

Status CheckStatedMedia(MediaKind stated, rnic::Media detected) {
  if (stated.emulated || stated.level <= detected) return {};
  const std::string name(MediaName(stated));
  return InvalidArgument(
      "media=" + name + " promises what the pool's file system cannot keep: it is media=" +
      std::string(MediaName(detected)) + ", which " + std::string(MediaPromise(detected)) +
      ". State media=auto, put the pool where media=" + name + " holds, or state media=" + name +
      "-emulated to run that code path without its promise");
}

}  // namespace hyperloop
