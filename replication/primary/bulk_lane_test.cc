// Tests the bulk lane over the stores that replicas have, with connections that may fail.
#include "primary/bulk_lane.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <string_view>

#include "pool/file_store.h"
#include "support/eventually.h"
#include "support/must.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr seconds kLongWait{30};  // longer than any of it takes

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
  // The bytes that end a file are refused from now on, and what arrived of it is dropped.
  void RefuseEnds() { refuses_ends_ = true; }
  // Each Put takes no byte from now on, and says so.
  void TakeNothing() { takes_nothing_ = true; }
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
      std::vector<StoredFile> files;
      for (const auto& each : Must(store_->List()))
        files.push_back({each.file, each.received, each.finished});
      return files;
    }
    Result<uint64_t> Put(const WholeFile& file, uint64_t offset,
                         std::span<const char> bytes) override {
      HL_RETURN_IF_ERROR(replica_.Next());
      ++replica_.puts_;
      HL_RETURN_IF_ERROR(replica_.PutFailure());
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

  Status PutFailure() {
    const std::lock_guard lock(mutex_);
    return put_failure_;
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
  std::function<void()> drip_, each_get_;
  size_t most_of_get_ = SIZE_MAX;
  Status failure_, put_failure_, drop_failure_;
};

class BulkLaneTest : public ::testing::Test {
 protected:
  static constexpr size_t kPiece = 4;

  BulkLaneTest() {
    std::string pattern = testing::TempDir() + "/hyperloop-bulk-XXXXXX";
    base_ = mkdtemp(pattern.data());
    Use(2);
  }
  ~BulkLaneTest() override {
    for (const auto& each : replicas_) each->Go();
    lane_.reset();
    std::filesystem::remove_all(base_);
  }

  // The error of a wait for the files, once it gives this reason, or that of 30 s later.
  Status AwaitRefusal(std::string_view reason) {
    const auto until = std::chrono::steady_clock::now() + kLongWait;
    Status refused;
    do {
      refused = lane_->Await(milliseconds(1));
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
    return std::chrono::steady_clock::time_point(seconds(seconds_));
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

  std::string base_;
  std::atomic<int> seconds_{0};  // of the clock by which replicas are slow
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

  milliseconds list_again_ = seconds(3600), scrub_tick_ = seconds(3600);
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

TEST_F(BulkLaneTest, EveryReplicaHoldsWhatIsListed) {
  Aim();
  const WholeFile table = Make("000007.sst", "more than one piece"), empty = Make("e.sst", "");
  List(table);
  List(empty);
  ASSERT_OK(lane_->Await(kLongWait));
  for (const auto& each : replicas_)
    EXPECT_THAT(each->Finished(), testing::UnorderedElementsAre(table, empty));
}

TEST_F(BulkLaneTest, WhatIsListedNoMoreIsDropped) {
  Aim();
  const WholeFile old = Make("000007.sst", "old"), other = Make("000008.sst", "other");
  List(old);
  List(other);
  ASSERT_OK(lane_->Await(kLongWait));
  const WholeFile fresh = Make("000007.sst", "new bytes");
  Remove("000008.sst");
  List(fresh);
  ASSERT_OK(lane_->Await(kLongWait));
  lane_.reset();  // the thread finishes its step; the next lane asks what is there
  Begin();
  SetListed();
  Aim();
  ASSERT_OK(lane_->Await(kLongWait));
  const WholeFile last = Make("000009.sst", "l");
  List(last);  // it is sent after the others are dropped
  ASSERT_OK(lane_->Await(kLongWait));
  for (const auto& each : replicas_)
    EXPECT_THAT(each->Finished(), testing::UnorderedElementsAre(fresh, last));
}

// It is held before it is listed, flushes do not wait for it, and it is kept when it changes lanes.
TEST_F(BulkLaneTest, AFileThatLeavesTheRegionIsHeldBeforeItIsListed) {
  Aim();
  const WholeFile table = Make("000007.sst", "table"), log = Make("000004.log", "log bytes");
  replicas_[1]->FailPuts(NoSpace("its disk is full"));
  lane_->SetLeaving({log});
  EXPECT_THAT(lane_->AwaitLeaving(log, milliseconds(1), lane_->interrupts()),
              StatusIs(Code::kUnavailable, HasSubstr("lacks 1 files")));
  EXPECT_OK(lane_->Await(milliseconds(1))) << "nothing is listed";
  replicas_[1]->FailPuts({});
  ASSERT_OK(lane_->AwaitLeaving(log, kLongWait, lane_->interrupts()));
  for (const auto& each : replicas_) EXPECT_THAT(each->Finished(), testing::ElementsAre(log));
  const uint64_t bytes = replicas_[0]->bytes();
  List(log);
  lane_->SetLeaving({});
  List(table);  // it would be sent after anything that is to be dropped
  ASSERT_OK(lane_->Await(kLongWait));
  for (const auto& each : replicas_)
    EXPECT_THAT(each->Finished(), testing::UnorderedElementsAre(log, table));
  EXPECT_EQ(replicas_[0]->bytes(), bytes + table.size) << "the log was sent once";
}

// Writes may wait for the file that leaves, and flushes for the tables.
TEST_F(BulkLaneTest, ListedFilesAndThoseThatLeaveTakeTurns) {
  const std::string three(3 * kPiece, 'x');
  const WholeFile first = Make("1.sst", three), second = Make("2.sst", three + "2");
  const WholeFile log = Make("000004.log", three + "3"), next = Make("000005.log", three + "4");
  for (const WholeFile& each : {first, second, Make("3.sst", three + "5")}) List(each);
  lane_->SetLeaving({log, next});
  constexpr int kBefore = 2 + 3 + 4 + 4 + 4;  // calls: connecting, the list, and the pieces
  for (const auto& each : replicas_) each->StopAt(kBefore + 1);
  Aim();
  for (const auto& each : replicas_) {
    each->AwaitStopped();
    EXPECT_THAT(each->Finished(), testing::UnorderedElementsAre(first, log, second, next));
    each->Go();
  }
  ASSERT_OK(lane_->Await(kLongWait, kLongWait, Holders::kAll));
}

TEST_F(BulkLaneTest, WhatDoesNotLeaveTheRegionAfterAllIsDropped) {
  Aim();
  const WholeFile table = Make("000007.sst", "table"), log = Make("000004.log", "log bytes");
  lane_->SetLeaving({log});
  ASSERT_OK(lane_->AwaitLeaving(log, kLongWait, lane_->interrupts()));
  lane_->SetLeaving({});
  EXPECT_OK(lane_->AwaitLeaving(log, milliseconds(1), lane_->interrupts()));
  List(table);
  ASSERT_OK(lane_->Await(kLongWait));
  for (const auto& each : replicas_) EXPECT_THAT(each->Finished(), testing::ElementsAre(table));
}

TEST_F(BulkLaneTest, AnArchivedLogIsNotSentAgain) {
  Aim();
  const WholeFile log = Make("000004.log", "log bytes of several pieces");
  List(log);
  ASSERT_OK(lane_->Await(kLongWait));
  const uint64_t bytes = replicas_[0]->bytes();
  // The local file gets its new name after the group knows it.
  const WholeFile archived{"archive/000004.log", log.size, log.checksum};
  listed_.erase(log.name);
  List(archived);
  ASSERT_OK(lane_->Await(kLongWait));
  EXPECT_EQ(replicas_[0]->bytes(), bytes);
  const WholeFile table = Make("zzz.sst", "t");
  List(table);  // it is sent after the old name is dropped
  ASSERT_OK(lane_->Await(kLongWait));
  for (const auto& each : replicas_)
    EXPECT_THAT(each->Finished(), testing::UnorderedElementsAre(archived, table));
}

TEST_F(BulkLaneTest, AWaitForALeavingFileSeesAnInterruptThatCameBefore) {
  const WholeFile log = Make("000004.log", "log bytes");
  Aim();
  replicas_[0]->FailPuts(NoSpace("its disk is full"));
  lane_->SetLeaving({log});
  const uint64_t before = lane_->interrupts();
  lane_->Interrupt();
  EXPECT_THAT(lane_->AwaitLeaving(log, kLongWait, before), StatusIs(Code::kUnavailable));
}

TEST_F(BulkLaneTest, WhatAReplicaSetAsideIsSentAgainThoughNothingElseIsToSend) {
  lane_.reset();
  list_again_ = milliseconds(1);
  Begin();
  Aim();
  const WholeFile table = Make("000007.sst", "table"), other = Make("000008.sst", "other");
  List(table);
  List(other);
  ASSERT_OK(lane_->Await(kLongWait));
  replicas_[1]->SetAside(table);
  EXPECT_TRUE(test::Eventually([&] { return replicas_[1]->Finished().size() == 2; }));
  EXPECT_THAT(replicas_[1]->Finished(), testing::UnorderedElementsAre(table, other));
  EXPECT_OK(lane_->Await(kLongWait));
}

TEST_F(BulkLaneTest, AReplicaThatDoesNotListAgainStillHoldsWhatItHeld) {
  lane_.reset();
  list_again_ = milliseconds(1);
  Begin();
  Aim();
  List(Make("000007.sst", "table"));
  ASSERT_OK(lane_->Await(kLongWait));
  replicas_[0]->StopAt(1);
  replicas_[0]->AwaitStopped();
  EXPECT_OK(lane_->Await(milliseconds(1)));
  replicas_[0]->Fail(Unavailable("the wire is cut"));
  replicas_[0]->Go();
  EXPECT_OK(lane_->Await(milliseconds(1)));
}

TEST_F(BulkLaneTest, ABreakInTheMiddleOfAFileSendsOnlyTheRest) {
  const WholeFile table = Make("000007.sst", std::string(40, 'x'));
  replicas_[0]->StopAt(6);  // connecting and the list come first, then pieces
  Aim();
  lane_->Set({table});
  replicas_[0]->AwaitStopped();
  replicas_[0]->Fail(Unavailable("the wire is cut"));
  replicas_[0]->Go();
  EXPECT_THAT(lane_->Await(milliseconds(1)),
              StatusIs(Code::kUnavailable, AllOf(HasSubstr("replica0 lacks 1 files"),
                                                 HasSubstr("hyperloopctl status"))));
  replicas_[0]->Fail({});
  ASSERT_OK(lane_->Await(kLongWait));
  EXPECT_EQ(replicas_[0]->bytes(), 40u) << "a piece was sent twice";
  EXPECT_THAT(replicas_[0]->Finished(), testing::ElementsAre(table));
}

TEST_F(BulkLaneTest, AnAcknowledgementEndsWithTheReplicaThatGaveIt) {
  Aim();
  const WholeFile table = Make("000007.sst", "bytes");
  List(table);
  ASSERT_OK(lane_->Await(kLongWait));
  // Another replica, empty, under the same name.
  std::filesystem::remove_all(base_ + "/replica1");
  Aim();
  ASSERT_OK(lane_->Await(kLongWait));
  EXPECT_THAT(replicas_[1]->Finished(), testing::ElementsAre(table));
}

TEST_F(BulkLaneTest, ALocalFileWithOtherBytesIsNoReplicas) {
  Aim();
  WholeFile table = Make("000007.sst", "as listed");
  Make("000007.sst", "otherwise");
  List(table);
  EXPECT_THAT(AwaitRefusal("000007.sst"), StatusIs(Code::kUnavailable, HasSubstr("000007.sst")));
  for (const auto& each : replicas_) EXPECT_TRUE(each->Finished().empty());
}

TEST_F(BulkLaneTest, ALocalFileThatWasCutIsNoReplicas) {
  const WholeFile table = Make("000007.sst", std::string(40, 'x'));
  List(table);
  for (const auto& each : replicas_) each->StopAt(6);  // first connecting and the list
  Aim();
  for (const auto& each : replicas_) each->AwaitStopped();
  Make("000007.sst", "cut");
  for (const auto& each : replicas_) each->Go();
  EXPECT_THAT(AwaitRefusal("000007.sst"), StatusIs(Code::kUnavailable, HasSubstr("000007.sst")));
  for (const auto& each : replicas_) EXPECT_TRUE(each->Finished().empty());
}

// A rotten table of the primary, a cut one and a lost one are no reason to send nothing else.
TEST_F(BulkLaneTest, AFileThatCannotBeSentHoldsUpNoOther) {
  const WholeFile rotten = Make("000007.sst", "as listed"), cut = Make("000008.sst", "whole"),
                  lost = Make("000009.sst", "bytes"), sound = Make("000010.sst", "sound");
  Make("000007.sst", "otherwise");
  Make("000008.sst", "wh");
  Unlink("000009.sst");
  for (const WholeFile& each : {rotten, cut, lost, sound}) List(each);
  Aim();
  for (const auto& each : replicas_)
    EXPECT_TRUE(test::Eventually([&] { return !each->Finished().empty(); }));
  for (const auto& each : replicas_) EXPECT_THAT(each->Finished(), testing::ElementsAre(sound));
  EXPECT_THAT(
      AwaitRefusal("lacks 3 files"),
      StatusIs(Code::kUnavailable, AllOf(HasSubstr("lacks 3 files"), HasSubstr("000007.sst"))));
  Make("000007.sst", "as listed");
  Make("000008.sst", "whole");
  Make("000009.sst", "bytes");
  ASSERT_OK(lane_->Await(kLongWait, kLongWait, Holders::kAll));
  for (const auto& each : replicas_) EXPECT_EQ(each->Finished().size(), 4u);
}

// A replica was refilled, and the primary's own table has rotted meanwhile.
TEST_F(BulkLaneTest, ADamagedLocalFileIsMendedFromAReplicaThatHoldsIt) {
  UseMending();
  const WholeFile table = Make("000007.sst", "as listed");
  List(table);
  Aim();
  ASSERT_OK(lane_->Await(kLongWait, kLongWait, Holders::kAll));
  std::filesystem::remove_all(base_ + "/replica1");
  Make("000007.sst", "otherwise");
  Aim();
  ASSERT_OK(lane_->Await(kLongWait, kLongWait, Holders::kAll));
  EXPECT_EQ(Local("000007.sst"), "as listed");
  EXPECT_THAT(replicas_[1]->Finished(), testing::ElementsAre(table));
}

TEST_F(BulkLaneTest, WhatNoReplicaHoldsSoundIsNotMended) {
  UseMending();
  const WholeFile table = Make("000007.sst", "as listed"), sound = Make("000008.sst", "sound");
  Make("000007.sst", "otherwise");
  List(table);
  List(sound);
  Aim();
  EXPECT_THAT(AwaitRefusal("no replica within reach"),
              StatusIs(Code::kUnavailable, AllOf(HasSubstr("000007.sst"), HasSubstr("damaged"))));
  EXPECT_EQ(Local("000007.sst"), "otherwise");
}

// An opening goes on without one that cannot be had then. Of three replicas one is away, so flushes
// wait for the other two.
TEST_F(BulkLaneTest, AnArchivedLogThatIsMissingHereIsBroughtAndSentSoThatFlushesGoOn) {
  UseMending();
  const WholeFile log = Make("archive/000004.log", "log bytes"), table = Make("000007.sst", "table");
  List(log);
  ASSERT_NO_FATAL_FAILURE(BeginAnewWithHolders(1));
  Unlink(log.name);
  AimAtTwo(/*of=*/3);
  List(table);
  ASSERT_OK(lane_->Await(kLongWait));
  EXPECT_EQ(Local(log.name), "log bytes");
  for (const auto& each : replicas_)
    EXPECT_THAT(each->Finished(), testing::UnorderedElementsAre(log, table));
  EXPECT_EQ(Damage(), "");
}

TEST_F(BulkLaneTest, AMissingArchivedLogIsBroughtThoughEveryReplicaHoldsIt) {
  scrub_tick_ = milliseconds(1);
  UseMending();
  List(Make("archive/000004.log", "log bytes"));
  Aim();
  ASSERT_OK(lane_->Await(kLongWait, kLongWait, Holders::kAll));
  Unlink("archive/000004.log");
  EXPECT_TRUE(test::Eventually([&] { return Local("archive/000004.log") == "log bytes"; }));
}

// RocksDB may have deleted it.
TEST_F(BulkLaneTest, AMissingTableIsNotBrought) {
  UseMending();
  List(Make("000007.sst", "bytes"));
  ASSERT_NO_FATAL_FAILURE(BeginAnewWithHolders(1));
  Unlink("000007.sst");
  AimAtTwo(/*of=*/3);
  EXPECT_THAT(AwaitRefusal("no 000007.sst"),
              StatusIs(Code::kUnavailable, HasSubstr("no 000007.sst")))
      << "it was looked at again";
  EXPECT_EQ(mends_, 0);
}

TEST_F(BulkLaneTest, DamagedLocalFilesAreToldUntilTheyAreSoundOrNotListed) {
  UseMending();
  const WholeFile first = Make("000007.sst", "as listed"), second = Make("000008.sst", "too");
  Make("000007.sst", "otherwise");
  Make("000008.sst", "not");
  List(first);
  List(second);
  Aim();
  ASSERT_TRUE(test::Eventually([&] { return lane_->damaged() == 2; }));
  EXPECT_THAT(Damage(), AllOf(HasSubstr("mended: 2; the first is 000007.sst (9 B)"),
                              HasSubstr("no replica within reach holds it")));
  Make("000007.sst", "as listed");
  ASSERT_TRUE(test::Eventually([&] { return lane_->damaged() == 1; }));
  EXPECT_THAT(Damage(), HasSubstr("mended: 1; the first is 000008.sst"));
  Remove("000008.sst");
  EXPECT_EQ(lane_->damaged(), 0u);
  EXPECT_EQ(Damage(), "");
}

TEST_F(BulkLaneTest, ADamagedFileThatLeavesNoMoreIsNotTold) {
  UseMending();
  const WholeFile log = Make("000004.log", "as described");
  Make("000004.log", "otherwise");
  lane_->SetLeaving({log});
  Aim();
  ASSERT_TRUE(test::Eventually([&] { return lane_->damaged() == 1; }));
  lane_->SetLeaving({});
  EXPECT_EQ(lane_->damaged(), 0u);
  EXPECT_EQ(Damage(), "");
}

// Every replica holds the table, so that nothing is sent.
TEST_F(BulkLaneTest, ALocalFileThatRotsIsFoundAndMended) {
  scrub_tick_ = milliseconds(1);
  UseMending();
  List(Make("000007.sst", "as listed"));
  Aim();
  ASSERT_OK(lane_->Await(kLongWait, kLongWait, Holders::kAll));
  Make("000007.sst", "otherwise");
  EXPECT_TRUE(test::Eventually([&] { return Local("000007.sst") == "as listed"; }));
}

// The slow one is asked first, and left in the middle; what both gave is wrong together.
TEST_F(BulkLaneTest, ASlowReplicaMendsWhereAFastOneGivesWrongBytes) {
  constexpr size_t kPieceOfGet = 40 << 10;
  const std::string content(3 * kPieceOfGet, 'x');
  scrub_tick_ = milliseconds(1);
  UseMending();
  List(Make("000007.sst", content));
  Aim();
  ASSERT_OK(lane_->Await(kLongWait, kLongWait, Holders::kAll));
  replicas_[0]->SlowGets(kPieceOfGet, [this] { seconds_ += 3; });
  replicas_[1]->RotGets();
  Make("000007.sst", "otherwise");
  EXPECT_TRUE(test::Eventually([&] { return Local("000007.sst") == content; }));
}

// A host that is short of descriptors has sound files.
TEST_F(BulkLaneTest, ALocalFileThatCannotBeOpenedIsNotDamaged) {
  UseMending();
  List(Make("000007.sst", "as listed"));
  Aim();
  ASSERT_OK(lane_->Await(kLongWait, kLongWait, Holders::kAll));
  std::filesystem::remove_all(base_ + "/replica1");
  FailReads(Internal("Too many open files"));
  Aim();
  constexpr int kSomeTries = 4;
  ASSERT_TRUE(test::Eventually([&] { return failed_reads_ >= kSomeTries; }));
  EXPECT_EQ(mends_, 0);
  FailReads(Corruption("the disk cannot read it"));
  ASSERT_TRUE(test::Eventually([&] { return mends_ > 0; }));
  EXPECT_OK(lane_->Await(kLongWait, kLongWait, Holders::kAll));
}

TEST_F(BulkLaneTest, ARefusalThatTheReplicasDiskCausesIsNoReasonToReadTheWholeLocalFile) {
  UseMending();
  for (const auto& each : replicas_) each->FailPuts(Internal("the disk fails"));
  List(Make("000007.sst", std::string(10 * kPiece, 'x')));
  Aim();
  for (const auto& each : replicas_)
    ASSERT_TRUE(test::Eventually([&] { return each->puts() >= 3; }));
  EXPECT_EQ(later_reads_, 0);
}

// The check of a large file takes long.
TEST_F(BulkLaneTest, ACheckOfALocalFileHoldsUpNeitherAnotherReplicaNorTheEndOfTheLane) {
  UseMending();
  const WholeFile table = Make("000007.sst", "as listed");
  Make("000007.sst", "otherwise");
  {
    const std::lock_guard lock(mutex_);
    endless_ = "000007.sst";
    endless_until_ = std::chrono::steady_clock::now() + kLongWait;
  }
  List(table);
  const int whole = 3 * static_cast<int>(replicas_.size());  // a try at each takes three pieces
  Aim();
  EXPECT_TRUE(
      test::Eventually([&] { return replicas_[0]->puts() + replicas_[1]->puts() > whole; }));
  lane_.reset();
  EXPECT_LT(std::chrono::steady_clock::now(), endless_until_);
}

TEST_F(BulkLaneTest, AFileThatAReplicaDoesNotDropHoldsUpNoOther) {
  Aim();
  List(Make("000007.sst", "old"));
  ASSERT_OK(lane_->Await(kLongWait));
  replicas_[0]->FailDrops(PermissionDenied("the file is immutable"));
  const WholeFile fresh = Make("000008.sst", "fresh");
  Remove("000007.sst");
  List(fresh);
  ASSERT_OK(lane_->Await(kLongWait));
  EXPECT_THAT(replicas_[0]->Finished(), testing::Contains(fresh));
  replicas_[0]->FailDrops({});
  EXPECT_TRUE(test::Eventually([&] { return replicas_[0]->Finished().size() == 1; }));
}

TEST_F(BulkLaneTest, AFileThatIsRemovedMeanwhileHoldsUpNobody) {
  const WholeFile table = Make("000007.sst", "bytes");
  List(table);
  Unlink("000007.sst");
  Aim();
  std::atomic<bool> done{false};
  std::thread waits([&] {
    EXPECT_OK(lane_->Await(kLongWait));
    done = true;
  });
  Remove("000007.sst");
  waits.join();
  EXPECT_TRUE(done);
}

TEST_F(BulkLaneTest, OneSlowReplicaKeepsTheOtherFromNothing) {
  replicas_[0]->StopAt(1);
  Aim();
  replicas_[0]->AwaitStopped();
  const WholeFile table = Make("000007.sst", "bytes");
  List(table);
  while (replicas_[1]->Finished().empty()) std::this_thread::yield();
  EXPECT_THAT(lane_->Await(milliseconds(1)), StatusIs(Code::kUnavailable, HasSubstr("replica0")));
  replicas_[0]->Go();
  ASSERT_OK(lane_->Await(kLongWait));
}

TEST_F(BulkLaneTest, AReplicaThatIsLeftOutIsNotWaitedForUntilItHasCaughtUp) {
  const WholeFile table = Make("000007.sst", std::string(40, 'x'));
  List(table);
  std::vector<BulkLane::Target> targets(2);
  targets[0].connect = replicas_[0]->connect();
  lane_->SetTargets(std::move(targets), 2);
  ASSERT_OK(lane_->Await(kLongWait));
  replicas_[1]->StopAt(1);
  Aim();
  replicas_[1]->AwaitStopped();
  ASSERT_OK(lane_->Await(kLongWait)) << "it is back, but has nothing yet";
  EXPECT_THAT(replicas_[1]->Finished(), testing::IsEmpty());
  replicas_[1]->Go();
  ASSERT_OK(lane_->Await(kLongWait, kLongWait, Holders::kAll));
  EXPECT_THAT(replicas_[1]->Finished(), testing::ElementsAre(table));
  replicas_[1]->FailPuts(NoSpace("the disk is full"));
  List(Make("000008.sst", "bytes"));
  EXPECT_THAT(AwaitRefusal("replica1"), StatusIs(Code::kUnavailable, HasSubstr("replica1")))
      << "it counts again";
}

// As a new replica does whose group is opened again before it has all tables.
TEST_F(BulkLaneTest, AReplicaThatLacksFilesAtTheBeginningIsNotWaitedForUntilItHasThem) {
  Use(3);
  List(Make("000007.sst", "bytes"));
  ASSERT_NO_FATAL_FAILURE(BeginAnewWithHolders(2));
  StopPuts(std::array<size_t, 1>{2});
  ASSERT_OK(lane_->Await(kLongWait));
  const WholeFile table = Make("000008.sst", "more bytes");
  List(table);
  ASSERT_OK(lane_->Await(kLongWait));
  EXPECT_THAT(replicas_[1]->Finished(), testing::Contains(table)) << "it had all, and counts";
  EXPECT_THAT(replicas_[2]->Finished(), testing::IsEmpty());
  replicas_[2]->Go();
  ASSERT_OK(lane_->Await(kLongWait, kLongWait, Holders::kAll));
  replicas_[2]->FailPuts(Unavailable("the disk is slow"));
  List(Make("000009.sst", "bytes"));
  EXPECT_THAT(AwaitRefusal("replica2"), StatusIs(Code::kUnavailable, HasSubstr("replica2")))
      << "it counts again";
}

// A majority can open the database, and must find each file: at least half hold it.
TEST_F(BulkLaneTest, IfTooFewHoldAllFilesTheOthersAreWaitedForUntilEnoughDo) {
  Use(3);
  List(Make("000007.sst", "bytes"));
  ASSERT_NO_FATAL_FAILURE(BeginAnewWithHolders(1));
  StopPuts(std::array<size_t, 2>{1, 2});
  EXPECT_THAT(lane_->Await(milliseconds(1)), StatusIs(Code::kUnavailable, HasSubstr("lacks")));
  replicas_[1]->Go();
  ASSERT_OK(lane_->Await(kLongWait));
  EXPECT_THAT(replicas_[2]->Finished(), testing::IsEmpty());
}

// What is new was never there, however late a replica says what it holds.
TEST_F(BulkLaneTest, AFileThatIsListedLaterIsWaitedForAtEachReplica) {
  Use(3);
  List(Make("000007.sst", "bytes"));
  ASSERT_NO_FATAL_FAILURE(BeginAnewWithHolders(3));
  replicas_[2]->StopAt(1);
  Aim();
  replicas_[2]->AwaitStopped();
  replicas_[2]->FailPuts(Unavailable("the disk is slow"));
  List(Make("000008.sst", "more bytes"));
  replicas_[2]->Go();
  EXPECT_THAT(AwaitRefusal("the disk is slow"),
              StatusIs(Code::kUnavailable, HasSubstr("replica2 lacks")));
}

// A replica that can be reached but has no room makes no progress, however often it is reached.
TEST_F(BulkLaneTest, AReplicaThatTakesNoBytesIsNamedWithItsReason) {
  replicas_[1]->FailPuts(NoSpace("the disk is full"));
  Aim();
  List(Make("000007.sst", "bytes"));
  EXPECT_THAT(
      AwaitRefusal("the disk is full"),
      StatusIs(Code::kUnavailable, AllOf(HasSubstr("replica1 lacks 1 files"),
                                         HasSubstr("the disk is full"), HasSubstr("make room"))));
  replicas_[1]->FailPuts({});
  ASSERT_OK(lane_->Await(kLongWait));
}

// More than half hold each file, so any majority that opens the database has it.
TEST_F(BulkLaneTest, AReplicaWhoseDiskIsFullHoldsUpNobodyAndComesBackByItself) {
  for (const Status& refusal : {NoSpace("the disk is full"), Internal("the disk fails")}) {
    SCOPED_TRACE(refusal.message());
    Use(3);
    Aim();
    replicas_[1]->FailPuts(refusal);
    const WholeFile table = Make("000007.sst", "bytes");
    List(table);
    EXPECT_OK(lane_->Await(kLongWait));
    for (const size_t i : {0, 2}) EXPECT_THAT(replicas_[i]->Finished(), testing::Contains(table));
    EXPECT_THAT(replicas_[1]->Finished(), testing::IsEmpty());
    replicas_[1]->FailPuts({});
    EXPECT_TRUE(test::Eventually([&] { return !replicas_[1]->Finished().empty(); }));
    EXPECT_TRUE(
        test::Eventually([&] { return lane_->Await(kLongWait, kLongWait, Holders::kAll).ok(); }));
    replicas_[1]->StopAt(1);
    List(Make("000008.sst", "more"));
    replicas_[1]->AwaitStopped();
    EXPECT_FALSE(lane_->Await(milliseconds(1)).ok()) << "it counts again";
    replicas_[1]->Go();
    ASSERT_OK(lane_->Await(kLongWait));
    for (const char* each : {"000007.sst", "000008.sst"}) Remove(each);
    ASSERT_TRUE(test::Eventually([&] { return replicas_[1]->Finished().empty(); }));
  }
}

TEST_F(BulkLaneTest, AFailingDiskIsNamedWithTheWayOutAndAnEndDoesNotWaitForIt) {
  replicas_[1]->FailPuts(PermissionDenied("Read-only file system"));
  Aim();
  List(Make("000007.sst", "bytes"));
  EXPECT_THAT(AwaitRefusal("Read-only"),
              StatusIs(Code::kUnavailable, HasSubstr("the replica can write it")));
  const auto before = std::chrono::steady_clock::now();
  EXPECT_THAT(lane_->Await(kLongWait, std::chrono::hours(1), Holders::kAll),
              StatusIs(Code::kUnavailable, HasSubstr("Read-only")));
  EXPECT_LT(std::chrono::steady_clock::now() - before, kLongWait);
}

// It answers each call, so it is never out of reach, and takes a byte a second.
TEST_F(BulkLaneTest, AReplicaThatTakesFilesTooSlowlyHoldsUpNobody) {
  Use(3);
  Aim();
  ASSERT_OK(lane_->Await(kLongWait));
  replicas_[2]->Drip([this] { ++seconds_; });
  replicas_[2]->StopAt(8);
  const WholeFile table = Make("000007.sst", "forty bytes of a table, of which few come");
  List(table);
  EXPECT_OK(lane_->Await(kLongWait)) << "the others hold it";
  replicas_[2]->Go();
  EXPECT_TRUE(test::Eventually([&] { return replicas_[2]->Finished() == std::vector{table}; }));
}

// Nor is it waited for again because it holds all that is listed.
TEST_F(BulkLaneTest, ASlowReplicaHoldsUpNoFileThatLeaves) {
  Use(3);
  Aim();
  const WholeFile table = Make("000007.sst", "table"), other = Make("000008.sst", "other");
  List(table);
  List(other);
  ASSERT_OK(lane_->Await(kLongWait));
  replicas_[2]->Drip([this] { ++seconds_; });
  replicas_[2]->StopAt(8);
  const WholeFile log = Make("000004.log", "forty bytes of a log, of which few come on");
  lane_->SetLeaving({log});
  EXPECT_OK(lane_->AwaitLeaving(log, kLongWait, lane_->interrupts())) << "the others hold it";
  replicas_[2]->AwaitStopped();
  Remove(other.name);
  EXPECT_OK(lane_->AwaitLeaving(log, kLongWait, lane_->interrupts()));
  replicas_[2]->Go();
  EXPECT_TRUE(test::Eventually([&] {
    return std::ranges::count(replicas_[2]->Finished(), log) == 1;
  })) << "it is sent the file all the same";
}

// Two are no more than half of four, so the third must hold it, too.
TEST_F(BulkLaneTest, ASlowReplicaIsWaitedForWhereTheOthersAreTooFew) {
  Use(3);
  std::vector<BulkLane::Target> targets;
  for (const auto& each : replicas_) targets.push_back({each->connect()});
  lane_->SetTargets(std::move(targets), 4);
  ASSERT_OK(lane_->Await(kLongWait));
  replicas_[2]->Drip([this] { ++seconds_; });
  List(Make("000007.sst", "forty bytes of a table, of which few come"));
  ASSERT_OK(lane_->Await(kLongWait));
  EXPECT_EQ(replicas_[2]->Finished().size(), 1u);
}

// Then one of the others is lost, and one that is left holds the table alone.
TEST_F(BulkLaneTest, ASlowReplicaIsWaitedForAgainOnceAnotherIsGone) {
  Use(3);
  Aim();
  ASSERT_OK(lane_->Await(kLongWait));
  replicas_[2]->Drip([this] { ++seconds_; });
  replicas_[2]->StopAt(8);
  const WholeFile table = Make("000007.sst", "forty bytes of a table, of which few come");
  List(table);
  ASSERT_OK(lane_->Await(kLongWait));
  std::vector<BulkLane::Target> targets(3);
  for (const size_t i : {0, 2}) targets[i].connect = replicas_[i]->connect();
  lane_->SetTargets(std::move(targets), 3);
  EXPECT_THAT(AwaitRefusal("replica2"), StatusIs(Code::kUnavailable, HasSubstr("replica2")));
  replicas_[2]->Go();
  EXPECT_OK(lane_->Await(kLongWait));
  EXPECT_THAT(replicas_[2]->Finished(), testing::ElementsAre(table));
}

// However often its beginning is taken.
TEST_F(BulkLaneTest, AFileThatIsRefusedAtItsEndMakesNoProgress) {
  replicas_[1]->RefuseEnds();
  Aim();
  List(Make("000007.sst", std::string(10 * kPiece, 'x')));
  const auto before = std::chrono::steady_clock::now();
  EXPECT_THAT(lane_->Await(seconds(1), kLongWait),
              StatusIs(Code::kUnavailable, HasSubstr("replica1")));
  EXPECT_LT(std::chrono::steady_clock::now() - before, kLongWait);
}

// As one whose addition was taken back.
TEST_F(BulkLaneTest, AReplicaThatIsNotOfTheGroupIsNotCounted) {
  Use(3);
  List(Make("000007.sst", "bytes"));
  replicas_[1]->StopAt(1);
  AimAtTwo(/*of=*/2);
  replicas_[1]->AwaitStopped();
  EXPECT_OK(lane_->Await(kLongWait));
}

TEST_F(BulkLaneTest, OnlyThoseThatCaughtUpCount) {
  Use(3);
  replicas_[1]->FailPuts(Unavailable("gone"));
  List(Make("000007.sst", "content"));
  AimAtTwo(3);
  EXPECT_TRUE(test::Eventually([&] { return !lane_->FewCount(2); }));
  EXPECT_TRUE(lane_->FewCount(3));
  replicas_[1]->FailPuts({});
  EXPECT_TRUE(test::Eventually([&] { return !lane_->FewCount(3); }));
}

TEST_F(BulkLaneTest, AReplicaThatHasNotSaidWhatItHoldsIsNotKnownToHoldIt) {
  EXPECT_FALSE(lane_->FewCount(2)) << "there is nothing to hold";
  List(Make("000007.sst", "content"));
  for (const auto& each : replicas_) each->StopAt(1);
  Aim();
  for (const auto& each : replicas_) each->AwaitStopped();
  EXPECT_TRUE(lane_->FewCount(2));
  for (const auto& each : replicas_) each->Go();
  EXPECT_TRUE(test::Eventually([&] { return !lane_->FewCount(2); }));
}

TEST_F(BulkLaneTest, AnAbsentReplicaIsCounted) {
  List(Make("000007.sst", "bytes"));
  replicas_[1]->StopAt(1);
  AimAtTwo(/*of=*/3);
  replicas_[1]->AwaitStopped();
  EXPECT_THAT(AwaitRefusal("replica1"), StatusIs(Code::kUnavailable, HasSubstr("replica1")))
      << "one of three is too few";
}

TEST_F(BulkLaneTest, OfTwoReplicasWhoseDisksAreFullOneIsWaitedFor) {
  Use(3);
  Aim();
  for (const size_t i : {1, 2}) replicas_[i]->FailPuts(NoSpace("the disk is full"));
  List(Make("000007.sst", "bytes"));
  EXPECT_THAT(AwaitRefusal("the disk is full"),
              StatusIs(Code::kUnavailable, HasSubstr("make room")));
  replicas_[2]->FailPuts({});
  EXPECT_OK(lane_->Await(kLongWait));
}

TEST_F(BulkLaneTest, AnEndDoesNotWaitForAReplicaWhoseDiskIsFull) {
  replicas_[1]->FailPuts(NoSpace("the disk is full"));
  Aim();
  List(Make("000007.sst", "bytes"));
  EXPECT_THAT(lane_->Await(kLongWait, std::chrono::hours(1), Holders::kAll),
              StatusIs(Code::kUnavailable, HasSubstr("the disk is full")));
}

// A message that cannot be read, the word that another primary was promised the replica: each is
// what one replica says.
TEST_F(BulkLaneTest, NoWordOfOneReplicaHoldsUpTheOthers) {
  Use(3);
  for (const Status& word :
       {Fenced("epoch 2"), InvalidArgument("a name"), NotSupported("a version"),
        Corruption("an answer that does not fit")}) {
    SCOPED_TRACE(word.message());
    Begin();
    replicas_[1]->Fail(word);
    Aim();
    const WholeFile table = Make("000007.sst", word.message());
    List(table);
    EXPECT_OK(lane_->Await(kLongWait));
    for (const size_t i : {0, 2}) EXPECT_THAT(replicas_[i]->Finished(), testing::Contains(table));
    replicas_[1]->Fail({});
  }
}

TEST_F(BulkLaneTest, AReplicaThatSaysThatItTookNothingHoldsUpNobody) {
  Use(3);
  replicas_[1]->TakeNothing();
  Aim();
  List(Make("000007.sst", "bytes"));
  EXPECT_OK(lane_->Await(kLongWait));
}

// The local file is read again, and is sound.
TEST_F(BulkLaneTest, BytesThatOneReplicaAloneCallsWrongHoldUpNobody) {
  Use(3);
  UseMending();
  replicas_[1]->RefuseEnds();
  Aim();
  List(Make("000007.sst", std::string(10 * kPiece, 'x')));
  EXPECT_OK(lane_->Await(kLongWait));
  EXPECT_EQ(mends_, 0);
}

// Another primary has sealed the replica, so there is nothing to wait for.
TEST_F(BulkLaneTest, AReplicaThatRefusesAFormerOwnerEndsTheWait) {
  List(Make("000007.sst", "bytes"));
  for (const auto& each : replicas_) each->FailPuts(Fenced("epoch 2 is not the installed one"));
  Aim();
  EXPECT_THAT(lane_->Await(kLongWait), StatusIs(Code::kUnavailable, HasSubstr("epoch 2")));
}

TEST_F(BulkLaneTest, TheWaitEndsWhenItsLimitIsOverOrItIsInterrupted) {
  List(Make("000007.sst", "bytes"));
  EXPECT_THAT(lane_->Await(kLongWait, milliseconds(1)), StatusIs(Code::kUnavailable));
  std::atomic<bool> done{false};
  std::thread waits([&] {
    EXPECT_THAT(lane_->Await(kLongWait), StatusIs(Code::kUnavailable));
    done = true;
  });
  while (!done) lane_->Interrupt();
  waits.join();
}

}  // namespace
}  // namespace hyperloop
