#include "crash/chaos/refusals.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace hyperloop::chaos {
namespace {

struct Refusal {
  std::string_view reason;   // what it says is wrong
  std::string_view way_out;  // what it says can be done
};

// Whoever reads a refusal finds the way out so many characters behind what is wrong, at most.
constexpr size_t kNear = 250;

constexpr auto kKnown = std::to_array<Refusal>({
    // who may take the group
    {"is held by a living primary", "takeover=true"},
    {"a part of a group is not the group", "list all of them"},
    {"is not of this configuration", "list those only"},
    {"is a new node, and not node", "give that replica its former pool"},
    {"belongs to group", "list the replicas of one group"},
    {"are the same replica", "list each once"},
    {"replicas are there, and", "promote --force goes on"},
    {"replicas are there, and", "hyperloopctl adopt"},
    {"replicas are there, and", "on_replica_failure=continue goes on"},
    {" twice", "accepted: list of host:port"},
    {"takes the group at the same time", "try again when"},
    {"the log was overwritten", "try again when there is less load"},
    // which directory
    {"is empty but group", "give restore=true and rebind=true"},
    {"is bound to", "open it there, or, if that directory is gone, add rebind=true"},
    {"now belongs to database", "open that directory, or give rebind=true"},
    {"is a copy", "rebind=true"},
    {"belongs to group", "use another directory"},
    {"never in group", "open it without the group"},
    {"lacks files", "Two ways out"},
    {"was changed without its group", "Two ways out"},
    {"is not open here", "Use a command that opens the database"},
    // places
    {"B free", "make room"},
    {".pool is truncated", "Set the file aside"},
    {".pool is damaged", "Set the file aside"},
    {".pool is damaged", "put a copy of the file back"},
    // parts out of reach
    {"replica 127.0.0.2:", "hyperloopctl status says what it cannot reach"},
    {"is out of reach", "start it: hyperloop-replica --listen"},
    {"no RNIC daemon listens at", "start one with `hyperloop-rnicd --socket"},
    {"RNIC daemon", "hyperloopctl status says what it cannot reach"},
    {"RNIC daemon is gone", "start it again"},
    {"the software RNIC has stopped", "start hyperloop-rnicd"},
});
static_assert(std::ranges::none_of(kKnown, [](const Refusal& known) {
  return known.reason.empty() || known.way_out.empty();
}));

}  // namespace

bool NamesAWayOut(const std::string& text) {
  return std::any_of(kKnown.begin(), kKnown.end(), [&](const Refusal& known) {
    const size_t reason = text.find(known.reason), way_out = text.find(known.way_out);
    return reason != std::string::npos && way_out != std::string::npos && way_out <= reason + kNear;
  });
}

}  // namespace hyperloop::chaos
