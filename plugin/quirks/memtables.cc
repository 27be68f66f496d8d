#include "memtables.h"

#include <map>
#include <set>

#include "batch_handler.h"
#include "hyperloop/replication/rocksdb_log.h"
#include "local/local_files.h"
#include "local/paths.h"
#include "local/status.h"

namespace hyperloop::plugin {
namespace {

using rocksdb::FileSystem;
using rocksdb::Slice;

// Goes through the batches of a log up to the first entry that a memtable holds.
class Entries final : public BatchHandler {
 public:
  Entries(std::map<uint64_t, uint64_t> log_numbers, uint64_t log)
      : log_numbers_(std::move(log_numbers)), log_(log) {}
  bool found() const { return found_; }

  rocksdb::Status MarkBeginPrepare(bool) override {
    preparing_ = true;
    section_.clear();
    return rocksdb::Status::OK();
  }
  rocksdb::Status MarkEndPrepare(const Slice& name) override {
    preparing_ = false;
    prepared_[name.ToString()] = std::move(section_);
    return rocksdb::Status::OK();
  }
  rocksdb::Status MarkCommit(const Slice& name) override {
    for (uint32_t family : prepared_[name.ToString()]) Insert(family);
    prepared_.erase(name.ToString());
    return rocksdb::Status::OK();
  }
  rocksdb::Status MarkRollback(const Slice& name) override {
    prepared_.erase(name.ToString());
    return rocksdb::Status::OK();
  }
  bool Continue() override { return !found_; }

 private:
  rocksdb::Status Entry(uint32_t family) override {
    if (preparing_) {
      section_.insert(family);
    } else {
      Insert(family);
    }
    return rocksdb::Status::OK();
  }
  void Insert(uint32_t family) {
    const auto number = log_numbers_.find(family);
    if (number != log_numbers_.end() && number->second <= log_) found_ = true;
  }

  const std::map<uint64_t, uint64_t> log_numbers_;
  const uint64_t log_;
  bool preparing_ = false, found_ = false;
  std::set<uint32_t> section_;
  std::map<std::string, std::set<uint32_t>> prepared_;  // name → families
};

using LogNumbersByFamily = std::map<uint64_t, uint64_t>;

Result<LogNumbersByFamily> LogNumbers(FileSystem& fs, const std::string& directory) {
  HL_ASSIGN_OR_RETURN(const Current current, LocalCurrent(fs, directory));
  if (current.opaque) return NotSupported("the CURRENT of " + directory + " is opaque");
  if (current.manifest.empty()) return NotFound("no CURRENT names a MANIFEST in " + directory);
  HL_ASSIGN_OR_RETURN(const ReadAt read, OpenReader(fs, directory + "/" + current.manifest));
  HL_ASSIGN_OR_RETURN(ManifestContent content, ParseManifest(read));
  return std::move(content.log_numbers);
}

}  // namespace

Result<bool> MemtableHoldsAnything(FileSystem& fs, const std::string& directory,
                                   const std::string& log, uint64_t size) {
  HL_ASSIGN_OR_RETURN(LogNumbersByFamily log_numbers, LogNumbers(fs, directory));
  Entries entries(std::move(log_numbers), NumberOf(log));
  HL_ASSIGN_OR_RETURN(const ReadAt read, OpenReader(fs, directory + "/" + log));
  const auto each = [&](std::string record) -> Result<bool> {
    const rocksdb::Status parsed = rocksdb::WriteBatch(std::move(record)).Iterate(&entries);
    if (!entries.found() && !parsed.ok()) return Corruption(log + ": " + parsed.ToString());
    return !entries.found();
  };
  HL_RETURN_IF_ERROR(ForEachRecord(read, size, NumberOf(log), each));
  return entries.found();
}

}  // namespace hyperloop::plugin
