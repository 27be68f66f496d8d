#include "follow/vouching.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>

#include "support/eventually.h"

namespace hyperloop {
namespace {

using Clock = Vouching::Clock;

class VouchingTest : public testing::Test {
 protected:
  // Three replicas, of which each says what the test lets it say; 0: it is out of reach.
  std::vector<Vouching::Witness> Witnesses() {
    std::vector<Vouching::Witness> witnesses;
    for (size_t i = 0; i < sealed.size(); ++i) {
      witnesses.push_back({members[i], [this, i]() -> Result<NodeMark> {
                             hangs[i].wait(true);
                             const uint64_t epoch = sealed[i];
                             if (epoch == 0) return Unavailable("cut off");
                             return NodeMark{epoch, epoch, 0, 0};
                           }});
    }
    return witnesses;
  }
  // Whether what is asked from now on is confirmed in the end.
  bool ComesToConfirm(const Vouching& vouching, uint64_t epoch) {
    const auto since = Clock::now();
    return test::Eventually([&] { return vouching.Confirms(members, epoch, since); });
  }

  const std::vector<std::string> members{"a:1", "b:1", "c:1"};
  std::array<std::atomic<uint64_t>, 3> sealed{7, 7, 7};
  std::array<std::atomic<bool>, 3> hangs{};
};

TEST_F(VouchingTest, AMajorityConfirmsAMoment) {
  const Vouching vouching(Witnesses());
  EXPECT_TRUE(ComesToConfirm(vouching, 7));
  EXPECT_FALSE(vouching.Confirms(members, 6, Clock::time_point()));
  EXPECT_FALSE(vouching.Confirms(members, 7, Clock::now() + std::chrono::hours(1)));
  EXPECT_FALSE(vouching.Confirms({}, 7, Clock::time_point()));
  const std::vector<std::string> others{"d:1", "e:1", "a:1"};
  EXPECT_FALSE(vouching.Confirms(others, 7, Clock::time_point()));
}

// Two of three have promised another primary that it may go on without the first.
TEST_F(VouchingTest, TheReplicaThatWasLeftOutIsNotEnough) {
  const Vouching vouching(Witnesses());
  ASSERT_TRUE(ComesToConfirm(vouching, 7));
  sealed[1] = sealed[2] = 8;
  EXPECT_TRUE(ComesToConfirm(vouching, 8));
  EXPECT_FALSE(vouching.Confirms(members, 7, Clock::time_point()))
      << "an older confirmation is not kept";
}

TEST_F(VouchingTest, OneThatDoesNotAnswerHoldsUpNobody) {
  hangs[1] = true;
  {
    const Vouching vouching(Witnesses());
    EXPECT_TRUE(ComesToConfirm(vouching, 7));
    EXPECT_TRUE(ComesToConfirm(vouching, 7));
    hangs[1] = false;
    hangs[1].notify_all();
  }
}

}  // namespace
}  // namespace hyperloop
