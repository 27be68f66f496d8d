#include "other_directories.h"

#include <rocksdb/listener.h>

#include <string_view>

#include "local/paths.h"

namespace hyperloop::plugin {
namespace {

// The stacked BlobDB is recognised by the listener that it adds to the options of its database.
constexpr std::string_view kStackedBlobDb = "BlobDBListener";

}  // namespace

void OtherDirectories::Learn(const std::string& directory, const rocksdb::DBOptions& options) {
  const std::string own = RealPath(directory);
  std::string refusal;
  std::map<std::string, std::string> named;
  const auto look_at = [&](const std::string& option, const std::string& path) {
    const std::string real = RealPath(path);
    if (real == own) return;
    std::string text = option + "=" + path + " is not the database directory " + directory +
                       ", and what is there would not be replicated; leave " + option + " unset";
    if (refusal.empty()) refusal = text;
    named[real] = std::move(text);
  };
  if (!options.wal_dir.empty()) look_at("wal_dir", options.wal_dir);
  for (const rocksdb::DbPath& path : options.db_paths) look_at("db_paths", path.path);
  for (const auto& listener : options.listeners) {
    if (std::string_view(listener->Name()).starts_with(kStackedBlobDb) && refusal.empty()) {
      refusal =
          "the stacked BlobDB (blob_db::BlobDB, db_bench --use_blob_db) writes values to files of "
          "its own, BlobDBOptions::blob_dir, which would not be replicated; use integrated blob "
          "files: enable_blob_files";
    }
  }
  const MutexLock lock(mutex_);
  for (auto& [path, text] : named) named_by_options_[path] = std::move(text);
  if (refusal_.empty()) refusal_ = std::move(refusal);
}

void OtherDirectories::Register(const std::vector<std::string>& paths,
                                const std::string& directory) {
  const std::string own = directory.empty() ? "" : RealPath(directory);
  for (const std::string& path : paths) {
    const std::string real = RealPath(path);
    const MutexLock lock(mutex_);
    Registered& registered = registered_[path];
    ++registered.count;
    if (own.empty() || real == own) continue;
    registered.real = real;
    registered.refusal = "db_paths or cf_paths names " + path +
                         ", which is not the database directory " + directory +
                         ", and what is there would not be replicated; leave them unset";
  }
}

void OtherDirectories::Unregister(const std::vector<std::string>& paths) {
  const MutexLock lock(mutex_);
  for (const std::string& path : paths) {
    const auto found = registered_.find(path);
    if (found != registered_.end() && --found->second.count == 0) registered_.erase(found);
  }
}

Status OtherDirectories::CheckNewLog() const {
  const MutexLock lock(mutex_);
  if (!refusal_.empty()) return NotSupported(refusal_);
  for (const auto& [path, registered] : registered_) {
    if (!registered.refusal.empty()) return NotSupported(registered.refusal);
  }
  return Status::Ok();
}

Status OtherDirectories::CheckFilesIn(const std::string& real_directory) const {
  const MutexLock lock(mutex_);
  const auto found = named_by_options_.find(real_directory);
  if (found != named_by_options_.end()) return NotSupported(found->second);
  for (const auto& [path, registered] : registered_) {
    if (registered.real == real_directory && !registered.refusal.empty())
      return NotSupported(registered.refusal);
  }
  return Status::Ok();
}

void OtherDirectories::Forget() {
  const MutexLock lock(mutex_);
  refusal_.clear();
  named_by_options_.clear();
  for (auto& [path, registered] : registered_) registered.refusal.clear();
}

}  // namespace hyperloop::plugin
