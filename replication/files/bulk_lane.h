// BulkLane: ships the finished files of a database directory to every replica (SST, blob, OPTIONS,
// IDENTITY). It has one thread for each replica, which makes what the replica holds equal to what
// is listed, and which yields the processor to threads that commit.
//
// As soon as a file is listed, it is sent from the local directory, a piece at a time. Files that
// are not listed any more are dropped at the replica. What has arrived of a file is not sent again.
//
// Each connection begins with the list of what the replica holds. That list, and what was sent over
// the connection, is all that the lane knows of the replica. After SetTargets, and after any error,
// the lane forgets it and asks the replica again. A lane that has nothing to send asks again from
// time to time, because a replica sets files aside that it finds damaged.
//
// A replica that cannot be reached, or has no room, is tried again until the lane ends. So is a
// file that cannot be sent or dropped, because the local file is damaged for instance; it holds up
// no other file, and is tried again after a pause when nothing else is to do. Bytes that are sent
// once more are no progress. If the local file may be the cause, it is first mended (LocalMender).
//
// Await waits for the replicas that have caught up (docs/glossary.md). If fewer than half of all
// have, it waits for the others too. So at least half hold each file for which it has waited, and
// any majority of the replicas has one that holds it. A replica has to catch up again if it says
// that it can take no files, or not one that is waited for, because its disk is full or fails, and
// more than half of all have caught up and hold them. So has one that takes them too slowly, and
// far more slowly than each of those did (transfer_pace.h): if all are slow, the cause may be here.
//
// Besides the listed files there are those that are leaving the region: they are still in the log
// lane, and are to be listed once the replicas hold them. They and the listed ones are sent in
// turn, a file at a time. They are not dropped, and Await does not wait for them. All methods are
// thread safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/periodic_thread.h"
#include "files/bulk_target.h"
#include "files/local_mender.h"
#include "files/transfer_pace.h"
#include "hyperloop/core/log.h"
#include "hyperloop/core/mutex.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/store.h"
#include "hyperloop/replication/whole_file.h"

namespace hyperloop {

class BulkLane {
 public:
  using ReadLocal = LocalMender::ReadLocal;
  struct Options {
    size_t piece = 256u << 10;                     // the most bytes that are sent at once
    int avoid_cpu = -1;                            // as in PeriodicThread
    std::chrono::milliseconds list_again{60'000};  // an idle lane asks so often what is held
    // As LocalMender's. Without mend_local nothing is read again or mended.
    std::chrono::milliseconds scrub_tick{1000};
    MendWhole mend_local = nullptr;
    std::function<void(const std::string& damage)> tell_damage = nullptr;
    // By which replicas are slow.
    std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
  };

  // `names`: the replicas' names, for messages. Nothing is sent before SetTargets.
  BulkLane(std::vector<std::string> names, ReadLocal read_local, Options options,
           std::shared_ptr<Log> log);
  // Ends the threads. Each finishes its present step first: it connects and asks for the list, or
  // sends or drops a piece.
  ~BulkLane();

  struct Target {
    BulkConnect connect;  // null: the replica is left out
    // The replica does not count now. Nor does one that was left out before, and one that, when it
    // is asked for the first time, lacks files which were listed at the first SetTargets.
    bool catches_up = false;
  };
  // Adds a replica, which has no target yet.
  void Add(std::string name);
  size_t size() const;  // how many replicas it has
  // Tells how the replicas are reached from now on, one target for each name and in their order,
  // and that the group has `of` replicas, absent ones among them. Half and majority are of these.
  // The lane may have more, whose addition was taken back; those are left out.
  void SetTargets(std::vector<Target> targets, size_t of);
  // Makes `files` the list.
  void Set(const std::vector<WholeFile>& files);
  static constexpr std::chrono::nanoseconds kNoLimit = std::chrono::nanoseconds::max();
  // Waits until every replica that has caught up holds each file that is listed now, but for files
  // that are taken off the list meanwhile. If few hold, it waits for those that catch up too. It
  // never waits for one that is left out. With a `limit`, as for a lane that is about to end, it
  // waits for none that says that it can take no files.
  // kUnavailable: a replica took no whole piece, and no end of a file, for `timeout`, or at least
  // half of them refuse files because this primary was fenced, or `limit` has passed, or Interrupt
  // was called. The message names the replica and the cause.
  Status Await(std::chrono::nanoseconds timeout, std::chrono::nanoseconds limit = kNoLimit,
               Holders holders = Holders::kCaughtUp);
  // Says which files are leaving the region from now on. One that is listed may be among them.
  void SetLeaving(const std::vector<WholeFile>& files);
  // As Await, for one file that is leaving, or that was until now. Ok also if it is neither leaving
  // nor listed any more. `interrupts`: what interrupts() said; kUnavailable if Interrupt was called
  // since then.
  Status AwaitLeaving(const WholeFile& file, std::chrono::nanoseconds timeout, uint64_t interrupts);
  // Makes the calls of Await that are under way fail.
  void Interrupt();
  uint64_t interrupts() const;  // how often Interrupt was called
  // Whether fewer than half of `of` replicas count and have said what they hold.
  bool FewCount(size_t of) const;
  size_t damaged() const;  // as LocalMender's
  // What a replica is not known to hold of the files that are listed.
  struct Standing {
    std::string name;
    uint64_t files = 0;
    uint64_t bytes = 0;
    bool holds = false;  // it has caught up, and has said what it holds
    bool slow = false;   // it has to catch up because it takes files too slowly
  };
  std::vector<Standing> Standings() const;

 private:
  using Clock = std::chrono::steady_clock;

  // A file that could not be sent or dropped, although the replica answers.
  struct Refusal {
    Status why;
    bool local = false;    // the local file may be the cause
    bool suspect = false;  // so it is, and it has not been found sound since
    bool cleared = false;  // the local file has been found sound since the first refusal
    uint32_t times = 0;
    Clock::time_point again{};  // when it is tried again
  };
  struct Replica {
    std::string name;
    // Only the replica's thread uses these.
    std::unique_ptr<BulkTarget> target;
    uint64_t generation = 0;  // of the targets that `target` was made from
    std::vector<char> buffer;
    bool yields = false;        // to threads that commit
    Clock::time_point asked{};  // when it was last asked for its list
    bool local_fault = false;   // the last step failed because of the local file
    bool progressed = false;    // the last step took more than was ever taken of its file
    bool dropped = false;       // the last step dropped a file
    uint64_t taken = 0;         // bytes since `moved`
    TransferPace pace;
    // mutex_ guards these.
    BulkConnect connect;
    bool caught_up = true;
    bool compared = false;                   // its first list was, with first_
    bool known = false;                      // `held` and `received` are what the replica holds
    std::set<WholeFile> held;                // finished files
    std::map<WholeFile, uint64_t> received;  // bytes of unfinished files
    std::map<WholeFile, uint64_t> reached;   // the most that it ever had of each
    std::map<WholeFile, Refusal> refused;    // none of them is listed and held
    std::optional<WholeFile> sending;        // the file that was sent last and is unfinished
    bool leaving_next = false;               // files that leave have the next turn
    Status error;                            // of the last step; ok again once it made progress
    uint32_t failures = 0;                   // since it last made progress
    // When it last had taken a whole piece of bytes that it never had before, or a file's end.
    Clock::time_point moved{};
    bool slow = false;  // as its pace, since it held all files last, and those that leave
    double rate = TransferPace().rate();  // as its pace's
    std::unique_ptr<PeriodicThread> thread;
  };
  enum class Action : uint8_t { kNone, kConnect, kDrop, kName, kSend, kList };
  struct Step {
    Action action = Action::kNone;
    WholeFile file;
    uint64_t offset = 0;
    BulkConnect connect;
    bool suspect = false;               // as in Refusal
    std::chrono::milliseconds pause{};  // until the next step, if there is nothing to do now
  };

  // Does one step of a replica's thread. Returns the pause until the next one.
  std::chrono::milliseconds Work(Replica& replica);
  Step NextStep(Replica& replica);
  // The next of these that is to be dropped or sent; kNone: there is nothing to do before `pause`.
  Step NextDropLocked(Replica& replica) const HL_REQUIRES(mutex_);
  Step NextSendLocked(const Replica& replica) const HL_REQUIRES(mutex_);
  // The file that is sent next; null: there is none now.
  const WholeFile* NextFileLocked(const Replica& replica) const HL_REQUIRES(mutex_);
  // The first of `files` that the replica lacks and did not refuse; else the first that is to be
  // tried again; null: none.
  static const WholeFile* FirstLackingLocked(const Replica& replica,
                                             const std::map<std::string, WholeFile>& files);
  // Notes that the file of this step cannot be sent or dropped now.
  void RefuseLocked(Replica& replica, const Step& step, const Status& why) HL_REQUIRES(mutex_);
  // The refusal of one of these files, if there is one that the replica's disk causes; else of
  // another of them. Null: none is refused.
  const Refusal* RefusalLocked(const Replica& replica, const std::vector<WholeFile>& files) const
      HL_REQUIRES(mutex_);
  // What the replica said if it can take no files, or not one of these; ok: it said no such thing.
  Status TakesNoneLocked(const Replica& replica, const std::vector<WholeFile>& files) const
      HL_REQUIRES(mutex_);
  // Why the replica takes no bytes of these files, and the way out, for messages.
  std::string WhyNotLocked(const Replica& replica, const std::vector<WholeFile>& files) const
      HL_REQUIRES(mutex_);
  Status Do(Replica& replica, const Step& step);
  Status Connect(Replica& replica, const Step& step);
  // Asks the replica what it holds, and notes it. If it does not answer, what is known of it stays,
  // and the next step over its connection shows whether it is there.
  void ListAgain(Replica& replica);
  static void NoteLocked(Replica& replica, const std::vector<StoredFile>& files);
  Status Send(Replica& replica, const Step& step);
  // Mends the local file, which may be the cause of a refusal.
  Status Check(Replica& replica, const WholeFile& file);
  // How to reach the replicas that are known to hold the file.
  std::vector<BulkConnect> HoldersOf(const WholeFile& file);
  // Reads the local bytes that are sent next. Fewer than asked for: the file is not listed any
  // more.
  Result<std::span<const char>> ReadPiece(Replica& replica, const Step& step);
  Status Drop(Replica& replica, const Step& step);
  // Gives bytes that the replica holds another name. Sends none.
  Status Name(Replica& replica, const Step& step);
  // Notes a call that began then, and took `moved` of `asked` bytes.
  void NotePace(Replica& replica, uint64_t moved, uint64_t asked, Clock::time_point began);
  static bool IsHolder(const Replica& replica, bool any_listed) {
    return replica.caught_up && (replica.compared || !any_listed);
  }
  // What a replica lacks of some files that are still listed.
  struct Lack {
    uint64_t files = 0;
    uint64_t bytes = 0;
  };
  Lack LackOfLocked(const Replica& replica, const std::vector<WholeFile>& files) const
      HL_REQUIRES(mutex_);
  void CompareLocked(Replica& replica) HL_REQUIRES(mutex_);
  // Why the replica is too slow to be waited for, beside these; ok: it is not.
  Status TooSlowLocked(const Replica& replica, const std::vector<const Replica*>& holders) const
      HL_REQUIRES(mutex_);
  // `files`: those that are waited for.
  void LeaveOutRefusersLocked(const std::vector<WholeFile>& files) HL_REQUIRES(mutex_);
  // Await, for these files.
  Status AwaitLocked(const std::vector<WholeFile>& files, std::chrono::nanoseconds timeout,
                     std::chrono::nanoseconds limit, Holders holders, uint64_t interrupts)
      HL_REQUIRES(mutex_);
  // A listed archived log that the replica holds under its former name; null: none.
  const WholeFile* RenamedLocked(const Replica& replica) const HL_REQUIRES(mutex_);
  bool FewCountLocked(size_t of) const HL_REQUIRES(mutex_);
  // Whether at least half of the replicas say that another primary has them.
  bool IsFencedOffLocked() const HL_REQUIRES(mutex_);
  // Whether it is listed or leaving, so that replicas are to hold it.
  bool IsListedLocked(const WholeFile& file) const HL_REQUIRES(mutex_);
  std::vector<WholeFile> ListedLocked() const HL_REQUIRES(mutex_);
  void CountIfCaughtUpLocked(Replica& replica) HL_REQUIRES(mutex_);
  void WakeAll();

  const ReadLocal read_local_;
  const Options options_;
  const std::shared_ptr<Log> log_;

  mutable Mutex mutex_;
  ConditionVariable moved_;
  std::map<std::string, WholeFile> listed_ HL_GUARDED_BY(mutex_);
  std::map<std::string, WholeFile> leaving_ HL_GUARDED_BY(mutex_);
  std::vector<WholeFile> first_ HL_GUARDED_BY(mutex_);  // what was listed at the first SetTargets
  uint64_t generation_ HL_GUARDED_BY(mutex_) = 0;
  size_t of_ HL_GUARDED_BY(mutex_) = 0;  // how many replicas the group has
  uint64_t interrupts_ HL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<Replica>> replicas_ HL_GUARDED_BY(mutex_);  // grows only

  std::unique_ptr<LocalMender> mender_;  // null: nothing is mended; not called under mutex_
};

}  // namespace hyperloop
