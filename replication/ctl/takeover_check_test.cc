#include "ctl/takeover_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/status_matchers.h"

namespace hyperloop::ctl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class TakeoverCheckTest : public testing::Test {
 protected:
  TakeoverCheckTest() {
    std::filesystem::create_directories(folder_ + "/groups");
    place_.store.pool = folder_ + "/primary.pool";
    place_.database = folder_ + "/db";
    place_.service = "/bin/sh";
    place_.region_size = 4096;
    place_.root = folder_;
  }
  ~TakeoverCheckTest() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name) << text;
  }
  void WriteHosts(const std::string& address_of_b) {
    Write("hosts", "a 10.0.0.1 " + std::string(64, 'a') + "\nb " + address_of_b + " " +
                       std::string(64, 'b') + "\n");
  }

  const std::string folder_ =
      testing::TempDir() + "/hyperloop-takeover-" + std::to_string(getpid());
  TakeoverPlace place_;
};

TEST_F(TakeoverCheckTest, NothingIsMissing) { EXPECT_THAT(TakeoverLacks(place_), IsEmpty()); }

TEST_F(TakeoverCheckTest, AServiceThatIsNotThere) {
  place_.service = "/no/such/service";
  EXPECT_THAT(TakeoverLacks(place_), ElementsAre(HasSubstr("/no/such/service")));
}

TEST_F(TakeoverCheckTest, KeysThatAreNotThere) {
  place_.store.keys = folder_ + "/keys";
  EXPECT_THAT(TakeoverLacks(place_), ElementsAre(HasSubstr(folder_ + "/keys")));
}

TEST_F(TakeoverCheckTest, NoRoomForThePool) {
  place_.region_size = uint64_t{1} << 60;
  EXPECT_THAT(TakeoverLacks(place_), ElementsAre(HasSubstr("make room in")));
  Write("primary.pool", std::string(4096, 'x'));
  place_.region_size = 4096;
  EXPECT_THAT(TakeoverLacks(place_), IsEmpty()) << "it is there";
  std::filesystem::remove(place_.store.pool);
  std::filesystem::create_directory(place_.store.pool);
  EXPECT_THAT(TakeoverLacks(place_), ElementsAre(HasSubstr("it is no regular file")));
}

TEST_F(TakeoverCheckTest, AUnitThatDoesNotStartWithTheHost) {
  place_.instance = "orders";
  EXPECT_THAT(TakeoverLacks(place_), IsEmpty()) << "there is no systemd";
  std::filesystem::create_directories(folder_ + "/run/systemd/system");
  const std::string wants = folder_ + "/etc/systemd/system/multi-user.target.wants";
  std::filesystem::create_directories(wants);
  EXPECT_THAT(TakeoverLacks(place_),
              ElementsAre(HasSubstr("systemctl enable hyperloop-agent@orders: ")));
  std::filesystem::create_symlink("/lib/systemd/system/hyperloop-agent@.service",
                                  wants + "/hyperloop-agent@orders.service");
  EXPECT_THAT(TakeoverLacks(place_), IsEmpty());
}

TEST_F(TakeoverCheckTest, LinesOfFilesAreComparedByTheirNames) {
  WriteHosts("10.0.0.2");
  Write("groups/orders.conf", "hosts = a, b\nsize = 64M\nservice = /bin/x --password=y\n");
  auto here = DigestFiles(folder_, "orders");
  ASSERT_OK(here);
  EXPECT_THAT(here->group["service"], testing::Not(HasSubstr("password")));
  // Blanks, comments and the order of lines say nothing.
  Write("groups/orders.conf", "# x\nservice = /bin/x --password=y\n\nhosts=a,b\nsize = 64M\n");
  WriteHosts("10.0.0.3");
  const auto there = DigestFiles(folder_, "orders");
  ASSERT_OK(there);
  EXPECT_THAT(Differences(here->group, there->group), IsEmpty());
  EXPECT_THAT(Differences(here->hosts, there->hosts), ElementsAre("b"));
  Write("groups/orders.conf", "hosts = b, a\nsize = 64M\nack = sync\n");
  const auto other = DigestFiles(folder_, "orders");
  ASSERT_OK(other);
  EXPECT_THAT(Differences(here->group, other->group), ElementsAre("hosts", "service", "ack"));
  std::filesystem::remove(folder_ + "/groups/orders.conf");
  EXPECT_EQ(DigestFiles(folder_, "orders").status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace hyperloop::ctl
