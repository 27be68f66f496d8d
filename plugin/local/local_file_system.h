// RocksDB's own file system, also where the preloaded plugin puts another one in front of it.
#pragma once

#include <rocksdb/file_system.h>

#include <memory>

namespace hyperloop::plugin {

// Name() of the file system that FileSystem::Default() returns where directories are bound.
inline constexpr char kBindingFileSystemName[] = "HyperloopBindings";

// FileSystem::Default(), without the one of that name.
std::shared_ptr<rocksdb::FileSystem> LocalFileSystem();

}  // namespace hyperloop::plugin
