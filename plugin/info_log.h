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
// RocksDB has released it (DestroyDB does so before it locks), or the program set an info log of
// its own. Thread safe.
class InfoLog final : public Log {
 public:
  void Attach(const std::shared_ptr<rocksdb::Logger>& logger);
  void Write(LogLevel level, std::string_view message) override;

 private:
  std::mutex mutex_;
  std::weak_ptr<rocksdb::Logger> logger_;  // guarded by mutex_
};

}  // namespace hyperloop::plugin
