#include "region/pool.h"

#include <fcntl.h>
#include <libpmem.h>
#include <libpmemobj.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>
#include <vector>

#include "hyperloop/core/mutex.h"
#include "region/directory.h"
#include "region/pool_file.h"
#include "region/region_layout.h"

namespace hyperloop {
namespace {

constexpr uint64_t kAlign = 2ull << 20;
// Room that libpmemobj needs besides the allocation: headers, lanes, zone metadata (measured: a
// little under 4 MiB).
constexpr uint64_t kPoolOverhead = 8ull << 20;
constexpr uint64_t kMinRegion = 64ull << 10;
uint64_t AlignUp(uint64_t n) { return (n + kAlign - 1) & ~(kAlign - 1); }
uint64_t PoolSize(uint64_t region_size) {
  return AlignUp(region_size + kAlign + kNodePageSize + kPoolOverhead);
}

std::string Pmem(std::string_view what, const std::string& path) {
  return std::string(what) + " " + path + ": " + pmemobj_errormsg();
}

Status CheckRegionSize(uint64_t region_size) {
  if (region_size > kMaxRegionSize) {
    return InvalidArgument("region of " + std::to_string(region_size) + " B: at most " +
                           std::to_string(kMaxRegionSize) +
                           " B (15 GiB), since libpmemobj allocates less than 16 GiB in one piece");
  }
  if (region_size % 4096 != 0 || region_size < kMinRegion) {
    return InvalidArgument("region of " + std::to_string(region_size) +
                           " B: must be a multiple of 4096 and at least " +
                           std::to_string(kMinRegion));
  }
  return {};
}

Status CheckFreeSpace(const std::string& path, uint64_t size) {
  struct statvfs fs;
  const std::string directory = DirectoryOf(path);
  if (::statvfs(directory.c_str(), &fs) != 0)
    return FromErrno(errno, "make a pool in " + directory);
  const uint64_t free = static_cast<uint64_t>(fs.f_bavail) * fs.f_frsize;
  if (free >= size) return {};
  return NoSpace("pool " + path + " needs " + std::to_string(size) + " B, " + directory + " has " +
                 std::to_string(free) + " B free; make room or choose a smaller region");
}

// Removes the file that a crashed creation left; kBusy while a creation is under way.
Status RemoveLeftover(const std::string& temporary) {
  const UniqueFd fd(::open(temporary.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return errno == ENOENT ? Status() : FromErrno(errno, "open leftover " + temporary);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return Busy("another process is creating this pool (" + temporary + " is locked)");
  }
  if (::unlink(temporary.c_str()) != 0) return FromErrno(errno, "remove leftover " + temporary);
  return {};
}

// Allocates region and page and records where they are.
Status FillPool(PMEMobjpool* pool, uint64_t pool_size, uint64_t region_size,
                const std::string& path) {
  const PMEMoid root_id = pmemobj_root(pool, sizeof(PoolRoot));
  if (OID_IS_NULL(root_id)) return NoSpace(Pmem("make the root of pool", path));
  PMEMoid memory = OID_NULL;
  const uint64_t size = sizeof(PoolRoot) + kAlign + region_size + kNodePageSize;
  if (pmemobj_alloc(pool, &memory, size, 0, nullptr, nullptr) != 0) {
    return NoSpace(
        Pmem("allocate a region of " + std::to_string(region_size) + " B in pool", path));
  }
  const auto base = reinterpret_cast<const char*>(pool);
  const auto at = static_cast<uint64_t>(static_cast<const char*>(pmemobj_direct(memory)) - base);
  auto* root = static_cast<PoolRoot*>(pmemobj_direct(root_id));
  PoolRoot filled{};
  filled.pool_size = pool_size;
  // The allocation is longer than region and page by one alignment: the root's copy lies in front.
  filled.region_offset = AlignUp(at + sizeof(PoolRoot));
  filled.region_size = region_size;
  filled.node_page_offset = filled.region_offset + region_size;
  filled.node_page_size = kNodePageSize;
  SealPoolRoot(&filled);
  pmemobj_memcpy_persist(pool, root, &filled, sizeof(filled));
  pmemobj_memcpy_persist(pool, reinterpret_cast<char*>(pool) + PoolRootCopy(filled.region_offset),
                         &filled, sizeof(filled));
  return {};
}

Status CreateFile(const std::string& temporary, uint64_t region_size, const std::string& path) {
  const uint64_t size = PoolSize(region_size);
  PMEMobjpool* pool = pmemobj_create(temporary.c_str(), kPoolLayout, size, 0600);
  if (pool == nullptr) {
    const int error = errno;
    const Status status{FromErrno(error, "").code(), Pmem("create pool", path)};
    if (error == ENOSPC)
      return status.WithContext("disk full, " + std::to_string(size) + " B needed");
    return status;
  }
  const Status filled = FillPool(pool, size, region_size, path);
  pmemobj_close(pool);
  return filled;
}

}  // namespace

// The pools that this process has open. A child that is forked without exec inherits their
// descriptors and mappings, and drops them before fork() returns there.
class LivingPools {
 public:
  // Ok once forked children are seen to.
  static Status Watch() {
    static const int error = ::pthread_atfork(BeforeFork, InParent, InChild);
    return error == 0 ? Status() : FromErrno(error, "pthread_atfork");
  }
  // No fork happens while it is held.
  static Mutex& mutex() {
    static auto* const mutex = new Mutex;  // also for forks while the process ends
    return *mutex;
  }
  static std::vector<Pool*>& list() HL_REQUIRES(mutex()) {
    static auto* const list = new std::vector<Pool*>;
    return *list;
  }

 private:
  static void BeforeFork() HL_ACQUIRE(mutex()) { mutex().lock(); }
  static void InParent() HL_RELEASE(mutex()) { mutex().unlock(); }
  static void InChild() HL_RELEASE(mutex()) {
    for (Pool* pool : list()) pool->Disinherit();
    list().clear();
    mutex().unlock();
  }
};

// Only system calls that are allowed between fork and exec.
void Pool::Disinherit() {
  ::close(lock_.Release());
  if (fd_) ::close(fd_.Release());
  if (mapping_.empty()) return;
  // Whatever in the child still points there finds zeros, and changes nothing of the pool.
  ::mmap(mapping_.data(), mapping_.size(), PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

Result<std::unique_ptr<Pool>> Pool::Create(const std::string& path, uint64_t region_size,
                                           const PoolOptions& options) {
  HL_RETURN_IF_ERROR(CheckRegionSize(region_size));
  if (options.media != "auto") HL_RETURN_IF_ERROR(ParseMedia(options.media).status());
  struct stat st;
  if (::lstat(path.c_str(), &st) == 0)
    return AlreadyExists("pool " + path + " exists; open it or remove it");
  if (errno != ENOENT) return FromErrno(errno, "create pool " + path);
  const std::string temporary = path + ".creating";
  HL_RETURN_IF_ERROR(RemoveLeftover(temporary));
  HL_RETURN_IF_ERROR(CheckFreeSpace(path, PoolSize(region_size)));
  const Status created = CreateFile(temporary, region_size, path);
  if (!created.ok()) {
    if (created.code() != Code::kAlreadyExists) ::unlink(temporary.c_str());
    return created;
  }
  Result<std::unique_ptr<Pool>> pool = OpenPool(temporary, options, PoolLock::kWrite);
  if (!pool.ok()) {
    ::unlink(temporary.c_str());
    return pool.status();
  }
  // The pool is whole. Another creator may have been faster: never replace its file.
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) != 0) {
    const Status status = FromErrno(errno, "rename " + temporary + " to " + path);
    ::unlink(temporary.c_str());
    return status;
  }
  HL_RETURN_IF_ERROR(SyncDirectory(DirectoryOf(path)));
  (*pool)->path_ = path;
  (*pool)->media_ = MakeMediaWriter((*pool)->media_->kind(), path);
  return pool;
}

Result<std::unique_ptr<Pool>> Pool::Open(const std::string& path, const PoolOptions& options) {
  return OpenPool(path, options, PoolLock::kWrite);
}

Result<std::unique_ptr<Pool>> Pool::OpenCopyOnWrite(const std::string& path, PoolReaders readers) {
  return OpenPool(path, {},
                  readers == PoolReaders::kAlone ? PoolLock::kReadAlone : PoolLock::kRead);
}

// Who only reads the pool is soon gone; an owner is not waited for.
Status Pool::Lock(PoolLock lock, const PoolOptions& options) {
  PoolWait wait(options);
  while (true) {
    PoolHolder holder;
    {
      const MutexLock no_fork(LivingPools::mutex());
      HL_ASSIGN_OR_RETURN(lock_, TryLockPoolFile(path_, lock, &holder));
      if (lock_) {
        LivingPools::list().push_back(this);
        return {};
      }
    }
    if (holder != PoolHolder::kReaders || !wait.GoOn([&] { return PoolInUse(path_, holder); }))
      return PoolInUse(path_, holder);
  }
}

Result<std::unique_ptr<Pool>> Pool::OpenPool(const std::string& path, const PoolOptions& options,
                                             PoolLock how) {
  const bool private_copy = how != PoolLock::kWrite;
  MediaKind media;
  if (options.media != "auto") {
    HL_ASSIGN_OR_RETURN(media, ParseMedia(options.media));
  }
  HL_RETURN_IF_ERROR(LivingPools::Watch());
  std::unique_ptr<Pool> pool(new Pool());
  pool->owner_ = ::getpid();
  pool->path_ = path;
  HL_RETURN_IF_ERROR(pool->Lock(how, options));
  const int lock = pool->lock_.get();
  HL_ASSIGN_OR_RETURN(const bool in_memory, IsInMemory(lock));
  if (!private_copy && !in_memory) HL_RETURN_IF_ERROR(SettlePoolFile(lock, path, options));
  HL_ASSIGN_OR_RETURN(const PoolRoot root, FindPoolRoot(lock, path));
  {
    const MutexLock no_fork(LivingPools::mutex());
    HL_ASSIGN_OR_RETURN(pool->mapping_, MapPoolFile(lock, path, private_copy));
    // A private copy has no descriptor, because its writes go nowhere and nobody else may be given
    // the file. A descriptor that is passed on never carries the lock, which would outlive this
    // process.
    if (!private_copy) pool->fd_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  }
  HL_RETURN_IF_ERROR(CheckPoolRoot(root, pool->mapping_.size(), path));
  pool->region_ = pool->mapping_.subspan(root.region_offset, root.region_size);
  pool->node_page_ = pool->mapping_.subspan(root.node_page_offset, root.node_page_size);
  pool->region_file_offset_ = root.region_offset;
  pool->node_page_file_offset_ = root.node_page_offset;
  if (!private_copy) {
    if (!pool->fd_) return FromErrno(errno, "open pool " + path);
    HL_ASSIGN_OR_RETURN(const rnic::Media detected,
                        DetectMedia(pool->fd_.get(), pool->region_.data(), pool->region_.size()));
    if (options.media == "auto") media = detected;
    HL_RETURN_IF_ERROR(CheckStatedMedia(media, detected).WithContext("pool " + path));
  }
  pool->media_ = MakeMediaWriter(media, path);
  return pool;
}

Pool::~Pool() {
  if (owner_ == ::getpid()) {
    const MutexLock no_fork(LivingPools::mutex());
    std::erase(LivingPools::list(), this);
    if (!mapping_.empty()) pmem_unmap(mapping_.data(), mapping_.size());
    lock_ = UniqueFd();
    fd_ = UniqueFd();
    return;
  }
  // A child that was forked by a system call of its own: mapping and lock are the parent's.
  lock_.Release();
  fd_.Release();
}

}  // namespace hyperloop
