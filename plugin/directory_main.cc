// hyperloop-directory: gives a database directory to its group, or a group's database to a
// directory. hyperloopctl adopt and hyperloopctl promote are the commands for users.
#include <rocksdb/env.h>

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "file_system.h"
#include "hyperloop/core/trusted_files.h"
#include "local_files.h"
#include "paths.h"
#include "status.h"

namespace hyperloop::plugin {
namespace {

using rocksdb::FileSystem;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

// Shows on stderr what RocksDB would write into its info log.
class ShownLog final : public rocksdb::Logger {
 public:
  using Logger::Logv;
  void Logv(const char* format, va_list arguments) override {
    std::vfprintf(stderr, format, arguments);
    std::fputc('\n', stderr);
  }
};

class ShowingFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  ShowingFileSystem() : FileSystemWrapper(FileSystem::Default()) {}
  const char* Name() const override { return "shows its info log"; }
  IOStatus NewLogger(const std::string&, const IOOptions&, std::shared_ptr<rocksdb::Logger>* logger,
                     rocksdb::IODebugContext*) override {
    *logger = std::make_shared<ShownLog>();
    return IOStatus::OK();
  }
};

// Takes the group for the directory, which makes both hold the same, and releases the group.
Status Bind(HyperloopFileSystem& fs, const std::string& directory) {
  std::shared_ptr<rocksdb::Logger> log;
  HL_RETURN_IF_ERROR(
      FromIOStatus(fs.NewLogger(directory + "/LOG", IOOptions(), &log, nullptr), "logging"));
  const std::string lock_path = directory + "/" + std::string(kLockFileName);
  rocksdb::FileLock* lock = nullptr;
  const IOStatus locked = fs.LockFile(lock_path, IOOptions(), &lock, nullptr);
  if (locked.IsInvalidArgument()) return InvalidArgument(locked.ToString());
  // RocksDB has no code of its own for this.
  if (locked.ToString().find("While lock file") != std::string::npos)
    return Busy(directory + " is open in another process: " + locked.ToString());
  HL_RETURN_IF_ERROR(FromIOStatus(locked, "cannot take the group"));
  return FromIOStatus(fs.UnlockFile(lock, IOOptions(), nullptr), "releasing " + directory);
}

Status Adopt(const std::string& directory, StoreOptions options) {
  options.adopt = true;
  HL_RETURN_IF_ERROR(ValidateStoreOptions(options).WithContext("--uri"));
  const Status found = SizeOf(*FileSystem::Default(), directory + "/CURRENT").status();
  if (found.code() == Code::kNotFound)
    return InvalidArgument(directory + " holds no database: it has no CURRENT");
  HL_RETURN_IF_ERROR(found);
  HyperloopFileSystem fs(std::make_shared<ShowingFileSystem>(), options, Store::Open);
  return Bind(fs, directory);
}

Status Promote(const std::string& directory, StoreOptions options,
               const std::string& replica_files) {
  options.restore = options.rebind = true;
  HL_RETURN_IF_ERROR(ValidateStoreOptions(options).WithContext("--uri"));
  if (!replica_files.empty())
    HL_RETURN_IF_ERROR(
        CheckDirectory(replica_files, DirectoryRule::kOwn).status().WithContext("--replica-files"));
  HL_RETURN_IF_ERROR(
      FromIOStatus(FileSystem::Default()->CreateDirIfMissing(directory, IOOptions(), nullptr),
                   "cannot create " + directory));
  HyperloopFileSystem fs(std::make_shared<ShowingFileSystem>(), options, Store::Open);
  fs.Promote(replica_files);
  return Bind(fs, directory);
}

Status Run(std::string_view verb, const std::string& directory, const std::string& uri,
           const std::string& replica_files) {
  StoreOptions options;
  HL_RETURN_IF_ERROR(ParseStoreUri(uri, &options).WithContext("--uri"));
  if (verb == "adopt") {
    HL_RETURN_IF_ERROR(Adopt(directory, options));
  } else if (verb == "promote") {
    HL_RETURN_IF_ERROR(Promote(directory, options, replica_files));
  } else {
    return InvalidArgument("unknown verb " + std::string(verb));
  }
  // These options were meant for this call only.
  options.adopt = options.restore = options.rebind = options.takeover = false;
  std::printf("%s holds its group's database: open it with %s\n", directory.c_str(),
              FormatStoreUri(options).c_str());
  return Status::Ok();
}

}  // namespace
}  // namespace hyperloop::plugin

int main(int argc, char** argv) {
  if (argc < 4 || argc > 5) {
    std::fprintf(stderr,
                 "usage: hyperloop-directory adopt|promote DIR URI [REPLICA_FILES]\n"
                 "(see hyperloopctl adopt --help, hyperloopctl promote --help)\n");
    return 2;
  }
  const hyperloop::Status status =
      hyperloop::plugin::Run(argv[1], argv[2], argv[3], argc == 5 ? argv[4] : "");
  if (status.ok()) return 0;
  std::fprintf(stderr, "hyperloopctl %s: %s\n", argv[1], status.message().c_str());
  return status.code() == hyperloop::Code::kInvalidArgument ? 2 : 1;
}
