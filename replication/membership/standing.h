// Standing: what a replica's answer says of it, as named predicates. docs/glossary.md explains the
// terms, each once; other comments only use them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "control/messages.h"
#include "hyperloop/core/status.h"
#include "membership/configuration.h"

namespace hyperloop {

// A replica and its answer to Hello.
struct MemberLook {
  std::string name;     // for messages: "replica HOST:PORT"
  std::string address;  // its control endpoint
  control::HelloReplyT hello;
};

// A replica that is listed but cannot serve now.
struct MissingReplica {
  std::string name;     // as MemberLook's
  std::string address;  // as MemberLook's
  std::string why;
  bool refused = false;  // it answers, but what it holds must not be overwritten
};

// --- who counts

// Whether the node counts. Absent replicas do not, nor does another node at a replica's address.
bool Counts(const Configuration& configuration, const std::string& node_id);
// The least number of `replicas` that is more than half of them.
constexpr size_t MajorityOf(size_t replicas) { return replicas / 2 + 1; }

// What the options say about replicas that fail.
struct FailureRules {
  bool may_leave_out = false;              // on_replica_failure=continue
  size_t min_replicas = 0;                 // as the option
  std::vector<std::string> given_up = {};  // StoreOptions::given_up

  // Whether a taking is planned although replicas do not answer.
  bool bears_missing() const { return may_leave_out || !given_up.empty(); }
};
// How many replicas of `configuration` must be there to go on without the others, or SIZE_MAX if
// none may be left out. It is at least a majority of them, and of all that the group has, absent
// ones included. So any two sets of replicas that serve share one, whatever configurations were
// installed by some of their members only.
size_t LeastReplicas(const Configuration& configuration, const FailureRules& rules);

// --- who has caught up

// Whether fewer than half of `all` replicas are holders. Then flushes wait for those that are being
// filled, and no replica leaves the group.
constexpr bool FewHold(size_t holders, size_t all) { return 2 * holders < all; }

// How the replicas of a group stand.
struct Redundancy {
  size_t members = 0, absent = 0;
  size_t silent = 0;         // members that answer no request
  size_t holders = 0;        // members that answer, and hold the files of the database
  bool catching_up = false;  // a member does not hold them yet
};
// Why writes would stop if one more replica failed; empty: they would go on.
std::string NextFailure(const Redundancy& now, const FailureRules& rules);

// --- who is older, and who is of another history

// The newest epoch that the node knows of.
uint64_t NewestEpoch(const MemberLook& look);
// All takings of a group's life are fewer. One Seal takes a replica beyond what another one may
// claim.
inline constexpr uint64_t kMostAhead = control::kMaxEpochStep / 2;
// Why the epochs that `look` tells are not those of a taking: they are beyond those of all other
// `looks` by more than kMostAhead. Empty: they may be. So one member's claim costs the others one
// Seal each, and few of the epochs that they will need.
std::string WhyFarAhead(const MemberLook& look, std::span<const MemberLook> looks);
// Which member alone demands an epoch far beyond those of all others, for messages; empty: none.
std::string WhoIsAhead(std::span<const MemberLook> looks);

// The owner whose configuration the node has installed. Nothing: there is none, or the node does
// not tell; then nobody served by that configuration, and the node was sealed for another owner
// since.
std::optional<Uuid> InstalledOwner(const control::HelloReplyT& hello);
// What the node has installed; its owner is nil if InstalledOwner is nothing.
Result<Configuration> ConfigurationOf(const MemberLook& look);
// Why what `look` tells of itself is said by no replica that works; empty: it may be.
std::string WhyNonsense(const MemberLook& look);

// Whether what the node has installed is of the branch of `own`.
bool IsOfBranch(const control::HelloReplyT& hello, const Configuration& own);
// Whether the node is older than the branch of `own`.
bool IsOlder(const control::HelloReplyT& hello, const Configuration& own);
// Whether the node's content may be of another branch than `own`. `named`: `own` names it, as one
// that counts or as an absent one. An older node that is named may be made equal.
bool Diverged(const control::HelloReplyT& hello, const Configuration& own, bool named);

// Whether the node has installed the very configuration of `own`, whose owner is known.
bool HasInstalled(const control::HelloReplyT& hello, const Configuration& own);
// Whether the node has installed another owner's configuration of the same epoch. Nodes went back
// to older copies of their pools then, and promised that epoch once more. So what was acknowledged
// under the one may be missing under the other.
bool IsOfRival(const control::HelloReplyT& hello, const Configuration& own);

// The epochs of which a primary that serves knows the owner.
struct KnownOwners {
  Configuration former;  // what its taking found installed; epoch 0: nothing
  uint64_t since = 0;    // the epoch that its taking sealed first
};
// IsOfRival, of each of these epochs: `own`'s owner has those from `since` on.
bool IsOfRival(const control::HelloReplyT& hello, const Configuration& own,
               const KnownOwners& known);
// Whether a node that counts in `own`, which all of its replicas have installed, went back to an
// older copy of its pool.
bool WentBack(const control::HelloReplyT& hello, const Configuration& own);

// --- whose the node is

// Whether the replica's sealed owner is the one whose id has this digest.
bool IsOwner(const control::HelloReplyT& hello, const Uuid& digest);
// Whether another primary than that of `own` may have acknowledged a write at the replica since.
bool ServedByAnother(const control::HelloReplyT& hello, const Configuration& own);
// Whether the node was promised to a primary that has not released it.
bool IsHeld(const control::HelloReplyT& hello);

// Whether no owner can be alive, so that no heartbeat need be watched.
bool NobodyToWatch(std::span<const MemberLook> members);
// Returns the first member whose owner lives: between the two looks its heartbeat moved, and the
// owner has not released it. nullptr: there is none.
const MemberLook* LivingOwner(std::span<const MemberLook> before,
                              std::span<const MemberLook> after);
// Returns the first member that another primary sealed or installed between the two looks: what was
// read of it meanwhile may be of before or after. nullptr: there is none.
const MemberLook* MovedMember(std::span<const MemberLook> before,
                              std::span<const MemberLook> after);

}  // namespace hyperloop
