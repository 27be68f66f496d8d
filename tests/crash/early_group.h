// The defect that the crash test must find: a group that acknowledges before its tail did.
//
// A program that links early_group.cc, with the linker's --wrap for Group::Create, can have its
// groups wrapped.
#pragma once

#include <atomic>
#include <cstdint>

namespace hyperloop::test {

// Groups made from now on: while `*early` is not 0, an operation counts as acknowledged as soon as
// it is submitted. `early` outlives them.
void AcknowledgeEarlyWhile(const std::atomic<uint32_t>* early);

}  // namespace hyperloop::test
