// Wrong URIs, wrong directories, and takeovers that are cut short.
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "crash/chaos/actions.h"

namespace hyperloop::chaos {
namespace {

namespace stdfs = std::filesystem;

void CopyDirectory(const World& world, const std::string& to) {
  stdfs::remove_all(to);
  stdfs::copy(world.directory(), to, stdfs::copy_options::recursive);
}

// The service lives and has tables, so that no other directory can have all of the database.
bool LivingWithTables(World& world) {
  if (!world.StartWriting(50)) return false;
  if (Eventually([&] { return HasTables(world.directory(), 2) || !world.writer().running(); }) &&
      world.writer().running()) {
    return true;
  }
  world.Fail("the service made no table: " + world.writer().output());
  return false;
}

void ExpectTheServiceGoesOn(World& world, const std::string& after) {
  if (world.failed()) return;
  if (!world.AwaitAcknowledged(50) || world.progress().failed.load() != 0)
    return world.Fail("the living primary does not go on after " + after + ": " +
                      world.writer().output());
  if (world.Coin()) return;  // Settle kills it
  const Ended ended = world.CloseWriter();
  if (ended.status != kDone) world.Fail("closing ended with " + std::to_string(ended.status));
}

// Expects a refusal while the primary lives: the primary goes on, and no replica was sealed.
void ExpectRefusedBesideTheLiving(World& world, const StoreOptions& options,
                                  const std::string& directory,
                                  const std::vector<std::string>& words) {
  if (world.failed()) return;
  const auto files = FilesIn(directory);
  const Ended ended = world.Dump(FormatStoreUri(options), directory, world.Path("dump"));
  world.Note("beside the living primary: " + ended.output);
  world.CheckRefused(ended, words);
  if (!world.failed() && FilesIn(directory) != files)
    world.Fail("the refused open changed files of " + directory);
}

StoreOptions WithFlags(World& world, StoreOptions options) {
  options.takeover = world.Coin();
  options.restore = world.Coin();
  options.rebind = world.Coin();
  world.Note(std::string("takeover=") + (options.takeover ? "true" : "false") +
             " restore=" + (options.restore ? "true" : "false") +
             " rebind=" + (options.rebind ? "true" : "false"));
  return options;
}

// --- a part of the replicas

std::vector<std::string> PartOf(World& world) {
  std::vector<std::string> part;
  const uint64_t mask = 1 + world.Random((1 << kReplicas) - 2);
  for (uint32_t i = 0; i < kReplicas; ++i) {
    if ((mask >> i & 1) != 0) part.push_back(world.endpoint(i));
  }
  world.Note("replicas by mask " + std::to_string(mask));
  return part;
}

void PartOfReplicas(World& world) {
  world.Life();
  if (world.failed()) return;
  StoreOptions options = WithFlags(world, world.Options());
  options.replicas = PartOf(world);
  world.ExpectRefused(FormatStoreUri(options), world.directory(),
                      {"a part of a group is not the group"});
}

void PartBesideTheLiving(World& world) {
  if (!LivingWithTables(world)) return;
  StoreOptions options = WithFlags(world, world.Second());
  options.replicas = PartOf(world);
  ExpectRefusedBesideTheLiving(world, options, world.NewPath("other"),
                               {"a part of a group is not the group"});
  ExpectTheServiceGoesOn(world, "an open with a part of its replicas");
}

// The recorded order is used, or the URI is refused: either way nothing is lost.
void WrongOrder(World& world) {
  world.Life();
  if (world.failed()) return;
  StoreOptions options = world.Options();
  std::rotate(options.replicas.begin(),
              options.replicas.begin() + 1 + static_cast<int>(world.Random(2)),
              options.replicas.end());
  const Shown before = world.Look();
  const Ended ended = world.Dump(FormatStoreUri(options), world.directory(), world.Path("dump"));
  world.Note("with another order: " + ended.output);
  if (ended.status == kDone) return;
  world.CheckRefused(ended, {"order", "recorded"});
  if (const std::string changed = before.Difference(world.Look()); !changed.empty())
    world.Fail("the refused open changed something: " + changed);
}

void DoubledReplica(World& world) {
  world.Life();
  if (world.failed()) return;
  StoreOptions options = WithFlags(world, world.Options());
  options.replicas[world.Random(2)] = world.endpoint(2);
  world.ExpectRefused(FormatStoreUri(options), world.directory(), {"twice", "same", "once"});
}

// A replica of another group, or one that never was in any, stands in for one of ours.
void ForeignReplica(World& world) {
  world.Life();
  if (world.failed()) return;
  Program foreign({ProgramOf("hyperloop-replica"), "--device", world.Path("rnicd.sock"), "--host",
                   "foreign", "--listen", "127.0.0.2:0", "--pool", world.NewPath("foreign.pool"),
                   "--size", std::to_string(kRegionSize), "--insecure"},
                  world.Path("foreign.log"));
  if (!foreign.AwaitLine("ready ")) return world.Fail("no foreign replica: " + foreign.output());
  const std::string text = foreign.output();
  const size_t begin = text.find("ready ") + 6;
  const std::string endpoint = text.substr(begin, text.find('\n', begin) - begin);
  StoreOptions theirs = world.Second();
  theirs.replicas = {endpoint};
  const std::string theirs_directory = world.NewPath("theirs");
  const bool fresh = world.Coin();
  if (!fresh) {
    const Ended made = world.Dump(FormatStoreUri(theirs), theirs_directory, world.Path("dump"));
    if (made.status != kDone) return world.Fail("no foreign group: " + made.output);
  }
  StoreOptions mixed = WithFlags(world, world.Options());
  mixed.replicas[world.Random(kReplicas)] = endpoint;
  world.ExpectRefused(
      FormatStoreUri(mixed), world.directory(),
      {"belongs to group", "is a new node", "is not of this configuration", "a part of a group"});
  if (fresh || world.failed()) return;
  world.ExpectRefused(FormatStoreUri(mixed), theirs_directory,
                      {"belongs to group", "is not of this configuration", "a part of a group"});
  const Ended again = world.Dump(FormatStoreUri(theirs), theirs_directory, world.Path("dump"));
  if (again.status != kDone) world.Fail("the foreign group does not open again: " + again.output);
}

// --- another directory

void EmptyDirectory(World& world) {
  if (!LivingWithTables(world)) return;
  if (world.CloseWriter().status != kDone) return world.Fail("not closed in order");
  const std::string empty = world.NewPath("empty");
  StoreOptions options = world.Second();
  options.takeover = world.Coin();
  world.ExpectRefused(FormatStoreUri(options), empty, {"restore=true"});
  options.restore = true;
  world.ExpectRefused(FormatStoreUri(options), empty, {"rebind=true"});
  if (world.failed() || world.Coin()) return;
  options.rebind = true;  // logs and tables come from the replicas
  const Ended moved = world.Dump(FormatStoreUri(options), empty, world.Path("dump"));
  if (moved.status != kDone) return world.Fail("not filled from the group: " + moved.output);
  world.ExpectRefused(world.Uri(), world.directory(), {"rebind=true"});
  world.set_directory(empty);
}

void RestoreBesideTheLiving(World& world) {
  if (!LivingWithTables(world)) return;
  StoreOptions options = world.Second();
  options.takeover = options.restore = true;
  ExpectRefusedBesideTheLiving(world, options, world.NewPath("empty"), {"rebind=true"});
  ExpectTheServiceGoesOn(world, "takeover=true&restore=true");
}

void CopiedDirectory(World& world) {
  world.Life();
  if (world.failed()) return;
  const std::string copy = world.NewPath("copy");
  CopyDirectory(world, copy);
  world.ExpectRefused(world.Uri(), copy, {"rebind=true"});
  if (world.failed() || world.Coin()) return;
  // With rebind=true the group goes to the copy; the original is refused from then on.
  StoreOptions options = world.Options();
  options.rebind = true;
  const Ended moved = world.Dump(FormatStoreUri(options), copy, world.Path("dump"));
  if (moved.status != kDone) return world.Fail("rebind=true is not granted: " + moved.output);
  world.ExpectRefused(world.Uri(), world.directory(), {"rebind=true"});
  world.set_directory(copy);
}

void SecondPrimary(World& world) {
  if (!LivingWithTables(world)) return;
  const std::string copy = world.NewPath("copy");
  world.writer().Signal(SIGSTOP);  // files must not go while they are copied
  CopyDirectory(world, copy);
  world.writer().Signal(SIGCONT);
  StoreOptions options = world.Second();
  options.rebind = world.Coin();
  ExpectRefusedBesideTheLiving(world, options, copy, {"takeover=true", "rebind=true"});
  ExpectTheServiceGoesOn(world, "a second primary");
}

// --- takeovers

// Starts the second primary, over a copy that was made while the first one was stopped.
Program StartTakeover(World& world, const std::string& copy, bool first_stands_still) {
  world.writer().Signal(SIGSTOP);
  CopyDirectory(world, copy);
  if (!first_stands_still) world.writer().Signal(SIGCONT);
  StoreOptions options = world.Second();
  options.takeover = options.rebind = true;
  return Program(
      {ProgramOf("chaos_writer"), "dump", FormatStoreUri(options), copy, world.Path("dump")},
      world.Path("second.log"));
}

// When RocksDB 7.8.3 cannot change the memtable of a family, it keeps a reference to each other one
// whose memtable was to be changed too. A fenced primary, which can make no log, is an example.
// With assertions, as Debian builds it, RocksDB aborts when that database is closed. Nothing
// acknowledged is lost by it.
bool FencedAndAborted(const Ended& ended) {
  return ended.output.find("IO fenced off: cannot create") != std::string::npos &&
         ended.output.find("~ColumnFamilySet(): Assertion `last_ref' failed") != std::string::npos;
}

// Whether the first primary goes on after a second one took the group or tried to; else it is
// fenced, and an acknowledgement that it got later would be lost.
bool FirstGoesOn(World& world) {
  world.writer().Signal(SIGCONT);
  const uint64_t enough = world.progress().acknowledged.load() + 20;
  const bool decided = Eventually(
      [&] { return world.progress().acknowledged.load() >= enough || !world.writer().running(); },
      30);
  if (world.writer().running() && world.progress().acknowledged.load() >= enough) return true;
  if (!decided) {
    const std::string said = world.writer().output();
    if (said.find("IO fenced off") == std::string::npos) {
      world.Fail("the first primary neither goes on nor is fenced: " + said);
      return false;
    }
    world.Note("fenced, but DB::Close waits: the defect that docs/rocksdb-plugin.md names");
    world.KillWriter();
    world.progress().failed.store(0);
    return false;
  }
  const Ended ended = world.writer().Wait();
  if (FencedAndAborted(ended))
    world.Note("fenced; RocksDB aborted by itself when it was closed");
  else if (ended.status != kFencedOff)
    world.Fail("the first primary was not fenced but ended with " + std::to_string(ended.status) +
               ": " + ended.output);
  world.progress().failed.store(0);
  return false;
}

void SettleInTheCopy(World& world, const std::string& copy) {
  StoreOptions options = world.Options();
  options.rebind = true;
  world.set_settle_uri(FormatStoreUri(options));
  world.set_directory(copy);
}

void Takeover(World& world) {
  if (!LivingWithTables(world)) return;
  const std::string copy = world.NewPath("copy");
  const bool still = world.Coin();
  Program second = StartTakeover(world, copy, still);
  const Ended ended = second.Wait();
  world.Note(std::string(still ? "the first one stopped: " : "the first one running: ") +
             ended.output);
  if (ended.status != kDone) {
    // The copy lacks files that the first primary flushed meanwhile.
    world.CheckRefused(ended, {"lacks files"});
    if (world.failed() || FirstGoesOn(world)) return;
    // The first primary flushed between the judgement and the seal: its own directory has
    // everything.
    if (still) return world.Fail("a refused takeover ended the first primary");
    SettleInTheCopy(world, world.directory());
    return;
  }
  if (FirstGoesOn(world)) world.Fail("two primaries: the first one writes after the takeover");
  SettleInTheCopy(world, copy);
}

void TakeoverCut(World& world) {
  if (!LivingWithTables(world)) return;
  const std::string copy = world.NewPath("copy");
  Program second = StartTakeover(world, copy, world.Coin());
  const uint64_t pause = world.Random(300'000);
  usleep(static_cast<useconds_t>(pause));  // how far it comes is left to chance
  second.Kill();
  world.Note("takeover cut after " + std::to_string(pause) + " us");
  if (FirstGoesOn(world)) {
    world.Note("the first one goes on");
    if (const Ended closed = world.CloseWriter(); closed.status != kDone)
      world.Fail("closing ended with " + std::to_string(closed.status) + ": " + closed.output);
    return;
  }
  world.Note("the first one is fenced");
  SettleInTheCopy(world, copy);
}

}  // namespace

std::vector<Action> MisuseActions() {
  return {{"part_of_replicas", PartOfReplicas},
          {"part_beside_living", PartBesideTheLiving},
          {"wrong_order", WrongOrder},
          {"doubled_replica", DoubledReplica},
          {"foreign_replica", ForeignReplica},
          {"empty_directory", EmptyDirectory},
          {"restore_beside_living", RestoreBesideTheLiving},
          {"copied_directory", CopiedDirectory},
          {"second_primary", SecondPrimary},
          {"takeover", Takeover},
          {"takeover_cut", TakeoverCut}};
}

}  // namespace hyperloop::chaos
