#include "group/messages.h"

#include "group/cpu_message.h"
#include "group/message_ring.h"

namespace hyperloop {

size_t MessageBytes(const SlotProgram& program) {
  const uint32_t bytes = program.datapath == Datapath::kOffload
                             ? program.message_bytes(0)
                             : CpuMessageBytes(program.group_size);
  return program.slots * Messages::Stride(bytes);
}

std::unique_ptr<Messages> MakeMessages(const SlotProgram& program, const PrimaryInfo& primary,
                                       std::span<const MemberInfo> chain, std::byte* memory) {
  if (program.datapath == Datapath::kOffload)
    return std::make_unique<MessageRing>(program, primary, chain, memory);
  return std::make_unique<CpuMessages>(program, memory);
}

}  // namespace hyperloop
