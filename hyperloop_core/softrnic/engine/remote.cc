#include "softrnic/engine/remote.h"

#include <sys/random.h>

namespace hyperloop::softrnic {

uint64_t RandomNumber() {
  uint64_t number = 0;
  while (number == 0)
    if (getrandom(&number, sizeof(number), 0) != sizeof(number)) number = 0;
  return number;
}

}  // namespace hyperloop::softrnic
