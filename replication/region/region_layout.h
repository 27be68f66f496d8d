// The layout of a replicated region: the places and formats, and the only functions that parse
// them.
//
//   0            Superblock             written by FormatRegion; a primary adds feature bits
//   4096, 6144   HeadBlock, two copies  rewritten in turn; the newer valid one counts
//   8192         lock word              8 B, changed by gCAS only: epoch of the owner, or 0
//   16384        journal ring           records (region/record.h); position p of the log lies at
//                                       p mod journal_size
//   …            binding · configuration · file table · extent map · data extents:
//                                       "applied" bytes, changed by executing records only
//
// Everything is little-endian. Offsets are region offsets, the same on every node. Structures carry
// a magic, a version where they define a layout, and a CRC-32C that is seeded with the group's uuid
// and secret. The secret never leaves the pools, so neither bytes of another group nor bytes that a
// user of the database could make are valid. Parse functions take untrusted bytes, read nothing
// beyond their span, and return kCorruption with the reason.
//
// Every applied byte that has a meaning is under a checksum that each member can check alone: names
// and states of files, sizes, map entries and, by the map entries, the extents' bytes.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/uuid.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/size.h"
#include "membership/configuration.h"

namespace hyperloop {

static_assert(std::endian::native == std::endian::little, "the region layout is little-endian");

inline constexpr uint64_t kRegionMagic = 0x4e4f494745524c48;  // "HLREGION"
inline constexpr uint32_t kLayoutVersion = 3;
// The feature bits of a superblock that this program knows. A region with another one is refused.
// Files that are whole on the replicas may be logs and MANIFESTs that the database needs.
inline constexpr uint32_t kFilesLeave = 1;
// A head may have passed records that the primary may take back (HeadBlock::undecided).
inline constexpr uint32_t kUndecidedHeads = 2;
inline constexpr uint32_t kKnownFeatures = kFilesLeave | kUndecidedHeads;
inline constexpr uint64_t kHeadOffsets[2] = {4096, 6144};
inline constexpr uint64_t kLockOffset = 8192;
inline constexpr uint64_t kJournalOffset = 16384;
inline constexpr uint64_t kRecordAlign = 64;
inline constexpr uint32_t kDefaultExtentSize = 1u << 20;
inline constexpr uint32_t kMaxTableCapacity = 1u << 20;
inline constexpr uint32_t kNoSlot = UINT32_MAX;

// Sizes and offsets of a region, in bytes unless said otherwise. All follow from the four inputs;
// ParseSuperblock refuses any other combination.
struct RegionGeometry {
  uint64_t region_size = 0;     // input; multiple of 4096
  uint64_t journal_size = 0;    // input; multiple of 4096
  uint32_t table_capacity = 0;  // input; number of files
  uint32_t extent_size = 0;     // input; power of two
  uint64_t binding_offset = 0;
  uint64_t table_offset = 0;
  uint64_t map_offset = 0;
  uint64_t data_offset = 0;  // multiple of 4096
  uint32_t extent_count = 0;
  // So many of the extents are kept for MANIFEST, CURRENT and their temporary names.
  uint32_t reserved_extents = 0;
  uint32_t max_record = 0;  // bytes of the longest record, header included

  friend bool operator==(const RegionGeometry&, const RegionGeometry&) = default;

  uint64_t journal_end() const { return kJournalOffset + journal_size; }
  uint64_t configuration_offset() const { return binding_offset + 1024; }
  uint64_t EntryOffset(uint32_t slot) const { return table_offset + uint64_t{slot} * 128; }
  uint64_t SizeOffset(uint32_t slot) const { return EntryOffset(slot) + 80; }
  uint64_t MapOffset(uint32_t extent) const { return map_offset + uint64_t{extent} * 16; }
  uint64_t ExtentOffset(uint32_t extent) const {
    return data_offset + uint64_t{extent} * extent_size;
  }
  // The bytes that all extents together have.
  uint64_t data_bytes() const { return uint64_t{extent_count} * extent_size; }
  // How many extents a log-lane file of `size` bytes has; `size` is less than 2^63. A shift spares
  // the hot path a division, since the compiler does not know that extent_size is a power of two.
  uint64_t ExtentsFor(uint64_t size) const {
    return (size + extent_size - 1) >> std::countr_zero(extent_size);
  }
  // Which extent holds a region offset at or behind data_offset.
  uint64_t ExtentAt(uint64_t offset) const {
    return (offset - data_offset) >> std::countr_zero(extent_size);
  }
  // Records may change these bytes and no others.
  bool Applied(uint64_t offset, uint64_t length) const {
    return offset >= binding_offset && offset <= region_size && length <= region_size - offset;
  }

  // The fewest bytes of a region with these parts.
  static uint64_t LeastRegion(uint64_t journal_size, uint32_t table_capacity, uint32_t extent_size);
  // kInvalidArgument names the value, the bound and, for a region that is too small, how many bytes
  // would do.
  static Result<RegionGeometry> Compute(uint64_t region_size, uint64_t journal_size,
                                        uint32_t table_capacity,
                                        uint32_t extent_size = kDefaultExtentSize);
};

// --- superblock

// Random bytes that only the nodes of a group have, so that nobody else can make a valid record.
using RegionSecret = std::array<uint8_t, 16>;
RegionSecret RandomSecret();

struct Superblock {
  uint64_t magic;
  uint32_t version;
  uint32_t crc;  // over this struct with crc = 0, seed 0
  Uuid group;
  uint64_t region_size;
  uint64_t journal_size;
  uint32_t table_capacity;
  uint32_t extent_size;
  uint64_t data_offset;
  uint32_t extent_count;
  uint32_t reserved_extents;
  uint32_t features;  // a program that does not know one of the bits must not use the region
  uint32_t zero0;
  RegionSecret secret;
  std::array<uint8_t, 32> zero;
};
static_assert(sizeof(Superblock) == 128 && offsetof(Superblock, group) == 16 &&
              offsetof(Superblock, features) == 72 && offsetof(Superblock, zero) == 96);

// A validated superblock, in the form that the other functions here need.
struct RegionInfo {
  Uuid group{};
  RegionGeometry geometry;
  // The initial value of this group's CRCs, made from the uuid and one half of the secret.
  uint32_t seed = 0;
  // The first field of every record, made from the other half of the secret; never 0.
  uint32_t record_magic = 0;
};

// `image`: the region from its start, at least 128 B. `region_size`: how many bytes there are in
// all, at least the superblock's region_size. kNotFound: all zero, never formatted. kNotSupported:
// the region uses features that this program does not know. kCorruption: anything else that is not
// a superblock of this layout version; the message tells a foreign magic, another version and a
// failed check apart.
Result<RegionInfo> ParseSuperblock(std::span<const std::byte> image, uint64_t region_size);

// Makes `region` an empty group: no files, empty log. Overwrites the fixed blocks and the whole
// applied metadata. Data extents and the ring keep their bytes, because records of other groups do
// not pass the seeded CRC. The caller makes the region durable. kInvalidArgument: `geometry` is not
// one that Compute gives for a region of this size.
Status FormatRegion(std::span<std::byte> region, const Uuid& group, const RegionSecret& secret,
                    const RegionGeometry& geometry);

// Adds kKnownFeatures to the superblock of a region that ParseSuperblock accepts. So a program that
// does not know them refuses the region from then on. The caller makes it durable. ParseSuperblock
// accepts whatever part of that was cut short.
void AddFeatures(std::span<std::byte> region);

// --- log cursor and head

// A place in the log: right behind record `seq`.
struct LogCursor {
  uint64_t seq = 0;
  uint64_t epoch = 0;  // of record `seq`
  // How many log bytes lie before this place since the group was made. The ring offset is the
  // position mod journal_size.
  uint64_t position = 0;
  uint32_t crc = 0;  // of record `seq`; the group's seed for seq 0
  friend bool operator==(const LogCursor&, const LogCursor&) = default;
};

struct HeadBlock {
  uint32_t magic;
  uint32_t crc;         // over this struct with crc = 0, seeded
  uint64_t generation;  // of the valid copies the one with the greater generation counts
  uint64_t seq;         // every record up to here is executed on every node
  uint64_t epoch;
  uint64_t position;
  uint32_t record_crc;
  uint32_t zero0;
  uint64_t undecided;  // so many of the last records up to `seq` the primary may take back
  uint64_t zero1;
};
static_assert(sizeof(HeadBlock) == 64 && offsetof(HeadBlock, position) == 32 &&
              offsetof(HeadBlock, undecided) == 48);
inline constexpr uint32_t kHeadMagic = 0x44414548;  // "HEAD"

struct Head {
  uint64_t generation = 0;
  LogCursor cursor;
  uint64_t undecided = 0;
};
HeadBlock MakeHeadBlock(const RegionInfo& info, const Head& head);
// Parses one copy, 64 B. kCorruption: it fails its check.
Result<Head> ParseHeadBlock(std::span<const std::byte> bytes, const RegionInfo& info);
// Returns the valid head of the greater generation. `image`: a region from its start, at least up
// to the lock word. kCorruption: neither copy is valid.
Result<Head> ReadHead(std::span<const std::byte> image, const RegionInfo& info);

// --- binding: the database to which the group's files belong

struct BindingBlock {
  uint32_t magic;
  uint32_t crc;   // over this struct with crc = 0, seeded
  Uuid database;  // nil: never bound
  uint32_t directory_length;
  uint32_t zero0;
  std::array<char, 992> directory;  // its path when it was bound, cut if longer; for messages only
};
static_assert(sizeof(BindingBlock) == 1024 && offsetof(BindingBlock, directory) == 32);
inline constexpr uint32_t kBindingMagic = 0x444e4942;  // "BIND"

struct Binding {
  Uuid database{};
  std::string directory;
};
BindingBlock MakeBindingBlock(const RegionInfo& info, const Binding& binding);
Result<Binding> ParseBindingBlock(std::span<const std::byte> bytes, const RegionInfo& info);

// --- configuration: who must agree in the epoch that wrote the newest records

inline constexpr size_t kConfigurationAddress = kMaxReplicaAddress + 1;  // the final zero included

// Applied bytes, which the first record of each epoch changes. All zero before the first epoch.
struct ConfigurationBlock {
  uint32_t magic;
  uint32_t crc;  // over this struct with crc = 0, seeded
  uint64_t epoch;
  Uuid owner;
  uint32_t replica_count;
  uint32_t absent_count;
  struct Replica {
    Uuid node;
    std::array<char, kConfigurationAddress> address;  // zero terminated
  };
  std::array<Replica, kMaxConfigurationReplicas> replicas;  // the absent ones last
  uint64_t branch_epoch;
  Uuid branch_owner;
  std::array<uint8_t, 192> zero;
};
static_assert(sizeof(ConfigurationBlock) == 1024 && offsetof(ConfigurationBlock, replicas) == 40 &&
              offsetof(ConfigurationBlock, branch_epoch) == 808);
inline constexpr uint32_t kConfigurationMagic = 0x464e4f43;  // "CONF"
// kInvalidArgument: more than 8 replicas, the absent ones included, or an address too long.
Result<ConfigurationBlock> MakeConfigurationBlock(const RegionInfo& info,
                                                  const Configuration& configuration);
// 1024 B. All zero: a configuration of epoch 0 without replicas.
Result<Configuration> ParseConfigurationBlock(std::span<const std::byte> bytes,
                                              const RegionInfo& info);

// --- file table and extent map

inline constexpr size_t kMaxNameLength = 79;

// The part of a table entry that can be rewritten without the rest.
struct TableSize {
  uint64_t size;
  uint32_t crc;  // of the size, seeded
} __attribute__((packed));
static_assert(sizeof(TableSize) == 12);
struct TableEntry {
  std::array<char, 80> name;  // zero filled
  uint64_t size;              // size and size_crc are a TableSize, which `crc` does not cover
  uint32_t size_crc;
  uint32_t crc;   // over this struct with crc, size and size_crc = 0, seeded
  uint8_t state;  // 0 free, 1 used; a free entry is all zero
  uint8_t lane;   // Lane of store.h
  uint8_t name_length;
  uint8_t zero0;
  uint32_t zero1;
  uint64_t created_seq;  // record that made the file
  uint64_t checksum;     // FileChecksum of a file that is only listed; 0 in the log lane
  std::array<uint8_t, 8> zero;
};
static_assert(sizeof(TableEntry) == 128 && offsetof(TableEntry, size) == 80 &&
              offsetof(TableEntry, size_crc) == 88 && offsetof(TableEntry, created_seq) == 104);

struct TableFile {
  std::string name;
  uint8_t lane = 0;
  uint64_t size = 0;
  uint64_t created_seq = 0;
  uint64_t checksum = 0;
};
TableEntry MakeTableEntry(const RegionInfo& info, const TableFile& file);
// 128 B. kNotFound: a free entry.
Result<TableFile> ParseTableEntry(std::span<const std::byte> bytes, const RegionInfo& info);
// Checks a name that goes into the table and becomes a path below a directory. It has 1 to 79
// bytes, at most one '/', no empty, "." or ".." component, no control character and no backslash.
// kInvalidArgument says which rule it breaks.
Status CheckFileName(std::string_view name);

TableSize MakeTableSize(const RegionInfo& info, uint64_t size);
// Whether the size matches its checksum.
bool CheckTableSize(const RegionInfo& info, const TableSize& size);

// A free extent's entry is all zero.
struct MapEntry {
  uint32_t slot_plus_one;
  uint32_t index;   // which extent of the file
  uint32_t length;  // bytes from the extent's start that belong to the file, at least 1
  uint32_t crc;     // of these bytes, from ExtentSeed
  friend bool operator==(const MapEntry&, const MapEntry&) = default;
};
static_assert(sizeof(MapEntry) == 16);
// The initial value of an extent's checksum, which makes bytes of another file, or of another place
// in the file, fail it.
uint32_t ExtentSeed(const RegionInfo& info, uint32_t slot_plus_one, uint32_t index);

// --- node-local page: not replicated, registered by itself

inline constexpr uint64_t kNodePageSize = 16384;
inline constexpr uint64_t kNodeCopyOffsets[2] = {0, 4096};
// Behind each copy: the directive, under a CRC of its own. An earlier release leaves it as it is,
// and a page of one has none; so the newer of the two valid ones counts, whichever copy does.
inline constexpr uint64_t kDirectiveInCopy = 1024;
// 8 B, RDMA-written by the primary; not under any CRC.
inline constexpr uint64_t kHeartbeatOffset = 8192;
// The owner may write these bytes, which begin with the heartbeat word.
inline constexpr uint64_t kOwnerBytes = 4096;
// 8 B, which the primary writes together with the heartbeat word, so that a reader of an idle group
// learns of the last record, too: up to which record everything is acknowledged. It has the low 16
// bits of the owner's epoch, and below them 48 bits of the record's seq. A seal clears it. 0: the
// owner does not say.
inline constexpr uint64_t kOwnerAckedOffset = kHeartbeatOffset + 8;
constexpr uint64_t MakeOwnerAcked(uint64_t epoch, uint64_t seq) {
  return epoch << 48 | (seq & 0xffff'ffff'ffff);
}
// The seq that the word states; 0 also: it is of another epoch's owner.
constexpr uint64_t OwnerAcked(uint64_t word, uint64_t epoch) {
  return word >> 48 == (epoch & 0xffff) ? word & 0xffff'ffff'ffff : 0;
}
inline constexpr uint32_t kNodePageVersion = 1;
inline constexpr uint64_t kNodeMagic = 0x45444f4e4c48;  // "HLNODE"

// Returns the newer valid copy. kNotFound: the pool is fresh, or power failed while the first state
// was written. kCorruption: neither copy is valid.
Result<NodeState> ReadNodeState(std::span<const std::byte> page);
// Whether both copies are valid or, after the first state alone, the first one.
bool NodePageIsWhole(std::span<const std::byte> page);
// Writes `state` over the older copy with the next generation, which it sets. Returns the range of
// the page that must be durable before a promise relies on it. kInvalidArgument: an address is too
// long, or there are more than 8 replicas.
struct PageRange {
  uint64_t offset = 0;
  uint64_t size = 0;
};
Result<PageRange> WriteNodeState(std::span<std::byte> page, NodeState* state);

// The sealed owner's name in the page: for people, zero terminated, under no CRC. `page` has
// kNodePageSize bytes, and may be a copy.
inline constexpr uint64_t kOwnerNameOffset = 12288;
inline constexpr uint64_t kOwnerNameSize = 1024;
// Unprintable bytes are escaped.
std::string ReadOwnerName(std::span<const std::byte> page);
// A name that is too long is cut. Returns the range of the page that changed.
PageRange WriteOwnerName(std::span<std::byte> page, std::string_view name);
// Which of the node's whole files were set aside as damaged, in the same way.
inline constexpr uint64_t kFileDamageOffset = kOwnerNameOffset + kOwnerNameSize;
inline constexpr uint64_t kFileDamageSize = 1024;
std::string ReadFileDamage(std::span<const std::byte> page);
void WriteFileDamage(std::span<std::byte> page, std::string_view text);
// Why the absent replicas of the installed configuration are absent (region/absences.h), likewise.
inline constexpr uint64_t kAbsencesOffset = kFileDamageOffset + kFileDamageSize;
inline constexpr uint64_t kAbsencesSize = 1024;
std::string ReadAbsences(std::span<const std::byte> page);
PageRange WriteAbsences(std::span<std::byte> page, std::string_view text);
// Why the node takes no whole files, and since when, likewise; empty: it takes them.
inline constexpr uint64_t kFileRefusalOffset = kAbsencesOffset + kAbsencesSize;
inline constexpr uint64_t kFileRefusalSize = 1024;
static_assert(kFileRefusalOffset + kFileRefusalSize <= kNodePageSize);
std::string ReadFileRefusal(std::span<const std::byte> page);
void WriteFileRefusal(std::span<std::byte> page, std::string_view text);
// Which of the owner's own files wait to be mended, likewise; RDMA-written by the owner.
inline constexpr uint64_t kOwnerDamageOffset = kHeartbeatOffset + 1024;
inline constexpr uint64_t kOwnerDamageSize = 1024;
static_assert(kOwnerDamageOffset + kOwnerDamageSize <= kHeartbeatOffset + kOwnerBytes);
// The datapath of the queues that the node serves, for people, likewise; empty: it serves none.
inline constexpr uint64_t kDatapathOffset = kOwnerDamageOffset + kOwnerDamageSize;
inline constexpr uint64_t kDatapathSize = 64;
static_assert(kDatapathOffset + kDatapathSize <= kHeartbeatOffset + kOwnerBytes);
std::string ReadDatapath(std::span<const std::byte> page);
void WriteDatapath(std::span<std::byte> page, std::string_view name);
using OwnerDamage = std::array<std::byte, kOwnerDamageSize>;
OwnerDamage EncodeOwnerDamage(std::string_view text);
std::string ReadOwnerDamage(std::span<const std::byte> page);

}  // namespace hyperloop
