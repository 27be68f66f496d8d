#include "import.h"

#include <memory>

#include "local/local_files.h"
#include "local/status.h"

namespace hyperloop::plugin {

using rocksdb::FileOptions;
using rocksdb::IOOptions;

Status ImportLog(rocksdb::FileSystem& fs, BoundDirectory& bound, const std::string& path,
                 const std::string& name) {
  std::unique_ptr<rocksdb::FSSequentialFile> file;
  HL_RETURN_IF_ERROR(FromIOStatus(fs.NewSequentialFile(path, FileOptions(), &file, nullptr),
                                  "cannot open " + path));
  HL_ASSIGN_OR_RETURN(FileId id, bound.Create(name));
  constexpr size_t kChunk = 256 << 10;
  auto buffer = std::make_unique<char[]>(kChunk);
  for (uint64_t size = 0;;) {
    rocksdb::Slice bytes;
    HL_RETURN_IF_ERROR(FromIOStatus(file->Read(kChunk, IOOptions(), &bytes, buffer.get(), nullptr),
                                    "cannot read " + path));
    if (bytes.empty()) return bound.Sync();
    HL_RETURN_IF_ERROR(bound.Append(id, {bytes.data(), bytes.size()}, size).status());
    size += bytes.size();
  }
}

Status ListIfFile(rocksdb::FileSystem& fs, BoundDirectory& bound, const std::string& path,
                  const std::string& name) {
  bool is_directory = false;
  HL_RETURN_IF_ERROR(FromIOStatus(fs.IsDirectory(path, IOOptions(), &is_directory, nullptr),
                                  "cannot look up " + path));
  if (is_directory) return Status::Ok();
  // Whoever wrote the file may not have fsynced it, and a power failure must not take from the
  // primary what a MANIFEST names.
  if (Status synced = SyncLocal(path); !synced.ok()) {
    if (synced.code() != Code::kNotFound) bound.NoteUnlisted(name);
    return synced;
  }
  return ListLocal(fs, bound, path, name);
}

Status ListLocal(rocksdb::FileSystem& fs, BoundDirectory& bound, const std::string& path,
                 const std::string& name) {
  const Result<WholeFile> file = Describe(fs, path, name);
  if (file.ok()) return bound.ListFile(*file);
  if (file.status().code() != Code::kNotFound) bound.NoteUnlisted(name);
  return file.status();
}

Status ListUnlisted(rocksdb::FileSystem& fs, BoundDirectory& bound) {
  for (const std::string& name : bound.Unlisted()) {
    const std::string path = bound.directory() + "/" + name;
    const Result<WholeFile> file = Describe(fs, path, name);
    if (file.status().code() == Code::kNotFound) {
      bound.NoteListed(name);  // it was deleted, and there is nothing to list
      continue;
    }
    Status listed = file.status();
    if (listed.ok()) listed = SyncLocal(path);
    // A file that was deleted since is no longer one of Unlisted.
    if (listed.ok() || listed.code() == Code::kNotFound) listed = bound.ListIfUnlisted(*file);
    HL_RETURN_IF_ERROR(listed.WithContext("cannot list " + name + " in the group"));
  }
  return Status::Ok();
}

}  // namespace hyperloop::plugin
