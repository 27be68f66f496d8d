// Admission: which connection without an introduction makes room for another one.
//
// Anybody who reaches a port can connect and be slow or silent, so connections are bounded until
// both ends have introduced themselves; a stranger is one that has not. At the bound of a source
// (an address or a network), a stranger from there gives way. At the bound of all sources, one from
// the source that has most does. A source from which a known peer ever came is not counted there,
// so strangers from elsewhere, however many, never close a connection from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace hyperloop {

struct StrangerLimits {
  size_t of_source;  // from one source of which no peer is known
  size_t of_known;   // from one source of a known peer
  size_t all;        // from all sources together of which no peer is known
};

struct Stranger {
  std::string_view source;
  std::pair<bool, uint64_t> rank;  // of one source, the least gives way first
};

using KnownSources = std::set<std::string, std::less<>>;

// Returns the index of the stranger that gives way to a newcomer from `source`. Nothing: there is
// room, or nobody gives way. `full`: there is no place at all, not even for a source with room.
std::optional<size_t> WhoGivesWay(std::span<const Stranger> strangers, std::string_view source,
                                  const KnownSources& known, const StrangerLimits& limits,
                                  bool full = false);

}  // namespace hyperloop
