#include "hyperloop/replication/bindings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

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

TEST(BindingsTest, OfTheProcess) {
  ASSERT_EQ(setenv(kBindVariable, (std::string("/a=") + kUri).c_str(), 1), 0);
  EXPECT_THAT(BindingsOfProcess().list, SizeIs(1));
  ASSERT_EQ(unsetenv(kBindVariable), 0);
  EXPECT_TRUE(BindingsOfProcess().empty());
}

}  // namespace
}  // namespace hyperloop
