// What an owner's requests are judged by.
//
// Each taking process makes a random id and tells it to the replicas in its requests alone. A
// replica keeps the digest: neither its answers, nor its pool, nor the group's log give away what
// would let somebody else act as the owner.
#pragma once

#include "layout/uuid.h"

namespace hyperloop {

Uuid OwnerDigest(const Uuid& id);

}  // namespace hyperloop
