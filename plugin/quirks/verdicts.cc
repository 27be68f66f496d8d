#include "verdicts.h"

#include <pthread.h>

#include <string>
#include <thread>

#include "local/status.h"

namespace hyperloop::plugin {
namespace {

// An address that no other living thread has.
const void* MarkOfThread() {
  static thread_local const char mark = 0;
  return &mark;
}

// RocksDB names the threads of its pools "rocksdb:low", "rocksdb:high" and so on.
bool IsBackgroundThread() {
  char name[16] = {};
  return pthread_getname_np(pthread_self(), name, sizeof name) == 0 &&
         std::string_view(name).starts_with("rocksdb:");
}

}  // namespace

Verdicts::Verdicts(std::shared_ptr<Decisions> decisions, std::chrono::nanoseconds patience)
    : decisions_(std::move(decisions)), patience_(patience) {}

rocksdb::IOStatus Verdicts::WaitFor(rocksdb::IOStatus error) const {
  if (!error.GetRetryable() && !error.IsNoSpace()) return error;
  const auto deadline = std::chrono::steady_clock::now() + patience_;
  while (decisions_->any_in_flight() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (!must_reopen_.load(std::memory_order_acquire)) return error;
  if (error.IsNoSpace()) return rocksdb::IOStatus::IOError(error.ToString(), "reopen the database");
  error.SetRetryable(false);
  return error;
}

rocksdb::IOStatus Verdicts::WaitFor(const Status& error, std::string_view context) const {
  return WaitFor(ToIOStatus(error, context));
}

bool Verdicts::NoteLogFailed() {
  log_failed_.store(true);
  return manifest_failed_.load();
}

bool Verdicts::NoteManifestFailed() {
  manifest_failed_.store(true);
  if (!log_failed_.load()) return false;
  MustReopen();
  return true;
}

void Verdicts::NoteAppended(uint64_t log_number) {
  appender_.store(MarkOfThread(), std::memory_order_relaxed);
  appended_log_.store(log_number, std::memory_order_release);
}

bool Verdicts::IsToldByAnother(uint64_t log_number) const {
  if (appended_log_.load(std::memory_order_acquire) <= log_number) return false;
  return appender_.load(std::memory_order_relaxed) == MarkOfThread() || IsBackgroundThread();
}

}  // namespace hyperloop::plugin
