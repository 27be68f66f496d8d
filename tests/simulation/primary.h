// Primary: a process that has the group, and appends pieces to it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

#include "hyperloop/replication/store.h"
#include "simulation/history.h"
#include "simulation/world.h"

namespace hyperloop::simulation {

struct WriterOptions {
  uint64_t most_padding = 0;  // bytes that make pieces longer
  uint64_t at_once = 1;       // appends that wait together
};

// A thread of its own appends until an append finds the group fenced or the primary ends.
class Primary {
 public:
  // Made by a thread of the primary's process.
  Primary(const World& world, size_t host, std::unique_ptr<Store> store, FileId file,
          History& history, WriterOptions options);
  ~Primary();

  void Stop();
  // After Stop: appends more pieces than a group has slots. A group that is well acknowledges them
  // at once; meanwhile it may take in some replicas that were left out.
  Status AppendMany(History& history);
  Status Close();
  // The next appends follow each other without a pause.
  void Hurry();
  size_t host() const { return host_; }
  uint64_t process() const { return process_; }
  bool fenced() const { return fenced_; }
  // Another primary has the group: nothing that is appended from now on may be acknowledged.
  void Overtaken() { overtaken_ = true; }
  bool broke_fence() const { return broke_fence_; }

 private:
  void Write(History& history, const WriterOptions& options);
  void Pause();
  Status AppendSome(History& history, const WriterOptions& options);

  const World& world_;
  const size_t host_;
  const uint64_t process_;
  std::unique_ptr<Store> store_;
  const FileId file_;
  std::atomic<bool> stop_{false};
  std::atomic<int> busy_{0};
  std::atomic<bool> fenced_{false};
  std::atomic<bool> overtaken_{false};
  std::atomic<bool> broke_fence_{false};
  std::thread writer_;  // last: it uses the members above
};

}  // namespace hyperloop::simulation
