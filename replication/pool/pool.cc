#include "pool/pool.h"

#include <fcntl.h>
#include <libpmemobj.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>

#include "layout/crc32c.h"
#include "layout/region_layout.h"

namespace hyperloop {
namespace {

constexpr char kPoolLayout[] = "hyperloop-1";
constexpr uint64_t kAlign = 2ull << 20;
// What libpmemobj needs beside the allocation: headers, lanes, zone metadata (measured: a little
// under 4 MiB).
constexpr uint64_t kPoolOverhead = 8ull << 20;
constexpr uint64_t kMinRegion = 64ull << 10;
constexpr uint64_t kRootMagic = 0x4c4f4f504c48;  // "HLPOOL"

// The root object of the pool.
struct PoolRoot {
  uint64_t magic;
  uint32_t version;
  uint32_t crc;  // over this struct with crc = 0, seed 0
  uint64_t pool_size;
  uint64_t region_offset;  // in the file
  uint64_t region_size;
  uint64_t node_page_offset;
  uint64_t node_page_size;
};
static_assert(sizeof(PoolRoot) == 56);

uint32_t RootCrc(PoolRoot root) {
  root.crc = 0;
  return Crc32c(0, &root, sizeof(root));
}

uint64_t AlignUp(uint64_t n) { return (n + kAlign - 1) & ~(kAlign - 1); }
uint64_t PoolSize(uint64_t region_size) {
  return AlignUp(region_size + kAlign + kNodePageSize + kPoolOverhead);
}

std::string Pmem(std::string_view what, const std::string& path) {
  return std::string(what) + " " + path + ": " + pmemobj_errormsg();
}

class OwnedFd {
 public:
  explicit OwnedFd(int fd) : fd_(fd) {}
  ~OwnedFd() {
    if (fd_ >= 0) ::close(fd_);
  }
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

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

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
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

// Removes what a crashed creation left; kBusy when one is going on.
Status RemoveLeftover(const std::string& temporary) {
  const OwnedFd fd(::open(temporary.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (fd.get() < 0)
    return errno == ENOENT ? Status() : FromErrno(errno, "open leftover " + temporary);
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
  if (pmemobj_alloc(pool, &memory, region_size + kAlign + kNodePageSize, 0, nullptr, nullptr) !=
      0) {
    return NoSpace(
        Pmem("allocate a region of " + std::to_string(region_size) + " B in pool", path));
  }
  const auto base = reinterpret_cast<const char*>(pool);
  const auto at = static_cast<uint64_t>(static_cast<const char*>(pmemobj_direct(memory)) - base);
  auto* root = static_cast<PoolRoot*>(pmemobj_direct(root_id));
  PoolRoot filled{};
  filled.magic = kRootMagic;
  filled.version = kLayoutVersion;
  filled.pool_size = pool_size;
  filled.region_offset = AlignUp(at);
  filled.region_size = region_size;
  filled.node_page_offset = filled.region_offset + region_size;
  filled.node_page_size = kNodePageSize;
  filled.crc = RootCrc(filled);
  pmemobj_memcpy_persist(pool, root, &filled, sizeof(filled));
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

Status OpenError(int error, const std::string& path) {
  const std::string message = pmemobj_errormsg();
  if (error == EAGAIN || error == EWOULDBLOCK) {
    return Busy("pool " + path +
                " is in use by another process (a replica or primary, running or stopped)");
  }
  if (error == EINVAL && message.find("layout") != std::string::npos) {
    return InvalidArgument("pool " + path +
                           " belongs to another program or to another layout version than \"" +
                           std::string(kPoolLayout) + "\": " + message);
  }
  if (error == EACCES || error == EPERM || error == ENOENT || error == ENOMEM) {
    return {FromErrno(error, "").code(), "open pool " + path + ": " + message};
  }
  return Corruption("pool " + path + " is truncated, damaged or not a pool: " + message);
}

// What must hold before libpmemobj is let near the file: it maps what the headers say.
Status CheckFile(const std::string& path) {
  struct stat st;
  if (::stat(path.c_str(), &st) != 0) {
    const int error = errno;
    if (error == ENOENT && ::stat((path + ".creating").c_str(), &st) == 0) {
      return NotFound("pool " + path + " does not exist; its creation was cut short (" + path +
                      ".creating is left), create it again");
    }
    return FromErrno(error, "open pool " + path);
  }
  if (!S_ISREG(st.st_mode)) return InvalidArgument("pool " + path + " is not a regular file");
  const auto size = static_cast<uint64_t>(st.st_size);
  if (size < PoolSize(kMinRegion)) {
    return Corruption("pool " + path + " is truncated or not a pool: " + std::to_string(size) +
                      " B, the smallest pool has " + std::to_string(PoolSize(kMinRegion)));
  }
  const OwnedFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return FromErrno(errno, "open pool " + path);
  char signature[8] = {};
  if (::pread(fd.get(), signature, sizeof(signature), 0) != sizeof(signature) ||
      std::memcmp(signature, "PMEMOBJ", sizeof(signature)) != 0) {
    return Corruption(path + " is not a pool of libpmemobj");
  }
  return {};
}

// copy_on_write.at_open is a switch of the whole process; openings take turns.
std::mutex open_mutex;

PMEMobjpool* OpenObj(const std::string& path, bool private_copy, int* error) {
  std::lock_guard lock(open_mutex);
  int on = private_copy ? 1 : 0;
  if (pmemobj_ctl_set(nullptr, "copy_on_write.at_open", &on) != 0) {
    *error = ENOTSUP;
    return nullptr;
  }
  PMEMobjpool* pool = pmemobj_open(path.c_str(), kPoolLayout);
  *error = errno;
  on = 0;
  if (private_copy && pmemobj_ctl_set(nullptr, "copy_on_write.at_open", &on) != 0 &&
      pool != nullptr) {
    pmemobj_close(pool);
    *error = ENOTSUP;
    return nullptr;
  }
  return pool;
}

Status CheckRoot(const PoolRoot& root, uint64_t file_size, const std::string& path) {
  if (root.magic != kRootMagic || root.version != kLayoutVersion || RootCrc(root) != root.crc) {
    return Corruption("pool " + path + " was not made by this program, or its root is damaged");
  }
  const auto fits = [&](uint64_t offset, uint64_t size) {
    return offset % 4096 == 0 && size % 4096 == 0 && offset <= file_size &&
           size <= file_size - offset;
  };
  if (file_size < root.pool_size || !fits(root.region_offset, root.region_size) ||
      !fits(root.node_page_offset, root.node_page_size) || root.node_page_size < kNodePageSize) {
    return Corruption("pool " + path + " is truncated: " + std::to_string(file_size) +
                      " B, made with " + std::to_string(root.pool_size));
  }
  return {};
}

}  // namespace

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
  // The pool is closed and whole. Another creator may have been faster: never replace its file.
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) != 0) {
    const Status status = FromErrno(errno, "rename " + temporary + " to " + path);
    ::unlink(temporary.c_str());
    return status;
  }
  const OwnedFd directory(::open(DirectoryOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0 || ::fsync(directory.get()) != 0)
    return FromErrno(errno, "sync directory of " + path);
  return OpenPool(path, options, false);
}

Result<std::unique_ptr<Pool>> Pool::Open(const std::string& path, const PoolOptions& options) {
  return OpenPool(path, options, false);
}

Result<std::unique_ptr<Pool>> Pool::OpenCopyOnWrite(const std::string& path) {
  return OpenPool(path, {}, true);
}

Result<std::unique_ptr<Pool>> Pool::OpenPool(const std::string& path, const PoolOptions& options,
                                             bool private_copy) {
  rnic::Media level = rnic::Media::kRam;
  if (options.media != "auto") {
    HL_ASSIGN_OR_RETURN(level, ParseMedia(options.media));
  }
  HL_RETURN_IF_ERROR(CheckFile(path));
  int error = 0;
  PMEMobjpool* obj = OpenObj(path, private_copy, &error);
  if (obj == nullptr) return OpenError(error, path);
  std::unique_ptr<Pool> pool(new Pool());
  pool->pool_ = obj;
  pool->owner_ = ::getpid();
  pool->path_ = path;
  pool->fd_ = ::open(path.c_str(), (private_copy ? O_RDONLY : O_RDWR) | O_CLOEXEC);
  struct stat st;
  if (pool->fd_ < 0 || ::fstat(pool->fd_, &st) != 0) return FromErrno(errno, "open pool " + path);
  if (pmemobj_root_size(obj) < sizeof(PoolRoot))
    return Corruption("pool " + path + " has no root; it was never finished");
  PoolRoot root;
  std::memcpy(&root, pmemobj_direct(pmemobj_root(obj, sizeof(PoolRoot))), sizeof(root));
  HL_RETURN_IF_ERROR(CheckRoot(root, static_cast<uint64_t>(st.st_size), path));
  auto* base = reinterpret_cast<std::byte*>(obj);
  pool->region_ = {base + root.region_offset, root.region_size};
  pool->node_page_ = {base + root.node_page_offset, root.node_page_size};
  pool->region_file_offset_ = root.region_offset;
  pool->node_page_file_offset_ = root.node_page_offset;
  if (private_copy) {  // nothing written here goes anywhere, and nobody else may be given the file
    ::close(std::exchange(pool->fd_, -1));
  } else if (options.media == "auto") {
    HL_ASSIGN_OR_RETURN(level, DetectMedia(pool->fd_, pool->region_.data(), pool->region_.size()));
  }
  pool->media_ = MakeMediaWriter(level);
  return pool;
}

Pool::~Pool() {
  if (owner_ != ::getpid()) return;  // a forked child: the mapping and the lock are the parent's
  if (fd_ >= 0) ::close(fd_);
  if (pool_ != nullptr) pmemobj_close(static_cast<PMEMobjpool*>(pool_));
}

}  // namespace hyperloop
