// Databases that RocksDB made, whole and damaged.
#include "deep_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/comparator.h>
#include <rocksdb/db.h>
#include <rocksdb/merge_operator.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>

#include "support/must.h"
#include "support/status_matchers.h"

namespace hyperloop::plugin {
namespace {

using testing::HasSubstr;

class DeepCheckTest : public testing::Test {
 protected:
  DeepCheckTest() {
    std::string pattern = testing::TempDir() + "/hyperloop-deep-XXXXXX";
    base_ = mkdtemp(pattern.data());
    options_.create_if_missing = true;
  }
  ~DeepCheckTest() override {
    db_.reset();
    std::filesystem::remove_all(base_);
  }
  std::string directory() const { return base_ + "/db"; }
  void Open() {
    rocksdb::DB* db = nullptr;
    ASSERT_OK(rocksdb::DB::Open(options_, directory(), &db));
    db_.reset(db);
  }
  // Half in a table, half in the log.
  void Fill() {
    for (int i = 0; i < 100; ++i) {
      ASSERT_OK(db_->Put({}, "key" + std::to_string(i), std::string(1000, 'v')));
      if (i == 50) {
        ASSERT_OK(db_->Flush({}));
      }
    }
  }
  std::string FileWith(const std::string& extension) const {
    for (const auto& each : std::filesystem::directory_iterator(directory()))
      if (each.path().extension() == extension) return each.path();
    return "";
  }
  // Changes one byte of a file in its middle.
  static void Damage(const std::string& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(std::filesystem::file_size(path) / 2));
    const int byte = file.get();
    file.seekp(-1, std::ios::cur);
    file.put(static_cast<char>(byte ^ 1));
  }

  std::string base_;
  rocksdb::Options options_;
  std::unique_ptr<rocksdb::DB> db_;
};

TEST_F(DeepCheckTest, ReadsEveryKeyOfEveryFamilyAndWritesNothing) {
  Open();
  Fill();
  rocksdb::ColumnFamilyHandle* family = nullptr;
  ASSERT_OK(db_->CreateColumnFamily({}, "another", &family));
  ASSERT_OK(db_->Put({}, family, "a", "b"));
  ASSERT_OK(db_->DestroyColumnFamilyHandle(family));
  db_.reset();
  const auto files = [&] {
    std::set<std::string> names;
    for (const auto& each : std::filesystem::directory_iterator(directory()))
      names.insert(each.path().filename());
    return names;
  };
  const auto before = files();
  const DeepReport report = Must(CheckDeeply(directory()));
  EXPECT_EQ(report.keys, 101u);
  EXPECT_EQ(report.families, 2u);
  EXPECT_GT(report.bytes, 100'000u);
  EXPECT_EQ(files(), before);
}

TEST_F(DeepCheckTest, FindsADamagedTable) {
  Open();
  Fill();
  db_.reset();
  Damage(FileWith(".sst"));
  const auto report = CheckDeeply(directory());
  EXPECT_EQ(report.status().code(), Code::kCorruption);
  EXPECT_THAT(report.status().message(), HasSubstr(directory()));
}

TEST_F(DeepCheckTest, FindsADamagedLogAndATableThatIsGone) {
  Open();
  Fill();
  db_.reset();
  std::filesystem::copy(directory(), base_ + "/copy");
  Damage(FileWith(".log"));
  EXPECT_EQ(CheckDeeply(directory()).status().code(), Code::kCorruption);
  std::filesystem::remove_all(directory());
  std::filesystem::rename(base_ + "/copy", directory());
  EXPECT_OK(CheckDeeply(directory()));
  std::filesystem::remove(FileWith(".sst"));
  EXPECT_EQ(CheckDeeply(directory()).status().code(), Code::kCorruption);
  EXPECT_EQ(CheckDeeply(base_).status().code(), Code::kNotFound);
}

class OwnOrder final : public rocksdb::Comparator {
 public:
  const char* Name() const override { return "the service's own"; }
  int Compare(const rocksdb::Slice& a, const rocksdb::Slice& b) const override {
    return -a.compare(b);
  }
  void FindShortestSeparator(std::string*, const rocksdb::Slice&) const override {}
  void FindShortSuccessor(std::string*) const override {}
};

TEST_F(DeepCheckTest, NamesAComparatorThatItDoesNotHave) {
  const OwnOrder order;
  options_.comparator = &order;
  Open();
  Fill();
  db_.reset();
  const auto report = CheckDeeply(directory());
  EXPECT_EQ(report.status().code(), Code::kNotSupported);
  EXPECT_THAT(report.status().message(), HasSubstr("the service's own"));
  EXPECT_THAT(report.status().message(), HasSubstr("open it with the program of the service"));
}

class Concatenation final : public rocksdb::AssociativeMergeOperator {
 public:
  const char* Name() const override { return "concatenation"; }
  bool Merge(const rocksdb::Slice&, const rocksdb::Slice* before, const rocksdb::Slice& operand,
             std::string* result, rocksdb::Logger*) const override {
    *result = (before != nullptr ? before->ToString() : "") + operand.ToString();
    return true;
  }
};

TEST_F(DeepCheckTest, NeedsNoMergeOperatorOfTheService) {
  options_.merge_operator = std::make_shared<Concatenation>();
  Open();
  ASSERT_OK(db_->Merge({}, "key", "a"));
  ASSERT_OK(db_->Flush({}));
  ASSERT_OK(db_->Merge({}, "key", "b"));
  db_.reset();
  EXPECT_EQ(Must(CheckDeeply(directory())).keys, 1u);
}

}  // namespace
}  // namespace hyperloop::plugin
