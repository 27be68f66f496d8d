#include "testing/fake_store.h"

#include <algorithm>
#include <cstring>

#include "hyperloop/core/fork_detector.h"
#include "support/must.h"

namespace hyperloop::plugin::testing {

class FakeStore final : public Store {
 public:
  FakeStore(std::shared_ptr<FakeGroup> group, StoreOptions options)
      : group_(std::move(group)), options_(std::move(options)) {}
  ~FakeStore() override { Close().IgnoreError(); }

  Status Take(const TakeRequest& request, TakeResult* result) override {
    std::unique_lock<std::mutex> lock(group_->mutex_);
    if (group_->held_ && !options_.takeover) return Busy("a primary that is alive holds the group");
    HL_RETURN_IF_ERROR(CheckPairingLocked(request));
    HL_RETURN_IF_ERROR(JudgeLocked(request));
    // Sealed: the former owner cannot write any more.
    const uint64_t former = group_->epoch_;
    epoch_ = ++group_->epoch_;
    if (Status judged = JudgeLocked(request); !judged.ok()) {
      group_->epoch_ = former;
      return judged;
    }
    if (request.pairing.database.empty()) {
      group_->pairing_ = {"fake-group", "database-" + std::to_string(++group_->databases_)};
    } else {
      group_->pairing_ = request.pairing;  // one that is bound again keeps its name
    }
    group_->directory_ = request.directory;
    group_->settle_ = request.settle;
    group_->finished_.clear();
    group_->held_ = true;
    group_->mend_local_ = request.mend_local;
    group_->decisions_ = request.decisions;
    if (request.decisions != nullptr) request.decisions->Start(group_->last_record_);
    taken_ = true;
    *result = {group_->pairing_, epoch_, group_->branch_, FilesLocked(), group_->left_out_};
    return Status::Ok();
  }
  bool taken() const override { return taken_; }

  Result<FileId> Create(std::string_view name) override {
    FileId id = 0;
    HL_RETURN_IF_ERROR(Do("create", [&] {
      id = group_->next_id_++;
      group_->files_[std::string(name)] = {id, Lane::kLog, {}, ""};
      return Status::Ok();
    }));
    return id;
  }
  Result<FileId> Lookup(std::string_view name) override {
    std::lock_guard<std::mutex> lock(group_->mutex_);
    HL_RETURN_IF_ERROR(ReachLocked());
    auto found = group_->files_.find(name);
    if (found == group_->files_.end()) return NotFound("no file " + std::string(name));
    return found->second.id;
  }
  Result<AppendTicket> Append(FileId file, std::string_view data, uint64_t end) override {
    if (const auto before = group_->TakeBeforeAppend()) before();
    HL_RETURN_IF_ERROR(Do("append", [&] {
      HL_ASSIGN_OR_RETURN(FakeGroup::File * target, Find(file));
      if (target->lane == Lane::kBulk) return InvalidArgument("the file is only listed");
      if (end != kAnyEnd && end != target->content.size())
        return InvalidArgument("the file ends elsewhere");
      target->content.append(data);
      return Status::Ok();
    }));
    const uint64_t record = LastRecord();
    return AppendTicket{.record = record, .before = record - 1};
  }
  Status Await(AppendTicket) override {
    return Do("await", [] { return Status::Ok(); });
  }
  Status Sync() override {
    return Do("sync", [] { return Status::Ok(); });
  }
  Status Truncate(FileId file, uint64_t size) override {
    return Do("truncate", [&] {
      HL_ASSIGN_OR_RETURN(FakeGroup::File * target, Find(file));
      if (target->lane == Lane::kBulk) return InvalidArgument("the file is only listed");
      target->content.resize(size);
      return Status::Ok();
    });
  }
  Status Rename(std::string_view from, std::string_view to) override {
    return Do("rename", [&] {
      auto found = group_->files_.find(from);
      if (found == group_->files_.end()) return NotFound("no file " + std::string(from));
      FakeGroup::File file = found->second;
      file.listed.name = to;
      group_->files_.erase(found);
      group_->files_[std::string(to)] = std::move(file);
      return Status::Ok();
    });
  }
  Status Remove(std::string_view name) override {
    return Do("remove", [&] {
      auto found = group_->files_.find(name);
      if (found == group_->files_.end()) return NotFound("no file " + std::string(name));
      group_->files_.erase(found);
      return Status::Ok();
    });
  }
  void Finish(FileId file) override {
    std::lock_guard<std::mutex> lock(group_->mutex_);
    group_->finished_.insert(file);
  }
  Status ListFile(const WholeFile& file) override {
    return Do("list", [&] {
      auto [entry, fresh] = group_->files_.try_emplace(file.name);
      if (fresh) entry->second = {group_->next_id_++, Lane::kBulk, {}, ""};
      entry->second.listed = file;
      return Status::Ok();
    });
  }
  Status Fetch(const WholeFile& file,
               const std::function<Status(std::span<const char>)>& sink) override {
    std::string bytes;
    {
      const std::lock_guard<std::mutex> lock(group_->mutex_);
      ++group_->calls_["fetch"];
      HL_RETURN_IF_ERROR(group_->fetch_failure_);
      const auto held = group_->replicas_hold_.find(file);
      if (held == group_->replicas_hold_.end()) return NotFound("no replica holds " + file.name);
      bytes = held->second;
    }
    return sink(bytes);
  }
  Status AwaitFiles(Holders holders) override {
    return Do("await files", [&] {
      if (holders == Holders::kAll) ++group_->calls_["await files of all"];
      return Status::Ok();
    });
  }

  Result<std::vector<FileInfo>> Files() override {
    if (!fork_detector_->IsOwner()) return Fenced("a forked child");
    std::lock_guard<std::mutex> lock(group_->mutex_);
    HL_RETURN_IF_ERROR(ReachLocked());
    for (auto fault = group_->faults_.begin(); fault != group_->faults_.end(); ++fault) {
      if (fault->call != "files" || fault->skip-- > 0) continue;
      group_->faults_.erase(fault);
      broken_ = true;
      return Unavailable("injected into files");
    }
    return FilesLocked();
  }
  Result<uint64_t> Read(FileId file, uint64_t offset, std::span<char> out) override {
    std::lock_guard<std::mutex> lock(group_->mutex_);
    HL_RETURN_IF_ERROR(ReachLocked());
    return ReadLocked(file, offset, out);
  }
  const StoreOptions& options() const override { return options_; }
  rnic::Media media() const override { return group_->media_; }
  Status Close() override {
    if (!taken_ || !fork_detector_->IsOwner()) return Status::Ok();
    std::lock_guard<std::mutex> lock(group_->mutex_);
    if (epoch_ == group_->epoch_) {
      group_->held_ = false;
      if (group_->decisions_ != nullptr) group_->decisions_->Finish();
    }
    taken_ = false;
    return Status::Ok();
  }
  Statistics statistics() override {
    std::lock_guard<std::mutex> lock(group_->mutex_);
    Statistics result;
    result.epoch = epoch_;
    result.data_bytes = group_->extents_ << 20;
    result.data_bytes_reserved = std::clamp<uint64_t>(group_->extents_ / 16, 4, 128) << 20;
    return result;
  }

 private:
  // The group's files as a taking would find them, read under the group's mutex.
  class View final : public GroupFiles {
   public:
    explicit View(FakeStore& store) : store_(store) {}
    std::string Group() const override { return store_.group_->pairing_.group; }
    std::vector<FileInfo> Files() const override { return store_.FilesLocked(); }
    Result<uint64_t> Read(FileId file, uint64_t offset, std::span<char> out) const override {
      auto& faults = store_.group_->faults_;
      for (auto fault = faults.begin(); fault != faults.end(); ++fault) {
        if (fault->call != "look" || fault->skip-- > 0) continue;
        const Code code = fault->code;
        faults.erase(fault);
        return Status(code, "injected into look");
      }
      return store_.ReadLocked(file, offset, out);
    }
    bool Held(const WholeFile& file) const override {
      ++store_.group_->calls_["held"];
      return store_.group_->all_held_ || store_.group_->replicas_hold_.contains(file);
    }
    bool Scarce(const WholeFile&) const override { return store_.group_->all_scarce_; }
    GroupRoom Room() const override {
      const uint64_t extents = store_.group_->extents_;
      return {1 << 20, (extents - 5) << 20, (extents - 4) << 20, 4080};
    }

   private:
    FakeStore& store_;
  };

  Status CheckPairingLocked(const TakeRequest& request) const {
    const bool paired = !request.pairing.group.empty();
    const bool bound = !group_->files_.empty();
    if (paired && request.pairing.group != group_->pairing_.group) {
      return InvalidArgument("the directory belongs to group " + request.pairing.group +
                             ", database " + request.pairing.database);
    }
    if (paired && (request.pairing == group_->pairing_ || options_.rebind)) return Status::Ok();
    if (!paired && !request.directory_empty && options_.adopt && !bound) return Status::Ok();
    if (!paired && !request.directory_empty)
      return InvalidArgument("the directory holds a database that the group never saw");
    if (!paired && !bound) return Status::Ok();
    if (!paired && !options_.restore) {
      return InvalidArgument(
          "the directory is empty, but the group holds a database; restore=true fills the "
          "directory");
    }
    if (options_.rebind) return Status::Ok();
    return InvalidArgument("the group is bound to " + group_->directory_ + ", not to " +
                           request.directory + "; rebind=true binds it to this directory");
  }
  Status JudgeLocked(const TakeRequest& request) {
    ++group_->calls_["judge"];
    return request.judge ? request.judge(View(*this)) : Status::Ok();
  }

  // As a Store does: each call after an error of the group tries to bring it back.
  Status ReachLocked() {
    if (epoch_ != group_->epoch_)
      return Fenced("epoch " + std::to_string(group_->epoch_) + " exists");
    if (fenced_) return Fenced("injected before");
    if (!broken_) return Status::Ok();
    ++group_->calls_["reconnect"];
    if (group_->link_cut_) return Status(group_->link_code_, "the link is cut");
    broken_ = false;
    return Status::Ok();
  }

  // Runs one call: counts it, checks epoch and link, and applies a fault that is due.
  template <class Change>
  Status Do(const std::string& call, Change&& change) {
    if (!fork_detector_->IsOwner()) return Fenced("a forked child");
    std::lock_guard<std::mutex> lock(group_->mutex_);
    ++group_->calls_[call];
    if (!taken_) return Internal("not taken");
    HL_RETURN_IF_ERROR(ReachLocked());
    for (auto fault = group_->faults_.begin(); fault != group_->faults_.end(); ++fault) {
      if (fault->call != call || fault->skip-- > 0) continue;
      FakeGroup::Fault due = *fault;
      group_->faults_.erase(fault);
      if (due.applied) {
        CountRecordLocked(call);
        change().IgnoreError();
      }
      broken_ = due.code == Code::kTimedOut || due.code == Code::kUnavailable ||
                due.code == Code::kAborted;
      fenced_ = due.code == Code::kFenced;
      return Status(due.code, "injected into " + call);
    }
    CountRecordLocked(call);
    return change();
  }
  void CountRecordLocked(const std::string& call) {
    if (call != "await" && call != "sync" && call != "await files") ++group_->last_record_;
  }
  uint64_t LastRecord() {
    const std::lock_guard<std::mutex> lock(group_->mutex_);
    return group_->last_record_;
  }

  Result<FakeGroup::File*> Find(FileId id) {
    for (auto& [name, file] : group_->files_) {
      if (file.id == id) return &file;
    }
    return NotFound("no file has id " + std::to_string(id));
  }
  Result<uint64_t> ReadLocked(FileId file, uint64_t offset, std::span<char> out) {
    HL_ASSIGN_OR_RETURN(FakeGroup::File * target, Find(file));
    if (target->lane == Lane::kBulk) return InvalidArgument("the file is only listed");
    if (offset >= target->content.size()) return uint64_t{0};
    size_t length = std::min<size_t>(out.size(), target->content.size() - offset);
    std::memcpy(out.data(), target->content.data() + offset, length);
    return uint64_t{length};
  }
  std::vector<FileInfo> FilesLocked() {
    std::vector<FileInfo> files;
    for (auto& [name, file] : group_->files_) {
      files.push_back({file.id, name, file.lane,
                       file.lane == Lane::kLog ? file.content.size() : file.listed.size,
                       file.listed.checksum});
    }
    return files;
  }

  const std::shared_ptr<FakeGroup> group_;
  const StoreOptions options_;
  const std::unique_ptr<ForkDetector> fork_detector_ = Must(ForkDetector::Create());
  uint64_t epoch_ = 0;
  bool taken_ = false;
  bool broken_ = false;  // by an error of the group
  bool fenced_ = false;  // by a fault
};

std::unique_ptr<Store> MakeFakeStore(std::shared_ptr<FakeGroup> group,
                                     const StoreOptions& options) {
  return std::make_unique<FakeStore>(std::move(group), options);
}

std::shared_ptr<FakeGroup> FakeGroup::AfterCrash() {
  std::lock_guard<std::mutex> lock(mutex_);
  auto copy = std::make_shared<FakeGroup>();
  copy->files_ = files_;
  copy->next_id_ = next_id_;
  copy->pairing_ = pairing_;
  copy->directory_ = directory_;
  copy->epoch_ = epoch_;
  copy->databases_ = databases_;
  copy->extents_ = extents_;
  return copy;
}

void FakeGroup::Inject(Fault fault) {
  std::lock_guard<std::mutex> lock(mutex_);
  faults_.push_back(std::move(fault));
}

bool FakeGroup::ForgetFaults() {
  std::lock_guard<std::mutex> lock(mutex_);
  const bool any = !faults_.empty();
  faults_.clear();
  return any;
}

void FakeGroup::BeforeNextAppend(std::function<void()> call) {
  std::lock_guard<std::mutex> lock(mutex_);
  before_append_ = std::move(call);
}

std::function<void()> FakeGroup::TakeBeforeAppend() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(before_append_, nullptr);
}

void FakeGroup::CutLink(Code code) {
  std::lock_guard<std::mutex> lock(mutex_);
  link_cut_ = true;
  link_code_ = code;
}

void FakeGroup::HealLink() {
  std::lock_guard<std::mutex> lock(mutex_);
  link_cut_ = false;
}

void FakeGroup::FenceOff() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++epoch_;
}

std::map<std::string, std::string> FakeGroup::LogFiles() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::map<std::string, std::string> result;
  for (auto& [name, file] : files_) {
    if (file.lane == Lane::kLog) result[name] = file.content;
  }
  return result;
}

bool FakeGroup::IsFinished(const std::string& name) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto file = files_.find(name);
  return file != files_.end() && finished_.contains(file->second.id);
}

bool FakeGroup::Retire(const std::string& name) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto settle = settle_;
  lock.unlock();
  const Result<WholeFile> local = settle(name);
  lock.lock();
  const auto found = files_.find(name);
  if (!local.ok() || found == files_.end()) return false;
  File& file = found->second;
  FileChecksum checksum;
  checksum.Add(file.content);
  const WholeFile whole{name, file.content.size(), checksum.value()};
  if (!finished_.contains(file.id) || *local != whole) return false;
  file.lane = Lane::kBulk;
  file.listed = whole;
  file.content.clear();
  return true;
}

void FakeGroup::Unlist(const std::string& name) {
  std::lock_guard<std::mutex> lock(mutex_);
  files_.erase(name);
}

std::map<std::string, uint64_t> FakeGroup::ListedFiles() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::map<std::string, uint64_t> result;
  for (auto& [name, file] : files_) {
    if (file.lane == Lane::kBulk) result[name] = file.listed.size;
  }
  return result;
}

int FakeGroup::CallsOf(const std::string& call) {
  std::lock_guard<std::mutex> lock(mutex_);
  return calls_[call];
}

Pairing FakeGroup::pairing() {
  std::lock_guard<std::mutex> lock(mutex_);
  return pairing_;
}

uint64_t FakeGroup::last_record() {
  std::lock_guard<std::mutex> lock(mutex_);
  return last_record_;
}

uint64_t FakeGroup::decided() {
  std::lock_guard<std::mutex> lock(mutex_);
  const std::optional<uint64_t> settled = decisions_->Settled();
  if (settled.has_value() && decisions_->Settled() == settled) decisions_->Decide(last_record_);
  return decisions_->decided();
}

uint64_t FakeGroup::epoch() {
  std::lock_guard<std::mutex> lock(mutex_);
  return epoch_;
}

bool FakeGroup::held() {
  std::lock_guard<std::mutex> lock(mutex_);
  return held_;
}

void FakeGroup::SetMedia(rnic::Media media) {
  std::lock_guard<std::mutex> lock(mutex_);
  media_ = media;
}

void FakeGroup::SayThatAllIsHeld() {
  std::lock_guard<std::mutex> lock(mutex_);
  all_held_ = true;
}

void FakeGroup::SayThatAllIsScarce(bool scarce) {
  std::lock_guard<std::mutex> lock(mutex_);
  all_scarce_ = scarce;
}

void FakeGroup::BranchOff(const std::string& branch) {
  const std::lock_guard lock(mutex_);
  branch_ = branch;
}

void FakeGroup::LeaveOut(const std::string& address) {
  std::lock_guard<std::mutex> lock(mutex_);
  left_out_ = {address};
}

void FakeGroup::Hold(const WholeFile& file, const std::string& bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  replicas_hold_[file] = bytes;
}

void FakeGroup::FailFetches(Status with) {
  std::lock_guard<std::mutex> lock(mutex_);
  fetch_failure_ = std::move(with);
}

Status FakeGroup::MendLocal(const WholeFile& file, const std::string& bytes) {
  return mend_local_(
      file, [&](const auto& sink) { return sink(bytes); },
      [&] { return ListedFiles().contains(file.name); });
}

void FakeGroup::SetExtents(uint64_t extents) {
  std::lock_guard<std::mutex> lock(mutex_);
  extents_ = extents;
}

}  // namespace hyperloop::plugin::testing
