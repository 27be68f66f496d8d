#include "simulation/scenario.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "files/file_table.h"
#include "journal/redo.h"
#include "layout/crc32c.h"
#include "simulation/history.h"
#include "simulation/primary.h"
#include "simulation/replica_sets.h"
#include "simulation/scheduler.h"
#include "simulation/world.h"
#include "support/ranges_in_use.h"
#include "support/regions.h"

namespace hyperloop::simulation {
namespace {

constexpr char kFile[] = "f";
constexpr int kMostSteps = 24;
constexpr int kMostOpens = 60;
constexpr std::chrono::seconds kRnicOpens{2};  // more than a replica takes to open its RNIC again
constexpr size_t kMostReplicas = 6;
constexpr uint64_t kMostMessages = 64;  // that change replicas, of one opening

class Scenario {
 public:
  Scenario(uint64_t seed, const std::string& folder, std::shared_ptr<Log> log)
      : random_(seed),
        log_(std::move(log)),
        world_(folder, random_, log_),
        sets_(world_.first_count()) {
    ChooseOptions();
  }

  Outcome Play() {
    OpenSoon();
    for (uint64_t steps = 1 + Below(kMostSteps); steps > 0 && wrong_.empty(); --steps) {
      std::this_thread::sleep_for(
          std::chrono::microseconds(Below(Below(2) == 0 ? 2000 : 3'000'000)));
      if (Below(2) == 0) {
        primary_->Hurry();
        std::this_thread::sleep_for(std::chrono::microseconds(Below(5000)));
      }
      Step();
    }
    if (wrong_.empty()) End();
    if (wrong_.empty() && Below(3) == 0) GoOnByForce();
    return {wrong_, history_.acknowledged(), faults_, 0, 0};
  }

 private:
  uint64_t Below(uint64_t bound) { return random_() % bound; }
  template <class Numbers>
  int AnyOf(const Numbers& numbers) {
    return *std::next(numbers.begin(), static_cast<ptrdiff_t>(Below(numbers.size())));
  }
  int AnyReplica() { return AnyOf(sets_.All()); }
  // One of the replicas, or the primary's host.
  std::string AnyHost() {
    const std::set<int> all = sets_.All();
    const uint64_t number = Below(all.size() + 1);
    if (number == all.size()) return kPrimaries[host_];
    return World::NameOf(*std::next(all.begin(), static_cast<ptrdiff_t>(number)));
  }
  void Say(const std::string& what) const {
    if (log_ != nullptr) log_->Write(LogLevel::kInfo, "--- " + what);
  }
  void Wrong(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }

  void ChooseOptions() {
    StoreOptions& options = world_.options();
    options.datapath = Below(3) == 0 ? Datapath::kFanout : Datapath::kOffload;
    // A replica's processor flushes by the medium.
    if (world_.on_disks() && Below(3) == 0)
      options.datapath = Below(2) == 0 ? Datapath::kCpuPolling : Datapath::kCpuEvent;
    options.wait = Below(2) == 0 ? WaitMode::kPoll : WaitMode::kEvent;
    options.window = 1u << Below(5);
    continues_ = Below(2) == 0;
    if (continues_) options.on_replica_failure = OnReplicaFailure::kContinue;
    writer_ = {Below(2) == 0 ? Below(2000) : Below(200), 1 + Below(8)};
  }

  // --- primaries

  // What an opening by this list says otherwise. While a replica with a fresh pool waits for its
  // content, none is granted that leaves out nothing.
  Opening By(const ReplicaList& list, bool takeover) const { return {list, takeover, lost_pool_}; }
  // Opens the group on one of kPrimaries, reads it and compares. The calling thread is one of the
  // primary's process. Null: not now.
  std::unique_ptr<Primary> Open(size_t host, const Opening& opening) {
    const uint64_t process = Scheduler::Process();
    const bool known = sets_.known();
    Result<std::unique_ptr<Primary>> opened = TryOpen(host, opening);
    if (world_.IsDead(process)) return nullptr;
    if (opened.ok()) return std::move(opened).value();
    const Status& status = opened.status();
    Say("refused: " + status.ToString());
    // Never are all copies damaged, and no wrong replica is listed.
    if (status.code() == Code::kCorruption || (status.code() == Code::kInvalidArgument && known))
      Wrong("an opening was refused with " + status.ToString());
    if (opening.list.changes()) sets_.MayServe(opening.list);
    refusal_ = status;
    return nullptr;
  }
  Result<std::unique_ptr<Primary>> TryOpen(size_t host, const Opening& opening) {
    const uint64_t process = Scheduler::Process();
    HL_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, world_.Open(kPrimaries[host], opening));
    TakeResult taken;
    HL_RETURN_IF_ERROR(store->Take({"/database", pairing_.group.empty(), pairing_}, &taken));
    if (world_.IsDead(process)) return Unavailable("this process is dead");
    pairing_ = taken.pairing;
    sets_.Serves(Below(2) == 0 ? opening.list : opening.list.Plain());
    if (lost_pool_ && Settled()) lost_pool_ = false;
    CheckDurable(opening.list, taken.epoch);
    HL_ASSIGN_OR_RETURN(const FileId file, FileOf(*store));
    std::string content(World::kRegion, '\0');
    HL_ASSIGN_OR_RETURN(const uint64_t size, store->Read(file, 0, content));
    if (world_.IsDead(process)) return Unavailable("this process is dead");
    if (const std::string wrong = history_.Check({content.data(), size}); !wrong.empty())
      Wrong(std::string("after an opening by ") + kPrimaries[host] + ": " + wrong);
    history_.Serves(taken.epoch);
    return std::make_unique<Primary>(world_, host, std::move(store), file, history_, writer_);
  }
  static Result<FileId> FileOf(Store& store) {
    Result<FileId> found = store.Lookup(kFile);
    return found.status().code() == Code::kNotFound ? store.Create(kFile) : found;
  }
  std::unique_ptr<Primary> OpenAsNewProcess(size_t host, const Opening& opening) {
    const AsProcess as(Scheduler::Get().NewProcess());
    return Open(host, opening);
  }
  // By any list that may be right.
  std::unique_ptr<Primary> OpenAsNewProcess(size_t host, bool takeover) {
    return OpenAsNewProcess(host, By(sets_.Any(random_), takeover));
  }
  // Opens the group, which can be opened by one of the lists, unless others disturb.
  void OpenSoon() {
    for (uint64_t i = Below(kMostOpens), last = i + kMostOpens; i < last; ++i) {
      if (primary_ != nullptr || !wrong_.empty()) return;
      const ReplicaList list = sets_.lists()[i % sets_.lists().size()];
      primary_ = OpenAsNewProcess(host_, By(list, Below(2) == 0));
      if (primary_ == nullptr) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    if (primary_ == nullptr) Wrong("the group does not open: " + refusal_.ToString());
  }
  // What a replica has promised survives a power failure.
  void CheckDurable(const ReplicaList& list, uint64_t epoch) {
    for (const int each : list.replicas) {
      if (!world_.up(each) || Recorded(each) != epoch) continue;
      const Result<NodeState> durable = ReadNodeState(world_.durable_page(each));
      if (!durable.ok() || durable->installed.epoch != epoch)
        Wrong(World::NameOf(each) + " serves epoch " + std::to_string(epoch) +
              ", which is not on its medium");
    }
  }
  // The process dies.
  void Vanish(std::unique_ptr<Primary>& primary) {
    world_.KillPrimary(primary->process(), kPrimaries[primary->host()]);
    Bury(std::move(primary));
  }
  void Bury(std::shared_ptr<Primary> dead) {
    const uint64_t process = dead->process();
    world_.Bury(process, [dead = std::move(dead)]() mutable { dead.reset(); });
  }

  // --- steps

  void Step() {
    ++faults_;
    switch (Below(44)) {
      case 0:
        return Restart(AnyReplica(), /*power=*/false);
      case 1:
        return Restart(AnyReplica(), /*power=*/true);
      case 2:
      case 10:
        return StopOrStart(AnyReplica());
      case 3:
        return CutAndHeal(AnyReplica());
      case 4:
        Say("the primary vanishes");
        Vanish(primary_);
        CheckMembersAlone();
        return Heal(), OpenSoon();
      case 5:
        return CloseAndOpen();
      case 6:
        return Takeover();
      case 7:
      case 37:
      case 38:
        return DamageOne();
      case 11:
        return Race();
      case 13:
      case 14:
      case 15:
        return DieWhileOpening();
      case 16:
      case 17:
        return OpenWithSome();
      case 18:
      case 19:
        return WakeUpLate();
      case 20:
        return StopReplica(AnyReplica());
      case 8:
      case 9:
        return DisturbLink();
      case 21:
      case 22:
      case 23:
      case 24:
        return ChangeReplicas();
      case 25:
      case 26:
      case 27:
      case 28:
      case 29:
        return ChangesCutShort();
      case 30:
        return LosePool();
      case 31:
      case 32:
      case 33:
        return RestartRnic();
      case 34:
      case 35:
      case 36:
        return FailDisk();
      case 39:
      case 40:
      case 41:
        return AddWhileItServes();
      default:
        return LoseAllPower();
    }
  }
  void Restart(int replica, bool power) {
    if (!world_.up(replica)) return world_.Start(replica);
    Say("replica " + std::to_string(replica) + (power ? " loses power" : " restarts"));
    power ? world_.LosePower(replica) : world_.Kill(replica);
    std::this_thread::sleep_for(std::chrono::milliseconds(Below(300)));
    world_.Start(replica);
  }
  void StopOrStart(int replica) {
    if (!world_.up(replica)) return world_.Start(replica);
    Say("replica " + std::to_string(replica) + " ends");
    world_.Kill(replica);
  }
  void CutAndHeal(int replica) {
    Say("replica " + std::to_string(replica) + " is out of reach");
    world_.SetReachable(replica, false);
    std::this_thread::sleep_for(std::chrono::milliseconds(Below(1500)));
    world_.SetReachable(replica, true);
  }
  // Nobody serves. Each member of the newest configuration that served holds all that was
  // acknowledged or read, by itself, even after a power failure now. Members of newer ones were
  // made equal to one of these before.
  void CheckMembersAlone() {
    Configuration newest;
    for (int i = 0; i < world_.count(); ++i) {
      if (!world_.exists(i)) continue;
      test::EmbeddedReplica::Durable left = world_.Left(i);
      const Result<NodeState> state = ReadNodeState(left.node_page);
      if (!state.ok()) return Wrong(World::NameOf(i) + ": " + state.status().ToString());
      if (state->installed.epoch > newest.epoch) newest = state->installed;
      if (state->installed.epoch < std::max(history_.epoch(), uint64_t{1})) continue;
      if (const std::string wrong = WrongAlone(left.region); !wrong.empty())
        Wrong(World::NameOf(i) + " alone, of epoch " + std::to_string(state->installed.epoch) +
              ": " + wrong);
    }
    CheckRecorded(newest);
  }
  // Only what was asked for is recorded.
  void CheckRecorded(const Configuration& newest) {
    std::set<int> recorded;
    for (const Configuration::Replica& each : newest.All())
      for (int i = 0; i < world_.count(); ++i)
        if (world_.AddressOf(i) == each.address) recorded.insert(i);
    if (newest.epoch == 0 || sets_.Has(recorded)) return;
    Wrong("the newest configuration, of epoch " + std::to_string(newest.epoch) + ", has replicas " +
          ReplicaList{{recorded.begin(), recorded.end()}}.Text() + ", and none may have these");
  }
  std::string WrongAlone(std::span<std::byte> image) const { return WrongAlone(image, history_); }
  static std::string WrongAlone(std::span<std::byte> image, const History& history) {
    const Result<RegionInfo> info = ParseSuperblock(image, image.size());
    if (!info.ok()) return info.status().ToString();
    if (const auto log = Redo(image, *info); !log.ok()) return log.status().ToString();
    const Result<FileTable> table = FileTable::Load(image, *info);
    if (!table.ok()) return table.status().ToString();
    std::string text;
    for (const FileInfo& file : table->List()) {
      if (file.name != kFile) continue;
      text.resize(file.size);
      table->ReadBytes(image, *info, SlotOf(file.id), 0, text);
    }
    return history.Look(text);
  }
  void Heal() {
    for (const int i : sets_.All())
      if (!world_.up(i)) world_.Start(i);
  }
  // From now on each replica is up or down, whatever it was.
  void Shuffle() {
    for (const int i : sets_.All()) {
      const bool up = Below(2) == 0;
      if (up && !world_.up(i)) world_.Start(i);
      if (!up && world_.up(i)) world_.Kill(i);
    }
  }
  // A primary opens a group some of whose replicas are down. If it may, it has everything.
  void OpenWithSome() {
    Say("the primary vanishes, and the next one finds some replicas");
    Vanish(primary_);
    CheckMembersAlone();
    Shuffle();
    primary_ = OpenAsNewProcess(host_, Below(2) == 0);
    if (primary_ != nullptr) return;
    Heal();
    OpenSoon();
  }
  void CloseAndOpen() {
    Say("the primary closes");
    primary_->Stop();
    primary_->Close().IgnoreError();
    primary_.reset();
    Heal();
    OpenSoon();
  }
  // Another primary takes the group while this one appends. One of the two has it afterwards.
  void Takeover() {
    Say("another primary takes the group");
    std::unique_ptr<Primary> former = std::move(primary_);
    host_ = 1 - host_;
    primary_ = OpenAsNewProcess(host_, true);
    if (primary_ == nullptr && !former->fenced()) {
      primary_ = std::move(former);
      host_ = 1 - host_;
      return;
    }
    if (primary_ != nullptr) {
      former->Overtaken();
      std::this_thread::sleep_for(std::chrono::milliseconds(Below(1000)));
    }
    former->Stop();
    if (former->broke_fence())
      Wrong("a primary acknowledged a write after another one had the group");
    former.reset();
    if (primary_ != nullptr) return;
    Heal();
    OpenSoon();
  }
  // Two primaries take the group at the same time. It belongs to the one that was granted it last.
  void Race() {
    Say("two primaries take the group at the same time");
    Vanish(primary_);
    std::array<std::unique_ptr<Primary>, kPrimaries.size()> takers;
    const std::array<uint64_t, 2> processes{Scheduler::Get().NewProcess(),
                                            Scheduler::Get().NewProcess()};
    const auto take = [&](size_t own) {
      const AsProcess as(processes[own]);
      takers[own] = Open(own, By(sets_.Any(random_), true));
      if (takers[own] == nullptr) return;
      host_ = own;
      if (takers[1 - own] != nullptr) takers[1 - own]->Overtaken();
    };
    std::thread other([&] { take(1); });
    std::thread staller;
    if (Below(2) == 0) staller = std::thread([&] { Stall(processes[Below(2)]); });
    take(0);
    other.join();
    if (staller.joinable()) staller.join();
    std::this_thread::sleep_for(std::chrono::milliseconds(Below(1000)));
    if (takers[0] != nullptr && takers[1] != nullptr && Below(2) == 0) {
      Say("the later one of them vanishes");
      Vanish(takers[host_]);
      std::this_thread::sleep_for(std::chrono::milliseconds(Below(4000)));
    }
    for (const auto& each : takers) {
      if (each != nullptr) each->Stop();
      if (each != nullptr && each->broke_fence())
        Wrong("of two primaries that took the group at once, both acknowledge writes");
    }
    primary_ = std::move(takers[host_]);
    takers = {};
    if (primary_ != nullptr) Vanish(primary_);
    CheckMembersAlone();
    Heal();
    OpenSoon();
  }
  // The process is stopped a moment from now, for up to two seconds.
  void Stall(uint64_t process) {
    std::this_thread::sleep_for(std::chrono::microseconds(Below(30'000)));
    Scheduler::Get().SetStopped(process, true);
    std::this_thread::sleep_for(std::chrono::milliseconds(Below(2000)));
    Scheduler::Get().SetStopped(process, false);
  }
  void StopReplica(int replica) {
    if (!world_.up(replica)) return world_.Start(replica);
    Say("replica " + std::to_string(replica) + " is stopped for a while");
    world_.SetStopped(replica, true);
    std::this_thread::sleep_for(std::chrono::milliseconds(Below(3000)));
    world_.SetStopped(replica, false);
  }
  // The primary is stopped, perhaps while it brings the group back. Another one takes the group,
  // and has it when the first one wakes up.
  void WakeUpLate() {
    const int replica = AnyReplica();
    if (world_.up(replica) && Below(4) != 0) {
      world_.Kill(replica);
      world_.Start(replica);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(Below(uint64_t{1} << Below(20))));
    Say("the primary is stopped, and another one takes the group");
    std::unique_ptr<Primary> former = std::move(primary_);
    Scheduler::Get().SetStopped(former->process(), true);
    host_ = 1 - host_;
    Heal();
    OpenSoon();
    if (primary_ == nullptr) return Vanish(former);
    former->Overtaken();
    std::this_thread::sleep_for(std::chrono::milliseconds(Below(500)));
    Say("the former primary wakes up");
    Scheduler::Get().SetStopped(former->process(), false);
    std::this_thread::sleep_for(std::chrono::milliseconds(Below(2000)));
    if (former->broke_fence()) Wrong("a primary that woke up late acknowledged a write");
    Vanish(former);
    if (Below(2) == 0) return;
    Vanish(primary_);
    CheckMembersAlone();
    Heal();
    OpenSoon();
  }
  // A primary dies while it opens the group, or soon after that. It takes the group from a primary
  // that lives, or nobody has the group.
  void DieWhileOpening() {
    const bool takeover = Below(2) == 0;
    Say(std::string("a primary dies while it ") + (takeover ? "takes" : "opens") + " the group");
    if (!takeover) {
      Vanish(primary_);
      CheckMembersAlone();
      Below(2) == 0 ? Heal() : Shuffle();
    }
    OpenAndDie(takeover ? 1 - host_ : host_, By(sets_.Any(random_), takeover || Below(2) == 0));
    if (takeover) {
      std::this_thread::sleep_for(std::chrono::milliseconds(Below(1000)));
      if (primary_->broke_fence())
        Wrong("a primary acknowledged a write after another one had had the group");
      if (!primary_->fenced() && Below(2) == 0) return;
      Vanish(primary_);
    }
    CheckMembersAlone();
    Heal();
    OpenSoon();
  }
  void OpenAndDie(size_t host, const Opening& opening, std::optional<Loss> loss = {}) {
    if (!loss.has_value() && Below(2) == 0) loss = LossAt(Loss::kAll);
    OpenInTrouble(host, opening, loss, [this, host](uint64_t process) {
      world_.KillPrimary(process, kPrimaries[host]);
    });
  }
  Loss LossAt(Loss::What what) { return {what, Below(kMostMessages)}; }
  // Opens the group, and calls `trouble` with the opening's process when a message is lost; if none
  // is to be lost, at any moment while it opens, or soon after that. Returns a primary that lives.
  std::unique_ptr<Primary> OpenInTrouble(size_t host, const Opening& opening,
                                         const std::optional<Loss>& loss,
                                         const std::function<void(uint64_t)>& trouble) {
    const uint64_t process = Scheduler::Get().NewProcess();
    const auto opened = std::make_shared<std::unique_ptr<Primary>>();
    const auto ended = std::make_shared<bool>(false);
    if (loss.has_value()) world_.LoseMessages(*loss);
    world_.Bury(process, [this, host, opening, opened, ended] {
      const uint64_t own = Scheduler::Process();
      *opened = Open(host, opening);
      if (*opened != nullptr && primary_ != nullptr) primary_->Overtaken();
      if (world_.IsDead(own)) opened->reset();
      *ended = true;
    });
    const uint64_t most = uint64_t{1000} << Below(23);
    Scheduler::Get().Wait([&] { return world_.lost() || (*ended && loss.has_value()); },
                          loss.has_value() ? kNever : Scheduler::Get().Now() + Below(most));
    trouble(process);
    world_.LoseNone();
    if (world_.IsDead(process)) {
      if (*opened != nullptr) Bury(std::move(*opened));
      return nullptr;
    }
    Scheduler::Get().Wait([&] { return *ended; });
    return std::move(*opened);
  }
  void LoseAllPower() {
    Say("all replicas lose power");
    for (int i = 0; i < world_.count(); ++i)
      if (world_.up(i)) world_.LosePower(i);
    Vanish(primary_);
    CheckMembersAlone();
    Heal();
    for (uint64_t times = Below(3); times > 0; --times) {
      OpenAndDie(host_, By(sets_.Any(random_), true));
      CheckMembersAlone();
    }
    OpenSoon();
  }

  // --- changes of the group's replicas

  // A group with another replica, or without one.
  ReplicaList Changed(const ReplicaList& list) {
    ReplicaList next = list.Plain();
    std::set<int> others;
    for (int i = 0; i < world_.count(); ++i)
      if (!list.Set().contains(i)) others.insert(i);
    const bool adds = !others.empty() && next.replicas.size() < kMostReplicas &&
                      (next.replicas.size() < 3 || Below(2) == 0);
    // A new one that is the first of the chain is often the first to install anything.
    const bool first = adds && Below(2) == 0;
    const uint64_t place = first ? 0 : Below(next.replicas.size() + (adds ? 1 : 0));
    const auto at = next.replicas.begin() + static_cast<ptrdiff_t>(place);
    if (adds) {
      next.added = AnyOf(others);
      next.replicas.insert(at, next.added);
    } else {
      next.removed = *at;
      next.replicas.erase(at);
    }
    return next;
  }
  // It runs, with a fresh pool, or with one of an earlier time.
  void Enlist(int replica) {
    const bool fresh = !world_.exists(replica) || Below(2) == 0;
    if (fresh && !sets_.All().contains(replica) && world_.exists(replica)) world_.LosePool(replica);
    if (!world_.up(replica)) world_.Start(replica);
  }
  // A primary opens the group with another replica, or without one. It dies meanwhile, or it is not
  // answered, or a replica dies. It takes the group from a primary that lives, or nobody has it.
  void ChangeReplicas() {
    const ReplicaList next = Changed(sets_.Any(random_));
    if (next.replicas.empty()) return;
    const bool takeover = Below(2) == 0;
    Say("the group's replicas change to " + next.Text() +
        (takeover ? ", while a primary has it" : ""));
    if (!takeover) {
      Vanish(primary_);
      CheckMembersAlone();
    }
    Below(8) == 0 ? Shuffle() : Heal();
    if (next.added != -1) Enlist(next.added);
    sets_.MayServe(next);
    const size_t host = takeover ? 1 - host_ : host_;
    std::unique_ptr<Primary> opened = Change(host, By(next, takeover || Below(2) == 0));
    if (takeover)
      Replace(std::move(opened), host);
    else
      primary_ = std::move(opened);
    if (primary_ == nullptr) {
      CheckMembersAlone();
      Shuffle();
      for (int tries = 0; tries < 2 && primary_ == nullptr; ++tries)
        primary_ = OpenAsNewProcess(host_, Below(2) == 0);
    }
    if (primary_ == nullptr) {
      Heal();
      OpenSoon();
    }
    if (wrong_.empty() && Below(2) == 0) TryFormerSet();
  }
  // Somebody proposes one more replica while a primary serves. The primary may die, or others fail,
  // before it is a member.
  void AddWhileItServes() {
    if (!sets_.known() || sets_.All().size() >= kMostReplicas) return;
    const std::set<int> before = sets_.All();
    std::set<int> others;
    for (int i = 0; i < world_.count(); ++i)
      if (!before.contains(i)) others.insert(i);
    if (others.empty()) return;
    ReplicaList next = sets_.lists().front().Plain();
    next.added = AnyOf(others);
    next.replicas.push_back(next.added);
    Say("replica " + std::to_string(next.added) + " is proposed to the group");
    Heal();
    Enlist(next.added);
    sets_.MayServe(next);
    const bool disturbs = Below(2) == 0;
    for (uint64_t rounds = Below(16); rounds > 0 && !Holds(next); --rounds) {
      for (const int each : before)
        if (world_.up(each)) world_.Propose(each, next.added).IgnoreError();
      std::this_thread::sleep_for(std::chrono::milliseconds(Below(2000)));
      if (disturbs && Below(6) == 0) Restart(AnyReplica(), Below(2) == 0);
    }
    if (Holds(next)) {
      sets_.Serves(next.Plain());
      if (Below(2) == 0) return;
    }
    Vanish(primary_);
    CheckMembersAlone();
    Heal();
    OpenSoon();
    if (wrong_.empty() && Below(2) == 0) TryFormerSet();
  }
  // Whether all these replicas are up, and members of one configuration without others.
  bool Holds(const ReplicaList& list) {
    std::set<uint64_t> epochs;
    for (const int each : list.replicas) {
      if (!world_.up(each)) return false;
      const Result<NodeState> state = ReadNodeState(world_.node_page(each));
      if (!state.ok() || state->installed.replicas.size() != list.replicas.size()) return false;
      epochs.insert({state->installed.epoch, state->sealed_epoch});
    }
    return epochs.size() == 1;
  }
  std::unique_ptr<Primary> Change(size_t host, const Opening& opening) {
    switch (Below(5)) {
      case 0:
        return OpenAsNewProcess(host, opening);
      case 1:
        return OpenInTrouble(host, opening, LossAt(Below(2) == 0 ? Loss::kRequest : Loss::kReply),
                             [](uint64_t) {});
      case 2:
        return OpenInTrouble(host, opening, LossAt(Loss::kRequest),
                             [this](uint64_t) { Restart(AnyReplica(), Below(2) == 0); });
      default:
        OpenAndDie(host, opening);
        return nullptr;
    }
  }
  // Several changes of the same group are cut short one after the other. Whatever is served then,
  // nobody serves by the other replicas.
  void ChangesCutShort() {
    Vanish(primary_);
    CheckMembersAlone();
    const ReplicaList before = sets_.Any(random_);
    for (uint64_t times = 2 + Below(2); times > 0; --times) {
      const ReplicaList next = Changed(before);
      if (next.replicas.empty()) return OpenSoon();
      Say("a primary dies while it changes the group's replicas to " + next.Text());
      Heal();
      if (next.added != -1) Enlist(next.added);
      sets_.MayServe(next);
      OpenAndDie(host_, By(next, true), LossOfInstalls(next.replicas.size()));
      if (Below(4) == 0) Restart(AnyReplica(), Below(2) == 0);
    }
    CheckMembersAlone();
    Heal();
    KillOneThatIsBehind();
    for (int tries = 0; tries < 4 && primary_ == nullptr && wrong_.empty(); ++tries) {
      const bool newest = Below(2) == 0;
      const ReplicaList list = newest ? sets_.lists().back() : sets_.Any(random_);
      primary_ = OpenAsNewProcess(host_, {list, true, Below(4) != 0});
    }
    if (primary_ != nullptr) ServeWithoutThese();
    Heal();
    OpenSoon();
  }
  // Some replicas have installed the change, which is installed first at those that stay, then at
  // all `replicas`.
  Loss LossOfInstalls(uint64_t replicas) {
    const uint64_t spared = Below(2) == 0 ? 1 + Below(replicas - 1) : Below(2 * replicas);
    return {Loss::kAll, spared, true};
  }
  // Perhaps one dies that has not recorded the newest configuration, if there is one.
  void KillOneThatIsBehind() {
    const std::set<int> all = sets_.All();
    std::set<int> behind;
    uint64_t newest = 0;
    for (const int each : all) newest = std::max(newest, Recorded(each));
    for (const int each : all)
      if (Recorded(each) < newest) behind.insert(each);
    if (Below(4) != 0) world_.Kill(AnyOf(behind.empty() ? all : behind));
  }
  // The primary and all replicas with which it serves are gone. Nobody may serve by the others.
  void ServeWithoutThese() {
    primary_->Hurry();
    std::this_thread::sleep_for(std::chrono::milliseconds(Below(200)));
    Vanish(primary_);
    CheckMembersAlone();
    std::vector<ReplicaList> lists = sets_.lists();
    for (const std::set<int>& each : sets_.Former()) lists.push_back({{each.begin(), each.end()}});
    for (int i = 0; i < world_.count(); ++i) {
      if (!world_.exists(i)) continue;
      const bool serves = Recorded(i) >= history_.epoch();
      if (serves && world_.up(i)) world_.Kill(i);
      if (!serves && !world_.up(i)) world_.Start(i);
    }
    for (const ReplicaList& each : lists) MustNotServe(each, true);
  }
  // The primary that has the group was perhaps replaced by `next`.
  void Replace(std::unique_ptr<Primary> next, size_t host) {
    std::this_thread::sleep_for(std::chrono::milliseconds(Below(1000)));
    if (primary_->broke_fence())
      Wrong("a primary acknowledged a write after another one had had the group");
    if (next == nullptr && !primary_->fenced() && Below(2) == 0) return;
    Vanish(primary_);
    primary_ = std::move(next);
    if (primary_ != nullptr) host_ = host;
  }
  // Somebody opens the group by replicas that it no longer has, or never had.
  void TryFormerSet() {
    const std::vector<std::set<int>> former = sets_.Former();
    if (former.empty() || !sets_.known()) return;
    const std::set<int> set = former[Below(former.size())];
    MustNotServe({{set.begin(), set.end()}}, Below(2) == 0);
  }
  void MustNotServe(const ReplicaList& list, bool leaves_out) {
    // Fresh replicas are another group.
    if (std::ranges::none_of(list.replicas, [this](int i) { return Recorded(i) != 0; })) return;
    Say("somebody opens the group by replicas " + list.Text());
    const AsProcess as(Scheduler::Get().NewProcess());
    if (TryOpen(1 - host_, {list, true, leaves_out}).ok())
      Wrong("replicas " + list.Text() + " serve, while others are the group");
  }
  // The epoch of the configuration that the replica has recorded; 0: none.
  uint64_t Recorded(int replica) {
    const Result<NodeState> state = world_.up(replica)
                                        ? ReadNodeState(world_.node_page(replica))
                                        : ReadNodeState(world_.Left(replica).node_page);
    return state.ok() ? state->installed.epoch : 0;
  }
  // Whether the group is known, and each of its replicas is up and holds what the others do.
  bool Settled() {
    const std::set<int> all = sets_.All();
    return sets_.known() && Holds({{all.begin(), all.end()}});
  }
  // A pool is gone for good, and a fresh one takes its place.
  void LosePool() {
    const bool lives = continues_ && Below(2) == 0;
    if (!lives) {
      Vanish(primary_);
      CheckMembersAlone();
    }
    Heal();
    // A majority must be left, of what any replica has recorded.
    if (Settled() && sets_.All().size() >= 3) {
      const int lost = AnyReplica();
      Say("the pool of replica " + std::to_string(lost) + " is lost");
      lost_pool_ = true;
      world_.LosePool(lost);
      std::this_thread::sleep_for(std::chrono::milliseconds(Below(2) == 0 ? 0 : Below(3000)));
      world_.Start(lost);
    }
    if (!lives) OpenSoon();
  }

  // The next opening finds the damage and mends it.
  void DamageOne() {
    // Not the only copy, and nothing that is not written yet.
    const std::set<int> all = sets_.All();
    if (!sets_.known() || all.size() == 1) return;
    if (std::ranges::any_of(all, [this](int each) { return Recorded(each) == 0; })) return;
    Vanish(primary_);
    CheckMembersAlone();
    Heal();
    const bool own = Below(all.size() + 1) == 0;
    const int replica = AnyReplica();
    const std::string damaged = own ? kPrimaries[host_] : World::NameOf(replica);
    if (!own) world_.Kill(replica);
    const uint64_t at = world_.Damage(damaged);
    Say("the pool of " + damaged + " is damaged at " + std::to_string(at));
    Heal();
    OpenSoon();
  }
  // The RNIC of one machine ends and starts again, under replicas and a primary that live. Each of
  // them opens it anew.
  void RestartRnic() {
    for (uint64_t times = 1 + Below(2); times > 0; --times) {
      const std::string host = AnyHost();
      Say("the RNIC of " + host + "'s machine restarts");
      world_.fabric().Restart(host);
      std::this_thread::sleep_for(std::chrono::microseconds(Below(uint64_t{1} << Below(22))));
    }
  }
  // A replica's disk fails to write once. The replica serves nothing from then on, until it starts
  // again with what the disk holds. Another primary may take the group before.
  void FailDisk() {
    if (!world_.on_disks()) return;
    const int replica = AnyReplica();
    if (!world_.up(replica)) return;
    Say("the disk of replica " + std::to_string(replica) + " fails");
    world_.FailDisk(replica);
    std::this_thread::sleep_for(std::chrono::milliseconds(Below(2) == 0 ? 0 : Below(1500)));
    if (Below(2) == 0) {
      Vanish(primary_);
      CheckMembersAlone();
      primary_ = OpenAsNewProcess(host_, true);
    }
    if (world_.up(replica)) world_.LosePower(replica);
    world_.Start(replica);
    if (primary_ != nullptr) return;
    Heal();
    OpenSoon();
  }
  void DisturbLink() {
    if (!world_.fabric().apart()) return;
    const std::string one = World::NameOf(AnyReplica());
    const std::string other = AnyHost();
    if (one == other) return;
    if (Below(3) == 0) {
      Say("the link between " + one + " and " + other + " breaks");
      return world_.fabric().Reset(one, other);
    }
    Say("the link between " + one + " and " + other + " is cut");
    world_.fabric().SetCut(one, other, true);
    std::this_thread::sleep_for(std::chrono::milliseconds(Below(Below(2) == 0 ? 20 : 3000)));
    world_.fabric().SetCut(one, other, false);
  }

  // Everything is well again: the group opens, holds what it promised, and goes on, and all
  // replicas are equal.
  void End() {
    Say("the end");
    Vanish(primary_);
    CheckMembersAlone();
    Heal();
    std::this_thread::sleep_for(kRnicOpens);
    OpenSoon();
    if (!wrong_.empty()) return;
    primary_->Stop();
    if (const Status appended = primary_->AppendMany(history_); !appended.ok())
      return Wrong("an append to a group that is well failed: " + appended.ToString());
    if (const Status closed = primary_->Close(); !closed.ok())
      return Wrong("the last Close failed: " + closed.ToString());
    primary_.reset();
    const std::set<int> all = sets_.All();
    for (const int i : all)
      Scheduler::Get().Note(Crc32c(0, world_.region(i).data(), world_.region(i).size()));
    const std::span<const std::byte> first = world_.region(*all.begin());
    const std::vector<Range> in_use = test::RangesInUse(first);
    for (const int i : all)
      if (test::FirstDifference(first, world_.region(i), in_use).has_value())
        Wrong("replica " + std::to_string(i) + " differs from replica " +
              std::to_string(*all.begin()) + " at the end");
  }

  // The two sides of a group after replicas were given up that were not lost.
  struct Sides {
    std::set<int> kept, given_up;
    History former;  // all that happened before
  };

  // Replicas that are no majority go on by force while the others are down. From then on neither
  // side gets the content of the other one, whoever opens the group, by whichever list.
  void GoOnByForce() {
    const std::set<int> all = sets_.All();
    if (all.size() < 2 || !sets_.known()) return;
    Sides sides{all, {}, history_};
    while (sides.kept.size() > all.size() / 2)
      sides.given_up.insert(sides.kept.extract(AnyOf(sides.kept)));
    for (const int each : sides.given_up) world_.Kill(each);
    const ReplicaList list = sets_.lists().front().Plain();
    Say("by force, the group goes on without replicas " + ListOf(sides.given_up).Text());
    for (int i = 0; i < kMostOpens && primary_ == nullptr && wrong_.empty(); ++i) {
      primary_ = OpenAsNewProcess(host_, {list, true, false, sides.given_up});
      if (primary_ == nullptr) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    if (primary_ == nullptr) return Wrong("nobody goes on by force: " + refusal_.ToString());
    std::this_thread::sleep_for(std::chrono::milliseconds(Below(500)));
    if (Below(2) == 0) {
      primary_->Stop();
      primary_->Close().IgnoreError();
      primary_.reset();
    } else {
      Vanish(primary_);
    }
    for (const int each : sides.given_up) world_.Start(each);
    std::this_thread::sleep_for(kRnicOpens);
    for (uint64_t i = 2 + Below(7); i > 0 && wrong_.empty(); --i) OpenASide(sides, all);
    CheckSides(sides);
    if (wrong_.empty()) OpenKept(sides);
  }
  static ReplicaList ListOf(const std::set<int>& replicas) {
    return {{replicas.begin(), replicas.end()}};
  }
  // Somebody opens the group by either side's replicas, or by all, while all or one side is up.
  void OpenASide(const Sides& sides, const std::set<int>& all) {
    const std::set<int>* const side = Below(2) == 0 ? &sides.kept : &sides.given_up;
    const ReplicaList list = ListOf(Below(3) == 0 ? *side : all);
    const std::set<int> none;
    const std::set<int>& down = Below(3) == 0 ? none : Below(3) == 0 ? sides.given_up : sides.kept;
    for (const int each : down) world_.Kill(each);
    OpenAfterwards(list);
    CheckSides(sides);
    for (const int each : down) world_.Start(each);
    std::this_thread::sleep_for(kRnicOpens);
  }
  void OpenAfterwards(const ReplicaList& list) {
    const AsProcess as(Scheduler::Get().NewProcess());
    const Result<std::unique_ptr<Store>> store =
        world_.Open(kPrimaries[Below(kPrimaries.size())], {list, Below(2) == 0, Below(4) != 0});
    if (!store.ok()) return;
    TakeResult taken;
    const Status status = (*store)->Take({"/database", false, pairing_}, &taken);
    Say("opening replicas " + list.Text() + " afterwards: " + status.ToString());
    (*store)->Close().IgnoreError();
  }
  void CheckSides(const Sides& sides) {
    for (const int each : sides.kept) CheckSide(each, history_, "went on by force");
    for (const int each : sides.given_up) CheckSide(each, sides.former, "was given up");
  }
  void CheckSide(int replica, const History& history, const std::string& what) {
    test::EmbeddedReplica::Durable left = world_.Left(replica);
    const std::string wrong = WrongAlone(left.region, history);
    if (!wrong.empty()) Wrong(World::NameOf(replica) + ", which " + what + ": " + wrong);
  }
  void OpenKept(const Sides& sides) {
    for (int i = 0; i < kMostOpens && primary_ == nullptr && wrong_.empty(); ++i) {
      primary_ = OpenAsNewProcess(host_, {ListOf(sides.kept), true});
      if (primary_ == nullptr) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    if (primary_ == nullptr)
      return Wrong("what went on by force does not open: " + refusal_.ToString());
    Vanish(primary_);
    CheckSides(sides);
  }

  std::mt19937_64 random_;
  const std::shared_ptr<Log> log_;
  World world_;
  ReplicaSets sets_;
  History history_;
  bool continues_ = false;
  bool lost_pool_ = false;  // a replica has a fresh pool, which no opening has seen filled
  WriterOptions writer_;
  Pairing pairing_;
  std::unique_ptr<Primary> primary_;
  Status refusal_;
  size_t host_ = 0;  // of primary_, in kPrimaries
  uint64_t faults_ = 0;
  std::string wrong_;
};

}  // namespace

Outcome Run(uint64_t seed, const std::string& folder, std::shared_ptr<Log> log) {
  Scheduler& scheduler = Scheduler::Get();
  scheduler.Begin(seed);
  const uint64_t begun = scheduler.Now();
  Outcome outcome;
  {
    Scenario scenario(seed, folder, std::move(log));
    outcome = scenario.Play();
  }
  outcome.trace = scheduler.trace();
  outcome.nanoseconds = scheduler.Now() - begun;
  return outcome;
}

}  // namespace hyperloop::simulation
