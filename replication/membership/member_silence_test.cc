#include "membership/member_silence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/random_uuid.h"

namespace hyperloop {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Strings = std::vector<std::string>;

class MemberSilenceTest : public testing::Test {
 protected:
  MemberSilenceTest() {
    for (const char* address : {"a:1", "b:1", "c:1"})
      group_.replicas.push_back({RandomUuid(), address});
  }
  static MemberSilence Silence(int timeout, FailureRules rules = {true, 0}) {
    return {std::chrono::seconds(timeout), std::move(rules)};
  }
  MemberSilence::Judgement At(MemberSilence& silence, int second, const Strings& unanswered) const {
    return silence.Judge(group_, unanswered,
                         MemberSilence::Clock::time_point() + std::chrono::seconds(1000 + second));
  }

  Configuration group_;
};

TEST_F(MemberSilenceTest, ASilentMemberIsSuspectedOnceAndLeftOutAfterTheTimeout) {
  MemberSilence silence = Silence(10);
  EXPECT_THAT(At(silence, 0, {"b:1"}).suspected, IsEmpty());
  EXPECT_THAT(At(silence, 3, {"b:1"}).suspected, ElementsAre("b:1"));
  const auto before = At(silence, 9, {"b:1"});
  EXPECT_THAT(before.suspected, IsEmpty());
  EXPECT_THAT(before.all_suspected, ElementsAre("b:1"));
  EXPECT_THAT(before.to_leave_out, IsEmpty());
  EXPECT_THAT(At(silence, 10, {"b:1"}).to_leave_out, ElementsAre("b:1"));
  const auto after = At(silence, 11, {});
  EXPECT_THAT(after.to_leave_out, IsEmpty());
  EXPECT_THAT(after.answering, ElementsAre("b:1"));
  EXPECT_THAT(after.all_suspected, IsEmpty());
}

TEST_F(MemberSilenceTest, AnAnswerInBetweenBeginsAnew) {
  MemberSilence silence = Silence(5);
  At(silence, 0, {"b:1"});
  At(silence, 4, {});
  EXPECT_THAT(At(silence, 5, {"b:1"}).to_leave_out, IsEmpty());
  silence.Forget();
  EXPECT_THAT(At(silence, 10, {"b:1"}).to_leave_out, IsEmpty());
  EXPECT_THAT(At(silence, 15, {"b:1"}).to_leave_out, ElementsAre("b:1"));
}

// Without the members that went silent later the others could not go on.
TEST_F(MemberSilenceTest, NobodyIsLeftOutWhileAnotherIsSilentForAShorterTime) {
  group_.replicas.push_back({RandomUuid(), "d:1"});
  group_.replicas.push_back({RandomUuid(), "e:1"});
  MemberSilence silence = Silence(5);
  At(silence, 0, {"b:1"});
  EXPECT_THAT(At(silence, 5, {"b:1", "c:1"}).to_leave_out, IsEmpty());
  EXPECT_THAT(At(silence, 10, {"b:1", "c:1"}).to_leave_out, ElementsAre("b:1", "c:1"));
}

TEST_F(MemberSilenceTest, NobodyIsLeftOutIfTheOthersMayNotGoOn) {
  MemberSilence two = Silence(5);
  At(two, 0, {"a:1", "b:1"});
  EXPECT_THAT(At(two, 5, {"a:1", "b:1"}).to_leave_out, IsEmpty()) << "one of three is no majority";
  MemberSilence three = Silence(5, {true, 3});
  At(three, 0, {"b:1"});
  EXPECT_THAT(At(three, 5, {"b:1"}).to_leave_out, IsEmpty()) << "min_replicas=3";
  MemberSilence blocking = Silence(5, {});
  At(blocking, 0, {"b:1"});
  EXPECT_THAT(At(blocking, 5, {"b:1"}).to_leave_out, IsEmpty()) << "on_replica_failure=block";
  MemberSilence without = Silence(0);
  At(without, 0, {"b:1"});
  const auto later = At(without, 3600, {"b:1"});
  EXPECT_THAT(later.to_leave_out, IsEmpty());
  EXPECT_THAT(later.suspected, ElementsAre("b:1"));
}

}  // namespace
}  // namespace hyperloop
