// Memory runs out at each allocation in turn of what a replica's threads do: a request, a piece of
// a file, a look at the RNIC daemon, a step of the scrub. What it promised is what is durable, and
// the next attempt succeeds.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "control/owner.h"
#include "files/file_lane.h"
#include "hyperloop/core/out_of_memory.h"
#include "pool/pool.h"
#include "replica/bulk_service.h"
#include "replica/idle_scrub.h"
#include "replica/node.h"
#include "replica/rdma_service.h"
#include "support/append_durably.h"
#include "support/failing_memory.h"
#include "support/log_lines.h"
#include "support/must.h"
#include "support/status_matchers.h"
#include "testing/lane_bench.h"
#include "testing/memory_group.h"
#include "testing/test_region.h"

namespace hyperloop {
namespace {

using test::FailingMemory;

// Calls `before`, `act` and `then`, with each allocation of `act` failing in turn, until none
// fails. Returns how often std::bad_alloc came out of `act`.
size_t FailEachAllocation(const std::function<void()>& before, const std::function<void()>& act,
                          const std::function<void()>& then) {
  size_t ran_out = 0;
  for (size_t number = 0;; ++number) {
    SCOPED_TRACE("allocation " + std::to_string(number));
    EXPECT_LT(number, 10'000u);
    before();
    {
      const FailingMemory failing(FailingMemory::Where::kHere, number, 1);
      ran_out += RanOutOfMemory(act) ? 1 : 0;
    }
    const bool failed = FailingMemory::failed() != 0;
    then();
    if (testing::Test::HasFailure() || !failed) return ran_out;
  }
}

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// --- requests

class NoService final : public NodeService {
 public:
  std::string state() const override { return "ready"; }
  void End() override {}
  Status PersistRegion() override { return {}; }
  Result<Access> Attach(const rnic::QpAddress&) override { return Access{}; }
  Result<MemberInfo> Prepare(const MemberOptions&) override { return MemberInfo{}; }
  Status Connect(const PrimaryInfo&, std::span<const MemberInfo>) override { return {}; }
};

class NodeMemoryExhaustion : public testing::Test {
 protected:
  static constexpr uint64_t kRegion = 16ull << 20;
  static constexpr char kGroup[] = "11111111-1111-4111-8111-111111111111";

  // A fresh replica that has answered `requests`.
  void Restart(const std::vector<control::BodyUnion>& requests) {
    page_.assign(kNodePageSize, std::byte{0});
    const auto geometry = RegionGeometry::Compute(kRegion, 1 << 20, 64, 1 << 16);
    region_.assign(kRegion, std::byte{0});
    node_ = Must(Node::Create({"r0", "ram"}, region_, store_, service_, nullptr));
    ASSERT_OK(FormatRegion(region_, *ParseUuid(kGroup), RandomSecret(), *geometry));
    for (const control::BodyUnion& each : requests) ASSERT_OK(Ask(each));
  }
  Status Ask(const control::BodyUnion& request) {
    const control::BodyUnion answer = node_->Handle(request);
    if (const auto* error = control::As<control::ErrorT>(answer))
      return control::ErrorStatus(*error);
    return {};
  }
  void ExpectThatPromisesAreDurable() const {
    const auto durable = store_.Load();
    ASSERT_OK(durable);
    const NodeState& state = node_->state();
    EXPECT_EQ(durable->sealed_epoch, state.sealed_epoch);
    EXPECT_EQ(durable->sealed_owner, state.sealed_owner);
    EXPECT_EQ(durable->group, state.group);
    EXPECT_EQ(durable->installed.epoch, state.installed.epoch);
    EXPECT_EQ(durable->installed.replicas.size(), state.installed.replicas.size());
    EXPECT_EQ(durable->released, state.released);
  }
  template <class Request>
  static Request Owners() {
    Request request;
    request.epoch = 1;
    request.owner_id.assign(16, 0xa1);
    return request;
  }

  std::vector<std::byte> page_ = std::vector<std::byte>(kNodePageSize), region_;
  RamMedia media_;
  NoService service_;
  NodePageStore store_{page_, media_};
  std::unique_ptr<Node> node_;
};

TEST_F(NodeMemoryExhaustion, WhatANodePromisedIsDurable) {
  auto seal = Owners<control::SealRequestT>();
  seal.owner_name = "a-primary-with-a-long-name";
  seal.group = kGroup;
  auto attach = Owners<control::AttachRequestT>();
  attach.gid.assign(16, 1);
  auto install = Owners<control::InstallRequestT>();
  install.nodes = {kGroup};
  install.replicas = {"a-replica-with-a-long-name:1"};
  auto prepare = Owners<control::PrepareMemberRequestT>();
  prepare.datapath = "offload";
  prepare.group_size = 3;
  std::vector<control::BodyUnion> requests;
  requests.push_back(control::MakeBody(seal));
  requests.push_back(control::MakeBody(attach));
  requests.push_back(control::MakeBody(install));
  requests.push_back(control::MakeBody(prepare));
  requests.push_back(control::MakeBody(Owners<control::ReleaseRequestT>()));
  requests.push_back(control::MakeBody(Owners<control::ReconnectRequestT>()));
  std::vector<control::BodyUnion> answered;
  for (const control::BodyUnion& request : requests) {
    SCOPED_TRACE(control::BodyName(request.type));
    Status status;
    const size_t ran_out = FailEachAllocation(
        [&] { Restart(answered); }, [&] { status = Ask(request); },
        [&] {
          EXPECT_OK(status);
          ExpectThatPromisesAreDurable();
          // It was carried out, or not at all.
          const Status again = Ask(request);
          EXPECT_TRUE(again.ok() || again.code() == Code::kFenced) << again.ToString();
        });
    EXPECT_GE(ran_out, 1u);
    if (HasFailure()) return;
    answered.push_back(request);
  }
}

// --- whole files

class BulkMemoryExhaustion : public testing::Test {
 protected:
  void SetUp() override {
    root_ = "/dev/shm/hyperloop-bulk-XXXXXX";
    ASSERT_NE(mkdtemp(root_.data()), nullptr);
    state_.group.fill(1);
    state_.sealed_owner = OwnerDigest(owner_);
    state_.sealed_epoch = state_.installed.epoch = 1;
    FileChecksum checksum;
    checksum.Add(kContent);
    file_ = {"000007.sst", kContent.size(), checksum.value()};
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  // A replica that has no file yet.
  void Restart() {
    service_.reset();
    std::filesystem::remove_all(GroupDirectory(root_, state_.group));
    service_ = std::make_unique<BulkService>(root_);
    service_->Publish(state_);
  }
  std::unique_ptr<control::StoredFileT> File() const {
    auto file = std::make_unique<control::StoredFileT>();
    file->name = file_.name;
    file->size = file_.size;
    file->checksum = file_.checksum;
    return file;
  }
  control::BodyUnion Put(uint64_t offset, std::string_view bytes) const {
    control::PutFileRequestT request;
    request.epoch = 1;
    request.owner_id.assign(owner_.begin(), owner_.end());
    request.file = File();
    request.offset = offset;
    request.bytes.assign(bytes.begin(), bytes.end());
    return control::MakeBody(std::move(request));
  }
  // What a primary does on a new connection: it looks how much has arrived, and sends the rest.
  Status SendRest() {
    const auto listed = service_->Handle(control::MakeBody(control::ListFilesRequestT{}));
    uint64_t arrived = 0;
    for (const auto& each : control::As<control::ListFilesReplyT>(listed)->files) {
      if (each->finished) return {};
      arrived = each->received;
    }
    const auto answer = service_->Handle(Put(arrived, kContent.substr(arrived)));
    if (const auto* error = control::As<control::ErrorT>(answer))
      return control::ErrorStatus(*error);
    EXPECT_EQ(control::As<control::PutFileReplyT>(answer)->received, file_.size);
    return {};
  }
  std::string Content() {
    control::GetFileRequestT request;
    request.file = File();
    request.length = 100;
    const auto answer = service_->Handle(control::MakeBody(std::move(request)));
    const auto* reply = control::As<control::GetFileReplyT>(answer);
    return reply == nullptr ? "none" : std::string(reply->bytes.begin(), reply->bytes.end());
  }

  static constexpr std::string_view kContent = "first second";
  std::string root_;
  const Uuid owner_ = [] {
    Uuid id;
    id.fill(0xa1);
    return id;
  }();
  NodeState state_;
  WholeFile file_;
  std::unique_ptr<BulkService> service_;
};

TEST_F(BulkMemoryExhaustion, WhatArrivedOfAFileIsGoneOnWith) {
  const control::BodyUnion first = Put(0, "first "), second = Put(6, "second");
  size_t descriptors = 0;
  const size_t ran_out = FailEachAllocation(
      [&] {
        Restart();
        descriptors = OpenDescriptors();
      },
      [&] {
        service_->Handle(first);
        service_->Handle(second);
      },
      [&] {
        EXPECT_OK(SendRest());
        EXPECT_EQ(Content(), kContent);
        EXPECT_EQ(OpenDescriptors(), descriptors + 1) << "the directory";
      });
  EXPECT_GE(ran_out, 10u);
}

TEST_F(BulkMemoryExhaustion, OtherBytesThanTheChecksumSaysAreNeverAFile) {
  const control::BodyUnion wrong = Put(0, "first sEcond");
  const size_t ran_out = FailEachAllocation([&] { Restart(); }, [&] { service_->Handle(wrong); },
                                            [&] {
                                              EXPECT_EQ(Content(), "none");
                                              Status sent = SendRest();
                                              if (sent.code() == Code::kCorruption)
                                                sent = SendRest();  // they are dropped now
                                              EXPECT_OK(sent);
                                              EXPECT_EQ(Content(), kContent);
                                            });
  EXPECT_GE(ran_out, 10u);
}

// --- the way to the RNIC daemon

class FakeRegion final : public rnic::MemoryRegion {
 public:
  uint64_t addr() const override { return 1; }
  uint64_t length() const override { return 1; }
  uint32_t lkey() const override { return 1; }
  uint32_t rkey() const override { return 1; }
};

class FakeDomain final : public rnic::ProtectionDomain {
 public:
  Result<std::unique_ptr<rnic::MemoryRegion>> Register(void*, size_t, uint32_t,
                                                       const Backing&) override {
    return std::unique_ptr<rnic::MemoryRegion>(std::make_unique<FakeRegion>());
  }
  Result<std::unique_ptr<rnic::QueuePair>> CreateQueuePair(const rnic::QpAttr&) override {
    return NotSupported("");
  }
};

struct FakeDaemon {
  bool alive = true;
  bool published = false;  // by the device that was opened last
};

class FakeDevice final : public rnic::Device {
 public:
  explicit FakeDevice(FakeDaemon& daemon) : daemon_(daemon) { daemon_ = {}; }
  const rnic::Caps& caps() const override { return caps_; }
  rnic::Gid gid() const override { return {}; }
  Result<std::unique_ptr<rnic::ProtectionDomain>> AllocatePd() override {
    return std::unique_ptr<rnic::ProtectionDomain>(std::make_unique<FakeDomain>());
  }
  Result<std::unique_ptr<rnic::CompletionQueue>> CreateCq(const rnic::CqAttr&) override {
    return NotSupported("");
  }
  Result<std::unique_ptr<rnic::Buffer>> AllocateBuffer(size_t) override { return NotSupported(""); }
  bool alive() const override { return daemon_.alive; }
  Result<rnic::Counters> QueryCounters() override { return NotSupported(""); }
  Status Publish(std::string_view, rnic::ProtectionDomain&, std::span<const std::byte>) override {
    const std::string takes_memory(100, 'x');
    daemon_.published = true;
    return {};
  }
  Result<std::vector<std::byte>> ConnectService(std::string_view, std::string_view,
                                                rnic::QueuePair&) override {
    return NotSupported("");
  }

 private:
  FakeDaemon& daemon_;
  const rnic::Caps caps_{};
};

TEST(RdmaServiceMemoryExhaustion, TheReplicaIsRegisteredAgainWithTheNextLook) {
  std::string folder = "/dev/shm/hyperloop-replica-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  {
    const auto pool = Pool::Create(folder + "/pool", 16 << 20);
    ASSERT_OK(pool);
    FakeDaemon daemon;
    LogLines log;
    RdmaService service(
        [&daemon]() -> Result<std::unique_ptr<rnic::Device>> {
          return std::unique_ptr<rnic::Device>(std::make_unique<FakeDevice>(daemon));
        },
        **pool, &log);
    ASSERT_OK(service.Start());
    const size_t ran_out =
        FailEachAllocation([&] { daemon.alive = false; }, [&] { service.Watch(); },
                           [&] {
                             service.Watch();
                             EXPECT_TRUE(daemon.published);
                             EXPECT_EQ(service.state(), "ready");
                             log.Clear();
                           });
    EXPECT_GE(ran_out, 3u);
  }
  std::filesystem::remove_all(folder);
}

// --- the scrub

TEST(IdleScrubMemoryExhaustion, APassBeginsAnewAndFindsTheDamage) {
  TestRegion region{64 << 10, 32};
  MemoryGroup group(region.bytes, 1, MemoryGroup::Mode::kImmediate);
  RamMedia media;
  const LogState log_state = ScanLog(region.bytes, region.info).value();
  auto journal =
      Journal::Create(&group, region.bytes, region.info, log_state, &media, JournalOptions())
          .value();
  ASSERT_OK(journal->AppendEpoch(1, TestConfiguration(1)));
  const auto lane = FileLane::Load(std::move(journal), region.bytes, region.info, {}).value();
  const FileId file = lane->Create("000004.log").value();
  for (int i = 0; i < 10; ++i) ASSERT_OK(AppendDurably(*lane, file, std::string(1000, 'a')));
  ASSERT_OK(lane->Checkpoint());
  group.image(0)[region.info.geometry.ExtentOffset(1) + 17] ^= std::byte{4};
  std::unique_ptr<IdleScrub> scrub;
  LogLines log;
  const size_t ran_out = FailEachAllocation(
      [&] {
        scrub = std::make_unique<IdleScrub>(group.image(0), &log);
        log.Clear();
      },
      [&] {
        for (int i = 0; i < 3; ++i) scrub->Tick();
      },
      [&] {
        for (int i = 0; i < 2 * IdleScrub::kRestTicks && !log.Has("000004.log"); ++i) scrub->Tick();
        EXPECT_TRUE(log.Has("000004.log"));
      });
  EXPECT_EQ(ran_out, 0u) << "the replica would have ended";
}

}  // namespace
}  // namespace hyperloop
