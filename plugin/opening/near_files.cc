#include "near_files.h"

#include <filesystem>

#include "hyperloop/core/trusted_files.h"
#include "hyperloop/replication/replica_files.h"
#include "local/local_files.h"
#include "local/paths.h"
#include "local/status.h"

namespace hyperloop::plugin {

using rocksdb::IOOptions;
using rocksdb::IOStatus;

Result<bool> NearFiles::IsSound(rocksdb::FileSystem& fs, const std::string& path,
                                const FileInfo& info) {
  const WholeFile file{info.name, info.size, info.checksum};
  if (IsTableOrBlob(info.name)) return checked_.IsSound(fs, path, file);
  HL_ASSIGN_OR_RETURN(const WholeFile found, Describe(fs, path, info.name));
  return found == file;
}

void NearFiles::UseBrought(const std::string& directory, Log& log) {
  const std::string brought = BroughtFiles(directory);
  std::error_code error;
  if (!std::filesystem::exists(brought, error)) return;
  if (const Status own = CheckDirectory(brought, DirectoryRule::kOwn).status(); !own.ok())
    return log.Write(LogLevel::kWarn, "what was brought is not used: " + own.message());
  places_.push_back(brought);
  checked_ = CheckedFiles::In(brought);
}

void NearFiles::RemoveBrought(const std::string& directory, Log& log) {
  const std::string brought = BroughtFiles(directory);
  std::erase(places_, brought);
  checked_ = CheckedFiles();
  if (!CheckDirectory(brought, DirectoryRule::kOwn).ok()) return;  // not there, or another user's
  std::error_code error;
  std::filesystem::remove_all(brought, error);
  if (error)
    log.Write(LogLevel::kWarn,
              "cannot remove " + brought + ", which is not needed any more: " + error.message());
}

// A file that may be changed in place is not linked, because that would change the replica's file
// too.
Result<std::string> NearFiles::Find(const std::string& group, const FileInfo& info,
                                    const std::string& directory) const {
  Status last = NotFound("not looked for");
  if (!StaysAsListed(info.name)) return last;
  for (const std::string& place : places_) {
    Result<std::string> found =
        FindLinkableFile(place, group, {info.name, info.size, info.checksum}, directory);
    if (found.ok()) return found;
    last = found.status();
  }
  return last;
}

// The bytes are read again, unless a process of this machine's present run has: the disk may have
// damaged them since they arrived.
bool NearFiles::Link(rocksdb::FileSystem& fs, const std::string& group, const FileInfo& info,
                     const std::string& path, Log& log) {
  if (places_.empty() || !StaysAsListed(info.name)) return false;
  const Result<std::string> held = Find(group, info, ParentOf(path));
  if (!held.ok()) {
    log.Write(LogLevel::kWarn, info.name + " is not linked: " + held.status().message());
    return false;
  }
  const Result<bool> sound = IsSound(fs, *held, info);
  if (!sound.ok() || !*sound) {
    log.Write(LogLevel::kWarn,
              *held + " is not linked: " +
                  (sound.ok() ? "it fails its checksum" : sound.status().message()));
    return false;
  }
  fs.DeleteFile(path, IOOptions(), nullptr).PermitUncheckedError();
  const IOStatus linked = fs.LinkFile(*held, path, IOOptions(), nullptr);
  if (!linked.ok()) log.Write(LogLevel::kWarn, "cannot link " + *held + ": " + linked.ToString());
  return linked.ok();
}

}  // namespace hyperloop::plugin
