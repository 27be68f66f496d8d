// FileWatch tells when a file that people edit has other content to read. It looks at what stat
// says of it, and waits until that is the same at two looks: an editor that empties the file and
// then writes it is not read in between.
//
// For use by one thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace hyperloop::softrnic {

class FileWatch {
 public:
  explicit FileWatch(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  // True if the file is another one than at the last true look, or has been lost since. The first
  // look but one is true, too. Call it at intervals that are longer than a program takes to write
  // the file.
  bool Look();
  // True if the file is still the one of the last true look. Ask after reading: what was read of
  // another one may be a part of it, and a later look will be true.
  bool Same() const { return Now() == taken_; }
  // What was found could not be used for a reason that is not the file's: the next look at which
  // the file is quiet is true again.
  void Forget() { taken_ = {}; }
  // How many looks in a row found that the file had changed since the one before.
  int restless() const { return restless_; }

 private:
  // What stat says: a file that was changed or replaced has another stamp.
  struct Stamp {
    uint64_t device = 0, inode = 0;
    int64_t size = -1, modified_ns = 0, changed_ns = 0;
    int error = -1;  // of stat; -1: there was no look
    bool operator==(const Stamp&) const = default;
  };
  Stamp Now() const;

  std::string path_;
  Stamp seen_, taken_;
  int restless_ = 0;
};

}  // namespace hyperloop::softrnic
