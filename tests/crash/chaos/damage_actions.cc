// Damages bits and bytes of one member, of the primary's copy, or of local files; fills disks. Two
// sound replicas always remain.
#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "crash/chaos/actions.h"
#include "inspect/member_check.h"
#include "inspect/resync.h"
#include "region/region_layout.h"

namespace hyperloop::chaos {
namespace {

namespace stdfs = std::filesystem;

// Where the region and its areas lie in a pool file.
struct PoolMap {
  uint64_t region = 0;  // offset in the file
  RegionGeometry geometry;
};

Result<PoolMap> MapPool(const std::string& bytes) {
  constexpr uint64_t kStep = 4096;
  for (uint64_t at = 0; at + kRegionSize <= bytes.size(); at += kStep) {
    uint64_t magic = 0;
    std::memcpy(&magic, bytes.data() + at, sizeof magic);
    if (magic != kRegionMagic) continue;
    const auto image = std::as_bytes(std::span(bytes)).subspan(at, kRegionSize);
    HL_ASSIGN_OR_RETURN(const RegionInfo info, ParseSuperblock(image, kRegionSize));
    return PoolMap{at, info.geometry};
  }
  return NotFound("no region in the pool");
}

struct Area {
  uint64_t begin, end;  // in the region
};

// Flips a bit of `area`, in most cases in a byte that is in use. Not in a byte that differs from
// `before`: whoever flips one bit twice damages nothing.
void Flip(World& world, const std::string& before, std::string& bytes, uint64_t at, Area area) {
  const auto unfit = [&](uint64_t where) {
    return bytes[where] == 0 || bytes[where] != before[where];
  };
  uint64_t where = area.begin + world.Random(area.end - area.begin);
  for (int i = 0; i < 2000 && unfit(at + where); ++i)
    where = area.begin + world.Random(area.end - area.begin);
  bytes[at + where] = static_cast<char>(bytes[at + where] ^ (1 << world.Random(8)));
  world.Note("a bit flipped at " + std::to_string(where));
}

// Writes only the bytes that differ, as a decaying medium would change them.
void WriteChanged(const std::string& path, const std::string& before, const std::string& after) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  for (size_t i = 0; i < after.size(); ++i) {
    if (before[i] != after[i] && pwrite(fd, &after[i], 1, static_cast<off_t>(i)) != 1) break;
  }
  ::close(fd);
}

// One of the ranges of the data extents that are in use.
Area DataInUse(World& world, std::span<const std::byte> image) {
  const Result<RegionInfo> info = ParseSuperblock(image, image.size());
  if (!info.ok()) return {0, image.size()};
  const RegionGeometry& g = info->geometry;
  const MemberCheck content = CheckMember(image, *info, 0, CheckDepth::kMetadata);
  std::vector<Area> areas;
  for (const Range& range : RangesInUse(g, content.table.map)) {
    const uint64_t begin = std::max(range.offset, g.data_offset), end = range.offset + range.size;
    if (begin < end) areas.push_back({begin, end});
  }
  if (areas.empty()) return {g.data_offset, g.region_size};
  return areas[world.Random(areas.size())];
}

enum class Where { kSuperblock, kHead, kRing, kBinding, kTable, kMap, kData };

Area AreaOf(const RegionGeometry& geometry, Where where) {
  switch (where) {
    case Where::kSuperblock:  // but what AddFeatures changes
      return {0, offsetof(Superblock, features)};
    case Where::kHead:
      return {kHeadOffsets[0], kHeadOffsets[1] + sizeof(HeadBlock)};
    case Where::kRing:
      return {kJournalOffset, geometry.journal_end()};
    case Where::kBinding:
      return {geometry.binding_offset, geometry.table_offset};
    case Where::kTable:
      return {geometry.table_offset, geometry.map_offset};
    case Where::kMap:
      return {geometry.map_offset, geometry.data_offset};
    case Where::kData:
      break;
  }
  return {geometry.data_offset, geometry.region_size};
}

// Flips bits of a dead replica's region. The other two are sound, so the next orderly open finds
// everything and leaves all members equal.
void FlipIn(World& world, Where where) {
  world.Life();
  if (world.failed()) return;
  const auto i = static_cast<uint32_t>(world.Random(kReplicas));
  world.Note("replica " + std::to_string(i));
  world.KillReplica(i);
  const std::string before = ReadFile(world.pool(i));
  std::string after = before;
  const Result<PoolMap> map = MapPool(before);
  if (!map.ok()) return world.Fail(map.status().ToString());
  const auto image = std::as_bytes(std::span(before)).subspan(map->region, kRegionSize);
  for (uint64_t n = 1 + world.Random(3); n > 0; --n) {
    Flip(world, before, after, map->region,
         where == Where::kData ? DataInUse(world, image) : AreaOf(map->geometry, where));
  }
  WriteChanged(world.pool(i), before, after);
  if (world.StartReplica(i)) {
    world.AwaitReplicas();
    const Ended verify = world.Run({ProgramOf("hyperloopctl"), "verify", "--uri", world.Uri()});
    world.Note("verify: " + verify.output);
    if (verify.by_signal()) return world.Fail("verify ended by a signal");
    if (verify.status == 0) return world.Fail("verify does not see the damage");
    // Bytes that the log will replace are not damage. The service was killed before, so the logs
    // may differ.
    const bool unequal = verify.output.find("the next open makes them equal") != std::string::npos;
    if (!unequal && verify.output.find("replica" + std::to_string(i)) == std::string::npos)
      return world.Fail("verify does not name replica" + std::to_string(i) + ": " + verify.output);
    return;
  }
  // The replica refuses to start; its content comes back from the others.
  const Ended ended = world.replica(i).Wait();
  world.Note("it does not start: " + ended.output);
  world.CheckRefused(ended, {world.pool(i)});
  WriteFile(world.pool(i), before);
}
void FlipSuperblock(World& world) { FlipIn(world, Where::kSuperblock); }
void FlipHead(World& world) { FlipIn(world, Where::kHead); }
void FlipRing(World& world) { FlipIn(world, Where::kRing); }
void FlipBinding(World& world) { FlipIn(world, Where::kBinding); }
void FlipTable(World& world) { FlipIn(world, Where::kTable); }
void FlipMap(World& world) { FlipIn(world, Where::kMap); }
void FlipData(World& world) { FlipIn(world, Where::kData); }

// Makes a pool unusable: the replica says so, the group is refused while the replica is away, and
// goes on once the file is put back.
void BadPool(World& world, const std::function<std::string(std::string)>& damage) {
  world.Life();
  if (world.failed()) return;
  const auto i = static_cast<uint32_t>(world.Random(kReplicas));
  world.KillReplica(i);
  const std::string before = ReadFile(world.pool(i));
  WriteFile(world.pool(i), damage(before));
  if (world.StartReplica(i)) return world.Note("the damage does not matter");
  const Ended ended = world.replica(i).Wait();
  world.Note("replica " + std::to_string(i) + ": " + ended.output);
  world.CheckRefused(ended, {world.pool(i)});
  if (world.failed()) return;
  const auto files = FilesIn(world.directory());
  const Ended open =
      world.Dump(FormatStoreUri(world.Impatient()), world.directory(), world.Path("dump"));
  world.CheckRefused(open, {world.endpoint(i)});
  if (!world.failed() && FilesIn(world.directory()) != files)
    world.Fail("the refused open changed files");
  WriteFile(world.pool(i), before);
}

void TruncatePool(World& world) {
  BadPool(world, [&](std::string bytes) {
    bytes.resize(world.Random(bytes.size()));
    return bytes;
  });
}

// Flips bits of PMDK's own bytes, before and behind the region.
void FlipPmdk(World& world) {
  BadPool(world, [&](std::string bytes) {
    const std::string before = bytes;
    const Result<PoolMap> map = MapPool(bytes);
    if (!map.ok()) {
      world.Fail(map.status().ToString());
      return bytes;
    }
    const uint64_t behind = map->region + kRegionSize + kNodePageSize;
    for (uint64_t n = 1 + world.Random(4); n > 0; --n) {
      const bool in_front = behind >= bytes.size() || world.Random(8) != 0;
      Flip(world, before, bytes, 0, in_front ? Area{0, map->region} : Area{behind, bytes.size()});
    }
    return bytes;
  });
}

// Removes a replica's pool: the new pool is not a member, and the refusal names the replica.
void LosePool(World& world) {
  world.Life();
  if (world.failed()) return;
  const auto i = static_cast<uint32_t>(world.Random(kReplicas));
  world.KillReplica(i);
  stdfs::rename(world.pool(i), world.Path("kept.pool"));
  if (!world.StartReplica(i)) return world.Fail("a new pool: " + world.replica(i).output());
  world.AwaitReplicas();
  world.ExpectRefused(world.Uri(), world.directory(), {"a new node"});
  world.KillReplica(i);
  stdfs::rename(world.Path("kept.pool"), world.pool(i));
}

// A pool is an older copy of itself, as from a backup: the others have what it lacks.
void StalePool(World& world) {
  world.Life();
  if (world.failed()) return;
  world.KillWriter();
  const auto i = static_cast<uint32_t>(world.Random(kReplicas));
  world.KillReplica(i);
  const std::string old = ReadFile(world.pool(i));
  if (!world.StartReplica(i)) return world.Fail("it does not start: " + world.replica(i).output());
  world.AwaitReplicas();
  world.Life();
  if (world.failed()) return;
  world.KillReplica(i);
  WriteFile(world.pool(i), old);
}

// The primary's pool is only a copy: it is set to the group.
void FlipPrimaryPool(World& world) {
  world.Life();
  if (world.failed()) return;
  const std::string before = ReadFile(world.primary_pool());
  std::string after = before;
  const Result<PoolMap> map = MapPool(before);
  if (!map.ok()) return world.Fail(map.status().ToString());
  for (int n = 0; n < 20; ++n) Flip(world, before, after, map->region, {0, kRegionSize});
  WriteChanged(world.primary_pool(), before, after);
}

// Damages each local file of the log lane in one way or another, and adds some that the group never
// had.
void DamageLogLane(World& world) {
  for (auto [name, bytes] : LogLaneOf(FilesIn(world.directory()))) {
    const std::string path = world.directory() + "/" + name;
    const uint64_t how = world.Random(6);
    world.Note(name + ": damage " + std::to_string(how));
    if (how == 0) WriteFile(path, std::string(bytes.size(), '\0'));
    if (how == 1) WriteFile(path, bytes.substr(0, world.Random(bytes.size())));
    if (how == 2) stdfs::remove(path);
    if (how == 3) WriteFile(path, bytes + "a longer tail");
    if (how == 4 && !bytes.empty()) {
      bytes[world.Random(bytes.size())] ^= 1;
      WriteFile(path, bytes);
    }
  }
  if (world.Coin()) WriteFile(world.directory() + "/009999.log", "stray");
  if (world.Coin()) WriteFile(world.directory() + "/MANIFEST-009999", "stray");
}

// Local log files are the group's cache: after a power failure they may be anything. Before RocksDB
// reads them they are set to the group's content.
void DamageLocalFiles(World& world) {
  world.Life();
  if (world.failed()) return;
  DamageLogLane(world);
  const Ended locked =
      world.Run({ProgramOf("chaos_writer"), "lock", world.Uri(), world.directory(), "-"});
  if (locked.status != kDone) return world.Fail("the directory is not locked: " + locked.output);
  const auto group = world.GroupFiles(static_cast<uint32_t>(world.Random(kReplicas)));
  if (!group.ok()) return world.Fail(group.status().ToString());
  const Shown in_group{*group, {}}, local{LogLaneOf(FilesIn(world.directory())), {}};
  if (const std::string difference = in_group.Difference(local); !difference.empty())
    return world.Fail("local files are not set to the group's: " + difference);
  DamageLogLane(world);
}

// --- full disks and data areas

// RocksDB 7.8.3 with assertions, as Debian builds it, may abort when it resumes after a full disk,
// with any FileSystem. That loses nothing acknowledged either.
bool EndedByItsOwnAssertion(World& world) {
  world.writer().Signal(SIGSTOP);  // it does no more after this
  if (world.writer().running()) return false;
  const Ended ended = world.writer().Wait();
  if (ended.output.find("AssertFalseAndGetStatusForPrevError") == std::string::npos)
    world.Fail("the service did not live through a full disk: " + ended.output);
  world.Note("RocksDB aborted by itself");
  return true;
}

void FullDisk(World& world) {
  if (!world.small_disk()) return world.Skip("mounting a small tmpfs is not permitted here");
  if (!world.directory_on_small_disk())
    return world.Skip("a copy elsewhere became the group's directory");
  if (!world.StartWriting(20 + world.Random(100))) return;
  world.ResizeDisk(world.UsedOfDisk() + (64 << 10) + world.Random(512 << 10));
  const bool failed =
      Eventually([&] { return world.progress().failed.load() > 3 || !world.writer().running(); });
  if (!failed) world.Fail("the small disk does not become full");
  const bool named = world.writer().output().find("No space left") != std::string::npos;
  const bool room_first = world.Coin();
  if (room_first) world.ResizeDisk(0);
  if (!EndedByItsOwnAssertion(world)) {
    if (!named) world.Fail("a full disk is not named: " + world.writer().output());
    world.KillWriter();
  }
  if (!room_first) world.ResizeDisk(0);
  world.progress().failed.store(0);
}

// The archive keeps every log, so that no flush frees any part of the data area. Logs leave it.
void FullDataArea(World& world) {
  world.progress().archive.store(Archive::kKept);
  if (!world.StartWriting(20 + world.Random(100))) return;
  const size_t many = 1 + world.Random(12);
  const auto left = [&] { return world.TimesLogged("left the group's data area"); };
  if (!Eventually([&] { return left() >= many || !world.writer().running(); }))
    world.Fail("no log leaves the data area");
  if (world.Coin()) {
    const Ended ended = world.CloseWriter();
    if (ended.status != kDone && ended.status != kCloseFailed)
      world.Fail("the service did not live through a data area that fills: " + ended.output);
  } else {
    world.KillWriter();
  }
  const Ended opened = world.Dump(world.Uri(), world.directory(), world.NewPath("dump"));
  if (opened.status != kDone) world.Fail("it does not open after logs left: " + opened.output);
  world.progress().archive.store(Archive::kEmptiedByOpening);
  if (!world.StartWriting(1)) return;
  world.KillWriter();
  world.progress().failed.store(0);
}

// Unmounts what is mounted at a path.
struct Unmount {
  explicit Unmount(std::string at) : path(std::move(at)) {}
  ~Unmount() { umount2(path.c_str(), MNT_DETACH); }
  Unmount(const Unmount&) = delete;
  Unmount& operator=(const Unmount&) = delete;
  const std::string path;
};

// Logs reach a replica whose disk for whole files is full, and a flush waits for it.
void FullDiskOfReplica(World& world) {
  world.Life();
  if (world.failed()) return;
  const auto which = static_cast<uint32_t>(world.Random(kReplicas));
  const std::string files = world.pool(which) + ".files", aside = world.NewPath("files");
  world.KillReplica(which);
  stdfs::rename(files, aside);
  stdfs::create_directory(files);
  if (mount("tmpfs", files.c_str(), "tmpfs", 0, "size=64m,mode=0700") != 0) {
    stdfs::rename(aside, files);
    return world.Skip("mounting a small tmpfs is not permitted here");
  }
  auto mounted = std::make_unique<Unmount>(files);
  stdfs::copy(aside, files, stdfs::copy_options::recursive);
  const auto resize = [&](uint64_t bytes) {
    const std::string size = "size=" + std::to_string(bytes);
    if (mount("tmpfs", files.c_str(), "tmpfs", MS_REMOUNT, size.c_str()) != 0)
      world.Fail("cannot set the size of the small disk");
  };
  const stdfs::space_info space = stdfs::space(files);
  resize(space.capacity - space.free + (64 << 10) + world.Random(256 << 10));
  StoreOptions options = world.Options();
  options.bulk_timeout = std::chrono::seconds(1);
  if (!world.StartReplica(which)) world.Fail("it does not start with little room");
  world.StartWriter(FormatStoreUri(options));
  const auto named_in = [&](const std::string& text) {
    return text.find("No space left") != std::string::npos &&
           text.find(world.endpoint(which)) != std::string::npos;
  };
  const auto named = [&] { return named_in(world.writer().output()); };
  // A compaction may drop as much as it writes. Then each file gets room before bulk_timeout, no
  // flush fails, and the log alone says what files wait for. A flush that waits for ever is not
  // that: the database makes no more memtables then than its families may have, four each.
  constexpr size_t kMoreThanWait = 16;
  std::optional<size_t> made;
  uint64_t looks = 0;
  const auto lives_on = [&] {
    if (++looks % 50 != 0 || !named_in(world.Log())) return false;  // the log is long
    const size_t made_now = world.TimesLogged("New memtable created");
    if (!made) made = made_now;
    return made_now > *made + kMoreThanWait;
  };
  bool goes_on = false;
  Eventually([&] {
    goes_on = lives_on();
    return goes_on || named() || !world.writer().running();
  });
  if (goes_on) world.Note("tables get room again and again");
  if (!goes_on && !named())
    world.Fail("a replica's full disk is not named: " + world.writer().output());
  if (world.Coin()) {
    resize(64 << 20);
    const Ended ended = world.CloseWriter();
    if (ended.status != kDone && ended.status != kCloseFailed && ended.status != kRefused)
      world.Fail("the service ended with " + std::to_string(ended.status) + ": " + ended.output);
  } else {
    world.KillWriter();
  }
  world.KillReplica(which);
  stdfs::remove_all(aside);
  stdfs::copy(files, aside, stdfs::copy_options::recursive);
  mounted.reset();
  stdfs::remove(files);
  stdfs::rename(aside, files);
  world.progress().failed.store(0);
}

void FullDiskOfPool(World& world) {
  world.Life();
  if (world.failed()) return;
  const std::string disk = world.NewPath("tiny");
  stdfs::create_directories(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=4m") != 0)
    return world.Skip("mounting a small tmpfs is not permitted here");
  StoreOptions options = world.Options();
  options.pool = disk + "/primary.pool";
  world.ExpectRefused(FormatStoreUri(options), world.directory(), {"make room", "No space left"});
  if (!stdfs::is_empty(disk)) world.Fail("a pool that did not fit was left behind");
  umount(disk.c_str());
}

}  // namespace

std::vector<Action> DamageActions() {
  return {{"flip_superblock", FlipSuperblock},
          {"flip_head", FlipHead},
          {"flip_ring", FlipRing},
          {"flip_binding", FlipBinding},
          {"flip_table", FlipTable},
          {"flip_map", FlipMap},
          {"flip_data", FlipData},
          {"flip_primary_pool", FlipPrimaryPool},
          {"flip_pmdk", FlipPmdk},
          {"truncate_pool", TruncatePool},
          {"lose_pool", LosePool},
          {"stale_pool", StalePool},
          {"damage_local_files", DamageLocalFiles},
          {"full_disk", FullDisk},
          {"full_data_area", FullDataArea},
          {"full_disk_of_replica", FullDiskOfReplica},
          {"full_disk_of_pool", FullDiskOfPool}};
}

}  // namespace hyperloop::chaos
