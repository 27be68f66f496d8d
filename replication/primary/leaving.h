// Which finished file leaves the region next. This is the decision alone; the session carries it
// out (session_leaving.cc).
//
// A log that RocksDB will soon delete is not worth shipping. So nothing leaves while the log-lane
// files occupy at most half of what logs may take. Beyond that the oldest finished file goes first,
// one at a time, because it is the one that something has kept alive for longest.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "hyperloop/replication/store.h"

namespace hyperloop {

// Of the data area, in bytes.
struct DataAreaUse {
  uint64_t size = 0;
  uint64_t reserved = 0;  // kept for MANIFEST and CURRENT
  uint64_t used = 0;      // by extents of files
};

// Files that could not leave, and when each is tried again. A try reads the whole file several
// times. So if the file itself is the reason, as one that differs in the directory, the pauses grow
// from a second to a minute. If it is the group, which may come back any time, the file is tried
// again once all others were tried.
class LeavingRefusals {
 public:
  using Clock = std::chrono::steady_clock;
  void Note(FileId file, const Status& why, Clock::time_point now);
  // Whether people have not heard of it: of a file's own reason once, and of the group's once until
  // a file leaves. They hear of it now.
  bool IsNews(FileId file, const Status& why);
  void NoteLeft(FileId file);
  // Tries those again that could not leave because of the group.
  void TryGroupAgain();
  // Forgets all files but these.
  void Keep(const std::set<FileId>& files);
  // Those that are not to be tried yet.
  std::set<FileId> Waiting(Clock::time_point now) const;
  bool empty() const { return refusals_.empty(); }

 private:
  struct Refusal {
    Clock::time_point again{};
    std::chrono::seconds pause{0};
    std::string why;
  };
  std::map<FileId, Refusal> refusals_;
  bool group_told_ = false;
};

// Whether finished files are to leave.
bool IsCrowded(const DataAreaUse& use);

// The file of `files` that is to leave next; nothing: none is. `finished`: files that get no more
// bytes. `refused`: those of them that could not leave just now.
std::optional<FileInfo> NextToLeave(const DataAreaUse& use, std::span<const FileInfo> files,
                                    const std::set<FileId>& finished,
                                    const std::set<FileId>& refused);

}  // namespace hyperloop
