// Stop: one thread ends what another one waits for, before its time limit.
#pragma once

#include <sys/eventfd.h>

#include <atomic>

#include "hyperloop/core/unique_fd.h"

namespace hyperloop::control {

// Where there is no descriptor for it, nothing ends early. Set and set() are thread safe.
class Stop {
 public:
  Stop() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  int fd() const { return fd_.get(); }  // readable once it is set; −1: never
  void Set() {
    set_ = true;
    if (fd_) eventfd_write(fd_.get(), 1);
  }
  bool set() const { return set_; }

 private:
  const UniqueFd fd_;
  std::atomic<bool> set_{false};
};

}  // namespace hyperloop::control
