// What a replica keeps of the bulk lane: whole files, under names that say which bytes they hold.
#include "files/file_store.h"

#include <dirent.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>

#include "support/must.h"
#include "support/status_matchers.h"

namespace {
int g_entries_before_error = -1;  // below 0: none fails
}

// In place of the C library's, for this whole program.
extern "C" dirent* readdir(DIR* directory) {
  static const auto real = reinterpret_cast<dirent* (*)(DIR*)>(dlsym(RTLD_NEXT, "readdir"));
  if (g_entries_before_error < 0 || g_entries_before_error-- > 0) return real(directory);
  errno = EIO;
  return nullptr;
}

namespace hyperloop {
namespace {

std::span<const std::byte> BytesOf(std::string_view text) { return std::as_bytes(std::span(text)); }

WholeFile Describe(const std::string& name, std::string_view bytes) {
  FileChecksum checksum;
  checksum.Add(bytes);
  return {name, bytes.size(), checksum.value()};
}

class FileStoreTest : public ::testing::Test {
 protected:
  FileStoreTest() {
    std::string pattern = testing::TempDir() + "/hyperloop-files-XXXXXX";
    base_ = mkdtemp(pattern.data());
    path_ = base_ + "/files";
  }
  ~FileStoreTest() override { std::filesystem::remove_all(base_); }

  std::unique_ptr<FileStore> Open() { return Must(FileStore::Open(path_)); }
  std::string Content(FileStore& store, const WholeFile& file) {
    std::string text(file.size + 1, '\0');
    const auto got = store.Read(file, 0, std::as_writable_bytes(std::span(text)));
    if (!got.ok()) return got.status().ToString();
    text.resize(*got);
    return text;
  }

  std::string base_, path_;
};

TEST_F(FileStoreTest, AFileIsThereWhenItsLastByteHasArrived) {
  const auto store = Open();
  const WholeFile file = Describe("000007.sst", "first second");
  EXPECT_THAT(store->Write(file, 0, BytesOf("first ")), IsOkAndHolds(6u));
  EXPECT_THAT(store->Read(file, 0, {}), StatusIs(Code::kNotFound));
  EXPECT_THAT(store->Write(file, 6, BytesOf("second")), IsOkAndHolds(12u));
  EXPECT_EQ(Content(*store, file), "first second");
  EXPECT_THAT(store->Write(file, 0, BytesOf("first ")), IsOkAndHolds(12u)) << "it is finished";
  const WholeFile empty = Describe("empty.sst", "");
  EXPECT_THAT(store->Write(empty, 0, {}), IsOkAndHolds(0u));
  EXPECT_EQ(Content(*store, empty), "");
}

TEST_F(FileStoreTest, WhatArrivedOfAFileStaysWhenTheProcessEnds) {
  const WholeFile file = Describe("000007.sst", "first second");
  ASSERT_OK(Open()->Write(file, 0, BytesOf("first ")).status());
  const auto store = Open();
  const auto files = Must(store->List());
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].file, file);
  EXPECT_FALSE(files[0].finished);
  EXPECT_EQ(files[0].received, 6u);
  EXPECT_THAT(store->Write(file, 0, BytesOf("first ")), IsOkAndHolds(6u)) << "says where to go on";
  EXPECT_THAT(store->Write(file, 6, BytesOf("second")), IsOkAndHolds(12u));
  EXPECT_EQ(Content(*store, file), "first second");
}

TEST_F(FileStoreTest, AFileOfWhichAllHasArrivedIsFinishedWhateverIsSent) {
  const WholeFile file = Describe("000007.sst", "first second");
  ASSERT_OK(Open()->Write(file, 0, BytesOf("first ")));
  // The process ends between the last byte and the file's name.
  for (const auto& entry : std::filesystem::directory_iterator(path_))
    std::ofstream(entry.path(), std::ios::app) << "second";
  const auto store = Open();
  EXPECT_THAT(store->Write(file, 0, BytesOf("first ")), IsOkAndHolds(12u));
  EXPECT_EQ(Content(*store, file), "first second");
}

TEST_F(FileStoreTest, OtherBytesThanTheChecksumSaysAreDropped) {
  const auto store = Open();
  const WholeFile file = Describe("000007.sst", "right");
  EXPECT_THAT(store->Write(file, 0, BytesOf("wrong")), StatusIs(Code::kCorruption));
  EXPECT_TRUE(Must(store->List()).empty());
  EXPECT_THAT(store->Write(file, 0, BytesOf("right")), IsOkAndHolds(5u)) << "and sent again";
}

TEST_F(FileStoreTest, TwoFilesOfOneNameDoNotMeet) {
  const auto store = Open();
  const WholeFile old = Describe("000007.sst", "old"), fresh = Describe("000007.sst", "new");
  ASSERT_OK(store->Write(old, 0, BytesOf("old")).status());
  ASSERT_OK(store->Write(fresh, 0, BytesOf("new")).status());
  EXPECT_EQ(Content(*store, old), "old");
  EXPECT_EQ(Content(*store, fresh), "new");
  ASSERT_OK(store->Remove(old));
  ASSERT_OK(store->Remove(old)) << "twice";
  EXPECT_EQ(Must(store->List()).size(), 1u);
  EXPECT_EQ(Content(*store, fresh), "new");
}

TEST_F(FileStoreTest, WhatIsSetAsideIsNotHeldAndKeepsItsBytes) {
  const auto store = Open();
  const WholeFile file = Describe("000007.sst", "right");
  std::vector<std::string> paths;
  for (int round = 0; round < 3; ++round) {
    ASSERT_OK(store->Write(file, 0, BytesOf("right")).status());
    const auto aside = store->SetAside(file);
    ASSERT_OK(aside);
    paths.push_back(*aside);
    EXPECT_TRUE(Must(store->List()).empty());
    EXPECT_THAT(store->Read(file, 0, {}), StatusIs(Code::kNotFound));
  }
  EXPECT_EQ(std::set<std::string>(paths.begin(), paths.end()).size(), 3u) << "none is replaced";
  for (const std::string& path : paths) EXPECT_EQ(std::filesystem::file_size(path), 5u);
  EXPECT_EQ(Must(store->Aside()).size(), 3u);
  EXPECT_THAT(store->SetAside(file), StatusIs(Code::kNotFound));
}

// Others may have a name of the same bytes, and know them as sound by this time.
TEST_F(FileStoreTest, WhatIsSetAsideHasAnotherTime) {
  const auto store = Open();
  const WholeFile file = Describe("000007.sst", "right");
  ASSERT_OK(store->Write(file, 0, BytesOf("right")).status());
  const std::string link = store->directory() + "/../link-of-another";
  ASSERT_OK(store->Link(file, link));
  const auto long_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(9);
  std::filesystem::last_write_time(link, long_ago);
  ASSERT_OK(store->SetAside(file));
  EXPECT_GT(std::filesystem::last_write_time(link), long_ago + std::chrono::hours(1));
  std::filesystem::remove(link);
}

TEST_F(FileStoreTest, AFileOfTheSameDiskBecomesOneOfTheStore) {
  const auto store = Open();
  const WholeFile file = Describe("000007.sst", "right");
  const std::string path = store->directory() + "/../of-another";
  std::ofstream(path) << "right";
  ASSERT_OK(store->LinkFrom(path, file));
  ASSERT_OK(store->LinkFrom(path, file)) << "once more";
  const auto held = Must(store->List());
  ASSERT_EQ(held.size(), 1u);
  EXPECT_TRUE(held[0].finished && held[0].file == file);
  EXPECT_THAT(store->LinkFrom(path + "-not", Describe("000008.sst", "other")),
              StatusIs(Code::kNotFound));
  std::filesystem::remove(path);
}

// A part of the files would be taken for all of them.
TEST_F(FileStoreTest, ADirectoryThatIsReadOnlyInPartIsAnError) {
  const auto store = Open();
  ASSERT_OK(store->Write(Describe("000007.sst", "first"), 0, BytesOf("first")));
  for (int entries = 0; entries < 3; ++entries) {
    g_entries_before_error = entries;
    EXPECT_FALSE(store->List().ok()) << entries;
  }
  g_entries_before_error = -1;
  EXPECT_EQ(Must(store->List()).size(), 1u);
}

// A log that left the region keeps its bytes at the replica when it is archived.
TEST_F(FileStoreTest, AnArchivedLogTakesTheBytesThatItsFormerNameHas) {
  const auto store = Open();
  const WholeFile log = Describe("000004.log", "log bytes");
  const WholeFile archived = Describe("archive/000004.log", "log bytes");
  ASSERT_OK(store->Write(log, 0, BytesOf("log bytes")));
  EXPECT_EQ(Must(store->Write(archived, 0, {})), archived.size);
  ASSERT_OK(store->Remove(log));
  const auto again = Open();
  const auto files = Must(again->List());
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].file, archived);
  EXPECT_TRUE(files[0].finished);
  std::vector<std::byte> bytes(archived.size);
  EXPECT_EQ(Must(again->Read(archived, 0, bytes)), archived.size);
  EXPECT_TRUE(std::ranges::equal(bytes, BytesOf("log bytes")));
  ASSERT_OK(again->Remove(archived));
  // Its bytes may also arrive like those of any other file.
  ASSERT_OK(again->Write(archived, 0, BytesOf("log ")));
  EXPECT_EQ(Must(again->Write(archived, 4, BytesOf("bytes"))), archived.size);
  EXPECT_EQ(Must(again->List()).size(), 1u);
}

TEST_F(FileStoreTest, AnArchivedLogIsHeldUnderItsFormerNameToo) {
  const WholeFile log = Describe("000034.log", "log bytes");
  const WholeFile archived = Describe("archive/000034.log", "log bytes");
  EXPECT_EQ(FindHeld({}, archived), nullptr);
  const std::set<WholeFile> before{log}, after{archived};
  EXPECT_EQ(FindHeld(before, archived), &*before.begin());
  EXPECT_EQ(FindHeld(after, archived), &*after.begin());
  EXPECT_EQ(FindHeld(after, log), nullptr);
  EXPECT_EQ(FindHeld(before, Describe("archive/000034.log", "other bytes")), nullptr);
}

TEST_F(FileStoreTest, AnArchivedLogWhoseEntryHasAnotherSizeArrivesAnew) {
  const auto store = Open();
  const WholeFile log = Describe("000004.log", "log bytes");
  const WholeFile archived = Describe("archive/000004.log", "log bytes");
  ASSERT_OK(store->Write(log, 0, BytesOf("log bytes")));
  ASSERT_EQ(Must(store->Write(archived, 0, {})), archived.size);
  for (const auto& entry : std::filesystem::directory_iterator(store->directory())) {
    if (!entry.path().filename().string().starts_with("archive")) continue;
    std::filesystem::remove(entry.path());  // it is a second name of the log
    std::ofstream(entry.path()) << "short";
  }
  EXPECT_EQ(Must(store->Write(archived, 0, {})), 0u);
  EXPECT_EQ(Must(store->Write(archived, 0, BytesOf("log bytes"))), archived.size);
  std::vector<std::byte> bytes(archived.size);
  EXPECT_EQ(Must(store->Read(archived, 0, bytes)), archived.size);
  EXPECT_TRUE(std::ranges::equal(bytes, BytesOf("log bytes")));
}

TEST_F(FileStoreTest, NamesThatLeadElsewhereAreRefused) {
  const auto store = Open();
  for (const char* name : {"../x", "a/b", "/etc/x", ".hidden", "", "..", "archive/../x",
                           "archive/.x", "archive/a/b", "archive/", "archive\\x"}) {
    const WholeFile file = Describe(name, "x");
    EXPECT_THAT(store->Write(file, 0, BytesOf("x")), StatusIs(Code::kInvalidArgument)) << name;
    EXPECT_THAT(store->Remove(file), StatusIs(Code::kInvalidArgument)) << name;
  }
  EXPECT_THAT(store->Write({"x", 1, 0}, 0, BytesOf("x")), StatusIs(Code::kInvalidArgument));
  const WholeFile file = Describe("x", "x");
  EXPECT_THAT(store->Write(file, 0, BytesOf("too long")), StatusIs(Code::kInvalidArgument));
}

TEST_F(FileStoreTest, ASymbolicLinkIsNotFollowed) {
  const auto store = Open();
  const WholeFile file = Describe("000007.sst", "x");
  const std::string victim = base_ + "/victim";
  std::ofstream(victim) << "precious";
  ASSERT_OK(store->Write(file, 0, {}).status());  // the name of its part
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    std::filesystem::remove(entry.path());
    std::filesystem::create_symlink(victim, entry.path());
    break;
  }
  const auto again = Open();
  EXPECT_THAT(again->Write(file, 0, BytesOf("x")),
              StatusIs(Code::kInternal, testing::HasSubstr("symbolic links")));
  EXPECT_EQ(std::filesystem::file_size(victim), 8u);
  EXPECT_TRUE(Must(again->List()).empty());
}

TEST_F(FileStoreTest, ADirectoryThatOthersMayWriteToIsRefused) {
  std::filesystem::create_directory(path_);
  chmod(path_.c_str(), 0777);
  EXPECT_THAT(FileStore::Open(path_).status(), StatusIs(Code::kPermissionDenied));
}

TEST_F(FileStoreTest, ForeignFilesAreLeftAlone) {
  const auto store = Open();
  std::ofstream(path_ + "/notes.txt") << "mine";
  std::ofstream(path_ + "/x@12") << "short";
  EXPECT_TRUE(Must(store->List()).empty());
}

// Each would be listed as a file that nobody can read or remove, because that goes by another name.
TEST_F(FileStoreTest, NamesThatTheStoreWouldSpellOtherwiseAreLeftAlone) {
  const auto store = Open();
  for (const char* entry :
       {"x@00000000000000AB", "x@0000000000000000", "x@00000000000000ab-07.part",
        "x@00000000000000AB-7.part", "x@0000000000000000-7.part"}) {
    std::ofstream(path_ + "/" + entry) << "x";
    EXPECT_TRUE(Must(store->List()).empty()) << entry;
    std::filesystem::remove(path_ + "/" + entry);
  }
  std::ofstream(path_ + "/x@00000000000000ab-7.part") << "x";
  EXPECT_EQ(Must(store->List()).size(), 1u);
}

}  // namespace
}  // namespace hyperloop
