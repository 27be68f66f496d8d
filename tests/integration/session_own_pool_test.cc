// Replicas that went back to older copies of their pools: what the primary's own pool proves to be
// acknowledged becomes the group's again, or the opening is refused.

#include "inspect/resize.h"
#include "integration/session_fixture.h"

namespace hyperloop::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class SessionOwnPoolTest : public SessionFixture {
 protected:
  using Image = std::vector<std::byte>;

  std::vector<Image> Images() const {
    std::vector<Image> images(replicas_.size());
    for (size_t i = 0; i < images.size(); ++i)
      if (replicas_[i] != nullptr)
        images[i].assign(replicas_[i]->region().begin(), replicas_[i]->region().end());
    return images;
  }
  // The regions of the replicas that ran become what they were; their promises stay.
  void GoBackTo(const std::vector<Image>& images) {
    for (size_t i = 0; i < images.size(); ++i)
      if (!images[i].empty()) std::ranges::copy(images[i], replicas_[i]->region().begin());
  }
  // A primary that serves "one", then "two" and "three", and is gone; the replicas' regions went
  // back to "one".
  void Lose(const StoreOptions& options) {
    auto store = Serving(options);
    ASSERT_NE(store, nullptr);
    const std::vector<Image> images = Images();
    ASSERT_OK(AppendDurably(*store, file_, "two"));
    ASSERT_OK(AppendDurably(*store, file_, "three"));
    ASSERT_OK(store->Close());
    GoBackTo(images);
  }
  // As Lose, but so many pieces of 2 KiB are written since, and executed. Returns the content.
  std::string LoseMuch(int pieces) {
    auto store = Serving(Options());
    EXPECT_NE(store, nullptr);
    if (store == nullptr) return "";
    const std::vector<Image> images = Images();
    for (int i = 0; i < pieces; ++i)
      EXPECT_OK(AppendDurably(*store, file_, std::string(2048, static_cast<char>('a' + i % 26))));
    const std::string all = Content(*store);
    EXPECT_OK(store->Close());
    GoBackTo(images);
    return all;
  }
  // A primary that ends at its write number `cut` into the replicas' regions, of which a half is
  // written if part is 2. False: there are not so many, and it ends before it serves.
  bool TakeCutAtWrite(int cut, uint32_t part) {
    int writes = 0;
    bool ended = false;
    rnic::Sge piece;
    std::mutex mutex;
    before_post_ = [&](rnic::SendRequest* request) -> Status {
      const std::lock_guard lock(mutex);
      const bool data = request->opcode == rnic::Opcode::kWrite && request->sges.size() == 1 &&
                        request->sges[0].length > sizeof(uint64_t);
      if (ended) return Unavailable("cut off");
      if (!data || writes++ != cut) return {};
      ended = true;
      cut_ = -1;
      if (part == 1) return Unavailable("cut off");
      piece = request->sges[0];
      piece.length /= part;
      request->sges = std::span(&piece, 1);
      return {};
    };
    LoseOnce(Body::InstallRequest, 1);
    {
      auto store = Opened();
      TakeResult result;
      EXPECT_FALSE(store->Take(Request(), &result).ok());
    }
    until_lost_ = 0;
    before_post_ = nullptr;
    cut_ = INT32_MAX;
    return ended;
  }
  // The pools of all replicas and of the primary, which are not open, become those kept in `kept`.
  void PutBackPools(const std::string& kept) {
    for (size_t i = 0; i < replicas_.size(); ++i) Stop(i);
    CopyPools(kept, folder_);
    StartAllAgain();
  }
  void KeepPools(const std::string& kept) {
    std::filesystem::create_directory(kept);
    for (size_t i = 0; i < replicas_.size(); ++i) Stop(i);
    CopyPools(folder_, kept);
    StartAllAgain();
  }
  void CopyPools(const std::string& from, const std::string& to) {
    const auto copy = [&](const std::string& pool) {
      std::filesystem::copy_file(from + "/" + pool, to + "/" + pool,
                                 std::filesystem::copy_options::overwrite_existing);
    };
    copy("primary");
    for (size_t i = 0; i < replicas_.size(); ++i) copy("r" + std::to_string(i));
  }
  void ExpectRepeatedAfterAnyCut(const std::string& all, uint32_t part) {
    const std::string kept = folder_ + "/kept";
    KeepPools(kept);
    bool more = true;
    for (int cut = 0; more; ++cut) {
      ASSERT_LT(cut, 200);
      SCOPED_TRACE(cut);
      PutBackPools(kept);
      more = TakeCutAtWrite(cut, part);
      ExpectTakenWith(all);
    }
  }
  // Flips a byte of a record's payload, or of a file's extent, in the primary's pool.
  void DamageOwn(const std::function<uint64_t(std::span<std::byte>, const RegionInfo&)>& place) {
    const auto own = OwnRegion();
    ASSERT_FALSE(own.empty());
    own[place(own, ParseSuperblock(own, own.size()).value())] ^= std::byte{1};
    munmap(own_mapping_.data(), own_mapping_.size());
  }
  // A replica is left out after a fifth of ack_timeout.
  StoreOptions Continuing() const {
    StoreOptions options = Options();
    options.on_replica_failure = OnReplicaFailure::kContinue;
    options.ack_timeout = std::chrono::seconds(4);
    return options;
  }
  StoreOptions ByForce(const std::string& pool) const {
    StoreOptions options = Options(pool);
    options.on_replica_failure = OnReplicaFailure::kContinue;
    options.given_up = {AddressOf(0), AddressOf(1)};
    return options;
  }
  // Nothing was sealed, and no byte of a replica changed.
  Status UnchangedRefusal() {
    const std::vector<Image> before = Images();
    requests_ = 0;
    const Status status = Refusal(Options());
    EXPECT_EQ(requests_, 0) << "sealed, then refused: " << status.ToString();
    EXPECT_TRUE(Images() == before);
    return status;
  }
};

TEST_F(SessionOwnPoolTest, WhatAllReplicasLostComesFromThePrimarysPool) {
  Lose(Options());
  ExpectTakenWith("onetwothree");
  EXPECT_TRUE(log_->Has("the replicas went back to older copies of their pools"));
  ExpectPrimaryEqual();
  log_->Clear();
  ExpectTakenWith("onetwothree");
  EXPECT_FALSE(log_->Has("went back"));
}

TEST_F(SessionOwnPoolTest, SoItDoesForOneReplica) {
  listed_ = 1;
  replicas_.resize(1);
  Lose(Options());
  ExpectTakenWith("onetwothree");
}

TEST_F(SessionOwnPoolTest, SuchATakingCutAnywhereIsRepeated) {
  Lose(Options());
  const std::vector<Image> lost = Images();
  bool more = true;
  for (int cut = 0; more; ++cut) {
    ASSERT_LT(cut, 100);
    SCOPED_TRACE(cut);
    GoBackTo(lost);
    more = TakeCutAt(cut);
    ExpectTakenWith("onetwothree");
  }
}

// The log went on so far that its head has passed the end of what the replicas went back to. A part
// of it at a replica is then no longer log than before, but says what was acknowledged.
TEST_F(SessionOwnPoolTest, SuchATakingCutAtAnyOfItsWritesIsRepeated) {
  const std::string all = LoseMuch(20);
  ExpectRepeatedAfterAnyCut(all, 1);
}

TEST_F(SessionOwnPoolTest, SuchATakingCutWithinAnyOfItsWritesIsRepeated) {
  const std::string all = LoseMuch(20);
  ExpectRepeatedAfterAnyCut(all, 2);
}

// All that the replicas had of the log has been written over.
TEST_F(SessionOwnPoolTest, SoItIsOnceTheRingHasComeRound) {
  const std::string all = LoseMuch(200);
  ExpectRepeatedAfterAnyCut(all, 2);
}

TEST_F(SessionOwnPoolTest, SoItIsForOneReplica) {
  listed_ = 1;
  replicas_.resize(1);
  const std::string all = LoseMuch(200);
  ExpectRepeatedAfterAnyCut(all, 2);
}

// Replica 1 was left out, and proves more than the primary's pool: all others went back twice, the
// pool with them the first time. So an opening is refused, and names it, until it is stopped.
TEST_F(SessionOwnPoolTest, AJoinerThatProvesMoreIsNamedWhereverTheTakingWasCut) {
  without_some_ = true;
  { ASSERT_NE(Serving(Options()), nullptr); }
  const std::string before = folder_ + "/before", kept = folder_ + "/kept",
                    more = folder_ + "/more";
  KeepPools(before);
  auto store = Taken(Options());
  ASSERT_NE(store, nullptr);
  for (int i = 0; i < 400; ++i) ASSERT_OK(AppendDurably(*store, file_, "given up"));
  ASSERT_OK(store->Close());
  store.reset();
  Stop(1);
  std::filesystem::copy_file(folder_ + "/r1", more);
  StartAgain(1);
  PutBackPools(before);
  Stop(1);
  std::filesystem::rename(more, folder_ + "/r1");
  store = Taken(Options());
  ASSERT_NE(store, nullptr);
  const std::vector<Image> lost = Images();
  for (int i = 0; i < 200; ++i)
    ASSERT_OK(AppendDurably(*store, file_, std::string(2048, static_cast<char>('a' + i % 26))));
  const std::string all = Content(*store);
  ASSERT_OK(store->Close());
  store.reset();
  GoBackTo(lost);
  StartAgain(1);
  KeepPools(kept);
  bool cuts = true;
  for (int cut = 0; cuts; ++cut) {
    ASSERT_LT(cut, 200);
    SCOPED_TRACE(cut);
    PutBackPools(kept);
    Stop(1);
    cuts = TakeCutAtWrite(cut, 2);
    StartAgain(1);
    for (const bool without_some : {false, true}) {
      without_some_ = without_some;
      EXPECT_THAT(UnchangedRefusal(),
                  StatusIs(Code::kCorruption,
                           AllOf(HasSubstr("replica " + AddressOf(1) + " proves that"),
                                 HasSubstr("start the others on the pools that they had"))));
    }
    Stop(1);
    store = Taken(Options());
    ASSERT_NE(store, nullptr);
    EXPECT_TRUE(Content(*store) == all);
    ASSERT_OK(store->Close());
    store.reset();
    StartAgain(1);
  }
}

TEST_F(SessionOwnPoolTest, LogsThatAreDamagedAtAllReplicasComeFromThePrimarysPool) {
  { ASSERT_NE(Serving(Options()), nullptr); }
  for (size_t i = 0; i < 3; ++i) Damage(i);
  ExpectTakenWith("one");
}

// All pools but the primary's went back to what they were before a replica was added.
TEST_F(SessionOwnPoolTest, SoItIsIfTheReplicasChangedSince) {
  replicas_.push_back(StartReplica(3));
  { ASSERT_NE(Serving(Options()), nullptr); }
  const std::string before = folder_ + "/before", after = folder_ + "/after";
  KeepPools(before);
  listed_ = 4;
  add_replica_ = AddressOf(3);
  auto store = Taken(Options());
  ASSERT_NE(store, nullptr);
  ASSERT_OK(AppendDurably(*store, file_, "two"));
  ASSERT_OK(AppendDurably(*store, file_, "three"));
  ASSERT_OK(store->Close());
  store.reset();
  std::filesystem::copy_file(folder_ + "/primary", after);
  PutBackPools(before);
  std::filesystem::rename(after, folder_ + "/primary");
  listed_ = 3;
  add_replica_.clear();
  store = Taken(Options());
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(Content(*store), "onetwothree");
  EXPECT_OK(store->Close());
}

// What the replicas hold is neither more nor less than before when a refusal says so.
TEST_F(SessionOwnPoolTest, APoolThatIsDamagedIsNamedAndNothingIsTaken) {
  Lose(Options());
  DamageOwn([](std::span<std::byte>, const RegionInfo& info) {
    return info.geometry.binding_offset + 20;
  });
  const Status refused = UnchangedRefusal();
  EXPECT_THAT(refused, StatusIs(Code::kCorruption,
                                AllOf(HasSubstr(folder_ + "/primary"), HasSubstr(AddressOf(0)),
                                      HasSubstr("it is damaged"))));
  // The way out that it names for pools that are lost for good.
  std::filesystem::rename(folder_ + "/primary", folder_ + "/kept");
  ExpectTakenWith("one");
}

// The log says that nothing has to be read from the replicas, and the rest does not.
TEST_F(SessionOwnPoolTest, WhatIsDamagedInThePoolAloneComesFromTheReplicas) {
  auto store = Serving(Options());
  ASSERT_NE(store, nullptr);
  ASSERT_OK(AppendDurably(*store, file_, "kept by all"));
  const std::string all = Content(*store);
  ASSERT_OK(store->Close());
  store.reset();
  DamageOwn([](auto, const RegionInfo& info) { return info.geometry.EntryOffset(0); });
  store = Taken(Options());
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(Content(*store) == all);
  ASSERT_OK(store->Close());
}

// A look at the directory says so beforehand, and a refusal of its own still counts.
TEST_F(SessionOwnPoolTest, TheDirectoryIsJudgedByWhatThePoolHolds) {
  Lose(Options());
  TakeRequest request = Request();
  uint64_t size = 0;
  request.judge = [&](const GroupFiles& files) {
    for (const FileInfo& each : files.Files()) size += each.size;
    return InvalidArgument("only looked at");
  };
  requests_ = 0;
  EXPECT_THAT(Refusal(Options(), request), StatusIs(Code::kInvalidArgument));
  EXPECT_EQ(size, std::string("onetwothree").size());
  EXPECT_EQ(requests_, 0);
}

// Programs that only look, at the same time, see the same; none takes the other for a primary.
TEST_F(SessionOwnPoolTest, TwoLookAtOnce) {
  Lose(Options());
  TakeRequest inner = Request(), outer = Request();
  inner.judge = [](const GroupFiles&) { return InvalidArgument("looked at inside"); };
  Status second;
  outer.judge = [&](const GroupFiles&) {
    second = Refusal(Options(), inner);
    return InvalidArgument("looked at outside");
  };
  EXPECT_THAT(Refusal(Options(), outer),
              StatusIs(Code::kInvalidArgument, HasSubstr("looked at outside")));
  EXPECT_THAT(second, StatusIs(Code::kInvalidArgument, HasSubstr("looked at inside")));
}

// Another primary, with a pool of its own, has gone on from what was left.
TEST_F(SessionOwnPoolTest, AGroupThatWentOnWithoutItIsNotOverwritten) {
  Lose(Options());
  {
    auto other = Taken(Options("other"));
    ASSERT_NE(other, nullptr);
    EXPECT_EQ(Content(*other), "one");
    ASSERT_OK(other->Close());
  }
  const Status refused = UnchangedRefusal();
  EXPECT_THAT(refused, StatusIs(Code::kCorruption, HasSubstr("another primary may have written")));
  auto other = Taken(Options("other"));
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(Content(*other), "one");
}

// --- pools of before a resize

class ResizedGroupTest : public SessionOwnPoolTest {
 protected:
  // The replicas' pools; `others`: further ones.
  void Resize(std::vector<std::string> others = {}) {
    for (size_t i = 0; i < replicas_.size(); ++i) {
      Stop(i);
      others.push_back("r" + std::to_string(i));
    }
    for (const std::string& pool : others)
      ASSERT_OK(ResizePool(folder_ + "/" + pool, {.region_size = 2 * kRegion}));
    StartAllAgain();
  }
  bool Exists(const std::string& pool) const {
    return std::filesystem::exists(folder_ + "/" + pool);
  }
  const std::string old_ = "standby.before-resize-" + std::to_string(kRegion);
};

// That of a standby, which nobody resized.
TEST_F(ResizedGroupTest, ASmallerOwnPoolIsSetAside) {
  ASSERT_OK(Serving(Options("standby"))->Close());
  ASSERT_OK(Taken(Options())->Close());
  ASSERT_NO_FATAL_FAILURE(Resize({"primary"}));
  const auto store = Taken(Options("standby"));
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(Content(*store), "one");
  EXPECT_TRUE(log_->Has("it is " + folder_ + "/" + old_ + " now"));
  const auto view = NodeView::OpenPool(folder_ + "/" + old_);
  ASSERT_OK(view);
  EXPECT_EQ((*view)->region_size(), kRegion);
  EXPECT_OK(AppendDurably(*store, *store->Lookup("f"), "two"));
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

TEST_F(ResizedGroupTest, ASmallerOwnPoolThatProvesMoreThanTheReplicasIsNot) {
  ASSERT_NO_FATAL_FAILURE(Lose(Options("standby")));
  ASSERT_NO_FATAL_FAILURE(Resize());
  EXPECT_THAT(Refusal(Options("standby")),
              StatusIs(Code::kCorruption, HasSubstr("its parts have other sizes")));
  EXPECT_TRUE(Exists("standby"));
  EXPECT_FALSE(Exists(old_));
}

TEST_F(ResizedGroupTest, ALargerOwnPoolIsRefused) {
  ASSERT_OK(Serving(Options("standby"))->Close());
  ASSERT_OK(ResizePool(folder_ + "/standby", {.region_size = 2 * kRegion}));
  EXPECT_THAT(Refusal(Options("standby")),
              StatusIs(Code::kInvalidArgument, HasSubstr("hyperloopctl resize")));
}

// --- what proves nothing

// The pool of a former primary is older than the group.
TEST_F(SessionOwnPoolTest, APoolThatTheGroupLeftBehindProvesNothing) {
  { ASSERT_NE(Serving(Options()), nullptr); }
  for (const std::string pool : {"other", "primary", "other", "primary"}) {
    auto store = Taken(Options(pool));
    ASSERT_NE(store, nullptr);
    const auto file = store->Lookup("f");
    ASSERT_OK(file);
    for (int i = 0; i < 5; ++i) ASSERT_OK(AppendDurably(*store, *file, pool));
    ASSERT_OK(store->Close());
  }
  EXPECT_FALSE(log_->Has("went back"));
}

// Nothing is left to prove anything once a pool's blocks are lost.
TEST_F(SessionOwnPoolTest, APoolThatCannotBeReadProvesNothing) {
  { ASSERT_NE(Serving(Options()), nullptr); }
  DamageOwn([](std::span<std::byte>, const RegionInfo&) { return uint64_t{8}; });
  ExpectTakenWith("one");
}

// --- going on by force

// A replica that was left out is all that is left, beside the primary's pool.
TEST_F(SessionOwnPoolTest, GoingOnByForceTakesWhatThePoolHas) {
  auto store = Serving(Continuing());
  ASSERT_NE(store, nullptr);
  Stop(2);
  ASSERT_TRUE(Insist(*store, "two"));
  ASSERT_TRUE(Insist(*store, "three"));
  const std::string all = Content(*store);
  ASSERT_OK(store->Close());
  store.reset();
  StartAgain(2);
  Stop(0);
  Stop(1);
  store = Taken(ByForce("primary"));
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(Content(*store), all);
}

// What a branch gave up is no proof against it.
TEST_F(SessionOwnPoolTest, AnotherBranchsPoolProvesNothing) {
  auto store = Serving(Continuing());
  ASSERT_NE(store, nullptr);
  Stop(2);
  ASSERT_TRUE(Insist(*store, "two"));
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(Insist(*store, "more"));
  ASSERT_OK(store->Close());
  store.reset();
  StartAgain(2);
  Stop(0);
  Stop(1);
  store = Taken(ByForce("other"));
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(Content(*store), "one");
  ASSERT_OK(store->Close());
  store.reset();
  StoreOptions options = Options();
  options.replicas = {AddressOf(2)};
  store = Taken(options);
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(Content(*store), "one");
}

}  // namespace
}  // namespace hyperloop::test
