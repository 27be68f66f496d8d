// Memory runs out at each allocation in turn of the RNIC daemon's threads, and of a client's: it
// costs the client that asked, nobody else, and what it had is given back.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hyperloop/core/out_of_memory.h"
#include "hyperloop/core/softrnic.h"
#include "softrnic/daemon/flush_threads.h"
#include "softrnic/daemon/testing/control_world.h"
#include "softrnic/engine/flusher.h"
#include "support/failing_memory.h"
#include "support/must.h"
#include "support/status_matchers.h"

namespace hyperloop::softrnic {
namespace {

using test::FailingMemory;

constexpr std::chrono::seconds kPatience{30};

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}
size_t Threads() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("Threads:", 0) == 0) return std::stoul(line.substr(8));
  return 0;
}

// How often each thread of this process but the calling one has gone to sleep; none: one is awake.
std::optional<std::map<std::string, std::string>> Sleeps() {
  std::map<std::string, std::string> sleeps;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    const std::string id = thread.path().filename();
    if (id == std::to_string(gettid())) continue;
    std::ifstream status(thread.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("State:") && line.find("sleeping") == line.npos) return std::nullopt;
      if (line.find("ctxt_switches:") != line.npos) sleeps[id] += line;
    }
  }
  return sleeps;
}
// Whether there was a moment at which all other threads slept.
bool AllSleep() {
  const auto before = Sleeps();
  return before.has_value() && before == Sleeps();
}

// Waits until the process has `threads` threads again, which sleep: a client's thread ends when it
// has nothing more to do, and the others give back what their last task needed.
void AwaitThreads(size_t threads) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while ((Threads() != threads || !AllSleep()) && std::chrono::steady_clock::now() < deadline)
    sched_yield();
  EXPECT_EQ(Threads(), threads);
}

class DaemonMemoryExhaustion : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/dev/shm/hyperloop-memory-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    memory_.Reset(memfd_create("memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(memory_.get(), kBytes), 0);
    ASSERT_EQ(fcntl(memory_.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  std::string Socket() const { return root_ + "/rnicd.sock"; }

  // One of most commands. Not ok: one of them failed.
  Status Exchange(const World& world) {
    RawClient client(ConnectToDaemon(world.socket));
    HL_RETURN_IF_ERROR(client.Open("one"));
    HL_RETURN_IF_ERROR(client.AllocPd());
    const uint32_t pd = client.reply.result.id.id;
    Command command = RawClient::Make(Op::kRegisterUmem);
    command.args.umem = {kAddress, 0, kBytes};
    HL_RETURN_IF_ERROR(client.Call(command, {memory_.get()}));
    const uint32_t umem = client.reply.result.id.id;
    command = RawClient::Make(Op::kCreateMkey);
    command.args.mkey = {pd, umem, kAddress, kBytes, rnic::kLocalWrite, 0};
    HL_RETURN_IF_ERROR(client.Call(command));
    uint32_t cq = 0;
    for (const uint32_t events : {0, 1}) {
      command = RawClient::Make(Op::kCreateCq);
      command.args.cq = {umem, 4,     kAddress + events * 2048, kAddress + events * 2048 + 1024,
                         0,    events};
      HL_RETURN_IF_ERROR(client.Call(command));
      cq = client.reply.result.cq.cqn;
    }
    command = RawClient::Make(Op::kCreateQp);
    command.args.qp = {pd, cq, cq, umem, kAddress + 4096, 0, kAddress + 5120, 2, 0, 0, 0, 0, 1};
    HL_RETURN_IF_ERROR(client.Call(command));
    command = RawClient::Make(Op::kPublish);
    std::strcpy(command.args.publish.service, "a-service-with-a-long-name");
    command.args.publish.pdn = pd;
    HL_RETURN_IF_ERROR(client.Call(command));
    HL_RETURN_IF_ERROR(client.Call(RawClient::Make(Op::kQueryCounters)));
    command = RawClient::Make(Op::kFreePd);
    command.args.id.id = pd;
    if (const Status busy = client.Call(command); busy.code() != Code::kBusy)
      return busy.ok() ? Internal("a domain in use was freed") : busy;
    command.magic = 0;
    const Status refused = client.Call(command);
    return refused.code() == Code::kInvalidArgument ? Status() : refused;
  }

  static constexpr uint64_t kBytes = 64 << 10;
  static constexpr uint64_t kAddress = 1 << 20;
  // The engine's, the server's, and the one that makes those of clients.
  static constexpr size_t kThreadsOfWorld = 3;
#ifdef __SANITIZE_THREAD__
  // The sanitizer's own, which begins with the first other one.
  static constexpr size_t kOthers = 1;
#else
  static constexpr size_t kOthers = 0;
#endif
  static inline const size_t threads_ = Threads() + kOthers;
  std::string root_;
  UniqueFd memory_;
};

TEST_F(DaemonMemoryExhaustion, ACommandCostsItsClient) {
  OtherProcess process;
  for (const size_t count : {1, 8}) {
    size_t broken = 0, named = 0;
    for (size_t number = 0;; ++number) {
      SCOPED_TRACE("allocation " + std::to_string(number) + ", " + std::to_string(count));
      ASSERT_LT(number, 2000u);
      const long living = FailingMemory::living();
      const size_t descriptors = OpenDescriptors();
      {
        const World world(
            Socket(), {.queue_pairs = 1, .completion_queues = 2, .memory_keys = 1, .mappings = 1});
        RawClient other(process.Connect(world.socket));
        ASSERT_OK(other.Open("other"));
        Status status;
        {
          const FailingMemory failing(FailingMemory::Where::kElsewhere, number, count);
          status = Exchange(world);
        }
        if (FailingMemory::failed() == 0) {
          EXPECT_OK(status);
        }
        broken += status.ok() ? 0 : 1;
        named += world.log->Has("out of memory") ? 1 : 0;
        EXPECT_OK(other.AllocPd());
        // What the one had does not count against it: each limit allows just one exchange. The
        // daemon may still be about to end it.
        const auto deadline = std::chrono::steady_clock::now() + kPatience;
        Status again = Exchange(world);
        while (again.code() == Code::kNoSpace && std::chrono::steady_clock::now() < deadline)
          again = Exchange(world);
        EXPECT_OK(again);
        EXPECT_OK(other.AllocPd());
      }
      AwaitThreads(threads_);
      EXPECT_EQ(FailingMemory::living(), living) << "leaked, or freed twice";
      EXPECT_EQ(OpenDescriptors(), descriptors);
      if (HasFailure()) return;
      if (FailingMemory::failed() != 0) continue;
      EXPECT_GT(broken, 10u) << "of " << number;
      EXPECT_TRUE(count != 1 || named > number / 2) << named;  // lines take memory, too
      break;
    }
  }
}

// What a driver makes of each kind.
struct Objects {
  Status Make(rnic::Device& device) {
    HL_ASSIGN_OR_RETURN(pd, device.AllocatePd());
    HL_ASSIGN_OR_RETURN(buffer, device.AllocateBuffer(4096));
    HL_ASSIGN_OR_RETURN(region, pd->Register(buffer->data(), 4096, rnic::kLocalWrite, {}));
    HL_ASSIGN_OR_RETURN(cq, device.CreateCq({.depth = 16}));
    HL_ASSIGN_OR_RETURN(events, device.CreateCq({.depth = 16, .events = true}));
    rnic::QpAttr attr;
    attr.send_cq = attr.recv_cq = cq.get();
    HL_ASSIGN_OR_RETURN(qp, pd->CreateQueuePair(attr));
    return qp->Connect(qp->address());
  }
  void Destroy() {
    qp.reset();
    events.reset();
    cq.reset();
    region.reset();
    buffer.reset();
    pd.reset();
  }
  ~Objects() { Destroy(); }

  std::unique_ptr<rnic::ProtectionDomain> pd;
  std::unique_ptr<rnic::Buffer> buffer;
  std::unique_ptr<rnic::MemoryRegion> region;
  std::unique_ptr<rnic::CompletionQueue> cq, events;
  std::unique_ptr<rnic::QueuePair> qp;
};

// The driver in the client's process: what could not be made is not left at the daemon, and what is
// destroyed is destroyed without memory.
TEST_F(DaemonMemoryExhaustion, ADriverLosesNothingAtTheDaemon) {
  for (const bool destroying : {false, true}) {
    size_t ran_out = 0;
    AwaitThreads(threads_);
    const World world(Socket(),
                      {.queue_pairs = 1, .completion_queues = 2, .memory_keys = 1, .mappings = 4});
    const size_t threads = threads_ + kThreadsOfWorld;
    const std::unique_ptr<rnic::Device> device = Must(OpenDaemonDevice({world.socket, "one"}));
    ASSERT_OK(Objects().Make(*device));  // the daemon's tables have room from now on
    AwaitThreads(threads);
    for (size_t number = 0;; ++number) {
      SCOPED_TRACE("allocation " + std::to_string(number));
      ASSERT_LT(number, 1000u);
      const long living = FailingMemory::living();
      const size_t descriptors = OpenDescriptors();
      {
        Objects objects;
        if (destroying) {
          ASSERT_OK(objects.Make(*device));
        }
        Status status;
        {
          const FailingMemory failing(FailingMemory::Where::kHere, number, 100);
          if (destroying) {
            objects.Destroy();
          } else if (RanOutOfMemory([&] { status = objects.Make(*device); })) {
            ++ran_out;
          }
        }
        EXPECT_OK(status);
      }
      EXPECT_TRUE(device->alive());
      AwaitThreads(threads);
      EXPECT_EQ(FailingMemory::living(), living) << "leaked, or freed twice";
      EXPECT_EQ(OpenDescriptors(), descriptors);
      if (HasFailure()) return;
      if (FailingMemory::failed() == 0) break;
    }
    EXPECT_TRUE(destroying || ran_out > 10u) << ran_out;
  }
}

// No thread can be made for the flushes of a client at first.
TEST(FlushThreadsMemoryExhaustion, AFlushWaitsForAThread) {
  for (size_t number = 0; number < 4; ++number) {
    std::atomic<int> done{0};
    FlushThreads threads([&](const FileRange&) { return ++done != 0; });
    threads.Start([] {}, [] {});
    const auto job = std::make_shared<FlushJob>();
    job->left = 1;
    const FailingMemory failing(FailingMemory::Where::kElsewhere, number, 3);
    ASSERT_TRUE(threads.Flush(7, {}, job));
    while (job->left != 0) sched_yield();
    EXPECT_EQ(done, 1);
    threads.Stop();
  }
}

}  // namespace
}  // namespace hyperloop::softrnic
