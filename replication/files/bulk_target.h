// BulkTarget: one replica, to which the bulk lane sends files over a connection of its own.
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
  uint64_t received = 0;  // bytes
  bool finished = false;
};

// After an error the connection may be broken, and the caller makes another one. What the replica
// answers is never an error of the group (IsGroupError). Not thread safe.
class BulkTarget {
 public:
  virtual ~BulkTarget() = default;
  // Every file of the group that the replica holds.
  virtual Result<std::vector<StoredFile>> List() = 0;
  // Adds bytes to a file, as FileStore::Write.
  virtual Result<uint64_t> Put(const WholeFile& file, uint64_t offset,
                               std::span<const char> bytes) = 0;
  // Reads bytes of a finished file, as FileStore::Read, but may return fewer.
  virtual Result<uint64_t> Get(const WholeFile& file, uint64_t offset, std::span<char> out) = 0;
  // Removes a file, as FileStore::Remove.
  virtual Status Drop(const WholeFile& file) = 0;
};

// Connects to the replica; each call makes a new connection.
using BulkConnect = std::function<Result<std::unique_ptr<BulkTarget>>()>;

}  // namespace hyperloop
