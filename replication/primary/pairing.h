// Whether a database directory and a group belong together.
#pragma once

#include <cstddef>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/store.h"
#include "region/region_layout.h"

namespace hyperloop {

// Checks that directory and group belong together, as Store::Take does. `binding`: what the group
// is bound to; nil: nothing. Of `options` only restore, rebind and adopt count. `files`: how many
// the group holds.
Status CheckPairing(const TakeRequest& request, const StoreOptions& options, const Uuid& group,
                    const Binding& binding, size_t files);

}  // namespace hyperloop
