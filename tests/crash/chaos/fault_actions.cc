// Kills, stops and restarts of all parts, at any moment of the service's life. Events decide the
// order of the steps; only the progress of a process between two events is left to chance.
#include <unistd.h>

#include <optional>

#include "crash/chaos/actions.h"

namespace hyperloop::chaos {
namespace {

// Writing goes on after an outage that was shorter than ack_timeout: RocksDB never sees it.
void ExpectUnnoticed(World& world, const std::string& what) {
  if (world.failed()) return;
  const bool goes_on = world.AwaitAcknowledged(100);
  if (world.progress().failed.load() != 0 || !goes_on) {
    return world.Fail(what + " reached RocksDB: " + std::to_string(world.progress().failed.load()) +
                      " writes failed, writing " + (goes_on ? "went on" : "did not go on"));
  }
  const Ended ended = world.CloseWriter();
  if (ended.status != kDone)
    world.Fail("closing after " + what + " ended with " + std::to_string(ended.status) + ": " +
               ended.output);
}

// --- the service

void KillWriter(World& world) {
  if (!world.StartWriting(1 + world.Random(600))) return;
  world.KillWriter();
  world.CheckEachAlone();
}

void KillWriterOpening(World& world) {
  world.Life();
  for (int i = 0; i < 2 && !world.failed(); ++i) {
    world.StartWriter();
    world.AwaitPhase(Phase::kOpening);
    LetRun(world, 900'000);
    world.KillWriter();
  }
}

void KillWriterClosing(World& world) {
  if (!world.StartWriting(1 + world.Random(300))) return;
  world.progress().stop.store(1);
  world.AwaitPhase(Phase::kClosing);
  LetRun(world, 30'000);
  world.KillWriter();
  world.CheckEachAlone();
}

void StopWriter(World& world) {
  if (!world.StartWriting(1 + world.Random(300))) return;
  world.writer().Signal(SIGSTOP);
  LetRun(world, 1'500'000);
  world.writer().Signal(SIGCONT);
  ExpectUnnoticed(world, "a stop of the service");
}

// --- the RNIC daemon

void KillRnicd(World& world) {
  if (!world.StartWriting(1 + world.Random(300))) return;
  world.KillRnicd();
  LetRun(world, 500'000);
  world.StartRnicd();
  ExpectUnnoticed(world, "a restart of the RNIC daemon");
}

// The first write after the open meets the dead daemon.
void KillRnicdAtFirstWrite(World& world) {
  world.StartWriter();
  world.AwaitPhase(Phase::kWriting);
  world.KillRnicd();
  world.StartRnicd();
  ExpectUnnoticed(world, "a restart of the RNIC daemon at the first write");
}

void StopRnicd(World& world) {
  if (!world.StartWriting(1 + world.Random(300))) return;
  world.rnicd().Signal(SIGSTOP);
  LetRun(world, 1'000'000);
  world.rnicd().Signal(SIGCONT);
  ExpectUnnoticed(world, "a stop of the RNIC daemon");
}

// The RNIC daemon dies with the service, after it stood still. No replica got any bytes since then,
// so that a write that was acknowledged later would be lost.
void KillFrozenRnicd(World& world) {
  if (!world.StartWriting(1 + world.Random(300))) return;
  world.rnicd().Signal(SIGSTOP);
  const uint64_t before = world.progress().acknowledged.load();
  LetRun(world, 200'000);
  // Each thread may have been acknowledged one write before, which it counts only now.
  const uint64_t since = world.progress().acknowledged.load() - before;
  if (since > kThreads)
    world.Fail(std::to_string(since) + " writes are acknowledged while the RNIC stands still");
  world.KillWriter();
  world.KillRnicd();
  world.CheckEachAlone();
}

// --- replicas

void RestartReplicas(World& world, const std::vector<uint32_t>& which, uint64_t pause_us) {
  for (const uint32_t i : which) world.KillReplica(i);
  LetRun(world, pause_us);
  for (const uint32_t i : which) {
    if (!world.StartReplica(i))
      world.Fail("replica " + std::to_string(i) + " does not start: " + world.replica(i).output());
  }
}

void KillReplica(World& world) {
  if (!world.StartWriting(1 + world.Random(300))) return;
  RestartReplicas(world, {static_cast<uint32_t>(world.Random(kReplicas))}, 500'000);
  ExpectUnnoticed(world, "a restart of one replica");
}

void KillAllReplicas(World& world) {
  if (!world.StartWriting(1 + world.Random(300))) return;
  RestartReplicas(world, {0, 1, 2}, 500'000);
  ExpectUnnoticed(world, "a restart of all replicas");
}

// Commits need no process of a replica, until the memtables are full.
void StopReplicas(World& world, const std::vector<uint32_t>& which) {
  if (!world.StartWriting(1 + world.Random(300))) return;
  for (const uint32_t i : which) world.replica(i).Signal(SIGSTOP);
  if (!world.AwaitAcknowledged(50)) world.Fail("writing does not go on with stopped replicas");
  for (const uint32_t i : which) world.replica(i).Signal(SIGCONT);
  ExpectUnnoticed(world, "a stop of replicas");
}
void StopReplica(World& world) {
  StopReplicas(world, {static_cast<uint32_t>(world.Random(kReplicas))});
}
void StopAllReplicas(World& world) { StopReplicas(world, {0, 1, 2}); }

// --- several at once

void KillEverything(World& world) {
  if (!world.StartWriting(1 + world.Random(400))) return;
  std::vector<int> parts = {0, 1, 2, 3, 4};
  for (size_t i = parts.size(); i > 1; --i) std::swap(parts[i - 1], parts[world.Random(i)]);
  for (const int part : parts) {
    if (part == 3) world.KillRnicd();
    if (part == 4) world.KillWriter();
    if (part < 3) world.KillReplica(static_cast<uint32_t>(part));
  }
  world.CheckEachAlone();
}

// --- at open and close

// The RNIC daemon, or one of the replicas.
class Part {
 public:
  static Part Rnicd(World& world) { return Part(world, std::nullopt); }
  static Part AnyReplica(World& world) {
    return Part(world, static_cast<uint32_t>(world.Random(kReplicas)));
  }

  World& world() const { return world_; }
  void Signal(int signal) const { program().Signal(signal); }
  void Kill() const { program().Kill(); }
  void Start() const {
    if (!replica_) return world_.StartRnicd();
    if (!world_.StartReplica(*replica_)) {
      world_.Fail("replica " + std::to_string(*replica_) +
                  " does not start: " + program().output());
    }
  }
  // A refusal that is this part's fault says one of these.
  std::vector<std::string> Names() const {
    if (replica_) return {"replica " + world_.endpoint(*replica_)};
    return {world_.Options().device, "the RNIC daemon", "'s RNIC daemon", "the software RNIC"};
  }

 private:
  Part(World& world, std::optional<uint32_t> replica) : world_(world), replica_(replica) {
    world.Note(replica ? "replica " + std::to_string(*replica) : "the RNIC daemon");
  }
  Program& program() const { return replica_ ? world_.replica(*replica_) : world_.rnicd(); }

  World& world_;
  const std::optional<uint32_t> replica_;
};

// The service is somewhere in its open.
void LetItOpen(World& world, const std::string& uri) {
  if (world.Coin()) world.Life();
  if (world.failed()) return;
  world.StartWriter(uri);
  world.AwaitPhase(Phase::kOpening);
  LetRun(world, 700'000);
}

// The service opens, or is refused with the part's name, or with one of `others`.
void ExpectOpenedOrRefused(const Part& part, const std::vector<std::string>& others = {}) {
  World& world = part.world();
  if (world.failed()) return;
  if (world.AwaitPhase(Phase::kWriting)) {
    world.Note("it opened all the same");
    world.AwaitAcknowledged(20);
    const Ended ended = world.CloseWriter();
    if (ended.status != kDone && ended.status != kCloseFailed)
      world.Fail("ended with " + std::to_string(ended.status) + ": " + ended.output);
    return;
  }
  const Ended ended = world.writer().Wait();
  world.Note("refused: " + ended.output);
  std::vector<std::string> words = part.Names();
  words.insert(words.end(), others.begin(), others.end());
  world.CheckRefused(ended, words);
}

void Restart(const Part& part) {
  part.Kill();
  LetRun(part.world(), 100'000);
  part.Start();
}

void StopForAWhile(const Part& part) {
  part.Signal(SIGSTOP);
  LetRun(part.world(), 1'000'000);
  part.Signal(SIGCONT);
}

// A part dies while the service opens, and is started again.
void RestartOpening(const Part& part) {
  LetItOpen(part.world(), part.world().Uri());
  if (part.world().failed()) return;
  Restart(part);
  ExpectOpenedOrRefused(part);
}
void KillRnicdOpening(World& world) { RestartOpening(Part::Rnicd(world)); }
void KillReplicaOpening(World& world) { RestartOpening(Part::AnyReplica(world)); }

// A part stands still while the service opens: for less than any timeout, and the service opens; or
// until the open is decided.
void StopOpening(const Part& part) {
  World& world = part.world();
  const bool briefly = world.Coin();
  LetItOpen(world, FormatStoreUri(briefly ? world.Options() : world.Impatient()));
  if (world.failed()) return;
  if (briefly) {
    StopForAWhile(part);
    if (!world.AwaitPhase(Phase::kWriting))
      return world.Fail("a short stop is not waited for: " + world.writer().output());
    return ExpectUnnoticed(world, "a short stop of a part");
  }
  part.Signal(SIGSTOP);
  const auto decided = [&] {
    return world.progress().phase.load() >= Phase::kWriting || !world.writer().running();
  };
  // A registration of memory waits a minute for the RNIC daemon, whatever the options say.
  if (!Eventually(decided, 180))
    return world.Fail("an open waits for a part that stands still, without an end");
  part.Signal(SIGCONT);
  // The replicas whose daemon stands still do not answer either.
  ExpectOpenedOrRefused(part, {"replica 127.0.0.2:", "region of replica"});
  world.progress().failed.store(0);
}
void StopRnicdOpening(World& world) { StopOpening(Part::Rnicd(world)); }
void StopReplicaOpening(World& world) { StopOpening(Part::AnyReplica(world)); }

// A part is dead over a whole open: the open is refused and changes nothing, and the next one,
// after the part is back, finds everything.
void DeadOverOpening(const Part& part) {
  World& world = part.world();
  world.Life();
  if (world.failed()) return;
  part.Kill();
  world.ExpectRefused(FormatStoreUri(world.Impatient()), world.directory(), part.Names());
  if (world.failed()) return;
  part.Start();
  world.AwaitReplicas();
  world.Life();
}
void DeadRnicd(World& world) { DeadOverOpening(Part::Rnicd(world)); }
void DeadReplica(World& world) { DeadOverOpening(Part::AnyReplica(world)); }

// The service writes, and then is somewhere in its close.
void LetItClose(World& world, const std::string& uri) {
  world.StartWriter(uri);
  if (!world.AwaitPhase(Phase::kWriting) || !world.AwaitAcknowledged(1 + world.Random(300)))
    return world.Fail("the service does not come to write: " + world.writer().output());
  world.progress().stop.store(1);
  world.AwaitPhase(Phase::kClosing);
  LetRun(world, 3'000);
}

// Closing ends, in order if it `must`.
void ExpectClosed(World& world, bool must) {
  const Ended ended = world.CloseWriter();
  if (world.failed() || ended.status == kDone || (ended.status == kCloseFailed && !must)) return;
  world.Fail("closing ended with " + std::to_string(ended.status) + ": " + ended.output);
}

void RestartClosing(const Part& part) {
  LetItClose(part.world(), part.world().Uri());
  if (part.world().failed()) return;
  Restart(part);
  ExpectClosed(part.world(), false);
}
void KillRnicdClosing(World& world) { RestartClosing(Part::Rnicd(world)); }
void KillReplicaClosing(World& world) { RestartClosing(Part::AnyReplica(world)); }

// The RocksDB of the service wants to resume after an error; its DB::Close may then never return,
// as docs/rocksdb-plugin.md says.
bool MayCloseForEver(const World& world) {
  return world.Log().find("StartRecoverFromRetryableBGIOError") != std::string::npos;
}

// A part stands still while the service closes: for less than any timeout, or until it has closed.
void StopClosing(const Part& part) {
  World& world = part.world();
  const bool briefly = world.Coin();
  LetItClose(world, FormatStoreUri(briefly ? world.Options() : world.Impatient()));
  if (world.failed()) return;
  if (briefly) {
    StopForAWhile(part);
    return ExpectClosed(world, true);
  }
  part.Signal(SIGSTOP);
  const auto ended = [&] { return !world.writer().running(); };
  // How long it takes until RocksDB has met an error depends on the machine.
  Eventually([&] { return ended() || MayCloseForEver(world); }, 300);
  if (!ended() && MayCloseForEver(world) && !Eventually(ended, 30)) {
    world.Note("DB::Close waits: the defect that docs/rocksdb-plugin.md names");
    world.KillWriter();
  } else {
    ExpectClosed(world, false);
  }
  part.Signal(SIGCONT);
  world.progress().failed.store(0);
}
void StopRnicdClosing(World& world) { StopClosing(Part::Rnicd(world)); }
void StopReplicaClosing(World& world) { StopClosing(Part::AnyReplica(world)); }

// --- an outage that is longer than ack_timeout

// Writes fail with the replica's name, and reads go on. Once the replica is back, writes go on too,
// unless their error says that the database must be opened again.
void LongOutage(World& world) {
  // Writes may wait for a flush, which waits for the dead replica.
  world.StartWriter(FormatStoreUri(world.Impatient()));
  if (!world.AwaitPhase(Phase::kWriting) || !world.AwaitAcknowledged(world.Random(200)))
    return world.Fail("the service does not come to write: " + world.writer().output());
  const auto which = static_cast<uint32_t>(world.Random(kReplicas));
  world.KillReplica(which);
  const uint64_t failed = world.progress().failed.load();
  if (!Eventually([&] { return world.progress().failed.load() > failed + 2; }))
    return world.Fail("writes do not fail although a replica is gone");
  if (!world.writer().running())
    return world.Fail("the service did not live through it: " + world.writer().output());
  if (!world.StartReplica(which)) return world.Fail("it does not start again");
  const auto stopped = [&] {
    return world.writer().output().find("reopen the database") != std::string::npos;
  };
  const uint64_t enough = world.progress().acknowledged.load() + 50;
  const auto goes_on = [&] { return world.progress().acknowledged.load() >= enough; };
  if (!Eventually([&] { return stopped() || goes_on() || !world.writer().running(); }) ||
      !(stopped() || goes_on()))
    return world.Fail("writing does not go on once the replica is back: " +
                      world.writer().output());
  const bool reopen = stopped();
  const Ended ended = world.CloseWriter();
  if (ended.status != kDone && !reopen)
    world.Fail("closing ended with " + std::to_string(ended.status) + ": " + ended.output);
  world.progress().failed.store(0);
}

}  // namespace

std::vector<Action> FaultActions() {
  return {{"kill_writer", KillWriter},
          {"kill_writer_opening", KillWriterOpening},
          {"kill_writer_closing", KillWriterClosing},
          {"stop_writer", StopWriter},
          {"kill_rnicd", KillRnicd},
          {"kill_rnicd_first_write", KillRnicdAtFirstWrite},
          {"kill_frozen_rnicd", KillFrozenRnicd},
          {"kill_rnicd_opening", KillRnicdOpening},
          {"kill_rnicd_closing", KillRnicdClosing},
          {"stop_rnicd", StopRnicd},
          {"stop_rnicd_opening", StopRnicdOpening},
          {"stop_rnicd_closing", StopRnicdClosing},
          {"dead_rnicd", DeadRnicd},
          {"kill_replica", KillReplica},
          {"kill_replica_opening", KillReplicaOpening},
          {"kill_replica_closing", KillReplicaClosing},
          {"kill_all_replicas", KillAllReplicas},
          {"stop_replica", StopReplica},
          {"stop_replica_opening", StopReplicaOpening},
          {"stop_replica_closing", StopReplicaClosing},
          {"dead_replica", DeadReplica},
          {"stop_all_replicas", StopAllReplicas},
          {"kill_everything", KillEverything},
          {"long_outage", LongOutage}};
}

std::vector<Action> AllActions() {
  std::vector<Action> all;
  for (auto* some :
       {FaultActions, MisuseActions, DamageActions, ToolActions, ShrinkActions, MachineActions}) {
    for (Action& action : some()) all.push_back(std::move(action));
  }
  return all;
}

}  // namespace hyperloop::chaos
