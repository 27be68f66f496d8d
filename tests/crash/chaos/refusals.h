// The texts with which the product refuses, and the part of each that names a way out.
#pragma once

#include <string>

namespace hyperloop::chaos {

// Whether `text` has a known refusal together with its way out, which is not far behind it.
bool NamesAWayOut(const std::string& text);

}  // namespace hyperloop::chaos
