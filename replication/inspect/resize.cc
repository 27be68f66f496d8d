#include "inspect/resize.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "hyperloop/core/text.h"
#include "inspect/member_check.h"
#include "log/file_table.h"
#include "log/redo.h"
#include "region/crc32c.h"
#include "region/directory.h"
#include "region/pool.h"

namespace hyperloop {
namespace {

// --- the region

void WriteSuperblock(const RegionGeometry& to, std::span<std::byte> resized) {
  Superblock block;
  std::memcpy(&block, resized.data(), sizeof(block));
  block.region_size = to.region_size;
  block.journal_size = to.journal_size;
  block.table_capacity = to.table_capacity;
  block.data_offset = to.data_offset;
  block.extent_count = to.extent_count;
  block.reserved_extents = to.reserved_extents;
  block.crc = 0;
  block.crc = Crc32c(0, &block, sizeof(block));
  std::memcpy(resized.data(), &block, sizeof(block));
}

// Writes both copies of the head, so that neither is a head of the old region.
void WriteHeads(const RegionInfo& info, const LogState& log, std::span<std::byte> resized) {
  for (const uint64_t copy : {0, 1}) {
    const HeadBlock head = MakeHeadBlock(info, {log.head.generation + 1 + copy, log.tail});
    std::memcpy(resized.data() + kHeadOffsets[copy], &head, sizeof(head));
  }
}

// Copies the extents that belong to files; the others stay zero.
void CopyExtents(std::span<const std::byte> old, const FileTable& table, const RegionGeometry& from,
                 const RegionGeometry& to, std::span<std::byte> resized) {
  for (uint32_t extent = 0; extent < from.extent_count; ++extent) {
    if (table.map[extent].slot_plus_one == 0) continue;
    std::memcpy(resized.data() + to.ExtentOffset(extent), old.data() + from.ExtentOffset(extent),
                from.extent_size);
  }
}

// Checks the resized region by reading it as the next opening will.
Status CheckResized(std::span<const std::byte> resized, const RegionGeometry& to,
                    const LogState& log, const FileTable& before) {
  HL_ASSIGN_OR_RETURN(const RegionInfo info, ParseSuperblock(resized, resized.size()));
  const MemberCheck now = CheckMember(resized, info);
  const auto same_file = [](const FileInfo& a, const FileInfo& b) {
    return a.id == b.id && a.name == b.name && a.lane == b.lane && a.size == b.size;
  };
  if (info.geometry == to && now.sound() && now.log.tail == log.tail &&
      now.log.head.cursor == log.tail &&
      std::ranges::equal(now.table.List(), before.List(), same_file)) {
    return {};
  }
  return Internal(
      "the resized region does not hold what the old one holds; the old pool is unchanged");
}

// --- the pool

Status CheckAtRest(const NodeState& state, const std::string& path) {
  const bool replica = state.sealed_epoch != 0;
  if (!replica || state.released) return {};
  return Aborted(Text("pool ", path, ": the last primary did not release it (epoch ",
                      state.sealed_epoch,
                      "); start all replicas, open and close the database once, then stop them and "
                      "resize"));
}

struct OpenedPool {
  std::unique_ptr<Pool> pool;  // a private copy, which is redone and never written back
  RegionInfo info;
  LogState log;
  bool replica = false;
};

Result<OpenedPool> OpenAtRest(const std::string& path) {
  OpenedPool opened;
  HL_ASSIGN_OR_RETURN(opened.pool, Pool::OpenCopyOnWrite(path, PoolReaders::kAlone));
  const auto region = opened.pool->region();
  const auto named = [&](const Status& status) { return status.WithContext("pool " + path); };
  const Result<RegionInfo> info = ParseSuperblock(region, region.size());
  if (!info.ok()) return named(info.status());
  opened.info = *info;
  const Result<NodeState> state = ReadNodeState(opened.pool->node_page());
  if (!state.ok() && state.status().code() != Code::kNotFound) return named(state.status());
  if (state.ok()) {
    HL_RETURN_IF_ERROR(CheckAtRest(*state, path));
    opened.replica = state->sealed_epoch != 0;
  }
  const MemberCheck check = CheckMember(region, opened.info);
  if (!check.sound()) {
    return Corruption(Text("pool ", path, " is damaged: ", check.Damage(opened.info).front(),
                           "; mend it first (hyperloopctl verify)"));
  }
  HL_ASSIGN_OR_RETURN(opened.log, Redo(region, opened.info));
  return opened;
}

// Removes the file that an interrupted call left; that file was never used as the pool.
Status RemoveLeftover(const std::string& temporary) {
  struct stat st;
  if (::lstat(temporary.c_str(), &st) != 0)
    return errno == ENOENT ? Status() : FromErrno(errno, "look at " + temporary);
  const Status unused = Pool::OpenCopyOnWrite(temporary, PoolReaders::kAlone).status();
  if (unused.code() == Code::kBusy) return Busy("another process is resizing to " + temporary);
  if (::unlink(temporary.c_str()) != 0) return FromErrno(errno, "remove leftover " + temporary);
  return {};
}

bool SameFile(const std::string& a, const std::string& b) {
  struct stat first, second;
  return ::stat(a.c_str(), &first) == 0 && ::stat(b.c_str(), &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

// Gives the old pool a second name before the new pool takes its first one.
Result<std::string> SetAside(const std::string& path, uint64_t region_size) {
  const std::string base = Text(path, ".before-resize-", region_size);
  std::string name = base;
  for (int number = 2;; ++number) {
    if (::link(path.c_str(), name.c_str()) == 0) return name;
    if (errno != EEXIST) return FromErrno(errno, Text("set pool ", path, " aside as ", name));
    if (SameFile(path, name)) return name;  // an interrupted call has already done this
    name = Text(base, ".", number);
  }
}

Status FillResized(const OpenedPool& from, const RegionGeometry& to, Pool* resized) {
  HL_RETURN_IF_ERROR(ResizeRegion(from.pool->region(), from.info, from.log, to, resized->region()));
  std::memcpy(resized->node_page().data(), from.pool->node_page().data(),
              std::min(resized->node_page().size(), from.pool->node_page().size()));
  HL_RETURN_IF_ERROR(resized->media().Persist(resized->region().data(), resized->region().size()));
  HL_RETURN_IF_ERROR(
      resized->media().Persist(resized->node_page().data(), resized->node_page().size()));
  if (::fsync(resized->fd()) != 0) return FromErrno(errno, "sync " + resized->path());
  return {};
}

}  // namespace

Result<RegionGeometry> PlanResize(const RegionGeometry& now, const ResizeTarget& target) {
  const auto or_as_is = [](auto wanted, auto present) { return wanted != 0 ? wanted : present; };
  const auto region_size = or_as_is(target.region_size, now.region_size);
  const auto journal_size = or_as_is(target.journal_size, now.journal_size);
  const auto table_capacity = or_as_is(target.table_capacity, now.table_capacity);
  if (region_size < now.region_size || journal_size < now.journal_size ||
      table_capacity < now.table_capacity) {
    return InvalidArgument(Text("a group only grows: it has region_size=", now.region_size,
                                " journal_size=", now.journal_size,
                                " table_capacity=", now.table_capacity, ", and cannot get ",
                                region_size, ", ", journal_size, " and ", table_capacity));
  }
  HL_ASSIGN_OR_RETURN(
      const RegionGeometry to,
      RegionGeometry::Compute(region_size, journal_size, table_capacity, now.extent_size));
  if (to == now) return to;
  if (to.region_size == now.region_size || to.extent_count < now.extent_count) {
    const uint64_t least = now.region_size + (to.data_offset - now.data_offset) + now.extent_size;
    return InvalidArgument(Text("region_size=", region_size, " leaves room for ", to.extent_count,
                                " extents, and the group has ", now.extent_count,
                                "; a region_size of ", least, " would do"));
  }
  return to;
}

Status ResizeRegion(std::span<const std::byte> old, const RegionInfo& info, const LogState& log,
                    const RegionGeometry& to, std::span<std::byte> resized) {
  const RegionGeometry& from = info.geometry;
  if (old.size() < from.region_size || resized.size() != to.region_size ||
      to.extent_size != from.extent_size || to.extent_count < from.extent_count ||
      to.table_capacity < from.table_capacity) {
    return InvalidArgument(Text("a region of ", from.region_size, " B cannot be put into ",
                                resized.size(), " B of another shape"));
  }
  HL_ASSIGN_OR_RETURN(const FileTable table, FileTable::Load(old, info));
  const auto copy = [&](uint64_t from_offset, uint64_t to_offset, uint64_t size) {
    std::memcpy(resized.data() + to_offset, old.data() + from_offset, size);
  };
  copy(0, 0, kJournalOffset);
  copy(from.binding_offset, to.binding_offset, from.table_offset - from.binding_offset);
  copy(from.table_offset, to.table_offset, uint64_t{from.table_capacity} * sizeof(TableEntry));
  copy(from.map_offset, to.map_offset, uint64_t{from.extent_count} * sizeof(MapEntry));
  CopyExtents(old, table, from, to, resized);
  WriteSuperblock(to, resized);
  WriteHeads(info, log, resized);
  return CheckResized(resized, to, log, table);
}

Result<PoolLook> LookAtPool(const std::string& path) {
  HL_ASSIGN_OR_RETURN(const OpenedPool opened, OpenAtRest(path));
  return PoolLook{opened.info, opened.log.tail, opened.replica};
}

Result<ResizeReport> ResizePool(const std::string& path, const ResizeTarget& target) {
  HL_ASSIGN_OR_RETURN(const OpenedPool old, OpenAtRest(path));
  ResizeReport report;
  HL_ASSIGN_OR_RETURN(report.geometry, PlanResize(old.info.geometry, target));
  if (report.geometry == old.info.geometry) return report;
  const std::string temporary = path + ".resizing";
  HL_RETURN_IF_ERROR(RemoveLeftover(temporary));
  HL_ASSIGN_OR_RETURN(std::unique_ptr<Pool> resized,
                      Pool::Create(temporary, report.geometry.region_size));
  if (Status filled = FillResized(old, report.geometry, resized.get()); !filled.ok()) {
    ::unlink(temporary.c_str());
    return filled.WithContext("pool " + path);
  }
  HL_ASSIGN_OR_RETURN(report.set_aside, SetAside(path, old.info.geometry.region_size));
  HL_RETURN_IF_ERROR(SyncDirectory(DirectoryOf(path)));
  if (::rename(temporary.c_str(), path.c_str()) != 0)
    return FromErrno(errno, Text("rename ", temporary, " to ", path));
  HL_RETURN_IF_ERROR(SyncDirectory(DirectoryOf(path)));
  report.changed = true;
  return report;
}

}  // namespace hyperloop
