#include "import.h"

#include <memory>

#include "local_files.h"
#include "status.h"

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
  return is_directory ? Status::Ok() : ListLocal(fs, bound, path, name);
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
    const Result<WholeFile> file = Describe(fs, bound.directory() + "/" + name, name);
    if (file.status().code() == Code::kNotFound) {
      bound.NoteListed(name);  // it was deleted, and there is nothing to list
      continue;
    }
    const Status listed = file.ok() ? bound.ListIfUnlisted(*file) : file.status();
    HL_RETURN_IF_ERROR(listed.WithContext("cannot list " + name + " in the group"));
  }
  return Status::Ok();
}

}  // namespace hyperloop::plugin
