#include "agent/pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/status_matchers.h"

namespace hyperloop::agent {
namespace {

using std::chrono::hours;
using testing::HasSubstr;

class PagesTest : public testing::Test {
 protected:
  PagesTest() {
    picture_.node = "a";
    picture_.state = "primary";
    picture_.epoch = 7;
    picture_.primary = true;
    picture_.seen = BootClock::now();
    picture_.lease_end = BootClock::now() + hours(1);
  }
  int StatusOf(std::string_view path) {
    pages_.Set(picture_);
    return pages_.Get(path).status;
  }

  Pages pages_{hours(1)};
  Picture picture_;
};

TEST_F(PagesTest, APrimaryIsOneAsLongAsItsLeaseIsNotOver) {
  EXPECT_EQ(StatusOf("/primary"), 200);
  EXPECT_THAT(*pages_.Get("/metrics").body, HasSubstr("hyperloop_agent_primary 1\n"));
  picture_.lease_end = BootClock::now() - std::chrono::nanoseconds(1);
  EXPECT_EQ(StatusOf("/primary"), 503);
  EXPECT_THAT(*pages_.Get("/metrics").body, HasSubstr("hyperloop_agent_primary 0\n"));
  EXPECT_EQ(nlohmann::json::parse(*pages_.Get("/cluster").body)["primary"], false);
  picture_.lease_end = BootClock::now() + hours(1);
  picture_.primary = false;
  EXPECT_EQ(StatusOf("/primary"), 503);
}

// Nobody says anything new, and what was said ends by itself.
TEST_F(PagesTest, ALeaseEndsWhileTheAgentStandsStill) {
  picture_.lease_end = BootClock::now() + std::chrono::milliseconds(50);
  pages_.Set(picture_);
  while (BootClock::now() < picture_.lease_end) usleep(1000);
  EXPECT_EQ(pages_.Get("/primary").status, 503);
}

TEST_F(PagesTest, HealthIsAMajorityThatWasSeenOfLate) {
  EXPECT_EQ(StatusOf("/health"), 200);
  EXPECT_EQ(StatusOf("/replica"), 503);
  picture_.primary = false;
  picture_.standby = true;
  EXPECT_EQ(StatusOf("/replica"), 200);
  picture_.seen = BootClock::now() - hours(2);
  EXPECT_EQ(StatusOf("/health"), 503);
  EXPECT_EQ(StatusOf("/replica"), 503);
  picture_.seen.reset();
  EXPECT_EQ(StatusOf("/health"), 503);
  EXPECT_EQ(StatusOf("/nowhere"), 404);
}

TEST_F(PagesTest, TheClusterIsShownAsJson) {
  picture_.owner = "process 1 on \"x\"\xff";
  picture_.replicas = {{"h:1", "", 7, 7, false}, {"h:2", "does not answer", 0, 0, false}};
  pages_.Set(picture_);
  const metrics::Answer answer = pages_.Get("/cluster");
  EXPECT_STREQ(answer.type, "application/json");
  const auto json = nlohmann::json::parse(*answer.body);
  EXPECT_EQ(json["replicas"][1]["error"], "does not answer");
  EXPECT_EQ(json["replicas"][0]["epoch"], 7);
  EXPECT_THAT(*pages_.Get("/metrics").body, HasSubstr("hyperloop_agent_visible_replicas 1\n"));
}

TEST_F(PagesTest, TheRoleFileIsReplacedWhole) {
  const std::string path = testing::TempDir() + "/hyperloop-role-" + std::to_string(getpid());
  ASSERT_OK(ReplaceFile(path, "old"));
  std::ifstream before(path);
  ASSERT_OK(ReplaceFile(path, RoleText(picture_)));
  std::string text;
  before >> text;
  EXPECT_EQ(text, "old") << "who had it open has the old one";
  std::ifstream after(path);
  EXPECT_EQ(nlohmann::json::parse(after)["primary"], true);
  EXPECT_FALSE(std::filesystem::exists(path + ".new"));
  std::filesystem::remove(path);
  EXPECT_EQ(ReplaceFile("/no/such/folder/role", "").code(), Code::kNotFound);
}

}  // namespace
}  // namespace hyperloop::agent
