// When things happen, for tests: early fetch, and (Schedule::kRandom) a seeded order of single
// steps.
#include <algorithm>

#include "softrnic/engine_bytes.h"
#include "softrnic/engine_impl.h"

namespace hyperloop::softrnic {

// Copies WQEBBs below the producer index out of the ring: as many as the fetch mode wants and, when
// executing, all that the WQE at the consumer index has. What runs is the copy.
void Engine::Impl::TakeSnapshots(Qp& qp, bool executing) {
  const uint32_t ring = qp.sq_mask + 1;
  const uint32_t available =
      std::min<uint32_t>(static_cast<uint16_t>(qp.producer - qp.consumer), ring);
  uint32_t have = static_cast<uint16_t>(qp.fetched - qp.consumer);
  if (have > available) have = 0, qp.fetched = qp.consumer;
  const auto fetch_to = [&](uint32_t want) {
    for (want = std::min(want, available); have < want; ++have, ++qp.fetched) {
      const size_t at = static_cast<size_t>(qp.fetched & qp.sq_mask) * rnic::kWqebbBytes;
      std::memcpy(qp.snapshot.data() + at, qp.sq + at, rnic::kWqebbBytes);
    }
  };
  uint32_t want = 0;
  switch (options.fetch) {
    case EngineOptions::Fetch::kEarly:
      want = ring;
      break;
    case EngineOptions::Fetch::kRandom:
      want = static_cast<uint32_t>(random() % (available + 1));
      break;
    case EngineOptions::Fetch::kLate:
      break;
  }
  fetch_to(std::max(want, options.prefetch_depth));
  if (!executing) return;
  fetch_to(1);
  const auto slot = [&](uint32_t i) {
    return static_cast<size_t>((qp.consumer + i) & qp.sq_mask) * rnic::kWqebbBytes;
  };
  const uint32_t blocks = (std::to_integer<uint32_t>(qp.snapshot[slot(0) + 7]) % 64 + 3) / 4;
  fetch_to(blocks);
  for (uint32_t i = 0; i < std::min(blocks, available); ++i) {
    if (std::memcmp(qp.snapshot.data() + slot(i), qp.sq + slot(i), rnic::kWqebbBytes) == 0)
      continue;
    ++qp.count.stale_fetches;
    break;
  }
}

}  // namespace hyperloop::softrnic
