#include "replica/node_state_store.h"

#include <cstring>
#include <vector>

#include "common/heartbeat_word.h"
#include "hyperloop/core/out_of_memory.h"

namespace hyperloop {

Status NodePageStore::Save(NodeState* state) {
  // A killed process may have left the newer copy visible but not durable. The other copy may be
  // overwritten only when the newer one is durable.
  const auto copies = page_.first(kHeartbeatOffset);
  HL_RETURN_IF_ERROR(
      media_.Persist(copies.data(), copies.size()).WithContext("writing the node page"));
  const std::vector<std::byte> before(copies.begin(), copies.end());
  HL_ASSIGN_OR_RETURN(const PageRange range, WriteNodeState(page_, state));
  Status saved = NoSpace("out of memory");
  static_cast<void>(
      RanOutOfMemory([&] { saved = media_.Persist(page_.data() + range.offset, range.size); }));
  if (!saved.ok()) {
    // The former state stays valid, and the next attempt writes over the same copy.
    std::memcpy(page_.data() + range.offset, before.data() + range.offset, range.size);
  }
  return saved.WithContext("writing the node page");
}

void NodePageStore::SetOwnerName(std::string_view name) {
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(page_.data() + kOwnerAckedOffset))
      .store(0, std::memory_order_relaxed);
  const PageRange range = WriteOwnerName(page_, name);
  media_.Persist(page_.data() + range.offset, range.size).IgnoreError();
}

void NodePageStore::SetAbsences(std::string_view text) {
  const PageRange range = WriteAbsences(page_, text);
  media_.Persist(page_.data() + range.offset, range.size).IgnoreError();
}

// The RNIC writes the word too. An aligned access of 8 bytes never sees half a value.
std::atomic_ref<uint64_t> NodePageStore::heartbeat_word() const {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(page_.data() + kHeartbeatOffset));
}

uint64_t NodePageStore::heartbeat() const {
  return heartbeat_word().load(std::memory_order_relaxed);
}

void NodePageStore::Beat() {
  uint64_t word = heartbeat();
  while (!heartbeat_word().compare_exchange_weak(word, NextHeartbeat(word),
                                                 std::memory_order_relaxed)) {
  }
}

}  // namespace hyperloop
