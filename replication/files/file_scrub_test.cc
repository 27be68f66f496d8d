// The disk of a replica changes bytes of a whole file that it keeps.
#include "files/file_scrub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "support/log_lines.h"
#include "support/must.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

// The disk cannot read this byte of the files whose names begin so.
struct BadSector {
  std::string name;
  off_t at = 0;
};
BadSector g_bad_sector;

bool Covers(const BadSector& sector, int fd, size_t size, off_t offset) {
  if (sector.name.empty() || sector.at < offset || sector.at >= offset + static_cast<off_t>(size))
    return false;
  std::error_code error;
  const std::filesystem::path path =
      std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), error);
  return path.filename().string().starts_with(sector.name);
}

}  // namespace
}  // namespace hyperloop

// The pread of this program, FileStore's too.
extern "C" ssize_t pread(int fd, void* out, size_t size, off_t offset) {
  if (hyperloop::Covers(hyperloop::g_bad_sector, fd, size, offset)) {
    errno = EIO;
    return -1;
  }
  return syscall(SYS_pread64, fd, out, size, offset);
}

namespace hyperloop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class FileScrubTest : public testing::Test {
 protected:
  FileScrubTest() {
    std::string pattern = testing::TempDir() + "/hyperloop-scrub-XXXXXX";
    base_ = mkdtemp(pattern.data());
    store_ = Must(FileStore::Open(base_ + "/files"));
  }
  ~FileScrubTest() override { std::filesystem::remove_all(base_); }

  WholeFile Keep(const std::string& name, const std::string& bytes) {
    FileChecksum checksum;
    checksum.Add(bytes);
    const WholeFile file{name, bytes.size(), checksum.value()};
    Must(store_->Write(file, 0, std::as_bytes(std::span(bytes))));
    return file;
  }
  void Damage(const std::string& name, long at) const {
    for (const auto& entry : std::filesystem::directory_iterator(store_->directory())) {
      if (!entry.path().filename().string().starts_with(name + "@")) continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(at);
      file.put('\x7f');
    }
  }
  std::vector<WholeFile> Held() {
    std::vector<WholeFile> held;
    for (const auto& each : Must(store_->List()))
      if (each.finished) held.push_back(each.file);
    return held;
  }
  void Ticks(int count) {
    for (int i = 0; i < count; ++i) scrub_.Tick(*store_);
  }
  // Ticks until a pass has ended.
  void Pass() {
    const uint64_t before = scrub_.passes();
    for (int i = 0; i <= 2 * FileScrub::kRestTicks && scrub_.passes() == before; ++i) Ticks(1);
    ASSERT_EQ(scrub_.passes(), before + 1);
  }

  std::string base_;
  std::unique_ptr<FileStore> store_;
  LogLines log_;
  FileScrub scrub_{&log_};
};

TEST_F(FileScrubTest, SoundFilesArePassedOverInSilence) {
  const WholeFile table = Keep("000007.sst", std::string(100'000, 'x')), empty = Keep("e.sst", "");
  Pass();
  EXPECT_THAT(Held(), testing::UnorderedElementsAre(table, empty));
  EXPECT_TRUE(log_.lines().empty());
  EXPECT_EQ(scrub_.aside(), "");
  Ticks(FileScrub::kRestTicks);
  EXPECT_EQ(scrub_.passes(), 1u) << "it rests";
  Pass();
}

TEST_F(FileScrubTest, ADamagedFileIsSetAsideAndNamed) {
  const WholeFile sound = Keep("000007.sst", std::string(100'000, 'x'));
  const WholeFile rotten = Keep("000009.blob", std::string(3'000'000, 'y'));
  Pass();
  Damage("000009.blob", 2'000'000);
  Pass();
  EXPECT_THAT(Held(), ElementsAre(sound));
  ASSERT_EQ(log_.lines().size(), 1u);
  EXPECT_THAT(log_.lines()[0], HasSubstr("000009.blob"));
  EXPECT_THAT(log_.lines()[0], HasSubstr("set aside as " + store_->directory()));
  EXPECT_THAT(scrub_.aside(), HasSubstr("000009.blob"));

  Keep("000009.blob", std::string(3'000'000, 'y'));
  Pass();
  EXPECT_THAT(Held(), testing::UnorderedElementsAre(sound, rotten)) << "it was sent again";
  EXPECT_EQ(log_.lines().size(), 1u);
  for (const std::string& entry : Must(store_->Aside()))
    std::filesystem::remove(store_->directory() + "/" + entry);
  Pass();
  EXPECT_EQ(scrub_.aside(), "");
}

TEST_F(FileScrubTest, AFileThatTheDiskCannotReadIsSetAsideAndNamed) {
  const WholeFile sound = Keep("000007.sst", std::string(100'000, 'x'));
  Keep("000009.sst", std::string(3'000'000, 'y'));
  g_bad_sector = {"000009.sst", 2'000'000};
  Pass();
  g_bad_sector = {};
  EXPECT_THAT(Held(), ElementsAre(sound));
  ASSERT_EQ(log_.lines().size(), 1u);
  EXPECT_THAT(log_.lines()[0], HasSubstr("the disk cannot read"));
  EXPECT_THAT(log_.lines()[0], HasSubstr("set aside as " + store_->directory()));
  EXPECT_THAT(scrub_.aside(), HasSubstr("000009.sst"));
}

TEST_F(FileScrubTest, ACallReadsNoMoreThanItsBudget) {
  Keep("000007.sst", std::string(3 * FileScrub::kBudget, 'x'));
  Ticks(FileScrub::kFirstTicks);
  Ticks(3);
  EXPECT_EQ(scrub_.passes(), 1u);
  Ticks(FileScrub::kRestTicks);
  Ticks(2);
  EXPECT_EQ(scrub_.passes(), 1u) << "two calls do not read three budgets";
  Ticks(1);
  EXPECT_EQ(scrub_.passes(), 2u);
}

// A host that is short of descriptors has sound files.
TEST_F(FileScrubTest, AFileThatCannotBeOpenedIsNotDamaged) {
  const WholeFile table = Keep("000007.sst", std::string(100'000, 'x'));
  Ticks(FileScrub::kFirstTicks);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  Ticks(1);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(Held(), ElementsAre(table));
  ASSERT_EQ(log_.lines().size(), 1u);
  EXPECT_THAT(log_.lines()[0], HasSubstr("Too many open files"));
  Damage("000007.sst", 50'000);
  Pass();
  EXPECT_THAT(Held(), testing::IsEmpty()) << "the next pass reads it";
}

TEST_F(FileScrubTest, AFileThatIsDroppedMeanwhileIsNotDamaged) {
  const WholeFile table = Keep("000007.sst", std::string(2 * FileScrub::kBudget, 'x'));
  const WholeFile other = Keep("000009.sst", "other");
  Ticks(FileScrub::kFirstTicks + 1);
  ASSERT_OK(store_->Remove(table));
  ASSERT_OK(store_->Remove(other));
  Pass();
  EXPECT_TRUE(log_.lines().empty());
}

}  // namespace
}  // namespace hyperloop
