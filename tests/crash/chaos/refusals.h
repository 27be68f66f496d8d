// The texts with which the product refuses, and what in each of them names a way out.
#pragma once

#include <string>

namespace hyperloop::chaos {

// Whether `text` has a known refusal together with what its reader can do.
bool NamesAWayOut(const std::string& text);

}  // namespace hyperloop::chaos
