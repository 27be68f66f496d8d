// A table of the directory that rotted is replaced with the bytes of a replica.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>

#include "local/local_files.h"
#include "support/must.h"
#include "support/status_matchers.h"
#include "testing/database_fixture.h"

namespace hyperloop::plugin::testing {
namespace {

namespace stdfs = std::filesystem;

// Calls `before_rename` before a mended file takes its name.
class MendingFiles : public rocksdb::FileSystemWrapper {
 public:
  MendingFiles() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  const char* Name() const override { return "mending files"; }
  rocksdb::IOStatus RenameFile(const std::string& from, const std::string& to,
                               const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* dbg) override {
    if (before_rename != nullptr && from.ends_with(".hyperloop-new") && to.ends_with(".sst"))
      before_rename();
    return target()->RenameFile(from, to, options, dbg);
  }

  std::function<void()> before_rename;
};

class MendTest : public DatabaseTest {
 protected:
  // Makes a table, and damages one byte of it. The database stays open.
  void MakeRottenTable() {
    ASSERT_OK(Open(MakeOptions()));
    Put("key", "value");
    ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));
    name_ = LocalNames(".sst").at(0);
    path_ = directory_ + "/" + name_;
    sound_ = ReadLocal(path_);
    file_ = Must(Describe(*rocksdb::FileSystem::Default(), path_, name_));
    rotten_ = sound_;
    rotten_[rotten_.size() / 2] = static_cast<char>(rotten_[rotten_.size() / 2] ^ 1);
    std::ofstream(path_, std::ios::binary) << rotten_;
  }
  std::string Aside() const { return directory_ + "/hyperloop-set-aside/damaged/" + name_; }

  std::string name_, path_, sound_, rotten_;
  WholeFile file_;
};

TEST_F(MendTest, TheDamagedTableIsSetAsideAndTheSoundOneTakesItsPlace) {
  ASSERT_NO_FATAL_FAILURE(MakeRottenTable());
  ASSERT_OK(group_->MendLocal(file_, sound_));
  EXPECT_EQ(ReadLocal(path_), sound_);
  EXPECT_EQ(ReadLocal(Aside()), rotten_);
  Reopen(MakeOptions());
  EXPECT_EQ(Get("key"), "value");
}

// A log that has left the region is a file like a table then.
TEST_F(MendTest, ALogThatHasLeftIsMendedToo) {
  ASSERT_OK(Open(MakeOptions()));
  ASSERT_OK(db_->DisableFileDeletions());
  Put("key", "value");
  name_ = LocalNames(".log").at(0);
  path_ = directory_ + "/" + name_;
  ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));
  Put("key", "another");
  ASSERT_TRUE(group_->Retire(name_));
  sound_ = ReadLocal(path_);
  file_ = Must(Describe(*rocksdb::FileSystem::Default(), path_, name_));
  rotten_ = std::string(sound_.size(), 'x');
  std::ofstream(path_, std::ios::binary) << rotten_;
  ASSERT_OK(group_->MendLocal(file_, sound_));
  EXPECT_EQ(ReadLocal(path_), sound_);
  EXPECT_EQ(ReadLocal(Aside()), rotten_);
  ASSERT_OK(fs_->DeleteFile(path_, rocksdb::IOOptions(), nullptr));
  EXPECT_THAT(group_->MendLocal(file_, sound_), StatusIs(Code::kNotFound));
  EXPECT_FALSE(stdfs::exists(path_));
}

// Ingestion does: until the new bytes are listed, the listed ones are the former.
TEST_F(MendTest, ATableThatTheProgramChangesItselfIsNotMended) {
  ASSERT_NO_FATAL_FAILURE(MakeRottenTable());
  std::unique_ptr<rocksdb::FSRandomRWFile> file;
  ASSERT_OK(fs_->NewRandomRWFile(path_, rocksdb::FileOptions(), &file, nullptr));
  EXPECT_THAT(group_->MendLocal(file_, sound_), StatusIs(Code::kBusy));
  EXPECT_EQ(ReadLocal(path_), rotten_);
  EXPECT_FALSE(stdfs::exists(directory_ + "/hyperloop-set-aside"));
  EXPECT_THAT(LocalNames(".hyperloop-new"), ::testing::IsEmpty());
}

// A power failure may leave a file of the right size that holds zeros or something else, perhaps
// all but its end.
TEST_F(MendTest, AnOpeningFindsGarbageOfTheRightSize) {
  ASSERT_NO_FATAL_FAILURE(MakeRottenTable());
  const std::string zeros(sound_.size(), '\0'), end = sound_.substr(sound_.size() - 64);
  for (const std::string& garbage :
       {zeros, std::string(sound_.size(), 'x'), zeros.substr(end.size()) + end}) {
    SCOPED_TRACE(garbage.substr(0, 1));
    Close();
    group_->Hold(file_, sound_);
    std::ofstream(path_, std::ios::binary) << garbage;
    ASSERT_OK(Open(MakeOptions()));
    EXPECT_EQ(Get("key"), "value");
    EXPECT_EQ(ReadLocal(path_), sound_);
  }
}

TEST_F(MendTest, ATableThatIsGoneStaysGone) {
  ASSERT_NO_FATAL_FAILURE(MakeRottenTable());
  stdfs::remove(path_);
  EXPECT_THAT(group_->MendLocal(file_, sound_), StatusIs(Code::kNotFound));
  EXPECT_FALSE(stdfs::exists(path_));
}

// The program deletes it, or renames it first, as RocksDB's slow deletion does, while a mending
// puts the sound bytes in its place. The pause gives the program time that it must not use.
TEST_F(MendTest, ATableThatLosesItsNameMeanwhileDoesNotGetItBack) {
  const auto files = std::make_shared<MendingFiles>();
  fs_ = MakeFileSystem(MakeStoreOptions(), files);
  env_ = rocksdb::NewCompositeEnv(fs_);
  for (const bool renames : {false, true}) {
    SCOPED_TRACE(renames ? "renamed" : "deleted");
    ASSERT_NO_FATAL_FAILURE(MakeRottenTable());
    std::future<rocksdb::IOStatus> gone;
    files->before_rename = [&] {
      gone = std::async(std::launch::async, [&] {
        return renames ? fs_->RenameFile(path_, path_ + ".trash", rocksdb::IOOptions(), nullptr)
                       : fs_->DeleteFile(path_, rocksdb::IOOptions(), nullptr);
      });
      gone.wait_for(std::chrono::milliseconds(200));
    };
    ASSERT_OK(group_->MendLocal(file_, sound_));
    ASSERT_OK(gone.get());
    files->before_rename = nullptr;
    EXPECT_FALSE(stdfs::exists(path_));
    Close();
    stdfs::remove_all(directory_);
    group_ = FakeGroup::Make();
    fs_ = MakeFileSystem(MakeStoreOptions(), files);
    env_ = rocksdb::NewCompositeEnv(fs_);
  }
}

// A process that has too many files open has sound files.
TEST_F(MendTest, OnlyAFileThatTheDiskCannotReadIsDamaged) {
  char byte;
  const auto fs = rocksdb::FileSystem::Default();
  stdfs::create_directory(root_ + "/a_directory");
  const Result<uint64_t> unread =
      plugin::ReadLocal(*fs, root_ + "/a_directory", 0, std::span(&byte, 1));
  EXPECT_THAT(unread, StatusIs(Code::kCorruption));
  stdfs::create_symlink("loop", root_ + "/loop");
  const Result<uint64_t> unopened = plugin::ReadLocal(*fs, root_ + "/loop", 0, std::span(&byte, 1));
  EXPECT_THAT(unopened, StatusIs(Code::kInternal));
}

}  // namespace
}  // namespace hyperloop::plugin::testing
