// Pools that went back to older copies, each to any of several, while replicas are down: what a
// pool that is there proves to be acknowledged is in the group afterwards, or the opening is
// refused. Of two histories of which neither proves more records than the other has, most replicas
// decide; the opening goes on without the other ones, which keep what they hold.
//
// A number of an epoch is given twice if replicas forget what they promised. So two owners may each
// have served under the same one.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "integration/session_fixture.h"
#include "primary/own_content.h"
#include "region/pool.h"

namespace hyperloop::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class SessionPutBackTest : public SessionFixture {
 protected:
  // What a pool may have been put back to: what all histories have in common, and two histories
  // that went on from there, of which each took the other one's numbers of epochs.
  enum History : size_t { kBefore, kOne, kOther };
  static constexpr size_t kHistories = 3, kOwn = 3, kPools = 4;  // those of the replicas, and kOwn

  std::string PathOf(size_t pool) const {
    return folder_ + "/" + (pool == kOwn ? "primary" : "r" + std::to_string(pool));
  }
  std::string KeptOf(size_t pool, History history) const {
    return PathOf(pool) + ".kept" + std::to_string(history);
  }
  void StopAll() {
    for (size_t i = 0; i < kOwn; ++i)
      if (replicas_[i] != nullptr) Stop(i);
  }
  static void Copy(const std::string& from, const std::string& to) {
    std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing);
  }
  void Keep(History history) {
    StopAll();
    for (size_t i = 0; i < kPools; ++i) Copy(PathOf(i), KeptOf(i, history));
    StartAllAgain();
  }
  void PutBackAll(const std::array<History, kPools>& pools) {
    StopAll();
    for (size_t i = 0; i < kPools; ++i) Copy(KeptOf(i, pools[i]), PathOf(i));
    StartAllAgain();
  }
  // Goes on from kBefore without the replica `without` (3: with all), so many times.
  void GoOnFromBefore(History history, const std::string& record, int records, size_t without,
                      int openings) {
    PutBackAll({kBefore, kBefore, kBefore, kBefore});
    if (without < kOwn) Stop(without);
    for (; openings > 0; --openings) {
      auto store = Taken(Options());
      ASSERT_NE(store, nullptr);
      for (int i = 0; i < records; ++i)
        ASSERT_OK(AppendDurably(*store, *store->Lookup("f"), record));
      content_[history] = Content(*store);
      ASSERT_OK(store->Close());
    }
    Keep(history);
  }
  void MakeHistories(int one, int other, size_t without = kOwn, int openings = 1) {
    without_some_ = true;
    { ASSERT_NE(Serving(Options()), nullptr); }
    content_[kBefore] = "one";
    one_is_longer_ = one > other;
    Keep(kBefore);
    GoOnFromBefore(kOne, "a", one, kOwn, 1);
    GoOnFromBefore(kOther, "b", other, without, openings);
  }

  static uint64_t EndOfLog(std::span<const std::byte> region) {
    const RegionInfo info = ParseSuperblock(region, region.size()).value();
    return ScanLog(region, info).value().tail.seq;
  }
  // The ends of the logs of all pools that are there.
  std::array<uint64_t, kPools> EndsOfLogs() const {
    std::array<uint64_t, kPools> ends{};
    for (size_t i = 0; i < kOwn; ++i)
      if (replicas_[i] != nullptr) ends[i] = EndOfLog(replicas_[i]->region());
    const auto own = Pool::OpenCopyOnWrite(PathOf(kOwn));
    EXPECT_OK(own);
    if (own.ok()) ends[kOwn] = EndOfLog((*own)->region());
    return ends;
  }
  // Opens, and checks that no pool loses what it proves. `held`: the content of each pool.
  void OpenAndCheck(std::array<std::string, kPools>* held) {
    log_->Clear();
    requests_ = 0;
    const std::array<uint64_t, kPools> ends = EndsOfLogs();
    auto store = TryOpen(Options());
    ASSERT_OK(store);
    TakeResult result;
    const Status taken = (*store)->Take(Request(), &result);
    opened_ = taken.ok();
    refused_ = taken.ToString();
    if (!opened_) {
      EXPECT_TRUE(taken.code() == Code::kInvalidArgument || taken.code() == Code::kCorruption ||
                  taken.code() == Code::kUnavailable)
          << refused_;
      EXPECT_THAT(refused_, HasSubstr("127.0.0.1:"));
      EXPECT_EQ(requests_, 0) << "sealed, then refused: " << refused_;
      return;
    }
    const std::string content = Content(**store);
    EXPECT_OK((*store)->Close());
    store->reset();
    uint64_t newest = 0;
    for (size_t i = 0; i < kOwn; ++i)
      if (replicas_[i] != nullptr) newest = std::max(newest, Hello(i).installed_epoch);
    // The log that became the group's is one of these, and gets more records by the opening.
    uint64_t end = ends[kOwn];
    for (size_t i = 0; i < kOwn; ++i)
      if (replicas_[i] != nullptr && Hello(i).installed_epoch == newest)
        end = std::max(end, ends[i]);
    for (size_t i = 0; i < kPools; ++i) {
      if (i != kOwn && replicas_[i] == nullptr) continue;
      if (i != kOwn && Hello(i).installed_epoch != newest) {
        EXPECT_TRUE(log_->Has("goes on without replica " + AddressOf(i)));
        EXPECT_LE(ProofHeld(replicas_[i]->region(), replicas_[i]->region().size()).acked_seq, end)
            << "replica " << i << " has " << (*held)[i] << ", and was left out for " << content;
        continue;
      }
      EXPECT_TRUE(content.starts_with((*held)[i]))
          << "pool " << i << " held " << (*held)[i] << " and is now " << content;
      (*held)[i] = content;
    }
  }

  // Each pool as each history has it, and each replica down, or none: so many of all these
  // combinations, which are evenly chosen.
  void ExpectNothingLost() {
    constexpr size_t kAll = kHistories * kHistories * kHistories * kHistories * kPools;
    constexpr size_t kStep = 83;  // has no divisor in common with kAll
    const char* const asked = std::getenv("HYPERLOOP_PUT_BACKS");
    const size_t count = asked == nullptr ? 40 : std::min<size_t>(std::stoul(asked), kAll);
    for (size_t i = 0; i < count; ++i) {
      size_t rest = i * kStep % kAll;
      const auto next = [&](size_t choices) {
        const size_t choice = rest % choices;
        rest /= choices;
        return choice;
      };
      std::array<History, kPools> pools{};
      for (History& each : pools) each = static_cast<History>(next(kHistories));
      ExpectNothingLost(pools, next(kPools));
    }
  }
  // `down`: kOwn: none.
  void ExpectNothingLost(const std::array<History, kPools>& pools, size_t down) {
    SCOPED_TRACE(testing::Message() << "histories of r0, r1, r2, own: " << pools[0] << pools[1]
                                    << pools[2] << pools[3] << ", down: " << down);
    ASSERT_NO_FATAL_FAILURE(PutBackAll(pools));
    std::array<std::string, kPools> held;
    for (size_t i = 0; i < kPools; ++i) held[i] = content_[pools[i]];
    if (down != kOwn) Stop(down);
    if (down == kOwn) {
      without_some_ = false;
      ASSERT_NO_FATAL_FAILURE(OpenAndCheck(&held));
      without_some_ = true;
      if (opened_) return;
    }
    ASSERT_NO_FATAL_FAILURE(OpenAndCheck(&held));
    ExpectOpened(pools, down);
    if (down == kOwn) return;
    StartAllAgain();
    ASSERT_NO_FATAL_FAILURE(OpenAndCheck(&held));
  }
  // Nothing contradicts what most replicas have: the group is opened with it.
  void ExpectOpened(const std::array<History, kPools>& pools, size_t down) {
    size_t has_one = 0, has_other = 0;
    for (size_t i = 0; i < kOwn; ++i) {
      if (i == down) continue;
      has_one += pools[i] == kOne ? 1 : 0;
      has_other += pools[i] == kOther ? 1 : 0;
    }
    const History own = pools[kOwn];
    const bool all_one = has_other == 0 && own != kOther, all_other = has_one == 0 && own != kOne;
    const bool most_one = most_go_on_ && has_one == 2 && own != kOther;
    const bool most_other =
        most_go_on_ && has_other == 2 && own != kOne && (has_one == 0 || !one_is_longer_);
    EXPECT_TRUE(opened_ || !(all_one || all_other || most_one || most_other)) << refused_;
  }

  std::array<std::string, kHistories> content_;
  bool most_go_on_ = true;  // whatever the one other replica has, if that is not longer
  bool one_is_longer_ = false;
  bool opened_ = false;
  std::string refused_;
};

TEST_F(SessionPutBackTest, NothingThatIsThereIsLost) {
  ASSERT_NO_FATAL_FAILURE(MakeHistories(5, 3));
  ExpectNothingLost();
  ExpectNothingLost({kOther, kOne, kOther, kBefore}, kOwn);
}

// The longer history is that of one replica.
TEST_F(SessionPutBackTest, NoReplicaThatProvesMoreIsLeftOut) {
  ASSERT_NO_FATAL_FAILURE(MakeHistories(5, 3));
  for (const History own : {kBefore, kOther}) {
    ASSERT_NO_FATAL_FAILURE(PutBackAll({kOther, kOne, kOther, own}));
    requests_ = 0;
    EXPECT_THAT(Refusal(Options()),
                StatusIs(Code::kCorruption,
                         AllOf(HasSubstr("replica " + AddressOf(1) + " proves that everything"),
                               HasSubstr("but the log of replica " + AddressOf(0) + " ends at"),
                               HasSubstr("start the others on the pools that they had"))));
    EXPECT_EQ(requests_, 0) << "sealed, then refused";
    Stop(1);  // the way out: somebody gives up what it has more
    auto store = Taken(Options());
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(Content(*store), content_[kOther]);
    EXPECT_OK(store->Close());
  }
}

// The logs end at the same record.
TEST_F(SessionPutBackTest, NorWhereTheHistoriesAreEquallyLong) {
  ASSERT_NO_FATAL_FAILURE(MakeHistories(3, 3));
  for (const auto& pools :
       {std::array{kOne, kOther, kOther, kOther}, std::array{kOther, kOther, kOther, kOne},
        std::array{kBefore, kOne, kOther, kOne}, std::array{kOne, kOne, kOther, kBefore}})
    for (size_t down = 0; down <= kOwn; ++down) ExpectNothingLost(pools, down);
}

// The shorter one has the newer epoch. A log of it might be one whose end is damaged, so no replica
// that proves more is left out.
TEST_F(SessionPutBackTest, NorWhereOneOfThemHasANewerEpoch) {
  most_go_on_ = false;
  ASSERT_NO_FATAL_FAILURE(MakeHistories(5, 1, kOwn, 2));
  for (const auto& pools :
       {std::array{kOne, kOther, kOther, kOther}, std::array{kOne, kOne, kOther, kOne},
        std::array{kOne, kOne, kOther, kOther}, std::array{kOne, kBefore, kOther, kBefore},
        std::array{kOther, kOther, kBefore, kOne}})
    for (size_t down = 0; down <= kOwn; ++down) ExpectNothingLost(pools, down);
}

// Replica 1 was left out of one of them, and all others went back twice.
TEST_F(SessionPutBackTest, NorWhereOneOfThemWentOnWithoutAReplica) {
  ASSERT_NO_FATAL_FAILURE(MakeHistories(5, 3, 1));
  for (const auto& pools :
       {std::array{kOther, kOne, kOther, kOther}, std::array{kBefore, kOne, kOther, kOther},
        std::array{kBefore, kOne, kBefore, kOther}, std::array{kOther, kBefore, kBefore, kOne}})
    for (size_t down = 0; down <= kOwn; ++down) ExpectNothingLost(pools, down);
}

// Whoever proves more fails in the first attempt of the opening, so that a second one begins
// without it.
TEST_F(SessionPutBackTest, NorIfWhoProvesMoreFailsMeanwhile) {
  ASSERT_NO_FATAL_FAILURE(MakeHistories(5, 3));
  ASSERT_NO_FATAL_FAILURE(PutBackAll({kOne, kBefore, kBefore, kBefore}));
  LoseOnce(Body::SealRequest, 1);  // that of the first replica
  EXPECT_THAT(Refusal(Options()), StatusIs(Code::kCorruption, HasSubstr("open again when replica " +
                                                                        AddressOf(0) + " runs")));
  ASSERT_NO_FATAL_FAILURE(ExpectTakenWith(content_[kOne]));
}

// The one that fails was left out before all others went back.
TEST_F(SessionPutBackTest, NorIfOneThatWasLeftOutProvesMoreAndFailsMeanwhile) {
  ASSERT_NO_FATAL_FAILURE(MakeHistories(5, 3, 1));
  ASSERT_NO_FATAL_FAILURE(PutBackAll({kOther, kOne, kOther, kOther}));
  gone_once_examined_ = 1;
  EXPECT_THAT(Refusal(Options()), StatusIs(Code::kCorruption, HasSubstr("open again when replica " +
                                                                        AddressOf(1) + " runs")));
  EXPECT_TRUE(examined_);
}

// All but replica 0 went back to older copies. It fails as soon as it has said what it proves, and
// another one in the same attempt, so that the next one begins without both.
TEST_F(SessionPutBackTest, NorIfAnotherOneFailsBeforeThat) {
  without_some_ = true;
  for (const int i : {3, 4}) replicas_.push_back(StartReplica(i));
  listed_ = replicas_.size();
  { ASSERT_NE(Serving(Options()), nullptr); }
  const auto stop_all = [&] {
    for (size_t i = 0; i < listed_; ++i) Stop(i);
  };
  const auto path_of = [&](size_t i) { return folder_ + "/r" + std::to_string(i); };
  stop_all();
  for (size_t i = 1; i < listed_; ++i) Copy(path_of(i), path_of(i) + ".kept");
  Copy(PathOf(kOwn), KeptOf(kOwn, kBefore));
  StartAllAgain();
  {
    auto store = Taken(Options());
    ASSERT_NE(store, nullptr);
    ASSERT_OK(AppendDurably(*store, *store->Lookup("f"), "more"));
    ASSERT_OK(store->Close());
  }
  stop_all();
  for (size_t i = 1; i < listed_; ++i) Copy(path_of(i) + ".kept", path_of(i));
  Copy(KeptOf(kOwn, kBefore), PathOf(kOwn));
  StartAllAgain();
  gone_once_examined_ = 0;
  unexamined_ = 1;
  EXPECT_THAT(Refusal(Options()), StatusIs(Code::kCorruption, HasSubstr("open again when replica " +
                                                                        AddressOf(0) + " runs")));
  EXPECT_TRUE(examined_);
  gone_once_examined_ = unexamined_ = -1;
  ASSERT_NO_FATAL_FAILURE(ExpectTakenWith("onemore"));
}

// Replica 2 has a history of its own, and comes back while the group is served. The log does not
// show any more which records they have in common.
TEST_F(SessionPutBackTest, NorByAPrimaryThatServesWhenARivalsReplicaComesBack) {
  ASSERT_NO_FATAL_FAILURE(MakeHistories(5, 3));
  for (int openings = 1; openings <= 2; ++openings) {
    SCOPED_TRACE(openings);
    ASSERT_NO_FATAL_FAILURE(PutBackAll({kBefore, kBefore, kOne, kBefore}));
    const uint64_t epoch = Hello(2).installed_epoch;
    Stop(2);
    std::unique_ptr<Store> store;
    for (int i = 0; i < openings; ++i) {
      if (store != nullptr) {
        ASSERT_OK(store->Close());
      }
      store = Taken(Options());
      ASSERT_NE(store, nullptr);
    }
    EXPECT_EQ(Hello(0).installed_epoch, epoch + static_cast<uint64_t>(openings) - 1);
    for (int i = 0; i < 40; ++i)
      ASSERT_OK(AppendDurably(*store, *store->Lookup("f"), std::string(16 << 10, 'b')));
    log_->Clear();
    StartAgain(2);
    EXPECT_TRUE(Eventually([&] {
      return log_->Has("or is not shown any more") || Hello(2).installed_epoch != epoch;
    }));
    EXPECT_EQ(Hello(2).installed_epoch, epoch) << "it was overwritten";
    ASSERT_OK(store->Close());
  }
}

// A member was started on another copy of its pool in the middle of its work.
TEST_F(SessionPutBackTest, NorByAPrimaryThatServesWhenAMembersPoolBecomesARivals) {
  ASSERT_NO_FATAL_FAILURE(MakeHistories(5, 3));
  ASSERT_NO_FATAL_FAILURE(PutBackAll({kOther, kOther, kOther, kOther}));
  StoreOptions options = Options();
  options.ack_timeout = std::chrono::seconds(20);
  auto store = Taken(options);
  ASSERT_NE(store, nullptr);
  file_ = *store->Lookup("f");
  Stop(2);
  Copy(KeptOf(2, kOne), PathOf(2));
  StartAgain(2);
  const uint64_t epoch = Hello(2).installed_epoch;
  EXPECT_TRUE(Insist(*store, "more"));
  EXPECT_EQ(Hello(2).installed_epoch, epoch) << "it was overwritten";
  EXPECT_TRUE(log_->Has("went back to an older copy of its pool"));
  EXPECT_THAT(Content(*store), HasSubstr("bbbmore"));
  ASSERT_OK(store->Close());
}

// Replica 2 went on alone, by force, and went back since. The others run again.
TEST_F(SessionPutBackTest, NorWhatAPromotionByForceWrote) {
  ASSERT_NO_FATAL_FAILURE(MakeHistories(5, 3));
  ASSERT_NO_FATAL_FAILURE(PutBackAll({kOne, kOne, kOne, kOne}));
  Stop(0);
  Stop(1);
  StoreOptions by_force = Options();
  by_force.given_up = {AddressOf(0), AddressOf(1)};
  auto store = Taken(by_force);
  ASSERT_NE(store, nullptr);
  ASSERT_OK(AppendDurably(*store, *store->Lookup("f"), "by force"));
  const std::string all = Content(*store);
  ASSERT_OK(store->Close());
  store.reset();
  Stop(2);
  std::filesystem::copy_file(PathOf(2), PathOf(2) + ".branch");
  Copy(KeptOf(2, kOne), PathOf(2));
  StartAllAgain();
  EXPECT_THAT(Refusal(Options()),
              StatusIs(Code::kCorruption, HasSubstr("it was promoted by force under epoch")));
  Stop(2);
  Copy(PathOf(2) + ".branch", PathOf(2));
  StartAgain(2);
  StoreOptions branch = Options();
  branch.replicas = {AddressOf(2)};
  store = Taken(branch);
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(Content(*store), all);
}

}  // namespace
}  // namespace hyperloop::test
