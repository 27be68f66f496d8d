#include "mend.h"

#include "local/local_files.h"
#include "local/paths.h"
#include "local/status.h"

namespace hyperloop::plugin {

using rocksdb::IOOptions;

namespace {

std::string Beside(const std::string& directory, const std::string& name) {
  return directory + "/" + name + std::string(kNewSuffix);
}

}  // namespace

Status BringBeside(rocksdb::FileSystem& fs, const std::string& directory, const std::string& name,
                   const FetchWhole& fetch) {
  const std::string fresh = Beside(directory, name);
  const auto fill = [&](rocksdb::FSWritableFile& out) {
    return fetch([&](std::span<const char> bytes) {
      return FromIOStatus(out.Append({bytes.data(), bytes.size()}, IOOptions(), nullptr),
                          "cannot write " + fresh);
    });
  };
  const Status written = WriteWhole(fs, fresh, true, fill);
  if (!written.ok()) RemoveBeside(fs, directory, name);
  return written;
}

void RemoveBeside(rocksdb::FileSystem& fs, const std::string& directory, const std::string& name) {
  fs.DeleteFile(Beside(directory, name), IOOptions(), nullptr).PermitUncheckedError();
}

// An opening that finds the file missing, because this was cut short, brings it from a replica.
Status PutInPlace(rocksdb::FileSystem& fs, const std::string& directory, const std::string& name) {
  const std::string path = directory + "/" + name;
  SetAside aside(fs, directory, "damaged");
  Status status = SizeOf(fs, path).status();
  if (status.ok()) {
    status = aside.KeepLinked(name);
  } else if (status.code() == Code::kNotFound && IsArchivedLog(name)) {
    status = Status::Ok();
  }
  if (!status.ok()) {
    RemoveBeside(fs, directory, name);
    return status;
  }
  HL_RETURN_IF_ERROR(RenameOver(fs, Beside(directory, name), path));
  return SyncDirectory(fs, ParentOf(path));
}

}  // namespace hyperloop::plugin
