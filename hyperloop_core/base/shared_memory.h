// SharedMemory: memory of this process that a device reaches, such as rings, CQs, doorbell records
// and buffers.
//
// A forked child does not inherit it (MADV_DONTFORK), and its descriptor is closed on exec. A memfd
// is sealed against shrinking and growing, so that the device's own mapping keeps its pages.
#pragma once

#include <cstddef>
#include <memory>

#include "hyperloop/core/fork_detector.h"
#include "hyperloop/core/status.h"

namespace hyperloop {

// Of this machine's memory, in bytes.
size_t PageSize();

// A zeroed, page-aligned mapping whose pages are all allocated: touching it never runs out of
// memory.
class SharedMemory {
 public:
  // `with_fd`: a memfd that another process can map; otherwise anonymous memory. `fork_detector`
  // outlives this object. kNoSpace: memory or descriptors are exhausted; the message says which
  // limit to raise.
  static Result<std::unique_ptr<SharedMemory>> Create(size_t size, bool with_fd,
                                                      const ForkDetector& fork_detector);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }  // whole pages
  int fd() const { return fd_; }         // -1: none, or closed
  // The mapping stays; the descriptor is not needed any more.
  void CloseFd();

 private:
  explicit SharedMemory(const ForkDetector& fork_detector) : fork_detector_(fork_detector) {}
  std::byte* data_ = nullptr;  // null: nothing is mapped yet
  size_t size_ = 0;
  int fd_ = -1;
  const ForkDetector& fork_detector_;
};

}  // namespace hyperloop
