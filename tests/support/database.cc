#include "support/database.h"

#include <rocksdb/convenience.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "hyperloop/plugin/register.h"

namespace hyperloop::test {

TestDatabase::TestDatabase(const StoreOptions& store, std::string directory)
    : uri_(FormatStoreUri(store)), directory_(std::move(directory)) {
  options.create_if_missing = true;
  options.write_buffer_size = 16 << 20;
  options.avoid_flush_during_recovery = true;
  options.avoid_flush_during_shutdown = true;
  options.bgerror_resume_retry_interval = 50'000;  // µs
}

rocksdb::Status TestDatabase::MakeEnv() {
  // The library registers itself when loaded; naming it keeps the linker from leaving it out.
  [[maybe_unused]] static const int registered =
      register_hyperloop(*rocksdb::ObjectLibrary::Default(), "");
  rocksdb::Env* env = nullptr;
  rocksdb::ConfigOptions config;
  config.ignore_unsupported_options = false;
  return rocksdb::Env::CreateFromUri(config, "", uri_, &env, &env_);
}

rocksdb::Status TestDatabase::Open() {
  if (env_ == nullptr) {
    if (rocksdb::Status made = MakeEnv(); !made.ok()) return made;
  }
  options.env = env_.get();
  rocksdb::DB* opened = nullptr;
  rocksdb::Status status = rocksdb::DB::Open(options, directory_, &opened);
  db_.reset(opened);
  return status;
}

rocksdb::Status TestDatabase::Destroy() {
  Close();
  if (rocksdb::Status made = MakeEnv(); !made.ok()) return made;
  options.env = env_.get();
  rocksdb::Status status = rocksdb::DestroyDB(directory_, options);
  Close();
  return status;
}

void TestDatabase::Close() {
  db_.reset();
  env_.reset();
}

rocksdb::Status TestDatabase::Put(const std::string& key, const std::string& value) {
  rocksdb::WriteOptions sync;
  sync.sync = true;
  return db_->Put(sync, key, value);
}

std::string TestDatabase::Get(const std::string& key) const {
  std::string value;
  rocksdb::Status status = db_->Get(rocksdb::ReadOptions(), key, &value);
  return status.ok() ? value : status.ToString();
}

rocksdb::Status TestDatabase::Fill(int count) {
  for (int i = 0; i < count; ++i) {
    if (rocksdb::Status status = Put(KeyOf(i), ValueOf(i)); !status.ok()) return status;
  }
  return rocksdb::Status::OK();
}

std::string TestDatabase::FirstMissing(int count) const {
  for (int i = 0; i < count; ++i) {
    if (Get(KeyOf(i)) != ValueOf(i)) return KeyOf(i);
  }
  return "";
}

std::string TestDatabase::KeyOf(int number) { return "key" + std::to_string(number); }

std::string TestDatabase::ValueOf(int number) {
  return std::string(static_cast<size_t>(100 + number % 1900),
                     static_cast<char>('a' + number % 26));
}

std::map<std::string, std::string> FilesOf(const std::string& directory) {
  std::map<std::string, std::string> files;
  if (!std::filesystem::exists(directory)) return files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    const std::string name = std::filesystem::relative(entry.path(), directory);
    if (!entry.is_regular_file() || name.starts_with("LOG") || name == "LOCK") continue;
    std::ifstream file(entry.path(), std::ios::binary);
    std::stringstream content;
    content << file.rdbuf();
    files[name] = content.str();
  }
  return files;
}

}  // namespace hyperloop::test
