#include "softrnic/daemon/file_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace hyperloop::softrnic {
namespace {

namespace fs = std::filesystem;

class FileWatchTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "hyperloop-watch-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string Path() const { return folder_ + "/file"; }
  void Write(const std::string& text) { std::ofstream(Path()) << text; }
  // How many of three looks, enough for any change, are true.
  int Looks(FileWatch& watch) {
    int found = 0;
    for (int i = 0; i < 3; ++i) found += watch.Look() ? 1 : 0;
    return found;
  }

  std::string folder_;
};

TEST_F(FileWatchTest, AChangeIsFoundOnce) {
  Write("a");
  FileWatch watch(Path());
  EXPECT_EQ(Looks(watch), 1) << "what it is at first";
  EXPECT_EQ(Looks(watch), 0);
  Write("another size");
  EXPECT_EQ(Looks(watch), 1);
  std::ofstream(Path() + ".new") << "another size";
  fs::rename(Path() + ".new", Path());
  EXPECT_EQ(Looks(watch), 1) << "another file with the same bytes";
  fs::remove(Path());
  EXPECT_EQ(Looks(watch), 1);
  EXPECT_EQ(Looks(watch), 0);
  Write("back");
  EXPECT_EQ(Looks(watch), 1);
  watch.Forget();
  EXPECT_EQ(Looks(watch), 1);
}

TEST_F(FileWatchTest, WhatChangesWhileItIsReadIsNotTheSame) {
  Write("all of it");
  FileWatch watch(Path());
  EXPECT_EQ(Looks(watch), 1);
  EXPECT_TRUE(watch.Same());
  Write("");
  EXPECT_FALSE(watch.Same());
  EXPECT_EQ(Looks(watch), 1);
  EXPECT_TRUE(watch.Same());
  fs::remove(Path());
  EXPECT_FALSE(watch.Same());
}

// As an editor does that empties the file before it writes it.
TEST_F(FileWatchTest, AFileThatIsBeingWrittenWaits) {
  Write("all of it");
  FileWatch watch(Path());
  EXPECT_EQ(Looks(watch), 1);
  Write("");
  EXPECT_FALSE(watch.Look());
  Write("half");
  EXPECT_FALSE(watch.Look());
  Write("all of it, and more");
  EXPECT_FALSE(watch.Look());
  EXPECT_EQ(watch.restless(), 3);
  EXPECT_TRUE(watch.Look());
  EXPECT_EQ(watch.restless(), 0);
}

}  // namespace
}  // namespace hyperloop::softrnic
