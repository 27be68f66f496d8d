// Whose content a taking makes the group's, and what becomes of the other members' logs: pure
// functions over what the members say of their own regions.
//
// The members of the newest installed configuration have all that was acknowledged: whoever
// installed it had made them equal before, and all of them hold what it acknowledged since. So the
// longest log among those that installed it counts, and a longer one of an older epoch does not.
// Only if that epoch never served anybody may a log of the epoch before stand in: nothing was
// acknowledged since, and before the installation its members were made equal, too.
//
// A head, and a record's acked_seq, prove that records are kept. The chosen log must reach all of
// them, whichever member has the proof. So a damaged record is not taken for the end of the log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "control/messages.h"
#include "hyperloop/core/status.h"

namespace hyperloop {

// A member's report on its own region, before or after it was sealed.
struct MemberContent {
  std::string name;
  control::ContentT content;
  bool joins = false;   // it is not of the recorded configuration
  bool settled = true;  // nobody wrote meanwhile
};
// Whether the member's log may become the group's, where those of `epoch` may.
bool MayBeChosen(const MemberContent& member, uint64_t epoch);

struct Choice {
  size_t index = 0;
  uint64_t known_acked = 0;  // its log must reach at least this far
};

// Chooses the member whose log reaches farthest, among those that installed the newest epoch and
// have a sound log. If none of them has, or none that reaches the last record that any member knows
// to be kept, and that epoch is `unserved`, the members of the epoch before it that do not join
// take their place: whoever installed the newest epoch had made them equal to its members before,
// and a taking that was cut short may have made their log longer since. Members whose logs are
// equal have equal bytes wherever their checksums are right, so the least damaged one of them is
// chosen. kCorruption: no such log reaches the last record that any member, however damaged or old,
// knows to be acknowledged. `unserved`: as TakePlan's.
Result<Choice> ChooseMember(std::span<const MemberContent> members, bool unserved);

// The members in the order in which sound bytes are asked of them.
struct SourceOrder {
  std::vector<size_t> indices;
  // So many of them, from the first on, installed the chosen member's epoch and have executed all
  // that it has.
  size_t equal = 0;
};
SourceOrder SourcesFor(const Choice& choice, std::span<const MemberContent> members);

// For each member whether its log is damaged, or has records that the chosen one's lacks. The
// member may have executed such records, and only its own log says so.
std::vector<bool> CutLogs(const Choice& choice, std::span<const MemberContent> members);

// The same, where the new log is one that ends at `last_seq`.
std::vector<bool> CutLogs(uint64_t last_seq, std::span<const MemberContent> members);

// The end of the members' best log, or of their longest one if none will do (ChooseMember).
struct LogsEnd {
  bool will_do = false;
  uint64_t last_seq = 0;
  friend bool operator==(const LogsEnd&, const LogsEnd&) = default;
};
LogsEnd EndOf(const Result<Choice>& best, std::span<const MemberContent> members);

// Returns one line for each damage of each member.
std::vector<std::string> DescribeDamage(std::span<const MemberContent> members);

}  // namespace hyperloop
