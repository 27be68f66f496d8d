// CheckedFiles: which files of this machine were read, and have the content that the group lists.
// They need not be read again when a directory is made the group's.
//
// A file is known by its inode, its size and the time at which its content changed last, whatever
// names it has. That can be kept in a file for another process. It holds for as long as the machine
// runs, because after a power failure a disk may have less than was read before. Not thread safe.
// For tables and blob files, in which RocksDB finds damage itself: not for logs.
#pragma once

#include <rocksdb/file_system.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/whole_file.h"

namespace hyperloop::plugin {

class CheckedFiles {
 public:
  // What Write has left in the directory. Nothing if there is no such file, if it is damaged, if
  // the machine was started since, or if others may write there.
  static CheckedFiles In(const std::string& directory);

  // Whether the file has the content that is listed. It is read, unless that is known. kNotFound:
  // there is no such file.
  Result<bool> IsSound(rocksdb::FileSystem& fs, const std::string& path, const WholeFile& file);
  // The caller has compared the content, and nobody writes to the file any more.
  void Note(const std::string& path, const WholeFile& file);
  // Forgets all but what is known of these files.
  void KeepOnly(const std::vector<std::string>& paths);
  // Keeps what is known in the directory, if that has changed since it was read or written last.
  // kPermissionDenied: others may write there.
  Status Write(rocksdb::FileSystem& fs, const std::string& directory);

 private:
  using Clock = std::chrono::steady_clock;
  struct Content {
    uint64_t size = 0;
    int64_t changed = 0;  // in ns since 1970
    uint64_t checksum = 0;
    // When it was read first, if it had just been changed: it may have been changed once more since
    // without another time. Such content is read again, and not kept.
    std::optional<Clock::time_point> young{};
    friend bool operator==(const Content&, const Content&) = default;
  };
  using Inode = std::pair<uint64_t, uint64_t>;  // with its device

  bool Parse(std::string_view text);
  // The content that the file had when it was read, if it has not changed since.
  Content* Find(const std::string& path);
  void Keep(const Inode& inode, const Content& content);

  std::map<Inode, Content> known_;
  bool written_ = true;
};

}  // namespace hyperloop::plugin
