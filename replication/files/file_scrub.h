// FileScrub: a replica's check of its whole files, so that decay of the disk is found while others
// still have sound copies.
//
// It has neither clock nor thread: Tick must be called about once a second, on the thread that uses
// the store, and only if nobody needs that thread. A call reads at most kBudget bytes from the
// disk. Each file is read again and compared with the checksum in its name. A file that differs, or
// that the disk cannot read, is set aside: it does not count as held any more, and the primary
// sends it again. If a file cannot be read for another reason, for want of a descriptor for
// instance, all files stay, and the check begins anew after kFirstTicks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "files/file_store.h"
#include "hyperloop/core/log.h"

namespace hyperloop {

class FileScrub {
 public:
  static constexpr uint64_t kBudget = 8u << 20;
  // The calls before the first pass, and between two passes.
  static constexpr int kFirstTicks = 60, kRestTicks = 3600;

  // `log` outlives this object, and may be null.
  explicit FileScrub(Log* log) : log_(log) {}

  void Tick(FileStore& store);
  uint64_t passes() const { return passes_; }  // whole passes so far
  // What was set aside and still lies there, for people; empty: nothing.
  const std::string& aside() const { return aside_; }

 private:
  // The file that is being read.
  struct Reading {
    WholeFile file;
    uint64_t at = 0;
    FileChecksum checksum;
  };
  void Begin(FileStore& store);
  // Reads at most `budget` bytes. Returns how much of the budget that took.
  uint64_t ReadOn(FileStore& store, uint64_t budget);
  // Ends this pass, which says nothing of the files that are left.
  void GiveUp(const Status& why);
  void SetAside(FileStore& store, const WholeFile& file, const std::string& why);
  void LookAside(const FileStore& store);
  void Say(LogLevel level, const std::string& text) const;

  Log* const log_;
  int rest_ = kFirstTicks;
  std::string directory_;  // of the store that is being checked
  std::vector<WholeFile> left_;
  std::optional<Reading> reading_;
  std::vector<std::byte> buffer_;
  uint64_t passes_ = 0;
  std::string aside_;
};

}  // namespace hyperloop
