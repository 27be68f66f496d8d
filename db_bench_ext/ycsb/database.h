// A RocksDB database as a user's program opens it: on the local file system, or replicated through
// the plugin by a URI.
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
  // RocksDB's default options. InvalidArgument: the directory holds a database though one is to be
  // made, or none though one is to be used.
  static rocksdb::Status Open(const DatabaseOptions& options, std::unique_ptr<Database>* database);
  // What is in memory only, of an unreplicated database without sync, is in the log's file then.
  rocksdb::Status Close();
  rocksdb::DB& db() { return *db_; }

 private:
  Database() = default;
  std::shared_ptr<rocksdb::Env> env_;  // outlives db_
  std::unique_ptr<rocksdb::DB> db_;
};

}  // namespace hyperloop::ycsb
