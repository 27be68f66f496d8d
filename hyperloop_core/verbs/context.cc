#include "verbs/context.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/steady_ns.h"

namespace hyperloop::verbs {
namespace {

constexpr uint64_t kLookInterval = 10'000'000;  // ns
constexpr uint32_t kCallsPerClock = 16;

}  // namespace

Status VerbsError(int error, const std::string& what) {
  if (error != ENOMEM && error != EAGAIN && error != EPERM) return FromErrno(error, what);
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  if (limit.rlim_cur == RLIM_INFINITY) return FromErrno(error, what);
  return NoSpace(
      what + ": " + std::strerror(error) + ". RDMA memory is locked, and this process may lock " +
      std::to_string(limit.rlim_cur >> 10) +
      " KiB: raise it (ulimit -l unlimited; systemd: LimitMEMLOCK=infinity; a container: "
      "--ulimit memlock=-1)");
}

VerbsContext::VerbsContext(const Library& library, std::unique_ptr<ForkDetector> guard,
                           ibv_context* device, Port port, const DeviceOptions& options)
    : library_(library),
      guard_(std::move(guard)),
      device_(device),
      port_(std::move(port)),
      options_(options) {
  fcntl(device_->async_fd, F_SETFL, fcntl(device_->async_fd, F_GETFL) | O_NONBLOCK);
}

VerbsContext::~VerbsContext() {
  if (IsOwner()) library_.ibv_close_device(device_);
}

Status VerbsContext::QueryAttributes() {
  const int error = library_.ibv_query_device(device_, &attributes_);
  return error == 0 ? Status::Ok() : FromErrno(error, port_.device + ": ibv_query_device");
}

bool VerbsContext::Alive() {
  if (!Usable()) return false;
  if (alive_calls_.fetch_add(1, std::memory_order_relaxed) % kCallsPerClock != 0) return true;
  const uint64_t now = SteadyNs();
  uint64_t next = next_look_.load(std::memory_order_relaxed);
  if (now < next || !next_look_.compare_exchange_strong(next, now + kLookInterval)) return true;
  TakeAsyncEvents();
  return Usable();
}

void VerbsContext::TakeAsyncEvents() {
  pollfd ready{device_->async_fd, POLLIN, 0};
  while (poll(&ready, 1, 0) == 1) {
    ibv_async_event event;
    if (library_.ibv_get_async_event(device_, &event) != 0) {
      if (errno != EAGAIN && errno != EINTR) dead_.store(true, std::memory_order_relaxed);
      return;
    }
    if (event.event_type == IBV_EVENT_DEVICE_FATAL) dead_.store(true, std::memory_order_relaxed);
    library_.ibv_ack_async_event(&event);
  }
}

Status VerbsContext::DeadStatus() const {
  if (!IsOwner()) {
    return Unavailable("a forked child cannot use the RDMA device " + port_.device +
                       " that its parent opened");
  }
  return Unavailable("the RDMA device " + port_.device + " is gone");
}

Result<uint32_t> VerbsContext::AddQueuePair(VerbsQueuePair* qp) {
  const MutexLock lock(queue_pairs_mutex_);
  const auto free = std::find(queue_pairs_.begin(), queue_pairs_.end(), nullptr);
  const auto slot = static_cast<uint32_t>(free - queue_pairs_.begin());
  if (slot > WorkId::kSlotMask) return NoSpace("too many queue pairs");
  if (free == queue_pairs_.end()) {
    queue_pairs_.push_back(qp);
  } else {
    *free = qp;
  }
  return slot;
}

void VerbsContext::RemoveQueuePair(uint32_t slot) {
  const MutexLock lock(queue_pairs_mutex_);
  queue_pairs_[slot] = nullptr;
}

}  // namespace hyperloop::verbs
