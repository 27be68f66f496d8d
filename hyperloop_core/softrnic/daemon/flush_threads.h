// FlushThreads: a Flusher with a thread for each client that has files on a disk (ClientThreads),
// so that a slow disk delays only the clients that use it.
//
// A disk that hangs keeps its client's thread until it answers; Stop does not wait for that.
// Waiting ranges hold mappings, so their number is bounded, for each client and for all.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "softrnic/daemon/client_threads.h"
#include "softrnic/engine/flusher.h"

namespace hyperloop::softrnic {

class FlushThreads final : public Flusher {
 public:
  static constexpr size_t kMaxClients = 256;
  static constexpr size_t kMaxTasksOfClient = 1024;
  static constexpr size_t kMaxTasks = 8192;

  // Any thread may call `make_durable`.
  explicit FlushThreads(std::function<bool(const FileRange&)> make_durable = MakeDurable);
  ~FlushThreads() override;

  // Call before the first Flush. `wake` is called when a job is done, and not after Stop has
  // returned. `released` is called when a mapping is no longer used, perhaps long after Stop, so it
  // must not refer to objects that Stop's caller destroys. Both may be called by any thread.
  void Start(std::function<void()> wake, std::function<void()> released);
  // Ranges that are not flushed yet are flushed if the process lasts that long.
  void Stop();

  bool Flush(uint64_t client, FileRange range, std::shared_ptr<FlushJob> job) override;
  void Gone(uint64_t client) override;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // shared with threads that may outlive this object
  ClientThreads threads_;
};

}  // namespace hyperloop::softrnic
