#include "follow/snapshot.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "hyperloop/core/text.h"
#include "hyperloop/core/trusted_files.h"
#include "hyperloop/core/unique_fd.h"
#include "inspect/export.h"
#include "region/directory.h"

namespace hyperloop {
namespace {

constexpr std::string_view kFollowed = "/hyperloop-follower", kFinished = "/hyperloop-snapshot";
constexpr uint64_t kSlack = 1 << 20;  // for directories, and what grows meanwhile

std::string Stripped(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

Status CheckAbsent(const std::string& to) {
  struct stat st;
  if (::lstat(to.c_str(), &st) != 0)
    return errno == ENOENT ? Status() : FromErrno(errno, "look at " + to);
  if (::access((to + std::string(kFinished)).c_str(), F_OK) == 0)
    return AlreadyExists(to + " holds a snapshot already; name another directory");
  return AlreadyExists(to + " exists; name a directory that does not exist yet");
}

bool OnSameDisk(const std::string& a, const std::string& b) {
  struct stat one, other;
  return ::stat(a.c_str(), &one) == 0 && ::stat(b.c_str(), &other) == 0 &&
         one.st_dev == other.st_dev;
}

// What a call that was cut short has copied.
uint64_t CopiedBytes(const std::string& place) {
  uint64_t bytes = 0;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator it(place, error), end; !error && it != end;
       it.increment(error)) {
    struct stat st;
    if (::lstat(it->path().c_str(), &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1)
      bytes += static_cast<uint64_t>(st.st_size);
  }
  return bytes;
}

Status CheckRoom(const std::string& to, const NodeStatus& replica, const std::string& files) {
  const std::string parent = DirectoryOf(to);
  const bool links = !files.empty() && OnSameDisk(files, parent);
  uint64_t needed = kSlack;
  for (const FileInfo& file : replica.files)
    if (file.lane == Lane::kLog || !links) needed += file.size;
  needed -= std::min(needed, CopiedBytes(BuildingPlace(to)));
  struct statvfs room;
  if (::statvfs(parent.c_str(), &room) != 0) return FromErrno(errno, "look at " + parent);
  const uint64_t free = uint64_t{room.f_bavail} * room.f_frsize;
  if (free >= needed) return {};
  return NoSpace(Text("a snapshot in ", parent, " takes ", needed, " B of its disk, and ", free,
                      " B are free",
                      links ? ""
                            : "; on the replica's own disk its tables would be "
                              "hard links, which take none"));
}

// Whether the replica's directory of files is there and this user's, if the database has such
// files.
Status CheckFiles(const NodeStatus& replica, const std::string& files) {
  const bool needed = std::ranges::any_of(replica.files, [](const FileInfo& file) {
    return file.lane == Lane::kBulk && HoldsData(file.name);
  });
  if (files.empty()) {
    if (!needed) return {};
    return InvalidArgument(
        "give --files DIR, the directory of whole files of the replica on this machine "
        "(POOL.files, unless hyperloop-replica has --files): it is not known");
  }
  const Status found = CheckDirectory(files, DirectoryRule::kOwn).status();
  if (found.code() == Code::kNotFound && !needed) return {};
  return found.WithContext("--files");
}

Status SyncFile(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return FromErrno(errno, "open " + path);
  return ::fsync(fd.get()) == 0 ? Status() : FromErrno(errno, "sync " + path);
}

// Syncs what is below, too, and counts it.
Status SyncAll(const std::string& place, SnapshotReport* report) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(place, error), end; !error && it != end;
       it.increment(error)) {
    const std::string path = it->path();
    struct stat st;
    if (::lstat(path.c_str(), &st) != 0) return FromErrno(errno, "look at " + path);
    if (S_ISDIR(st.st_mode)) HL_RETURN_IF_ERROR(SyncAll(path, report));
    if (!S_ISREG(st.st_mode)) continue;
    HL_RETURN_IF_ERROR(SyncFile(path));
    const auto size = static_cast<uint64_t>(st.st_size);
    ++report->files;
    report->bytes += size;
    if (st.st_nlink > 1) report->linked_bytes += size;
  }
  if (error) return FromErrno(error.value(), "read directory " + place);
  return SyncDirectory(place);
}

Status Rename(const std::string& from, const std::string& to) {
  return ::rename(from.c_str(), to.c_str()) == 0 ? Status() : FromErrno(errno, "rename " + from);
}

}  // namespace

std::string BuildingPlace(const std::string& to) { return Stripped(to) + ".partial"; }

Status JudgeSnapshot(const std::string& to, const NodeStatus& replica, const std::string& files) {
  const std::string target = Stripped(to);
  HL_RETURN_IF_ERROR(CheckAbsent(target));
  HL_RETURN_IF_ERROR(CheckDirectory(DirectoryOf(target), DirectoryRule::kShared).status());
  if (!replica.log_error.empty()) return Corruption(replica.log_error);
  const bool empty = std::ranges::none_of(
      replica.files, [](const FileInfo& file) { return file.name == "CURRENT"; });
  if (empty) return NotFound("the group holds no database");
  HL_RETURN_IF_ERROR(CheckFiles(replica, files));
  // A link in its place would have another directory changed.
  const Status building = CheckDirectory(BuildingPlace(target), DirectoryRule::kOwn).status();
  if (!building.ok() && building.code() != Code::kNotFound) return building;
  return CheckRoom(target, replica, files);
}

Status ResumeSnapshot(const std::string& to) {
  const std::string place = BuildingPlace(to);
  const std::string finished = place + std::string(kFinished);
  // A follower that builds there has locked the mark, which is the same file under both names.
  const UniqueFd mark(::open(finished.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!mark) return errno == ENOENT ? Status() : FromErrno(errno, "open " + finished);
  if (::flock(mark.get(), LOCK_EX | LOCK_NB) != 0)
    return Busy("another call finishes " + place + "; wait for it, or name another directory");
  return Rename(finished, place + std::string(kFollowed));
}

Result<SnapshotReport> FinishSnapshot(const std::string& to) {
  const std::string place = BuildingPlace(to), target = Stripped(to);
  SnapshotReport report;
  HL_RETURN_IF_ERROR(SyncAll(place, &report));
  HL_RETURN_IF_ERROR(CheckAbsent(target));
  HL_RETURN_IF_ERROR(Rename(place + std::string(kFollowed), place + std::string(kFinished)));
  HL_RETURN_IF_ERROR(SyncDirectory(place));
  HL_RETURN_IF_ERROR(Rename(place, target));
  HL_RETURN_IF_ERROR(SyncDirectory(DirectoryOf(target)));
  return report;
}

}  // namespace hyperloop
