// ModelTaking: one taking of a model's group, a message at a time. It drives the product's machine
// (membership/taking.h) as the session does.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/random_uuid.h"
#include "control/owner.h"
#include "integration/model_messages.h"

namespace hyperloop {

class ModelTaking : public ModelMessages {
 public:
  struct Caller {
    taking::Wish wish;
    std::vector<std::string> list;  // addresses
    std::set<std::string> reached;  // those that answer
  };
  ModelTaking(ModelGroup& group, const Caller& caller) : ModelMessages(group), caller_(caller) {
    Next(taking::Begin{caller_.wish});
  }

  const taking::State& state() const { return taking_.state(); }
  const taking::Taking& taking() const { return taking_; }
  bool serves() const { return std::holds_alternative<taking::Serving>(state()); }

 private:
  // --- the machine

  void Answer(const Status& status) override { Next(answer_(status)); }
  void Next(taking::Event event) {
    effect_ = taking_.Step(std::move(event), RandomUuid);
    std::visit([this](const auto& each) { Begin(each); }, effect_);
  }
  template <class Effect>
  void AnswerDone(const Effect&) {
    answer_ = [](const Status& status) { return taking::Done<Effect>{status}; };
  }
  const taking::Draft& draft() const { return taking_.draft(); }
  const std::vector<Replica>& members() const { return draft().plan.configuration.replicas; }
  ModelReplica& Member(size_t i) const { return *group_.At(members()[i].address); }

  // --- effects

  void Begin(const taking::AskAll&) {
    Alone(
        [this]() -> Status {
          for (const std::string& address : caller_.list) {
            ModelReplica* const there =
                caller_.reached.contains(address) ? group_.At(address) : nullptr;
            if (there != nullptr)
              looks_.push_back({"replica " + address, address, there->Hello()});
            else
              missing_.push_back({"replica " + address, address, "out of reach"});
          }
          if (missing_.empty() || (caller_.wish.rules.bears_missing() && !looks_.empty()))
            return {};
          return Unavailable("a replica is out of reach");
        },
        kEveryReplica);
    answer_ = [this](const Status& status) -> taking::Event {
      if (!status.ok()) return taking::Looked{status, std::move(missing_)};
      return taking::Looked{std::move(looks_), std::move(missing_)};
    };
  }
  void AskMembers() {
    looks_.clear();
    Alone(
        [this]() -> Status {
          for (const MemberLook& each : draft_looks_)
            looks_.push_back({each.name, each.address, group_.At(each.address)->Hello()});
          return {};
        },
        kEveryReplica);
  }
  void Begin(const taking::Watch&) {
    draft_looks_ = draft().looks;
    AskMembers();
    answer_ = [this](const Status&) { return taking::Watched{std::move(looks_), true}; };
  }
  void Begin(const taking::Judge&) {
    draft_looks_ = draft().looks;
    Alone(
        [this]() -> Status {
          if (draft().plan.format && !group_.primaries.empty())
            return InvalidArgument("this makes another group");
          return group_.MayOpen(draft());
        },
        kEveryReplica, false);
    answer_ = [](const Status& status) { return taking::Judged{status}; };
  }
  void Begin(const taking::Ask&) {
    AskMembers();
    answer_ = [this](const Status&) { return taking::Asked{std::move(looks_)}; };
  }
  void Begin(const taking::OpenPool&) {
    Alone([] { return Status(); }, 0);
    answer_ = [](const Status& status) { return taking::Opened{status}; };
  }

  Status SealAt(ModelReplica& replica, const control::HelloReplyT& seen) {
    Result<control::SealReplyT> reply = replica.Seal(user_, seen);
    if (reply.status().code() == Code::kFenced)
      return taking::TakenMeanwhile(reply.status().message());
    HL_RETURN_IF_ERROR(reply.status());
    content_.push_back(ModelGroup::ContentOf("replica " + replica.address, replica.region,
                                             reply->content->installed_epoch));
    return {};
  }
  void Begin(const taking::Seal& effect) {
    user_ = {effect.owner, effect.epoch};
    for (size_t i = 0; i < members().size(); ++i) {
      ToEach({members()[i]},
             [this, i](ModelReplica& replica) { return SealAt(replica, draft().looks[i].hello); });
    }
    answer_ = [this](const Status& status) -> taking::Event {
      if (!status.ok()) return taking::Sealed{status};
      return taking::Sealed{std::move(content_)};
    };
  }
  void Begin(const taking::Attach& effect) {
    ToEach(members(), [this](ModelReplica& replica) { return replica.Attach(user_); });
    AnswerDone(effect);
  }

  void Begin(const taking::Equalise& effect) {
    Alone([this] { return Pull(); }, kEveryReplica);
    AnswerDone(effect);
  }
  Status Pull() {
    std::vector<bool> cut(members().size());
    const auto& equalise = std::get<taking::Equalise>(effect_);
    if (const auto* from = std::get_if<taking::Equalise::Chosen>(&equalise.from)) {
      ModelReplica& chosen = Member(from->choice.index);
      if (!chosen.IsReachedBy(user_)) return Unavailable("the access is gone");
      own_ = chosen.region;
      cut = from->cut;
      MakeSound(from->choice.index);
    }
    // Who gives replicas up may lose what they hold. A rival may go on with what this owner, whom
    // it fences, does not have.
    if (!draft().plan.forced && !group_.rivals)
      group_.CheckContent(draft().plan.configuration, own_);
    own_.ring = own_.tail();
    own_.Redo();
    Push(own_, members(), cut);
    return {};
  }
  // Damaged bytes are those of another member, unless one with the same log is sound: then that one
  // is to be chosen.
  void MakeSound(size_t chosen) {
    for (size_t i = 0; own_.unsound && i < members().size(); ++i) {
      const bool joins = std::ranges::count(draft().plan.joiners, i) != 0;
      const ModelRegion& region = Member(i).region;
      if (!joins && !region.unsound && !region.damaged && region.tail() == own_.tail() &&
          draft().looks[i].hello.installed_epoch == draft().looks[chosen].hello.installed_epoch)
        group_.Fail("the bytes of a damaged member are believed");
    }
    own_.unsound = false;
  }

  void Begin(const taking::Install& effect) {
    ToEach(effect.configuration.replicas, [this](ModelReplica& replica) {
      const auto& install = std::get<taking::Install>(effect_);
      return replica.Install(user_, install.configuration, install.lasting);
    });
    AnswerDone(effect);
  }
  void Begin(const taking::SealAnew& effect) {
    Configuration own = draft().plan.configuration;
    own.epoch = user_.epoch;
    own.owner = OwnerDigest(user_.owner);
    user_.epoch = effect.epoch;
    ToEach(members(), [this, own](ModelReplica& replica) -> Status {
      const control::HelloReplyT seen = replica.Hello();
      if (ServedByAnother(seen, own)) return Unavailable("another primary serves");
      return SealAt(replica, seen);
    });
    AnswerDone(effect);
  }
  void Begin(const taking::Arm& effect) {
    ToEach(members(),
           [this](ModelReplica& replica) { return replica.Connect(user_, members().size()); });
    AnswerDone(effect);
  }
  void Begin(const taking::Remember& effect) {
    Alone([] { return Status(); }, 0);
    AnswerDone(effect);
  }
  void Begin(const taking::Serve& effect) {
    AtLast([this] {
      ModelPrimary primary{user_.owner, std::get<taking::Arming>(state()).next, own_};
      return group_.BeginServing(std::move(primary), caller_.wish.rules);
    });
    AnswerDone(effect);
  }
  // Some replicas do not hear of it.
  void Begin(const taking::Release& effect) {
    for (const MemberLook& each : draft_looks_) {
      ModelReplica* const replica = group_.At(each.address);
      Alone(
          [this, replica, never_served = effect.never_served]() -> Status {
            if (group_.Choose(3) == 0) return {};
            auto request = ModelReplica::From<control::ReleaseRequestT>(user_);
            request.never_served = never_served;
            replica->Ask<control::DoneT>(request).status().IgnoreError();
            return {};
          },
          BitOf(replica));
    }
    AnswerDone(effect);
  }
  void Begin(const taking::End&) {}

  const Caller caller_;
  taking::Taking taking_;
  taking::Effect effect_;
  std::function<taking::Event(const Status&)> answer_;
  std::vector<MemberLook> looks_, draft_looks_;
  std::vector<MissingReplica> missing_;
  std::vector<MemberContent> content_;
  ModelRegion own_;
};

}  // namespace hyperloop
