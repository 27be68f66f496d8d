// ModelMessages: what one primary of a model's group sends, a message at a time. Whoever derives
// from it says what an effect of a machine sends, and hears of it once all of that has arrived.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "integration/model_group.h"

namespace hyperloop {

class ModelMessages {
 public:
  explicit ModelMessages(ModelGroup& group) : group_(group) {}
  virtual ~ModelMessages() = default;
  ModelMessages(const ModelMessages&) = delete;
  ModelMessages& operator=(const ModelMessages&) = delete;

  bool over() const { return messages_.empty(); }
  // Whether the next message is one that may be lost, or the last one of a process.
  bool may_be_cut() const { return messages_.front().may_be_cut; }
  // Whether others could notice when it arrives, or change what it finds.
  bool matters() const { return messages_.front().touches != 0 && messages_.front().matters; }
  // The replicas that it touches, a bit for each.
  uint64_t touches() const { return messages_.front().touches; }
  void Advance() {
    const Message message = std::move(messages_.front());
    messages_.pop_front();
    Finish(message.carry_out(), message.to);
  }
  // The next message does not arrive.
  void Lose() {
    const std::string to = messages_.front().to;
    messages_.pop_front();
    Finish(Unavailable("a message was lost"), to);
  }

 protected:
  using Replica = Configuration::Replica;
  static constexpr uint64_t kEveryReplica = ~uint64_t{0};

  // All messages of an effect have arrived, or the last one failed.
  virtual void Answer(const Status& status) = 0;
  // One to this replica failed, or was lost.
  virtual void NoteFailed(const std::string& /*address*/) {}

  // A step that nothing can cut short.
  void Alone(std::function<Status()> carry_out, uint64_t touches, bool matters = true) {
    messages_.push_back({std::move(carry_out), touches, false, matters, ""});
  }
  // A step that touches everything, and may be cut short.
  void AtLast(std::function<Status()> carry_out) {
    messages_.push_back({std::move(carry_out), kEveryReplica, true, true, ""});
  }
  void ToEach(const std::vector<Replica>& replicas,
              const std::function<Status(ModelReplica&)>& carry_out) {
    for (const Replica& each : replicas) {
      ModelReplica* const replica = group_.At(each.address);
      const auto call = [carry_out, replica]() -> Status {
        return replica == nullptr ? Unavailable("there is no such replica") : carry_out(*replica);
      };
      messages_.push_back({call, BitOf(replica), true, true, each.address});
    }
  }
  // Makes the members' regions equal to `own`. What a cut leaves is perhaps not flushed.
  void Push(const ModelRegion& own, const std::vector<Replica>& members,
            const std::vector<bool>& cut) {
    for (ModelGroup::Write& write : group_.WritesOf(own, cut)) {
      const std::string& address = members[write.member].address;
      ModelReplica* const replica = group_.At(address);
      const auto reached = [this, replica] {
        return replica->IsReachedBy(user_) ? Status() : Unavailable("the access is gone");
      };
      messages_.push_back({[replica, reached, change = std::move(write.change)]() -> Status {
                             HL_RETURN_IF_ERROR(reached());
                             replica->Format();
                             change(replica->region);
                             return {};
                           },
                           BitOf(replica), /*may_be_cut=*/false, /*matters=*/false, address});
      messages_.push_back({[replica, reached]() -> Status {
                             HL_RETURN_IF_ERROR(reached());
                             replica->flushed = replica->region;
                             return {};
                           },
                           BitOf(replica), /*may_be_cut=*/true, /*matters=*/false, address});
    }
  }

  uint64_t BitOf(const ModelReplica* replica) const {
    for (size_t i = 0; i < group_.replicas.size(); ++i)
      if (group_.replicas[i].get() == replica) return uint64_t{1} << i;
    return 0;
  }

  ModelGroup& group_;
  ModelUser user_;

 private:
  struct Message {
    std::function<Status()> carry_out;
    uint64_t touches;
    bool may_be_cut;
    bool matters;
    std::string to;  // the replica's address; empty: not one alone
  };

  void Finish(const Status& status, const std::string& to) {
    if (status.ok() && !messages_.empty()) return;
    if (!status.ok() && !to.empty()) NoteFailed(to);
    messages_.clear();
    Answer(status);
  }

  std::deque<Message> messages_;
};

}  // namespace hyperloop
