// Session: finished files of the log lane leave the region. A file is first made durable in the
// primary's directory and on every replica that counts. Then one record moves it to the bulk lane
// and frees its extents. So it is in one lane at any moment, and whoever finds it in the bulk lane
// finds its bytes there.
#include "common/group_error.h"
#include "hyperloop/core/text.h"
#include "primary/leaving.h"
#include "primary/session.h"

namespace hyperloop {
namespace {

constexpr std::chrono::milliseconds kLookAgain{100}, kAfterRefusal{1000}, kNothingFinished{60'000};
// Most of so many finished files were deleted since, and are forgotten.
constexpr size_t kManyFinished = 256;

}  // namespace

void Session::NoteFinished(FileId file) {
  const std::lock_guard lock(leaver_mutex_);
  if (leaver_ == nullptr) return;
  {
    const std::lock_guard finished_lock(finished_mutex_);
    finished_.insert(file);
  }
  leaver_->Wake();
}

void Session::StartLeaving(const TakeRequest& request) {
  if (request.settle == nullptr || bulk_ == nullptr) return;
  settle_ = request.settle;
  refused_.clear();
  {
    const std::lock_guard lock(finished_mutex_);
    finished_.clear();
  }
  const std::lock_guard lock(leaver_mutex_);
  leaver_ = std::make_unique<PeriodicThread>(
      "hl-leaving", [this] { return LetFilesLeave(); }, PinnedCpu(*device_));
}

// The thread locks state_mutex_, so it must end before Close does.
void Session::StopLeaving() {
  std::unique_ptr<PeriodicThread> ending;
  {
    const std::lock_guard lock(leaver_mutex_);
    ending = std::move(leaver_);
  }
  if (ending != nullptr) ending->RequestStop();
}

std::chrono::milliseconds Session::LetFilesLeave() {
  {
    const std::lock_guard lock(finished_mutex_);
    if (finished_.empty()) return kNothingFinished;
  }
  const Result<FileId> left = LetOneLeave();
  if (left.ok()) {
    if (*left == 0 && !refused_.empty()) {
      refused_.clear();  // they are tried again
      return kAfterRefusal;
    }
    return *left == 0 ? kLookAgain : std::chrono::milliseconds(0);
  }
  const Code code = left.status().code();
  // A file that was removed needs no room, and an outage is told elsewhere.
  const bool told = code == Code::kNotFound || ending_ || lost_ || fenced_;
  if (!told && std::exchange(stays_, left.status().message()) != stays_) {
    Say(LogLevel::kWarn, Text("the group's data area fills, and a finished log or MANIFEST cannot "
                              "leave it now: ",
                              stays_));
  }
  return IsGroupError(code) ? kAfterRefusal : std::chrono::milliseconds(0);
}

Result<std::optional<FileInfo>> Session::ChooseLeaving() {
  return WithLane([&](FileLane& lane) -> Result<std::optional<FileInfo>> {
    const LaneCounters& counters = lane.counters();
    const DataAreaUse use{LaneCounters::Get(counters.data),
                          LaneCounters::Get(counters.data_reserved),
                          LaneCounters::Get(counters.data_used)};
    std::unique_lock lock(finished_mutex_);
    if (!IsCrowded(use) && finished_.size() < kManyFinished) return std::optional<FileInfo>();
    const std::set<FileId> finished = finished_;  // before the table is read: none is too new
    lock.unlock();
    HL_ASSIGN_OR_RETURN(const std::vector<FileInfo> files, lane.Files());
    std::set<FileId> gone = finished;
    for (const FileInfo& file : files)
      if (file.lane == Lane::kLog) gone.erase(file.id);
    lock.lock();
    std::erase_if(finished_, [&](FileId id) { return gone.contains(id); });
    return NextToLeave(use, files, finished, refused_);
  });
}

// Returns the file that left; 0: none is to leave now.
Result<FileId> Session::LetOneLeave() {
  uint64_t interrupts = 0;
  {
    const std::shared_lock lock(state_mutex_);
    if (bulk_ == nullptr) return FileId{0};
    interrupts = bulk_->interrupts();
  }
  if (ending_) return FileId{0};  // from here on Close interrupts what waits
  // An earlier attempt may have ended without an answer. The table knows in which lane the file is.
  HL_RETURN_IF_ERROR(SetLeaving(std::nullopt));
  HL_ASSIGN_OR_RETURN(const std::optional<FileInfo> file, ChooseLeaving());
  if (!file.has_value()) return FileId{0};
  refused_.insert(file->id);
  HL_ASSIGN_OR_RETURN(const WholeFile whole,
                      WithLane([&](FileLane& lane) { return lane.Describe(file->id); }));
  HL_ASSIGN_OR_RETURN(const WholeFile local, settle_(whole.name));
  if (local != whole)
    return Aborted(Text("\"", whole.name, "\" of the directory is not what the group holds of it"));
  HL_RETURN_IF_ERROR(SetLeaving(std::pair(file->id, whole)));
  {
    const std::shared_lock lock(state_mutex_);
    if (bulk_ == nullptr) return FileId{0};
    HL_RETURN_IF_ERROR(bulk_->AwaitLeaving(whole, options_.bulk_timeout, interrupts));
  }
  HL_RETURN_IF_ERROR(WithLane([&](FileLane& lane) { return lane.Retire(file->id, whole); }));
  HL_RETURN_IF_ERROR(SetLeaving(std::nullopt));
  refused_.clear();
  stays_.clear();
  Say(LogLevel::kInfo, Text(whole.name, " left the group's data area, in which ", whole.size,
                            " B are free again; the replicas hold it as a whole file"));
  return file->id;
}

// The list is set before the bulk lane hears that nothing is leaving any more, so that no replica
// drops a file while it changes lanes.
Status Session::SetLeaving(std::optional<std::pair<FileId, WholeFile>> file) {
  {
    const std::lock_guard lock(files_mutex_);
    if (file.has_value())
      leaving_ = std::move(file);
    else if (!leaving_.has_value())
      return {};
    else
      leaving_ended_ = true;
  }
  return UpdateBulkLane();
}

void Session::UpdateLeavingLocked(const std::vector<FileInfo>& files) {
  if (!leaving_.has_value()) return;
  const auto& [id, whole] = *leaving_;
  const bool there = std::any_of(files.begin(), files.end(), [&](const FileInfo& file) {
    return file.id == id && file.name == whole.name && file.size == whole.size;
  });
  if (!there || leaving_ended_) leaving_.reset();
  leaving_ended_ = false;
  bulk_->SetLeaving(leaving_.has_value() ? std::vector{leaving_->second}
                                         : std::vector<WholeFile>());
}

}  // namespace hyperloop
