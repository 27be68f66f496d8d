// The bounds of a message's fields. A peer may be anybody, and the fields of its messages end up in
// logs, on terminals and in pools.
#pragma once

#include "control/messages.h"

namespace hyperloop::control {

// Refuses names and epochs that are out of bounds, by the name of their field. Makes texts for
// people printable, and cuts them to their greatest size if escaping made them longer.
Status CheckLimits(BodyUnion* body);

}  // namespace hyperloop::control
