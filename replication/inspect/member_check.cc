#include "inspect/member_check.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>

#include "hyperloop/core/text.h"
#include "log/redo.h"
#include "region/crc32c.h"
#include "region/record.h"

namespace hyperloop {
namespace {

constexpr uint64_t kPiece = 64 << 10;

// A record that was copied to memory of its own and is parsed there.
struct HeldRecord {
  std::vector<std::byte> bytes;
  RecordView view;
};
using HeldRecords = std::vector<HeldRecord>;

// Copies the log of `image` record by record. A record whose copy is not valid was overwritten
// meanwhile: kCorruption.
Result<LogState> HoldLog(std::span<const std::byte> image, const RegionInfo& info,
                         uint64_t known_acked, HeldRecords* records) {
  return ScanLog(image, info, known_acked, [&](const RecordView& view, uint64_t at) -> Status {
    if (view.header.type == static_cast<uint8_t>(RecordType::kPad)) return {};
    HeldRecord& held = records->emplace_back();
    const auto record = image.subspan(kJournalOffset + at, view.header.length);
    held.bytes.assign(record.begin(), record.end());
    if (ParseRecord(held.bytes, info, &held.view) == RecordCheck::kValid &&
        held.view.header.crc == view.header.crc)
      return {};
    return Corruption(Text("record ", view.header.seq, " at region offset ", kJournalOffset + at,
                           " changed while it was read"));
  });
}

// Bytes that a record puts into an extent.
struct Overlay {
  uint64_t within = 0;  // offset in the extent
  std::span<const std::byte> bytes;
};
// By extent, in the order of the records.
using Overlays = std::map<uint32_t, std::vector<Overlay>>;

void AddOverlays(const RecordView& record, const RegionGeometry& g, Overlays* overlays) {
  std::span<const std::byte> rest = record.payload;
  for (size_t i = 0; i < record.header.entry_count; ++i) {
    const RecordEntry entry = record.entry(i);
    auto bytes = rest.first(entry.length);
    rest = rest.subspan(entry.length);
    uint64_t at = entry.destination;
    if (at < g.data_offset) {
      const uint64_t before = std::min<uint64_t>(g.data_offset - at, bytes.size());
      bytes = bytes.subspan(before);
      at += before;
    }
    while (!bytes.empty()) {
      const auto extent = static_cast<uint32_t>(g.ExtentAt(at));
      const uint64_t within = (at - g.data_offset) & (g.extent_size - 1);
      const auto part = bytes.first(std::min<uint64_t>(g.extent_size - within, bytes.size()));
      (*overlays)[extent].push_back({within, part});
      at += part.size();
      bytes = bytes.subspan(part.size());
    }
  }
}

// Computes the checksum of an extent's used bytes, one piece at a time.
class ExtentSum {
 public:
  ExtentSum(std::span<const std::byte> image, const RegionInfo& info, uint32_t extent,
            const MapEntry& entry, const std::vector<Overlay>* overlays)
      : bytes_(image.subspan(info.geometry.ExtentOffset(extent), entry.length)),
        overlays_(overlays),
        entry_(entry),
        crc_(ExtentSeed(info, entry.slot_plus_one, entry.index)) {}

  bool done() const { return at_ == bytes_.size(); }
  bool right() const { return crc_ == entry_.crc; }
  uint64_t Step() {
    const uint64_t n = std::min<uint64_t>(kPiece, bytes_.size() - at_);
    if (overlays_ == nullptr) {
      crc_ = Crc32c(crc_, bytes_.data() + at_, n);
    } else {
      std::array<std::byte, kPiece> scratch;
      std::memcpy(scratch.data(), bytes_.data() + at_, n);
      const RegionWindow window{std::span(scratch).first(n), at_};
      for (const Overlay& overlay : *overlays_) window.Put(overlay.within, overlay.bytes);
      crc_ = Crc32c(crc_, scratch.data(), n);
    }
    at_ += n;
    return n;
  }

 private:
  std::span<const std::byte> bytes_;
  const std::vector<Overlay>* overlays_;
  MapEntry entry_;
  uint32_t crc_;
  uint64_t at_ = 0;
};

ExtentDamage DamageOf(uint32_t extent, const FileTable& table) {
  const MapEntry& entry = table.map[extent];
  return {extent, entry.index, table.slots[entry.slot_plus_one - 1].file.name};
}

}  // namespace

// --- messages

std::string ExtentDamage::Text(const RegionInfo& info, const FileTable& table) const {
  const uint64_t begin = uint64_t{index} * info.geometry.extent_size;
  return hyperloop::Text("extent ", extent, " (\"", file, "\", bytes ", begin, " to ",
                         begin + table.map[extent].length - 1, ") fails its checksum");
}

std::vector<std::string> MemberCheck::Damage(const RegionInfo& info) const {
  std::vector<std::string> texts;
  if (!log_error.ok()) texts.push_back(log_error.message());
  if (!metadata_error.ok()) texts.push_back(metadata_error.message());
  for (const ExtentDamage& each : damaged) texts.push_back(each.Text(info, table));
  return texts;
}

// --- checking

class Scrubber::Work {
 public:
  Work(std::span<const std::byte> image, const RegionInfo& info, uint64_t known_acked)
      : image_(image), info_(info) {
    // The places to which records apply are copied first. A record that is executed meanwhile is
    // then still in the log.
    const RegionGeometry& g = info.geometry;
    const auto metadata = image.subspan(g.binding_offset, g.data_offset - g.binding_offset);
    metadata_.assign(metadata.begin(), metadata.end());
    auto log = HoldLog(image, info, known_acked, &records_);
    check.acked = HighestAcked(image, info);
    check.log_error = log.status();
    if (!log.ok()) return;
    check.log = *log;
    check.metadata_error = LoadMetadata();
    if (!check.metadata_error.ok()) check.table = {};
  }

  // Checks extents; true: all are checked.
  bool Step(uint64_t budget) {
    if (!check.readable()) return true;
    uint64_t spent = 0;
    for (; next_ < check.table.map.size(); ++next_, sum_.reset()) {
      const MapEntry& entry = check.table.map[next_];
      if (entry.slot_plus_one == 0) continue;
      const auto overlays = overlays_.find(next_);
      if (!sum_.has_value())
        sum_.emplace(image_, info_, next_, entry,
                     overlays == overlays_.end() ? nullptr : &overlays->second);
      while (!sum_->done()) {
        if (spent >= budget) return false;
        spent += sum_->Step();
      }
      if (!sum_->right()) check.damaged.push_back(DamageOf(next_, check.table));
    }
    return true;
  }

  MemberCheck check;

 private:
  Status LoadMetadata() {
    const RegionGeometry& g = info_.geometry;
    const RegionWindow window{metadata_, g.binding_offset};
    for (const HeldRecord& record : records_) {
      ApplyRecord(std::span(&window, 1), info_, record.view);
      AddOverlays(record.view, g, &overlays_);
    }
    const std::span<const std::byte> bytes = metadata_;
    HL_ASSIGN_OR_RETURN(check.binding, ParseBindingBlock(bytes, info_));
    HL_ASSIGN_OR_RETURN(
        check.configuration,
        ParseConfigurationBlock(bytes.subspan(g.configuration_offset() - g.binding_offset), info_));
    HL_ASSIGN_OR_RETURN(check.table, FileTable::LoadMetadata(bytes, info_));
    return {};
  }

  const std::span<const std::byte> image_;
  const RegionInfo info_;
  std::vector<std::byte> metadata_;
  HeldRecords records_;
  Overlays overlays_;
  uint32_t next_ = 0;
  std::optional<ExtentSum> sum_;
};

MemberCheck CheckMember(std::span<const std::byte> image, const RegionInfo& info,
                        uint64_t known_acked, CheckDepth depth) {
  if (image.size() < info.geometry.region_size) {
    MemberCheck cut;
    cut.log_error = Corruption(
        Text("image of ", image.size(), " B, the superblock states ", info.geometry.region_size));
    return cut;
  }
  Scrubber::Work work(image, info, known_acked);
  if (depth == CheckDepth::kExtents) work.Step(UINT64_MAX);
  return std::move(work.check);
}

std::vector<ExtentDamage> VerifyExtents(std::span<const std::byte> image, const RegionInfo& info,
                                        const FileTable& table) {
  std::vector<ExtentDamage> damaged;
  for (uint32_t extent = 0; extent < table.map.size(); ++extent) {
    if (table.map[extent].slot_plus_one == 0) continue;
    ExtentSum sum(image, info, extent, table.map[extent], nullptr);
    while (!sum.done()) sum.Step();
    if (!sum.right()) damaged.push_back(DamageOf(extent, table));
  }
  return damaged;
}

// --- mending

namespace {

// An extent and its map entry, as another member has them.
struct ExtentCopy {
  MapEntry entry{};
  std::vector<std::byte> bytes;
};

// Fetches a copy and applies the log's records to it. The result is not checked yet.
Result<ExtentCopy> FetchCopy(const RegionInfo& info, const HeldRecords& records, uint32_t extent,
                             size_t member, const MemberFetch& fetch) {
  const RegionGeometry& g = info.geometry;
  ExtentCopy copy;
  copy.bytes.resize(g.extent_size);
  const auto entry = std::as_writable_bytes(std::span(&copy.entry, 1));
  HL_RETURN_IF_ERROR(fetch(member, g.MapOffset(extent), entry));
  HL_RETURN_IF_ERROR(fetch(member, g.ExtentOffset(extent), copy.bytes));
  const RegionWindow windows[] = {{entry, g.MapOffset(extent)},
                                  {copy.bytes, g.ExtentOffset(extent)}};
  for (const HeldRecord& record : records) ApplyRecord(windows, info, record.view);
  return copy;
}

// Whether the bytes of the copy have the checksum of `ours`, or else, if they are of an equal
// member, that of the copy's own map entry, and the two entries agree otherwise.
bool IsRight(const RegionInfo& info, const ExtentCopy& copy, const MapEntry& ours, bool equal) {
  const uint32_t crc =
      Crc32c(ExtentSeed(info, ours.slot_plus_one, ours.index), copy.bytes.data(), ours.length);
  MapEntry theirs = ours;
  theirs.crc = crc;
  return crc == ours.crc || (equal && copy.entry == theirs);
}

// Mends one extent and returns the member that had it sound.
Result<size_t> MendExtent(std::span<std::byte> region, const RegionInfo& info,
                          const FileTable& table, const HeldRecords& records,
                          const ExtentDamage& damage, const MendSources& sources) {
  MapEntry entry = table.map[damage.extent];
  std::string reasons;
  for (size_t member = 0; member < sources.members; ++member) {
    const auto copy = FetchCopy(info, records, damage.extent, member, sources.fetch);
    if (!copy.ok()) reasons += "; " + copy.status().message();
    if (!copy.ok() || !IsRight(info, *copy, entry, member < sources.equal)) continue;
    entry.crc = Crc32c(ExtentSeed(info, entry.slot_plus_one, entry.index), copy->bytes.data(),
                       entry.length);
    const RegionGeometry& g = info.geometry;
    std::memcpy(region.data() + g.MapOffset(damage.extent), &entry, sizeof(entry));
    std::memcpy(region.data() + g.ExtentOffset(damage.extent), copy->bytes.data(), entry.length);
    return member;
  }
  return Corruption(
      Text(damage.Text(info, table), ", and no member has a sound copy of it", reasons));
}

}  // namespace

Result<std::vector<MendedExtent>> MendExtents(std::span<std::byte> region, const RegionInfo& info,
                                              const FileTable& table,
                                              std::span<const ExtentDamage> damaged,
                                              const MendSources& sources) {
  HeldRecords records;
  HL_RETURN_IF_ERROR(HoldLog(region, info, 0, &records).status());
  std::vector<MendedExtent> mended;
  for (const ExtentDamage& damage : damaged) {
    HL_ASSIGN_OR_RETURN(const size_t member,
                        MendExtent(region, info, table, records, damage, sources));
    mended.push_back({damage, member});
  }
  return mended;
}

// --- scrubbing

Scrubber::Scrubber(std::span<const std::byte> image, const RegionInfo& info)
    : image_(image), info_(info) {}
Scrubber::~Scrubber() = default;
Scrubber::Scrubber(Scrubber&&) noexcept = default;
Scrubber& Scrubber::operator=(Scrubber&&) noexcept = default;

bool Scrubber::Step(uint64_t budget) {
  if (done_) return true;
  if (work_ == nullptr) {
    work_ = std::make_unique<Work>(image_, info_, 0);
    return false;
  }
  if (!work_->Step(budget)) return false;
  Finish();
  return true;
}

// If the log still begins and ends where it did, everything that was read is of one moment: the
// records behind the head were applied to it, and no other record was executed meanwhile.
void Scrubber::Finish() {
  done_ = true;
  MemberCheck check = std::move(work_->check);
  work_.reset();
  const Result<LogState> now = ScanLog(image_, info_);
  if (now.ok() != check.log_error.ok()) return;
  const bool still = now.ok()
                         ? now->head.cursor == check.log.head.cursor && now->tail == check.log.tail
                         : now.status().message() == check.log_error.message();
  if (still) result_ = std::move(check);
}

}  // namespace hyperloop
