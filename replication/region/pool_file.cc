#include "region/pool_file.h"

#include <fcntl.h>
#include <libpmem.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "region/crc32c.h"
#include "region/region_layout.h"

namespace hyperloop {
namespace {

constexpr uint64_t kRootMagic = 0x4c4f4f504c48;  // "HLPOOL"
constexpr uint32_t kRootVersion = 1;
constexpr uint64_t kRegionAlign = 2ull << 20;
// libpmemobj's format, version 6: the header's first bytes, and two fields of the descriptor that
// follows the header's page.
constexpr char kSignature[8] = {'P', 'M', 'E', 'M', 'O', 'B', 'J', 0};
constexpr uint64_t kLayoutNameOffset = 4096;
constexpr uint64_t kRootOffsetOffset = 6144;
constexpr uint64_t kSmallestPool = 8ull << 20;
// The region begins behind PMDK's headers and lanes, at 4 or 6 MiB whatever its size.
constexpr uint64_t kRegionBeginsBelow = 64ull << 20;

constexpr std::string_view kWaysOut =
    ". Set the file aside and keep it; where its group has other members, hyperloopctl verify "
    "names the sound ones, and export reads one of them and says whether it is the newest";

uint32_t RootCrc(PoolRoot root) {
  root.crc = 0;
  return Crc32c(0, &root, sizeof(root));
}

template <typename T>
std::optional<T> ReadAt(int fd, uint64_t offset) {
  T value;
  if (offset > INT64_MAX) return std::nullopt;
  if (::pread(fd, &value, sizeof(value), static_cast<off_t>(offset)) != sizeof(value))
    return std::nullopt;
  return value;
}

std::optional<PoolRoot> ReadRoot(int fd, uint64_t offset) {
  std::optional<PoolRoot> root = ReadAt<PoolRoot>(fd, offset);
  if (root && root->magic == kRootMagic && root->crc == RootCrc(*root)) return root;
  return std::nullopt;
}

std::optional<PoolRoot> ReadRootCopy(int fd) {
  for (uint64_t begin = kRegionAlign; begin <= kRegionBeginsBelow; begin += kRegionAlign) {
    std::optional<PoolRoot> root = ReadRoot(fd, PoolRootCopy(begin));
    if (root && root->region_offset == begin) return root;
  }
  return std::nullopt;
}

// Says why there is no root: the file is another program's pool, no pool, or a damaged pool of
// ours.
Status NoRoot(int fd, const std::string& path) {
  const auto signature = ReadAt<std::array<char, sizeof(kSignature)>>(fd, 0);
  const auto layout = ReadAt<std::array<char, 64>>(fd, kLayoutNameOffset);
  if (!signature || std::memcmp(signature->data(), kSignature, sizeof(kSignature)) != 0)
    return Corruption("pool " + path + " is damaged, or not a pool of libpmemobj" +
                      std::string(kWaysOut));
  if (layout && std::memcmp(layout->data(), kPoolLayout, sizeof(kPoolLayout)) != 0) {
    return InvalidArgument("pool " + path + " belongs to another program: its layout is \"" +
                           std::string(layout->data(), strnlen(layout->data(), layout->size())) +
                           "\", not \"" + kPoolLayout + "\"; name another path");
  }
  return Corruption("pool " + path +
                    " is damaged or was never finished: neither copy of its root passes its check" +
                    std::string(kWaysOut));
}

// The inode of the file whose lock, of flock, the line of /proc/PID/fdinfo/N tells of: "lock: 1:
// FLOCK ADVISORY WRITE 123 fd:01:456 0 EOF". "": it tells of none.
std::string LockedInode(const std::string& line) {
  if (!line.starts_with("lock:") || line.find("FLOCK") == std::string::npos) return {};
  const size_t colon = line.rfind(':');
  return line.substr(colon + 1, line.find(' ', colon) - colon - 1);
}

// Whether this descriptor, as /proc names it, holds a lock of flock on the file. Only a descriptor
// that holds one on a file of that number is followed: another one's file system may be away, and
// would be waited for.
bool HoldsFlock(const std::filesystem::path& process, const std::string& fd,
                const struct stat& file) {
  std::ifstream info(process / "fdinfo" / fd);
  for (std::string line; std::getline(info, line);) {
    if (LockedInode(line) != std::to_string(file.st_ino)) continue;
    struct stat st;
    return ::stat((process / "fd" / fd).c_str(), &st) == 0 && st.st_ino == file.st_ino &&
           st.st_dev == file.st_dev;
  }
  return false;
}

bool HoldsFlock(const std::filesystem::path& process, const struct stat& file) {
  std::error_code unreadable;  // another user's process, or one that has just ended
  for (std::filesystem::directory_iterator fd(process / "fdinfo", unreadable), end;
       !unreadable && fd != end; fd.increment(unreadable)) {
    if (HoldsFlock(process, fd->path().filename(), file)) return true;
  }
  return false;
}

// The processes that hold the lock, as far as this one may look: "process 123 (name)". A process
// that was forked with the lock holds it, too, and only this shows which one.
std::string LockHolders(const struct stat& file) {
  std::string holders;
  std::error_code unreadable;
  for (std::filesystem::directory_iterator process("/proc", unreadable), end;
       !unreadable && process != end; process.increment(unreadable)) {
    const std::string pid = process->path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos ||
        !HoldsFlock(process->path(), file))
      continue;
    std::string name;
    std::getline(std::ifstream(process->path() / "comm"), name);
    holders += (holders.empty() ? "process " : ", process ") + pid + " (" + name + ")";
  }
  return holders;
}

// A file may be replaced under its name between the opening and the locking.
Status CheckSameFile(int fd, const std::string& path, struct stat* st) {
  struct stat named;
  if (::fstat(fd, st) != 0 || ::stat(path.c_str(), &named) != 0)
    return FromErrno(errno, "open pool " + path);
  if (st->st_dev == named.st_dev && st->st_ino == named.st_ino) return {};
  return Busy("pool " + path + " was replaced while it was being opened; try again");
}

// Whoever else may write to a pool could keep it mapped, and change it under a replica.
Status CheckOwner(const struct stat& st, const std::string& path) {
  if (st.st_uid != geteuid() && st.st_uid != 0) {
    return PermissionDenied("pool " + path + " belongs to user " + std::to_string(st.st_uid) +
                            ", and this process is user " + std::to_string(geteuid()) +
                            ": run it as the pool's owner, or change the owner (chown)");
  }
  if ((st.st_mode & (S_IWGRP | S_IWOTH)) == 0) return {};
  return PermissionDenied("pool " + path + " can be written by other users: chmod 600 " + path);
}

Status NoFile(int error, const std::string& path) {
  struct stat st;
  if (error == ENOENT && ::stat((path + ".creating").c_str(), &st) == 0) {
    return NotFound("pool " + path + " does not exist; its creation was cut short (" + path +
                    ".creating is left), create it again");
  }
  return FromErrno(error, "open pool " + path);
}

// How many pages of the file the page cache holds.
Result<size_t> CachedPages(int fd, const std::string& path) {
  struct stat st;
  if (::fstat(fd, &st) != 0) return FromErrno(errno, "open pool " + path);
  const auto size = static_cast<size_t>(st.st_size);
  const auto page_size = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> cached((size + page_size - 1) / page_size);
  void* const mapping = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (mapping == MAP_FAILED) return FromErrno(errno, "map pool " + path);
  const int looked = ::mincore(mapping, size, cached.data());
  const int error = errno;
  ::munmap(mapping, size);
  if (looked != 0) {
    return FromErrno(error, "pool " + path +
                                ": ask for the pages that the page cache holds (system call "
                                "mincore; a unit's SystemCallFilter must allow it)");
  }
  return static_cast<size_t>(std::count_if(cached.begin(), cached.end(),
                                           [](unsigned char each) { return (each & 1) != 0; }));
}

}  // namespace

bool PoolWait::GoOn(const std::function<Status()>& why) {
  using std::chrono::milliseconds;
  const auto now = std::chrono::steady_clock::now();
  if (now - since_ >= options_.patience) return false;
  if (options_.waiting && now - said_ >= std::chrono::seconds(1)) {
    said_ = now;
    if (!options_.waiting(why().message())) return false;
  }
  std::this_thread::sleep_for(said_ == since_ ? milliseconds(5) : milliseconds(50));
  return true;
}

// An RNIC daemon unmaps a file soon after the process that registered it has ended.
Status SettlePoolFile(int fd, const std::string& path, const PoolOptions& options) {
  if (::fsync(fd) != 0) {
    return Unavailable(FromErrno(errno, "the disk fails to write pool " + path).message() +
                       "; when it is in order, start again: what the disk lacks then comes from "
                       "the other members of the group");
  }
  PoolWait wait(options);
  while (true) {
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    HL_ASSIGN_OR_RETURN(const size_t left, CachedPages(fd, path));
    if (left == 0) return {};
    const auto mapped = [&] {
      return Busy("pool " + path +
                  " is still mapped by another process: end it, such as an RNIC "
                  "daemon, or wait for it, and start again; what the disk holds of " +
                  std::to_string(left) + " pages cannot be seen before");
    };
    if (!wait.GoOn(mapped)) return mapped();
  }
}

void SealPoolRoot(PoolRoot* root) {
  root->magic = kRootMagic;
  root->version = kRootVersion;
  root->crc = RootCrc(*root);
}

Result<UniqueFd> TryLockPoolFile(const std::string& path, PoolLock lock, PoolHolder* holder) {
  *holder = PoolHolder::kNobody;
  struct stat st;
  if (::stat(path.c_str(), &st) != 0) return NoFile(errno, path);
  if (!S_ISREG(st.st_mode)) return InvalidArgument("pool " + path + " is not a regular file");
  const bool writes = lock == PoolLock::kWrite;
  UniqueFd fd(::open(path.c_str(), (writes ? O_RDWR : O_RDONLY) | O_CLOEXEC));
  if (!fd) return FromErrno(errno, "open pool " + path);
  const auto try_lock = [&](int how) { return ::flock(fd.get(), how | LOCK_NB) == 0; };
  if (!try_lock(lock == PoolLock::kRead ? LOCK_SH : LOCK_EX)) {
    if (errno != EWOULDBLOCK) return FromErrno(errno, "lock pool " + path);
    *holder = try_lock(LOCK_SH) ? PoolHolder::kReaders : PoolHolder::kOwner;
    return UniqueFd();
  }
  HL_RETURN_IF_ERROR(CheckSameFile(fd.get(), path, &st));
  if (writes) HL_RETURN_IF_ERROR(CheckOwner(st, path));
  if (static_cast<uint64_t>(st.st_size) >= kSmallestPool) return fd;
  return Corruption("pool " + path + " is truncated or not a pool: " + std::to_string(st.st_size) +
                    " B, the smallest pool has " + std::to_string(kSmallestPool) +
                    std::string(kWaysOut));
}

Status PoolInUse(const std::string& path, PoolHolder holder) {
  struct stat st;
  const std::string holders = ::stat(path.c_str(), &st) == 0 ? LockHolders(st) : std::string();
  return Busy("pool " + path +
              (holder == PoolHolder::kReaders
                   ? " is being read by another process; end that one, or wait for it"
                   : " is in use by another process (a replica or primary, running or stopped)") +
              (holders.empty() ? "" : "; its lock is held by " + holders));
}

Result<PoolRoot> FindPoolRoot(int fd, const std::string& path) {
  std::optional<PoolRoot> root;
  if (const auto offset = ReadAt<uint64_t>(fd, kRootOffsetOffset)) root = ReadRoot(fd, *offset);
  if (!root) root = ReadRootCopy(fd);
  if (!root) return NoRoot(fd, path);
  if (root->version == kRootVersion) return *root;
  return InvalidArgument("pool " + path + " was made by another version of this program: version " +
                         std::to_string(root->version) +
                         " of the pool's root, this program reads " + std::to_string(kRootVersion));
}

Status CheckPoolRoot(const PoolRoot& root, uint64_t file_size, const std::string& path) {
  const auto fits = [&](uint64_t offset, uint64_t size) {
    return offset % 4096 == 0 && size % 4096 == 0 && size > 0 && offset <= file_size &&
           size <= file_size - offset;
  };
  if (file_size < root.pool_size || !fits(root.region_offset, root.region_size) ||
      !fits(root.node_page_offset, root.node_page_size) || root.node_page_size < kNodePageSize) {
    return Corruption("pool " + path + " is truncated: " + std::to_string(file_size) +
                      " B, made with " + std::to_string(root.pool_size) + std::string(kWaysOut));
  }
  return {};
}

Result<std::span<std::byte>> MapPoolFile(int fd, const std::string& path, bool private_copy) {
  struct stat st;
  if (::fstat(fd, &st) != 0) return FromErrno(errno, "open pool " + path);
  auto size = static_cast<size_t>(st.st_size);
  void* data = nullptr;
  if (private_copy) {
    data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    if (data == MAP_FAILED) return FromErrno(errno, "map pool " + path);
  } else {
    data = pmem_map_file(path.c_str(), 0, 0, 0, &size, nullptr);
    if (data == nullptr) return FromErrno(errno, "map pool " + path);
  }
  return std::span(static_cast<std::byte*>(data), size);
}

}  // namespace hyperloop
