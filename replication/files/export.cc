#include "files/export.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "files/file_table.h"
#include "files/member_check.h"
#include "hyperloop/core/unique_fd.h"
#include "journal/redo.h"
#include "pool/directory.h"
#include "pool/file_store.h"

namespace hyperloop {
namespace {

// A directory that is built beside its final name; an unfinished one is removed at destruction.
class Staging {
 public:
  explicit Staging(std::string path) : path_(std::move(path)) {}
  ~Staging() {
    if (!made_) return;
    for (auto it = made_paths_.rbegin(); it != made_paths_.rend(); ++it) {
      if (::unlink(it->c_str()) != 0) ::rmdir(it->c_str());
    }
    ::rmdir(path_.c_str());
  }
  Status Make() {
    if (::mkdir(path_.c_str(), 0755) != 0) return FromErrno(errno, "create directory " + path_);
    made_ = true;
    return {};
  }
  const std::string& path() const { return path_; }
  void Note(const std::string& relative) { made_paths_.push_back(path_ + "/" + relative); }
  void Release() { made_ = false; }

 private:
  std::string path_;
  bool made_ = false;
  std::vector<std::string> made_paths_;
};

// Checks that the target is absent or an empty directory. A symbolic link is neither.
Status CheckTarget(const std::string& directory) {
  struct stat st;
  if (::lstat(directory.c_str(), &st) != 0) {
    return errno == ENOENT ? Status() : FromErrno(errno, "look at " + directory);
  }
  if (!S_ISDIR(st.st_mode))
    return AlreadyExists(directory + " exists and is not a directory; name another");
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(directory.c_str()), ::closedir);
  if (dir == nullptr) return FromErrno(errno, "read directory " + directory);
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") {
      return AlreadyExists(directory + " is not empty (it holds \"" + std::string(name) +
                           "\"); export into a new or empty directory");
    }
  }
  return {};
}

Status WriteAll(int fd, std::span<const char> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FromErrno(errno, "write " + path);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status WriteFile(std::span<const std::byte> image, const RegionInfo& info, const FileTable& table,
                 uint32_t slot, const std::string& path) {
  const UniqueFd fd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!fd) return FromErrno(errno, "create " + path);
  std::vector<char> buffer(256 << 10);
  const uint64_t size = table.slots[slot].file.size;
  for (uint64_t at = 0; at < size;) {
    const std::span<char> part =
        std::span(buffer).first(std::min<uint64_t>(buffer.size(), size - at));
    table.ReadBytes(image, info, slot, at, part);
    HL_RETURN_IF_ERROR(WriteAll(fd.get(), part, path));
    at += part.size();
  }
  if (::fsync(fd.get()) != 0) return FromErrno(errno, "sync " + path);
  return {};
}

// Makes the directory of a name such as "archive/000034.log", if it is absent.
Status MakeParent(const std::string& name, Staging* staging) {
  const size_t slash = name.find('/');
  if (slash == std::string::npos) return {};
  const std::string parent = name.substr(0, slash);
  if (::mkdir((staging->path() + "/" + parent).c_str(), 0755) == 0) {
    staging->Note(parent);
    return {};
  }
  struct stat st;
  if (errno == EEXIST && ::lstat((staging->path() + "/" + parent).c_str(), &st) == 0 &&
      S_ISDIR(st.st_mode))
    return {};
  return FromErrno(EEXIST, "create directory " + staging->path() + "/" + parent);
}

// The replica's store of the group's whole files; null: it has none.
Result<std::unique_ptr<FileStore>> StoreOf(const std::string& root, const RegionInfo& info) {
  if (root.empty()) return std::unique_ptr<FileStore>();
  auto store = FileStore::OpenToRead(GroupDirectory(root, info.group));
  if (store.status().code() == Code::kNotFound) return std::unique_ptr<FileStore>();
  return store;
}

// Copies a whole file and checks its bytes. kNotFound: the store does not have it.
Status CopyWhole(const FileStore& store, const FileInfo& info, const std::string& path,
                 bool* damaged) {
  const WholeFile file{info.name, info.size, info.checksum};
  std::vector<std::byte> buffer(256 << 10);
  HL_ASSIGN_OR_RETURN(uint64_t got, store.Read(file, 0, buffer));
  const UniqueFd fd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!fd) return FromErrno(errno, "create " + path);
  FileChecksum checksum;
  uint64_t size = 0;
  while (got != 0) {
    const std::span<const char> part(reinterpret_cast<const char*>(buffer.data()), got);
    checksum.Add(part);
    HL_RETURN_IF_ERROR(WriteAll(fd.get(), part, path));
    size += got;
    HL_ASSIGN_OR_RETURN(got, store.Read(file, size, buffer));
  }
  if (::fsync(fd.get()) != 0) return FromErrno(errno, "sync " + path);
  *damaged = size != file.size || checksum.value() != file.checksum;
  return {};
}

Status WriteWholeFile(const FileStore* store, const FileInfo& file, bool partial, Staging* staging,
                      ExportReport* report) {
  const std::string path = staging->path() + "/" + file.name;
  bool damaged = false;
  const Status copied =
      store == nullptr ? NotFound("no files") : CopyWhole(*store, file, path, &damaged);
  if (copied.code() == Code::kNotFound) {
    report->missing.push_back(file.name);
    return {};
  }
  staging->Note(file.name);
  HL_RETURN_IF_ERROR(copied);
  if (damaged) {
    const std::string what = "file \"" + file.name + "\" fails its checksum";
    if (!partial) return Corruption(what);
    report->damage.push_back(what);
  }
  ++report->files;
  report->bytes += file.size;
  return {};
}

Status WriteFiles(std::span<const std::byte> image, const RegionInfo& info, const FileTable& table,
                  const FileStore* store, bool partial, Staging* staging, ExportReport* report) {
  std::vector<std::string> parents;
  for (const FileInfo& file : table.List()) {
    if (file.lane == Lane::kBulk) {
      HL_RETURN_IF_ERROR(CheckWholeFileName(file.name));
      HL_RETURN_IF_ERROR(WriteWholeFile(store, file, partial, staging, report));
      continue;
    }
    HL_RETURN_IF_ERROR(CheckFileName(file.name));  // checked again: a bad name would do harm here
    HL_RETURN_IF_ERROR(MakeParent(file.name, staging));
    const size_t slash = file.name.find('/');
    if (slash != std::string::npos) parents.push_back(file.name.substr(0, slash));
    staging->Note(file.name);
    HL_RETURN_IF_ERROR(
        WriteFile(image, info, table, SlotOf(file.id), staging->path() + "/" + file.name));
    ++report->files;
    report->bytes += file.size;
  }
  for (const std::string& parent : parents)
    HL_RETURN_IF_ERROR(SyncDirectory(staging->path() + "/" + parent));
  return SyncDirectory(staging->path());
}

std::string DamageText(const MemberCheck& check, const RegionInfo& info) {
  constexpr size_t kMost = 3;
  const std::vector<std::string> damage = check.Damage(info);
  std::string text;
  for (size_t i = 0; i < std::min(damage.size(), kMost); ++i)
    text += (i == 0 ? "" : "; ") + damage[i];
  if (damage.size() > kMost) text += "; and " + std::to_string(damage.size() - kMost) + " more";
  return text;
}

}  // namespace

Result<ExportReport> ExportFiles(std::span<std::byte> image, const std::string& directory,
                                 uint64_t known_acked, bool partial, const std::string& files) {
  std::string target = directory;
  while (target.size() > 1 && target.ends_with('/')) target.pop_back();
  if (target.empty()) return InvalidArgument("no directory named to export to");
  HL_RETURN_IF_ERROR(CheckTarget(target));
  HL_ASSIGN_OR_RETURN(const RegionInfo info, ParseSuperblock(image, image.size()));
  const MemberCheck check = CheckMember(image, info, known_acked);
  if (!(partial ? check.readable() : check.sound())) return Corruption(DamageText(check, info));
  HL_ASSIGN_OR_RETURN(const LogState log, Redo(image, info, known_acked));
  const FileTable& table = check.table;
  ExportReport report;
  report.last_seq = log.tail.seq;
  report.damage = check.Damage(info);
  Staging staging(target + ".exporting-" + std::to_string(::getpid()));
  HL_RETURN_IF_ERROR(staging.Make());
  HL_ASSIGN_OR_RETURN(const std::unique_ptr<FileStore> store, StoreOf(files, info));
  HL_RETURN_IF_ERROR(WriteFiles(image, info, table, store.get(), partial, &staging, &report));
  // rename(2) replaces an empty directory, and fails for anything else.
  if (::rename(staging.path().c_str(), target.c_str()) != 0)
    return FromErrno(errno, "rename into " + target);
  staging.Release();
  HL_RETURN_IF_ERROR(SyncDirectory(DirectoryOf(target)));
  return report;
}

}  // namespace hyperloop
