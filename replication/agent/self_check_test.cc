#include "agent/self_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "support/eventually.h"

namespace hyperloop::agent {
namespace {

using test::Eventually;

TEST(SelfCheckTest, LooksAgainAndAgain) {
  const std::string folder =
      testing::TempDir() + "/hyperloop-self-check-" + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  ctl::TakeoverPlace place;
  place.store.pool = folder + "/pool";
  place.database = folder + "/db";
  place.service = "/bin/sh";
  {
    SelfCheck check(place, folder, "orders", std::chrono::milliseconds(10));
    ASSERT_TRUE(Eventually([&] { return check.found() != nullptr; }));
    EXPECT_THAT(check.found()->lacks, testing::IsEmpty());
    EXPECT_THAT(check.found()->files_error, testing::HasSubstr("/hosts: No such file"));
    check.SetRegionSize(uint64_t{1} << 60);
    ASSERT_TRUE(Eventually([&] { return !check.found()->lacks.empty(); }));
    EXPECT_THAT(check.found()->lacks[0], testing::HasSubstr("make room in"));
    check.SetRegionSize(1);
    EXPECT_TRUE(Eventually([&] { return check.found()->lacks.empty(); }));
  }
  std::filesystem::remove_all(folder);
}

TEST(SelfCheckTest, WithoutAGroupOfTheFilesNoneAreLookedAt) {
  SelfCheck check({}, "/no/such/folder", "");
  ASSERT_TRUE(Eventually([&] { return check.found() != nullptr; }));
  EXPECT_EQ(check.found()->files_error, "");
}

}  // namespace
}  // namespace hyperloop::agent
