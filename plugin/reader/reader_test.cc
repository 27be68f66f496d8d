// The directory is that of a RocksDB of this process, which appends to it as a follower does.
#include "hyperloop/plugin/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/file_system.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "support/eventually.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ReaderTest : public testing::Test {
 protected:
  ReaderTest() {
    std::string pattern = testing::TempDir() + "/hyperloop-reader-XXXXXX";
    base_ = mkdtemp(pattern.data());
    options_.create_if_missing = true;
    rocksdb::DB* db = nullptr;
    EXPECT_OK(rocksdb::DB::Open(options_, base_ + "/db", &db));
    writer_.reset(db);
    Mark("group g-1\nbranch 0 -\n");
    EXPECT_OK(Origin::OfFollowed(options_.env, base_ + "/db", &origin_));
  }
  ~ReaderTest() override {
    writer_.reset();
    std::filesystem::remove_all(base_);
  }
  // Says what a follower of that directory says.
  void Mark(const std::string& text) {
    std::ofstream(base_ + "/db/hyperloop-follower", std::ios::trunc) << text;
  }
  // Says that everything acknowledged so long ago is shown.
  void MarkAsOf(std::chrono::microseconds ago) {
    const auto time = std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::system_clock::now().time_since_epoch() - ago);
    const std::string micros = std::to_string(time.count());
    Mark("group g-1\nbranch 0 -\nrecord 7\nas-of " + micros + " " + micros + "\n");
  }
  Token TokenOf(uint64_t sequence) const { return {origin_, sequence}; }
  // Returns the token of the write.
  Token Put(const std::string& key, const std::string& value) {
    EXPECT_OK(writer_->Put({}, key, value));
    EXPECT_OK(writer_->FlushWAL(false));
    return TokenOf(writer_->GetLatestSequenceNumber());
  }
  static std::string Get(rocksdb::DB* db, const std::string& key) {
    std::string value;
    const rocksdb::Status status = db->Get({}, key, &value);
    return status.ok() ? value : status.ToString();
  }
  std::unique_ptr<Reader> Open() {
    std::unique_ptr<Reader> reader;
    EXPECT_OK(Reader::Open(options_, base_ + "/db", base_ + "/scratch", &reader));
    return reader;
  }

  // Of the writer's only log.
  std::string LogPath() const {
    for (const auto& entry : std::filesystem::directory_iterator(base_ + "/db"))
      if (entry.path().extension() == ".log") return entry.path();
    return "";
  }

  std::string base_;
  rocksdb::Options options_;
  std::unique_ptr<rocksdb::DB> writer_;
  Origin origin_;
};

constexpr std::chrono::seconds kLong{120};

// A value that was read from the log, and a newer one that reaches the reader in a table.
TEST_F(ReaderTest, NeverAnswersWithAnOlderValueThanItsToken) {
  Put("key", "0");
  const std::unique_ptr<Reader> reader = Open();
  for (int i = 1; i <= 60; ++i) {
    const Token token = Put("key", std::to_string(i));
    if (i % 3 == 1) {
      ASSERT_OK(writer_->Flush({}));
    }
    if (i % 7 == 3) {
      ASSERT_OK(writer_->CompactRange({}, nullptr, nullptr));
    }
    ASSERT_OK(reader->WaitFor(token, kLong));
    EXPECT_EQ(Get(reader->view()->db(), "key"), std::to_string(i));
  }
}

TEST_F(ReaderTest, AViewOutlivesTheNextOne) {
  Put("key", "1");
  const std::unique_ptr<Reader> reader = Open();
  const auto before = reader->view();
  ASSERT_OK(writer_->Flush({}));
  ASSERT_OK(reader->WaitFor(Put("key", "2"), kLong));
  EXPECT_NE(reader->view(), before);
  EXPECT_EQ(Get(reader->view()->db(), "key"), "2");
  EXPECT_EQ(Get(before->db(), "key"), "1");
}

// Another thread's CatchUp must not change what is read through a view, for better or worse: a
// handle that reads a flush goes back to older values for a moment.
TEST_F(ReaderTest, AViewStaysAsItIsWhileTheReaderCatchesUp) {
  Put("key", "1");
  const std::unique_ptr<Reader> reader = Open();
  std::vector<std::shared_ptr<const Reader::View>> views;
  for (int i = 1; i <= 20; ++i) {
    ASSERT_OK(reader->WaitFor(Put("key", std::to_string(i)), kLong));
    if (i % 7 == 0) {
      ASSERT_OK(writer_->Flush({}));
    }
    views.push_back(reader->view());
    for (int before = 1; before <= i; ++before)
      ASSERT_EQ(Get(views[before - 1]->db(), "key"), std::to_string(before)) << "after " << i;
  }
}

TEST_F(ReaderTest, NoThreadSeesAnOlderValueThanBefore) {
  Put("key", "0");
  const std::unique_ptr<Reader> reader = Open();
  std::atomic<bool> ended{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      for (int before = 0; !ended;) {
        const int now = std::stoi(Get(reader->view()->db(), "key"));
        ASSERT_GE(now, before);
        before = now;
      }
    });
  }
  for (int i = 1; i <= 200; ++i) {
    const Token token = Put("key", std::to_string(i));
    if (i % 5 == 1) {
      ASSERT_OK(writer_->Flush({}));
    }
    ASSERT_OK(reader->WaitFor(token, kLong));
    EXPECT_EQ(Get(reader->view()->db(), "key"), std::to_string(i));
  }
  ended = true;
  for (std::thread& each : threads) each.join();
}

// A reader runs for weeks.
TEST_F(ReaderTest, KeepsFewFilesInItsScratchDirectory) {
  Put("key", "1");
  const std::unique_ptr<Reader> reader = Open();
  for (int i = 0; i < 20; ++i) {
    const Token token = Put("key", std::to_string(i));
    ASSERT_OK(writer_->Flush({}));
    ASSERT_OK(reader->WaitFor(token, kLong));
  }
  const std::filesystem::recursive_directory_iterator files(base_ + "/scratch");
  EXPECT_LE(std::distance(begin(files), end(files)), 6) << "two directories with two LOGs each";
}

TEST_F(ReaderTest, SaysThatItDoesNotHaveAWriteYet) {
  const Token token = Put("key", "1");
  const std::unique_ptr<Reader> reader = Open();
  EXPECT_TRUE(
      reader->WaitFor(TokenOf(token.sequence + 1), std::chrono::milliseconds(0)).IsTimedOut());
}

// A number of another history is no promise of this one, however low it is.
TEST_F(ReaderTest, ATokenOfAnotherHistoryIsRefusedByName) {
  Put("key", "1");
  const std::unique_ptr<Reader> reader = Open();
  Token token = TokenOf(0);
  EXPECT_OK(reader->WaitFor(token, kLong));
  token.origin.group = "g-2";
  rocksdb::Status status = reader->WaitFor(token, kLong);
  EXPECT_TRUE(status.IsInvalidArgument());
  EXPECT_THAT(status.ToString(), AllOf(HasSubstr("of group g-2"), HasSubstr("shows group g-1")));
  token = TokenOf(0);
  token.origin.database = "another";
  status = reader->WaitFor(token, kLong);
  EXPECT_TRUE(status.IsInvalidArgument());
  EXPECT_THAT(status.ToString(), HasSubstr("of database another"));
  token = TokenOf(0);
  token.origin.branch = "17-owner";
  status = reader->WaitFor(token, kLong);
  EXPECT_TRUE(status.IsAborted());
  EXPECT_THAT(status.ToString(), AllOf(HasSubstr("of branch 17-owner"), HasSubstr("branch 0")));
  token = TokenOf(0);
  token.origin.database.clear();  // a database that keeps no identity
  EXPECT_OK(reader->WaitFor(token, kLong));
}

// Somebody removed the directory, and follows another branch into it.
TEST_F(ReaderTest, ReadsOneHistoryAlone) {
  Put("key", "1");
  const std::unique_ptr<Reader> reader = Open();
  Mark("group g-1\nbranch 17 owner\nrecord 7\n");
  const Token token = Put("key", "2");
  ASSERT_OK(writer_->Flush({}));  // another handle is opened
  const rocksdb::Status status = reader->WaitFor(token, kLong);
  EXPECT_TRUE(status.IsAborted());
  EXPECT_THAT(status.ToString(), HasSubstr("shows another history"));
  EXPECT_EQ(Get(reader->view()->db(), "key"), "1");
  const std::unique_ptr<Reader> other = Open();
  EXPECT_EQ(other->origin().branch, "17-owner");
  EXPECT_EQ(Get(other->view()->db(), "key"), "2");
}

// Its MANIFEST has the same name and size.
TEST_F(ReaderTest, NorByAHandleThatItKept) {
  Put("key", "1");
  const std::unique_ptr<Reader> reader = Open();
  for (int i = 0; i < 2; ++i) ASSERT_OK(reader->CatchUp());  // there is a spare one now
  Mark("group g-1\nbranch 17 owner\nrecord 7\n");
  EXPECT_TRUE(reader->CatchUp().IsAborted());
}

TEST_F(ReaderTest, ADirectoryThatNobodyFollowsIntoIsRefused) {
  Put("key", "1");
  std::filesystem::remove(base_ + "/db/hyperloop-follower");
  std::unique_ptr<Reader> reader;
  EXPECT_TRUE(Reader::Open(options_, base_ + "/db", base_ + "/scratch", &reader).IsNotFound());
}

TEST_F(ReaderTest, KnowsHowOldItsViewsAreAtMost) {
  using std::chrono::minutes, std::chrono::milliseconds;
  Put("key", "1");
  const std::unique_ptr<Reader> reader = Open();
  EXPECT_EQ(reader->view()->as_of(), Reader::Time());
  EXPECT_TRUE(reader->WaitForFresh(minutes(60), milliseconds(0)).IsTimedOut()) << "nobody vouches";
  MarkAsOf(minutes(10));
  EXPECT_OK(reader->WaitForFresh(minutes(60), milliseconds(0)));
  EXPECT_TRUE(reader->WaitForFresh(minutes(1), milliseconds(0)).IsTimedOut());
  const auto old = reader->view();
  MarkAsOf(milliseconds(0));
  EXPECT_OK(reader->WaitForFresh(minutes(1), kLong));
  EXPECT_GT(reader->view()->as_of(), old->as_of());
  EXPECT_LT(old->as_of(), std::chrono::system_clock::now() - minutes(9))
      << "a view does not change";
  // The clock was set back. What was noted before it says nothing.
  MarkAsOf(-minutes(60));
  ASSERT_OK(reader->CatchUp());
  EXPECT_TRUE(reader->WaitForFresh(minutes(1), milliseconds(0)).IsTimedOut());
  // The follower is writing the line.
  Mark("group g-1\nbranch 0 -\nrecord 7\nas-of 17 18\n");
  ASSERT_OK(reader->CatchUp());
  EXPECT_EQ(reader->view()->as_of(), Reader::Time());
}

TEST(TokenTest, TravelsAsText) {
  const Token token{{"g-1", "17-owner", "d-1"}, 12345};
  EXPECT_EQ(token.ToText(), "g-1.17-owner.d-1.12345");
  Token parsed;
  ASSERT_OK(Token::Parse(token.ToText(), &parsed));
  EXPECT_EQ(parsed.origin.group + parsed.origin.branch + parsed.origin.database, "g-117-ownerd-1");
  EXPECT_EQ(parsed.sequence, 12345u);
  const Token bare{{"g-1", "0", ""}, 0};
  EXPECT_EQ(bare.ToText(), "g-1.0.-.0");
  ASSERT_OK(Token::Parse(bare.ToText(), &parsed));
  EXPECT_EQ(parsed.origin.database, "");
}

TEST(TokenTest, AnythingElseIsRefused) {
  const std::string longest(300, 'a');
  for (const std::string& text :
       {std::string(), std::string("12345"), std::string("g.0.-"), std::string("g.0.-.1.2"),
        std::string("g.0..1"), std::string("g.0.-.-1"), std::string("g.0.-.0x1"),
        std::string("g.0.-.999999999999999999"), std::string("g 1.0.-.1"),
        std::string("g.0.-.1\r\n"), std::string("g\0h.0.-.1", 10), longest, "g.0.-." + longest}) {
    Token token{{"kept", "0", ""}, 7};
    const rocksdb::Status status = Token::Parse(text, &token);
    EXPECT_TRUE(status.IsInvalidArgument()) << text;
    EXPECT_THAT(status.ToString(), HasSubstr("not a token"));
    EXPECT_EQ(token.origin.group, "kept");
  }
}

TEST_F(ReaderTest, AFamilyThatIsNotOpenHoldsUpNothing) {
  Put("key", "1");
  const std::unique_ptr<Reader> reader = Open();
  rocksdb::ColumnFamilyHandle* family = nullptr;
  ASSERT_OK(writer_->CreateColumnFamily({}, "late", &family));
  ASSERT_OK(writer_->Put({}, family, "a", "b"));
  ASSERT_OK(writer_->Flush({}, family));
  ASSERT_OK(writer_->DestroyColumnFamilyHandle(family));
  ASSERT_OK(reader->WaitFor(Put("key", "2"), kLong));
  EXPECT_EQ(Get(reader->view()->db(), "key"), "2");
}

// Calls `hook` once, when a directory is listed after a MANIFEST was read.
class ListingHook final : public rocksdb::FileSystemWrapper {
 public:
  explicit ListingHook(std::function<void()> hook)
      : FileSystemWrapper(rocksdb::FileSystem::Default()), hook_(std::move(hook)) {}
  const char* Name() const override { return "ListingHook"; }
  rocksdb::IOStatus NewSequentialFile(const std::string& name, const rocksdb::FileOptions& options,
                                      std::unique_ptr<rocksdb::FSSequentialFile>* file,
                                      rocksdb::IODebugContext* context) override {
    reads_manifest_ = reads_manifest_ || name.find("/MANIFEST-") != std::string::npos;
    return target()->NewSequentialFile(name, options, file, context);
  }
  rocksdb::IOStatus GetChildren(const std::string& name, const rocksdb::IOOptions& options,
                                std::vector<std::string>* names,
                                rocksdb::IODebugContext* context) override {
    if (reads_manifest_ && hook_ != nullptr) std::exchange(hook_, nullptr)();
    return target()->GetChildren(name, options, names, context);
  }

 private:
  std::function<void()> hook_;
  bool reads_manifest_ = false;
};

// What the log held has gone into a table, of which the MANIFEST that was read says nothing yet.
TEST_F(ReaderTest, ALogThatIsDroppedWhileItIsReadLeavesNoHole) {
  Put("key", "1");
  const std::string log = LogPath();
  ASSERT_TRUE(std::filesystem::exists(log));
  const auto env = rocksdb::NewCompositeEnv(std::make_shared<ListingHook>([&] {
    EXPECT_OK(writer_->Flush({}));
    EXPECT_TRUE(test::Eventually([&] { return !std::filesystem::exists(log); }));
  }));
  rocksdb::Options options = options_;
  options.env = env.get();
  std::unique_ptr<Reader> reader;
  ASSERT_OK(Reader::Open(options, base_ + "/db", base_ + "/scratch", &reader));
  EXPECT_FALSE(std::filesystem::exists(log)) << "the log was not dropped: the test shows nothing";
  EXPECT_EQ(Get(reader->view()->db(), "key"), "1");
}

TEST_F(ReaderTest, AfterAnErrorTheViewStays) {
  Put("key", "1");
  const std::unique_ptr<Reader> reader = Open();
  std::filesystem::rename(base_ + "/db/CURRENT", base_ + "/CURRENT");
  EXPECT_FALSE(reader->CatchUp().ok());
  EXPECT_EQ(Get(reader->view()->db(), "key"), "1");
  std::filesystem::rename(base_ + "/CURRENT", base_ + "/db/CURRENT");
  ASSERT_OK(reader->WaitFor(Put("key", "2"), kLong));
  EXPECT_EQ(Get(reader->view()->db(), "key"), "2");
}

}  // namespace
}  // namespace hyperloop
