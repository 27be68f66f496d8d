// Memory runs out on the RNIC daemon's threads, and on a client's: it costs the client that asked,
// nobody else, and what it had is given back.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "hyperloop/core/softrnic.h"
#include "softrnic/daemon/flush_threads.h"
#include "softrnic/daemon/testing/control_world.h"
#include "softrnic/engine/flusher.h"
#include "support/failing_memory.h"
#include "support/must.h"
#include "support/status_matchers.h"

namespace hyperloop::softrnic {
namespace {

class DaemonMemoryExhaustion : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(root_.data()), nullptr);
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
  std::string root_ = "/dev/shm/hyperloop-memory-XXXXXX";
  UniqueFd memory_;
};

TEST_F(DaemonMemoryExhaustion, ACommandCostsItsClient) {
  OtherProcess process;
  for (const size_t count : {1, 8}) {
    size_t named = 0;
    const auto scenario = [&](test::Shortage& shortage) {
      const World world(
          Socket(), {.queue_pairs = 1, .completion_queues = 2, .memory_keys = 1, .mappings = 1});
      RawClient other(process.Connect(world.socket));
      EXPECT_OK(other.Open("other"));
      Status status;
      EXPECT_FALSE(shortage.Elsewhere([&] { status = Exchange(world); }));
      named += world.log->Has("out of memory") ? 1 : 0;
      EXPECT_OK(other.AllocPd());
      // What the one had does not count against it: each limit allows just one exchange. The
      // daemon may still be about to end it.
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      Status again = Exchange(world);
      while (again.code() == Code::kNoSpace && std::chrono::steady_clock::now() < deadline)
        again = Exchange(world);
      EXPECT_OK(again);
      EXPECT_OK(other.AllocPd());
      return status.ok();
    };
    const size_t runs = test::ForEachFailingAllocation({.count = count, .harmed = 11}, scenario);
    EXPECT_TRUE(count != 1 || named > runs / 2) << named;  // lines take memory, too
    if (HasFailure()) return;
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
  // The test's, the engine's, the server's, and the one that makes those of clients.
  constexpr size_t kThreads = 4;
  for (const bool destroying : {false, true}) {
    const World world(Socket(),
                      {.queue_pairs = 1, .completion_queues = 2, .memory_keys = 1, .mappings = 4});
    const std::unique_ptr<rnic::Device> device = Must(OpenDaemonDevice({world.socket, "one"}));
    const auto scenario = [&](test::Shortage& shortage) {
      Objects objects;
      if (destroying) Must(objects.Make(*device));
      Status status;
      const bool ran_out = shortage.Here([&] {
        if (destroying) return objects.Destroy();
        status = objects.Make(*device);
      });
      EXPECT_OK(status);
      EXPECT_TRUE(device->alive());
      EXPECT_TRUE(!destroying || !ran_out);
      return !ran_out;
    };
    test::ForEachFailingAllocation(
        {.count = 100, .threads = kThreads, .harmed = destroying ? 0u : 11u}, scenario);
    if (HasFailure()) return;
  }
}

// No thread can be made for the flushes of a client at first.
TEST_F(DaemonMemoryExhaustion, AFlushWaitsForAThread) {
  const auto scenario = [](test::Shortage& shortage) {
    std::atomic<int> done{0};
    FlushThreads threads([&](const FileRange&) { return ++done != 0; });
    threads.Start([] {}, [] {});
    const auto job = std::make_shared<FlushJob>();
    job->left = 1;
    EXPECT_FALSE(shortage.Elsewhere([&] {
      EXPECT_TRUE(threads.Flush(7, {}, job));
      while (job->left != 0) sched_yield();
    }));
    EXPECT_EQ(done, 1);
    threads.Stop();
    return true;
  };
  EXPECT_GT(test::ForEachFailingAllocation({.count = 3, .harmed = 0}, scenario), 1u);
}

}  // namespace
}  // namespace hyperloop::softrnic
