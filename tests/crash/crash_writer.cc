// Writes keys to a replicated database until it is killed: crash_writer URI DIRECTORY PROGRESS
// THREADS [early]
//
// PROGRESS is a file with a CrashProgress; each thread goes on after the number it holds as
// attempted. With `early` a write is acknowledged before the group has it: the defect that
// crash_test must find.
#include <fcntl.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <sys/mman.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "crash/crash_data.h"
#include "file_system.h"

namespace hyperloop::test {
namespace {

// A Store that says "durable" at once and appends later. Test code only.
class EarlyAckStore final : public Store {
 public:
  explicit EarlyAckStore(std::unique_ptr<Store> store)
      : store_(std::move(store)), worker_([this] { Work(); }) {}
  ~EarlyAckStore() override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    worker_.join();
  }

  Status Append(FileId file, std::string_view data) override {
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.emplace_back(file, std::string(data));
    changed_.notify_all();
    return Status::Ok();
  }
  Status Sync(FileId) override { return Status::Ok(); }

  Status Take(const TakeRequest& request, TakeResult* result) override {
    return store_->Take(request, result);
  }
  bool taken() const override { return store_->taken(); }
  Status Reconnect() override { return store_->Reconnect(); }
  Result<FileId> Create(std::string_view name, Lane lane) override {
    return Drained().Create(name, lane);
  }
  Result<FileId> Lookup(std::string_view name) override { return store_->Lookup(name); }
  Status Truncate(FileId file, uint64_t size) override { return Drained().Truncate(file, size); }
  Status Rename(std::string_view from, std::string_view to) override {
    return Drained().Rename(from, to);
  }
  Status Remove(std::string_view name) override { return Drained().Remove(name); }
  Status ListLocal(std::string_view name, uint64_t size) override {
    return Drained().ListLocal(name, size);
  }
  std::vector<FileInfo> Files() override { return store_->Files(); }
  Result<uint64_t> Read(FileId file, uint64_t offset, std::span<char> out) override {
    return store_->Read(file, offset, out);
  }
  const StoreOptions& options() const override { return store_->options(); }
  Status Close() override { return Drained().Close(); }
  Statistics statistics() override { return store_->statistics(); }

 private:
  Store& Drained() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return queue_.empty(); });
    return *store_;
  }
  void Work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      lock.unlock();
      // Only this thread removes from the front.
      store_->Append(queue_.front().first, queue_.front().second).IgnoreError();
      lock.lock();
      queue_.pop_front();
      if (queue_.empty()) changed_.notify_all();
    }
  }

  const std::unique_ptr<Store> store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<FileId, std::string>> queue_;  // guarded by mutex_
  bool stop_ = false;                                 // guarded by mutex_
  std::thread worker_;
};

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

  plugin::StoreAccess access;
  access.open = Store::Open;
  if (argc > 5) {
    access.open = [](const StoreOptions& with,
                     std::shared_ptr<Log> log) -> Result<std::unique_ptr<Store>> {
      Result<std::unique_ptr<Store>> store = Store::Open(with, std::move(log));
      if (!store.ok()) return store.status();
      return std::unique_ptr<Store>(new EarlyAckStore(std::move(store).value()));
    };
  }
  auto fs = std::make_shared<plugin::HyperloopFileSystem>(rocksdb::FileSystem::Default(),
                                                          store_options, access);
  std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(fs);
  rocksdb::Options options;
  options.create_if_missing = true;
  options.env = env.get();
  options.write_buffer_size = 256 << 20;  // no SST file: everything that counts is in the log lane
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
