// Takings of a model's group, in each possible way: cut short at every message, once and twice; two
// owners whose messages come in every order; a primary that writes while it is taken over.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "integration/model_taking.h"

namespace hyperloop {
namespace {

// Goes through all sequences of choices.
class EveryWay {
 public:
  uint64_t Choose(uint64_t bound) {
    if (at_ == path_.size()) path_.push_back({0, bound});
    EXPECT_EQ(path_[at_].second, bound) << "the same choices led elsewhere";
    return path_[at_++].first;
  }
  // Begins the next sequence. False: there is none.
  bool Next() {
    ++ways_;
    at_ = 0;
    while (!path_.empty() && path_.back().first + 1 == path_.back().second) path_.pop_back();
    if (path_.empty()) return false;
    ++path_.back().first;
    return true;
  }
  uint64_t ways() const { return ways_; }
  std::string Text() const {
    std::string text;
    for (const auto& [choice, bound] : path_) text += std::to_string(choice);
    return text;
  }

 private:
  std::vector<std::pair<uint64_t, uint64_t>> path_;
  size_t at_ = 0;
  uint64_t ways_ = 0;
};

// What does not matter is the same each time.
uint64_t Last(uint64_t bound) { return bound - 1; }

constexpr FailureRules kAll{};
const FailureRules kMajority{true, 0};

class TakingsTest : public testing::Test {
 protected:
  // A group of so many replicas, whose primary has written two records.
  void Make(size_t count) {
    group_ = std::make_unique<ModelGroup>(Last);
    for (size_t i = 0; i < count; ++i) group_->Add();
    Must(Serves(All()));
    group_->Append(Primary(), 2, false);
  }
  ModelPrimary& Primary() { return group_->primaries.back(); }
  std::string Address(size_t i) const { return group_->replicas[i]->address; }
  ModelTaking::Caller All(FailureRules rules = kAll, ReplicaChange change = {}) const {
    const std::vector<std::string> list = group_->Addresses();
    return {{std::move(rules), std::move(change), 0, /*takeover=*/true},
            list,
            {list.begin(), list.end()}};
  }
  ModelTaking::Caller AllBut(size_t missing, FailureRules rules) const {
    ModelTaking::Caller caller = All(std::move(rules));
    caller.reached.erase(Address(missing));
    return caller;
  }
  // Whether a taking that nothing disturbs serves.
  bool Serves(const ModelTaking::Caller& caller) {
    ModelTaking taking(*group_, caller);
    while (!taking.over()) taking.Advance();
    if (const auto* refused = std::get_if<taking::Refused>(&taking.state()))
      refused_ = refused->why.ToString();
    return taking.serves();
  }
  void Must(bool served) { ASSERT_TRUE(served) << refused_; }
  // A taking that ends at any message: its process dies there, or the message is lost. Perhaps all
  // power fails then.
  void TakeCut(const ModelTaking::Caller& caller) {
    enum : uint64_t { kGoesOn, kDies, kIsLost };
    ModelTaking taking(*group_, caller);
    bool cut = false;
    while (!taking.over()) {
      const uint64_t way = !cut && taking.may_be_cut() ? every_.Choose(3) : kGoesOn;
      cut = cut || way != kGoesOn;
      if (way == kDies) break;
      way == kIsLost ? taking.Lose() : taking.Advance();
    }
    if (!cut || every_.Choose(2) == 0) return;
    for (const auto& each : group_->replicas) each->Restart(/*power_failed=*/true);
  }
  // Whatever was cut short, the same caller gets the group, and finds in it what is kept.
  void ExpectServes(const ModelTaking::Caller& caller) {
    EXPECT_TRUE(Serves(caller)) << refused_ << ", by " << every_.Text();
    EXPECT_EQ(group_->wrong, "") << every_.Text();
  }
  bool Sound() const { return !HasFailure(); }

  std::unique_ptr<ModelGroup> group_;
  EveryWay every_;
  std::string refused_;
};

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
  struct Owner {
    Owner(ModelGroup& group, const ModelTaking::Caller& caller) : taking(group, caller) {}
    bool over() const { return taking.over() && (wrote || !taking.serves()); }
    // The replicas that the next move touches.
    uint64_t touches() const { return taking.over() ? ~uint64_t{0} : taking.touches(); }

    ModelTaking taking;
    bool wrote = false;
    uint64_t touched = 0;  // by the last move
  };
  // One message that the other could notice, and what nobody notices behind it.
  void Move(Owner& owner) {
    owner.touched = owner.touches();
    if (owner.taking.over()) {
      owner.wrote = true;
      return Write(std::get<taking::Serving>(owner.taking.state()).configuration);
    }
    owner.taking.Advance();
    for (; !owner.taking.over() && !owner.taking.matters(); owner.taking.Advance())
      owner.touched |= owner.taking.touches();
  }
  void Write(const Configuration& by) {
    for (ModelPrimary& each : group_->primaries)
      if (each.configuration.epoch == by.epoch && each.configuration.owner == by.owner)
        return group_->Append(each, 1, false);
  }
  // False: this order is one of the others, but for neighbours that touch different replicas.
  bool TakeBoth(const ModelTaking::Caller& one, const ModelTaking::Caller& other) {
    group_->rivals = true;
    Owner a(*group_, one), b(*group_, other);
    const Owner* last = &a;
    while (!a.over() || !b.over()) {
      Owner* next = a.over() ? &b : &a;
      if (!a.over() && !b.over() && every_.Choose(2) == 1) next = &b;
      if (last == &b && next == &a && (b.touched & a.touches()) == 0) return false;
      Move(*next);
      last = next;
    }
    group_->rivals = false;
    ++orders_;
    served_ += (a.taking.serves() ? 1 : 0) + (b.taking.serves() ? 1 : 0);
    return true;
  }
  uint64_t orders_ = 0, served_ = 0;
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
    Owner taker(*group_, All());
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
