// Memory runs out in what a replica's threads do: a request, a piece of a file, a look at the RNIC
// daemon, a step of the scrub. What it promised is what is durable, and the next attempt succeeds.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "control/owner.h"
#include "files/bulk_service.h"
#include "inspect/service.h"
#include "integration/model_replica.h"
#include "log/log_lane.h"
#include "region/pool.h"
#include "replica/idle_scrub.h"
#include "replica/node.h"
#include "replica/rdma_service.h"
#include "softrnic/embedded/embedded.h"
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

using test::ForEachFailingAllocation;
using test::Shortage;

Uuid OwnerOfTheTest() {
  Uuid id;
  id.fill(0xa1);
  return id;
}
template <class Request>
Request OwnersRequest() {
  const Uuid owner = OwnerOfTheTest();
  Request request;
  request.epoch = 1;
  request.owner_id.assign(owner.begin(), owner.end());
  return request;
}
Status StatusOfAnswer(const control::BodyUnion& answer) {
  const auto* error = control::As<control::ErrorT>(answer);
  return error == nullptr ? Status() : control::ErrorStatus(*error);
}

// --- requests

// A fresh replica that has answered `requests`.
struct CrampedNode {
  explicit CrampedNode(const std::vector<control::BodyUnion>& requests) {
    const auto geometry = RegionGeometry::Compute(kRegion, 64 << 10, 64, 1 << 16);
    EXPECT_OK(FormatRegion(region, *ParseUuid(kGroup), RandomSecret(), *geometry));
    for (const control::BodyUnion& each : requests) EXPECT_OK(Ask(each));
  }
  Status Ask(const control::BodyUnion& request) { return StatusOfAnswer(node->Handle(request)); }
  void ExpectThatPromisesAreDurable() const {
    const NodeState durable = Must(store.Load()), &state = node->state();
    EXPECT_EQ(durable.sealed_epoch, state.sealed_epoch);
    EXPECT_EQ(durable.sealed_owner, state.sealed_owner);
    EXPECT_EQ(durable.group, state.group);
    EXPECT_EQ(durable.installed.epoch, state.installed.epoch);
    EXPECT_EQ(durable.installed.replicas.size(), state.installed.replicas.size());
    EXPECT_EQ(durable.released, state.released);
  }

  std::vector<std::byte> page = std::vector<std::byte>(kNodePageSize);
  std::vector<std::byte> region = std::vector<std::byte>(kRegion);
  NoMedia media;
  NoService service;
  NodePageStore store{page, media};
  std::unique_ptr<Node> node = Must(Node::Create({"r0", "ram"}, region, store, service, nullptr));
};

TEST(NodeMemoryExhaustion, WhatANodePromisedIsDurable) {
  auto seal = OwnersRequest<control::SealRequestT>();
  seal.owner_name = "a-primary-with-a-long-name";
  seal.group = kGroup;
  auto attach = OwnersRequest<control::AttachRequestT>();
  attach.gid.assign(16, 1);
  auto install = OwnersRequest<control::InstallRequestT>();
  install.nodes = {kGroup};
  install.replicas = {"a-replica-with-a-long-name:1"};
  auto prepare = OwnersRequest<control::PrepareMemberRequestT>();
  prepare.datapath = "offload";
  prepare.group_size = 3;
  std::vector<control::BodyUnion> answered;
  for (const control::BodyUnion& request :
       {control::MakeBody(seal), control::MakeBody(attach), control::MakeBody(install),
        control::MakeBody(prepare), control::MakeBody(OwnersRequest<control::ReleaseRequestT>()),
        control::MakeBody(OwnersRequest<control::ReconnectRequestT>())}) {
    SCOPED_TRACE(control::BodyName(request.type));
    ForEachFailingAllocation({}, [&](Shortage& shortage) {
      CrampedNode replica(answered);
      Status status;
      const bool ran_out = shortage.Here([&] { status = replica.Ask(request); });
      EXPECT_OK(status);
      replica.ExpectThatPromisesAreDurable();
      // It was carried out, or not at all.
      EXPECT_THAT(replica.Ask(request), testing::AnyOf(IsOk(), StatusIs(Code::kFenced)));
      return !ran_out;
    });
    if (testing::Test::HasFailure()) return;
    answered.push_back(request);
  }
}

// --- whole files

// A replica that has no file yet.
class CrampedFiles {
 public:
  static constexpr std::string_view kContent = "first second";

  CrampedFiles() {
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
    NodeState state;
    state.group.fill(1);
    state.sealed_owner = OwnerDigest(OwnerOfTheTest());
    state.sealed_epoch = state.installed.epoch = 1;
    service_ = std::make_unique<BulkService>(root_);
    service_->Publish(state);
  }
  ~CrampedFiles() { std::filesystem::remove_all(root_); }

  static control::BodyUnion Piece(uint64_t offset, std::string_view bytes) {
    auto request = OwnersRequest<control::PutFileRequestT>();
    request.file = File();
    request.offset = offset;
    request.bytes.assign(bytes.begin(), bytes.end());
    return control::MakeBody(std::move(request));
  }
  void Put(const control::BodyUnion& piece) { service_->Handle(piece); }
  // What a primary does on a new connection: it looks how much has arrived, and sends the rest.
  Status SendRest() {
    const auto listed = service_->Handle(control::MakeBody(control::ListFilesRequestT{}));
    uint64_t arrived = 0;
    for (const auto& each : control::As<control::ListFilesReplyT>(listed)->files) {
      if (each->finished) return {};
      arrived = each->received;
    }
    const auto answer = service_->Handle(Piece(arrived, kContent.substr(arrived)));
    const auto* reply = control::As<control::PutFileReplyT>(answer);
    EXPECT_TRUE(reply == nullptr || reply->received == kContent.size());
    return StatusOfAnswer(answer);
  }
  std::string Content() {
    control::GetFileRequestT request;
    request.file = File();
    request.length = 100;
    const auto answer = service_->Handle(control::MakeBody(std::move(request)));
    const auto* reply = control::As<control::GetFileReplyT>(answer);
    return reply == nullptr ? "none" : std::string(reply->bytes.begin(), reply->bytes.end());
  }

 private:
  static std::unique_ptr<control::StoredFileT> File() {
    FileChecksum checksum;
    checksum.Add(kContent);
    auto file = std::make_unique<control::StoredFileT>();
    file->name = "000007.sst";
    file->size = kContent.size();
    file->checksum = checksum.value();
    return file;
  }
  std::string root_ = "/dev/shm/hyperloop-bulk-XXXXXX";
  std::unique_ptr<BulkService> service_;
};

TEST(BulkMemoryExhaustion, WhatArrivedOfAFileIsGoneOnWith) {
  const auto first = CrampedFiles::Piece(0, "first "), second = CrampedFiles::Piece(6, "second");
  ForEachFailingAllocation({.harmed = 10}, [&](Shortage& shortage) {
    const size_t descriptors = test::OpenDescriptors();
    CrampedFiles replica;
    const bool ran_out = shortage.Here([&] {
      replica.Put(first);
      replica.Put(second);
    });
    EXPECT_OK(replica.SendRest());
    EXPECT_EQ(replica.Content(), CrampedFiles::kContent);
    EXPECT_EQ(test::OpenDescriptors(), descriptors + 1) << "the directory";
    return !ran_out;
  });
}

TEST(BulkMemoryExhaustion, OtherBytesThanTheChecksumSaysAreNeverAFile) {
  const auto wrong = CrampedFiles::Piece(0, "first sEcond");
  ForEachFailingAllocation({.harmed = 10}, [&](Shortage& shortage) {
    CrampedFiles replica;
    const bool ran_out = shortage.Here([&] { replica.Put(wrong); });
    EXPECT_EQ(replica.Content(), "none");
    Status sent = replica.SendRest();
    if (sent.code() == Code::kCorruption) sent = replica.SendRest();  // they are dropped now
    EXPECT_OK(sent);
    EXPECT_EQ(replica.Content(), CrampedFiles::kContent);
    return !ran_out;
  });
}

// --- the way to the RNIC daemon

// Whether what host r0 publishes about itself can be asked for.
Status AskForInspection(softrnic::EmbeddedRnic& rnic) {
  HL_ASSIGN_OR_RETURN(const auto tool, rnic.OpenDevice("tool"));
  HL_ASSIGN_OR_RETURN(const auto pd, tool->AllocatePd());
  HL_ASSIGN_OR_RETURN(const auto cq, tool->CreateCq({.depth = 16}));
  rnic::QpAttr attr;
  attr.send_cq = attr.recv_cq = cq.get();
  HL_ASSIGN_OR_RETURN(const auto qp, pd->CreateQueuePair(attr));
  return tool->ConnectService("r0", kInspectService, *qp).status();
}

TEST(RdmaServiceMemoryExhaustion, TheReplicaIsRegisteredAgainWithTheNextLook) {
  std::string folder = "/dev/shm/hyperloop-replica-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const auto pool = Must(Pool::Create(folder + "/pool", 16 << 20));
  ForEachFailingAllocation({.harmed = 11}, [&](Shortage& shortage) {
    softrnic::EmbeddedRnic rnic;
    LogLines log;
    RdmaService service([&rnic] { return rnic.OpenDevice("r0"); }, *pool, &log);
    EXPECT_OK(service.Start());
    rnic.CloseHost("r0");  // the daemon is gone
    const bool ran_out = shortage.Here([&] { service.Watch(); });
    const bool whole = !ran_out && service.state() == "ready";
    service.Watch();
    EXPECT_EQ(service.state(), "ready");
    EXPECT_OK(AskForInspection(rnic));
    return whole;
  });
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
  const auto lane = LogLane::Load(std::move(journal), region.bytes, region.info, {}).value();
  const FileId file = lane->Create("000004.log").value();
  for (int i = 0; i < 10; ++i) ASSERT_OK(AppendDurably(*lane, file, std::string(1000, 'a')));
  ASSERT_OK(lane->Checkpoint());
  group.image(0)[region.info.geometry.ExtentOffset(1) + 17] ^= std::byte{4};
  const auto scenario = [&](Shortage& shortage) {
    LogLines log;
    IdleScrub scrub(group.image(0), &log);
    const auto ticks = [&] {
      for (int i = 0; i < 3; ++i) scrub.Tick(1, false);
    };
    EXPECT_FALSE(shortage.Here(ticks)) << "the replica would have ended";
    for (int i = 0; i < 2 * IdleScrub::kRestTicks && !log.Has("000004.log"); ++i)
      scrub.Tick(1, false);
    EXPECT_TRUE(log.Has("000004.log"));
    return true;
  };
  EXPECT_GT(ForEachFailingAllocation({.harmed = 0}, scenario), 1u);
}

}  // namespace
}  // namespace hyperloop
