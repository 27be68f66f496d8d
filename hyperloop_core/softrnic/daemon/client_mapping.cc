#include "softrnic/daemon/client_mapping.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <string>
#include <utility>

#include "hyperloop/core/text.h"

namespace hyperloop::softrnic {
namespace {

constexpr uint64_t kMaxLength = uint64_t{64} << 30;

// While the kernel populates a piece, it may keep other threads from mapping memory.
constexpr size_t kPopulatePiece = 8 << 20;
// Unmapping so much takes some milliseconds if all of its memory is there.
constexpr size_t kUnmapPiece = 64 << 20;

// File systems whose pages come from another program or machine, by statfs(2)'s f_type.
constexpr std::pair<int64_t, const char*> kServedElsewhere[] = {
    {FUSE_SUPER_MAGIC, "a FUSE file system"},
    {NFS_SUPER_MAGIC, "NFS"},
    {SMB_SUPER_MAGIC, "SMB"},
    {CIFS_SUPER_MAGIC, "SMB"},
    {SMB2_SUPER_MAGIC, "SMB"},
    {CEPH_SUPER_MAGIC, "CephFS"},
    {V9FS_MAGIC, "9p"},
    {AFS_SUPER_MAGIC, "AFS"},
    {AFS_FS_MAGIC, "AFS"}};

// `waits_for_disk`: as in UmemMapping.
Status CheckFile(int fd, const struct stat& info, bool* waits_for_disk) {
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument("memory must be a memfd or a regular file");
  }
  struct statfs system {};
  if (fstatfs(fd, &system) != 0) return FromErrno(errno, "reading the memory's file system");
  HL_RETURN_IF_ERROR(CheckFileSystem(system.f_type));
  *waits_for_disk = system.f_type != TMPFS_MAGIC && system.f_type != RAMFS_MAGIC;
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) != O_RDWR) {
    return PermissionDenied("the memory's descriptor must be open for reading and writing");
  }
  // Only shmem files have seals. A file without a name must be sealed, since no other process can
  // need to resize it.
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals >= 0 && info.st_nlink == 0 && (seals & F_SEAL_SHRINK) == 0) {
    return PermissionDenied("anonymous memory must be sealed with F_SEAL_SHRINK");
  }
  return {};
}

// A mapping, which goes to the queue when its last user lets it go.
class Mapping {
 public:
  explicit Mapping(std::shared_ptr<UnmapQueue> unmap) : unmap_(std::move(unmap)), range_(1) {}
  ~Mapping() { unmap_->Add(std::move(range_)); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  UnmapQueue::Range& range() { return range_.front(); }

 private:
  const std::shared_ptr<UnmapQueue> unmap_;
  UnmapQueue::Ranges range_;  // one
};

// Maps the file shared; MAP_FAILED with errno.
//
// It tries MAP_SYNC first, which only files on DAX media accept. There a flush of the CPU's caches
// makes bytes durable; without MAP_SYNC the blocks that a write fault allocated could still be
// missing from the file after a crash.
void* MapShared(int fd, uint64_t offset, size_t length) {
  const auto at = static_cast<off_t>(offset);
  void* const base =
      mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd, at);
  if (base != MAP_FAILED) return base;
  return mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, at);
}

void Populate(std::span<std::byte> memory) {
  while (!memory.empty()) {
    const size_t piece = std::min(kPopulatePiece, memory.size());
    madvise(memory.data(), piece, MADV_POPULATE_READ);
    memory = memory.subspan(piece);
  }
}

}  // namespace

Status CheckFileSystem(int64_t type) {
  // A truncated file's page is replaced by one of the usual size (Engine::HandleFault), which does
  // not fit into a mapping of huge ones.
  if (type == HUGETLBFS_MAGIC) {
    return InvalidArgument(
        "memory on hugetlbfs (explicit huge pages) cannot be served: use an ordinary file or memfd "
        "(transparent huge pages are fine)");
  }
  for (const auto& [served_elsewhere, name] : kServedElsewhere) {
    if (type != served_elsewhere) continue;
    return InvalidArgument(
        Text("memory on ", name,
             " cannot be served, because the file system's server could hold up every host of the "
             "RNIC daemon: put the file on a local disk, on tmpfs (/dev/shm) or on pmem"));
  }
  return {};
}

bool UnmapQueue::DrainSome() {
  Ranges first;  // no other thread takes it meanwhile
  MutexLock lock(mutex_);
  if (ranges_.empty()) return false;
  first.splice(first.end(), ranges_, ranges_.begin());
  lock.unlock();
  Range& range = first.front();
  const size_t piece = std::min(kUnmapPiece, range.length);
  if (piece != 0) munmap(range.address, piece);
  range.address = static_cast<std::byte*>(range.address) + piece;
  range.length -= piece;
  if (range.length == 0 && !range.last.empty()) threads_->Add(std::move(range.last));
  lock.lock();
  bytes_ -= piece;
  if (range.length != 0) ranges_.splice(ranges_.begin(), first);
  return !ranges_.empty();
}

Result<UmemMapping> MapClientMemory(const RegisterUmemArgs& args, int fd, ClientNumber client,
                                    const std::shared_ptr<UnmapQueue>& unmap) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return FromErrno(errno, "reading the memory's size");
  bool waits_for_disk = false;
  HL_RETURN_IF_ERROR(CheckFile(fd, info, &waits_for_disk));
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
  const bool dense = static_cast<uint64_t>(info.st_blocks) * 512 >= size;
  const auto mapping = std::make_shared<Mapping>(unmap);
  void* base = MapShared(fd, args.fd_offset, args.length);
  if (base == MAP_FAILED) {
    return FromErrno(errno,
                     "mapping " + std::to_string(args.length) + " bytes of a client's memory");
  }
  UnmapQueue::Range& range = mapping->range();
  range.address = base;
  range.length = args.length;
  madvise(base, args.length, MADV_DONTDUMP);
  const int seals = fcntl(fd, F_GET_SEALS);
  int kept = -1;
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    ClientThreads::Tasks last(1);
    kept = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (kept < 0) return FromErrno(errno, "keeping the memory's file (see ulimit -n)");
    last.front() = {client, [kept] { close(kept); }};
    range.last = std::move(last);
  }
  if (dense) Populate({static_cast<std::byte*>(base), args.length});
  return UmemMapping{
      static_cast<std::byte*>(base), range.length, mapping, kept, args.fd_offset, waits_for_disk};
}

}  // namespace hyperloop::softrnic
