// Databases over a layer that changes all bytes, as RocksDB's encrypting file system does. What the
// plugin decides it decides by names, and by whether bytes are the group's.
#include <rocksdb/convenience.h>
#include <rocksdb/env_encryption.h>
#include <rocksdb/utilities/checkpoint.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "diagnosis.h"
#include "support/status_matchers.h"
#include "testing/errors_fixture.h"

namespace hyperloop::plugin::testing {
namespace {

namespace stdfs = std::filesystem;
using rocksdb::DB;
using rocksdb::Options;
using rocksdb::Status;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// Encrypts without anything in front of the file's own bytes.
class WithoutPrefix : public rocksdb::EncryptionProvider {
 public:
  const char* Name() const override { return "without prefix"; }
  size_t GetPrefixLength() const override { return 0; }
  Status CreateNewPrefix(const std::string&, char*, size_t) const override { return Status::OK(); }
  Status AddCipher(const std::string&, const char*, size_t, bool) override { return Status::OK(); }
  Status CreateCipherStream(const std::string&, const rocksdb::EnvOptions&, rocksdb::Slice&,
                            std::unique_ptr<rocksdb::BlockAccessCipherStream>* stream) override {
    *stream = std::make_unique<Stream>();
    return Status::OK();
  }

 private:
  class Stream : public rocksdb::BlockAccessCipherStream {
   public:
    size_t BlockSize() override { return 16; }

   protected:
    void AllocateScratch(std::string&) override {}
    Status EncryptBlock(uint64_t, char* data, char*) override {
      for (size_t i = 0; i < BlockSize(); ++i) data[i] = static_cast<char>(data[i] ^ 0xa5);
      return Status::OK();
    }
    Status DecryptBlock(uint64_t block, char* data, char* scratch) override {
      return EncryptBlock(block, data, scratch);
    }
  };
};

// The parameter: whether each file has a prefix, random bytes of the encryption's own.
class EncryptedTest : public ErrorsTest, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    ErrorsTest::SetUp();
    if (GetParam()) {
      ASSERT_OK(rocksdb::EncryptionProvider::CreateFromString({}, "CTR://test", &provider_));
    } else {
      provider_ = std::make_shared<WithoutPrefix>();
    }
    plain_env_ = rocksdb::NewCompositeEnv(Encrypted(rocksdb::FileSystem::Default()));
    Use(MakeStoreOptions());
  }
  std::shared_ptr<rocksdb::FileSystem> Encrypted(const std::shared_ptr<rocksdb::FileSystem>& fs) {
    return rocksdb::NewEncryptedFS(fs, provider_);
  }
  // As a new process opens the group.
  void Use(const StoreOptions& options) {
    Close();
    env_.reset();
    fs_ = MakeFileSystem(options);
    env_ = rocksdb::NewCompositeEnv(Encrypted(fs_));
  }
  void Kill() {
    Crash();
    Use(MakeStoreOptions());
  }
  // As a program with the encryption and without the plugin.
  void Plainly(const std::function<void(DB&)>& change) {
    Options options;
    options.env = plain_env_.get();
    options.create_if_missing = true;
    options.avoid_flush_during_recovery = true;
    DatabaseTest::Plainly(directory_, change, options);
  }
  void PutPlainly() {
    Plainly([](DB& db) { ASSERT_OK(db.Put({}, "plain", "1")); });
  }
  // A table with "table" and a log with "log", closed.
  void Make() {
    ASSERT_OK(Open(MakeOptions()));
    Put("table", "1");
    ASSERT_OK(db_->Flush({}));
    Put("log", "1");
    Close();
  }
  std::string Manifest() {
    std::vector<std::string> names;
    for (const auto& [name, content] : group_->LogFiles()) names.push_back(name);
    return NewestManifest(names);
  }
  void ExpectRefused(const Status& status, const ::testing::Matcher<std::string>& reason) {
    EXPECT_THAT(status, StatusIs(Status::kInvalidArgument));
    EXPECT_THAT(status.ToString(), reason);
    EXPECT_TRUE(LocalFilesNow() == before_) << "the directory was changed";
    EXPECT_TRUE(group_->LogFiles() == group_before_) << "the group was changed";
  }
  void NoteBefore() {
    before_ = LocalFilesNow();
    group_before_ = group_->LogFiles();
  }

  std::shared_ptr<rocksdb::EncryptionProvider> provider_;
  std::unique_ptr<rocksdb::Env> plain_env_;
  std::map<std::string, std::string> before_, group_before_;
};

TEST_P(EncryptedTest, ItIsReplicatedAsAnyOther) {
  Make();
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_EQ(Get("table") + Get("log"), "11");
  Put("later", "1");
  ExpectLocalEqualsGroup();
  Kill();
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_EQ(Get("table") + Get("log") + Get("later"), "111");
  ExpectLocalEqualsGroup();
}

TEST_P(EncryptedTest, ADirectoryThatWasChangedWithoutItsGroupIsRefused) {
  Make();
  PutPlainly();
  NoteBefore();
  const Status refused = Open(MakeOptions());
  ExpectRefused(refused, AllOf(HasSubstr("was changed without its group"), HasSubstr("encrypted"),
                               HasSubstr("the group never had its MANIFEST-")));
  // To keep what the group holds.
  stdfs::rename(Path("CURRENT"), root_ + "/CURRENT");
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_EQ(Get("table") + Get("log"), "11");
  EXPECT_THAT(Get("plain"), HasSubstr("NotFound"));
  EXPECT_TRUE(stdfs::exists(Path("hyperloop-set-aside")));
  ExpectLocalEqualsGroup();
}

TEST_P(EncryptedTest, WhatItHoldsThenCanBeKept) {
  Make();
  PutPlainly();
  EXPECT_THAT(Open(MakeOptions()), Not(IsOk()));
  stdfs::remove(Path("HYPERLOOP"));
  Plainly([](DB& db) {
    std::string value;
    EXPECT_OK(db.Get({}, "plain", &value));
    EXPECT_OK(db.Get({}, "log", &value));
  });
}

TEST_P(EncryptedTest, ADirectoryWhoseGroupWasEmptiedIsRefused) {
  Make();
  for (const auto& [name, content] : group_->LogFiles()) group_->Unlist(name);
  for (const auto& [name, size] : group_->ListedFiles()) group_->Unlist(name);
  NoteBefore();
  ExpectRefused(Open(MakeOptions()), HasSubstr("holds a database, and its group none"));
}

// A kill between two renames, and power failures, leave an older CURRENT, a cut one, or none.
TEST_P(EncryptedTest, WhatACrashLeavesIsNoChange) {
  Make();
  const std::string older = ReadLocal(Path("CURRENT"));
  const std::string older_manifest = Manifest();
  const std::string older_bytes = ReadLocal(Path(older_manifest));
  ASSERT_OK(Open(MakeOptions()));
  ASSERT_NE(Manifest(), older_manifest);
  Close();
  const std::string current = ReadLocal(Path("CURRENT"));
  for (const std::string& left : {older, std::string(), std::string(current.size(), '\0'),
                                  current.substr(0, current.size() / 2), current}) {
    SCOPED_TRACE(left.size());
    WriteLocal(Path("CURRENT"), left);
    WriteLocal(Path(older_manifest), older_bytes);
    ASSERT_OK(Open(MakeOptions()));
    EXPECT_EQ(Get("table") + Get("log"), "11");
    ExpectLocalEqualsGroup();
    Close();
  }
}

// A table that was being written when the process was killed is not kept for ever.
TEST_P(EncryptedTest, UnfinishedTablesAreNotSetAside) {
  Make();
  WriteLocal(Path("000900.sst"), "unfinished");
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_FALSE(stdfs::exists(Path("hyperloop-set-aside")));
  Close();
  EXPECT_FALSE(stdfs::exists(Path("000900.sst"))) << "RocksDB does not need it";
  ASSERT_OK(Open(MakeOptions()));
  ExpectLocalEqualsGroup();
}

TEST_P(EncryptedTest, ATableThatOnlyTheDirectoryHasIsListed) {
  Make();
  const std::string table = LocalNames(".sst").at(0);
  group_->Unlist(table);
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_EQ(group_->ListedFiles().count(table), 1u);
  EXPECT_EQ(Get("table"), "1");
}

// It cannot be told which tables are needed, so each counts.
TEST_P(EncryptedTest, NoReplicaIsRemovedWhileTooFewHoldTheTables) {
  Make();
  group_->SayThatAllIsScarce();
  NoteBefore();
  ExpectRefused(Open(MakeOptions()), HasSubstr(LocalNames(".sst").at(0)));
  group_->SayThatAllIsScarce(false);
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_EQ(Get("table"), "1");
}

// The one that is left out may be the only one that has it.
TEST_P(EncryptedTest, NoTableIsGivenUpWhileAReplicaWasNotAsked) {
  Make();
  const std::string table = LocalNames(".sst").at(0), bytes = ReadLocal(Path(table));
  const auto file = Describe(*rocksdb::FileSystem::Default(), Path(table), table);
  ASSERT_OK(file);
  group_->LeaveOut("r3:7420");
  stdfs::remove(Path(table));
  const Status refused = Open(MakeOptions());
  EXPECT_FALSE(refused.ok());
  EXPECT_THAT(refused.ToString(),
              AllOf(HasSubstr(table), HasSubstr("r3:7420"), HasSubstr("with a fresh pool")));
  group_->Hold(*file, bytes);
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_EQ(Get("table"), "1");
}

// RocksDB makes its own.
TEST_P(EncryptedTest, FilesWithoutDataAreGivenUpAlthoughAReplicaWasNotAsked) {
  Make();
  group_->LeaveOut("r3:7420");
  std::vector<std::string> gone = LocalNames("IDENTITY");
  for (const std::string& name : LocalNames(""))
    if (name.starts_with("OPTIONS-")) gone.push_back(name);
  ASSERT_GE(gone.size(), 2u);
  for (const std::string& name : gone) {
    ASSERT_EQ(group_->ListedFiles().count(name), 1u);
    stdfs::remove(Path(name));
  }
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_EQ(Get("table"), "1");
}

// The end of an encrypted table says nothing. A table of zeros is told without a replica.
TEST_P(EncryptedTest, ReplicasAreNotAskedForTablesThatAreThere) {
  Make();
  Use(MakeStoreOptions());
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_EQ(group_->CallsOf("fetch"), 0);
  Close();
  const std::string table = LocalNames(".sst").at(0), bytes = ReadLocal(Path(table));
  const auto file = Describe(*rocksdb::FileSystem::Default(), Path(table), table);
  ASSERT_OK(file);
  group_->Hold(*file, bytes);
  WriteLocal(Path(table), std::string(bytes.size(), '\0'));
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_EQ(Get("table"), "1");
}

// RocksDB does not miss a log that is lost, and the plugin cannot tell whether it is needed.
TEST_P(EncryptedTest, ALogThatHasLeftTheRegionIsNeeded) {
  ASSERT_OK(Open(MakeOptions()));
  ASSERT_OK(db_->DisableFileDeletions());
  Put("table", "1");
  const std::string log = LocalNames(".log").at(0);
  ASSERT_OK(db_->Flush({}));
  Put("log", "1");
  ASSERT_TRUE(group_->Retire(log));
  Kill();
  const std::string bytes = ReadLocal(Path(log));
  const auto file = Describe(*rocksdb::FileSystem::Default(), Path(log), log);
  ASSERT_OK(file);
  stdfs::remove(Path(log));
  NoteBefore();
  ExpectRefused(Open(MakeOptions()), AllOf(HasSubstr("may need"), HasSubstr(log)));
  group_->Hold(*file, bytes);
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_EQ(Get("table"), "1");
  EXPECT_EQ(Get("log"), "1");
}

// It has no table, and no log with a byte, where the encryption has no prefix.
TEST_P(EncryptedTest, AnEmptyDatabaseKeepsItsFamilies) {
  ASSERT_OK(Open(MakeOptions()));
  rocksdb::ColumnFamilyHandle* other = nullptr;
  ASSERT_OK(db_->CreateColumnFamily({}, "other", &other));
  ASSERT_OK(db_->DestroyColumnFamilyHandle(other));
  Close();
  std::vector<std::string> families;
  ASSERT_OK(DB::ListColumnFamilies(MakeOptions(), directory_, &families));
  EXPECT_THAT(families, SizeIs(2));
  EXPECT_NE(Manifest(), "");
}

// An encrypted CURRENT does not tell which MANIFEST must have been read.
TEST_P(EncryptedTest, NamesThatWereReadByHalfAreNotTheGroups) {
  Make();
  Crash();
  WriteLocal(Path("HYPERLOOP.open"), "");
  WriteLocal(Path("CURRENT"), "");
  group_->Inject({"look", Code::kUnavailable, false, 1});  // after CURRENT
  std::unique_ptr<rocksdb::FSSequentialFile> file;
  const rocksdb::IOStatus read = fs_->NewSequentialFile(Path("CURRENT"), {}, &file, nullptr);
  EXPECT_FALSE(group_->ForgetFaults()) << "nothing was read";
  EXPECT_THAT(read.ToString(), AllOf(HasSubstr("was not closed"), HasSubstr("injected into look")));
}

TEST_P(EncryptedTest, AFailedLogAsksForReopeningAndSaysWhy) {
  Options options = MakeOptions();
  options.max_bgerror_resume_count = 0;
  ASSERT_OK(Open(options));
  Put("before", "1");
  group_->Inject({"append", Code::kTimedOut, true, 0});
  const Status failed = db_->Put({}, "failed", "1");
  EXPECT_THAT(failed.ToString(), AllOf(HasSubstr("the log is encrypted"),
                                       HasSubstr("reopen the database when the cause is gone")));
  Close();
  ASSERT_OK(Open(options));
  EXPECT_THAT(InfoLogText(), HasSubstr("must be reopened after the write of a log failed"));
  EXPECT_EQ(Get("before"), "1");
  Put("after", "1");
}

TEST_P(EncryptedTest, APlainDirectoryIsAdopted) {
  Plainly([](DB& db) {
    ASSERT_OK(db.Put({}, "table", "1"));
    ASSERT_OK(db.Flush({}));
    ASSERT_OK(db.Put({}, "log", "1"));
  });
  StoreOptions adopting = MakeStoreOptions();
  adopting.adopt = true;
  Use(adopting);
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_EQ(Get("table") + Get("log"), "11");
  EXPECT_THAT(InfoLogText(), HasSubstr("it has not checked whether all tables"));
  Use(MakeStoreOptions());
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_EQ(Get("table") + Get("log"), "11");
  ExpectLocalEqualsGroup();
}

TEST_P(EncryptedTest, ADirectoryWithoutAManifestIsNotAdopted) {
  PutPlainly();
  for (const auto& entry : stdfs::directory_iterator(directory_))
    if (IsManifest(entry.path().filename().string())) stdfs::remove(entry.path());
  NoteBefore();
  StoreOptions adopting = MakeStoreOptions();
  adopting.adopt = true;
  Use(adopting);
  ExpectRefused(Open(MakeOptions()), HasSubstr("has no MANIFEST"));
}

// The layer's name stands in RocksDB's LOG, and the plugin is below it.
TEST_P(EncryptedTest, TheDoctorTakesTheLayerForNoOtherProgram) {
  const auto findings = [&] {
    std::string text;
    for (const Finding& each : Diagnose(directory_, nullptr)) text += each.text + "\n";
    return text;
  };
  Make();
  ASSERT_OK(Open(MakeOptions()));
  Close();
  EXPECT_THAT(findings(), Not(HasSubstr("opened the database without the plugin")));
  PutPlainly();
  EXPECT_THAT(findings(), HasSubstr("opened the database without the plugin"));
}

INSTANTIATE_TEST_SUITE_P(Prefix, EncryptedTest, ::testing::Bool(),
                         [](const auto& tested) { return tested.param ? "With" : "Without"; });

// A CURRENT that is damaged makes no other database of a plain one.
TEST_F(ErrorsTest, ADamagedCurrentIsNotTakenForAnEncryptedOne) {
  Plainly(
      directory_, [](DB& db) { ASSERT_OK(db.Put({}, "a", "1")); },
      [] {
        Options options;
        options.create_if_missing = true;
        return options;
      }());
  WriteLocal(Path("CURRENT"), "\x01\x02 damaged\xff");
  StoreOptions adopting = MakeStoreOptions();
  adopting.adopt = true;
  env_.reset();
  fs_ = MakeFileSystem(adopting);
  env_ = rocksdb::NewCompositeEnv(fs_);
  EXPECT_THAT(Open(MakeOptions()).ToString(), HasSubstr("names no MANIFEST"));
  EXPECT_THAT(group_->LogFiles(), IsEmpty());
}

}  // namespace
}  // namespace hyperloop::plugin::testing
