// Damage of one or several members' regions, or of the primary's own, neither spreads nor is taken
// for content.

#include "integration/session_fixture.h"

namespace hyperloop::test {
namespace {

class SessionDamageTest : public SessionFixture {};

// Refusals change nothing, also if the member that is read first is damaged, or all members are,
// and the primary's own pool is gone.
TEST_F(SessionDamageTest, DamagedMembersAreJudgedBeforeAnySeal) {
  {
    auto store = Taken();
    ASSERT_NE(store, nullptr);
    ASSERT_OK(store->Create("f"));
  }
  const auto refusal = [&](const TakeRequest& request) {
    auto store = Opened();
    requests_ = 0;
    TakeResult result;
    const Status status = store->Take(request, &result);
    EXPECT_EQ(requests_, 0) << "sealed, then refused: " << status.ToString();
    return status;
  };
  Damage(0);
  TakeRequest foreign = Request();
  foreign.pairing.group = "33333333-3333-4333-8333-333333333333";
  EXPECT_THAT(refusal(foreign), StatusIs(Code::kInvalidArgument));
  Damage(1);
  Damage(2);
  std::filesystem::remove(folder_ + "/primary");
  const Status hopeless = refusal(Request());
  EXPECT_THAT(hopeless, StatusIs(Code::kCorruption));
  EXPECT_THAT(hopeless.message(), testing::HasSubstr(replicas_[2]->address()));
}

// A primary asks the nodes, then another one takes the group and adds a replica, and then the first
// one reads the log. Neither is damaged.
TEST_F(SessionDamageTest, WhatAnotherPrimaryChangedMeanwhileIsNoDamage) {
  listed_ = 2;
  { ASSERT_NE(Taken(), nullptr); }
  std::unique_ptr<Store> rival;
  const auto rival_takes = [&] {
    listed_ = 3;
    add_replica_ = replicas_[2]->address();
    rival = Opened(Options("rival"));
    ASSERT_NE(rival, nullptr);
    TakeResult result;
    ASSERT_OK(rival->Take(Request(), &result));
  };
  int readings = 0;
  before_reading_ = [&] {
    if (readings++ == 0) rival_takes();
  };
  auto store = Opened(Options("elsewhere"));  // what the own pool has is not read
  ASSERT_NE(store, nullptr);
  TakeResult result;
  const Status refused = store->Take(Request(), &result);
  EXPECT_THAT(refused, StatusIs(Code::kBusy, testing::HasSubstr("another primary")));
  EXPECT_GE(readings, 1);
  ASSERT_NE(rival, nullptr);
  const auto file = rival->Create("f");
  ASSERT_OK(file);
  EXPECT_OK(AppendDurably(*rival, *file, "served")) << "the refused one disturbed it";
  EXPECT_OK(rival->Close());
}

// It may be damage, or another primary's work; the next opening finds out.
TEST_F(SessionDamageTest, DamageIsNotClaimedWhileAMemberDoesNotAnswer) {
  FillExtents();
  for (size_t i = 0; i < replicas_.size(); ++i) ExtentByte(i, 1) ^= std::byte{1};
  before_reading_ = [&] { lost_ = Body::HelloRequest; };
  const auto refusal = [&] {
    auto store = Opened();
    TakeResult result;
    return store->Take(Request(), &result);
  };
  EXPECT_THAT(refusal(), StatusIs(Code::kUnavailable));
  lost_ = Body::NONE;
  EXPECT_THAT(refusal(), StatusIs(Code::kCorruption));
}

// A damaged member gets the others' log, and all members are equal again.
TEST_F(SessionDamageTest, DamagedMemberIsMendedFromTheOthers) {
  {
    auto store = Taken();
    ASSERT_NE(store, nullptr);
    const auto file = store->Create("f");
    ASSERT_OK(file);
    ASSERT_OK(AppendDurably(*store, *file, "kept"));
  }
  Damage(0);
  ExpectTakenWith("kept");
}

// One flipped bit in one copy must not spread, whichever member is first in the chain.
TEST_F(SessionDamageTest, DamagedBytesAreTakenFromASoundMember) {
  const std::string all = FillExtents();
  for (size_t i = 0; i < replicas_.size(); ++i) {
    ExtentByte(i, 0) ^= std::byte{1};
    log_->Clear();
    auto store = Taken();
    ASSERT_NE(store, nullptr);
    EXPECT_TRUE(Content(*store) == all) << "damage of replica " << i << " spread";
    EXPECT_OK(store->Close());
    ExpectEqualRegions();
    EXPECT_THAT(log_->lines(),
                testing::Contains(testing::AllOf(testing::HasSubstr(replicas_[i]->address()),
                                                 testing::HasSubstr("\"f\""))));
  }
}

// Free extents cost a taking nothing, and what a member has in them harms nobody.
TEST_F(SessionDamageTest, WhatNoFileHoldsIsNeitherComparedNorSent) {
  const std::string all = FillExtents();
  {
    auto store = Taken();
    ASSERT_NE(store, nullptr);
    ASSERT_OK(store->Remove("f"));
    ASSERT_OK(store->Close());
  }
  const auto region = replicas_[1]->region();
  const uint64_t data = ParseSuperblock(region, region.size()).value().geometry.data_offset;
  const auto free = region.subspan(data);
  std::ranges::fill(free, std::byte{0xaa});
  compared_ = 0;
  { ASSERT_NE(Taken(), nullptr); }
  EXPECT_EQ(compared_, 4 * data) << "one member is read, and three are made equal to it";
  EXPECT_EQ(std::ranges::count(free, std::byte{0xaa}), std::ssize(free));
  ExpectEqualRegions();

  EXPECT_EQ(FillExtents(), all);
  ExpectEqualRegions();
  compared_ = 0;
  ExpectTakenWith(all);
  EXPECT_EQ(compared_, 4 * (data + all.size()));
}

// No member is sound as a whole, but each extent has a sound copy.
TEST_F(SessionDamageTest, MembersMendEachOther) {
  const std::string all = FillExtents();
  for (size_t i = 0; i < replicas_.size(); ++i)
    ExtentByte(i, static_cast<uint32_t>(i)) ^= std::byte{1};
  ExpectTakenWith(all);
}

TEST_F(SessionDamageTest, WhatNobodyHasSoundIsRefusedBeforeAnySeal) {
  const std::string all = FillExtents();
  for (size_t i = 0; i < replicas_.size(); ++i) ExtentByte(i, 1) ^= std::byte{1};
  {
    auto store = Opened();
    requests_ = 0;
    TakeResult result;
    const Status refused = store->Take(Request(), &result);
    EXPECT_THAT(refused, StatusIs(Code::kCorruption));
    EXPECT_THAT(refused.message(), testing::HasSubstr("\"f\""));
    EXPECT_EQ(requests_, 0);
  }
  ExtentByte(2, 1) ^= std::byte{1};
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(Content(*store) == all);
}

// The last record of one member reads as a torn tail; the others have it.
TEST_F(SessionDamageTest, DamagedLastRecordIsNotTheEndOfTheLog) {
  for (size_t i = 0; i < replicas_.size(); ++i) {
    std::string all;
    std::vector<std::vector<std::byte>> images;
    {
      auto store = Taken();
      ASSERT_NE(store, nullptr);
      const auto file = store->Create("f");
      ASSERT_OK(file);
      for (int n = 0; n < 20; ++n) {
        ASSERT_OK(AppendDurably(*store, *file, std::to_string(n) + ";"));
        all += std::to_string(n) + ";";
      }
      for (const auto& each : replicas_)
        images.emplace_back(each->region().begin(), each->region().end());
    }
    // As if the primary had died instead of closing.
    for (size_t n = 0; n < images.size(); ++n)
      std::copy(images[n].begin(), images[n].end(), replicas_[n]->region().begin());
    const auto region = replicas_[i]->region();
    const RegionInfo info = ParseSuperblock(region, region.size()).value();
    uint64_t last = 0;
    const auto note = [&](const RecordView&, uint64_t at) {
      last = at;
      return Status();
    };
    ASSERT_OK(ScanLog(region, info, 0, note));
    ASSERT_NE(last, 0u) << "the log is empty: nothing to damage";
    region[kJournalOffset + last % info.geometry.journal_size + sizeof(RecordHeader)] ^=
        std::byte{1};
    auto store = Taken();
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(Content(*store), all) << "replica " << i;
    EXPECT_OK(store->Close());
    ExpectEqualRegions();
  }
}

// Damage of the primary's own memory is mended from the others, and does not spread to them.
TEST_F(SessionDamageTest, DamageOfThePrimarysOwnRegionDoesNotSpread) {
  const auto last_record = [](std::span<std::byte> own, const RegionInfo& info) {
    uint64_t last = 0;
    const auto note = [&](const RecordView&, uint64_t at) {
      last = at;
      return Status();
    };
    EXPECT_OK(ScanLog(own, info, 0, note));
    return kJournalOffset + last % info.geometry.journal_size + sizeof(RecordHeader);
  };
  const auto binding = [](std::span<std::byte>, const RegionInfo& info) {
    return info.geometry.binding_offset + 20;
  };
  using Place = std::function<uint64_t(std::span<std::byte>, const RegionInfo&)>;
  std::string all;
  for (const Place& place : {Place(last_record), Place(binding)}) {
    auto store = Taken();
    ASSERT_NE(store, nullptr);
    auto file = store->Lookup("f");
    if (!file.ok()) file = store->Create("f");
    ASSERT_OK(file);
    for (int i = 0; i < 20; ++i) {
      ASSERT_OK(AppendDurably(*store, *file, std::to_string(i) + ";"));
      all += std::to_string(i) + ";";
    }
    const auto own = OwnRegion();
    ASSERT_FALSE(own.empty());
    const RegionInfo info = ParseSuperblock(own, own.size()).value();
    own[place(own, info)] ^= std::byte{1};
    EndQueues(1);
    EXPECT_OK(AppendDurably(*store, *file, "on;"));
    all += "on;";
    EXPECT_EQ(Content(*store), all);
    EXPECT_OK(store->Close());
    munmap(own_mapping_.data(), own_mapping_.size());
    ExpectTakenWith(all);
  }
}

// A taking that was cut short has installed its epoch at one member. That one's damage is mended
// from the others, although they are of an older epoch.
TEST_F(SessionDamageTest, OldMembersMendTheOnlyNewOne) {
  const std::string all = FillExtents();
  for (const bool of_the_log : {false, true}) {
    SCOPED_TRACE(of_the_log);
    for (int cut = 0; Hello(0).installed_epoch == Hello(1).installed_epoch; ++cut)
      ASSERT_TRUE(TakeCutAt(cut));
    if (of_the_log) {
      Damage(0);
    } else {
      ExtentByte(0, 0) ^= std::byte{1};
    }
    ExpectTakenWith(all);
  }
}

// The threads that check local files tell the members of damage until they have ended.
TEST_F(SessionDamageTest, ALocalFileThatIsFoundDamagedDuringCloseIsTold) {
  keep_files_ = true;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    Stop(i);
    StartAgain(i);
  }
  StoreOptions options = Options();
  options.metrics_file = folder_ + "/primary.prom";
  options.bulk_timeout = std::chrono::milliseconds(1);
  constexpr std::string_view kDamaged = "damaged";
  std::atomic<bool> checked{false};
  TakeRequest request = Request();
  // A check reads with more room than the file needs. The first one lasts until Close has begun to
  // end the threads, or to release the replicas, of which the second does not answer.
  request.read_local = [&](const std::string&, uint64_t offset,
                           std::span<char> out) -> Result<uint64_t> {
    if (out.size() > kDamaged.size() && !checked.exchange(true)) {
      StandStill(1);
      requests_ = 0;
      checked.notify_all();
      const auto ends = [&] { return !std::filesystem::exists(options.metrics_file); };
      EXPECT_TRUE(Eventually([&] { return ends() || requests_ != 0; }));
      if (ends()) GoOn(1);
    }
    return uint64_t{
        kDamaged.substr(std::min<uint64_t>(offset, kDamaged.size())).copy(out.data(), out.size())};
  };
  request.mend_local = [](const auto&, const auto&, const auto&) { return Status(); };
  auto store = Opened(options);
  ASSERT_NE(store, nullptr);
  TakeResult result;
  ASSERT_OK(store->Take(request, &result));
  ASSERT_TRUE(Eventually([&] { return std::filesystem::exists(options.metrics_file); }));
  FileChecksum sound;
  sound.Add(std::string("written"));
  ASSERT_OK(store->ListFile({"000007.sst", kDamaged.size(), sound.value()}));
  checked.wait(false);
  EXPECT_OK(store->Close());
}

}  // namespace
}  // namespace hyperloop::test
