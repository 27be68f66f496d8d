#include "inspect/member_check.h"

#include <bit>
#include <cstring>
#include <string>
#include <tuple>

#include "gtest/gtest.h"
#include "log/redo.h"
#include "region/crc32c.h"
#include "support/status_matchers.h"
#include "testing/lane_bench.h"

namespace hyperloop {
namespace {

using Mode = MemoryGroup::Mode;
using Image = std::vector<std::byte>;
using testing::HasSubstr;

std::string Joined(const MemberCheck& check, const RegionInfo& info) {
  std::string text;
  for (const std::string& each : check.Damage(info)) text += each + "\n";
  return text;
}

FileModel FilesOf(Image image, const RegionInfo& info) {
  FileModel files;
  if (!Redo(image, info).ok()) return {{"no log", ""}};
  const auto table = FileTable::Load(image, info);
  if (!table.ok()) return {{"no table", ""}};
  for (const FileInfo& file : table->List()) {
    std::string& text = files[file.name];
    text.resize(file.lane == Lane::kLog ? file.size : 0);
    table->ReadBytes(image, info, SlotOf(file.id), 0, text);
  }
  return files;
}

// Nodes with executed records, and with records behind the head.
struct Nodes : LaneBench {
  Nodes() : LaneBench(Mode::kImmediate) {
    Append("1.log", Bytes(3000));
    Append("1.log", std::string(6000, 'x'));
    Append("MANIFEST-1", Bytes(900));
    EXPECT_OK(lane->Bind({Uuid{1}, "/db"}));
    EXPECT_OK(lane->Checkpoint());
    Append("1.log", Bytes(500));
    Append("2.log", Bytes(700));
    EXPECT_OK(lane->Truncate(Must(lane->Lookup("MANIFEST-1")), 400));
    Append("1.log", Bytes(90));
    EXPECT_OK(lane->Sync());
    info = region.info;
    g = info.geometry;
    check = CheckMember(group.image(0), info);
    EXPECT_TRUE(check.sound()) << Joined(check, info);
  }
  std::string Bytes(size_t size) {
    std::string text(size, ' ');
    for (char& c : text) c = static_cast<char>(random());
    return text;
  }
  void Append(const std::string& name, const std::string& text) {
    if (!lane->Lookup(name).ok()) {
      EXPECT_OK(lane->Create(name));
    }
    for (size_t at = 0; at < text.size(); at += 3000) {
      const Status status = lane->Append(Must(lane->Lookup(name)), text.substr(at, 3000)).status();
      EXPECT_OK(status);
    }
    model[name] += text;
  }
  // The extent at place `index` of the file.
  uint32_t Extent(const std::string& name, uint32_t index) {
    const uint32_t slot = SlotOf(Must(lane->Lookup(name)));
    return check.table.slots[slot].extents[index];
  }

  RegionInfo info;
  RegionGeometry g;
  MemberCheck check;
};

TEST(MemberCheck, SaysWhatASoundMemberHolds) {
  Nodes nodes;
  const Image before = nodes.group.image(0);
  EXPECT_EQ(nodes.check.log.tail.seq, nodes.lane->statistics().last_seq);
  EXPECT_GT(nodes.check.log.records, 3u);
  EXPECT_GE(nodes.check.acked, nodes.check.log.tail.seq - 1);
  EXPECT_EQ(nodes.check.table.List().size(), 3u);
  EXPECT_EQ(nodes.check.binding.directory, "/db");
  EXPECT_EQ(nodes.check.configuration.epoch, 1u);
  ASSERT_EQ(nodes.check.configuration.replicas.size(), 2u);
  EXPECT_EQ(nodes.check.configuration.replicas[1].address, "127.0.0.1:2");
  EXPECT_TRUE(nodes.group.image(0) == before);
  const uint64_t beyond = nodes.check.log.tail.seq + 1;
  EXPECT_THAT(CheckMember(before, nodes.info, beyond).log_error, StatusIs(Code::kCorruption));
  EXPECT_FALSE(CheckMember(std::span(before).first(before.size() - 1), nodes.info).sound());
}

// Flips bits of a member, one at a time.
class Flips {
 public:
  // `newest`: where the newest record begins.
  Flips(Nodes& nodes, uint64_t newest)
      : clean_(nodes.group.image(0)),
        files_(FilesOf(clean_, nodes.info)),
        tail_(nodes.check.log.tail),
        newest_(newest) {}

  struct Counts {
    int named = 0, harmless = 0, shorter = 0;
  };
  // Flips each `step`-th bit of these bytes.
  Counts In(uint64_t begin, uint64_t size, uint64_t step = 1) const {
    Counts counts;
    Image image = clean_;
    for (uint64_t bit = begin * 8; bit < (begin + size) * 8; bit += step) {
      SCOPED_TRACE("bit " + std::to_string(bit % 8) + " at " + std::to_string(bit / 8));
      image[bit / 8] ^= std::byte(1u << bit % 8);
      Judge(image, bit / 8, &counts);
      image[bit / 8] = clean_[bit / 8];
    }
    return counts;
  }

 private:
  void Judge(const Image& image, uint64_t at, Counts* counts) const {
    const auto info = ParseSuperblock(image, image.size());
    const MemberCheck check = info.ok() ? CheckMember(image, *info) : MemberCheck();
    if (!info.ok() || !check.sound()) {
      ++counts->named;
    } else if (check.log.tail == tail_) {
      EXPECT_TRUE(FilesOf(image, *info) == files_);
      ++counts->harmless;
    } else {
      // The log is shorter, which a comparison with the other members shows.
      EXPECT_EQ(check.log.tail.seq, tail_.seq - 1);
      EXPECT_GE(at, newest_);
      EXPECT_FALSE(CheckMember(image, *info, tail_.seq).sound());
      ++counts->shorter;
    }
  }

  const Image clean_;
  const FileModel files_;
  const LogCursor tail_;
  const uint64_t newest_;
};

// Flips every bit of everything that has a meaning: the damage is named, or it changes nothing that
// is read from the member.
TEST(MemberCheck, NoSingleBitGoesUnseen) {
  Nodes nodes;
  std::vector<std::pair<uint64_t, uint64_t>> records;  // place and length
  ASSERT_OK(ScanLog(nodes.group.image(0), nodes.info, 0, [&](const RecordView& r, uint64_t at) {
    records.emplace_back(kJournalOffset + at, r.header.length);
    return Status();
  }));
  const auto [newest, newest_length] = records.back();
  records.pop_back();
  const Flips flips(nodes, newest);
  EXPECT_EQ(flips.In(0, sizeof(Superblock)).harmless, std::popcount(kKnownFeatures))
      << "AddFeatures may be cut short";
  // The older copy of the head can replace the newer while the ring has the records behind it.
  for (const uint64_t offset : kHeadOffsets) flips.In(offset, sizeof(HeadBlock));
  EXPECT_EQ(flips.In(kLockOffset, 8).named, 0);
  for (const auto& [at, length] : records) {
    const Flips::Counts counts = flips.In(at, length, 7);
    EXPECT_EQ(counts.harmless + counts.shorter, 0) << at;
    EXPECT_GT(counts.named, 80);
  }
  const Flips::Counts in_newest = flips.In(newest, newest_length);
  EXPECT_EQ(in_newest.harmless, 0);
  EXPECT_GT(in_newest.shorter, 100);
  // No record behind the head restates these bytes.
  const RegionGeometry& g = nodes.g;
  EXPECT_EQ(flips.In(g.binding_offset, sizeof(BindingBlock), 3).harmless, 0);
  EXPECT_EQ(flips.In(g.configuration_offset(), sizeof(ConfigurationBlock), 3).harmless, 0);
  EXPECT_EQ(flips.In(g.EntryOffset(0), sizeof(TableEntry)).harmless, 0);
  EXPECT_EQ(flips.In(g.EntryOffset(9), sizeof(TableEntry)).harmless, 0) << "a free entry";
  EXPECT_EQ(flips.In(g.MapOffset(nodes.Extent("1.log", 0)), sizeof(MapEntry)).harmless, 0);
  EXPECT_EQ(flips.In(g.MapOffset(nodes.Extent("1.log", 2)), sizeof(MapEntry)).harmless, 0);
  EXPECT_EQ(flips.In(g.MapOffset(15), sizeof(MapEntry)).harmless, 0) << "a free entry";
  EXPECT_EQ(flips.In(g.ExtentOffset(nodes.Extent("1.log", 1)), g.extent_size, 11).harmless, 0);
  const uint32_t partial = nodes.Extent("1.log", 2);
  const uint64_t length = nodes.check.table.map[partial].length;
  // The first 808 bytes were executed; those behind them are redone from the log.
  EXPECT_EQ(flips.In(g.ExtentOffset(partial), 808).harmless, 0);
  EXPECT_EQ(flips.In(g.ExtentOffset(partial) + 808, g.extent_size - 808, 3).named, 0);
  EXPECT_EQ(length, 808u + 590);
}

TEST(MemberCheck, NamesExtentFileAndPlace) {
  Nodes nodes;
  const uint32_t extent = nodes.Extent("1.log", 1);
  Image image = nodes.group.image(0);
  image[nodes.g.ExtentOffset(extent) + 5] ^= std::byte{1};
  const MemberCheck check = CheckMember(image, nodes.info);
  EXPECT_TRUE(check.readable());
  ASSERT_EQ(check.damaged.size(), 1u);
  EXPECT_EQ(check.damaged[0].file, "1.log");
  EXPECT_EQ(Joined(check, nodes.info), "extent " + std::to_string(extent) +
                                           " (\"1.log\", bytes 4096 to 8191) fails its checksum\n");
  EXPECT_TRUE(CheckMember(image, nodes.info, 0, CheckDepth::kMetadata).sound());
  ASSERT_OK(Redo(image, nodes.info));
  EXPECT_EQ(VerifyExtents(image, nodes.info, check.table).size(), 1u);
}

// Bytes that belong to another place are damage here, although they are intact in themselves.
TEST(MemberCheck, ExtentsThatChangedPlacesAreNamed) {
  Nodes nodes;
  nodes.Append("3.log", std::string(8192, 'y'));
  Image image = nodes.group.image(0);
  ASSERT_OK(nodes.lane->Checkpoint());
  image = nodes.group.image(0);
  nodes.check = CheckMember(image, nodes.info);
  const auto at = [&](uint32_t index) {
    return image.begin() + static_cast<long>(nodes.g.ExtentOffset(nodes.Extent("3.log", index)));
  };
  std::copy(at(0), at(0) + 4096, at(1));  // the same bytes: no damage
  EXPECT_TRUE(CheckMember(image, nodes.info).sound());
  std::swap_ranges(
      at(0), at(0) + 4096,
      image.begin() + static_cast<long>(nodes.g.ExtentOffset(nodes.Extent("1.log", 0))));
  EXPECT_EQ(CheckMember(image, nodes.info).damaged.size(), 2u);
}

TEST(MemberCheck, AnythingAtAllGetsAnAnswer) {
  Nodes nodes;
  const Image clean = nodes.group.image(0);
  std::mt19937_64 random(5);
  for (int round = 0; round < 3000; ++round) {
    Image image = clean;
    for (uint64_t n = 1 + random() % 12; n > 0; --n) {
      const uint64_t at =
          random() % 2 == 0 ? random() % image.size() : random() % (nodes.g.data_offset + 4096);
      image[at] = static_cast<std::byte>(random());
    }
    const auto info = ParseSuperblock(image, image.size());
    if (info.ok()) CheckMember(image, *info).Damage(*info);
  }
}

// --- crashes

// Statements are records like others, but the values that they state may already be in the region.
TEST(MemberCheck, AtEachStepOfStatementsEveryCrashIsSound) {
  uint64_t statements = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    LaneBench bench(Mode::kManual, seed, 2, 100000);
    const auto check_all = [&](const std::string& when) {
      for (size_t hop = 0; hop < 2; ++hop) {
        ASSERT_EQ(bench.WrongIn(bench.group.CrashImage(hop, bench.random), 0), "")
            << when << " seed " << seed;
      }
      ASSERT_EQ(bench.WrongIn(bench.region.bytes, 0), "") << when << " at the primary";
    };
    bench.group.set_mode(Mode::kImmediate);
    for (const char* name : {"1.log", "2.log"}) {
      ASSERT_OK(bench.lane->Create(name));
      bench.model[name] = "";
    }
    for (int round = 0; round < 12; ++round) {
      bench.group.set_mode(Mode::kImmediate);
      if (round % 4 == 3) {
        const uint64_t size = bench.random() % bench.model["1.log"].size();
        ASSERT_OK(bench.lane->Truncate(Must(bench.lane->Lookup("1.log")), size));
        bench.model["1.log"].resize(size);
      }
      bench.Remember();
      bench.group.set_mode(Mode::kManual);
      for (int i = 0; i < 6; ++i)
        bench.AppendInRecords(i % 3 == 0 ? "2.log" : "1.log", bench.RandomText(900));
      const auto count = [&](const RecordView& record, uint64_t) {
        statements += record.header.type == static_cast<uint8_t>(RecordType::kStatements);
        return Status();
      };
      ASSERT_OK(ScanLog(bench.region.bytes, bench.region.info, 0, count));
      check_all("before the steps");
      while (bench.group.Step()) {
        ASSERT_OK(bench.lane->Tick());
        check_all("between two steps");
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(statements, 0u);
}

// --- bytes that users wrote

// An outsider, who can know no more of a group than its uuid and this code.
struct Forger {
  explicit Forger(const Uuid& group) {
    TestRegion other;
    EXPECT_OK(FormatRegion(other.bytes, group, RegionSecret{}, other.info.geometry));
    info = ParseSuperblock(other.bytes, other.bytes.size()).value();
  }
  // A record that says that everything up to a million was acknowledged.
  std::string Record(uint32_t magic, uint32_t seed) const {
    RecordHeader h{};
    h.magic = magic;
    h.type = static_cast<uint8_t>(RecordType::kNamespace);
    h.entry_count = 1;
    h.epoch = 1;
    h.seq = 1000001;
    h.acked_seq = 1000000;
    h.length = 81;
    h.file_slot = kNoSlot;
    const RecordEntry entry{info.geometry.data_offset, 1, 0};
    std::string bytes(128, '\0');
    std::memcpy(bytes.data(), &h, sizeof(h));
    std::memcpy(bytes.data() + 64, &entry, sizeof(entry));
    h.crc = RecordCrc(reinterpret_cast<const std::byte*>(bytes.data()), 81, seed);
    std::memcpy(bytes.data(), &h, sizeof(h));
    return bytes;
  }
  RegionInfo info;
};

TEST(MemberCheck, NoPayloadPassesForARecord) {
  LaneBench bench(Mode::kImmediate);
  const Forger forger(bench.region.info.group);
  const uint32_t version_1 = Crc32c(0x484c5247, forger.info.group.data(), sizeof(Uuid));
  const FileId log = Must(bench.lane->Create("1.log"));
  for (uint32_t shift = 0; shift < 64; shift += 8) {  // whatever the payload's place in the ring
    for (const auto& [magic, seed] : {std::pair{forger.info.record_magic, forger.info.seed},
                                      std::pair{0x44524c48u, version_1}}) {
      std::string value(shift, 'x');
      for (int i = 0; i < 3; ++i) value += forger.Record(magic, seed);
      ASSERT_OK(bench.lane->Append(log, value));
    }
    if (shift == 32) {
      ASSERT_OK(bench.lane->Checkpoint());
    }
  }
  const auto& info = bench.region.info;
  const Image whole = bench.group.image(0);
  uint64_t last = 0;
  const auto log_state = ScanLog(whole, info, 0, [&](const RecordView&, uint64_t at) {
    last = kJournalOffset + at;
    return Status();
  });
  ASSERT_OK(log_state);
  EXPECT_LT(HighestAcked(whole, info), 100u);
  for (const uint64_t cut : {uint64_t{0}, uint64_t{63}, uint64_t{100}, uint64_t{200}}) {
    Image torn = whole;
    std::fill(torn.begin() + static_cast<long>(last + cut),
              torn.begin() + static_cast<long>(last + cut + 64), std::byte{0});
    const MemberCheck check = CheckMember(torn, info);
    EXPECT_TRUE(check.sound()) << Joined(check, info);
    EXPECT_EQ(check.log.tail.seq, log_state->tail.seq - 1);
  }
}

// --- damage gets no new checksum, but is mended

TEST(MemberCheck, ATruncationLeavesDamageDamaged) {
  for (const bool damage_behind_the_cut : {false, true}) {
    Nodes nodes;
    ASSERT_OK(nodes.lane->Drain());
    const uint64_t at = nodes.g.ExtentOffset(nodes.Extent("1.log", 1));
    nodes.region.bytes[at + (damage_behind_the_cut ? 3000 : 20)] ^= std::byte{8};
    const FileId file = Must(nodes.lane->Lookup("1.log"));
    EXPECT_THAT(nodes.lane->Truncate(file, 5000),
                StatusIs(Code::kCorruption, HasSubstr("\"1.log\" is not truncated to 5000 B")));
    EXPECT_EQ(nodes.lane->Files().value()[0].size, 9590u);
    // If no byte of the extent stays, no damage can get a new checksum.
    EXPECT_OK(nodes.lane->Truncate(file, 4096));
    EXPECT_TRUE(CheckMember(nodes.group.image(1), nodes.info).sound());
  }
}

struct MendTest : testing::Test, Nodes {
  // Members 0 and 1 are the others; ours is the third.
  MendTest() : ours(group.image(2)) {}
  Result<std::vector<MendedExtent>> Mend() {
    EXPECT_OK(Redo(ours, info));
    const auto table = FileTable::Load(ours, info);
    EXPECT_OK(table);
    damaged = VerifyExtents(ours, info, *table);
    const MemberFetch fetch = [&](size_t member, uint64_t offset,
                                  std::span<std::byte> out) -> Status {
      if (member == away) return Unavailable("member 0 is away");
      std::memcpy(out.data(), group.image(member).data() + offset, out.size());
      return {};
    };
    return MendExtents(ours, info, *table, damaged, {2, equal, fetch});
  }
  void Damage(Image& image, uint32_t extent, uint64_t within = 7) {
    image[g.ExtentOffset(extent) + within] ^= std::byte{32};
  }
  Image ours;
  std::vector<ExtentDamage> damaged;
  size_t away = 9, equal = 2;
};

TEST_F(MendTest, TakesTheFirstSoundCopyOfEachExtent) {
  const uint32_t first = Extent("1.log", 0), partial = Extent("1.log", 2);
  Damage(ours, first);
  Damage(ours, partial);
  Damage(group.image(0), partial);
  const auto mended = Mend();
  ASSERT_OK(mended);
  ASSERT_EQ(mended->size(), 2u);
  for (const MendedExtent& each : *mended) {
    EXPECT_EQ(each.member, each.damage.extent == first ? 0u : 1u);
    EXPECT_EQ(each.damage.file, "1.log");
  }
  EXPECT_TRUE(CheckMember(ours, info).sound());
  EXPECT_TRUE(FilesOf(ours, info) == FilesOf(group.image(1), info));
}

TEST_F(MendTest, TheChecksumItselfMayBeWhatIsDamaged) {
  ours[g.MapOffset(Extent("1.log", 2)) + offsetof(MapEntry, crc)] ^= std::byte{2};
  const auto mended = Mend();
  ASSERT_OK(mended);
  ASSERT_EQ(mended->size(), 1u);
  EXPECT_TRUE(CheckMember(ours, info).sound());
  EXPECT_TRUE(FilesOf(ours, info) == FilesOf(group.image(1), info));
}

// Its own map entry says nothing about what the newest epoch holds; its bytes may.
TEST_F(MendTest, AMemberOfAnOlderEpochProvesNothingByItsOwnMapEntry) {
  equal = 1;
  away = 0;
  const uint64_t crc_at = g.MapOffset(Extent("1.log", 2)) + offsetof(MapEntry, crc);
  ours[crc_at] ^= std::byte{2};
  EXPECT_THAT(Mend(), StatusIs(Code::kCorruption));
  ours = group.image(2);
  Damage(ours, Extent("1.log", 2));
  EXPECT_OK(Mend());
  EXPECT_TRUE(FilesOf(ours, info) == FilesOf(group.image(1), info));
}

TEST_F(MendTest, SaysWhereNobodyHasIt) {
  const uint32_t extent = Extent("1.log", 1);
  for (Image* image : {&ours, &group.image(1)}) Damage(*image, extent);
  away = 0;
  const Status status = Mend().status();
  EXPECT_THAT(status, StatusIs(Code::kCorruption));
  for (const std::string& text : {"extent " + std::to_string(extent), std::string("\"1.log\""),
                                  std::string("no member has"), std::string("member 0 is away")}) {
    EXPECT_THAT(status.message(), HasSubstr(text));
  }
}

// --- scrubbing

std::optional<MemberCheck> Scrub(Scrubber& scrubber, uint64_t budget, int* steps = nullptr) {
  int n = 1;
  while (!scrubber.Step(budget)) ++n;
  if (steps != nullptr) *steps = n;
  return scrubber.result();
}

TEST(Scrubber, FindsWhatTheCheckFinds) {
  Nodes nodes;
  Image image = nodes.group.image(0);
  for (const bool damage : {false, true}) {
    if (damage) image[nodes.g.ExtentOffset(nodes.Extent("1.log", 1))] ^= std::byte{1};
    Scrubber scrubber(image, nodes.info);
    int steps = 0;
    const auto result = Scrub(scrubber, 1, &steps);
    ASSERT_TRUE(result.has_value());
    EXPECT_GT(steps, 4);
    EXPECT_EQ(result->damaged.size(), damage ? 1u : 0u);
    EXPECT_EQ(result->log.tail, nodes.check.log.tail);
  }
  image[kJournalOffset + nodes.check.log.head.cursor.position + 70] ^= std::byte{1};
  Scrubber scrubber(image, nodes.info);
  const auto result = Scrub(scrubber, 1);
  ASSERT_TRUE(result.has_value());
  EXPECT_THAT(result->log_error, StatusIs(Code::kCorruption));
}

// If the log moves meanwhile, the scrubber reports neither damage nor soundness.
TEST(Scrubber, SaysNothingOfALogThatMoved) {
  for (const bool damage : {false, true}) {
    Nodes nodes;
    Image& image = nodes.group.image(0);
    if (damage) image[nodes.g.ExtentOffset(nodes.Extent("1.log", 1))] ^= std::byte{1};
    Scrubber scrubber(image, nodes.info);
    EXPECT_FALSE(scrubber.Step(1));
    nodes.Append("1.log", "more");
    EXPECT_FALSE(Scrub(scrubber, 1).has_value());
    // Records of the log may be executed meanwhile.
    Scrubber again(image, nodes.info);
    EXPECT_FALSE(again.Step(1));
    ASSERT_OK(nodes.lane->Drain());
    const auto result = Scrub(again, 1);
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(result->damaged.size(), damage ? 1u : 0u);
    // Only the head moves.
    Scrubber third(image, nodes.info);
    EXPECT_FALSE(third.Step(1));
    ASSERT_OK(nodes.lane->Checkpoint());
    EXPECT_FALSE(Scrub(third, 1).has_value());
  }
}

}  // namespace
}  // namespace hyperloop
