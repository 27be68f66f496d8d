// Which name somebody who mistyped one has probably meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace hyperloop {

// The name with the fewest edits to `text`. An edit replaces, adds or drops a letter, or swaps two
// that are next to each other. REQUIRES: `names` is not empty.
std::string_view NearestName(std::string_view text, std::span<const std::string_view> names);

// "; did you mean NAME?" if `text` is the beginning of a name (three letters or more), or at most a
// third of it would have to be edited; else empty.
std::string DidYouMean(std::string_view text, std::span<const std::string_view> names);

}  // namespace hyperloop
