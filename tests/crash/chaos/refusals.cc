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
    {"is held by a living primary", "takeover=true"},
    {"takes the group at the same time", ""},
    {"holds the", "restore=true"},
    {"is bound to", "rebind=true"},
    {"now belongs to database", "rebind=true"},
    {"now belongs to database", "use another directory"},
    {"copy", "rebind=true"},
    {"belongs to group", "use another directory"},
    {"belongs to group", "list the replicas of one group"},
    {"is fresh while", "list the replicas that the group was made with"},
    {"never in group", "open it without the group"},
    {"recorded", "list"},
    {"recorded", "name"},
    {"listed twice", ""},
    {"are the same replica", "list each once"},
    {"twice", ""},
    {"missing", "put"},
    {"without the plugin", "keep"},
    {"No space left", ""},
    {"free", "make room"},
    {"is truncated", ""},
    {"damaged", ""},
    {"is not locked", "plugin"},
    {"127.0.0.1:", ""},  // a replica out of reach is named by its endpoint
    {"rnicd.sock", ""},  // the RNIC daemon by its socket
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
