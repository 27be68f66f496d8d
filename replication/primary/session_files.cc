// Session: the files of the bulk lane.
#include <algorithm>

#include "files/bulk_connection.h"
#include "files/file_store.h"
#include "hyperloop/core/text.h"
#include "primary/session.h"

namespace hyperloop {
namespace {

// Asking a replica that does not answer may take ack_timeout. The pause after that is so many times
// as long.
constexpr int kPauseFactor = 5;

std::vector<WholeFile> WholeFiles(const std::vector<FileInfo>& files) {
  std::vector<WholeFile> whole;
  for (const FileInfo& file : files)
    if (file.lane == Lane::kBulk) whole.push_back({file.name, file.size, file.checksum});
  return whole;
}

}  // namespace

void Session::StartBulkLane(const TakeRequest& request, const std::vector<FileInfo>& files,
                            std::span<ReplicaHandle* const> joiners) {
  if (request.read_local == nullptr) return;
  std::vector<std::string> names;
  for (const auto& replica : replicas_) names.push_back(replica->name());
  BulkLane::Options options;
  options.avoid_cpu = PinnedCpu(*device_);
  options.mend_local = request.mend_local;
  options.tell_damage = [this](const std::string& damage) { heartbeat_->SetDamage(damage); };
  {
    const MutexLock lock(held_mutex_);
    held_ = std::make_unique<HeldFiles>(BulkConnections(), kPauseFactor * options_.ack_timeout);
  }
  bulk_ = std::make_unique<BulkLane>(std::move(names), request.read_local, options, log_);
  bulk_->Set(WholeFiles(files));
  AimBulkLane(joiners);
}

void Session::AimBulkLane(std::span<ReplicaHandle* const> joiners) {
  if (bulk_ == nullptr) return;
  while (bulk_->size() < replicas_.size()) bulk_->Add(replicas_[bulk_->size()]->name());
  std::vector<BulkLane::Target> targets;
  for (const auto& replica : replicas_) {
    const bool joins = std::find(joiners.begin(), joiners.end(), replica.get()) != joiners.end();
    targets.push_back({IsMember(*replica) ? BulkConnectionOf(*replica) : nullptr, joins});
  }
  bulk_->SetTargets(std::move(targets), configuration_.All().size());
}

BulkConnect Session::BulkConnectionOf(const ReplicaHandle& replica) const {
  return BulkConnectionTo(replica.endpoint(), replica.bulk_port(), replica.trust(), own_,
                          bulk_limit_);
}

std::vector<BulkConnect> Session::BulkConnections() const {
  std::vector<BulkConnect> connections;
  for (const ReplicaHandle* replica : members_) connections.push_back(BulkConnectionOf(*replica));
  return connections;
}

Status Session::Fetch(const WholeFile& file, const HeldFiles::Sink& sink) {
  HL_RETURN_IF_ERROR(CheckProcess());
  const MutexLock lock(held_mutex_);
  if (held_ == nullptr) return InvalidArgument("the group is not taken");
  return held_->Fetch(file, sink);
}

Status Session::ListFile(const WholeFile& file) {
  HL_RETURN_IF_ERROR(CheckProcess());
  HL_RETURN_IF_ERROR(CheckWholeFileName(file.name));
  HL_RETURN_IF_ERROR(WithLane([&](LogLane& lane) { return lane.ListFile(file); }));
  UpdateBulkLane().IgnoreError();
  return {};
}

Status Session::Remove(std::string_view name) {
  HL_RETURN_IF_ERROR(WithLane([&](LogLane& lane) { return lane.Remove(name); }));
  UpdateBulkLane().IgnoreError();
  return {};
}

Status Session::Rename(std::string_view from, std::string_view to) {
  HL_RETURN_IF_ERROR(WithLane([&](LogLane& lane) { return lane.Rename(from, to); }));
  // A log that has left the region may be archived. What becomes CURRENT never leaves.
  if (!IsReservedClass(to)) UpdateBulkLane().IgnoreError();
  return {};
}

// The lane's list is made from the table, because a change of the table that failed may still have
// happened. The table is read and passed on under one mutex, so that an older one never follows a
// newer one.
Status Session::UpdateBulkLane() {
  const MutexLock lock(files_mutex_);
  return WithLane([&](LogLane& lane) -> Status {
    if (bulk_ == nullptr) return {};
    HL_ASSIGN_OR_RETURN(const std::vector<FileInfo> files, lane.Files());
    bulk_->Set(WholeFiles(files));
    files_mutex_.known_held();
    UpdateLeavingLocked(files);
    return {};
  });
}

Status Session::AwaitFiles(Holders holders) {
  HL_RETURN_IF_ERROR(CheckProcess());
  HL_RETURN_IF_ERROR(UpdateBulkLane());
  const SharedLock lock(state_mutex_);
  if (bulk_ == nullptr) return {};
  const Status held = bulk_->Await(options_.bulk_timeout, BulkLane::kNoLimit, holders);
  return fenced_ ? NotServing() : held;  // a fenced one waits for no replica
}

}  // namespace hyperloop
