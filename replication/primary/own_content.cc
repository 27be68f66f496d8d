#include "primary/own_content.h"

#include <algorithm>
#include <cstring>

#include "files/member_check.h"
#include "hyperloop/core/text.h"
#include "journal/log_scan.h"
#include "layout/record.h"

namespace hyperloop {
namespace {

// Whether the region is known to be of another branch of the history. The newest records say that,
// or, if they are damaged, what was executed.
bool OfAnotherBranch(std::span<const std::byte> own, const RegionInfo& info,
                     const MemberCheck& check, const Branch& branch) {
  if (check.readable()) return check.configuration.branch != branch;
  const Result<Configuration> executed =
      ParseConfigurationBlock(own.subspan(info.geometry.configuration_offset()), info);
  return executed.ok() ? executed->branch != branch : branch.epoch != 0;
}

// Whether the record behind which `end` lies is, or was, in the own log. The ring still has records
// that were executed, until others are written over them.
bool Contains(std::span<const std::byte> own, const RegionInfo& info, const LogState& log,
              const LogCursor& end) {
  if (log.head.cursor == end) return true;
  const auto ring = own.subspan(kJournalOffset, info.geometry.journal_size);
  for (uint64_t at = 0; at < ring.size(); at += kRecordAlign) {
    RecordHeader header;
    std::memcpy(&header, ring.data() + at, sizeof(header));
    if (header.magic != info.record_magic || header.seq != end.seq || header.crc != end.crc)
      continue;
    RecordView view;
    if (ParseRecord(ring.subspan(at), info, &view) == RecordCheck::kValid) return true;
  }
  return false;
}

// Whether one owner, of one taking, wrote the ends of both logs. All that it ever sent was in its
// own region first.
bool SameOwner(const Configuration& own, const Configuration& best) {
  return own.epoch != 0 && own.epoch >= best.epoch && own.owner == best.owner;
}

// Whether the own region has all that the best log has.
bool GoesOn(std::span<const std::byte> own, const RegionInfo& info, const MemberCheck& check,
            const MemberCheck& best) {
  if (check.configuration.epoch < best.configuration.epoch) return false;
  return SameOwner(check.configuration, best.configuration) ||
         Contains(own, info, check.log, best.log.tail);
}

// Whether each replica of the newest configuration in the own log is one of the plan's group.
bool KnowsAll(const TakePlan& plan, const Configuration& own) {
  const std::vector<Configuration::Replica> replicas = own.All();
  return std::all_of(replicas.begin(), replicas.end(),
                     [&](const auto& each) { return plan.recorded.Has(each.address); });
}

// Why the own region cannot take the place of the best log; empty: it can.
std::string WhyNot(std::span<const std::byte> own, const RegionInfo& info, const TakePlan& plan,
                   const BestLog& best) {
  const MemberCheck check = CheckMember(own, info);
  if (!check.sound()) return Text("it is damaged: ", check.Damage(info).front());
  const Result<RegionInfo> theirs = ParseSuperblock(best.image, best.image.size());
  if (!theirs.ok()) return theirs.status().message();
  if (theirs->geometry != info.geometry) return "its parts have other sizes";
  const MemberCheck other = CheckMember(best.image, *theirs, 0, CheckDepth::kMetadata);
  if (!other.readable()) return Text(best.name, " is damaged");
  if (!GoesOn(own, info, check, other)) {
    return Text(
        "it does not go on where that log ends: another primary may have written since, "
        "under epoch ",
        other.configuration.epoch, " (the pool's is ", check.configuration.epoch, ")");
  }
  if (!KnowsAll(plan, check.configuration))
    return "it names replicas that are not of the group's configuration";
  return "";
}

}  // namespace

Result<bool> OwnStandsIn(std::span<const std::byte> own, const std::string& pool,
                         const TakePlan& plan, const BestLog& best) {
  const Result<RegionInfo> info = ParseSuperblock(own, own.size());
  if (!info.ok() || info->group != plan.group || own.size() != best.image.size()) return false;
  const uint64_t acked = HighestAcked(own, *info);
  if (acked <= best.last_seq) return false;
  const MemberCheck check = CheckMember(own, *info, 0, CheckDepth::kMetadata);
  if (OfAnotherBranch(own, *info, check, plan.recorded.branch)) return false;
  const std::string why = WhyNot(own, *info, plan, best);
  if (why.empty()) return true;
  return Corruption(Text(
      "the primary's own pool ", pool, " states that everything up to record ", acked,
      " was acknowledged, but the best log of the replicas, that of ", best.name, ", ends at ",
      best.last_seq,
      ": they went back to older copies of their pools. The pool cannot take their "
      "place, because ",
      why,
      ". Nothing was changed. Start the replicas on the pools that they "
      "had. Only if those are lost for good: keep copies of the database directory and of ",
      pool,
      ", which may be all that is left of what was acknowledged since, and move the pool away; the "
      "next opening then goes on with what the replicas hold"));
}

uint64_t LastEpoch(std::span<const std::byte> region) {
  const Result<RegionInfo> info = ParseSuperblock(region, region.size());
  if (!info.ok()) return 0;
  const Result<LogState> log = ScanLog(region, *info);
  return log.ok() ? log->tail.epoch : 0;
}

}  // namespace hyperloop
