#include "deep_check.h"

#include <rocksdb/comparator.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/merge_operator.h>
#include <rocksdb/options.h>
#include <rocksdb/utilities/options_util.h>
#include <sys/resource.h>

#include <cstdarg>
#include <memory>
#include <utility>
#include <vector>

namespace hyperloop::plugin {
namespace {

using Families = std::vector<rocksdb::ColumnFamilyDescriptor>;

class Silence final : public rocksdb::Logger {
 public:
  using Logger::Logv;
  void Logv(const char*, va_list) override {}
};

// Stands for one that only the service has: all operands have been read then.
class NewestOperand final : public rocksdb::MergeOperator {
 public:
  const char* Name() const override { return "hyperloop.newest_operand"; }
  bool FullMergeV2(const MergeOperationInput& in, MergeOperationOutput* out) const override {
    out->existing_operand = in.operand_list.back();
    return true;
  }
};

Status Translate(const rocksdb::Status& status, const std::string& directory) {
  if (status.ok()) return {};
  const std::string text = directory + ": " + status.ToString();
  if (status.IsInvalidArgument() && text.find("omparator") != std::string::npos)
    return NotSupported(text + "; open it with the program of the service, which has that");
  // A file that cannot be opened or read, as by another user, may be sound.
  if (status.IsIOError() && !status.IsPathNotFound()) return Unavailable(text);
  return Corruption(text);
}

// All tables are open at once, so that one that goes meanwhile can still be read.
void AllowManyFiles() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
}

// Paths and objects of the primary's program are left out.
void MakePlain(rocksdb::DBOptions* options, Families* families) {
  options->env = rocksdb::Env::Default();
  options->info_log = std::make_shared<Silence>();
  options->wal_dir.clear();
  options->db_log_dir.clear();
  options->db_paths.clear();
  options->listeners.clear();
  options->create_if_missing = options->create_missing_column_families = false;
  options->max_open_files = -1;
  options->paranoid_checks = true;
  // The last record may be cut, as after a kill. Nothing else may be.
  options->wal_recovery_mode = rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  for (rocksdb::ColumnFamilyDescriptor& each : *families) {
    each.options.cf_paths.clear();
    if (each.options.merge_operator == nullptr)
      each.options.merge_operator = std::make_shared<NewestOperand>();
  }
}

rocksdb::Status LoadOptions(const std::string& directory, rocksdb::DBOptions* options,
                            Families* families) {
  rocksdb::ConfigOptions config;
  config.ignore_unknown_options = config.ignore_unsupported_options = true;
  rocksdb::Status status = rocksdb::LoadLatestOptions(config, directory, options, families);
  std::vector<std::string> names;
  *options = status.ok() ? *options : rocksdb::DBOptions();
  rocksdb::Status listed = rocksdb::DB::ListColumnFamilies(rocksdb::DBOptions(), directory, &names);
  if (!listed.ok()) return listed;
  // Those of the MANIFEST count; the OPTIONS may be older, or absent.
  Families found;
  for (const std::string& name : names) {
    rocksdb::ColumnFamilyOptions of_name;
    for (const rocksdb::ColumnFamilyDescriptor& each : *families)
      if (status.ok() && each.name == name) of_name = each.options;
    found.emplace_back(name, of_name);
  }
  *families = std::move(found);
  return listed;
}

rocksdb::Status ReadAll(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* family, DeepReport* report) {
  rocksdb::ReadOptions options;
  options.verify_checksums = options.total_order_seek = true;
  options.fill_cache = false;
  options.readahead_size = 2 << 20;
  const std::string newest(family->GetComparator()->timestamp_size(), '\xff');
  const rocksdb::Slice timestamp(newest);
  if (!newest.empty()) options.timestamp = &timestamp;
  const std::unique_ptr<rocksdb::Iterator> each(db.NewIterator(options, family));
  for (each->SeekToFirst(); each->Valid(); each->Next()) {
    ++report->keys;
    report->bytes += each->key().size() + each->value().size();
  }
  ++report->families;
  return each->status();
}

}  // namespace

Result<DeepReport> CheckDeeply(const std::string& directory) {
  if (!rocksdb::Env::Default()->FileExists(directory + "/CURRENT").ok())
    return NotFound(directory + " holds no database: it has no CURRENT");
  AllowManyFiles();
  rocksdb::DBOptions options;
  Families families;
  HL_RETURN_IF_ERROR(Translate(LoadOptions(directory, &options, &families), directory));
  MakePlain(&options, &families);
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* opened = nullptr;
  rocksdb::Status status =
      rocksdb::DB::OpenForReadOnly(options, directory, families, &handles, &opened);
  HL_RETURN_IF_ERROR(Translate(status, directory));
  const std::unique_ptr<rocksdb::DB> db(opened);
  DeepReport report;
  rocksdb::ReadOptions blocks;
  blocks.verify_checksums = true;
  blocks.fill_cache = false;
  status = db->VerifyChecksum(blocks);
  for (rocksdb::ColumnFamilyHandle* family : handles) {
    if (status.ok()) status = ReadAll(*db, family, &report);
    db->DestroyColumnFamilyHandle(family).PermitUncheckedError();
  }
  HL_RETURN_IF_ERROR(Translate(status, directory));
  return report;
}

}  // namespace hyperloop::plugin
