// BoundDirectory: one database directory and the group it is bound to, from LockFile to UnlockFile.
//
// Every call of the plugin that uses the group's files goes through here, which keeps two rules:
// - A failed Append may have added bytes to the group's file, which are called a tail here. Before
//   anything else is written, the file is truncated to what RocksDB knows to be in it. RocksDB
//   gives the sequence numbers of the failed batch to the next one, so a recovery must never replay
//   both. A truncation takes a record. While the group has no room for it, only removals, look-ups
//   and syncs are allowed: removals make room, and the others add nothing.
// - Every call fails in a forked child, except Close, which does nothing there.
// Only the Store knows whether the group is broken, fenced or being brought back. What RocksDB is
// told of an error, Verdicts decides.
//
// Thread safe. Append costs two atomic loads, the count of writes in flight and the Store's own
// call. It takes no lock and allocates nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "hyperloop/core/fork_detector.h"
#include "hyperloop/core/log.h"
#include "hyperloop/core/mutex.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/store.h"
#include "quirks/finished_logs.h"
#include "quirks/verdicts.h"

namespace hyperloop::plugin {

class BoundDirectory {
 public:
  // `directory` is spelled as RocksDB spells it. `store` has taken its group, with `decisions`.
  BoundDirectory(std::string directory, std::unique_ptr<ForkDetector> fork_detector,
                 std::unique_ptr<Store> store, std::shared_ptr<Decisions> decisions,
                 std::shared_ptr<Log> log);
  BoundDirectory(const BoundDirectory&) = delete;
  BoundDirectory& operator=(const BoundDirectory&) = delete;

  const std::string& directory() const { return directory_; }
  Log& log() { return *log_; }
  // For calls that change nothing: Read, options, statistics.
  Store& store() { return *store_; }
  // kFenced in a forked child, which must change nothing.
  Status CheckNotForked() const;
  bool InForkedChild() const { return !fork_detector_->IsOwner(); }

  // Returns the path relative to the directory, or an empty text if it is not in the directory.
  std::string RelativeName(const std::string& path) const;

  // These are the Store's calls under the rules above. Their errors are the Store's, kFenced in a
  // forked child, and that of a tail which cannot be truncated now.
  Result<FileId> Create(std::string_view name);
  Result<FileId> Lookup(std::string_view name);
  Result<std::vector<FileInfo>> Files();
  Result<AppendTicket> Append(FileId file, std::string_view data, uint64_t end);
  Status Await(AppendTicket ticket);
  Status Sync();
  Status Truncate(FileId file, uint64_t size);
  Status Rename(std::string_view from, std::string_view to);
  // Ok also if the group does not have the file.
  Status Remove(std::string_view name);
  // As Store. A file that could not be listed is one of Unlisted from then on.
  Status ListFile(const WholeFile& file);
  Status AwaitFiles(Holders holders);
  Status Close();

  // Gives up what the group may hold of `file` beyond `size` bytes. RocksDB was told that writing
  // these bytes failed.
  void AbandonTail(FileId file, uint64_t size);

  // Files of the directory that are to be listed and are not. RocksDB does not look at every error
  // of a Close, so it may name such a file in the MANIFEST: they must be listed before that.
  // ListFile and Remove take a file out again.
  void NoteUnlisted(std::string_view name);
  void NoteListed(std::string_view name);
  std::vector<std::string> Unlisted() const;
  // ListFile, unless the file is not one of Unlisted any more: another thread has removed it.
  Status ListIfUnlisted(const WholeFile& file);

  // Remembers the log-lane files that the opening removed. RocksDB may have listed them before it
  // locked the directory, as DestroyDB does, and deleting them must not fail.
  void NoteVanished(std::vector<std::string> names);
  // Whether `name` is one of them. True once for each name.
  bool TakeVanished(std::string_view name);

  // Which files RocksDB has written to for the last time. They may leave the region.
  FinishedLogs& finished_logs() { return finished_logs_; }
  Verdicts& verdicts() { return verdicts_; }

  // What the log says once of an open database.
  enum class Warning : uint8_t {
    kOutside,
    kSpace,
    kManualFlush,
    kRecycling,
    kLongManifest,
    kCompression,
    kUnchecked,
    kDeleted,
  };
  void WarnOnce(Warning warning, std::string_view message);
  bool HasWarned(Warning warning) const;

 private:
  struct Tail {
    FileId file;
    uint64_t size;
  };

  // Whether a call is allowed while a tail remains because the group has no room to truncate it.
  enum class Tails { kMustGo, kMayStand };

  // Returns what `call` returns, or why it is not allowed. Truncates the tails first.
  template <class Call>
  auto Run(Call&& call, Tails tails = Tails::kMustGo) -> decltype(call());
  Status CutTails();
  void ForgetTail(FileId file);
  bool IsUnlisted(std::string_view name) const;

  const std::string directory_;
  const std::string real_directory_;
  const std::unique_ptr<Store> store_;
  const std::shared_ptr<Log> log_;
  const std::unique_ptr<ForkDetector> fork_detector_;
  Verdicts verdicts_;
  Decisions& decisions_;  // its tails() are whether tails_ may have entries
  FinishedLogs finished_logs_;
  std::atomic<uint32_t> warned_{0};  // a bit for each Warning

  Mutex relisting_mutex_;  // an unlisted file is not listed and removed at the same time
  mutable Mutex mutex_;
  std::vector<Tail> tails_ HL_GUARDED_BY(mutex_);
  std::vector<std::string> vanished_ HL_GUARDED_BY(mutex_);
  std::set<std::string, std::less<>> unlisted_ HL_GUARDED_BY(mutex_);
};

}  // namespace hyperloop::plugin
