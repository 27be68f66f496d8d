#include "local_file_system.h"

#include <string_view>

namespace hyperloop::plugin {

using rocksdb::FileSystem;

std::shared_ptr<FileSystem> LocalFileSystem() {
  std::shared_ptr<FileSystem> fs = FileSystem::Default();
  if (std::string_view(fs->Name()) != kBindingFileSystemName) return fs;
  FileSystem* const local = static_cast<rocksdb::FileSystemWrapper&>(*fs).target();
  return {std::move(fs), local};
}

}  // namespace hyperloop::plugin
