// Numbers that clients and peers must not guess: keys, host numbers, session numbers.
#pragma once

#include <sys/random.h>

#include <cstdint>

namespace hyperloop::softrnic {

// A number from the kernel's generator, never 0.
inline uint64_t RandomNumber() {
  uint64_t number = 0;
  while (number == 0)
    if (getrandom(&number, sizeof(number), 0) != sizeof(number)) number = 0;
  return number;
}

}  // namespace hyperloop::softrnic
