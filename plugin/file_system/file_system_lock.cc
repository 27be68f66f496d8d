// LockFile takes the group and UnlockFile releases it.
#include <algorithm>
#include <filesystem>

#include "file_system.h"
#include "hyperloop/core/trusted_files.h"
#include "hyperloop/replication/replica_files.h"
#include "local/local_files.h"
#include "local/status.h"
#include "opening/adoption.h"
#include "opening/judge.h"
#include "opening/mend.h"
#include "opening/pairing_file.h"
#include "quirks/log_marker.h"
#include "quirks/spoken_of.h"

namespace hyperloop::plugin {
namespace {

class FilesOfStore final : public GroupFiles {
 public:
  FilesOfStore(Store& store, std::vector<FileInfo> files)
      : store_(store), files_(std::move(files)) {}
  std::string Group() const override { return {}; }  // what can be linked is linked by now
  std::vector<FileInfo> Files() const override { return files_; }
  Result<uint64_t> Read(FileId file, uint64_t offset, std::span<char> out) const override {
    return store_.Read(file, offset, out);
  }
  bool Held(const WholeFile&) const override { return false; }  // what is held is fetched by now
  GroupRoom Room() const override { return {}; }                // nothing is added

 private:
  Store& store_;
  const std::vector<FileInfo> files_;
};

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

// Writes `what` and the names to the log, if there are any.
void LogNames(BoundDirectory& bound, LogLevel level, const std::string& what,
              const std::vector<std::string>& names) {
  if (!names.empty()) bound.log().Write(level, what + ": " + Enumerate(names));
}

bool Lists(const std::vector<FileInfo>& files, std::string_view name) {
  return std::any_of(files.begin(), files.end(),
                     [&](const FileInfo& info) { return info.name == name; });
}

// A log with bytes, a table or a blob file: these hold data even if no MANIFEST is left to open
// them with.
bool HoldsData(const FileInfo& info) {
  const std::string_view name = info.name;
  if (Classify(name) == FileClass::kLogLane) return info.size != 0 && name.ends_with(".log");
  return name.ends_with(".sst") || name.ends_with(".blob");
}

// Whether a damaged file of this name may be replaced. A MANIFEST of which that is asked was
// rolled.
bool MayBeMended(std::string_view name) { return StaysAsListed(name) || IsManifest(name); }

// What RocksDB writes at the beginning of most tables and blob files has other bytes, too.
bool BeginsWithZeros(const ReadAt& read) {
  char begin[32];
  const Result<uint64_t> got = read(0, begin);
  return got.ok() && std::all_of(begin, begin + *got, [](char c) { return c == 0; });
}

// Whether a database may need the file to be opened. RocksDB makes its own OPTIONS and IDENTITY.
bool MayBeNeeded(std::string_view name) {
  return !name.starts_with("OPTIONS-") && name != "IDENTITY" && !IsArchivedLog(name);
}

// Only RocksDB can tell whether an encrypted database needs the file.
Status NotAsked(const Status& got, const std::string& name,
                const std::vector<std::string>& left_out) {
  std::string replicas;
  for (const std::string& each : left_out) replicas += (replicas.empty() ? "" : ", ") + each;
  return Unavailable("open again when " + replicas +
                     " run, or, if one of them is lost for good, when it runs with a fresh pool: "
                     "they are left out, so nobody can tell whether they hold " +
                     name + ", which the database may need; " + got.message());
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
  request.only_prepares = only_prepares_;
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
  if (must_hold_database_ && !HoldsCurrent(files))
    return NotFound("the group holds no database; check which replicas the URI names");
  HL_ASSIGN_OR_RETURN(const bool adoptable, IsToBeAdopted(*target(), directory, files));
  if (!adoptable && has_foreign_logs) {
    return InvalidArgument(directory +
                           " has log files and no CURRENT, so it is no whole database; ldb repair, "
                           "without the plugin, makes one of what is left. Nothing was changed");
  }
  if (adoptable && options_.adopt) return JudgeAdoption(*target(), directory, group.Room());
  return JudgeDirectory(*target(), directory, group, [&](const FileInfo& info) {
    return FindNear(group.Group(), info, directory).ok();
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
  if (options_.restore) UseBrought(directory);
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
  Status set = SetLocalToGroup(*bound, taken, anew);
  if (set.ok()) set = NoteUnlistedFiles(*bound);
  if (set.ok()) set = WarnIfOpaque(*bound);
  if (set.ok()) set = NoteFinishedFiles(*bound);
  if (set.ok() && anew) set = WritePairing(*target(), directory, taken.pairing, taken.branch, true);
  if (set.ok()) set = MarkOpen(directory);
  if (!set.ok()) {
    bound->Close().IgnoreError();
    return set;
  }
  RemoveBrought(directory);
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

Status HyperloopFileSystem::SetLocalToGroup(BoundDirectory& bound, const TakeResult& taken,
                                            bool anew) {
  SetAside aside(*target(), bound.directory(), taken.epoch);
  std::vector<std::string> vanished;
  HL_RETURN_IF_ERROR(RemoveLeftovers(bound, false, &vanished));
  HL_ASSIGN_OR_RETURN(std::vector<FileInfo> files, bound.Files());
  for (const FileInfo& info : files) {
    if (info.name.ends_with(kImportSuffix)) HL_RETURN_IF_ERROR(bound.Remove(info.name));
  }
  HL_ASSIGN_OR_RETURN(files, bound.Files());
  HL_RETURN_IF_ERROR(FetchMissing(bound, taken, files, anew, &aside));
  HL_ASSIGN_OR_RETURN(files, bound.Files());
  ReconcileReport report;
  const Status reconciled =
      Reconcile(*target(), bound.directory(), FilesOfStore(bound.store(), std::move(files)),
                options_.local_sync, &aside, &report);
  LogNames(bound, LogLevel::kInfo, "local log files set to the group's content", report.rewritten);
  LogNames(bound, LogLevel::kInfo, "local log files cut to what the group holds", report.cut);
  LogNames(bound, LogLevel::kInfo, "local log files removed that the group does not hold",
           report.removed);
  LogNames(
      bound, LogLevel::kWarn,
      "what they held and the group does not is kept in " + aside.path() + " until you remove it",
      aside.names());
  vanished.insert(vanished.end(), report.removed.begin(), report.removed.end());
  std::sort(vanished.begin(), vanished.end());
  vanished.erase(std::unique(vanished.begin(), vanished.end()), vanished.end());
  bound.NoteVanished(std::move(vanished));
  return reconciled;
}

// RocksDB changes its MANIFEST in every opening, and what is noted here is listed before that.
Status HyperloopFileSystem::NoteUnlistedFiles(BoundDirectory& bound) {
  HL_ASSIGN_OR_RETURN(std::vector<FileInfo> files, bound.Files());
  HL_ASSIGN_OR_RETURN(
      const std::vector<std::string> names,
      UnlistedFiles(*target(), bound.directory(), FilesOfStore(bound.store(), std::move(files))));
  for (const std::string& name : names) bound.NoteUnlisted(name);
  LogNames(bound, LogLevel::kWarn, "files that only this directory had are sent to the replicas",
           names);
  return Status::Ok();
}

Status HyperloopFileSystem::WarnIfOpaque(BoundDirectory& bound) {
  HL_ASSIGN_OR_RETURN(std::vector<FileInfo> files, bound.Files());
  HL_ASSIGN_OR_RETURN(const Current current,
                      GroupCurrent(FilesOfStore(bound.store(), std::move(files))));
  if (current.opaque)
    bound.log().Write(
        LogLevel::kWarn,
        "the database is encrypted, or changed by another layer above the plugin: the "
        "database must be reopened after the write of a log failed, and only RocksDB "
        "can tell which tables it needs");
  return Status::Ok();
}

// RocksDB truncates at most the newest log when it opens the database.
Status HyperloopFileSystem::NoteFinishedFiles(BoundDirectory& bound) {
  HL_ASSIGN_OR_RETURN(const std::vector<FileInfo> files, bound.Files());
  HL_ASSIGN_OR_RETURN(const Current current, GroupCurrent(FilesOfStore(bound.store(), files)));
  bound.finished_logs().Found(files);
  bound.finished_logs().FoundCurrent(NumberOf(current.manifest), files);
  return Status::Ok();
}

// Whether the directory has the file as the group lists it. In a directory that is bound anew a
// file of the same size may be of another history, which only its bytes show.
Result<bool> HyperloopFileSystem::HasFile(const std::string& path, const FileInfo& info, bool anew,
                                          bool* exists) {
  const Result<uint64_t> size = SizeOf(*target(), path);
  *exists = size.status().code() != Code::kNotFound;
  if (!*exists) return false;
  HL_RETURN_IF_ERROR(size.status());
  // A log is read even in the group's own directory: RocksDB takes a damaged one for a shorter one.
  // An archived one is not recovered from.
  if (*size != info.size || (!anew && !IsLiveLog(info.name))) return *size == info.size;
  const Result<bool> sound = IsSound(path, info);
  return sound.ok() && *sound;  // one that cannot be read is brought anew
}

Result<bool> HyperloopFileSystem::IsSound(const std::string& path, const FileInfo& info) {
  const WholeFile file{info.name, info.size, info.checksum};
  if (IsTableOrBlob(info.name)) return near_.checked.IsSound(*target(), path, file);
  HL_ASSIGN_OR_RETURN(const WholeFile found, Describe(*target(), path, info.name));
  return found == file;
}

void HyperloopFileSystem::UseBrought(const std::string& directory) {
  const std::string brought = BroughtFiles(directory);
  std::error_code error;
  if (!std::filesystem::exists(brought, error)) return;
  if (const Status own = CheckDirectory(brought, DirectoryRule::kOwn).status(); !own.ok())
    return log_->Write(LogLevel::kWarn, "what was brought is not used: " + own.message());
  near_.places.push_back(brought);
  near_.checked = CheckedFiles::In(brought);
}

void HyperloopFileSystem::RemoveBrought(const std::string& directory) {
  const std::string brought = BroughtFiles(directory);
  std::erase(near_.places, brought);
  near_.checked = CheckedFiles();
  if (!CheckDirectory(brought, DirectoryRule::kOwn).ok()) return;  // not there, or another user's
  std::error_code error;
  std::filesystem::remove_all(brought, error);
  if (error)
    log_->Write(LogLevel::kWarn,
                "cannot remove " + brought + ", which is not needed any more: " + error.message());
}

// A file that may be changed in place is not linked, because that would change the replica's file
// too.
Result<std::string> HyperloopFileSystem::FindNear(const std::string& group, const FileInfo& info,
                                                  const std::string& directory) const {
  Status last = NotFound("not looked for");
  if (!StaysAsListed(info.name)) return last;
  for (const std::string& place : near_.places) {
    Result<std::string> found =
        FindLinkableFile(place, group, {info.name, info.size, info.checksum}, directory);
    if (found.ok()) return found;
    last = found.status();
  }
  return last;
}

// The bytes are read again, unless a process of this machine's present run has: the disk may have
// damaged them since they arrived.
bool HyperloopFileSystem::LinkNear(const std::string& group, const FileInfo& info,
                                   const std::string& path) {
  if (near_.places.empty() || !StaysAsListed(info.name)) return false;
  const Result<std::string> held = FindNear(group, info, ParentOf(path));
  if (!held.ok()) {
    log_->Write(LogLevel::kWarn, info.name + " is not linked: " + held.status().message());
    return false;
  }
  const Result<bool> sound = IsSound(*held, info);
  if (!sound.ok() || !*sound) {
    log_->Write(LogLevel::kWarn,
                *held + " is not linked: " +
                    (sound.ok() ? "it fails its checksum" : sound.status().message()));
    return false;
  }
  target()->DeleteFile(path, IOOptions(), nullptr).PermitUncheckedError();
  const IOStatus linked = target()->LinkFile(*held, path, IOOptions(), nullptr);
  if (!linked.ok()) log_->Write(LogLevel::kWarn, "cannot link " + *held + ": " + linked.ToString());
  return linked.ok();
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

// Whether a file of the listed size has other bytes, as far as that can be told without reading all
// of it: it ends with zeros, or begins otherwise than a replica's file. The replica is asked if it
// begins with zeros or does not end as RocksDB's files do. Layers above this one may encrypt files,
// whose ends say nothing then. If they do (`opaque`), only zeros count, as what a power failure
// leaves: else each opening would ask for a piece of each table.
bool HyperloopFileSystem::IsGarbage(BoundDirectory& bound, const std::string& path,
                                    const FileInfo& info, bool opaque) const {
  if (!IsTableOrBlob(info.name) || info.size == 0) return false;
  const Result<ReadAt> read = OpenReader(*target(), path);
  if (!read.ok()) return false;
  const Result<FileEnd> end = EndOf(*read, info.size);
  if (!end.ok() || *end == FileEnd::kZeros) return end.ok();
  if ((*end == FileEnd::kFinished || opaque) && !BeginsWithZeros(*read)) return false;
  bool differs = false;
  const auto compare = [&](std::span<const char> bytes) {
    std::vector<char> local(bytes.size());
    const Result<uint64_t> got = (*read)(0, local);
    differs =
        !got.ok() || *got != bytes.size() || !std::equal(local.begin(), local.end(), bytes.begin());
    return Aborted("only the beginning is compared");
  };
  bound.store().Fetch({info.name, info.size, info.checksum}, compare).IgnoreError();
  return differs;
}

// Writes to `path` what a replica holds of the file. kNotFound: no replica holds it.
Status HyperloopFileSystem::FetchFile(BoundDirectory& bound, const FileInfo& info,
                                      const std::string& path) {
  const auto fill = [&](rocksdb::FSWritableFile& file) {
    return bound.store().Fetch(
        {info.name, info.size, info.checksum}, [&](std::span<const char> bytes) {
          return FromIOStatus(file.Append({bytes.data(), bytes.size()}, IOOptions(), nullptr),
                              "cannot write " + path);
        });
  };
  Status damaged;
  while (true) {
    const Status written = WriteWhole(*target(), path, true, fill);
    if (written.ok()) return written;
    target()->DeleteFile(path, IOOptions(), nullptr).PermitUncheckedError();
    if (written.code() != Code::kCorruption)
      return written.code() == Code::kNotFound && !damaged.ok() ? damaged : written;
    damaged = written;  // another replica may have it sound
  }
}

// Brings files of the bulk lane that the directory lacks, or has with another content, from the
// replicas. A file that nobody has any more was being made when its primary ended. The group
// forgets such a file, unless its MANIFEST names it, or may name it because a replica has it or may
// have it.
Status HyperloopFileSystem::FetchMissing(BoundDirectory& bound, const TakeResult& taken,
                                         const std::vector<FileInfo>& files, bool anew,
                                         SetAside* aside) {
  HL_ASSIGN_OR_RETURN(const std::vector<FileInfo> needed,
                      NeededFiles(FilesOfStore(bound.store(), files)));
  HL_ASSIGN_OR_RETURN(const Current current, GroupCurrent(FilesOfStore(bound.store(), files)));
  std::vector<std::string> fetched, linked, forgotten;
  for (const FileInfo& info : files) {
    if (info.lane != Lane::kBulk) continue;
    const std::string path = bound.directory() + "/" + info.name;
    bool exists = false;
    HL_ASSIGN_OR_RETURN(const bool present, HasFile(path, info, anew, &exists));
    const bool garbage = present && IsGarbage(bound, path, info, current.opaque);
    if (present && !garbage) continue;
    const std::string fresh = path + std::string(kNewSuffix);
    if (info.name.starts_with(kArchivePrefix))
      HL_RETURN_IF_ERROR(CreateDirectory(*target(), ParentOf(path)));
    const bool near = LinkNear(taken.pairing.group, info, fresh);
    const Status got = near ? Status::Ok() : FetchFile(bound, info, fresh);
    const bool nobody_has_it =
        got.code() == Code::kNotFound || (got.code() == Code::kCorruption && !current.opaque);
    // RocksDB says what it makes of garbage. It reads no archived log when it opens.
    if (!got.ok() && (garbage || (IsArchivedLog(info.name) && !nobody_has_it))) {
      log_->Write(LogLevel::kWarn,
                  path + " does not hold what the group lists, and " + got.message());
      continue;
    }
    if (!got.ok() && (Lists(needed, info.name) || !nobody_has_it))
      return got.WithContext("cannot bring " + info.name + " from a replica");
    if (!got.ok() && current.opaque && !taken.left_out.empty() && MayBeNeeded(info.name))
      return NotAsked(got, info.name, taken.left_out);
    if (exists) HL_RETURN_IF_ERROR(aside->Keep(info.name));
    if (got.ok()) {
      HL_RETURN_IF_ERROR(RenameOver(*target(), fresh, path));
      (near ? linked : fetched).push_back(info.name);
    } else {
      HL_RETURN_IF_ERROR(bound.Remove(info.name));
      forgotten.push_back(info.name);
    }
  }
  LogNames(
      bound, current.opaque ? LogLevel::kWarn : LogLevel::kInfo,
      current.opaque
          ? "files that nobody has were removed from the group; whether RocksDB needs them, its "
            "opening tells, because CURRENT is encrypted or changed by another layer"
          : "unfinished files that nobody has were removed from the group",
      forgotten);
  LogNames(bound, LogLevel::kInfo,
           "files that the directory lacked were linked from the replica on this machine, or from "
           "what was brought before",
           linked);
  LogNames(bound, LogLevel::kWarn, "files that the directory lacked were brought from replicas",
           fetched);
  if (linked.empty() && fetched.empty()) return Status::Ok();
  const auto is_archived = [](const std::string& name) { return name.starts_with(kArchivePrefix); };
  if (std::ranges::any_of(linked, is_archived) || std::ranges::any_of(fetched, is_archived))
    HL_RETURN_IF_ERROR(SyncDirectory(*target(), bound.directory() + "/archive"));
  return SyncDirectory(*target(), bound.directory());
}

// Removes the log-lane files of a group that holds no database. A group without CURRENT holds none.
// With `manifest_matters` that is also true of a group whose CURRENT names a MANIFEST that it does
// not have, if it has neither a log with bytes nor a table or blob file. A creation or a DestroyDB
// that was cut short leaves such files. DestroyDB lists the directory before it locks it, so it
// does not see files that only the group has. A new database would fail because of such files.
Status HyperloopFileSystem::RemoveLeftovers(BoundDirectory& bound, bool manifest_matters,
                                            std::vector<std::string>* removed) {
  HL_ASSIGN_OR_RETURN(const std::vector<FileInfo> files, bound.Files());
  if (HoldsCurrent(files)) {
    if (!manifest_matters) return Status::Ok();
    const FilesOfStore group(bound.store(), files);
    HL_ASSIGN_OR_RETURN(const Current current, GroupCurrent(group));
    // An opaque CURRENT may name any MANIFEST.
    const std::string manifest = current.opaque ? NewestManifest(group) : current.manifest;
    // If CURRENT were removed while data is left, RocksDB would make a new database in its place.
    if (Lists(files, manifest) || std::any_of(files.begin(), files.end(), HoldsData))
      return Status::Ok();
  }
  for (const FileInfo& info : files) {
    if (info.lane != Lane::kLog && Classify(info.name) != FileClass::kLogLane) continue;
    HL_RETURN_IF_ERROR(bound.Remove(info.name));
    // When a directory is opened, its local files stay: Reconcile decides about them.
    if (manifest_matters) {
      target()
          ->DeleteFile(bound.directory() + "/" + info.name, IOOptions(), nullptr)
          .PermitUncheckedError();
    }
    removed->push_back(info.name);
  }
  LogNames(bound, LogLevel::kInfo, "the group holds no database; leftovers removed from it",
           *removed);
  return Status::Ok();
}

void HyperloopFileSystem::Announce(BoundDirectory& bound, const TakeResult& taken) {
  const StoreOptions& options = options_;
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
    refusal_.clear();
    foreign_directories_.clear();
    for (auto& [path, registered] : registered_paths_) registered.refusal.clear();
  }
  spoken_of::Nothing();
  if (bound->InForkedChild()) return;
  std::vector<std::string> removed;
  Status status = RemoveLeftovers(*bound, true, &removed);
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
