// Session: finished files of the log lane leave the region. A file is first made durable in the
// primary's directory and on every replica that counts. Then one record moves it to the bulk lane
// and frees its extents. So it is in one lane at any moment, and whoever finds it in the bulk lane
// finds its bytes there.
#include "common/group_error.h"
#include "hyperloop/core/text.h"
#include "primary/session.h"

namespace hyperloop {
namespace {

constexpr std::chrono::milliseconds kLookAgain{100}, kAfterRefusal{1000}, kNothingFinished{60'000};
// After so many more finished files, the table is read to forget those that were deleted since.
constexpr size_t kManyFinished = 256;

}  // namespace

void Session::Finish(FileId file) {
  if (InForkedChild()) return;
  const MutexLock lock(leaver_mutex_);
  if (leaver_ == nullptr) return;
  {
    const MutexLock finished_lock(finished_mutex_);
    finished_.insert(file);
  }
  leaver_->Wake();
}

void Session::StartLeaving(const TakeRequest& request) {
  if (request.settle == nullptr || bulk_ == nullptr) return;
  settle_ = request.settle;
  mend_local_ = request.mend_local;
  refusals_ = {};
  {
    const MutexLock lock(finished_mutex_);
    finished_.clear();
    forget_at_ = kManyFinished;
  }
  const MutexLock lock(leaver_mutex_);
  leaver_ = std::make_unique<PeriodicThread>(
      "hl-leaving", [this] { return LetFilesLeave(); }, PinnedCpu(*device_));
}

// The thread locks state_mutex_, so it must end before Close does.
void Session::StopLeaving() {
  std::unique_ptr<PeriodicThread> ending;
  {
    const MutexLock lock(leaver_mutex_);
    ending = std::move(leaver_);
  }
  if (ending != nullptr) ending->RequestStop();
}

std::chrono::milliseconds Session::LetFilesLeave() {
  {
    const MutexLock lock(finished_mutex_);
    if (finished_.empty()) return kNothingFinished;
  }
  FileId file = 0;
  const Status left = LetOneLeave(&file);
  if (left.ok() && file != 0) return std::chrono::milliseconds(0);
  if (left.ok()) {
    refusals_.TryGroupAgain();
    return refusals_.empty() ? kLookAgain : kAfterRefusal;
  }
  const Code code = left.code();
  refusals_.Note(file, left, LeavingRefusals::Clock::now());
  // A file that was removed needs no room, and an outage is told elsewhere.
  const bool told = code == Code::kNotFound || ending_ || lost_ || fenced_;
  if (!told && refusals_.IsNews(file, left)) {
    Say(LogLevel::kWarn, Text("the group's data area fills, and a finished log or MANIFEST cannot "
                              "leave it now: ",
                              left.message()));
  }
  return file == 0 || IsGroupError(code) ? kAfterRefusal : std::chrono::milliseconds(0);
}

Result<std::optional<FileInfo>> Session::ChooseLeaving() {
  return WithLane([&](LogLane& lane) -> Result<std::optional<FileInfo>> {
    const LaneCounters& counters = lane.counters();
    const DataAreaUse use{LaneCounters::Get(counters.data),
                          LaneCounters::Get(counters.data_reserved),
                          LaneCounters::Get(counters.data_used)};
    MutexLock lock(finished_mutex_);
    if (!IsCrowded(use) && finished_.size() < forget_at_) return std::optional<FileInfo>();
    const std::set<FileId> finished = finished_;  // before the table is read: none is too new
    lock.unlock();
    HL_ASSIGN_OR_RETURN(const std::vector<FileInfo> files, lane.Files());
    std::set<FileId> gone = finished;
    for (const FileInfo& file : files)
      if (file.lane == Lane::kLog) gone.erase(file.id);
    lock.lock();
    std::erase_if(finished_, [&](FileId id) { return gone.contains(id); });
    forget_at_ = finished_.size() + kManyFinished;
    refusals_.Keep(finished_);
    return NextToLeave(use, files, finished, refusals_.Waiting(LeavingRefusals::Clock::now()));
  });
}

Status Session::LetOneLeave(FileId* chosen) {
  uint64_t interrupts = 0;
  {
    const SharedLock lock(state_mutex_);
    if (bulk_ == nullptr) return {};
    interrupts = bulk_->interrupts();
  }
  if (ending_) return {};  // from here on Close interrupts what waits
  // An earlier attempt may have ended without an answer. The table knows in which lane the file is.
  HL_RETURN_IF_ERROR(SetLeaving(std::nullopt));
  HL_ASSIGN_OR_RETURN(const std::optional<FileInfo> file, ChooseLeaving());
  if (!file.has_value()) return {};
  *chosen = file->id;
  HL_ASSIGN_OR_RETURN(const WholeFile whole,
                      WithLane([&](LogLane& lane) { return lane.Describe(file->id); }));
  HL_RETURN_IF_ERROR(Settle(file->id, whole));
  HL_RETURN_IF_ERROR(SetLeaving(std::pair(file->id, whole)));
  {
    const SharedLock lock(state_mutex_);
    if (bulk_ == nullptr) return Unavailable("the database is being closed");
    HL_RETURN_IF_ERROR(bulk_->AwaitLeaving(whole, options_.bulk_timeout, interrupts));
  }
  HL_RETURN_IF_ERROR(WithLane([&](LogLane& lane) { return lane.Retire(file->id, whole); }));
  HL_RETURN_IF_ERROR(SetLeaving(std::nullopt));
  refusals_.NoteLeft(file->id);
  Say(LogLevel::kInfo, Text(whole.name, " left the group's data area, in which ", whole.size,
                            " B are free again; the replicas hold it as a whole file"));
  return {};
}

// Describe has checked the bytes of the region, so the directory's are the damaged ones.
Status Session::Settle(FileId id, const WholeFile& whole) {
  Result<WholeFile> local = settle_(whole.name);
  const bool unreadable = local.status().code() == Code::kCorruption;
  if (!local.ok() && !unreadable) return local.status();
  if (local.ok() && *local == whole) return {};
  const std::string differs =
      Text("\"", whole.name, "\" of the directory is not what the group holds of it");
  if (mend_local_ == nullptr) return Corruption(differs);
  const Status mended = mend_local_(
      whole, [&](const HeldFiles::Sink& sink) { return ReadWhole(id, whole, sink); },
      [&] {
        const Result<FileId> listed =
            WithLane([&](LogLane& lane) { return lane.Lookup(whole.name); });
        return listed.ok() && *listed == id;
      });
  if (!mended.ok()) return mended.WithContext(differs);
  Say(LogLevel::kError,
      Text(differs,
           "; it was set aside, and the group's bytes took its place; whoever has it open "
           "reads the damaged one until the database is opened again"));
  local = settle_(whole.name);
  if (!local.ok()) return local.status();
  return *local == whole ? Status() : Corruption(differs);
}

Status Session::ReadWhole(FileId id, const WholeFile& whole, const HeldFiles::Sink& sink) {
  std::vector<char> piece(256u << 10);
  FileChecksum checksum;
  for (uint64_t at = 0; at < whole.size;) {
    HL_ASSIGN_OR_RETURN(const uint64_t got, WithLane([&](LogLane& lane) {
                          return lane.Read(id, at, std::span<char>(piece));
                        }));
    if (got == 0) break;
    checksum.Add(std::span(piece).first(got));
    HL_RETURN_IF_ERROR(sink(std::span<const char>(piece).first(got)));
    at += got;
  }
  if (checksum.value() == whole.checksum) return {};
  return Corruption(Text("\"", whole.name, "\" of the region has changed"));
}

// The list is set before the bulk lane hears that nothing is leaving any more, so that no replica
// drops a file while it changes lanes.
Status Session::SetLeaving(std::optional<std::pair<FileId, WholeFile>> file) {
  {
    const MutexLock lock(files_mutex_);
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
  const auto& id = leaving_->first;
  const auto& whole = leaving_->second;
  const bool there = std::any_of(files.begin(), files.end(), [&](const FileInfo& file) {
    return file.id == id && file.name == whole.name && file.size == whole.size;
  });
  if (!there || leaving_ended_) leaving_.reset();
  leaving_ended_ = false;
  bulk_->SetLeaving(leaving_.has_value() ? std::vector{leaving_->second}
                                         : std::vector<WholeFile>());
}

}  // namespace hyperloop
