#include "bringer.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "hyperloop/core/text.h"
#include "hyperloop/replication/replica_files.h"
#include "local/local_files.h"
#include "local/paths.h"
#include "opening/pairing_file.h"

namespace hyperloop::plugin {

using rocksdb::FileSystem;

namespace {

// A part of the disk that is left to others, or a twentieth of it if that is less.
constexpr uint64_t kReserve = uint64_t{1} << 30;
constexpr std::chrono::seconds kWriteAgain{30};
constexpr std::chrono::minutes kLookAgain{1};

}  // namespace

Bringer::Bringer(FileSystem& fs, Prefetch& prefetch, std::string directory,
                 std::string replica_files)
    : fs_(fs),
      prefetch_(prefetch),
      directory_(std::move(directory)),
      replica_files_(std::move(replica_files)),
      brought_(BroughtFiles(directory_)),
      checked_(CheckedFiles::In(brought_)) {}

Status Bringer::CheckDirectoryFits(const std::string& group) const {
  PairingFile file;
  HL_RETURN_IF_ERROR(ReadPairing(fs_, directory_, &file));
  if (!file.pairing.group.empty() && file.pairing.group != group)
    return InvalidArgument(Text(directory_, " belongs to group ", file.pairing.group,
                                ", these replicas are group ", group, "; name another directory"));
  std::vector<std::string> logs;
  HL_RETURN_IF_ERROR(LocalLogFiles(fs_, directory_, &logs));
  if (!file.pairing.group.empty() || logs.empty()) return Status::Ok();
  return InvalidArgument(Text(directory_, " holds a database that is of no group: ",
                              Enumerate(logs), "; name an empty directory"));
}

Result<Bringer::Report> Bringer::BringAll(const std::string& group) {
  HL_ASSIGN_OR_RETURN(std::vector<WholeFile> files, prefetch_.Files());
  std::erase_if(files, [](const WholeFile& file) { return !StaysAsListed(file.name); });
  Report report;
  report.here = files.size();
  if (files == whole_ && Clock::now() - looked_ < kLookAgain) return report;
  report.here = 0;
  whole_.clear();
  HL_RETURN_IF_ERROR(prefetch_.DropAllBut(files));
  if (::mkdir(brought_.c_str(), 0700) != 0 && errno != EEXIST)
    return FromErrno(errno, "create directory " + brought_);
  const Status brought = BringListed(group, files, &report);
  HL_RETURN_IF_ERROR(WriteChecked());
  HL_RETURN_IF_ERROR(brought);
  whole_ = std::move(files);
  looked_ = Clock::now();
  return report;
}

Status Bringer::BringListed(const std::string& group, const std::vector<WholeFile>& files,
                            Report* report) {
  Status last;
  std::vector<std::string> here;
  for (const WholeFile& file : files) {
    std::string path = FindHere(group, file);
    if (path.empty() && LinkFromReplica(group, file)) path = Beside(group, file);
    if (path.empty()) {
      const Status got = BringOne(group, file);
      if (got.code() == Code::kNoSpace) return got;
      if (!got.ok()) last = got;
      if (!got.ok()) continue;
      path = Beside(group, file);
      ++report->brought;
      report->bytes += file.size;
    }
    ++report->here;
    here.push_back(std::move(path));
    if (Clock::now() - written_ >= kWriteAgain) HL_RETURN_IF_ERROR(WriteChecked());
  }
  checked_.KeepOnly(here);
  return last;
}

Status Bringer::WriteChecked() {
  written_ = Clock::now();
  return checked_.Write(fs_, brought_);
}

Status Bringer::BringOne(const std::string& group, const WholeFile& file) {
  struct statvfs disk;
  if (::statvfs(brought_.c_str(), &disk) != 0) return FromErrno(errno, "statvfs " + brought_);
  const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
  const uint64_t reserve = std::min(kReserve, uint64_t{disk.f_blocks} * disk.f_frsize / 20);
  if (free < file.size + reserve)
    return NoSpace(Text("make room on the disk of ", directory_, ": it has ", free, " B, ",
                        file.name, " takes ", file.size, ", and ", reserve, " are left to others"));
  HL_RETURN_IF_ERROR(prefetch_.Bring(file));
  checked_.Note(Beside(group, file), file);  // its checksum was compared when it arrived
  return Status::Ok();
}

bool Bringer::LinkFromReplica(const std::string& group, const WholeFile& file) {
  if (replica_files_.empty()) return false;
  const Result<std::string> held = FindLinkableFile(replica_files_, group, file, directory_);
  if (!held.ok()) return false;
  const Result<bool> sound = checked_.IsSound(fs_, *held, file);
  return sound.ok() && *sound && prefetch_.Link(file, *held).ok();
}

std::string Bringer::Beside(const std::string& group, const WholeFile& file) const {
  const Result<std::string> path = FindLinkableFile(brought_, group, file, directory_);
  return path.ok() ? *path : "";
}

std::string Bringer::FindHere(const std::string& group, const WholeFile& file) {
  const auto sound = [&](const std::string& path) {
    const Result<bool> found = checked_.IsSound(fs_, path, file);
    return found.ok() && *found;
  };
  const std::string own = directory_ + "/" + file.name;
  const Result<uint64_t> size = SizeOf(fs_, own);
  if (size.ok() && *size == file.size && sound(own)) return own;
  const std::string beside = Beside(group, file);
  if (beside.empty() || sound(beside)) return beside;
  // A damaged file that was brought earlier is brought again.
  fs_.DeleteFile(beside, rocksdb::IOOptions(), nullptr).PermitUncheckedError();
  return "";
}

}  // namespace hyperloop::plugin
