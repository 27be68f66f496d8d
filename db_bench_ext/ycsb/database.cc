#include "ycsb/database.h"

#include <rocksdb/convenience.h>

#include "hyperloop/plugin/register.h"

namespace hyperloop::ycsb {

using rocksdb::Status;

namespace {

Status MakeEnv(const std::string& uri, std::shared_ptr<rocksdb::Env>* guard) {
  // The library registers itself when it is loaded; naming it keeps the linker from leaving it out.
  [[maybe_unused]] static const int registered =
      register_hyperloop(*rocksdb::ObjectLibrary::Default(), "");
  rocksdb::ConfigOptions config;
  config.ignore_unsupported_options = false;
  rocksdb::Env* env = nullptr;
  return rocksdb::Env::CreateFromUri(config, "", uri, &env, guard);
}

}  // namespace

Status Database::Open(const DatabaseOptions& options, std::unique_ptr<Database>* database) {
  std::unique_ptr<Database> made(new Database);
  rocksdb::Options rocksdb_options;
  if (!options.uri.empty()) {
    if (Status status = MakeEnv(options.uri, &made->env_); !status.ok()) return status;
    rocksdb_options.env = made->env_.get();
  }
  rocksdb_options.create_if_missing = options.create;
  if (options.create && rocksdb_options.env->FileExists(options.directory + "/CURRENT").ok()) {
    return Status::InvalidArgument(options.directory +
                                   " holds a database already: --phase=run uses it, loading needs "
                                   "a new directory");
  }
  if (!options.create &&
      rocksdb_options.env->FileExists(options.directory + "/CURRENT").IsNotFound()) {
    return Status::InvalidArgument("no database in " + options.directory +
                                   ": --phase=load, or both, makes one");
  }
  rocksdb::DB* db = nullptr;
  Status status = rocksdb::DB::Open(rocksdb_options, options.directory, &db);
  made->db_.reset(db);
  if (status.ok()) *database = std::move(made);
  return status;
}

Status Database::Close() { return db_->Close(); }

}  // namespace hyperloop::ycsb
