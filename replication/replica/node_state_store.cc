#include "replica/node_state_store.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/printable.h"
#include "inspect/service.h"

namespace hyperloop {

Status NodePageStore::Save(NodeState* state) {
  // A killed process may have left the newer copy visible but not durable. The other copy may be
  // overwritten only when the newer one is durable.
  const auto copies = page_.first(kHeartbeatOffset);
  HL_RETURN_IF_ERROR(
      media_.Persist(copies.data(), copies.size()).WithContext("writing the node page"));
  const std::vector<std::byte> before(copies.begin(), copies.end());
  HL_ASSIGN_OR_RETURN(const PageRange range, WriteNodeState(page_, state));
  const Status saved = media_.Persist(page_.data() + range.offset, range.size);
  if (!saved.ok()) {
    // The former state stays valid, and the next attempt writes over the same copy.
    std::memcpy(page_.data() + range.offset, before.data() + range.offset, range.size);
  }
  return saved.WithContext("writing the node page");
}

std::string NodePageStore::ReadOwnerName(std::span<const std::byte> page) {
  std::string name;
  for (const std::byte byte : page.subspan(kOwnerNameOffset, kOwnerNameSize)) {
    if (byte == std::byte{0}) break;
    name.push_back(static_cast<char>(byte));
  }
  return Printable(name, kOwnerNameSize);
}

void NodePageStore::SetOwnerName(std::string_view name) {
  name = name.substr(0, kOwnerNameSize - 1);
  std::byte* at = page_.data() + kOwnerNameOffset;
  std::memset(at, 0, kOwnerNameSize);
  std::memcpy(at, name.data(), name.size());
  media_.Persist(at, kOwnerNameSize).IgnoreError();
}

// The RNIC writes the word too; an aligned 8-byte access never reads half a value.
std::atomic_ref<uint64_t> NodePageStore::heartbeat_word() const {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(page_.data() + kHeartbeatOffset));
}

uint64_t NodePageStore::heartbeat() const {
  return heartbeat_word().load(std::memory_order_relaxed);
}

void NodePageStore::Beat() { heartbeat_word().fetch_add(1, std::memory_order_relaxed); }

}  // namespace hyperloop
