#include "membership/absence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kGroup[] = "11111111-1111-4111-8111-111111111111";
constexpr uint64_t kRegion = 1 << 20;

// A group of a:1 and b:1, from which c:1 is absent.
class AbsenceTest : public testing::Test {
 protected:
  AbsenceTest() {
    own_.epoch = 4;
    own_.owner.fill(7);
    own_.replicas = {Replica(0, "a:1"), Replica(1, "b:1")};
    own_.absent = {Replica(2, "c:1")};
    Set();
  }
  static std::string NodeId(int i) {
    return "00000000-0000-4000-8000-00000000000" + std::to_string(i);
  }
  static Configuration::Replica Replica(int i, const std::string& address) {
    return {*ParseUuid(NodeId(i)), address};
  }
  static control::HelloReplyT Hello(int i) {
    control::HelloReplyT hello;
    hello.node_id = NodeId(i);
    hello.device = "ready";
    hello.region_size = kRegion;
    return hello;
  }
  void Set() { absence_.Set(own_, *ParseUuid(kGroup), kRegion, now_); }
  // Asks a replica, which gives this answer. Ok: nothing keeps it from being taken in.
  Status Ask(const std::string& address, const Result<control::HelloReplyT>& hello) {
    const Status judged = absence_.Judge(address, absence_.generation(), hello);
    said_ = absence_.Note(address, absence_.generation(), judged, now_);
    return judged;
  }
  // Asks whoever is to be asked, as it answers, for so long. Returns how long it took to be ready.
  std::optional<seconds> UntilReady(int i, const std::string& address, seconds most) {
    const Absence::Time begun = now_;
    for (; now_ <= begun + most; now_ += milliseconds(500)) {
      const auto next = absence_.Next(now_);
      if (next.has_value() && next->address == address) Ask(address, Hello(i)).IgnoreError();
      const keeping::Offers offers = absence_.At(now_);
      if (offers.newcomer == address || std::ranges::count(offers.ready, address) != 0)
        return std::chrono::duration_cast<seconds>(now_ - begun);
    }
    return {};
  }
  Absence::Told Round(std::vector<std::string> proposed, std::vector<std::string> leaving = {},
                      std::vector<std::string> unanswered = {}, bool few_hold = false) {
    return absence_.NoteRound({now_, std::move(proposed), std::move(leaving), std::move(unanswered),
                               few_hold, seconds(3)},
                              absence_.generation(), now_);
  }

  Configuration own_;
  Absence::Time now_ = Absence::Time(std::chrono::hours(1));
  Absence absence_{seconds(10), {true, 0}};
  std::string said_;
};

TEST_F(AbsenceTest, AReplicaIsReadyAfterTwoAnswersAndForAMoment) {
  EXPECT_THAT(Ask("c:1", Hello(2)), StatusIs(Code::kBusy));
  EXPECT_EQ(said_, "");
  EXPECT_FALSE(absence_.Next(now_).has_value()) << "it is asked once a second";
  now_ += seconds(1);
  EXPECT_OK(Ask("c:1", Hello(2)));
  EXPECT_THAT(absence_.At(now_).ready, ElementsAre("c:1"));
  EXPECT_EQ(absence_.offers_until(), now_ + seconds(2));
  EXPECT_THAT(absence_.At(now_ + seconds(2)).ready, IsEmpty());
}

TEST_F(AbsenceTest, AReplicaThatARivalMayHoldIsNotReady) {
  control::HelloReplyT held = Hello(2);
  held.sealed_epoch = 5;
  EXPECT_THAT(Ask("c:1", held), StatusIs(Code::kBusy));
  ++held.heartbeat;
  EXPECT_THAT(Ask("c:1", held), StatusIs(Code::kUnavailable));
  EXPECT_THAT(said_, HasSubstr("replica c:1 is not taken in again yet"));
  EXPECT_THAT(Ask("c:1", Unavailable("silent")), StatusIs(Code::kUnavailable));
  EXPECT_THAT(Ask("c:1", held), StatusIs(Code::kBusy)) << "it is watched anew";
  EXPECT_OK(Ask("c:1", held));
}

TEST_F(AbsenceTest, TheSameRefusalIsSaidOnce) {
  Ask("c:1", Unavailable("silent")).IgnoreError();
  EXPECT_NE(said_, "");
  Ask("c:1", Unavailable("silent")).IgnoreError();
  EXPECT_EQ(said_, "");
  Ask("c:1", Unavailable("gone")).IgnoreError();
  EXPECT_NE(said_, "");
}

// But it is tried again for ever.
TEST_F(AbsenceTest, APauseAfterEachFailureDoublesUpToAMinuteOrSo) {
  for (const int pause : {5, 10, 20, 40, 80, 160, 320, 320}) {
    absence_.Failed("c:1", now_);
    EXPECT_THAT(absence_.At(now_).ready, IsEmpty());
    const auto took = UntilReady(2, "c:1", seconds(1000));
    ASSERT_TRUE(took.has_value());
    EXPECT_EQ(*took, seconds(pause + 1));
  }
}

TEST_F(AbsenceTest, AReplicaThatFailsSoonAfterItWasTakenInHasAPause) {
  const auto taken_in_for = [&](std::chrono::minutes time) {
    const Configuration without = own_;
    own_.replicas.push_back(own_.absent[0]);
    own_.absent.clear();
    Set();
    now_ += time;
    own_ = without;
    Set();
    return UntilReady(2, "c:1", seconds(1000));
  };
  EXPECT_EQ(UntilReady(2, "c:1", seconds(10)), seconds(1));
  EXPECT_EQ(taken_in_for(std::chrono::minutes(1)), seconds(6));
  EXPECT_EQ(taken_in_for(std::chrono::minutes(1)), seconds(11));
  EXPECT_EQ(taken_in_for(std::chrono::minutes(11)), seconds(1));
}

TEST_F(AbsenceTest, WhatMustNotBeOverwrittenIsRefusedUntilItIsAnother) {
  ASSERT_TRUE(UntilReady(2, "c:1", seconds(10)).has_value());
  absence_.Refuse("c:1", InvalidArgument("it is ahead"));
  EXPECT_THAT(Ask("c:1", Hello(2)), StatusIs(Code::kInvalidArgument, HasSubstr("it is ahead")));
  EXPECT_THAT(absence_.At(now_).ready, IsEmpty());
  Set();
  EXPECT_EQ(UntilReady(2, "c:1", seconds(100)), std::nullopt);
  EXPECT_TRUE(UntilReady(3, "c:1", seconds(10)).has_value()) << "it has a fresh pool";
}

TEST_F(AbsenceTest, AnAnswerOfAnotherGenerationDoesNotCount) {
  const uint64_t before = absence_.generation();
  Set();
  EXPECT_THAT(absence_.Judge("c:1", before, Hello(2)), StatusIs(Code::kUnavailable));
  EXPECT_EQ(absence_.Note("c:1", before, {}, now_), "");
  EXPECT_THAT(absence_.At(now_).ready, IsEmpty());
  const Absence::Told told = absence_.NoteRound({now_, {"d:1", "d:1"}}, before, now_);
  EXPECT_FALSE(absence_.IsProposed("d:1"));
}

TEST_F(AbsenceTest, WhatMostMembersTellIsProposed) {
  own_.absent.clear();
  Set();
  Round({"d:1"});
  EXPECT_FALSE(absence_.IsProposed("d:1")) << "one of two";
  Round({"d:1", "d:1"});
  EXPECT_TRUE(absence_.IsProposed("d:1"));
  EXPECT_TRUE(UntilReady(3, "d:1", seconds(10)).has_value());
  EXPECT_EQ(absence_.At(now_).newcomer, "d:1");
  Round({});
  EXPECT_FALSE(absence_.At(now_).newcomer.has_value()) << "nobody repeats it";
  // It failed once, and has a pause even if it is forgotten in between.
  Round({"d:1", "d:1"});
  absence_.Failed("d:1", now_);
  Set();
  Round({});
  Round({"d:1", "d:1"});
  EXPECT_FALSE(absence_.Next(now_).has_value());
  Round({"a:1", "a:1"});
  EXPECT_FALSE(absence_.any_absent()) << "the group has that one";
}

TEST_F(AbsenceTest, TheOnlyAbsentReplicaLeavesWhileAllOthersAnswer) {
  EXPECT_EQ(Round({}, {"c:1", "c:1"}).leaver, "");
  EXPECT_EQ(absence_.At(now_).leaver, "c:1");
  EXPECT_FALSE(absence_.At(now_ + seconds(6)).leaver.has_value());
  EXPECT_THAT(Round({}, {"c:1", "c:1"}, {"b:1"}).leaver, HasSubstr("a member is silent"));
  EXPECT_FALSE(absence_.At(now_).leaver.has_value());
  EXPECT_EQ(Round({}, {"c:1", "c:1"}, {"b:1"}).leaver, "") << "it is said once";
  EXPECT_THAT(Round({}, {"c:1", "c:1"}, {}, true).leaver, HasSubstr("fewer than half"));
  EXPECT_FALSE(absence_.At(now_).leaver.has_value());
  Round({}, {"c:1"});
  EXPECT_FALSE(absence_.At(now_).leaver.has_value()) << "one of two";
  own_.absent.push_back(Replica(3, "d:1"));
  Set();
  EXPECT_THAT(Round({}, {"c:1", "c:1"}).leaver, HasSubstr("d:1 is not"));
  EXPECT_FALSE(absence_.At(now_).leaver.has_value());
}

TEST_F(AbsenceTest, SilentMembersAreFoundAnewAfterEachChange) {
  own_.replicas.push_back(own_.absent[0]);
  own_.absent.clear();
  Set();
  Round({}, {}, {"b:1"});
  now_ += seconds(3);
  EXPECT_THAT(Round({}, {}, {"b:1"}).suspected, ElementsAre("b:1"));
  now_ += seconds(7);
  Round({}, {}, {"b:1"});
  EXPECT_THAT(absence_.At(now_).silent, ElementsAre("b:1"));
  EXPECT_THAT(absence_.suspected(), ElementsAre("b:1"));
  Set();
  EXPECT_THAT(absence_.At(now_).silent, IsEmpty());
  Round({}, {}, {"b:1"});
  EXPECT_FALSE(absence_.any_silent());
  now_ += seconds(10);
  EXPECT_THAT(Round({}, {}, {"b:1"}).suspected, ElementsAre("b:1"));
  EXPECT_TRUE(absence_.any_silent());
  EXPECT_THAT(Round({}).answering, ElementsAre("b:1"));
  EXPECT_FALSE(absence_.any_silent());
}

}  // namespace
}  // namespace hyperloop
