#include "group/cpu_message.h"

#include <bit>
#include <cstring>

#include "group/check_operation.h"
#include "hyperloop/core/text.h"

namespace hyperloop {

static_assert(std::endian::native == std::endian::little);

CpuMessage EncodeCpuMessage(uint64_t sequence, const Operation& op) {
  return {.write_offset = op.write.offset,
          .write_size = op.write.size,
          .copy_source = op.copy.source,
          .copy_destination = op.copy.destination,
          .copy_size = op.copy.size,
          .cas_offset = op.cas.offset,
          .cas_expected = op.cas.expected,
          .cas_desired = op.cas.desired,
          .execute_map = op.cas.execute_map,
          .has_cas = op.cas.present,
          .flush = op.flush,
          .reserved = 0,
          .result = {sequence}};
}

Result<Operation> DecodeCpuMessage(const CpuMessage& message, uint64_t sequence,
                                   uint64_t region_size, uint32_t group_size) {
  if (message.result.sequence != sequence || message.has_cas > 1 || message.flush > 1) {
    return Corruption(Text("message number ", message.result.sequence, " (flags ",
                           unsigned{message.has_cas}, ", ", unsigned{message.flush},
                           ") came where operation ", sequence, " was due"));
  }
  Operation op;
  op.write = {message.write_offset, message.write_size};
  op.copy = {message.copy_source, message.copy_destination, message.copy_size};
  op.cas = {message.has_cas != 0, message.cas_offset, message.cas_expected, message.cas_desired,
            message.execute_map};
  op.flush = message.flush != 0;
  if (const Status good = CheckOperation(op, region_size, group_size); !good.ok()) {
    return Corruption(Text("operation ", sequence, " of the previous node: ", good.message()));
  }
  return op;
}

bool CpuMessages::Encode(uint64_t m, const Operation& operation) {
  // The results behind it stay 0: replicas write into their own copies.
  const CpuMessage message = EncodeCpuMessage(m + 1, operation);
  std::memcpy(this->message(m), &message, sizeof(message));
  return geometry_.forces_flush(m);
}

}  // namespace hyperloop
