// The message of the cpu-polling and cpu-event datapaths. It has the operation and the result area:
// every replica's CPU adds to that, and the last one writes it to the primary. All nodes are
// little-endian, and so is the message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "group/messages.h"
#include "group/result_area.h"

namespace hyperloop {

struct CpuMessage {
  uint64_t write_offset, write_size;
  uint64_t copy_source, copy_destination, copy_size;
  uint64_t cas_offset, cas_expected, cas_desired;
  uint32_t execute_map;
  uint8_t has_cas, flush;
  uint16_t reserved;
  ResultHeader result;  // behind it a ReplicaResult for each replica
};
static_assert(sizeof(CpuMessage) == 80 && std::is_trivially_copyable_v<CpuMessage>);
inline constexpr uint32_t kCpuMessageResult = offsetof(CpuMessage, result);

constexpr uint32_t CpuMessageBytes(uint32_t group_size) {
  return kCpuMessageResult + ResultBytes(group_size);
}
inline ReplicaResult* Results(CpuMessage* message) {
  return reinterpret_cast<ReplicaResult*>(message + 1);
}

CpuMessage EncodeCpuMessage(uint64_t sequence, const Operation& operation);
// The operation in a message that came from another node. kCorruption: it is not number `sequence`,
// or no primary could have submitted it. The caller must then do no part of it.
Result<Operation> DecodeCpuMessage(const CpuMessage& message, uint64_t sequence,
                                   uint64_t region_size, uint32_t group_size);

// The primary's messages. The replicas' CPUs make bytes durable themselves. The primary reads only
// with every N/2-th operation: the READ's answer proves that the device will not fetch earlier
// requests in its ring again.
class CpuMessages final : public Messages {
 public:
  explicit CpuMessages(const GroupGeometry& geometry)
      : Messages(geometry, CpuMessageBytes(geometry.group_size)) {}
  bool Encode(uint64_t m, const Operation& operation) override;

 private:
  void WriteConstants(const PrimaryInfo&, std::span<const MemberInfo>) override {}
};

}  // namespace hyperloop
