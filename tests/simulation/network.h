// The TCP network of the simulation: connections between ports of 127.0.0.1, inside this process.
#pragma once

#include <cstdint>

namespace hyperloop::simulation {

// Whether connections to `port` can be made and used. When it is cut, those that exist break, and
// new ones are refused.
void SetReachable(uint16_t port, bool reachable);

// A process dies: its connections break, its ports are free, and it makes no other connections.
void EndConnections(uint64_t process);
bool HasDied(uint64_t process);

}  // namespace hyperloop::simulation
