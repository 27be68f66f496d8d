// OwnedFd: a file descriptor that is closed with its owner.
#pragma once

#include <unistd.h>

#include <utility>

namespace hyperloop {

class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  ~OwnedFd() {
    if (fd_ >= 0) ::close(fd_);
  }
  OwnedFd(OwnedFd&& other) noexcept : fd_(other.Release()) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    OwnedFd(std::move(other)).Swap(*this);
    return *this;
  }
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;

  int get() const { return fd_; }
  // Gives the descriptor to the caller.
  int Release() { return std::exchange(fd_, -1); }

 private:
  void Swap(OwnedFd& other) { std::swap(fd_, other.fd_); }

  int fd_ = -1;
};

}  // namespace hyperloop
