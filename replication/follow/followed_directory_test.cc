#include "follow/followed_directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/must.h"
#include "support/status_matchers.h"
#include "testing/lane_bench.h"

namespace hyperloop {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using testing::HasSubstr;

class FollowedDirectoryTest : public testing::Test {
 protected:
  FollowedDirectoryTest() : bench(MemoryGroup::Mode::kImmediate, 1) {
    std::string pattern = testing::TempDir() + "/hyperloop-follow-XXXXXX";
    base = mkdtemp(pattern.data());
    EXPECT_OK(MakeDurableDirectory(base + "/files"));
    store = Must(FileStore::Open(GroupDirectory(base + "/files", bench.region.info.group)));
  }
  ~FollowedDirectoryTest() override { fs::remove_all(base); }

  std::unique_ptr<FollowedDirectory> Open(uint64_t branch = 0) {
    return Must(FollowedDirectory::Open(base + "/to", {"group-1", branch, ""}, {seconds(60)}));
  }
  // Shows what the primary has written so far. The name of a file that is missing.
  Result<std::optional<std::string>> Show(FollowedDirectory& directory) {
    image = bench.region.bytes;
    EXPECT_OK(Redo(image, bench.region.info));
    const FileTable table = Must(FileTable::Load(image, bench.region.info));
    return directory.Show({image, bench.region.info, table, store.get(), seq}, now);
  }
  void Write(const std::string& name, const std::string& bytes) {
    auto file = bench.lane->Lookup(name);
    if (!file.ok()) file = bench.lane->Create(name);
    EXPECT_OK(bench.lane->Await(Must(bench.lane->Append(Must(std::move(file)), bytes))));
  }
  WholeFile List(const std::string& name, const std::string& bytes) {
    FileChecksum checksum;
    checksum.Add(bytes);
    const WholeFile file{name, bytes.size(), checksum.value()};
    EXPECT_OK(bench.lane->ListFile(file));
    return file;
  }
  void Arrive(const WholeFile& file, const std::string& bytes) {
    EXPECT_OK(store->Write(file, 0, std::as_bytes(std::span(bytes))));
  }
  // "-": there is no such file.
  std::string Read(const std::string& name) const {
    std::ifstream file(base + "/to/" + name, std::ios::binary);
    if (!file) return "-";
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  ino_t InodeOf(const std::string& name) const {
    struct stat st = {};
    EXPECT_EQ(stat((base + "/to/" + name).c_str(), &st), 0);
    return st.st_ino;
  }

  std::string base;
  LaneBench bench;
  std::unique_ptr<FileStore> store;
  std::vector<std::byte> image;
  uint64_t seq = 0;
  FollowedDirectory::Time now{};
};

TEST_F(FollowedDirectoryTest, AppendsWhatTheGroupAppends) {
  const auto directory = Open();
  Write("000004.log", "one ");
  Write("MANIFEST-000001", "edits");
  Write("CURRENT", "MANIFEST-000001\n");
  EXPECT_EQ(Must(Show(*directory)), std::nullopt);
  EXPECT_EQ(Read("000004.log"), "one ");
  const ino_t log = InodeOf("000004.log");
  Write("000004.log", "two");
  EXPECT_OK(Show(*directory));
  EXPECT_EQ(Read("000004.log"), "one two");
  EXPECT_EQ(InodeOf("000004.log"), log) << "a reader would look at the old file for ever";
}

TEST_F(FollowedDirectoryTest, ShowsNoManifestBeforeTheTablesThatItMayName) {
  const auto directory = Open();
  Write("MANIFEST-000001", "edits");
  Write("CURRENT", "MANIFEST-000001\n");
  const WholeFile table = List("000007.sst", "table");
  EXPECT_EQ(Must(Show(*directory)), "000007.sst");
  EXPECT_EQ(Read("CURRENT"), "-");
  EXPECT_EQ(Read("MANIFEST-000001"), "-");
  Arrive(table, "table");
  EXPECT_EQ(Must(Show(*directory)), std::nullopt);
  EXPECT_EQ(Read("CURRENT"), "MANIFEST-000001\n");
  EXPECT_EQ(Read("000007.sst"), "table");
  struct stat st = {};
  ASSERT_EQ(stat((base + "/to/000007.sst").c_str(), &st), 0);
  EXPECT_EQ(st.st_nlink, 2u) << "the host stores it twice";
}

// Of most tables the primary speaks before they have arrived. No MANIFEST names them yet.
TEST_F(FollowedDirectoryTest, ATableThatNoManifestNamesHoldsUpNoLog) {
  const auto directory = Open();
  Write("000004.log", "one ");
  Write("MANIFEST-000001", "edits");
  Write("CURRENT", "MANIFEST-000001\n");
  EXPECT_EQ(Must(Show(*directory)), std::nullopt);
  const WholeFile table = List("000007.sst", "table");
  Write("000004.log", "two");
  EXPECT_EQ(Must(Show(*directory)), "000007.sst");
  EXPECT_EQ(Read("000004.log"), "one two");
  Write("MANIFEST-000001", ", with the table");
  Write("000004.log", " three");
  EXPECT_EQ(Must(Show(*directory)), "000007.sst");
  EXPECT_EQ(Read("000004.log"), "one two");
  EXPECT_EQ(Read("MANIFEST-000001"), "edits");
  Arrive(table, "table");
  EXPECT_EQ(Must(Show(*directory)), std::nullopt);
  EXPECT_EQ(Read("000004.log"), "one two three");
  EXPECT_EQ(Read("MANIFEST-000001"), "edits, with the table");
}

TEST_F(FollowedDirectoryTest, WhatRocksDbMakesItselfHoldsUpNothing) {
  const auto directory = Open();
  List("OPTIONS-000005", "options");
  Write("CURRENT", "MANIFEST-000001\n");
  EXPECT_EQ(Must(Show(*directory)), std::nullopt);
  EXPECT_EQ(Read("CURRENT"), "MANIFEST-000001\n");
}

TEST_F(FollowedDirectoryTest, ARenamedCurrentIsReplacedAtOnce) {
  const auto directory = Open();
  Write("CURRENT", "MANIFEST-000001\n");
  EXPECT_OK(Show(*directory));
  Write("000009.dbtmp", "MANIFEST-000008\n");
  ASSERT_OK(bench.lane->Rename("000009.dbtmp", "CURRENT"));
  EXPECT_OK(Show(*directory));
  EXPECT_EQ(Read("CURRENT"), "MANIFEST-000008\n");
}

TEST_F(FollowedDirectoryTest, ALogThatRocksDbCutsIsReplaced) {
  const auto directory = Open();
  Write("000004.log", "whole torn");
  EXPECT_OK(Show(*directory));
  ASSERT_OK(bench.lane->Truncate(Must(bench.lane->Lookup("000004.log")), 5));
  EXPECT_OK(Show(*directory));
  EXPECT_EQ(Read("000004.log"), "whole");
}

TEST_F(FollowedDirectoryTest, ARemovedFileKeepsItsNameForAWhile) {
  const auto directory = Open();
  Arrive(List("000007.sst", "table"), "table");
  Write("000004.log", "log");
  EXPECT_OK(Show(*directory));
  ASSERT_OK(bench.lane->Remove("000007.sst"));
  ASSERT_OK(bench.lane->Remove("000004.log"));
  now += seconds(59);
  EXPECT_OK(Show(*directory));
  EXPECT_EQ(Read("000007.sst"), "table");
  now += seconds(60);
  EXPECT_OK(Show(*directory));
  EXPECT_EQ(Read("000007.sst"), "-");
  EXPECT_EQ(Read("000004.log"), "-");
}

// What a reader may still need is somebody's disk.
TEST_F(FollowedDirectoryTest, DroppedFilesTakeAtMostSoManyBytes) {
  const auto directory =
      Must(FollowedDirectory::Open(base + "/to", {"group-1", 0, ""}, {seconds(60), /*bytes=*/25}));
  for (const char* name : {"000005.sst", "000006.sst", "000007.sst", "000008.sst"})
    Arrive(List(name, "ten bytes."), "ten bytes.");
  EXPECT_EQ(Must(Show(*directory)), std::nullopt);
  for (const char* name : {"000007.sst", "000005.sst"}) {
    ASSERT_OK(bench.lane->Remove(name));
    EXPECT_OK(Show(*directory));
    now += seconds(1);
  }
  EXPECT_EQ(Read("000007.sst"), "ten bytes.");
  EXPECT_EQ(directory->gone_early(), 0u);
  ASSERT_OK(bench.lane->Remove("000006.sst"));
  EXPECT_OK(Show(*directory));
  EXPECT_EQ(Read("000007.sst"), "-") << "it was dropped first";
  EXPECT_EQ(Read("000005.sst") + Read("000006.sst"), "ten bytes.ten bytes.");
  EXPECT_EQ(directory->gone_early(), 1u);
  now += seconds(60);
  EXPECT_OK(Show(*directory));
  EXPECT_EQ(Read("000005.sst") + Read("000006.sst"), "--");
  EXPECT_EQ(directory->gone_early(), 1u);
}

TEST_F(FollowedDirectoryTest, ALogThatLeftTheRegionKeepsItsBytes) {
  const auto directory = Open();
  Write("000004.log", "whole");
  EXPECT_OK(Show(*directory));
  const FileId id = Must(bench.lane->Lookup("000004.log"));
  ASSERT_OK(bench.lane->Retire(id, Must(bench.lane->Describe(id))));
  EXPECT_EQ(Must(Show(*directory)), std::nullopt);
  EXPECT_EQ(Read("000004.log"), "whole");
}

// A reader that has it open would miss the rest of it otherwise, and go on with the next log.
TEST_F(FollowedDirectoryTest, ALogThatLeftBeforeItWasShownWholeGrowsInPlace) {
  auto directory = Open();
  Write("000004.log", "wh");
  EXPECT_OK(Show(*directory));
  const ino_t inode = InodeOf("000004.log");
  Write("000004.log", "ole");
  const FileId id = Must(bench.lane->Lookup("000004.log"));
  const WholeFile whole = Must(bench.lane->Describe(id));
  ASSERT_OK(bench.lane->Retire(id, whole));
  EXPECT_EQ(Must(Show(*directory)), "000004.log");
  EXPECT_EQ(Read("000004.log"), "wh");
  Arrive(whole, "whole");
  EXPECT_EQ(Must(Show(*directory)), std::nullopt);
  EXPECT_EQ(Read("000004.log"), "whole");
  EXPECT_EQ(InodeOf("000004.log"), inode);
  directory.reset();
  directory = Open();
  EXPECT_EQ(Must(Show(*directory)), std::nullopt);
  EXPECT_EQ(InodeOf("000004.log"), inode);
}

TEST_F(FollowedDirectoryTest, ALogThatLeftWithOtherBytesIsReplaced) {
  const auto directory = Open();
  std::ofstream(base + "/to/000004.log") << "wx";
  Write("000004.log", "whole");
  const FileId id = Must(bench.lane->Lookup("000004.log"));
  const WholeFile whole = Must(bench.lane->Describe(id));
  Arrive(whole, "whole");
  ASSERT_OK(bench.lane->Retire(id, whole));
  EXPECT_EQ(Must(Show(*directory)), std::nullopt);
  EXPECT_EQ(Read("000004.log"), "whole");
}

// Nothing newer is shown while an older log lacks its end. Their numbers have 6 digits or more.
TEST_F(FollowedDirectoryTest, LogsAppearFromTheOldestOn) {
  const auto directory = Open();
  const WholeFile newer = List("1000000.log", "newer");
  const WholeFile older = List("999999.log", "older");
  Arrive(newer, "newer");
  EXPECT_EQ(Must(Show(*directory)), "999999.log");
  EXPECT_EQ(Read("1000000.log"), "-");
  Arrive(older, "older");
  EXPECT_EQ(Must(Show(*directory)), std::nullopt);
  EXPECT_EQ(Read("1000000.log"), "newer");
}

TEST_F(FollowedDirectoryTest, AnArchivedLogIsShownWhileItIsInTheRegion) {
  const auto directory = Open();
  Write("000004.log", "whole");
  ASSERT_OK(bench.lane->Rename("000004.log", "archive/000004.log"));
  EXPECT_EQ(Must(Show(*directory)), std::nullopt);
  EXPECT_EQ(Read("archive/000004.log"), "whole");
}

TEST_F(FollowedDirectoryTest, NothingIsWrittenThroughASymbolicLinkToADirectory) {
  const auto directory = Open();
  fs::create_directory(base + "/elsewhere");
  fs::create_directory_symlink(base + "/elsewhere", base + "/to/archive");
  const WholeFile archived = List("archive/000004.log", "whole");
  Arrive(archived, "whole");
  EXPECT_THAT(Show(*directory), StatusIs(Code::kAlreadyExists));
  EXPECT_TRUE(fs::is_empty(base + "/elsewhere"));
}

// As after a restart, with a file that an earlier process linked.
TEST_F(FollowedDirectoryTest, NothingIsAppendedThroughAHardLink) {
  const auto directory = Open();
  std::ofstream(base + "/somebody's") << "one ";
  fs::create_hard_link(base + "/somebody's", base + "/to/000004.log");
  Write("000004.log", "one two");
  EXPECT_OK(Show(*directory));
  EXPECT_EQ(Read("000004.log"), "one two");
  EXPECT_EQ(fs::file_size(base + "/somebody's"), 4u);
}

TEST_F(FollowedDirectoryTest, WhatSomebodyElseChangedIsMendedWhenItGrows) {
  const auto directory = Open();
  Write("000004.log", "one ");
  Write("000005.log", "one ");
  EXPECT_OK(Show(*directory));
  fs::remove(base + "/to/000004.log");
  std::ofstream(base + "/to/000005.log", std::ios::app) << "foreign";
  Write("000004.log", "two");
  Write("000005.log", "two");
  EXPECT_OK(Show(*directory));
  EXPECT_EQ(Read("000004.log"), "one two");
  EXPECT_EQ(Read("000005.log"), "one two");
}

// What a power failure leaves: a length that is right and bytes that are not.
TEST_F(FollowedDirectoryTest, AfterARestartEachFileIsCompared) {
  auto directory = Open();
  Write("000004.log", "sound");
  Write("000005.log", "sound");
  Arrive(List("000007.sst", "table"), "table");
  EXPECT_OK(Show(*directory));
  const ino_t sound = InodeOf("000004.log");
  directory.reset();
  std::ofstream(base + "/to/000005.log") << std::string(5, '\0');
  fs::remove(base + "/to/000007.sst");
  std::ofstream(base + "/to/000007.sst") << std::string(5, '\0');
  std::ofstream(base + "/to/000003.log") << "of a log that was removed meanwhile";
  std::ofstream(base + "/to/LOG") << "a reader's notes";
  Write("000004.log", " and more");
  directory = Open();
  EXPECT_OK(Show(*directory));
  EXPECT_EQ(Read("000004.log"), "sound and more");
  EXPECT_EQ(InodeOf("000004.log"), sound);
  EXPECT_EQ(Read("000005.log"), "sound");
  EXPECT_EQ(Read("000007.sst"), "table");
  now += seconds(61);
  EXPECT_OK(Show(*directory));
  EXPECT_EQ(Read("000003.log"), "-");
  EXPECT_EQ(Read("LOG"), "a reader's notes");
}

// Checkpoints and backups that a reader made there, and its notes.
TEST_F(FollowedDirectoryTest, AfterARestartForeignFilesAndDirectoriesStay) {
  auto directory = Open();
  Write("000004.log", "log");
  EXPECT_OK(Show(*directory));
  for (const char* each : {"/to/backup", "/to/archive", "/to/archive/000001.log"})
    fs::create_directory(base + each);
  for (const char* each : {"backup/000007.sst", "archive/notes", "export.sst", "MANIFEST-mine"})
    std::ofstream(base + "/to/" + each) << "mine";
  std::ofstream(base + "/to/archive/000002.log") << "of an earlier process";
  directory.reset();
  directory = Open();
  EXPECT_OK(Show(*directory));
  now += seconds(61);
  EXPECT_OK(Show(*directory));
  EXPECT_EQ(Read("backup/000007.sst"), "mine");
  EXPECT_EQ(Read("archive/notes"), "mine");
  EXPECT_EQ(Read("export.sst"), "mine");
  EXPECT_EQ(Read("MANIFEST-mine"), "mine");
  EXPECT_TRUE(fs::is_directory(base + "/to/archive/000001.log"));
  EXPECT_EQ(Read("archive/000002.log"), "-");
}

// The replica may be another one, or the same one that was made anew and is being filled.
TEST_F(FollowedDirectoryTest, AReplicaThatHoldsLessTakesNothingBack) {
  auto directory = Open();
  Write("000004.log", "one");
  seq = 7;
  EXPECT_OK(Show(*directory));
  Write("000004.log", " two");
  seq = 6;
  EXPECT_THAT(Show(*directory), StatusIs(Code::kUnavailable));
  directory.reset();
  directory = Open();
  EXPECT_EQ(directory->seq(), 7u);
  EXPECT_THAT(Show(*directory), StatusIs(Code::kUnavailable));
  EXPECT_EQ(Read("000004.log"), "one");
  seq = 8;
  EXPECT_OK(Show(*directory));
  EXPECT_EQ(Read("000004.log"), "one two");
}

TEST_F(FollowedDirectoryTest, ASymbolicLinkIsReplacedAndNeverFollowed) {
  const auto directory = Open();
  std::ofstream(base + "/elsewhere") << "so";
  fs::create_symlink(base + "/elsewhere", base + "/to/000004.log");
  Write("000004.log", "sound");
  EXPECT_OK(Show(*directory));
  EXPECT_EQ(Read("000004.log"), "sound");
  EXPECT_EQ(fs::file_size(base + "/elsewhere"), 2u);
}

// An emptied group (hyperloopctl reset) and the next database in it.
TEST_F(FollowedDirectoryTest, ShowsNoOtherDatabaseThanItBeganWith) {
  const auto directory = Open();
  Arrive(List("IDENTITY", "one"), "one");
  Write("CURRENT", "MANIFEST-000001\n");
  ASSERT_OK(Show(*directory));
  ASSERT_OK(bench.lane->Remove("CURRENT"));
  ASSERT_OK(bench.lane->Remove("IDENTITY"));
  EXPECT_THAT(Show(*directory).status(), StatusIs(Code::kUnavailable, HasSubstr("no database")));
  now += seconds(61);
  EXPECT_THAT(Show(*directory).status(), StatusIs(Code::kUnavailable));
  EXPECT_EQ(Read("CURRENT"), "MANIFEST-000001\n");
  Arrive(List("IDENTITY", "two"), "two");
  Write("CURRENT", "MANIFEST-000005\n");
  EXPECT_THAT(Show(*directory).status(),
              StatusIs(Code::kInvalidArgument, HasSubstr("name another directory")));
  EXPECT_EQ(Read("CURRENT"), "MANIFEST-000001\n");
}

TEST_F(FollowedDirectoryTest, RefusesADirectoryThatHoldsSomethingElse) {
  fs::create_directory(base + "/to");
  std::ofstream(base + "/to/CURRENT") << "MANIFEST-000001\n";
  EXPECT_THAT(FollowedDirectory::Open(base + "/to", {"group-1", 0, ""}, {seconds(60)}).status(),
              StatusIs(Code::kAlreadyExists, HasSubstr("name a new or empty directory")));
  EXPECT_EQ(Read("CURRENT"), "MANIFEST-000001\n");
  EXPECT_EQ(Read("hyperloop-follower"), "-");
}

// The database is nobody else's to read, and a directory in which others may write is no place.
TEST_F(FollowedDirectoryTest, KeepsOthersOut) {
  Open();
  EXPECT_EQ(fs::status(base + "/to").permissions(), fs::perms::owner_all);
  fs::permissions(base + "/to", fs::perms::all);
  EXPECT_THAT(FollowedDirectory::Open(base + "/to", {"group-1", 0, ""}, {seconds(60)}).status(),
              StatusIs(Code::kPermissionDenied));
}

TEST_F(FollowedDirectoryTest, RefusesAnotherBranchAndASecondFollower) {
  auto directory = Open(0);
  EXPECT_THAT(FollowedDirectory::Open(base + "/to", {"group-1", 0, ""}, {seconds(60)}).status(),
              StatusIs(Code::kBusy));
  directory.reset();
  EXPECT_THAT(FollowedDirectory::Open(base + "/to", {"group-1", 7, "o"}, {seconds(60)}).status(),
              StatusIs(Code::kInvalidArgument, HasSubstr("name another directory")));
}

TEST_F(FollowedDirectoryTest, SaysWhatItShowsAndUpToWhen) {
  EXPECT_THAT(FollowedDirectory::Read(base + "/to").status(), StatusIs(Code::kNotFound));
  auto directory =
      Must(FollowedDirectory::Open(base + "/to", {"group-1", 7, "owner"}, {seconds(60)}));
  auto said = FollowedDirectory::Read(base + "/to");
  ASSERT_OK(said.status());
  EXPECT_EQ(said->origin, directory->origin());
  EXPECT_EQ(said->record, 0u);
  EXPECT_EQ(said->as_of, std::nullopt);
  const std::chrono::system_clock::time_point then(std::chrono::microseconds(1234567890));
  ASSERT_OK(directory->NoteAsOf(then));
  directory.reset();
  EXPECT_EQ(FollowedDirectory::Read(base + "/to")->as_of, then) << "also while nobody follows";
}

TEST_F(FollowedDirectoryTest, AMarkThatSaysNothingIsRefusedAndATornTimeIsNone) {
  fs::create_directory(base + "/to");
  std::ofstream(base + "/to/hyperloop-follower") << "nothing\n";
  EXPECT_THAT(FollowedDirectory::Read(base + "/to").status(), StatusIs(Code::kCorruption));
  for (const char* const time : {"as-of 17 18", "as-of 17", "as-of ", "as-of x x", "as-of -1 -1",
                                 "as-of 9300000000000000 9300000000000000"}) {
    std::ofstream(base + "/to/hyperloop-follower") << "group g\nrecord 7\n" << time << "\n";
    const auto said = FollowedDirectory::Read(base + "/to");
    ASSERT_OK(said.status());
    EXPECT_EQ(said->record, 7u);
    EXPECT_EQ(said->as_of, std::nullopt) << time;
  }
}

}  // namespace
}  // namespace hyperloop
