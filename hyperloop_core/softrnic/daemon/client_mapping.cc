#include "softrnic/daemon/client_mapping.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace hyperloop::softrnic {
namespace {

constexpr uint64_t kMaxLength = uint64_t{64} << 30;

Status CheckFile(int fd, const struct stat& info) {
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument("memory must be a memfd or a regular file");
  }
  struct statfs system {};
  if (fstatfs(fd, &system) != 0) return FromErrno(errno, "reading the memory's file system");
  // A truncated file's page is replaced by one of the usual size (Engine::HandleFault), which does
  // not fit into a mapping of huge ones.
  if (system.f_type == HUGETLBFS_MAGIC) {
    return InvalidArgument(
        "memory on hugetlbfs (explicit huge pages) cannot be served: use an ordinary file or memfd "
        "(transparent huge pages are fine)");
  }
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) != O_RDWR) {
    return PermissionDenied("the memory's descriptor must be open for reading and writing");
  }
  // Only shmem files have seals; one without a name cannot be found by others, and has no reason to
  // be unsealed.
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals >= 0 && info.st_nlink == 0 && (seals & F_SEAL_SHRINK) == 0) {
    return PermissionDenied("anonymous memory must be sealed with F_SEAL_SHRINK");
  }
  return {};
}

// Maps the file shared, with its pages filled in if `populate`; MAP_FAILED with errno.
//
// MAP_SYNC first, which only files on DAX media accept: there a flush of the CPU's caches makes
// bytes durable, and without MAP_SYNC the blocks that a write fault allocated could still be
// missing from the file after a crash.
void* MapShared(int fd, uint64_t offset, size_t length, bool populate) {
  const int more = populate ? MAP_POPULATE : 0;
  const auto at = static_cast<off_t>(offset);
  void* const base =
      mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC | more, fd, at);
  if (base != MAP_FAILED) return base;
  return mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED | more, fd, at);
}

}  // namespace

void UnmapQueue::Drain() {
  for (auto [address, length] : ranges_) munmap(address, length);
  ranges_.clear();
}

Result<UmemMapping> MapClientMemory(const RegisterUmemArgs& args, int fd,
                                    const std::shared_ptr<UnmapQueue>& unmap) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return FromErrno(errno, "reading the memory's size");
  HL_RETURN_IF_ERROR(CheckFile(fd, info));
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto size = static_cast<uint64_t>(info.st_size);
  if (args.fd_offset % page != 0 || args.client_addr % page != 0) {
    return InvalidArgument("memory at file offset " + std::to_string(args.fd_offset) +
                           ": offset and address must be multiples of the page size");
  }
  if (args.length == 0 || args.length > kMaxLength || args.fd_offset > size ||
      args.length > size - args.fd_offset) {
    return InvalidArgument("range of " + std::to_string(args.length) + " bytes at offset " +
                           std::to_string(args.fd_offset) + " of a file of " +
                           std::to_string(size) + " bytes");
  }
  // A sparse file is not filled here: it may be far larger than memory.
  const bool dense = static_cast<uint64_t>(info.st_blocks) * 512 >= size;
  void* base = MapShared(fd, args.fd_offset, args.length, dense);
  if (base == MAP_FAILED) {
    return FromErrno(errno,
                     "mapping " + std::to_string(args.length) + " bytes of a client's memory");
  }
  madvise(base, args.length, MADV_DONTDUMP);
  const size_t length = args.length;
  return UmemMapping{
      static_cast<std::byte*>(base), length,
      std::shared_ptr<void>(base, [unmap, length](void* address) { unmap->Add(address, length); })};
}

}  // namespace hyperloop::softrnic
