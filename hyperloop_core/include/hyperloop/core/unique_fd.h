// UniqueFd: owns a file descriptor, as unique_ptr owns an object: it closes the descriptor at its
// end, and gives it to another by a move. An error of close is not reported: what must reach the
// disk is synced before.
#pragma once

#include <unistd.h>

#include <utility>

namespace hyperloop {

// Move-only. Not thread safe.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.Release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) Reset(other.Release());
    return *this;
  }
  ~UniqueFd() { Reset(-1); }

  int get() const { return fd_; }  // -1: none
  explicit operator bool() const { return fd_ >= 0; }
  // Closes the descriptor and owns `fd` instead; -1: none.
  void Reset(int fd) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }
  // The caller owns the descriptor from now on.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

}  // namespace hyperloop
