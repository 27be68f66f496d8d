// Fencing, with RocksDB in real processes over a real cluster: whoever lost the group to another
// primary gets no write acknowledged and changes no byte of the group, whatever it does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/db.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <new>
#include <string>
#include <vector>

#include "support/cluster.h"
#include "support/database.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

namespace fs = std::filesystem;
using testing::AnyOf;
using testing::HasSubstr;

// What a primary's process tells the test, in memory that both share.
struct Told {
  std::atomic<bool> opened{false}, refused{false};
  std::atomic<int> acknowledged{0};  // keys TestDatabase::KeyOf(from), …
  std::atomic<bool> failed{false};   // a write failed; `error` says how
  std::atomic<bool> done{false};     // it has tried everything else, too
  std::atomic<int> acknowledged_after{0};
  std::atomic<bool> flushed_after{false}, reads_after{false};
  std::atomic<bool> close{false};  // the test tells it to end in order
  std::array<char, 2000> error{};

  void Set(const rocksdb::Status& status) {
    const std::string text = status.ToString();
    std::memcpy(error.data(), text.data(), std::min(text.size(), error.size() - 1));
  }
};

// A primary in a process of its own, which opens the database and writes one key after the other.
class PrimaryProcess {
 public:
  PrimaryProcess(const StoreOptions& options, const std::string& directory, int from) {
    void* const memory =
        mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    told_ = new (memory) Told();
    pid_ = fork();
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Run(options, directory, from, *told_);
    _exit(0);
  }
  ~PrimaryProcess() {
    kill(pid_, SIGKILL);
    kill(pid_, SIGCONT);
    waitpid(pid_, nullptr, 0);
    munmap(told_, sizeof(Told));
  }
  PrimaryProcess(const PrimaryProcess&) = delete;
  PrimaryProcess& operator=(const PrimaryProcess&) = delete;

  Told& told() { return *told_; }
  void Stop() const {
    kill(pid_, SIGSTOP);
    waitpid(pid_, nullptr, WUNTRACED);
  }
  void WakeUp() const { kill(pid_, SIGCONT); }
  bool Acknowledges(int more) {
    const int enough = told_->acknowledged + more;
    return Eventually([&] { return told_->acknowledged >= enough || told_->failed; }) &&
           !told_->failed;
  }
  // Whether the process has ended.
  bool Ended() const {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == pid_;
  }
  // Whether it has the group no more, or never got it.
  bool Lost() const { return told_->refused || told_->failed; }
  std::string error() const { return told_->error.data(); }

 private:
  static void Run(const StoreOptions& options, const std::string& directory, int from, Told& told) {
    TestDatabase database(options, directory);
    if (const rocksdb::Status opened = database.Open(); !opened.ok()) {
      told.Set(opened);
      told.refused = true;
      return;
    }
    told.opened = true;
    while (!told.close) {
      const int key = from + told.acknowledged;
      const rocksdb::Status put =
          database.Put(TestDatabase::KeyOf(key), TestDatabase::ValueOf(key));
      if (put.ok()) {
        ++told.acknowledged;
        continue;
      }
      told.Set(put);
      told.failed = true;
      TryEverything(database, told);
      told.done = true;
      while (true) pause();
    }
    database.Close();
  }
  static void TryEverything(TestDatabase& database, Told& told) {
    for (int i = 0; i < 10; ++i)
      if (database.Put("after", std::to_string(i)).ok()) ++told.acknowledged_after;
    database.db()->Resume().PermitUncheckedError();
    if (database.Put("after", "resumed").ok()) ++told.acknowledged_after;
    if (database.db()->Delete({}, "after").ok()) ++told.acknowledged_after;
    told.flushed_after = database.db()->Flush({}).ok();
    told.reads_after = database.FirstMissing(1).empty();
  }

  Told* told_ = nullptr;
  pid_t pid_ = 0;
};

class FencingTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(cluster_.started()); }

  std::string Directory() const { return cluster_.folder() + "/db"; }
  // Nobody has to wait for this primary, however slow the machine is.
  StoreOptions Options() const {
    StoreOptions options = cluster_.Options();
    options.ack_timeout = options.connect_timeout = std::chrono::seconds(60);
    return options;
  }
  // Another machine's primary: it has a pool, a host and a copy of the directory.
  StoreOptions Second() const {
    StoreOptions options = Options();
    options.pool = cluster_.folder() + "/second.pool";
    options.host = "second";
    options.takeover = options.rebind = true;
    return options;
  }
  std::string CopyOfDirectory() const {
    const std::string copy = cluster_.folder() + "/copy";
    fs::remove_all(copy);
    fs::copy(Directory(), copy, fs::copy_options::recursive);
    return copy;
  }
  struct Group {
    std::vector<std::vector<std::byte>> regions;
    std::vector<uint64_t> epochs;
    std::vector<std::string> owners;
    bool operator==(const Group&) const = default;
  };
  Group Look() const {
    Group group;
    for (uint32_t i = 0; i < cluster_.replicas(); ++i) {
      auto region = cluster_.ReplicaRegion(i);
      EXPECT_OK(region);
      const auto status = cluster_.ReplicaStatus(i);
      EXPECT_OK(status);
      if (!region.ok() || !status.ok()) continue;
      group.regions.push_back(std::move(*region));
      group.epochs.push_back(status->sealed_epoch);
      group.epochs.push_back(status->installed_epoch);
      group.owners.push_back(status->owner);
    }
    return group;
  }

  TestCluster cluster_{3, 32 << 20};
};

TEST_F(FencingTest, APrimaryThatWakesUpAfterATakeoverChangesNothing) {
  PrimaryProcess first(Options(), Directory(), 0);
  ASSERT_TRUE(first.Acknowledges(50)) << first.error();
  first.Stop();
  int found = 0;
  {
    TestDatabase second(Second(), CopyOfDirectory());
    ASSERT_OK(second.Open());
    while (second.Get(TestDatabase::KeyOf(found)) == TestDatabase::ValueOf(found)) ++found;
    ASSERT_GE(found, first.told().acknowledged);
    ASSERT_OK(second.Put("second", "wrote this"));
    ASSERT_OK(second.db()->Flush({}));
  }
  const Group before = Look();
  first.WakeUp();
  ASSERT_TRUE(Eventually([&] { return first.told().done.load(); }));
  EXPECT_TRUE(Look() == before) << "a byte, an epoch or an owner of the group changed";
  EXPECT_LE(first.told().acknowledged, found) << "an acknowledged write is lost";
  EXPECT_EQ(first.told().acknowledged_after, 0);
  EXPECT_FALSE(first.told().flushed_after);
  EXPECT_TRUE(first.told().reads_after) << "it is read-only, not dead";
  EXPECT_THAT(first.error(), HasSubstr("IO fenced off"));
  EXPECT_THAT(first.error(), HasSubstr("process " + std::to_string(getpid()))) << "who has it now";
}

TEST_F(FencingTest, OfTwoTakeoversAtOnceOneWinsAndTheLosersDirectoryStaysUsable) {
  constexpr int kFirst = 100;
  {
    TestDatabase database(Options(), Directory());
    ASSERT_OK(database.Open());
    ASSERT_OK(database.Fill(kFirst));
    ASSERT_OK(database.db()->Flush({}));
  }
  const std::string copy = CopyOfDirectory();
  StoreOptions here = Options();
  here.takeover = here.rebind = true;
  int keys = kFirst;
  for (int round = 0; round < 4; ++round) {
    PrimaryProcess a(here, Directory(), keys);
    PrimaryProcess b(Second(), copy, keys);
    ASSERT_TRUE(Eventually([&] { return a.Lost() || b.Lost(); })) << "two primaries";
    const bool a_wins = b.Lost();
    PrimaryProcess& winner = a_wins ? a : b;
    const PrimaryProcess& loser = a_wins ? b : a;
    ASSERT_TRUE(winner.Acknowledges(20)) << winner.error() << " and " << loser.error();
    EXPECT_THAT(loser.error(), AnyOf(HasSubstr("IO fenced off"), HasSubstr("another primary"),
                                     HasSubstr("too late")));
    winner.told().close = true;
    const int end = keys + winner.told().acknowledged;
    ASSERT_TRUE(Eventually([&] { return winner.Ended(); }));
    // The loser's directory gets what the winner wrote.
    StoreOptions again = a_wins ? Second() : here;
    again.takeover = false;
    TestDatabase database(again, a_wins ? copy : Directory());
    ASSERT_OK(database.Open()) << "round " << round;
    EXPECT_EQ(database.FirstMissing(end), "") << "round " << round;
    EXPECT_OK(database.db()->VerifyChecksum());
    keys = end;
    while (database.Get(TestDatabase::KeyOf(keys)) == TestDatabase::ValueOf(keys)) ++keys;
    ASSERT_OK(database.Put("round", std::to_string(round)));
  }
}

}  // namespace
}  // namespace hyperloop::test
