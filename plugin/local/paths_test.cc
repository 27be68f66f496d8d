#include "paths.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "hyperloop/replication/store.h"

namespace hyperloop::plugin {
namespace {

TEST(Classify, ByName) {
  for (const char* name : {"000001.log", "1.log", "archive/000034.log", "MANIFEST-000005",
                           "CURRENT", "000005.dbtmp"}) {
    EXPECT_EQ(Classify(name), FileClass::kLogLane) << name;
  }
  for (const char* name : {"000012.sst", "000013.blob", "OPTIONS-000007", "IDENTITY", "notes.txt",
                           "x.log", "MANIFEST-"}) {
    EXPECT_EQ(Classify(name), FileClass::kListed) << name;
  }
  for (const char* name :
       {"LOG", "LOG.old.1699", "data_db_LOG", "data_db_LOG.old.1699", "LOCK", "HYPERLOOP",
        "HYPERLOOP.open", "HYPERLOOP.tmp", "000000.dbtmp", "OPTIONS-000007.dbtmp",
        "000012.sst.trash", "000012.log.trash", "CURRENT.hyperloop-new", ".marker", "tab\there"}) {
    EXPECT_EQ(Classify(name), FileClass::kUnlisted) << name;
  }
  for (const char* name :
       {"", "lost/000001.log", "archive/CURRENT", "archive/x/000001.log", "archive/000001.sst"}) {
    EXPECT_EQ(Classify(name), FileClass::kOutside) << name;
  }
}

TEST(Paths, FilesThatStayAsListed) {
  for (const char* name : {"000001.sst", "000001.blob", "000001.log", "archive/000001.log"})
    EXPECT_TRUE(StaysAsListed(name)) << name;
  for (const char* name : {"OPTIONS-000007", "IDENTITY", "archive/CURRENT", "archive/000001.sst"})
    EXPECT_FALSE(StaysAsListed(name)) << name;
}

TEST(Paths, InfoLogsOfADirectory) {
  for (const char* path : {"/data/db/LOG", "/logs/data_db_LOG"})
    EXPECT_TRUE(IsInfoLogOf(path, "/data/db")) << path;
  for (const char* path : {"/data/other/LOG", "/data/LOG", "/logs/data_db2_LOG",
                           "/data/db/LOG.old.1", "/logs/data_other_LOG", "/data/db/000001.log"})
    EXPECT_FALSE(IsInfoLogOf(path, "/data/db")) << path;
  const std::string cwd = std::filesystem::current_path();
  for (const std::string& path : {std::string("LOG"), std::string("./LOG"), cwd + "//LOG"})
    EXPECT_TRUE(IsInfoLogOf(path, cwd)) << path;
  EXPECT_TRUE(IsInfoLogOf("/logs/srv_my_db-1.x_LOG", "/srv/my db-1.x"));
  // RocksDB cuts what is too long.
  const std::string deep = "/" + std::string(300, 'a');
  EXPECT_TRUE(IsInfoLogOf("/logs/" + std::string(255, 'a') + "_LOG", deep));
}

TEST(Paths, ParentAndBase) {
  EXPECT_EQ(ParentOf("/a/b"), "/a");
  EXPECT_EQ(ParentOf("/a/b/"), "/a");
  EXPECT_EQ(ParentOf("/a"), "/");
  EXPECT_EQ(ParentOf("/"), "/");
  EXPECT_EQ(ParentOf("a"), ".");
  EXPECT_EQ(ParentOf("a//b"), "a");
  EXPECT_EQ(BaseOf("/a/b//"), "b");
  EXPECT_EQ(BaseOf("b"), "b");
}

// A replica does not take names as long as the longest ones here, so none of those may count as a
// table, a log or a MANIFEST that the group must have.
TEST(Classify, ANumberFitsIn64Bits) {
  const std::string largest = "18446744073709551615";
  const std::string longer = std::string(kMaxFileNameBytes, '7');
  EXPECT_TRUE(IsTableOrBlob(largest + ".sst"));
  EXPECT_EQ(Classify(largest + ".log"), FileClass::kLogLane);
  EXPECT_FALSE(IsTableOrBlob("18446744073709551616.sst"));
  EXPECT_FALSE(IsTableOrBlob("-1.sst"));
  for (const char* suffix : {".sst", ".blob"}) {
    EXPECT_FALSE(IsTableOrBlob("1" + largest + suffix)) << suffix;
    EXPECT_FALSE(IsTableOrBlob(longer + suffix)) << suffix;
  }
  EXPECT_FALSE(IsManifest("MANIFEST-" + longer));
  for (const std::string& name :
       {longer + ".sst", longer + ".log", longer + ".dbtmp", "MANIFEST-" + longer}) {
    EXPECT_EQ(Classify(name), FileClass::kUnlisted) << name;
  }
}

}  // namespace
}  // namespace hyperloop::plugin
