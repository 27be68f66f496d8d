#include "hyperloop/replication/rocksdb_log.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <memory>
#include <optional>
#include <string_view>

#include "hyperloop/replication/crc32c.h"

namespace hyperloop {
namespace {

constexpr uint64_t kBlock = 32768;
constexpr size_t kHeader = 7;             // crc, length, type
constexpr size_t kRecyclableHeader = 11;  // and the log's number
// The last eight bytes of a table, of each format, and the first four of a blob file's footer.
constexpr uint64_t kTableMagics[] = {0x88e241b785f4cff7, 0xdb4775248b80fb57, 0x8242229663bf9564,
                                     0x4f3418eb7a8f13b8, 0x926789d0c5f17873};
constexpr uint32_t kBlobMagic = 2395959;
constexpr size_t kBlobFooter = 32;
constexpr uint8_t kRecyclableFull = 5, kRecyclableLast = 8, kSetCompression = 9;

struct Physical {
  uint64_t offset = 0;
  uint8_t type = 0;
  std::string_view whole;  // header and payload, in the reader's block
  std::string_view payload;
  bool recyclable() const { return type >= kRecyclableFull && type <= kRecyclableLast; }
  // Which part of an assembled record this is: 1 full, 2 first, 3 middle, 4 last.
  int part() const { return recyclable() ? type - 4 : type; }
};

uint32_t Fixed32(std::string_view bytes) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

// Goes from one record to the next, and stops where no further record can be recognised.
class Walker {
 public:
  explicit Walker(const ReadAt& read, uint64_t start = 0)
      : read_(read), block_(std::make_unique<char[]>(kBlock)), next_(start) {}

  // False at the end.
  Result<bool> Next(Physical* record) {
    for (;;) {
      const uint64_t in_block = next_ % kBlock;
      if (in_block == 0 || loaded_ == 0) HL_RETURN_IF_ERROR(Load());
      if (in_block + kHeader > kBlock) {
        next_ += kBlock - in_block;
        continue;
      }
      if (in_block + kHeader > loaded_) return false;
      const std::string_view rest(block_.get() + in_block, loaded_ - in_block);
      const size_t length = static_cast<uint8_t>(rest[4]) | static_cast<uint8_t>(rest[5]) << 8;
      record->type = static_cast<uint8_t>(rest[6]);
      if (record->type == 0 && length == 0) {  // zeros up to the end of the block
        next_ += kBlock - in_block;
        continue;
      }
      const size_t header = record->recyclable() ? kRecyclableHeader : kHeader;
      if (header + length > rest.size()) return false;
      record->offset = next_;
      record->whole = rest.substr(0, header + length);
      record->payload = rest.substr(header, length);
      next_ += header + length;
      return true;
    }
  }

 private:
  Status Load() {
    HL_ASSIGN_OR_RETURN(loaded_, read_(next_ - next_ % kBlock, {block_.get(), kBlock}));
    return Status::Ok();
  }

  const ReadAt& read_;
  const std::unique_ptr<char[]> block_;
  uint64_t loaded_ = 0;
  uint64_t next_;
};

// Puts records together from their parts.
class Assembler {
 public:
  // `log`: the number of the log; none: any, for a file that is never recycled.
  Assembler(const ReadAt& read, std::optional<uint32_t> log) : walker_(read), log_(log) {}

  // False at the end. kNotSupported: a part is of a type that this build does not know, or of
  // another log.
  Result<bool> Next(std::string* record) {
    record->clear();
    for (Physical physical;;) {
      HL_ASSIGN_OR_RETURN(const bool found, walker_.Next(&physical));
      if (!found) return false;
      HL_RETURN_IF_ERROR(Check(physical));
      end_ = physical.offset + physical.whole.size();
      const int part = physical.part();
      if (part == 1 || part == 2) record->clear();
      record->append(physical.payload);
      if (part == 1 || part == 4) return true;
    }
  }
  // The offset at which the record ends that Next gave last.
  uint64_t end() const { return end_; }

 private:
  Status Check(const Physical& physical) const {
    const bool other_log = log_.has_value() && physical.recyclable() &&
                           Fixed32(physical.whole.substr(kHeader)) != *log_;
    if (physical.type < kSetCompression && !other_log) return Status::Ok();
    return NotSupported("a record of type " + std::to_string(physical.type) + " at offset " +
                        std::to_string(physical.offset) + " is " +
                        (other_log ? "of another log" : "not known"));
  }

  Walker walker_;
  const std::optional<uint32_t> log_;
  uint64_t end_ = 0;
};

bool HasItsChecksum(const Physical& record) {
  const std::string_view checked = record.whole.substr(6);
  const uint32_t crc = ~Crc32c(~0u, checked.data(), checked.size());
  return Fixed32(record.whole) == ((crc >> 15 | crc << 17) + 0xa282ead8u);
}

// Takes one field after another off the front of a VersionEdit. False: the bytes do not have it.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : rest_(bytes) {}
  bool empty() const { return rest_.empty(); }

  bool Number(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool Numbers(int count) {
    uint64_t ignored;
    for (int i = 0; i < count; ++i) {
      if (!Number(&ignored)) return false;
    }
    return true;
  }
  bool Slices(int count) {
    uint64_t length;
    for (int i = 0; i < count; ++i) {
      if (!Number(&length) || length > rest_.size()) return false;
      rest_.remove_prefix(static_cast<size_t>(length));
    }
    return true;
  }
  // Skips pairs of tag and slice up to the tag `end`. False also if a tag has the bit `critical`: a
  // reader must understand such tags, and this one understands none of them except kPathId.
  bool Customs(uint64_t end, uint64_t critical) {
    for (uint64_t tag; Number(&tag);) {
      if (tag == end) return true;
      const bool known = end == 1 && tag == kPathId;
      if (((tag & critical) != 0 && !known) || !Slices(1)) return false;
    }
    return false;
  }

 private:
  static constexpr uint64_t kPathId = 65;
  std::string_view rest_;
};

// The state that a MANIFEST's edits build up.
class Version {
 public:
  // False: the edit has something that this build does not know.
  bool Apply(std::string_view bytes) {
    Fields in(bytes);
    Edit edit;
    for (uint64_t tag; !in.empty();) {
      if (!in.Number(&tag) || !Field(tag, &in, &edit)) return false;
    }
    next_file_ = std::max(next_file_, edit.next_file);
    Family& family = families_[edit.family];
    if (edit.drop) {
      families_.erase(edit.family);
      return true;
    }
    for (uint64_t number : edit.deleted) family.tables.erase(number);
    family.tables.insert(edit.added.begin(), edit.added.end());
    for (auto [number, count] : edit.blobs) family.blobs[number] += count;
    for (auto [number, count] : edit.garbage) {
      uint64_t& left = family.blobs[number];
      left -= std::min(left, count);
      if (left == 0) family.blobs.erase(number);
    }
    if (edit.log_number != 0) family.log_number = edit.log_number;
    if (edit.kept_log != 0) kept_log_ = edit.kept_log;
    return true;
  }

  ManifestContent Content() const {
    ManifestContent content;
    for (const auto& [id, family] : families_) {
      content.tables.insert(family.tables.begin(), family.tables.end());
      for (auto [number, count] : family.blobs) content.blobs.insert(number);
      content.log_numbers[id] = family.log_number;
    }
    content.next_file = next_file_;
    content.oldest_log = kept_log_ == 0 ? UINT64_MAX : kept_log_;
    for (const auto& [id, number] : content.log_numbers)
      content.oldest_log = std::min(content.oldest_log, number);
    return content;
  }

 private:
  struct Family {
    std::set<uint64_t> tables;
    std::map<uint64_t, uint64_t> blobs;  // number → values that are not garbage
    uint64_t log_number = 0;
  };
  struct Edit {
    uint64_t family = 0, log_number = 0, next_file = 0, kept_log = 0;
    bool drop = false;
    std::set<uint64_t> added, deleted;
    std::map<uint64_t, uint64_t> blobs, garbage;
  };

  // Takes a field of any RocksDB version up to now. Tags with bit 13 may be skipped.
  static bool Field(uint64_t tag, Fields* in, Edit* edit) {
    constexpr uint64_t kIgnorable = 1 << 13;
    uint64_t number = 0, count = 0;
    switch (tag) {
      case 1:               // comparator
      case 201:             // name of a column family that this edit adds
      case kIgnorable + 1:  // database id
        return in->Slices(1);
      case 2:
        return in->Number(&edit->log_number);
      case 3:  // next file number
        return in->Number(&edit->next_file);
      case 10:  // oldest log to keep for two-phase commit
        return in->Number(&edit->kept_log);
      case 4:    // last sequence
      case 9:    // previous log
      case 203:  // greatest column family
      case 300:  // edits that follow in this atomic group
        return in->Numbers(1);
      case 5:  // compaction cursor
        return in->Numbers(1) && in->Slices(1);
      case 6:  // deleted table: level, number
        if (!in->Numbers(1) || !in->Number(&number)) return false;
        edit->deleted.insert(number);
        return true;
      case 7:  // new table, in four forms
      case 100:
      case 102:
      case 103:
        return Table(tag, in, edit);
      case 200:  // column family of this edit
        return in->Number(&edit->family);
      case 202:  // the column family is dropped
        edit->drop = true;
        return true;
      case 400:  // new blob file: number, values, bytes, checksum
      case kIgnorable + 2:
        if (!in->Number(&number) || !in->Number(&count) || !in->Numbers(1)) return false;
        edit->blobs[number] += count;
        return in->Slices(2) && in->Customs(0, 1 << 6);
      case 401:  // garbage in a blob file: number, values, bytes
      case kIgnorable + 3:
        if (!in->Number(&number) || !in->Number(&count) || !in->Numbers(1)) return false;
        edit->garbage[number] += count;
        return in->Customs(0, 1 << 6);
      default:
        return (tag & kIgnorable) != 0 && tag > kIgnorable + 5 && in->Slices(1);
    }
  }
  static bool Table(uint64_t tag, Fields* in, Edit* edit) {
    uint64_t number = 0;
    if (!in->Numbers(1) || !in->Number(&number)) return false;  // level, number
    edit->added.insert(number);
    if (tag == 102 && !in->Numbers(1)) return false;      // path
    if (!in->Numbers(1) || !in->Slices(2)) return false;  // size, smallest, largest
    if (tag != 7 && !in->Numbers(2)) return false;        // sequence numbers
    return tag != 103 || in->Customs(1, 1 << 6);
  }

  std::map<uint64_t, Family> families_;
  uint64_t next_file_ = 0, kept_log_ = 0;
};

}  // namespace

Result<bool> IsSoundRecord(const ReadAt& read, uint64_t offset) {
  Walker walker(read, offset - offset % kBlock);
  Physical record;
  for (;;) {
    HL_ASSIGN_OR_RETURN(const bool found, walker.Next(&record));
    if (!found || record.offset > offset) return false;
    if (record.offset + record.whole.size() > offset) return HasItsChecksum(record);
  }
}

Status ForEachRecord(const ReadAt& read, uint64_t size, uint64_t number,
                     const std::function<Result<bool>(std::string record)>& each) {
  const ReadAt bounded = [&](uint64_t offset, std::span<char> out) -> Result<uint64_t> {
    if (offset >= size) return uint64_t{0};
    return read(offset, out.first(std::min<uint64_t>(out.size(), size - offset)));
  };
  Assembler assembler(bounded, static_cast<uint32_t>(number));
  for (std::string record;;) {
    HL_ASSIGN_OR_RETURN(const bool found, assembler.Next(&record));
    if (!found) return Status::Ok();
    HL_ASSIGN_OR_RETURN(const bool more, each(std::move(record)));
    if (!more) return Status::Ok();
  }
}

Result<ManifestContent> ParseManifest(const ReadAt& read) {
  Assembler assembler(read, std::nullopt);
  Version version;
  for (std::string edit;;) {
    HL_ASSIGN_OR_RETURN(const bool found, assembler.Next(&edit));
    if (!found) return version.Content();
    if (!version.Apply(edit)) {
      return NotSupported("the edit that ends at offset " + std::to_string(assembler.end()) +
                          " is not known");
    }
  }
}

bool NamesOrNeeds(const ManifestContent& content, std::string_view name) {
  uint64_t number = 0;
  std::from_chars(name.data(), name.data() + name.size(), number);
  if (name.ends_with(".log")) return number >= content.oldest_log;
  return (name.ends_with(".sst") ? content.tables : content.blobs).contains(number);
}

Result<FileEnd> EndOf(const ReadAt& read, uint64_t size) {
  std::array<char, kBlobFooter> end{};
  const uint64_t length = std::min<uint64_t>(size, end.size());
  HL_ASSIGN_OR_RETURN(const uint64_t got, read(size - length, std::span(end).first(length)));
  if (got != length) return Corruption("the file ends early");
  const std::string_view bytes(end.data(), length);
  if (length == kBlobFooter && Fixed32(bytes) == kBlobMagic) return FileEnd::kFinished;
  if (length >= 8) {
    const std::string_view last = bytes.substr(length - 8);
    const uint64_t magic = Fixed32(last) | uint64_t{Fixed32(last.substr(4))} << 32;
    if (std::find(std::begin(kTableMagics), std::end(kTableMagics), magic) !=
        std::end(kTableMagics))
      return FileEnd::kFinished;
  }
  const bool zeros = bytes.find_first_not_of('\0') == std::string_view::npos;
  return zeros ? FileEnd::kZeros : FileEnd::kOther;
}

}  // namespace hyperloop
