// hyperloop-adopt DIR URI: takes the database of a directory into a group. hyperloopctl adopt is
// the command for users.
#include <rocksdb/convenience.h>
#include <rocksdb/env.h>

#include <cstdio>
#include <memory>
#include <string>

#include "file_system.h"
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

Status Adopt(const std::string& directory, const std::string& uri) {
  StoreOptions options;
  HL_RETURN_IF_ERROR(ParseStoreUri(uri, &options).WithContext("--uri"));
  options.adopt = true;
  HL_RETURN_IF_ERROR(ValidateStoreOptions(options).WithContext("--uri"));
  const Status holds = SizeOf(*FileSystem::Default(), directory + "/CURRENT").status();
  if (holds.code() == Code::kNotFound)
    return InvalidArgument(directory + " holds no database: it has no CURRENT");
  HL_RETURN_IF_ERROR(holds);

  HyperloopFileSystem fs(std::make_shared<ShowingFileSystem>(), options, Store::Open);
  std::shared_ptr<rocksdb::Logger> log;
  const std::string lock_path = directory + "/" + std::string(kLockFileName);
  rocksdb::FileLock* lock = nullptr;
  HL_RETURN_IF_ERROR(
      FromIOStatus(fs.NewLogger(directory + "/LOG", IOOptions(), &log, nullptr), "logging"));
  HL_RETURN_IF_ERROR(FromIOStatus(fs.LockFile(lock_path, IOOptions(), &lock, nullptr),
                                  "the database must be closed, and its group within reach"));
  HL_RETURN_IF_ERROR(
      FromIOStatus(fs.UnlockFile(lock, IOOptions(), nullptr), "releasing " + directory));
  options.adopt = false;
  std::printf("%s is in its group now: open it with %s\n", directory.c_str(),
              FormatStoreUri(options).c_str());
  return Status::Ok();
}

}  // namespace
}  // namespace hyperloop::plugin

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: hyperloop-adopt DIR URI (see hyperloopctl adopt --help)\n");
    return 2;
  }
  const hyperloop::Status status = hyperloop::plugin::Adopt(argv[1], argv[2]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "hyperloopctl adopt: %s\n", status.message().c_str());
  return status.code() == hyperloop::Code::kInvalidArgument ? 2 : 1;
}
