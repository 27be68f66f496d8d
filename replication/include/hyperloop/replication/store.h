// Store: the replicated files of one database directory, seen from the primary. The plugin's only
// way into a group.
//
// It holds the log lane (bytes of WAL, MANIFEST and CURRENT, and every namespace change) and the
// file table. Changes of both are in one order, and each prefix of them is a consistent database.
// The table also lists the files of the bulk lane (SST, blob, OPTIONS, IDENTITY), which are shipped
// to the replicas when they are finished. The group is the truth; local files are its cache.
//
// Thread safety: every method may be called from any thread; calls that append are serialised
// inside, in call order. After fork() every call in the child fails with kFenced and destruction
// does nothing.
//
// Errors after Take: kUnavailable, kTimedOut, kAborted: the group may come back; the failed call's
// outcome is indeterminate until then. The first call after such an error tries to bring the group
// back, for half of ack_timeout, and later ones try again; in between, calls fail at once with the
// error of the last attempt. kFenced: another primary holds the group, for good. kNoSpace: after
// space_timeout.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hyperloop/core/log.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/options.h"
#include "hyperloop/replication/whole_file.h"

namespace hyperloop {

using FileId = uint64_t;  // names a file of the table; valid, after the group came back too,
                          // until it is removed or replaced

enum class Lane : uint8_t {
  kLog = 0,   // bytes are in the group's regions
  kBulk = 1,  // listed there; bytes are in files of the primary and of each replica
};

struct FileInfo {
  FileId id = 0;
  std::string
      name;  // relative to the database directory; may contain one directory ("archive/000034.log")
  Lane lane = Lane::kLog;
  uint64_t size = 0;
  uint64_t checksum = 0;  // FileChecksum, bulk lane; 0 in the log lane
};

// An append on its way to the replicas; Store::Await waits for it.
struct AppendTicket {
  uint64_t record = 0;  // the last one that holds its bytes
};

// Which database directory a group belongs to. Both sides keep it; they must agree.
struct Pairing {
  std::string group;     // uuid text
  std::string database;  // uuid text, made when directory and group are first bound
  friend bool operator==(const Pairing&, const Pairing&) = default;
};

// The files of a group as a taking would make them its truth, to be judged before anything changes.
class GroupFiles {
 public:
  virtual ~GroupFiles() = default;
  virtual std::vector<FileInfo> Files() const = 0;  // by name
  // As Store::Read.
  virtual Result<uint64_t> Read(FileId file, uint64_t offset, std::span<char> out) const = 0;
  // Whether a replica within reach holds this file, so that Store::Fetch can bring it.
  virtual bool Held(const WholeFile& file) const = 0;
};

struct TakeRequest {
  std::string directory;        // absolute path, for messages and the group's record of its owner
  bool directory_empty = true;  // holds no log-lane file
  Pairing pairing;              // what the directory says; empty strings: nothing; a group without
                                // a database: a copy of that group's directory
  // Whether the directory can be set to these files. Called before the first replica is sealed, and
  // once more with what is found after all are sealed, before anything else changes. What it
  // returns ends the taking: the first time nothing has changed, the second time the group is given
  // back to its former owner. Null: always.
  std::function<Status(const GroupFiles& files)> judge = nullptr;
  // Reads bytes of a listed file of the directory, as Store::Read does; kNotFound: it is gone.
  // Called by threads of the store until Close returns. Null: there is no directory, and no listed
  // file is shipped.
  std::function<Result<uint64_t>(const std::string& name, uint64_t offset, std::span<char> out)>
      read_local = nullptr;
};

struct TakeResult {
  Pairing pairing;  // to be written into the directory before anything else
  uint64_t epoch = 0;
  bool fresh = false;           // the group held no files
  std::vector<FileInfo> files;  // what the group holds now
};

class Store {
 public:
  // Checks the options and that each replica answers; takes no epoch, disturbs nobody. Errors name
  // the replica.
  static Result<std::unique_ptr<Store>> Open(const StoreOptions& options, std::shared_ptr<Log> log);
  virtual ~Store() = default;  // as Close, result ignored

  // Makes this process the group's primary under a new epoch: seals every replica, chooses the most
  // advanced log, makes it durable and equal everywhere, and arms the datapath. Refusals change
  // nothing: kBusy (a primary lives; named), kInvalidArgument (foreign pairing; empty directory but
  // non-empty group without `restore`; directory with a database but a group that never saw it),
  // kUnavailable (a replica is out of reach), kCorruption.
  virtual Status Take(const TakeRequest& request, TakeResult* result) = 0;
  virtual bool taken() const = 0;

  // --- log lane ---
  // New empty file; an existing one of that name is replaced in the same record.
  virtual Result<FileId> Create(std::string_view name, Lane lane) = 0;
  virtual Result<FileId> Lookup(std::string_view name) = 0;
  static constexpr uint64_t kAnyEnd = UINT64_MAX;
  // Adds `data` (at most 1 MiB a call is sensible; more is cut into records) to the end, and
  // returns when all of it is on its way to the replicas. On an error nothing, or only a first
  // part, is on its way. `end`, unless kAnyEnd: the size that the caller takes the file to have;
  // with another one nothing is added and the call is kInvalidArgument.
  virtual Result<AppendTicket> Append(FileId file, std::string_view data,
                                      uint64_t end = kAnyEnd) = 0;
  // Returns when that append is durable on every replica, with everything appended before it. Work
  // between Append and Await overlaps with the replicas'. To be called before Close.
  virtual Status Await(AppendTicket ticket) = 0;
  // Everything appended by anyone so far is durable on every replica.
  virtual Status Sync() = 0;
  virtual Status Truncate(FileId file, uint64_t size) = 0;
  virtual Status Rename(std::string_view from, std::string_view to) = 0;
  virtual Status Remove(std::string_view name) = 0;

  // --- bulk lane ---
  // Lists a finished file of the directory, or another content of it. It is on its way to the
  // replicas from then on, until it is removed.
  virtual Status ListFile(const WholeFile& file) = 0;
  // Returns when every listed file is durable on every replica. To be called before a record that
  // names such files enters the log lane. kUnavailable: for bulk_timeout a replica has taken no
  // bytes; the message names it and the reason. Holds up no other call.
  virtual Status AwaitFiles() = 0;
  // Gives `sink` the bytes of a listed file in order, as a replica holds it. kNotFound: none of the
  // replicas does. kUnavailable: none within reach does. After any other error what the sink got is
  // useless; kCorruption: the bytes are not the file's, and another call tries other replicas.
  virtual Status Fetch(const WholeFile& file,
                       const std::function<Status(std::span<const char>)>& sink) = 0;

  // --- reading back (from the primary's own region) ---
  virtual Result<std::vector<FileInfo>> Files() = 0;  // by name
  // Up to `length` bytes at `offset` into `out`; fewer at end of file.
  virtual Result<uint64_t> Read(FileId file, uint64_t offset, std::span<char> out) = 0;

  virtual const StoreOptions& options() const = 0;
  // What "durable on every replica" means at least, as detected when the group was taken: the
  // weakest memory of its members, the primary included. kRam before.
  virtual rnic::Media media() const = 0;
  // Drains, marks the group released so that the next primary need not wait. Bounded by
  // ack_timeout. Idempotent.
  virtual Status Close() = 0;

  struct Statistics {
    uint64_t epoch = 0, last_seq = 0, acked_seq = 0, executed_seq = 0;
    uint64_t records = 0, record_bytes = 0, operations = 0;
    uint64_t ring_bytes_used = 0, ring_bytes = 0, extents_used = 0, extents = 0, files = 0;
    uint64_t space_waits = 0, ordering_waits = 0;
    // Bulk lane: files that are listed; of these, those that some replica lacks; bytes sent to all.
    uint64_t bulk_files = 0, bulk_files_left = 0, bulk_bytes_sent = 0;
  };
  virtual Statistics statistics() = 0;
};

}  // namespace hyperloop
