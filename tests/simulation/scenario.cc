#include "simulation/scenario.h"

#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "files/file_table.h"
#include "journal/redo.h"
#include "layout/crc32c.h"
#include "simulation/history.h"
#include "simulation/scheduler.h"
#include "simulation/world.h"

namespace hyperloop::simulation {
namespace {

constexpr char kFile[] = "f";
constexpr int kMostSteps = 24;
constexpr int kMostOpens = 40;
constexpr uint64_t kPause = 3'000'000, kMostPause = 100'000'000;  // nanoseconds between two appends
constexpr int kBusyAppends = 20;
constexpr int kMostSlots = 64;                 // with the longest window
constexpr uint64_t kSlowAppend = 500'000'000;  // nanoseconds; half of what an operation may take
constexpr int kMostSlow = 3;

constexpr uint64_t kMostBytes = 2 << 20;  // from then on pieces are short, so that the data fits

struct WriterOptions {
  uint64_t most_padding = 0;  // bytes that make pieces longer
  uint64_t at_once = 1;       // appends that wait together
};

// A primary that appends pieces on a thread of its own until an append finds the group fenced or
// the primary ends.
class Primary {
 public:
  // Made by a thread of the primary's process.
  Primary(const World& world, size_t host, std::unique_ptr<Store> store, FileId file,
          History& history, WriterOptions options)
      : world_(world),
        host_(host),
        process_(Scheduler::Process()),
        store_(std::move(store)),
        file_(file),
        writer_([this, &history, options] { Write(history, options); }) {}
  ~Primary() {
    const AsProcess as(process_);
    Stop();
    store_.reset();
  }

  void Stop() {
    stop_ = true;
    if (writer_.joinable()) writer_.join();
  }
  // After Stop: appends more pieces than a group has slots. A group that is well acknowledges them
  // at once; meanwhile it may take in some replicas that were left out.
  Status AppendMany(History& history) {
    const AsProcess as(process_);
    int slow = 0;
    for (int i = 0; i < kMostSlots; ++i) {
      const uint64_t begun = Scheduler::Get().Now();
      HL_RETURN_IF_ERROR(AppendSome(history, {0, 1}));
      if (Scheduler::Get().Now() - begun > kSlowAppend && ++slow > kMostSlow)
        return TimedOut("the group stops again and again");
    }
    return {};
  }
  Status Close() {
    const AsProcess as(process_);
    return store_->Close();
  }
  // The next appends follow each other without a pause.
  void Hurry() { busy_ = kBusyAppends; }
  size_t host() const { return host_; }
  uint64_t process() const { return process_; }
  bool fenced() const { return fenced_; }
  // Another primary has the group: nothing that is appended from now on may be acknowledged.
  void Overtaken() { overtaken_ = true; }
  bool broke_fence() const { return broke_fence_; }

 private:
  void Write(History& history, const WriterOptions& options) {
    while (Pause(), !stop_ && !world_.IsDead(process_)) {
      const Status appended = AppendSome(history, options);
      fenced_ = appended.code() == Code::kFenced;
      if (fenced_) return;
    }
  }
  void Pause() {
    const auto ready = [this] { return busy_ > 0 || stop_; };
    Scheduler::Get().Wait(ready, Scheduler::Get().Now() + kPause + Choose(kMostPause - kPause));
    if (busy_ > 0) --busy_;
  }
  static uint64_t Choose(uint64_t bound) { return Scheduler::Get().Choose(bound); }
  Status AppendSome(History& history, const WriterOptions& options) {
    std::vector<std::pair<uint64_t, AppendTicket>> under_way;
    Status appended;
    const bool overtaken = overtaken_;
    for (uint64_t n = 0; n < options.at_once && appended.ok(); ++n) {
      const uint64_t most = history.bytes() < kMostBytes ? options.most_padding : 0;
      const History::Piece piece = history.Begin(Choose(most + 1));
      const Result<AppendTicket> ticket = store_->Append(file_, piece.text);
      appended = ticket.status();
      if (ticket.ok()) under_way.emplace_back(piece.number, *ticket);
    }
    for (const auto& [number, ticket] : under_way) {
      const Status awaited = store_->Await(ticket);
      if (world_.IsDead(process_)) return awaited;  // nobody hears of it
      if (awaited.ok()) {
        history.Acknowledge(number, store_->statistics().epoch);
        Scheduler::Get().Note(number);
      }
      if (awaited.ok() && overtaken) broke_fence_ = true;
      if (!awaited.ok()) appended = awaited;
    }
    return appended;
  }

  const World& world_;
  const size_t host_;
  const uint64_t process_;
  std::unique_ptr<Store> store_;
  const FileId file_;
  std::atomic<bool> stop_{false};
  std::atomic<int> busy_{0};
  std::atomic<bool> fenced_{false};
  std::atomic<bool> overtaken_{false};
  std::atomic<bool> broke_fence_{false};
  std::thread writer_;  // last: it uses the members above
};

class Scenario {
 public:
  Scenario(uint64_t seed, const std::string& folder, std::shared_ptr<Log> log)
      : random_(seed), log_(std::move(log)), world_(folder, random_, log_) {
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
    return {wrong_, history_.acknowledged(), faults_, 0, 0};
  }

 private:
  uint64_t Below(uint64_t bound) { return random_() % bound; }
  uint64_t count() const { return static_cast<uint64_t>(world_.count()); }
  int AnyReplica() { return static_cast<int>(Below(count())); }
  void Say(const std::string& what) const {
    if (log_ != nullptr) log_->Write(LogLevel::kInfo, "--- " + what);
  }
  void Wrong(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }

  void ChooseOptions() {
    StoreOptions& options = world_.options();
    options.datapath = Below(3) == 0 ? Datapath::kFanout : Datapath::kOffload;
    options.wait = Below(2) == 0 ? WaitMode::kPoll : WaitMode::kEvent;
    options.window = 1u << Below(5);
    continues_ = Below(2) == 0;
    if (continues_) options.on_replica_failure = OnReplicaFailure::kContinue;
    writer_ = {Below(2) == 0 ? Below(2000) : Below(200), 1 + Below(8)};
  }

  // --- primaries

  // Opens the group on one of kPrimaries, reads it and compares. The calling thread is one of the
  // primary's process. Null: not now.
  std::unique_ptr<Primary> Open(size_t host, bool takeover) {
    const uint64_t process = Scheduler::Process();
    auto store = world_.Open(kPrimaries[host], takeover);
    if (!store.ok()) return Refused(store.status());
    TakeResult taken;
    const Status status = (*store)->Take({"/database", pairing_.group.empty(), pairing_}, &taken);
    if (!status.ok()) return Refused(status);
    if (world_.IsDead(process)) return nullptr;
    pairing_ = taken.pairing;
    const Result<FileId> file = FileOf(**store);
    if (!file.ok()) return Refused(file.status());
    std::string content(World::kRegion, '\0');
    const Result<uint64_t> size = (*store)->Read(*file, 0, content);
    if (!size.ok()) return Refused(size.status());
    if (world_.IsDead(process)) return nullptr;
    if (const std::string wrong = history_.Check({content.data(), *size}); !wrong.empty())
      Wrong(std::string("after an opening by ") + kPrimaries[host] + ": " + wrong);
    history_.Serves(taken.epoch);
    return std::make_unique<Primary>(world_, host, std::move(*store), *file, history_, writer_);
  }
  static Result<FileId> FileOf(Store& store) {
    Result<FileId> found = store.Lookup(kFile);
    return found.status().code() == Code::kNotFound ? store.Create(kFile) : found;
  }
  std::unique_ptr<Primary> Refused(const Status& status) {
    if (world_.IsDead(Scheduler::Process())) return nullptr;
    Say("refused: " + status.ToString());
    // Never are all copies damaged, and no wrong replica is listed.
    if (status.code() == Code::kCorruption || status.code() == Code::kInvalidArgument)
      Wrong("an opening was refused with " + status.ToString());
    refusal_ = status;
    return nullptr;
  }
  std::unique_ptr<Primary> OpenAsNewProcess(size_t host, bool takeover) {
    const AsProcess as(Scheduler::Get().NewProcess());
    return Open(host, takeover);
  }
  // Opens the group, which can be opened, unless others disturb.
  void OpenSoon() {
    for (int i = 0; i < kMostOpens && primary_ == nullptr && wrong_.empty(); ++i) {
      primary_ = OpenAsNewProcess(host_, Below(2) == 0);
      if (primary_ == nullptr) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    if (primary_ == nullptr) Wrong("the group does not open: " + refusal_.ToString());
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
    switch (Below(21)) {
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
    for (int i = 0; i < world_.count(); ++i) {
      test::EmbeddedReplica::Durable left = world_.Left(i);
      const Result<NodeState> state = ReadNodeState(left.node_page);
      if (!state.ok()) return Wrong(World::NameOf(i) + ": " + state.status().ToString());
      if (state->installed.epoch < std::max(history_.epoch(), uint64_t{1})) continue;
      if (const std::string wrong = WrongAlone(left.region); !wrong.empty())
        Wrong(World::NameOf(i) + " alone, of epoch " + std::to_string(state->installed.epoch) +
              ": " + wrong);
    }
  }
  std::string WrongAlone(std::span<std::byte> image) const {
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
    return history_.Look(text);
  }
  void Heal() {
    for (int i = 0; i < world_.count(); ++i)
      if (!world_.up(i)) world_.Start(i);
  }
  // From now on each replica is up or down, whatever it was.
  void Shuffle() {
    for (int i = 0; i < world_.count(); ++i) {
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
    const auto take = [&](size_t own) {
      takers[own] = OpenAsNewProcess(own, true);
      if (takers[own] == nullptr) return;
      host_ = own;
      if (takers[1 - own] != nullptr) takers[1 - own]->Overtaken();
    };
    std::thread other([&] { take(1); });
    take(0);
    other.join();
    std::this_thread::sleep_for(std::chrono::milliseconds(Below(1000)));
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
    OpenAndDie(takeover ? 1 - host_ : host_, takeover);
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
  void OpenAndDie(size_t host, bool takeover) {
    const uint64_t process = Scheduler::Get().NewProcess();
    const auto opened = std::make_shared<std::unique_ptr<Primary>>();
    world_.Bury(process, [this, host, takeover, opened] {
      const uint64_t own = Scheduler::Process();
      *opened = Open(host, takeover || Below(2) == 0);
      if (world_.IsDead(own)) return opened->reset();
      if (*opened != nullptr && primary_ != nullptr) primary_->Overtaken();
    });
    std::this_thread::sleep_for(std::chrono::microseconds(Below(uint64_t{1} << Below(23))));
    world_.KillPrimary(process, kPrimaries[host]);
    if (*opened != nullptr) Bury(std::move(*opened));
  }
  void LoseAllPower() {
    Say("all replicas lose power");
    for (int i = 0; i < world_.count(); ++i)
      if (world_.up(i)) world_.LosePower(i);
    Vanish(primary_);
    CheckMembersAlone();
    Heal();
    for (uint64_t times = Below(3); times > 0; --times) {
      OpenAndDie(host_, true);
      CheckMembersAlone();
    }
    OpenSoon();
  }

  // The next opening finds the damage and mends it.
  void DamageOne() {
    if (count() == 1) return;  // the only copy
    Vanish(primary_);
    CheckMembersAlone();
    Heal();
    const uint64_t replica = Below(count() + 1);
    const bool own = replica == count();
    const std::string damaged = own ? kPrimaries[host_] : World::NameOf(static_cast<int>(replica));
    if (!own) world_.Kill(static_cast<int>(replica));
    const uint64_t at = world_.Damage(damaged);
    Say("the pool of " + damaged + " is damaged at " + std::to_string(at));
    Heal();
    OpenSoon();
  }
  void DisturbLink() {
    if (!world_.fabric().apart()) return;
    const std::string one = World::NameOf(AnyReplica());
    const uint64_t peer = Below(count() + 1);
    const std::string other =
        peer == count() ? kPrimaries[host_] : World::NameOf(static_cast<int>(peer));
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
    OpenSoon();
    if (!wrong_.empty()) return;
    primary_->Stop();
    if (const Status appended = primary_->AppendMany(history_); !appended.ok())
      return Wrong("an append to a group that is well failed: " + appended.ToString());
    if (const Status closed = primary_->Close(); !closed.ok())
      return Wrong("the last Close failed: " + closed.ToString());
    primary_.reset();
    for (int i = 0; i < world_.count(); ++i)
      Scheduler::Get().Note(Crc32c(0, world_.region(i).data(), world_.region(i).size()));
    for (int i = 1; i < world_.count(); ++i)
      if (!std::ranges::equal(world_.region(0), world_.region(i)))
        Wrong("replica " + std::to_string(i) + " differs from replica 0 at the end");
  }

  std::mt19937_64 random_;
  const std::shared_ptr<Log> log_;
  World world_;
  History history_;
  bool continues_ = false;
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
