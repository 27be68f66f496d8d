// DirectoryCall: what hyperloopctl has hyperloop-directory do, which is linked with RocksDB. Both
// programs have this value; between them it is a list of named arguments.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/options.h"

namespace hyperloop {

struct DirectoryCall {
  // Takes the directory's database into a group that holds none.
  struct Adopt {};
  // Makes the directory the group's, in place of the former primary's.
  struct Promote {
    // What happens to replicas that are lost, if too few are left to agree on anything: the call is
    // refused; they are given up if somebody confirms it; they are given up.
    enum class Lost : uint8_t { kRefuse, kAsk, kGiveUp };
    std::string replica_files;  // of a replica on this machine; empty: none are used
    Lost lost = Lost::kRefuse;
  };
  // Keeps the directory ready for that, and takes nothing.
  struct Standby {
    std::string replica_files;  // as Promote's
  };
  // As Promote, once a primary that lives has closed its database.
  struct Switchover {
    std::string replica_files;  // as Promote's
    std::chrono::seconds wait{0};
  };
  // Compares the directory with the group, and changes nothing.
  struct Doctor {};
  // Reads the database in the directory through, and knows no group.
  struct Deep {};
  using What = std::variant<Adopt, Promote, Standby, Switchover, Doctor, Deep>;

  What what;
  std::string directory;
  std::optional<StoreOptions> group;  // nothing, for Doctor: the one that it is bound to; for Deep

  // The word for `what`: the first argument.
  const char* verb() const;
};

inline constexpr std::chrono::seconds kMostSwitchoverWait{604800};

// The arguments that ParseDirectoryCall turns into `call` again.
std::vector<std::string> ArgumentsOf(const DirectoryCall& call);
// `arguments`: without the program's name. kInvalidArgument: the verb, or an argument, is unknown;
// one is missing, or there twice; one does not belong to the verb; a value is none of those that it
// may have. The message names it.
Result<DirectoryCall> ParseDirectoryCall(std::span<const std::string> arguments);

}  // namespace hyperloop
