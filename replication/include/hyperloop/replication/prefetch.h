// Prefetch: looks at a group that this machine is to take over, and brings its whole files here
// while the former primary still serves. It takes no epoch, changes nothing in the group, and needs
// no permission but to read. Not thread safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/options.h"
#include "hyperloop/replication/whole_file.h"

namespace hyperloop {

// The primary that took a group last, as the replicas say.
struct Holder {
  std::string group;      // the group's id
  std::string name;       // the primary's process, host and directory
  uint64_t epoch = 0;     // under which it took the group
  bool released = false;  // it has closed in order, or gave up
  // It has held the group. If not, the one before it may still live, and take the group back.
  bool served = false;
  uint64_t heartbeat = 0;  // another value than in an earlier look: it has lived since
};

class Prefetch {
 public:
  // Connects to nobody. Files will be brought to `directory`, which is made for the first one, in
  // a directory that exists, and has the form of a replica's directory of files (FindLinkableFile).
  static Result<std::unique_ptr<Prefetch>> Open(const StoreOptions& options, std::string directory);
  virtual ~Prefetch() = default;

  // Refuses what Store::Take would refuse before it looks at holder and database directory: too few
  // replicas answer, or others than the recorded ones are listed. kNotFound: the group holds no
  // database.
  virtual Result<Holder> Look() = 0;
  // After Look. Makes the primary's own pool, unless it is there, and checks that Store::Take can
  // use it. So that a taking need not do it, which takes long for a large region.
  virtual Status MakeOwnPool() = 0;
  // After Look. The whole files that the group lists now.
  virtual Result<std::vector<WholeFile>> Files() = 0;
  // After Files. Brings one of them from a replica, unless it was brought before. kNotFound: no
  // replica holds it, because it is not finished yet, or was removed.
  virtual Status Bring(const WholeFile& file) = 0;
  // After Look. Instead of bringing it: gives a file of that content, which is on the same file
  // system, another name among what was brought. The caller has compared its bytes. kNotSupported:
  // the file system, or its rules about other users' files, does not allow that.
  virtual Status Link(const WholeFile& file, const std::string& path) = 0;
  // After Look. Removes what was brought, now or by an earlier process, and is none of `files`.
  virtual Status DropAllBut(const std::vector<WholeFile>& files) = 0;
};

}  // namespace hyperloop
