// A group as a model: its replicas are the product's nodes (model_replica.h), and its primaries
// take and keep it by the product's machines (model_taking.h, model_keeping.h). Queues, bytes and
// time are models.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "integration/model_replica.h"
#include "membership/keeping.h"
#include "membership/taking.h"
#include "primary/equalize.h"

namespace hyperloop {

// A primary that serves, or thinks so.
struct ModelPrimary {
  Uuid owner{};
  Configuration configuration;
  ModelRegion own;
  uint64_t acked = 0;
  bool broken = false;                           // its group stopped answering
  bool blocks = false;                           // it never goes on without replicas
  std::optional<keeping::Keeping> keeping = {};  // once it serves

  ModelUser user() const { return {owner, configuration.epoch}; }
};

class ModelGroup {
 public:
  // Gives a number below `bound` for what does not matter to the test.
  using Below = std::function<uint64_t(uint64_t bound)>;
  explicit ModelGroup(Below below) : below_(std::move(below)) {}

  static constexpr std::chrono::seconds kAbsence{2};

  std::vector<std::unique_ptr<ModelReplica>> replicas;
  std::deque<ModelPrimary> primaries;
  keeping::Time now = keeping::Time(std::chrono::hours(1));
  std::string wrong;                // the first promise that was broken; empty: none
  uint64_t operations_fail_in = 3;  // one of so many appends fails somewhere
  bool rivals = false;              // others may act while a taking is under way

  ModelReplica& Add() { return Add(NewAddress()); }
  ModelReplica& Add(const std::string& address) {
    return *replicas.emplace_back(std::make_unique<ModelReplica>(address));
  }
  std::string NewAddress() { return "10.0.0.1:" + std::to_string(7000 + addresses_++); }
  ModelReplica* At(const std::string& address) const {
    for (const auto& each : replicas)
      if (!address.empty() && each->address == address) return each.get();
    return nullptr;
  }
  std::vector<std::string> Addresses() const {
    std::vector<std::string> all;
    for (const auto& each : replicas) all.push_back(each->address);
    return all;
  }
  uint64_t Choose(uint64_t bound) { return below_(bound); }
  void Fail(std::string what) {
    if (wrong.empty()) wrong = std::move(what);
  }

  // --- what members hold

  // Where nothing is installed, a node tells nothing of its region (control.fbs): those bytes may
  // be of a joining that was cut short, into another branch or another group.
  static MemberContent ContentOf(const std::string& name, const ModelRegion& region,
                                 uint64_t installed_epoch) {
    MemberContent content{name, {}};
    if (installed_epoch == 0) return content;
    content.content.installed_epoch = installed_epoch;
    content.content.acked_seq = region.acked();
    if (region.unsound) content.content.damage.push_back("bytes of an extent");
    if (region.damaged) {
      content.content.log_error = "damaged";
    } else if (region.acked() <= SeqOf(region.tail())) {
      content.content.last_seq = SeqOf(region.tail());
      content.content.executed_seq = SeqOf(region.head);
    } else {
      content.content.log_error = "a record that was acknowledged is missing";
    }
    return content;
  }
  // Which of the members' regions would become the group's.
  Result<Choice> ChooseFor(const taking::Draft& draft) const {
    std::vector<MemberContent> contents;
    for (const MemberLook& look : draft.looks)
      contents.push_back(
          ContentOf(look.name, At(look.address)->region, look.hello.installed_epoch));
    for (const size_t i : draft.plan.joiners) contents[i].joins = true;
    HL_ASSIGN_OR_RETURN(const Choice choice, ChooseMember(contents, draft.plan.unserved));
    const ModelRecord* const tail = At(draft.looks[choice.index].address)->region.tail();
    if (tail != nullptr) HL_RETURN_IF_ERROR(CheckLogged(draft.plan, tail->configuration));
    return choice;
  }
  // Where nothing is damaged, nobody is given up and no rival is at work, no content is refused.
  Status MayOpen(const taking::Draft& draft) {
    if (draft.plan.format) return {};
    const Status refused = ChooseFor(draft).status();
    const bool damaged = std::ranges::any_of(
        draft.looks, [&](const MemberLook& each) { return At(each.address)->region.damaged; });
    if (!refused.ok() && !damaged && !draft.plan.forced && !rivals)
      Fail("nothing is damaged, but: " + refused.ToString());
    return refused;
  }
  void CheckContent(const Configuration& configuration, const ModelRegion& region) {
    const ModelRecord* const kept = Kept(configuration);
    const std::string who = "an opening under epoch " + std::to_string(configuration.epoch);
    if (!Contains(region.tail(), kept))
      Fail(who + " finds " + std::to_string(SeqOf(region.tail())) + " records, and not the " +
           std::to_string(SeqOf(kept)) + " that are kept");
    if (!region.whole())
      Fail(who + " finds a record in parts, of " + std::to_string(SeqOf(region.tail())));
  }

  // --- what makes members equal

  struct Write {
    size_t member;
    std::function<void(ModelRegion&)> change;
  };
  // In the order in which the product sends them.
  std::vector<Write> WritesOf(const ModelRegion& own, const std::vector<bool>& cut) {
    std::vector<Write> writes;
    for (const auto& [part, member] : PushOrder(cut)) {
      // The ring is sent in the order of the log, and what is behind the log's end, too.
      if (part == PushPart::kRing) {
        writes.push_back({member, [this, own](ModelRegion& region) {
                            region.ring = Between(region.ring, own.ring);
                          }});
        writes.push_back({member, [own](ModelRegion& region) {
                            region.ring = own.ring;
                            region.oldest = own.oldest;
                            region.damaged = false;
                          }});
      }
      for (size_t cell = 0; part == PushPart::kApplied && cell < kCells; ++cell)
        writes.push_back({member, [own, cell](ModelRegion& region) {
                            region.cells[cell] = own.cells[cell];
                            region.unsound = false;
                          }});
      if (part == PushPart::kHead)
        writes.push_back({member, [own](ModelRegion& region) { region.head = own.head; }});
    }
    return writes;
  }

  // --- what primaries write

  // Appends the epoch's first record, which all members must take.
  Status BeginServing(ModelPrimary primary, const FailureRules& rules) {
    primary.acked = SeqOf(primary.own.tail());
    primary.blocks = !rules.may_leave_out;
    primary.keeping.emplace(keeping::Terms{rules, kAbsence, std::chrono::milliseconds(500),
                                           *ParseUuid(kGroup), kRegion},
                            primary.configuration);
    AppendEpoch(&primary);
    if (primary.broken) return Unavailable("a member takes no records");
    primaries.push_back(std::move(primary));
    return {};
  }
  // The group of this primary is back: its members have all that it ever wrote.
  void GoOnServing(ModelPrimary* primary) {
    primary->configuration = primary->keeping->group().configuration;
    primary->broken = false;
    const ModelRecord* const last = primary->own.tail();
    // A successor may have acknowledged more already.
    if (!Contains(Kept(primary->configuration), last)) Acknowledge(primary, last);
    primary->acked = SeqOf(last);
    if (last == nullptr || last->configuration.epoch < primary->configuration.epoch)
      AppendEpoch(primary);
  }
  void AppendEpoch(ModelPrimary* primary) {
    const std::vector<size_t> changes = {0};
    Send(primary,
         {records_.Add(primary->own.ring, primary->acked, changes, &primary->configuration)},
         false);
  }
  void Append(ModelPrimary& primary, uint64_t count, bool may_fail) {
    std::vector<const ModelRecord*> records;
    const ModelRecord* last = primary.own.ring;
    for (; count > 0; --count) {
      std::vector<size_t> changes = {Choose(kCells)};
      if (Choose(2) == 0) changes.push_back((changes[0] + 1) % kCells);
      last = records_.Add(last, primary.acked, changes, nullptr);
      records.push_back(last);
    }
    Send(&primary, records, may_fail);
  }
  // Appends records that get to one member only.
  void AppendAt(ModelPrimary& primary, ModelReplica& member, uint64_t count) {
    for (; count > 0; --count)
      primary.own.ring = records_.Add(primary.own.ring, primary.acked, {0}, nullptr);
    member.region.ring = member.flushed.ring = primary.own.ring;
    primary.broken = true;
  }
  // Everything is executed.
  void Checkpoint(ModelPrimary& primary) {
    const ModelRecord* const last = primary.own.ring;
    const uint64_t free = SeqOf(primary.own.head);
    primary.own.head = last;
    Run(&primary, {[last](ModelRegion& region) { region.head = last; }}, true);
    if (!primary.broken && Choose(2) == 0) primary.own.oldest = free + 1;
  }

 private:
  // One operation of a member's queue.
  using Operation = std::function<void(ModelRegion&)>;

  // A record of the log that `to` ends, of those that the log that `from` ends has not.
  const ModelRecord* Between(const ModelRecord* from, const ModelRecord* to) {
    const ModelRecord* common = to;
    while (!Contains(from, common)) common = common->before;
    const ModelRecord* between = to;
    for (uint64_t back = Choose(SeqOf(to) - SeqOf(common) + 1); back > 0; --back)
      between = between->before;
    return between;
  }
  // The last record of this branch that was acknowledged or read.
  const ModelRecord*& Kept(const Configuration& configuration) {
    return kept_[std::to_string(configuration.branch.epoch) +
                 FormatUuid(configuration.branch.owner)];
  }
  // Each record is written by one operation, and copied by later ones: the first cell with the next
  // write, the others one by one.
  void Send(ModelPrimary* primary, const std::vector<const ModelRecord*>& records, bool may_fail) {
    std::vector<Operation> operations;
    std::vector<size_t> written;
    const ModelRecord* pending = nullptr;
    const auto copy = [](const ModelRecord* record, size_t i) {
      return [record, i](ModelRegion& region) {
        if (record != nullptr && i < record->changes.size())
          region.cells[record->changes[i]] = record;
      };
    };
    for (const ModelRecord* record : records) {
      primary->own.ring = record;
      primary->own.Redo();
      written.push_back(operations.size());
      operations.push_back(
          [record, first = copy(pending, 0), oldest = primary->own.oldest](ModelRegion& region) {
            region.ring = record;
            region.oldest = oldest;
            first(region);
          });
      for (size_t i = 1; pending != nullptr && i < pending->changes.size(); ++i)
        operations.push_back(copy(pending, i));
      pending = record;
    }
    for (size_t i = 0; i < pending->changes.size(); ++i) operations.push_back(copy(pending, i));
    const size_t done = Run(primary, operations, may_fail);
    for (size_t i = 0; i < records.size(); ++i)
      if (written[i] < done) Acknowledge(primary, records[i]);
  }
  // Returns how many operations all members have carried out.
  size_t Run(ModelPrimary* primary, const std::vector<Operation>& operations, bool may_fail) {
    const bool fails = may_fail && Choose(operations_fail_in) == 0;
    const bool chain = Choose(2) == 0;
    size_t limit = operations.size(), least = operations.size();
    for (const auto& each : primary->configuration.replicas) {
      ModelReplica* const there = At(each.address);
      const bool serves =
          there != nullptr && there->state().node == each.node && there->Serves(primary->user());
      size_t count = serves ? operations.size() : 0;
      if (fails) count = Choose(count + 1);
      if (chain) count = limit = std::min(limit, count);
      least = std::min(least, count);
      if (count == 0) continue;
      for (size_t i = 0; i < count; ++i) {
        if (i + 1 == count) there->flushed = there->region;
        operations[i](there->region);
      }
      if (count == operations.size() || Choose(2) == 0) there->flushed = there->region;
    }
    if (least < operations.size()) {
      primary->broken = true;
      // What all members have is flushed.
      for (const auto& each : primary->configuration.replicas)
        if (least != 0) At(each.address)->flushed = At(each.address)->region;
    }
    return least;
  }
  void Acknowledge(ModelPrimary* primary, const ModelRecord* record) {
    const ModelRecord*& kept = Kept(primary->configuration);
    if (!Contains(record, kept))
      Fail("a primary of epoch " + std::to_string(primary->configuration.epoch) +
           " acknowledges record " + std::to_string(record->seq) + " of another history than " +
           std::to_string(SeqOf(kept)));
    kept = record;
    primary->acked = record->seq;
  }

  const Below below_;
  uint64_t addresses_ = 0;
  ModelRecords records_;
  std::map<std::string, const ModelRecord*> kept_;  // by branch
};

}  // namespace hyperloop
