// FailingMemory: operator new of the program fails where a test says. A program that has it links
// failing_memory.cc, which replaces operator new and delete.
#pragma once

#include <cstddef>

namespace hyperloop::test {

// While one lives, operator new fails on the calling thread, or on all others. There is at most
// one.
class FailingMemory {
 public:
  enum class Where { kHere, kElsewhere };
  // `count` allocations in a row fail, beginning with number `number`, counted from 0.
  FailingMemory(Where where, size_t number, size_t count);
  ~FailingMemory();
  FailingMemory(const FailingMemory&) = delete;
  FailingMemory& operator=(const FailingMemory&) = delete;

  // How many have failed.
  static size_t failed();
  // Allocations of the program that live.
  static long living();
};

}  // namespace hyperloop::test
