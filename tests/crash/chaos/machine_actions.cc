// The machines of a group change: another one takes the lost primary's place, a replica leaves for
// good, and a fresh one comes.
#include <filesystem>

#include "crash/chaos/actions.h"

namespace hyperloop::chaos {
namespace {

namespace stdfs = std::filesystem;

// Waits until there are tables, or not.
bool StartWithTables(World& world) {
  if (!world.StartWriting(50)) return false;
  if (world.Coin())
    Eventually([&] { return HasTables(world.directory(), 2) || !world.writer().running(); });
  return true;
}

std::vector<std::string> PromoteCommand(World& world, const StoreOptions& options,
                                        const std::string& directory) {
  std::vector<std::string> command = {
      ProgramOf("hyperloopctl"), "promote", "--db", directory, "--uri", FormatStoreUri(options)};
  if (world.Coin()) {
    const auto near = static_cast<uint32_t>(world.Random(kReplicas));
    command.insert(command.end(), {"--replica-files", world.pool(near) + ".files"});
  }
  return command;
}

// The directory and the pool are gone before another machine asks for the group. The first calls
// may be cut by kills.
void Promote(World& world) {
  if (!StartWithTables(world)) return;
  if (world.Coin()) {
    world.KillWriter();
  } else if (world.CloseWriter().status != kDone) {
    return world.Fail("not closed in order");
  }
  stdfs::remove_all(world.directory());
  stdfs::remove(world.primary_pool());
  const std::string directory = world.NewPath("promoted");
  for (uint64_t cuts = world.Random(3); cuts > 0; --cuts) {
    Program promote(PromoteCommand(world, world.Options(), directory), world.Path("promote.log"));
    LetRun(world, 300'000);
    promote.Kill();
  }
  const Ended ended = world.Run(PromoteCommand(world, world.Options(), directory));
  world.Note("promote: " + ended.output);
  if (ended.status != 0) return world.Fail("promote: " + ended.output);
  world.set_directory(directory);
}

// The primary is only stopped. It wakes up after its place was taken. What it was acknowledged from
// then on would be missing in the new directory.
void PromoteBesideStopped(World& world) {
  if (!StartWithTables(world)) return;
  world.writer().Signal(SIGSTOP);
  StoreOptions options = world.Second();
  options.takeover = true;
  const std::string directory = world.NewPath("promoted");
  const Ended ended = world.Run(PromoteCommand(world, options, directory));
  world.Note("promote beside the stopped one: " + ended.output);
  if (ended.status != 0) return world.Fail("promote: " + ended.output);
  world.writer().Signal(SIGCONT);
  if (!Eventually([&] { return world.progress().failed.load() != 0 || !world.writer().running(); }))
    return world.Fail("the former primary neither fails nor ends: " + world.writer().output());
  world.KillWriter();
  world.progress().failed.store(0);
  world.set_directory(directory);  // and the next opening is on the former primary's machine
}

// An opening by a URI that changes the group is cut by a kill, or is not, and is repeated until the
// service writes.
bool ChangeGroup(World& world, const StoreOptions& options) {
  const std::string uri = FormatStoreUri(options);
  for (uint64_t cuts = world.Random(3); cuts > 0; --cuts) {
    world.StartWriter(uri);
    LetRun(world, 400'000);
    world.KillWriter();
  }
  world.StartWriter(uri);
  if (!world.AwaitPhase(Phase::kWriting) || !world.AwaitAcknowledged(20)) {
    world.Fail("the changed group does not come to write: " + world.writer().output());
    return false;
  }
  if (world.Coin()) {
    world.KillWriter();
  } else if (const Ended ended = world.CloseWriter(); ended.status != kDone) {
    world.Fail("closing ended with " + std::to_string(ended.status) + ": " + ended.output);
  }
  return !world.failed();
}

void ReplaceReplica(World& world) {
  world.Life();
  if (world.failed()) return;
  const auto which = static_cast<uint32_t>(world.Random(kReplicas));
  world.Note("without replica " + std::to_string(which));
  if (world.Coin()) world.KillReplica(which);
  StoreOptions options = world.Options();
  options.remove_replica = world.endpoint(which);
  std::erase(options.replicas, world.endpoint(which));
  if (!ChangeGroup(world, options)) return;

  world.Note("with a fresh one");
  world.KillReplica(which);
  if (world.Coin()) {
    stdfs::remove(world.pool(which));
    stdfs::remove_all(world.pool(which) + ".files");
  }
  if (!world.StartReplica(which)) return world.Fail("the fresh replica does not start");
  options = world.Options();
  options.add_replica = world.endpoint(which);
  ChangeGroup(world, options);
}

}  // namespace

std::vector<Action> MachineActions() {
  return {{"promote", Promote},
          {"promote_beside_stopped", PromoteBesideStopped},
          {"replace_replica", ReplaceReplica}};
}

}  // namespace hyperloop::chaos
