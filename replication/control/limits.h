// The bounds of a message's fields. They are checked because a peer may be anybody, and the fields
// of its messages end up in logs, on terminals and in pools.
#pragma once

#include "control/messages.h"

namespace hyperloop::control {

// kInvalidArgument: a name, a text or an epoch is out of bounds, and the message names its field.
// Makes texts for people printable, and cuts those that escaping made too long.
Status CheckLimits(BodyUnion* body);

}  // namespace hyperloop::control
