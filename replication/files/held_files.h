// HeldFiles: which whole files the replicas of a group hold, for a primary that lacks some.
//
// A replica is asked once it matters what it holds: when no replica that has answered holds a file.
// One that has answered is not asked again, unless its connection breaks. One that did not answer
// may cost the whole time limit of a connection, so it is not asked for each file again, but only
// after a pause.
//
// One that gives a file too slowly (transfer_pace.h) is left after a while, and the next holder
// goes on. If all of them are slow, they take turns. Not thread safe.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "files/bulk_target.h"
#include "files/transfer_pace.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/whole_file.h"

namespace hyperloop {

class HeldFiles {
 public:
  using Clock = std::chrono::steady_clock;
  using Now = std::function<Clock::time_point()>;
  // `pause`: how long a replica that did not answer, or whose connection broke, is not asked again.
  // The longest pause never ends. `now`: the clock by which replicas are slow.
  explicit HeldFiles(std::vector<BulkConnect> replicas,
                     std::chrono::nanoseconds pause = std::chrono::nanoseconds::max(),
                     Now now = Clock::now);

  // Whether a replica that has answered holds `file`.
  bool Holds(const WholeFile& file);
  // Whether fewer than half of all replicas are known to hold `file`. Asks those that have not
  // answered.
  bool FewHold(const WholeFile& file);
  // Why replicas that were asked did not answer, for a message; empty: all that were asked did.
  std::string Unanswered() const;
  // Gives `sink` the file's bytes in order. kNotFound: all replicas have answered, and none holds
  // the file. kUnavailable: no replica that has answered holds it, and at least one has not
  // answered; or all that hold it give next to nothing. kCorruption: the bytes that `sink` got are
  // not the file's; another call tries other replicas. Any other error is that of `sink`, or of the
  // last replica that was tried.
  using Sink = std::function<Status(std::span<const char>)>;
  Status Fetch(const WholeFile& file, const Sink& sink);

 private:
  struct Replica {
    BulkConnect connect;
    std::unique_ptr<BulkTarget> target;  // null: it has not answered
    std::set<WholeFile> held;
    TransferPace pace;
    Status error;                // why there is no target; ok: it was never asked
    Clock::time_point failed{};  // when that was
  };
  struct Transfer {
    const WholeFile& file;
    const Sink& sink;
    std::vector<char> buffer;
    uint64_t at = 0;  // so many bytes have come
    FileChecksum checksum{};
    std::set<Replica*> givers{};
    bool sink_failed = false;
  };
  // A replica that holds the file and is none of `except`, and rather one that is not slow; null:
  // none is known. Asks replicas only if none that has answered will do.
  Replica* HolderOf(const WholeFile& file, std::span<Replica* const> except);
  // The name under which the replica holds the file's bytes; null: it does not hold them.
  static const WholeFile* NameOf(const Replica& replica, const WholeFile& file);
  // Notes that the bytes under that name are of no use.
  static void Forget(Replica& replica, const WholeFile& file);
  static void Ask(Replica& replica);
  // Reads from `replica` to the end of the file. Ok before that: it is too slow.
  Status Read(Replica& replica, Transfer* transfer);
  // The end of a file whose bytes have all come, those at its end from `last`.
  Status CheckWhole(Replica& last, const Transfer& transfer);
  static void Lose(Replica& replica, const Status& error);
  Status NobodyHolds(const WholeFile& file) const;

  const std::chrono::nanoseconds pause_;
  const Now now_;
  std::vector<Replica> replicas_;
  std::set<WholeFile> from_one_;  // parts of several replicas were wrong together
};

}  // namespace hyperloop
