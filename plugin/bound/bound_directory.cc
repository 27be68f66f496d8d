#include "bound_directory.h"

#include <algorithm>

#include "local/paths.h"

namespace hyperloop::plugin {
BoundDirectory::BoundDirectory(std::string directory, std::unique_ptr<ForkDetector> fork_detector,
                               std::unique_ptr<Store> store, std::shared_ptr<Decisions> decisions,
                               std::shared_ptr<Log> log)
    : directory_(std::move(directory)),
      real_directory_(RealPath(directory_)),
      store_(std::move(store)),
      log_(std::move(log)),
      fork_detector_(std::move(fork_detector)),
      // A write may first bring the group back, and is then tried.
      verdicts_(std::move(decisions), 3 * store_->options().ack_timeout),
      decisions_(verdicts_.decisions()),
      finished_logs_([this](FileId file) { store_->Finish(file); }) {}

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

template <class Call>
auto BoundDirectory::Run(Call&& call, Tails tails) -> decltype(call()) {
  HL_RETURN_IF_ERROR(CheckNotForked());
  if (decisions_.tails()) {
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
  decisions_.TailsCut();
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
    const bool tails = decisions_.tails();
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

void BoundDirectory::AbandonTail(FileId file, uint64_t size) {
  MutexLock lock(mutex_);
  const auto same = std::find_if(tails_.begin(), tails_.end(),
                                 [&](const Tail& tail) { return tail.file == file; });
  if (same == tails_.end()) {
    tails_.push_back({file, size});
  } else {
    same->size = std::min(same->size, size);
  }
  decisions_.TailLeft();
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

void BoundDirectory::WarnOnce(Warning warning, std::string_view message) {
  const uint32_t bit = 1u << static_cast<unsigned>(warning);
  if ((warned_.fetch_or(bit, std::memory_order_relaxed) & bit) == 0)
    log_->Write(LogLevel::kWarn, message);
}

bool BoundDirectory::HasWarned(Warning warning) const {
  return (warned_.load(std::memory_order_relaxed) >> static_cast<unsigned>(warning) & 1) != 0;
}

}  // namespace hyperloop::plugin
