// Store: the replicated files of one database directory, as the primary sees them. It is the
// plugin's only way into a group.
//
// It holds the log lane (bytes of WAL, MANIFEST and CURRENT, and every namespace change) and the
// file table. Changes of both are in one order, and each prefix of them is a consistent database.
// The table also lists the files of the bulk lane (SST, blob, OPTIONS, IDENTITY), which are shipped
// to the replicas when they are finished. The group is the truth; local files are its cache. “Every
// replica” below means every member of the installed configuration. Replicas that it leaves out do
// not count.
//
// Thread safety: every method may be called from any thread. Calls that append or change the
// namespace take effect one after another. After fork(), every call that returns a status or a
// result fails with kFenced in the child, and destruction does nothing there.
//
// Errors after Take, besides those of each call:
// - kUnavailable, kTimedOut, kAborted: the group is out of reach and may come back. Until then it
//   is indeterminate whether the failed call took effect. The first call after such an error tries
//   to bring the group back, for half of ack_timeout. Later calls try again. Between two attempts
//   calls fail at once with the error of the last one.
// - kFenced: another primary holds the group. This is final.
// - kNoSpace: no space became free within space_timeout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hyperloop/core/log.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/decisions.h"
#include "hyperloop/replication/options.h"
#include "hyperloop/replication/whole_file.h"

namespace hyperloop {

// Names a file of the table. Valid until the file is removed or replaced, even if the group is lost
// and comes back in between.
using FileId = uint64_t;

enum class Lane : uint8_t {
  kLog = 0,   // bytes are in the group's regions
  kBulk = 1,  // listed there; bytes are in files of the primary and of each replica
};

inline constexpr size_t kMaxFileNameBytes = 79;

struct FileInfo {
  FileId id = 0;
  // Relative to the database directory, at most kMaxFileNameBytes. It may contain one directory
  // ("archive/000034.log").
  std::string name;
  Lane lane = Lane::kLog;
  uint64_t size = 0;
  uint64_t checksum = 0;  // FileChecksum, bulk lane; 0 in the log lane
};

// An append that is on its way to the replicas. Store::Await waits for it.
struct AppendTicket {
  uint64_t record = 0;    // the last record that holds its bytes
  uint64_t before = 0;    // the log's last record before it
  uint64_t begun_ns = 0;  // when the append began, if it is one of those that are timed; else 0
};

// Which replicas are waited for; docs/glossary.md explains the terms. kCaughtUp: those that have
// caught up or, while fewer than half have, all that are not absent. So any majority of the
// replicas has one that holds each file. kAll: all that are not absent.
enum class Holders : uint8_t { kCaughtUp, kAll };

// Says which group and which database directory belong together. Both keep it, and must agree.
struct Pairing {
  std::string group;     // uuid text
  std::string database;  // uuid text, made when directory and group are first bound
  friend bool operator==(const Pairing&, const Pairing&) = default;
};

// How much a group that holds no file takes.
struct GroupRoom {
  uint64_t extent_bytes = 0;    // every log-lane file takes whole extents
  uint64_t log_bytes = 0;       // log-lane files other than MANIFESTs
  uint64_t log_lane_bytes = 0;  // all log-lane files
  uint64_t files = 0;           // of both lanes
};

// The files that a group will hold once it is taken, for a judgement before anything changes.
class GroupFiles {
 public:
  virtual ~GroupFiles() = default;
  virtual std::string Group() const = 0;            // its id; empty: it has none yet
  virtual std::vector<FileInfo> Files() const = 0;  // by name
  // As Store::Read.
  virtual Result<uint64_t> Read(FileId file, uint64_t offset, std::span<char> out) const = 0;
  // Whether a replica within reach holds this file, so that Store::Fetch can bring it.
  virtual bool Held(const WholeFile& file) const = 0;
  // Whether the taking removes a replica, and fewer than half of those that stay are known to hold
  // this file: then a majority of them might have none that holds it.
  virtual bool Scarce(const WholeFile&) const { return false; }
  virtual GroupRoom Room() const = 0;
};

// Gives `sink` the bytes of a whole file in order. kCorruption: they were not the file's.
using FetchWhole = std::function<Status(const std::function<Status(std::span<const char>)>& sink)>;
// Puts the bytes that `fetch` gives in the place of a file. `listed`: whether the group lists the
// file still; to be asked once nobody else can delete or rename it before it is in its place.
using MendWhole = std::function<Status(const WholeFile& file, const FetchWhole& fetch,
                                       const std::function<bool()>& listed)>;

struct TakeRequest {
  std::string directory;        // absolute path, for messages and the group's record of its owner
  bool directory_empty = true;  // the directory holds no log-lane file
  // What the directory says. Both texts are empty if it says nothing. Only the database is empty if
  // the directory is to be bound to that group anew, as a copy of the group's directory is.
  Pairing pairing;
  // Judges whether the directory can be set to these files. Called before the first replica is
  // sealed and, unless the group is new, again after all are sealed, before anything but the
  // primary's own pool changes. An error ends the taking. The first time nothing has changed; the
  // second time the group is given back to its former owner. Null: it always can.
  std::function<Status(const GroupFiles& files)> judge = nullptr;
  // Reads bytes of a listed file of the directory, as Store::Read does; kNotFound: it is gone;
  // kCorruption: the disk cannot read it. Any other error says nothing about the file.
  // Called by threads of the store until Close returns. Null: there is no directory, and no listed
  // file is shipped.
  std::function<Result<uint64_t>(const std::string& name, uint64_t offset, std::span<char> out)>
      read_local = nullptr;
  // Mends a listed file of the directory that is damaged, or a finished log of the log lane, and
  // sets aside what was there. An archived log (BeforeArchived) may also be missing there. Called
  // as read_local is, for one file of each lane at a time. Null: nothing is mended.
  MendWhole mend_local = nullptr;
  // The caller opens no database: it makes the directory ready for a program that is to open it.
  // When it closes the group, the replicas note that (NodeStatus::awaits_opening).
  bool only_prepares = false;
  // Makes the bytes and the name of a finished log-lane file of the directory durable, and says
  // what the file holds. Called by a thread of the store until Close returns. Null: no file leaves
  // the region (Store::Finish).
  std::function<Result<WholeFile>(const std::string& name)> settle = nullptr;
  // Whether an append to a file of the log lane other than MANIFEST-*, CURRENT and *.dbtmp leads to
  // free space, so that it must not wait for some: a part of the data area is kept for such
  // appends. `begins`: the file has no byte yet. Called under a lock of the store, whenever space
  // is short. Null: no append does.
  std::function<bool(std::string_view data, bool begins)> leads_to_space = nullptr;
  // What the caller tells of its own changes. Null: none is taken back.
  std::shared_ptr<Decisions> decisions = nullptr;
};

struct TakeResult {
  Pairing pairing;  // the caller writes it into the directory before anything else
  uint64_t epoch = 0;
  // Epoch and owner with which its branch of the group's history began (NodeStatus), "17 uuid";
  // empty: it began with the group.
  std::string branch = {};
  std::vector<FileInfo> files;  // what the group holds now
  // The addresses of the replicas that are left out. Store::Fetch asks none of them.
  std::vector<std::string> left_out = {};
};

class Store {
 public:
  // Checks the options, and that all replicas answer or, with on_replica_failure=continue, at least
  // one. Takes no epoch and disturbs nobody. Errors name the replica.
  static Result<std::unique_ptr<Store>> Open(const StoreOptions& options, std::shared_ptr<Log> log);
  virtual ~Store() = default;  // as Close, but its result is ignored

  // Makes this process the group's primary under a new epoch: seals the replicas that take part,
  // chooses the most advanced log, makes it durable and equal everywhere, and arms the datapath. A
  // refusal changes nothing. kBusy: a primary lives, and the message names it. kInvalidArgument:
  // the directory belongs to another group; or it is empty, the group is not, and `restore` is not
  // set; or it holds a database that the group never saw, and `adopt` is not set or the group is
  // not empty. kUnavailable: too few replicas are within reach. kCorruption: no sound log reaches
  // the last acknowledged record, or no member has an extent sound.
  virtual Status Take(const TakeRequest& request, TakeResult* result) = 0;
  virtual bool taken() const = 0;

  // --- changing files. Create, Truncate, Rename, Remove and ListFile are namespace changes: each
  // is durable on every replica when its call returns.

  // Makes an empty file of the log lane. A file that has this name is replaced in the same record.
  // kInvalidArgument: bad name.
  virtual Result<FileId> Create(std::string_view name) = 0;
  // kNotFound: no file has this name.
  virtual Result<FileId> Lookup(std::string_view name) = 0;
  static constexpr uint64_t kAnyEnd = UINT64_MAX;
  // Adds `data` to the end of a log-lane file, and returns when all of it is on its way to the
  // replicas. More than about 1 MiB is cut into several records. On an error nothing, or only a
  // first part, is on its way. `end`, unless kAnyEnd, is the size that the caller takes the file to
  // have. kInvalidArgument: it has another size, or it is of the bulk lane; nothing was added.
  // kNotFound: the file was removed or replaced.
  virtual Result<AppendTicket> Append(FileId file, std::string_view data,
                                      uint64_t end = kAnyEnd) = 0;
  // Returns when that append and everything appended before it are durable on every replica. The
  // caller's work between Append and Await overlaps with that of the replicas. Must be called
  // before Close.
  virtual Status Await(AppendTicket ticket) = 0;
  // Returns when everything that any thread has appended so far is durable on every replica.
  virtual Status Sync() = 0;
  // Cuts a log-lane file to its first `size` bytes. kNotFound: the file was removed or replaced.
  // kInvalidArgument: it is shorter, or of the bulk lane. kCorruption: the extent in which it
  // would end fails its checksum.
  virtual Status Truncate(FileId file, uint64_t size) = 0;
  // Renames a file of either lane. A file named `to` is replaced in the same record. kNotFound: no
  // file is named `from`. kInvalidArgument: `to` is a bad name.
  virtual Status Rename(std::string_view from, std::string_view to) = 0;
  // Removes a file of either lane. kNotFound: no file has this name.
  virtual Status Remove(std::string_view name) = 0;

  // Says that a log-lane file gets no more bytes, and will not be truncated. When the data area
  // fills, such a file moves to the bulk lane: once the directory and every replica that is waited
  // for hold it whole and durably, one record lists it and frees its extents. It keeps its id. From
  // then on it is a file of the bulk lane, and its bytes are read from the directory. A file that
  // was changed after all stays where it is. Unknown ids do no harm.
  virtual void Finish(FileId file) = 0;

  // --- bulk lane ---
  // Lists a finished file of the directory, or another content of it. It is on its way to the
  // replicas from then on, until it is removed.
  virtual Status ListFile(const WholeFile& file) = 0;
  // Returns when every listed file is durable on each of these replicas. To be called before a
  // record that names such files enters the log lane. kUnavailable: for bulk_timeout a replica has
  // taken no bytes; the message names it and the reason. Holds up no other call.
  virtual Status AwaitFiles(Holders holders) = 0;
  // Gives `sink` the bytes of a listed file in order, as a replica holds it. kNotFound: none of the
  // replicas does. kUnavailable: none within reach does. After any other error what the sink got is
  // useless; kCorruption: the bytes are not the file's, and another call tries other replicas.
  virtual Status Fetch(const WholeFile& file,
                       const std::function<Status(std::span<const char>)>& sink) = 0;

  // --- reading back, from the primary's own region ---

  virtual Result<std::vector<FileInfo>> Files() = 0;  // by name
  // Reads up to out.size() bytes at `offset` of a log-lane file, and returns how many; fewer only
  // at the end of the file. kNotFound: the file was removed or replaced. kInvalidArgument: it
  // is of the bulk lane.
  virtual Result<uint64_t> Read(FileId file, uint64_t offset, std::span<char> out) = 0;

  virtual const StoreOptions& options() const = 0;
  // What "durable on every replica" means at least: the weakest memory of the members, the primary
  // included, as detected when the group was taken. kRam before that.
  virtual rnic::Media media() const = 0;
  // Executes all records and releases the group, so that the next primary need not wait. Waits at
  // most ack_timeout for a group that does not answer, as long again for files that replicas still
  // lack and for the last request for files, and then connect_timeout for the replicas to take the
  // release. If a replica is left out, or does not answer, it waits up to a second more for each
  // replica. Idempotent. kUnavailable: the group is out of reach; what was acknowledged is on its
  // replicas.
  virtual Status Close() = 0;

  struct Statistics {
    uint64_t epoch = 0, last_seq = 0, acked_seq = 0;
    // The data area, which log-lane files take in extents, in bytes: its size, what is in use, and
    // what is kept for MANIFEST and CURRENT. All are 0 before Take.
    uint64_t data_bytes = 0, data_bytes_used = 0, data_bytes_reserved = 0;
  };
  virtual Statistics statistics() = 0;
};

}  // namespace hyperloop
