#include "hyperloop/replication/whole_file.h"

#include <isa-l/crc64.h>

namespace hyperloop {

void FileChecksum::Add(std::span<const char> bytes) {
  crc_ = crc64_ecma_refl(crc_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

}  // namespace hyperloop
