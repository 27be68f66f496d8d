// Which sets of replicas can serve: random openings, changes of the group's replicas, lost pools
// and primaries that bring their group back, each cut short anywhere. Nodes, plans and judgements
// are the product's; queues and bytes are not there. A log is a number: how many records it has.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "control/messages.h"
#include "control/owner.h"
#include "layout/replica_lists.h"
#include "primary/take_plan.h"
#include "replica/node.h"
#include "support/must.h"

namespace hyperloop {
namespace {

constexpr uint64_t kRegion = 2ull << 20;
const char kGroup[] = "11111111-1111-4111-8111-111111111111";

class NoMedia final : public MediaWriter {
 public:
  rnic::Media level() const override { return rnic::Media::kRam; }
  Status Persist(const void*, size_t) override { return {}; }
};

class NoService final : public NodeService {
 public:
  std::string state() const override { return "ready"; }
  void End() override { connected = false; }
  Status PersistRegion() override { return {}; }
  Result<Access> Attach(const rnic::QpAddress&) override { return Access{}; }
  Result<MemberInfo> Prepare(const MemberOptions&) override { return MemberInfo{}; }
  Status Connect(const PrimaryInfo&, std::span<const MemberInfo>) override {
    connected = true;
    return {};
  }
  bool connected = false;
};

// A replica: its node with its pool.
class Replica {
 public:
  explicit Replica(std::string at) : address(std::move(at)), page_(kNodePageSize) {
    region_.reset(static_cast<std::byte*>(std::calloc(1, kRegion)));
    Restart();
  }
  void Restart() {
    service_.End();
    node_ =
        Must(Node::Create({"host", "ram"}, {region_.get(), kRegion}, store_, service_, nullptr));
  }
  template <class Reply, class Request>
  Result<Reply> Ask(const Request& request) {
    const control::BodyUnion answer = node_->Handle(control::MakeBody(Request(request)));
    if (const auto* error = control::As<control::ErrorT>(answer)) return ErrorStatus(*error);
    return Reply(*control::As<Reply>(answer));
  }
  control::HelloReplyT Hello() { return Must(Ask<control::HelloReplyT>(control::HelloRequestT{})); }
  bool connected() const { return service_.connected; }
  // The region's superblock, which is what an installation checks.
  void Push(uint64_t records) {
    static const std::vector<std::byte>& formatted = *new std::vector<std::byte>([] {
      std::vector<std::byte> region(kRegion);
      const auto geometry = RegionGeometry::Compute(kRegion, 64 << 10, 64, 1 << 16);
      EXPECT_TRUE(FormatRegion(region, *ParseUuid(kGroup), RandomSecret(), *geometry).ok());
      return region;
    }());
    std::copy_n(formatted.begin(), sizeof(Superblock), region_.get());
    log = records;
  }

  std::string address;  // empty: nobody reaches it
  uint64_t log = 0;     // so many records, in the order of History

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::vector<std::byte> page_;
  std::unique_ptr<std::byte, Free> region_;
  NoMedia media_;
  NodePageStore store_{page_, media_};
  NoService service_;
  std::unique_ptr<Node> node_;
};

// A primary that serves, or thinks so.
struct Primary {
  Uuid owner{};
  Configuration configuration;
  uint64_t log = 0;
};

// A step that was not carried out: the process is dead, or the replica refused.
struct Cut {
  bool dead;
};

class Group {
 public:
  // Half of the groups only see openings, most of them with all replicas within reach.
  explicit Group(uint64_t seed) : random_(seed), calm_(Below(2) == 0) {
    const size_t count = calm_ ? 3 + Below(3) : 1 + Below(5);
    for (size_t i = 0; i < count; ++i) replicas_.push_back(std::make_unique<Replica>(NewAddress()));
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
    const uint64_t what = calm_ ? 0 : Below(12);
    if (what < 5)
      OpenAtRandom();
    else if (what < 8)
      Recover();
    else if (what < 9)
      LosePool();
    else if (what < 10)
      FindPool();
    else if (what < 11)
      replicas_[Below(replicas_.size())]->Restart();
    Append();
  }
  const std::string& wrong() const { return wrong_; }
  uint64_t openings() const { return openings_; }
  uint64_t changes() const { return changes_; }

 private:
  uint64_t Below(uint64_t bound) { return random_() % bound; }
  std::string NewAddress() { return "10.0.0.1:" + std::to_string(7000 + addresses_++); }
  Replica* At(const std::string& address) {
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
  }
  void Install(const Configuration& configuration, const Uuid& owner, uint64_t epoch,
               bool lasting) {
    auto request = From<control::InstallRequestT>(owner, epoch);
    ListReplicas(configuration.replicas, &request.nodes, &request.replicas);
    ListReplicas(configuration.absent, &request.absent_nodes, &request.absent_replicas);
    request.lasting = lasting;
    for (const auto& each : configuration.replicas) Call<control::DoneT>(each.address, request);
  }
  void Push(const Configuration& configuration, uint64_t log) {
    for (const auto& each : configuration.replicas) {
      Reach();
      At(each.address)->Push(log);
    }
  }
  void Connect(const Configuration& configuration, const Uuid& owner, uint64_t epoch) {
    auto request = From<control::ConnectMemberRequestT>(owner, epoch);
    request.primary.resize(sizeof(PrimaryInfo));
    request.chain.resize(configuration.replicas.size() * sizeof(MemberInfo));
    for (const auto& each : configuration.replicas) Call<control::DoneT>(each.address, request);
  }
  void GiveBack(const Configuration& configuration, const Uuid& owner, uint64_t epoch) {
    auto request = From<control::ReleaseRequestT>(owner, epoch);
    request.never_served = true;
    for (const auto& each : configuration.replicas)
      if (Below(3) != 0) At(each.address)->Ask<control::DoneT>(request).status().IgnoreError();
  }
  void Serve(const Uuid& owner, uint64_t epoch, Configuration configuration, uint64_t log) {
    if (log < acknowledged_)
      wrong_ = "an opening under epoch " + std::to_string(epoch) + " finds " + std::to_string(log) +
               " records of " + std::to_string(acknowledged_);
    configuration.epoch = epoch;
    configuration.owner = OwnerDigest(owner);
    acknowledged_ = log;  // it is read
    primaries_.push_back({owner, std::move(configuration), log});
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
    ReplicaChange change;
    if (Below(3) == 0 && list.size() < 7) {
      std::string free = NewAddress();
      for (const auto& each : replicas_)
        if (!each->address.empty() && Below(2) == 0 &&
            std::find(list.begin(), list.end(), each->address) == list.end())
          free = each->address;
      if (At(free) == nullptr) replicas_.push_back(std::make_unique<Replica>(free));
      change.added = free;
      list.push_back(free);
    } else if (Below(2) == 0 && list.size() > 1) {
      const auto leaving = list.begin() + static_cast<ptrdiff_t>(Below(list.size()));
      change.removed = *leaving;
      list.erase(leaving);
    }
    steps_left_ = Below(3) == 0 ? UINT64_MAX : Below(8 * list.size());
    Open(list, change, {Below(4) != 0, 0});
  }
  static bool IsNamed(const control::HelloReplyT& known, Replica& replica,
                      const std::string& address) {
    const std::string node = replica.Hello().node_id;
    for (size_t i = 0; i < known.installed_nodes.size(); ++i)
      if (known.installed_nodes[i] == node && known.installed_replicas[i] == address) return true;
    for (size_t i = 0; i < known.absent_nodes.size(); ++i)
      if (known.absent_nodes[i] == node && known.absent_replicas[i] == address) return true;
    return false;
  }
  void Open(const std::vector<std::string>& list, const ReplicaChange& change,
            const FailureRules& rules) {
    std::vector<MemberLook> looks;
    std::vector<MissingReplica> missing;
    const bool all = primaries_.empty() || (calm_ && Below(2) == 0);
    for (const std::string& address : list) {
      const bool reached = At(address) != nullptr && (all || Below(4) != 0);
      if (reached)
        looks.push_back({"replica " + address, address, At(address)->Hello()});
      else
        missing.push_back({"replica " + address, address, "out of reach"});
    }
    if (!missing.empty() && !rules.may_leave_out) return;
    Result<TakePlan> plan = PlanTake(looks, missing, 0, rules, change);
    if (!plan.ok()) return;
    if (plan->format && !primaries_.empty()) return;  // this makes another group
    const Uuid owner = RandomUuid();
    uint64_t epoch = plan->epoch;
    try {
      std::vector<MemberContent> contents;
      for (const MemberLook& look : looks) {
        Seal(look.address, look.hello, owner, epoch);
        MemberContent content{look.name, {}};
        content.content.installed_epoch = look.hello.installed_epoch;
        content.content.last_seq = At(look.address)->log;
        contents.push_back(std::move(content));
      }
      for (const size_t i : plan->joiners) contents[i].joins = true;
      uint64_t log = 0;
      if (!plan->format) {
        const Result<Choice> choice = ChooseMember(contents, plan->unserved);
        if (!choice.ok()) throw Cut{false};
        log = contents[choice->index].content.last_seq;
      }
      Push(plan->configuration, log);
      if (plan->before_change.has_value()) {
        Install(*plan->before_change, owner, epoch, true);
        ++epoch;
        for (const auto& each : plan->configuration.replicas)
          Seal(each.address, At(each.address)->Hello(), owner, epoch);
      }
      Install(plan->configuration, owner, epoch, false);
      Connect(plan->configuration, owner, epoch);
      Serve(owner, epoch, plan->configuration, log);
      ++openings_;
      if (!plan->change.empty()) ++changes_;
    } catch (const Cut& cut) {
      if (!cut.dead) GiveBack(plan->configuration, owner, epoch);
    }
  }

  // --- a primary that brings its group back, in the order of Session::TryBringBack

  void Recover() {
    Primary& primary = primaries_[Below(primaries_.size())];
    const Configuration own = primary.configuration;
    std::vector<std::optional<control::HelloReplyT>> looks;
    for (const auto& each : own.replicas) {
      Replica* const there = Below(4) == 0 ? nullptr : At(each.address);
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
      Push(next, primary.log);
      Install(next, primary.owner, epoch, false);
      Connect(next, primary.owner, epoch);
      next.epoch = epoch;
      primary.configuration = next;
    } catch (const Cut&) {
    }
  }
  void TakeIn(const Configuration& own, Configuration* next, uint64_t* epoch) {
    // Only those that had been left out before are watched; they stand first.
    for (size_t i = 0; i < own.absent.size(); ++i) {
      const Configuration::Replica absent = next->absent[i];
      Replica* const there = At(absent.address);
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
    Replica& lost = *replicas_[Below(replicas_.size())];
    if (lost.address.empty()) return;
    const std::string address = std::exchange(lost.address, "");
    lost.Restart();
    replicas_.push_back(std::make_unique<Replica>(address));
  }
  void FindPool() {
    for (const auto& each : replicas_)
      if (each->address.empty() && Below(2) == 0) each->address = NewAddress();
  }

  // Each primary that still can appends a record. It is acknowledged if all members have it.
  void Append() {
    for (Primary& primary : primaries_) {
      const Configuration& own = primary.configuration;
      const bool can = std::all_of(
          own.replicas.begin(), own.replicas.end(), [&](const Configuration::Replica& each) {
            Replica* const there = At(each.address);
            if (there == nullptr || !there->connected()) return false;
            const control::HelloReplyT hello = there->Hello();
            return hello.sealed_epoch == own.epoch && IsOwner(hello, own.owner);
          });
      if (!can) continue;
      if (primary.log != acknowledged_)
        wrong_ = "a primary of epoch " + std::to_string(own.epoch) + " with " +
                 std::to_string(primary.log) + " records acknowledges another one, after " +
                 std::to_string(acknowledged_);
      ++primary.log;
      acknowledged_ = primary.log;
      for (const auto& each : own.replicas) At(each.address)->log = primary.log;
    }
  }

  std::mt19937_64 random_;
  const bool calm_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::vector<Primary> primaries_;
  uint64_t addresses_ = 0;
  uint64_t acknowledged_ = 0;
  uint64_t steps_left_ = 0;
  uint64_t openings_ = 0, changes_ = 0;
  std::string wrong_;
};

TEST(ReplicaSetsTest, OneSetServesWhateverWasCutShort) {
  const char* const seeds = std::getenv("HYPERLOOP_SEEDS");
  const uint64_t last = seeds != nullptr ? std::strtoull(seeds, nullptr, 10) : 1000;
  uint64_t openings = 0, changes = 0;
  for (uint64_t seed = 1; seed <= last; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Group group(seed);
    ASSERT_NO_FATAL_FAILURE(group.Make());
    for (int step = 0; step < 60 && group.wrong().empty(); ++step) group.Step();
    ASSERT_EQ(group.wrong(), "");
    openings += group.openings();
    changes += group.changes();
  }
  // Most openings are meant to be cut short or refused, but not all.
  EXPECT_GT(openings, 2 * last);
  EXPECT_GT(changes, last / 2);
}

}  // namespace
}  // namespace hyperloop
