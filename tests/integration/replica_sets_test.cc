// Which sets of replicas can serve, and what they hold: random openings, changes of the group's
// replicas, lost pools, power failures and primaries that bring their group back, each cut short
// anywhere. Nodes, plans, judgements and choices are the product's; queues and bytes are not there.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <random>

#include "common/random_uuid.h"
#include "control/messages.h"
#include "control/owner.h"
#include "integration/model_replica.h"
#include "layout/region_layout.h"
#include "membership/choose_member.h"
#include "membership/judgement.h"
#include "membership/replica_lists.h"
#include "membership/take_plan.h"
#include "options/option_text.h"
#include "primary/equalize.h"

namespace hyperloop {
namespace {

static_assert(option_text::kMaxEndpointBytes + 1 == kConfigurationAddress,
              "every address that the options take has room in the group's record");

// A primary that serves, or thinks so.
struct Primary {
  Uuid owner{};
  Configuration configuration;
  ModelRegion own;
  uint64_t acked = 0;
  bool broken = false;  // its group stopped answering
};

// A step that was not carried out: the process is dead, or the replica refused.
struct Cut {
  bool dead;
};

// What happens to a group.
enum class Kind {
  kEverything,
  kOpenings,  // nothing but openings, most of them with all replicas within reach
  // Three replicas. Most openings are cut short, most processes start anew, with and without their
  // memory, and one log at a time is damaged. Neither do the replicas change, nor are pools lost.
  kCuts,
};

class Group {
 public:
  Group(uint64_t seed, Kind kind) : random_(seed), kind_(kind) {
    const uint64_t some = Below(5);
    const uint64_t count = Of(1 + some, 3 + some / 2, 3);
    for (uint64_t i = 0; i < count; ++i)
      replicas_.push_back(std::make_unique<ModelReplica>(NewAddress()));
  }
  // Makes the group of all replicas.
  void Make() {
    std::vector<std::string> all;
    for (const auto& each : replicas_) all.push_back(each->address);
    steps_left_ = UINT64_MAX;
    Open(all, {}, {false, 0});
    ASSERT_EQ(primaries_.size(), 1u);
  }
  void Step() {
    const uint64_t what = Below(Of(12, 1, 6));
    if (what < 5)
      OpenAtRandom();
    else if (what < 8)
      Recover();
    else if (what < 9)
      LosePool();
    else if (what < 10)
      FindPool();
    if (Below(Of(12, 12, 4)) == 0) replicas_[Below(replicas_.size())]->Restart(Below(2) == 0);
    if (kind_ == Kind::kCuts && Below(40) == 0) Damage();
    for (Primary& each : primaries_) Work(each);
  }
  // Once nobody is cut short any more, the group opens with all replicas, and with a majority.
  void Settle() {
    ModelReplica* newest = nullptr;
    for (const auto& each : replicas_)
      if (each->Hello().branch_epoch != 0) return;
    for (const auto& each : replicas_)
      if (!each->address.empty() &&
          (newest == nullptr || each->Hello().installed_epoch > newest->Hello().installed_epoch))
        newest = each.get();
    if (newest != nullptr) ExpectOpens(*newest);
  }
  const std::string& wrong() const { return wrong_; }
  uint64_t settled() const { return settled_; }
  uint64_t forced() const { return forced_; }
  uint64_t openings() const { return openings_; }
  uint64_t changes() const { return changes_; }

 private:
  uint64_t Below(uint64_t bound) { return random_() % bound; }
  // The value for this kind of group.
  uint64_t Of(uint64_t everything, uint64_t openings, uint64_t cuts) const {
    return kind_ == Kind::kCuts ? cuts : kind_ == Kind::kOpenings ? openings : everything;
  }
  std::string NewAddress() { return "10.0.0.1:" + std::to_string(7000 + addresses_++); }
  ModelReplica* At(const std::string& address) {
    for (const auto& each : replicas_)
      if (!address.empty() && each->address == address) return each.get();
    return nullptr;
  }

  // One message that changes something.
  void Reach() {
    if (steps_left_-- == 0) throw Cut{Below(2) == 0};
  }
  template <class Reply, class Request>
  Reply Call(const std::string& address, const Request& request) {
    Reach();
    Result<Reply> reply = At(address)->Ask<Reply>(request);
    if (!reply.ok()) throw Cut{false};
    return std::move(reply).value();
  }
  template <class Request>
  static Request From(const Uuid& owner, uint64_t epoch) {
    Request request;
    request.epoch = epoch;
    request.owner_id = {owner.begin(), owner.end()};
    return request;
  }
  void Seal(const std::string& address, const control::HelloReplyT& seen, const Uuid& owner,
            uint64_t epoch) {
    auto request = From<control::SealRequestT>(owner, epoch);
    request.owner_name = "owner";
    request.group = kGroup;
    request.seen_sealed_epoch = seen.sealed_epoch;
    request.seen_installed_epoch = seen.installed_epoch;
    request.seen_served_epoch = seen.served_epoch;
    Call<control::SealReplyT>(address, request);
    At(address)->flushed = At(address)->region;
  }
  void Install(const Configuration& configuration, const Uuid& owner, uint64_t epoch,
               bool lasting) {
    auto request = From<control::InstallRequestT>(owner, epoch);
    ListReplicas(configuration.replicas, &request.nodes, &request.replicas);
    ListReplicas(configuration.absent, &request.absent_nodes, &request.absent_replicas);
    request.branch_epoch = configuration.branch.epoch;
    request.branch_owner = BranchOwner(configuration.branch);
    request.lasting = lasting;
    for (const auto& each : configuration.replicas) Call<control::DoneT>(each.address, request);
  }
  // Writes to the replica's region; what a cut leaves is perhaps not flushed.
  template <class Change>
  void Write(const std::string& address, Change change) {
    ModelReplica& replica = *At(address);
    change(replica.region);
    Reach();
    replica.flushed = replica.region;
  }
  void Push(const Configuration& configuration, const ModelRegion& own,
            const std::vector<bool>& cut) {
    for (const auto& each : configuration.replicas) At(each.address)->Format();
    for (const auto& [part, member] : PushOrder(cut)) {
      const std::string& address = configuration.replicas[member].address;
      if (part == PushPart::kRing) PushRing(address, own);
      for (size_t cell = 0; part == PushPart::kApplied && cell < kCells; ++cell)
        Write(address, [&](ModelRegion& region) { region.cells[cell] = own.cells[cell]; });
      if (part == PushPart::kHead)
        Write(address, [&](ModelRegion& region) { region.head = own.head; });
    }
  }
  // The ring is sent in the order of the log, and what is behind the log's end, too.
  void PushRing(const std::string& address, const ModelRegion& own) {
    Write(address, [&](ModelRegion& region) { region.ring = Between(region.ring, own.ring); });
    Write(address, [&](ModelRegion& region) {
      region.ring = own.ring;
      region.oldest = own.oldest;
      region.damaged = false;
    });
  }
  // A record of the log that `to` ends, of those that the log that `from` ends has not.
  const ModelRecord* Between(const ModelRecord* from, const ModelRecord* to) {
    const ModelRecord* common = to;
    while (!Contains(from, common)) common = common->before;
    const ModelRecord* between = to;
    for (uint64_t back = Below(SeqOf(to) - SeqOf(common) + 1); back > 0; --back)
      between = between->before;
    return between;
  }
  void Connect(const Configuration& configuration, const Uuid& owner, uint64_t epoch) {
    auto request = From<control::ConnectMemberRequestT>(owner, epoch);
    request.primary.resize(sizeof(PrimaryInfo));
    request.chain.resize(configuration.replicas.size() * sizeof(MemberInfo));
    for (const auto& each : configuration.replicas) Call<control::DoneT>(each.address, request);
  }
  void GiveBack(const Configuration& configuration, const Uuid& owner, uint64_t epoch,
                bool never_served) {
    auto request = From<control::ReleaseRequestT>(owner, epoch);
    request.never_served = never_served;
    for (const auto& each : configuration.replicas)
      if (Below(3) != 0) At(each.address)->Ask<control::DoneT>(request).status().IgnoreError();
  }
  static std::string BranchName(const Configuration& configuration) {
    return std::to_string(configuration.branch.epoch) + FormatUuid(configuration.branch.owner);
  }
  // The last record of this branch that was acknowledged or read.
  const ModelRecord*& Kept(const Configuration& configuration) {
    return kept_[BranchName(configuration)];
  }
  // The first record of the epoch, which all members must take.
  void AppendEpoch(Primary* primary) {
    std::vector<size_t> changes = {0};
    const ModelRecord* const record =
        records_.Add(primary->own.ring, primary->acked, changes, &primary->configuration);
    Send(primary, {record}, false);
    if (primary->broken) throw Cut{Below(2) == 0};
  }
  void Serve(Primary primary) {
    primary.acked = SeqOf(primary.own.tail());
    AppendEpoch(&primary);
    primaries_.push_back(std::move(primary));
  }
  void CheckContent(const Configuration& configuration, const ModelRegion& region) {
    const ModelRecord* const kept = Kept(configuration);
    if (!Contains(region.tail(), kept))
      wrong_ = "an opening under epoch " + std::to_string(configuration.epoch) + " finds " +
               std::to_string(SeqOf(region.tail())) + " records, and not the " +
               std::to_string(SeqOf(kept)) + " that are kept";
    if (!region.whole())
      wrong_ = "an opening under epoch " + std::to_string(configuration.epoch) +
               " finds a record in parts, of " + std::to_string(SeqOf(region.tail()));
  }

  // --- an opening, in the order of Session::TakeStages

  void OpenAtRandom() {
    // Somebody who knows the configuration of one of the replicas, and wants to change it perhaps.
    const control::HelloReplyT known = replicas_[Below(replicas_.size())]->Hello();
    std::vector<std::string> list = known.installed_replicas;
    list.insert(list.end(), known.absent_replicas.begin(), known.absent_replicas.end());
    if (list.empty()) return;
    // A replica that has moved is listed where it is.
    for (std::string& address : list) {
      for (const auto& each : replicas_)
        if (IsNamed(known, *each, address) && !each->address.empty()) address = each->address;
    }
    const ReplicaChange change = kind_ == Kind::kCuts ? ReplicaChange{} : ChangeAtRandom(&list);
    const uint64_t enough = Of(8, 8, 9) * list.size();
    steps_left_ = Below(Of(3, 3, 5)) == 0 ? UINT64_MAX : Below(enough);
    const bool by_force = kind_ == Kind::kEverything && Below(4) == 0;
    Open(list, change, {kind_ == Kind::kCuts || Below(4) != 0, 0}, by_force);
  }
  // Adds a replica to the list, or removes one, perhaps.
  ReplicaChange ChangeAtRandom(std::vector<std::string>* listed) {
    std::vector<std::string>& list = *listed;
    ReplicaChange change;
    if (Below(3) == 0 && list.size() < 7) {
      std::string free = NewAddress();
      for (const auto& each : replicas_)
        if (!each->address.empty() && Below(2) == 0 &&
            std::find(list.begin(), list.end(), each->address) == list.end())
          free = each->address;
      if (At(free) == nullptr) replicas_.push_back(std::make_unique<ModelReplica>(free));
      change.added = free;
      list.push_back(free);
    } else if (Below(2) == 0 && list.size() > 1) {
      const auto leaving = list.begin() + static_cast<ptrdiff_t>(Below(list.size()));
      change.removed = *leaving;
      list.erase(leaving);
    }
    return change;
  }
  static bool IsNamed(const control::HelloReplyT& known, ModelReplica& replica,
                      const std::string& address) {
    const std::string node = replica.Hello().node_id;
    for (size_t i = 0; i < known.installed_nodes.size(); ++i)
      if (known.installed_nodes[i] == node && known.installed_replicas[i] == address) return true;
    for (size_t i = 0; i < known.absent_nodes.size(); ++i)
      if (known.absent_nodes[i] == node && known.absent_replicas[i] == address) return true;
    return false;
  }
  void Open(const std::vector<std::string>& list, const ReplicaChange& change, FailureRules rules,
            bool by_force = false) {
    std::vector<MemberLook> looks;
    std::vector<MissingReplica> missing;
    const bool all = primaries_.empty() || (kind_ == Kind::kOpenings && Below(2) == 0);
    for (const std::string& address : list) {
      const bool reached = At(address) != nullptr && (all || Below(Of(4, 4, 3)) != 0);
      if (reached)
        looks.push_back({"replica " + address, address, At(address)->Hello()});
      else
        missing.push_back({"replica " + address, address, "out of reach"});
    }
    if (by_force)
      for (const MissingReplica& each : missing) rules.given_up.push_back(each.address);
    if (!missing.empty() && !rules.bears_missing()) return;
    const Result<TakePlan> plan = PlanTake(looks, missing, 0, rules, change);
    if (!plan.ok()) return;
    if (plan->format && !primaries_.empty()) return;  // this makes another group
    if (!plan->format && !MayOpen(*plan, looks)) return;
    Take(*plan, looks);
  }
  void Take(const TakePlan& plan, const std::vector<MemberLook>& looks) {
    Primary primary{RandomUuid(), plan.configuration, {}};
    Configuration& next = primary.configuration;
    const Uuid& owner = primary.owner;
    next.owner = OwnerDigest(owner);
    if (plan.forced) next.branch = {next.epoch, next.owner};
    bool armed = false;
    try {
      for (const MemberLook& look : looks) Seal(look.address, look.hello, owner, next.epoch);
      TakeRegion(plan, looks, &primary);
      if (!wrong_.empty()) return;
      if (plan.before_change.has_value()) {
        Install(*plan.before_change, owner, next.epoch, true);
        ++next.epoch;
        for (const auto& each : next.replicas)
          Seal(each.address, At(each.address)->Hello(), owner, next.epoch);
      }
      Install(next, owner, next.epoch, false);
      Connect(next, owner, next.epoch);
      armed = true;
      Serve(primary);
      ++openings_;
      if (plan.forced) ++forced_;
      if (!plan.change.empty()) ++changes_;
    } catch (const Cut& cut) {
      if (!cut.dead) GiveBack(next, owner, next.epoch, !armed);
    }
  }
  void TakeRegion(const TakePlan& plan, const std::vector<MemberLook>& looks, Primary* primary) {
    std::vector<bool> cut(looks.size());
    if (!plan.format) {
      const std::vector<MemberContent> contents = Contents(looks, plan);
      const Result<Choice> choice = Choose(plan, contents, looks);
      if (!choice.ok()) throw Cut{false};
      primary->own = At(looks[choice->index].address)->region;
      cut = CutLogs(*choice, contents);
    }
    // Who gives replicas up may lose what they hold.
    if (!plan.forced) CheckContent(primary->configuration, primary->own);
    Redo(&primary->own);
    Push(primary->configuration, primary->own, cut);
  }
  static void Redo(ModelRegion* own) {
    own->ring = own->tail();
    own->Redo();
  }
  std::vector<MemberContent> Contents(const std::vector<MemberLook>& looks, const TakePlan& plan) {
    std::vector<MemberContent> contents;
    for (const MemberLook& look : looks) {
      const ModelRegion& region = At(look.address)->region;
      MemberContent content{look.name, {}};
      content.content.installed_epoch = look.hello.installed_epoch;
      content.content.acked_seq = region.acked();
      if (region.damaged) {
        content.content.log_error = "damaged";
      } else if (region.acked() <= SeqOf(region.tail())) {
        content.content.last_seq = SeqOf(region.tail());
        content.content.executed_seq = SeqOf(region.head);
      } else {
        content.content.log_error = "a record that was acknowledged is missing";
      }
      contents.push_back(std::move(content));
    }
    for (const size_t i : plan.joiners) contents[i].joins = true;
    return contents;
  }
  // Which of the members' regions becomes the group's.
  Result<Choice> Choose(const TakePlan& plan, const std::vector<MemberContent>& contents,
                        const std::vector<MemberLook>& looks) {
    HL_ASSIGN_OR_RETURN(const Choice choice, ChooseMember(contents, plan.unserved));
    const ModelRecord* const tail = At(looks[choice.index].address)->region.tail();
    if (tail != nullptr) HL_RETURN_IF_ERROR(CheckLogged(plan, tail->configuration));
    return choice;
  }
  // Where nothing is damaged, and nobody is given up, no content is refused.
  bool MayOpen(const TakePlan& plan, const std::vector<MemberLook>& looks) {
    const Status refused = Choose(plan, Contents(looks, plan), looks).status();
    const bool damaged = std::any_of(looks.begin(), looks.end(), [&](const MemberLook& each) {
      return At(each.address)->region.damaged;
    });
    if (!refused.ok() && !damaged && !plan.forced)
      wrong_ = "nothing is damaged, but: " + refused.ToString();
    return refused.ok();
  }

  // --- a primary that brings its group back, in the order of Session::TryBringBack

  void Recover() {
    if (primaries_.empty()) return;
    Primary& primary = primaries_[Below(primaries_.size())];
    const Configuration own = primary.configuration;
    std::vector<std::optional<control::HelloReplyT>> looks;
    for (const auto& each : own.replicas) {
      ModelReplica* const there = Below(4) == 0 ? nullptr : At(each.address);
      looks.emplace_back();
      if (there != nullptr) looks.back() = there->Hello();
    }
    const Judgement judgement =
        JudgeStanding(own, looks, looks, LeastReplicas(own, {Below(4) != 0, 0}));
    if (judgement.standing == Standing::kFenced || judgement.standing == Standing::kWait) return;
    Configuration next = own;
    next.replicas.clear();
    for (size_t i = 0; i < own.replicas.size(); ++i) {
      const bool leaves = judgement.standing == Standing::kShrink &&
                          std::find(judgement.missing.begin(), judgement.missing.end(), i) !=
                              judgement.missing.end();
      (leaves ? next.absent : next.replicas).push_back(own.replicas[i]);
    }
    uint64_t epoch = judgement.epoch;
    if (Below(2) == 0) TakeIn(own, &next, &epoch);
    steps_left_ = Below(2) == 0 ? UINT64_MAX : Below(5 * next.replicas.size());
    try {
      for (const auto& each : next.replicas) {
        const control::HelloReplyT seen = At(each.address)->Hello();
        if (ServedByAnother(seen, own)) throw Cut{true};
        Seal(each.address, seen, primary.owner, epoch);
      }
      Redo(&primary.own);
      Push(next, primary.own, std::vector<bool>(next.replicas.size()));
      Install(next, primary.owner, epoch, false);
      next.epoch = epoch;
      primary.configuration = next;
      Connect(next, primary.owner, epoch);
      primary.broken = false;
      primary.acked = SeqOf(primary.own.tail());
      AppendEpoch(&primary);
    } catch (const Cut&) {
      primary.broken = true;
    }
  }
  void TakeIn(const Configuration& own, Configuration* next, uint64_t* epoch) {
    // Only those that had been left out before are watched; they stand first.
    for (size_t i = 0; i < own.absent.size(); ++i) {
      const Configuration::Replica absent = next->absent[i];
      ModelReplica* const there = At(absent.address);
      if (there == nullptr) continue;
      const control::HelloReplyT hello = there->Hello();
      if (!CheckJoiner(own, *ParseUuid(kGroup), kRegion, absent, hello, hello).ok()) continue;
      next->absent.erase(next->absent.begin() + static_cast<ptrdiff_t>(i));
      next->replicas.push_back({*ParseUuid(hello.node_id), absent.address});
      *epoch = std::max(*epoch, hello.sealed_epoch + 1);
      return;
    }
  }

  // --- what happens to replicas

  // A fresh node takes the place of a replica, whose pool may be found again.
  void LosePool() {
    ModelReplica& lost = *replicas_[Below(replicas_.size())];
    if (lost.address.empty()) return;
    const std::string address = std::exchange(lost.address, "");
    lost.Restart(Below(2) == 0);
    replicas_.push_back(std::make_unique<ModelReplica>(address));
  }
  void FindPool() {
    for (const auto& each : replicas_)
      if (each->address.empty() && Below(2) == 0) each->address = NewAddress();
  }

  // One at a time has a damaged log.
  void Damage() {
    for (const auto& each : replicas_)
      if (each->region.damaged) return;
    ModelRegion& region = replicas_[Below(replicas_.size())]->region;
    region.damaged = SeqOf(region.ring) != 0;
  }

  // --- a primary that serves

  bool Serves(const Primary& primary, const Configuration::Replica& member) {
    ModelReplica* const there = At(member.address);
    if (there == nullptr || !there->connected()) return false;
    const NodeState& state = there->state();
    return state.node == member.node && state.sealed_epoch == primary.configuration.epoch &&
           state.sealed_owner == primary.configuration.owner;
  }
  // One operation of a member's queue.
  using Operation = std::function<void(ModelRegion&)>;

  // Appends the records. Each is written by one operation, and copied by later ones: the first cell
  // with the next write, the others one by one.
  void Send(Primary* primary, const std::vector<const ModelRecord*>& records, bool may_fail) {
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
  size_t Run(Primary* primary, const std::vector<Operation>& operations, bool may_fail) {
    const bool fails = may_fail && Below(Of(3, 3, 2)) == 0;
    const bool chain = Below(2) == 0;
    size_t limit = operations.size(), least = operations.size();
    for (const auto& each : primary->configuration.replicas) {
      size_t count = Serves(*primary, each) ? operations.size() : 0;
      if (fails) count = Below(count + 1);
      if (chain) count = limit = std::min(limit, count);
      least = std::min(least, count);
      if (count == 0) continue;
      ModelReplica& member = *At(each.address);
      for (size_t i = 0; i < count; ++i) {
        if (i + 1 == count) member.flushed = member.region;
        operations[i](member.region);
      }
      if (count == operations.size() || Below(2) == 0) member.flushed = member.region;
    }
    if (least < operations.size()) {
      primary->broken = true;
      // What all members have is flushed.
      for (const auto& each : primary->configuration.replicas)
        if (least != 0) At(each.address)->flushed = At(each.address)->region;
    }
    return least;
  }
  void Acknowledge(Primary* primary, const ModelRecord* record) {
    const ModelRecord*& kept = Kept(primary->configuration);
    if (!Contains(record, kept))
      wrong_ = "a primary of epoch " + std::to_string(primary->configuration.epoch) +
               " acknowledges record " + std::to_string(record->seq) + " of another history than " +
               std::to_string(SeqOf(kept));
    kept = record;
    primary->acked = record->seq;
  }
  void Work(Primary& primary) {
    if (primary.broken || Below(2) == 0) return;
    std::vector<const ModelRecord*> records;
    const ModelRecord* last = primary.own.ring;
    for (uint64_t count = 1 + Below(Below(4) == 0 ? 12 : 3); count > 0; --count) {
      std::vector<size_t> changes = {Below(kCells)};
      if (Below(2) == 0) changes.push_back((changes[0] + 1) % kCells);
      last = records_.Add(last, primary.acked, changes, nullptr);
      records.push_back(last);
    }
    Send(&primary, records, true);
    if (primary.broken || Below(3) != 0) return;
    // Everything is executed.
    const uint64_t free = SeqOf(primary.own.head);
    primary.own.head = last;
    Run(&primary, {[last](ModelRegion& region) { region.head = last; }}, true);
    if (!primary.broken && Below(2) == 0) primary.own.oldest = free + 1;
  }

  // --- at the end

  void ExpectOpens(ModelReplica& newest) {
    const control::HelloReplyT known = newest.Hello();
    if (known.installed_epoch == 0) return;
    std::vector<MemberLook> members;
    std::vector<MissingReplica> missing;
    const auto list = [&](const std::vector<std::string>& nodes,
                          const std::vector<std::string>& addresses) {
      for (size_t i = 0; i < nodes.size(); ++i) {
        ModelReplica* found = nullptr;
        for (const auto& each : replicas_)
          if (!each->address.empty() && each->Hello().node_id == nodes[i]) found = each.get();
        if (found == nullptr && At(addresses[i]) != nullptr) found = At(addresses[i]);
        if (found == nullptr)
          missing.push_back({"replica " + addresses[i], addresses[i], "lost"});
        else
          members.push_back({"replica " + found->address, found->address, found->Hello()});
      }
    };
    list(known.installed_nodes, known.installed_replicas);
    list(known.absent_nodes, known.absent_replicas);
    size_t voters = 0;
    for (const std::string& node : known.installed_nodes)
      for (const MemberLook& each : members) voters += each.hello.node_id == node ? 1 : 0;
    const size_t all = known.installed_nodes.size() + known.absent_nodes.size();
    if (voters <= known.installed_nodes.size() / 2 || members.size() <= all / 2) return;
    const Result<TakePlan> plan = PlanTake(members, missing, 0, {true, 0});
    ++settled_;
    if (!plan.ok()) {
      wrong_ = "a majority does not open the group: " + plan.status().ToString();
    } else if (MayOpen(*plan, members)) {
      const Result<Choice> choice = Choose(*plan, Contents(members, *plan), members);
      CheckContent(plan->configuration, At(members[choice->index].address)->region);
    }
  }

  std::mt19937_64 random_;
  const Kind kind_;
  std::vector<std::unique_ptr<ModelReplica>> replicas_;
  std::vector<Primary> primaries_;
  uint64_t addresses_ = 0;
  ModelRecords records_;
  std::map<std::string, const ModelRecord*> kept_;  // by branch
  uint64_t steps_left_ = 0;
  uint64_t openings_ = 0, changes_ = 0, settled_ = 0, forced_ = 0;
  std::string wrong_;
};

uint64_t Seeds(uint64_t usual) {
  const char* const seeds = std::getenv("HYPERLOOP_SEEDS");
  return seeds != nullptr ? std::strtoull(seeds, nullptr, 10) : usual;
}

TEST(ReplicaSetsTest, OneSetServesWhateverWasCutShort) {
  const uint64_t last = Seeds(800);
  uint64_t openings = 0, changes = 0, settled = 0, forced = 0;
  for (uint64_t seed = 1; seed <= last; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Group group(seed, seed % 2 == 0 ? Kind::kEverything : Kind::kOpenings);
    ASSERT_NO_FATAL_FAILURE(group.Make());
    for (int step = 0; step < 60 && group.wrong().empty(); ++step) group.Step();
    if (group.wrong().empty()) group.Settle();
    ASSERT_EQ(group.wrong(), "");
    openings += group.openings();
    changes += group.changes();
    settled += group.settled();
    forced += group.forced();
  }
  // Most openings are meant to be cut short or refused, but not all.
  EXPECT_GT(openings, 2 * last);
  EXPECT_GT(changes, last / 2);
  EXPECT_GT(settled, last / 2);
  EXPECT_GT(forced, last / 100);
}

TEST(ReplicaSetsTest, WhatOpeningsThatWereCutShortLeaveIsWholeAndOpens) {
  const uint64_t last = Seeds(1500);
  uint64_t openings = 0, settled = 0;
  for (uint64_t seed = 1; seed <= last; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Group group(seed, Kind::kCuts);
    ASSERT_NO_FATAL_FAILURE(group.Make());
    for (int step = 0; step < 25 && group.wrong().empty(); ++step) group.Step();
    if (group.wrong().empty()) group.Settle();
    ASSERT_EQ(group.wrong(), "");
    openings += group.openings();
    settled += group.settled();
  }
  EXPECT_GT(openings, 2 * last);
  EXPECT_GT(settled, last / 2);
}

}  // namespace
}  // namespace hyperloop
