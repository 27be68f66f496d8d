// What msync does for simulated threads.
#pragma once

#include <cstddef>
#include <functional>

namespace hyperloop::simulation {

// Makes bytes durable, and returns 0, or returns an error number.
using Sync = std::function<int(const void* data, size_t size)>;
// From now on msync calls this.
void SetSync(Sync sync);

}  // namespace hyperloop::simulation
