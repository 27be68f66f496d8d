// WholeFile: a file of the bulk lane, which is shipped when it is finished and never changes.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>

namespace hyperloop {

// Two files with the same three values have the same bytes.
struct WholeFile {
  std::string name;  // relative to the database directory; a directory only for archived logs
  uint64_t size = 0;
  uint64_t checksum = 0;  // FileChecksum of its bytes
  friend auto operator<=>(const WholeFile&, const WholeFile&) = default;
};

// CRC-64 (ECMA-182, reflected) of a file's bytes, added in order. Never 0, which stands for a file
// whose checksum is not known.
class FileChecksum {
 public:
  void Add(std::span<const char> bytes);
  uint64_t value() const { return crc_ == 0 ? 1 : crc_; }

 private:
  uint64_t crc_ = 0;
};

}  // namespace hyperloop
