// HeldFiles: which whole files the replicas of a group hold, for a primary that lacks some.
//
// A replica is asked once it matters what it holds: when no replica that has answered holds a file.
// One that has answered is not asked again, unless its connection breaks. One that did not answer
// may cost the whole time limit of a connection, so it is not asked for each file again, but only
// after a pause. Not thread safe.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/whole_file.h"
#include "primary/bulk_target.h"

namespace hyperloop {

class HeldFiles {
 public:
  // `pause`: how long a replica that did not answer, or whose connection broke, is not asked again.
  // The longest pause never ends.
  explicit HeldFiles(std::vector<BulkConnect> replicas,
                     std::chrono::nanoseconds pause = std::chrono::nanoseconds::max());

  // Whether a replica that has answered holds `file`.
  bool Holds(const WholeFile& file);
  // Whether fewer than half of all replicas are known to hold `file`. Asks those that have not
  // answered.
  bool FewHold(const WholeFile& file);
  // Why replicas that were asked did not answer, for a message; empty: all that were asked did.
  std::string Unanswered() const;
  // Gives `sink` the file's bytes in order. kNotFound: all replicas have answered, and none holds
  // the file. kUnavailable: no replica that has answered holds it, and at least one has not
  // answered. kCorruption: the bytes that `sink` got are not the file's; another call tries other
  // replicas. Any other error is that of `sink`, or of the last replica that was tried.
  using Sink = std::function<Status(std::span<const char>)>;
  Status Fetch(const WholeFile& file, const Sink& sink);

 private:
  using Clock = std::chrono::steady_clock;

  struct Replica {
    BulkConnect connect;
    std::unique_ptr<BulkTarget> target;  // null: it has not answered
    std::set<WholeFile> held;
    Status error;                // why there is no target; ok: it was never asked
    Clock::time_point failed{};  // when that was
  };
  // A replica that holds the file and is none of `except`; null: none is known. Asks replicas only
  // if none that has answered will do.
  Replica* HolderOf(const WholeFile& file, std::span<Replica* const> except);
  // The name under which the replica holds the file's bytes; null: it does not hold them.
  static const WholeFile* NameOf(const Replica& replica, const WholeFile& file);
  static void Ask(Replica& replica);
  static void Lose(Replica& replica, const Status& error);
  Status NobodyHolds(const WholeFile& file) const;

  const std::chrono::nanoseconds pause_;
  std::vector<Replica> replicas_;
};

}  // namespace hyperloop
