// RandomUuid: a uuid that nobody else has.
#pragma once

#include "common/uuid.h"

namespace hyperloop {

// Version 4, from the kernel's random source.
Uuid RandomUuid();

}  // namespace hyperloop
