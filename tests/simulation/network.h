// The TCP network of the simulation: connections between ports of 127.0.0.1, inside this process.
#pragma once

#include <cstdint>

namespace hyperloop::simulation {

// Whether connections to `port` can be made and used. When it is cut, those that exist break, and
// new ones are refused.
void SetReachable(uint16_t port, bool reachable);

}  // namespace hyperloop::simulation
