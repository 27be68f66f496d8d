#include "adoption.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <memory>

#include "bound/import.h"
#include "hyperloop/replication/rocksdb_log.h"
#include "local/local_files.h"
#include "local/paths.h"
#include "local/status.h"

namespace hyperloop::plugin {
namespace {

using rocksdb::FileSystem;
using rocksdb::IOOptions;

constexpr std::string_view kCurrent = "CURRENT";
constexpr std::chrono::seconds kReportInterval{5};

// The MANIFEST that CURRENT names, what it says, and whether this build understands it. Behind an
// opaque CURRENT it is not understood, and the newest one stands for it.
struct LocalDatabase {
  std::string manifest;
  bool opaque = false;
  bool parsed = false;
  ManifestContent content;
};

// kInvalidArgument: it is no database, or CURRENT is damaged: the MANIFESTs can be read.
Result<LocalDatabase> ReadOpaqueDatabase(FileSystem& fs, const std::string& directory) {
  std::vector<std::string> names;
  HL_RETURN_IF_ERROR(LocalLogFiles(fs, directory, &names));
  LocalDatabase found{NewestManifest(names), true, false, {}};
  if (found.manifest.empty()) return InvalidArgument(directory + " has no MANIFEST");
  HL_ASSIGN_OR_RETURN(const ReadAt read, OpenReader(fs, directory + "/" + found.manifest));
  HL_ASSIGN_OR_RETURN(const bool plain, IsSoundRecord(read, 0));
  if (plain) return InvalidArgument("the CURRENT of " + directory + " names no MANIFEST");
  return found;
}

Result<LocalDatabase> ReadDatabase(FileSystem& fs, const std::string& directory) {
  LocalDatabase found;
  HL_ASSIGN_OR_RETURN(Current current, LocalCurrent(fs, directory));
  if (current.opaque) return ReadOpaqueDatabase(fs, directory);
  found.manifest = std::move(current.manifest);
  if (found.manifest.empty())
    return InvalidArgument("the CURRENT of " + directory + " names no MANIFEST");
  const Result<ReadAt> read = OpenReader(fs, directory + "/" + found.manifest);
  if (read.status().code() == Code::kNotFound)
    return InvalidArgument(
        "the CURRENT of " + directory + " names " + found.manifest +
        ", which is missing; ldb repair, without the plugin, opens what is left");
  if (!read.ok()) return read.status();
  Result<ManifestContent> content = ParseManifest(*read);
  if (!content.ok() && content.status().code() != Code::kNotSupported) return content.status();
  found.parsed = content.ok();
  if (found.parsed) found.content = std::move(*content);
  return found;
}

// Whether RocksDB would delete the table or blob file at its next opening.
bool IsObsolete(const LocalDatabase& database, std::string_view name) {
  if (!IsTableOrBlob(name) || !database.parsed) return false;
  const auto& live = name.ends_with(".sst") ? database.content.tables : database.content.blobs;
  return !live.contains(NumberOf(name));
}

// What the group is to hold of a directory, by names relative to it.
struct Parts {
  std::vector<std::string> logs;  // log lane, without CURRENT
  std::vector<std::string> files;
  std::vector<std::string> others;  // left where they are: directories and the like
};
Result<Parts> PartsOf(FileSystem& fs, const std::string& directory, const LocalDatabase& database) {
  std::vector<std::string> names;
  HL_RETURN_IF_ERROR(LocalLogFiles(fs, directory, &names));
  Parts parts;
  for (const std::string& name : names)
    if (name != kCurrent && !name.ends_with(".dbtmp")) parts.logs.push_back(name);
  names.clear();
  HL_RETURN_IF_ERROR(FromIOStatus(fs.GetChildren(directory, IOOptions(), &names, nullptr),
                                  "cannot list " + directory));
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    if (Classify(name) != FileClass::kListed || IsObsolete(database, name)) continue;
    struct stat info {};
    const bool there = ::stat((directory + "/" + name).c_str(), &info) == 0;
    if (there && S_ISREG(info.st_mode)) {
      parts.files.push_back(name);
    } else if (name != BaseOf(kArchivePrefix) && name != kSetAsideName && name != kSwitchoverName) {
      parts.others.push_back(name);
    }
  }
  return parts;
}

// The value of `wal_dir` in the newest OPTIONS file; empty without one.
Result<std::string> RecordedWalDir(FileSystem& fs, const std::string& directory) {
  std::vector<std::string> names;
  HL_RETURN_IF_ERROR(FromIOStatus(fs.GetChildren(directory, IOOptions(), &names, nullptr),
                                  "cannot list " + directory));
  std::string newest;
  for (const std::string& name : names) {
    const bool options = name.starts_with("OPTIONS-") && !name.ends_with(".dbtmp");
    if (options && (newest.empty() || NumberOf(name) > NumberOf(newest))) newest = name;
  }
  if (newest.empty()) return std::string();
  std::string text(256 << 10, '\0');
  HL_ASSIGN_OR_RETURN(const uint64_t length,
                      ReadLocal(fs, directory + "/" + newest, 0, {text.data(), text.size()}));
  text.resize(length);
  constexpr std::string_view kKey = "\n  wal_dir=";
  const size_t at = text.find(kKey);
  if (at == std::string::npos) return std::string();
  const size_t begin = at + kKey.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

// Whether the directory can be listed and holds no log.
bool HoldsNoLog(FileSystem& fs, const std::string& directory) {
  std::vector<std::string> names;
  if (!fs.GetChildren(directory, IOOptions(), &names, nullptr).ok()) return false;
  return std::none_of(names.begin(), names.end(), [](const std::string& name) {
    return name.ends_with(".log") && Classify(name) == FileClass::kLogLane;
  });
}

// Logs that the database would be without must not be forgotten.
Status CheckNoLogsElsewhere(FileSystem& fs, const std::string& directory) {
  HL_ASSIGN_OR_RETURN(const std::string wal_dir, RecordedWalDir(fs, directory));
  if (wal_dir.empty() || RealPath(wal_dir) == RealPath(directory)) return Status::Ok();
  if (wal_dir.front() == '/' && HoldsNoLog(fs, wal_dir)) return Status::Ok();
  return InvalidArgument(directory + " was opened with wal_dir=" + wal_dir +
                         " the last time, which holds logs or cannot be read, and a group holds "
                         "one directory. Move the logs into it, then open and close it once "
                         "without wal_dir and without the plugin");
}

// The path's file can be read by this process.
Status CheckReadable(const std::string& path) {
  if (::access(path.c_str(), R_OK) == 0) return Status::Ok();
  return FromErrno(errno, "cannot read " + path);
}

// kNoSpace: an empty group does not take the directory's logs, or so many files.
Status CheckRoom(FileSystem& fs, const std::string& directory, const Parts& parts,
                 const GroupRoom& room) {
  uint64_t logs = room.extent_bytes, manifests = 0;  // CURRENT is among the logs
  for (const std::string& name : parts.logs) {
    HL_ASSIGN_OR_RETURN(const uint64_t size, SizeOf(fs, directory + "/" + name));
    const uint64_t extents = (size + room.extent_bytes - 1) / room.extent_bytes;
    (IsManifest(name) ? manifests : logs) += extents * room.extent_bytes;
  }
  if (logs > room.log_bytes || logs + manifests > room.log_lane_bytes)
    return NoSpace("the group's data area has no room for the logs of " + directory +
                   ": open and close the database once without the plugin, which turns them into "
                   "tables, or give it a larger region (hyperloopctl resize). They take " +
                   std::to_string(logs) + " B, its MANIFEST " + std::to_string(manifests) +
                   " B; the area takes " + std::to_string(room.log_bytes) + " B of logs, and " +
                   std::to_string(room.log_lane_bytes) + " B in all");
  const uint64_t files = parts.logs.size() + parts.files.size() + 1;
  if (files <= room.files) return Status::Ok();
  return NoSpace(directory + " holds " + std::to_string(files) +
                 " files, and the group's file table takes " + std::to_string(room.files) +
                 "; give it a larger one (hyperloopctl resize --table-capacity)");
}

class Adoption {
 public:
  Adoption(FileSystem& fs, BoundDirectory& bound) : fs_(fs), bound_(bound) {}

  Status Run() {
    HL_ASSIGN_OR_RETURN(const LocalDatabase database, ReadDatabase(fs_, bound_.directory()));
    HL_ASSIGN_OR_RETURN(parts_, PartsOf(fs_, bound_.directory(), database));
    bound_.log().Write(LogLevel::kInfo, "taking the database of " + bound_.directory() +
                                            " into the group: " + Count(parts_.files) + " files, " +
                                            Count(parts_.logs) + " logs");
    if (!database.parsed)
      bound_.log().Write(
          LogLevel::kWarn,
          (database.opaque ? "the database is encrypted or changed by another layer"
                           : "this build does not understand " + database.manifest) +
              (database.opaque ? ", so it has not checked whether all tables, blob files and "
                                 "logs are here"
                               : ", so it has not checked whether all tables and blob files are "
                                 "here"));
    if (!parts_.others.empty())
      bound_.log().Write(LogLevel::kWarn, "left out, because they are no files of a database: " +
                                              Enumerate(parts_.others));
    HL_RETURN_IF_ERROR(ForgetEarlier());
    HL_RETURN_IF_ERROR(
        ImportLog(fs_, bound_, Path(std::string(kCurrent)), std::string(kAdoptionMark)));
    HL_RETURN_IF_ERROR(ListFiles());
    for (const std::string& name : parts_.logs)
      HL_RETURN_IF_ERROR(ImportLog(fs_, bound_, Path(name), name));
    HL_RETURN_IF_ERROR(bound_.AwaitFiles(Holders::kAll));
    HL_RETURN_IF_ERROR(bound_.Rename(kAdoptionMark, kCurrent));
    bound_.log().Write(LogLevel::kInfo, "the group holds the database");
    return Status::Ok();
  }

 private:
  static std::string Count(const std::vector<std::string>& names) {
    return std::to_string(names.size());
  }
  std::string Path(const std::string& name) const { return bound_.directory() + "/" + name; }

  // Removes from the group what an earlier adoption left there and the directory has no more.
  Status ForgetEarlier() {
    HL_ASSIGN_OR_RETURN(const std::vector<FileInfo> files, bound_.Files());
    for (const FileInfo& info : files) {
      const bool stays = info.lane == Lane::kBulk &&
                         std::binary_search(parts_.files.begin(), parts_.files.end(), info.name);
      if (stays) {
        listed_[info.name] = {info.name, info.size, info.checksum};
      } else if (info.name != kAdoptionMark) {
        HL_RETURN_IF_ERROR(bound_.Remove(info.name));
      }
    }
    return Status::Ok();
  }

  // They are on their way to the replicas from here on.
  Status ListFiles() {
    auto report = std::chrono::steady_clock::now() + kReportInterval;
    size_t done = 0;
    for (const std::string& name : parts_.files) {
      HL_RETURN_IF_ERROR(ListOne(name));
      ++done;
      const auto now = std::chrono::steady_clock::now();
      if (now < report) continue;
      report = now + kReportInterval;
      bound_.log().Write(LogLevel::kInfo,
                         "read " + std::to_string(done) + " of " + Count(parts_.files) + " files");
    }
    return SyncDirectory(fs_, bound_.directory());
  }
  Status ListOne(const std::string& name) {
    HL_RETURN_IF_ERROR(SyncLocal(Path(name)));
    HL_ASSIGN_OR_RETURN(const WholeFile file, Describe(fs_, Path(name), name));
    const auto listed = listed_.find(name);
    return listed != listed_.end() && listed->second == file ? Status::Ok() : bound_.ListFile(file);
  }

  FileSystem& fs_;
  BoundDirectory& bound_;
  Parts parts_;
  std::map<std::string, WholeFile> listed_;  // by an earlier adoption
};

}  // namespace

bool HoldsCurrent(const std::vector<FileInfo>& group) {
  return std::any_of(group.begin(), group.end(),
                     [](const FileInfo& info) { return info.name == kCurrent; });
}

Result<bool> IsToBeAdopted(FileSystem& fs, const std::string& directory,
                           const std::vector<FileInfo>& group) {
  if (HoldsCurrent(group)) return false;
  const Result<uint64_t> size = SizeOf(fs, directory + "/" + std::string(kCurrent));
  if (!size.ok() && size.status().code() != Code::kNotFound) return size.status();
  return size.ok();
}

Status JudgeAdoption(FileSystem& fs, const std::string& directory, const GroupRoom& room) {
  HL_ASSIGN_OR_RETURN(const LocalDatabase database, ReadDatabase(fs, directory));
  HL_ASSIGN_OR_RETURN(const Parts parts, PartsOf(fs, directory, database));
  std::vector<std::string> missing;
  const auto find = [&](const std::set<uint64_t>& numbers, const char* suffix) {
    for (const uint64_t number : numbers) {
      std::string name = std::to_string(number);
      name = std::string(6 - std::min<size_t>(6, name.size()), '0') + name + suffix;
      if (!std::binary_search(parts.files.begin(), parts.files.end(), name))
        missing.push_back(name);
    }
  };
  find(database.content.tables, ".sst");
  find(database.content.blobs, ".blob");
  if (!missing.empty())
    return InvalidArgument(
        directory + " lacks files that its " + database.manifest +
        " names: open and close it once without the plugin, which makes a MANIFEST that names only "
        "what is needed; if db_paths or cf_paths put them elsewhere, compact the database into its "
        "own directory first. Missing are " +
        Enumerate(missing));
  HL_RETURN_IF_ERROR(CheckNoLogsElsewhere(fs, directory));
  for (const auto* names : {&parts.logs, &parts.files})
    for (const std::string& name : *names)
      HL_RETURN_IF_ERROR(CheckReadable(directory + "/" + name));
  return CheckRoom(fs, directory, parts, room);
}

Status AdoptDirectory(FileSystem& fs, BoundDirectory& bound) { return Adoption(fs, bound).Run(); }

}  // namespace hyperloop::plugin
