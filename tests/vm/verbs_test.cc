// Provider verbs beyond the conformance suite: choosing a device, limits of the process, forks, and
// services of processes that do not answer. It runs in the virtual machine (scripts/vm-run),
// because it changes rights of /dev/infiniband.
#include "hyperloop/core/verbs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>

#include "hyperloop/core/rnic.h"
#include "support/must.h"
#include "support/rnic_end.h"
#include "support/status_matchers.h"
#include "verbs/library.h"

namespace hyperloop {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr char kAddress[] = "10.9.0.1";
constexpr uint32_t kAll =
    rnic::kLocalWrite | rnic::kRemoteWrite | rnic::kRemoteRead | rnic::kRemoteAtomic;

std::unique_ptr<rnic::Device> Open(const verbs::DeviceOptions& options = {}) {
  auto device = verbs::OpenDevice(options);
  EXPECT_OK(device);
  return device.ok() ? std::move(*device) : nullptr;
}
Status Refusal(const verbs::DeviceOptions& options) { return verbs::OpenDevice(options).status(); }

// Runs `body` in a child; the parent gets its text, which it prints to be compared.
std::string InChild(const std::function<std::string()>& body) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string text = body();
    const ssize_t written = write(ends[1], text.data(), text.size());
    _exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char buffer[512];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, n);
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return text;
}

// A loopback queue pair with 1 MiB of memory.
struct Loop : RnicEnd {
  explicit Loop(const verbs::DeviceOptions& options, const rnic::QpAttr& attr = {})
      : RnicEnd(Must(Make(Open(options), attr, 1 << 20))) {}
  rnic::WcStatus Write(size_t from, size_t to, uint32_t length) {
    const rnic::Sge sge{mr->addr() + from, length, mr->lkey()};
    const rnic::SendRequest request{.opcode = rnic::Opcode::kWrite,
                                    .signaled = true,
                                    .sges = {&sge, 1},
                                    .remote_addr = mr->addr() + to,
                                    .rkey = mr->rkey()};
    EXPECT_OK(qp->Post({&request, 1}));
    rnic::Completion done{.status = rnic::WcStatus::kOther};
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(300);
    while (std::chrono::steady_clock::now() < deadline) {
      auto polled = cq->Poll({&done, 1});
      if (!polled.ok() || *polled == 1) break;
    }
    return done.status;
  }
};

// The kernel refreshes its counters only every 12 ms.
uint64_t PacketsSent(rnic::Device& device) {
  const auto fresh = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  for (;;) {
    const uint64_t packets = device.QueryCounters()->at("sent_pkts");
    if (std::chrono::steady_clock::now() > fresh) return packets;
  }
}

TEST(VerbsTest, ChoosesADeviceByItself) {
  const auto device = Open();
  EXPECT_EQ(device->caps().provider, "verbs");
  EXPECT_FALSE(device->caps().cross_channel);
  EXPECT_TRUE(device->caps().completion_events);
  EXPECT_GE(device->caps().max_inline, 32u);
  // The RoCE v2 address that IPv4 has, not the link-local one in front of it.
  const rnic::Gid expected{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, 1}};
  EXPECT_EQ(device->gid(), expected);
  EXPECT_EQ(Open({.device = "rxe0"})->gid(), expected);
  EXPECT_EQ(Open({.device = "rxe0:1"})->gid(), expected);
  EXPECT_EQ(Open({.gid_index = 0})->gid().raw[0], 0xfe);
}

TEST(VerbsTest, RefusesWhatIsNotThere) {
  EXPECT_THAT(Refusal({.device = "mlx5_0"}).message(),
              AllOf(HasSubstr("mlx5_0"), HasSubstr("there are rxe0")));
  EXPECT_THAT(Refusal({.device = "mlx5_0"}), StatusIs(Code::kNotFound));
  EXPECT_THAT(Refusal({.device = "rxe0:2"}).message(), HasSubstr("no port 2; its ports: 1 to 1"));
  EXPECT_THAT(Refusal({.device = "rxe0:x"}).message(), HasSubstr("expected NAME or NAME:PORT"));
  EXPECT_THAT(Refusal({.gid_index = 9}).message(),
              AllOf(HasSubstr("no GID of index 9"), HasSubstr("ffff:0a09:0001")));
  EXPECT_THAT(Refusal({.gid_index = 256}), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Refusal({.mtu = 1500}).message(), HasSubstr("256, 512, 1024, 2048 or 4096"));
}

TEST(VerbsTest, RefusesWithoutPermission) {
  ASSERT_EQ(chmod("/dev/infiniband/uverbs0", 0600), 0);
  const std::string text = InChild([] {
    if (setuid(65534) != 0) return std::string("setuid");
    const Status status = Refusal({});
    return std::string(CodeName(status.code())) + ": " + status.message();
  });
  chmod("/dev/infiniband/uverbs0", 0666);
  EXPECT_THAT(text, AllOf(HasSubstr("permission"), HasSubstr("/dev/infiniband/uverbs0")));
}

TEST(VerbsTest, RefusesMoreThanMayBeLocked) {
  const std::string text = InChild([] {
    const rlimit limit{256 << 10, 256 << 10};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || setuid(65534) != 0) return std::string("limits");
    const auto device = Open();
    const auto pd = std::move(device->AllocatePd()).value();
    const auto buffer = std::move(device->AllocateBuffer(1 << 20)).value();
    return pd->Register(buffer->data(), buffer->size(), kAll, {}).status().message();
  });
  EXPECT_THAT(text, AllOf(HasSubstr("1048576 bytes"), HasSubstr("may lock 256 KiB"),
                          HasSubstr("ulimit -l unlimited")));
}

TEST(VerbsTest, RefusesFileMedia) {
  const auto device = Open();
  const auto pd = std::move(device->AllocatePd()).value();
  const auto buffer = std::move(device->AllocateBuffer(4096)).value();
  const auto refused = pd->Register(buffer->data(), 4096, kAll, {.media = rnic::Media::kFile});
  EXPECT_THAT(refused, StatusIs(Code::kNotSupported, HasSubstr("media=ram")));
  EXPECT_OK(pd->Register(buffer->data(), 4096, rnic::kRemoteRead, {.media = rnic::Media::kFile}));
}

TEST(VerbsTest, MemoryOfATmpfsFileIsReachable) {
  Loop loop({});
  const int fd = memfd_create("verbs-test", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, 8192), 0);
  void* map = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  auto mr = std::move(loop.pd->Register(map, 8192, kAll, {.fd = fd})).value();
  ASSERT_OK(loop.qp->Connect(loop.qp->address()));
  std::memset(loop.buffer->data(), 0x5a, 100);
  const rnic::Sge sge{loop.mr->addr(), 100, loop.mr->lkey()};
  const rnic::SendRequest request{.opcode = rnic::Opcode::kWrite,
                                  .sges = {&sge, 1},
                                  .remote_addr = mr->addr() + 4000,
                                  .rkey = mr->rkey()};
  ASSERT_OK(loop.qp->Post({&request, 1}));
  ASSERT_EQ(loop.Write(0, 4096, 8), rnic::WcStatus::kSuccess);  // behind the first
  char back[100];
  ASSERT_EQ(pread(fd, back, sizeof back, 4000), 100);
  EXPECT_EQ(std::memcmp(back, loop.buffer->data(), 100), 0);
  mr.reset();
  munmap(map, 8192);
  close(fd);
}

TEST(VerbsTest, MtuDecidesHowManyPackets) {
  constexpr uint32_t kBytes = 64 << 10;
  uint64_t packets[2];
  for (int i = 0; i < 2; ++i) {
    Loop loop({}, {.mtu = i == 0 ? 1024u : 4096u});
    ASSERT_OK(loop.qp->Connect(loop.qp->address()));
    const uint64_t before = PacketsSent(*loop.device);
    ASSERT_EQ(loop.Write(0, 512 << 10, kBytes), rnic::WcStatus::kSuccess);
    packets[i] = PacketsSent(*loop.device) - before;
  }
  EXPECT_GE(packets[0], kBytes / 1024);
  EXPECT_LT(packets[1], kBytes / 1024);
  EXPECT_GE(packets[1], kBytes / 4096);
  Loop by_device({.mtu = 1024});
  ASSERT_OK(by_device.qp->Connect(by_device.qp->address()));
  const uint64_t before = PacketsSent(*by_device.device);
  ASSERT_EQ(by_device.Write(0, 512 << 10, kBytes), rnic::WcStatus::kSuccess);
  EXPECT_GE(PacketsSent(*by_device.device) - before, kBytes / 1024);
}

TEST(VerbsTest, CountersCountPackets) {
  Loop loop({});
  ASSERT_OK(loop.qp->Connect(loop.qp->address()));
  const uint64_t before = PacketsSent(*loop.device);
  ASSERT_EQ(loop.Write(0, 4096, 8), rnic::WcStatus::kSuccess);
  EXPECT_GE(PacketsSent(*loop.device), before + 2) << "a request and its acknowledgement";
}

TEST(VerbsTest, HasNoCrossChannel) {
  Loop loop({});
  rnic::QpAttr attr{.send_cq = loop.cq.get(), .recv_cq = loop.cq.get()};
  attr.managed_send = true;
  EXPECT_THAT(loop.pd->CreateQueuePair(attr), StatusIs(Code::kNotSupported));
  EXPECT_THAT(loop.device->CreateCq({.ignore_overrun = true}), StatusIs(Code::kNotSupported));
  EXPECT_THAT(loop.qp->raw_queues(), StatusIs(Code::kNotSupported));
  EXPECT_THAT(loop.qp->RingDoorbell(1), StatusIs(Code::kNotSupported));
  ASSERT_OK(loop.qp->Connect(loop.qp->address()));
  const rnic::SendRequest wait{.opcode = rnic::Opcode::kWait};
  EXPECT_THAT(loop.qp->Post({&wait, 1}), StatusIs(Code::kNotSupported));
}

TEST(VerbsTest, AForkedChildCanDoNothing) {
  auto loop = std::make_unique<Loop>(verbs::DeviceOptions{});
  ASSERT_OK(loop->qp->Connect(loop->qp->address()));
  const std::string text = InChild([&] {
    const rnic::SendRequest nop{.opcode = rnic::Opcode::kNop};
    rnic::Completion out;
    std::string got;
    for (const Code code :
         {loop->qp->Post({&nop, 1}).code(), loop->cq->Poll({&out, 1}).status().code(),
          loop->qp->Reset().code(), loop->device->AllocatePd().status().code()}) {
      got += code == Code::kUnavailable ? "u" : "?";
    }
    got += loop->device->alive() ? "alive" : "";
    loop.reset();
    return got;
  });
  EXPECT_EQ(text, "uuuu");
  EXPECT_EQ(loop->Write(0, 4096, 8), rnic::WcStatus::kSuccess) << "the child's end changed nothing";
}

TEST(VerbsTest, AStoppedPublisherIsAnError) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    Loop loop({.service_port = 21000});
    const bool ok = loop.device->Publish("inspect", *loop.pd, {}).ok();
    if (write(ready[1], ok ? "y" : "n", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  const std::string host = std::string(kAddress) + ":21000";
  Loop reader({});
  EXPECT_OK(reader.device->ConnectService(host, "inspect", *reader.qp));
  kill(child, SIGSTOP);
  Loop second({});
  EXPECT_THAT(second.device->ConnectService(host, "inspect", *second.qp),
              StatusIs(Code::kUnavailable, HasSubstr("must run")));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  Loop third({});
  EXPECT_THAT(third.device->ConnectService(host, "inspect", *third.qp), StatusIs(Code::kNotFound));
}

// While it lives, the device refuses to move a queue pair to RTS.
class RefuseReadyToSend {
 public:
  explicit RefuseReadyToSend(uint32_t qpn) {
    qpn_ = qpn;
    real_ = Lib().ibv_modify_qp;
    Lib().ibv_modify_qp = [](ibv_qp* qp, ibv_qp_attr* attr, int mask) {
      const bool refuse = qp->qp_num == qpn_ && (mask & IBV_QP_STATE) != 0;
      return refuse && attr->qp_state == IBV_QPS_RTS ? EINVAL : real_(qp, attr, mask);
    };
  }
  ~RefuseReadyToSend() { Lib().ibv_modify_qp = real_; }

 private:
  static verbs::Library& Lib() {
    return const_cast<verbs::Library&>(*verbs::Library::Load().value());
  }
  static inline std::atomic<uint32_t> qpn_;
  static inline decltype(verbs::Library::ibv_modify_qp) real_;
};

TEST(VerbsTest, AConnectThatFailsHalfWayNeedsAReset) {
  Loop publisher({.service_port = 21002});
  ASSERT_OK(publisher.device->Publish("inspect", *publisher.pd, {}));
  const std::string host = std::string(kAddress) + ":21002";
  for (const bool by_service : {true, false}) {
    SCOPED_TRACE(by_service);
    Loop loop({});
    const auto connect = [&] {
      return by_service ? loop.device->ConnectService(host, "inspect", *loop.qp).status()
                        : loop.qp->Connect(loop.qp->address());
    };
    {
      const RefuseReadyToSend refusing(loop.qp->qpn());
      EXPECT_THAT(connect(),
                  StatusIs(Code::kInvalidArgument, testing::Not(HasSubstr("Reset it first"))));
    }
    EXPECT_EQ(loop.qp->state(), rnic::QpState::kReadyToReceive);
    EXPECT_THAT(connect(), StatusIs(Code::kInvalidArgument, HasSubstr("Reset it first")));
    ASSERT_OK(loop.qp->Reset());
    EXPECT_EQ(loop.qp->state(), rnic::QpState::kReset);
    EXPECT_OK(connect());
    EXPECT_EQ(loop.qp->state(), rnic::QpState::kReadyToSend);
  }
}

TEST(VerbsTest, ServicesNeedAPort) {
  Loop loop({});
  const Status refused = loop.device->Publish("inspect", *loop.pd, {});
  EXPECT_THAT(refused, StatusIs(Code::kInvalidArgument, HasSubstr("port")));
  Loop taken({.service_port = 21001});
  ASSERT_OK(taken.device->Publish("a", *taken.pd, {}));
  ASSERT_OK(taken.device->Publish("b", *taken.pd, {}));
  Loop late({.service_port = 21001});
  EXPECT_THAT(late.device->Publish("a", *late.pd, {}).message(), HasSubstr("service port 21001"));
  EXPECT_THAT(late.device->ConnectService("10.9.0.1", "a", *late.qp),
              StatusIs(Code::kInvalidArgument));
}

}  // namespace
}  // namespace hyperloop
