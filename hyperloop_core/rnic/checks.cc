#include "rnic/checks.h"

#include <bit>
#include <string>

#include "hyperloop/core/text.h"

namespace hyperloop::rnic {
namespace {

bool IsPowerOfTwoUpTo(uint32_t value, uint32_t limit) {
  return std::has_single_bit(value) && value <= limit;
}

bool IsSilence(std::chrono::milliseconds time) { return time.count() >= 0 && time <= kMaxSilence; }

}  // namespace

Status CheckQueues(const QpAttr& attr, const QueueLimits& limits) {
  if (attr.send_cq == nullptr || (attr.recv_cq == nullptr && attr.recv_wqes != 0)) {
    return InvalidArgument("a queue pair needs a completion queue for each of its queues");
  }
  if (!IsPowerOfTwoUpTo(attr.send_wqebbs, limits.ring)) {
    return InvalidArgument("send ring of " + std::to_string(attr.send_wqebbs) +
                           " blocks: a power of two, at most " + std::to_string(limits.ring));
  }
  if (attr.recv_wqes != 0 && !IsPowerOfTwoUpTo(attr.recv_wqes, limits.ring)) {
    return InvalidArgument("receive ring of " + std::to_string(attr.recv_wqes) +
                           " entries: 0 or a power of two, at most " + std::to_string(limits.ring));
  }
  if (attr.recv_max_sge == 0 || attr.recv_max_sge > limits.receive_sge) {
    return InvalidArgument("recv_max_sge " + std::to_string(attr.recv_max_sge) + ": 1 to " +
                           std::to_string(limits.receive_sge));
  }
  if (attr.retry_count > kMaxRetries || attr.rnr_retry > kMaxRetries) {
    return InvalidArgument("retry_count " + std::to_string(attr.retry_count) + ", rnr_retry " +
                           std::to_string(attr.rnr_retry) + ": 0 to 7");
  }
  if (attr.rnr_timer.count() < 1 || attr.rnr_timer > kMaxRnrTimer || !IsSilence(attr.ack_timeout) ||
      !IsSilence(attr.link_timeout)) {
    return InvalidArgument("rnr_timer of " + std::to_string(attr.rnr_timer.count()) +
                           " us, ack_timeout of " + std::to_string(attr.ack_timeout.count()) +
                           " ms, link_timeout of " + std::to_string(attr.link_timeout.count()) +
                           " ms: 1 us to 491520 us, and 0 to 8796093 ms each");
  }
  return {};
}

Status RingFull(std::string_view ring, std::string_view unit, const RingUse& use) {
  return NoSpace(Text(ring, " ring full: ", use.used, " of ", use.capacity, " ", unit, " in use, ",
                      use.needed, " needed"));
}

Status BadSges(std::span<const Sge> sges, uint32_t limit) {
  if (sges.size() > limit) {
    return InvalidArgument(std::to_string(sges.size()) + " scatter/gather entries: at most " +
                           std::to_string(limit));
  }
  for (const Sge& sge : sges) {
    if (sge.length - 1 < kMaxSgeBytes) continue;
    return InvalidArgument("scatter/gather entry of " + std::to_string(sge.length) +
                           " bytes: 1 to 2147483647 (leave an empty one out)");
  }
  return {};
}

}  // namespace hyperloop::rnic
