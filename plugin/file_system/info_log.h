// Our Log on RocksDB's info log.
#pragma once

#include <rocksdb/env.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hyperloop/core/log.h"
#include "hyperloop/core/mutex.h"

namespace hyperloop::plugin {

// Writes to the info log of the database in one directory: of those that RocksDB opened for it
// through our FileSystem, to the last one that is still open. It does not keep that log alive.
// RocksDB opens logs of other databases through it as well; they are left alone. Warnings and
// errors go to stderr, and the rest is dropped, if there is no such log: RocksDB has released it
// (DestroyDB does so before it locks) or closed it (when it begins another one, and in DB::Close),
// or the program set an info log of its own. Thread safe.
class InfoLog final : public Log {
 public:
  // Takes the log over that is the file `path`, and returns what RocksDB is to use in its place.
  std::shared_ptr<rocksdb::Logger> Attach(const std::string& path,
                                          std::shared_ptr<rocksdb::Logger> logger);
  // The database directory whose log is meant from now on. Empty: any.
  void MeanDirectory(const std::string& directory);
  void Write(LogLevel level, std::string_view message) override;

 private:
  class Attached;
  struct Opened {
    std::string path;
    std::weak_ptr<Attached> log;
  };

  Mutex mutex_;
  std::vector<Opened> opened_ HL_GUARDED_BY(mutex_);  // the newest last
  std::string directory_ HL_GUARDED_BY(mutex_);
};

}  // namespace hyperloop::plugin
