// How bytes that a CPU stored become durable, per medium.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "hyperloop/core/rnic.h"
#include "hyperloop/core/status.h"

namespace hyperloop {

// One per pool. Thread safe.
class MediaWriter {
 public:
  virtual ~MediaWriter() = default;
  virtual rnic::Media level() const = 0;
  // On ok the bytes survive what the medium promises: kRam anything but the loss of this machine's
  // power; kFile and kPmem that too. Any alignment. kUnavailable: msync failed (a write error of
  // the disk).
  virtual Status Persist(const void* data, size_t size) = 0;
};

// kRam does nothing, kFile msyncs the pages touched, kPmem writes back cache lines and drains.
std::unique_ptr<MediaWriter> MakeMediaWriter(rnic::Media level);

// "ram", "file", "pmem".
std::string_view MediaName(rnic::Media level);
// What such a level survives, in a sentence for status and log.
std::string_view MediaPromise(rnic::Media level);
Result<rnic::Media> ParseMedia(std::string_view name);
// What `[data, data+size)`, a mapping of the open file `fd`, is: tmpfs and ramfs are kRam, a DAX
// mapping is kPmem, all else is kFile.
Result<rnic::Media> DetectMedia(int fd, const void* data, size_t size);

}  // namespace hyperloop
