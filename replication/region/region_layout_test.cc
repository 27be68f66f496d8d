#include "region/region_layout.h"

#include <cstring>
#include <functional>
#include <random>
#include <set>

#include "common/random_uuid.h"
#include "gtest/gtest.h"
#include "region/absences.h"
#include "region/crc32c.h"
#include "region/record.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using testing::HasSubstr;

constexpr uint64_t kSmall = 1u << 20;

RegionGeometry SmallGeometry() { return RegionGeometry::Compute(kSmall, 65536, 64, 4096).value(); }

std::vector<std::byte> Formatted(const Uuid& group = RandomUuid()) {
  std::vector<std::byte> region(kSmall);
  EXPECT_OK(FormatRegion(region, group, RandomSecret(), SmallGeometry()));
  return region;
}

TEST(Crc32c, MatchesTheKnownVectors) {
  // RFC 3720 B.4, in ISA-L's convention (no final inversion).
  const std::vector<unsigned char> zeros(32, 0), ones(32, 0xff);
  EXPECT_EQ(~Crc32c(~0u, zeros.data(), 32), 0x8a9136aau);
  EXPECT_EQ(~Crc32c(~0u, ones.data(), 32), 0x62a8ab43u);
}

TEST(Crc32c, TwiceIsTwoOfThem) {
  std::mt19937_64 random(1);
  std::vector<unsigned char> bytes(5 << 20);
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
  std::vector<size_t> sizes{4095, 4096, 4097, (1 << 18) - 1, 1 << 18, (1 << 18) + 1, 5 << 20};
  for (size_t size = 0; size < 1200; ++size) sizes.push_back(size);
  for (int i = 0; i < 50; ++i) sizes.push_back(random() % bytes.size());
  for (const size_t size : sizes) {
    const auto a = static_cast<uint32_t>(random()), b = static_cast<uint32_t>(random());
    const Crc32cPair pair = Crc32cTwice(a, b, bytes.data(), size);
    ASSERT_EQ(pair.a, Crc32c(a, bytes.data(), size)) << size;
    ASSERT_EQ(pair.b, Crc32c(b, bytes.data(), size)) << size;
  }
}
TEST(Uuid, TextRoundTripAndRefusals) {
  const Uuid uuid = RandomUuid();
  EXPECT_EQ(ParseUuid(FormatUuid(uuid)).value(), uuid);
  EXPECT_NE(uuid, RandomUuid());
  for (const char* bad :
       {"", "0", "00000000-0000-0000-0000-00000000000", "00000000x0000-0000-0000-000000000000",
        "0000000g-0000-0000-0000-000000000000", "00000000-0000-0000-0000-0000000000000"}) {
    EXPECT_THAT(ParseUuid(bad), StatusIs(Code::kInvalidArgument)) << bad;
  }
}

TEST(Geometry, PartsDoNotOverlapAndFillTheRegion) {
  for (const uint64_t size : {64ull << 20, 96ull << 20, 1ull << 30, 15ull << 30}) {
    const auto g = RegionGeometry::Compute(size, 32ull << 20, 4096).value();
    EXPECT_EQ(g.binding_offset, g.journal_end());
    EXPECT_GE(g.configuration_offset(), g.binding_offset + sizeof(BindingBlock));
    EXPECT_GE(g.table_offset, g.configuration_offset() + sizeof(ConfigurationBlock));
    EXPECT_GE(g.map_offset, g.EntryOffset(g.table_capacity));
    EXPECT_GE(g.data_offset, g.MapOffset(g.extent_count));
    EXPECT_LE(g.ExtentOffset(g.extent_count), size);
    EXPECT_LT(size - g.ExtentOffset(g.extent_count), g.extent_size + 4096ull);
    EXPECT_LT(g.reserved_extents, g.extent_count);
  }
}

TEST(Geometry, RefusalsNameTheRemedy) {
  const auto small = RegionGeometry::Compute(33ull << 20, 32ull << 20, 4096);
  EXPECT_THAT(small, StatusIs(Code::kInvalidArgument));
  // The size that the message names suffices; a page less does not.
  const std::string& text = small.status().message();
  const uint64_t needed = std::stoull(text.substr(text.find("need ") + 5));
  EXPECT_OK(RegionGeometry::Compute(needed, 32ull << 20, 4096));
  EXPECT_THAT(RegionGeometry::Compute(needed - 4096, 32ull << 20, 4096),
              StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(RegionGeometry::Compute(16ull << 30, 32ull << 20, 4096).status().message(),
              HasSubstr("15 GiB"));
  EXPECT_THAT(RegionGeometry::Compute(100 * kSmall + 1, 32ull << 20, 4096),
              StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(RegionGeometry::Compute(100 * kSmall, 4096, 4096), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(RegionGeometry::Compute(100 * kSmall, 32ull << 20, 0),
              StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(RegionGeometry::Compute(100 * kSmall, 32ull << 20, 4096, 5000),
              StatusIs(Code::kInvalidArgument));
  // A ring in which the freeing of a large file would not fit.
  EXPECT_THAT(RegionGeometry::Compute(15ull << 30, 65536, 4096), StatusIs(Code::kInvalidArgument));
}

TEST(Format, IsReadBack) {
  const Uuid group = RandomUuid();
  const auto region = Formatted(group);
  const auto info = ParseSuperblock(region, region.size());
  ASSERT_OK(info);
  EXPECT_EQ(info->group, group);
  EXPECT_EQ(info->geometry, SmallGeometry());
  const auto head = ReadHead(region, *info);
  ASSERT_OK(head);
  EXPECT_EQ(head->cursor, (LogCursor{0, 0, 0, info->seed}));
  const auto binding =
      ParseBindingBlock(std::span(region).subspan(info->geometry.binding_offset), *info);
  ASSERT_OK(binding);
  EXPECT_EQ(binding->database, kNilUuid);
}

TEST(Superblock, SaysWhatIsWrong) {
  auto region = Formatted();
  const std::vector<std::byte> zeros(4096);
  EXPECT_THAT(ParseSuperblock(zeros, 4096), StatusIs(Code::kNotFound));
  EXPECT_THAT(ParseSuperblock(region, kSmall - 4096).status().message(), HasSubstr("there are"));
  auto other = region;
  other[8] = std::byte{9};
  EXPECT_THAT(ParseSuperblock(other, kSmall).status().message(), HasSubstr("version 9"));
  other = region;
  other[0] = std::byte{9};
  EXPECT_THAT(ParseSuperblock(other, kSmall).status().message(), HasSubstr("something else"));
  // Every single-bit error is found, except of what AddFeatures changes.
  for (size_t bit = 0; bit < sizeof(Superblock) * 8; ++bit) {
    if (bit / 32 == offsetof(Superblock, features) / 4 && (kKnownFeatures >> bit % 32 & 1) != 0)
      continue;
    other = region;
    other[bit / 8] ^= std::byte(1u << bit % 8);
    EXPECT_THAT(ParseSuperblock(other, kSmall), StatusIs(Code::kCorruption)) << bit;
  }
}

// A superblock of this version with a right checksum, but something else than FormatRegion's.
Status ParseWith(const std::function<void(Superblock*)>& change) {
  auto region = Formatted();
  Superblock block;
  std::memcpy(&block, region.data(), sizeof(block));
  change(&block);
  block.crc = 0;
  block.crc = Crc32c(0, &block, sizeof(block));
  std::memcpy(region.data(), &block, sizeof(block));
  return ParseSuperblock(region, kSmall).status();
}
TEST(Superblock, OlderVersionsAndUnknownFeaturesAreRefusedByName) {
  EXPECT_OK(ParseWith([](Superblock*) {}));
  const Status older = ParseWith([](Superblock* block) { block->version = 2; });
  EXPECT_THAT(older,
              StatusIs(Code::kCorruption, HasSubstr("version 2, this program knows 3: export")));
  EXPECT_THAT(older.message(), HasSubstr("make the group anew"));
  const Status newer = ParseWith([](Superblock* block) { block->version = 4; });
  EXPECT_THAT(newer.message(), testing::Not(HasSubstr("export")));
  const Status feature = ParseWith([](Superblock* block) { block->features = 4; });
  EXPECT_THAT(feature, StatusIs(Code::kNotSupported, HasSubstr("features 4")));
}

void SetFeatures(std::span<std::byte> region, uint32_t features) {
  Superblock block;
  std::memcpy(&block, region.data(), sizeof(block));
  block.features = features;
  block.crc = 0;
  block.crc = Crc32c(0, &block, sizeof(block));
  std::memcpy(region.data(), &block, sizeof(block));
}

TEST(Superblock, AddedFeaturesAreThoseThatThisProgramKnows) {
  const auto original = Formatted();
  auto region = original;
  const RegionInfo before = ParseSuperblock(region, kSmall).value();
  AddFeatures(region);
  Superblock block;
  std::memcpy(&block, region.data(), sizeof(block));
  EXPECT_EQ(block.features, kKnownFeatures);
  const auto after = ParseSuperblock(region, kSmall);
  ASSERT_OK(after);
  EXPECT_EQ(after->geometry, before.geometry);
  EXPECT_EQ(after->seed, before.seed);
  EXPECT_EQ(after->record_magic, before.record_magic);
  // A power failure may keep either word alone.
  for (const size_t kept : {offsetof(Superblock, crc), offsetof(Superblock, features)}) {
    for (const uint32_t former : {0u, kFilesLeave}) {  // an earlier release's
      auto torn = original;
      SetFeatures(torn, former);
      std::memcpy(torn.data() + kept, region.data() + kept, sizeof(uint32_t));
      EXPECT_OK(ParseSuperblock(torn, kSmall)) << kept;
    }
  }
}

// An earlier release reads no head that says how many of its records are undecided. It has to find
// the feature first, which it refuses by name.
TEST(Superblock, HeadsThatPassUndecidedRecordsAreAFeature) {
  auto region = Formatted();
  AddFeatures(region);
  Superblock block;
  std::memcpy(&block, region.data(), sizeof(block));
  EXPECT_EQ(block.features & ~kFilesLeave, kUndecidedHeads) << "1 is all that release knows";
}

// Seed and magic are two unknowns of 32 bits: neither one of them, nor their difference, reveals
// the other.
TEST(Superblock, SeedAndMagicAreIndependentSecrets) {
  const Uuid group = RandomUuid();
  std::set<uint32_t> seeds, magics, differences;
  for (int i = 0; i < 100; ++i) {
    std::vector<std::byte> region(kSmall);
    ASSERT_OK(FormatRegion(region, group, RandomSecret(), SmallGeometry()));
    const RegionInfo info = ParseSuperblock(region, region.size()).value();
    EXPECT_NE(info.record_magic, 0u);
    seeds.insert(info.seed);
    magics.insert(info.record_magic);
    differences.insert(info.seed ^ info.record_magic);
  }
  EXPECT_EQ(seeds.size(), 100u);
  EXPECT_EQ(magics.size(), 100u);
  EXPECT_EQ(differences.size(), 100u);
}

TEST(Configuration, RoundTripAndChecks) {
  const auto region = Formatted();
  const auto info = ParseSuperblock(region, region.size()).value();
  const auto none = ParseConfigurationBlock(
      std::span(region).subspan(info.geometry.configuration_offset()), info);
  ASSERT_OK(none);
  EXPECT_EQ(none->epoch, 0u);
  Configuration configuration{9, RandomUuid(), {}, {}};
  for (int i = 0; i < 8; ++i) {
    auto& list = i < 5 ? configuration.replicas : configuration.absent;
    list.push_back({RandomUuid(), "host" + std::to_string(i) + ":7000"});
  }
  configuration.branch = {7, RandomUuid()};
  ConfigurationBlock block = MakeConfigurationBlock(info, configuration).value();
  const auto bytes = [&] { return std::as_bytes(std::span(&block, 1)); };
  const auto read = ParseConfigurationBlock(bytes(), info);
  ASSERT_OK(read);
  EXPECT_EQ(read->epoch, 9u);
  EXPECT_EQ(read->owner, configuration.owner);
  EXPECT_EQ(read->branch, configuration.branch);
  ASSERT_EQ(read->replicas.size(), 5u);
  EXPECT_EQ(read->replicas[4].address, "host4:7000");
  EXPECT_EQ(read->replicas[4].node, configuration.replicas[4].node);
  ASSERT_EQ(read->absent.size(), 3u);
  EXPECT_EQ(read->absent[2].address, "host7:7000");
  EXPECT_EQ(read->absent[2].node, configuration.absent[2].node);
  const ConfigurationBlock whole = block;
  for (size_t bit = 0; bit < sizeof(block) * 8; bit += 5) {
    reinterpret_cast<char*>(&block)[bit / 8] ^= static_cast<char>(1u << bit % 8);
    EXPECT_THAT(ParseConfigurationBlock(bytes(), info), StatusIs(Code::kCorruption)) << bit;
    block = whole;
  }
  configuration.replicas[0].address.assign(80, 'x');
  EXPECT_THAT(MakeConfigurationBlock(info, configuration), StatusIs(Code::kInvalidArgument));
  configuration.replicas.assign(6, {});
  EXPECT_THAT(MakeConfigurationBlock(info, configuration), StatusIs(Code::kInvalidArgument));
}

TEST(Head, NewerValidCopyCounts) {
  auto region = Formatted();
  const auto info = ParseSuperblock(region, region.size()).value();
  const Head newer{2, {5, 1, 640, 77}};
  const HeadBlock block = MakeHeadBlock(info, newer);
  std::memcpy(region.data() + kHeadOffsets[0], &block, sizeof(block));
  EXPECT_EQ(ReadHead(region, info)->cursor, newer.cursor);
  region[kHeadOffsets[0] + 20] ^= std::byte{1};  // torn: the older one counts
  EXPECT_EQ(ReadHead(region, info)->cursor.seq, 0u);
  region[kHeadOffsets[1] + 20] ^= std::byte{1};
  EXPECT_THAT(ReadHead(region, info), StatusIs(Code::kCorruption));
  // No more can be undecided than there is.
  for (const uint64_t undecided : {uint64_t{5}, uint64_t{6}}) {
    const HeadBlock open = MakeHeadBlock(info, {3, newer.cursor, undecided});
    const auto parsed = ParseHeadBlock(std::as_bytes(std::span(&open, 1)), info);
    EXPECT_EQ(parsed.ok() ? parsed->undecided : 0, undecided == 5 ? 5u : 0u);
  }
  // Nor is a log so long that counting on would begin anew.
  constexpr uint64_t kLong = uint64_t{1} << 63;
  for (const LogCursor& cursor : {LogCursor{5, 1, kLong, 77}, LogCursor{kLong, 1, 640, 77}}) {
    const HeadBlock wraps = MakeHeadBlock(info, {3, cursor});
    EXPECT_THAT(ParseHeadBlock(std::as_bytes(std::span(&wraps, 1)), info),
                StatusIs(Code::kCorruption));
  }
  // A head of another group does not pass.
  auto foreign = Formatted();
  const auto foreign_info = ParseSuperblock(foreign, foreign.size()).value();
  EXPECT_THAT(ParseHeadBlock(std::as_bytes(std::span(&block, 1)), foreign_info),
              StatusIs(Code::kCorruption));
}

TEST(TableEntry, RoundTripAndChecks) {
  const auto region = Formatted();
  const auto info = ParseSuperblock(region, region.size()).value();
  TableEntry entry = MakeTableEntry(info, {"archive/000034.log", 0, 12345, 9});
  const auto bytes = [&] { return std::as_bytes(std::span(&entry, 1)); };
  auto file = ParseTableEntry(bytes(), info);
  ASSERT_OK(file);
  EXPECT_EQ(file->name, "archive/000034.log");
  EXPECT_EQ(file->size, 12345u);
  // The size is rewritten alone, together with its own checksum.
  const TableSize size = MakeTableSize(info, 5);
  std::memcpy(reinterpret_cast<char*>(&entry) + offsetof(TableEntry, size), &size, sizeof(size));
  EXPECT_EQ(ParseTableEntry(bytes(), info)->size, 5u);
  entry.size = 6;
  EXPECT_THAT(ParseTableEntry(bytes(), info).status().message(), HasSubstr("size fails"));
  entry.size = 5;
  // Every single-bit error is found.
  const TableEntry whole = entry;
  for (size_t bit = 0; bit < sizeof(entry) * 8; ++bit) {
    reinterpret_cast<char*>(&entry)[bit / 8] ^= static_cast<char>(1u << bit % 8);
    EXPECT_THAT(ParseTableEntry(bytes(), info), StatusIs(Code::kCorruption)) << bit;
    entry = whole;
  }
  entry.lane = 1;
  EXPECT_THAT(ParseTableEntry(bytes(), info), StatusIs(Code::kCorruption));
  entry = {};
  EXPECT_THAT(ParseTableEntry(bytes(), info), StatusIs(Code::kNotFound));
  // A name that leads out of the directory is refused even with a right CRC.
  entry = MakeTableEntry(info, {"../etc/passwd", 0, 0, 1});
  EXPECT_THAT(ParseTableEntry(bytes(), info), StatusIs(Code::kCorruption));
}

TEST(FileName, RefusesTricks) {
  for (const char* good : {"CURRENT", "000001.log", "archive/000001.log", "a..b", ".hidden"}) {
    EXPECT_OK(CheckFileName(good)) << good;
  }
  const std::string long_name(80, 'x');
  for (const std::string& bad :
       {std::string(), std::string("/a"), std::string("a/"), std::string(".."), std::string("../a"),
        std::string("a/.."), std::string("./a"), std::string("a/b/c"), std::string("a\nb"),
        std::string("a\0b", 3), std::string("a\\b"), long_name}) {
    EXPECT_THAT(CheckFileName(bad), StatusIs(Code::kInvalidArgument)) << bad;
  }
}

TEST(NodePage, AlternatesAndSurvivesATornCopy) {
  std::vector<std::byte> page(kNodePageSize);
  EXPECT_THAT(ReadNodeState(page), StatusIs(Code::kNotFound));
  NodeState state;
  state.node = RandomUuid();
  state.sealed_epoch = 1;
  state.installed = {1,
                     RandomUuid(),
                     {{RandomUuid(), "127.0.0.1:7001"}, {RandomUuid(), "127.0.0.1:7002"}},
                     {{RandomUuid(), "127.0.0.1:7003"}}};
  state.installed.branch = {1, RandomUuid()};
  const auto first = WriteNodeState(page, &state).value();
  state.sealed_epoch = 2;
  state.released = true;
  const auto second = WriteNodeState(page, &state).value();
  EXPECT_NE(first.offset, second.offset);
  auto read = ReadNodeState(page).value();
  EXPECT_EQ(read.sealed_epoch, 2u);
  EXPECT_TRUE(read.released);
  ASSERT_EQ(read.installed.replicas.size(), 2u);
  EXPECT_EQ(read.installed.replicas[1].address, "127.0.0.1:7002");
  EXPECT_EQ(read.installed.replicas[1].node, state.installed.replicas[1].node);
  EXPECT_EQ(read.installed.branch, state.installed.branch);
  ASSERT_EQ(read.installed.absent.size(), 1u);
  EXPECT_EQ(read.installed.absent[0].address, "127.0.0.1:7003");
  page[second.offset + 40] ^= std::byte{1};
  EXPECT_EQ(ReadNodeState(page)->sealed_epoch, 1u);
  // The next write replaces the torn copy, never the good one.
  EXPECT_EQ(WriteNodeState(page, &state)->offset, second.offset);
  page[first.offset + 40] ^= std::byte{1};
  page[second.offset + 40] ^= std::byte{1};
  EXPECT_THAT(ReadNodeState(page), StatusIs(Code::kCorruption));
  // The heartbeat word is under no CRC.
  state.installed.replicas[0].address.assign(80, 'x');
  EXPECT_THAT(WriteNodeState(page, &state), StatusIs(Code::kInvalidArgument));
}

NodeState Directed(const std::string& node) {
  NodeState state;
  state.node = {1};
  state.directive.number = {4, 5};
  state.directive.paused = true;
  state.directive.owner = FormatUuid({7});
  state.directive.node = node;
  state.directive.drained = {std::string(kMaxDirectiveNode, 'd'), "e"};
  state.directive.by = std::string(kMaxDirectiveBy, 'b');
  state.directive.when = 9;
  state.promised = {6, 8};
  return state;
}

TEST(NodePage, TheDirectiveIsTheOneWrittenLastWhoeverWroteTheState) {
  std::vector<std::byte> page(kNodePageSize);
  NodeState first = Directed("a"), second = Directed("b"), third = Directed("c");
  ASSERT_OK(WriteNodeState(page, &first));
  EXPECT_EQ(ReadNodeState(page)->directive, first.directive);
  EXPECT_EQ(ReadNodeState(page)->promised, first.promised);
  ASSERT_OK(WriteNodeState(page, &second));
  EXPECT_EQ(ReadNodeState(page)->directive, second.directive);
  // An earlier release writes its state alone, over the older copy.
  const std::vector<std::byte> before = page;
  third.sealed_epoch = 3;
  const PageRange range = WriteNodeState(page, &third).value();
  std::copy_n(before.begin() + static_cast<ptrdiff_t>(range.offset + kDirectiveInCopy), 1024,
              page.begin() + static_cast<ptrdiff_t>(range.offset + kDirectiveInCopy));
  EXPECT_EQ(ReadNodeState(page)->sealed_epoch, 3u);
  EXPECT_EQ(ReadNodeState(page)->directive, second.directive);
  // So does a write of which the second half was lost.
  page[range.offset + kDirectiveInCopy + 100] ^= std::byte{1};
  EXPECT_EQ(ReadNodeState(page)->directive, second.directive);
}

TEST(NodePage, APageOfAnEarlierReleaseHasNoDirective) {
  std::vector<std::byte> page(kNodePageSize);
  NodeState state = Directed("a");
  for (const uint64_t copy : kNodeCopyOffsets) {
    ASSERT_OK(WriteNodeState(page, &state));
    std::fill_n(page.begin() + static_cast<ptrdiff_t>(copy + kDirectiveInCopy), 1024, std::byte{0});
  }
  EXPECT_EQ(ReadNodeState(page)->directive, Directive());
  EXPECT_EQ(ReadNodeState(page)->promised, DirectiveNumber());
  state.directive.node.assign(60, 'n');
  EXPECT_THAT(WriteNodeState(page, &state), StatusIs(Code::kInvalidArgument));
}

// Parse functions on arbitrary bytes neither crash nor read outside (the sanitizer build checks),
// and never return a record out of bounds.
TEST(Parse, NeverCrashesOnMutatedBytes) {
  std::mt19937_64 random(1);
  auto clean = Formatted();
  const auto info = ParseSuperblock(clean, clean.size()).value();
  RecordHeader header{};
  header.magic = info.record_magic;
  header.type = static_cast<uint8_t>(RecordType::kPad);
  header.seq = 1;
  header.length = 256;
  header.file_slot = kNoSlot;
  std::vector<std::byte> seed_bytes(256);
  const TableEntry entry = MakeTableEntry(info, {"x", 0, 1, 1});
  size_t valid = 0;
  for (int round = 0; round < 200000; ++round) {
    header.type = static_cast<uint8_t>(random() % 8);
    header.entry_count = static_cast<uint16_t>(random() % 4 == 0 ? random() : random() % 4);
    header.length = static_cast<uint32_t>(random() % 4 == 0 ? random() : 64 + random() % 256);
    std::memcpy(seed_bytes.data(), &header, sizeof(header));
    for (int i = 0; i < 4; ++i) seed_bytes[random() % 256] = static_cast<std::byte>(random());
    if (random() % 2 == 0 && header.length >= 64 &&
        header.length <= 256) {  // half of them with a good CRC
      const uint64_t covered = header.type == 1 ? 64 : header.length;
      RecordHeader fixed;
      std::memcpy(&fixed, seed_bytes.data(), sizeof(fixed));
      fixed.crc = RecordCrc(seed_bytes.data(), covered, info.seed);
      std::memcpy(seed_bytes.data(), &fixed, sizeof(fixed));
    }
    std::vector<std::byte> bytes(seed_bytes.begin(),
                                 seed_bytes.begin() + static_cast<long>(random() % 257));
    RecordView view;
    if (ParseRecord(bytes, info, &view) == RecordCheck::kValid) {
      ++valid;
      for (size_t i = 0; i < view.header.entry_count; ++i) {
        ASSERT_TRUE(info.geometry.Applied(view.entry(i).destination, view.entry(i).length));
      }
    }
    std::vector<std::byte> mutated(sizeof(entry));
    std::memcpy(mutated.data(), &entry, sizeof(entry));
    mutated[random() % mutated.size()] = static_cast<std::byte>(random());
    ParseTableEntry(mutated, info).status().IgnoreError();
    ParseHeadBlock(bytes, info).status().IgnoreError();
    ParseBindingBlock(bytes, info).status().IgnoreError();
    ParseConfigurationBlock(bytes, info).status().IgnoreError();
    ParseSuperblock(bytes, bytes.size()).status().IgnoreError();
  }
  EXPECT_GT(valid, 0u);
  std::vector<std::byte> page(kNodePageSize);
  for (int round = 0; round < 200; ++round) {
    for (auto& b : page) b = static_cast<std::byte>(random());
    EXPECT_THAT(ReadNodeState(page), StatusIs(Code::kCorruption));
  }
}

TEST(NodePage, TextsForPeopleLeaveEachOtherAndTheStateAlone) {
  std::vector<std::byte> page(kNodePageSize);
  NodeState state;
  state.node = {1, 2, 3};
  ASSERT_OK(WriteNodeState(page, &state));
  EXPECT_EQ(ReadFileDamage(page), "");
  WriteFileDamage(page, std::string(2 * kFileDamageSize, 'd'));
  WriteOwnerName(page, "owner");
  EXPECT_EQ(ReadFileDamage(page), std::string(kFileDamageSize - 1, 'd')) << "cut";
  EXPECT_EQ(ReadOwnerName(page), "owner");
  EXPECT_EQ(ReadNodeState(page)->node, state.node);
  WriteAbsences(page, "absent");
  WriteFileRefusal(page, std::string(2 * kFileRefusalSize, 'r'));
  EXPECT_EQ(ReadAbsences(page), "absent");
  EXPECT_EQ(ReadFileRefusal(page), std::string(kFileRefusalSize - 1, 'r')) << "cut";
  const OwnerDamage damage = EncodeOwnerDamage(std::string(2 * kOwnerDamageSize, 'o'));
  std::ranges::copy(damage, page.begin() + kOwnerDamageOffset);
  EXPECT_EQ(ReadOwnerDamage(page), std::string(kOwnerDamageSize - 1, 'o')) << "cut";
  WriteFileDamage(page, "");
  EXPECT_EQ(ReadFileDamage(page), "");
  EXPECT_EQ(ReadOwnerName(page), "owner");
  EXPECT_EQ(ReadNodeState(page)->node, state.node);
}

TEST(Absences, EachIsNamedHoweverManyThereAre) {
  Absences absences;
  for (const char* address : {"10.0.0.1:7000", "10.0.0.2:7000", "10.0.0.3:7000", "10.0.0.4:7000"})
    absences[address] = "since 2026-11-20T18:26:34Z: " + std::string(400, 'x');
  const Absences read = ParseAbsences(FormatAbsences(absences));
  ASSERT_EQ(read.size(), 4u);
  EXPECT_GT(read.rbegin()->second.size(), 200u);
  EXPECT_GT(ParseAbsences(FormatAbsences({*absences.begin()})).begin()->second.size(), 300u);
}

}  // namespace
}  // namespace hyperloop
