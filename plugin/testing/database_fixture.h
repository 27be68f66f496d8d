// Fixture: a database directory on tmpfs, a group in memory, and RocksDB over HyperloopFileSystem.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "file_system/file_system.h"
#include "testing/fake_store.h"

namespace hyperloop::plugin::testing {

std::string ReadLocal(const std::string& path);
void WriteLocal(const std::string& path, const std::string& content);

class DatabaseTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  StoreOptions MakeStoreOptions() const;
  // A FileSystem on `group_`, as another process would have one.
  // `base`: where local files are; null: RocksDB's own FileSystem.
  std::shared_ptr<HyperloopFileSystem> MakeFileSystem(
      const StoreOptions& options, std::shared_ptr<rocksdb::FileSystem> base = nullptr,
      Taking taking = {});
  rocksdb::Options MakeOptions();
  // Opens directory_ through env_; database in db_.
  rocksdb::Status Open(const rocksdb::Options& options);
  void Reopen(const rocksdb::Options& options);
  void Put(const std::string& key, const std::string& value);
  std::string Get(const std::string& key);
  void Close() { db_.reset(); }
  // Opens a directory as a program without the plugin does, changes the database and closes it.
  static void Plainly(const std::string& directory, const std::function<void(rocksdb::DB&)>& change,
                      const rocksdb::Options& options = {});
  // Name → bytes of the directory's files, those aside that RocksDB writes before it locks.
  std::map<std::string, std::string> LocalFilesNow() const;

  // Expects that, within 20 s, names and bytes of local WAL, MANIFEST and CURRENT are the group's,
  // and the directory has the group's listed files.
  void ExpectLocalEqualsGroup();
  std::string Difference();  // between them; empty: none
  // The group's logs are some of `before`, unchanged: obsolete ones go at any time.
  void ExpectNothingNewInGroup(const std::map<std::string, std::string>& before);
  // Copies the directory and the group as a kill would leave them; from now on the fixture works on
  // the copies.
  void Crash();
  // Keys and values as stock RocksDB finds them in the group's log files plus the local tables.
  std::map<std::string, std::string> ContentFromGroup();
  std::string InfoLogText() { return ReadLocal(directory_ + "/LOG"); }
  std::vector<std::string> LocalNames(const std::string& suffix);

  std::string root_;
  std::string directory_;
  int copies_ = 0;
  bool listed_files_lost_ = false;  // ExpectLocalEqualsGroup does not look for them
  std::shared_ptr<FakeGroup> group_;
  std::shared_ptr<HyperloopFileSystem> fs_;
  std::unique_ptr<rocksdb::Env> env_;
  std::unique_ptr<rocksdb::DB> db_;
  // File systems that Crash left; they stay open until the end of the test.
  std::vector<std::shared_ptr<HyperloopFileSystem>> dead_file_systems_;
  std::vector<std::unique_ptr<rocksdb::Env>> dead_envs_;
  std::vector<std::unique_ptr<rocksdb::DB>> dead_dbs_;
};

}  // namespace hyperloop::plugin::testing
