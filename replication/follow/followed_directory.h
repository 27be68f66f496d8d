// FollowedDirectory: an ordinary database directory that grows as a group is written. Stock RocksDB
// opens it: as a secondary, or read-only.
//
// The names of a state appear in the order in which RocksDB would have made them: tables, then logs
// from the oldest on, then MANIFESTs, then CURRENT. So a reader that looks between two of them sees
// a consistent database. A log grows in place, also when the group keeps it as a whole file by now,
// because a reader has it open. Any other whole file is a hard link of the replica's where the file
// system allows it, else a copy; nothing is ever written through a hard link. A file that the group
// does not list any more keeps its name for a while (Retention), because a reader may be about to
// open it.
//
// Nothing here is made durable: after a restart, or a power failure, each file is compared with the
// group before it is shown again. Symbolic links are never followed. Not thread safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "files/file_store.h"
#include "hyperloop/core/status.h"
#include "hyperloop/core/unique_fd.h"
#include "hyperloop/replication/whole_file.h"
#include "log/file_table.h"
#include "region/region_layout.h"

namespace hyperloop {

class FollowedDirectory {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // What a directory shows, which never changes: a group, and a branch of its history.
  struct Origin {
    std::string group;  // uuid text
    uint64_t branch_epoch = 0;
    std::string branch_owner;  // as NodeStatus's
    friend bool operator==(const Origin&, const Origin&) = default;
  };

  // How long names of dropped files stay, and at most how many bytes their files have together. If
  // there are more, those that were dropped first go earlier.
  struct Retention {
    std::chrono::milliseconds time;
    uint64_t bytes = UINT64_MAX;
  };

  // Makes `path`, which only this user may enter then, if it is absent, and takes it for itself
  // until destruction. kPermissionDenied: others may write there. kAlreadyExists: it holds
  // something else. kInvalidArgument: it shows another group or another branch. kBusy:
  // another process follows there.
  static Result<std::unique_ptr<FollowedDirectory>> Open(const std::string& path,
                                                         const Origin& origin,
                                                         const Retention& retention);

  struct State {
    std::span<const std::byte> image;  // as of one record
    const RegionInfo& info;
    const FileTable& table;  // of `image`
    const FileStore* store;  // the replica's whole files; null: it has none
    uint64_t seq = 0;        // of that record
  };
  // Shows a state. A whole file that the replica does not have yet is named: then what needs it is
  // not shown, and follows with a later call. A table is needed once the MANIFEST moves.
  // kUnavailable: the state is older than seq(). After an error what was shown is still consistent,
  // and the call may be repeated.
  Result<std::optional<std::string>> Show(const State& state, Time now);

  // Whether the last call showed all of its state.
  bool whole() const { return whole_; }
  // How many bytes the files have that the group has dropped and readers may still open.
  uint64_t retained_bytes() const { return retained_bytes_; }

  // Notes for readers of the directory (Reader, in the installed headers) that everything which was
  // acknowledged by then is shown.
  Status NoteAsOf(std::chrono::system_clock::time_point time);

  // What a directory says of itself to whoever looks, whether or not somebody follows there now.
  struct Said {
    Origin origin;
    uint64_t record = 0;  // the last one that is shown
    // Everything that was acknowledged by then is shown. Nothing: nobody has vouched for it yet.
    std::optional<std::chrono::system_clock::time_point> as_of;
  };
  // Changes nothing. kNotFound: it is no followed directory. kCorruption: its mark names no group.
  static Result<Said> Read(const std::string& path);

  const Origin& origin() const { return origin_; }
  // The last record that this process, or one before it, showed; another replica, or one that is
  // made anew, may not have it yet.
  uint64_t seq() const { return seq_; }
  // How many names of dropped files went before their time, because their files had too many bytes.
  uint64_t gone_early() const { return gone_early_; }

 private:
  struct Shown {
    Lane lane = Lane::kLog;
    FileId id = 0;          // in the log lane
    uint64_t size = 0;      // how many bytes of it are there
    uint64_t checksum = 0;  // of a whole file
  };

  struct Retired {
    Time since;
    uint64_t size = 0;
  };

  FollowedDirectory(std::string path, Origin origin, UniqueFd lock, const Retention& retention,
                    uint64_t seq)
      : path_(std::move(path)),
        origin_(std::move(origin)),
        lock_(std::move(lock)),
        retention_(retention),
        seq_(seq) {}
  std::string PathOf(const std::string& name) const { return path_ + "/" + name; }
  std::string Temporary() const { return PathOf(".hyperloop-follower.tmp"); }
  Status CheckDatabase(const std::vector<FileInfo>& files) const;
  // Takes over the names that an earlier process left and the group does not list any more.
  Status RetireLeftOver(const FileTable& table, Time now);
  bool MovesManifest(const std::vector<FileInfo>& files) const;
  Status Note(uint64_t seq);
  Status MakeParent(const std::string& name) const;
  Result<bool> ShowWhole(const State& state, const FileInfo& file);
  Status Replace(const FileStore& store, const WholeFile& file) const;
  Result<bool> Extend(const FileStore& store, const WholeFile& file) const;
  Result<bool> IsThere(const State& state, const FileInfo& file) const;
  Status ShowLog(const State& state, const FileInfo& file);
  // How many bytes of a log-lane file an earlier process left, if they are the group's.
  Result<uint64_t> Present(const State& state, const FileInfo& file) const;
  Status Append(const State& state, const FileInfo& file, uint64_t from, const std::string& path,
                int flags) const;
  Status Retire(const FileTable& table, Time now);
  void NoteRetired(const std::string& name, Time now);
  Status RemoveName(const std::string& name) const;

  const std::string path_;
  const Origin origin_;
  const UniqueFd lock_;  // of the mark
  const Retention retention_;
  uint64_t seq_;
  bool compared_ = false;  // with what an earlier process left
  std::map<std::string, Shown> shown_;
  std::map<std::string, Retired> retired_;
  uint64_t gone_early_ = 0, retained_bytes_ = 0;
  bool whole_ = false;
};

}  // namespace hyperloop
