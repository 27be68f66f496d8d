#include "follow/log_follower.h"

#include <algorithm>
#include <cstring>

#include "inspect/member_check.h"
#include "log/log_scan.h"
#include "log/redo.h"

namespace hyperloop {
namespace {

constexpr uint64_t kFirstPiece = 4u << 10, kLargestPiece = 1u << 20;

bool SameEpoch(const NodeMark& a, const NodeMark& b) {
  return a.sealed == b.sealed && a.installed == b.installed;
}
bool IsInstalled(const NodeMark& mark) {
  return mark.installed != 0 && mark.sealed == mark.installed;
}

}  // namespace

Result<LogFollower::Progress> LogFollower::CatchUp() {
  HL_ASSIGN_OR_RETURN(const NodeMark mark, mark_());
  if (!IsInstalled(mark)) return Progress::kAwaitsPrimary;
  if (!image_.has_value() || !SameEpoch(mark, shown_)) return ReadAnew(mark);
  return Append(mark);
}

Result<LogFollower::Progress> LogFollower::ReadAnew(const NodeMark& mark) {
  ++whole_reads_;
  const MarkFetch each = [&] {
    const Result<NodeMark> now = mark_();
    return now.ok() ? *now : NodeMark{};
  };
  HL_ASSIGN_OR_RETURN(RegionImage image, ReadUntakenImage(fetch_, each, region_size_));
  HL_ASSIGN_OR_RETURN(const NodeMark after, mark_());
  if (!SameEpoch(mark, after)) return Progress::kAwaitsPrimary;
  HL_ASSIGN_OR_RETURN(const RegionInfo info, ParseSuperblock(image.bytes(), region_size_));
  const MemberCheck check = CheckMember(image.bytes(), info);
  if (!check.sound()) return Corruption(check.Damage(info).front());
  HL_ASSIGN_OR_RETURN(const LogState log, Redo(image.bytes(), info));
  image_ = std::move(image);
  info_ = info;
  shown_ = mark;
  at_ = log.tail;
  // The image is younger than the mark. A word that exceeds it is not the primary's.
  acked_ = std::max(HighestDecided(image_->bytes(), info_), mark.acked <= at_.seq ? mark.acked : 0);
  end_ = at_;
  return Progress::kReadAnew;
}

Result<LogFollower::Progress> LogFollower::Append(const NodeMark& mark) {
  HL_ASSIGN_OR_RETURN(Records records, ReadRecords());
  // Under no checksum, so it is believed only of records that are there.
  records.acked = std::max(records.acked, std::min(mark.acked, records.end.seq));
  HL_ASSIGN_OR_RETURN(const NodeMark after, mark_());
  if (!SameEpoch(mark, after)) return Progress::kAwaitsPrimary;
  // The head has passed records that are not in the ring any more.
  if (records.passed > records.end.seq) return ReadAnew(mark);
  const bool hidden = !shows();
  acked_ = std::max(acked_, records.acked);
  const uint64_t before = at_.seq;
  for (const RecordView& record : records.views) {
    const RecordHeader& h = record.header;
    if (h.seq > acked_) break;
    ApplyRecord(image_->bytes(), info_, record);
    at_ = {h.seq, h.epoch, at_.position + AlignRecord(h.length), h.crc};
  }
  end_ = records.end;
  return at_.seq != before || (hidden && shows()) ? Progress::kAppended : Progress::kNone;
}

Result<LogFollower::Records> LogFollower::ReadRecords() {
  const uint64_t size = info_.geometry.journal_size;
  // First, so that records which it has passed were either read below or overwritten before.
  HL_RETURN_IF_ERROR(fetch_(0, image_->bytes().first(kLockOffset)));
  HL_ASSIGN_OR_RETURN(const Head head, ReadHead(image_->bytes(), info_));
  const std::span<const std::byte> ring = image_->bytes().subspan(kJournalOffset, size);
  Records records;
  records.passed = head.cursor.seq;
  records.acked = head.cursor.seq - head.undecided;
  LogCursor tail = at_;
  present_ = at_.position;
  piece_ = kFirstPiece;
  while (tail.position - at_.position < size) {
    const uint64_t offset = tail.position % size;
    HL_RETURN_IF_ERROR(Need(tail.position + sizeof(RecordHeader)));
    RecordHeader header;
    std::memcpy(&header, ring.data() + offset, sizeof(header));
    if (header.magic != info_.record_magic || !Continues(header, tail)) break;
    const bool pad = header.type == static_cast<uint8_t>(RecordType::kPad);
    const uint64_t length = AlignRecord(header.length);
    if (length > std::min(size - offset, size - (tail.position - at_.position))) break;
    if (!pad) HL_RETURN_IF_ERROR(Need(tail.position + length));
    RecordView view;
    const RecordCheck check = ParseRecord(ring.subspan(offset), info_, &view);
    if (check == RecordCheck::kMalformed)
      return Corruption("a record passes its checksum but holds impossible values");
    if (check == RecordCheck::kNone) break;  // it is being written
    records.acked = std::max(records.acked, header.acked_seq);
    tail = {header.seq, header.epoch, tail.position + length, header.crc};
    if (pad) present_ = std::max(present_, tail.position);
    records.views.push_back(view);
  }
  records.end = tail;
  return records;
}

Status LogFollower::Need(uint64_t position) {
  const uint64_t size = info_.geometry.journal_size;
  while (present_ < position) {
    const uint64_t offset = present_ % size;
    const uint64_t wanted = std::max(piece_, position - present_);
    // Neither beyond the ring's end, nor over what was read of this lap.
    const uint64_t piece = std::min({wanted, size - offset, size - (present_ - at_.position)});
    HL_RETURN_IF_ERROR(
        fetch_(kJournalOffset + offset, image_->bytes().subspan(kJournalOffset + offset, piece)));
    present_ += piece;
    piece_ = std::min(2 * piece_, kLargestPiece);
  }
  return {};
}

}  // namespace hyperloop
