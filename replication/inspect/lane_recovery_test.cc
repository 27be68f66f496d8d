// A group fails at any moment and is restored as a session restores it: every call succeeds, the
// lane always reports the content of its files, and all members pass their checks.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "inspect/member_check.h"
#include "log/log_lane.h"
#include "log/redo.h"
#include "support/status_matchers.h"
#include "testing/memory_group.h"
#include "testing/test_region.h"

namespace hyperloop {
namespace {

class RecoveringLane {
 public:
  explicit RecoveringLane(uint64_t seed) : random_(seed) {
    MakeGroup();
    JournalOptions options;
    options.window = 8;
    options.recover = [this](const Status&, uint64_t, std::chrono::nanoseconds) {
      return Recover();
    };
    auto journal = Journal::Create(group_.get(), region_.bytes, region_.info,
                                   ScanLog(region_.bytes, region_.info).value(), &media_, options)
                       .value();
    EXPECT_OK(journal->AppendEpoch(epoch_, TestConfiguration(epoch_)));
    LogLaneOptions lane_options;
    lane_options.space_timeout = std::chrono::milliseconds(1);
    lane_ = LogLane::Load(std::move(journal), region_.bytes, region_.info, lane_options).value();
  }

  // The group stops answering at its next event, or a few events later.
  void BreakSoon() {
    if (random_() % 2 == 0) {
      group_->Fail(TimedOut("the chain is cut"));
    } else {
      group_->on_wait = [this] { group_->Fail(Unavailable("a replica died")); };
    }
  }
  // The group is out of reach until ComeBack.
  void Lose() {
    lost_ = true;
    group_->Fail(TimedOut("the chain is cut"));
  }
  void ComeBack() { lost_ = false; }
  LogLane& lane() { return *lane_; }
  uint64_t recoveries() const { return recoveries_; }
  uint64_t epoch() const { return epoch_; }

  void ExpectSound() {
    ASSERT_OK(lane_->Drain());
    group_->StepAll();
    for (size_t hop = 0; hop < kHops; ++hop) {
      const MemberCheck check = CheckMember(group_->image(hop), region_.info);
      for (const std::string& what : check.Damage(region_.info)) ADD_FAILURE() << what;
      EXPECT_EQ(check.configuration.epoch, epoch_);
    }
  }

 private:
  static constexpr size_t kHops = 2;

  void MakeGroup() {
    group_ = std::make_unique<MemoryGroup>(region_.bytes, kHops, MemoryGroup::Mode::kRandom,
                                           random_(), 8);
  }

  // The primary's region is redone and pushed to all members, which MemoryGroup's constructor does.
  // Sometimes the members must be sealed anew.
  Result<Recovered> Recover() {
    group_.reset();
    if (lost_) return Unavailable("a replica does not answer");
    auto log = Redo(region_.bytes, region_.info, 0);
    EXPECT_OK(log);
    if (!(log->tail == log->head.cursor)) WriteHead(region_.bytes, region_.info, log->tail);
    log->head = ReadHead(region_.bytes, region_.info).value();
    MakeGroup();
    if (random_() % 4 == 0) ++epoch_;
    if (random_() % 4 == 0) BreakSoon();  // while the epoch's first record is on its way
    ++recoveries_;
    return Recovered{group_.get(), *log, TestConfiguration(epoch_)};
  }

  std::mt19937_64 random_;
  TestRegion region_{64 << 10, 64};
  RamMedia media_;
  std::unique_ptr<MemoryGroup> group_;
  std::unique_ptr<LogLane> lane_;
  bool lost_ = false;
  uint64_t epoch_ = 1;
  uint64_t recoveries_ = 0;
};

TEST(LaneRecovery, CallsSucceedWhateverTheMomentOfTheFailure) {
  uint64_t recoveries = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RecoveringLane recovering(seed);
    LogLane& lane = recovering.lane();
    std::mt19937_64 random(seed * 7919);
    std::map<std::string, std::string> model;
    std::map<std::string, uint64_t> retired;  // to the bulk lane, with their checksums
    for (int step = 0; step < 150; ++step) {
      if (random() % 4 == 0) recovering.BreakSoon();
      const std::string name = "f" + std::to_string(random() % 4);
      auto found = model.find(name);
      const uint64_t kind = random() % 10;
      Status status;
      if (found == model.end() || kind == 0) {
        status = lane.Create(name).status();
        model[name] = "";
        retired.erase(name);
      } else if (kind == 1) {
        status = lane.Remove(name);
        model.erase(found);
        retired.erase(name);
      } else if (kind == 2 && !found->second.empty() && !retired.contains(name)) {
        const uint64_t size = random() % found->second.size();
        status = lane.Truncate(lane.Lookup(name).value(), size);
        found->second.resize(size);
      } else if (kind == 3) {
        status = lane.Checkpoint();
      } else if (kind == 4) {
        status = lane.Tick().status();
      } else if (kind == 5 && !retired.contains(name)) {
        const Result<WholeFile> whole = lane.Describe(lane.Lookup(name).value());
        ASSERT_OK(whole);
        status = lane.Retire(lane.Lookup(name).value(), *whole);
        retired[name] = whole->checksum;
      } else if (retired.contains(name)) {
        EXPECT_THAT(lane.Append(lane.Lookup(name).value(), "x"), StatusIs(Code::kInvalidArgument));
      } else if (found->second.size() < 30000) {
        const std::string piece(1 + random() % 3000, static_cast<char>('a' + step % 26));
        status = lane.Append(lane.Lookup(name).value(), piece).status();
        found->second += piece;
      }
      ASSERT_OK(status) << " at step " << step;
    }
    const std::vector<FileInfo> files = lane.Files().value();
    for (const FileInfo& file : files) {
      const auto moved = retired.find(file.name);
      EXPECT_EQ(file.lane == Lane::kBulk, moved != retired.end()) << file.name;
      if (moved == retired.end()) continue;
      EXPECT_EQ(file.checksum, moved->second);
      EXPECT_EQ(file.size, model[file.name].size());
    }
    for (const auto& [name, content] : model) {
      if (retired.contains(name)) continue;
      std::string held(content.size() + 1, '\0');
      const auto read = lane.Read(lane.Lookup(name).value(), 0, held);
      ASSERT_OK(read);
      held.resize(*read);
      EXPECT_TRUE(held == content) << name;
    }
    EXPECT_EQ(lane.Files()->size(), model.size());
    recovering.ExpectSound();
    if (testing::Test::HasFailure()) return;
    recoveries += recovering.recoveries();
  }
  EXPECT_GT(recoveries, 500u) << "the test must have broken something";
}

TEST(LaneRecovery, AManifestStillLeavesRoomForItsSuccessor) {
  RecoveringLane recovering(1);
  LogLane& lane = recovering.lane();
  const FileId manifest = lane.Create("MANIFEST-000001").value();
  recovering.Lose();
  while (lane.Append(manifest, "m").ok() && lane.Sync().ok()) {
  }
  recovering.ComeBack();
  while (!lane.Recover(std::chrono::seconds(1)).ok()) {
  }
  while (lane.Append(manifest, std::string(1000, 'm')).ok()) {
  }
  const FileId successor = lane.Create("MANIFEST-000002").value();
  EXPECT_OK(lane.Append(successor, std::string(4000, 'n')));
}

}  // namespace
}  // namespace hyperloop
