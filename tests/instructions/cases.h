// The cases of instruction_counts. Each is deterministic: one thread, the embedded RNIC stepped by
// hand, fixed keys.
#pragma once

#include <cstdint>

#include "instructions/meter.h"

namespace hyperloop::instructions {

// One WQE of each kind in the RNIC's engine, in batches of 48 behind one doorbell; each counts its
// share.
void CountWqes(Meter& meter, uint64_t batches);
// One group operation at a time on a group of 3, window 64. NAME.primary counts the library's part
// in the primary (Submit, Wait), NAME.rnic the engine's part for all four RNICs, and NAME.replicas
// the replicas' processors together, in turns with and without a message.
void CountGroupOperations(Meter& meter, uint64_t operations);
// One append to a log file, acknowledged before the next, on a group of 3: log lane, journal and
// group in .primary, the RNICs' engine in .rnic. Within an extent, without a checkpoint.
void CountAppends(Meter& meter, uint64_t appends);

// Ends the program with the reason, because the counts of a failed case mean nothing.
[[noreturn]] void Fail(const char* what, const std::string& why);

}  // namespace hyperloop::instructions
