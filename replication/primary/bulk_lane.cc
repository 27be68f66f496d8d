#include "primary/bulk_lane.h"

#include <algorithm>
#include <utility>

#include "common/text.h"

namespace hyperloop {
namespace {

constexpr std::chrono::milliseconds kNothingToDo = std::chrono::hours(1);
constexpr std::chrono::milliseconds kFirstRetry{50}, kLastRetry{5000};
constexpr std::chrono::seconds kReportInterval{5};

}  // namespace

BulkLane::BulkLane(std::vector<std::string> names, ReadLocal read_local, Options options,
                   std::shared_ptr<Log> log)
    : read_local_(std::move(read_local)), options_(options), log_(std::move(log)) {
  for (size_t i = 0; i < names.size(); ++i) {
    auto& replica = *replicas_.emplace_back(std::make_unique<Replica>());
    replica.name = std::move(names[i]);
  }
  for (size_t i = 0; i < replicas_.size(); ++i) {
    Replica* const replica = replicas_[i].get();
    replica->thread = std::make_unique<PeriodicThread>(
        Text("hl-bulk-", i), [this, replica] { return Work(*replica); }, options_.avoid_cpu);
  }
}

BulkLane::~BulkLane() {
  for (const auto& replica : replicas_) replica->thread.reset();
}

void BulkLane::WakeAll() {
  for (const auto& replica : replicas_) replica->thread->Wake();
}

void BulkLane::SetTargets(std::vector<BulkConnect> targets) {
  {
    const std::lock_guard lock(mutex_);
    ++generation_;
    for (size_t i = 0; i < replicas_.size(); ++i) {
      replicas_[i]->connect = std::move(targets[i]);
      replicas_[i]->known = false;
    }
  }
  WakeAll();
}

void BulkLane::List(const WholeFile& file) {
  {
    const std::lock_guard lock(mutex_);
    listed_[file.name] = file;
  }
  WakeAll();
}

void BulkLane::Remove(const std::string& name) {
  {
    const std::lock_guard lock(mutex_);
    if (listed_.erase(name) == 0) return;
  }
  moved_.notify_all();
  WakeAll();
}

void BulkLane::Set(const std::vector<WholeFile>& files) {
  {
    const std::lock_guard lock(mutex_);
    listed_.clear();
    for (const WholeFile& file : files) listed_[file.name] = file;
  }
  moved_.notify_all();
  WakeAll();
}

// --- waiting

bool BulkLane::IsListedLocked(const WholeFile& file) const {
  const auto found = listed_.find(file.name);
  return found != listed_.end() && found->second == file;
}

std::vector<WholeFile> BulkLane::ListedLocked() const {
  std::vector<WholeFile> files;
  for (const auto& [name, file] : listed_) files.push_back(file);
  return files;
}

BulkLane::Lack BulkLane::LackOfLocked(const Replica& replica,
                                      const std::vector<WholeFile>& files) const {
  Lack lack;
  for (const WholeFile& file : files) {
    if (!IsListedLocked(file) || (replica.known && replica.held.contains(file))) continue;
    ++lack.files;
    const auto part = replica.received.find(file);
    lack.bytes += file.size - (part == replica.received.end() ? 0 : part->second);
  }
  return lack;
}

Status BulkLane::Await(std::chrono::nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  const std::vector<WholeFile> files = ListedLocked();
  const auto started = Clock::now();
  auto report = started + kReportInterval;
  while (true) {
    const Replica* slowest = nullptr;
    Lack lack;
    auto deadline = Clock::time_point::max();
    for (const auto& replica : replicas_) {
      const Lack left = LackOfLocked(*replica, files);
      if (left.files == 0) continue;
      const auto until = std::max(replica->moved, started) + timeout;
      if (until >= deadline) continue;
      deadline = std::chrono::time_point_cast<Clock::duration>(until);
      slowest = replica.get();
      lack = left;
    }
    if (slowest == nullptr) return {};
    const auto now = Clock::now();
    if (now >= deadline) {
      return Unavailable(Text(
          slowest->name, " lacks ", lack.files, " files (", lack.bytes, " B) of the database: ",
          slowest->error.ok() ? "it takes no bytes" : slowest->error.message()));
    }
    if (now >= report && log_ != nullptr) {
      log_->Write(LogLevel::kInfo, Text("waiting for ", slowest->name, ", which still lacks ",
                                        lack.files, " files (", lack.bytes, " B)"));
      report = now + kReportInterval;
    }
    moved_.wait_until(lock, std::min<Clock::time_point>(deadline, report));
  }
}

BulkLane::Progress BulkLane::progress() const {
  const std::lock_guard lock(mutex_);
  Progress progress{listed_.size(), bytes_sent_, 0};
  const std::vector<WholeFile> files = ListedLocked();
  for (const auto& replica : replicas_)
    progress.files_left = std::max(progress.files_left, LackOfLocked(*replica, files).files);
  return progress;
}

// --- one replica's thread

std::chrono::milliseconds BulkLane::Work(Replica& replica) {
  const Step step = NextStep(replica);
  if (step.action == Action::kNone) return kNothingToDo;
  const Status done = Do(replica, step);
  std::unique_lock lock(mutex_);
  const bool first = replica.failures == 0;
  if (done.ok()) {
    replica.error = done;
    replica.failures = 0;
    replica.moved = Clock::now();
    lock.unlock();
    moved_.notify_all();
    if (!first && log_ != nullptr)
      log_->Write(LogLevel::kInfo, Text(replica.name, " takes files again"));
    return std::chrono::milliseconds(0);
  }
  replica.known = false;
  replica.error = done;
  const uint32_t doublings = std::min<uint32_t>(replica.failures++, 16);
  lock.unlock();
  replica.target.reset();
  if (first && log_ != nullptr) {
    log_->Write(LogLevel::kWarn,
                Text("files do not reach ", replica.name, ": ", done.message(), "; trying again"));
  }
  return std::min(kFirstRetry * (1u << doublings), kLastRetry);
}

BulkLane::Step BulkLane::NextStep(Replica& replica) {
  const std::lock_guard lock(mutex_);
  if (replica.connect == nullptr) return {};
  if (replica.generation != generation_ || replica.target == nullptr || !replica.known) {
    replica.generation = generation_;
    return {Action::kConnect, {}, 0, replica.connect};
  }
  for (const WholeFile& file : replica.held)
    if (!IsListedLocked(file)) return {Action::kDrop, file, 0, nullptr};
  for (const auto& [file, received] : replica.received)
    if (!IsListedLocked(file)) return {Action::kDrop, file, 0, nullptr};
  for (const auto& [name, file] : listed_) {
    if (replica.held.contains(file)) continue;
    const auto part = replica.received.find(file);
    return {Action::kSend, file, part == replica.received.end() ? 0 : part->second, nullptr};
  }
  return {};
}

Status BulkLane::Do(Replica& replica, const Step& step) {
  if (step.action == Action::kConnect) return Connect(replica, step);
  return step.action == Action::kDrop ? Drop(replica, step) : Send(replica, step);
}

Status BulkLane::Connect(Replica& replica, const Step& step) {
  replica.target.reset();
  HL_ASSIGN_OR_RETURN(replica.target, step.connect());
  HL_ASSIGN_OR_RETURN(const std::vector<StoredFile> files, replica.target->List());
  const std::lock_guard lock(mutex_);
  if (replica.generation != generation_) return {};  // other targets meanwhile
  replica.held.clear();
  replica.received.clear();
  for (const StoredFile& each : files) {
    if (each.finished) {
      replica.held.insert(each.file);
    } else {
      replica.received[each.file] = each.received;
    }
  }
  replica.known = true;
  return {};
}

Status BulkLane::Drop(Replica& replica, const Step& step) {
  HL_RETURN_IF_ERROR(replica.target->Drop(step.file));
  const std::lock_guard lock(mutex_);
  replica.held.erase(step.file);
  replica.received.erase(step.file);
  return {};
}

Status BulkLane::Send(Replica& replica, const Step& step) {
  const WholeFile& file = step.file;
  replica.buffer.resize(options_.piece);
  const auto piece =
      std::span(replica.buffer).first(std::min<uint64_t>(options_.piece, file.size - step.offset));
  for (size_t got = 0; got < piece.size();) {
    const Result<uint64_t> read = read_local_(file.name, step.offset + got, piece.subspan(got));
    const bool gone = read.ok() ? *read == 0 : read.status().code() == Code::kNotFound;
    if (gone) {
      const std::lock_guard lock(mutex_);
      if (!IsListedLocked(file)) return {};  // removed meanwhile
      return Corruption(Text("the local file ", file.name, ", which the group lists with ",
                             file.size, " B, ends at ", step.offset + got, ", or is gone"));
    }
    HL_RETURN_IF_ERROR(read.status());
    got += *read;
  }
  HL_ASSIGN_OR_RETURN(const uint64_t received, replica.target->Put(file, step.offset, piece));
  const std::lock_guard lock(mutex_);
  if (received > step.offset) bytes_sent_ += piece.size();
  if (replica.generation != generation_ || !replica.known) return {};
  if (received == file.size) {
    replica.received.erase(file);
    replica.held.insert(file);
  } else {
    replica.received[file] = received;
  }
  return {};
}

}  // namespace hyperloop
