#include "follow/replica_follower.h"

#include <algorithm>
#include <span>
#include <utility>

#include "log/file_table.h"

namespace hyperloop {
namespace {

constexpr std::chrono::milliseconds kLook{10};
constexpr std::chrono::seconds kRetry{1}, kLongestPause{64};
constexpr std::chrono::seconds kTell{2};  // how long a file must be missing until it is named
constexpr std::chrono::seconds kTidy{1};  // how often names are removed whose time is over

// Not later than it was.
std::chrono::system_clock::time_point WallTime(ReplicaFollower::Time moment) {
  const auto wall = std::chrono::system_clock::now();
  const auto ago = ReplicaFollower::Time::clock::now() - moment;
  return wall - std::chrono::ceil<std::chrono::microseconds>(ago);
}

}  // namespace

Result<LogFollower::Progress> ReplicaFollower::Look(Time now) {
  const uint64_t before = log_ == nullptr ? 0 : log_->whole_reads();
  Result<LogFollower::Progress> progress = TryLook(now);
  if (progress.ok()) {
    pause_ = kLook;
    whole_pause_ = {};
    return progress;
  }
  pause_ = kRetry;
  if (log_ != nullptr && log_->whole_reads() != before && !caught_up_) {
    whole_pause_ = std::clamp<std::chrono::milliseconds>(2 * whole_pause_, kRetry, kLongestPause);
    pause_ = whole_pause_;
  }
  // The log is damaged, or is another one.
  if (progress.status().code() == Code::kCorruption && !caught_up_) log_.reset();
  return progress;
}

Result<LogFollower::Progress> ReplicaFollower::TryLook(Time now) {
  caught_up_ = false;
  HL_RETURN_IF_ERROR(Reach());
  const Result<LogFollower::Progress> progress = log_->CatchUp();
  if (!progress.ok()) {
    replica_.reset();
    return progress;
  }
  caught_up_ = true;
  if (*progress == LogFollower::Progress::kReadAnew) {
    checked_ = false;
    goal_.reset();  // the log may have been cut
    whole_as_of_.reset();
    to_vouch_.reset();
  }
  pending_ = pending_ || *progress == LogFollower::Progress::kReadAnew ||
             *progress == LogFollower::Progress::kAppended;
  if (!log_->shows()) return progress;
  if (pending_ || missing_.has_value() || !shown_ || now >= tidy_at_) HL_RETURN_IF_ERROR(Show(now));
  if (*progress != LogFollower::Progress::kAwaitsPrimary) HL_RETURN_IF_ERROR(NoteLag(now));
  return progress;
}

// The look began at `now`, and found the log's end after that.
Status ReplicaFollower::NoteLag(Time now) {
  if (behind_ || !shown_) return {};
  if (directory_->whole()) shown_seq_ = log_->seq();
  if (!goal_.has_value()) goal_ = Goal{now, log_->last_seq()};
  if (shown_seq_ >= goal_->seq) {
    whole_as_of_ = goal_->at;
    goal_ = Goal{now, log_->last_seq()};
    if (shown_seq_ >= goal_->seq) whole_as_of_ = now;
  }
  if (members_epoch_ != log_->epoch() || !std::ranges::count(members_, address_)) return {};
  if (to_vouch_.has_value() && vouch_(members_, members_epoch_, *to_vouch_)) {
    as_of_ = std::exchange(to_vouch_, std::nullopt);
    HL_RETURN_IF_ERROR(directory_->NoteAsOf(WallTime(*as_of_)));
  }
  if (!to_vouch_.has_value()) to_vouch_ = whole_as_of_;
  return {};
}

// What was read of a region goes on to count while that has the same size: an epoch that was shown
// never gets another log.
Status ReplicaFollower::Reach() {
  if (!replica_.has_value()) {
    HL_ASSIGN_OR_RETURN(replica_, connect_());
    address_ = replica_->address;
    checked_ = false;
    if (log_ != nullptr && log_->region_size() != replica_->view->region_size()) log_.reset();
  }
  if (log_ == nullptr) {
    log_ = std::make_unique<LogFollower>(
        [this](uint64_t offset, std::span<std::byte> out) {
          return replica_->view->Read(offset, out);
        },
        [this] { return replica_->view->Mark(); }, replica_->view->region_size());
  }
  return {};
}

Status ReplicaFollower::Show(Time now) {
  if (directory_ == nullptr || !checked_) {
    HL_RETURN_IF_ERROR(CheckOrigin());
    store_.reset();  // the replica may have made its directory of files anew
    checked_ = true;
  }
  behind_ = log_->seq() < directory_->seq();
  if (behind_) return {};
  if (store_ == nullptr) HL_RETURN_IF_ERROR(OpenStore());
  const Result<FileTable> table = FileTable::Load(log_->image(), log_->info());
  if (!table.ok()) caught_up_ = false;
  HL_RETURN_IF_ERROR(table.status());
  HL_ASSIGN_OR_RETURN(
      std::optional<std::string> missing,
      directory_->Show({log_->image(), log_->info(), *table, store_.get(), log_->seq()}, now));
  if (missing != missing_) missing_since_ = now;
  missing_ = std::move(missing);
  waits_long_ = missing_.has_value() && now - missing_since_ >= kTell;
  shown_ = shown_ || !missing_.has_value();
  pending_ = false;
  tidy_at_ = now + kTidy;
  return {};
}

Status ReplicaFollower::CheckOrigin() {
  const Result<NodeStatus> status = replica_->view->ReadStatus();
  if (!status.ok()) {
    replica_.reset();
    return status.status();
  }
  members_ = status->replicas;
  members_epoch_ = status->installed_epoch;
  group_ = status->group;
  const FollowedDirectory::Origin origin{status->group, status->branch_epoch, status->branch_owner};
  if (directory_ != nullptr && directory_->origin() == origin) return {};
  directory_.reset();
  HL_ASSIGN_OR_RETURN(directory_, FollowedDirectory::Open(to_, origin, retention_));
  return {};
}

Status ReplicaFollower::OpenStore() {
  if (replica_->files.empty()) return {};
  auto store = FileStore::OpenToRead(GroupDirectory(replica_->files, log_->info().group));
  if (store.status().code() == Code::kNotFound) return {};
  HL_RETURN_IF_ERROR(store.status());
  store_ = std::move(store).value();
  return {};
}

}  // namespace hyperloop
