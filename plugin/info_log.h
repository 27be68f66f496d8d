// Our Log on RocksDB's info log.
#pragma once

#include <rocksdb/env.h>

#include <memory>
#include <mutex>
#include <string_view>

#include "hyperloop/core/log.h"

namespace hyperloop::plugin {

// Writes to the info log that RocksDB opened last through our FileSystem. It does not keep that log
// alive. After RocksDB released the log (DestroyDB does so before it locks), or if the service set
// a log of its own, warnings and errors go to stderr and the rest is dropped. Thread safe.
class InfoLog final : public Log {
 public:
  void Attach(const std::shared_ptr<rocksdb::Logger>& logger);
  void Write(LogLevel level, std::string_view message) override;

 private:
  std::mutex mutex_;
  std::weak_ptr<rocksdb::Logger> logger_;  // guarded by mutex_
};

}  // namespace hyperloop::plugin
