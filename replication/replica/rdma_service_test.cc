#include "replica/rdma_service.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "support/log_lines.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using testing::HasSubstr;

class RdmaServiceTest : public testing::Test {
 protected:
  RdmaServiceTest() {
    std::string pattern = testing::TempDir() + "/hyperloop-rdma-service-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    pool_ = Pool::Create(folder_ + "/pool", 1 << 20).value();
  }
  ~RdmaServiceTest() override { std::filesystem::remove_all(folder_); }

  // Each attempt to reach the daemon ends with the next of `ends_`.
  DeviceOpener Opener() {
    return [this]() -> Result<std::unique_ptr<rnic::Device>> { return ends_.at(attempts_++); };
  }

  std::string folder_;
  std::unique_ptr<Pool> pool_;
  LogLines log_;
  std::vector<Status> ends_;
  size_t attempts_ = 0;
};

// As a daemon on a busy machine, or one that is stopped.
TEST_F(RdmaServiceTest, AStartWaitsForADaemonThatIsThereAndDoesNotAnswer) {
  ends_ = {TimedOut("no answer"), TimedOut("no answer"), Unavailable("gone")};
  RdmaService service(Opener(), *pool_, &log_);
  EXPECT_THAT(service.StartPatiently([] { return false; }),
              StatusIs(Code::kUnavailable, HasSubstr("gone")));
  EXPECT_EQ(attempts_, 3u);
  EXPECT_TRUE(log_.Has("no answer; trying again"));
}

TEST_F(RdmaServiceTest, AStartThatIsToEndWaitsNoLonger) {
  ends_ = {TimedOut("no answer"), TimedOut("no answer")};
  RdmaService service(Opener(), *pool_, &log_);
  EXPECT_THAT(service.StartPatiently([this] { return attempts_ == 2; }), StatusIs(Code::kTimedOut));
  EXPECT_EQ(attempts_, 2u);
}

}  // namespace
}  // namespace hyperloop
