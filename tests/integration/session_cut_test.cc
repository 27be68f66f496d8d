// A taking of a group is stopped at each of its messages in turn. The next taking always succeeds,
// finds every acknowledged append, and makes all regions equal.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>

#include "control/client.h"
#include "files/file_table.h"
#include "hyperloop/replication/store.h"
#include "journal/log_scan.h"
#include "layout/region_layout.h"
#include "primary/session_store.h"
#include "support/append_durably.h"
#include "support/embedded_replica.h"
#include "support/eventually.h"
#include "support/log_lines.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using control::Body;

class SessionCutTest : public testing::Test {
 protected:
  SessionCutTest() {
    std::string pattern = "/dev/shm/hyperloop-cut-XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    EXPECT_OK(rnic_.StartThread());
    for (int i = 0; i < 3; ++i) {
      const std::string name = "r" + std::to_string(i);
      auto replica = EmbeddedReplica::Start(
          rnic_, name, folder_ + "/" + name, kRegion, [this](const control::BodyUnion& request) {
            // Only the owner knows this id; it is kept for requests in the owner's name.
            if (const auto* attach = control::As<control::AttachRequestT>(request))
              WithOwner([&](std::vector<uint8_t>& owner) { owner = attach->owner_id; });
            const auto* hello = control::As<control::HelloRequestT>(request);
            if (blind_ && hello != nullptr && !hello->owner_id.empty()) return false;
            return Pass(request.type);
          });
      EXPECT_OK(replica);
      replicas_.push_back(std::move(replica).value());
    }
  }
  ~SessionCutTest() override {
    silent_ = Body::NONE;
    silent_.notify_all();
    replicas_.clear();
    rnic_.StopThread();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  // Counts the requests that change something; from number cut_ on nothing is answered.
  bool Pass(Body type) {
    if (type == silent_) silent_.wait(type);
    if (type == Body::InstallRequest && installs_until_lost_ > 0 && --installs_until_lost_ == 0)
      return false;
    if (type == lost_) return false;
    if (type == Body::HelloRequest || type == Body::ExamineRequest) return true;
    return ++requests_ <= cut_;
  }

  std::unique_ptr<Store> Opened(std::chrono::milliseconds connect = std::chrono::seconds(5),
                                std::chrono::milliseconds ack = std::chrono::seconds(10),
                                const std::string& pool = "primary") {
    StoreOptions options;
    options.connect_timeout = connect;
    options.ack_timeout = ack;
    for (const auto& each : replicas_) options.replicas.push_back(each->address());
    options.device = "unused";
    options.pool = folder_ + "/" + pool;
    options.journal_size = 256 << 10;
    options.table_capacity = 64;
    options.takeover = true;
    auto store = OpenSessionStore(
        options,
        [this]() -> Result<std::unique_ptr<rnic::Device>> {
          ++devices_asked_;
          if (no_device_) return Unavailable("the test's RNIC is away");
          while (slow_device_) std::this_thread::sleep_for(std::chrono::milliseconds(20));
          return rnic_.OpenDevice("primary");
        },
        log_);
    EXPECT_OK(store);
    return store.ok() ? std::move(store).value() : nullptr;
  }

  void WithOwner(const std::function<void(std::vector<uint8_t>&)>& use) {
    const std::lock_guard lock(owner_mutex_);
    use(owner_);
  }

  // A taking that is cut at its request number `cut`. False: there are not so many.
  bool TakeCutAt(int cut) {
    auto store = Opened();
    requests_ = 0;
    cut_ = cut;
    TakeResult result;
    const Status status = store->Take(Request(), &result);
    if (!status.ok()) {
      EXPECT_THAT(status.message(),
                  testing::AllOf(testing::HasSubstr("cut off"), testing::HasSubstr("open again")));
    }
    cut_ = INT32_MAX;
    if (status.ok()) pairing_ = result.pairing;
    store.reset();
    return !status.ok();
  }

  std::unique_ptr<Store> Taken() {
    auto store = Opened();
    TakeResult result;
    const Status status = store->Take(Request(), &result);
    EXPECT_OK(status);
    if (!status.ok()) return nullptr;
    pairing_ = result.pairing;
    return store;
  }

  TakeRequest Request() const {
    return {folder_ + "/db", pairing_.group.empty(), pairing_, nullptr};
  }

  static std::string Content(Store& store) {
    const auto file = store.Lookup("f");
    if (!file.ok()) return "no file";
    std::string out(4 << 20, '\0');
    const auto got = store.Read(*file, 0, out);
    out.resize(got.ok() ? *got : 0);
    return out;
  }

  // Neither copy of the log's head is valid any more.
  void Damage(size_t i) {
    for (const uint64_t offset : kHeadOffsets) replicas_[i]->region()[offset] ^= std::byte{1};
  }

  template <class Reply, class Request>
  Reply Ask(size_t replica, const Request& request) {
    const auto endpoint = control::ParseEndpoint(replicas_[replica]->address());
    auto client =
        control::ControlClient::Connect(*endpoint, control::Trust(), std::chrono::seconds(20));
    EXPECT_OK(client);
    if (!client.ok()) return Reply{};
    auto reply = (*client)->template Call<Reply>(request, std::chrono::seconds(20));
    EXPECT_OK(reply);
    return reply.ok() ? std::move(reply).value() : Reply{};
  }
  // Whether the owner's heartbeat moves several times.
  bool HeartbeatMoves() {
    const auto heartbeat = [&] {
      return Ask<control::HelloReplyT>(1, control::HelloRequestT{}).heartbeat;
    };
    uint64_t last = heartbeat();
    int moved = 0;
    return Eventually([&] {
      const uint64_t now = heartbeat();
      moved += now != std::exchange(last, now) ? 1 : 0;
      return moved == 5;
    });
  }
  // Destroys the primary's queues at a replica, as a restart of the replica's process does.
  void EndQueues(size_t replica) {
    const auto hello = Ask<control::HelloReplyT>(replica, control::HelloRequestT{});
    control::ReconnectRequestT reconnect;
    reconnect.epoch = hello.sealed_epoch;
    WithOwner([&](std::vector<uint8_t>& owner) { reconnect.owner_id = owner; });
    Ask<control::DoneT>(replica, reconnect);
  }
  // The primary's own region, mapped once more from its pool.
  std::span<std::byte> OwnRegion() {
    const std::string path = folder_ + "/primary";
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    const size_t size = std::filesystem::file_size(path);
    void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    EXPECT_NE(base, MAP_FAILED);
    own_mapping_ = {static_cast<std::byte*>(base), size};
    const auto superblock = replicas_[0]->region().first(sizeof(Superblock));
    for (size_t at = 4096; at + kRegion <= size; at += 4096) {
      const auto found = own_mapping_.subspan(at, kRegion);
      if (std::equal(superblock.begin(), superblock.end(), found.begin())) return found;
    }
    ADD_FAILURE() << "no region in " << path;
    return {};
  }
  std::span<std::byte> own_mapping_;

  std::string FillExtents();
  std::byte& ExtentByte(size_t replica, uint32_t index);

  void ExpectEqualRegions() {
    for (size_t i = 1; i < replicas_.size(); ++i) {
      EXPECT_TRUE(std::equal(replicas_[0]->region().begin(), replicas_[0]->region().end(),
                             replicas_[i]->region().begin()))
          << "replica " << i << " differs";
    }
  }

  static constexpr uint64_t kRegion = 16 << 20;
  std::string folder_;
  softrnic::EmbeddedRnic rnic_;
  std::mutex owner_mutex_;
  std::vector<uint8_t> owner_;  // of the last AttachRequest, guarded by owner_mutex_
  std::atomic<int> requests_{0}, cut_{INT32_MAX};
  std::atomic<int> installs_until_lost_{0};
  std::atomic<int> devices_asked_{0};  // for the primary
  std::atomic<bool> no_device_{false};
  std::atomic<bool> slow_device_{false};  // no device is given before it is false again
  std::atomic<bool> blind_{false};        // a primary cannot look for its standing
  std::atomic<Body> silent_{Body::NONE};  // requests of this type get no answer
  std::atomic<Body> lost_{Body::NONE};    // requests of this type cut the connection
  std::vector<std::unique_ptr<EmbeddedReplica>> replicas_;
  Pairing pairing_;
  const std::shared_ptr<LogLines> log_ = std::make_shared<LogLines>();
};

TEST_F(SessionCutTest, FirstTakingCutAnywhere) {
  int cut = 0;
  while (TakeCutAt(cut)) {
    ++cut;
    ASSERT_LT(cut, 100);
    pairing_ = {};
  }
  EXPECT_GT(cut, 15);  // three replicas: seal, attach, checksums, install, prepare, connect
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  EXPECT_OK(store->Create("f"));
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

TEST_F(SessionCutTest, TakingAGroupWithDataCutAnywhere) {
  std::string all;
  {
    auto store = Taken();
    ASSERT_NE(store, nullptr);
    ASSERT_OK(store->Create("f"));
  }
  bool more = true;
  for (int cut = 0; more; ++cut) {
    ASSERT_LT(cut, 100);
    {
      // A primary that leaves its last records behind, executed or not, and does not close orderly.
      auto store = Taken();
      ASSERT_NE(store, nullptr);
      ASSERT_EQ(Content(*store), all) << "before cut " << cut;
      const auto file = store->Lookup("f");
      ASSERT_OK(file);
      for (int i = 0; i < 5; ++i) {
        const std::string piece =
            std::to_string(cut) + "." + std::to_string(i) + std::string(100, '-') + ";";
        ASSERT_OK(AppendDurably(*store, *file, piece));
        all += piece;
      }
      cut_ = 0;  // not even a release gets through
      requests_ = 0;
    }
    cut_ = INT32_MAX;
    more = TakeCutAt(cut);
  }
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(Content(*store), all);
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// Refusals change nothing, also if the member that is read first is damaged, or all members are.
TEST_F(SessionCutTest, DamagedMembersAreJudgedBeforeAnySeal) {
  {
    auto store = Taken();
    ASSERT_NE(store, nullptr);
    ASSERT_OK(store->Create("f"));
  }
  const auto refusal = [&](const TakeRequest& request) {
    auto store = Opened();
    requests_ = 0;
    TakeResult result;
    const Status status = store->Take(request, &result);
    EXPECT_EQ(requests_, 0) << "sealed, then refused: " << status.ToString();
    return status;
  };
  Damage(0);
  TakeRequest foreign = Request();
  foreign.pairing.group = "33333333-3333-4333-8333-333333333333";
  EXPECT_THAT(refusal(foreign), StatusIs(Code::kInvalidArgument));
  Damage(1);
  Damage(2);
  const Status hopeless = refusal(Request());
  EXPECT_THAT(hopeless, StatusIs(Code::kCorruption));
  EXPECT_THAT(hopeless.message(), testing::HasSubstr(replicas_[2]->address()));
}

// A damaged member gets the others' log, and all members are equal again.
TEST_F(SessionCutTest, DamagedMemberIsMendedFromTheOthers) {
  {
    auto store = Taken();
    ASSERT_NE(store, nullptr);
    const auto file = store->Create("f");
    ASSERT_OK(file);
    ASSERT_OK(AppendDurably(*store, *file, "kept"));
  }
  Damage(0);
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(Content(*store), "kept");
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// Makes a group at rest whose only file fills several extents; returns the file's content.
std::string SessionCutTest::FillExtents() {
  auto store = Taken();
  EXPECT_NE(store, nullptr);
  if (store == nullptr) return "";
  const auto file = store->Create("f");
  std::string all;
  for (int i = 0; file.ok() && i < 30; ++i) {
    const std::string piece(100000, static_cast<char>('a' + i % 26));
    EXPECT_OK(AppendDurably(*store, *file, piece));
    all += piece;
  }
  EXPECT_OK(store->Close());
  return all;
}

// Byte 5 of the `index`-th extent of the file; no other region byte depends on it.
std::byte& SessionCutTest::ExtentByte(size_t replica, uint32_t index) {
  const auto region = replicas_[replica]->region();
  const RegionInfo info = ParseSuperblock(region, region.size()).value();
  const FileTable table = FileTable::Load(region, info).value();
  for (const FileEntry& entry : table.slots) {
    if (entry.used) return region[info.geometry.ExtentOffset(entry.extents[index]) + 5];
  }
  ADD_FAILURE() << "no file";
  return region[0];
}

// One flipped bit in one copy must not spread, whichever member is first in the chain.
TEST_F(SessionCutTest, DamagedBytesAreTakenFromASoundMember) {
  const std::string all = FillExtents();
  for (size_t i = 0; i < replicas_.size(); ++i) {
    ExtentByte(i, 0) ^= std::byte{1};
    log_->Clear();
    auto store = Taken();
    ASSERT_NE(store, nullptr);
    EXPECT_TRUE(Content(*store) == all) << "damage of replica " << i << " spread";
    EXPECT_OK(store->Close());
    ExpectEqualRegions();
    EXPECT_THAT(log_->lines(),
                testing::Contains(testing::AllOf(testing::HasSubstr(replicas_[i]->address()),
                                                 testing::HasSubstr("\"f\""))));
  }
}

// No member is sound as a whole, but each extent has a sound copy.
TEST_F(SessionCutTest, MembersMendEachOther) {
  const std::string all = FillExtents();
  for (size_t i = 0; i < replicas_.size(); ++i)
    ExtentByte(i, static_cast<uint32_t>(i)) ^= std::byte{1};
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(Content(*store) == all);
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

TEST_F(SessionCutTest, WhatNobodyHasSoundIsRefusedBeforeAnySeal) {
  const std::string all = FillExtents();
  for (size_t i = 0; i < replicas_.size(); ++i) ExtentByte(i, 1) ^= std::byte{1};
  {
    auto store = Opened();
    requests_ = 0;
    TakeResult result;
    const Status refused = store->Take(Request(), &result);
    EXPECT_THAT(refused, StatusIs(Code::kCorruption));
    EXPECT_THAT(refused.message(), testing::HasSubstr("\"f\""));
    EXPECT_EQ(requests_, 0);
  }
  ExtentByte(2, 1) ^= std::byte{1};
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(Content(*store) == all);
}

// The last record of one member reads as a torn tail; the others have it.
TEST_F(SessionCutTest, DamagedLastRecordIsNotTheEndOfTheLog) {
  for (size_t i = 0; i < replicas_.size(); ++i) {
    std::string all;
    std::vector<std::vector<std::byte>> images;
    {
      auto store = Taken();
      ASSERT_NE(store, nullptr);
      const auto file = store->Create("f");
      ASSERT_OK(file);
      for (int n = 0; n < 20; ++n) {
        ASSERT_OK(AppendDurably(*store, *file, std::to_string(n) + ";"));
        all += std::to_string(n) + ";";
      }
      for (const auto& each : replicas_)
        images.emplace_back(each->region().begin(), each->region().end());
    }
    // As if the primary had died instead of closing.
    for (size_t n = 0; n < images.size(); ++n)
      std::copy(images[n].begin(), images[n].end(), replicas_[n]->region().begin());
    const auto region = replicas_[i]->region();
    const RegionInfo info = ParseSuperblock(region, region.size()).value();
    uint64_t last = 0;
    const auto note = [&](const RecordView&, uint64_t at) {
      last = at;
      return Status();
    };
    ASSERT_OK(ScanLog(region, info, 0, note));
    ASSERT_NE(last, 0u) << "the log is empty: nothing to damage";
    region[kJournalOffset + last % info.geometry.journal_size + sizeof(RecordHeader)] ^=
        std::byte{1};
    auto store = Taken();
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(Content(*store), all) << "replica " << i;
    EXPECT_OK(store->Close());
    ExpectEqualRegions();
  }
}

// A replica that stops during a taking delays it by the documented time, not by a minute: here half
// a second to connect, and one for each slow request, of which there are a few.
TEST_F(SessionCutTest, ReplicaThatStopsAnsweringIsGivenUpInTime) {
  { ASSERT_NE(Taken(), nullptr); }
  for (const Body type : {Body::HelloRequest, Body::ExamineRequest, Body::SealRequest,
                          Body::AttachRequest, Body::ChecksumsRequest, Body::InstallRequest,
                          Body::PrepareMemberRequest, Body::ConnectMemberRequest}) {
    SCOPED_TRACE(control::BodyName(type));
    auto store = Opened(std::chrono::milliseconds(500), std::chrono::seconds(1));
    ASSERT_NE(store, nullptr);
    silent_ = type;
    const auto start = std::chrono::steady_clock::now();
    TakeResult result;
    const Status status = store->Take(Request(), &result);
    store.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
    EXPECT_THAT(status, testing::AnyOf(StatusIs(Code::kUnavailable), StatusIs(Code::kTimedOut)));
    EXPECT_THAT(status.message(), testing::HasSubstr("did not answer")) << status.ToString();
    silent_ = Body::NONE;
    silent_.notify_all();
  }
  EXPECT_NE(Taken(), nullptr);
}

// --- a group that is restored

// A write that finds its group lost, and a replica that hangs while the group is restored, ends in
// the documented time and names the replica. The next one finds the group again.
TEST_F(SessionCutTest, ReplicaThatHangsInARestorationHoldsWritesNoLongerThanStated) {
  auto store = Opened(std::chrono::seconds(5), std::chrono::seconds(1));
  ASSERT_NE(store, nullptr);
  TakeResult result;
  ASSERT_OK(store->Take(Request(), &result));
  const auto file = store->Create("f");
  ASSERT_OK(file);
  for (const Body type : {Body::ReconnectRequest, Body::AttachRequest, Body::ChecksumsRequest,
                          Body::PrepareMemberRequest, Body::ConnectMemberRequest}) {
    SCOPED_TRACE(control::BodyName(type));
    no_device_ = true;  // the group does not come back before the replica hangs
    EndQueues(1);
    silent_ = type;
    no_device_ = false;
    const auto start = std::chrono::steady_clock::now();
    const Status status = AppendDurably(*store, *file, "x");
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
    // The store's own thread may have tried first, while there was no RNIC.
    EXPECT_THAT(status,
                StatusIs(Code::kUnavailable, testing::AnyOf(testing::HasSubstr("did not answer"),
                                                            testing::HasSubstr("does not answer"),
                                                            testing::HasSubstr("RNIC is away"))));
    silent_ = Body::NONE;
    silent_.notify_all();
    EXPECT_TRUE(Eventually([&] { return store->Sync().ok(); }));
  }
  EXPECT_OK(AppendDurably(*store, *file, "y"));
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// Takings that reach only one replica leave the others behind, by more than one Seal may raise an
// epoch.
TEST_F(SessionCutTest, ReplicasThatManyTakingsPassedByCatchUp) {
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  EXPECT_OK(store->Close());
  const uint64_t before = Ask<control::HelloReplyT>(0, control::HelloRequestT{}).sealed_epoch;
  for (int i = 0; i < 3; ++i) {
    const auto hello = Ask<control::HelloReplyT>(2, control::HelloRequestT{});
    control::SealRequestT seal;
    seal.epoch = hello.sealed_epoch + control::kMaxEpochStep;
    seal.owner_id.assign(16, 0xcd);
    seal.group = hello.group;
    seal.seen_sealed_epoch = hello.sealed_epoch;
    seal.seen_installed_epoch = hello.installed_epoch;
    seal.seen_served_epoch = hello.served_epoch;
    Ask<control::SealReplyT>(2, seal);
  }
  store = Taken();
  ASSERT_NE(store, nullptr);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(Ask<control::HelloReplyT>(i, control::HelloRequestT{}).installed_epoch,
              before + 3 * control::kMaxEpochStep + 1);
  }
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// One message of the reclaiming is lost; the epoch that was installed by then is the primary's own.
TEST_F(SessionCutTest, ReclaimingThatIsCutInInstallGoesOn) {
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  const auto file = store->Create("f");
  ASSERT_OK(file);
  ASSERT_OK(AppendDurably(*store, *file, "one"));
  const control::HelloReplyT hello = Ask<control::HelloReplyT>(2, control::HelloRequestT{});
  control::SealRequestT seal;
  seal.epoch = hello.sealed_epoch + 1;
  seal.owner_id.assign(16, 0xcd);
  seal.owner_name = "a candidate that died";
  seal.group = hello.group;
  seal.seen_sealed_epoch = hello.sealed_epoch;
  seal.seen_installed_epoch = hello.installed_epoch;
  seal.seen_served_epoch = hello.served_epoch;
  installs_until_lost_ = 2;
  Ask<control::SealReplyT>(2, seal);
  EXPECT_OK(AppendDurably(*store, *file, "two"));
  EXPECT_EQ(installs_until_lost_, 0) << "nothing was lost: the test shows nothing";
  EXPECT_EQ(Content(*store), "onetwo");
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// The rival was installed at one member or at all of them. The primary that it replaced goes on,
// even if it has looked meanwhile.
TEST_F(SessionCutTest, RivalThatFailsBeforeItServesFencesNobody) {
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  const auto file = store->Create("f");
  ASSERT_OK(file);
  std::string all;
  for (const Body type :
       {Body::InstallRequest, Body::PrepareMemberRequest, Body::ConnectMemberRequest}) {
    SCOPED_TRACE(control::BodyName(type));
    // If it sees a member that a rival has connected, it takes that one for the primary.
    blind_ = type == Body::ConnectMemberRequest;
    auto rival = Opened(std::chrono::seconds(5), std::chrono::seconds(10), "rival");
    ASSERT_NE(rival, nullptr);
    if (type == Body::InstallRequest) {
      installs_until_lost_ = 2;
    } else {
      lost_ = type;
    }
    TakeResult result;
    EXPECT_THAT(rival->Take(Request(), &result),
                StatusIs(Code::kUnavailable, testing::HasSubstr("cut off")));
    EXPECT_EQ(installs_until_lost_, 0);
    lost_ = Body::NONE;
    blind_ = false;
    rival.reset();
    all += control::BodyName(type);
    EXPECT_OK(AppendDurably(*store, *file, control::BodyName(type)));
  }
  EXPECT_EQ(Content(*store), all);
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// The rival waits for a replica that hangs, and the primary looks for its standing meanwhile. That
// replica does not even learn that the rival gave up.
TEST_F(SessionCutTest, RivalThatHangsBeforeItServesFencesNobody) {
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  const auto file = store->Create("f");
  ASSERT_OK(file);
  auto rival = Opened(std::chrono::milliseconds(500), std::chrono::seconds(1), "rival");
  ASSERT_NE(rival, nullptr);
  silent_ = Body::PrepareMemberRequest;
  TakeResult result;
  EXPECT_THAT(rival->Take(Request(), &result), StatusIs(Code::kTimedOut));
  silent_ = Body::NONE;
  silent_.notify_all();
  rival.reset();
  EXPECT_OK(AppendDurably(*store, *file, "x"));
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// The primary's pool must not belong to a group that the replicas never kept.
TEST_F(SessionCutTest, FreshGroupWhoseFirstTakingFailsIsTakenTheNextTime) {
  for (const Body type : {Body::PrepareMemberRequest, Body::ConnectMemberRequest}) {
    SCOPED_TRACE(control::BodyName(type));
    auto store = Opened();
    lost_ = type;
    TakeResult result;
    EXPECT_THAT(store->Take(Request(), &result), StatusIs(Code::kUnavailable));
    lost_ = Body::NONE;
  }
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  EXPECT_OK(store->Close());
}

// It has lost its queues, and waits for a device to make others.
TEST_F(SessionCutTest, PrimaryThatWaitsForItsRnicIsSeenToLive) {
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  slow_device_ = true;
  const int before = devices_asked_;
  EndQueues(1);
  EXPECT_TRUE(Eventually([&] { return devices_asked_ > before; }));
  EXPECT_TRUE(HeartbeatMoves());
  slow_device_ = false;
  EXPECT_OK(store->Create("f"));
  EXPECT_OK(store->Close());
}

// No write fails and no queue breaks, because nobody writes. A rival would take it for dead.
TEST_F(SessionCutTest, PrimaryWhoseRnicStandsStillIsSeenToLive) {
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  rnic_.StopThread();
  EXPECT_TRUE(HeartbeatMoves());
  EXPECT_OK(rnic_.StartThread());
  EXPECT_OK(store->Create("f"));
  EXPECT_OK(store->Close());
}

// A call after an error of the group tries to bring it back; calls right after that one fail at
// once.
TEST_F(SessionCutTest, CallsToALostGroupDoNotAllTryToBringItBack) {
  auto store = Opened(std::chrono::seconds(5), std::chrono::seconds(2));
  ASSERT_NE(store, nullptr);
  TakeResult result;
  ASSERT_OK(store->Take(Request(), &result));
  const auto file = store->Create("f");
  ASSERT_OK(file);
  ASSERT_OK(AppendDurably(*store, *file, "one"));
  no_device_ = true;
  EndQueues(1);
  EXPECT_THAT(AppendDurably(*store, *file, "two"), StatusIs(Code::kUnavailable));
  const int before = devices_asked_;
  for (int i = 0; i < 1000; ++i) ASSERT_THAT(store->Sync(), StatusIs(Code::kUnavailable));
  EXPECT_GT(devices_asked_, before) << "no call tried";
  EXPECT_LT(devices_asked_ - before, 500);
  EXPECT_THAT(store->Files(), StatusIs(Code::kUnavailable));
  no_device_ = false;
  while (!store->Sync().ok()) std::this_thread::yield();
  EXPECT_THAT(Content(*store), testing::AnyOf("one", "onetwo"));
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// Damage of the primary's own memory is mended from the others, and does not spread to them.
TEST_F(SessionCutTest, DamageOfThePrimarysOwnRegionDoesNotSpread) {
  const auto last_record = [](std::span<std::byte> own, const RegionInfo& info) {
    uint64_t last = 0;
    const auto note = [&](const RecordView&, uint64_t at) {
      last = at;
      return Status();
    };
    EXPECT_OK(ScanLog(own, info, 0, note));
    return kJournalOffset + last % info.geometry.journal_size + sizeof(RecordHeader);
  };
  const auto binding = [](std::span<std::byte>, const RegionInfo& info) {
    return info.geometry.binding_offset + 20;
  };
  using Place = std::function<uint64_t(std::span<std::byte>, const RegionInfo&)>;
  std::string all;
  for (const Place& place : {Place(last_record), Place(binding)}) {
    auto store = Taken();
    ASSERT_NE(store, nullptr);
    auto file = store->Lookup("f");
    if (!file.ok()) file = store->Create("f");
    ASSERT_OK(file);
    for (int i = 0; i < 20; ++i) {
      ASSERT_OK(AppendDurably(*store, *file, std::to_string(i) + ";"));
      all += std::to_string(i) + ";";
    }
    const auto own = OwnRegion();
    ASSERT_FALSE(own.empty());
    const RegionInfo info = ParseSuperblock(own, own.size()).value();
    own[place(own, info)] ^= std::byte{1};
    EndQueues(1);
    EXPECT_OK(AppendDurably(*store, *file, "on;"));
    all += "on;";
    EXPECT_EQ(Content(*store), all);
    EXPECT_OK(store->Close());
    munmap(own_mapping_.data(), own_mapping_.size());
    store = Taken();
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(Content(*store), all);
    EXPECT_OK(store->Close());
    ExpectEqualRegions();
  }
}

TEST_F(SessionCutTest, ManyThreadsAppendAndRead) {
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      const auto file = store->Create("f" + std::to_string(t));
      for (int i = 0; file.ok() && i < 200; ++i) {
        if (!AppendDurably(*store, *file, std::to_string(i) + ",").ok()) ++failed;
        char byte;
        if (!store->Read(*file, 0, std::span(&byte, 1)).ok()) ++failed;
        static_cast<void>(store->statistics());
      }
      if (!file.ok()) ++failed;
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(failed, 0);
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

}  // namespace
}  // namespace hyperloop::test
