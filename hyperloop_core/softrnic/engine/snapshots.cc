#include "softrnic/engine/snapshots.h"

#include <algorithm>
#include <cstring>

namespace hyperloop::softrnic {

void Snapshots::Take(Qp& qp, bool executing) {
  const Qp::Send& send = qp.send;
  Qp::Snapshot& snapshot = qp.snapshot;
  const uint32_t ring = send.mask + 1;
  const uint32_t available =
      std::min<uint32_t>(static_cast<uint16_t>(send.producer - send.consumer), ring);
  uint32_t have = static_cast<uint16_t>(snapshot.fetched - send.consumer);
  if (have > available) have = 0, snapshot.fetched = send.consumer;
  const auto copy = [&](uint32_t index) {
    return snapshot.bytes.data() + static_cast<size_t>(index & send.fetch_mask) * rnic::kWqebbBytes;
  };
  const auto ring_block = [&](uint32_t index) {
    return send.ring + static_cast<size_t>(index & send.mask) * rnic::kWqebbBytes;
  };
  const auto fetch_to = [&](uint32_t want) {
    for (want = std::min(want, available); have < want; ++have, ++snapshot.fetched) {
      std::memcpy(copy(snapshot.fetched), ring_block(snapshot.fetched), rnic::kWqebbBytes);
    }
  };
  uint32_t want = 0;
  switch (options_.test.fetch) {
    case EngineTestHooks::Fetch::kEarly:
      want = ring;
      break;
    case EngineTestHooks::Fetch::kRandom:
      want = static_cast<uint32_t>(dice_.Throw() % (available + 1));
      break;
    case EngineTestHooks::Fetch::kLate:
      break;
  }
  fetch_to(std::max(want, options_.prefetch_depth));
  if (!executing) return;
  fetch_to(1);
  const uint32_t blocks = (std::to_integer<uint32_t>(copy(send.consumer)[7]) % 64 + 3) / 4;
  fetch_to(blocks);
  for (uint32_t i = 0; i < std::min(blocks, available); ++i) {
    const uint32_t index = send.consumer + i;
    if (std::memcmp(copy(index), ring_block(index), rnic::kWqebbBytes) == 0) continue;
    ++qp.count.stale_fetches;
    break;
  }
}

}  // namespace hyperloop::softrnic
