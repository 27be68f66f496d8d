#include "inspect/export.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "files/file_store.h"
#include "hyperloop/core/unique_fd.h"
#include "hyperloop/replication/rocksdb_log.h"
#include "inspect/file_copy.h"
#include "inspect/member_check.h"
#include "log/file_table.h"
#include "log/redo.h"
#include "region/directory.h"

namespace hyperloop {
namespace {

// For an export of a group in use.
constexpr std::chrono::milliseconds kPause{20};
constexpr std::chrono::seconds kPatience{10};
constexpr int kMostImages = 1000;  // a replica whose files vanish without end is given up

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

WholeFile Whole(const FileInfo& info) { return {info.name, info.size, info.checksum}; }

// The whole files of the export. What has been copied for one image stays for a newer one.
class WholeFiles {
 public:
  WholeFiles(FileStore* store, bool partial, Staging* staging)
      : store_(store), partial_(partial), staging_(*staging) {}

  // Copies what this table lists. `*missing`: what the store does not have.
  Status Copy(const FileTable& table, std::vector<FileInfo>* missing) {
    missing->clear();
    for (const FileInfo& file : table.List()) {
      if (file.lane != Lane::kBulk) continue;
      HL_RETURN_IF_ERROR(CheckWholeFileName(file.name));
      const auto copied = copied_.find(file.name);
      if (copied != copied_.end() && copied->second == Whole(file)) continue;
      const Status status = CopyOne(file);
      if (status.code() == Code::kNotFound) {
        missing->push_back(file);
      } else {
        HL_RETURN_IF_ERROR(status);
      }
    }
    return {};
  }

  // How much of these files is on its way.
  uint64_t Arrived(const std::vector<FileInfo>& missing) {
    uint64_t bytes = 0;
    const Result<std::vector<FileStore::Stored>> stored = store_->List();
    if (!stored.ok()) return 0;
    for (const FileStore::Stored& each : *stored)
      for (const FileInfo& file : missing)
        if (each.file == Whole(file)) bytes += each.received;
    return bytes;
  }

  // Removes what this table does not list, and reports the rest.
  Status Finish(const FileTable& table, ExportReport* report) {
    std::map<std::string, WholeFile> listed;
    for (const FileInfo& file : table.List())
      if (file.lane == Lane::kBulk) listed[file.name] = Whole(file);
    for (const auto& [name, file] : copied_) {
      const auto found = listed.find(name);
      if (found == listed.end() || found->second != file) {
        HL_RETURN_IF_ERROR(Remove(name));
        continue;
      }
      if (damaged_.contains(file)) report->damage.push_back(Damage(name));
      ++report->files;
      report->bytes += file.size;
    }
    return {};
  }

 private:
  static std::string Damage(const std::string& name) {
    return "file \"" + name + "\" fails its checksum";
  }
  std::string Path(const std::string& name) const { return staging_.path() + "/" + name; }
  Status Remove(const std::string& name) const {
    if (::unlink(Path(name).c_str()) == 0 || errno == ENOENT) return {};
    return FromErrno(errno, "remove " + Path(name));
  }

  Status CopyOne(const FileInfo& info) {
    if (store_ == nullptr) return NotFound("no files");
    HL_RETURN_IF_ERROR(Remove(info.name));  // another content of that name, of an older image
    bool damaged = false;
    HL_RETURN_IF_ERROR(MakeParent(info.name, &staging_));
    staging_.Note(info.name);
    Status status = CopyWhole(*store_, Whole(info), Path(info.name), &damaged);
    if (const auto former = BeforeArchived(Whole(info)); former && status.code() == Code::kNotFound)
      status = CopyWhole(*store_, *former, Path(info.name), &damaged);
    if (!status.ok()) {
      HL_RETURN_IF_ERROR(Remove(info.name));  // it was dropped while it was copied
      return status;
    }
    if (damaged && !partial_) return Corruption(Damage(info.name));
    if (damaged) damaged_.insert(Whole(info));
    copied_[info.name] = Whole(info);
    return {};
  }

  FileStore* const store_;  // null: there is none
  const bool partial_;
  Staging& staging_;
  std::map<std::string, WholeFile> copied_;  // by name
  std::set<WholeFile> damaged_;
};

Status WriteLogFiles(std::span<const std::byte> image, const RegionInfo& info,
                     const FileTable& table, Staging* staging, ExportReport* report) {
  std::vector<std::string> parents;
  for (const FileInfo& file : table.List()) {
    HL_RETURN_IF_ERROR(CheckFileName(file.name));  // checked again: a bad name would do harm here
    HL_RETURN_IF_ERROR(MakeParent(file.name, staging));
    const size_t slash = file.name.find('/');
    if (slash != std::string::npos) parents.push_back(file.name.substr(0, slash));
    if (file.lane == Lane::kBulk) continue;
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

// An image that was redone, and what it says.
struct Prefix {
  std::span<std::byte> image;
  RegionInfo info;
  MemberCheck check;
  uint64_t last_seq = 0;
};
Result<Prefix> PrefixOf(std::span<std::byte> image, uint64_t known_acked, bool partial) {
  HL_ASSIGN_OR_RETURN(const RegionInfo info, ParseSuperblock(image, image.size()));
  MemberCheck check = CheckMember(image, info, known_acked);
  if (!(partial ? check.readable() : check.sound())) return Corruption(DamageText(check, info));
  HL_ASSIGN_OR_RETURN(const LogState log, Redo(image, info, known_acked));
  return Prefix{image, info, std::move(check), log.tail.seq};
}

bool ListsData(const FileTable& table, const std::vector<FileInfo>& wanted) {
  const std::vector<FileInfo> listed = table.List();
  return std::all_of(wanted.begin(), wanted.end(), [&](const FileInfo& file) {
    return !HoldsData(file.name) ||
           std::any_of(listed.begin(), listed.end(), [&](const FileInfo& each) {
             return each.lane == Lane::kBulk && Whole(each) == Whole(file);
           });
  });
}

// What the MANIFEST of an exported directory says; nothing if that cannot be read, as in a database
// that is encrypted.
std::optional<ManifestContent> ContentOf(const std::string& directory) {
  std::string name;
  std::getline(std::ifstream(directory + "/CURRENT"), name);
  if (!name.starts_with("MANIFEST-") || name.find('/') != std::string::npos) return {};
  std::ifstream manifest(directory + "/" + name, std::ios::binary);
  const ReadAt read = [&manifest](uint64_t offset, std::span<char> out) -> Result<uint64_t> {
    manifest.clear();
    manifest.seekg(static_cast<std::streamoff>(offset));
    manifest.read(out.data(), static_cast<std::streamsize>(out.size()));
    return static_cast<uint64_t>(manifest.gcount());
  };
  Result<ManifestContent> content = ParseManifest(read);
  if (!content.ok() || content->next_file == 0) return {};  // the latter: no MANIFEST of RocksDB
  return std::move(content).value();
}

void NoteMissing(const std::vector<FileInfo>& missing, const std::string& directory,
                 ExportReport* report) {
  const std::optional<ManifestContent> content = ContentOf(directory);
  for (const FileInfo& file : missing) {
    const bool unneeded =
        content.has_value() && HoldsData(file.name) && !NamesOrNeeds(*content, file.name);
    (unneeded ? report->unneeded : report->missing).push_back(file.name);
  }
}

bool LackData(const std::vector<FileInfo>& missing) {
  return std::any_of(missing.begin(), missing.end(),
                     [](const FileInfo& file) { return HoldsData(file.name); });
}

// Copies the rest of the whole files from a replica in use. `*prefix` becomes a newer one, whose
// image is `*owned`, once a file that it needs was dropped.
Status Follow(const NewerImage& newer, uint64_t known_acked, bool partial, WholeFiles* whole,
              Prefix* prefix, std::optional<RegionImage>* owned, std::vector<FileInfo>* missing) {
  auto moved = std::chrono::steady_clock::now();
  uint64_t arrived = 0;
  for (int images = 0; LackData(*missing) && images < kMostImages;) {
    HL_ASSIGN_OR_RETURN(RegionImage image, newer());
    HL_ASSIGN_OR_RETURN(Prefix next, PrefixOf(image.bytes(), known_acked, partial));
    const bool dropped = !ListsData(next.check.table, *missing);
    if (dropped) {
      *prefix = std::move(next);
      *owned = std::move(image);
      ++images;
    }
    const size_t before = missing->size();
    HL_RETURN_IF_ERROR(whole->Copy(prefix->check.table, missing));
    const auto now = std::chrono::steady_clock::now();
    const uint64_t bytes = whole->Arrived(*missing);
    if (dropped || missing->size() < before || std::exchange(arrived, bytes) != bytes) moved = now;
    if (now - moved > kPatience) break;
    if (LackData(*missing) && !dropped) std::this_thread::sleep_for(kPause);
  }
  return {};
}

}  // namespace

bool HoldsData(const std::string& name) {
  const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  const bool log = digits != 0 && name.substr(digits) == ".log";
  return log || name.ends_with(".sst") || name.ends_with(".blob");
}

Result<ExportReport> ExportFiles(std::span<std::byte> image, const std::string& directory,
                                 uint64_t known_acked, bool partial, const std::string& files,
                                 const NewerImage& newer) {
  std::string target = directory;
  while (target.size() > 1 && target.ends_with('/')) target.pop_back();
  if (target.empty()) return InvalidArgument("no directory named to export to");
  HL_RETURN_IF_ERROR(CheckTarget(target));
  HL_ASSIGN_OR_RETURN(Prefix prefix, PrefixOf(image, known_acked, partial));
  Staging staging(target + ".exporting-" + std::to_string(::getpid()));
  HL_RETURN_IF_ERROR(staging.Make());
  HL_ASSIGN_OR_RETURN(const std::unique_ptr<FileStore> store, StoreOf(files, prefix.info));
  WholeFiles whole(store.get(), partial, &staging);
  std::vector<FileInfo> missing;
  HL_RETURN_IF_ERROR(whole.Copy(prefix.check.table, &missing));
  std::optional<RegionImage> owned;
  if (newer != nullptr && store != nullptr) {
    HL_RETURN_IF_ERROR(Follow(newer, known_acked, partial, &whole, &prefix, &owned, &missing));
  }
  ExportReport report;
  report.last_seq = prefix.last_seq;
  report.damage = prefix.check.Damage(prefix.info);
  HL_RETURN_IF_ERROR(whole.Finish(prefix.check.table, &report));
  HL_RETURN_IF_ERROR(
      WriteLogFiles(prefix.image, prefix.info, prefix.check.table, &staging, &report));
  NoteMissing(missing, staging.path(), &report);
  // rename(2) replaces an empty directory, and fails for anything else.
  if (::rename(staging.path().c_str(), target.c_str()) != 0)
    return FromErrno(errno, "rename into " + target);
  staging.Release();
  HL_RETURN_IF_ERROR(SyncDirectory(DirectoryOf(target)));
  return report;
}

}  // namespace hyperloop
