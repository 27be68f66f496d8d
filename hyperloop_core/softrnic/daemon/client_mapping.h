// Maps a client's memory into the daemon, from an untrusted descriptor.
//
// What is asked about such a descriptor may be asked of a server that never answers, and closing it
// may never end. So both are done on the client's thread (ClientThreads).
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <utility>

#include "hyperloop/core/mutex.h"
#include "hyperloop/core/status.h"
#include "softrnic/commands/commands.h"
#include "softrnic/daemon/client_threads.h"
#include "softrnic/engine/engine.h"

namespace hyperloop::softrnic {

// kInvalidArgument: files on a file system of this type (f_type of statfs) cannot be served: it has
// explicit huge pages, or another program or machine serves its pages and could hold up every host
// at each fault.
Status CheckFileSystem(int64_t type);

// Mappings that the engine or its flusher no longer uses. Another thread unmaps them, because that
// may take long: a second for 64 GiB of populated memory. It unmaps a piece at a time, so that
// other changes of the process's mappings can happen in between. Thread safe.
class UnmapQueue {
 public:
  struct Range {
    void* address = nullptr;
    size_t length = 0;          // 0: nothing is mapped
    ClientThreads::Tasks last;  // at most one, to be done when it is unmapped
  };
  using Ranges = std::list<Range>;

  explicit UnmapQueue(std::shared_ptr<ClientThreads> threads) : threads_(std::move(threads)) {}
  ~UnmapQueue() { Drain(); }
  // Needs no memory, because its callers are destructors, which could report no failure.
  void Add(Ranges ranges) noexcept {
    MutexLock lock(mutex_);
    for (const Range& range : ranges) bytes_ += range.length;
    ranges_.splice(ranges_.end(), ranges);
  }
  // The bytes that wait to be unmapped.
  size_t bytes() {
    MutexLock lock(mutex_);
    return bytes_;
  }
  // Unmaps one piece, of 64 MiB at most. False: nothing waits any more.
  bool DrainSome();
  void Drain() {
    while (DrainSome()) {
    }
  }

 private:
  const std::shared_ptr<ClientThreads> threads_;
  Mutex mutex_;
  Ranges ranges_ HL_GUARDED_BY(mutex_);
  size_t bytes_ HL_GUARDED_BY(mutex_) = 0;
};

// Maps `args.length` bytes at `args.fd_offset` of the file, shared and writable, for client number
// `client`. kInvalidArgument: the range is outside the file, not aligned or longer than 64 GiB, or
// the file is not regular, of explicit huge pages or on a file system whose server could hold up
// every host at each fault. kPermissionDenied: the file is not open for reading and writing, or it
// is anonymous memory (memfd) that could shrink. A file with a name may be truncated later: the
// engine turns the fault into a protection error (Engine::HandleFault).
//
// The memory is populated, so that the engine's first touch of a page does not fault; that may wait
// for a disk. Sparse files are not, because they may be far larger than memory. What cannot be
// populated, such as memory behind the end of a truncated file, is left as it is.
Result<UmemMapping> MapClientMemory(const RegisterUmemArgs& args, int fd, ClientNumber client,
                                    const std::shared_ptr<UnmapQueue>& unmap);

}  // namespace hyperloop::softrnic
