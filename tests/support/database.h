// TestDatabase: a RocksDB of this process over the plugin's shared object and a cluster, opened as
// an application opens it: FileSystem from its URI, then DB::Open.
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/env.h>

#include <map>
#include <memory>
#include <string>

#include "hyperloop/replication/options.h"

namespace hyperloop::test {

class TestDatabase {
 public:
  TestDatabase(const StoreOptions& store, std::string directory);
  ~TestDatabase() { Close(); }

  // To be changed before Open. With these, RocksDB flushes nothing unless asked to.
  rocksdb::Options options;

  // Makes the FileSystem, unless MakeEnv did, and opens the database.
  rocksdb::Status Open();
  rocksdb::Status MakeEnv();
  rocksdb::Status Destroy();
  void Close();  // the FileSystem, too
  rocksdb::DB* db() const { return db_.get(); }
  rocksdb::Env* env() const { return env_.get(); }
  const std::string& directory() const { return directory_; }

  rocksdb::Status Put(const std::string& key, const std::string& value);
  // The value, or the status as text if there is none ("NotFound: …").
  std::string Get(const std::string& key) const;
  // Puts KeyOf(0) to KeyOf(count - 1), each with its ValueOf.
  rocksdb::Status Fill(int count);
  // The first of these keys that does not have its value; empty when all have.
  std::string FirstMissing(int count) const;

  static std::string KeyOf(int number);
  static std::string ValueOf(int number);

 private:
  const std::string uri_;
  const std::string directory_;
  std::shared_ptr<rocksdb::Env> env_;
  std::unique_ptr<rocksdb::DB> db_;
};

// Name → bytes of a directory's files, those aside that RocksDB writes before it locks: LOG,
// LOG.old… and LOCK. Empty when there is no such directory.
std::map<std::string, std::string> FilesOf(const std::string& directory);

}  // namespace hyperloop::test
