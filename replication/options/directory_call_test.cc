#include "hyperloop/replication/directory_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using testing::HasSubstr;
using Lost = DirectoryCall::Promote::Lost;

constexpr char kGroup[] = "--uri=hyperloop://a:1,b:2?device=/run/x&pool=/p";

std::string Refused(const std::vector<std::string>& arguments) {
  const Result<DirectoryCall> call = ParseDirectoryCall(arguments);
  EXPECT_THAT(call, StatusIs(Code::kInvalidArgument));
  return call.status().message();
}

DirectoryCall Again(const DirectoryCall& call) {
  const Result<DirectoryCall> again = ParseDirectoryCall(ArgumentsOf(call));
  EXPECT_OK(again);
  return again.ok() ? *again : DirectoryCall();
}

TEST(DirectoryCall, ArrivesAsItWasSent) {
  DirectoryCall call{DirectoryCall::Promote{"/r0.files", Lost::kAsk}, "/db = 1", StoreOptions()};
  ASSERT_OK(
      ParseStoreUri("hyperloop://a:1,b:2?device=/run/x&pool=/p%20q&takeover=true", &*call.group));
  for (const Lost lost : {Lost::kRefuse, Lost::kAsk, Lost::kGiveUp}) {
    std::get<DirectoryCall::Promote>(call.what).lost = lost;
    const DirectoryCall again = Again(call);
    EXPECT_STREQ(again.verb(), "promote");
    EXPECT_EQ(again.directory, "/db = 1");
    ASSERT_TRUE(again.group.has_value());
    EXPECT_EQ(FormatStoreUri(*again.group), FormatStoreUri(*call.group));
    EXPECT_EQ(std::get<DirectoryCall::Promote>(again.what).replica_files, "/r0.files");
    EXPECT_EQ(std::get<DirectoryCall::Promote>(again.what).lost, lost);
  }
  call.what = DirectoryCall::Standby{"/r1.files"};
  EXPECT_STREQ(Again(call).verb(), "standby");
  EXPECT_EQ(std::get<DirectoryCall::Standby>(Again(call).what).replica_files, "/r1.files");
  call.what = DirectoryCall::Switchover{"", std::chrono::seconds(604800)};
  const DirectoryCall again = Again(call);
  EXPECT_EQ(std::get<DirectoryCall::Switchover>(again.what).replica_files, "");
  EXPECT_EQ(std::get<DirectoryCall::Switchover>(again.what).wait, kMostSwitchoverWait);
  call.what = DirectoryCall::Adopt{};
  EXPECT_STREQ(Again(call).verb(), "adopt");
  call = {DirectoryCall::Doctor{}, "/db", std::nullopt};
  EXPECT_STREQ(Again(call).verb(), "doctor");
  EXPECT_FALSE(Again(call).group.has_value());
  call.what = DirectoryCall::Deep{};
  EXPECT_STREQ(Again(call).verb(), "verify-deep");
}

TEST(DirectoryCall, WhatDoesNotBelongToItIsNamed) {
  EXPECT_THAT(Refused({}), HasSubstr("verb"));
  EXPECT_THAT(Refused({"demote", "--db=/db", kGroup}), HasSubstr("unknown verb demote"));
  EXPECT_THAT(Refused({"adopt", kGroup}), HasSubstr("needs --db=DIR"));
  EXPECT_THAT(Refused({"adopt", "--db=", kGroup}), HasSubstr("needs --db=DIR"));
  EXPECT_THAT(Refused({"adopt", "--db=/db"}), HasSubstr("needs --uri=URI"));
  EXPECT_THAT(Refused({"adopt", "/db", kGroup}), HasSubstr("/db is no --NAME=VALUE"));
  EXPECT_THAT(Refused({"adopt", "--db=/db", "--db=/other", kGroup}),
              HasSubstr("--db is there twi"));
  EXPECT_THAT(Refused({"adopt", "--db=/db", "--uri=colour"}), HasSubstr("--uri"));
  EXPECT_THAT(Refused({"adopt", "--db=/db", kGroup, "--lost=ask"}),
              HasSubstr("adopt has no argument --lost"));
  EXPECT_THAT(Refused({"verify-deep", "--db=/db", kGroup}), HasSubstr("has no argument --uri"));
  EXPECT_THAT(Refused({"promote", "--db=/db", kGroup, "--wait=1"}),
              HasSubstr("promote has no argument --wait"));
  EXPECT_THAT(Refused({"promote", "--db=/db", kGroup, "--lost=no"}), HasSubstr("refuse, ask"));
  for (const char* wait : {"", "-1", "604801", "99999999999", "1x", " 1"})
    EXPECT_THAT(Refused({"switchover", "--db=/db", kGroup, std::string("--wait=") + wait}),
                HasSubstr("0 to 604800"));
}

}  // namespace
}  // namespace hyperloop
