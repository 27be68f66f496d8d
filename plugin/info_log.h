// Our Log on RocksDB's info log.
#pragma once

#include <rocksdb/env.h>

#include <memory>
#include <mutex>
#include <string_view>

#include "hyperloop/core/log.h"

namespace hyperloop::plugin {

// Writes to the info log that RocksDB opened last through our FileSystem, without keeping that log
// alive. Warnings and errors go to stderr, and the rest is dropped, if there is no such log:
// RocksDB has released it (DestroyDB does so before it locks) or closed it (when it begins another
// one, and in DB::Close), or the program set an info log of its own. Thread safe.
class InfoLog final : public Log {
 public:
  // Takes the log over, and returns what RocksDB is to use in its place.
  std::shared_ptr<rocksdb::Logger> Attach(std::shared_ptr<rocksdb::Logger> logger);
  void Write(LogLevel level, std::string_view message) override;

 private:
  class Attached;

  std::mutex mutex_;
  std::weak_ptr<Attached> attached_;  // guarded by mutex_
};

}  // namespace hyperloop::plugin
