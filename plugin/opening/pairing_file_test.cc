// The file HYPERLOOP of a directory: what it says to people, the formats of former releases, and
// how it tells a copy of its directory.
#include "pairing_file.h"

#include <filesystem>

#include "hyperloop/core/text.h"
#include "hyperloop/plugin/token.h"
#include "hyperloop/replication/crc32c.h"
#include "support/status_matchers.h"
#include "testing/database_fixture.h"

namespace hyperloop::plugin::testing {
namespace {

namespace stdfs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class PairingFileTest : public DatabaseTest {
 protected:
  std::string Path(const std::string& name) { return directory_ + "/" + name; }
  // A table with "table" and a log with "log", closed.
  void Make() {
    ASSERT_OK(Open(MakeOptions()));
    Put("table", "1");
    ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));
    Put("log", "1");
    Close();
  }
  void OpenAsNewProcess() {
    env_.reset();
    fs_ = MakeFileSystem(MakeStoreOptions());
    env_ = rocksdb::NewCompositeEnv(fs_);
    ASSERT_OK(Open(MakeOptions()));
    ExpectLocalEqualsGroup();
  }
};

// Whoever finds the file knows what it is, and what not to do.
TEST_F(PairingFileTest, TellsAPersonWhatItIs) {
  Make();
  const std::string text = ReadLocal(Path("HYPERLOOP"));
  EXPECT_THAT(text,
              AllOf(HasSubstr("HyperLoop replicates"), HasSubstr("Open it only with"),
                    HasSubstr("hyperloopctl doctor --db"), HasSubstr("Do not change or copy")));
}

// A HYPERLOOP file as release 0.1 wrote it, without the lines for people.
std::string Version2(const std::string& body) {
  char crc[32];
  std::snprintf(crc, sizeof crc, "crc32c %08x\n", ~Crc32c(~0u, body.data(), body.size()));
  return body + crc;
}

TEST_F(PairingFileTest, Version2OpensAndStaysAsItIs) {
  Make();
  PairingFile now;
  ASSERT_OK(ReadPairing(*rocksdb::FileSystem::Default(), directory_, &now));
  WriteLocal(
      Path("HYPERLOOP"),
      Version2(hyperloop::Text("hyperloop pairing 2\ngroup ", now.pairing.group, "\ndatabase ",
                               now.pairing.database, "\ndirectory ", now.recorded.path, "\ndevice ",
                               now.recorded.device, "\ninode ", now.recorded.inode, "\n")));
  const std::string old = ReadLocal(Path("HYPERLOOP"));
  OpenAsNewProcess();
  EXPECT_EQ(Get("table") + Get("log"), "11");
  Close();
  EXPECT_EQ(ReadLocal(Path("HYPERLOOP")), old);
  // A copy of it is still told apart.
  stdfs::copy(directory_, root_ + "/copy", stdfs::copy_options::recursive);
  stdfs::rename(directory_, root_ + "/before");
  stdfs::rename(root_ + "/copy", directory_);
  EXPECT_THAT(Open(MakeOptions()).ToString(), HasSubstr("is a copy"));
}

TEST_F(PairingFileTest, Version2IsReadWhole) {
  Make();
  PairingFile before;
  ASSERT_OK(ReadPairing(*rocksdb::FileSystem::Default(), directory_, &before));
  WriteLocal(Path("HYPERLOOP"),
             Version2("hyperloop pairing 2\ngroup fake-group\ndatabase database-1\n"
                      "directory /old\ndevice 1\ninode 7\nunfinished\n"));
  PairingFile read;
  ASSERT_OK(ReadPairing(*rocksdb::FileSystem::Default(), directory_, &read));
  EXPECT_EQ(read.pairing, before.pairing);
  EXPECT_EQ(read.recorded, (PairingPlace{"/old", 1, 7}));
  EXPECT_FALSE(read.finished);
}

TEST_F(PairingFileTest, Version1IsReadAndRenewed) {
  Make();
  const Pairing pairing = group_->pairing();
  // As version 0.1 wrote it, its checksum included.
  ASSERT_EQ(pairing.group + pairing.database, "fake-groupdatabase-1");
  const std::string old =
      "hyperloop pairing 1\ngroup fake-group\ndatabase database-1\ncrc32c 0bbeb79e\n";
  WriteLocal(Path("HYPERLOOP"), old);
  OpenAsNewProcess();
  EXPECT_THAT(ReadLocal(Path("HYPERLOOP")), HasSubstr("hyperloop pairing 3\n"));
  EXPECT_EQ(Get("table") + Get("log"), "11");
}

// A writer's tokens carry the branch. A release that knows none opens what has none.
TEST_F(PairingFileTest, SaysWhichBranch) {
  Make();
  EXPECT_THAT(ReadLocal(Path("HYPERLOOP")), HasSubstr("hyperloop pairing 3\n"));
  rocksdb::FileSystem& fs = *rocksdb::FileSystem::Default();
  ASSERT_OK(WritePairing(fs, directory_, group_->pairing(), "17 an-owner", false));
  PairingFile file;
  ASSERT_OK(ReadPairing(fs, directory_, &file));
  EXPECT_EQ(file.branch, "17 an-owner");
  EXPECT_EQ(file.pairing, group_->pairing());
  EXPECT_FALSE(file.finished);
  EXPECT_THAT(ReadLocal(Path("HYPERLOOP")), HasSubstr("hyperloop pairing 4\n"));
}

TEST_F(PairingFileTest, SaysOfWhatAWritersTokensAre) {
  ASSERT_OK(Open(MakeOptions()));
  Origin origin;
  ASSERT_OK(Origin::OfPrimary(db_.get(), &origin));
  EXPECT_EQ(origin.group, "fake-group");
  EXPECT_EQ(origin.branch, "0");
  std::string identity;
  ASSERT_OK(db_->GetDbIdentity(identity));
  EXPECT_EQ(origin.database, identity);
  Close();
  group_->BranchOff("17 an-owner");
  OpenAsNewProcess();
  ASSERT_OK(Origin::OfPrimary(db_.get(), &origin));
  EXPECT_EQ(origin.branch, "17-an-owner");

  rocksdb::Options options;
  options.create_if_missing = true;
  rocksdb::DB* plain = nullptr;
  ASSERT_OK(rocksdb::DB::Open(options, root_ + "/plain", &plain));
  const std::unique_ptr<rocksdb::DB> closes(plain);
  EXPECT_TRUE(Origin::OfPrimary(plain, &origin).IsNotFound());
}

TEST(PairingPlaceTest, TheInodeDecides) {
  const auto copy = [](PairingPlace recorded, PairingPlace found) {
    PairingFile file;
    file.recorded = std::move(recorded);
    file.found = std::move(found);
    return file.IsCopy();
  };
  EXPECT_FALSE(copy({"/a", 1, 7}, {"/a", 1, 7}));
  EXPECT_FALSE(copy({"/a", 1, 7}, {"/b", 1, 7})) << "renamed";
  EXPECT_FALSE(copy({"/a", 1, 7}, {"/a", 2, 7})) << "devices are numbered anew at each start";
  EXPECT_TRUE(copy({"/a", 1, 7}, {"/b", 2, 7})) << "the same number by chance, or a snapshot";
  EXPECT_TRUE(copy({"/a", 1, 7}, {"/a", 1, 8}));
  EXPECT_TRUE(copy({"/a", 1, 7}, {"/b", 1, 8}));
  EXPECT_FALSE(copy({"", 0, 0}, {"/a", 1, 7})) << "version 1";
  EXPECT_FALSE(copy({"/a", 1, 7}, {"/a", 0, 0})) << "no inodes here";
}

}  // namespace
}  // namespace hyperloop::plugin::testing
