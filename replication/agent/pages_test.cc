#include "agent/pages.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "hyperloop/core/unique_fd.h"
#include "hyperloop/metrics/table.h"
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

TEST_F(PagesTest, AHookThatWaitsShowsSinceWhen) {
  picture_.hooks = {{"/one", 3, 2, BootClock::now() - hours(1)}, {"/two", 1, 0, {}}};
  pages_.Set(picture_);
  const std::string page = *pages_.Get("/metrics").body;
  EXPECT_THAT(page, HasSubstr("hyperloop_agent_hook_failures_total{hook=\"/one\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("hyperloop_agent_hook_waiting_seconds{hook=\"/one\"} 36"));
  EXPECT_THAT(page, HasSubstr("hyperloop_agent_hook_waiting_seconds{hook=\"/two\"} 0\n"));
}

TEST_F(PagesTest, WhatKeepsTheNodeFromTakingTheGroupIsSaidAtTheMomentOfTheRequest) {
  const auto able = [this] {
    pages_.Set(picture_);
    const auto json = nlohmann::json::parse(*pages_.Get("/check").body);
    EXPECT_EQ(json["able"], json["lacks"].empty());
    EXPECT_THAT(*pages_.Get("/metrics").body,
                HasSubstr(json["able"] ? "hyperloop_agent_able 1\n" : "hyperloop_agent_able 0\n"));
    return json["able"].get<bool>();
  };
  EXPECT_FALSE(able()) << "nobody has looked yet";
  SelfChecked checked{BootClock::now(), {}, {{{"b", "1f"}}, {{"size", "2e"}}}, ""};
  const auto check = [&] { picture_.checked = std::make_shared<SelfChecked>(checked); };
  check();
  EXPECT_TRUE(able());
  const auto json = nlohmann::json::parse(*pages_.Get("/check").body);
  EXPECT_EQ(json["files"]["hosts"]["b"], "1f");
  EXPECT_EQ(json["files"]["group"]["size"], "2e");
  picture_.drained = true;
  EXPECT_FALSE(able());
  picture_.drained = false;
  picture_.seen = BootClock::now() - hours(2);
  EXPECT_FALSE(able());
  picture_.seen = BootClock::now();
  checked.when -= hours(1);  // as when a disk hangs
  check();
  EXPECT_FALSE(able());
  checked.when = BootClock::now();
  checked.lacks = {"make room"};
  check();
  EXPECT_FALSE(able());
  checked.lacks.clear();
  check();
  EXPECT_TRUE(able());
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

TEST_F(PagesTest, ShowsTheMetricsOfTheTable) {
  picture_.hooks = {{"/hook", 3, 2, BootClock::now() - hours(1)}};
  pages_.Set(picture_);
  const std::string page = *pages_.Get("/metrics").body;
  for (const metrics::Info& each : metrics::kTable) {
    const bool shown = page.find("\n# TYPE " + std::string(each.name) + " ") != std::string::npos;
    EXPECT_EQ(shown, (each.shown_by & metrics::kAgent) != 0) << each.name;
  }
}

TEST_F(PagesTest, WithoutALeaseNeitherRoleNorStateIsThatOfThePrimary) {
  picture_.lease_end = BootClock::now() - std::chrono::nanoseconds(1);
  pages_.Set(picture_);
  EXPECT_EQ(nlohmann::json::parse(*pages_.Get("/cluster").body)["state"], "taking");
  EXPECT_THAT(*pages_.Get("/metrics").body, HasSubstr("state=\"taking\""));
  const auto role = nlohmann::json::parse(RoleText(picture_, BootClock::now()));
  EXPECT_EQ(role["primary"], false);
  EXPECT_EQ(role["state"], "taking");
}

// Neither is waited for, nor written to.
TEST_F(PagesTest, NoOtherFileInTheWayIsWritten) {
  const std::string path = testing::TempDir() + "/hyperloop-role-" + std::to_string(getpid());
  const std::string beside = path + ".new", other = path + ".other";
  std::ofstream(other) << "other";
  std::filesystem::create_hard_link(other, beside);
  ASSERT_OK(WriteRoleFile(path, "role"));
  EXPECT_EQ(std::filesystem::file_size(other), 5u);
  ASSERT_EQ(mkfifo(beside.c_str(), 0600), 0);
  const UniqueFd reader(open(beside.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_OK(WriteRoleFile(path, "role"));
  EXPECT_TRUE(std::filesystem::is_regular_file(path));
  for (const std::string& each : {path, beside, other}) std::filesystem::remove(each);
}

TEST_F(PagesTest, TheRoleFileIsReplacedWhole) {
  const std::string path = testing::TempDir() + "/hyperloop-role-" + std::to_string(getpid());
  ASSERT_OK(WriteRoleFile(path, "old"));
  std::ifstream before(path);
  ASSERT_OK(WriteRoleFile(path, RoleText(picture_, BootClock::now())));
  std::string text;
  before >> text;
  EXPECT_EQ(text, "old") << "who had it open has the old one";
  std::ifstream after(path);
  EXPECT_EQ(nlohmann::json::parse(after)["primary"], true);
  EXPECT_FALSE(std::filesystem::exists(path + ".new"));
  std::filesystem::remove(path);
  EXPECT_EQ(WriteRoleFile("/no/such/folder/role", "").code(), Code::kNotFound);
}

}  // namespace
}  // namespace hyperloop::agent
