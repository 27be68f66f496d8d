#include "hyperloop/plugin/register.h"

#include <memory>

#include "file_system/file_system.h"
#include "local/local_file_system.h"

extern "C" int register_hyperloop(rocksdb::ObjectLibrary& library, const std::string& /*arg*/) {
  using rocksdb::FileSystem;
  using rocksdb::ObjectLibrary;
  library.AddFactory<FileSystem>(
      ObjectLibrary::PatternEntry(hyperloop::plugin::HyperloopFileSystem::kClassName())
          .AddSeparator("://", false),
      [](const std::string& uri, std::unique_ptr<FileSystem>* guard,
         std::string* message) -> FileSystem* {
        hyperloop::StoreOptions options;
        if (hyperloop::Status status = hyperloop::ParseStoreUri(uri, &options); !status.ok()) {
          *message = status.ToString();
          return nullptr;
        }
        guard->reset(new hyperloop::plugin::HyperloopFileSystem(
            hyperloop::plugin::LocalFileSystem(), options, hyperloop::Store::Open));
        return guard->get();
      });
  return 1;
}
