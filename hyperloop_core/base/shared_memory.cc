#include "base/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace hyperloop {

size_t PageSize() {
  static const size_t size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

Result<std::unique_ptr<SharedMemory>> SharedMemory::Create(size_t size, bool with_fd,
                                                           const ForkDetector& fork_detector) {
  if (size == 0) return InvalidArgument("a buffer of 0 bytes");
  const size_t rounded = (size + PageSize() - 1) / PageSize() * PageSize();
  if (rounded < size) return InvalidArgument("a buffer of " + std::to_string(size) + " bytes");
  const std::string what = "allocating " + std::to_string(rounded) + " bytes of device memory";
  // It owns what is made from here on.
  std::unique_ptr<SharedMemory> made(new SharedMemory(fork_detector));
  int flags = MAP_SHARED | MAP_POPULATE;
  if (with_fd) {
    made->fd_ = memfd_create("hyperloop-rnic", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made->fd_ < 0) return FromErrno(errno, what + " (memfd_create; see ulimit -n)");
    // With fallocate, lack of memory is an error here and not a SIGBUS at the first touch.
    if (fallocate(made->fd_, 0, 0, static_cast<off_t>(rounded)) != 0 ||
        fcntl(made->fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
      return FromErrno(errno, what + " (memfd; see free -m)");
  } else {
    flags |= MAP_ANONYMOUS;
  }
  void* data = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, flags, made->fd_, 0);
  if (data == MAP_FAILED) return FromErrno(errno, what);
  made->data_ = static_cast<std::byte*>(data);
  made->size_ = rounded;
  if (madvise(data, rounded, MADV_DONTFORK) != 0) return FromErrno(errno, what);
  return made;
}

SharedMemory::~SharedMemory() {
  // In a forked child these addresses were never mapped, and may hold something else by now.
  if (!fork_detector_.IsOwner()) return;
  if (data_ != nullptr) munmap(data_, size_);
  CloseFd();
}

void SharedMemory::CloseFd() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

}  // namespace hyperloop
