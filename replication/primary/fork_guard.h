// ForkGuard: tells the process that made it from its forked children, at the cost of one load.
#pragma once

#include "hyperloop/core/status.h"

namespace hyperloop {

class ForkGuard {
 public:
  ForkGuard();
  // Unmaps only in the process that made it.
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  // False in a child. The kernel wipes the page on fork.
  bool owner() const { return *page_ == 1; }
  Status Check() const;

 private:
  volatile char* page_ = nullptr;
};

}  // namespace hyperloop
