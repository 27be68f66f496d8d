#include "default_file_system.h"

#include <dlfcn.h>

#include <utility>

#include "file_system/binding_file_system.h"
#include "hyperloop/replication/bindings.h"
#include "hyperloop/replication/store.h"

namespace hyperloop::plugin {
namespace {

using rocksdb::FileOptions;
using rocksdb::FileSystem;
using rocksdb::FSWritableFile;
using rocksdb::IODebugContext;
using rocksdb::IOStatus;

// Whether this thread is in a call of RocksDB's own file system.
thread_local bool in_own_file_system = false;

// RocksDB's own file system. When it opens a file to be written through a mapping, it asserts that
// FileSystem::Default() is itself.
class OwnFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  explicit OwnFileSystem(const std::shared_ptr<FileSystem>& own) : FileSystemWrapper(own) {}
  const char* Name() const override { return target()->Name(); }

  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<FSWritableFile>* file, IODebugContext* dbg) override {
    return Inside([&] { return target()->NewWritableFile(path, options, file, dbg); });
  }
  IOStatus ReopenWritableFile(const std::string& path, const FileOptions& options,
                              std::unique_ptr<FSWritableFile>* file, IODebugContext* dbg) override {
    return Inside([&] { return target()->ReopenWritableFile(path, options, file, dbg); });
  }
  IOStatus ReuseWritableFile(const std::string& path, const std::string& old_path,
                             const FileOptions& options, std::unique_ptr<FSWritableFile>* file,
                             IODebugContext* dbg) override {
    return Inside([&] { return target()->ReuseWritableFile(path, old_path, options, file, dbg); });
  }

 private:
  template <class Call>
  static IOStatus Inside(Call&& call) {
    const struct Mark {
      Mark() { in_own_file_system = true; }
      ~Mark() { in_own_file_system = false; }
    } mark;
    return call();
  }
};

// What RocksDB itself defines: the next definition or, if the library was loaded behind RocksDB,
// the first one.
std::shared_ptr<FileSystem> OwnDefault() {
  constexpr char kName[] = "_ZN7rocksdb10FileSystem7DefaultEv";
  void* own = ::dlsym(RTLD_NEXT, kName);
  if (own == nullptr) own = ::dlsym(RTLD_DEFAULT, kName);
  return reinterpret_cast<std::shared_ptr<FileSystem> (*)()>(own)();
}

std::shared_ptr<FileSystem> Choose(const std::shared_ptr<FileSystem>& own) {
  Bindings bindings = BindingsOfProcess();
  if (bindings.empty()) return own;
  return std::make_shared<BindingFileSystem>(std::make_shared<OwnFileSystem>(own),
                                             std::move(bindings), Store::Open);
}

}  // namespace

std::shared_ptr<FileSystem> DefaultFileSystem() {
  static const auto& own = *new std::shared_ptr<FileSystem>(OwnDefault());
  if (in_own_file_system) return own;
  static const auto& chosen = *new std::shared_ptr<FileSystem>(Choose(own));
  return chosen;
}

}  // namespace hyperloop::plugin

__attribute__((visibility("default"))) std::shared_ptr<rocksdb::FileSystem>
rocksdb::FileSystem::Default() {
  return hyperloop::plugin::DefaultFileSystem();
}
