// The directory is that of a RocksDB of this process, in which is written what a follower says.
#include "hyperloop/plugin/reader_c.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/db.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Pair = std::pair<std::string, std::string>;

constexpr uint32_t kLong = 120'000;  // ms

std::string LastError() {
  std::string text(hl_read_last_error(nullptr, 0) + 1, '\0');
  hl_read_last_error(text.data(), text.size());
  text.pop_back();
  return text;
}

class ReaderCTest : public testing::Test {
 protected:
  ReaderCTest() {
    std::string pattern = testing::TempDir() + "/hyperloop-reader-c-XXXXXX";
    base_ = mkdtemp(pattern.data());
    rocksdb::Options options;
    options.create_if_missing = true;
    rocksdb::DB* db = nullptr;
    EXPECT_OK(rocksdb::DB::Open(options, Directory(), &db));
    writer_.reset(db);
    EXPECT_OK(writer_->CreateColumnFamily({}, "other", &other_));
    // What the plugin writes into a directory, and what a follower does.
    std::ofstream(Directory() + "/HYPERLOOP") << "group g-1\nbranch 0 -\n";
    Mark("group g-1\nbranch 0 -\n");
  }
  ~ReaderCTest() override {
    hl_reader_close(reader_);
    EXPECT_OK(writer_->DestroyColumnFamilyHandle(other_));
    writer_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(base_, ignored);
  }
  std::string Directory() const { return base_ + "/db"; }
  std::string Scratch() const { return base_ + "/scratch"; }
  void Mark(const std::string& text) {
    std::ofstream(Directory() + "/hyperloop-follower", std::ios::trunc) << text;
  }
  void Open() {
    const char* const families[] = {"default", "other"};
    ASSERT_EQ(hl_reader_open(Directory().c_str(), Scratch().c_str(), "max_open_files=100", families,
                             2, &reader_),
              HL_READ_OK)
        << LastError();
  }
  // Returns the token of the write.
  std::string Put(rocksdb::ColumnFamilyHandle* family, const std::string& key,
                  const std::string& value) {
    EXPECT_OK(writer_->Put({}, family, key, value));
    return Token(Directory());
  }
  std::string Token(const std::string& directory) {
    std::string identity;
    EXPECT_OK(writer_->GetDbIdentity(identity));
    char token[HL_TOKEN_SIZE] = "none";
    code_ = hl_token_write(directory.c_str(), identity.data(), identity.size(),
                           writer_->GetLatestSequenceNumber(), token);
    return token;
  }
  static std::string Get(const hl_view* view, size_t family, std::string_view key) {
    char* value = nullptr;
    size_t size = 0;
    if (hl_view_get(view, family, key.data(), key.size(), &value, &size) != HL_READ_OK)
      return LastError();
    EXPECT_EQ(value[size], 0);
    std::string text(value, size);
    hl_read_free(value);
    return text;
  }
  static std::vector<Pair> From(const hl_view* view, const char* key) {
    hl_iterator* iterator = nullptr;
    EXPECT_EQ(hl_iterator_create(view, 0, key, key == nullptr ? 0 : 1, &iterator), HL_READ_OK);
    std::vector<Pair> pairs;
    const char *found = nullptr, *value = nullptr;
    size_t found_size = 0, value_size = 0;
    while (hl_iterator_next(iterator, &found, &found_size, &value, &value_size) == HL_READ_OK)
      pairs.push_back({{found, found_size}, {value, value_size}});
    EXPECT_EQ(hl_iterator_next(iterator, &found, &found_size, &value, &value_size),
              HL_READ_NOT_FOUND);
    hl_iterator_destroy(iterator);
    return pairs;
  }

  std::string base_;
  std::unique_ptr<rocksdb::DB> writer_;
  rocksdb::ColumnFamilyHandle* other_ = nullptr;
  hl_reader* reader_ = nullptr;
  hl_read_code code_ = HL_READ_OK;  // of the last Token
};

TEST_F(ReaderCTest, ReadsWhatATokenNames) {
  ASSERT_NO_FATAL_FAILURE(Open());
  hl_view* const before = hl_reader_view(reader_);
  const std::string token = Put(other_, "key", std::string("a\0b", 3));
  ASSERT_EQ(code_, HL_READ_OK);
  char same[HL_TOKEN_SIZE] = "";
  EXPECT_EQ(
      hl_token_write(Directory().c_str(), nullptr, 0, writer_->GetLatestSequenceNumber(), same),
      HL_READ_OK);
  EXPECT_EQ(same, token) << "by the file that RocksDB makes";
  ASSERT_EQ(hl_reader_wait_for(reader_, token.c_str(), kLong), HL_READ_OK) << LastError();
  hl_view* const after = hl_reader_view(reader_);
  EXPECT_EQ(Get(after, 1, "key"), std::string("a\0b", 3));
  EXPECT_EQ(hl_view_sequence(after), writer_->GetLatestSequenceNumber());
  EXPECT_THAT(Get(after, 0, "key"), HasSubstr("NotFound"));
  EXPECT_THAT(Get(before, 1, "key"), HasSubstr("NotFound")) << "a view does not change";
  hl_reader_close(std::exchange(reader_, nullptr));
  EXPECT_EQ(Get(after, 1, "key"), std::string("a\0b", 3)) << "a view keeps what it needs";
  hl_view_release(before);
  hl_view_release(after);
}

TEST_F(ReaderCTest, IteratesFromTheFirstKeyOrAnother) {
  for (const char* key : {"a", "b", "c"})
    Put(writer_->DefaultColumnFamily(), key, std::string(key) + "!");
  ASSERT_NO_FATAL_FAILURE(Open());
  hl_view* const view = hl_reader_view(reader_);
  EXPECT_THAT(From(view, nullptr), ElementsAre(Pair("a", "a!"), Pair("b", "b!"), Pair("c", "c!")));
  EXPECT_THAT(From(view, "b"), ElementsAre(Pair("b", "b!"), Pair("c", "c!")));
  EXPECT_THAT(From(view, "d"), ElementsAre());
  hl_view_release(view);
}

TEST_F(ReaderCTest, SaysUpToWhenAllIsShown) {
  ASSERT_NO_FATAL_FAILURE(Open());
  hl_view* const unknown = hl_reader_view(reader_);
  EXPECT_EQ(hl_view_as_of_us(unknown), 0u);
  hl_view_release(unknown);
  EXPECT_EQ(hl_reader_wait_for_fresh(reader_, kLong, 0), HL_READ_TIMED_OUT);
  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  const std::string micros = std::to_string(now.count());
  Mark("group g-1\nbranch 0 -\nas-of " + micros + " " + micros + "\n");
  ASSERT_EQ(hl_reader_wait_for_fresh(reader_, kLong, kLong), HL_READ_OK) << LastError();
  hl_view* const view = hl_reader_view(reader_);
  EXPECT_EQ(hl_view_as_of_us(view), static_cast<uint64_t>(now.count()));
  hl_view_release(view);
}

TEST_F(ReaderCTest, TellsErrorsApart) {
  EXPECT_EQ(
      hl_reader_open((base_ + "/none").c_str(), Scratch().c_str(), nullptr, nullptr, 0, &reader_),
      HL_READ_NOT_FOUND);
  EXPECT_EQ(hl_reader_open(Directory().c_str(), Scratch().c_str(), "no_such_option=1", nullptr, 0,
                           &reader_),
            HL_READ_INVALID_ARGUMENT);
  EXPECT_THAT(LastError(), HasSubstr("no_such_option"));
  EXPECT_EQ(hl_reader_open(Directory().c_str(), Scratch().c_str(), "merge_operator=none_such",
                           nullptr, 0, &reader_),
            HL_READ_INVALID_ARGUMENT);
  EXPECT_THAT(LastError(), HasSubstr("none_such"));
  EXPECT_EQ(reader_, nullptr);
  ASSERT_NO_FATAL_FAILURE(Open());
  const std::string sequence = "." + std::to_string(writer_->GetLatestSequenceNumber() + 1);
  EXPECT_EQ(hl_reader_wait_for(reader_, "no token", kLong), HL_READ_INVALID_ARGUMENT);
  EXPECT_EQ(hl_reader_wait_for(reader_, ("g-2.0.-" + sequence).c_str(), kLong),
            HL_READ_INVALID_ARGUMENT);
  EXPECT_EQ(hl_reader_wait_for(reader_, ("g-1.7-x.-" + sequence).c_str(), kLong), HL_READ_ABORTED);
  EXPECT_EQ(hl_reader_wait_for(reader_, ("g-1.0.-" + sequence).c_str(), 1), HL_READ_TIMED_OUT);
  EXPECT_THAT(LastError(), HasSubstr("hl_reader_wait_for: "));
  hl_view* const view = hl_reader_view(reader_);
  EXPECT_THAT(Get(view, 2, "key"), HasSubstr("2 column families"));
  hl_view_release(view);
  EXPECT_EQ(Token(base_), "none");
  EXPECT_EQ(code_, HL_READ_NOT_FOUND) << "a directory without a group";
}

TEST_F(ReaderCTest, NullIsRefusedOrDoesNothing) {
  EXPECT_EQ(hl_reader_open(nullptr, "", nullptr, nullptr, 0, &reader_), HL_READ_INVALID_ARGUMENT);
  const char* const families[] = {"default", nullptr};
  EXPECT_EQ(hl_reader_open(Directory().c_str(), Scratch().c_str(), nullptr, families, 2, &reader_),
            HL_READ_INVALID_ARGUMENT);
  EXPECT_EQ(hl_reader_catch_up(nullptr), HL_READ_INVALID_ARGUMENT);
  EXPECT_EQ(hl_reader_wait_for(nullptr, "", 0), HL_READ_INVALID_ARGUMENT);
  EXPECT_EQ(hl_reader_view(nullptr), nullptr);
  EXPECT_EQ(hl_view_get(nullptr, 0, "", 0, nullptr, nullptr), HL_READ_INVALID_ARGUMENT);
  hl_iterator* iterator = nullptr;
  EXPECT_EQ(hl_iterator_create(nullptr, 0, nullptr, 0, &iterator), HL_READ_INVALID_ARGUMENT);
  EXPECT_EQ(hl_iterator_next(nullptr, nullptr, nullptr, nullptr, nullptr),
            HL_READ_INVALID_ARGUMENT);
  hl_reader_close(nullptr);
  hl_view_release(nullptr);
  hl_iterator_destroy(nullptr);
  hl_read_free(nullptr);
}

}  // namespace
}  // namespace hyperloop
