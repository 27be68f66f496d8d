// A region that fills: finished logs leave it, so that a store takes many times what its data area
// holds. Each file is in one lane at any moment, and whoever opens the group next finds its bytes
// there.
#include <filesystem>
#include <fstream>
#include <map>

#include "integration/session_fixture.h"
#include "region/crc32c.h"
#include "support/must.h"

namespace hyperloop::test {
namespace {

using testing::HasSubstr;

// How often the thread of that name has slept; 0: there is none.
uint64_t SleepsOf(std::string_view thread) {
  std::error_code error;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream status(each.path() / "status");
    std::string word, name;
    uint64_t sleeps = 0;
    while (status >> word) {
      if (word == "Name:") status >> name;
      if (word == "voluntary_ctxt_switches:") status >> sleeps;
    }
    if (name == thread) return sleeps;
  }
  return 0;
}

class SessionLeavingTest : public SessionFixture {
 protected:
  SessionLeavingTest() {
    keep_files_ = true;
    for (size_t i = 0; i < replicas_.size(); ++i) {
      Stop(i);
      StartAgain(i);
    }
  }

  // Whether replicas 1 and 2 keep whole files from now on. The group does not go on without both.
  void LetTwoKeepFiles(bool keep) {
    keep_files_ = keep;
    for (const size_t i : {1, 2}) {
      Stop(i);
      StartAgain(i);
    }
  }
  // The directory is a map.
  TakeRequest WithDirectory() {
    TakeRequest request = Request();
    request.read_local = [this](const std::string& name, uint64_t offset,
                                std::span<char> out) -> Result<uint64_t> {
      const std::lock_guard lock(mutex_);
      const auto found = local_.find(name);
      if (found == local_.end()) return NotFound("no " + name);
      const std::string_view all = found->second;
      return uint64_t{
          all.substr(std::min<uint64_t>(offset, all.size())).copy(out.data(), out.size())};
    };
    request.settle = [this](const std::string& name) -> Result<WholeFile> {
      const std::lock_guard lock(mutex_);
      ++settled_;
      const auto found = local_.find(name);
      if (found == local_.end()) return NotFound("no " + name);
      return Describe(name, found->second);
    };
    return request;
  }
  static WholeFile Describe(const std::string& name, const std::string& content) {
    FileChecksum checksum;
    checksum.Add(content);
    return {name, content.size(), checksum.value()};
  }
  std::unique_ptr<Store> TakenWithDirectory(const StoreOptions& options) {
    auto store = Opened(options);
    if (store == nullptr) return nullptr;
    TakeResult result;
    const Status taken = store->Take(WithDirectory(), &result);
    EXPECT_OK(taken);
    if (!taken.ok()) return nullptr;
    pairing_ = result.pairing;
    return store;
  }
  static std::string NameOf(int number) { return std::to_string(100000 + number) + ".log"; }
  static std::string ContentOf(int number) {
    return std::string(kLogBytes, static_cast<char>('a' + number % 26));
  }
  // Writes a log as RocksDB does: here and in the group.
  Status WriteLog(Store& store, int number, FileId* file) {
    HL_ASSIGN_OR_RETURN(*file, store.Create(NameOf(number)));
    const std::string content = ContentOf(number);
    for (size_t at = 0; at < content.size(); at += kPiece)
      HL_RETURN_IF_ERROR(AppendDurably(store, *file, content.substr(at, kPiece)));
    const std::lock_guard lock(mutex_);
    local_[NameOf(number)] = content;
    return {};
  }
  static int CountLane(const std::vector<FileInfo>& files, Lane lane) {
    int count = 0;
    for (const FileInfo& file : files) count += file.lane == lane ? 1 : 0;
    return count;
  }
  static std::string Fetched(Store& store, const FileInfo& file) {
    std::string content;
    EXPECT_OK(store.Fetch({file.name, file.size, file.checksum}, [&](std::span<const char> bytes) {
      content.append(bytes.data(), bytes.size());
      return Status();
    }));
    return content;
  }

  // Whether the replica has the whole file, or a piece of it, in its directory of files.
  bool HasWhole(size_t replica, const std::string& name) const {
    std::error_code error;
    const std::string root = folder_ + "/r" + std::to_string(replica) + ".files";
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root, error))
      if (entry.path().filename().string().starts_with(name + "@")) return true;
    return false;
  }
  // Writes `logs` logs, of which all but the last are finished, and waits until two have left.
  void WriteUntilTwoLeft(Store& store, int logs = 5) {
    FileId former = 0;
    for (int i = 0; i < logs; ++i) {
      FileId file = 0;
      ASSERT_OK(WriteLog(store, i, &file)) << i;
      if (i != 0) store.Finish(former);
      former = file;
    }
    ASSERT_TRUE(Eventually([&] { return CountLane(Must(store.Files()), Lane::kBulk) >= 2; }));
  }
  // Each log is whole in the lane that the table says.
  void ExpectAllThere(Store& store, size_t logs = 5) {
    const std::vector<FileInfo> files = Must(store.Files());
    ASSERT_EQ(files.size(), logs);
    for (size_t i = 0; i < logs; ++i) {
      std::string content(files[i].size, '\0');
      if (files[i].lane == Lane::kBulk) {
        content = Fetched(store, files[i]);
      } else {
        EXPECT_EQ(Must(store.Read(files[i].id, 0, content)), files[i].size);
      }
      EXPECT_TRUE(content == ContentOf(static_cast<int>(i))) << i;
    }
  }

  static constexpr size_t kLogBytes = 1'300'000, kPiece = 65'000;  // two extents a log
  std::mutex mutex_;
  std::map<std::string, std::string> local_;
  int settled_ = 0;
};

TEST_F(SessionLeavingTest, AStoreTakesManyTimesWhatItsDataAreaHolds) {
  constexpr int kLogs = 30;  // the area holds five
  auto store = TakenWithDirectory(Options());
  ASSERT_NE(store, nullptr);
  FileId former = 0;
  for (int i = 0; i < kLogs; ++i) {
    FileId file = 0;
    ASSERT_OK(WriteLog(*store, i, &file)) << i;
    if (i != 0) store->Finish(former);
    former = file;
  }
  std::vector<FileInfo> files = Must(store->Files());
  ASSERT_EQ(files.size(), size_t{kLogs});
  EXPECT_GE(CountLane(files, Lane::kBulk), kLogs - 6);
  EXPECT_EQ(files.back().lane, Lane::kLog) << "it is not finished";
  for (int i = 0; i < kLogs; ++i) {
    if (files[static_cast<size_t>(i)].lane != Lane::kBulk) continue;
    EXPECT_TRUE(Fetched(*store, files[static_cast<size_t>(i)]) == ContentOf(i)) << i;
  }
  ASSERT_OK(store->Close());
  // The next opening, from an empty directory, finds each file where it is.
  local_.clear();
  store = TakenWithDirectory(Options("other"));
  ASSERT_NE(store, nullptr);
  files = Must(store->Files());
  ASSERT_EQ(files.size(), size_t{kLogs});
  for (int i = 0; i < kLogs; ++i) {
    const FileInfo& file = files[static_cast<size_t>(i)];
    std::string content(file.size, '\0');
    if (file.lane == Lane::kBulk) {
      content = Fetched(*store, file);
    } else {
      EXPECT_EQ(Must(store->Read(file.id, 0, content)), file.size);
    }
    EXPECT_TRUE(content == ContentOf(i)) << i;
  }
  ASSERT_OK(store->Close());
  ExpectEqualRegions();
}

// A program that looks for what the database needs in the region alone would lose what left it.
TEST_F(SessionLeavingTest, ARegionThatFilesMayLeaveSaysSoBeforeItIsServed) {
  const auto set_features = [](std::span<std::byte> region, uint32_t features) {
    Superblock block;
    std::memcpy(&block, region.data(), sizeof(block));
    block.features = features;
    block.crc = 0;
    block.crc = Crc32c(0, &block, sizeof(block));
    std::memcpy(region.data(), &block, sizeof(block));
  };
  const auto expect_features = [&] {
    for (const auto& each : replicas_) {
      Superblock block;
      std::memcpy(&block, each->region().data(), sizeof(block));
      EXPECT_EQ(block.features, kKnownFeatures);
    }
  };
  auto store = TakenWithDirectory(Options());
  ASSERT_NE(store, nullptr);
  expect_features();
  ASSERT_OK(store->Close());
  // A group that an older release made.
  for (const auto& each : replicas_) set_features(each->region(), 0);
  store = TakenWithDirectory(Options("other"));
  ASSERT_NE(store, nullptr);
  expect_features();
  ASSERT_OK(store->Close());
  ExpectEqualRegions();
}

TEST_F(SessionLeavingTest, NothingLeavesWhileThereIsRoom) {
  auto store = TakenWithDirectory(Options());
  ASSERT_NE(store, nullptr);
  FileId file = 0;
  ASSERT_OK(WriteLog(*store, 0, &file));
  ASSERT_OK(WriteLog(*store, 1, &file));
  const std::vector<FileInfo> files = Must(store->Files());
  const uint64_t before = SleepsOf("hl-leaving");
  for (const FileInfo& each : files) store->Finish(each.id);
  // It sleeps once after each pass, and may sleep a few times in it.
  EXPECT_TRUE(Eventually([&] { return SleepsOf("hl-leaving") >= before + 10; }));
  ASSERT_OK(store->Close());
  EXPECT_EQ(settled_, 0);
}

TEST_F(SessionLeavingTest, AFileStaysUntilEveryReplicaThatIsWaitedForHoldsIt) {
  LetTwoKeepFiles(false);
  StoreOptions options = Options();
  options.bulk_timeout = std::chrono::milliseconds(50);
  options.space_timeout = std::chrono::seconds(3);
  auto store = TakenWithDirectory(options);
  ASSERT_NE(store, nullptr);
  for (int i = 0; i < 5; ++i) {
    FileId file = 0;
    ASSERT_OK(WriteLog(*store, i, &file));
    store->Finish(file);
  }
  EXPECT_TRUE(Eventually([&] { return log_->Has("cannot leave it now: "); }));
  EXPECT_EQ(CountLane(Must(store->Files()), Lane::kBulk), 0);
  EXPECT_GE(settled_, 1);
  // What finds no room says so before it fails.
  Status full;
  for (int i = 5; full.ok(); ++i) {
    FileId file = 0;
    full = WriteLog(*store, i, &file);
  }
  EXPECT_THAT(full, StatusIs(Code::kNoSpace));
  EXPECT_TRUE(log_->Has("waits for space in the group: "));
  EXPECT_TRUE(log_->Has("fails after space_timeout = "));
  ASSERT_OK(store->Close());
}

// The region has its bytes sound, and a log that does not leave would fill it for ever.
TEST_F(SessionLeavingTest, ALogThatRottedHereIsMendedFromTheRegionAndLeaves) {
  TakeRequest request = WithDirectory();
  int mended = 0;
  request.mend_local = [&](const WholeFile& file, const FetchWhole& fetch,
                           const std::function<bool()>& listed) -> Status {
    std::string bytes;
    HL_RETURN_IF_ERROR(fetch([&](std::span<const char> piece) {
      bytes.append(piece.data(), piece.size());
      return Status();
    }));
    EXPECT_TRUE(listed());
    const std::lock_guard lock(mutex_);
    local_[file.name] = std::move(bytes);
    ++mended;
    return {};
  };
  auto store = Opened(Options());
  ASSERT_NE(store, nullptr);
  TakeResult result;
  ASSERT_OK(store->Take(request, &result));
  for (int i = 0; i < 5; ++i) {
    FileId file = 0;
    ASSERT_OK(WriteLog(*store, i, &file));
    if (i == 0) {
      const std::lock_guard lock(mutex_);
      local_[NameOf(0)][kPiece] ^= 1;
    }
    store->Finish(file);
  }
  EXPECT_TRUE(Eventually([&] {
    const std::vector<FileInfo> files = Must(store->Files());
    return files.at(0).lane == Lane::kBulk;
  }));
  EXPECT_TRUE(log_->Has(NameOf(0) + "\" of the directory is not what the group holds of it; it was "
                                    "set aside"));
  ASSERT_OK(store->Close());
  EXPECT_EQ(mended, 1);
  EXPECT_TRUE(local_[NameOf(0)] == ContentOf(0));
}

// Its replicas serve another primary, and would refuse each piece.
TEST_F(SessionLeavingTest, AFencedPrimarySendsNoFilesAnyMore) {
  std::atomic<int> reads{0};
  std::atomic<bool> waits{true};
  TakeRequest request = WithDirectory();
  request.read_local = [&, read = request.read_local](const std::string& name, uint64_t offset,
                                                      std::span<char> out) {
    ++reads;
    waits.wait(true);
    return read(name, offset, out);
  };
  auto store = Opened(Options());
  ASSERT_NE(store, nullptr);
  TakeResult result;
  ASSERT_OK(store->Take(request, &result));
  pairing_ = result.pairing;
  const FileId file = Must(store->Create(NameOf(1)));
  local_["000009.sst"] = "a table";
  ASSERT_OK(store->ListFile(Describe("000009.sst", "a table")));
  EXPECT_TRUE(Eventually([&] { return reads == 3; }));
  const auto next = Taken(Options("other"));  // it sends no files, so the replicas lack this one
  ASSERT_NE(next, nullptr);
  EXPECT_TRUE(
      Eventually([&] { return AppendDurably(*store, file, "late").code() == Code::kFenced; }));
  EXPECT_THAT(store->AwaitFiles(Holders::kAll), StatusIs(Code::kFenced));
  waits = false;
  waits.notify_all();
  EXPECT_TRUE(HeartbeatMoves());  // for longer than refused files are tried again after at first
  EXPECT_EQ(reads, 3);
  EXPECT_THAT(store->Close(), StatusIs(Code::kFenced));
  ASSERT_OK(next->Close());
}

// The cut lies between the shipping and the record: the region still has the file, and the copies
// that arrived are dropped.
TEST_F(SessionLeavingTest, AFileThatArrivedAndWasNotListedIsInTheRegionAlone) {
  LetTwoKeepFiles(false);
  StoreOptions options = Options();
  options.bulk_timeout = std::chrono::hours(1);
  auto store = TakenWithDirectory(options);
  ASSERT_NE(store, nullptr);
  for (int i = 0; i < 5; ++i) {
    FileId file = 0;
    ASSERT_OK(WriteLog(*store, i, &file));
    store->Finish(file);
  }
  EXPECT_TRUE(Eventually([&] { return HasWhole(0, NameOf(0)); }));
  store.reset();  // without Close
  LetTwoKeepFiles(true);
  local_.clear();
  store = TakenWithDirectory(Options("other"));
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(CountLane(Must(store->Files()), Lane::kBulk), 0);
  ExpectAllThere(*store);
  EXPECT_TRUE(Eventually([&] { return !HasWhole(0, NameOf(0)); }));
  ASSERT_OK(store->Close());
}

// A replica that was away while files left gets them when it is taken in, and another directory
// opens with all of them before that.
TEST_F(SessionLeavingTest, AReplicaThatWasAwayGetsWhatLeft) {
  without_some_ = true;
  StoreOptions options = Options();
  options.ack_timeout = std::chrono::seconds(4);  // it is left out after a fifth of that
  auto store = TakenWithDirectory(options);
  ASSERT_NE(store, nullptr);
  Stop(2);
  WriteUntilTwoLeft(*store);
  if (HasFatalFailure()) return;
  EXPECT_FALSE(HasWhole(2, NameOf(0)));
  store.reset();  // without Close
  StartAgain(2);
  store = TakenWithDirectory(Options("other"));
  ASSERT_NE(store, nullptr);
  ExpectAllThere(*store);
  ASSERT_OK(store->AwaitFiles(Holders::kAll));
  for (const FileInfo& file : Must(store->Files()))
    EXPECT_EQ(HasWhole(2, file.name), file.lane == Lane::kBulk) << file.name;
  ASSERT_OK(store->Close());
  ExpectEqualRegions();
}

// The replicas are put back on copies of their pools, and of their files, from before the files
// left. The primary's pool says that they have left, and its directory has them.
TEST_F(SessionLeavingTest, WhatLeftIsSentAgainWhereTheReplicasWentBack) {
  auto store = TakenWithDirectory(Options());
  ASSERT_NE(store, nullptr);
  FileId file = 0;
  ASSERT_OK(WriteLog(*store, 0, &file));
  std::vector<std::vector<std::byte>> images;
  for (const auto& each : replicas_)
    images.emplace_back(each->region().begin(), each->region().end());
  WriteUntilTwoLeft(*store);
  if (HasFatalFailure()) return;
  ASSERT_OK(store->Close());
  for (size_t i = 0; i < replicas_.size(); ++i) {
    std::ranges::copy(images[i], replicas_[i]->region().begin());
    Stop(i);
    std::filesystem::remove_all(folder_ + "/r" + std::to_string(i) + ".files");
    StartAgain(i);
  }
  store = TakenWithDirectory(Options());
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(log_->Has("the replicas went back to older copies of their pools"));
  ASSERT_GE(CountLane(Must(store->Files()), Lane::kBulk), 2);
  ASSERT_OK(store->AwaitFiles(Holders::kAll));
  ExpectAllThere(*store);
  ASSERT_OK(store->Close());
  ExpectEqualRegions();
}

// A directory that does not have what the group has would lose it if the region gave it up.
TEST_F(SessionLeavingTest, AFileThatDiffersInTheDirectoryStays) {
  auto store = TakenWithDirectory(Options());
  ASSERT_NE(store, nullptr);
  for (int i = 0; i < 5; ++i) {
    FileId file = 0;
    ASSERT_OK(WriteLog(*store, i, &file));
    if (i == 0) {
      const std::lock_guard lock(mutex_);
      local_[NameOf(0)][5] = '!';
    }
    if (i < 2) store->Finish(file);
  }
  EXPECT_TRUE(Eventually([&] {
    const std::vector<FileInfo> files = Must(store->Files());
    return files[1].lane == Lane::kBulk;
  })) << "the next one leaves";
  EXPECT_EQ(Must(store->Files())[0].lane, Lane::kLog);
  EXPECT_TRUE(Eventually([&] { return log_->Has("is not what the group holds of it"); }));
  ASSERT_OK(store->Close());
}

}  // namespace
}  // namespace hyperloop::test
