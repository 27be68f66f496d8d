// A bulk lane over the stores that replicas have, with connections that may fail, and with a
// directory in memory.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files/bulk_lane.h"
#include "files/file_store.h"
#include "support/eventually.h"
#include "support/must.h"
#include "support/status_matchers.h"

namespace hyperloop::test {

constexpr std::chrono::seconds kLongWait{30};  // longer than any of it takes

// A replica's store, whose calls fail or wait as the test says.
class FakeReplica {
 public:
  explicit FakeReplica(std::string directory) : directory_(std::move(directory)) {}

  BulkConnect connect() {
    return [this]() -> Result<std::unique_ptr<BulkTarget>> {
      HL_RETURN_IF_ERROR(Next());
      std::unique_ptr<FileStore> store = Must(FileStore::Open(directory_));
      return std::unique_ptr<BulkTarget>(new Target(*this, std::move(store)));
    };
  }
  // Every call fails with `with` from now on. Ok: no call fails.
  void Fail(Status with) {
    const std::lock_guard lock(mutex_);
    failure_ = std::move(with);
  }
  // Every Put fails with `with` from now on.
  void FailPuts(Status with) {
    const std::lock_guard lock(mutex_);
    put_failure_ = std::move(with);
  }
  // Each Put takes one byte from now on, and calls `each`.
  void Drip(std::function<void()> each) {
    const std::lock_guard lock(mutex_);
    drip_ = std::move(each);
  }
  // Each Put calls `each` from now on, before it takes all bytes.
  void SlowPuts(std::function<void()> each) {
    const std::lock_guard lock(mutex_);
    each_put_ = std::move(each);
  }
  // The bytes that end a file are refused from now on, and what arrived of it is dropped.
  void RefuseEnds() { refuses_ends_ = true; }
  // Each Put takes no byte from now on, and says so.
  void TakeNothing() { takes_nothing_ = true; }
  // Each List, before which `each` is called, has lost `lost` from now on, and each Put of `never`
  // finds the connection broken.
  void Forget(const WholeFile& lost, const WholeFile& never, std::function<void()> each) {
    const std::lock_guard lock(mutex_);
    forgets_ = {lost, never};
    each_list_ = std::move(each);
  }
  // Each Get gives at most so many bytes from now on, and calls `each`.
  void SlowGets(size_t most, std::function<void()> each) {
    const std::lock_guard lock(mutex_);
    most_of_get_ = most;
    each_get_ = std::move(each);
  }
  // Each Get gives wrong bytes from now on.
  void RotGets() { rots_gets_ = true; }
  // Every Drop fails with `with` from now on.
  void FailDrops(Status with) {
    const std::lock_guard lock(mutex_);
    drop_failure_ = std::move(with);
  }
  // The calls from the n-th on wait until Go.
  void StopAt(int n) {
    const std::lock_guard lock(mutex_);
    calls_left_ = n;
  }
  void Go() {
    {
      const std::lock_guard lock(mutex_);
      calls_left_ = -1;
    }
    go_.notify_all();
  }
  void AwaitStopped() {
    std::unique_lock lock(mutex_);
    go_.wait(lock, [this] { return stopped_; });
  }
  std::vector<WholeFile> Finished() const {
    std::vector<WholeFile> files;
    for (const auto& each : Must(Must(FileStore::Open(directory_))->List()))
      if (each.finished) files.push_back(each.file);
    return files;
  }
  uint64_t bytes() const { return bytes_; }
  int puts() const { return puts_; }  // calls
  // Finds a file damaged.
  void SetAside(const WholeFile& file) const {
    Must(Must(FileStore::Open(directory_))->SetAside(file));
  }

 private:
  class Target final : public BulkTarget {
   public:
    Target(FakeReplica& replica, std::unique_ptr<FileStore> store)
        : replica_(replica), store_(std::move(store)) {}
    Result<std::vector<StoredFile>> List() override {
      HL_RETURN_IF_ERROR(replica_.Next());
      if (const auto forgets = replica_.BeginList(); forgets.has_value())
        store_->Remove(forgets->first).IgnoreError();
      std::vector<StoredFile> files;
      for (const auto& each : Must(store_->List()))
        files.push_back({each.file, each.received, each.finished});
      return files;
    }
    Result<uint64_t> Put(const WholeFile& file, uint64_t offset,
                         std::span<const char> bytes) override {
      HL_RETURN_IF_ERROR(replica_.Next());
      ++replica_.puts_;
      HL_RETURN_IF_ERROR(replica_.PutFailure(file));
      if (replica_.refuses_ends_ && offset + bytes.size() == file.size) {
        Must(store_->Remove(file));
        return Corruption("the bytes that arrived are not those listed");
      }
      if (replica_.takes_nothing_) return uint64_t{0};
      if (replica_.Drips()) bytes = bytes.first(std::min<size_t>(bytes.size(), 1));
      replica_.bytes_ += bytes.size();
      return store_->Write(file, offset, std::as_bytes(bytes));
    }
    Result<uint64_t> Get(const WholeFile& file, uint64_t offset, std::span<char> out) override {
      HL_RETURN_IF_ERROR(replica_.Next());
      out = out.first(std::min(out.size(), replica_.MostOfGet()));
      const Result<uint64_t> got = store_->Read(file, offset, std::as_writable_bytes(out));
      if (got.ok() && replica_.rots_gets_) std::ranges::fill(out.first(*got), '?');
      return got;
    }
    Status Drop(const WholeFile& file) override {
      HL_RETURN_IF_ERROR(replica_.Next());
      HL_RETURN_IF_ERROR(replica_.DropFailure());
      return store_->Remove(file);
    }

   private:
    FakeReplica& replica_;
    const std::unique_ptr<FileStore> store_;
  };

  Status PutFailure(const WholeFile& file) {
    const std::lock_guard lock(mutex_);
    if (each_put_ != nullptr) each_put_();
    if (forgets_.has_value() && forgets_->second == file) return Unavailable("it hung up");
    return put_failure_;
  }
  std::optional<std::pair<WholeFile, WholeFile>> BeginList() {
    const std::lock_guard lock(mutex_);
    if (each_list_ != nullptr) each_list_();
    return forgets_;
  }
  bool Drips() {
    const std::lock_guard lock(mutex_);
    if (drip_ == nullptr) return false;
    drip_();
    return true;
  }
  size_t MostOfGet() {
    const std::lock_guard lock(mutex_);
    if (each_get_ != nullptr) each_get_();
    return most_of_get_;
  }
  Status DropFailure() {
    const std::lock_guard lock(mutex_);
    return drop_failure_;
  }
  Status Next() {
    std::unique_lock lock(mutex_);
    if (calls_left_ > 0) --calls_left_;
    stopped_ = calls_left_ == 0;
    if (stopped_) go_.notify_all();
    go_.wait(lock, [this] { return calls_left_ != 0; });
    stopped_ = false;
    return failure_;
  }

  const std::string directory_;
  std::atomic<uint64_t> bytes_{0};
  std::atomic<int> puts_{0};
  std::atomic<bool> refuses_ends_{false}, takes_nothing_{false}, rots_gets_{false};
  std::mutex mutex_;
  std::condition_variable go_;
  int calls_left_ = -1;
  bool stopped_ = false;
  std::function<void()> drip_, each_put_, each_get_, each_list_;
  std::optional<std::pair<WholeFile, WholeFile>> forgets_;  // the file that is lost, and the other
  size_t most_of_get_ = SIZE_MAX;
  Status failure_, put_failure_, drop_failure_;
};

class BulkLaneFixture : public ::testing::Test {
 protected:
  static constexpr size_t kPiece = 4;

  BulkLaneFixture() {
    std::string pattern = testing::TempDir() + "/hyperloop-bulk-XXXXXX";
    base_ = mkdtemp(pattern.data());
    Use(2);
  }
  ~BulkLaneFixture() override {
    for (const auto& each : replicas_) each->Go();
    lane_.reset();
    std::filesystem::remove_all(base_);
  }

  // The error of a wait for the files, once it gives this reason, or that of 30 s later.
  Status AwaitRefusal(std::string_view reason) {
    const auto until = std::chrono::steady_clock::now() + kLongWait;
    Status refused;
    do {
      refused = lane_->Await(std::chrono::milliseconds(1));
    } while (!refused.ok() && refused.message().find(reason) == std::string::npos &&
             std::chrono::steady_clock::now() < until);
    return refused;
  }
  static std::string NameOf(size_t i) { return "replica" + std::to_string(i); }
  // Begins a lane to so many replicas.
  void Use(size_t count) {
    while (replicas_.size() < count)
      replicas_.push_back(std::make_unique<FakeReplica>(base_ + "/" + NameOf(replicas_.size())));
    Begin();
  }
  void Begin() {
    std::vector<std::string> names;
    for (size_t i = 0; i < replicas_.size(); ++i) names.push_back(NameOf(i));
    lane_ = std::make_unique<BulkLane>(
        std::move(names),
        [this](const std::string& name, uint64_t offset, std::span<char> out) {
          return ReadLocal(name, offset, out);
        },
        BulkLane::Options{.piece = kPiece,
                          .list_again = list_again_,
                          .scrub_tick = scrub_tick_,
                          .mend_local = mend_local_,
                          .tell_damage =
                              [this](const std::string& damage) {
                                const std::lock_guard lock(mutex_);
                                damage_ = damage;
                              },
                          .now = [this] { return Now(); }},
        nullptr);
  }
  std::chrono::steady_clock::time_point Now() const {
    return std::chrono::steady_clock::time_point(std::chrono::seconds(seconds_));
  }
  void Aim() {
    std::vector<BulkLane::Target> targets;
    for (const auto& each : replicas_) targets.push_back({each->connect()});
    lane_->SetTargets(std::move(targets), replicas_.size());
  }
  // The group has `of` replicas, of which the first counts and the second catches up.
  void AimAtTwo(size_t of) {
    std::vector<BulkLane::Target> targets(replicas_.size());
    targets[0] = {replicas_[0]->connect()};
    targets[1] = {replicas_[1]->connect(), true};
    lane_->SetTargets(std::move(targets), of);
  }
  // Every local read fails with `with` from now on.
  void FailReads(Status with) {
    const std::lock_guard lock(mutex_);
    read_failure_ = std::move(with);
  }
  // Ends the lane once only the first `count` replicas hold what is listed, and begins another one,
  // as the next opening does.
  void BeginAnewWithHolders(size_t count) {
    std::vector<BulkLane::Target> targets(replicas_.size());
    for (size_t i = 0; i < count; ++i) targets[i].connect = replicas_[i]->connect();
    lane_->SetTargets(std::move(targets), replicas_.size());
    ASSERT_OK(lane_->Await(kLongWait, kLongWait, Holders::kAll));
    lane_.reset();
    Begin();
    SetListed();
  }
  // The replica begins no file before Go. Returns when it has told what it holds.
  void StopPuts(std::span<const size_t> indices) {
    constexpr int kFirstPut = 3;  // connecting and the list come first
    for (const size_t i : indices) replicas_[i]->StopAt(kFirstPut);
    Aim();
    for (const size_t i : indices) replicas_[i]->AwaitStopped();
  }
  // Makes a local file. The caller lists it.
  WholeFile Make(const std::string& name, const std::string& content) {
    FileChecksum checksum;
    checksum.Add(content);
    const std::lock_guard lock(mutex_);
    local_[name] = content;
    return {name, content.size(), checksum.value()};
  }
  void List(const WholeFile& file) {
    listed_[file.name] = file;
    SetListed();
  }
  void Remove(const std::string& name) {
    listed_.erase(name);
    SetListed();
  }
  void SetListed() {
    std::vector<WholeFile> files;
    for (const auto& [name, file] : listed_) files.push_back(file);
    lane_->Set(files);
  }
  void Unlink(const std::string& name) {
    const std::lock_guard lock(mutex_);
    local_.erase(name);
  }
  Result<uint64_t> ReadLocal(const std::string& name, uint64_t offset, std::span<char> out) {
    const std::lock_guard lock(mutex_);
    if (offset > 0) ++later_reads_;
    if (!read_failure_.ok()) {
      ++failed_reads_;
      return read_failure_;
    }
    if (name == endless_ && offset >= 2 * kPiece &&
        std::chrono::steady_clock::now() < endless_until_) {
      std::ranges::fill(out, 'x');
      return uint64_t{out.size()};
    }
    const auto found = local_.find(name);
    if (found == local_.end()) return NotFound("no " + name);
    const std::string_view rest =
        std::string_view(found->second)
            .substr(std::min<uint64_t>(offset,
                                       found->second.size()));  // past the end: no bytes
    return uint64_t{rest.copy(out.data(), out.size())};
  }

  // Mends the local files in memory from now on.
  void UseMending() {
    lane_.reset();
    mend_local_ = [this](const WholeFile& file, const FetchWhole& fetch,
                         const std::function<bool()>& listed) -> Status {
      std::string bytes;
      HL_RETURN_IF_ERROR(fetch([&](std::span<const char> piece) -> Status {
        bytes.append(piece.data(), piece.size());
        return {};
      }));
      if (!listed()) return NotFound("it was dropped");
      const std::lock_guard lock(mutex_);
      local_[file.name] = bytes;
      read_failure_ = {};
      ++mends_;
      return {};
    };
    Begin();
  }
  std::string Local(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = local_.find(name);
    return found == local_.end() ? "" : found->second;
  }
  std::string Damage() {
    const std::lock_guard lock(mutex_);
    return damage_;
  }

  std::string base_;
  std::atomic<int> seconds_{0};  // of the clock by which replicas are slow
  std::chrono::milliseconds list_again_ = std::chrono::seconds(3600),
                            scrub_tick_ = std::chrono::seconds(3600);
  MendWhole mend_local_;
  std::vector<std::unique_ptr<FakeReplica>> replicas_;
  std::mutex mutex_;
  std::map<std::string, std::string> local_;
  std::string damage_;   // as the lane told it last
  std::string endless_;  // reads of its end give more bytes until endless_until_
  std::chrono::steady_clock::time_point endless_until_{};
  Status read_failure_;                                           // of every local read
  std::atomic<int> failed_reads_{0}, later_reads_{0}, mends_{0};  // later: not of the first bytes
  std::map<std::string, WholeFile> listed_;
  std::unique_ptr<BulkLane> lane_;
};

}  // namespace hyperloop::test
