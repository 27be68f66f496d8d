// ScratchGroup: the group primitives on the replicas of a URI, for benchmarks and experiments.
//
// The group is taken as a database takes it, so it is refused while a primary lives or while the
// group holds files. Then the caller may write the group's data extents, which are all free.
// Closing leaves an empty group. Not thread safe; after fork() the child must not use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hyperloop/core/group.h"
#include "hyperloop/core/log.h"
#include "hyperloop/core/rnic.h"
#include "hyperloop/replication/options.h"

namespace hyperloop {

class ScratchGroup {
 public:
  virtual ~ScratchGroup() = default;  // as Close, but its result is ignored
  // `who` names the owner to others. kBusy: a primary lives there. kInvalidArgument: the group
  // holds files. Other errors are those of Store::Open and Store::Take.
  static Result<std::unique_ptr<ScratchGroup>> Take(const StoreOptions& options,
                                                    const std::string& who,
                                                    std::shared_ptr<Log> log);

  virtual Group& group() = 0;
  virtual rnic::Device& device() = 0;  // the primary's
  // The emulated host of each replica, in the order of the chain.
  virtual const std::vector<std::string>& replica_hosts() const = 0;
  // The caller's range are the region bytes [offset(), offset() + bytes().size()). bytes() is this
  // range in the primary's own region.
  virtual uint64_t offset() const = 0;
  virtual std::span<std::byte> bytes() const = 0;
  virtual Status Close() = 0;  // as Store::Close
};

}  // namespace hyperloop
