// Heartbeat: a thread that moves the heartbeat word of every member each 100 ms by RDMA WRITE, so
// that others see that the owner lives without asking any replica's CPU. Before a member's
// RemoteAccess is destroyed, SetTargets takes it away from the thread. Each member is also told of
// the primary's own damaged files, by a write in the place of one beat. The next write is a beat.
//
// A primary lives even while its RNIC stands still. So as long as a write to a member is not
// completed, that member is told by messages, on a thread of its own: one that does not answer
// delays nobody else's.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/periodic_thread.h"
#include "hyperloop/core/mutex.h"
#include "primary/replica_handle.h"
#include "region/region_layout.h"

namespace hyperloop {

class Heartbeat {
 public:
  static constexpr std::chrono::milliseconds kInterval{100};

  struct Target {
    // Outlives the heartbeat, or is first removed from the targets. Null: the word is out of reach.
    RemoteAccess* access = nullptr;
    RemoteMemory word;  // the bytes that the owner may write, or the heartbeat word alone
    // Sends the member a message that its owner lives. Called on a thread that may wait, one call
    // at a time, perhaps once more after the target has been removed. Null: it is not told.
    std::function<void()> tell;
    std::string name = {};  // of the member
  };
  // `avoid_cpu` as PeriodicThread's: a living primary whose thread is starved would look dead.
  Heartbeat(std::vector<Target> targets, int avoid_cpu);
  // Waits for the messages that are under way.
  ~Heartbeat() { ending_ = true; }

  // Once this has returned, nothing is written to the former targets. It does not wait for the
  // network.
  void SetTargets(std::vector<Target> targets);
  // What the members are told of damaged files, for people (ReadOwnerDamage); empty at first.
  void SetDamage(std::string_view text);
  // What the members are told from the next beat on (MakeOwnerAcked); 0 at first.
  void SetAcked(uint64_t word) { acked_.store(word, std::memory_order_relaxed); }
  // Whether a target's RemoteAccess has failed: its replica, or the way to it, is gone.
  bool lost() const { return lost_.load(std::memory_order_relaxed); }
  // The name of the first such target; empty while lost() is false.
  std::string lost_name();
  using Clock = std::chrono::steady_clock;
  // A moment at which every target whose word is in reach had taken all that was written to it
  // before.
  Clock::time_point all_heard();

 private:
  struct Member {
    Target target;
    bool missed = false;        // the last beat's write could not begin
    Clock::time_point heard{};  // when a write began last, and all before had arrived
    bool beaten = false;        // the last write was that of the word
    bool told = false;          // of damage_
  };
  static std::vector<Member> MembersOf(std::vector<Target> targets);
  void Beat();
  // Starts one write to the member.
  Status StartLocked(Member& member) HL_REQUIRES(members_mutex_);
  // Tells the member at this place, if its last beat could not begin.
  void Tell(size_t place);
  // Makes that happen soon; on thread_.
  void WakeTeller(size_t place) HL_REQUIRES(members_mutex_);

  Mutex members_mutex_;
  std::vector<Member> members_ HL_GUARDED_BY(members_mutex_);
  std::string lost_name_ HL_GUARDED_BY(members_mutex_);
  OwnerDamage damage_ HL_GUARDED_BY(members_mutex_){};
  std::atomic<bool> lost_{false};
  std::atomic<uint64_t> acked_{0};
  std::atomic<bool> ending_{false};
  uint64_t word_ = 0;  // used by thread_ only
  const int avoid_cpu_;
  // These use the members above. thread_ makes and wakes the tellers, one for each place at which a
  // member has missed a beat.
  std::vector<std::unique_ptr<PeriodicThread>> tellers_;
  PeriodicThread thread_;
};

}  // namespace hyperloop
