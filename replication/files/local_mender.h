// LocalMender: keeps the primary's own whole files sound.
//
// It reads all listed ones again from time to time (LocalScrub), and one that is suspected at once.
// The bytes of a replica that holds the file take the place of a damaged one, or of an archived log
// that is missing. What cannot be mended now is counted, and told to people, until it is sound or
// no longer wanted. All methods are thread safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/periodic_thread.h"
#include "files/bulk_target.h"
#include "files/local_scrub.h"
#include "hyperloop/core/log.h"
#include "hyperloop/core/mutex.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/store.h"
#include "hyperloop/replication/whole_file.h"

namespace hyperloop {

class LocalMender {
 public:
  // As TakeRequest::read_local.
  using ReadLocal = std::function<Result<uint64_t>(const std::string& name, uint64_t offset,
                                                   std::span<char> out)>;
  struct Options {
    size_t piece = 256u << 10;                   // the most bytes that are read at once
    int avoid_cpu = -1;                          // as in PeriodicThread
    std::chrono::milliseconds scrub_tick{1000};  // between two calls of LocalScrub::Tick
    MendWhole mend_local = nullptr;              // as TakeRequest::mend_local; not null
    // Is told how many files wait to be mended, and the first of them, for people, each time that
    // it may have changed; empty: none. Must not call the mender. May be null.
    std::function<void(const std::string& damage)> tell_damage = nullptr;
    // By which replicas are slow.
    std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
  };
  struct Uses {
    std::function<std::vector<WholeFile>()> listed;     // these are read again
    std::function<bool(const WholeFile& file)> wanted;  // whether it is listed, or is to be
    // How to reach the replicas that are known to hold the file.
    std::function<std::vector<BulkConnect>(const WholeFile& file)> holders;
  };
  LocalMender(Uses uses, ReadLocal read_local, Options options, std::shared_ptr<Log> log);
  // As RequestStop, and waits.
  ~LocalMender();
  // From now on no file is checked or mended. Does not wait for a check that is under way, which
  // ends soon.
  void RequestStop();

  // Makes the local file sound if it is damaged, or an archived log that is missing. An error: it
  // is not, or cannot be read now. Nothing: another file is being checked.
  std::optional<Status> TryMend(const WholeFile& file);
  // To be called when files are no longer wanted, without a lock that Uses takes.
  void ForgetUnwanted();
  // How many files are known to be damaged, and could not be mended.
  size_t damaged() const;

 private:
  // As TryMend.
  Status Mend(const WholeFile& file) HL_REQUIRES(mend_mutex_);
  // Has the bytes of a replica put in the place of the local file.
  Status Bring(const WholeFile& file);
  Result<bool> IsSound(const WholeFile& file) const;
  // Notes whether the file waits to be mended; ok: it does not. Returns whether that is new.
  bool NoteDamage(const WholeFile& file, const Status& why);
  void TellDamageLocked() const HL_REQUIRES(damage_mutex_);

  const Uses uses_;
  const ReadLocal read_local_;
  const Options options_;
  const std::shared_ptr<Log> log_;

  std::atomic<bool> ends_{false};
  Mutex mend_mutex_;            // held while a file is checked and mended
  mutable Mutex damage_mutex_;  // Uses are called while it is held
  // Wanted files that wait to be mended, and why.
  std::map<WholeFile, std::string> damaged_ HL_GUARDED_BY(damage_mutex_);
  LocalScrub scrub_;  // used by scrubber_ only
  std::unique_ptr<PeriodicThread> scrubber_;
};

}  // namespace hyperloop
