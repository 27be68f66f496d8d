// After a kill of the primary its local log files are damaged in every way. A reopen on the same
// group sets them to the group's content before RocksDB reads them, and every acknowledged key is
// there.
#include <fstream>
#include <functional>

#include "crash/crash_fixture.h"
#include "support/database.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using Files = std::map<std::string, std::string>;

class CrashReopenTest : public CrashTest {
 protected:
  CrashReopenTest() : CrashTest(96 << 20) {}

  // Log, MANIFEST and CURRENT as replica 0 has them.
  Files GroupFiles() {
    const std::string directory = cluster_.folder() + "/truth";
    std::filesystem::remove_all(directory);
    Result<std::vector<std::byte>> image = cluster_.ReplicaRegion(0);
    EXPECT_OK(image);
    if (image.ok()) {
      EXPECT_OK(ExportFiles(*image, directory));
    }
    return LogLane(FilesOf(directory));
  }
  static Files LogLane(const Files& all) {
    Files kept;
    for (const auto& [name, bytes] : all) {
      if (name.find('/') != std::string::npos) continue;  // what was set aside
      if (name == "CURRENT" || name.starts_with("MANIFEST-") || name.ends_with(".log"))
        kept[name] = bytes;
    }
    return kept;
  }
  void WriteLocal(const std::string& name, const std::string& bytes) {
    std::ofstream(database() + "/" + name, std::ios::binary | std::ios::trunc) << bytes;
  }
  static void ExpectEqual(const Files& local, const Files& group) {
    for (const auto& [name, bytes] : group) {
      ASSERT_TRUE(local.contains(name)) << name << " is only in the group";
      EXPECT_TRUE(local.at(name) == bytes)
          << name << " has " << local.at(name).size() << " B here, " << bytes.size()
          << " B in the group, or other bytes";
    }
    EXPECT_EQ(local.size(), group.size()) << "files that the group does not hold";
  }

  // Runs and kills the writer, applies `damage` to its local log files, and reopens.
  void KillDamageReopen(const std::string& what, const std::function<void(const Files&)>& damage) {
    SCOPED_TRACE(what);
    ASSERT_TRUE(WriteAndKill()) << "the writer did not open the database; its output is above";
    damage(LogLane(FilesOf(database())));
    StoreOptions store;
    ASSERT_OK(ParseStoreUri(cluster_.uri(), &store));
    TestDatabase again(store, database());
    again.options.write_buffer_size = 256 << 20;
    // Makes the calls that RocksDB makes first, and checks the files that it finds then.
    ASSERT_OK(again.MakeEnv());
    rocksdb::FileLock* lock = nullptr;
    const rocksdb::Status locked = again.env()->LockFile(database() + "/LOCK", &lock);
    ASSERT_OK(locked);
    ExpectEqual(LogLane(FilesOf(database())), GroupFiles());
    ASSERT_OK(again.env()->UnlockFile(lock));
    damage(LogLane(FilesOf(database())));
    const rocksdb::Status opened = again.Open();
    ASSERT_OK(opened);
    EXPECT_EQ(CheckKeys(*again.db()), "");
  }
};

TEST_F(CrashReopenTest, LocalFilesAreSetToTheGroup) {
  KillDamageReopen("zeros of the right length", [&](const Files& files) {
    for (const auto& [name, bytes] : files) WriteLocal(name, std::string(bytes.size(), '\0'));
  });
  KillDamageReopen("cut short", [&](const Files& files) {
    for (const auto& [name, bytes] : files) WriteLocal(name, bytes.substr(0, bytes.size() / 3));
  });
  KillDamageReopen("longer, and files that the group never had", [&](const Files& files) {
    for (const auto& [name, bytes] : files) WriteLocal(name, bytes + "a longer tail");
    WriteLocal("009999.log", "stray");
    WriteLocal("MANIFEST-009999", "stray");
  });
  KillDamageReopen("one wrong byte in each, CURRENT missing", [&](const Files& files) {
    for (auto [name, bytes] : files) {
      if (!bytes.empty()) bytes[bytes.size() / 2] ^= 1;
      WriteLocal(name, bytes);
    }
    std::filesystem::remove(database() + "/CURRENT");
  });
}

}  // namespace
}  // namespace hyperloop::test
