// A model's group in a fixture, and ways to go through everything that can happen to it: cut short
// at every message, or two owners whose messages come in every order.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "integration/model_taking.h"

namespace hyperloop {

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
inline uint64_t Last(uint64_t bound) { return bound - 1; }

inline const FailureRules kAll{};
inline const FailureRules kMajority{true, 0};

class ModelFixture : public testing::Test {
 protected:
  // A group of so many replicas, whose primary has written two records.
  void Make(size_t count, const FailureRules& rules = kAll) {
    group_ = std::make_unique<ModelGroup>(Last);
    for (size_t i = 0; i < count; ++i) group_->Add();
    Must(Serves(All(rules)));
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

  // --- two owners whose messages come in every order

  // Sends the messages of one, and then, if it serves, writes a record.
  struct Owner {
    explicit Owner(ModelMessages& its) : messages(its) {}
    virtual ~Owner() = default;
    virtual bool serves() const = 0;
    virtual void Write() = 0;
    bool over() const { return messages.over() && (wrote || !serves()); }
    // The replicas that the next move touches.
    uint64_t touches() const { return messages.over() ? ~uint64_t{0} : messages.touches(); }

    ModelMessages& messages;
    bool wrote = false;
    uint64_t touched = 0;  // by the last move
  };
  struct Taker : Owner {
    Taker(ModelFixture& fixture, const ModelTaking::Caller& caller)
        : Owner(taking), test(fixture), taking(*test.group_, caller) {}
    bool serves() const override { return taking.serves(); }
    void Write() override {
      const Configuration& by = std::get<taking::Serving>(taking.state()).configuration;
      for (ModelPrimary& each : test.group_->primaries)
        if (each.configuration.epoch == by.epoch && each.configuration.owner == by.owner)
          return test.group_->Append(each, 1, false);
    }
    ModelFixture& test;
    ModelTaking taking;
  };
  // One message that the other could notice, and what nobody notices behind it.
  void Move(Owner& owner) {
    owner.touched = owner.touches();
    if (owner.messages.over()) {
      owner.wrote = true;
      return owner.Write();
    }
    owner.messages.Advance();
    for (; !owner.messages.over() && !owner.messages.matters(); owner.messages.Advance())
      owner.touched |= owner.messages.touches();
  }
  // False: this order is one of the others, but for neighbours that touch different replicas.
  bool MoveBoth(Owner& a, Owner& b) {
    group_->rivals = true;
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
    return true;
  }
  std::unique_ptr<ModelGroup> group_;
  EveryWay every_;
  std::string refused_;
  uint64_t orders_ = 0;
};

}  // namespace hyperloop
