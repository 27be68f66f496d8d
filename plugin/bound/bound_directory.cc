#include "bound_directory.h"

#include <pthread.h>

#include <algorithm>
#include <thread>

#include "local/paths.h"
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

BoundDirectory::BoundDirectory(std::string directory, std::unique_ptr<ForkDetector> fork_detector,
                               std::unique_ptr<Store> store, std::shared_ptr<Decisions> decisions,
                               std::shared_ptr<Log> log)
    : directory_(std::move(directory)),
      real_directory_(RealPath(directory_)),
      store_(std::move(store)),
      decisions_(std::move(decisions)),
      log_(std::move(log)),
      fork_detector_(std::move(fork_detector)) {}

std::string BoundDirectory::RelativeName(const std::string& path) const {
  // RocksDB spells the directory in the same way nearly always. Other spellings are resolved below,
  // and so are names in directories below it, because "." and links may lead back to it.
  if (path.size() > directory_.size() && path.compare(0, directory_.size(), directory_) == 0 &&
      path[directory_.size()] == '/') {
    const size_t start = path.find_first_not_of('/', directory_.size());
    if (start == std::string::npos) return "";
    std::string name = path.substr(start);
    const size_t entry = name.starts_with(kArchivePrefix) ? kArchivePrefix.size() : 0;
    if (name.find('/', entry) == std::string::npos) return name;
  }
  std::string real = RealPathOfEntry(path);
  if (real.size() > real_directory_.size() + 1 &&
      real.compare(0, real_directory_.size(), real_directory_) == 0 &&
      real[real_directory_.size()] == '/') {
    return real.substr(real_directory_.size() + 1);
  }
  return "";
}

bool BoundDirectory::IsDirectory(const std::string& path) const {
  return RealPath(path) == real_directory_;
}

template <class Call>
auto BoundDirectory::Run(Call&& call, Tails tails) -> decltype(call()) {
  HL_RETURN_IF_ERROR(CheckNotForked());
  if (decisions_->tails()) {
    const Status cut = CutTails();
    if (!cut.ok() && (cut.code() != Code::kNoSpace || tails == Tails::kMustGo)) return cut;
  }
  return call();
}

Status BoundDirectory::CheckNotForked() const {
  if (!InForkedChild()) return Status::Ok();
  return Fenced("a forked child must not write to " + directory_ +
                ", which its parent has open; open it after the fork");
}

Status BoundDirectory::CutTails() {
  MutexLock lock(mutex_);
  while (!tails_.empty()) {
    const Tail tail = tails_.back();
    const Status status = store_->Truncate(tail.file, tail.size);
    // kNotFound: the tail is gone together with its file. After any other error, kNoSpace included,
    // the tail may still be there. Then nothing may be written, because the next log would start
    // with the same sequence numbers.
    if (!status.ok() && status.code() != Code::kNotFound)
      return status.WithContext("cannot cut what a failed write left behind");
    tails_.pop_back();
  }
  decisions_->TailsCut();
  return Status::Ok();
}

Result<FileId> BoundDirectory::Create(std::string_view name) {
  return Run([&] { return store_->Create(name); });
}

Result<FileId> BoundDirectory::Lookup(std::string_view name) {
  return Run([&] { return store_->Lookup(name); }, Tails::kMayStand);
}

Result<std::vector<FileInfo>> BoundDirectory::Files() {
  return Run([&] { return store_->Files(); }, Tails::kMayStand);
}

Result<AppendTicket> BoundDirectory::Append(FileId file, std::string_view data, uint64_t end) {
  return Run([&] { return store_->Append(file, data, end); });
}

Status BoundDirectory::Await(AppendTicket ticket) {
  HL_RETURN_IF_ERROR(CheckNotForked());
  return store_->Await(ticket);
}

Status BoundDirectory::Sync() {
  return Run([&] { return store_->Sync(); }, Tails::kMayStand);
}

Status BoundDirectory::Truncate(FileId file, uint64_t size) {
  return Run([&] { return store_->Truncate(file, size); });
}

Status BoundDirectory::Rename(std::string_view from, std::string_view to) {
  return Run([&] { return store_->Rename(from, to); });
}

Status BoundDirectory::Remove(std::string_view name) {
  const auto remove = [&] {
    const bool tails = decisions_->tails();
    const Result<FileId> file = tails ? store_->Lookup(name) : Result<FileId>(NotFound("unasked"));
    Status status = store_->Remove(name);
    if (status.ok() && file.ok()) ForgetTail(*file);
    if (!status.ok() && status.code() != Code::kNotFound) return status;
    NoteListed(name);
    return Status::Ok();
  };
  const auto remove_alone = [&] {
    const MutexLock relisting(relisting_mutex_);
    return remove();
  };
  return Run([&] { return IsUnlisted(name) ? remove_alone() : remove(); }, Tails::kMayStand);
}

Status BoundDirectory::ListFile(const WholeFile& file) {
  Status listed = Run([&] { return store_->ListFile(file); });
  if (listed.ok()) {
    NoteListed(file.name);
  } else {
    NoteUnlisted(file.name);
  }
  return listed;
}

Status BoundDirectory::ListIfUnlisted(const WholeFile& file) {
  const MutexLock lock(relisting_mutex_);
  return IsUnlisted(file.name) ? ListFile(file) : Status::Ok();
}

bool BoundDirectory::IsUnlisted(std::string_view name) const {
  MutexLock lock(mutex_);
  return unlisted_.contains(name);
}

void BoundDirectory::NoteUnlisted(std::string_view name) {
  MutexLock lock(mutex_);
  unlisted_.emplace(name);
}

void BoundDirectory::NoteListed(std::string_view name) {
  MutexLock lock(mutex_);
  if (const auto found = unlisted_.find(name); found != unlisted_.end()) unlisted_.erase(found);
}

std::vector<std::string> BoundDirectory::Unlisted() const {
  MutexLock lock(mutex_);
  return {unlisted_.begin(), unlisted_.end()};
}

Status BoundDirectory::AwaitFiles(Holders holders) {
  return Run([&] { return store_->AwaitFiles(holders); }, Tails::kMayStand);
}

Status BoundDirectory::Close() {
  if (InForkedChild()) return Status::Ok();
  return store_->Close();
}

void BoundDirectory::Finish(const std::vector<FileId>& files) {
  for (const FileId file : files) store_->Finish(file);
}

void BoundDirectory::NoteLogMade(uint64_t number, FileId file, std::function<bool()> followed) {
  MutexLock lock(mutex_);
  logs_.Made(number, file, std::move(followed));
}

void BoundDirectory::NoteLogBegun(uint64_t number) {
  MutexLock lock(mutex_);
  const std::vector<FileId> finished = logs_.Began(number);
  lock.unlock();
  Finish(finished);
}

void BoundDirectory::NoteLogGone(uint64_t number, bool stays) {
  MutexLock lock(mutex_);
  logs_.Gone(number, stays);
}

void BoundDirectory::NoteFoundLogs(const std::vector<FileInfo>& files) {
  const FileInfo* newest = nullptr;
  for (const FileInfo& file : files) {
    const bool log = file.name.ends_with(".log") && Classify(file.name) == FileClass::kLogLane;
    if (!log || file.lane != Lane::kLog) continue;
    if (file.name.starts_with(kArchivePrefix)) {
      store_->Finish(file.id);
      continue;
    }
    if (newest != nullptr && NumberOf(file.name) < NumberOf(newest->name)) {
      store_->Finish(file.id);
      continue;
    }
    if (newest != nullptr) store_->Finish(newest->id);
    newest = &file;
  }
  if (newest == nullptr) return;
  NoteLogMade(NumberOf(newest->name), newest->id);
}

void BoundDirectory::NoteCurrent(uint64_t manifest, const std::vector<FileInfo>& files) {
  for (const FileInfo& file : files) {
    if (file.lane == Lane::kLog && IsManifest(file.name) && NumberOf(file.name) < manifest)
      store_->Finish(file.id);
  }
}

void BoundDirectory::AbandonTail(FileId file, uint64_t size) {
  MutexLock lock(mutex_);
  const auto same = std::find_if(tails_.begin(), tails_.end(),
                                 [&](const Tail& tail) { return tail.file == file; });
  if (same == tails_.end()) {
    tails_.push_back({file, size});
  } else {
    same->size = std::min(same->size, size);
  }
  decisions_->TailLeft();
}

void BoundDirectory::ForgetTail(FileId file) {
  MutexLock lock(mutex_);
  std::erase_if(tails_, [&](const Tail& tail) { return tail.file == file; });
}

void BoundDirectory::NoteVanished(std::vector<std::string> names) {
  MutexLock lock(mutex_);
  vanished_ = std::move(names);
}

bool BoundDirectory::TakeVanished(std::string_view name) {
  MutexLock lock(mutex_);
  auto found = std::find(vanished_.begin(), vanished_.end(), name);
  if (found == vanished_.end()) return false;
  vanished_.erase(found);
  return true;
}

void BoundDirectory::NoteAppended(uint64_t log_number) {
  appender_.store(MarkOfThread(), std::memory_order_relaxed);
  appended_log_.store(log_number, std::memory_order_release);
}

bool BoundDirectory::IsToldByAnother(uint64_t log_number) const {
  if (appended_log_.load(std::memory_order_acquire) <= log_number) return false;
  return appender_.load(std::memory_order_relaxed) == MarkOfThread() || IsBackgroundThread();
}

bool BoundDirectory::NoteManifestFailed() {
  // Stored before log_failed is read: if both fail at the same time, at least one of the two
  // threads finds the other's flag set.
  manifest_failed.store(true);
  if (!log_failed.load()) return false;
  must_reopen.store(true, std::memory_order_release);
  return true;
}

rocksdb::IOStatus BoundDirectory::Agreed(rocksdb::IOStatus error) const {
  if (!error.GetRetryable() && !error.IsNoSpace()) return error;
  // No write takes longer: it may first bring the group back, and is then tried.
  const auto deadline = std::chrono::steady_clock::now() + 3 * store_->options().ack_timeout;
  while (decisions_->any_in_flight() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (!must_reopen.load(std::memory_order_acquire)) return error;
  if (error.IsNoSpace()) return rocksdb::IOStatus::IOError(error.ToString(), "reopen the database");
  error.SetRetryable(false);
  return error;
}

rocksdb::IOStatus BoundDirectory::Error(const Status& status, std::string_view context) const {
  return Agreed(ToIOStatus(status, context));
}

void BoundDirectory::WarnOnce(std::atomic<bool>& once, std::string_view message) {
  if (!once.exchange(true, std::memory_order_relaxed)) log_->Write(LogLevel::kWarn, message);
}

}  // namespace hyperloop::plugin
