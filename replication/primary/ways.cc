#include "primary/ways.h"

#include <chrono>
#include <thread>

#include "common/random_uuid.h"
#include "hyperloop/core/text.h"
#include "primary/replica_handle.h"
#include "region/region_layout.h"

namespace hyperloop {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kAnswer{1};
// An RNIC waits for another one's answer for 5 s.
constexpr std::chrono::seconds kTry{8};
constexpr std::chrono::milliseconds kPause{20};

// The way from a replica to a service of `host`. Both are those of the replica at `to`, and
// `service` is empty; or they are the primary's, and `to` is empty.
Status TryOne(const control::Trust& trust, const Answered& from, const std::string& to,
              const std::string& host, const std::string& service) {
  if (!from.hello.tries_ways) return {};
  HL_ASSIGN_OR_RETURN(const control::Endpoint endpoint, control::ParseEndpoint(from.address));
  ReplicaHandle asked(endpoint, trust, kAnswer);
  control::TryWayRequestT request;
  request.replica = to;
  request.host = host;
  request.service = service;
  for (const auto until = Clock::now() + kTry;;) {
    const Status tried = asked.CallWithin<control::DoneT>(request, kAnswer).status();
    if (tried.ok()) return {};
    if (tried.code() != Code::kBusy || Clock::now() >= until) {
      return Unavailable(Text(to.empty() ? "the primary" : "replica " + to,
                              " cannot be reached by RDMA: ", tried.message()));
    }
    std::this_thread::sleep_for(kPause);
  }
}

// Offers a service of its own for the try. It ends with `pd`.
Status TryToPrimary(rnic::Device& device, const std::string& host, const control::Trust& trust,
                    const Answered& joiner) {
  HL_ASSIGN_OR_RETURN(const std::unique_ptr<rnic::ProtectionDomain> pd, device.AllocatePd());
  const std::string service = "way-" + FormatUuid(RandomUuid());
  HL_RETURN_IF_ERROR(device.Publish(service, *pd, {}));
  return TryOne(trust, joiner, "", host, service);
}

}  // namespace

Status TryWays(rnic::Device& device, const std::string& host, const control::Trust& trust,
               const Answered& joiner, std::span<const Answered> members) {
  if (!host.empty()) HL_RETURN_IF_ERROR(TryToPrimary(device, host, trust, joiner));
  for (const Answered& member : members) {
    HL_RETURN_IF_ERROR(TryOne(trust, member, joiner.address, joiner.hello.host, ""));
    HL_RETURN_IF_ERROR(TryOne(trust, joiner, member.address, member.hello.host, ""));
  }
  return {};
}

}  // namespace hyperloop
