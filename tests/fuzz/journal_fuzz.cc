// Region images of any content: superblock, heads, log, redo, file table, and the node page.
//
// An input is a list of edits to a freshly formatted image. Most edits give a structure the right
// checksum (and a record its place in the chain), so that the code behind the CRC check is reached;
// raw bytes are one more kind of edit. Rules: nothing reads or writes outside the image
// (AddressSanitizer); a refused image is unchanged; redo changes applied bytes only, and a second
// redo changes nothing.
#include "fuzz/fuzz.h"
#include "inspect/member_check.h"
#include "log/file_table.h"
#include "log/log_scan.h"
#include "log/redo.h"
#include "region/crc32c.h"
#include "region/region_layout.h"

namespace hyperloop::fuzz {
namespace {

constexpr uint64_t kJournal = 16384;
constexpr uint32_t kFiles = 16, kExtents = 8, kExtentSize = 4096;
constexpr uint64_t kRegion =
    kJournalOffset + kJournal + 4096 + 4096 + 4096 + kExtents * kExtentSize;

enum Edit : uint8_t {
  kRaw,
  kRecord,
  kHead,
  kTable,
  kMap,
  kBinding,
  kSuperblock,
  kNode,
  kConfiguration,
  kEdits
};
// How a record departs from the one that continues the log.
enum Fault : uint8_t { kBadCrc = 1, kBadChain = 2, kSkipSeq = 4, kOldEpoch = 8, kLongHeader = 16 };

template <class T>
void SetCrc(T* block, uint32_t seed) {
  block->crc = 0;
  block->crc = Crc32c(seed, block, sizeof(*block));
}

class Image {
 public:
  Image() : bytes_(kRegion), page_(kNodePageSize) {
    const auto geometry = RegionGeometry::Compute(kRegion, kJournal, kFiles, kExtentSize);
    HL_FUZZ_CHECK(geometry.ok(), geometry.status().ToString());
    HL_FUZZ_CHECK(FormatRegion(bytes_, Uuid{1, 2, 3}, RegionSecret{4, 5, 6}, *geometry).ok(),
                  "format");
    info_ = *ParseSuperblock(bytes_, bytes_.size());
    tail_ = ReadHead(bytes_, info_)->cursor;
  }

  void Apply(Reader& in) {
    seed_ = in.U8();
    for (int i = 0; i < 100 && !in.done(); ++i) {
      switch (in.U8() % kEdits) {
        case kRaw: {
          const uint64_t at = in.U32() % kRegion;
          in.Fill(bytes_.data() + at, std::min<uint64_t>(in.U8(), kRegion - at));
          break;
        }
        case kRecord:
          AddRecord(in);
          break;
        case kHead:
          SetHead(in);
          break;
        case kTable:
          SetTable(in);
          break;
        case kMap: {
          const MapEntry entry{in.U8(), in.U8(), in.U16() % (kExtentSize + 2u), in.U8()};
          Store(info_.geometry.MapOffset(in.U8() % kExtents), entry);
          break;
        }
        case kBinding: {
          BindingBlock block = MakeBindingBlock(info_, {Uuid{7}, "/some/where"});
          in.Fill(reinterpret_cast<uint8_t*>(&block) + in.U8(), 32);
          SetCrc(&block, info_.seed);
          Store(info_.geometry.binding_offset, block);
          break;
        }
        case kConfiguration: {
          ConfigurationBlock block =
              *MakeConfigurationBlock(info_, {in.U8(), Uuid{7}, {{Uuid{8}, "127.0.0.1:1"}}});
          in.Fill(reinterpret_cast<uint8_t*>(&block) + 16 + in.U8() % 120, in.U8() % 32);
          SetCrc(&block, info_.seed);
          Store(info_.geometry.configuration_offset(), block);
          break;
        }
        case kSuperblock: {
          Superblock block;
          std::memcpy(&block, bytes_.data(), sizeof(block));
          in.Fill(reinterpret_cast<uint8_t*>(&block) + in.U8() % 96, 1 + in.U8() % 16);
          SetCrc(&block, 0);
          Store(0, block);
          break;
        }
        default:
          SetNode(in);
      }
    }
  }

  void Check() {
    CheckNodePage();
    const auto info = ParseSuperblock(bytes_, bytes_.size());
    if (!info.ok()) return;
    ParseBindingBlock(std::span(bytes_).subspan(info->geometry.binding_offset), *info)
        .status()
        .IgnoreError();
    uint64_t visited = 0;
    const auto state = ScanLog(bytes_, *info, 0, [&](const RecordView& record, uint64_t at) {
      HL_FUZZ_CHECK(at + AlignRecord(record.header.length) <= info->geometry.journal_size, "place");
      ++visited;
      return Status();
    });
    if (state.ok()) HL_FUZZ_CHECK(visited == state->records, "records were miscounted");
    std::vector<std::byte> redone = bytes_;
    const auto redo = Redo(redone, *info);
    HL_FUZZ_CHECK(redo.ok() == state.ok(), "scan and redo disagree");
    const size_t applied = info->geometry.binding_offset;
    HL_FUZZ_CHECK(
        std::memcmp(redone.data(), bytes_.data(), redo.ok() ? applied : redone.size()) == 0,
        "redo changed what it must leave alone");
    if (redo.ok()) {
      std::vector<std::byte> again = redone;
      HL_FUZZ_CHECK(Redo(again, *info).ok() && again == redone, "redo twice is not redo once");
      CheckNewHead(redone, *info, *redo);
    }
    const auto cut = std::span(redone).first(redone.size() - kExtentSize);
    if (info->geometry.region_size == redone.size())
      HL_FUZZ_CHECK(!Redo(cut, *info).ok() && !CheckMember(cut, *info).readable() &&
                        !FileTable::Load(cut, *info).ok(),
                    "a region without its end");
    CheckFiles(redone, *info);
    CheckTheCheck(redone, redo.ok(), *info);
  }

 private:
  template <class T>
  void Store(uint64_t offset, const T& value) {
    static_assert(sizeof(T) <= 4096);
    std::memcpy(bytes_.data() + offset, &value, sizeof(value));
  }

  // Adds a record behind the last one; the input chooses its entries' lengths and places, and its
  // faults.
  void AddRecord(Reader& in) {
    const uint8_t faults = in.U8();
    RecordHeader h{};
    h.magic = info_.record_magic;
    h.prev_crc = tail_.crc ^ ((faults & kBadChain) != 0 ? 1 : 0);
    h.type = in.U8() % 8;
    h.entry_count = in.U8() % 5;
    h.seq = tail_.seq + ((faults & kSkipSeq) != 0 ? 2 : 1);
    h.epoch = tail_.epoch + in.U8() - ((faults & kOldEpoch) != 0 ? 1 : 0);
    h.acked_seq = std::min<uint64_t>(in.U8(), tail_.seq + 1);
    h.executed_seq = std::min<uint64_t>(in.U8(), h.acked_seq + 1);
    h.file_slot = in.U8() < 128 ? kNoSlot : in.U8() % (kFiles + 2);
    h.file_end = h.file_slot == kNoSlot ? 0 : in.U32();
    std::vector<std::byte> record(sizeof(h));
    std::vector<std::byte> payload;
    for (uint32_t i = 0; i < h.entry_count; ++i) {
      const uint64_t base = in.U8() < 200 ? info_.geometry.binding_offset : 0;
      const RecordEntry entry{base + in.U32() % (kRegion - base + 64), 1u + in.U16() % 1100u, 0};
      const auto* raw = reinterpret_cast<const std::byte*>(&entry);
      record.insert(record.end(), raw, raw + sizeof(entry));
      payload.resize(payload.size() + entry.length, static_cast<std::byte>(in.U8()));
    }
    record.insert(record.end(), payload.begin(), payload.end());
    const uint64_t at = tail_.position % kJournal;
    const uint64_t room = kJournal - at;
    const bool pad = h.type == static_cast<uint8_t>(RecordType::kPad);
    h.length = static_cast<uint32_t>(pad ? room : record.size());
    if ((faults & kLongHeader) != 0) h.length += in.U16();
    std::memcpy(record.data(), &h, sizeof(h));
    h.crc = RecordCrc(record.data(), pad ? sizeof(h) : record.size(), info_.seed) ^
            ((faults & kBadCrc) != 0 ? 1 : 0);
    std::memcpy(record.data(), &h, sizeof(h));
    std::memcpy(bytes_.data() + kJournalOffset + at, record.data(),
                std::min<uint64_t>(record.size(), room));
    tail_ = {h.seq, h.epoch, tail_.position + AlignRecord(h.length), h.crc};
  }

  void SetHead(Reader& in) {
    const uint8_t which = in.U8();
    Head head;
    head.generation = in.U8();
    head.cursor = tail_;
    if ((which & 2) != 0) head.cursor.position = in.U64();
    if ((which & 4) != 0) head.cursor.seq = in.U64();
    if ((which & 8) != 0) head.cursor.crc = in.U32();
    Store(kHeadOffsets[which & 1], MakeHeadBlock(info_, head));
  }

  void SetTable(Reader& in) {
    const uint32_t slot = in.U8() % kFiles;
    TableFile file;
    const auto name = in.Bytes(in.U8() % (kMaxNameLength + 1));
    file.name.assign(name.begin(), name.end());
    file.lane = in.U8() % 4;
    file.size = in.U8() < 250 ? in.U16() : in.U64();
    file.created_seq = in.U8();
    file.checksum = file.lane % 2;
    TableEntry entry = MakeTableEntry(info_, file);
    if (in.U8() > 200) {  // any field, checksum right
      in.Fill(reinterpret_cast<uint8_t*>(&entry) + in.U8() % 120, 8);
      const TableSize size{std::exchange(entry.size, 0), std::exchange(entry.size_crc, 0)};
      SetCrc(&entry, info_.seed);
      entry.size = size.size;
      entry.size_crc = size.crc;
    }
    Store(info_.geometry.EntryOffset(slot), entry);
  }

  void SetNode(Reader& in) {
    const uint8_t how = in.U8();
    if (how < 128) {
      NodeState state;
      state.node = Uuid{9};
      state.sealed_epoch = in.U8();
      state.installed.epoch = in.U8();
      for (uint32_t i = 0; i < how % 10u; ++i) {
        const auto address = in.Bytes(in.U8() % 90);
        state.installed.replicas.push_back({Uuid{1}, {address.begin(), address.end()}});
      }
      const auto range = WriteNodeState(page_, &state);
      if (range.ok()) {
        HL_FUZZ_CHECK(range->offset + range->size <= page_.size(), "beyond the page");
        HL_FUZZ_CHECK(ReadNodeState(page_).ok(), "what was written cannot be read");
      }
      return;
    }
    // Raw bytes in a copy (1,024 B), with or without the right checksum at offset 12.
    std::byte* const copy = page_.data() + kNodeCopyOffsets[how & 1];
    in.Fill(copy + in.U16() % 1000, 24);
    if ((how & 2) == 0) return;
    uint32_t crc = 0;
    std::memcpy(copy + 12, &crc, sizeof(crc));
    crc = Crc32c(0, copy, 1024);
    std::memcpy(copy + 12, &crc, sizeof(crc));
  }

  void CheckNodePage() {
    const auto state = ReadNodeState(page_);
    if (!state.ok()) return;
    HL_FUZZ_CHECK(state->installed.replicas.size() <= kMaxConfigurationReplicas, "replicas");
    NodeState next = *state;
    const auto range = WriteNodeState(page_, &next);
    if (!range.ok()) return;  // an address that our writer never makes
    const auto again = ReadNodeState(page_);
    HL_FUZZ_CHECK(again.ok() && again->sealed_epoch == state->sealed_epoch, "the page forgot");
  }

  // The check of the image agrees with redo and with the table of the redone image.
  void CheckTheCheck(std::vector<std::byte>& redone, bool redo_ok, const RegionInfo& info) {
    const std::vector<std::byte> before = bytes_;
    const MemberCheck check = CheckMember(bytes_, info);
    HL_FUZZ_CHECK(bytes_ == before, "the check changed the image");
    HL_FUZZ_CHECK(check.sound() == check.Damage(info).empty(), "damage without a word");
    HL_FUZZ_CHECK(check.log_error.ok() == redo_ok, "check and redo disagree about the log");
    Scrubber scrubber(bytes_, info);
    while (!scrubber.Step(1)) {
    }
    HL_FUZZ_CHECK(scrubber.result().has_value(), "nothing moved");
    HL_FUZZ_CHECK(scrubber.result()->damaged.size() == check.damaged.size(), "scrubber and check");
    if (!check.readable()) return;
    const auto table = FileTable::Load(redone, info);
    HL_FUZZ_CHECK(table.ok() && table->map == check.table.map, "check and redo disagree");
    const auto damaged = VerifyExtents(redone, info, *table);
    HL_FUZZ_CHECK(damaged.size() == check.damaged.size(), "check and redo disagree about extents");
    Mend(redone, info, *table, damaged);
  }

  // Other members, equal or older, have the same damage, or the right checksums: the image is
  // mended from them, or that is refused.
  void Mend(std::vector<std::byte>& redone, const RegionInfo& info, const FileTable& table,
            const std::vector<ExtentDamage>& damaged) {
    std::vector<std::byte> sound = bytes_;
    for (const ExtentDamage& each : damaged) {
      MapEntry entry = table.map[each.extent];
      entry.crc = Crc32c(ExtentSeed(info, entry.slot_plus_one, entry.index),
                         sound.data() + info.geometry.ExtentOffset(each.extent), entry.length);
      std::memcpy(sound.data() + info.geometry.MapOffset(each.extent), &entry, sizeof entry);
    }
    const MemberFetch fetch = [&](size_t member, uint64_t offset, std::span<std::byte> out) {
      if (member == 2) return Unavailable("a member that is gone");
      std::memcpy(out.data(), (member == 0 ? bytes_ : sound).data() + offset, out.size());
      return Status();
    };
    const size_t equal = seed_ % 4u;
    const auto mended = MendExtents(redone, info, table, damaged, {3, equal, fetch});
    if (!mended.ok()) {
      HL_FUZZ_CHECK(!mended.status().message().empty(), "a refusal without a reason");
      return;
    }
    HL_FUZZ_CHECK(mended->size() == damaged.size(), "mended what was not damaged");
    HL_FUZZ_CHECK(VerifyExtents(redone, info, *FileTable::Load(redone, info)).empty(), "mended");
  }

  // A log that begins behind the last record, as a node leaves it, has the same end.
  static void CheckNewHead(std::vector<std::byte> image, const RegionInfo& info,
                           const LogState& log) {
    WriteHead(image, info, log.tail);
    const auto again = ScanLog(image, info);
    HL_FUZZ_CHECK(again.ok() && again->records == 0 && again->tail == log.tail,
                  again.status().ToString());
  }

  static void CheckFiles(const std::vector<std::byte>& image, const RegionInfo& info) {
    const auto table = FileTable::Load(image, info);
    if (!table.ok()) return;
    for (const FileInfo& file : table->List()) {
      HL_FUZZ_CHECK(CheckFileName(file.name).ok(), file.name);
      if (file.lane != Lane::kLog) continue;
      HL_FUZZ_CHECK(file.size <= image.size(), "a file larger than its region");
      std::vector<char> content(file.size);
      table->ReadBytes(image, info, SlotOf(file.id), 0, content);
    }
  }

  std::vector<std::byte> bytes_;
  std::vector<std::byte> page_;
  RegionInfo info_;
  LogCursor tail_;
  uint8_t seed_ = 0;  // of what other members have
};

// A record of `type` with one entry of `length` bytes at the start of the applied range + `to`.
void Record(Writer& out, RecordType type, unsigned acked, unsigned entries, uint32_t to,
            unsigned length) {
  out.U8(kRecord).U8(0).U8(static_cast<unsigned>(type)).U8(entries).U8(0).U8(acked).U8(0);
  if (type == RecordType::kAppend) {
    out.U8(200).U8(1).U32(length);
  } else {
    out.U8(0);
  }
  for (unsigned i = 0; i < entries; ++i) out.U8(0).U32(to).U16(length - 1).U8(0x77);
}

std::vector<Input> Seeds() {
  std::vector<Input> seeds = {{}};
  constexpr uint32_t kDataFromBinding = 4096 + 4096 + 4096;
  const auto begin = [](unsigned equal) {
    Writer out;
    out.U8(equal);
    return out;
  };
  // A file of the log lane in slot 1, and an extent of it, whose bytes are zeros. The checksum is
  // 0.
  const auto file = [](Writer& out, unsigned size) {
    out.U8(kTable).U8(1).U8(10).Bytes("000004.log", 10).U8(0).U8(0).U16(size).U8(1).U8(0);
  };
  const auto extent = [](Writer& out, unsigned at, unsigned index, unsigned length) {
    out.U8(kMap).U8(2).U8(index).U16(length).U8(0).U8(at);
  };
  {
    Writer out = begin(0);  // an epoch, a file of one extent, appends
    file(out, 100), extent(out, 0, 0, 100);
    Record(out, RecordType::kEpoch, 0, 1, 1024, sizeof(ConfigurationBlock));
    for (unsigned i = 1; i < 6; ++i)
      Record(out, RecordType::kAppend, i - 1, 1, kDataFromBinding, 300);
    seeds.push_back(out.Finish());
  }
  for (unsigned equal = 0; equal < 4; ++equal) {
    Writer out = begin(equal);  // two extents of a file, damaged; an append to the second
    file(out, 4096 + 50), extent(out, 3, 0, 4096), extent(out, 1, 1, 50);
    out.U8(kRecord).U8(0).U8(static_cast<unsigned>(RecordType::kAppend)).U8(1).U8(0).U8(0).U8(0);
    out.U8(200).U8(1).U32(4096 + 90);
    out.U8(0).U32(kDataFromBinding + 4096 + 50).U16(39).U8(0x77);
    seeds.push_back(out.Finish());
  }
  for (unsigned fault = 0; fault < 6; ++fault) {  // tables that contradict themselves
    Writer out = begin(0);
    file(out, fault == 0 ? 60000 : 100);
    if (fault != 1) extent(out, 0, fault == 2 ? 1 : 0, fault == 3 ? 99 : 100);
    if (fault == 4) extent(out, 1, 0, 100);
    if (fault == 5)
      out.U8(kTable).U8(2).U8(10).Bytes("000004.log", 10).U8(0).U8(0).U16(0).U8(1).U8(0);
    seeds.push_back(out.Finish());
  }
  {
    Writer out = begin(0);  // until the ring is full, then a pad
    for (unsigned i = 0; i < 28; ++i)
      Record(out, RecordType::kNamespace, i, 1, kDataFromBinding, 450);
    Record(out, RecordType::kPad, 28, 0, 0, 0);
    seeds.push_back(out.Finish());
  }
  {
    Writer out = begin(0);  // a head in the middle, the other one damaged; more records
    Record(out, RecordType::kStatements, 0, 2, 64, 12);
    out.U8(kHead).U8(1).U8(5).U8(kRaw).U32(4096).U8(4).U32(0);
    Record(out, RecordType::kBinding, 1, 1, 0, 64);
    seeds.push_back(out.Finish());
  }
  {
    Writer out = begin(0);
    out.U8(kNode).U8(3).U8(4).U8(3);
    for (int i = 0; i < 3; ++i) out.U8(11).Bytes("127.0.0.1:1", 11);
    out.U8(kBinding).U8(40).Bytes("/x/y", 4);
    out.U8(kConfiguration).U8(3).U8(30).U8(4).U32(9);
    seeds.push_back(out.Finish());
  }
  return seeds;
}

const FuzzTarget kFuzzTarget("journal", Seeds, [](Reader& in) {
  Image image;
  image.Apply(in);
  image.Check();
});

}  // namespace
}  // namespace hyperloop::fuzz
