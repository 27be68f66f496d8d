// The bounds of what a message says. A peer may be anybody: what its messages hold ends up in logs,
// on terminals and in pools.
#pragma once

#include "control/messages.h"

namespace hyperloop::control {

// Names and epochs that are out of bounds are refused, by the name of their field; texts for people
// are made printable, and cut to their greatest size if escaping made them longer.
Status CheckLimits(BodyUnion* body);

}  // namespace hyperloop::control
