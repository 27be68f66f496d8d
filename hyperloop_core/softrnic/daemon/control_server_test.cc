// Tests how the control server shares the engine's time and its own among clients. The program is
// linked so that the test decides what time it is, and whether there is room for a mapping.
#include "softrnic/daemon/control_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "softrnic/daemon/testing/control_world.h"
#include "support/eventually.h"
#include "support/status_matchers.h"

namespace hyperloop::softrnic {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// The linker's options for this program name what these stand for.
steady_clock::time_point RealNow() noexcept asm("__real__ZNSt6chrono3_V212steady_clock3nowEv");
steady_clock::time_point Now() noexcept asm("__wrap__ZNSt6chrono3_V212steady_clock3nowEv");
int RealGetTime(clockid_t id, timespec* time) asm("__real_clock_gettime");
int GetTime(clockid_t id, timespec* time) asm("__wrap_clock_gettime");
void* RealMap(void* at, size_t length, int rights, int flags, int fd,
              off_t offset) asm("__real_mmap");
void* Map(void* at, size_t length, int rights, int flags, int fd, off_t offset) asm("__wrap_mmap");
int RealUnmap(void* at, size_t length) asm("__real_munmap");
int Unmap(void* at, size_t length) asm("__wrap_munmap");

namespace {

// While one lives, time stands still between two calls of Pass, and each command takes kCommand of
// the engine's time.
class HeldTime {
 public:
  static constexpr milliseconds kCommand{1};

  HeldTime() { now_ = steady_clock::duration(std::chrono::hours(1)).count(); }
  ~HeldTime() { now_ = 0; }
  HeldTime(const HeldTime&) = delete;
  HeldTime& operator=(const HeldTime&) = delete;

  void Pass(milliseconds time) { now_ += steady_clock::duration(time).count(); }
  // 0: time is not held.
  static steady_clock::rep now() { return now_; }
  // Of the engine's thread; it is read before and after each command.
  static std::chrono::nanoseconds NextThreadTime() { return used_ += kCommand; }

 private:
  static inline std::atomic<steady_clock::rep> now_{0};
  static inline std::chrono::nanoseconds used_{0};
};

// What happens to the program's mappings while one lives. It is made before the threads and ends
// after them.
struct Mappings {
  Mappings() { living = this; }
  ~Mappings() { living = nullptr; }
  Mappings(const Mappings&) = delete;
  Mappings& operator=(const Mappings&) = delete;

  std::function<bool(size_t length)> has_room = [](size_t) { return true; };
  std::function<void(void* at)> unmapping = [](void*) {};
  static inline Mappings* living = nullptr;
};

}  // namespace

steady_clock::time_point Now() noexcept {
  const steady_clock::rep held = HeldTime::now();
  return held == 0 ? RealNow() : steady_clock::time_point(steady_clock::duration(held));
}

int GetTime(clockid_t id, timespec* time) {
  if (id != CLOCK_THREAD_CPUTIME_ID || HeldTime::now() == 0) return RealGetTime(id, time);
  *time = {.tv_sec = 0, .tv_nsec = HeldTime::NextThreadTime().count()};
  return 0;
}

void* Map(void* at, size_t length, int rights, int flags, int fd, off_t offset) {
  if (Mappings::living == nullptr || Mappings::living->has_room(length))
    return RealMap(at, length, rights, flags, fd, offset);
  errno = ENOMEM;
  return MAP_FAILED;
}

int Unmap(void* at, size_t length) {
  if (Mappings::living != nullptr) Mappings::living->unmapping(at);
  return RealUnmap(at, length);
}

namespace {

class ControlServerTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = std::filesystem::temp_directory_path() / "hyperloop-control-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  std::string Socket() const { return root_ + "/rnicd.sock"; }

  // What the server may read from other clients is answered when this returns.
  static void LetServerRead(RawClient& client) {
    for (int i = 0; i < 3; ++i) ASSERT_OK(client.Call(kQuery));
  }
  // Exactly `count` commands of `busy` are answered. It has said one already, and says one more.
  static void ExpectAnswers(RawClient& busy, RawClient& other, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      ASSERT_OK(busy.Hear()) << i;
      busy.Say(kQuery);
    }
    ASSERT_NO_FATAL_FAILURE(LetServerRead(other));
    EXPECT_FALSE(busy.answered()) << "more than " << count;
  }
  // Mappings that nobody uses any more, of `bytes`; the server has nothing to unmap before.
  static std::byte* LetMappingsWait(World& world, RawClient& client, size_t bytes) {
    // This refused command reaches the server after it has unmapped what others left behind.
    EXPECT_THAT(client.Open("again"), StatusIs(Code::kAlreadyExists));
    void* const at =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(at, MAP_FAILED);
    world.server->unmap_queue()->Add({UnmapQueue::Range{at, bytes}});
    return static_cast<std::byte*>(at);
  }

  static inline const Command kQuery = RawClient::Make(Op::kQueryCounters);
  static constexpr uint32_t kAtOnce = 50;  // commands that a client may make without a pause
  static constexpr size_t kPiece = 64 << 20;
  std::string root_;
};

TEST_F(ControlServerTest, AClientsCommandsGetTheirShareOfTheEnginesTime) {
  OtherProcess process;
  for (const uint32_t percent : {2u, 20u}) {
    SCOPED_TRACE(percent);
    HeldTime time;
    const World world(Socket(), {}, {.client_command_percent = percent});
    RawClient busy(ConnectToDaemon(Socket())), other(process.Connect(Socket()));
    ASSERT_OK(other.Open("other"));
    busy.Say(RawClient::MakeOpen("busy"));
    // The last one of these uses more than is left.
    ASSERT_NO_FATAL_FAILURE(ExpectAnswers(busy, other, kAtOnce + 1));
    for (int i = 0; i < 3; ++i) {
      time.Pass(200 * HeldTime::kCommand);
      ASSERT_NO_FATAL_FAILURE(ExpectAnswers(busy, other, 2 * percent));
    }
    RawClient again(ConnectToDaemon(Socket()));
    again.Say(RawClient::MakeOpen("again"));
    ASSERT_NO_FATAL_FAILURE(LetServerRead(other));
    EXPECT_FALSE(again.answered()) << "the connections of a process share its time";
  }
}

TEST_F(ControlServerTest, AProcessGetsNoNewTimeByConnectingAgain) {
  OtherProcess process;
  HeldTime time;
  const World world(Socket());
  RawClient other(process.Connect(Socket()));
  ASSERT_OK(other.Open("other"));
  {
    RawClient busy(ConnectToDaemon(Socket()));
    busy.Say(RawClient::MakeOpen("busy"));
    ASSERT_NO_FATAL_FAILURE(ExpectAnswers(busy, other, kAtOnce + 1));
  }
  ASSERT_NO_FATAL_FAILURE(LetServerRead(other));
  RawClient again(ConnectToDaemon(Socket()));
  again.Say(RawClient::MakeOpen("again"));
  ASSERT_NO_FATAL_FAILURE(LetServerRead(other));
  EXPECT_FALSE(again.answered());
  time.Pass(1000 * HeldTime::kCommand);
  EXPECT_OK(again.Hear());
}

TEST_F(ControlServerTest, WhoeverAsksAgainAndAgainIsLoggedOnce) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  OtherProcess one(65533), two(65534);
  HeldTime time;
  const World world(Socket());
  ASSERT_EQ(chmod(root_.c_str(), 0711), 0);
  ASSERT_EQ(chmod(Socket().c_str(), 0666), 0);
  const auto refuse = [&](OtherProcess& process, int times) {
    for (; times > 0; --times) {
      RawClient client(process.Connect(Socket()));
      EXPECT_THAT(client.Hear(), StatusIs(Code::kPermissionDenied));
    }
  };
  const auto lines = [&](const std::string& user) {
    return std::ranges::count_if(world.log->lines(), [&](const std::string& line) {
      return line.find("was refused: ") != std::string::npos &&
             line.find("not user " + user) != std::string::npos;
    });
  };
  refuse(one, 5);
  refuse(two, 5);
  EXPECT_EQ(lines("65533"), 1);
  EXPECT_EQ(lines("65534"), 0) << "too soon after another line";
  time.Pass(RefusalLog::kLeastBetweenLines);
  refuse(two, 5);
  time.Pass(RefusalLog::kLeastBetweenLines);
  refuse(two, 5);
  EXPECT_EQ(lines("65534"), 1);
}

// At each piece but the first, a command that was said at the one before has its answer.
TEST_F(ControlServerTest, CommandsAreAnsweredBetweenThePiecesThatAreUnmapped) {
  constexpr size_t kPieces = 4;
  RawClient* second = nullptr;
  std::atomic<std::byte*> begin{nullptr};
  std::vector<bool> answered;
  Mappings mappings;
  mappings.unmapping = [&](void* at) {
    const std::byte* const first = begin;
    if (first == nullptr || at < first || at >= first + kPieces * kPiece) return;
    answered.push_back(second->answered());
    if (answered.back()) second->Hear().IgnoreError();
    second->Say(kQuery);
  };
  World world(Socket());
  RawClient client(ConnectToDaemon(Socket())), others(ConnectToDaemon(Socket()));
  ASSERT_OK(client.Open("client"));
  ASSERT_OK(others.Open("others"));
  second = &others;
  begin = LetMappingsWait(world, client, kPieces * kPiece);
  ASSERT_OK(client.Call(kQuery));
  ASSERT_TRUE(test::Eventually([&] { return world.server->unmap_queue()->bytes() == 0; }));
  EXPECT_EQ(answered, (std::vector<bool>{false, true, true, true}));
}

// Memory that waits to be unmapped still takes address space.
TEST_F(ControlServerTest, MemoryIsRegisteredOnceWhatWaitsIsUnmapped) {
  constexpr uint64_t kBytes = 192 << 10;
  std::atomic<int> refused{0};
  std::atomic<UnmapQueue*> queue{nullptr};
  Mappings mappings;
  mappings.has_room = [&](size_t length) {
    if (length != kBytes || queue.load()->bytes() == 0) return true;
    ++refused;
    return false;
  };
  World world(Socket());
  queue = world.server->unmap_queue().get();
  RawClient client(ConnectToDaemon(Socket()));
  ASSERT_OK(client.Open("client"));
  const UniqueFd memory(memfd_create("memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(memory.get(), kBytes), 0);
  ASSERT_EQ(fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  LetMappingsWait(world, client, 3 * kPiece);
  Command command = RawClient::Make(Op::kRegisterUmem);
  command.args.umem = {1 << 20, 0, kBytes};
  EXPECT_OK(client.Call(command, {memory.get()}));
  EXPECT_GT(refused, 0) << "there was room at once";
}

}  // namespace
}  // namespace hyperloop::softrnic
