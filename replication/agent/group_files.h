// GroupFiles: judges what the files of a host say of its group, which are read again and again
// while an agent runs. It is pure: what was read is handed in.
//
// Nothing is done for a single reading, as somebody may be writing. What the files say replaces
// what they said before if they were read alike twice in a row, and list a majority of the replicas
// that the group has recorded.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/options.h"
#include "options/node_group.h"

namespace hyperloop::agent {

class GroupFiles {
 public:
  enum class Verdict : uint8_t {
    kGoOn,   // there is nothing to be done
    kTake,   // group() and store() are others now
    kLeave,  // this host is none of the group's any more
  };
  // What they said when the agent began.
  GroupFiles(NodeGroup group, StoreOptions store)
      : began_(std::move(group)), store_(std::move(store)), taken_(TextOf(began_, store_)) {}

  // `recorded`: the addresses of the replicas that the group has; none: it is not known.
  // kInvalidArgument: they list too few of these.
  Result<Verdict> Judge(const NodeGroup& group, StoreOptions store,
                        const std::vector<std::string>& recorded);
  // The file of the group does not name this host.
  Verdict JudgeLeft();
  // They could not be read.
  void Forget() { last_.clear(); }

  // With the pool of the start.
  const StoreOptions& store() const { return store_; }
  // Names of the settings that they say otherwise than at the start, and that count from the next
  // start of the agent.
  const std::string& later() const { return later_; }

 private:
  static std::string TextOf(const NodeGroup& group, const StoreOptions& store);
  bool IsSecond(const std::string& text);

  const NodeGroup began_;
  StoreOptions store_;
  std::string taken_, last_;  // what was read, as text
  std::string later_;
};

// Who was last seen at an address.
struct Resident {
  std::string node, group;  // ids
};
// The replicas with which the service opens the group. Files may list a replica that the group has
// not taken in yet, or one less than it has, and no primary opens it so: those that are recorded
// count. But one that moved is where it is listed; and one of another group than `group` stays, so
// that the opening is refused.
std::vector<std::string> ReplicasToOpen(const std::vector<std::string>& listed,
                                        const std::vector<std::string>& recorded,
                                        const std::map<std::string, Resident>& residents,
                                        const std::string& group);

}  // namespace hyperloop::agent
