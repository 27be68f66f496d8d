// Session: Store over a group of replicas. Taking, serving, reconnecting, closing.
//
// Locks: `state_mutex_` is held shared by calls that use the lane and exclusively by those that
// make or end it (Take, Reconnect, Close). The lane has its own mutex below it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "files/file_lane.h"
#include "hyperloop/core/group.h"
#include "hyperloop/core/log.h"
#include "hyperloop/core/rnic.h"
#include "hyperloop/replication/store.h"
#include "link/device_opener.h"
#include "pool/pool.h"
#include "primary/fork_guard.h"
#include "primary/heartbeat.h"
#include "primary/peer.h"
#include "primary/take_plan.h"

namespace hyperloop {

class Session {
 public:
  Session(StoreOptions options, std::vector<control::Endpoint> endpoints, DeviceOpener open_device,
          std::shared_ptr<Log> log);
  ~Session();

  Status Look();  // Hello to every replica
  Status Take(const TakeRequest& request, TakeResult* result);
  bool taken() const { return taken_.load(std::memory_order_acquire); }
  Status Reconnect();
  Status Close();

  // Calls `use` with the lane while nobody makes or ends it. A lane that broke answers at once with
  // why.
  template <class Use>
  auto WithLane(Use use) -> decltype(use(std::declval<FileLane&>())) {
    const std::shared_lock lock(state_mutex_);
    if (lane_ == nullptr) return NotServing();
    auto outcome = use(*lane_);
    if (StatusOf(outcome).ok()) return outcome;
    return Judge(StatusOf(outcome));
  }
  // As that, for calls that cannot fail; `otherwise` when there is no lane.
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
  const StoreOptions& options() const { return options_; }

 private:
  static const Status& StatusOf(const Status& status) { return status; }
  template <class T>
  static const Status& StatusOf(const Result<T>& result) {
    return result.status();
  }

  // --- taking; each is one stage of Take, in this order (session_take.cc)
  Result<std::vector<MemberLook>> LookAtAll();
  Status RefuseLivingOwner(const std::vector<MemberLook>& first);
  Status CheckBeforeSealing(const TakeRequest& request, const TakePlan& plan,
                            const std::vector<MemberLook>& looks);
  Status OpenOwnPool(const TakePlan& plan);
  Result<Choice> SealAll(const TakePlan& plan);
  Status AttachAll();
  Status FormatOwn(const TakePlan& plan);
  // Redo in the own region, equalise all members, head moved. Sets info_ and log_state_.
  Status MakeEqual(uint64_t known_acked);
  Status CheckOwnRegion(const TakeRequest& request) const;
  Status InstallAll(const std::vector<MemberLook>& looks);
  Status RememberGroup();
  Status TakeStages(const TakeRequest& request, TakeResult* result);
  Status BindLane(const TakeRequest& request, TakeResult* result);

  // --- serving (session_serve.cc)
  // Members, group and lane over regions that are equal.
  Status Arm();
  Status LockGroup();
  void StartHeartbeat(bool with_lane);
  std::chrono::milliseconds Tick();
  Status ReconnectLocked();
  // Takes apart what Arm made, and the links. The own pool stays.
  void Disarm();
  Status NotServing();
  // What a failed call returns: the cause, or kFenced when a member serves a newer epoch.
  Status Judge(const Status& status);
  // Asks the members, at most every kDiagnosisInterval.
  void Diagnose();
  void Say(LogLevel level, const std::string& text) const;

  const StoreOptions options_;
  const DeviceOpener open_device_;
  const std::shared_ptr<Log> log_;

  std::shared_mutex state_mutex_;  // guards everything down to lane_
  std::vector<std::unique_ptr<Peer>> peers_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<rnic::Device> device_;
  std::unique_ptr<rnic::ProtectionDomain> pd_;
  std::unique_ptr<rnic::MemoryRegion> region_;
  Ownership own_;
  RegionInfo info_;
  LogState log_state_;
  Configuration configuration_;             // of own_.epoch
  std::vector<std::string> replica_hosts_;  // as they said when the group was taken
  std::unique_ptr<Group> group_;
  std::unique_ptr<FileLane> lane_;
  std::unique_ptr<Heartbeat> heartbeat_;
  bool closed_ = false;

  std::atomic<bool> taken_{false};
  std::atomic<uint64_t> epoch_{0};
  std::atomic<bool> fenced_{false};
  std::atomic<bool> broken_{false};  // some call failed with an error of the group
  uint64_t ticked_seq_ = 0;          // heartbeat thread alone

  std::mutex diagnosis_mutex_;  // guards the rest
  std::chrono::steady_clock::time_point diagnosed_{};
  Status fence_;  // why, once fenced_
};

}  // namespace hyperloop
