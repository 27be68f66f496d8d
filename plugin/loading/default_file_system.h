// What FileSystem::Default() returns in a program that has loaded librocksdb_hyperloop.so.
//
// The shared object defines that function again, and the loader finds this definition first, also
// for calls inside librocksdb. So Env::Default(), whose file system is FileSystem::Default(), has
// the bound directories in every RocksDB program, without an option. Without bindings
// it is RocksDB's own file system and nothing else.
#pragma once

#include <rocksdb/file_system.h>

#include <memory>

namespace hyperloop::plugin {

// Made at the first call, which may come from a static initialiser, and never destroyed. It makes
// nothing that needs an Env, because Env::Default() may be under construction.
std::shared_ptr<rocksdb::FileSystem> DefaultFileSystem();

}  // namespace hyperloop::plugin
