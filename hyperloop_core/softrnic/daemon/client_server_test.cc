// Tests how the client server shares the engine's time and its own among clients. The program is
// linked so that the test decides what time it is, whether there is room for a mapping, and how
// long the server of a file system is silent.
#include "softrnic/daemon/client_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "hyperloop/core/softrnic.h"
#include "softrnic/daemon/limited_log.h"
#include "softrnic/daemon/testing/control_world.h"
#include "softrnic/engine/testing/engine_test_util.h"
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
int RealStatFs(int fd, struct statfs* system) asm("__real_fstatfs");
int StatFs(int fd, struct statfs* system) asm("__wrap_fstatfs");

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

// While one lives, nobody answers a question about a file system.
class SilentServer {
 public:
  SilentServer() { silent_ = true; }
  ~SilentServer() { Answer(); }
  SilentServer(const SilentServer&) = delete;
  SilentServer& operator=(const SilentServer&) = delete;

  void Answer() {
    silent_ = false;
    silent_.notify_all();
  }
  int asked() const { return asked_; }
  static void Ask() {
    if (silent_) ++asked_;
    silent_.wait(true);
  }

 private:
  static inline std::atomic<bool> silent_{false};
  static inline std::atomic<int> asked_{0};
};

}  // namespace

int StatFs(int fd, struct statfs* system) {
  SilentServer::Ask();
  return RealStatFs(fd, system);
}

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

class ClientServerTest : public testing::Test {
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
    UnmapQueue::Ranges ranges;
    ranges.push_back({at, bytes, {}});
    world.server->unmap_queue()->Add(std::move(ranges));
    return static_cast<std::byte*>(at);
  }

  static inline const Command kQuery = RawClient::Make(Op::kQueryCounters);
  static constexpr uint32_t kAtOnce = 50;  // commands that a client may make without a pause
  static constexpr size_t kPiece = 64 << 20;
  std::string root_;
};

TEST_F(ClientServerTest, AClientsCommandsGetTheirShareOfTheEnginesTime) {
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

TEST_F(ClientServerTest, AProcessGetsNoNewTimeByConnectingAgain) {
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

// A container may have the daemon's user id, and a pid that the daemon cannot see.
TEST_F(ClientServerTest, AClientOfOtherNamespacesIsToldSo) {
  EXPECT_OK(CheckClient({.pid = 7, .uid = geteuid(), .gid = 0}));
  EXPECT_THAT(CheckClient({.pid = 0, .uid = geteuid(), .gid = 0}),
              StatusIs(Code::kPermissionDenied,
                       testing::AllOf(testing::HasSubstr("in one pid namespace"),
                                      testing::Not(testing::HasSubstr("not user")))));
  uid_t unmapped = 0;
  std::ifstream("/proc/sys/kernel/overflowuid") >> unmapped;
  if (unmapped == geteuid()) GTEST_SKIP() << "this is the user that stands for others";
  EXPECT_THAT(CheckClient({.pid = 7, .uid = unmapped, .gid = 0}),
              StatusIs(Code::kPermissionDenied, testing::HasSubstr("user namespace")));
  EXPECT_THAT(CheckClient({.pid = 7, .uid = geteuid() + 1, .gid = 0}),
              StatusIs(Code::kPermissionDenied, testing::Not(testing::HasSubstr("namespace"))));
}

// Pages come from a disk, or are made, on the client's own time. The daemon has a limit.
TEST_F(ClientServerTest, AClientsMemoryIsThereBeforeTheDaemonMapsIt) {
  const World world(Socket());
  constexpr size_t kPages = 64;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const UniqueFd file(open((root_ + "/memory").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(posix_fallocate(file.get(), 0, static_cast<off_t>(kPages * page)), 0);
  void* const at = mmap(nullptr, kPages * page, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(at, MAP_FAILED);
  const auto present = [&] {
    const UniqueFd map(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
    std::array<uint64_t, kPages> entries{};
    const auto offset = reinterpret_cast<uintptr_t>(at) / page * sizeof entries[0];
    EXPECT_EQ(pread(map.get(), entries.data(), sizeof entries, static_cast<off_t>(offset)),
              static_cast<ssize_t>(sizeof entries));
    return std::ranges::count_if(entries, [](uint64_t entry) { return (entry >> 63) != 0; });
  };
  ASSERT_EQ(present(), 0);
  const auto device = OpenDaemonDevice({.socket_path = Socket(), .host = "client"});
  ASSERT_OK(device);
  const auto pd = (*device)->AllocatePd();
  ASSERT_OK(pd);
  SilentServer silent;
  const int asked = silent.asked();
  auto registered = std::async(std::launch::async, [&] {
    return (*pd)->Register(at, kPages * page, rnic::kLocalWrite, {.fd = file.get()}).status();
  });
  EXPECT_TRUE(test::Eventually([&] { return silent.asked() > asked; }));
  EXPECT_EQ(present(), kPages);
  silent.Answer();
  EXPECT_OK(registered.get());
  munmap(at, kPages * page);
}

TEST_F(ClientServerTest, WhoeverAsksAgainAndAgainIsLoggedOnce) {
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

TEST_F(ClientServerTest, MalformedMessagesDoNotFillTheLog) {
  OtherProcess process;
  HeldTime time;
  const World world(Socket());
  const auto lines = [&] { return world.log->lines().size(); };
  Command bad = kQuery;
  bad.magic = 0;
  for (int i = 0; i < 20; ++i) {
    bad.version = static_cast<uint16_t>(i);
    RawClient client(process.Connect(Socket()));
    EXPECT_THAT(client.Call(bad), StatusIs(Code::kInvalidArgument));
  }
  EXPECT_EQ(lines(), 1u);
  EXPECT_TRUE(world.log->Has("is not a command")) << "with the reason";
}

TEST_F(ClientServerTest, LinesThatOthersCauseAreWrittenInBoundedNumber) {
  HeldTime time;
  const auto written = std::make_shared<LogLines>();
  LimitedLog log(written);
  const auto write = [&log](int lines) {
    for (; lines > 0; --lines) log.Write(LogLevel::kInfo, "a line");
  };
  write(LimitedLog::kAtOnce + 7);
  EXPECT_EQ(written->lines().size(), static_cast<size_t>(LimitedLog::kAtOnce));
  written->Clear();
  time.Pass(2 * LimitedLog::kForOneMore);
  write(5);
  EXPECT_EQ(
      written->lines(),
      (std::vector<std::string>{"lines left out, because there were many: 7", "a line", "a line"}));
  written->Clear();
  time.Pass(1000 * LimitedLog::kForOneMore);
  write(LimitedLog::kAtOnce + 7);
  EXPECT_EQ(written->lines().size(), static_cast<size_t>(LimitedLog::kAtOnce) + 1);
}

// At each piece but the first, a command that was said at the one before has its answer.
TEST_F(ClientServerTest, CommandsAreAnsweredBetweenThePiecesThatAreUnmapped) {
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
TEST_F(ClientServerTest, MemoryIsRegisteredOnceWhatWaitsIsUnmapped) {
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

// The engine replaces lost pages even if the process may have no further mapping: all of the memory
// at once, for which the old mapping makes room.
TEST_F(ClientServerTest, AFaultIsMendedThoughThereIsNoRoomForAMapping) {
  static Engine* faulting = nullptr;
  const UniqueFd file(memfd_create("memory", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(file.get(), Client::kArena), 0);
  void* const arena =
      mmap(nullptr, Client::kArena, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(arena, MAP_FAILED);
  Engine engine{EngineOptions{}};
  faulting = &engine;
  bool ended = false;
  engine.SetEvict([&ended](ContextId, const char*) { ended = true; });
  Client a(engine, "a"), b(engine, "b", rnic::Media::kRam, static_cast<std::byte*>(arena));
  TestCq a_cq = a.Cq();
  const TestCq b_cq = b.Cq();
  TestQp from = a.Qp(a_cq, a_cq), to = b.Qp(b_cq, b_cq);
  a.Connect(from, to);
  b.Connect(to, from);
  struct sigaction action {
  }, old{};
  action.sa_sigaction = [](int, siginfo_t* info, void*) {
    if (!faulting->HandleFault(info->si_addr)) _exit(99);
  };
  action.sa_flags = SA_SIGINFO;
  ASSERT_EQ(sigaction(SIGBUS, &action, &old), 0);
  ASSERT_EQ(ftruncate(file.get(), Client::kArena / 2), 0);
  {
    Mappings mappings;
    mappings.has_room = [](size_t length) { return length == Client::kArena; };
    from.Write(reinterpret_cast<uint64_t>(b.memory + Client::kArena - 64), b.rkey,
               a.At(a.memory, 8));
    from.Ring();
    RunAll(engine);
  }
  const auto done = a_cq.PollAll();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, rnic::WcStatus::kRemoteAccess);
  EXPECT_TRUE(ended) << "its queues lie in that memory";
  b.Close();
  sigaction(SIGBUS, &old, nullptr);
  munmap(arena, Client::kArena);
}

// TCP sockets whose closing lasts for 20 minutes, or until this object ends: they linger, and their
// bytes are not taken.
class Lingering {
 public:
  Lingering() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address_;
    auto* const address = reinterpret_cast<sockaddr*>(&address_);
    EXPECT_EQ(bind(listener_.get(), address, size), 0);
    EXPECT_EQ(listen(listener_.get(), 8), 0);
    EXPECT_EQ(getsockname(listener_.get(), address, &size), 0);
  }
  UniqueFd Make() {
    UniqueFd made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(made.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_),
              0);
    others_.emplace_back(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const linger wait{.l_onoff = 1, .l_linger = 1200};
    EXPECT_EQ(setsockopt(made.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof wait), 0);
    const std::vector<char> bytes(1 << 20);
    while (send(made.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
    return made;
  }

 private:
  UniqueFd listener_;
  sockaddr_in address_{};
  std::vector<UniqueFd> others_;
};

// Sends a message with `count` copies of a descriptor, as many as the kernel lets.
void SayWith(int socket, const Command& command, int fd, size_t count) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 253)] = {};
  const std::vector<int> fds(count, fd);
  iovec part{const_cast<Command*>(&command), sizeof command};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int) * count);
  std::memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * count);
  EXPECT_EQ(sendmsg(socket, &message, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof command));
}

// The client closes its own copy at once, so the daemon's is the last one.
TEST_F(ClientServerTest, ADescriptorWhoseClosingNeverEndsHoldsUpItsClientAlone) {
  Command bad = RawClient::Make(Op::kQueryCounters);
  bad.magic = 0;
  Command memory = RawClient::Make(Op::kRegisterUmem);
  memory.args.umem = {1 << 20, 0, 4096};
  const Command pd = RawClient::Make(Op::kAllocPd);
  struct Case {
    const char* name;
    Command first, second;  // the descriptors come with the second
    size_t count;
  };
  for (const Case& each :
       {Case{"as memory", pd, memory, 1}, Case{"with a command", pd, pd, 1},
        Case{"as many as the kernel lets", pd, memory, 253}, Case{"with no command", pd, bad, 1},
        Case{"left in a connection", bad, pd, 1}}) {
    SCOPED_TRACE(each.name);
    OtherProcess process;
    World world(Socket(), {}, {}, /*starts=*/false);
    Lingering lingering;
    RawClient other(process.Connect(Socket()));
    UniqueFd connection = ConnectToDaemon(Socket());
    const iovec part{const_cast<Command*>(&each.first), sizeof each.first};
    ASSERT_OK(SendMessage(connection.get(), {&part, 1}, {}, 0));
    SayWith(connection.get(), each.second, lingering.Make().get(), each.count);
    RawClient client(std::move(connection));
    world.Start();
    EXPECT_THAT(client.Hear(), StatusIs(Code::kInvalidArgument));
    ASSERT_OK(other.Open("other"));
    client.Say(pd);
    for (int i = 0; i < 3; ++i) ASSERT_OK(other.Call(kQuery));
  }
}

TEST_F(ClientServerTest, AFileSystemThatDoesNotAnswerHoldsUpItsClientAlone) {
  OtherProcess process;
  const World world(Socket());
  RawClient other(process.Connect(Socket()));
  ASSERT_OK(other.Open("other"));
  const UniqueFd memory(memfd_create("memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(memory.get(), 4096), 0);
  ASSERT_EQ(fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  Command command = RawClient::Make(Op::kRegisterUmem);
  command.args.umem = {1 << 20, 0, 4096};
  for (const bool stays : {true, false}) {
    SilentServer server;
    const int asked = server.asked();
    auto client = std::make_unique<RawClient>(ConnectToDaemon(Socket()));
    ASSERT_OK(client->Open("client"));
    client->Say(command, {memory.get()});
    ASSERT_TRUE(test::Eventually([&] { return server.asked() > asked; }));
    ASSERT_OK(other.Call(kQuery));
    EXPECT_FALSE(client->answered());
    if (!stays) {
      client.reset();
      ASSERT_OK(other.Call(kQuery));
    }
    server.Answer();
    if (stays) {
      EXPECT_OK(client->Hear());
    }
    ASSERT_OK(other.Call(kQuery));
  }
}

}  // namespace
}  // namespace hyperloop::softrnic
