// Session: Store over a group of replicas. Taking (session_take.cc), bringing back a group that
// stopped answering (session_recover.cc), serving and closing.
//
// Time limits. Of ack_timeout, an operation may wait for its acknowledgement for one half, and a
// group that did not answer may be brought back in the other: so a call fails only after both.
// While a group is taken, a replica may use connect_timeout for each request that needs no reading
// of its region, and ack_timeout and a second for each 128 MiB for one that does.
//
// Locks: `state_mutex_` is held shared by calls that use the lane and exclusively by those that
// make or end it (Take, Close). The lane has its own mutex below it, under which the group is
// brought back: replicas, device, region key and group are changed then, and looked at by nobody
// else.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "device/device_opener.h"
#include "files/file_lane.h"
#include "files/member_check.h"
#include "hyperloop/core/group.h"
#include "hyperloop/core/log.h"
#include "hyperloop/core/rnic.h"
#include "hyperloop/replication/store.h"
#include "pool/pool.h"
#include "primary/bulk_lane.h"
#include "primary/heartbeat.h"
#include "primary/held_files.h"
#include "primary/replica_handle.h"
#include "primary/take_plan.h"

namespace hyperloop {

class Session {
 public:
  // Checks the options and reads the keys; asks nobody.
  static Result<std::unique_ptr<Session>> Create(StoreOptions options, DeviceOpener open_device,
                                                 std::shared_ptr<Log> log);
  ~Session();

  Status Look();  // Hello to every replica
  Status Take(const TakeRequest& request, TakeResult* result);
  bool taken() const { return taken_.load(std::memory_order_acquire); }
  Status Close();

  // Calls `use` with the lane while nobody makes or ends it. After an error of the group it is
  // brought back first, or the call fails at once.
  template <class Use>
  auto WithLane(Use use) -> decltype(use(std::declval<FileLane&>())) {
    const std::shared_lock lock(state_mutex_);
    if (lane_ == nullptr) return NotServing();
    if (lost_.load(std::memory_order_acquire)) [[unlikely]]
      HL_RETURN_IF_ERROR(Regain());
    auto outcome = use(*lane_);
    if (StatusOf(outcome).ok()) return outcome;
    return Judge(StatusOf(outcome));
  }
  // As Store::Await. Does not bring the group back first: what is durable is so, whatever became of
  // the group since.
  Status Await(AppendTicket ticket);
  // As Store's (session_files.cc).
  Status ListFile(const WholeFile& file);
  Status Remove(std::string_view name);
  Status AwaitFiles();
  Status Fetch(const WholeFile& file, const HeldFiles::Sink& sink);
  BulkLane::Progress bulk_progress();
  // As WithLane, for calls that cannot fail; `otherwise` when there is no lane.
  template <class Use, class Value>
  Value PeekLane(Use use, Value otherwise) {
    const std::shared_lock lock(state_mutex_);
    return lane_ == nullptr ? otherwise : use(*lane_);
  }
  // The primitives of a taken group that holds no files, in place of its lane, which must not be
  // used from then on.
  struct Primitives {
    Group* group = nullptr;
    rnic::Device* device = nullptr;
    uint64_t offset = 0;                     // of the data extents, all of them free
    std::span<std::byte> bytes;              // the same, here
    std::vector<std::string> replica_hosts;  // emulated hosts, in the order of the chain
  };
  // kInvalidArgument: the group holds files.
  Result<Primitives> Lend();
  uint64_t epoch() const { return epoch_.load(std::memory_order_relaxed); }
  // The weakest memory of the members, of the last taking.
  rnic::Media media() const { return media_.load(std::memory_order_relaxed); }
  const StoreOptions& options() const { return options_; }

 private:
  Session(StoreOptions options, DeviceOpener open_device, std::shared_ptr<Log> log)
      : options_(std::move(options)), open_device_(std::move(open_device)), log_(std::move(log)) {}

  static const Status& StatusOf(const Status& status) { return status; }
  template <class T>
  static const Status& StatusOf(const Result<T>& result) {
    return result.status();
  }

  // --- taking; each is one stage of Take, in this order (session_take.cc)
  Result<std::vector<MemberLook>> LookAtAll();
  Status RefuseLivingOwner(const std::vector<MemberLook>& first);
  Status RefuseOwnerBackAgain(const std::vector<MemberLook>& first);
  static Status Held(const MemberLook& living);
  Status JudgeBeforeSealing(const TakeRequest& request, const TakePlan& plan,
                            const std::vector<MemberLook>& looks);
  Status OpenOwnPool(const TakePlan& plan);
  Result<std::vector<MemberContent>> SealAll(const TakePlan& plan,
                                             const std::vector<MemberLook>& looks);
  Status TakeRegion(const TakeRequest& request, const TakePlan& plan,
                    const std::vector<MemberContent>& sealed);
  Status FormatOwn(const TakePlan& plan);
  Result<std::vector<MemberContent>> ExamineAll();
  // A redone image, with bytes that fail their checksum taken from whoever has them sound.
  Status MakeSound(std::span<std::byte> image, const RegionInfo& info,
                   const std::vector<std::string>& members, const MemberFetch& fetch) const;
  Status JudgeContent(const TakeRequest& request, const TakePlan& plan,
                      std::span<const std::byte> image) const;
  Status RememberGroup();
  Status TakeStages(const TakeRequest& request, TakeResult* result);
  Status BindLane(const TakeRequest& request, TakeResult* result);

  // --- for taking and for bringing back
  // kBusy: the replica is not in the state of `seen` any more.
  Result<control::SealReplyT> Seal(ReplicaHandle& replica, const control::HelloReplyT& seen,
                                   const Uuid& group);
  Status AttachAll();
  // The own region as the truth: redone, checked, mended from those members where its bytes are
  // damaged. Sets info_ and log_state_, whose head is still the one before.
  Status RedoOwn(uint64_t known_acked, std::span<ReplicaHandle* const> members);
  // The own region moves its head to its tail, and all members become equal to it.
  Status PushOwn();
  Status InstallAll();
  // Members, queues and lock word over regions that are equal.
  Status ArmGroup();
  std::vector<Heartbeat::Target> HeartbeatTargets() const;

  // --- bringing back (session_recover.cc), under the lane's mutex
  // JournalOptions::recover.
  Result<Recovered> BringBack(const Status& cause, uint64_t acked,
                              std::chrono::nanoseconds patience);
  Result<Recovered> TryBringBack(uint64_t acked, std::chrono::nanoseconds patience);
  Status RestoreOwn(uint64_t acked);
  Judgement LookAtStanding(std::chrono::nanoseconds patience);
  Status SealAnew(uint64_t epoch);
  Status AskToReconnect();
  // Ok, or why the group is known to be gone although no operation says so.
  Status CheckMembers() const;
  Status BecomeFenced(const std::string& why);

  // --- the bulk lane (session_files.cc)
  void StartBulkLane(const TakeRequest& request, const std::vector<FileInfo>& files);
  // Sends files to the replicas as they answered last.
  void AimBulkLane();
  std::vector<BulkConnect> BulkConnections() const;
  // The list of files as the table is now.
  Status UpdateBulkLane();

  // --- serving (session.cc)
  // The processor that the RNIC's daemon is pinned to; −1: none.
  static int PinnedCpu(rnic::Device& device);
  Status MakeLane();
  Status LockGroup();
  void StartHeartbeat();
  void StartTicking();
  std::chrono::milliseconds Tick();
  // Lets go of the members: they may serve the next primary at once, or, if nothing was installed,
  // their former one again.
  Status GiveBack();
  // Takes apart what ArmGroup made, and gives up the access to the members. Heartbeat and own pool
  // stay.
  void DropGroup();
  void Disarm();
  Status NotServing();
  // What a failed call returns: the cause, or kFenced once that is known. Remembers that, and an
  // error of the group.
  Status Judge(const Status& status);
  // After such an error: ok once the group is back. Tries to bring it back, at most once per
  // kRegainInterval.
  Status Regain();
  std::chrono::nanoseconds SlowTimeout(uint64_t region_size) const;
  void Say(LogLevel level, const std::string& text) const;

  const StoreOptions options_;
  const DeviceOpener open_device_;
  const std::shared_ptr<Log> log_;

  std::shared_mutex state_mutex_;  // guards everything down to lane_
  std::vector<std::unique_ptr<ReplicaHandle>> replicas_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<rnic::Device> device_;
  std::unique_ptr<rnic::ProtectionDomain> pd_;
  std::unique_ptr<rnic::MemoryRegion> region_;
  Ownership own_;
  Configuration configuration_;  // of own_.epoch
  RegionInfo info_;
  LogState log_state_;
  std::vector<std::string> replica_hosts_;  // as they said when the group was taken
  std::unique_ptr<Group> group_;
  std::unique_ptr<FileLane> lane_;
  std::unique_ptr<BulkLane> bulk_;  // null: no directory, or not serving
  std::unique_ptr<Heartbeat> heartbeat_;
  std::unique_ptr<PeriodicThread> ticker_;  // the lane's own work; ends before what is above
  bool closed_ = false;

  // Of bringing back: what the members said when they were looked at last but in time.
  std::vector<std::optional<control::HelloReplyT>> looks_before_;
  std::chrono::steady_clock::time_point looked_{};
  bool out_of_reach_ = false;
  std::string lost_to_;  // while out_of_reach_: the first cause

  std::mutex held_mutex_;            // guards held_
  std::unique_ptr<HeldFiles> held_;  // since the taking

  // Held while the table goes to the bulk lane; a lock above state_mutex_.
  std::mutex files_mutex_;

  std::atomic<bool> taken_{false};
  std::atomic<rnic::Media> media_{rnic::Media::kRam};
  std::atomic<uint64_t> epoch_{0};
  std::atomic<bool> closing_{false};
  std::atomic<bool> fenced_{false};
  uint64_t ticked_seq_ = 0;  // ticker_'s thread alone

  std::mutex fence_mutex_;  // guards fence_
  Status fence_;            // why, once fenced_

  // A call failed because of the group, and no call has found it working since. Set with release
  // after loss_ was written; the acquire load of WithLane pairs with it.
  std::atomic<bool> lost_{false};
  std::mutex lost_mutex_;  // guards the rest; held while the group is brought back
  Status loss_;            // what calls get between attempts
  std::chrono::steady_clock::time_point next_attempt_{};
};

}  // namespace hyperloop
