// FlushThreads: a Flusher with a thread for each client that has files on a disk, so that a slow
// disk holds up the clients that use it and no other.
//
// The threads inherit neither priority nor processor of the engine's thread: one that is made with
// Start makes them. A disk that hangs keeps its client's thread until it answers; Stop does not
// wait for that. What is waiting is bounded, since it holds mappings, for each client and for all.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "softrnic/flusher.h"

namespace hyperloop::softrnic {

class FlushThreads final : public Flusher {
 public:
  static constexpr size_t kMaxClients = 256;
  static constexpr size_t kMaxTasksOfClient = 1024;
  static constexpr size_t kMaxTasks = 8192;

  // `make_durable`: any thread.
  explicit FlushThreads(std::function<bool(const FileRange&)> make_durable = MakeDurable);
  ~FlushThreads() override;

  // Before the first Flush. Called by any thread: `wake` when a job is done, until Stop; `released`
  // when a mapping was let go, at any time, which must not refer to what Stop's caller destroys.
  void Start(std::function<void()> wake, std::function<void()> released);
  // What is not flushed yet is left to the kernel.
  void Stop();

  bool Flush(uint64_t client, FileRange range, std::shared_ptr<FlushJob> job) override;
  void Gone(uint64_t client) override;

 private:
  struct Lane;
  struct State;
  const std::shared_ptr<State> state_;  // shared with threads that may outlive this object
};

}  // namespace hyperloop::softrnic
