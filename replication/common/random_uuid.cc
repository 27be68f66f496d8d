#include "common/random_uuid.h"

#include <sys/random.h>

#include <cstdlib>

namespace hyperloop {

Uuid RandomUuid() {
  Uuid uuid;
  // 16 bytes are below the size that getrandom may cut short; it fails only where the system call
  // does not exist.
  if (getrandom(uuid.data(), uuid.size(), 0) != static_cast<ssize_t>(uuid.size())) std::abort();
  uuid[6] = static_cast<uint8_t>((uuid[6] & 0x0f) | 0x40);
  uuid[8] = static_cast<uint8_t>((uuid[8] & 0x3f) | 0x80);
  return uuid;
}

}  // namespace hyperloop
