// Registers the plugin with RocksDB. A program that links or preloads librocksdb_hyperloop.so need
// not call this: the library registers itself when it is loaded. A RocksDB that was built with
// ROCKSDB_PLUGINS=hyperloop calls the function by name.
#pragma once

#include <rocksdb/utilities/object_registry.h>

#include <string>

// Adds the FileSystem for "hyperloop" and "hyperloop://…" to `library`; `arg` is not used. Returns
// the number of factories added.
extern "C" __attribute__((visibility("default"))) int register_hyperloop(
    rocksdb::ObjectLibrary& library, const std::string& arg);
