// The primary is killed at random moments; every replica must hold every acknowledged key, and
// nothing that was never written.
//
// One database over many kills: each round reopens the directory that the last kill left. No log is
// ever deleted, so that a long run begins a new database now and then.
// HYPERLOOP_CRASH_ROUNDS sets the number of rounds, HYPERLOOP_CRASH_SEED the moments.
#include <algorithm>
#include <fstream>

#include "crash/crash_fixture.h"

namespace hyperloop::test {
namespace {

constexpr uint64_t kRoundsPerDatabase = 40;

class CrashDatapathTest : public CrashTest, public testing::WithParamInterface<Datapath> {};
INSTANTIATE_TEST_SUITE_P(Datapaths, CrashDatapathTest,
                         testing::Values(Datapath::kOffload, Datapath::kFanout,
                                         Datapath::kCpuPolling, Datapath::kCpuEvent),
                         [](const auto& param) {
                           std::string name(DatapathName(param.param));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_P(CrashDatapathTest, EveryReplicaHasEveryAcknowledgedKey) {
  datapath_ = GetParam();
  const uint64_t rounds =
      FromEnvironment("HYPERLOOP_CRASH_ROUNDS", datapath_ == Datapath::kOffload ? 8 : 3);
  std::printf("seed: HYPERLOOP_CRASH_SEED=%llu\n", static_cast<unsigned long long>(seed_));
  for (uint64_t round = 0; round < rounds; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    if (round != 0 && round % kRoundsPerDatabase == 0) {
      ASSERT_EQ(StartAnew(), "");
    }
    ASSERT_TRUE(WriteAndKill()) << "the writer did not open the database; its output is above";
    for (uint32_t replica = 0; replica < cluster_.replicas(); ++replica) {
      std::string wrong = Check(replica);
      ASSERT_EQ(wrong, "") << "replica " << replica;
    }
  }
  EXPECT_GT(2 * kills_in_flight_, rounds)
      << "too few kills had an operation in flight to prove anything";
  std::printf("%llu kills, %llu with an operation in flight, %llu keys in the last database\n",
              static_cast<unsigned long long>(rounds),
              static_cast<unsigned long long>(kills_in_flight_),
              static_cast<unsigned long long>(progress_->threads[0].acknowledged.load() +
                                              progress_->threads[1].acknowledged.load()));
}

// The RNIC stops during writing and dies together with the writer. After it stopped no replica got
// any bytes, so a key that was acknowledged later would be lost.
class FrozenRnicTest : public CrashTest {
 protected:
  FrozenRnicTest() : CrashTest(64 << 20) {}

  // Says what is wrong with a replica afterwards; empty: nothing.
  std::string FreezeAndKill(bool early) {
    ChildProcess writer = StartWriter(early);
    if (writer.pid() < 0) return "the writer did not open the database; its output is above";
    Freeze();
    uint64_t frozen_at[kCrashThreads];
    for (uint32_t t = 0; t < kCrashThreads; ++t)
      frozen_at[t] = progress_->threads[t].acknowledged.load();
    progress_->early.store(early ? 1 : 0);
    // At most one key a thread can have been acknowledged before, and be counted only now.
    const auto some_key_came_after = [&] {
      for (uint32_t t = 0; t < kCrashThreads; ++t) {
        if (progress_->threads[t].acknowledged.load() > frozen_at[t] + 1) return true;
      }
      return false;
    };
    const auto stuck = [&] {
      const CrashProgress::Thread& first = progress_->threads[0];
      return first.attempted.load() > first.acknowledged.load();
    };
    const bool reached = early ? Eventually(some_key_came_after) : Eventually(stuck);
    if (!early && some_key_came_after()) return "keys are acknowledged while the RNIC stands still";
    writer.Kill();
    NoteInFlight();
    cluster_.KillRnicd();
    cluster_.RestartRnicd();
    if (!reached) return "the writer did not go on as expected";
    for (uint32_t i = 0; i < cluster_.replicas(); ++i) {
      // Replicas notice a new RNIC daemon within about a second.
      if (!Eventually([&] { return cluster_.ReplicaStatus(i).ok(); })) return "no replica";
      if (std::string wrong = Check(i); !wrong.empty()) return wrong;
    }
    return "";
  }

 private:
  // Stops the daemon, and waits until each of its threads has stopped.
  void Freeze() {
    ASSERT_EQ(kill(cluster_.rnicd_pid(), SIGSTOP), 0);
    const std::string tasks = "/proc/" + std::to_string(cluster_.rnicd_pid()) + "/task";
    EXPECT_TRUE(Eventually([&] {
      for (const auto& task : std::filesystem::directory_iterator(tasks)) {
        std::ifstream file(task.path() / "stat");
        std::string stat;
        std::getline(file, stat);
        if (stat.find(") T ") == std::string::npos) return false;
      }
      return true;
    }));
  }
};

TEST_F(FrozenRnicTest, NothingAcknowledgedIsLost) { EXPECT_EQ(FreezeAndKill(false), ""); }

// The negative control: the check finds a group that acknowledges before its last replica did.
TEST_F(FrozenRnicTest, AcknowledgingBeforeTheTailIsCaught) {
  EXPECT_THAT(FreezeAndKill(true), testing::HasSubstr("is missing"));
}

}  // namespace
}  // namespace hyperloop::test
