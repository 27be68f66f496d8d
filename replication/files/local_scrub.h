// LocalScrub: the primary's check of its own whole files, so that decay of its disk is found while
// replicas still have sound copies.
//
// It has neither clock nor thread: Tick must be called about once a second, by one thread. A call
// reads at most kBudget bytes. Each file that is listed is read again and compared with its
// checksum. One that differs, is gone, or that the disk cannot read, is given to `mend`. One that
// cannot be opened now, as when the process has too many files open, is looked at in the next pass.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/whole_file.h"

namespace hyperloop {

class LocalScrub {
 public:
  static constexpr uint64_t kBudget = 8u << 20;
  // The calls before the first pass, and between two passes.
  static constexpr int kFirstTicks = 60, kRestTicks = 3600;

  struct Uses {
    std::function<std::vector<WholeFile>()> list;
    // As TakeRequest::read_local.
    std::function<Result<uint64_t>(const std::string& name, uint64_t offset, std::span<char> out)>
        read;
    // The file is damaged or missing, or was dropped meanwhile.
    std::function<void(const WholeFile&)> mend;
  };
  explicit LocalScrub(Uses uses) : uses_(std::move(uses)) {}

  void Tick();
  uint64_t passes() const { return passes_; }  // whole passes so far

 private:
  // The file that is being read.
  struct Reading {
    WholeFile file;
    uint64_t at = 0;
    FileChecksum checksum;
  };
  // Reads at most `budget` bytes. Returns how much of the budget that took.
  uint64_t ReadOn(uint64_t budget);

  const Uses uses_;
  int rest_ = kFirstTicks;
  std::vector<WholeFile> left_;
  std::optional<Reading> reading_;
  std::vector<char> buffer_;
  uint64_t passes_ = 0;
};

}  // namespace hyperloop
