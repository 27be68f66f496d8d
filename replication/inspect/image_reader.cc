#include "inspect/image_reader.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "hyperloop/core/text.h"
#include "inspect/member_check.h"
#include "inspect/resync.h"
#include "membership/replica_lists.h"
#include "region/region_layout.h"

namespace hyperloop {
namespace {

constexpr int kAttempts = 100, kTakenAttempts = 20;
// No write takes as long as so many readings, so what is inconsistent then is damaged.
constexpr int kStillIsDamaged = 4;
constexpr uint64_t kRingPiece = 64u << 10;

class Attempt {
 public:
  Attempt(const RegionFetch& fetch, std::span<std::byte> image, const RegionInfo& info)
      : fetch_(fetch), image_(image), info_(info) {}

  Status Get(uint64_t offset, uint64_t size) {
    return fetch_(offset, image_.subspan(offset, size));
  }

  Status GetExtents() {
    const RegionGeometry& g = info_.geometry;
    for (uint32_t i = 0; i < g.extent_count; ++i) {
      MapEntry entry;
      std::memcpy(&entry, image_.data() + g.MapOffset(i), sizeof(entry));
      if (entry.slot_plus_one != 0) HL_RETURN_IF_ERROR(Get(g.ExtentOffset(i), g.extent_size));
    }
    return {};
  }

  Status GetRing(const LogCursor& head) {
    const uint64_t ring = info_.geometry.journal_size;
    const uint64_t start = head.position % ring;
    HL_RETURN_IF_ERROR(GetBackwards(0, start));
    return GetBackwards(start, ring);
  }

 private:
  // Ring offsets [begin, end), last piece first.
  Status GetBackwards(uint64_t begin, uint64_t end) {
    while (end > begin) {
      const uint64_t piece = std::min(kRingPiece, end - begin);
      end -= piece;
      HL_RETURN_IF_ERROR(Get(kJournalOffset + end, piece));
    }
    return {};
  }

  const RegionFetch& fetch_;
  const std::span<std::byte> image_;
  const RegionInfo& info_;
};

enum class Reading {
  kConsistent,
  kMoved,  // the owner wrote too much meanwhile
  kStill,  // inconsistent, though nothing moved: damaged, or a write was under way
};

Result<Reading> ReadOnce(const RegionFetch& fetch, std::span<std::byte> image, bool with_data) {
  const auto fixed = image.first(kJournalOffset);
  HL_RETURN_IF_ERROR(fetch(0, fixed));
  const Result<RegionInfo> info = ParseSuperblock(image, image.size());
  // Never formatted, or damaged: whoever parses the image reports it.
  if (!info.ok()) return Reading::kConsistent;
  const Result<Head> before = ReadHead(image, *info);
  if (before.ok()) {
    Attempt attempt(fetch, image, *info);
    const RegionGeometry& g = info->geometry;
    HL_RETURN_IF_ERROR(attempt.Get(g.binding_offset, g.data_offset - g.binding_offset));
    if (with_data) HL_RETURN_IF_ERROR(attempt.GetExtents());
    HL_RETURN_IF_ERROR(attempt.GetRing(before->cursor));
  }
  std::vector<std::byte> again(kJournalOffset);
  HL_RETURN_IF_ERROR(fetch(0, again));
  const Reading otherwise = std::ranges::equal(fixed, again) ? Reading::kStill : Reading::kMoved;
  const Result<Head> after = ReadHead(again, *info);
  if (!before.ok() || !after.ok() || after->cursor.epoch != before->cursor.epoch) return otherwise;
  const Result<LogState> log = ScanLog(image, *info);
  return log.ok() && log->tail.seq >= after->cursor.seq ? Reading::kConsistent : otherwise;
}

NodeStatus::Recorded Describe(const Configuration& configuration) {
  NodeStatus::Recorded recorded;
  recorded.epoch = configuration.epoch;
  if (configuration.owner != kNilUuid) recorded.owner = FormatUuid(configuration.owner);
  recorded.branch_epoch = configuration.branch.epoch;
  if (configuration.branch.owner != kNilUuid)
    recorded.branch_owner = FormatUuid(configuration.branch.owner);
  ListReplicas(configuration.replicas, &recorded.nodes, &recorded.replicas);
  for (const Configuration::Replica& replica : configuration.absent)
    recorded.absent.push_back(replica.address);
  return recorded;
}

}  // namespace

Result<RegionImage> ReadImage(const RegionFetch& fetch, uint64_t region_size, bool with_data) {
  if (region_size < kJournalOffset) return Corruption(Text("a region of ", region_size, " B"));
  int still = 0;
  for (int i = 0; i < kAttempts; ++i) {
    HL_ASSIGN_OR_RETURN(RegionImage image, RegionImage::Allocate(region_size));
    HL_ASSIGN_OR_RETURN(const Reading reading, ReadOnce(fetch, image.bytes(), with_data));
    still = reading == Reading::kStill ? still + 1 : 0;
    if (reading == Reading::kConsistent || still == kStillIsDamaged) return image;
  }
  return Busy(Text("the log was overwritten during each of ", kAttempts,
                   " readings; try again when there is less load"));
}

Result<RegionImage> ReadUntakenImage(const RegionFetch& fetch, const MarkFetch& mark,
                                     uint64_t region_size) {
  for (int i = 0; i < kTakenAttempts; ++i) {
    const NodeMark before = mark();
    HL_ASSIGN_OR_RETURN(RegionImage image, ReadImage(fetch, region_size, true));
    const NodeMark after = mark();
    const bool same = before.sealed == after.sealed && before.installed == after.installed;
    const bool taking = after.sealed != after.installed && after.heartbeat != before.heartbeat;
    if (same && !taking) return image;
  }
  return Busy(Text("a primary took the group during each of ", kTakenAttempts,
                   " readings; try again when it has done so"));
}

void DescribeImage(std::span<const std::byte> image, bool with_data, NodeStatus* status) {
  const Result<RegionInfo> info = ParseSuperblock(image, image.size());
  if (!info.ok()) {
    if (info.status().code() != Code::kNotFound) status->log_error = info.status().message();
    return;
  }
  status->formatted = true;
  status->group = FormatUuid(info->group);
  status->journal_size = info->geometry.journal_size;
  status->table_capacity = info->geometry.table_capacity;
  status->extents = info->geometry.extent_count;
  std::memcpy(&status->lock_word, image.data() + kLockOffset, sizeof(status->lock_word));
  const MemberCheck check =
      CheckMember(image, *info, 0, with_data ? CheckDepth::kExtents : CheckDepth::kMetadata);
  status->acked_seq = check.acked;
  if (!check.log_error.ok()) {
    status->log_error = check.log_error.message();
    return;
  }
  status->head_seq = check.log.head.cursor.seq;
  status->head_position = check.log.head.cursor.position;
  status->last_seq = check.log.tail.seq;
  status->last_epoch = check.log.tail.epoch;
  status->tail_position = check.log.tail.position;
  if (!check.metadata_error.ok()) {
    status->log_error = check.metadata_error.message();
    return;
  }
  status->damage = check.Damage(*info);
  if (check.binding.database != kNilUuid) status->database = FormatUuid(check.binding.database);
  status->directory = check.binding.directory;
  status->configuration = Describe(check.configuration);
  status->files = check.table.List();
  status->in_use = RangesInUse(info->geometry, check.table.map);
  status->extents_used = static_cast<uint64_t>(
      std::count_if(check.table.map.begin(), check.table.map.end(),
                    [](const MapEntry& entry) { return entry.slot_plus_one != 0; }));
}

}  // namespace hyperloop
