// ForkDetector: tells the process that made it from its forked children, at the cost of one load.
// It is a page that the kernel wipes on fork.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "hyperloop/core/status.h"

namespace hyperloop {

// Thread safe.
class ForkDetector {
 public:
  // Needs Linux 4.14 or later (MADV_WIPEONFORK): the error says so. kNoSpace: no memory.
  static Result<std::unique_ptr<ForkDetector>> Create();
  ~ForkDetector();
  ForkDetector(const ForkDetector&) = delete;
  ForkDetector& operator=(const ForkDetector&) = delete;

  // False in a forked child.
  bool IsOwner() const { return word_->load(std::memory_order_relaxed) != 0; }

 private:
  ForkDetector() = default;
  std::atomic<uint32_t>* word_ = nullptr;  // null: in the midst of Create
};

}  // namespace hyperloop
