#include "softrnic/embedded/embedded.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <array>

#include "support/must.h"
#include "support/rnic_end.h"
#include "support/status_matchers.h"

namespace hyperloop::softrnic {
namespace {

// Both ways to drive the engine: by hand and by its thread.
class EmbeddedRnicTest : public testing::TestWithParam<bool> {
 protected:
  EmbeddedRnicTest() {
    if (!GetParam()) return;
    EXPECT_OK(rnic_.StartThread());
  }
  RnicEnd End(const std::string& host) {
    return Must(RnicEnd::Make(Must(rnic_.OpenDevice(host)), {}, 4096, rnic::kLocalWrite));
  }
  EmbeddedRnic rnic_;
};

TEST_P(EmbeddedRnicTest, NothingOfAHostThatWasClosedWorks) {
  RnicEnd end = End("a");
  ASSERT_OK(end.qp->Connect(end.qp->address()));
  auto events = end.device->CreateCq({.depth = 4, .events = true});
  ASSERT_OK(events);
  rnic_.CloseHost("a");
  EXPECT_FALSE(end.device->alive());
  EXPECT_THAT(end.device->AllocatePd(), StatusIs(Code::kUnavailable));
  EXPECT_THAT(end.device->CreateCq({.depth = 4}), StatusIs(Code::kUnavailable));
  EXPECT_THAT(end.device->CreateCq({.depth = 4, .events = true}), StatusIs(Code::kUnavailable));
  const rnic::SendRequest nop{.opcode = rnic::Opcode::kNop, .signaled = true};
  EXPECT_THAT(end.qp->Post({&nop, 1}), StatusIs(Code::kUnavailable));
  std::array<rnic::Completion, 4> some;
  EXPECT_THAT(end.cq->Poll(some), StatusIs(Code::kUnavailable));
  pollfd wait{(*events)->event_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&wait, 1, -1), 1) << "whoever waits for an event is told";
  EXPECT_THAT((*events)->TakeEvents(), StatusIs(Code::kUnavailable));
}

TEST_P(EmbeddedRnicTest, OtherHostsAndLaterDevicesOfTheSameGoOn) {
  RnicEnd before = End("a"), other = End("b");
  rnic_.CloseHost("a");
  RnicEnd after = End("a");
  EXPECT_FALSE(before.device->alive());
  EXPECT_OK(other.device->AllocatePd());
  EXPECT_OK(after.device->AllocatePd());
}

INSTANTIATE_TEST_SUITE_P(Drivers, EmbeddedRnicTest, testing::Bool(),
                         [](const auto& each) { return each.param ? "Thread" : "ByHand"; });

}  // namespace
}  // namespace hyperloop::softrnic
