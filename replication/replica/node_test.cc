// Tests Node alone, with a real node page in memory and a service that only records its calls.
#include "replica/node.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <vector>

#include "common/random_uuid.h"
#include "control/directive.h"
#include "control/owner.h"
#include "log/redo.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using namespace control;  // NOLINT(google-build-using-namespace)

class RecordingService final : public NodeService {
 public:
  std::string state() const override { return "ready"; }
  void End() override {
    ++ends;
    attached = prepared = connected = false;
  }
  Result<Access> Attach(const rnic::QpAddress& peer) override {
    attached = true;
    last_peer = peer.qpn;
    return Access{{{}, 77}, 0x1000, 11, 0x2000, 12};
  }
  Result<MemberInfo> Prepare(const MemberOptions&) override {
    prepared = true;
    return MemberInfo{};
  }
  Status Connect(const PrimaryInfo&, std::span<const MemberInfo> chain) override {
    if (!prepared) return InvalidArgument("not prepared");
    connected = chain.size() == 3;
    return {};
  }
  Status TryWay(const std::string& host, const std::string& service) override {
    tried = host + "/" + service;
    return way;
  }
  Status PersistRegion() override {
    EXPECT_FALSE(attached || prepared || connected) << "bytes may still arrive";
    ++persists;
    return persist;
  }
  int ends = 0, persists = 0;
  Status persist;
  bool attached = false, prepared = false, connected = false;
  uint32_t last_peer = 0;
  std::string tried;
  Status way;
};

// A medium that can fail.
class FakeMedia final : public MediaWriter {
 public:
  rnic::Media level() const override { return rnic::Media::kRam; }
  Status Persist(const void*, size_t) override {
    ++persists;
    return fail ? Unavailable("disk on fire") : Status();
  }
  bool fail = false;
  int persists = 0;
};

constexpr uint64_t kRegion = 16ull << 20;
const char kGroup[] = "11111111-1111-4111-8111-111111111111";
const char kOtherGroup[] = "22222222-2222-4222-8222-222222222222";
const std::vector<uint8_t> kAnn(16, 0xa1), kBob(16, 0xb2);

std::vector<uint8_t> Digest(const std::vector<uint8_t>& id) {
  Uuid uuid;
  std::copy(id.begin(), id.end(), uuid.begin());
  const Uuid digest = OwnerDigest(uuid);
  return {digest.begin(), digest.end()};
}

class NodeTest : public testing::Test {
 protected:
  NodeTest() : page_(kNodePageSize), region_(kRegion) { Restart(); }
  void Restart() {
    store_ = std::make_unique<NodePageStore>(page_, media_);
    auto node = Node::Create({"r0", "ram"}, region_, *store_, service_, nullptr);
    ASSERT_OK(node);
    node_ = std::move(node).value();
  }
  template <class Request>
  Status Ask(Request request) {
    const BodyUnion answer = node_->Handle(MakeBody(std::move(request)));
    if (const auto* error = As<ErrorT>(answer)) return ErrorStatus(*error);
    return {};
  }
  HelloReplyT Hello() {
    const BodyUnion answer = node_->Handle(MakeBody(HelloRequestT{}));
    return *As<HelloReplyT>(answer);
  }
  // A Seal of a sender that has just seen the node.
  SealRequestT Seal(uint64_t epoch, const std::vector<uint8_t>& owner, const char* group = kGroup) {
    SealRequestT request;
    request.seen_sealed_epoch = Hello().sealed_epoch;
    request.seen_installed_epoch = Hello().installed_epoch;
    request.seen_served_epoch = Hello().served_epoch;
    request.epoch = epoch;
    request.owner_id = owner;
    request.owner_name = owner == kAnn ? "ann" : "bob";
    request.group = group;
    return request;
  }
  template <class Request>
  static Request From(uint64_t epoch, const std::vector<uint8_t>& owner) {
    Request request;
    request.epoch = epoch;
    request.owner_id = owner;
    return request;
  }
  static InstallRequestT Install(uint64_t epoch, const std::vector<uint8_t>& owner) {
    auto request = From<InstallRequestT>(epoch, owner);
    request.nodes = {kOtherGroup};
    request.replicas = {"127.0.0.1:1"};
    return request;
  }
  static ConnectMemberRequestT Connect(uint64_t epoch, const std::vector<uint8_t>& owner) {
    auto request = From<ConnectMemberRequestT>(epoch, owner);
    request.primary.resize(sizeof(PrimaryInfo));
    request.chain.resize(3 * sizeof(MemberInfo));
    return request;
  }
  static AttachRequestT Attach(uint64_t epoch, const std::vector<uint8_t>& owner) {
    auto request = From<AttachRequestT>(epoch, owner);
    request.gid.assign(16, 1);
    request.qpn = 5;
    return request;
  }
  static PrepareMemberRequestT Prepare(uint64_t epoch, const std::vector<uint8_t>& owner) {
    auto request = From<PrepareMemberRequestT>(epoch, owner);
    request.datapath = "offload";
    request.group_size = 3;
    return request;
  }
  static ChecksumsRequestT Checksums(uint64_t offset, uint64_t length, uint32_t block) {
    auto request = From<ChecksumsRequestT>(1, kAnn);
    request.offset = offset;
    request.length = length;
    request.block_size = block;
    return request;
  }
  void FormatAs(const char* group) {
    const auto geometry = RegionGeometry::Compute(kRegion, 1 << 20, 64, 1 << 16);
    ASSERT_OK(geometry);
    ASSERT_OK(FormatRegion(region_, *ParseUuid(group), RandomSecret(), *geometry));
  }

  std::vector<std::byte> page_, region_;
  FakeMedia media_;
  RecordingService service_;
  std::unique_ptr<NodePageStore> store_;
  std::unique_ptr<Node> node_;
};

TEST_F(NodeTest, LookingChangesNothing) {
  const std::vector<std::byte> before = page_;
  const auto hello = Hello();
  EXPECT_EQ(hello.sealed_epoch, 0u);
  EXPECT_EQ(hello.installed_epoch, 0u);
  EXPECT_EQ(hello.group, "");
  EXPECT_EQ(hello.region_size, kRegion);
  EXPECT_EQ(page_, before);
  EXPECT_EQ(service_.ends, 0);
}

TEST_F(NodeTest, EpochsGrowStrictlyAndSurviveRestart) {
  EXPECT_OK(Ask(Seal(3, kAnn)));
  EXPECT_THAT(Ask(Seal(3, kBob)),
              StatusIs(Code::kFenced));  // the second candidate of an epoch loses
  EXPECT_THAT(Ask(Seal(3, kAnn)), StatusIs(Code::kFenced));
  EXPECT_THAT(Ask(Seal(2, kBob)), StatusIs(Code::kFenced));
  Restart();
  EXPECT_THAT(Ask(Seal(3, kBob)), StatusIs(Code::kFenced));
  EXPECT_EQ(Hello().sealed_owner_name, "ann");
  EXPECT_OK(Ask(Seal(4, kBob)));
  EXPECT_EQ(Hello().sealed_owner_name, "bob");
  EXPECT_EQ(Hello().sealed_epoch, 4u);
}

// In an earlier version two requests with epochs of 2^32 and more left the group no epoch that its
// next primary could seal.
TEST_F(NodeTest, EpochFarAheadIsRefused) {
  EXPECT_THAT(Ask(Seal(~uint64_t{0}, kAnn)), StatusIs(Code::kInvalidArgument));
  ASSERT_OK(Ask(Seal(3, kAnn)));
  for (const uint64_t step : {uint64_t{1} << 32, uint64_t{1} << 32, kMaxEpochStep + 1}) {
    EXPECT_THAT(Ask(Seal(Hello().sealed_epoch + step, kBob)),
                StatusIs(Code::kInvalidArgument, testing::HasSubstr("epoch 3")));
    EXPECT_EQ(Hello().sealed_epoch, 3u);
  }
  EXPECT_OK(Ask(Seal(3 + kMaxEpochStep, kBob)));
}

// An asker that goes on would have the whole region read for nothing, at each step.
TEST_F(NodeTest, ASealOnTheWayToAGreaterEpochTellsNoContent) {
  ASSERT_OK(Ask(Seal(3, kAnn)));
  SealRequestT seal = Seal(4, kAnn);
  seal.goes_on = true;
  const BodyUnion on_the_way = node_->Handle(MakeBody(SealRequestT(seal)));
  ASSERT_NE(As<SealReplyT>(on_the_way), nullptr);
  EXPECT_EQ(As<SealReplyT>(on_the_way)->content, nullptr);
  EXPECT_EQ(Hello().sealed_epoch, 4u);
  const BodyUnion last = node_->Handle(MakeBody(Seal(5, kAnn)));
  ASSERT_NE(As<SealReplyT>(last), nullptr);
  EXPECT_NE(As<SealReplyT>(last)->content, nullptr);
}

// Neither a node's answers nor the bytes of its pool let anybody act as the owner.
TEST_F(NodeTest, TheOwnersIdIsNeitherToldNorKept) {
  FormatAs(kGroup);
  ASSERT_OK(Ask(Seal(1, kAnn)));
  ASSERT_OK(Ask(Install(1, kAnn)));
  ASSERT_OK(Ask(Attach(1, kAnn)));
  const std::vector<uint8_t> answer = EncodeFrame(node_->Handle(MakeBody(HelloRequestT{})));
  const auto holds_id = [](auto&& bytes) {
    return std::search(bytes.begin(), bytes.end(), kAnn.begin(), kAnn.end(), [](auto a, uint8_t b) {
             return static_cast<uint8_t>(a) == b;
           }) != bytes.end();
  };
  EXPECT_FALSE(holds_id(answer));
  EXPECT_FALSE(holds_id(page_));
  EXPECT_FALSE(holds_id(region_));
  // The digest in its answers is not accepted as the id.
  EXPECT_THAT(Ask(From<ReleaseRequestT>(1, Hello().sealed_owner)), StatusIs(Code::kFenced));
  EXPECT_FALSE(Hello().released);
}

TEST_F(NodeTest, RefusedSealDisturbsNobody) {
  ASSERT_OK(Ask(Seal(3, kAnn)));
  ASSERT_OK(Ask(Attach(3, kAnn)));
  const std::vector<std::byte> before = page_;
  const int ends = service_.ends;
  EXPECT_THAT(Ask(Seal(3, kBob)), StatusIs(Code::kFenced));
  EXPECT_THAT(Ask(Seal(9, std::vector<uint8_t>(15, 1))), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Ask(Seal(9, std::vector<uint8_t>(16, 0))), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Ask(Seal(9, kBob, "not a uuid")), StatusIs(Code::kInvalidArgument));
  EXPECT_EQ(page_, before);
  EXPECT_EQ(service_.ends, ends);
  EXPECT_TRUE(service_.attached);
}

TEST_F(NodeTest, SealEndsTheFormerOwnersServiceBeforeItAnswers) {
  ASSERT_OK(Ask(Seal(1, kAnn)));
  ASSERT_OK(Ask(Attach(1, kAnn)));
  ASSERT_OK(Ask(Seal(2, kBob)));
  EXPECT_FALSE(service_.attached);
  EXPECT_THAT(Ask(Attach(1, kAnn)), StatusIs(Code::kFenced));
  EXPECT_THAT(Ask(Attach(2, kAnn)), StatusIs(Code::kFenced));  // right epoch, wrong owner
  EXPECT_FALSE(service_.attached);
}

TEST_F(NodeTest, PromiseThatCannotBeKeptIsNotGiven) {
  media_.fail = true;
  EXPECT_THAT(Ask(Seal(5, kAnn)), StatusIs(Code::kUnavailable));
  EXPECT_EQ(Hello().sealed_epoch, 0u);
  EXPECT_THAT(Ask(Attach(5, kAnn)), StatusIs(Code::kFenced));
  media_.fail = false;
  EXPECT_OK(Ask(Seal(6, kBob)));
}

TEST_F(NodeTest, TornPageFallsBackToTheOtherCopy) {
  ASSERT_OK(Ask(Seal(1, kAnn)));
  ASSERT_OK(Ask(Seal(2, kBob)));
  const std::vector<std::byte> good = page_;
  int lost = 0;
  for (const uint64_t copy : kNodeCopyOffsets) {
    page_ = good;
    for (int i = 0; i < 64; ++i) page_[copy + 64 + i] ^= std::byte{0x5a};
    Restart();
    const uint64_t epoch = Hello().sealed_epoch;
    EXPECT_TRUE(epoch == 1 || epoch == 2);
    lost += epoch == 1 ? 1 : 0;
  }
  EXPECT_EQ(lost, 1);  // only the newer copy's loss goes back
  page_ = good;
  for (const uint64_t copy : kNodeCopyOffsets) page_[copy + 70] ^= std::byte{1};
  EXPECT_THAT(Node::Create({"r0", "ram"}, region_, *store_, service_, nullptr),
              StatusIs(Code::kCorruption));
}

TEST_F(NodeTest, InstallNeedsTheGroupsRegion) {
  ASSERT_OK(Ask(Seal(1, kAnn)));
  EXPECT_THAT(Ask(Install(1, kAnn)), StatusIs(Code::kCorruption));  // never formatted
  FormatAs(kOtherGroup);
  EXPECT_THAT(Ask(Install(1, kAnn)), StatusIs(Code::kCorruption));
  FormatAs(kGroup);
  EXPECT_THAT(Ask(Install(1, kBob)), StatusIs(Code::kFenced));
  EXPECT_OK(Ask(Install(1, kAnn)));
  EXPECT_EQ(Hello().installed_epoch, 1u);
  Restart();
  EXPECT_EQ(Hello().installed_epoch, 1u);
  EXPECT_EQ(Hello().installed_replicas, std::vector<std::string>{"127.0.0.1:1"});
}

TEST_F(NodeTest, MemberIsPreparedOnlyWhenInstalled) {
  FormatAs(kGroup);
  ASSERT_OK(Ask(Seal(1, kAnn)));
  EXPECT_THAT(Ask(Prepare(1, kAnn)), StatusIs(Code::kInvalidArgument));
  ASSERT_OK(Ask(Install(1, kAnn)));
  EXPECT_OK(Ask(Prepare(1, kAnn)));
  auto connect = Connect(1, kAnn);
  EXPECT_OK(Ask(connect));
  EXPECT_TRUE(service_.connected);
  connect.chain.resize(3 * sizeof(MemberInfo) - 1);
  EXPECT_THAT(Ask(connect), StatusIs(Code::kInvalidArgument));
  connect.chain.resize(9 * sizeof(MemberInfo));
  EXPECT_THAT(Ask(connect), StatusIs(Code::kInvalidArgument));
  // Sealed for another owner that is not installed yet: nobody may be served.
  ASSERT_OK(Ask(Seal(2, kBob)));
  EXPECT_THAT(Ask(Prepare(2, kBob)), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Ask(Prepare(1, kAnn)), StatusIs(Code::kFenced));
}

TEST_F(NodeTest, ReconnectIsForTheInstalledOwnerAlone) {
  FormatAs(kGroup);
  ASSERT_OK(Ask(Seal(1, kAnn)));
  EXPECT_THAT(Ask(From<ReconnectRequestT>(1, kAnn)), StatusIs(Code::kInvalidArgument));
  ASSERT_OK(Ask(Install(1, kAnn)));
  EXPECT_OK(Ask(From<ReconnectRequestT>(1, kAnn)));
  EXPECT_THAT(Ask(From<ReconnectRequestT>(1, kBob)), StatusIs(Code::kFenced));
  ASSERT_OK(Ask(Seal(2, kBob)));
  EXPECT_THAT(Ask(From<ReconnectRequestT>(1, kAnn)), StatusIs(Code::kFenced));
  EXPECT_EQ(Hello().sealed_epoch, 2u);  // asking never raises anything
}

// No READ flushes the bytes that a former owner's queues brought.
TEST_F(NodeTest, WhatFormerOwnersLeftIsDurableBeforeTheAnswer) {
  ASSERT_OK(Ask(Seal(1, kAnn)));
  EXPECT_EQ(service_.persists, 1);
  service_.persist = Unavailable("disk on fire");
  EXPECT_THAT(Ask(Seal(2, kBob)), StatusIs(Code::kUnavailable));
  EXPECT_EQ(Hello().sealed_epoch, 1u) << "nothing was promised";
  service_.persist = {};
  ASSERT_OK(Ask(Seal(2, kBob)));
  EXPECT_EQ(service_.persists, 3);
}

// A request that was delayed, because this replica was stopped or the network slow, names an older
// state.
TEST_F(NodeTest, SealIsGrantedOnlyInTheStateThatItsAskerSaw) {
  FormatAs(kGroup);
  ASSERT_OK(Ask(Seal(1, kAnn)));
  const SealRequestT before_install = Seal(5, kBob);
  ASSERT_OK(Ask(Install(1, kAnn)));
  EXPECT_THAT(Ask(before_install), StatusIs(Code::kFenced));
  const SealRequestT stale = Seal(5, kBob);
  ASSERT_OK(Ask(Seal(3, kAnn)));
  EXPECT_THAT(Ask(stale), StatusIs(Code::kFenced));
  EXPECT_EQ(Hello().sealed_epoch, 3u);
  EXPECT_EQ(Hello().sealed_owner, Digest(kAnn));
}

TEST_F(NodeTest, OwnersRequestsShowItsLife) {
  FormatAs(kGroup);
  ASSERT_OK(Ask(Seal(1, kAnn)));
  ASSERT_OK(Ask(Install(1, kAnn)));
  const uint64_t before = Hello().heartbeat;
  EXPECT_THAT(Ask(From<ReconnectRequestT>(1, kBob)), StatusIs(Code::kFenced));
  EXPECT_EQ(Hello().heartbeat, before);
  EXPECT_OK(Ask(From<ReconnectRequestT>(1, kAnn)));
  EXPECT_NE(Hello().heartbeat, before);
}

// As long as it waits for a member, it can do nothing else.
TEST_F(NodeTest, AHelloOfTheOwnerShowsItsLife) {
  FormatAs(kGroup);
  ASSERT_OK(Ask(Seal(1, kAnn)));
  const uint64_t before = Hello().heartbeat;
  HelloRequestT hello;
  hello.owner_id = kBob;
  EXPECT_OK(Ask(hello));
  EXPECT_EQ(Hello().heartbeat, before);
  hello.owner_id = kAnn;
  EXPECT_OK(Ask(hello));
  EXPECT_NE(Hello().heartbeat, before);
}

TEST_F(NodeTest, ExaminingPromisesNothing) {
  FormatAs(kGroup);
  ASSERT_OK(Ask(Seal(1, kAnn)));
  ASSERT_OK(Ask(Install(1, kAnn)));
  const BodyUnion answer = node_->Handle(MakeBody(ExamineRequestT{}));
  const auto* reply = As<ExamineReplyT>(answer);
  ASSERT_NE(reply, nullptr);
  EXPECT_TRUE(reply->settled);
  EXPECT_EQ(reply->content->installed_epoch, 1u);
  EXPECT_EQ(reply->content->log_error, "");
  EXPECT_EQ(Hello().sealed_epoch, 1u);
}

// What a joining that was cut short left in the region may be of another branch of the history, or
// of another group, and proves nothing to the one that the node joins next.
TEST_F(NodeTest, WhereNothingIsInstalledNothingIsToldOfTheRegion) {
  constexpr uint64_t kAcked = 29;
  FormatAs(kGroup);
  WriteHead(region_, *ParseSuperblock(region_, kRegion), {.seq = kAcked, .epoch = 1});
  const auto told = [](const ContentT& content) {
    return std::tuple(content.last_seq, content.acked_seq, content.executed_seq);
  };
  const BodyUnion sealed = node_->Handle(MakeBody(Seal(1, kAnn)));
  ASSERT_NE(As<SealReplyT>(sealed), nullptr);
  EXPECT_EQ(told(*As<SealReplyT>(sealed)->content), std::tuple(0, 0, 0));
  const BodyUnion before = node_->Handle(MakeBody(ExamineRequestT{}));
  ASSERT_NE(As<ExamineReplyT>(before), nullptr);
  EXPECT_EQ(told(*As<ExamineReplyT>(before)->content), std::tuple(0, 0, 0));
  ASSERT_OK(Ask(Install(1, kAnn)));
  const BodyUnion after = node_->Handle(MakeBody(ExamineRequestT{}));
  ASSERT_NE(As<ExamineReplyT>(after), nullptr);
  EXPECT_EQ(told(*As<ExamineReplyT>(after)->content), std::tuple(kAcked, kAcked, kAcked));
}

TEST_F(NodeTest, ReleaseIsRememberedUntilTheNextSeal) {
  ASSERT_OK(Ask(Seal(1, kAnn)));
  EXPECT_THAT(Ask(From<ReleaseRequestT>(1, kBob)), StatusIs(Code::kFenced));
  EXPECT_FALSE(Hello().released);
  EXPECT_OK(Ask(From<ReleaseRequestT>(1, kAnn)));
  Restart();
  EXPECT_TRUE(Hello().released);
  ASSERT_OK(Ask(Seal(2, kBob)));
  EXPECT_FALSE(Hello().released);
}

TEST_F(NodeTest, ARegionIsBeingFilledFromTheAccessToItUntilItIsInstalled) {
  FormatAs(kGroup);
  EXPECT_FALSE(node_->filling()) << "nobody wants it";
  ASSERT_OK(Ask(Seal(1, kAnn)));
  Restart();
  EXPECT_TRUE(node_->filling()) << "it was never whole";
  ASSERT_OK(Ask(Attach(1, kAnn)));
  ASSERT_OK(Ask(Install(1, kAnn)));
  EXPECT_FALSE(node_->filling());
  ASSERT_OK(Ask(Attach(1, kAnn)));
  EXPECT_FALSE(node_->filling()) << "a member serves";
  ASSERT_OK(Ask(Seal(2, kBob)));
  EXPECT_FALSE(node_->filling()) << "nobody can write it";
  ASSERT_OK(Ask(Attach(2, kBob)));
  EXPECT_TRUE(node_->filling());
  ASSERT_OK(Ask(Seal(3, kAnn)));
  EXPECT_TRUE(node_->filling()) << "who filled it was fenced";
  ASSERT_OK(Ask(From<ReleaseRequestT>(3, kAnn)));
  EXPECT_FALSE(node_->filling());
}

TEST_F(NodeTest, ThatADatabaseAwaitsItsOpeningIsRememberedUntilTheNextSeal) {
  ASSERT_OK(Ask(Seal(1, kAnn)));
  EXPECT_FALSE(node_->state().awaits_opening);
  auto release = From<ReleaseRequestT>(1, kAnn);
  release.awaits_opening = true;
  ASSERT_OK(Ask(release));
  Restart();
  EXPECT_TRUE(node_->state().awaits_opening);
  ASSERT_OK(Ask(Seal(2, kBob)));
  EXPECT_FALSE(node_->state().awaits_opening);
  ASSERT_OK(Ask(From<ReleaseRequestT>(2, kBob)));
  EXPECT_FALSE(node_->state().awaits_opening);
}

// Only the owner that replaced a configuration can bring it back, and only by its own word.
TEST_F(NodeTest, OwnerThatNeverServedLeavesWhatWasInstalled) {
  FormatAs(kGroup);
  ASSERT_OK(Ask(Seal(1, kAnn)));
  ASSERT_OK(Ask(Install(1, kAnn)));
  ASSERT_OK(Ask(Prepare(1, kAnn)));
  ASSERT_OK(Ask(Connect(1, kAnn)));
  const auto release = [](uint64_t epoch, const std::vector<uint8_t>& owner) {
    auto request = From<ReleaseRequestT>(epoch, owner);
    request.never_served = true;
    return request;
  };
  ASSERT_OK(Ask(Seal(2, kBob)));
  EXPECT_THAT(Ask(release(1, kAnn)), StatusIs(Code::kFenced));
  ASSERT_OK(Ask(Install(2, kBob)));
  ASSERT_OK(Ask(Install(2, kBob)));  // a repeated request
  ASSERT_OK(Ask(release(2, kBob)));
  Restart();
  EXPECT_TRUE(Hello().released);
  EXPECT_EQ(Hello().sealed_epoch, 2u);
  EXPECT_EQ(Hello().installed_epoch, 1u);
  EXPECT_EQ(Hello().served_owner, Digest(kAnn));
  EXPECT_THAT(Ask(Install(2, kBob)), StatusIs(Code::kFenced)) << "a request that was delayed";
  ASSERT_OK(Ask(Seal(3, kBob)));
  ASSERT_OK(Ask(Install(3, kBob)));
  ASSERT_OK(Ask(Prepare(3, kBob)));
  ASSERT_OK(Ask(Connect(3, kBob)));
  ASSERT_OK(Ask(From<ReleaseRequestT>(3, kBob)));
  EXPECT_EQ(Hello().installed_epoch, 3u) << "an owner that served stays installed";
  ASSERT_OK(Ask(Seal(4, kAnn)));
  ASSERT_OK(Ask(release(4, kAnn)));
  EXPECT_EQ(Hello().installed_epoch, 3u) << "what an earlier owner replaced came back";
  // An owner that has connected this node, and failed at the next one, has not served either.
  ASSERT_OK(Ask(Seal(5, kAnn)));
  ASSERT_OK(Ask(Install(5, kAnn)));
  ASSERT_OK(Ask(Prepare(5, kAnn)));
  ASSERT_OK(Ask(Connect(5, kAnn)));
  ASSERT_OK(Ask(release(5, kAnn)));
  EXPECT_EQ(Hello().installed_epoch, 3u);
  EXPECT_EQ(Hello().served_owner, Digest(kBob));
}

// What is installed before the group's replicas change is a promise that others count on. It stays,
// whoever gives up afterwards, and it fences nobody.
TEST_F(NodeTest, ABranchIsPartOfWhatIsInstalled) {
  FormatAs(kGroup);
  ASSERT_OK(Ask(Seal(1, kAnn)));
  ASSERT_OK(Ask(Install(1, kAnn)));
  ASSERT_OK(Ask(Prepare(1, kAnn)));
  ASSERT_OK(Ask(Connect(1, kAnn)));
  ASSERT_OK(Ask(Seal(2, kBob)));
  auto branch = Install(2, kBob);
  branch.branch_epoch = 2;
  branch.branch_owner = {1, 2, 3};
  EXPECT_THAT(Ask(branch), StatusIs(Code::kInvalidArgument)) << "no digest";
  EXPECT_EQ(Hello().installed_epoch, 1u);
  branch.branch_owner = Digest(kBob);
  ASSERT_OK(Ask(branch));
  EXPECT_EQ(Hello().branch_epoch, 2u);
  EXPECT_EQ(Hello().branch_owner, Digest(kBob));
  auto release = From<ReleaseRequestT>(2, kBob);
  release.never_served = true;
  ASSERT_OK(Ask(release));
  EXPECT_EQ(Hello().installed_epoch, 1u);
  EXPECT_EQ(Hello().branch_epoch, 0u) << "nobody has served it";
}

TEST_F(NodeTest, ALastingConfigurationStaysThoughItsOwnerNeverServed) {
  FormatAs(kGroup);
  ASSERT_OK(Ask(Seal(1, kAnn)));
  ASSERT_OK(Ask(Install(1, kAnn)));
  ASSERT_OK(Ask(Prepare(1, kAnn)));
  ASSERT_OK(Ask(Connect(1, kAnn)));
  const auto release = [](uint64_t epoch) {
    auto request = From<ReleaseRequestT>(epoch, kBob);
    request.never_served = true;
    return request;
  };
  ASSERT_OK(Ask(Seal(2, kBob)));
  auto lasting = Install(2, kBob);
  lasting.lasting = true;
  ASSERT_OK(Ask(lasting));
  ASSERT_OK(Ask(Seal(3, kBob)));
  ASSERT_OK(Ask(Install(3, kBob)));
  ASSERT_OK(Ask(release(3)));
  EXPECT_EQ(Hello().installed_epoch, 2u);
  EXPECT_EQ(Hello().served_epoch, 1u);
  EXPECT_EQ(Hello().served_owner, Digest(kAnn));
  // The next owner that never serves does not take it back either.
  ASSERT_OK(Ask(Seal(4, kBob)));
  ASSERT_OK(Ask(Install(4, kBob)));
  EXPECT_EQ(Hello().served_epoch, 1u);
  ASSERT_OK(Ask(release(4)));
  EXPECT_EQ(Hello().installed_epoch, 2u);
  EXPECT_EQ(Hello().served_epoch, 1u);
  // Once somebody has served, nothing older comes back.
  ASSERT_OK(Ask(Seal(5, kBob)));
  ASSERT_OK(Ask(Install(5, kBob)));
  ASSERT_OK(Ask(Prepare(5, kBob)));
  ASSERT_OK(Ask(Connect(5, kBob)));
  ASSERT_OK(Ask(Seal(6, kAnn)));
  ASSERT_OK(Ask(Install(6, kAnn)));
  auto given_back = From<ReleaseRequestT>(6, kAnn);
  given_back.never_served = true;
  ASSERT_OK(Ask(given_back));
  EXPECT_EQ(Hello().installed_epoch, 5u);
}

// Who has seen that nobody was served may overtake the owner, but only as long as that is so.
TEST_F(NodeTest, InstalledIsUnservedUntilItsOwnerConnects) {
  FormatAs(kGroup);
  ASSERT_OK(Ask(Seal(1, kAnn)));
  ASSERT_OK(Ask(Install(1, kAnn)));
  EXPECT_EQ(Hello().served_epoch, 0u);
  EXPECT_THAT(Ask(Connect(1, kAnn)), StatusIs(Code::kInvalidArgument));
  EXPECT_EQ(Hello().served_epoch, 0u) << "a Connect that failed";
  ASSERT_OK(Ask(Prepare(1, kAnn)));
  ASSERT_OK(Ask(Connect(1, kAnn)));
  EXPECT_EQ(Hello().served_epoch, 1u);
  ASSERT_OK(Ask(Seal(2, kBob)));
  ASSERT_OK(Ask(Install(2, kBob)));
  EXPECT_EQ(Hello().served_epoch, 1u);
  EXPECT_EQ(Hello().served_owner, Digest(kAnn));
  const SealRequestT late = Seal(3, kAnn);
  ASSERT_OK(Ask(Prepare(2, kBob)));
  ASSERT_OK(Ask(Connect(2, kBob)));
  EXPECT_EQ(Hello().served_epoch, 2u);
  EXPECT_THAT(Ask(late), StatusIs(Code::kFenced));
  ASSERT_OK(Ask(Seal(3, kAnn)));
  ASSERT_OK(Ask(Install(3, kAnn)));
  ASSERT_OK(Ask(Seal(4, kBob)));
  EXPECT_EQ(Hello().served_epoch, 2u) << "epoch 3 can serve no more";
  ASSERT_OK(Ask(Install(4, kBob)));
  EXPECT_EQ(Hello().served_epoch, 2u);
  Restart();
  EXPECT_EQ(Hello().served_epoch, 4u) << "whether it was is forgotten";
}

TEST_F(NodeTest, AProposalIsToldUntilItIsInstalled) {
  const auto propose = [&](const std::string& replica, const char* group = kGroup) {
    ProposeRequestT request;
    request.group = group;
    request.replica = replica;
    return Ask(request);
  };
  EXPECT_EQ(propose("host:7").code(), Code::kInvalidArgument) << "it is in no group yet";
  FormatAs(kGroup);
  ASSERT_OK(Ask(Seal(1, kAnn)));
  ASSERT_OK(Ask(Install(1, kAnn)));
  EXPECT_EQ(propose("host:7", kOtherGroup).code(), Code::kInvalidArgument);
  EXPECT_EQ(propose("nonsense").code(), Code::kInvalidArgument);
  EXPECT_EQ(propose(std::string(78, 'h') + ":7").code(), Code::kInvalidArgument) << "80 bytes";
  EXPECT_EQ(Hello().proposed_replica, "");
  EXPECT_EQ(propose("").code(), Code::kInvalidArgument);
  EXPECT_EQ(Hello().proposals, 0u);
  ASSERT_OK(propose("host:7"));
  EXPECT_EQ(Hello().proposed_replica, "host:7");
  ASSERT_OK(propose("host:7"));
  EXPECT_EQ(Hello().proposals, 2u) << "somebody still asks";
  EXPECT_EQ(Hello().proposal_epoch, 0u);
  ProposeRequestT vouched;
  vouched.group = kGroup;
  vouched.replica = "host:7";
  vouched.epoch = 1;
  vouched.vouchers = {1, 2, 3};
  ASSERT_OK(Ask(vouched));
  EXPECT_EQ(Hello().proposal_epoch, 1u) << "the last request's";
  EXPECT_EQ(Hello().proposal_vouchers, vouched.vouchers);
  ASSERT_OK(propose("host:8"));
  EXPECT_EQ(Hello().proposed_replica, "host:8");
  auto install = Install(2, kAnn);
  install.absent_nodes = {FormatUuid(RandomUuid())};
  install.absent_replicas = {"host:8"};
  ASSERT_OK(Ask(Seal(2, kAnn)));
  ASSERT_OK(Ask(install));
  EXPECT_EQ(Hello().proposed_replica, "");
  ASSERT_OK(propose("host:8"));
  EXPECT_EQ(Hello().proposed_replica, "") << "the group has it";
}

class DirectTest : public NodeTest {
 protected:
  DirectTest() {
    FormatAs(kGroup);
    EXPECT_OK(Ask(Seal(1, kAnn)));
    EXPECT_OK(Ask(Install(1, kAnn)));
  }
  static DirectRequestT Promise(uint64_t count, uint64_t writer) {
    DirectRequestT request;
    request.group = kGroup;
    request.count = count;
    request.writer = writer;
    return request;
  }
  static DirectRequestT Give(uint64_t count, uint64_t writer, const std::string& node) {
    DirectRequestT request = Promise(count, writer);
    hyperloop::Directive directive;
    directive.paused = true;
    directive.owner = kOtherGroup;
    directive.node = node;
    directive.drained = {"x", "y"};
    directive.by = "ann";
    directive.when = 1700000000;
    request.directive = ToMessage(directive);
    return request;
  }
  DirectReplyT Direct(DirectRequestT request) {
    const BodyUnion answer = node_->Handle(MakeBody(std::move(request)));
    const auto* const reply = As<DirectReplyT>(answer);
    EXPECT_NE(reply, nullptr);
    return reply == nullptr ? DirectReplyT() : *reply;
  }
  hyperloop::Directive Told() { return FromMessage(Hello().directive.get()); }
};

TEST_F(DirectTest, APromiseIsGrantedOncePerNumberAndKeepsSmallerOnesOut) {
  EXPECT_NE(Hello().directive, nullptr) << "says that it keeps one";
  EXPECT_EQ(Told(), hyperloop::Directive());
  EXPECT_TRUE(Direct(Promise(5, 1)).granted);
  EXPECT_FALSE(Direct(Promise(5, 1)).granted);
  EXPECT_TRUE(Direct(Promise(5, 2)).granted);
  const DirectReplyT refused = Direct(Give(5, 1, "b"));
  EXPECT_FALSE(refused.granted);
  EXPECT_EQ(refused.promised_count, 5u);
  EXPECT_EQ(refused.promised_writer, 2u);
  EXPECT_FALSE(Direct(Promise(4, 9)).granted);
  EXPECT_EQ(Told(), hyperloop::Directive());
  const DirectReplyT given = Direct(Give(5, 2, "b"));
  EXPECT_TRUE(given.granted);
  EXPECT_EQ(Told().node, "b");
  EXPECT_EQ(FromMessage(given.directive.get()), Told());
  // Whoever is promised the next number learns what was given.
  EXPECT_EQ(FromMessage(Direct(Promise(6, 1)).directive.get()), Told());
}

TEST_F(DirectTest, WhatWasGrantedSurvivesRestartsAndTakings) {
  EXPECT_TRUE(Direct(Promise(5, 1)).granted);
  EXPECT_TRUE(Direct(Give(5, 1, "b")).granted);
  EXPECT_TRUE(Direct(Promise(7, 1)).granted);
  const hyperloop::Directive told = Told();
  EXPECT_EQ(told.number, (DirectiveNumber{5, 1}));
  EXPECT_EQ(told.drained, (std::vector<std::string>{"x", "y"}));
  for (int i = 0; i < 4; ++i) {
    Restart();
    EXPECT_EQ(Told(), told);
    EXPECT_FALSE(Direct(Promise(6, 1)).granted) << "it has promised a greater one";
    ASSERT_OK(Ask(Seal(Hello().sealed_epoch + 1, kBob)));
    EXPECT_EQ(Told(), told);
  }
}

// As an agent gives it that saw that this node had missed it.
TEST_F(DirectTest, TheSameMayBeGivenAgain) {
  EXPECT_TRUE(Direct(Give(5, 1, "b")).granted) << "without a promise before";
  const int persists = media_.persists;
  EXPECT_TRUE(Direct(Give(5, 1, "b")).granted);
  EXPECT_EQ(media_.persists, persists);
  EXPECT_FALSE(Direct(Give(4, 9, "c")).granted);
  EXPECT_EQ(Told().node, "b");
}

TEST_F(DirectTest, WhatIsNotDurableIsNotGranted) {
  media_.fail = true;
  EXPECT_THAT(Ask(Promise(5, 1)), StatusIs(Code::kUnavailable));
  EXPECT_THAT(Ask(Give(5, 1, "b")), StatusIs(Code::kUnavailable));
  media_.fail = false;
  EXPECT_EQ(Told(), hyperloop::Directive());
  EXPECT_TRUE(Direct(Promise(1, 1)).granted);
}

TEST_F(DirectTest, AnotherGroupsAndNumbersThatAreUsedUpAreRefused) {
  DirectRequestT other = Promise(5, 1);
  other.group = kOtherGroup;
  EXPECT_THAT(Ask(other), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Ask(Promise(0, 1)), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Ask(Promise(kMaxDirectiveStep + 1, 1)), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Ask(Promise(~uint64_t{0}, 1)), StatusIs(Code::kInvalidArgument));
  EXPECT_TRUE(Direct(Promise(kMaxDirectiveStep, 1)).granted);
}

TEST_F(NodeTest, ANodeOfNoGroupTellsAgentsNothing) {
  DirectRequestT request;
  request.group = kGroup;
  request.count = 1;
  EXPECT_THAT(Ask(request), StatusIs(Code::kInvalidArgument));
}

// Before it is of any group, too.
TEST_F(NodeTest, AWayThatDoesNotWorkIsToldUntilOneDoes) {
  TryWayRequestT request;
  request.replica = "host:7";
  request.host = "far";
  request.service = "inspect";
  EXPECT_TRUE(Hello().tries_ways);
  service_.way = Busy("it is tried");
  EXPECT_EQ(Ask(request).code(), Code::kBusy);
  EXPECT_EQ(service_.tried, "far/inspect");
  EXPECT_EQ(Hello().failed_way, "");
  service_.way = NotFound("no host\nfar");
  EXPECT_EQ(Ask(request).code(), Code::kNotFound);
  EXPECT_EQ(Hello().failed_way, "no host\\x0afar");
  EXPECT_EQ(Hello().failed_way_to, "host:7");
  service_.way = {};
  ASSERT_OK(Ask(request));
  EXPECT_EQ(Hello().failed_way, "");
}

TEST_F(NodeTest, AProposalThatAReplicaLeavesIsToldUntilTheGroupHasItNoMore) {
  const auto propose = [&](const std::string& replica) {
    ProposeRequestT request;
    request.group = kGroup;
    request.replica = replica;
    request.leaves = true;
    return Ask(request);
  };
  FormatAs(kGroup);
  auto install = Install(1, kAnn);
  install.absent_nodes = {FormatUuid(RandomUuid())};
  install.absent_replicas = {"host:8"};
  ASSERT_OK(Ask(Seal(1, kAnn)));
  ASSERT_OK(Ask(install));
  ASSERT_OK(propose("host:7"));
  EXPECT_EQ(Hello().leaving_replica, "") << "the group does not have it";
  ASSERT_OK(propose("host:8"));
  EXPECT_EQ(Hello().leaving_replica, "host:8");
  EXPECT_EQ(Hello().proposed_replica, "");
  EXPECT_EQ(Hello().proposals, 1u);
  ASSERT_OK(Ask(Seal(2, kAnn)));
  ASSERT_OK(Ask(Install(2, kAnn)));
  EXPECT_EQ(Hello().leaving_replica, "");
}

TEST_F(NodeTest, InstalledNodeKeepsItsGroup) {
  // A first taking that crashed before Install binds nobody.
  ASSERT_OK(Ask(Seal(1, kAnn, kOtherGroup)));
  ASSERT_OK(Ask(Seal(2, kBob, kGroup)));
  FormatAs(kGroup);
  ASSERT_OK(Ask(Install(2, kBob)));
  EXPECT_THAT(Ask(Seal(3, kAnn, kOtherGroup)), StatusIs(Code::kInvalidArgument));
  EXPECT_EQ(Hello().sealed_epoch, 2u);
  EXPECT_EQ(Hello().group, kGroup);
}

TEST_F(NodeTest, DamagedRegionIsRefusedAtStart) {
  FormatAs(kGroup);
  ASSERT_OK(Ask(Seal(1, kAnn)));
  ASSERT_OK(Ask(Install(1, kAnn)));
  FormatAs(kOtherGroup);
  EXPECT_THAT(Node::Create({"r0", "ram"}, region_, *store_, service_, nullptr),
              StatusIs(Code::kCorruption));
  FormatAs(kGroup);
  std::fill(page_.begin(), page_.end(),
            std::byte{0});  // a node that lost its promises must not be taken for a new one
  EXPECT_THAT(Node::Create({"r0", "ram"}, region_, *store_, service_, nullptr),
              StatusIs(Code::kCorruption));
}

TEST_F(NodeTest, ChecksumsAreBounded) {
  ASSERT_OK(Ask(Seal(1, kAnn)));
  EXPECT_OK(Ask(Checksums(0, kRegion, 4096)));
  EXPECT_THAT(Ask(Checksums(1, kRegion, 4096)), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Ask(Checksums(UINT64_MAX, 2, 4096)), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Ask(Checksums(0, kRegion, 0)), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Ask(Checksums(0, kRegion, 16)), StatusIs(Code::kInvalidArgument));
}

TEST_F(NodeTest, ReplyIsNoRequest) {
  EXPECT_THAT(Ask(DoneT{}), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Ask(HelloReplyT{}), StatusIs(Code::kInvalidArgument));
}

TEST_F(NodeTest, OwnerNameIsPrintable) {
  auto request = Seal(1, kAnn);
  request.owner_name = "a\n\x1b[31mb" + std::string(5000, 'c');
  ASSERT_OK(Ask(request));
  const std::string name = Hello().sealed_owner_name;
  EXPECT_EQ(name.substr(0, 14), "a\\x0a\\x1b[31mb");
  EXPECT_LE(name.size(), kMaxOwnerName);
}

}  // namespace
}  // namespace hyperloop
