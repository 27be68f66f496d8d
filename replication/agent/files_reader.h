// FilesReader: reads the files of a host's group again and again while its agent runs, so that a
// host may come or go (GroupFiles judges them). Files that cannot be used change nothing.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "agent/boot_clock.h"
#include "agent/group_files.h"
#include "hyperloop/core/log.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/options.h"
#include "options/node_group.h"

namespace hyperloop::agent {

class FilesReader {
 public:
  using Time = BootClock::time_point;
  // Reads what the agent's URI says now, and judges it.
  using ReadStore = std::function<Status(StoreOptions*)>;
  using Say = std::function<void(LogLevel, const std::string&)>;

  // What they said when the agent began.
  FilesReader(NodeGroup group, StoreOptions store, ReadStore read_store, Say say);

  // Reads them, once a second at most. kTake: store() is another one now; kLeave: this host is none
  // of the group's any more. `recorded`: as GroupFiles'.
  GroupFiles::Verdict Read(Time now, const std::vector<std::string>& recorded);
  const StoreOptions& store() const { return files_.store(); }

 private:
  Result<GroupFiles::Verdict> ReadOnce(const std::vector<std::string>& recorded);
  bool IsTakenOut() const;

  const std::string name_;  // the group's
  const std::string host_;  // this host's name in them; empty: it was none of the group's
  const ReadStore read_store_;
  const Say say_;
  GroupFiles files_;
  Time next_{};
  std::string error_;  // why they could not be used last; empty: they were
};

}  // namespace hyperloop::agent
