// A RocksDB database as a user's program opens it: on the local file system, or by a URI,
// replicated through the plugin.
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/env.h>

#include <memory>
#include <string>

namespace hyperloop::ycsb {

struct DatabaseOptions {
  std::string directory;
  std::string uri;      // "hyperloop://…"; empty: unreplicated
  bool create = false;  // true: it must not exist yet; false: it must
};

class Database {
 public:
  // Opens with RocksDB's default options. InvalidArgument: the directory holds a database although
  // `create` is set, or none although it is not.
  static rocksdb::Status Open(const DatabaseOptions& options, std::unique_ptr<Database>* database);
  // Also writes bytes to the log's file that are only in memory (unreplicated, without sync).
  rocksdb::Status Close();
  rocksdb::DB& db() { return *db_; }

 private:
  Database() = default;
  std::shared_ptr<rocksdb::Env> env_;  // outlives db_
  std::unique_ptr<rocksdb::DB> db_;
};

}  // namespace hyperloop::ycsb
