// Kills, stops and restarts of all parts, at any moment of the service's life. Events decide the
// order of the steps; only the progress of a process between two events is left to chance.
#include <unistd.h>

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
}

// --- at open and close

// A part dies while the service opens: the service opens, or is refused with the part's name.
void DuringOpening(World& world, void (*kill)(World&, uint32_t)) {
  if (world.Coin()) world.Life();
  world.StartWriter();
  world.AwaitPhase(Phase::kOpening);
  LetRun(world, 700'000);
  const auto which = static_cast<uint32_t>(world.Random(kReplicas));
  kill(world, which);
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
  world.CheckRefused(ended, {});
}
void RestartRnicdOf(World& world, uint32_t) {
  world.KillRnicd();
  world.StartRnicd();
}
void RestartReplicaOf(World& world, uint32_t i) { RestartReplicas(world, {i}, 100'000); }
void KillRnicdOpening(World& world) { DuringOpening(world, RestartRnicdOf); }
void KillReplicaOpening(World& world) { DuringOpening(world, RestartReplicaOf); }

void DuringClosing(World& world, void (*kill)(World&, uint32_t)) {
  if (!world.StartWriting(1 + world.Random(300))) return;
  world.progress().stop.store(1);
  world.AwaitPhase(Phase::kClosing);
  LetRun(world, 3'000);
  kill(world, static_cast<uint32_t>(world.Random(kReplicas)));
  const Ended ended = world.CloseWriter();
  if (ended.status != kDone && ended.status != kCloseFailed && !world.failed())
    world.Fail("closing ended with " + std::to_string(ended.status) + ": " + ended.output);
}
void KillRnicdClosing(World& world) { DuringClosing(world, RestartRnicdOf); }
void KillReplicaClosing(World& world) { DuringClosing(world, RestartReplicaOf); }

// --- an outage that is longer than ack_timeout

// Writes fail with the replica's name, and reads go on. Once the replica is back, writes go on too,
// unless their error says that the database must be opened again.
void LongOutage(World& world) {
  StoreOptions options = world.Options();
  options.ack_timeout = std::chrono::seconds(1);
  options.bulk_timeout =
      std::chrono::seconds(1);  // writes may wait for a flush, which waits so long
  world.StartWriter(FormatStoreUri(options));
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
  if (!stopped() && !world.AwaitAcknowledged(50) && !stopped())
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
          {"kill_rnicd_opening", KillRnicdOpening},
          {"kill_rnicd_closing", KillRnicdClosing},
          {"stop_rnicd", StopRnicd},
          {"kill_replica", KillReplica},
          {"kill_replica_opening", KillReplicaOpening},
          {"kill_replica_closing", KillReplicaClosing},
          {"kill_all_replicas", KillAllReplicas},
          {"stop_replica", StopReplica},
          {"stop_all_replicas", StopAllReplicas},
          {"kill_everything", KillEverything},
          {"long_outage", LongOutage}};
}

std::vector<Action> AllActions() {
  std::vector<Action> all;
  for (auto* some : {FaultActions, MisuseActions, DamageActions, ToolActions, ShrinkActions}) {
    for (Action& action : some()) all.push_back(std::move(action));
  }
  return all;
}

}  // namespace hyperloop::chaos
