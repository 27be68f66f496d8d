// Pool: one node's durable memory, a libpmemobj pool that holds the node's copy of the region and
// its node-local page.
//
// libpmemobj makes the file and gives it its root and one allocation, which never change again.
// Opening follows none of PMDK's own pointers (pool_file.h). So damage to lanes, heap or headers
// does not affect the program, and the region stays readable as long as one of the root's two
// copies is sound.
//
// The owner keeps PMDK's lock on the file while the Pool lives (or the process is stopped): a
// second Open anywhere is refused. The RNIC daemon gets (fd, file offset, length) of the region or
// the page alone, never PMDK's metadata. Both lie page aligned, the region 2 MiB aligned, in the
// file and in memory, and are zero in a new pool.
//
// Thread safety: none needed after opening; accessors are const. fork() leaves the child nothing of
// the pool: neither the lock, which would outlive the parent, nor the file. The child has memory of
// its own where the region was, and its destructor does nothing.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "hyperloop/core/rnic.h"
#include "hyperloop/core/status.h"
#include "hyperloop/core/unique_fd.h"
#include "region/media.h"

namespace hyperloop {

struct PoolOptions {
  std::string media = "auto";  // or a name of MediaName
  // For how long other processes that still read or map the pool are waited for.
  std::chrono::milliseconds patience{5000};
  // Hears each second who is waited for, and says whether to go on waiting. May be empty.
  std::function<bool(const std::string& what)> waiting{};
};

enum class PoolLock;  // pool_file.h

// Who else may have a private view of a pool open.
enum class PoolReaders { kOthers, kAlone };

class Pool {
 public:
  // Makes a pool file for a region of `region_size` bytes (a multiple of 4096) and opens it. It is
  // built under the name "<path>.creating" and renamed when whole, so `path` is a pool or absent;
  // leftovers of a crashed creation are replaced. kAlreadyExists: `path` exists. kInvalidArgument:
  // size, or a medium that the place does not have. kNoSpace: says what is needed and what is free.
  // kBusy: another process is creating it. Nothing is left behind on failure.
  static Result<std::unique_ptr<Pool>> Create(const std::string& path, uint64_t region_size,
                                              const PoolOptions& options = {});
  // kNotFound: no such file (says so too if a creation was cut short). kBusy: in use by
  // another process, or read or mapped by one for longer than the patience. kCorruption: not
  // a pool, truncated, or both copies of the root are damaged; the message names the ways out.
  // kInvalidArgument: a pool of another program, or a stated medium that promises more than the one
  // that is there. kUnavailable: the disk fails to write it. The bytes are those of the disk, even
  // if a former owner met a write error (SettlePoolFile).
  static Result<std::unique_ptr<Pool>> Open(const std::string& path,
                                            const PoolOptions& options = {});
  // Opens a private view of a pool whose owner is gone: reads see the file, and writes never change
  // it. With kAlone nobody else may have one meanwhile, as is needed by who replaces the file.
  static Result<std::unique_ptr<Pool>> OpenCopyOnWrite(const std::string& path,
                                                       PoolReaders readers = PoolReaders::kOthers);

  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  const std::string& path() const { return path_; }
  std::span<std::byte> region() const { return region_; }
  std::span<std::byte> node_page() const { return node_page_; }
  // A descriptor of the file, for passing; owned by the pool, close-on-exec. −1 for copy-on-write.
  int fd() const { return fd_.get(); }
  uint64_t region_file_offset() const { return region_file_offset_; }
  uint64_t node_page_file_offset() const { return node_page_file_offset_; }
  MediaWriter& media() const { return *media_; }
  // Replaces the way to make bytes durable, for tests of power failures. Call before media() is
  // used.
  void ReplaceMedia(std::unique_ptr<MediaWriter> media) { media_ = std::move(media); }
  // The backing to register the region, or the node page, with an RNIC.
  rnic::ProtectionDomain::Backing region_backing() const {
    return {fd_.get(), region_file_offset_, media_->level()};
  }
  rnic::ProtectionDomain::Backing node_page_backing() const {
    return {fd_.get(), node_page_file_offset_, media_->level()};
  }

 private:
  Pool() = default;
  friend class LivingPools;
  // In a forked child: gives up what it inherited.
  void Disinherit();
  static Result<std::unique_ptr<Pool>> OpenPool(const std::string& path, const PoolOptions& options,
                                                PoolLock how);
  // Takes the lock, and counts the pool among those that are open.
  Status Lock(PoolLock lock, const PoolOptions& options);

  std::string path_;
  pid_t owner_ = 0;
  UniqueFd lock_;  // holds PMDK's lock; never passed on
  UniqueFd fd_;
  std::span<std::byte> mapping_;  // the whole file
  std::span<std::byte> region_;
  std::span<std::byte> node_page_;
  uint64_t region_file_offset_ = 0;
  uint64_t node_page_file_offset_ = 0;
  std::unique_ptr<MediaWriter> media_;
};

}  // namespace hyperloop
