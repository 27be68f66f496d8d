// Databases over a group that fails where a test tells it to.
#pragma once

#include <rocksdb/listener.h>
#include <rocksdb/system_clock.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "support/status_matchers.h"
#include "testing/database_fixture.h"

namespace hyperloop::plugin::testing {

// Waits until RocksDB has resumed by itself.
class RecoveryListener : public rocksdb::EventListener {
 public:
  void OnErrorRecoveryEnd(const rocksdb::BackgroundErrorRecoveryInfo& info) override {
    std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
    ok_ = info.new_bg_error.ok();
    changed_.notify_all();
  }
  bool Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    bool done = changed_.wait_for(lock, std::chrono::seconds(30), [this] { return done_; });
    done_ = false;
    return done && ok_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false, ok_ = false;
};

// RocksDB pauses for a second after each flush that failed. Here its pauses are short.
class ShortPauses : public rocksdb::SystemClockWrapper {
 public:
  ShortPauses() : SystemClockWrapper(rocksdb::SystemClock::Default()) {}
  const char* Name() const override { return "short pauses"; }
  void SleepForMicroseconds(int micros) override {
    target_->SleepForMicroseconds(std::min(micros, 1000));
  }
};

class EnvWithShortPauses : public rocksdb::EnvWrapper {
 public:
  explicit EnvWithShortPauses(std::unique_ptr<rocksdb::Env>&& env) : EnvWrapper(std::move(env)) {
    system_clock_ = std::make_shared<ShortPauses>();
  }
};

class ErrorsTest : public DatabaseTest {
 protected:
  // The next openings use `base` and `store_options`.
  void Use(const std::shared_ptr<rocksdb::FileSystem>& base, const StoreOptions& store_options) {
    const StoreOpener open_store = [this](const StoreOptions& with,
                                          std::shared_ptr<Log>) -> Result<std::unique_ptr<Store>> {
      return MakeFakeStore(group_, with);
    };
    env_.reset();
    fs_ = std::make_shared<HyperloopFileSystem>(base, store_options, open_store);
    env_ = rocksdb::NewCompositeEnv(fs_);
  }
  StoreOptions WithAck(AckMode ack) const {
    StoreOptions options = MakeStoreOptions();
    options.ack = ack;
    return options;
  }
  std::string Path(const std::string& name) { return directory_ + "/" + name; }
  void OpenListening() {
    listener_ = std::make_shared<RecoveryListener>();
    rocksdb::Options options = MakeOptions();
    options.listeners.push_back(listener_);
    ASSERT_OK(Open(options));
  }
  std::shared_ptr<RecoveryListener> listener_;
};

}  // namespace hyperloop::plugin::testing
