#include "checked_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>

#include "crc_line.h"
#include "local/local_file_system.h"
#include "local/local_files.h"
#include "support/status_matchers.h"

namespace hyperloop::plugin {
namespace {

namespace fs = std::filesystem;
constexpr char kTable[] = "000007.sst";

class CheckedFilesTest : public testing::Test {
 protected:
  CheckedFilesTest() {
    std::string pattern = testing::TempDir() + "/hyperloop-checked-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    Write("the table");
  }
  ~CheckedFilesTest() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name = kTable) const { return folder_ + "/" + name; }
  void Write(const std::string& bytes) const { std::ofstream(Path()) << bytes; }
  static void SetTime(const std::string& path, const struct timespec& time) {
    const struct timespec times[2] = {time, time};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
  // As if it had been written long ago.
  static void Age(const std::string& path) { SetTime(path, {1000000, 0}); }
  WholeFile Described() const {
    const Result<WholeFile> file = Describe(*local_, Path(), kTable);
    EXPECT_OK(file);
    return file.ok() ? *file : WholeFile();
  }
  bool IsSound(CheckedFiles& files, const WholeFile& file, const std::string& name = kTable) const {
    const Result<bool> sound = files.IsSound(*local_, Path(name), file);
    return sound.ok() && *sound;
  }
  // Other bytes that nothing but reading them shows.
  void ChangeUnseen() const {
    struct stat before {};
    ASSERT_EQ(::stat(Path().c_str(), &before), 0);
    Write("The table");
    SetTime(Path(), before.st_mtim);
  }

  std::string folder_;
  // The file is known to be sound, which is kept, and then changed unseen.
  WholeFile KeepAndChange() {
    Age(Path());
    const WholeFile file = Described();
    checked_.Note(Path(), file);
    EXPECT_OK(checked_.Write(*local_, folder_));
    ChangeUnseen();
    return file;
  }

  const std::shared_ptr<rocksdb::FileSystem> local_ = LocalFileSystem();
  CheckedFiles checked_;
};

TEST_F(CheckedFilesTest, AFileIsReadOnce) {
  Age(Path());
  const WholeFile file = Described();
  ASSERT_TRUE(IsSound(checked_, file));
  ChangeUnseen();
  EXPECT_TRUE(IsSound(checked_, file));
  CheckedFiles other;
  EXPECT_FALSE(IsSound(other, file));
}

TEST_F(CheckedFilesTest, OneThatChangedSinceIsReadAgain) {
  Age(Path());
  const WholeFile file = Described();
  ASSERT_TRUE(IsSound(checked_, file));
  Write("The table");
  EXPECT_FALSE(IsSound(checked_, file));
  Write("the table and more");
  EXPECT_FALSE(IsSound(checked_, file));
  fs::remove(Path());
  EXPECT_THAT(checked_.IsSound(*local_, Path(), file), StatusIs(Code::kNotFound));
}

TEST_F(CheckedFilesTest, WhatIsListedOtherwiseIsNotThatFile) {
  Age(Path());
  WholeFile file = Described();
  ASSERT_TRUE(IsSound(checked_, file));
  ++file.checksum;
  EXPECT_FALSE(IsSound(checked_, file));
}

// Its time of change may stay the same when it is changed once more.
TEST_F(CheckedFilesTest, OneThatWasJustWrittenIsReadAgain) {
  const WholeFile file = Described();
  ASSERT_TRUE(IsSound(checked_, file));
  ChangeUnseen();
  EXPECT_FALSE(IsSound(checked_, file));
}

// As after a clock was set back: then no file is old enough.
TEST_F(CheckedFilesTest, OneOfTheFutureIsReadTwice) {
  SetTime(Path(), {4'000'000'000, 0});
  const WholeFile file = Described();
  ASSERT_TRUE(IsSound(checked_, file));
  const auto seconds = std::chrono::steady_clock::now() + std::chrono::milliseconds(2100);
  std::this_thread::sleep_until(seconds);
  ASSERT_TRUE(IsSound(checked_, file));
  ChangeUnseen();
  EXPECT_TRUE(IsSound(checked_, file));
}

TEST_F(CheckedFilesTest, AllNamesOfAFileCount) {
  Age(Path());
  const WholeFile file = Described();
  ASSERT_TRUE(IsSound(checked_, file));
  fs::create_hard_link(Path(), Path("other"));
  ChangeUnseen();
  EXPECT_TRUE(IsSound(checked_, file, "other"));
}

TEST_F(CheckedFilesTest, AnotherProcessKnowsIt) {
  const WholeFile file = KeepAndChange();
  CheckedFiles again = CheckedFiles::In(folder_);
  EXPECT_TRUE(IsSound(again, file));
  again.KeepOnly({});
  EXPECT_FALSE(IsSound(again, file));
  ASSERT_OK(again.Write(*local_, folder_));
  CheckedFiles none = CheckedFiles::In(folder_);
  EXPECT_FALSE(IsSound(none, file));
}

// Whatever happens to the file that keeps it, nothing is believed that was not written.
TEST_F(CheckedFilesTest, ADamagedFileSaysNothing) {
  const WholeFile file = KeepAndChange();
  std::ifstream in(Path("checked"), std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  ASSERT_GT(whole.size(), 60u);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] ^= 1;
    std::ofstream(Path("checked"), std::ios::binary | std::ios::trunc) << damaged;
    CheckedFiles files = CheckedFiles::In(folder_);
    ASSERT_FALSE(IsSound(files, file)) << i;
    std::ofstream(Path("checked"), std::ios::binary | std::ios::trunc) << whole.substr(0, i);
    files = CheckedFiles::In(folder_);
    ASSERT_FALSE(IsSound(files, file)) << i;
  }
}

// What is written has the machine's present start in it; a power failure may take bytes away that
// were read before.
TEST_F(CheckedFilesTest, NothingIsKnownAfterTheMachineWasStartedAgain) {
  const WholeFile file = KeepAndChange();
  std::ifstream in(Path("checked"), std::ios::binary);
  std::string first, boot, line, rest;
  std::getline(in, first);
  std::getline(in, boot);
  while (std::getline(in, line) && !line.starts_with("crc32c ")) rest += line + "\n";
  boot[0] = boot[0] == 'a' ? 'b' : 'a';
  std::ofstream(Path("checked"), std::ios::binary | std::ios::trunc)
      << WithCrcLine(first + "\n" + boot + "\n" + rest);
  CheckedFiles files = CheckedFiles::In(folder_);
  EXPECT_FALSE(IsSound(files, file));
}

}  // namespace
}  // namespace hyperloop::plugin
