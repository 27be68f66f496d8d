// A primary process is killed again and again, at random moments while it appends. The next primary
// finds every append that was acknowledged, nothing that was never begun, and no append in part.
// HYPERLOOP_KILL_FACTOR multiplies the number of kills.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "integration/store_fixture.h"
#include "support/child_process.h"

namespace hyperloop::test {
namespace {

constexpr int kLives = 10;
constexpr int kLivesElsewhere = 5;  // with other datapaths than the default
constexpr int kLivesWithRnic = 2;   // each costs a restart of the daemon
constexpr int kMostLives = 30;      // of a primary that is to be caught
constexpr uint64_t kTruncateEvery =
    3000;  // the file starts over, so that extents are freed and used again

int Factor() {
  const char* text = std::getenv("HYPERLOOP_KILL_FACTOR");
  return text == nullptr ? 1 : std::max(1, std::atoi(text));
}

// Append number n, the same in every life: its length and bytes follow from n.
std::string Piece(uint64_t n) {
  std::mt19937_64 random(n);
  std::string piece = "<" + std::to_string(n) + ":";
  const size_t length = random() % 700;
  for (size_t i = 0; i < length; ++i) piece.push_back(static_cast<char>('a' + random() % 26));
  return piece + ">";
}

// The child's reports to its parent, in memory that outlives the child.
struct Progress {
  std::atomic<uint64_t> begun;  // appends handed to the store
  std::atomic<uint64_t> acked;  // appends acknowledged
};

class PrimaryKillTest : public StoreTest {
 protected:
  void SetUp() override {
    StoreTest::SetUp();
    void* shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(shared, MAP_FAILED);
    progress_ = new (shared) Progress();
  }
  void TearDown() override { munmap(progress_, 4096); }

  StoreOptions LifeOptions() const {
    StoreOptions options = Options();
    options.datapath = datapath_;
    options.takeover = true;  // the former primary is dead: no need to watch whether it lives
    // Nets: nothing here waits for a part that is away.
    options.ack_timeout = options.connect_timeout = std::chrono::seconds(30);
    return options;
  }

  // The child's life: appends piece after piece from `next` on until it is killed.
  int Live(uint64_t next) {
    auto store = Store::Open(LifeOptions(), nullptr);
    TakeResult result;
    if (!store.ok() || !(*store)->Take(Request(), &result).ok()) return 1;
    const auto file = (*store)->Lookup("f");
    if (!file.ok()) return 2;
    for (;; ++next) {
      progress_->begun = next + 1;
      const Result<AppendTicket> sent = (*store)->Append(*file, Piece(next));
      if (!sent.ok() || (awaits_ && !(*store)->Await(*sent).ok())) return 3;
      progress_->acked = next + 1;
    }
  }

  // The number of pieces in the file, from `first` on; fails unless the file has whole pieces in
  // order.
  static uint64_t CountPieces(const std::string& content, uint64_t first) {
    size_t at = 0;
    uint64_t n = first;
    while (at < content.size()) {
      const std::string piece = Piece(n);
      if (content.compare(at, piece.size(), piece) != 0) {
        ADD_FAILURE() << "piece " << n << " at byte " << at << " of " << content.size()
                      << " is not what was written";
        break;
      }
      at += piece.size();
      ++n;
    }
    return n;
  }

  bool awaits_ = true;  // each append, before it counts as acknowledged
  Datapath datapath_ = Datapath::kOffload;
  Progress* progress_ = nullptr;
};

// One run of several primaries that end by SIGKILL. If a loss is expected, the run ends once an
// acknowledged append is missing.
struct KillOutcome {
  int lost = 0;       // lives after which acknowledged appends were missing
  int in_flight = 0;  // kills that hit an append in flight
  uint64_t pieces = 0;
};

class PrimaryKills : public PrimaryKillTest {
 protected:
  KillOutcome Run(int lives, bool until_lost) {
    KillOutcome outcome;
    const uint64_t seed = std::random_device()();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    {
      auto store = Taken(Options());
      if (store == nullptr || !store->Create("f").ok()) ADD_FAILURE() << "no store";
    }
    uint64_t first = 0;  // piece at the file's begin
    for (int life = 0; life < lives && !HasFailure() && !(until_lost && outcome.lost > 0); ++life) {
      SCOPED_TRACE("life " + std::to_string(life));
      KillOne(outcome.pieces, std::chrono::microseconds(random() % 30000));
      const uint64_t acked = progress_->acked;
      const uint64_t begun = progress_->begun;
      outcome.in_flight += begun > acked ? 1 : 0;
      auto store = TakenWhenReady();
      if (store == nullptr) break;
      const uint64_t found = CountPieces(Content(*store, "f"), first);
      outcome.lost += found < acked ? 1 : 0;
      EXPECT_LE(found, begun) << "an append that was never begun is there";
      outcome.pieces = found;
      if (found - first > kTruncateEvery) {
        EXPECT_OK(store->Truncate(*store->Lookup("f"), 0));
        first = found;
      }
      store.reset();
      if (life % 10 == 9 || life + 1 == lives) ExpectEqualRegions();
    }
    return outcome;
  }

  // Replicas notice a new RNIC daemon within about a second.
  std::unique_ptr<Store> TakenWhenReady() {
    EXPECT_TRUE(Eventually([&] {
      for (uint32_t i = 0; i < cluster_.replicas(); ++i) {
        if (!cluster_.ReplicaStatus(i).ok()) return false;
      }
      return true;
    }));
    return Taken(LifeOptions());
  }

  // A child appends from piece `next` on, and is killed `delay` after its first acknowledgement. If
  // with_rnic_ is set, the RNIC daemon is killed just before it, so that posted requests are not
  // sent.
  void KillOne(uint64_t next, std::chrono::microseconds delay) {
    progress_->begun = progress_->acked = next;
    ChildProcess child = ChildProcess::Fork([&] { return Live(next); });
    EXPECT_TRUE(Eventually([&] { return progress_->acked.load() > next; }));
    std::this_thread::sleep_for(delay);
    if (with_rnic_) cluster_.KillRnicd();
    child.Kill();
    if (with_rnic_) cluster_.RestartRnicd();
  }

  bool with_rnic_ = false;
};

TEST_F(PrimaryKills, AcknowledgedAppendsSurvive) {
  const KillOutcome outcome = Run(Factor() * kLives, false);
  EXPECT_EQ(outcome.lost, 0) << "acknowledged appends are gone";
  EXPECT_GT(outcome.pieces, static_cast<uint64_t>(kLives));
  EXPECT_GT(outcome.in_flight, Factor() * kLives / 2)
      << "most kills should hit an append in flight";
  RecordProperty("pieces", static_cast<int>(outcome.pieces));
  RecordProperty("killed_in_flight", outcome.in_flight);
}

class OtherDatapathKills : public PrimaryKills, public testing::WithParamInterface<Datapath> {};
INSTANTIATE_TEST_SUITE_P(Datapaths, OtherDatapathKills,
                         testing::Values(Datapath::kFanout, Datapath::kCpuPolling,
                                         Datapath::kCpuEvent),
                         [](const auto& param) {
                           std::string name(DatapathName(param.param));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_P(OtherDatapathKills, AcknowledgedAppendsSurvive) {
  datapath_ = GetParam();
  const KillOutcome outcome = Run(Factor() * kLivesElsewhere, false);
  EXPECT_EQ(outcome.lost, 0) << "acknowledged appends are gone";
  EXPECT_GT(outcome.pieces, static_cast<uint64_t>(kLivesElsewhere));
}

TEST_P(OtherDatapathKills, AcknowledgedAppendsSurviveTheRnicToo) {
  datapath_ = GetParam();
  with_rnic_ = true;
  const KillOutcome outcome = Run(Factor() * kLivesWithRnic, false);
  EXPECT_EQ(outcome.lost, 0) << "acknowledged appends are gone";
}

TEST_F(PrimaryKills, AcknowledgedAppendsSurviveTheRnicToo) {
  with_rnic_ = true;
  const KillOutcome outcome = Run(Factor() * kLivesWithRnic, false);
  EXPECT_EQ(outcome.lost, 0) << "acknowledged appends are gone";
  EXPECT_GT(outcome.pieces, static_cast<uint64_t>(kLivesWithRnic));
}

// The negative control: the same run finds a primary that reports an append as acknowledged before
// the last replica did.
TEST_F(PrimaryKills, AcknowledgingTooEarlyIsCaught) {
  with_rnic_ = true;
  awaits_ = false;
  const KillOutcome outcome = Run(kMostLives, true);
  EXPECT_GT(outcome.lost, 0);
}

}  // namespace
}  // namespace hyperloop::test
