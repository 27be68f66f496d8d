#include "primary/own_content.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "hyperloop/core/text.h"
#include "inspect/member_check.h"
#include "log/log_scan.h"
#include "membership/fresh_pool.h"
#include "region/record.h"

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

// Whether the record is, or was, in the own log. The ring still has records that were executed,
// until others are written over them.
bool HasRecord(std::span<const std::byte> own, const RegionInfo& info, uint64_t seq, uint32_t crc) {
  const auto ring = own.subspan(kJournalOffset, info.geometry.journal_size);
  for (uint64_t at = 0; at < ring.size(); at += kRecordAlign) {
    RecordHeader header;
    std::memcpy(&header, ring.data() + at, sizeof(header));
    if (header.magic != info.record_magic || header.seq != seq || header.crc != crc) continue;
    RecordView view;
    if (ParseRecord(ring.subspan(at), info, &view) == RecordCheck::kValid) return true;
  }
  return false;
}

// Whether the record behind which `end` lies is, or was, in the own log.
bool Contains(std::span<const std::byte> own, const RegionInfo& info, const LogState& log,
              const LogCursor& end) {
  return log.head.cursor == end || HasRecord(own, info, end.seq, end.crc);
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

std::string Addresses(const Configuration& configuration) {
  std::string out;
  for (const Configuration::Replica& each : configuration.replicas)
    out += Text(out.empty() ? "" : ", ", each.address);
  return out;
}

// Why those that the newest configuration in the own log names may have gone on without the plan's
// members; empty: they have not. As with any other configuration, that takes a majority of them.
std::string WhyOfOthers(const TakePlan& plan, const Configuration& own) {
  const auto known = [&](const Configuration::Replica& each) {
    return plan.recorded.Has(each.address);
  };
  const auto is_there = [&](const Configuration::Replica& each) {
    return std::ranges::count(plan.configuration.replicas, each.node,
                              &Configuration::Replica::node) != 0;
  };
  if (plan.forced) {
    if (std::ranges::all_of(own.All(), known)) return "";
    return Text("it names replicas that are neither there nor given up: ", Addresses(own));
  }
  if (own.epoch < plan.recorded.epoch) return "";  // the members are enough by that one
  const auto there = static_cast<size_t>(std::ranges::count_if(own.replicas, is_there));
  if (there > own.replicas.size() / 2) return "";
  return Text(
      "only ", there, " of the ", own.replicas.size(),
      " replicas that the group had last are there, and the others may have gone on without "
      "them: ",
      Addresses(own), " (configuration of epoch ", own.epoch, ")");
}

// The checksum of the log's record `seq`, which is not behind its head. Nothing: it was written
// over, or the one behind it was.
std::optional<uint32_t> ExecutedCrc(std::span<const std::byte> image, const RegionInfo& info,
                                    const LogCursor& head, uint64_t seq) {
  struct Found {
    uint64_t seq;
    uint32_t crc, prev_crc;
  };
  std::vector<Found> found;
  const auto ring = image.subspan(kJournalOffset, info.geometry.journal_size);
  for (uint64_t at = 0; at < ring.size() && seq < head.seq; at += kRecordAlign) {
    RecordHeader header;
    std::memcpy(&header, ring.data() + at, sizeof(header));
    if (header.magic == info.record_magic && header.seq > seq && header.seq <= head.seq)
      found.push_back({header.seq, header.crc, header.prev_crc});
  }
  std::ranges::sort(found, std::greater<>(), &Found::seq);
  std::pair<uint64_t, uint32_t> record{head.seq, head.crc};
  for (const Found& each : found)
    if (record == std::pair(each.seq, each.crc)) record = {each.seq - 1, each.prev_crc};
  if (record.first != seq) return {};
  return record.second;
}

// A log, and the checksum of one of its records; nothing: its ring does not show that any more.
struct ShownRecord {
  LogState log;
  std::optional<uint32_t> crc;
};
Result<ShownRecord> Show(std::span<const std::byte> image, const RegionInfo& info, uint64_t seq) {
  ShownRecord out;
  const auto visit = [&](const RecordView& record, uint64_t) -> Status {
    if (record.header.seq == seq) out.crc = record.header.crc;
    return {};
  };
  HL_ASSIGN_OR_RETURN(out.log, ScanLog(image, info, 0, visit));
  const LogCursor& head = out.log.head.cursor;
  if (seq != 0 && seq <= head.seq) out.crc = ExecutedCrc(image, info, head, seq);
  return out;
}

// What was acknowledged is shown by any record in the ring, but which record that was, by the log
// alone: a push that was cut short leaves records of another log behind this one's.
HeldProof ProofOf(std::span<const std::byte> image, const RegionInfo& info) {
  LogCursor last;
  std::deque<LogCursor> pending;  // the log's next records
  const auto acknowledge = [&](uint64_t acked) {
    for (; !pending.empty() && pending.front().seq <= acked; pending.pop_front())
      last = pending.front();
  };
  const auto visit = [&](const RecordView& record, uint64_t) -> Status {
    const RecordHeader& header = record.header;
    pending.push_back({.seq = header.seq, .epoch = header.epoch, .crc = header.crc});
    acknowledge(header.acked_seq);
    return {};
  };
  const LogReading read = ReadLog(image, info, 0, visit);
  if (!read.error.ok()) return {info.group, read.acked, {}};
  if (last.seq == 0) last = read.log.head.cursor;
  return {info.group, read.acked, last};
}

// Whether the best log, which reaches that far, has the last acknowledged record of the own one.
// Nothing: its ring does not show that any more, or it cannot be read and is judged elsewhere.
std::optional<bool> BestHasLastOf(std::span<const std::byte> best, const HeldProof& held) {
  if (held.last.seq == 0) return true;
  const Result<RegionInfo> info = ParseSuperblock(best, best.size());
  if (!info.ok()) return {};
  const Result<ShownRecord> shown = Show(best, *info, held.last.seq);
  if (!shown.ok() || !shown->crc.has_value()) return {};
  return *shown->crc == held.last.crc;
}

// Whether something was acknowledged in the pool's branch, which began after `branch`. Whoever
// began `branch` gave up nothing of that.
bool OfLaterBranch(const MemberCheck& check, const HeldProof& held, const Branch& branch) {
  const Branch& own = check.configuration.branch;
  return check.readable() && own.epoch >= branch.epoch && held.last.epoch >= own.epoch;
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
  return WhyOfOthers(plan, check.configuration);
}

// The newest of the ring's records that state the greatest acknowledged seq; its seq is 0 if there
// is none. As in a search for evidence (log_scan.cc), damage cannot make the checking quadratic.
RecordHeader NewestRecord(std::span<const std::byte> image, const RegionInfo& info) {
  const auto ring = image.subspan(kJournalOffset, info.geometry.journal_size);
  RecordHeader newest{};
  uint64_t budget = 64 * ring.size();
  for (uint64_t at = 0; at < ring.size(); at += kRecordAlign) {
    RecordHeader header;
    std::memcpy(&header, ring.data() + at, sizeof(header));
    if (header.magic != info.record_magic ||
        std::pair(header.acked_seq, header.seq) <= std::pair(newest.acked_seq, newest.seq))
      continue;
    const uint64_t cost = std::min<uint64_t>(header.length, ring.size());
    if (cost > budget) break;
    budget -= cost;
    RecordView view;
    if (ParseRecord(ring.subspan(at), info, &view) == RecordCheck::kValid) newest = view.header;
  }
  return newest;
}

// Whether the own log has, or had, all that the member's ring shows to have been written there.
bool HasAllOf(std::span<const std::byte> own, const RegionInfo& info, const MemberCheck& check,
              const MemberProof& member) {
  if (member.journal.size() < info.geometry.journal_end()) return false;
  const RecordHeader newest = NewestRecord(member.journal, info);
  if (newest.seq == 0) return member.acked_seq == 0;
  const Configuration& last = check.configuration;
  const bool served_by_its_owner =
      last.epoch != 0 && member.served_epoch <= last.epoch && member.served_owner == last.owner;
  return (served_by_its_owner && newest.seq <= check.log.tail.seq) ||
         HasRecord(own, info, newest.seq, newest.crc);
}

// Why the own region may lack what the member has of the history; empty: it does not.
std::string WhyNotAll(std::span<const std::byte> own, const RegionInfo& info,
                      const MemberCheck& check, const MemberProof& member) {
  if (member.installed_epoch > check.configuration.epoch) {
    return Text("another primary may have written since: ", member.name, " has installed epoch ",
                member.installed_epoch, " (the pool's is ", check.configuration.epoch, ")");
  }
  if (member.joins || HasAllOf(own, info, check, member)) return "";
  return Text("it does not show that it has all that ", member.name,
              " ever had: another primary may have written since");
}

}  // namespace

Result<bool> OwnStandsIn(std::span<const std::byte> own, const std::string& pool,
                         const TakePlan& plan, const BestLog& best) {
  const Result<RegionInfo> info = ParseSuperblock(own, own.size());
  if (!info.ok() || info->group != plan.group) return false;
  const HeldProof held = ProofOf(own, *info);
  const bool reaches = held.acked_seq <= best.last_seq;
  const std::optional<bool> has_last =
      reaches ? BestHasLastOf(best.image, held) : std::optional<bool>();
  if (has_last == true) return false;
  const MemberCheck check = CheckMember(own, *info, 0, CheckDepth::kMetadata);
  std::string why;
  if (OfAnotherBranch(own, *info, check, plan.recorded.branch)) {
    if (!OfLaterBranch(check, held, plan.recorded.branch)) return false;
    why = Text("it was promoted by force under epoch ", check.configuration.branch.epoch,
               ", of which the replicas know nothing");
  } else if (!reaches) {
    why = WhyNot(own, *info, plan, best);
    if (why.empty()) return true;
  } else {
    if (!has_last.has_value()) return false;
    why =
        Text("record ", held.last.seq, " of that log is another one: another primary has written");
  }
  return Corruption(
      Text("the replicas went back to older copies of their pools: start them on the pools that "
           "they had; if those are lost for good, keep copies of the database directory and of ",
           pool, ", then move it away. It has ", held.acked_seq, " as acknowledged, the log of ",
           best.name, " ends at ", best.last_seq, "; it cannot stand in: ", why));
}

Result<bool> OwnReplaces(std::span<const std::byte> own, const std::string& pool,
                         const TakePlan& plan, std::span<const MemberProof> members) {
  const Result<RegionInfo> info = ParseSuperblock(own, own.size());
  if (!info.ok() || info->group != plan.group || own.size() != plan.region_size) return false;
  const uint64_t acked = HighestAcked(own, *info);
  for (const MemberProof& each : members)
    if (each.acked_seq > acked) return false;
  const MemberCheck check = CheckMember(own, *info);
  if (OfAnotherBranch(own, *info, check, plan.recorded.branch)) return false;
  std::string why;
  if (!check.sound()) {
    why = Text("it is damaged: ", check.Damage(*info).front());
  } else {
    why = WhyOfOthers(plan, check.configuration);
  }
  for (const MemberProof& each : members)
    if (why.empty()) why = WhyNotAll(own, *info, check, each);
  if (why.empty()) return true;
  return Corruption(
      Text("the primary's own pool ", pool, " cannot take their place, because ", why));
}

HeldProof ProofHeld(std::span<const std::byte> theirs, uint64_t region_size) {
  const Result<RegionInfo> info = ParseSuperblock(theirs, region_size);
  if (!info.ok()) return {};
  return ProofOf(theirs, *info);
}

Status CheckNothingBehind(const std::string& replica, const HeldProof& held,
                          std::span<const std::byte> own, const RegionInfo& info,
                          const std::string& whose) {
  if (held.group != info.group) return {};
  HL_ASSIGN_OR_RETURN(const LogState log, ScanLog(own, info));
  if (held.acked_seq <= log.tail.seq) return {};
  return Corruption(
      Text(replica, " proves that everything up to record ", held.acked_seq,
           " was acknowledged, but the log of ", whose, " ends at ", log.tail.seq,
           ": start the others on the pools that they had. To give this up, hyperloopctl export "
           "--replica N --to DIR --partial, then ",
           kFreshPool, ", or end it, with on_replica_failure=continue"));
}

Status CheckReplaceable(const std::string& replica, const HeldProof& held,
                        std::span<const std::byte> own, const RegionInfo& info, HeldBy by) {
  if (held.group != info.group) return {};
  HL_ASSIGN_OR_RETURN(const ShownRecord shown, Show(own, info, held.last.seq));
  const auto refused = [&](const std::string& what) {
    return InvalidArgument(Text(replica, " proves that everything up to record ", held.acked_seq,
                                " was acknowledged, ", what,
                                ". So it is not overwritten: hyperloopctl export --replica N --to "
                                "DIR --partial writes what it holds; to take it in, ",
                                kFreshPool));
  };
  if (held.acked_seq > shown.log.tail.seq)
    return refused(Text("but the group's log ends at ", shown.log.tail.seq));
  if (held.last.seq == 0 || (!shown.crc.has_value() && by == HeldBy::kMember)) return {};
  if (shown.crc == held.last.crc) return {};
  return refused(Text("but record ", held.last.seq, " of the group's log is another one",
                      by == HeldBy::kRival ? ", or is not shown any more" : ""));
}

uint64_t LastEpoch(std::span<const std::byte> region) {
  const Result<RegionInfo> info = ParseSuperblock(region, region.size());
  if (!info.ok()) return 0;
  const Result<LogState> log = ScanLog(region, *info);
  return log.ok() ? log->tail.epoch : 0;
}

}  // namespace hyperloop
