// What msync does for simulated threads, and what a power failure leaves of files that they wrote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>

namespace hyperloop::simulation {

// Makes bytes durable, and returns 0, or returns an error number.
using Sync = std::function<int(const void* data, size_t size)>;
// From now on msync calls this.
void SetSync(Sync sync);

// The files in this directory whose bytes and names are all synced, and their sizes.
std::map<std::string, uint64_t> SyncedFiles(const std::string& directory);

// The power of the host of this directory fails: bytes that were not synced may be zeros in the
// files of it, and names that were not synced may be gone, or those of before. Removed files stay
// removed.
void LoseUnsynced(const std::string& directory, std::mt19937_64& random);

}  // namespace hyperloop::simulation
