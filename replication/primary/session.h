// Session: the Store over a group of replicas. It takes the group as the machine of
// membership/taking.h decides (session_driver.cc), serves and closes it (session.cc), ships whole
// files (session_files.cc), lets finished files leave the region (session_leaving.cc), keeps the
// group as the machine of membership/keeping.h decides (session_keeping.cc), and finds a way around
// a cut between replicas (session_chain.cc).
//
// Time limits. An operation waits for its acknowledgement for half of ack_timeout. A group that did
// not answer may be brought back in the other half. So a call fails only after both. When a replica
// counts as failed, and when it is left out, FailureTimes says. While a group
// is taken, a replica may use connect_timeout for a request that does not read its region. For one
// that does, it may use ack_timeout and one more second for each 128 MiB of region.
//
// Locks. Calls that use the lane hold `state_mutex_` shared. Calls that make or end the lane (Take,
// Close) hold it exclusively. The lane's own mutex is locked after it. The group is brought back
// under the lane's mutex: replicas, device, region key and group change then, and no other thread
// looks at them.
//
// Forked children. Each call of the Store asks whether it is in one before it touches a lock.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device/device_opener.h"
#include "files/bulk_connection.h"
#include "files/bulk_lane.h"
#include "files/held_files.h"
#include "hyperloop/core/fork_detector.h"
#include "hyperloop/core/group.h"
#include "hyperloop/core/log.h"
#include "hyperloop/core/mutex.h"
#include "hyperloop/core/rnic.h"
#include "hyperloop/metrics/page.h"
#include "hyperloop/replication/inspect.h"
#include "hyperloop/replication/store.h"
#include "inspect/member_check.h"
#include "log/log_lane.h"
#include "membership/choose_member.h"
#include "membership/keeping.h"
#include "membership/take_plan.h"
#include "primary/absent_watch.h"
#include "primary/chain_order.h"
#include "primary/failure_times.h"
#include "primary/heartbeat.h"
#include "primary/leaving.h"
#include "primary/look.h"
#include "primary/metrics_file.h"
#include "primary/own_content.h"
#include "primary/phase_times.h"
#include "primary/replica_handle.h"
#include "region/absences.h"
#include "region/pool.h"

namespace hyperloop {

class Session final : public Store {
 public:
  // Checks the options and reads the keys. Connects to nobody.
  static Result<std::unique_ptr<Session>> Make(StoreOptions options, DeviceOpener open_device,
                                               std::shared_ptr<Log> log);
  ~Session() override;
  // This is what `delete` calls, in place of the destructor. A forked child must neither release
  // the group nor join its parent's threads, so it leaves alone what it inherited.
  void operator delete(Session* session, std::destroying_delete_t);

  // Whether all replicas answer a Hello or, with on_replica_failure=continue, at least one.
  Status Look();
  Status Take(const TakeRequest& request, TakeResult* result) override;
  bool taken() const override { return !InForkedChild() && taken_.load(std::memory_order_acquire); }
  Status Close() override;

  Result<FileId> Create(std::string_view name) override {
    return WithLane([&](LogLane& lane) { return lane.Create(name); });
  }
  Result<FileId> Lookup(std::string_view name) override {
    return WithLane([&](LogLane& lane) { return lane.Lookup(name); });
  }
  Result<AppendTicket> Append(FileId file, std::string_view data, uint64_t end) override {
    return WithLane([&](LogLane& lane) { return lane.Append(file, data, end); });
  }
  // Does not first bring the group back, because a record that is durable stays so, whatever became
  // of the group since.
  Status Await(AppendTicket ticket) override;
  Status Sync() override {
    return WithLane([](LogLane& lane) { return lane.Sync(); });
  }
  Status Truncate(FileId file, uint64_t size) override {
    return WithLane([&](LogLane& lane) { return lane.Truncate(file, size); });
  }
  Result<std::vector<FileInfo>> Files() override {
    return WithLane([](LogLane& lane) { return lane.Files(); });
  }
  Result<uint64_t> Read(FileId file, uint64_t offset, std::span<char> out) override {
    return WithLane([&](LogLane& lane) { return lane.Read(file, offset, out); });
  }
  // session_files.cc
  Status Rename(std::string_view from, std::string_view to) override;
  Status Remove(std::string_view name) override;
  Status ListFile(const WholeFile& file) override;
  Status AwaitFiles(Holders holders) override;
  Status Fetch(const WholeFile& file, const HeldFiles::Sink& sink) override;
  // session_leaving.cc
  void Finish(FileId file) override;

  const StoreOptions& options() const override { return options_; }
  // The weakest memory of all that were members since the last Take, or were about to be.
  rnic::Media media() const override { return media_.load(std::memory_order_relaxed); }
  Statistics statistics() override;

  // The group primitives of a taken group that holds no files.
  struct Primitives {
    Group* group = nullptr;
    rnic::Device* device = nullptr;
    uint64_t offset = 0;         // region offset of the data extents, which are all free
    std::span<std::byte> bytes;  // the data extents in the primary's own region
    std::vector<std::string> replica_hosts;  // emulated hosts, in the order of the chain
  };
  // Gives the primitives to the caller. The lane must not be used from then on. kInvalidArgument:
  // the group holds files.
  Result<Primitives> Lend();

 private:
  Session(StoreOptions options, DeviceOpener open_device, std::shared_ptr<Log> log,
          std::unique_ptr<ForkDetector> fork_detector)
      : options_(std::move(options)),
        open_device_(std::move(open_device)),
        log_(std::move(log)),
        fork_detector_(std::move(fork_detector)) {}

  bool InForkedChild() const { return !fork_detector_->IsOwner(); }
  // kFenced in a forked child.
  Status CheckProcess() const;
  // Calls `use` with the lane, which stays until `use` returns. If a call has lost the group, this
  // first tries to bring it back or, soon after the last attempt, fails at once.
  template <class Use>
  auto WithLane(Use use) -> decltype(use(std::declval<LogLane&>())) {
    HL_RETURN_IF_ERROR(CheckProcess());
    const SharedLock lock(state_mutex_);
    if (lane_ == nullptr) return NotServing();
    if (lost_.load(std::memory_order_acquire)) [[unlikely]]
      HL_RETURN_IF_ERROR(Regain());
    auto outcome = use(*lane_);
    if (StatusOf(outcome).ok()) return outcome;
    return NoteFailure(StatusOf(outcome));
  }
  uint64_t epoch() const { return epoch_.load(std::memory_order_relaxed); }

  // How the group is armed; see choose_datapath.h.
  struct Armed {
    Datapath datapath{};
    WaitMode wait{};
  };

  static const Status& StatusOf(const Status& status) { return status; }
  template <class T>
  static const Status& StatusOf(const Result<T>& result) {
    return result.status();
  }

  // --- taking: what the machine decides, the driver carries out (session_driver.cc), by what is in
  // session_take.cc
  class TakingDriver;
  Result<std::vector<MemberLook>> LookAtMembers();
  // `refused`: set to the replica whose content is what it refuses.
  Status JudgeBeforeSealing(const TakeRequest& request, const TakePlan& plan,
                            const std::vector<MemberLook>& looks, std::optional<size_t>* refused);
  // Whether the own region stands in.
  using OwnJudge = std::function<Result<bool>(std::span<const std::byte> own)>;
  using Views = std::function<Result<std::unique_ptr<NodeView>>(size_t member)>;
  Result<std::unique_ptr<Pool>> JudgeOwnPool(const OwnJudge& judge) const;
  // A copy of the own pool, redone, if its log is the best one of the members, which ends at
  // `last_seq`. Null: it is another one, or cannot be read.
  std::unique_ptr<Pool> OwnLikeBest(const TakePlan& plan, uint64_t last_seq) const;
  // Both set stands_in_for_, if the own pool stands in.
  Result<std::unique_ptr<Pool>> JudgeOwnBeside(const TakePlan& plan, const BestLog& best);
  Result<std::unique_ptr<Pool>> JudgeOwnInstead(const TakePlan& plan, const Status& refused,
                                                const std::vector<MemberContent>& members,
                                                const Views& views,
                                                const std::vector<MemberLook>& looks);
  // `whose`: who holds the region, for messages.
  using ContentCheck =
      std::function<Status(std::span<const std::byte> region, const std::string& whose)>;
  Status JudgeWithoutJoiners(const TakePlan& plan, const std::vector<MemberContent>& members,
                             const Views& views, const std::vector<MemberLook>& looks,
                             const ContentCheck& check_others);
  // Checks that a member is as it was `seen`. kBusy: another primary has moved it since.
  Status CheckUnmoved(size_t member, const control::HelloReplyT& seen) const;
  void NoteAcked(std::span<const MemberContent> members);
  // Checks that the log of this region has all that was known in earlier attempts of the taking to
  // be acknowledged.
  Status CheckReaches(std::span<const std::byte> image) const;
  Result<RegionGeometry> GeometryFor(uint64_t region_size) const;
  Result<std::vector<MemberContent>> ExamineAll();
  // Mends a redone image: takes bytes that fail their checksum from a member that has them sound.
  Status MakeSound(std::span<std::byte> image, const RegionInfo& info,
                   const std::vector<std::string>& names, const MendSources& sources) const;
  Status JudgeContent(const TakeRequest& request, const TakePlan& plan,
                      std::span<const std::byte> image) const;
  Status RememberGroup();
  // Lowers media() to what a member with this medium promises. True: it did.
  bool LowerMedia(const std::string& name);
  void NoteHostsAndMedia(const std::vector<MemberLook>& looks);
  // Sets absences_: what the members that leave a replica out know of it, or what is known now.
  void NoteAbsences(const TakePlan& plan, const std::vector<MemberLook>& looks,
                    const std::vector<MissingReplica>& missing);
  void SayUnreleased(const std::vector<MemberLook>& looks) const;
  Status TakeStages(const TakeRequest& request, TakeResult* result);
  // Notes which replicas failed in the attempt that failed with this error. True: another attempt
  // without them may succeed.
  bool NoteFailedInTaking(const Status& status);
  Status BindLane(const TakeRequest& request, TakeResult* result);

  // --- for taking and for bringing back
  // Seals own_.epoch at a replica. kBusy: the replica is no longer in the state of `seen`.
  Result<control::SealReplyT> Seal(ReplicaHandle& replica, const control::HelloReplyT& seen,
                                   const Uuid& group);
  Status AttachAll();
  // Redoes and checks the own region, and mends damaged bytes from `members`; `equal`: as
  // MendSources. Sets info_ and log_state_. The log's head has not moved yet.
  Status RedoOwn(uint64_t known_acked, std::span<ReplicaHandle* const> members, size_t equal);
  FailureRules Rules() const { return RulesOf(options_); }
  std::vector<ReplicaHandle*> HandlesOf(const std::vector<Configuration::Replica>& replicas) const;
  bool IsMember(const ReplicaHandle& replica) const;
  // Makes all members equal to the own region, which is redone. `cut`: as CutLogs; empty: none is.
  Status PushOwn(std::vector<bool> cut = {});
  // Installs `next`, whose replicas are the members, at all of them. `lasting`: even if this owner
  // never serves.
  Status InstallAll(Configuration next, bool lasting = false);
  std::vector<uint64_t> RnicsOfMembers() const;
  // By the options, or by what members and processors there are now. What is new is logged.
  Armed ChooseHowToArm();
  // Makes members and queues, and locks the lock word. All regions must be equal.
  Status ArmGroup();
  // The members in the order in which they form a chain. kUnavailable: they form none, and one of
  // them is made suspect (session_chain.cc).
  Result<std::vector<ReplicaHandle*>> ChainToArm();
  // These bytes were sent down the chain, and no acknowledgement came in time. If they arrived at
  // some of its members only, and the primary itself reaches all of them, notes which way between
  // two of them is cut.
  void NoteCutWay(uint64_t offset, std::span<const std::byte> sent);
  // The same, for the first record behind `acked`.
  void NoteCutWay(uint64_t acked);
  // `attached`: the members' memory can be reached.
  std::vector<Heartbeat::Target> HeartbeatTargets(bool attached) const;

  // --- bringing back, under the lane's mutex: what the machine decides, the driver carries out
  // (session_keeping.cc), by what is in session_recover.cc
  class KeepingDriver;
  // This is JournalOptions::recover.
  Result<Recovered> BringBack(const Status& cause, uint64_t acked,
                              std::chrono::nanoseconds patience);
  // Makes errors retryable that come from a member's answer.
  static Status Retryable(const Status& status);
  bool OwnRnicFailed() const;
  // Opens device_ anew.
  Status OpenOwnDevice();
  // Whether this node has been without an RNIC for ack_timeout. It then no longer shows the
  // replicas that it lives: another node may take the group from a primary that cannot serve.
  bool IsMute() const;
  // `sources`: members that may give sound bytes for damaged ones.
  Status RestoreOwn(uint64_t acked, std::span<ReplicaHandle* const> sources);
  // As AbsentWatch::Options::few_hold.
  bool FewHold(size_t of) const;
  ReplicaHandle* HandleAt(const std::string& address) const;
  keeping::Offers OffersNow() const;
  // Fails once the watch offers a replica, or a member has been silent for heartbeat_timeout. Group
  // operations then end, and the group is brought back with the one or without the other.
  Status CheckForChange() const;
  void WatchAbsent();
  // Whether the RNIC of a replica that is to be taken in, and the others that it would exchange
  // operations with, reach each other, and its journal can be read. Notes what that proves in
  // proofs_. Uses a device of its own, and not the lane's mutex: reading a large journal takes
  // seconds.
  Status TryWay(const control::Trust& trust, const Answered& joiner,
                const std::vector<Answered>& members);
  // The same of the way from here alone.
  Status TryOwnWay(rnic::Device& device, const Answered& joiner);
  Result<HeldProof> ReadHeld(NodeView& view) const;
  // CheckNothingBehind and CheckReplaceable of what a replica holds, before a taking.
  Status CheckDropsNothing(const std::string& replica, NodeView& view,
                           std::span<const std::byte> region, const std::string& whose,
                           HeldBy by) const;
  // Gives an absence that the members know another reason; an empty one begins now.
  static void Reword(const std::string& why, std::string* absence);
  // CheckReplaceable of what a replica that is to be taken in proved to TryWay, if its answer shows
  // that nobody can have written to it since. A refusal lasts.
  Status JudgeHeld(const ReplicaHandle& joiner, const control::HelloReplyT& hello);
  // The same, of a member that went back to an older copy of its pool (WentBack). kUnavailable:
  // what it holds must not be overwritten; it counts as missing then (put_back_).
  Status JudgePutBack(const ReplicaHandle& member, const control::HelloReplyT& hello);
  // Why that is so of a member that gave this answer; empty: it is not.
  std::string WhyPutBack(const ReplicaHandle& member, const control::HelloReplyT& now);
  Status SealAnew(uint64_t epoch);
  Status AskToReconnect();
  // Returns why the group is known to be gone, even if no operation has failed yet; ok: it is not.
  Status CheckMembers() const;
  Status BecomeFenced(const std::string& why);

  // --- the bulk lane (session_files.cc)
  // `joiners`: members that must first be sent the files of the database.
  void StartBulkLane(const TakeRequest& request, const std::vector<FileInfo>& files,
                     std::span<ReplicaHandle* const> joiners);
  // Sends files to the replicas as they answered last.
  void AimBulkLane(std::span<ReplicaHandle* const> joiners);
  BulkConnect BulkConnectionOf(const ReplicaHandle& replica) const;
  std::vector<BulkConnect> BulkConnections() const;
  // The list of files as the table is now.
  Status UpdateBulkLane();

  // --- finished files leave the region (session_leaving.cc), on leaver_'s thread
  void StartLeaving(const TakeRequest& request);
  void StopLeaving();
  std::chrono::milliseconds LetFilesLeave();
  // `*chosen`: the file that left or, after an error, that was to leave; 0: there is none.
  Status LetOneLeave(FileId* chosen);
  Result<std::optional<FileInfo>> ChooseLeaving();
  // Makes the directory's file durable. One that differs from `whole`, which Describe gave, is
  // mended from the region.
  Status Settle(FileId id, const WholeFile& whole);
  Status ReadWhole(FileId id, const WholeFile& whole, const HeldFiles::Sink& sink);
  // Tells the bulk lane which file is leaving; nothing: none is any more.
  Status SetLeaving(std::optional<std::pair<FileId, WholeFile>> file);
  // When the table was passed on: these are its files.
  void UpdateLeavingLocked(const std::vector<FileInfo>& files) HL_REQUIRES(files_mutex_);

  // --- serving (session.cc)
  // The processor that the RNIC's daemon is pinned to; −1: none.
  static int PinnedCpu(rnic::Device& device);
  Status MakeLane(const TakeRequest& request);
  Status LockGroup();
  void StartHeartbeat();
  void StartTicking();
  std::chrono::milliseconds Tick();
  // Releases the members. They may then serve the next primary at once or, if this one never wrote
  // a record under its epoch, the former one again.
  Status GiveBack(bool never_served);
  // The machine's last step: the members are released, unless this primary is fenced.
  Status LetGo();
  // Destroys what ArmGroup made, the access to the members and the device. Heartbeat and own pool
  // stay.
  void DropGroup();
  // Ends what has threads of its own, but the lane. A question of the watch may go on.
  void EndThreads();
  // DropGroup, and ends the threads, the watch and the lane.
  void Disarm();
  // --- what is shown of the group (session_metrics.cc)
  // Notes which replicas are members.
  void NotePresent();
  std::map<std::string, bool> Present() const;
  void StartMetrics();
  // Needs no lock.
  std::string MetricsPage(const std::string& group) const;
  void AddReplicas(const metrics::Label& group, metrics::Page* page) const;
  // The error of a call that finds no lane.
  Status NotServing() HL_REQUIRES_SHARED(state_mutex_);
  // Remembers that the group is lost, if `status` is an error of the group. Returns the error that
  // the caller gets for it: kFenced once this store is fenced.
  Status NoteFailure(const Status& status);
  // Ok once a lost group is back. Tries to bring it back, at most once in kRegainInterval.
  Status Regain();
  std::chrono::nanoseconds SlowTimeout(uint64_t region_size) const;
  void Say(LogLevel level, const std::string& text) const;

  const StoreOptions options_;
  const FailureTimes failure_times_ = FailureTimesOf(options_);
  const DeviceOpener open_device_;
  const std::shared_ptr<Log> log_;
  const std::unique_ptr<ForkDetector> fork_detector_;

  // Guards everything down to closed_, except what changes under the lane's mutex (see above).
  SharedMutex state_mutex_;
  // Those of the options, then those that were proposed since.
  std::vector<std::unique_ptr<ReplicaHandle>> replicas_;
  // Those of them that serve, in the order of the chain: configuration_'s or, while members change,
  // those of the next configuration.
  std::vector<ReplicaHandle*> members_;
  // Those in the order in which they are armed; empty: they are not, or form no chain.
  std::vector<ReplicaHandle*> chain_;
  CutWays cut_ways_{options_.replicas.size(), options_.ack_timeout};
  bool found_cut_ = false;  // one was noted since somebody looked
  std::string cut_off_;     // the address of the later replica of the way that was noted last
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<rnic::Device> device_;
  // Since when no device can be opened; nothing: one could.
  std::optional<std::chrono::steady_clock::time_point> without_device_since_;
  std::unique_ptr<rnic::ProtectionDomain> pd_;
  std::unique_ptr<rnic::MemoryRegion> region_;
  Ownership own_;
  Configuration configuration_;  // of own_.epoch
  KnownOwners known_owners_;
  Absences absences_;  // of its absent replicas, perhaps of others that were once absent
  RegionInfo info_;
  LogState log_state_;
  std::vector<std::string> replica_hosts_;  // as they said when the group was taken
  std::unique_ptr<Group> group_;
  std::shared_ptr<Decisions> decisions_;  // as TakeRequest's
  std::unique_ptr<LogLane> lane_;
  CallLimit bulk_limit_{options_.ack_timeout};  // of the calls for files
  std::unique_ptr<BulkLane> bulk_;              // null: no directory, or not serving
  std::unique_ptr<Heartbeat> heartbeat_;
  std::unique_ptr<AbsentWatch> absent_watch_;
  std::unique_ptr<PeriodicThread> ticker_;  // does the lane's own work; ends before what is above
  std::unique_ptr<MetricsFile> metrics_file_;  // null: none is written; ends before the lane
  bool closed_ HL_GUARDED_BY(state_mutex_) = false;
  bool only_prepares_ = false;           // as TakeRequest's
  PhaseTimes times_;                     // of the taking
  bool refused_though_all_run_ = false;  // the taking, by what all replicas say of themselves
  // Set: the own pool was judged to have what all members lost, whose logs ended there.
  std::optional<LogsEnd> stands_in_for_;
  // Replicas that failed or were refused in earlier attempts of the taking, by address, and why.
  std::map<std::string, std::string> failed_in_taking_;
  // The last record that a member, or one that joins, proved to be acknowledged, in any attempt of
  // the taking, and which one.
  struct KnownAcked {
    uint64_t seq = 0;
    std::string says;
  };
  KnownAcked known_acked_;
  // What was read of the best member before it was sealed, redone, until the taking has used it.
  std::optional<RegionImage> seen_;

  // Under the lane's mutex; nothing before the first record of the epoch.
  std::optional<keeping::Keeping> keeping_;
  std::atomic<bool> out_of_reach_{false};

  // What the journal of a replica proves that is absent, or new, and its answer before it was read.
  struct Held {
    control::HelloReplyT seen;
    HeldProof proof;
  };
  // A member that must not be overwritten, its answer, and why.
  struct PutBack {
    control::HelloReplyT seen;
    std::string why;
  };
  Mutex proofs_mutex_;
  std::map<std::string, Held> proofs_ HL_GUARDED_BY(proofs_mutex_);       // by address
  std::map<std::string, PutBack> put_back_ HL_GUARDED_BY(proofs_mutex_);  // by address

  Mutex held_mutex_;
  std::unique_ptr<HeldFiles> held_ HL_GUARDED_BY(held_mutex_);  // since the taking

  // Held while the table is passed on to the bulk lane. It is locked before state_mutex_.
  Mutex files_mutex_;
  // The file that is leaving the region.
  std::optional<std::pair<FileId, WholeFile>> leaving_ HL_GUARDED_BY(files_mutex_);
  bool leaving_ended_ HL_GUARDED_BY(files_mutex_) = false;

  Mutex finished_mutex_;  // locked after leaver_mutex_
  // Files of the log lane that get no more bytes.
  std::set<FileId> finished_ HL_GUARDED_BY(finished_mutex_);
  // So many of them make the leaver look which of them are gone.
  size_t forget_at_ HL_GUARDED_BY(finished_mutex_) = 0;
  // Used by leaver_'s thread only: how local files are settled, and which files could not leave.
  std::function<Result<WholeFile>(const std::string& name)> settle_;
  MendWhole mend_local_;  // as TakeRequest's
  LeavingRefusals refusals_;
  Mutex leaver_mutex_;
  // Locks state_mutex_; ends before Close locks it.
  std::unique_ptr<PeriodicThread> leaver_ HL_GUARDED_BY(leaver_mutex_);

  std::atomic<bool> taken_{false};
  std::atomic<rnic::Media> media_{rnic::Media::kRam};
  std::atomic<uint64_t> epoch_{0};
  // How the group is armed, or was last.
  std::atomic<std::optional<Datapath>> armed_{std::nullopt};
  std::atomic<std::optional<WaitMode>> armed_wait_{std::nullopt};
  std::atomic<bool> closing_{false};
  std::atomic<bool> ending_{false};  // from the beginning of Close: nobody is taken in any more
  std::atomic<bool> fenced_{false};
  uint64_t ticked_seq_ = 0;  // used by ticker_'s thread only
  // For metrics: each replica of the configuration, and whether it is a member.
  mutable Mutex present_mutex_;
  std::map<std::string, bool> present_ HL_GUARDED_BY(present_mutex_);
  std::atomic<uint64_t> failed_calls_{0}, recoveries_{0};

  Mutex fence_mutex_;
  Status fence_ HL_GUARDED_BY(fence_mutex_);  // why, once fenced_

  // A call failed because of the group, and no call has found it working since. Set with release
  // after loss_ was written; the acquire load of WithLane pairs with it.
  std::atomic<bool> lost_{false};
  Mutex lost_mutex_;                        // held while Regain brings the group back
  Status loss_ HL_GUARDED_BY(lost_mutex_);  // what calls return between two attempts
  std::chrono::steady_clock::time_point next_attempt_ HL_GUARDED_BY(lost_mutex_){};
};

// As Store::Open, but with another way to open the device, for tests with an embedded RNIC.
Result<std::unique_ptr<Store>> OpenSession(const StoreOptions& options, DeviceOpener open_device,
                                           std::shared_ptr<Log> log);

}  // namespace hyperloop
