// Takings of a model's group, in each possible way: cut short at every message, once and twice; two
// owners whose messages come in every order; a primary that writes while it is taken over.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "integration/model_fixture.h"

namespace hyperloop {
namespace {

class TakingsTest : public ModelFixture {};

TEST_F(TakingsTest, OneThatIsCutShortAnywhereIsRepeated) {
  do {
    Make(3);
    TakeCut(All());
    ExpectServes(All());
  } while (Sound() && every_.Next());
  EXPECT_GT(every_.ways(), 100u);
}

TEST_F(TakingsTest, TwoThatAreCutShortAnywhereAreRepeated) {
  do {
    Make(2);
    TakeCut(All());
    TakeCut(All());
    ExpectServes(All());
  } while (Sound() && every_.Next());
  EXPECT_GT(every_.ways(), 5000u);
}

TEST_F(TakingsTest, OneWithoutAReplicaIsRepeatedAndTheReplicaJoinsAgain) {
  do {
    Make(3);
    TakeCut(AllBut(0, kMajority));
    ExpectServes(AllBut(0, kMajority));
    ExpectServes(All());
  } while (Sound() && every_.Next());
  do {
    Make(3);
    Must(Serves(AllBut(0, kMajority)));
    group_->Append(Primary(), 2, false);
    TakeCut(All());
    ExpectServes(All());
  } while (Sound() && every_.Next());
}

TEST_F(TakingsTest, AnAdditionThatIsCutShortIsRepeated) {
  do {
    Make(2);
    const std::string added = group_->Add().address;
    TakeCut(All(kAll, {added, ""}));
    ExpectServes(All(kAll, {added, ""}));
  } while (Sound() && every_.Next());
}

TEST_F(TakingsTest, ARemovalThatIsCutShortIsRepeated) {
  do {
    Make(3);
    ModelTaking::Caller caller = All(kAll, {"", Address(0)});
    caller.list.erase(caller.list.begin());
    TakeCut(caller);
    ExpectServes(caller);
  } while (Sound() && every_.Next());
}

// A removal and an addition were each cut short. Of those who know one of the sets of replicas, no
// two find majorities that have nothing of each other.
TEST_F(TakingsTest, TwoChangesThatAreCutShortLetOneSetServe) {
  do {
    Make(3);
    ModelTaking::Caller before = All(kMajority), removal = All(kAll, {"", Address(0)});
    removal.list.erase(removal.list.begin());
    TakeCut(removal);
    group_->Add();
    ModelTaking::Caller after = All(kMajority, {Address(3), ""});
    after.list.erase(after.list.begin());
    TakeCut(after);
    after.wish.change = {};
    before.reached = {Address(0), Address(2)};
    after.reached = {Address(1), Address(3)};
    for (const ModelTaking::Caller& caller : {before, after})
      if (Serves(caller)) group_->Append(Primary(), 1, false);
    EXPECT_EQ(group_->wrong, "") << every_.Text();
  } while (Sound() && every_.Next());
}

TEST_F(TakingsTest, APromotionByForceThatIsCutShortIsRepeated) {
  do {
    Make(3);
    FailureRules force = kMajority;
    force.given_up = {Address(0), Address(1)};
    ModelTaking::Caller caller = All(force);
    caller.reached = {Address(2)};
    TakeCut(caller);
    // What was given up is not of the group any more, once that is installed.
    if (!Serves(caller)) ExpectServes({All().wish, {Address(2)}, {Address(2)}});
    EXPECT_EQ(group_->wrong, "") << every_.Text();
    // Those that were given up are of another history, and are not made equal, even if they are
    // named.
    EXPECT_FALSE(Serves(All(kMajority))) << every_.Text();
    const std::vector<std::string> list = {Address(0), Address(2)};
    ModelTaking::Caller joining = All(kMajority, {Address(0), ""});
    joining.list = list;
    joining.reached = {list.begin(), list.end()};
    EXPECT_FALSE(Serves(joining)) << every_.Text();
  } while (Sound() && every_.Next());
}

// A new replica's joining of one history was cut short. Unless something is installed there, it
// joins another history, however much more the bytes in its region say to be acknowledged.
TEST_F(TakingsTest, AReplicaThatHasInstalledNothingJoinsAnyHistory) {
  uint64_t joined = 0, refused = 0;
  do {
    Make(3);
    FailureRules force = kMajority;
    force.given_up = {Address(0), Address(1)};
    ModelTaking::Caller promotion = All(force);
    promotion.reached = {Address(2)};
    Must(Serves(promotion));
    ModelTaking::Caller others = All(kAll, {"", Address(2)});
    others.list.pop_back();
    Must(Serves(others));
    group_->Append(Primary(), 8, false);
    group_->Append(Primary(), 1, false);  // states that those are acknowledged
    const std::string added = group_->Add().address;
    others.wish.change = {added, ""};
    others.list.push_back(added);
    others.reached.insert(added);
    TakeCut(others);
    const bool fresh = group_->replicas[3]->Hello().installed_epoch == 0;
    const ModelTaking::Caller branch{
        All(kAll, {added, ""}).wish, {Address(2), added}, {Address(2), added}};
    EXPECT_EQ(Serves(branch), fresh) << refused_ << ", by " << every_.Text();
    if (fresh) ExpectServes({All().wish, branch.list, branch.reached});
    EXPECT_EQ(group_->wrong, "") << every_.Text();
    ++(fresh ? joined : refused);
  } while (Sound() && every_.Next());
  EXPECT_GT(joined, 20u);
  EXPECT_GT(refused, 0u);
}

// It has a longer log, of an epoch that the others have left behind.
TEST_F(TakingsTest, AnOldCopyOfAPoolIsNotTheGroups) {
  Make(3);
  group_->AppendAt(Primary(), *group_->replicas[0], 8);
  const ModelReplica::Copy copy = group_->replicas[0]->CopyPool();
  ExpectServes(AllBut(0, kMajority));
  group_->Append(Primary(), 1, false);
  ExpectServes(All());
  group_->Append(Primary(), 1, false);
  group_->replicas[0]->PutBack(copy);
  ExpectServes(All());
}

// Two callers take the group at the same time, and whoever serves writes a record.
class TwoOwnersTest : public TakingsTest {
 protected:
  bool TakeBoth(const ModelTaking::Caller& one, const ModelTaking::Caller& other) {
    Taker a(*this, one), b(*this, other);
    if (!MoveBoth(a, b)) return false;
    served_ += (a.taking.serves() ? 1 : 0) + (b.taking.serves() ? 1 : 0);
    return true;
  }
  uint64_t served_ = 0;
};

TEST_F(TwoOwnersTest, OneHistoryWhateverTheOrder) {
  do {
    Make(2);
    if (TakeBoth(All(), All())) ExpectServes(All());
  } while (Sound() && every_.Next());
  EXPECT_GT(orders_, 1000u);
  EXPECT_GT(served_, orders_ / 2);
}

TEST_F(TwoOwnersTest, OneHistoryWhateverMajorityEachHas) {
  do {
    Make(3);
    if (TakeBoth(AllBut(2, kMajority), AllBut(0, kMajority))) ExpectServes(All());
  } while (Sound() && every_.Next());
  EXPECT_GT(orders_, 1000u);
}

TEST_F(TwoOwnersTest, NobodyIsTakenOverFromWithoutAWord) {
  do {
    Make(1);
    ModelTaking::Caller polite = All();
    polite.wish.takeover = false;
    if (TakeBoth(polite, polite)) ExpectServes(All());
  } while (Sound() && every_.Next());
}

TEST_F(TwoOwnersTest, APrimaryThatIsTakenOverFromAcknowledgesNothingThatIsLost) {
  do {
    Make(2);
    Taker taker(*this, All());
    group_->rivals = true;
    int writes = 3;
    while (!taker.over()) {
      if (writes == 0 || every_.Choose(2) == 0) {
        Move(taker);
      } else {
        --writes;
        group_->Append(group_->primaries.front(), 1, false);
      }
    }
    group_->rivals = false;
    ExpectServes(All());
  } while (Sound() && every_.Next());
  EXPECT_GT(every_.ways(), 400u);
}

}  // namespace
}  // namespace hyperloop
