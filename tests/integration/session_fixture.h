// A group whose replicas live in the test's process: they can end, stand still and start again, any
// of their answers can be withheld, and their regions read and damaged.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <mutex>

#include "control/client.h"
#include "hyperloop/core/group.h"
#include "hyperloop/replication/inspect.h"
#include "hyperloop/replication/store.h"
#include "log/file_table.h"
#include "log/log_scan.h"
#include "primary/session.h"
#include "region/region_layout.h"
#include "support/append_durably.h"
#include "support/embedded_replica.h"
#include "support/eventually.h"
#include "support/free_address.h"
#include "support/hooked_device.h"
#include "support/log_lines.h"
#include "support/ranges_in_use.h"
#include "support/regions.h"
#include "support/status_matchers.h"

namespace hyperloop::test {

using control::Body;

class SessionFixture : public testing::Test {
 protected:
  SessionFixture() {
    std::string pattern = "/dev/shm/hyperloop-session-XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    EXPECT_OK(rnic_.StartThread());
    for (int i = 0; i < 3; ++i) replicas_.push_back(StartReplica(i));
  }
  ~SessionFixture() override {
    silent_ = Body::NONE;
    silent_.notify_all();
    together_ = Body::NONE;
    for (size_t i = 0; i < still_.size(); ++i) GoOn(i);
    FinishSealing();
    replicas_.clear();
    rnic_.StopThread();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  // On its pool, with the keys of keys_; `port`: where to listen, 0: at a free one, which no
  // connection is given while the replica is stopped.
  std::unique_ptr<EmbeddedReplica> StartReplica(int i, uint16_t port = 0) {
    const std::string name = "r" + std::to_string(i);
    auto replica = EmbeddedReplica::Start(
        {.open_device = OpenerOf(i),
         .host = name,
         .pool = folder_ + "/" + name,
         .size = kRegion,
         .gate =
             [this, i](const control::BodyUnion& request) {
               ++waiting_[static_cast<size_t>(i)];
               still_[static_cast<size_t>(i)].wait(true);
               --waiting_[static_cast<size_t>(i)];
               if (request.type == Body::ConnectMemberRequest && i == unconnected_)
                 return Fate::kRequestLost;
               if (const auto* connect = control::As<control::ConnectMemberRequestT>(request);
                   connect != nullptr && IsBesideBrokenWay(i, connect->chain.size()))
                 return Fate::kRequestLost;
               seals_ += request.type == Body::SealRequest ? 1 : 0;
               if (request.type == Body::SealRequest && i == sealing_) sealing_.wait(i);
               // Only the owner knows this id; it is kept for requests in the owner's name.
               if (const auto* attach = control::As<control::AttachRequestT>(request))
                 WithOwner([&](std::vector<uint8_t>& owner) { owner = attach->owner_id; });
               if (const auto* sums = control::As<control::ChecksumsRequestT>(request))
                 compared_ += sums->length;
               const auto* hello = control::As<control::HelloRequestT>(request);
               if (hello != nullptr && hello->owner_id.empty() && i == 0) ++asked_;
               if (i == unexamined_ && request.type == Body::ExamineRequest)
                 return Fate::kRequestLost;
               if (i == gone_once_examined_ && request.type == Body::ExamineRequest)
                 examined_ = true;
               if (i == gone_once_examined_ && examined_ && hello != nullptr)
                 return Fate::kRequestLost;
               if (hello != nullptr && !hello->owner_id.empty() && IsBlind(hello->owner_id))
                 return Fate::kRequestLost;
               if (hello != nullptr && hello->owner_id.empty() && i == lying_) {
                 ++lies_;
                 return Fate::kFenced;
               }
               return Pass(request.type);
             },
         .port = port != 0 ? port : FreePort(),
         .files = keep_files_ ? folder_ + "/" + name + ".files" : "",
         .keys = keys_});
    EXPECT_OK(replica);
    return replica.ok() ? std::move(replica).value() : nullptr;
  }

  // As where the list of peers of one RNIC daemon was not brought up to date.
  DeviceOpener OpenerOf(int i) {
    return [this, i]() -> Result<std::unique_ptr<rnic::Device>> {
      HL_ASSIGN_OR_RETURN(std::unique_ptr<rnic::Device> device,
                          rnic_.OpenDevice("r" + std::to_string(i)));
      HookedDevice::Hooks hooks;
      hooks.may_connect = [this, i](std::string_view host) {
        ++ways_tried_;
        if (i != no_way_from_ ||
            host != (no_way_to_ < 0 ? "primary" : "r" + std::to_string(no_way_to_)))
          return Status();
        return NotFound("no such host among its peers");
      };
      device = std::make_unique<HookedDevice>(std::move(device), std::move(hooks));
      return device;
    };
  }

  using Fate = EmbeddedReplica::Fate;

  // Counts the requests that change something. The first cut_ of them are handled, the next one
  // meets cut_fate_, and all later ones are lost.
  Fate Pass(Body type) {
    if (type == silent_) silent_.wait(type);
    if (type == together_) {
      ++arrived_;
      EXPECT_TRUE(Eventually([&] { return arrived_ >= 3 || together_ != type; }));
    }
    if (type == lost_once_ && until_lost_ > 0 && --until_lost_ == 0) return Fate::kRequestLost;
    if (type == lost_) return Fate::kRequestLost;
    if (type == Body::HelloRequest || type == Body::ExamineRequest || type == Body::TryWayRequest)
      return Fate::kHandled;
    const int number = ++requests_;
    if (number <= cut_) return Fate::kHandled;
    return number == cut_ + 1 ? cut_fate_.load() : Fate::kRequestLost;
  }
  // The `number`-th request of this type from now on is lost.
  void LoseOnce(Body type, int number) {
    lost_once_ = type;
    until_lost_ = number;
  }

  // The replica's process ends: its queues are gone, and its pool stays.
  void Stop(size_t i) {
    stopped_[i] = replicas_[i]->address();
    replicas_[i].reset();
  }
  // The replica's process stands still: it answers nothing, and its RNIC serves on.
  void StandStill(size_t i) { still_[i] = true; }
  void GoOn(size_t i) {
    still_[i] = false;
    still_[i].notify_all();
  }
  // The RNIC of all hosts starts anew: whatever they made there is gone.
  void RestartRnic() {
    rnic_.CloseHost("primary");
    for (size_t i = 0; i < replicas_.size(); ++i) rnic_.CloseHost("r" + std::to_string(i));
  }
  void FinishSealing() {
    sealing_ = -1;
    sealing_.notify_all();
  }
  // At the address that the replica had.
  void StartAgain(size_t i) {
    const Result<control::Endpoint> at = control::ParseEndpoint(stopped_[i]);
    ASSERT_OK(at);
    replicas_[i] = StartReplica(static_cast<int>(i), at->port);
    ASSERT_NE(replicas_[i], nullptr);
  }
  // Those that do not run.
  void StartAllAgain() {
    for (size_t i = 0; i < replicas_.size(); ++i)
      if (replicas_[i] == nullptr) StartAgain(i);
  }
  std::string AddressOf(size_t i) const {
    return replicas_[i] != nullptr ? replicas_[i]->address() : stopped_[i];
  }
  static constexpr size_t kMostReplicas = 5;        // of which three are started at first
  std::array<std::string, kMostReplicas> stopped_;  // the addresses
  std::array<std::atomic<bool>, kMostReplicas> still_{};
  std::array<std::atomic<int>, kMostReplicas> waiting_{};  // requests, while it stands still
  std::string keys_;  // directory of the keys of all; empty: there are none

  bool keep_files_ = false;  // replicas that start keep whole files

  std::atomic<int> sealing_{-1};  // this replica's seal lasts until FinishSealing; -1: none does
  // This replica answers Hellos that name no owner with a lie; -1: none does.
  std::atomic<int> lying_{-1};
  std::atomic<int> lies_{0};
  // This replica answers no Hello any more once it has been asked what it holds; -1: none does so.
  std::atomic<int> gone_once_examined_{-1};
  std::atomic<bool> examined_{false};
  std::atomic<int> unexamined_{-1};   // this replica does not say what it holds; -1: all do
  std::atomic<int> unconnected_{-1};  // this replica's queues are never connected; -1: all are

  // The RNICs of this replica and of the next one have lost the way between them, so that neither
  // of the two can be armed in a chain of both; -1: they have not.
  std::atomic<int> broken_behind_{-1};
  // In a chain of so many bytes.
  bool IsBesideBrokenWay(int i, size_t chain) const {
    const int broken = broken_behind_;
    return broken >= 0 && (i == broken || i == broken + 1) &&
           chain / sizeof(MemberInfo) > static_cast<size_t>(broken) + 1;
  }

  // The RNIC of replica no_way_from_ has no way to that of replica no_way_to_, or, if that is
  // negative, to the primary's. -1: each has a way to all.
  std::atomic<int> no_way_from_{-1}, no_way_to_{-1};
  std::atomic<int> ways_tried_{0};  // by replicas

  bool without_some_ = false;  // on_replica_failure=continue
  size_t listed_ = 3;  // so many of the replicas, the first ones, are listed when a store opens
  std::string add_replica_, remove_replica_;  // the options
  std::vector<std::string> given_up_;         // listed too; see StoreOptions

  // Those of a primary that nobody has to wait for, however slow the machine is.
  StoreOptions Options(const std::string& pool = "primary") const {
    StoreOptions options;
    options.connect_timeout = std::chrono::seconds(60);
    options.ack_timeout = std::chrono::seconds(60);
    options.wait = WaitMode::kEvent;
    for (size_t i = 0; i < listed_; ++i) options.replicas.push_back(AddressOf(i));
    options.on_replica_failure =
        without_some_ ? OnReplicaFailure::kContinue : OnReplicaFailure::kBlock;
    options.replicas.insert(options.replicas.end(), given_up_.begin(), given_up_.end());
    options.given_up = given_up_;
    options.add_replica = add_replica_;
    options.remove_replica = remove_replica_;
    options.device = "unused";
    options.pool = folder_ + "/" + pool;
    options.keys = keys_;
    options.journal_size = 256 << 10;
    options.table_capacity = 64;
    options.takeover = true;
    return options;
  }
  Result<std::unique_ptr<Store>> TryOpen(const StoreOptions& options) {
    return OpenSession(
        options,
        [this]() -> Result<std::unique_ptr<rnic::Device>> {
          ++devices_asked_;
          if (no_device_) return Unavailable("the test's RNIC is away");
          slow_device_.wait(true);
          HL_ASSIGN_OR_RETURN(std::unique_ptr<rnic::Device> device, rnic_.OpenDevice("primary"));
          HookedDevice::Hooks hooks{.before_post = before_post_};
          if (before_reading_ != nullptr) hooks.before_connect = std::exchange(before_reading_, {});
          if (before_device_ends_ != nullptr)
            hooks.before_end = std::exchange(before_device_ends_, {});
          device = std::make_unique<HookedDevice>(std::move(device), std::move(hooks));
          return device;
        },
        log_);
  }
  std::unique_ptr<Store> Opened(const StoreOptions& options) {
    auto store = TryOpen(options);
    EXPECT_OK(store);
    return store.ok() ? std::move(store).value() : nullptr;
  }
  std::unique_ptr<Store> Opened(std::chrono::milliseconds connect = std::chrono::seconds(60),
                                std::chrono::milliseconds ack = std::chrono::seconds(60),
                                const std::string& pool = "primary") {
    StoreOptions options = Options(pool);
    options.connect_timeout = connect;
    options.ack_timeout = ack;
    return Opened(options);
  }

  void WithOwner(const std::function<void(std::vector<uint8_t>&)>& use) {
    const std::lock_guard lock(owner_mutex_);
    use(owner_);
  }

  // A taking that is cut at its request number `cut`. False: there are not so many.
  bool TakeCutAt(int cut) {
    auto store = Opened();
    if (store == nullptr) return false;
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

  std::unique_ptr<Store> Taken() { return Taken(Options()); }
  std::unique_ptr<Store> Taken(const StoreOptions& options) {
    auto store = Opened(options);
    if (store == nullptr) return nullptr;
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
  // Why an opening, or the taking after it, is refused.
  Status Refusal(const StoreOptions& options) { return Refusal(options, Request()); }
  Status Refusal(const StoreOptions& options, const TakeRequest& request) {
    const auto store = TryOpen(options);
    if (!store.ok()) return store.status();
    TakeResult result;
    return (*store)->Take(request, &result);
  }

  // A primary with the file "f", which holds "one"; file_ is its id.
  std::unique_ptr<Store> Serving(const StoreOptions& options) {
    auto store = Taken(options);
    if (store == nullptr) return nullptr;
    const auto file = store->Create("f");
    EXPECT_OK(file);
    file_ = file.ok() ? *file : FileId{};
    EXPECT_OK(AppendDurably(*store, file_, "one"));
    return store;
  }
  FileId file_{};
  // Appends again and again until that is acknowledged. What was not may be there, too.
  bool Insist(Store& store, std::string_view data) { return Insist(store, file_, data); }
  bool Insist(Store& store, FileId file, std::string_view data) {
    return Eventually([&] { return AppendDurably(store, file, data).ok(); });
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

  // The primary that attached last cannot look for its standing any more, or can again.
  void Blind() {
    const std::lock_guard lock(owner_mutex_);
    blind_ = owner_;
  }
  void See() {
    const std::lock_guard lock(owner_mutex_);
    blind_.clear();
  }
  bool IsBlind(const std::vector<uint8_t>& owner) {
    const std::lock_guard lock(owner_mutex_);
    return owner == blind_;
  }

  template <class Reply, class Request>
  Reply Ask(size_t replica, const Request& request) {
    const auto endpoint = control::ParseEndpoint(replicas_[replica]->address());
    auto client = control::ControlClient::Connect(*endpoint, control::Trust(), kAnswers);
    EXPECT_OK(client);
    if (!client.ok()) return Reply{};
    auto reply = (*client)->template Call<Reply>(request, kAnswers);
    EXPECT_OK(reply);
    return reply.ok() ? std::move(reply).value() : Reply{};
  }
  // As hyperloopctl does, to the first two replicas.
  void Propose(const control::ProposeRequestT& proposal) {
    for (const size_t i : {0, 1}) Ask<control::DoneT>(i, proposal);
  }
  control::HelloReplyT Hello(size_t replica) {
    return Ask<control::HelloReplyT>(replica, control::HelloRequestT{});
  }
  // What the replica says of itself, read by RDMA.
  NodeStatus StatusOf(size_t replica) {
    const auto device = rnic_.OpenDevice("observer");
    EXPECT_OK(device);
    if (!device.ok()) return {};
    const auto view = NodeView::Connect(**device, "r" + std::to_string(replica));
    EXPECT_OK(view);
    if (!view.ok()) return {};
    auto status = (*view)->ReadStatus();
    EXPECT_OK(status);
    return status.ok() ? std::move(status).value() : NodeStatus();
  }
  // What each replica has promised and installed.
  std::vector<uint64_t> Epochs() {
    std::vector<uint64_t> epochs;
    for (size_t i = 0; i < replicas_.size(); ++i) {
      const auto hello = Hello(i);
      epochs.insert(epochs.end(), {hello.sealed_epoch, hello.installed_epoch, hello.served_epoch});
    }
    return epochs;
  }
  // Whether the owner's heartbeat at this replica moves several times.
  bool HeartbeatMoves(size_t replica = 1) {
    const auto heartbeat = [&] { return Hello(replica).heartbeat; };
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
    const auto hello = Hello(replica);
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

  // Makes a group at rest whose only file fills several extents; returns the file's content.
  std::string FillExtents() {
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
  std::byte& ExtentByte(size_t replica, uint32_t index) {
    const auto region = replicas_[replica]->region();
    const RegionInfo info = ParseSuperblock(region, region.size()).value();
    const FileTable table = FileTable::Load(region, info).value();
    for (const FileEntry& entry : table.slots) {
      if (entry.used) return region[info.geometry.ExtentOffset(entry.extents[index]) + 5];
    }
    ADD_FAILURE() << "no file";
    return region[0];
  }

  // The next taking succeeds, finds this content, and makes all regions equal.
  void ExpectTakenWith(const std::string& content) {
    auto store = Taken();
    ASSERT_NE(store, nullptr);
    EXPECT_TRUE(Content(*store) == content);
    EXPECT_OK(store->Close());
    ExpectEqualRegions();
  }
  void ExpectEqualRegions() {
    for (size_t i = 1; i < replicas_.size(); ++i) {
      const auto first = replicas_[0]->region();
      EXPECT_EQ(FirstDifference(first, replicas_[i]->region(), RangesInUse(first)), std::nullopt)
          << "replica " << i << " differs";
    }
  }

  // The primary's own region, too, once it has closed.
  void ExpectPrimaryEqual(const std::string& pool = "primary") {
    const auto view = NodeView::OpenPool(folder_ + "/" + pool);
    ASSERT_OK(view);
    std::vector<std::byte> own((*view)->region_size());
    ASSERT_OK((*view)->Read(0, own));
    const auto first = replicas_[0]->region();
    EXPECT_EQ(FirstDifference(first, own, RangesInUse(first)), std::nullopt) << "the primary";
  }

  static constexpr uint64_t kRegion = 16 << 20;
  static constexpr std::chrono::seconds kAnswers{120};  // no replica takes that long to answer
  // Nobody waits that long for a second or two, and so long waits who misses his timeout.
  static constexpr std::chrono::minutes kMinute{1};
  std::string folder_;
  softrnic::EmbeddedRnic rnic_;
  std::mutex owner_mutex_;
  std::vector<uint8_t> owner_;         // of the last AttachRequest, guarded by owner_mutex_
  std::vector<uint8_t> blind_;         // see Blind, guarded by owner_mutex_
  std::atomic<uint64_t> compared_{0};  // bytes of which checksums were asked, of all replicas
  std::atomic<int> asked_{0};  // how often somebody without an owner id said hello to replica 0
  std::atomic<int> seals_{0};  // how many SealRequests came to all replicas
  std::atomic<int> requests_{0}, cut_{INT32_MAX};
  std::atomic<Fate> cut_fate_{Fate::kRequestLost};  // of the first one that is cut
  std::atomic<Body> lost_once_{Body::NONE};
  std::atomic<int> until_lost_{0};
  std::atomic<int> devices_asked_{0};  // for the primary
  // Set: the next primary that opens calls it before it connects a member to read its region.
  std::function<void()> before_reading_;
  // Set: it is called before the device that the next primary opens first ends.
  std::function<void()> before_device_ends_;
  HookedDevice::BeforePost before_post_;  // set: of the primaries that open from now on
  std::atomic<bool> no_device_{false};
  std::atomic<bool> slow_device_{false};  // no device is given before it is false again
  // No request of this type is answered before three of them have arrived.
  std::atomic<Body> together_{Body::NONE};
  std::atomic<int> arrived_{0};
  std::atomic<Body> silent_{Body::NONE};  // requests of this type get no answer
  std::atomic<Body> lost_{Body::NONE};    // requests of this type are lost
  std::vector<std::unique_ptr<EmbeddedReplica>> replicas_;
  Pairing pairing_;
  const std::shared_ptr<LogLines> log_ = std::make_shared<LogLines>();
};

}  // namespace hyperloop::test
