// ReplicaFollower: keeps a FollowedDirectory equal to what a replica holds, over failures of the
// way to the replica and of the local disk.
//
// What was read of the region is kept over them, so that only what is new is read afterwards. The
// whole region is read at first, when an epoch begins, when the log was overwritten before it was
// read, and after the replica's log was found damaged. Where that fails, the pauses before the next
// attempt double. Not thread safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "files/file_store.h"
#include "follow/followed_directory.h"
#include "follow/log_follower.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/inspect.h"

namespace hyperloop {

class ReplicaFollower {
 public:
  using Time = FollowedDirectory::Time;
  // A way to the replica, until it fails.
  struct Replica {
    std::shared_ptr<void> keeps;  // what the view needs
    std::unique_ptr<NodeView> view;
    std::string files;    // the directory of whole files; empty: there is none within reach
    std::string address;  // of its control endpoint, as NodeStatus has it
  };
  using Connect = std::function<Result<Replica>()>;
  // Vouching::Confirms.
  using Vouch = std::function<bool(std::span<const std::string> members, uint64_t epoch, Time)>;

  ReplicaFollower(Connect connect, Vouch vouch, std::string to,
                  const FollowedDirectory::Retention& retention)
      : connect_(std::move(connect)),
        vouch_(std::move(vouch)),
        to_(std::move(to)),
        retention_(retention) {}

  // Shows what is new. After an error, which is that of `connect`, of LogFollower or of
  // FollowedDirectory, what was shown stays, and the call may be repeated after pause().
  Result<LogFollower::Progress> Look(Time now);
  std::chrono::milliseconds pause() const { return pause_; }

  // Whether something is shown, by this process.
  bool shown() const { return shown_; }
  uint64_t epoch() const { return log_->epoch(); }
  // The replica lacks what was shown of another one, or before.
  bool behind() const { return behind_; }
  // A file that the replica does not have yet; it holds up what needs it.
  const std::optional<std::string>& missing() const { return missing_; }
  // Each table is missing while it is shipped. This one has been for longer.
  bool waits_long() const { return waits_long_; }
  // Everything that was acknowledged by then is shown, as far as is known; none: nothing is known,
  // because a majority of the replicas has not vouched for this one.
  std::optional<Time> as_of() const { return as_of_; }
  // Everything that the replica had then is shown; none: not yet.
  std::optional<Time> whole_as_of() const { return whole_as_of_; }
  // What the replica is known to have that is not shown. Only while shown().
  LogFollower::Lag lag() const { return log_->lag(); }
  // The last record that is shown, and the group; the latter is empty before anything is.
  uint64_t seq() const { return shown_seq_; }
  const std::string& group() const { return group_; }
  uint64_t retained_bytes() const {
    return directory_ == nullptr ? 0 : directory_->retained_bytes();
  }
  // FollowedDirectory::gone_early.
  uint64_t gone_early() const { return directory_ == nullptr ? 0 : directory_->gone_early(); }

 private:
  Result<LogFollower::Progress> TryLook(Time now);
  Status Reach();
  Status Show(Time now);
  // The branch may be another one than when the directory was opened.
  Status CheckOrigin();
  Status OpenStore();
  Status NoteLag(Time now);

  const Connect connect_;
  const Vouch vouch_;
  const std::string to_;
  const FollowedDirectory::Retention retention_;
  std::optional<Replica> replica_;
  std::unique_ptr<LogFollower> log_;
  std::unique_ptr<FollowedDirectory> directory_;
  std::unique_ptr<FileStore> store_;
  bool checked_ = false;    // directory_ and store_ are those of what was read
  bool caught_up_ = false;  // this look has read what there is
  bool pending_ = false;    // something was read that is not shown yet
  bool shown_ = false, behind_ = false, waits_long_ = false;
  uint64_t shown_seq_ = 0;
  std::string group_, address_;
  std::vector<std::string> members_;  // addresses of the replicas of the configuration
  uint64_t members_epoch_ = 0;        // whose epoch this is
  // At that time the replica's log ended there.
  struct Goal {
    Time at;
    uint64_t seq = 0;
  };
  std::optional<Goal> goal_;
  std::optional<Time> whole_as_of_, to_vouch_, as_of_;  // to_vouch_: a whole_as_of_ of before
  std::optional<std::string> missing_;
  Time missing_since_{}, tidy_at_{};
  std::chrono::milliseconds pause_{}, whole_pause_{};  // whole_: after reading the whole region
};

}  // namespace hyperloop
