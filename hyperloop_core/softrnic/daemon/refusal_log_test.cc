// Tests which refusals are logged, and how often.
#include "softrnic/daemon/refusal_log.h"

#include <gmock/gmock.h>

#include "support/log_lines.h"

namespace hyperloop::softrnic {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::SizeIs;

class RefusalLogTest : public testing::Test {
 protected:
  void Refuse(const std::string& name, const std::string& why, const std::string& source) {
    refusals_.Note(name, why, source, now_);
  }
  void Pass(seconds time) { now_ += time; }
  std::vector<std::string> TakeLines() {
    std::vector<std::string> lines = log_->lines();
    log_->Clear();
    return lines;
  }

  const std::shared_ptr<LogLines> log_ = std::make_shared<LogLines>();
  RefusalLog refusals_{log_, "link from"};
  RefusalLog::SteadyClock::time_point now_{std::chrono::hours(1)};
};

TEST_F(RefusalLogTest, OneThatTriesAgainIsLoggedOnceAndAnotherOneToo) {
  for (int i = 0; i < 100; ++i, Pass(seconds(2))) {
    Refuse("10.0.0.1:" + std::to_string(40000 + i), "unknown key", "10.0.0.1");
    Pass(seconds(2));
    Refuse("10.0.0.2:" + std::to_string(50000 + i), "unknown key", "10.0.0.2");
  }
  EXPECT_THAT(TakeLines(), ElementsAre("link from 10.0.0.1:40000 was refused: unknown key",
                                       "link from 10.0.0.2:50000 was refused: unknown key"));
  Refuse("10.0.0.1:40100", "another version", "10.0.0.1");
  EXPECT_THAT(TakeLines(), ElementsAre("link from 10.0.0.1:40100 was refused: another version"));
}

TEST_F(RefusalLogTest, AReasonIsSaidAgainAfterAWhile) {
  Refuse("somebody", "out of descriptors", "");
  Pass(RefusalLog::kSaidAgainAfter - seconds(1));
  Refuse("somebody", "out of descriptors", "");
  EXPECT_THAT(TakeLines(), SizeIs(1));
  Pass(seconds(1));
  Refuse("somebody", "out of descriptors", "");
  Refuse("somebody", "out of descriptors", "");
  EXPECT_THAT(TakeLines(), SizeIs(1));
}

TEST_F(RefusalLogTest, ManyAreLoggedAtABoundedRate) {
  for (int i = 0; i < 1000; ++i, now_ += RefusalLog::kLeastBetweenLines / 10)
    Refuse("somebody", "unknown key", std::to_string(i));
  EXPECT_THAT(TakeLines(), SizeIs(100));
}

}  // namespace
}  // namespace hyperloop::softrnic
