// A RocksDB service over the plugin, for the chaos test: chaos_writer MODE URI DIRECTORY FILE
//
//   write   writes until it is told to stop; FILE holds a Progress
//   lock    makes the calls that RocksDB makes first in an opening, and opens nothing; FILE is not
//           used
//   dump    opens, writes every key with the number of its value to FILE, reads all blocks of the
//           tables with their checksums, closes
//
// With URI "-" it is stock RocksDB. The last line of output says how it ended.
#include <fcntl.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/utilities/object_registry.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "crash/chaos/protocol.h"
#include "hyperloop/plugin/register.h"

namespace hyperloop::chaos {
namespace {

using Handles = std::vector<rocksdb::ColumnFamilyHandle*>;

std::mutex say_mutex;
void Say(const std::string& line) {
  const std::lock_guard lock(say_mutex);
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

rocksdb::Status MakeEnv(const std::string& uri, std::shared_ptr<rocksdb::Env>* guard) {
  // The library registers itself when loaded; naming it keeps the linker from leaving it out.
  register_hyperloop(*rocksdb::ObjectLibrary::Default(), "");
  rocksdb::ConfigOptions config;
  config.ignore_unsupported_options = false;
  rocksdb::Env* env = nullptr;
  return rocksdb::Env::CreateFromUri(config, "", uri, &env, guard);
}

class Database {
 public:
  rocksdb::Status Open(const std::string& uri, const std::string& directory, Archive archive) {
    rocksdb::DBOptions options;
    if (uri != "-") {
      rocksdb::Status made = MakeEnv(uri, &env_);
      if (!made.ok()) return made;
      options.env = env_.get();
    }
    options.create_if_missing = true;
    options.create_missing_column_families = true;
    options.allow_fallocate = false;  // only written bytes should fill a small disk
    // Debian's RocksDB aborts when it cannot write its own LOG to a full disk, so LOG lies
    // elsewhere.
    options.db_log_dir = directory + "-log";
    options.bgerror_resume_retry_interval = 50'000;  // µs
    options.max_background_jobs = 2;
    options.keep_log_file_num = 4;
    if (archive == Archive::kKept) options.WAL_ttl_seconds = 3600;
    if (archive == Archive::kEmptiedByOpening) options.WAL_size_limit_MB = 1;
    rocksdb::ColumnFamilyOptions family;
    family.write_buffer_size = 128 << 10;
    family.arena_block_size = 16 << 10;
    family.max_write_buffer_number = 4;
    family.level0_file_num_compaction_trigger = 6;
    std::vector<rocksdb::ColumnFamilyDescriptor> families;
    for (const char* name : kFamilies) families.emplace_back(name, family);
    rocksdb::DB* opened = nullptr;
    rocksdb::Status status = rocksdb::DB::Open(options, directory, families, &handles_, &opened);
    db_.reset(opened);
    return status;
  }
  rocksdb::Status Close() {
    for (rocksdb::ColumnFamilyHandle* handle : handles_) db_->DestroyColumnFamilyHandle(handle);
    rocksdb::Status status = db_->Close();
    db_.reset();
    env_.reset();
    return status;
  }
  rocksdb::DB& db() { return *db_; }
  const Handles& handles() const { return handles_; }

 private:
  std::shared_ptr<rocksdb::Env> env_;
  std::unique_ptr<rocksdb::DB> db_;
  Handles handles_;
};

// One thread's writing: its keys are its own.
class Thread {
 public:
  Thread(Database& database, Progress& progress, uint32_t thread)
      : database_(database), progress_(progress), thread_(thread) {
    while (next_ < kMaxNumber && outcome(next_) != Outcome::kNone) ++next_;
  }

  // Writes until it is told to stop. Returns kDone, or how it ended.
  int Run() {
    for (; next_ < kMaxNumber && progress_.stop.load() == 0; ++next_) {
      const Operation operation = OperationOf(thread_, next_);
      progress_.outcomes[thread_][next_].store(Outcome::kAttempted);
      const rocksdb::Status status = Apply(operation);
      progress_.outcomes[thread_][next_].store(status.ok() ? Outcome::kAcknowledged
                                                           : Outcome::kFailed);
      Remember(operation, status.ok());
      if (status.ok()) {
        progress_.acknowledged.fetch_add(1);
        if (next_ % 5 == 0 && !ReadsBack()) return kReadWrong;
        if (const uint32_t pause = progress_.pause_us.load(); pause != 0)
          std::this_thread::sleep_for(std::chrono::microseconds(pause));
        if (operation.flush_after) Flush(operation.family);
        if (next_ % 4 == 0) Share();
        continue;
      }
      if (const int end = AfterFailure(status); end != kDone) return end;
    }
    if (next_ < kMaxNumber) return kDone;
    Say("there are no more operations: raise kMaxNumber");
    return kOutOfNumbers;
  }

 private:
  struct Known {
    uint64_t number = 0;  // acknowledged; 0: deleted
    bool open = false;    // something failed since
  };

  Outcome outcome(uint64_t number) const { return progress_.outcomes[thread_][number].load(); }

  rocksdb::Status Apply(const Operation& operation) {
    const bool all = operation.kind == Operation::Kind::kBatch ||
                     operation.kind == Operation::Kind::kBatchDelete;
    const bool deletes = operation.kind == Operation::Kind::kDelete ||
                         operation.kind == Operation::Kind::kBatchDelete;
    rocksdb::WriteBatch batch;
    for (uint32_t family = 0; family < kFamilies.size(); ++family) {
      if (!all && family != operation.family) continue;
      rocksdb::ColumnFamilyHandle* handle = database_.handles()[family];
      const rocksdb::Status added = deletes
                                        ? batch.Delete(handle, operation.key)
                                        : batch.Put(handle, operation.key, ValueOf(thread_, next_));
      if (!added.ok()) return added;
    }
    rocksdb::WriteOptions options;
    options.disableWAL = progress_.without_log.load() != 0;
    // Under ack=append both are acknowledged.
    options.sync = operation.sync && !options.disableWAL;
    return database_.db().Write(options, &batch);
  }

  void Remember(const Operation& operation, bool ok) {
    const bool deletes = operation.kind == Operation::Kind::kDelete ||
                         operation.kind == Operation::Kind::kBatchDelete;
    Known& known = known_[operation.key];
    if (ok) {
      known = {deletes ? 0 : next_, false};
    } else {
      known.open = true;
    }
    last_ = operation;
  }

  // Whether a read gives the value that was just acknowledged.
  bool ReadsBack() {
    const Known& known = known_[last_.key];
    if (known.open) return true;
    std::string value;
    const rocksdb::Status status = database_.db().Get(
        rocksdb::ReadOptions(), database_.handles()[last_.family], last_.key, &value);
    if (status.IsNotFound() && known.number == 0) return true;
    if (status.ok() && known.number != 0 && value == ValueOf(thread_, known.number)) return true;
    Say("READ of " + last_.key + " gave " + status.ToString() + " and " + value.substr(0, 20) +
        "…, acknowledged was number " + std::to_string(known.number));
    return false;
  }

  // One read or write of a key that the other threads use, too.
  void Share() {
    const uint32_t index = progress_.shared_count.fetch_add(1);
    if (index >= kMaxShared) return;
    SharedOperation& operation = progress_.shared[index];
    const uint64_t dice = Mix(index, kShared), number = index + 1;
    const std::string key = SharedKey(dice % kSharedKeys);
    operation.key = static_cast<uint32_t>(dice % kSharedKeys);
    operation.write = (dice >> 32) % 2 == 0;
    if (operation.write) operation.value = number;
    operation.begin = progress_.clock.fetch_add(1) + 1;
    rocksdb::WriteOptions options;
    options.sync = true;  // under ack=sync no other write is acknowledged
    std::string value;
    const rocksdb::Status status = operation.write
                                       ? database_.db().Put(options, key, ValueOf(kShared, number))
                                       : database_.db().Get(rocksdb::ReadOptions(), key, &value);
    if (!status.ok() && !status.IsNotFound()) return;
    if (!operation.write) operation.value = NumberOf(value, kShared);
    operation.end = progress_.clock.fetch_add(1) + 1;
  }

  void Flush(uint32_t family) {
    rocksdb::FlushOptions options;
    options.wait = false;  // the other threads' outcomes do not depend on it
    const rocksdb::Status status = database_.db().Flush(options, database_.handles()[family]);
    if (!status.ok()) Say("flush: " + status.ToString());
  }

  int AfterFailure(const rocksdb::Status& status) {
    progress_.failed.fetch_add(1);
    if (const std::string text = status.ToString(); text != last_failure_) {
      Say("failed " + std::to_string(thread_) + ":" + std::to_string(next_) + " " + text);
      last_failure_ = text;
    }
    if (status.IsIOFenced()) return kFencedOff;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // leaves the processor to others
    return kDone;
  }

  Database& database_;
  Progress& progress_;
  const uint32_t thread_;
  uint64_t next_ = 1;
  Operation last_;
  std::string last_failure_;
  std::map<std::string, Known> known_;  // of this process
};

Progress* MapProgress(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  void* memory = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  return memory == MAP_FAILED ? nullptr : static_cast<Progress*>(memory);
}

int Write(const std::string& uri, const std::string& directory, const std::string& path) {
  Progress* progress = MapProgress(path);
  if (progress == nullptr) {
    Say("cannot map " + path);
    return 1;
  }
  Database database;
  progress->phase.store(Phase::kOpening);
  if (rocksdb::Status opened = database.Open(uri, directory, progress->archive); !opened.ok()) {
    Say("refused: " + opened.ToString());
    return kRefused;
  }
  progress->phase.store(Phase::kWriting);
  int ends[kThreads] = {};
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] { ends[i] = Thread(database, *progress, i).Run(); });
  for (std::thread& thread : threads) thread.join();
  const int end = *std::max_element(ends, ends + kThreads);
  progress->phase.store(Phase::kClosing);
  const rocksdb::Status closed = database.Close();
  progress->phase.store(Phase::kClosed);
  Say("closed: " + closed.ToString());
  return end != kDone ? end : closed.ok() ? kDone : kCloseFailed;
}

int Lock(const std::string& uri, const std::string& directory) {
  std::shared_ptr<rocksdb::Env> env;
  rocksdb::Status status = MakeEnv(uri, &env);
  rocksdb::FileLock* lock = nullptr;
  if (status.ok()) status = env->LockFile(directory + "/LOCK", &lock);
  if (status.ok()) status = env->UnlockFile(lock);
  Say("locked: " + status.ToString());
  return status.ok() ? kDone : kRefused;
}

int Dump(const std::string& uri, const std::string& directory, const std::string& path) {
  Database database;
  if (rocksdb::Status opened = database.Open(uri, directory, Archive::kNone); !opened.ok()) {
    Say("refused: " + opened.ToString());
    return kRefused;
  }
  std::ofstream out(path, std::ios::trunc);
  int end = kDone;
  for (size_t family = 0; family < kFamilies.size(); ++family) {
    std::unique_ptr<rocksdb::Iterator> it(
        database.db().NewIterator(rocksdb::ReadOptions(), database.handles()[family]));
    for (it->SeekToFirst(); it->Valid(); it->Next()) {
      const std::string key = it->key().ToString();
      const uint32_t thread = key.size() > 1 ? static_cast<uint32_t>(key[1] - '0') : kThreads;
      out << family << ' ' << key << ' ' << NumberOf(it->value().ToString(), thread) << '\n';
    }
    if (it->status().ok()) continue;
    Say("cannot read " + std::string(kFamilies[family]) + ": " + it->status().ToString());
    end = kReadWrong;
  }
  if (const rocksdb::Status sound = database.db().VerifyChecksum(); !sound.ok()) {
    Say("damaged tables: " + sound.ToString());
    end = kReadWrong;
  }
  out.close();
  const rocksdb::Status closed = database.Close();
  Say("closed: " + closed.ToString());
  return end != kDone ? end : closed.ok() ? kDone : kCloseFailed;
}

}  // namespace
}  // namespace hyperloop::chaos

int main(int argc, char** argv) {
  using namespace hyperloop::chaos;
  const std::string mode = argc == 5 ? argv[1] : "";
  if (mode == "write") return Write(argv[2], argv[3], argv[4]);
  if (mode == "lock") return Lock(argv[2], argv[3]);
  if (mode == "dump") return Dump(argv[2], argv[3], argv[4]);
  Say("usage: chaos_writer write|lock|dump URI DIRECTORY FILE");
  return 2;
}
