// Reads the file of a pool without libpmemobj.
//
// PMDK's metadata (headers, lanes, heap, zones) is written when the pool is made and never again,
// since the pool holds one root and one allocation for ever. libpmemobj follows its pointers
// without checking them, so that one flipped bit ends the process that opens the pool. The
// functions here follow only the root's offset, which leads to a structure under a CRC or to a
// refusal. A copy of that structure lies in our own allocation, right in front of the region, and
// is used if the root itself is damaged. The file remains an ordinary pool for PMDK's own tools.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "hyperloop/core/status.h"
#include "hyperloop/core/unique_fd.h"
#include "region/pool.h"

namespace hyperloop {

inline constexpr char kPoolLayout[] = "hyperloop-1";

// The root object of the pool: where region and node page lie.
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

// Sets magic, version and CRC.
void SealPoolRoot(PoolRoot* root);
// Where the copy of a root lies in the file: it ends where the region begins.
constexpr uint64_t PoolRootCopy(uint64_t region_offset) { return region_offset - sizeof(PoolRoot); }

enum class PoolLock {
  kWrite,      // to write; nobody else has it
  kReadAlone,  // only to read; nobody else has it
  kRead,       // only to read, as others may who only read
};
enum class PoolHolder { kNobody, kReaders, kOwner };

// Waits for other processes of a pool, as its options say.
class PoolWait {
 public:
  explicit PoolWait(const PoolOptions& options) : options_(options) {}
  // Pauses for a moment. False: it has waited long enough. `why` is asked when it is to be said.
  bool GoOn(const std::function<Status()>& why);

 private:
  const PoolOptions& options_;
  const std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point said_ = since_;
};

// Opens the file and tries once to take PMDK's lock on it; the lock lives as long as the descriptor
// and its copies. An empty descriptor: `holder` says who has it; else it is kNobody. kNotFound,
// kBusy (replaced under its name), kCorruption (too small for any pool), kInvalidArgument (no
// regular file), kPermissionDenied (to be written, and another user's, or others may write it,
// too).
Result<UniqueFd> TryLockPoolFile(const std::string& path, PoolLock lock, PoolHolder* holder);
// kBusy, with the processes that have the lock, as far as this one may see them. Looks at all
// processes of the machine.
Status PoolInUse(const std::string& path, PoolHolder holder);
// Makes the page cache agree with the disk, by dropping what it holds of the file. After a failed
// write it may hold bytes, as clean, that the disk lacks. Whoever opens the file later is not told,
// and storing the bytes again need not bring them to the disk. kUnavailable: the disk fails to
// write the file. kBusy: another process maps it, and still does after the patience.
Status SettlePoolFile(int fd, const std::string& path, const PoolOptions& options);
// The sound copy of the root. kCorruption: neither copy is sound, or the file is not a pool.
// kInvalidArgument: a pool of libpmemobj that another program made.
Result<PoolRoot> FindPoolRoot(int fd, const std::string& path);
// Checks that region and page lie within a file of `file_size` bytes. kCorruption says which does
// not.
Status CheckPoolRoot(const PoolRoot& root, uint64_t file_size, const std::string& path);
// Maps the whole file, to be unmapped by pmem_unmap: shared, on persistent memory directly; or
// private, where stores go nowhere. `fd`: of TryLockPoolFile.
Result<std::span<std::byte>> MapPoolFile(int fd, const std::string& path, bool private_copy);

}  // namespace hyperloop
