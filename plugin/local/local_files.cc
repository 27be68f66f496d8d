#include "local_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <set>

#include "hyperloop/core/unique_fd.h"
#include "paths.h"
#include "status.h"

namespace hyperloop::plugin {
namespace {

using rocksdb::FileOptions;
using rocksdb::FileSystem;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

constexpr size_t kChunk = 256 << 10;

Status Rewrite(FileSystem& fs, const std::string& fresh, const GroupFiles& group,
               const FileInfo& info, bool sync) {
  auto chunk = std::make_unique<char[]>(kChunk);
  auto fill = [&](rocksdb::FSWritableFile& file) -> Status {
    for (uint64_t offset = 0; offset < info.size;) {
      const size_t length = static_cast<size_t>(std::min<uint64_t>(kChunk, info.size - offset));
      HL_ASSIGN_OR_RETURN(uint64_t read, group.Read(info.id, offset, {chunk.get(), length}));
      if (read == 0) {
        return Corruption("the group has " + std::to_string(offset) + " B of " + info.name +
                          ", but lists " + std::to_string(info.size) + " B");
      }
      rocksdb::Slice bytes(chunk.get(), static_cast<size_t>(read));
      HL_RETURN_IF_ERROR(
          FromIOStatus(file.Append(bytes, IOOptions(), nullptr), "cannot write " + fresh));
      offset += read;
    }
    return Status::Ok();
  };
  return WriteWhole(fs, fresh, sync, fill);
}

Status AppendNames(FileSystem& fs, const std::string& directory, std::string_view prefix,
                   const std::function<bool(std::string_view)>& wanted,
                   std::vector<std::string>* names) {
  std::vector<std::string> children;
  IOStatus listed = fs.GetChildren(directory, IOOptions(), &children, nullptr);
  if (listed.IsNotFound() || listed.IsPathNotFound()) return Status::Ok();
  HL_RETURN_IF_ERROR(FromIOStatus(listed, "cannot list " + directory));
  for (const std::string& child : children) {
    std::string name = std::string(prefix) + child;
    if (wanted(name)) names->push_back(std::move(name));
  }
  return Status::Ok();
}

// Sets one file to the group's content, and moves replaced content to `aside`.
Status SetFile(FileSystem& fs, const std::string& directory, const GroupFiles& group,
               const FileInfo& info, bool sync, SetAside* aside, ReconcileReport* report) {
  const std::string path = directory + "/" + info.name;
  const std::string fresh = path + std::string(kNewSuffix);
  HL_ASSIGN_OR_RETURN(const Comparison found, Compare(fs, path, group, info));
  const bool longer = found.equal == info.size;
  if (found.exists && longer && found.local_size == info.size) return Status::Ok();
  HL_RETURN_IF_ERROR(Rewrite(fs, fresh, group, info, sync));
  if (found.exists) {
    HL_ASSIGN_OR_RETURN(const bool nothing_lost, OnlyZerosFollow(fs, path, found.equal));
    if (!nothing_lost) {
      HL_RETURN_IF_ERROR(longer ? aside->KeepTail(info.name, found.equal) : aside->Keep(info.name));
    }
  }
  HL_RETURN_IF_ERROR(RenameOver(fs, fresh, path));
  (found.exists && longer ? report->cut : report->rewritten).push_back(info.name);
  return Status::Ok();
}

Status RemoveFile(FileSystem& fs, const std::string& directory, const std::string& name,
                  SetAside* aside) {
  const std::string path = directory + "/" + name;
  HL_ASSIGN_OR_RETURN(const bool empty, OnlyZerosFollow(fs, path, 0));
  if (!empty) return aside->Keep(name);
  return FromIOStatus(fs.DeleteFile(path, IOOptions(), nullptr), "cannot delete " + path);
}

using Names = std::map<std::string, FileInfo, std::less<>>;

// Whether the file holds content that the group does not have.
Result<bool> HoldsMore(FileSystem& fs, const std::string& directory, const GroupFiles& group,
                       const Names& files, const std::string& name) {
  const std::string path = directory + "/" + name;
  const auto info = files.find(name);
  // What has left the region was set to the group's content like a table.
  if (info != files.end() && info->second.lane == Lane::kBulk) return false;
  uint64_t equal = 0;
  if (info != files.end()) {
    HL_ASSIGN_OR_RETURN(const Comparison found, Compare(fs, path, group, info->second));
    equal = found.equal;
  }
  HL_ASSIGN_OR_RETURN(const bool only_zeros, OnlyZerosFollow(fs, path, equal));
  return !only_zeros;
}

// Whether CURRENT, or the MANIFEST that it names, is missing although the group has a database.
// Then an opening was cut short, or the user moved the file away to keep the group's state. A
// CURRENT that is the group's names the group's newest MANIFEST, opaque or not.
Result<bool> NothingNamesTables(FileSystem& fs, const std::string& directory,
                                const GroupFiles& group, const Names& files) {
  const auto groups = files.find("CURRENT");
  if (groups == files.end()) return false;
  HL_ASSIGN_OR_RETURN(Current current, LocalCurrent(fs, directory));
  if (current.opaque) {
    HL_ASSIGN_OR_RETURN(const bool same, IsSame(fs, directory, group, groups->second));
    if (same) current.manifest = NewestManifest(group);
  }
  if (current.manifest.empty()) return true;
  const Result<uint64_t> size = SizeOf(fs, directory + "/" + current.manifest);
  if (size.status().code() == Code::kNotFound) return true;
  if (!size.ok()) return size.status();
  return false;
}

// Whether a MANIFEST will be set aside, in part or as a whole.
Result<bool> ManifestHoldsMore(FileSystem& fs, const std::string& directory,
                               const GroupFiles& group, const Names& files) {
  std::vector<std::string> local;
  HL_RETURN_IF_ERROR(LocalLogFiles(fs, directory, &local));
  for (const std::string& name : local) {
    if (!name.starts_with("MANIFEST-")) continue;
    HL_ASSIGN_OR_RETURN(const bool more, HoldsMore(fs, directory, group, files, name));
    if (more) return true;
  }
  return false;
}

// Sets aside the tables of a history that the group does not have. RocksDB would delete them as
// obsolete, and the MANIFEST that is set aside is useless without them. They are moved first,
// because nothing shows that history once MANIFEST and CURRENT are the group's.
Status SetTablesAside(FileSystem& fs, const std::string& directory, const GroupFiles& group,
                      SetAside* aside) {
  Names listed;
  for (const FileInfo& info : group.Files()) listed.emplace(info.name, info);
  HL_ASSIGN_OR_RETURN(const bool nameless, NothingNamesTables(fs, directory, group, listed));
  HL_ASSIGN_OR_RETURN(const bool more, ManifestHoldsMore(fs, directory, group, listed));
  if (!nameless && !more) return Status::Ok();
  const auto unknown = [&](std::string_view name) {
    return IsTableOrBlob(name) && listed.find(name) == listed.end();
  };
  std::vector<std::string> names;
  HL_RETURN_IF_ERROR(AppendNames(fs, directory, "", unknown, &names));
  for (const std::string& name : names) HL_RETURN_IF_ERROR(aside->Keep(name));
  return Status::Ok();
}

}  // namespace

Status WriteWhole(FileSystem& fs, const std::string& path, bool sync,
                  const std::function<Status(rocksdb::FSWritableFile&)>& fill) {
  FileOptions options;
  options.use_mmap_writes = false;
  const IOStatus removed = fs.DeleteFile(path, IOOptions(), nullptr);
  if (!removed.ok() && !removed.IsNotFound() && !removed.IsPathNotFound())
    return FromIOStatus(removed, "cannot remove the former " + path);
  std::unique_ptr<rocksdb::FSWritableFile> file;
  HL_RETURN_IF_ERROR(
      FromIOStatus(fs.NewWritableFile(path, options, &file, nullptr), "cannot create " + path));
  HL_RETURN_IF_ERROR(fill(*file));
  if (sync)
    HL_RETURN_IF_ERROR(FromIOStatus(file->Fsync(IOOptions(), nullptr), "cannot fsync " + path));
  return FromIOStatus(file->Close(IOOptions(), nullptr), "cannot close " + path);
}

Status RenameOver(FileSystem& fs, const std::string& from, const std::string& to) {
  return FromIOStatus(fs.RenameFile(from, to, IOOptions(), nullptr),
                      "cannot rename " + from + " to " + to);
}

Status SyncDirectory(FileSystem& fs, const std::string& directory) {
  std::unique_ptr<rocksdb::FSDirectory> handle;
  HL_RETURN_IF_ERROR(FromIOStatus(fs.NewDirectory(directory, IOOptions(), &handle, nullptr),
                                  "cannot open " + directory));
  return FromIOStatus(handle->Fsync(IOOptions(), nullptr), "cannot fsync " + directory);
}

Status CreateDirectory(FileSystem& fs, const std::string& path) {
  return FromIOStatus(fs.CreateDirIfMissing(path, IOOptions(), nullptr), "cannot create " + path);
}

Status SyncLocal(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file || ::fsync(file.get()) != 0) return FromErrno(errno, "cannot fsync " + path);
  return Status::Ok();
}

std::string InAnotherProcess(const std::string& directory, const IOStatus& locked) {
  return directory +
         " is open in another process: end it (an agent's standby ends with its agent): " +
         locked.ToString();
}

Result<uint64_t> SizeOf(FileSystem& fs, const std::string& path) {
  IOStatus exists = fs.FileExists(path, IOOptions(), nullptr);
  if (exists.IsNotFound() || exists.IsPathNotFound()) return NotFound("there is no " + path);
  HL_RETURN_IF_ERROR(FromIOStatus(exists, "cannot look up " + path));
  uint64_t size = 0;
  HL_RETURN_IF_ERROR(FromIOStatus(fs.GetFileSize(path, IOOptions(), &size, nullptr),
                                  "cannot get the size of " + path));
  return size;
}

Result<uint64_t> ReadLocal(FileSystem& fs, const std::string& path, uint64_t offset,
                           std::span<char> out) {
  HL_ASSIGN_OR_RETURN(const ReadAt read, OpenReader(fs, path));
  Result<uint64_t> got = read(offset, out);
  if (got.ok() || got.status().code() == Code::kCorruption) return got;
  return Corruption(got.status().message());
}

Result<WholeFile> Describe(FileSystem& fs, const std::string& path, const std::string& name) {
  HL_ASSIGN_OR_RETURN(const ReadAt read, OpenReader(fs, path));
  WholeFile file{name, 0, 0};
  FileChecksum checksum;
  std::vector<char> buffer(256 << 10);
  while (true) {
    HL_ASSIGN_OR_RETURN(const uint64_t got, read(file.size, buffer));
    if (got == 0) break;
    checksum.Add(std::span(buffer).first(got));
    file.size += got;
  }
  file.checksum = checksum.value();
  return file;
}

Result<ReadAt> OpenReader(FileSystem& fs, const std::string& path) {
  std::unique_ptr<rocksdb::FSRandomAccessFile> opened;
  HL_RETURN_IF_ERROR(FromIOStatus(fs.NewRandomAccessFile(path, FileOptions(), &opened, nullptr),
                                  "cannot open " + path));
  std::shared_ptr<rocksdb::FSRandomAccessFile> file = std::move(opened);
  return ReadAt([file, path](uint64_t offset, std::span<char> out) -> Result<uint64_t> {
    rocksdb::Slice bytes;
    HL_RETURN_IF_ERROR(
        FromIOStatus(file->Read(offset, out.size(), IOOptions(), &bytes, out.data(), nullptr),
                     "cannot read " + path));
    if (bytes.data() != out.data()) std::memmove(out.data(), bytes.data(), bytes.size());
    return uint64_t{bytes.size()};
  });
}

Current ReadCurrent(std::string_view bytes) {
  Current current;
  while (bytes.ends_with('\0')) bytes.remove_suffix(1);  // a power failure leaves zeros
  const auto is_text = [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); };
  current.opaque = !std::all_of(bytes.begin(), bytes.end(), is_text);
  if (!bytes.ends_with('\n') || !IsManifest(bytes.substr(0, bytes.size() - 1))) return current;
  current.manifest = std::string(bytes.substr(0, bytes.size() - 1));
  return current;
}

Result<Current> LocalCurrent(FileSystem& fs, const std::string& directory) {
  const Result<ReadAt> read = OpenReader(fs, directory + "/CURRENT");
  if (read.status().code() == Code::kNotFound) return Current();
  if (!read.ok()) return read.status();
  char bytes[kCurrentBytes];
  HL_ASSIGN_OR_RETURN(const uint64_t length, (*read)(0, bytes));
  return ReadCurrent({bytes, static_cast<size_t>(length)});
}

Status LocalLogFiles(FileSystem& fs, const std::string& directory,
                     std::vector<std::string>* names) {
  const auto is_log = [](std::string_view name) { return Classify(name) == FileClass::kLogLane; };
  HL_RETURN_IF_ERROR(AppendNames(fs, directory, "", is_log, names));
  return AppendNames(fs, directory + "/archive", kArchivePrefix, is_log, names);
}

Result<Comparison> Compare(FileSystem& fs, const std::string& path, const GroupFiles& group,
                           const FileInfo& info) {
  Comparison result;
  const Result<uint64_t> size = SizeOf(fs, path);
  if (size.status().code() == Code::kNotFound) return result;
  if (!size.ok()) return size.status();
  result.exists = true;
  result.local_size = *size;
  HL_ASSIGN_OR_RETURN(const ReadAt read_local, OpenReader(fs, path));
  auto local = std::make_unique<char[]>(kChunk);
  auto theirs = std::make_unique<char[]>(kChunk);
  const uint64_t common = std::min(result.local_size, info.size);
  while (result.equal < common) {
    const size_t length = static_cast<size_t>(std::min<uint64_t>(kChunk, common - result.equal));
    HL_ASSIGN_OR_RETURN(const uint64_t here, read_local(result.equal, {local.get(), length}));
    HL_ASSIGN_OR_RETURN(const uint64_t there,
                        group.Read(info.id, result.equal, {theirs.get(), length}));
    const size_t both = static_cast<size_t>(std::min(here, there));
    const size_t same = static_cast<size_t>(
        std::mismatch(local.get(), local.get() + both, theirs.get()).first - local.get());
    result.equal += same;
    if (same < length) break;
  }
  return result;
}

Result<bool> IsSame(FileSystem& fs, const std::string& directory, const GroupFiles& group,
                    const FileInfo& info) {
  HL_ASSIGN_OR_RETURN(const Comparison found,
                      Compare(fs, directory + "/" + info.name, group, info));
  return found.exists && found.local_size == info.size && found.equal == info.size;
}

std::string NewestManifest(const std::vector<std::string>& names) {
  std::string newest;
  for (const std::string& name : names)
    if (IsManifest(name) && (newest.empty() || NumberOf(name) > NumberOf(newest))) newest = name;
  return newest;
}

std::string NewestManifest(const GroupFiles& group) {
  std::vector<std::string> names;
  for (const FileInfo& info : group.Files()) names.push_back(info.name);
  return NewestManifest(names);
}

Result<bool> OnlyZerosFollow(FileSystem& fs, const std::string& path, uint64_t offset) {
  HL_ASSIGN_OR_RETURN(const ReadAt read, OpenReader(fs, path));
  auto chunk = std::make_unique<char[]>(kChunk);
  for (;;) {
    HL_ASSIGN_OR_RETURN(const uint64_t length, read(offset, {chunk.get(), kChunk}));
    if (length == 0) return true;
    if (std::any_of(chunk.get(), chunk.get() + length, [](char c) { return c != 0; })) return false;
    offset += length;
  }
}

SetAside::SetAside(FileSystem& fs, const std::string& directory, uint64_t generation)
    : SetAside(fs, directory, "epoch-" + std::to_string(generation)) {}

SetAside::SetAside(FileSystem& fs, const std::string& directory, const std::string& place)
    : fs_(fs),
      directory_(directory),
      path_(directory + "/" + std::string(kSetAsideName) + "/" + place) {}

// A group that was made anew counts its epochs from 1 again, so files already set aside are kept.
Result<std::string> SetAside::PlaceFor(const std::string& name) {
  HL_RETURN_IF_ERROR(CreateDirectory(fs_, directory_ + "/" + std::string(kSetAsideName)));
  HL_RETURN_IF_ERROR(CreateDirectory(fs_, path_));
  for (int i = 0;; ++i) {
    std::string place = BaseOf(name) + (i == 0 ? "" : "." + std::to_string(i));
    IOStatus exists = fs_.FileExists(path_ + "/" + place, IOOptions(), nullptr);
    if (exists.IsNotFound()) return place;
    HL_RETURN_IF_ERROR(FromIOStatus(exists, "cannot look up " + path_ + "/" + place));
  }
}

Status SetAside::Keep(const std::string& name) {
  HL_ASSIGN_OR_RETURN(const std::string place, PlaceFor(name));
  HL_RETURN_IF_ERROR(RenameOver(fs_, directory_ + "/" + name, path_ + "/" + place));
  names_.push_back(place);
  return Status::Ok();
}

Status SetAside::KeepLinked(const std::string& name) {
  HL_ASSIGN_OR_RETURN(const std::string place, PlaceFor(name));
  const IOStatus linked =
      fs_.LinkFile(directory_ + "/" + name, path_ + "/" + place, IOOptions(), nullptr);
  if (linked.IsNotFound() || linked.IsPathNotFound())
    return NotFound("there is no " + directory_ + "/" + name);
  if (!linked.ok()) return Keep(name);
  names_.push_back(place);
  return Status::Ok();
}

Status SetAside::KeepTail(const std::string& name, uint64_t offset) {
  HL_ASSIGN_OR_RETURN(const std::string place, PlaceFor(name + ".from-" + std::to_string(offset)));
  HL_ASSIGN_OR_RETURN(const ReadAt read, OpenReader(fs_, directory_ + "/" + name));
  auto chunk = std::make_unique<char[]>(kChunk);
  auto fill = [&](rocksdb::FSWritableFile& file) -> Status {
    for (;;) {
      HL_ASSIGN_OR_RETURN(const uint64_t length, read(offset, {chunk.get(), kChunk}));
      if (length == 0) return Status::Ok();
      HL_RETURN_IF_ERROR(FromIOStatus(
          file.Append({chunk.get(), static_cast<size_t>(length)}, IOOptions(), nullptr),
          "cannot write " + path_ + "/" + place));
      offset += length;
    }
  };
  HL_RETURN_IF_ERROR(WriteWhole(fs_, path_ + "/" + place, true, fill));
  names_.push_back(place);
  return Status::Ok();
}

Status Reconcile(FileSystem& fs, const std::string& directory, const GroupFiles& group, bool sync,
                 SetAside* aside, ReconcileReport* report) {
  HL_RETURN_IF_ERROR(SetTablesAside(fs, directory, group, aside));
  std::set<std::string> in_group;
  for (const FileInfo& info : group.Files()) in_group.insert(info.name);
  // CURRENT comes last, when the MANIFEST that it names is on the disk.
  for (const bool current : {false, true}) {
    const size_t before = report->cut.size() + report->rewritten.size();
    for (const FileInfo& info : group.Files()) {
      if (info.lane != Lane::kLog || (info.name == "CURRENT") != current) continue;
      if (info.name.starts_with(kArchivePrefix))
        HL_RETURN_IF_ERROR(CreateDirectory(fs, directory + "/archive"));
      HL_RETURN_IF_ERROR(
          SetFile(fs, directory, group, info, sync || !IsLog(info.name), aside, report));
    }
    if (report->cut.size() + report->rewritten.size() != before)
      HL_RETURN_IF_ERROR(SyncDirectory(fs, directory));
  }
  std::vector<std::string> local;
  HL_RETURN_IF_ERROR(LocalLogFiles(fs, directory, &local));
  for (const std::string& name : local) {
    if (in_group.count(name) != 0) continue;
    HL_RETURN_IF_ERROR(RemoveFile(fs, directory, name, aside));
    report->removed.push_back(name);
  }
  return sync ? SyncDirectory(fs, directory) : Status::Ok();
}

std::string Enumerate(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  std::string text = std::to_string(names.size());
  for (size_t i = 0; i < names.size() && i < kShown; ++i) text += (i == 0 ? " (" : ", ") + names[i];
  if (names.empty()) return text;
  return text + (names.size() > kShown ? ", …)" : ")");
}

}  // namespace hyperloop::plugin
