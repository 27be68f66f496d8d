#include "files/bulk_lane.h"

#include <algorithm>
#include <utility>

#include "common/background_thread.h"
#include "common/group_error.h"
#include "files/file_store.h"
#include "hyperloop/core/text.h"
#include "membership/standing.h"

namespace hyperloop {
namespace {

constexpr std::chrono::milliseconds kNow{0}, kFirstRetry{50}, kLastRetry{5000};
constexpr uint32_t kMostDoublings = 8;
constexpr std::chrono::milliseconds kLastRetryOfFile{60'000};  // it may be sent in vain each time
constexpr std::chrono::seconds kReportInterval{5};

// Whether the replica itself says that it can take no files, as one whose disk is full or fails, or
// says what makes no sense. What it says is no error of the group (BulkTarget).
bool Refuses(const Status& error) { return !error.ok() && !IsGroupError(error.code()); }

// What can be done about a replica that takes no files, for the end of a message.
std::string Remedy(Code code) {
  if (code == Code::kFenced) return "";
  if (code == Code::kNoSpace) return "; make room on its disk, then it goes on";
  return Text("; it goes on ", kWhenAllRun);
}

// The same, where it takes no bytes because files were refused.
std::string RemedyOfRefusal(bool local) {
  return local ? "; it goes on once that file is sound here"
               : "; it goes on once the replica can write it: see to its disk and the rights there";
}

// Whether a replica that answers so refuses one file, and not what it is sent at all.
bool IsOfFile(Code code) {
  return !IsGroupError(code) && code != Code::kFenced && code != Code::kNoSpace &&
         code != Code::kBusy;
}

}  // namespace

BulkLane::BulkLane(std::vector<std::string> names, ReadLocal read_local, Options options,
                   std::shared_ptr<Log> log)
    : read_local_(std::move(read_local)), options_(std::move(options)), log_(std::move(log)) {
  for (std::string& name : names) Add(std::move(name));
  if (options_.mend_local == nullptr) return;
  mender_ = std::make_unique<LocalMender>(
      LocalMender::Uses{[this] {
                          const MutexLock lock(mutex_);
                          return ListedLocked();
                        },
                        [this](const WholeFile& file) {
                          const MutexLock lock(mutex_);
                          return IsListedLocked(file);
                        },
                        [this](const WholeFile& file) { return HoldersOf(file); }},
      read_local_,
      LocalMender::Options{options_.piece, options_.avoid_cpu, options_.scrub_tick,
                           options_.mend_local, options_.tell_damage, options_.now},
      log_);
}

void BulkLane::Add(std::string name) {
  auto added = std::make_unique<Replica>();
  Replica* const replica = added.get();
  replica->name = std::move(name);
  const MutexLock lock(mutex_);
  replica->thread = std::make_unique<PeriodicThread>(
      Text("hl-bulk-", replicas_.size()), [this, replica] { return Work(*replica); },
      options_.avoid_cpu);
  replicas_.push_back(std::move(added));
  if (generation_ == 0) of_ = replicas_.size();
}

size_t BulkLane::size() const {
  const MutexLock lock(mutex_);
  return replicas_.size();
}

BulkLane::~BulkLane() {
  if (mender_ != nullptr) mender_->RequestStop();
  for (const auto& replica : replicas_) replica->thread->RequestStop();
  for (const auto& replica : replicas_) replica->thread.reset();
  mender_.reset();
}

void BulkLane::WakeAll() {
  const MutexLock lock(mutex_);
  for (const auto& replica : replicas_) replica->thread->Wake();
}

void BulkLane::SetTargets(std::vector<Target> targets, size_t of) {
  {
    const MutexLock lock(mutex_);
    of_ = of;
    if (++generation_ == 1) first_ = ListedLocked();
    for (size_t i = 0; i < replicas_.size(); ++i) {
      Replica& replica = *replicas_[i];
      replica.connect = std::move(targets[i].connect);
      replica.caught_up = replica.caught_up && replica.connect != nullptr && !targets[i].catches_up;
      replica.known = false;
      replica.error = {};
      replica.refused.clear();
      replica.reached.clear();
    }
  }
  moved_.notify_all();
  WakeAll();
}

void BulkLane::Set(const std::vector<WholeFile>& files) {
  {
    const MutexLock lock(mutex_);
    std::map<std::string, WholeFile> listed;
    for (const WholeFile& file : files) listed[file.name] = file;
    if (listed == listed_) return;
    listed_ = std::move(listed);
    for (const auto& replica : replicas_) CountIfCaughtUpLocked(*replica);
  }
  if (mender_ != nullptr) mender_->ForgetUnwanted();
  moved_.notify_all();
  WakeAll();
}

void BulkLane::SetLeaving(const std::vector<WholeFile>& files) {
  {
    const MutexLock lock(mutex_);
    std::map<std::string, WholeFile> leaving;
    for (const WholeFile& file : files) leaving[file.name] = file;
    if (leaving == leaving_) return;
    leaving_ = std::move(leaving);
    for (const auto& replica : replicas_) CountIfCaughtUpLocked(*replica);
  }
  if (mender_ != nullptr) mender_->ForgetUnwanted();
  moved_.notify_all();
  WakeAll();
}

// --- waiting

bool BulkLane::IsListedLocked(const WholeFile& file) const {
  for (const auto* files : {&listed_, &leaving_}) {
    const auto found = files->find(file.name);
    if (found != files->end() && found->second == file) return true;
  }
  return false;
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

const BulkLane::Refusal* BulkLane::RefusalLocked(const Replica& replica,
                                                 const std::vector<WholeFile>& files) const {
  const Refusal* first = nullptr;
  for (const WholeFile& file : files) {
    const auto found = replica.refused.find(file);
    if (found == replica.refused.end() || !IsListedLocked(file)) continue;
    if (!found->second.local && Refuses(found->second.why)) return &found->second;
    if (first == nullptr) first = &found->second;
  }
  return first;
}

Status BulkLane::TakesNoneLocked(const Replica& replica,
                                 const std::vector<WholeFile>& files) const {
  if (Refuses(replica.error)) return replica.error;
  const Refusal* const refusal = RefusalLocked(replica, files);
  return refusal != nullptr && !refusal->local && Refuses(refusal->why) ? refusal->why : Status();
}

std::string BulkLane::WhyNotLocked(const Replica& replica,
                                   const std::vector<WholeFile>& files) const {
  if (!replica.error.ok()) return replica.error.message() + Remedy(replica.error.code());
  const Refusal* const refusal = RefusalLocked(replica, files);
  if (refusal == nullptr) return "it takes no bytes: see to its disk, its load and the way to it";
  return refusal->why.message() + RemedyOfRefusal(refusal->local);
}

void BulkLane::Interrupt() {
  {
    const MutexLock lock(mutex_);
    ++interrupts_;
  }
  moved_.notify_all();
}

uint64_t BulkLane::interrupts() const {
  const MutexLock lock(mutex_);
  return interrupts_;
}

Status BulkLane::Await(std::chrono::nanoseconds timeout, std::chrono::nanoseconds limit,
                       Holders holders) {
  MutexLock lock(mutex_);
  return AwaitLocked(ListedLocked(), timeout, limit, holders, interrupts_);
}

Status BulkLane::AwaitLeaving(const WholeFile& file, std::chrono::nanoseconds timeout,
                              uint64_t interrupts) {
  MutexLock lock(mutex_);
  return AwaitLocked({file}, timeout, kNoLimit, Holders::kCaughtUp, interrupts);
}

Status BulkLane::AwaitLocked(const std::vector<WholeFile>& files, std::chrono::nanoseconds timeout,
                             std::chrono::nanoseconds limit, Holders holders, uint64_t interrupts) {
  const auto started = Clock::now();
  const bool limited = limit < std::chrono::hours(24);
  const auto last = limited ? std::chrono::time_point_cast<Clock::duration>(started + limit)
                            : Clock::time_point::max();
  auto report = started + kReportInterval;
  while (true) {
    LeaveOutRefusersLocked(files);
    const Replica* slowest = nullptr;
    Lack lack;
    auto deadline = Clock::time_point::max();
    const bool others_too = holders == Holders::kAll || FewCountLocked(of_);
    const bool fenced_off = IsFencedOffLocked();
    for (const auto& replica : replicas_) {
      const Lack left = LackOfLocked(*replica, files);
      const bool waited_for = replica->caught_up || (others_too && replica->connect != nullptr);
      if (left.files == 0 || !waited_for) continue;
      const bool refused = fenced_off && replica->error.code() == Code::kFenced;
      const auto until = refused ? started
                                 : std::min(last, std::chrono::time_point_cast<Clock::duration>(
                                                      std::max(replica->moved, started) + timeout));
      const bool gives_up = limited && !TakesNoneLocked(*replica, files).ok();
      if (until >= deadline && !gives_up) continue;
      deadline = gives_up ? started : until;
      slowest = replica.get();
      lack = left;
    }
    if (slowest == nullptr) return {};
    const auto now = Clock::now();
    if (now >= deadline || interrupts_ != interrupts) {
      const auto quiet = std::chrono::duration_cast<std::chrono::milliseconds>(
          now - std::max(slowest->moved, started));
      return Unavailable(Text(slowest->name, " lacks ", lack.files, " files (", lack.bytes,
                              " B) of the database, and has taken nothing for ", quiet.count(),
                              " ms (bulk_timeout = ", timeout / std::chrono::milliseconds(1),
                              " ms): ", WhyNotLocked(*slowest, files)));
    }
    if (now >= report && log_ != nullptr) {
      log_->Write(LogLevel::kInfo, Text("waiting for ", slowest->name, ", which still lacks ",
                                        lack.files, " files (", lack.bytes, " B)"));
      report = now + kReportInterval;
    }
    moved_.wait_until(mutex_, std::min<Clock::time_point>(deadline, report));
  }
}

// --- one replica's thread

std::chrono::milliseconds BulkLane::Work(Replica& replica) {
  if (!std::exchange(replica.yields, true)) YieldToOtherThreads();
  const Step step = NextStep(replica);
  if (step.action == Action::kNone) return step.pause;
  if (step.action == Action::kList) {
    ListAgain(replica);
    moved_.notify_all();
    return kNow;
  }
  replica.local_fault = false;
  replica.progressed = true;
  const Status done = Do(replica, step);
  MutexLock lock(mutex_);
  if (done.ok()) {
    if (step.action == Action::kConnect) {
      lock.unlock();
      moved_.notify_all();  // the replica may hold all files already
      return kNow;          // its error stays until it takes bytes
    }
    if (step.action == Action::kDrop || replica.held.contains(step.file))
      replica.refused.erase(step.file);
    // What was sent before, once more, is no progress, but the replica may be whole by it.
    if (!replica.progressed) {
      lock.unlock();
      moved_.notify_all();
      return kNow;
    }
    const bool again = replica.failures != 0;
    replica.error = {};
    replica.failures = 0;
    const bool whole = replica.taken >= options_.piece || replica.held.contains(step.file);
    if (step.action != Action::kDrop && whole) {
      replica.taken = 0;
      replica.moved = Clock::now();
    }
    lock.unlock();
    moved_.notify_all();
    if (again && log_ != nullptr)
      log_->Write(LogLevel::kInfo, Text(replica.name, " takes files again"));
    return kNow;
  }
  const bool of_file = replica.local_fault || IsOfFile(done.code());
  if (step.action != Action::kConnect && of_file) {
    RefuseLocked(replica, step, done);
    lock.unlock();
    moved_.notify_all();
    return kNow;
  }
  const bool first = replica.failures == 0;
  replica.known = false;
  replica.error = done;
  const uint32_t doublings = std::min<uint32_t>(replica.failures++, kMostDoublings);
  lock.unlock();
  moved_.notify_all();
  replica.target.reset();
  if (first && log_ != nullptr) {
    log_->Write(LogLevel::kWarn,
                Text("files do not reach ", replica.name, ": ", done.message(), "; trying again"));
  }
  return std::min(kFirstRetry * (1u << doublings), kLastRetry);
}

BulkLane::Step BulkLane::NextStep(Replica& replica) {
  const MutexLock lock(mutex_);
  if (replica.connect == nullptr)  // SetTargets wakes it
    return {Action::kNone, {}, 0, nullptr, false, options_.list_again};
  if (replica.generation != generation_ || replica.target == nullptr || !replica.known) {
    replica.generation = generation_;
    return {Action::kConnect, {}, 0, replica.connect, false, {}};
  }
  std::erase_if(replica.refused, [&](const auto& each) HL_REQUIRES(mutex_) {
    const bool held = replica.held.contains(each.first);
    return IsListedLocked(each.first) ? held : !held && !replica.received.contains(each.first);
  });
  std::erase_if(replica.reached,
                [&](const auto& each) HL_REQUIRES(mutex_) { return !IsListedLocked(each.first); });
  // A log that was archived is given its new name before the old one is dropped.
  if (const WholeFile* const file = RenamedLocked(replica); file != nullptr)
    return {Action::kName, *file, 0, nullptr, false, {}};
  // In turn: one that says that it holds many other files must not keep the listed ones from it.
  Step step = replica.dropped ? NextSendLocked(replica) : NextDropLocked(replica);
  if (step.action == Action::kNone)
    step = replica.dropped ? NextDropLocked(replica) : NextSendLocked(replica);
  replica.dropped = step.action == Action::kDrop;
  if (step.action != Action::kNone) return step;
  const auto now = Clock::now();
  if (now - replica.asked >= options_.list_again) return {Action::kList, {}, 0, nullptr, false, {}};
  step.pause = options_.list_again;
  for (const auto& [file, refusal] : replica.refused) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(refusal.again - now);
    step.pause = std::clamp(left, std::chrono::milliseconds(1), step.pause);
  }
  return step;
}

// A file that is being dropped is no longer held, even if it is listed again meanwhile.
BulkLane::Step BulkLane::NextDropLocked(Replica& replica) const {
  const auto now = Clock::now();
  const auto to_drop = [&](const WholeFile& file) HL_REQUIRES(mutex_) {
    const auto refused = replica.refused.find(file);
    return !IsListedLocked(file) &&
           (refused == replica.refused.end() || now >= refused->second.again);
  };
  const auto held = std::find_if(replica.held.begin(), replica.held.end(), to_drop);
  if (held != replica.held.end())
    return {Action::kDrop, replica.held.extract(held).value(), 0, nullptr, false, {}};
  const auto part =
      std::find_if(replica.received.begin(), replica.received.end(),
                   [&](const auto& each) HL_REQUIRES(mutex_) { return to_drop(each.first); });
  if (part != replica.received.end())
    return {Action::kDrop, replica.received.extract(part).key(), 0, nullptr, false, {}};
  return {};
}

const WholeFile* BulkLane::FirstLackingLocked(const Replica& replica,
                                              const std::map<std::string, WholeFile>& files) {
  const auto now = Clock::now();
  const WholeFile* again = nullptr;
  for (const auto& [name, file] : files) {
    if (replica.held.contains(file)) continue;
    const auto refused = replica.refused.find(file);
    if (refused == replica.refused.end()) return &file;
    if (again == nullptr && now >= refused->second.again) again = &file;
  }
  return again;
}

// A file that was begun is sent to its end, because the replica would read again what has arrived
// of it. Then the listed files, for which flushes wait, and those that leave, for which writes may
// wait, take turns. What was refused comes after all that was not.
const WholeFile* BulkLane::NextFileLocked(const Replica& replica) const {
  const auto refused = [&](const WholeFile& file) { return replica.refused.contains(file); };
  const auto& sending = replica.sending;
  if (sending.has_value() && IsListedLocked(*sending) && !replica.held.contains(*sending) &&
      !refused(*sending))
    return &*sending;
  const WholeFile* first = FirstLackingLocked(replica, listed_);
  const WholeFile* second = FirstLackingLocked(replica, leaving_);
  if (replica.leaving_next) std::swap(first, second);
  if (first == nullptr) return second;
  return second != nullptr && refused(*first) && !refused(*second) ? second : first;
}

BulkLane::Step BulkLane::NextSendLocked(const Replica& replica) const {
  const WholeFile* const file = NextFileLocked(replica);
  if (file == nullptr) return {};
  const auto begun = replica.received.find(*file);
  const uint64_t offset = begun == replica.received.end() ? 0 : begun->second;
  const auto refused = replica.refused.find(*file);
  const bool suspect = refused != replica.refused.end() && refused->second.suspect;
  return {Action::kSend, *file, offset, nullptr, suspect, {}};
}

const WholeFile* BulkLane::RenamedLocked(const Replica& replica) const {
  for (const auto& [name, file] : listed_) {
    const std::optional<WholeFile> former = BeforeArchived(file);
    if (!former.has_value() || replica.held.contains(file)) continue;
    if (replica.received.contains(file) || replica.refused.contains(file)) continue;  // is sent
    if (replica.held.contains(*former)) return &file;
  }
  return nullptr;
}

Status BulkLane::Do(Replica& replica, const Step& step) {
  if (step.action == Action::kConnect) return Connect(replica, step);
  if (step.action == Action::kName) return Name(replica, step);
  return step.action == Action::kDrop ? Drop(replica, step) : Send(replica, step);
}

Status BulkLane::Connect(Replica& replica, const Step& step) {
  replica.target.reset();
  HL_ASSIGN_OR_RETURN(replica.target, step.connect());
  replica.asked = Clock::now();
  HL_ASSIGN_OR_RETURN(const std::vector<StoredFile> files, replica.target->List());
  const MutexLock lock(mutex_);
  if (replica.generation != generation_) return {};  // SetTargets was called meanwhile
  NoteLocked(replica, files);
  replica.known = true;
  CompareLocked(replica);
  CountIfCaughtUpLocked(replica);
  return {};
}

void BulkLane::ListAgain(Replica& replica) {
  replica.asked = Clock::now();
  const Result<std::vector<StoredFile>> files = replica.target->List();
  if (!files.ok()) return;
  Lack before, now;
  {
    const MutexLock lock(mutex_);
    if (replica.generation != generation_) return;
    before = LackOfLocked(replica, ListedLocked());
    NoteLocked(replica, *files);
    now = LackOfLocked(replica, ListedLocked());
  }
  if (now.files > before.files && log_ != nullptr) {
    log_->Write(LogLevel::kWarn, Text(replica.name, " does not hold ", now.files - before.files,
                                      " files of the database any more; sending them again"));
  }
}

void BulkLane::NoteLocked(Replica& replica, const std::vector<StoredFile>& files) {
  replica.held.clear();
  replica.received.clear();
  for (const StoredFile& each : files) {
    if (each.finished) {
      replica.held.insert(each.file);
    } else {
      replica.received[each.file] = std::min(each.received, each.file.size);
    }
  }
}

bool BulkLane::FewCount(size_t of) const {
  const MutexLock lock(mutex_);
  const bool any_listed = !listed_.empty();
  const auto holding = std::ranges::count_if(
      replicas_, [&](const auto& each) { return IsHolder(*each, any_listed); });
  return FewHold(static_cast<size_t>(holding), of);
}

std::vector<BulkLane::Standing> BulkLane::Standings() const {
  std::vector<Standing> standings;
  const MutexLock lock(mutex_);
  const std::vector<WholeFile> listed = ListedLocked();
  for (const auto& each : replicas_) {
    const Lack lack = LackOfLocked(*each, listed);
    standings.push_back({each->name, lack.files, lack.bytes, IsHolder(*each, !listed.empty()),
                         each->slow && !each->caught_up});
  }
  return standings;
}

bool BulkLane::FewCountLocked(size_t of) const {
  const auto counting = std::count_if(replicas_.begin(), replicas_.end(),
                                      [](const auto& each) { return each->caught_up; });
  return FewHold(static_cast<size_t>(counting), of);
}

// Another primary that serves was promised a majority. One replica alone may say so without reason.
bool BulkLane::IsFencedOffLocked() const {
  const auto fenced = std::ranges::count_if(
      replicas_, [](const auto& each) { return each->error.code() == Code::kFenced; });
  return fenced != 0 && 2 * static_cast<size_t>(fenced) >= of_;
}

// Those that are left are more than half, so any majority has one that holds the files.
void BulkLane::LeaveOutRefusersLocked(const std::vector<WholeFile>& files) {
  const auto holds = [&](const auto& each) HL_REQUIRES(mutex_) {
    return each->caught_up && LackOfLocked(*each, files).files == 0;
  };
  std::vector<const Replica*> holders;
  for (const auto& each : replicas_)
    if (holds(each)) holders.push_back(each.get());
  if (2 * holders.size() <= of_) return;
  for (const auto& each : replicas_) {
    if (!each->caught_up || holds(each)) continue;
    Status why = TakesNoneLocked(*each, files);
    if (why.ok()) why = TooSlowLocked(*each, holders);
    if (why.ok()) continue;
    each->caught_up = false;
    if (log_ == nullptr) continue;
    log_->Write(LogLevel::kWarn,
                Text(each->name, " takes no files: ", why.message(),
                     "; flushes do not wait for it, because more than half of the replicas hold "
                     "them; it is sent all that it lacks once it takes files again"));
  }
}

Status BulkLane::TooSlowLocked(const Replica& replica,
                               const std::vector<const Replica*>& holders) const {
  if (!replica.slow) return {};
  double slowest = holders.front()->rate;
  for (const Replica* each : holders) slowest = std::min(slowest, each->rate);
  if (!TransferPace::IsSlowBeside(replica.rate, slowest)) return {};
  return Unavailable(Text("less than ", TransferPace::kLeast,
                          " B a second reach it, and several times as much reached the others"));
}

void BulkLane::CompareLocked(Replica& replica) {
  if (std::exchange(replica.compared, true) || !replica.caught_up) return;
  const Lack lack = LackOfLocked(replica, first_);
  if (lack.files == 0) return;
  replica.caught_up = false;
  if (log_ != nullptr) {
    log_->Write(LogLevel::kInfo,
                Text(replica.name, " lacks ", lack.files, " files (", lack.bytes,
                     " B) of the database; it is sent them while the database is in use"));
  }
}

void BulkLane::CountIfCaughtUpLocked(Replica& replica) {
  if (replica.caught_up && !replica.slow) return;
  if (!replica.known || LackOfLocked(replica, ListedLocked()).files != 0) return;
  // One that is too slow for a file that leaves would only be waited for in vain again.
  const auto lacks = [&](const auto& each) { return !replica.held.contains(each.second); };
  if (replica.slow && std::ranges::any_of(leaving_, lacks)) return;
  replica.slow = false;
  if (std::exchange(replica.caught_up, true)) return;
  if (log_ != nullptr)
    log_->Write(LogLevel::kInfo, Text(replica.name, " holds all files of the database again"));
}

Status BulkLane::Drop(Replica& replica, const Step& step) {
  const Clock::time_point began = options_.now();
  const Status dropped = replica.target->Drop(step.file);
  NotePace(replica, 0, 0, began);
  return dropped;
}

void BulkLane::NotePace(Replica& replica, uint64_t moved, uint64_t asked, Clock::time_point began) {
  const bool slow = replica.pace.Note(moved, asked, options_.now() - began);
  const MutexLock lock(mutex_);
  replica.slow = slow || (replica.slow && replica.pace.slow());
  replica.rate = replica.pace.rate();
}

Status BulkLane::Name(Replica& replica, const Step& step) {
  const WholeFile& file = step.file;
  const Clock::time_point began = options_.now();
  HL_ASSIGN_OR_RETURN(const uint64_t received, replica.target->Put(file, 0, {}));
  if (received > file.size)
    return Internal(Text("it has ", received, " B of ", file.name, ", which has ", file.size));
  NotePace(replica, 0, 0, began);
  const MutexLock lock(mutex_);
  if (replica.generation != generation_ || !replica.known) return {};
  if (received == file.size) {
    replica.held.insert(file);
    CountIfCaughtUpLocked(replica);
  } else {
    replica.received[file] = received;
  }
  return {};
}

// Whatever the replica did with the file before it refused it, it says how much it has of it when
// it gets the next bytes.
void BulkLane::RefuseLocked(Replica& replica, const Step& step, const Status& why) {
  replica.error = {};
  if (step.action == Action::kDrop) {
    replica.received[step.file] = 0;
  } else if (!replica.local_fault) {
    replica.received.erase(step.file);
  }
  Refusal& refusal = replica.refused[step.file];
  const uint32_t doublings = std::min<uint32_t>(refusal.times++, 2 * kMostDoublings);
  refusal.why = why;
  refusal.cleared = refusal.cleared && !replica.local_fault;
  refusal.local = refusal.suspect =
      replica.local_fault || (why.code() == Code::kCorruption && !refusal.cleared);
  refusal.again = Clock::now() + std::min(kFirstRetry * (1u << doublings), kLastRetryOfFile);
  if (refusal.times > 1 || log_ == nullptr) return;
  const char* const what =
      step.action == Action::kDrop ? " is not dropped at " : " does not reach ";
  log_->Write(LogLevel::kWarn, Text(step.file.name, what, replica.name, ": ", why.message(),
                                    "; going on with the other files, and trying this one again"));
}

size_t BulkLane::damaged() const { return mender_ == nullptr ? 0 : mender_->damaged(); }

std::vector<BulkConnect> BulkLane::HoldersOf(const WholeFile& file) {
  const MutexLock lock(mutex_);
  std::vector<BulkConnect> holders;
  for (const auto& replica : replicas_) {
    if (replica->connect != nullptr && replica->known && replica->held.contains(file))
      holders.push_back(replica->connect);
  }
  return holders;
}

Result<std::span<const char>> BulkLane::ReadPiece(Replica& replica, const Step& step) {
  const WholeFile& file = step.file;
  replica.buffer.resize(options_.piece);
  const auto piece =
      std::span(replica.buffer).first(std::min<uint64_t>(options_.piece, file.size - step.offset));
  for (size_t got = 0; got < piece.size();) {
    const Result<uint64_t> read = read_local_(file.name, step.offset + got, piece.subspan(got));
    const bool gone = read.ok() ? *read == 0 : read.status().code() == Code::kNotFound;
    if (gone) {
      const MutexLock lock(mutex_);
      if (!IsListedLocked(file)) return std::span<const char>(piece.first(got));
      return Corruption(Text("the local file ", file.name, ", which the group lists with ",
                             file.size, " B, ends at ", step.offset + got, ", or is gone"));
    }
    HL_RETURN_IF_ERROR(read.status());
    got += *read;
  }
  return std::span<const char>(piece);
}

// While another file is checked, this one is sent unchecked rather than held up.
Status BulkLane::Check(Replica& replica, const WholeFile& file) {
  const std::optional<Status> sound = mender_->TryMend(file);
  if (!sound.has_value()) return {};
  replica.local_fault = !sound->ok();
  HL_RETURN_IF_ERROR(*sound);
  const MutexLock lock(mutex_);
  const auto refused = replica.refused.find(file);
  if (refused == replica.refused.end()) return {};
  refused->second.suspect = false;
  refused->second.cleared = true;
  return {};
}

Status BulkLane::Send(Replica& replica, const Step& step) {
  const WholeFile& file = step.file;
  if (step.suspect && mender_ != nullptr) HL_RETURN_IF_ERROR(Check(replica, file));
  const Result<std::span<const char>> read = ReadPiece(replica, step);
  replica.local_fault = !read.ok();
  HL_RETURN_IF_ERROR(read.status());
  const std::span<const char> piece = *read;
  if (piece.size() < std::min<uint64_t>(options_.piece, file.size - step.offset))
    return {};  // removed meanwhile
  const Clock::time_point began = options_.now();
  HL_ASSIGN_OR_RETURN(const uint64_t received, replica.target->Put(file, step.offset, piece));
  if (received > file.size || (received <= step.offset && received != file.size))
    return Internal(Text("it has ", received, " B of ", file.name, " and takes no more"));
  const uint64_t moved = std::min<uint64_t>(received - step.offset, piece.size());
  NotePace(replica, moved, piece.size(), began);
  const MutexLock lock(mutex_);
  if (replica.generation != generation_ || !replica.known) return {};
  const auto [place, first] = replica.reached.try_emplace(file);
  uint64_t& reached = place->second;
  replica.progressed = first || received > reached;
  replica.taken += std::max(reached, received) - reached;
  reached = std::max(reached, received);
  if (received == file.size) {
    replica.received.erase(file);
    replica.held.insert(file);
    replica.sending.reset();
    replica.leaving_next = !replica.leaving_next;
    CountIfCaughtUpLocked(replica);
  } else {
    replica.received[file] = received;
    replica.sending = file;
  }
  return {};
}

}  // namespace hyperloop
