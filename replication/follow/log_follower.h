// LogFollower: a private copy of a replica's region that grows with its log, up to the last record
// that is known to be acknowledged.
//
// A record is known to be acknowledged when the head says so, or a later record, or the primary
// beside its heartbeat. They say so only of what is durable on every replica and what the primary
// does not take back after a call that failed (decisions.h). So a follower shows nothing that
// disappears again, and each state that it shows is a prefix of the log (memtables are made from
// exactly such bytes: HyperLoop §5.1).
//
// It reads by the caller's functions only, which may be RDMA READs of a replica whose process is
// stopped. A new epoch may change the region without records, so then everything is read anew; the
// follower shows nothing new between a primary's seal and its installation. Not thread safe.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/inspect.h"
#include "inspect/image_reader.h"
#include "region/record.h"
#include "region/region_layout.h"

namespace hyperloop {

class LogFollower {
 public:
  enum class Progress {
    kNone,           // nothing is known to be acknowledged that was not shown before
    kAppended,       // records were applied behind the ones shown before
    kReadAnew,       // another epoch began, or the log was overwritten before it was read
    kAwaitsPrimary,  // a primary is taking the group, or none ever has
  };

  // `fetch`: as ReadImage. `mark`: what the node's page says now.
  LogFollower(RegionFetch fetch, std::function<Result<NodeMark>()> mark, uint64_t region_size)
      : fetch_(std::move(fetch)), mark_(std::move(mark)), region_size_(region_size) {}

  // Reads what is new. Errors are those of the two functions, after which it may be called again,
  // and kCorruption: the replica's log or table is damaged. An error changes nothing that is shown.
  Result<Progress> CatchUp();

  // Whether there is anything to show: the calls below need it.
  bool shows() const { return image_.has_value() && acked_ >= at_.seq; }
  // The region as of `seq`. Its ring and its head are of no use.
  std::span<const std::byte> image() const { return image_->bytes(); }
  const RegionInfo& info() const { return info_; }
  uint64_t seq() const { return at_.seq; }
  uint64_t epoch() const { return shown_.installed; }
  uint64_t region_size() const { return region_size_; }
  // How often it began to read everything.
  uint64_t whole_reads() const { return whole_reads_; }
  // What the log had at the last look that is not known to be acknowledged, so not in the image.
  struct Lag {
    uint64_t records = 0, bytes = 0;
  };
  Lag lag() const { return {end_.seq - at_.seq, end_.position - at_.position}; }
  // The log's last record, as of that look.
  uint64_t last_seq() const { return end_.seq; }

 private:
  // What one look at the ring found behind the records that were applied.
  struct Records {
    std::vector<RecordView> views;  // they point into the image's ring
    LogCursor end;                  // behind them
    uint64_t passed = 0;            // by the head
    uint64_t acked = 0;             // the greatest seq that they or the head state as acknowledged
  };

  Result<Progress> ReadAnew(const NodeMark& mark);
  Result<Progress> Append(const NodeMark& mark);
  Result<Records> ReadRecords();
  // Makes log bytes up to `position` present in the image's ring.
  Status Need(uint64_t position);

  const RegionFetch fetch_;
  const std::function<Result<NodeMark>()> mark_;
  const uint64_t region_size_;
  std::optional<RegionImage> image_;
  RegionInfo info_;
  NodeMark shown_;  // under which the image was read
  LogCursor at_;    // behind the last record that was applied
  uint64_t acked_ = 0;
  LogCursor end_;  // of the log at the last look
  uint64_t whole_reads_ = 0;
  uint64_t present_ = 0, piece_ = 0;  // of the look under way: log position; how much to read next
};

}  // namespace hyperloop
