// Stock tools on a directory that belongs to a group.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "crash/chaos/actions.h"

namespace hyperloop::chaos {
namespace {

using Files = std::map<std::string, std::string>;

constexpr char kStray[] = "stray";  // a key that the service never writes

bool NoLdb(World& world) {
  if (access(kLdb, X_OK) == 0) return false;
  world.Skip("rocksdb-tools is not installed");
  return true;
}

std::string PluginPath() {
  const char* folder = std::getenv("HYPERLOOP_LIB");
  return std::string(folder != nullptr ? folder : "build/lib") + "/librocksdb_hyperloop.so";
}

Ended Ldb(World& world, const std::vector<std::string>& rest) {
  std::vector<std::string> argv = {kLdb, "--db=" + world.directory()};
  argv.insert(argv.end(), rest.begin(), rest.end());
  const Ended ended = world.Run(argv);
  world.Note("ldb " + rest.front() + " ended with " + std::to_string(ended.status));
  return ended;
}

// The file that the refusal says to move out of the directory; empty when it names none.
std::string FileToMove(const std::string& refusal) {
  const std::string end = " out of the directory";
  const size_t at = refusal.find(end);
  if (at == std::string::npos) return "";
  const size_t begin = refusal.rfind(' ', at - 1) + 1;
  return refusal.substr(begin, at - begin);
}

// Follows the refusal: puts the tables back, and moves the file that it names away.
void KeepTheGroup(World& world, const Files& before, const std::string& refusal) {
  const std::string name = FileToMove(refusal);
  if (name.empty()) return world.Fail("no file to move is named: " + refusal);
  world.Note("keeping the group: without " + name);
  for (const auto& [file, bytes] : before) {
    if (file.ends_with(".sst")) WriteFile(world.directory() + "/" + file, bytes);
  }
  std::filesystem::rename(name, world.directory() + "-moved-away");
}

// Follows the refusal: without its pairing file the directory is a plain database, with everything
// acknowledged.
void CheckThatTheDirectoryCanBeKept(World& world) {
  const std::string plain = world.NewPath("plain");
  std::filesystem::remove_all(plain);
  std::filesystem::copy(world.directory(), plain, std::filesystem::copy_options::recursive);
  std::filesystem::remove(plain + "/HYPERLOOP");
  const Ended ended = world.Dump("-", plain, world.Path("plain-dump"));
  if (ended.status != kDone) return world.Fail("the directory cannot be kept: " + ended.output);
  world.model().Follow(world.progress());
  std::string torn;
  Content content = ReadDump(world.Path("plain-dump"), &torn);
  if (content.erase({0, kStray}) != 0) torn.clear();
  const std::string wrong = world.model().Check(content);
  if (!wrong.empty() || !torn.empty()) world.Fail("the directory that was kept: " + wrong + torn);
}

// A tool writes without the plugin: the next open is refused with both ways out and changes
// nothing. Each way out works, and after the directory is restored everything is as before.
void WriteWithoutThePlugin(World& world, const std::vector<std::string>& command) {
  if (NoLdb(world)) return;
  world.Life();
  if (world.failed()) return;
  const Files before = FilesIn(world.directory());
  if (const Ended ended = Ldb(world, command); ended.status != 0)
    return world.Fail("ldb: " + ended.output);
  const Ended refused = world.ExpectRefused(world.Uri(), world.directory(),
                                            {"was changed without its group", "lacks files"});
  if (world.failed()) return;
  CheckThatTheDirectoryCanBeKept(world);
  if (world.Coin()) return KeepTheGroup(world, before, refused.output);
  world.Note("the directory as it was");
  SetFiles(world.directory(), before);
}
void StockPut(World& world) { WriteWithoutThePlugin(world, {"put", kStray, "value"}); }
void StockCompact(World& world) { WriteWithoutThePlugin(world, {"compact"}); }

// Readers without the plugin change nothing, and the next open does not mind them.
void StockRead(World& world) {
  if (NoLdb(world)) return;
  world.Life();
  if (world.failed()) return;
  const auto before = FilesIn(world.directory());
  for (const auto& command : std::vector<std::vector<std::string>>{
           {"scan"}, {"manifest_dump"}, {"list_column_families"}, {"get", "k0-1"}}) {
    if (const Ended ended = Ldb(world, command); ended.by_signal())
      world.Fail("ldb: " + ended.output);
  }
  if (FilesIn(world.directory()) != before) world.Fail("a reader changed files");
}

// A tool with the plugin writes to log files without locking the directory: RocksDB permits that,
// but the plugin does not.
void UnlockedWrite(World& world) {
#ifdef __SANITIZE_ADDRESS__
  return world.Skip("a stock program does not take a plugin that needs the sanitizer's runtime");
#endif
  if (NoLdb(world)) return;
  if (!world.StartWriting(50)) return;
  Eventually([&] { return HasTables(world.directory(), 2) || !world.writer().running(); });
  if (world.CloseWriter().status != kDone) return world.Fail("not closed in order");
  const Shown before = world.Look();
  Ended ended;
  for (const auto& [name, bytes] : before.files) {
    if (!name.ends_with(".sst")) continue;
    const std::string table = std::to_string(std::stoul(name));
    ended =
        world.Run({"/usr/bin/env", "LD_PRELOAD=" + PluginPath(), kLdb, "--fs_uri=" + world.Uri(),
                   "--db=" + world.directory(), "unsafe_remove_sst_file", table});
    world.Note("ldb unsafe_remove_sst_file " + table + ": " + ended.output);
    // A table that is only waiting to be removed is refused by the tool itself.
    if (ended.output.find("not present in any level") == std::string::npos) break;
  }
  world.CheckRefused(ended, {"is not open here"});
  if (const std::string changed = before.Difference(world.Look()); !changed.empty())
    world.Fail("the refused write changed something: " + changed);
}

}  // namespace

std::vector<Action> ToolActions() {
  return {{"stock_put", StockPut},
          {"stock_compact", StockCompact},
          {"stock_read", StockRead},
          {"unlocked_write", UnlockedWrite}};
}

}  // namespace hyperloop::chaos
