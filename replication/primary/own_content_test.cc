#include "primary/own_content.h"

#include <cstring>

#include "log/log_scan.h"
#include "membership/take_plan_fixture.h"
#include "testing/test_region.h"

namespace hyperloop {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A region whose records change one byte of the data area each.
struct Image {
  TestRegion region;
  LogCursor tail = ReadHead(region.bytes, region.info)->cursor;

  void Put(RecordType type, uint64_t epoch, uint64_t acked, uint64_t destination,
           std::span<const std::byte> payload) {
    const uint64_t length = RecordLength(1, payload.size());
    std::vector<std::byte> record(length);
    RecordHeader h{};
    h.magic = region.info.record_magic;
    h.prev_crc = tail.crc;
    h.type = static_cast<uint8_t>(type);
    h.entry_count = 1;
    h.epoch = epoch;
    h.seq = tail.seq + 1;
    h.acked_seq = acked;
    h.length = static_cast<uint32_t>(length);
    h.file_slot = kNoSlot;
    const RecordEntry entry{destination, static_cast<uint32_t>(payload.size()), 0};
    std::memcpy(&record[sizeof(h)], &entry, sizeof(entry));
    std::memcpy(&record[sizeof(h) + sizeof(entry)], payload.data(), payload.size());
    std::memcpy(record.data(), &h, sizeof(h));
    h.crc = RecordCrc(record.data(), length, region.info.seed);
    std::memcpy(record.data(), &h, sizeof(h));
    std::memcpy(&region.bytes[kJournalOffset + tail.position], record.data(), length);
    tail = {h.seq, epoch, tail.position + AlignRecord(length), h.crc};
  }
  // The first record of an epoch.
  void Begin(const Configuration& configuration) {
    const ConfigurationBlock block = MakeConfigurationBlock(region.info, configuration).value();
    Put(RecordType::kEpoch, configuration.epoch, tail.seq,
        region.info.geometry.configuration_offset(), std::as_bytes(std::span(&block, 1)));
  }
  // A record that says what of the earlier ones was acknowledged.
  void Append(uint64_t acked) {
    const std::byte byte{7};
    Put(RecordType::kNamespace, tail.epoch, acked, region.info.geometry.data_offset,
        std::span(&byte, 1));
  }
  // Behind all records, whose places in the ring are used again.
  void MoveHead() {
    const HeadBlock block = MakeHeadBlock(region.info, {9, tail, 0});
    std::memcpy(&region.bytes[kHeadOffsets[1]], &block, sizeof(block));
    std::fill_n(region.bytes.begin() + kJournalOffset, tail.position, std::byte{0});
  }
  BestLog Best() const { return {"replica r1", tail.seq, region.bytes}; }
};

HeldProof Held(const Image& image) {
  return ProofHeld(image.region.bytes, image.region.bytes.size());
}

class OwnContentTest : public testing::Test {
 protected:
  OwnContentTest() {
    own_.Begin(TestConfiguration(1));
    own_.Append(1);
    plan_.group = own_.region.info.group;
    plan_.recorded = plan_.configuration = TestConfiguration(1);
    best_ = own_;  // from here on the replicas went back
  }
  Result<bool> StandsIn() const {
    return OwnStandsIn(own_.region.bytes, "/pool", plan_, best_.Best());
  }

  Image own_, best_;
  TakePlan plan_;
};

TEST_F(OwnContentTest, WhatIsProvenAndSoundStandsIn) {
  own_.Append(2);
  own_.Append(3);
  EXPECT_THAT(StandsIn(), IsOkAndHolds(true));
  EXPECT_EQ(LastEpoch(own_.region.bytes), 1u);
}

// The record may be there later, or not.
TEST_F(OwnContentTest, ATailThatNobodyAcknowledgedProvesNothing) {
  EXPECT_THAT(StandsIn(), IsOkAndHolds(false));
  own_.Append(2);
  EXPECT_THAT(StandsIn(), IsOkAndHolds(false));
}

TEST_F(OwnContentTest, AnotherGroupProvesNothing) {
  own_.Append(2);
  own_.Append(3);
  plan_.group = Uuid{5};
  EXPECT_THAT(StandsIn(), IsOkAndHolds(false));
}

TEST_F(OwnContentTest, AnotherBranchProvesNothing) {
  own_.Append(2);
  own_.Append(3);
  plan_.recorded.branch = {1, Uuid{4}};
  EXPECT_THAT(StandsIn(), IsOkAndHolds(false));
}

TEST_F(OwnContentTest, ALaterEpochThatGoesOnFromTheBestLogStandsIn) {
  own_.Begin(TestConfiguration(2));
  own_.Append(3);
  own_.Append(4);
  EXPECT_THAT(StandsIn(), IsOkAndHolds(true));
  EXPECT_EQ(LastEpoch(own_.region.bytes), 2u);
}

TEST_F(OwnContentTest, AGroupThatWentOnIsNotOverwritten) {
  for (int i = 2; i < 9; ++i) own_.Append(static_cast<uint64_t>(i));
  best_.Begin(TestConfiguration(2));
  best_.Append(3);
  EXPECT_THAT(StandsIn().status(),
              StatusIs(Code::kCorruption,
                       AllOf(HasSubstr("It has 8 as acknowledged"),
                             HasSubstr("the log of replica r1 ends at 4"),
                             testing::StartsWith("the replicas went back to older copies of their "
                                                 "pools: start them on the pools that they had;"),
                             HasSubstr("another primary may have written"))));
}

TEST_F(OwnContentTest, DamageIsNamed) {
  own_.Append(2);
  own_.Append(3);
  own_.region.bytes[own_.region.info.geometry.binding_offset] ^= std::byte{1};
  EXPECT_THAT(StandsIn().status(), StatusIs(Code::kCorruption, HasSubstr("it is damaged")));
}

// The group's replicas changed after the copies were made. Enough of those it had last are here.
TEST_F(OwnContentTest, AMajorityOfTheLastReplicasIsEnough) {
  Configuration larger = TestConfiguration(2);
  larger.replicas.push_back({Uuid{10}, "127.0.0.1:3"});
  own_.Begin(larger);
  own_.Append(3);
  own_.Append(4);
  EXPECT_THAT(StandsIn(), IsOkAndHolds(true));
}

TEST_F(OwnContentTest, LastReplicasThatMayHaveGoneOnWithoutTheseAreNamed) {
  Configuration other = TestConfiguration(2);
  other.replicas[1] = {Uuid{10}, "127.0.0.1:3"};
  own_.Begin(other);
  own_.Append(3);
  own_.Append(4);
  const auto matches = StatusIs(
      Code::kCorruption, AllOf(HasSubstr("only 1 of the 2 replicas that the group had last"),
                               HasSubstr("127.0.0.1:1, 127.0.0.1:3 (configuration of epoch 2)")));
  EXPECT_THAT(StandsIn().status(), matches);
  plan_.recorded.epoch = 3;  // a newer one was installed, and the members are enough by that one
  EXPECT_THAT(StandsIn(), IsOkAndHolds(true));
}

TEST_F(OwnContentTest, ByForceEachOfTheLastReplicasIsThereOrGivenUp) {
  plan_.forced = true;
  plan_.configuration.replicas.pop_back();
  own_.Append(2);
  own_.Append(3);
  EXPECT_THAT(StandsIn(), IsOkAndHolds(true));
  Configuration larger = TestConfiguration(2);
  larger.replicas.push_back({Uuid{10}, "127.0.0.1:3"});
  own_.Begin(larger);
  own_.Append(4);
  EXPECT_THAT(StandsIn().status(),
              StatusIs(Code::kCorruption, HasSubstr("neither there nor given up")));
}

// --- what a taking may drop

// Whoever has it, and however the log of the group came about.
TEST_F(OwnContentTest, NoRecordBehindTheLogsEndIsDropped) {
  const auto check = [&](const Uuid& group) {
    HeldProof held = Held(best_);
    held.group = group;
    return CheckNothingBehind("replica r1", held, own_.region.bytes, own_.region.info,
                              "replica r2");
  };
  const Uuid group = own_.region.info.group;
  EXPECT_OK(check(group));
  for (uint64_t i = 2; i < 9; ++i) best_.Append(i);
  EXPECT_THAT(check(group),
              StatusIs(Code::kCorruption,
                       AllOf(HasSubstr("replica r1 proves that everything up to record 8"),
                             HasSubstr("but the log of replica r2 ends at"))));
  EXPECT_OK(check(Uuid{99}));                       // another group's log proves nothing
  for (uint64_t i = 2; i < 9; ++i) own_.Append(1);  // another history, which is as long
  EXPECT_OK(check(group));
}

// --- what may be overwritten

TEST_F(OwnContentTest, WhatThePrimaryHasAsWellIsReplaceable) {
  const auto replaceable = [&] {
    return CheckReplaceable("replica r1", Held(best_), own_.region.bytes, own_.region.info);
  };
  EXPECT_OK(replaceable());
  for (uint64_t i = 2; i < 9; ++i) own_.Append(i);
  EXPECT_OK(replaceable());
  best_.Append(1);  // nobody acknowledged it
  EXPECT_OK(replaceable());
  best_.Append(3);
  EXPECT_THAT(replaceable(), StatusIs(Code::kInvalidArgument, HasSubstr("record 3 of the group")));
  for (int i = 0; i < 7; ++i) best_.Append(3);
  best_.Append(10);
  EXPECT_THAT(replaceable(), StatusIs(Code::kInvalidArgument, HasSubstr("log ends at 9")));
}

// Two owners have written that epoch, so a record that the ring does not show any more is not known
// to be the same.
TEST_F(OwnContentTest, WhatARivalHasIsReplaceableOnlyAsFarAsTheLogShowsIt) {
  const auto replaceable = [&](HeldBy by) {
    return CheckReplaceable("replica r1", Held(best_), own_.region.bytes, own_.region.info, by);
  };
  own_.Append(2);
  EXPECT_OK(replaceable(HeldBy::kRival));
  own_.MoveHead();
  own_.Append(3);
  EXPECT_OK(replaceable(HeldBy::kMember));
  EXPECT_THAT(replaceable(HeldBy::kRival),
              StatusIs(Code::kInvalidArgument, HasSubstr("or is not shown any more")));
}

// A taking that was cut short while it sent the log leaves gaps in it. They are no other history.
TEST_F(OwnContentTest, ALogWithAGapIsReplaceable) {
  for (uint64_t i = 2; i < 9; ++i) own_.Append(i);
  Image torn = own_;
  torn.region.bytes[kJournalOffset + best_.tail.position] ^= std::byte{1};
  ASSERT_THAT(ScanLog(torn.region.bytes, torn.region.info), StatusIs(Code::kCorruption));
  EXPECT_OK(CheckReplaceable("replica r1", Held(torn), own_.region.bytes, own_.region.info));
}

// The newest records of the group's log arrived behind the old log's end, and state more as
// acknowledged than the old one did. They say nothing of the old one's last records, which nobody
// acknowledged.
class CutPushTest : public OwnContentTest {
 protected:
  CutPushTest() {
    own_.Begin(TestConfiguration(2));
    const uint64_t from = own_.tail.position;
    for (uint64_t i = 2; i < 6; ++i) own_.Append(i);
    torn_ = best_;
    for (int i = 0; i < 4; ++i) torn_.Append(2);
    EXPECT_LE(torn_.tail.position, from);
    std::memcpy(&torn_.region.bytes[kJournalOffset + from],
                &own_.region.bytes[kJournalOffset + from], own_.tail.position - from);
    EXPECT_OK(ScanLog(torn_.region.bytes, torn_.region.info));
  }
  Image torn_;
};

TEST_F(CutPushTest, WhatItLeavesIsNoOtherHistory) {
  const HeldProof held = Held(torn_);
  EXPECT_GT(held.acked_seq, 2u);
  EXPECT_EQ(held.last.seq, 2u);
  for (const HeldBy by : {HeldBy::kMember, HeldBy::kRival})
    EXPECT_OK(CheckReplaceable("replica r1", held, own_.region.bytes, own_.region.info, by));
}

// The own pool was to become what the best member has.
TEST_F(CutPushTest, NorIsWhatItLeavesInTheOwnPool) {
  best_ = own_;
  own_ = torn_;
  EXPECT_THAT(StandsIn(), IsOkAndHolds(false));
}

// --- where no member's log will do

class OwnReplacesTest : public OwnContentTest {
 protected:
  OwnReplacesTest() {
    for (uint64_t i = 2; i < 9; ++i) own_.Append(i);
    plan_.region_size = own_.region.bytes.size();
    torn_ = own_;  // the newest records arrived, those before them did not
    member_ = {"replica r1", false, 8, 1, 1, Uuid{77}, {}};
  }
  Result<bool> Replaces() {
    const auto& bytes = torn_.region.bytes;
    member_.journal.assign(bytes.begin(), bytes.end());
    return OwnReplaces(own_.region.bytes, "/pool", plan_, std::span(&member_, 1));
  }
  Image torn_;
  MemberProof member_;
};

TEST_F(OwnReplacesTest, WhatHasTheNewestProofOfEachMemberReplacesThem) {
  EXPECT_THAT(Replaces(), IsOkAndHolds(true));
}

TEST_F(OwnReplacesTest, WhatKnowsLessIsNotAsked) {
  member_.acked_seq = 9;
  EXPECT_THAT(Replaces(), IsOkAndHolds(false));
}

TEST_F(OwnReplacesTest, AMemberThatWentOnOtherwiseIsNotOverwritten) {
  torn_ = best_;
  torn_.Begin(TestConfiguration(1));
  for (uint64_t i = 3; i < 6; ++i) torn_.Append(i);
  EXPECT_THAT(Replaces().status(),
              StatusIs(Code::kCorruption, HasSubstr("another primary may have written since")));
  member_.served_owner = TestConfiguration(1).owner;  // nobody else wrote to it
  EXPECT_THAT(Replaces(), IsOkAndHolds(true));
}

// The pool itself went back, within the time of the owner that the member served last.
TEST_F(OwnReplacesTest, AMemberWhoseRecordsGoOnBehindThePoolsEndIsNotOverwritten) {
  member_.served_owner = TestConfiguration(1).owner;
  EXPECT_THAT(Replaces(), IsOkAndHolds(true));
  torn_.Append(8);
  torn_.Append(8);
  EXPECT_THAT(Replaces().status(), StatusIs(Code::kCorruption, HasSubstr("does not show")));
}

TEST_F(OwnReplacesTest, AMemberOfALaterEpochIsNotOverwritten) {
  member_.installed_epoch = 2;
  EXPECT_THAT(Replaces().status(), StatusIs(Code::kCorruption, HasSubstr("has installed epoch 2")));
}

}  // namespace
}  // namespace hyperloop
