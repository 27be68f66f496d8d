#include "local_to_group.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "adoption.h"
#include "judge.h"
#include "local/local_files.h"
#include "local/paths.h"
#include "local/status.h"

namespace hyperloop::plugin {
namespace {

using rocksdb::FileSystem;
using rocksdb::IOOptions;

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

class Setting {
 public:
  Setting(FileSystem& fs, BoundDirectory& bound, NearFiles& near, const TakeResult& taken,
          bool anew)
      : fs_(fs), bound_(bound), near_(near), taken_(taken), anew_(anew) {}
  Status Run();

 private:
  Result<bool> HasFile(const std::string& path, const FileInfo& info, bool* exists);
  bool IsGarbage(const std::string& path, const FileInfo& info, bool opaque) const;
  Status FetchFile(const FileInfo& info, const std::string& path);
  Status FetchMissing(const std::vector<FileInfo>& files, SetAside* aside);
  // Notes the tables and blob files which the MANIFEST names and the group does not list, as a
  // listing that failed while an earlier release ran may have left them.
  Status NoteUnlistedFiles();
  // Says what the plugin cannot do for a database whose bytes another layer has changed.
  Status WarnIfOpaque();
  // Says which logs and MANIFESTs get no more bytes, so that they may leave the region.
  Status NoteFinishedFiles();

  FileSystem& fs_;
  BoundDirectory& bound_;
  NearFiles& near_;
  const TakeResult& taken_;
  const bool anew_;
};

Status Setting::Run() {
  SetAside aside(fs_, bound_.directory(), taken_.epoch);
  std::vector<std::string> vanished;
  HL_RETURN_IF_ERROR(RemoveLeftovers(fs_, bound_, false, &vanished));
  HL_ASSIGN_OR_RETURN(std::vector<FileInfo> files, bound_.Files());
  for (const FileInfo& info : files) {
    if (info.name.ends_with(kImportSuffix)) HL_RETURN_IF_ERROR(bound_.Remove(info.name));
  }
  HL_ASSIGN_OR_RETURN(files, bound_.Files());
  HL_RETURN_IF_ERROR(FetchMissing(files, &aside));
  HL_ASSIGN_OR_RETURN(files, bound_.Files());
  ReconcileReport report;
  const Status reconciled =
      Reconcile(fs_, bound_.directory(), FilesOfStore(bound_.store(), std::move(files)),
                bound_.store().options().local_sync, &aside, &report);
  LogNames(bound_, LogLevel::kInfo, "local log files set to the group's content", report.rewritten);
  LogNames(bound_, LogLevel::kInfo, "local log files cut to what the group holds", report.cut);
  LogNames(bound_, LogLevel::kInfo, "local log files removed that the group does not hold",
           report.removed);
  LogNames(
      bound_, LogLevel::kWarn,
      "what they held and the group does not is kept in " + aside.path() + " until you remove it",
      aside.names());
  vanished.insert(vanished.end(), report.removed.begin(), report.removed.end());
  std::sort(vanished.begin(), vanished.end());
  vanished.erase(std::unique(vanished.begin(), vanished.end()), vanished.end());
  bound_.NoteVanished(std::move(vanished));
  HL_RETURN_IF_ERROR(reconciled);
  HL_RETURN_IF_ERROR(NoteUnlistedFiles());
  HL_RETURN_IF_ERROR(WarnIfOpaque());
  return NoteFinishedFiles();
}

// RocksDB changes its MANIFEST in every opening, and what is noted here is listed before that.
Status Setting::NoteUnlistedFiles() {
  HL_ASSIGN_OR_RETURN(std::vector<FileInfo> files, bound_.Files());
  HL_ASSIGN_OR_RETURN(
      const std::vector<std::string> names,
      UnlistedFiles(fs_, bound_.directory(), FilesOfStore(bound_.store(), std::move(files))));
  for (const std::string& name : names) bound_.NoteUnlisted(name);
  LogNames(bound_, LogLevel::kWarn, "files that only this directory had are sent to the replicas",
           names);
  return Status::Ok();
}

Status Setting::WarnIfOpaque() {
  HL_ASSIGN_OR_RETURN(std::vector<FileInfo> files, bound_.Files());
  HL_ASSIGN_OR_RETURN(const Current current,
                      GroupCurrent(FilesOfStore(bound_.store(), std::move(files))));
  if (current.opaque)
    bound_.log().Write(
        LogLevel::kWarn,
        "the database is encrypted, or changed by another layer above the plugin: the "
        "database must be reopened after the write of a log failed, and only RocksDB "
        "can tell which tables it needs");
  return Status::Ok();
}

// RocksDB truncates at most the newest log when it opens the database.
Status Setting::NoteFinishedFiles() {
  HL_ASSIGN_OR_RETURN(const std::vector<FileInfo> files, bound_.Files());
  HL_ASSIGN_OR_RETURN(const Current current, GroupCurrent(FilesOfStore(bound_.store(), files)));
  bound_.finished_logs().Found(files);
  bound_.finished_logs().FoundCurrent(NumberOf(current.manifest), files);
  return Status::Ok();
}

// Whether the directory has the file as the group lists it. In a directory that is bound anew a
// file of the same size may be of another history, which only its bytes show.
Result<bool> Setting::HasFile(const std::string& path, const FileInfo& info, bool* exists) {
  const Result<uint64_t> size = SizeOf(fs_, path);
  *exists = size.status().code() != Code::kNotFound;
  if (!*exists) return false;
  HL_RETURN_IF_ERROR(size.status());
  // A log is read even in the group's own directory: RocksDB takes a damaged one for a shorter one.
  // An archived one is not recovered from.
  if (*size != info.size || (!anew_ && !IsLiveLog(info.name))) return *size == info.size;
  const Result<bool> sound = near_.IsSound(fs_, path, info);
  return sound.ok() && *sound;  // one that cannot be read is brought anew
}

// Whether a file of the listed size has other bytes, as far as that can be told without reading all
// of it: it ends with zeros, or begins otherwise than a replica's file. The replica is asked if it
// begins with zeros or does not end as RocksDB's files do. Layers above this one may encrypt files,
// whose ends say nothing then. If they do (`opaque`), only zeros count, as what a power failure
// leaves: else each opening would ask for a piece of each table.
bool Setting::IsGarbage(const std::string& path, const FileInfo& info, bool opaque) const {
  if (!IsTableOrBlob(info.name) || info.size == 0) return false;
  const Result<ReadAt> read = OpenReader(fs_, path);
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
  bound_.store().Fetch({info.name, info.size, info.checksum}, compare).IgnoreError();
  return differs;
}

// Writes to `path` what a replica holds of the file. kNotFound: no replica holds it.
Status Setting::FetchFile(const FileInfo& info, const std::string& path) {
  const auto fill = [&](rocksdb::FSWritableFile& file) {
    return bound_.store().Fetch(
        {info.name, info.size, info.checksum}, [&](std::span<const char> bytes) {
          return FromIOStatus(file.Append({bytes.data(), bytes.size()}, IOOptions(), nullptr),
                              "cannot write " + path);
        });
  };
  Status damaged;
  while (true) {
    const Status written = WriteWhole(fs_, path, true, fill);
    if (written.ok()) return written;
    fs_.DeleteFile(path, IOOptions(), nullptr).PermitUncheckedError();
    if (written.code() != Code::kCorruption)
      return written.code() == Code::kNotFound && !damaged.ok() ? damaged : written;
    damaged = written;  // another replica may have it sound
  }
}

// Brings files of the bulk lane that the directory lacks, or has with another content, from the
// replicas. A file that nobody has any more was being made when its primary ended. The group
// forgets such a file, unless its MANIFEST names it, or may name it because a replica has it or may
// have it.
Status Setting::FetchMissing(const std::vector<FileInfo>& files, SetAside* aside) {
  HL_ASSIGN_OR_RETURN(const std::vector<FileInfo> needed,
                      NeededFiles(FilesOfStore(bound_.store(), files)));
  HL_ASSIGN_OR_RETURN(const Current current, GroupCurrent(FilesOfStore(bound_.store(), files)));
  std::vector<std::string> fetched, linked, forgotten;
  for (const FileInfo& info : files) {
    if (info.lane != Lane::kBulk) continue;
    const std::string path = bound_.directory() + "/" + info.name;
    bool exists = false;
    HL_ASSIGN_OR_RETURN(const bool present, HasFile(path, info, &exists));
    const bool garbage = present && IsGarbage(path, info, current.opaque);
    if (present && !garbage) continue;
    const std::string fresh = path + std::string(kNewSuffix);
    if (info.name.starts_with(kArchivePrefix))
      HL_RETURN_IF_ERROR(CreateDirectory(fs_, ParentOf(path)));
    const bool near = near_.Link(fs_, taken_.pairing.group, info, fresh, bound_.log());
    const Status got = near ? Status::Ok() : FetchFile(info, fresh);
    const bool nobody_has_it =
        got.code() == Code::kNotFound || (got.code() == Code::kCorruption && !current.opaque);
    // RocksDB says what it makes of garbage. It reads no archived log when it opens.
    if (!got.ok() && (garbage || (IsArchivedLog(info.name) && !nobody_has_it))) {
      bound_.log().Write(LogLevel::kWarn,
                         path + " does not hold what the group lists, and " + got.message());
      continue;
    }
    if (!got.ok() && (Lists(needed, info.name) || !nobody_has_it))
      return got.WithContext("cannot bring " + info.name + " from a replica");
    if (!got.ok() && current.opaque && !taken_.left_out.empty() && MayBeNeeded(info.name))
      return NotAsked(got, info.name, taken_.left_out);
    if (exists) HL_RETURN_IF_ERROR(aside->Keep(info.name));
    if (got.ok()) {
      HL_RETURN_IF_ERROR(RenameOver(fs_, fresh, path));
      (near ? linked : fetched).push_back(info.name);
    } else {
      HL_RETURN_IF_ERROR(bound_.Remove(info.name));
      forgotten.push_back(info.name);
    }
  }
  LogNames(
      bound_, current.opaque ? LogLevel::kWarn : LogLevel::kInfo,
      current.opaque
          ? "files that nobody has were removed from the group; whether RocksDB needs them, its "
            "opening tells, because CURRENT is encrypted or changed by another layer"
          : "unfinished files that nobody has were removed from the group",
      forgotten);
  LogNames(bound_, LogLevel::kInfo,
           "files that the directory lacked were linked from the replica on this machine, or from "
           "what was brought before",
           linked);
  LogNames(bound_, LogLevel::kWarn, "files that the directory lacked were brought from replicas",
           fetched);
  if (linked.empty() && fetched.empty()) return Status::Ok();
  const auto is_archived = [](const std::string& name) { return name.starts_with(kArchivePrefix); };
  if (std::ranges::any_of(linked, is_archived) || std::ranges::any_of(fetched, is_archived))
    HL_RETURN_IF_ERROR(SyncDirectory(fs_, bound_.directory() + "/archive"));
  return SyncDirectory(fs_, bound_.directory());
}

}  // namespace

Status SetLocalToGroup(FileSystem& fs, BoundDirectory& bound, NearFiles& near,
                       const TakeResult& taken, bool anew) {
  return Setting(fs, bound, near, taken, anew).Run();
}

Status RemoveLeftovers(FileSystem& fs, BoundDirectory& bound, bool closing,
                       std::vector<std::string>* removed) {
  HL_ASSIGN_OR_RETURN(const std::vector<FileInfo> files, bound.Files());
  if (HoldsCurrent(files)) {
    if (!closing) return Status::Ok();
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
    if (closing) {
      fs.DeleteFile(bound.directory() + "/" + info.name, IOOptions(), nullptr)
          .PermitUncheckedError();
    }
    removed->push_back(info.name);
  }
  LogNames(bound, LogLevel::kInfo, "the group holds no database; leftovers removed from it",
           *removed);
  return Status::Ok();
}

}  // namespace hyperloop::plugin
