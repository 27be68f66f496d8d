// How bytes that a CPU stored become durable, per medium.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "hyperloop/core/rnic.h"
#include "hyperloop/core/status.h"

namespace hyperloop {

// A level of durability, as stated or as detected. Emulated: the medium is handled as if it were of
// that level, for tests and measurements of the code path, and promises what kRam promises.
struct MediaKind {
  rnic::Media level = rnic::Media::kRam;
  bool emulated = false;

  MediaKind() = default;
  MediaKind(rnic::Media of, bool is_emulated = false) : level(of), emulated(is_emulated) {}
  friend bool operator==(const MediaKind&, const MediaKind&) = default;
};

// Makes stores durable; each pool has one. Thread safe.
class MediaWriter {
 public:
  virtual ~MediaWriter() = default;
  virtual rnic::Media level() const = 0;
  virtual MediaKind kind() const { return level(); }
  // On ok the bytes survive the failures that the medium promises: with kRam all but the loss of
  // this machine's power, with kFile and kPmem that too. Any alignment. kUnavailable: msync failed
  // (a write error of the disk), now or earlier. The kernel reports such an error once and treats
  // the pages as clean afterwards, so that no later msync of the pool can be believed.
  virtual Status Persist(const void* data, size_t size) = 0;
  // ok, or the error that Persist returns from now on.
  virtual Status state() const { return {}; }
};

// kRam does nothing, kFile msyncs the pages touched, kPmem writes back cache lines and drains.
// `pool` is the path that errors name.
std::unique_ptr<MediaWriter> MakeMediaWriter(MediaKind kind, const std::string& pool);

// "ram", "file", "pmem", "file-emulated", "pmem-emulated".
std::string_view MediaName(MediaKind kind);
// The failures that such a medium survives, in a sentence for status and log.
std::string_view MediaPromise(MediaKind kind);
Result<MediaKind> ParseMedia(std::string_view name);
// One number on the wire, both ways. kCorruption: no such kind.
uint32_t EncodeMedia(MediaKind kind);
Result<MediaKind> DecodeMedia(uint32_t code);
// Whether the open file `fd` lies in memory: on tmpfs, ramfs or hugetlbfs.
Result<bool> IsInMemory(int fd);
// The medium of `[data, data+size)`, a mapping of the open file `fd`: a file in memory is kRam, a
// DAX mapping is kPmem, everything else is kFile.
Result<rnic::Media> DetectMedia(int fd, const void* data, size_t size);
// kInvalidArgument: `stated` promises more than the detected medium can keep; the message names the
// ways out.
Status CheckStatedMedia(MediaKind stated, rnic::Media detected);

}  // namespace hyperloop
