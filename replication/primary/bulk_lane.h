// BulkLane: ships the finished files of a database directory to every replica (SST, blob, OPTIONS,
// IDENTITY). One thread per replica makes what the replica holds equal to what is listed.
//
// A file goes out from the local directory, a piece at a time, as soon as it is listed. What a
// replica holds is known from the list that each connection begins with, and from what was sent
// over it. So an acknowledgement never outlives the replica's state that it was given for: after
// SetTargets, and after any error, the replica is asked anew. Files that are not listed any more
// are dropped there. What has arrived of a file is not sent again.
//
// A replica that cannot be reached, or has no room, is tried again until the lane ends. All methods
// are thread safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "hyperloop/core/log.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/whole_file.h"
#include "primary/bulk_target.h"
#include "primary/periodic_thread.h"

namespace hyperloop {

class BulkLane {
 public:
  // As TakeRequest::read_local.
  using ReadLocal = std::function<Result<uint64_t>(const std::string& name, uint64_t offset,
                                                   std::span<char> out)>;
  struct Options {
    size_t piece = 256u << 10;  // bytes that are sent at once
    int avoid_cpu = -1;         // as PeriodicThread
  };
  struct Progress {
    uint64_t files = 0;  // listed
    uint64_t bytes_sent = 0;
    uint64_t files_left = 0;  // of the replica that is furthest behind
  };

  // `names`: of the replicas, for messages. Nothing is sent before SetTargets.
  BulkLane(std::vector<std::string> names, ReadLocal read_local, Options options,
           std::shared_ptr<Log> log);
  // Ends the threads; each finishes the step that it is at, of which the longest is to connect and
  // to ask for the list.
  ~BulkLane();

  // How the replicas are reached from now on, in the order of the names.
  void SetTargets(std::vector<BulkConnect> targets);
  // Makes `files` the list.
  void Set(const std::vector<WholeFile>& files);
  // Returns when every replica holds each file that is listed now, or the file is listed no more.
  // kUnavailable: a replica took no bytes for `timeout`, or refuses them from a primary that was
  // fenced, or `limit` is over; the replica is named with the cause. Also after Interrupt.
  Status Await(std::chrono::nanoseconds timeout,
               std::chrono::nanoseconds limit = std::chrono::nanoseconds::max());
  // Ends the calls of Await that are under way.
  void Interrupt();
  Progress progress() const;

 private:
  using Clock = std::chrono::steady_clock;

  struct Replica {
    std::string name;
    // The thread's alone.
    std::unique_ptr<BulkTarget> target;
    uint64_t generation = 0;  // of the targets that `target` was made from
    std::vector<char> buffer;
    // Under mutex_.
    BulkConnect connect;
    bool known = false;                      // the next two are what the replica holds
    std::set<WholeFile> held;                // finished
    std::map<WholeFile, uint64_t> received;  // of files that are not
    Status error;                            // ok after it took bytes
    uint32_t failures = 0;                   // since then
    Clock::time_point moved{};               // when it last took bytes
    std::unique_ptr<PeriodicThread> thread;
  };
  enum class Action : uint8_t { kNone, kConnect, kDrop, kSend };
  struct Step {
    Action action = Action::kNone;
    WholeFile file;
    uint64_t offset = 0;
    BulkConnect connect;
  };

  // A thread's work: one step; returns the pause until the next.
  std::chrono::milliseconds Work(Replica& replica);
  Step NextStep(Replica& replica);
  Status Do(Replica& replica, const Step& step);
  Status Connect(Replica& replica, const Step& step);
  Status Send(Replica& replica, const Step& step);
  Status Drop(Replica& replica, const Step& step);
  // What a replica lacks of these files, and is still listed.
  struct Lack {
    uint64_t files = 0;
    uint64_t bytes = 0;
  };
  Lack LackOfLocked(const Replica& replica, const std::vector<WholeFile>& files) const;
  bool IsListedLocked(const WholeFile& file) const;
  std::vector<WholeFile> ListedLocked() const;
  void WakeAll();

  const ReadLocal read_local_;
  const Options options_;
  const std::shared_ptr<Log> log_;

  mutable std::mutex mutex_;
  std::condition_variable moved_;
  std::map<std::string, WholeFile> listed_;
  uint64_t generation_ = 0;
  uint64_t bytes_sent_ = 0;
  uint64_t interrupts_ = 0;
  std::vector<std::unique_ptr<Replica>> replicas_;  // set by the constructor
};

}  // namespace hyperloop
