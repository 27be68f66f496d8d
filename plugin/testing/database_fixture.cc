#include "testing/database_fixture.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/eventually.h"
#include "support/status_matchers.h"

namespace hyperloop::plugin::testing {

namespace stdfs = std::filesystem;

std::string ReadLocal(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

void WriteLocal(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << content;
}

void DatabaseTest::SetUp() {
  std::string pattern =
      (stdfs::exists("/dev/shm") ? std::string("/dev/shm") : ::testing::TempDir()) +
      "/hyperloop-plugin-XXXXXX";
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  root_ = pattern;
  directory_ = root_ + "/db";
  group_ = FakeGroup::Make();
  fs_ = MakeFileSystem(MakeStoreOptions());
  env_ = rocksdb::NewCompositeEnv(fs_);
}

void DatabaseTest::TearDown() {
  db_.reset();
  dead_dbs_.clear();
  env_.reset();
  dead_envs_.clear();
  fs_.reset();
  dead_file_systems_.clear();
  stdfs::remove_all(root_);
}

StoreOptions DatabaseTest::MakeStoreOptions() const {
  StoreOptions options;
  options.replicas = {"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"};
  options.device = root_ + "/rnicd.sock";
  options.pool = root_ + "/primary.pool";
  return options;
}

std::shared_ptr<HyperloopFileSystem> DatabaseTest::MakeFileSystem(
    const StoreOptions& options, std::shared_ptr<rocksdb::FileSystem> base, Taking taking) {
  const StoreOpener open_store = [group = group_](const StoreOptions& with, std::shared_ptr<Log>)
      -> Result<std::unique_ptr<Store>> { return MakeFakeStore(group, with); };
  if (base == nullptr) base = rocksdb::FileSystem::Default();
  return std::make_shared<HyperloopFileSystem>(std::move(base), options, open_store,
                                               std::move(taking));
}

rocksdb::Options DatabaseTest::MakeOptions() {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.env = env_.get();
  options.bgerror_resume_retry_interval = 1000;
  return options;
}

rocksdb::Status DatabaseTest::Open(const rocksdb::Options& options) {
  rocksdb::DB* db = nullptr;
  rocksdb::Status status = rocksdb::DB::Open(options, directory_, &db);
  db_.reset(db);
  return status;
}

void DatabaseTest::Plainly(const std::string& directory,
                           const std::function<void(rocksdb::DB&)>& change,
                           const rocksdb::Options& options) {
  rocksdb::DB* opened = nullptr;
  const rocksdb::Status status = rocksdb::DB::Open(options, directory, &opened);
  ASSERT_OK(status);
  const std::unique_ptr<rocksdb::DB> db(opened);
  change(*db);
}

std::map<std::string, std::string> DatabaseTest::LocalFilesNow() const {
  std::map<std::string, std::string> files;
  for (const auto& entry : stdfs::recursive_directory_iterator(directory_)) {
    const std::string name = stdfs::relative(entry.path(), directory_);
    if (entry.is_regular_file() && !name.starts_with("LOG") && name != "LOCK")
      files[name] = ReadLocal(entry.path());
  }
  return files;
}

void DatabaseTest::Reopen(const rocksdb::Options& options) {
  Close();
  rocksdb::Status status = Open(options);
  ASSERT_OK(status);
}

void DatabaseTest::Put(const std::string& key, const std::string& value) {
  rocksdb::WriteOptions sync;
  sync.sync = true;
  rocksdb::Status status = db_->Put(sync, key, value);
  ASSERT_OK(status) << key;
}

std::string DatabaseTest::Get(const std::string& key) {
  std::string value;
  rocksdb::Status status = db_->Get(rocksdb::ReadOptions(), key, &value);
  return status.ok() ? value : status.ToString();
}

std::string DatabaseTest::Difference() {
  std::map<std::string, std::string> local;
  for (const auto& entry : stdfs::recursive_directory_iterator(directory_)) {
    std::string name = stdfs::relative(entry.path(), directory_);
    if (entry.is_regular_file() && Classify(name) == FileClass::kLogLane)
      local[name] = ReadLocal(entry.path());
  }
  const std::map<std::string, std::string> group = group_->LogFiles();
  if (group.empty()) return "the group has no log files";
  for (const auto& [name, content] : group) {
    const auto found = local.find(name);
    if (found == local.end()) return name + " is only in the group";
    if (found->second != content)
      return name + " has " + std::to_string(found->second.size()) + " B here, " +
             std::to_string(content.size()) + " B in the group, or other bytes";
  }
  const std::map<std::string, uint64_t> listed = group_->ListedFiles();
  for (const auto& [name, content] : local)
    if (group.count(name) == 0 && listed.count(name) == 0) return name + " is only here";
  if (listed_files_lost_) return "";
  for (const auto& [name, size] : group_->ListedFiles()) {
    std::error_code missing;
    const uint64_t here = stdfs::file_size(directory_ + "/" + name, missing);
    if (missing) return name + " is listed, but not here";
    if (here != size) return name + " has " + std::to_string(here) + " B, not those listed";
  }
  return "";
}

// RocksDB removes files on a thread of its own, here and in the group one after the other.
void DatabaseTest::ExpectLocalEqualsGroup() {
  std::string difference;
  EXPECT_TRUE(test::Eventually([&] { return (difference = Difference()).empty(); })) << difference;
}

void DatabaseTest::ExpectNothingNewInGroup(const std::map<std::string, std::string>& before) {
  for (auto& [name, content] : group_->LogFiles()) {
    auto found = before.find(name);
    ASSERT_NE(found, before.end()) << name << " is new in the group";
    EXPECT_TRUE(found->second == content) << name << " has changed in the group";
  }
}

void DatabaseTest::Crash() {
  std::string copy = root_ + "/db" + std::to_string(++copies_);
  stdfs::copy(directory_, copy, stdfs::copy_options::recursive);
  stdfs::remove(copy + "/LOCK");
  // The file keeps its inode, so that the directory is not taken for a copy.
  const std::string pairing = "/" + std::string(kPairingFileName);
  if (stdfs::remove(copy + pairing)) stdfs::create_hard_link(directory_ + pairing, copy + pairing);
  directory_ = copy;
  group_ = group_->AfterCrash();
  dead_dbs_.push_back(std::move(db_));
  dead_envs_.push_back(std::move(env_));
  dead_file_systems_.push_back(std::move(fs_));
  fs_ = MakeFileSystem(MakeStoreOptions());
  env_ = rocksdb::NewCompositeEnv(fs_);
}

std::map<std::string, std::string> DatabaseTest::ContentFromGroup() {
  std::string copy = root_ + "/export" + std::to_string(++copies_);
  stdfs::create_directories(copy + "/archive");
  for (auto& [name, content] : group_->LogFiles()) WriteLocal(copy + "/" + name, content);
  for (auto& [name, size] : group_->ListedFiles())
    stdfs::copy_file(directory_ + "/" + name, copy + "/" + name);
  std::map<std::string, std::string> content;
  rocksdb::DB* db = nullptr;
  rocksdb::Status status = rocksdb::DB::Open(rocksdb::Options(), copy, &db);
  EXPECT_OK(status);
  if (!status.ok()) return content;
  std::unique_ptr<rocksdb::DB> guard(db);
  std::unique_ptr<rocksdb::Iterator> it(db->NewIterator(rocksdb::ReadOptions()));
  for (it->SeekToFirst(); it->Valid(); it->Next())
    content[it->key().ToString()] = it->value().ToString();
  return content;
}

std::vector<std::string> DatabaseTest::LocalNames(const std::string& suffix) {
  std::vector<std::string> names;
  for (const auto& entry : stdfs::directory_iterator(directory_)) {
    std::string name = entry.path().filename();
    if (name.ends_with(suffix)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace hyperloop::plugin::testing
