// A group that goes on without a replica (on_replica_failure=continue), and takes it in again.
#include <filesystem>

#include "crash/chaos/actions.h"

namespace hyperloop::chaos {
namespace {

namespace stdfs = std::filesystem;

// The service writes while seconds pass. It need not be at full speed, which takes the processor
// from whatever else runs.
constexpr uint32_t kUnhurried = 3000;  // µs between two operations of a thread

std::string ContinuingUri(const World& world) {
  StoreOptions options = world.Options();
  options.on_replica_failure = OnReplicaFailure::kContinue;
  options.ack_timeout = std::chrono::seconds(8);
  return FormatStoreUri(options);
}

bool StartContinuing(World& world) {
  world.StartWriter(ContinuingUri(world));
  if (world.AwaitPhase(Phase::kWriting) && world.AwaitAcknowledged(1 + world.Random(200)))
    return true;
  world.Fail("the service does not come to write: " + world.writer().output());
  return false;
}

// The replica's machine is replaced: its pool and its files are gone.
void Forget(World& world, uint32_t which) {
  world.Note("replica " + std::to_string(which) + " loses its pool");
  stdfs::remove(world.pool(which));
  stdfs::remove_all(world.pool(which) + ".files");
}

// Writes go on while it is gone, the service is perhaps killed and opened in between, and any part
// of the return may be cut by a kill.
void LoseReplica(World& world) {
  if (!StartContinuing(world)) return;
  const auto which = static_cast<uint32_t>(world.Random(kReplicas));
  world.KillReplica(which);
  if (!world.AwaitAcknowledged(50))
    return world.Fail("writes do not go on without replica " + std::to_string(which) + ": " +
                      world.writer().output());
  if (world.progress().failed.load() != 0)
    return world.Fail("RocksDB saw an error: " + world.writer().output());
  if (world.Coin()) {
    world.KillWriter();
    if (!StartContinuing(world)) return;
  }
  if (world.Coin()) Forget(world, which);
  world.progress().pause_us.store(kUnhurried);
  if (!world.StartReplica(which)) return world.Fail("it does not start again");
  LetRun(world, 4'000'000);
  if (world.Coin()) world.KillReplica(which);
  if (world.Coin()) world.KillWriter();
  world.set_settle_uri(ContinuingUri(world));
}

// One replica after the other, faster than the group can take them in again. Writes may fail
// meanwhile: two may be gone for longer than a write waits.
void FlappingReplicas(World& world) {
  if (!StartContinuing(world)) return;
  world.progress().pause_us.store(kUnhurried);
  for (int round = 0; round < 4; ++round) {
    const auto which = static_cast<uint32_t>(world.Random(kReplicas));
    world.KillReplica(which);
    LetRun(world, 3'000'000);
    if (!world.StartReplica(which)) return world.Fail("it does not start again");
    LetRun(world, 3'000'000);
  }
  if (!world.AwaitAcknowledged(50))
    return world.Fail("writing does not go on once all replicas are back: " +
                      world.writer().output());
}

// Only one replica is left for a while. What it held alone decides nothing later.
void LoseTwoReplicas(World& world) {
  if (!StartContinuing(world)) return;
  world.progress().pause_us.store(kUnhurried);
  const auto left = static_cast<uint32_t>(world.Random(kReplicas));
  const uint32_t first = (left + 1) % kReplicas, second = (left + 2) % kReplicas;
  world.KillReplica(first);
  if (world.Coin() && !world.AwaitAcknowledged(20))
    return world.Fail("writes do not go on without one replica: " + world.writer().output());
  world.KillReplica(second);
  LetRun(world, 3'000'000);
  const bool kill = world.Coin();
  if (kill) world.KillWriter();
  if (world.Coin()) {
    const uint64_t acknowledged = world.progress().acknowledged.load();
    if (!world.StartReplica(first)) return world.Fail("it does not start again");
    LetRun(world, 3'000'000);
    world.Note("acknowledged " +
               std::to_string(world.progress().acknowledged.load() - acknowledged) +
               " writes with the replica that went first");
  }
  if (!world.StartReplica(second)) return world.Fail("it does not start again");
  world.progress().failed.store(0);
}

}  // namespace

std::vector<Action> ShrinkActions() {
  return {{"lose_replica", LoseReplica},
          {"flapping_replicas", FlappingReplicas},
          {"lose_two_replicas", LoseTwoReplicas}};
}

}  // namespace hyperloop::chaos
