#include "membership/choose_member.h"

#include <algorithm>
#include <tuple>

#include "hyperloop/core/text.h"

namespace hyperloop {
namespace {

// The newest epoch that a member has installed. 0: there is none.
uint64_t NewestEpoch(std::span<const MemberContent> members) {
  uint64_t newest = 0;
  for (const MemberContent& each : members) newest = std::max(newest, each.content.installed_epoch);
  return newest;
}

// The newest epoch below `limit` that a member which does not join has installed. 0: there is none.
uint64_t EpochBefore(std::span<const MemberContent> members, uint64_t limit) {
  uint64_t newest = 0;
  for (const MemberContent& each : members)
    if (!each.joins && each.content.installed_epoch < limit)
      newest = std::max(newest, each.content.installed_epoch);
  return newest;
}

// The best of the members of `epoch` that have a sound log, and do not join. Null: none has.
const MemberContent* BestOf(std::span<const MemberContent> members, uint64_t epoch) {
  const auto rank = [](const MemberContent& m) {
    return std::tuple(m.content.last_seq, -static_cast<int64_t>(m.content.damage.size()),
                      m.content.executed_seq);
  };
  const MemberContent* best = nullptr;
  for (const MemberContent& each : members) {
    if (!MayBeChosen(each, epoch)) continue;
    if (best == nullptr || rank(each) > rank(*best)) best = &each;
  }
  return best;
}

}  // namespace

bool MayBeChosen(const MemberContent& member, uint64_t epoch) {
  return !member.joins && member.content.installed_epoch == epoch &&
         member.content.log_error.empty();
}

Result<Choice> ChooseMember(std::span<const MemberContent> members, bool unserved) {
  const uint64_t newest = NewestEpoch(members);
  const MemberContent* best = BestOf(members, newest);
  const uint64_t before = EpochBefore(members, newest);
  if (best == nullptr && unserved && before != 0) best = BestOf(members, before);
  Choice choice;
  std::string damaged, knows;
  for (const MemberContent& each : members) {
    // A member of an older epoch counts too: every log that was installed later holds the records
    // that were acknowledged then.
    if (each.content.acked_seq > choice.known_acked) knows = each.name;
    choice.known_acked = std::max(choice.known_acked, each.content.acked_seq);
    if (!each.content.log_error.empty())
      damaged += Text("; ", each.name, ": ", each.content.log_error);
  }
  if (best == nullptr)
    return Corruption(Text("no replica of epoch ", newest, " has a sound log", damaged));
  // The end of the newest log may be damaged so that its own bytes do not show it. The members of
  // the epoch before, too, held all that was acknowledged when the newest one was installed, and
  // nothing was acknowledged since.
  if (best->content.last_seq < choice.known_acked && unserved && before != 0) {
    const MemberContent* const longer = BestOf(members, before);
    if (longer != nullptr && longer->content.last_seq >= choice.known_acked) best = longer;
  }
  if (best->content.last_seq < choice.known_acked) {
    return Corruption(Text("record ", choice.known_acked, " was acknowledged, as ", knows,
                           " says, but the best log, that of ", best->name, ", ends at ",
                           best->content.last_seq, damaged));
  }
  choice.index = static_cast<size_t>(best - members.data());
  return choice;
}

SourceOrder SourcesFor(const Choice& choice, std::span<const MemberContent> members) {
  const control::ContentT& chosen = members[choice.index].content;
  const auto equal = [&](size_t i) {
    return members[i].content.installed_epoch == chosen.installed_epoch &&
           members[i].content.executed_seq >= chosen.executed_seq;
  };
  SourceOrder out;
  for (size_t i = 0; i < members.size(); ++i) out.indices.push_back(i);
  const auto others = std::stable_partition(out.indices.begin(), out.indices.end(), equal);
  out.equal = static_cast<size_t>(others - out.indices.begin());
  return out;
}

std::vector<bool> CutLogs(const Choice& choice, std::span<const MemberContent> members) {
  return CutLogs(members[choice.index].content.last_seq, members);
}

std::vector<bool> CutLogs(uint64_t last_seq, std::span<const MemberContent> members) {
  std::vector<bool> cut;
  for (const MemberContent& each : members)
    cut.push_back(!each.content.log_error.empty() || each.content.last_seq > last_seq);
  return cut;
}

LogsEnd EndOf(const Result<Choice>& best, std::span<const MemberContent> members) {
  if (best.ok()) return {true, members[best->index].content.last_seq};
  LogsEnd longest;
  for (const MemberContent& each : members)
    longest.last_seq = std::max(longest.last_seq, each.content.last_seq);
  return longest;
}

std::vector<std::string> DescribeDamage(std::span<const MemberContent> members) {
  std::vector<std::string> lines;
  for (const MemberContent& each : members) {
    if (!each.content.log_error.empty())
      lines.push_back(Text(each.name, ": ", each.content.log_error));
    for (const std::string& what : each.content.damage)
      lines.push_back(Text(each.name, ": ", what));
  }
  return lines;
}

}  // namespace hyperloop
