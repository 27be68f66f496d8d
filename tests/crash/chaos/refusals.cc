#include "crash/chaos/refusals.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace hyperloop::chaos {
namespace {

struct Refusal {
  std::string_view reason;   // what it says is wrong
  std::string_view way_out;  // what it says can be done; empty: naming the culprit is all there is
};

constexpr auto kKnown = std::to_array<Refusal>({
    // who may take the group
    {"is held by a living primary", "takeover=true"},
    {"another primary takes the group at the same time", ""},
    {"a part of a group is not the group", "list all of them"},
    {"is not of this configuration", "list those only"},
    {"is a new node, and not node", "give that replica its former pool"},
    {"belongs to group", "list the replicas of one group"},
    {"are the same replica", "list each once"},
    {"more than once", ""},
    {"twice", ""},
    // which directory
    {"is empty but group", "restore=true"},
    {"is bound to", "rebind=true"},
    {"now belongs to database", "rebind=true"},
    {"is a copy", "rebind=true"},
    {"belongs to group", "use another directory"},
    {"never in group", "open it without the group"},
    {"lacks files", "Two ways out"},
    {"was changed without its group", "Two ways out"},
    {"is not open here", "Use a command that opens the database"},
    // places
    {"No space left", ""},
    {"B free", "make room"},
    {".pool is truncated", ""},
    {".pool", "damaged"},
    // parts out of reach are named
    {"127.0.0.1:", ""},
    {"rnicd.sock", ""},
    {"when all replicas and RNIC daemons run", "hyperloopctl status"},
    {"the software RNIC has stopped", "start hyperloop-rnicd"},
    {"the RNIC daemon has closed the connection", "see its log, and whether it runs"},
});

}  // namespace

bool NamesAWayOut(const std::string& text) {
  return std::any_of(kKnown.begin(), kKnown.end(), [&](const Refusal& known) {
    return text.find(known.reason) != std::string::npos &&
           text.find(known.way_out) != std::string::npos;
  });
}

}  // namespace hyperloop::chaos
