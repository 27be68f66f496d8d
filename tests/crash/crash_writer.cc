// Writes keys to a replicated database until it is killed: crash_writer URI DIRECTORY PROGRESS
// THREADS [early]
//
// PROGRESS is a file with a CrashProgress; each thread continues after its attempted number. With
// `early` the group acknowledges before its tail did, as soon as the checker says so: that is the
// defect that crash_test must find.
#include <fcntl.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "crash/crash_data.h"
#include "crash/early_group.h"
#include "file_system.h"

namespace hyperloop::test {
namespace {

int Fail(const std::string& what) {
  std::fprintf(stderr, "crash_writer: %s\n", what.c_str());
  return 1;
}

CrashProgress* MapProgress(const char* path) {
  int fd = ::open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  void* memory = mmap(nullptr, sizeof(CrashProgress), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  return memory == MAP_FAILED ? nullptr : static_cast<CrashProgress*>(memory);
}

void Write(rocksdb::DB* db, uint32_t thread, CrashProgress::Thread* progress) {
  rocksdb::WriteOptions options;
  options.sync = thread % 2 == 0;  // under ack=append both are acknowledged
  for (uint64_t number = progress->attempted.load() + 1;; ++number) {
    progress->attempted.store(number);
    rocksdb::Status status = db->Put(options, CrashKey(thread, number), CrashValue(thread, number));
    if (!status.ok()) std::exit(Fail("Put failed: " + status.ToString()));
    progress->acknowledged.store(number);
  }
}

int Run(int argc, char** argv) {
  if (argc < 5) return Fail("usage: crash_writer URI DIRECTORY PROGRESS THREADS [early]");
  StoreOptions store_options;
  if (Status status = ParseStoreUri(argv[1], &store_options); !status.ok())
    return Fail(status.ToString());
  CrashProgress* progress = MapProgress(argv[3]);
  if (progress == nullptr) return Fail("cannot map the progress file");

  if (argc > 5) AcknowledgeEarlyWhile(&progress->early);
  auto fs = std::make_shared<plugin::HyperloopFileSystem>(rocksdb::FileSystem::Default(),
                                                          store_options, Store::Open);
  std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(fs);
  rocksdb::Options options;
  options.create_if_missing = true;
  options.env = env.get();
  options.write_buffer_size = 256 << 20;  // no SST file: all keys are in the log lane
  options.avoid_flush_during_recovery = true;
  options.avoid_flush_during_shutdown = true;
  rocksdb::DB* db = nullptr;
  rocksdb::Status opened = rocksdb::DB::Open(options, argv[2], &db);
  if (!opened.ok()) return Fail("cannot open: " + opened.ToString());

  std::vector<std::thread> threads;
  const uint32_t count = static_cast<uint32_t>(std::atoi(argv[4]));
  for (uint32_t i = 0; i < count; ++i) threads.emplace_back(Write, db, i, &progress->threads[i]);
  progress->ready.store(1);
  for (std::thread& thread : threads) thread.join();
  return 0;
}

}  // namespace
}  // namespace hyperloop::test

int main(int argc, char** argv) { return hyperloop::test::Run(argc, argv); }
