#include "hyperloop/replication/bindings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr char kUri[] = "hyperloop://127.0.0.1:1,127.0.0.1:2?device=/run/d&pool=/dev/shm/p";

Bindings Parse(const std::string& text) {
  Bindings bindings;
  AddBindings(text, &bindings);
  return bindings;
}

TEST(BindingsTest, ADirectoryAndItsUri) {
  const Bindings bindings = Parse(std::string("/var/lib/service/db=") + kUri);
  ASSERT_OK(bindings.status);
  ASSERT_THAT(bindings.list, SizeIs(1));
  EXPECT_EQ(bindings.list[0].directory, "/var/lib/service/db");
  EXPECT_OK(bindings.list[0].status);
  EXPECT_EQ(FormatStoreUri(bindings.list[0].options), kUri);
}

TEST(BindingsTest, SeveralAndOtherSpellings) {
  const Bindings bindings =
      Parse(std::string(";/a//b/./c/=") + kUri + ";/d=e;f=" + kUri + ";/x=" + kUri + ";");
  // A directory with a semicolon cannot be written here: "/d=e" is refused, not ignored.
  EXPECT_THAT(bindings.status, StatusIs(Code::kInvalidArgument, HasSubstr("HYPERLOOP_BIND: \"/d")));
  const Bindings two = Parse(std::string("/a//b/./c/=") + kUri + ";/d=e=" + kUri);
  ASSERT_OK(two.status);
  ASSERT_THAT(two.list, SizeIs(2));
  EXPECT_EQ(two.list[0].directory, "/a/b/c");
  EXPECT_EQ(two.list[1].directory, "/d=e");
}

TEST(BindingsTest, NothingIsBoundByAnEmptyText) {
  EXPECT_TRUE(Parse("").empty());
  EXPECT_TRUE(Parse(";").empty());
}

TEST(BindingsTest, WhatIsNoBindingIsSaid) {
  const auto refused = [](const std::string& text, const std::string& reason) {
    const Bindings bindings = Parse(text);
    EXPECT_FALSE(bindings.empty());
    EXPECT_THAT(bindings.status, StatusIs(Code::kInvalidArgument, HasSubstr(reason))) << text;
  };
  const std::string uri = kUri;
  refused("/var/lib/db", "it must be DIR=URI");
  refused("/var/lib/db=", "it must be DIR=URI");
  refused("/var/lib/db=id=hyperloop", "begins with hyperloop://");
  refused("=" + uri, "must begin with /");
  refused("db=" + uri, "must begin with /");
  refused("/a/../b=" + uri, "without \"..\"");
  refused("/=" + uri, "/ cannot be bound");
  refused("///=" + uri, "/ cannot be bound");
  refused("/a=" + uri + ";/a/=" + uri, "/a is bound twice");
}

TEST(BindingsTest, AWrongUriIsTheErrorOfItsDirectoryAlone) {
  const Bindings bindings = Parse(
      std::string("/a=hyperloop://127.0.0.1:1?windw=3;/b=hyperloop://127.0.0.1:1;/c=") + kUri);
  EXPECT_OK(bindings.status);
  ASSERT_THAT(bindings.list, SizeIs(3));
  EXPECT_THAT(bindings.list[0].status,
              StatusIs(Code::kInvalidArgument, HasSubstr("the nearest known one is \"window\"")));
  EXPECT_THAT(bindings.list[1].status,
              StatusIs(Code::kInvalidArgument, HasSubstr("option device is not set")));
  EXPECT_OK(bindings.list[2].status);
}

class BindingsFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/hyperloop_bindings_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  Bindings Read(const std::string& text, mode_t mode = 0644) {
    std::ofstream(Path()) << text;
    chmod(Path().c_str(), mode);
    Bindings bindings;
    AddBindingsFile(Path(), &bindings);
    return bindings;
  }
  std::string Path() const { return folder_ + "/bindings"; }
  std::string folder_;
};

TEST_F(BindingsFileTest, ALineForEachDirectory) {
  const Bindings bindings = Read(std::string("# A comment.\n\n  /a=") + kUri +
                                 "  \r\n\t# other\n/b;c=" + kUri + "\n/d=hyperloop://h:1?windw=3");
  ASSERT_OK(bindings.status);
  ASSERT_THAT(bindings.list, SizeIs(3));
  EXPECT_EQ(bindings.list[0].directory, "/a");
  EXPECT_EQ(FormatStoreUri(bindings.list[0].options), kUri);
  EXPECT_EQ(bindings.list[1].directory, "/b;c");
  EXPECT_EQ(bindings.list[2].origin, Path() + ":6");
  EXPECT_THAT(bindings.list[2].status, StatusIs(Code::kInvalidArgument));
}

TEST_F(BindingsFileTest, WhatIsNoBindingIsNamedWithItsLine) {
  EXPECT_THAT(Read("\nnonsense\n").status,
              StatusIs(Code::kInvalidArgument, HasSubstr(Path() + ":2")));
  EXPECT_TRUE(Read("# nothing\n").empty());
}

TEST_F(BindingsFileTest, NoFileSaysNothing) {
  Bindings bindings;
  AddBindingsFile(Path(), &bindings);
  AddBindingsFile(folder_ + "/absent/bindings", &bindings);
  EXPECT_TRUE(bindings.empty());
}

TEST_F(BindingsFileTest, TheEnvironmentCountsMore) {
  Bindings bindings = Parse("/a=hyperloop://h:9");
  std::ofstream(Path()) << "/a=" << kUri << "\n/b=" << kUri << "\n";
  AddBindingsFile(Path(), &bindings);
  ASSERT_OK(bindings.status);
  ASSERT_THAT(bindings.list, SizeIs(2));
  EXPECT_EQ(bindings.list[0].options.replicas, std::vector<std::string>{"h:9"});
  EXPECT_EQ(bindings.list[1].directory, "/b");
}

TEST_F(BindingsFileTest, FilesThatOthersCouldHaveWrittenAreRefused) {
  const std::string line = std::string("/a=") + kUri + "\n";
  EXPECT_THAT(Read(line, 0666).status, StatusIs(Code::kPermissionDenied, HasSubstr("by others")));
  EXPECT_FALSE(Read(line, 0664).status.ok());
  EXPECT_OK(Read(line, 0600).status);
  chmod(folder_.c_str(), 0777);
  EXPECT_THAT(Read(line).status, StatusIs(Code::kPermissionDenied, HasSubstr(folder_)));
  chmod(folder_.c_str(), 0755);
  std::filesystem::rename(Path(), folder_ + "/other");
  std::filesystem::create_symlink(folder_ + "/other", Path());
  EXPECT_THAT(Read(line).status, StatusIs(Code::kPermissionDenied, HasSubstr("symbolic link")));
  std::filesystem::remove(Path());
  std::filesystem::create_directory(Path());
  Bindings bindings;
  AddBindingsFile(Path(), &bindings);
  EXPECT_FALSE(bindings.status.ok()) << "a file that cannot be read is not ignored";
}

TEST_F(BindingsFileTest, AnothersFileIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file to somebody else";
  std::ofstream(Path()) << "/a=" << kUri << "\n";
  ASSERT_EQ(chown(Path().c_str(), 12345, 12345), 0);
  Bindings bindings;
  AddBindingsFile(Path(), &bindings);
  EXPECT_THAT(bindings.status, StatusIs(Code::kPermissionDenied, HasSubstr("12345")));
}

TEST(BindingsTest, OfTheProcess) {
  ASSERT_EQ(setenv(kBindVariable, (std::string("/a=") + kUri).c_str(), 1), 0);
  EXPECT_THAT(BindingsOfProcess().list, SizeIs(1));
  ASSERT_EQ(unsetenv(kBindVariable), 0);
  EXPECT_TRUE(BindingsOfProcess().empty());
}

}  // namespace
}  // namespace hyperloop
