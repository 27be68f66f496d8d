// LockFile takes the group and UnlockFile releases it.
#include "file_system.h"
#include "local/local_files.h"
#include "local/status.h"
#include "opening/adoption.h"
#include "opening/judge.h"
#include "opening/local_to_group.h"
#include "opening/mend.h"
#include "opening/pairing_file.h"
#include "quirks/log_marker.h"
#include "quirks/spoken_of.h"

namespace hyperloop::plugin {
namespace {

// Keeps what a taking warns of.
class Remarks final : public Log {
 public:
  void Write(LogLevel level, std::string_view message) override {
    if (level < LogLevel::kWarn) return;
    const MutexLock guard(mutex_);
    written_.push_back({level, std::string(message)});
  }
  // A taking that fails writes its error last.
  std::vector<HyperloopFileSystem::Remark> BeforeLastError() const {
    const MutexLock guard(mutex_);
    auto written = written_;
    while (!written.empty() && written.back().level != LogLevel::kError) written.pop_back();
    if (!written.empty()) written.pop_back();
    return written;
  }

 private:
  mutable Mutex mutex_;
  std::vector<HyperloopFileSystem::Remark> written_ HL_GUARDED_BY(mutex_);
};

// Whether a damaged file of this name may be replaced. A MANIFEST of which that is asked was
// rolled.
bool MayBeMended(std::string_view name) { return StaysAsListed(name) || IsManifest(name); }

void Announce(BoundDirectory& bound, const TakeResult& taken) {
  const StoreOptions& options = bound.store().options();
  std::string listed;
  for (const std::string& replica : options.replicas)
    listed += (listed.empty() ? "" : ", ") + replica;
  uint64_t bytes = 0;
  for (const FileInfo& info : taken.files) bytes += info.lane == Lane::kLog ? info.size : 0;
  const bool append = options.ack == AckMode::kAppend;
  Log& log = bound.log();
  log.Write(LogLevel::kInfo,
            "took group " + taken.pairing.group + " at epoch " + std::to_string(taken.epoch) +
                " for " + bound.directory() + ", database " + taken.pairing.database +
                ": listed replicas " + listed + "; " + std::to_string(taken.files.size()) +
                " files, " + std::to_string(bytes) + " B in the log lane; media=" + options.media +
                " ack=" + std::string(append ? "append" : "sync") +
                " window=" + std::to_string(options.window));
  if (!append) {
    log.Write(LogLevel::kWarn,
              "ack=sync: only a Put with sync=true, or SyncWAL, waits for the replicas; others "
              "return before");
  }
  if (bound.store().media() == rnic::Media::kRam) {
    log.Write(LogLevel::kWarn,
              "media=ram, detected on at least one member: an acknowledged write survives a power "
              "failure only on members that it does not reach, or whose media is file or pmem");
  }
}

}  // namespace

using rocksdb::FileLock;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

IOStatus HyperloopFileSystem::LockFile(const std::string& path, const IOOptions& options,
                                       FileLock** lock, IODebugContext* dbg) {
  FileLock* local = nullptr;
  IOStatus status = target()->LockFile(path, options, &local, dbg);
  if (!status.ok()) return status;
  if (BaseOf(path) != kLockFileName) {
    *lock = local;
    return status;
  }
  std::string occupied;
  {
    MutexLock guard(mutex_);
    if (bound_ != nullptr) occupied = bound_->directory();
    if (binding_now_) occupied = "another one that is just being opened";
    if (occupied.empty()) binding_now_ = true;
  }
  if (occupied.empty()) log_->MeanDirectory(ParentOf(path));
  Status opened =
      occupied.empty()
          ? Bind(ParentOf(path))
          : NotSupported("the group holds one database, " + occupied +
                         "; give each database a group, and a FileSystem object, of its own");
  if (!opened.ok()) {
    log_->Write(LogLevel::kError, "cannot open " + ParentOf(path) + ": " + opened.ToString());
    target()->UnlockFile(local, options, dbg).PermitUncheckedError();
  }
  if (!opened.ok() && occupied.empty()) log_->MeanDirectory("");
  MutexLock guard(mutex_);
  if (occupied.empty()) binding_now_ = false;
  if (!opened.ok()) return ToIOStatus(opened, "hyperloop: cannot open " + ParentOf(path));
  lock_ = local;
  *lock = local;
  return IOStatus::OK();
}

Status HyperloopFileSystem::MakeRequest(const std::string& directory, TakeRequest* asked,
                                        PairingFile* file) const {
  TakeRequest& request = *asked;
  HL_RETURN_IF_ERROR(
      FromIOStatus(target()->GetAbsolutePath(directory, IOOptions(), &request.directory, nullptr),
                   "cannot make an absolute path of " + directory));
  HL_RETURN_IF_ERROR(ReadPairing(*target(), directory, file));
  if (file->IsCopy() && !options_.rebind) return RefuseCopy(request.directory, *file);
  request.pairing = file->pairing;
  request.only_prepares = taking_.only_prepares;
  // The database gets another name. So a directory that was bound, but does not say so because the
  // call was cut short, is refused, and not taken for one that holds what the group lists.
  if (options_.rebind) request.pairing.database.clear();
  // A directory with logs and without CURRENT may hold data, so it does not count as empty.
  std::vector<std::string> local;
  HL_RETURN_IF_ERROR(LocalLogFiles(*target(), directory, &local));
  request.directory_empty = local.empty();
  const bool of_no_group = file->pairing.group.empty();
  // Without restore=true or adopt=true the Store itself refuses a directory of no group, and says
  // why.
  if (!of_no_group || (local.empty() ? options_.restore : options_.adopt)) {
    const bool has_foreign_logs = of_no_group && !local.empty();
    request.judge = [this, directory, has_foreign_logs](const GroupFiles& files) {
      return JudgeTaking(directory, has_foreign_logs, files);
    };
  }
  request.read_local = [this, directory](const std::string& name, uint64_t offset,
                                         std::span<char> out) {
    return ReadLocal(*target(), directory + "/" + name, offset, out);
  };
  request.mend_local = [this, directory](const WholeFile& damaged, const FetchWhole& fetch,
                                         const std::function<bool()>& listed) {
    return MendLocal(directory, damaged, fetch, listed);
  };
  request.leads_to_space = LeadsToSpace;
  request.settle = [this, directory](const std::string& name) -> Result<WholeFile> {
    const std::string path = directory + "/" + name;
    HL_RETURN_IF_ERROR(SyncLocal(path));
    HL_RETURN_IF_ERROR(SyncDirectory(*target(), ParentOf(path)));
    return Describe(*target(), path, name);
  };
  return Status::Ok();
}

Status HyperloopFileSystem::TakeGroup(const std::string& directory, Store& store,
                                      std::shared_ptr<Decisions> decisions, TakeResult* taken,
                                      bool* anew) {
  TakeRequest request;
  PairingFile file;
  HL_RETURN_IF_ERROR(MakeRequest(directory, &request, &file));
  request.decisions = std::move(decisions);
  *anew = options_.rebind || !file.finished;
  HL_RETURN_IF_ERROR(store.Take(request, taken));
  const bool known =
      taken->pairing == file.pairing && taken->branch == file.branch && file.recorded == file.found;
  if (known && file.found.inode != 0) return Status::Ok();
  if (!file.pairing.group.empty() && taken->pairing != file.pairing) {
    log_->Write(LogLevel::kWarn, "the group is bound to " + request.directory +
                                     " from now on; a directory that it was bound to before is "
                                     "refused until it is opened with rebind=true itself");
  }
  return WritePairing(*target(), directory, taken->pairing, taken->branch, !*anew);
}

// The judgement ends the taking, before anything changes. No log shows that as an error.
Status HyperloopFileSystem::Examine(const std::string& directory, std::vector<Remark>* remarks) {
  HL_RETURN_IF_ERROR(ValidateStoreOptions(options_));
  TakeRequest request;
  PairingFile file;
  HL_RETURN_IF_ERROR(MakeRequest(directory, &request, &file));
  bool fits = false;
  request.judge = [&, judge = std::move(request.judge)](const GroupFiles& files) {
    HL_RETURN_IF_ERROR(judge ? judge(files) : Status::Ok());
    fits = true;
    return Aborted("the group was only looked at");
  };
  const auto remarked = std::make_shared<Remarks>();
  HL_ASSIGN_OR_RETURN(const std::unique_ptr<Store> store, open_store_(options_, remarked));
  TakeResult taken;
  const Status refused = store->Take(request, &taken);
  if (remarks != nullptr) *remarks = remarked->BeforeLastError();
  store->Close().IgnoreError();
  return fits ? Status::Ok() : refused;
}

Status HyperloopFileSystem::JudgeTaking(const std::string& directory, bool has_foreign_logs,
                                        const GroupFiles& group) const {
  const std::vector<FileInfo> files = group.Files();
  if (taking_.must_hold_database && !HoldsCurrent(files))
    return NotFound("the group holds no database; check which replicas the URI names");
  HL_ASSIGN_OR_RETURN(const bool adoptable, IsToBeAdopted(*target(), directory, files));
  if (!adoptable && has_foreign_logs) {
    return InvalidArgument(directory +
                           " has log files and no CURRENT, so it is no whole database; ldb repair, "
                           "without the plugin, makes one of what is left. Nothing was changed");
  }
  if (adoptable && options_.adopt) return JudgeAdoption(*target(), directory, group.Room());
  return JudgeDirectory(*target(), directory, group, [&](const FileInfo& info) {
    return taking_.near.Find(group.Group(), info, directory).ok();
  });
}

Status HyperloopFileSystem::RefuseCopy(const std::string& directory, const PairingFile& file) {
  return InvalidArgument(
      directory +
      " is a copy, and one group cannot keep two directories. Open the original; or give "
      "rebind=true to make this one the group's (the original needs it, too, then); or remove " +
      directory + "/" + std::string(kPairingFileName) +
      ", and the copy is a plain database. That file was written in " + file.recorded.path +
      " as inode " + std::to_string(file.recorded.inode) + ", here it is " +
      std::to_string(file.found.inode));
}

Status HyperloopFileSystem::Bind(const std::string& directory) {
  HL_RETURN_IF_ERROR(ValidateStoreOptions(options_));
  if (options_.restore) taking_.near.UseBrought(directory, *log_);
  HL_ASSIGN_OR_RETURN(std::unique_ptr<ForkDetector> fork_detector, ForkDetector::Create());
  HL_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, open_store_(options_, log_));
  TakeResult taken;
  bool anew = false;
  const auto decisions = std::make_shared<Decisions>();
  if (Status status = TakeGroup(directory, *store, decisions, &taken, &anew); !status.ok()) {
    store->Close().IgnoreError();
    return status;
  }
  auto bound = std::make_shared<BoundDirectory>(directory, std::move(fork_detector),
                                                std::move(store), decisions, log_);
  Announce(*bound, taken);
  if (Status status = AdoptIfToldTo(*bound); !status.ok()) {
    bound->Close().IgnoreError();
    return status;
  }
  Status set = SetLocalToGroup(*target(), *bound, taking_.near, taken, anew);
  if (set.ok() && anew) set = WritePairing(*target(), directory, taken.pairing, taken.branch, true);
  if (set.ok()) set = MarkOpen(directory);
  if (!set.ok()) {
    bound->Close().IgnoreError();
    return set;
  }
  taking_.near.RemoveBrought(directory, *log_);
  spoken_of::Opening(*bound);
  MutexLock lock(mutex_);
  bound_ = std::move(bound);
  names_of_group_.clear();
  warned_unclean_.clear();
  {
    const MutexLock overwritten(overwritten_mutex_);
    overwritten_.clear();
  }
  return Status::Ok();
}

Status HyperloopFileSystem::MarkOpen(const std::string& directory) const {
  const std::string mark = directory + "/" + std::string(kOpenMarkName);
  if (target()->FileExists(mark, IOOptions(), nullptr).ok()) return Status::Ok();
  HL_RETURN_IF_ERROR(
      WriteWhole(*target(), mark, true, [](rocksdb::FSWritableFile&) { return Status::Ok(); }));
  return SyncDirectory(*target(), directory);
}

Status HyperloopFileSystem::AdoptIfToldTo(BoundDirectory& bound) {
  if (!options_.adopt) return Status::Ok();
  HL_ASSIGN_OR_RETURN(const std::vector<FileInfo> files, bound.Files());
  HL_ASSIGN_OR_RETURN(const bool adopts, IsToBeAdopted(*target(), bound.directory(), files));
  if (!adopts) return Status::Ok();
  return AdoptDirectory(*target(), bound)
      .WithContext("taking " + bound.directory() +
                   " into the group was cut short; repeat the call once the cause is gone, before "
                   "the database is used again");
}

// A file that the program changes in place differs from what is listed until it is listed anew.
void HyperloopFileSystem::NoteOverwritten(const Place& place) {
  if (place.file_class != FileClass::kListed || !IsTableOrBlob(place.name)) return;
  const MutexLock lock(overwritten_mutex_);
  overwritten_.insert(place.name);
}

IOStatus HyperloopFileSystem::KeepFromMending(const Place& place,
                                              const std::function<IOStatus()>& call) const {
  if (!MayBeMended(place.name)) return call();
  const MutexLock lock(overwritten_mutex_);
  return call();
}

Status HyperloopFileSystem::MendLocal(const std::string& directory, const WholeFile& file,
                                      const FetchWhole& fetch,
                                      const std::function<bool()>& listed) const {
  if (!MayBeMended(file.name))
    return NotSupported("only tables, blob files, logs and MANIFESTs are mended");
  {
    const MutexLock lock(mutex_);
    if (bound_ == nullptr || bound_->directory() != directory)
      return Unavailable("the directory is being opened or closed");
  }
  if (IsArchivedLog(file.name))
    HL_RETURN_IF_ERROR(CreateDirectory(*target(), ParentOf(directory + "/" + file.name)));
  HL_RETURN_IF_ERROR(BringBeside(*target(), directory, file.name, fetch));
  const MutexLock lock(overwritten_mutex_);
  Status allowed;
  if (overwritten_.contains(file.name)) {
    allowed = Busy("the program changed it itself since the database was opened");
  } else if (!listed()) {
    allowed = NotFound("the group does not list it any more");
  }
  if (allowed.ok()) return PutInPlace(*target(), directory, file.name);
  RemoveBeside(*target(), directory, file.name);
  return allowed;
}

IOStatus HyperloopFileSystem::UnlockFile(FileLock* lock, const IOOptions& options,
                                         IODebugContext* dbg) {
  bool ours = false;
  {
    MutexLock guard(mutex_);
    ours = bound_ != nullptr && lock == lock_;
  }
  if (ours) Unbind();
  return target()->UnlockFile(lock, options, dbg);
}

// Failures are logged and not returned, because RocksDB ignores what UnlockFile returns, and the
// local lock must be released in any case.
void HyperloopFileSystem::Unbind() {
  std::shared_ptr<BoundDirectory> bound;
  {
    MutexLock guard(mutex_);
    bound = std::move(bound_);
    bound_ = nullptr;
    logs_made_.clear();
    lock_ = nullptr;
  }
  other_directories_.Forget();
  spoken_of::Nothing();
  if (bound->InForkedChild()) return;
  std::vector<std::string> removed;
  Status status = RemoveLeftovers(*target(), *bound, true, &removed);
  // The directory of an empty group belongs to no group any more. Without its pairing file the
  // directory can be removed by DestroyDB.
  bool empty = false;
  if (status.ok()) {
    const auto files = bound->Files();
    status = files.status();
    empty = files.ok() && files->empty();
  }
  if (Status closed = bound->Close(); !closed.ok()) {
    status = closed;
    empty = false;
  }
  // MANIFEST and CURRENT are the group's, on the disk, if no change of them failed.
  if (status.ok() && !bound->verdicts().manifest_failed()) {
    const std::string mark = bound->directory() + "/" + std::string(kOpenMarkName);
    target()->DeleteFile(mark, IOOptions(), nullptr).PermitUncheckedError();
  }
  if (empty) {
    const std::string pairing = bound->directory() + "/" + std::string(kPairingFileName);
    target()->DeleteFile(pairing, IOOptions(), nullptr).PermitUncheckedError();
  }
  if (status.ok()) {
    log_->Write(LogLevel::kInfo, "released the group; " + bound->directory() + " is closed");
  } else {
    log_->Write(LogLevel::kWarn,
                "closing " + bound->directory() + ": " + status.ToString() +
                    "; nothing acknowledged is lost, the next open sets local files to the group");
  }
  log_->MeanDirectory("");
}

}  // namespace hyperloop::plugin
