// A program on a replicated RocksDB. All that differs from any other is the environment, which
// comes from the group's URI; linking librocksdb_hyperloop makes RocksDB know such URIs.
//
//   database DIRECTORY URI
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>

#include <cstdio>
#include <memory>
#include <string>

namespace {

rocksdb::Status Run(const std::string& directory, const std::string& uri) {
  rocksdb::Env* env = nullptr;
  std::shared_ptr<rocksdb::Env> guard;
  rocksdb::ConfigOptions config;
  config.ignore_unsupported_options = false;
  rocksdb::Status status = rocksdb::Env::CreateFromUri(config, "", uri, &env, &guard);
  if (!status.ok()) return status;

  rocksdb::Options options;
  options.env = env;
  options.create_if_missing = true;
  rocksdb::DB* opened = nullptr;
  status = rocksdb::DB::Open(options, directory, &opened);
  if (!status.ok()) return status;
  const std::unique_ptr<rocksdb::DB> db(opened);

  // When this returns, all replicas have it.
  status = db->Put(rocksdb::WriteOptions(), "greeting", "hello from every replica");
  if (!status.ok()) return status;
  std::string value;
  status = db->Get(rocksdb::ReadOptions(), "greeting", &value);
  if (!status.ok()) return status;
  std::printf("%s\n", value.c_str());
  return db->Close();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: database DIRECTORY URI\n");
    return 2;
  }
  const rocksdb::Status status = Run(argv[1], argv[2]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "database: %s\n", status.ToString().c_str());
  return 1;
}
