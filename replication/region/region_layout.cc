#include "region/region_layout.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/random_uuid.h"
#include "region/crc32c.h"

namespace hyperloop {
namespace {

template <class T>
T Load(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

// CRC over a structure whose own crc field counts as 0.
template <class T>
uint32_t StructCrc(T value, uint32_t seed) {
  value.crc = 0;
  return Crc32c(seed, &value, sizeof(value));
}

bool AllZero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

template <class T>
bool AllZero(const T& array) {
  return std::all_of(array.begin(), array.end(), [](auto v) { return v == 0; });
}

// Seed and magic come from different halves of the secret. CRCs are linear, so two CRCs of the same
// half would differ by a value that everybody can compute. Who knows one would know both.
RegionInfo MakeInfo(const Uuid& group, const RegionSecret& secret, const RegionGeometry& geometry) {
  constexpr size_t kHalf = sizeof(secret) / 2;
  const uint32_t of_group = Crc32c(0x484c5247, group.data(), group.size());
  const uint32_t magic = Crc32c(0x44524c48, secret.data(), kHalf);
  return {group, geometry, Crc32c(of_group, secret.data() + kHalf, kHalf), magic == 0 ? 1 : magic};
}

// Says what to do about a layout version that this program does not know.
std::string VersionText(uint32_t version) {
  std::string text = "region layout version " + std::to_string(version) + ", this program knows " +
                     std::to_string(kLayoutVersion);
  if (version >= kLayoutVersion) return text + "; use a program of the version that made the group";
  return text +
         ": export the group with hyperloopctl of the version that made it, then make the group "
         "anew with this one, and take the export into it with hyperloopctl adopt";
}

// A power failure while AddFeatures is made durable may leave its two words of different times, of
// this release or of an earlier one.
bool PassesChecksum(Superblock block) {
  if (StructCrc(block, 0) == block.crc) return true;
  if ((block.features & ~kKnownFeatures) != 0) return false;
  for (block.features = 0; block.features <= kKnownFeatures; ++block.features)
    if (StructCrc(block, 0) == block.crc) return true;
  return false;
}

}  // namespace

// --- superblock

Result<RegionInfo> ParseSuperblock(std::span<const std::byte> image, uint64_t region_size) {
  if (image.size() < sizeof(Superblock)) {
    return Corruption("region of " + std::to_string(image.size()) +
                      " B is shorter than a superblock");
  }
  const auto block = Load<Superblock>(image);
  if (block.magic != kRegionMagic) {
    if (AllZero(image.first(sizeof(Superblock)))) return NotFound("the region was never formatted");
    return Corruption(
        "no superblock: the region holds something else, or its first bytes are damaged");
  }
  if (block.version != kLayoutVersion) return Corruption(VersionText(block.version));
  if (!PassesChecksum(block)) return Corruption("superblock fails its checksum");
  if ((block.features & ~kKnownFeatures) != 0) {
    return NotSupported("the region uses features " +
                        std::to_string(block.features & ~kKnownFeatures) +
                        " (as bits), which this program does not know; use the one that made it");
  }
  if (block.region_size > region_size) {
    return Corruption("superblock states a region of " + std::to_string(block.region_size) +
                      " B, there are " + std::to_string(region_size));
  }
  auto geometry = RegionGeometry::Compute(block.region_size, block.journal_size,
                                          block.table_capacity, block.extent_size);
  if (!geometry.ok())
    return Corruption("superblock states impossible sizes: " + geometry.status().message());
  if (geometry->data_offset != block.data_offset || geometry->extent_count != block.extent_count ||
      geometry->reserved_extents != block.reserved_extents || block.zero0 != 0 ||
      !AllZero(block.zero)) {
    return Corruption("superblock disagrees with the layout that its sizes give");
  }
  return MakeInfo(block.group, block.secret, *geometry);
}

RegionSecret RandomSecret() {
  // All but 6 of the 128 bits of a uuid are random.
  return RandomUuid();
}

Status FormatRegion(std::span<std::byte> region, const Uuid& group, const RegionSecret& secret,
                    const RegionGeometry& geometry) {
  HL_ASSIGN_OR_RETURN(const RegionGeometry again,
                      RegionGeometry::Compute(geometry.region_size, geometry.journal_size,
                                              geometry.table_capacity, geometry.extent_size));
  if (again != geometry || region.size() != geometry.region_size) {
    return InvalidArgument("region of " + std::to_string(region.size()) +
                           " B does not fit a geometry for " +
                           std::to_string(geometry.region_size) + " B");
  }
  const RegionInfo info = MakeInfo(group, secret, geometry);
  std::memset(region.data(), 0, kJournalOffset);
  std::memset(region.data() + geometry.binding_offset, 0,
              geometry.data_offset - geometry.binding_offset);
  const BindingBlock binding = MakeBindingBlock(info, {});
  std::memcpy(region.data() + geometry.binding_offset, &binding, sizeof(binding));
  const HeadBlock head = MakeHeadBlock(info, {1, {0, 0, 0, info.seed}});
  std::memcpy(region.data() + kHeadOffsets[1], &head, sizeof(head));
  Superblock block{};
  block.magic = kRegionMagic;
  block.version = kLayoutVersion;
  block.group = group;
  block.region_size = geometry.region_size;
  block.journal_size = geometry.journal_size;
  block.table_capacity = geometry.table_capacity;
  block.extent_size = geometry.extent_size;
  block.data_offset = geometry.data_offset;
  block.extent_count = geometry.extent_count;
  block.reserved_extents = geometry.reserved_extents;
  block.secret = secret;
  block.crc = StructCrc(block, 0);
  std::memcpy(region.data(), &block, sizeof(block));
  return {};
}

void AddFeatures(std::span<std::byte> region) {
  auto block = Load<Superblock>(region);
  block.features |= kKnownFeatures;
  block.crc = StructCrc(block, 0);
  std::memcpy(region.data(), &block, sizeof(block));
}

// --- head

HeadBlock MakeHeadBlock(const RegionInfo& info, const Head& head) {
  HeadBlock block{};
  block.magic = kHeadMagic;
  block.generation = head.generation;
  block.seq = head.cursor.seq;
  block.epoch = head.cursor.epoch;
  block.position = head.cursor.position;
  block.record_crc = head.cursor.crc;
  block.undecided = head.undecided;
  block.crc = StructCrc(block, info.seed);
  return block;
}

Result<Head> ParseHeadBlock(std::span<const std::byte> bytes, const RegionInfo& info) {
  if (bytes.size() < sizeof(HeadBlock)) return Corruption("head block cut short");
  const auto block = Load<HeadBlock>(bytes);
  if (block.magic != kHeadMagic || StructCrc(block, info.seed) != block.crc) {
    return Corruption("head block fails its checksum");
  }
  constexpr uint64_t kGreatest = uint64_t{1} << 62;  // which no log reaches, so that nothing wraps
  if (block.generation == 0 || block.position % kRecordAlign != 0 || block.zero0 != 0 ||
      block.undecided > block.seq || block.zero1 != 0 || block.position > kGreatest ||
      block.seq > kGreatest) {
    return Corruption("head block states an impossible place");
  }
  return Head{block.generation,
              {block.seq, block.epoch, block.position, block.record_crc},
              block.undecided};
}

Result<Head> ReadHead(std::span<const std::byte> image, const RegionInfo& info) {
  if (image.size() < kLockOffset) return Corruption("region image ends before the head blocks");
  Result<Head> best = Corruption("neither copy of the log's head is valid");
  for (const uint64_t offset : kHeadOffsets) {
    auto head = ParseHeadBlock(image.subspan(offset, sizeof(HeadBlock)), info);
    if (head.ok() && (!best.ok() || head->generation > best->generation)) best = std::move(head);
  }
  return best;
}

// --- binding

BindingBlock MakeBindingBlock(const RegionInfo& info, const Binding& binding) {
  BindingBlock block{};
  block.magic = kBindingMagic;
  block.database = binding.database;
  block.directory_length =
      static_cast<uint32_t>(std::min(binding.directory.size(), block.directory.size()));
  std::memcpy(block.directory.data(), binding.directory.data(), block.directory_length);
  block.crc = StructCrc(block, info.seed);
  return block;
}

Result<Binding> ParseBindingBlock(std::span<const std::byte> bytes, const RegionInfo& info) {
  if (bytes.size() < sizeof(BindingBlock)) return Corruption("binding block cut short");
  const auto block = Load<BindingBlock>(bytes);
  if (block.magic != kBindingMagic || StructCrc(block, info.seed) != block.crc) {
    return Corruption("binding block fails its checksum");
  }
  if (block.directory_length > block.directory.size() || block.zero0 != 0) {
    return Corruption("binding block states an impossible directory");
  }
  return Binding{block.database, std::string(block.directory.data(), block.directory_length)};
}

// --- configuration

Result<ConfigurationBlock> MakeConfigurationBlock(const RegionInfo& info,
                                                  const Configuration& configuration) {
  const std::vector<Configuration::Replica> all = configuration.All();
  if (all.size() > kMaxConfigurationReplicas) {
    return InvalidArgument("configuration of " + std::to_string(all.size()) +
                           " replicas, at most " + std::to_string(kMaxConfigurationReplicas));
  }
  ConfigurationBlock block{};
  block.magic = kConfigurationMagic;
  block.epoch = configuration.epoch;
  block.owner = configuration.owner;
  block.branch_epoch = configuration.branch.epoch;
  block.branch_owner = configuration.branch.owner;
  block.replica_count = static_cast<uint32_t>(configuration.replicas.size());
  block.absent_count = static_cast<uint32_t>(configuration.absent.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& [node, address] = all[i];
    if (address.size() >= kConfigurationAddress || address.find('\0') != std::string::npos) {
      return InvalidArgument("replica address \"" + address + "\" is longer than " +
                             std::to_string(kConfigurationAddress - 1) + " bytes");
    }
    block.replicas[i].node = node;
    std::memcpy(block.replicas[i].address.data(), address.data(), address.size());
  }
  block.crc = StructCrc(block, info.seed);
  return block;
}

Result<Configuration> ParseConfigurationBlock(std::span<const std::byte> bytes,
                                              const RegionInfo& info) {
  if (bytes.size() < sizeof(ConfigurationBlock)) return Corruption("configuration block cut short");
  if (AllZero(bytes.first(sizeof(ConfigurationBlock)))) return Configuration{};
  const auto block = Load<ConfigurationBlock>(bytes);
  if (block.magic != kConfigurationMagic || StructCrc(block, info.seed) != block.crc) {
    return Corruption("configuration block fails its checksum");
  }
  const auto bad = [] { return Corruption("configuration block states impossible members"); };
  if (block.epoch == 0 || !CountsFit(block.replica_count, block.absent_count)) return bad();
  Configuration configuration{block.epoch, block.owner, {}, {}};
  configuration.branch = {block.branch_epoch, block.branch_owner};
  for (uint32_t i = 0; i < block.replica_count + block.absent_count; ++i) {
    const auto& [node, address] = block.replicas[i];
    const auto end = std::find(address.begin(), address.end(), '\0');
    if (end == address.end()) return bad();
    auto& list = i < block.replica_count ? configuration.replicas : configuration.absent;
    list.push_back({node, std::string(address.begin(), end)});
  }
  return configuration;
}

// --- file table

TableEntry MakeTableEntry(const RegionInfo& info, const TableFile& file) {
  TableEntry entry{};
  entry.name_length = static_cast<uint8_t>(std::min(file.name.size(), kMaxNameLength));
  std::memcpy(entry.name.data(), file.name.data(), entry.name_length);
  entry.state = 1;
  entry.lane = file.lane;
  entry.created_seq = file.created_seq;
  entry.checksum = file.checksum;
  entry.crc = StructCrc(entry, info.seed);  // size and size_crc are still 0
  const TableSize size = MakeTableSize(info, file.size);
  entry.size = size.size;
  entry.size_crc = size.crc;
  return entry;
}

TableSize MakeTableSize(const RegionInfo& info, uint64_t size) {
  return {size, Crc32c(~info.seed, &size, sizeof(size))};
}

bool CheckTableSize(const RegionInfo& info, const TableSize& size) {
  return MakeTableSize(info, size.size).crc == size.crc;
}

uint32_t ExtentSeed(const RegionInfo& info, uint32_t slot_plus_one, uint32_t index) {
  const uint32_t place[2] = {slot_plus_one, index};
  return Crc32c(info.seed, place, sizeof(place));
}

Result<TableFile> ParseTableEntry(std::span<const std::byte> bytes, const RegionInfo& info) {
  if (bytes.size() < sizeof(TableEntry)) return Corruption("table entry cut short");
  auto entry = Load<TableEntry>(bytes);
  if (entry.state == 0) {
    if (!AllZero(std::as_bytes(std::span(&entry, 1))))
      return Corruption("free table entry is not empty");
    return NotFound("free table entry");
  }
  const TableSize size{std::exchange(entry.size, 0), std::exchange(entry.size_crc, 0)};
  if (StructCrc(entry, info.seed) != entry.crc) return Corruption("table entry fails its checksum");
  if (entry.state != 1 || entry.lane > 1 || entry.name_length > kMaxNameLength ||
      entry.zero0 != 0 || entry.zero1 != 0 || (entry.checksum != 0) != (entry.lane != 0) ||
      !AllZero(entry.zero)) {
    return Corruption("table entry holds values unknown to this version");
  }
  if (!CheckTableSize(info, size)) return Corruption("file size fails its checksum");
  TableFile file{std::string(entry.name.data(), entry.name_length), entry.lane, size.size,
                 entry.created_seq, entry.checksum};
  const Status name = CheckFileName(file.name);
  if (!name.ok()) return Corruption("table entry: " + name.message());
  return file;
}

Status CheckFileName(std::string_view name) {
  const auto bad = [&](std::string_view why) {
    return InvalidArgument("file name \"" + std::string(name) + "\" " + std::string(why));
  };
  if (name.empty()) return bad("is empty");
  if (name.size() > kMaxNameLength) {
    return bad("has " + std::to_string(name.size()) + " bytes, the file table holds " +
               std::to_string(kMaxNameLength));
  }
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\')
      return bad("has a control character or backslash");
  }
  if (std::count(name.begin(), name.end(), '/') > 1) return bad("has more than one directory");
  size_t begin = 0;
  while (true) {
    const size_t slash = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, slash - begin);
    if (part.empty() || part == "." || part == "..") return bad("is not a plain relative path");
    if (slash == name.size()) return {};
    begin = slash + 1;
  }
}

}  // namespace hyperloop
