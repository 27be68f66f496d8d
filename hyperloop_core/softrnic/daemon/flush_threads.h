// FlushThreads: a Flusher with a thread for each client that has files on a disk, so that a slow
// disk holds up the clients that use it and no other.
//
// The threads inherit neither priority nor processor of the engine's thread: one that is made with
// this object makes them. A disk that hangs keeps its client's thread until it answers; Stop does
// not wait for that.
#pragma once

#include <functional>
#include <memory>

#include "softrnic/flusher.h"

namespace hyperloop::softrnic {

class FlushThreads final : public Flusher {
 public:
  // `make_durable`: any thread.
  explicit FlushThreads(std::function<bool(const FileRange&)> make_durable = MakeDurable);
  ~FlushThreads() override;

  // Before the first Flush: `wake` is called, by any thread and until Stop, when a job is done.
  void Start(std::function<void()> wake);
  // What is not flushed yet is left to the kernel.
  void Stop();

  void Flush(uint64_t client, FileRange range, std::shared_ptr<FlushJob> job) override;
  void Gone(uint64_t client) override;

 private:
  struct Lane;
  struct State;
  const std::shared_ptr<State> state_;  // shared with threads that may outlive this object
};

}  // namespace hyperloop::softrnic
