// How primaries keep a model's group, in each possible way: what brings a group back is cut short
// at every message; another owner's messages come in between in every order; replicas fail and
// return.
#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "integration/model_fixture.h"
#include "integration/model_keeping.h"

namespace hyperloop {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class KeepingsTest : public ModelFixture {
 protected:
  // All replicas answer, and nobody has been silent for long.
  ModelKeeping::Call Reaching() const {
    ModelKeeping::Call call;
    for (const auto& each : group_->replicas) call.reached.insert(each->address);
    return call;
  }
  // One replica has been silent for so long that it may be left out.
  ModelKeeping::Call Without(size_t i) const {
    ModelKeeping::Call call = Reaching();
    call.reached.erase(Address(i));
    call.silence = seconds(10);
    return call;
  }
  ModelKeeping::Call WithReady(size_t i) const {
    ModelKeeping::Call call = Reaching();
    call.offers.ready = {Address(i)};
    return call;
  }
  bool IsBack(ModelPrimary& primary, const ModelKeeping::Call& call) {
    ModelKeeping keeping(*group_, primary, call);
    while (!keeping.over()) keeping.Advance();
    return keeping.is_back();
  }
  // A call that is cut short at any message: a message is lost, or the process dies. False: it is
  // dead.
  bool BringBackCut(const ModelKeeping::Call& call) {
    enum : uint64_t { kGoesOn, kDies, kIsLost };
    ModelKeeping keeping(*group_, Primary(), call);
    bool cut = false, dead = false;
    while (!keeping.over() && !dead) {
      const uint64_t way = !cut && keeping.may_be_cut() ? every_.Choose(3) : kGoesOn;
      cut = cut || way != kGoesOn;
      dead = way == kDies;
      if (!dead) way == kIsLost ? keeping.Lose() : keeping.Advance();
    }
    if (cut && every_.Choose(2) == 1)
      for (const auto& each : group_->replicas) each->Restart(/*power_failed=*/true);
    return !dead;
  }
  // Whatever was cut short, this primary's next call brings the group back, if it lives.
  void ExpectBack(bool lives, const ModelKeeping::Call& next) {
    if (!lives) return;
    EXPECT_TRUE(IsBack(Primary(), next)) << every_.Text();
    group_->Append(Primary(), 2, false);
    EXPECT_FALSE(Primary().broken) << every_.Text();
  }
  // An opening gets the group, whether it has this replica or not, and finds all that is kept.
  void ExpectSomebodyServes(size_t perhaps) {
    EXPECT_EQ(group_->wrong, "") << every_.Text();
    ModelTaking::Caller others = All(kMajority);
    if (perhaps >= others.list.size()) return ExpectServes(others);
    if (!Serves(others)) {
      others.list.erase(others.list.begin() + static_cast<ptrdiff_t>(perhaps));
      ExpectServes(others);
    }
    EXPECT_EQ(group_->wrong, "") << every_.Text();
  }
};

TEST_F(KeepingsTest, AGroupThatOnlyFailedWorksAgainUnderTheSameEpoch) {
  do {
    Make(3, kMajority);
    const uint64_t epoch = Primary().configuration.epoch;
    const bool lives = BringBackCut(Reaching());
    EXPECT_EQ(Primary().configuration.epoch, epoch);
    ExpectBack(lives, Reaching());
    ExpectServes(All(kMajority));
  } while (Sound() && every_.Next());
  EXPECT_GT(every_.ways(), 30u);
}

TEST_F(KeepingsTest, AGroupThatLostAReplicaGoesOnAndTakesItInAgain) {
  do {
    Make(3, kMajority);
    ExpectBack(BringBackCut(Without(1)), Without(1));
    ExpectServes(All(kMajority));
  } while (Sound() && every_.Next());
  EXPECT_GT(every_.ways(), 50u);
  do {
    Make(3, kMajority);
    Must(IsBack(Primary(), Without(1)));
    group_->Append(Primary(), 2, false);
    ExpectBack(BringBackCut(WithReady(1)), WithReady(1));
    ExpectServes(All(kMajority));
  } while (Sound() && every_.Next());
  EXPECT_GT(every_.ways(), 100u);
}

// Two cuts in a row.
TEST_F(KeepingsTest, AReplicaThatIsTakenInAfterTwoCutsHoldsAll) {
  do {
    Make(2, kMajority);
    group_->Add();
    ModelKeeping::Call call = Reaching();
    call.offers.newcomer = Address(2);
    if (!BringBackCut(call)) continue;
    ExpectBack(BringBackCut(Reaching()), Reaching());
    ExpectSomebodyServes(2);
  } while (Sound() && every_.Next());
  EXPECT_GT(every_.ways(), 500u);
}

TEST_F(KeepingsTest, AnAdditionThatIsCutShortIsTakenBackOrGoesOn) {
  do {
    Make(2, kMajority);
    group_->Add();
    ModelKeeping::Call call = Reaching();
    call.offers.newcomer = Address(2);
    const bool lives = BringBackCut(call);
    if (lives) Must(IsBack(Primary(), Reaching()));
    ExpectBack(lives && BringBackCut(WithReady(2)), Reaching());
    ExpectSomebodyServes(2);
  } while (Sound() && every_.Next());
}

TEST_F(KeepingsTest, ARemovalThatIsCutShortIsRepeated) {
  do {
    Make(3, kMajority);
    Must(IsBack(Primary(), Without(1)));
    ModelKeeping::Call call = Without(1);
    call.offers.leaver = Address(1);
    const bool lives = BringBackCut(call);
    ExpectBack(lives, call);
    EXPECT_TRUE(!lives || !Primary().configuration.Has(Address(1))) << every_.Text();
    ExpectSomebodyServes(1);
  } while (Sound() && every_.Next());
}

// --- two owners

class KeeperAndTakerTest : public KeepingsTest {
 protected:
  // A primary that brings its group back, and then writes a record.
  struct Keeper : Owner {
    Keeper(KeeperAndTakerTest& fixture, ModelPrimary& primary, const ModelKeeping::Call& call)
        : Owner(keeping), test(fixture), own(primary), keeping(*test.group_, primary, call) {}
    bool serves() const override { return keeping.is_back(); }
    void Write() override { test.group_->Append(own, 1, false); }
    KeeperAndTakerTest& test;
    ModelPrimary& own;
    ModelKeeping keeping;
  };
  // In every order. At the end, at most one of them serves, and an opening finds what both wrote.
  void KeepAndTake(const ModelKeeping::Call& call, const ModelTaking::Caller& caller) {
    Keeper keeper(*this, Primary(), call);
    Taker taker(*this, caller);
    if (!MoveBoth(keeper, taker)) return;
    kept_ += keeper.keeping.is_back() ? 1 : 0;
    taken_ += taker.taking.serves() ? 1 : 0;
    ExpectSomebodyServes(2);
  }
  uint64_t kept_ = 0, taken_ = 0;
};

TEST_F(KeeperAndTakerTest, APrimaryThatReconnectsLosesNothingToOneThatTakesItsGroup) {
  do {
    Make(2, kMajority);
    KeepAndTake(Reaching(), All());
  } while (Sound() && every_.Next());
  EXPECT_GT(orders_, 300u);
  EXPECT_GT(kept_, 0u);
  EXPECT_GT(taken_, 0u);
}

TEST_F(KeeperAndTakerTest, APrimaryThatGoesOnWithoutAReplicaLosesNothingToOneThatHasIt) {
  do {
    Make(3, kMajority);
    KeepAndTake(Without(2), AllBut(0, kMajority));
  } while (Sound() && every_.Next());
  EXPECT_GT(orders_, 300u);
  EXPECT_GT(kept_, 0u);
  EXPECT_GT(taken_, 0u);
}

TEST_F(KeeperAndTakerTest, AReplicaThatIsTakenInIsTakenByOneOfThem) {
  do {
    Make(2, kMajority);
    Must(Serves(All(kMajority)));
    group_->Append(Primary(), 1, false);
    group_->Add();
    ModelKeeping::Call call = Reaching();
    call.offers.newcomer = Address(2);
    ModelTaking::Caller caller = All(kMajority);
    caller.list.pop_back();
    KeepAndTake(call, caller);
  } while (Sound() && every_.Next());
  EXPECT_GT(orders_, 300u);
}

// Whoever wakes up after its successor served never writes again.
TEST_F(KeeperAndTakerTest, AFormerPrimaryIsFencedOrWaitsWhateverItTries) {
  for (const bool successor_has_all : {true, false}) {
    do {
      Make(3, kMajority);
      ModelPrimary& former = Primary();
      Must(Serves(successor_has_all ? All(kMajority) : AllBut(0, kMajority)));
      group_->Append(Primary(), 1, false);
      ModelKeeping::Call call = Reaching();
      call.silence = every_.Choose(2) == 0 ? seconds(0) : seconds(10);
      call.patience = seconds(2);
      if (const uint64_t missing = every_.Choose(4); missing < 3)
        call.reached.erase(Address(missing));
      Keeper keeper(*this, former, call);
      Keeper successor(*this, Primary(), Reaching());
      if (MoveBoth(keeper, successor)) {
        EXPECT_FALSE(keeper.keeping.is_back()) << every_.Text();
        EXPECT_TRUE(IsBack(Primary(), Reaching())) << every_.Text();
        EXPECT_EQ(group_->wrong, "") << every_.Text();
      }
    } while (Sound() && every_.Next());
  }
  EXPECT_GT(orders_, 50u);
}

// --- any schedule

// Replicas and messages are lost for a while. Once all are well again, all are members.
TEST_F(KeepingsTest, AHealthyReplicaThatReturnsIsRegained) {
  uint64_t shrunken = 0, added = 0, left = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const auto below = [&](uint64_t bound) { return random() % bound; };
    Make(2 + below(3), below(4) == 0 ? kAll : kMajority);
    const size_t count = group_->replicas.size();
    for (int step = 0; step < 12 && Sound(); ++step) {
      ModelKeeping::Call call = Reaching();
      for (const auto& each : group_->replicas)
        if (below(5) == 0) call.reached.erase(each->address);
      if (below(3) == 0) call.silence = seconds(10);
      if (below(2) == 0) call.patience = seconds(1);
      for (const auto& each : Primary().configuration.absent)
        if (call.reached.contains(each.address)) call.offers.ready.push_back(each.address);
      const std::vector<Configuration::Replica> absent = Primary().configuration.absent;
      if (below(6) == 0 && absent.empty() && group_->replicas.size() < count + 2)
        call.offers.newcomer = group_->Add().address;
      if (call.offers.newcomer.has_value() && below(4) != 0)
        call.reached.insert(*call.offers.newcomer);
      if (below(6) == 0 && absent.size() == 1) call.offers.leaver = absent[0].address;
      ModelKeeping keeping(*group_, Primary(), call);
      while (!keeping.over())
        keeping.may_be_cut() && below(20) == 0 ? keeping.Lose() : keeping.Advance();
      if (below(6) == 0) group_->replicas[below(group_->replicas.size())]->Restart();
      if (!Primary().broken) group_->Append(Primary(), 1 + below(3), false);
      const Configuration& own = Primary().keeping->group().configuration;
      shrunken += own.absent.empty() ? 0 : 1;
      added += own.All().size() > count ? 1 : 0;
      left += own.All().size() < count ? 1 : 0;
    }
    // All are well. Each call takes one in.
    for (int calls = 0; calls < 8; ++calls) {
      ModelKeeping::Call call = Reaching();
      for (const auto& each : Primary().keeping->group().configuration.absent)
        call.offers.ready.push_back(each.address);
      if (!Primary().broken && call.offers.ready.empty()) break;
      call.patience = seconds(2);
      ModelKeeping keeping(*group_, Primary(), call);
      while (!keeping.over()) keeping.Advance();
      if (keeping.is_back()) Primary().keeping->Step(keeping::Worked{}, group_->now);
    }
    EXPECT_FALSE(Primary().broken);
    EXPECT_TRUE(Primary().configuration.absent.empty());
    group_->Append(Primary(), 1, false);
    EXPECT_FALSE(Primary().broken);
    EXPECT_EQ(group_->wrong, "");
    if (!Sound()) break;
  }
  EXPECT_GT(shrunken, 100u);
  EXPECT_GT(added, 100u);
  EXPECT_GT(left, 20u);
}

}  // namespace
}  // namespace hyperloop
