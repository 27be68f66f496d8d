// BulkTarget: where the bulk lane sends files: one replica, over a connection of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/whole_file.h"

namespace hyperloop {

struct StoredFile {
  WholeFile file;
  uint64_t received = 0;
  bool finished = false;
};

// After an error the connection may be gone; the caller makes another. Not thread safe.
class BulkTarget {
 public:
  virtual ~BulkTarget() = default;
  // Every file of the group that the replica holds.
  virtual Result<std::vector<StoredFile>> List() = 0;
  // Bytes of a file, as FileStore::Write.
  virtual Result<uint64_t> Put(const WholeFile& file, uint64_t offset,
                               std::span<const char> bytes) = 0;
  // Bytes of a finished file, as FileStore::Read.
  virtual Result<uint64_t> Get(const WholeFile& file, uint64_t offset, std::span<char> out) = 0;
  virtual Status Drop(const WholeFile& file) = 0;
};

using BulkConnect = std::function<Result<std::unique_ptr<BulkTarget>>()>;

}  // namespace hyperloop
