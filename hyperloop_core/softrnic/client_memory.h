// Memory of a client process that a software RNIC reaches: rings, CQs, doorbell records, buffers.
//
// A child never inherits it (MADV_DONTFORK), and its descriptors close on exec. Memfds are sealed
// against shrinking and growing, so that the device's mapping cannot lose its pages.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "hyperloop/core/status.h"

namespace hyperloop::softrnic {

// Tells the process that made it from its forked children, with one load: a page that the kernel
// wipes on fork.
class ForkGuard {
 public:
  static Result<std::unique_ptr<ForkGuard>> Create();
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  bool IsOwner() const { return word_->load(std::memory_order_relaxed) != 0; }

 private:
  explicit ForkGuard(void* page);
  std::atomic<uint32_t>* word_;
};

// A zeroed, page-aligned mapping whose pages are all allocated (touching it never runs out of
// space).
class SharedMemory {
 public:
  // `with_fd`: a memfd that another process can map; otherwise anonymous memory. `guard` outlives
  // this object. kNoSpace: memory or descriptors exhausted (the message says which limit to raise).
  static Result<std::unique_ptr<SharedMemory>> Create(size_t size, bool with_fd,
                                                      const ForkGuard& guard);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }  // whole pages
  int fd() const { return fd_; }         // -1: none, or closed
  // The mapping stays; the descriptor is not needed any more.
  void CloseFd();

 private:
  SharedMemory(std::byte* data, size_t size, int fd, const ForkGuard& guard)
      : data_(data), size_(size), fd_(fd), guard_(guard) {}
  std::byte* const data_;
  const size_t size_;
  int fd_;
  const ForkGuard& guard_;
};

size_t PageSize();

}  // namespace hyperloop::softrnic
