#include "local_files.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <set>

#include "paths.h"
#include "status.h"

namespace hyperloop::plugin {
namespace {

using rocksdb::FileOptions;
using rocksdb::FileSystem;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

constexpr size_t kChunk = 256 << 10;
constexpr size_t kMaxPairingFile = 1024;

uint32_t Crc32c(std::string_view text) {
  uint32_t crc = ~0u;
  for (char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

std::string PairingText(const Pairing& pairing) {
  std::string text =
      "hyperloop pairing 1\ngroup " + pairing.group + "\ndatabase " + pairing.database + "\n";
  char crc[32];
  std::snprintf(crc, sizeof crc, "crc32c %08x\n", Crc32c(text));
  return text + crc;
}

// The value of the line "key value\n" at the start of `rest`, which is moved behind it.
bool TakeLine(std::string_view key, std::string_view* rest, std::string* value) {
  size_t end = rest->find('\n');
  if (end == std::string_view::npos || rest->substr(0, key.size()) != key || end < key.size())
    return false;
  *value = std::string(rest->substr(key.size(), end - key.size()));
  rest->remove_prefix(end + 1);
  return true;
}

Status WriteWhole(FileSystem& fs, const std::string& path, bool sync,
                  const std::function<Status(rocksdb::FSWritableFile&)>& fill) {
  FileOptions options;
  options.use_mmap_writes = false;
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

// How far the local file has the group's bytes: both sizes, and the first byte that differs (the
// smaller size if none).
struct Comparison {
  bool exists = false;
  uint64_t local_size = 0;
  uint64_t equal = 0;
};

Result<Comparison> Compare(FileSystem& fs, const std::string& path, Store& store,
                           const FileInfo& info) {
  Comparison result;
  IOStatus exists = fs.FileExists(path, IOOptions(), nullptr);
  if (exists.IsNotFound()) return result;
  HL_RETURN_IF_ERROR(FromIOStatus(exists, "cannot look up " + path));
  result.exists = true;
  HL_RETURN_IF_ERROR(FromIOStatus(fs.GetFileSize(path, IOOptions(), &result.local_size, nullptr),
                                  "cannot get the size of " + path));
  std::unique_ptr<rocksdb::FSSequentialFile> file;
  HL_RETURN_IF_ERROR(FromIOStatus(fs.NewSequentialFile(path, FileOptions(), &file, nullptr),
                                  "cannot open " + path));
  auto local = std::make_unique<char[]>(kChunk);
  auto group = std::make_unique<char[]>(kChunk);
  const uint64_t common = std::min(result.local_size, info.size);
  while (result.equal < common) {
    const size_t length = static_cast<size_t>(std::min<uint64_t>(kChunk, common - result.equal));
    rocksdb::Slice bytes;
    HL_RETURN_IF_ERROR(FromIOStatus(file->Read(length, IOOptions(), &bytes, local.get(), nullptr),
                                    "cannot read " + path));
    HL_ASSIGN_OR_RETURN(uint64_t read, store.Read(info.id, result.equal, {group.get(), length}));
    const size_t both = std::min<size_t>(bytes.size(), read);
    const size_t same = static_cast<size_t>(
        std::mismatch(bytes.data(), bytes.data() + both, group.get()).first - bytes.data());
    result.equal += same;
    if (same < length) break;
  }
  return result;
}

Status Rewrite(FileSystem& fs, const std::string& path, Store& store, const FileInfo& info,
               bool sync) {
  const std::string fresh = path + ".hyperloop-new";
  auto chunk = std::make_unique<char[]>(kChunk);
  auto fill = [&](rocksdb::FSWritableFile& file) -> Status {
    for (uint64_t offset = 0; offset < info.size;) {
      const size_t length = static_cast<size_t>(std::min<uint64_t>(kChunk, info.size - offset));
      HL_ASSIGN_OR_RETURN(uint64_t read, store.Read(info.id, offset, {chunk.get(), length}));
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
  HL_RETURN_IF_ERROR(WriteWhole(fs, fresh, sync, fill));
  return RenameOver(fs, fresh, path);
}

Status AppendLogNames(FileSystem& fs, const std::string& directory, std::string_view prefix,
                      std::vector<std::string>* names) {
  std::vector<std::string> children;
  IOStatus listed = fs.GetChildren(directory, IOOptions(), &children, nullptr);
  if (listed.IsNotFound() || listed.IsPathNotFound()) return Status::Ok();
  HL_RETURN_IF_ERROR(FromIOStatus(listed, "cannot list " + directory));
  for (const std::string& child : children) {
    std::string name = std::string(prefix) + child;
    if (Classify(name) == FileClass::kLogLane) names->push_back(std::move(name));
  }
  return Status::Ok();
}

}  // namespace

Status ReadPairing(FileSystem& fs, const std::string& directory, Pairing* pairing) {
  const std::string path = directory + "/" + std::string(kPairingFileName);
  IOStatus exists = fs.FileExists(path, IOOptions(), nullptr);
  if (exists.IsNotFound()) {
    *pairing = Pairing();
    return Status::Ok();
  }
  std::unique_ptr<rocksdb::FSSequentialFile> file;
  HL_RETURN_IF_ERROR(FromIOStatus(fs.NewSequentialFile(path, FileOptions(), &file, nullptr),
                                  "cannot open " + path));
  char buffer[kMaxPairingFile];
  rocksdb::Slice bytes;
  HL_RETURN_IF_ERROR(FromIOStatus(file->Read(sizeof buffer, IOOptions(), &bytes, buffer, nullptr),
                                  "cannot read " + path));
  std::string_view rest(bytes.data(), bytes.size());
  std::string version;
  Pairing found;
  bool whole = TakeLine("hyperloop pairing ", &rest, &version) &&
               TakeLine("group ", &rest, &found.group) &&
               TakeLine("database ", &rest, &found.database);
  if (!whole || PairingText(found) != std::string_view(bytes.data(), bytes.size())) {
    return Corruption(path + " (" + std::to_string(bytes.size()) +
                      " B), which says to which group this directory belongs, is damaged; move the "
                      "directory away and "
                      "open an empty one with restore=true, or put the file back");
  }
  *pairing = std::move(found);
  return Status::Ok();
}

Status WritePairing(FileSystem& fs, const std::string& directory, const Pairing& pairing) {
  const std::string path = directory + "/" + std::string(kPairingFileName);
  const std::string fresh = path + ".tmp";
  const std::string text = PairingText(pairing);
  auto fill = [&](rocksdb::FSWritableFile& file) {
    return FromIOStatus(file.Append(text, IOOptions(), nullptr), "cannot write " + fresh);
  };
  HL_RETURN_IF_ERROR(WriteWhole(fs, fresh, true, fill));
  HL_RETURN_IF_ERROR(RenameOver(fs, fresh, path));
  return SyncDirectory(fs, directory);
}

Status LocalLogFiles(FileSystem& fs, const std::string& directory,
                     std::vector<std::string>* names) {
  HL_RETURN_IF_ERROR(AppendLogNames(fs, directory, "", names));
  return AppendLogNames(fs, directory + "/archive", kArchivePrefix, names);
}

Status Reconcile(FileSystem& fs, const std::string& directory, Store& store, bool sync,
                 ReconcileReport* report) {
  std::set<std::string> in_group;
  for (const FileInfo& info : store.Files()) {
    const std::string path = directory + "/" + info.name;
    if (info.lane == Lane::kLocal) {
      if (fs.FileExists(path, IOOptions(), nullptr).IsNotFound())
        report->missing.push_back(info.name);
      continue;
    }
    in_group.insert(info.name);
    if (info.name.rfind(kArchivePrefix, 0) == 0) {
      HL_RETURN_IF_ERROR(
          FromIOStatus(fs.CreateDirIfMissing(directory + "/archive", IOOptions(), nullptr),
                       "cannot create " + directory + "/archive"));
    }
    HL_ASSIGN_OR_RETURN(Comparison comparison, Compare(fs, path, store, info));
    if (comparison.exists && comparison.equal == info.size && comparison.local_size == info.size)
      continue;
    HL_RETURN_IF_ERROR(Rewrite(fs, path, store, info, sync));
    bool only_longer = comparison.exists && comparison.equal == info.size;
    (only_longer ? report->cut : report->rewritten).push_back(info.name);
  }
  std::vector<std::string> local;
  HL_RETURN_IF_ERROR(LocalLogFiles(fs, directory, &local));
  for (const std::string& name : local) {
    if (in_group.count(name) != 0) continue;
    const std::string path = directory + "/" + name;
    HL_RETURN_IF_ERROR(
        FromIOStatus(fs.DeleteFile(path, IOOptions(), nullptr), "cannot delete " + path));
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
