// Flusher: makes files durable outside the engine's thread, which must not wait for a disk.
//
// A READ makes the bytes durable that arrived before it on its queue pair. If the flush of a file
// may wait for a disk (UmemMapping::waits_for_disk), the engine hands the file's ranges to a
// Flusher. The READ and its queue pair wait until they are durable; all other queue pairs go on.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace hyperloop::softrnic {

// The flushes that one queue pair has under way: how many are left, and whether one failed.
struct FlushJob {
  std::atomic<uint32_t> left{0};
  std::atomic<bool> failed{false};
};

// Mapped bytes of a file.
struct FileRange {
  std::byte* begin = nullptr;
  std::byte* end = nullptr;
  int fd = -1;            // of the file, if it may shrink, otherwise -1; `owner` owns it
  uint64_t file_end = 0;  // where `end` is in the file
  // Set once a flush of this mapping failed. The kernel reports a failed write only once, to any
  // caller, and then treats the pages as clean. So no later flush of the mapping can be trusted.
  std::shared_ptr<std::atomic<bool>> failed;
  std::shared_ptr<void> owner;  // of the mapping
};

// Calls msync for the range. False: it failed, now or before, or the file has lost bytes of the
// range. Any thread may call this.
bool MakeDurable(const FileRange& range);

class Flusher {
 public:
  virtual ~Flusher() = default;
  // Makes `range` durable later, for client number `client`. Then it sets `job->failed` if that
  // failed, decrements `job->left`, and makes sure that the engine runs. Called by the engine's
  // thread; must not wait. False: too many ranges wait already, and nothing is done.
  virtual bool Flush(uint64_t client, FileRange range, std::shared_ptr<FlushJob> job) = 0;
  // Client number `client` is gone. No more ranges come for it, unless it connects again.
  virtual void Gone(uint64_t client) = 0;
};

}  // namespace hyperloop::softrnic
