// A service for the test of agents: agent_service DIRECTORY PROGRESS
//
// It knows nothing of groups: it opens the database, says "serves N" if it holds exactly the keys 0
// to N − 1, each with its value, behind those of others, and writes the next ones, until SIGTERM.
// How many keys were acknowledged is in the 8 bytes of the file PROGRESS, which outlives it.
#include <fcntl.h>
#include <rocksdb/db.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "hyperloop/core/ready.h"

namespace {

volatile std::sig_atomic_t ended = 0;

std::string KeyOf(uint64_t number) {
  char text[32];
  std::snprintf(text, sizeof text, "key%012llu", static_cast<unsigned long long>(number));
  return text;
}
std::string ValueOf(uint64_t number) { return "value of " + std::to_string(number); }

std::atomic<uint64_t>* MapProgress(const char* path) {
  const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(uint64_t)) != 0) return nullptr;
  void* const mapped = mmap(nullptr, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<std::atomic<uint64_t>*>(mapped);
}

// How many keys there are; false: a key or a value is wrong.
bool Count(rocksdb::DB& db, uint64_t* count) {
  const std::unique_ptr<rocksdb::Iterator> each(db.NewIterator({}));
  for (each->Seek("key"); each->Valid(); each->Next(), ++*count) {
    if (each->key() == KeyOf(*count) && each->value() == ValueOf(*count)) continue;
    std::printf("wrong: %s in the place of %s\n", each->key().ToString().c_str(),
                KeyOf(*count).c_str());
    return false;
  }
  return each->status().ok();
}

int Serve(const char* directory, std::atomic<uint64_t>& progress) {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.write_buffer_size = 64 << 10;
  rocksdb::DB* opened = nullptr;
  const rocksdb::Status status = rocksdb::DB::Open(options, directory, &opened);
  const std::unique_ptr<rocksdb::DB> db(opened);
  if (!status.ok()) {
    std::fprintf(stderr, "agent_service: cannot open: %s\n", status.ToString().c_str());
    return 1;
  }
  uint64_t number = 0;
  if (!Count(*db, &number)) return 1;
  hyperloop::SayReady("serves " + std::to_string(number));
  rocksdb::WriteOptions write;
  write.sync = true;
  for (; ended == 0; ++number) {
    const rocksdb::Status put = db->Put(write, KeyOf(number), ValueOf(number));
    if (!put.ok()) {
      std::fprintf(stderr, "agent_service: key %s: %s\n", KeyOf(number).c_str(),
                   put.ToString().c_str());
      return 1;
    }
    progress.store(number + 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return db->Close().ok() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::signal(SIGTERM, [](int) { ended = 1; });
  std::atomic<uint64_t>* const progress = MapProgress(argv[2]);
  return progress == nullptr ? 1 : Serve(argv[1], *progress);
}
