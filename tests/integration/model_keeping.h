// ModelKeeping: one call of a model's primary that brings its group back, a message at a time. It
// drives the product's machine (membership/keeping.h) as the session does.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "integration/model_messages.h"

namespace hyperloop {

class ModelKeeping : public ModelMessages {
 public:
  struct Call {
    std::set<std::string> reached;  // the replicas that answer, by address
    keeping::Offers offers = {};
    keeping::Duration silence{};  // nobody was heard of for so long
    keeping::Duration patience{};
    bool closing = false;
  };
  ModelKeeping(ModelGroup& group, ModelPrimary& primary, Call call)
      : ModelMessages(group), primary_(primary), call_(std::move(call)) {
    user_ = primary_.user();
    Next(keeping::Lost{Unavailable("an operation failed"), group_.now - call_.silence,
                       call_.patience, false, call_.closing, call_.offers});
  }

  bool is_back() const {
    return std::holds_alternative<keeping::Resume>(effect_) && !primary_.broken;
  }
  const ModelPrimary& primary() const { return primary_; }

 private:
  // --- the machine

  keeping::Keeping& machine() { return *primary_.keeping; }
  const keeping::Plan& plan() { return *machine().plan(); }
  const Configuration& own() { return machine().group().configuration; }

  void Answer(const Status& status) override {
    if (!keeping::EndsCall(effect_)) Next(answer_(status));
  }
  void NoteFailed(const std::string& address) override { failed_.insert(address); }
  void Next(keeping::Event event) {
    const Configuration before = own();
    effect_ = machine().Step(std::move(event), group_.now);
    CheckChange(before);
    std::visit([this](const auto& each) { Begin(each); }, effect_);
  }
  template <class Effect>
  void AnswerDone(const Effect&) {
    answer_ = [](const Status& status) { return keeping::Done<Effect>{status}; };
  }

  // --- what must hold for whatever it decides

  static std::set<std::string> AddressesOf(const std::vector<Replica>& replicas) {
    std::set<std::string> out;
    for (const Replica& each : replicas) out.insert(each.address);
    return out;
  }
  static size_t CountOnlyIn(const std::set<std::string>& these,
                            const std::set<std::string>& those) {
    return static_cast<size_t>(
        std::ranges::count_if(these, [&](const auto& each) { return !those.contains(each); }));
  }
  // What was installed is one step from what was before.
  void CheckChange(const Configuration& before) {
    const std::set<std::string> had = AddressesOf(before.All()), has = AddressesOf(own().All());
    if (CountOnlyIn(had, has) + CountOnlyIn(has, had) > 1 && !own().replicas.empty())
      group_.Fail("more than one replica comes or goes");
    const std::set<std::string> counted = AddressesOf(before.replicas),
                                count = AddressesOf(own().replicas);
    if (CountOnlyIn(count, counted) > 1) group_.Fail("more than one replica is taken in");
    const size_t left = CountOnlyIn(counted, count);
    if (2 * (counted.size() - left) <= counted.size() && left != 0 && !count.empty())
      group_.Fail("a minority goes on");
    const bool unproven_left = counted.contains(unproven_) && !count.contains(unproven_);
    if (left > 0 && blocks_ && !(left == 1 && unproven_left) && !count.empty())
      group_.Fail("a group that blocks goes on with fewer");
  }

  // --- effects

  void Begin(const keeping::Ask& effect) {
    primary_.broken = true;
    if (effect.forgives) failed_.clear();
    blocks_ = primary_.blocks;
    unproven_ = machine().group().unproven;
    user_.epoch = own().epoch;
    event_ = {};
    Alone(
        [this]() -> Status {
          for (const Replica& each : own().replicas) {
            keeping::Asked::Member& member = event_.members.emplace_back();
            member.failed = failed_.contains(each.address);
            if (Reaches(each.address)) member.hello = group_.At(each.address)->Hello();
          }
          return {};
        },
        kEveryReplica);
    answer_ = [this](const Status&) {
      event_.offers = call_.offers;
      return std::move(event_);
    };
  }
  bool Reaches(const std::string& address) const {
    return call_.reached.contains(address) && group_.At(address) != nullptr;
  }
  void Begin(const keeping::AskJoiner& effect) {
    joiner_ = Unavailable("out of reach");
    Alone(
        [this, address = effect.address]() -> Status {
          if (Reaches(address)) joiner_ = group_.At(address)->Hello();
          return {};
        },
        kEveryReplica);
    answer_ = [this](const Status&) {
      return keeping::JoinerAsked{std::move(joiner_), group_.Addresses()};
    };
  }
  void Begin(const keeping::JudgeJoiner& effect) {
    Alone([] { return Status(); }, 0);
    AnswerDone(effect);
  }
  void ToEachReached(const std::vector<Replica>& replicas,
                     const std::function<Status(ModelReplica&)>& carry_out) {
    ToEach(replicas, [this, carry_out](ModelReplica& replica) {
      return Reaches(replica.address) ? carry_out(replica) : Unavailable("out of reach");
    });
  }

  void Begin(const keeping::Seal& effect) {
    user_.epoch = effect.epoch;
    ToEachReached(plan().next.replicas, [this, by = own()](ModelReplica& replica) -> Status {
      const control::HelloReplyT seen = replica.Hello();
      if (ServedByAnother(seen, by)) return Aborted("another primary serves");
      const Status sealed = replica.Seal(user_, seen).status();
      return sealed.code() == Code::kFenced ? Busy(sealed.message()) : sealed;
    });
    AnswerDone(effect);
  }
  void Begin(const keeping::Reconnect& effect) {
    ToEachReached(plan().next.replicas, [this](ModelReplica& replica) {
      const Status done = replica.Reconnect(user_);
      return done.code() == Code::kFenced ? Busy(done.message()) : done;
    });
    AnswerDone(effect);
  }
  void Begin(const keeping::Attach& effect) {
    ToEachReached(plan().next.replicas,
                  [this](ModelReplica& replica) { return replica.Attach(user_); });
    AnswerDone(effect);
  }
  void Begin(const keeping::Equalise& effect) {
    Alone(
        [this]() -> Status {
          primary_.own.ring = primary_.own.tail();
          primary_.own.Redo();
          Push(primary_.own, plan().next.replicas, std::vector<bool>(plan().next.replicas.size()));
          return {};
        },
        kEveryReplica, false);
    AnswerDone(effect);
  }
  void Begin(const keeping::Install& effect) {
    ToEachReached(effect.configuration.replicas, [this, effect](ModelReplica& replica) {
      return replica.Install(user_, effect.configuration, effect.lasting);
    });
    AnswerDone(effect);
  }
  void Begin(const keeping::Arm&) {
    ToEachReached(plan().next.replicas, [this](ModelReplica& replica) {
      return replica.Connect(user_, plan().next.replicas.size());
    });
    answer_ = [this](const Status& status) {
      return keeping::Armed{status, call_.closing, call_.offers};
    };
  }

  void Begin(const keeping::Withdraw&) {
    Alone([] { return Status(); }, 0);
    answer_ = [this](const Status&) { return keeping::Withdrawn{false, call_.closing}; };
  }
  void Begin(const keeping::PutOff& effect) {
    failed_.clear();
    Alone([] { return Status(); }, 0);
    AnswerDone(effect);
  }
  void Begin(const keeping::Pause&) {
    group_.now += std::chrono::milliseconds(500);
    Alone([] { return Status(); }, 0);
    answer_ = [this](const Status&) { return keeping::Paused{call_.closing}; };
  }
  // The first record of a new epoch is sent to all members, too.
  void Begin(const keeping::Resume&) {
    AtLast([this] {
      group_.GoOnServing(&primary_);
      return Status();
    });
  }
  template <class Effect>
  void Begin(const Effect&) {}  // the call has ended

  ModelPrimary& primary_;
  const Call call_;
  keeping::Effect effect_ = keeping::End{};
  std::function<keeping::Event(const Status&)> answer_;
  std::set<std::string> failed_;
  keeping::Asked event_;
  Result<control::HelloReplyT> joiner_ = Unavailable("not asked");
  bool blocks_ = false;
  std::string unproven_;  // when the members were asked
};

}  // namespace hyperloop
