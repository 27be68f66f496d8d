#include "replica/node_state_store.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "inspect/service.h"

namespace hyperloop {

Status NodePageStore::Save(NodeState* state) {
  HL_ASSIGN_OR_RETURN(const PageRange range, WriteNodeState(page_, state));
  return media_.Persist(page_.data() + range.offset, range.size)
      .WithContext("writing the node page");
}

std::string NodePageStore::ReadOwnerName(std::span<const std::byte> page) {
  std::string name;
  for (const std::byte byte : page.subspan(kOwnerNameOffset, kOwnerNameSize)) {
    const auto c = static_cast<unsigned char>(byte);
    if (c == 0) break;
    name.push_back(c < 0x20 || c == 0x7f ? '?' : static_cast<char>(c));
  }
  return name;
}

void NodePageStore::SetOwnerName(std::string_view name) {
  name = name.substr(0, kOwnerNameSize - 1);
  std::byte* at = page_.data() + kOwnerNameOffset;
  std::memset(at, 0, kOwnerNameSize);
  std::memcpy(at, name.data(), name.size());
  media_.Persist(at, kOwnerNameSize).IgnoreError();
}

uint64_t NodePageStore::heartbeat() const {
  // The RNIC writes it; an aligned 8-byte load never sees half a value.
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(page_.data() + kHeartbeatOffset))
      .load(std::memory_order_relaxed);
}

}  // namespace hyperloop
