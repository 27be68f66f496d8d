// ReplicaHandle: one replica as the primary uses it: its control connection, and access to its
// memory.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "common/group_error.h"
#include "control/client.h"
#include "control/owner.h"
#include "device/remote_access.h"
#include "hyperloop/core/group.h"
#include "hyperloop/core/rnic.h"
#include "region/region_layout.h"

namespace hyperloop {

class ReplicaHandle {
 public:
  ReplicaHandle(control::Endpoint endpoint, control::Trust trust, std::chrono::nanoseconds timeout)
      : endpoint_(std::move(endpoint)),
        trust_(std::move(trust)),
        timeout_(timeout),
        name_("replica " + endpoint_.ToString()) {}

  const std::string& name() const { return name_; }
  const control::Endpoint& endpoint() const { return endpoint_; }
  std::string address() const { return endpoint_.ToString(); }
  const RemoteMemory& region() const { return region_; }
  const RemoteMemory& heartbeat() const { return heartbeat_; }
  // The RNIC that serves it, as it said when it was attached (rnic::Device::rnic).
  uint64_t rnic() const { return rnic_; }
  const control::Trust& trust() const { return trust_; }
  // Where it takes the requests of the bulk lane, as its last Hello said.
  uint16_t bulk_port() const { return bulk_port_; }
  RemoteAccess& remote_access() { return *remote_access_; }

  // Sends a request on the control connection, which is made if there is none.
  template <class Reply, class Request>
  Result<Reply> Call(Request request, std::chrono::nanoseconds timeout) {
    Result<Reply> reply = [&]() -> Result<Reply> {
      HL_RETURN_IF_ERROR(Connect(timeout_));
      return client_->Call<Reply>(std::move(request), timeout);
    }();
    suspect_ = IsGroupError(reply.status().code());
    return reply;
  }
  // The same; the time includes connecting.
  template <class Reply, class Request>
  Result<Reply> CallWithin(Request request, std::chrono::nanoseconds timeout) {
    const auto start = std::chrono::steady_clock::now();
    HL_RETURN_IF_ERROR(Connect(timeout));
    const auto used = std::chrono::steady_clock::now() - start;
    return client_->Call<Reply>(std::move(request), timeout - used);
  }
  template <class Reply, class Request>
  Result<Reply> Call(Request request) {
    return Call<Reply>(std::move(request), timeout_);
  }
  Result<control::HelloReplyT> Hello() { return Hello(timeout_); }
  // The time includes connecting. `owner`: who asks, which shows the replica that its owner lives;
  // null: the asker does not say who it is.
  Result<control::HelloReplyT> Hello(std::chrono::nanoseconds timeout,
                                     const Uuid* owner = nullptr) {
    control::HelloRequestT request;
    if (owner != nullptr) request.owner_id.assign(owner->begin(), owner->end());
    Result<control::HelloReplyT> hello =
        CallWithin<control::HelloReplyT>(std::move(request), timeout);
    if (hello.ok()) bulk_port_ = hello->bulk_port;
    return hello;
  }
  // Sets how long each call may take in which the replica registers its region, or reads all of it
  // that is in use.
  void SetSlowTimeout(std::chrono::nanoseconds timeout) { slow_timeout_ = timeout; }
  // Sets the time at which all such calls must have ended. A call that begins just before it, or
  // later, still has a second and `reading`, the time in which a region is read, so that its
  // replica is not blamed for an earlier one's delay.
  void SetSlowDeadline(std::chrono::steady_clock::time_point deadline,
                       std::chrono::nanoseconds reading) {
    slow_deadline_ = deadline;
    least_slow_ = std::chrono::seconds(1) + reading;
  }
  std::chrono::nanoseconds slow_timeout() const {
    const std::chrono::nanoseconds left = slow_deadline_ - std::chrono::steady_clock::now();
    return std::min(slow_timeout_, std::max(left, least_slow_));
  }
  void Disconnect() { client_.reset(); }
  // From now on calls end with kTimedOut once this descriptor is readable; −1: none.
  void SetStop(int stop) {
    stop_ = stop;
    if (client_ != nullptr) client_->EndWhen(stop);
  }
  // Whether the last question to all replicas (asking.h) had no answer of it in its time.
  bool silent() const { return silent_; }
  void SetSilent(bool silent) { silent_ = silent; }
  // Who answers on the control connection; nobody if there is none, or without keys.
  identity::Peer peer() const { return client_ == nullptr ? identity::Peer() : client_->peer(); }
  // Whether the last Call, or the access to its memory since then, has failed because of the
  // replica or of the way to it.
  bool suspect() const { return suspect_; }
  void ClearSuspicion() { suspect_ = false; }
  // Makes it suspect.
  void Blame() { suspect_ = true; }

  // Gets access to its region and heartbeat word, as the owner of a sealed epoch. The times are
  // RemoteAccess's.
  Status Attach(rnic::Device& device, const Ownership& own, std::chrono::nanoseconds timeout,
                std::chrono::nanoseconds silence = std::chrono::nanoseconds::max());
  // `may_blame`: a broken access is the fault of the replica, or of the way to it.
  void Detach(bool may_blame);
  // Its checksums of a range of the region, by blocks.
  Result<std::vector<uint64_t>> Checksums(const Ownership& own, const Range& range,
                                          uint32_t block_size);
  Result<MemberInfo> Prepare(const Ownership& own, const MemberOptions& options);
  Status ConnectMember(const Ownership& own, const PrimaryInfo& primary,
                       std::span<const MemberInfo> chain);

 private:
  Status Connect(std::chrono::nanoseconds timeout);

  const control::Endpoint endpoint_;
  const control::Trust trust_;
  const std::chrono::nanoseconds timeout_;
  std::chrono::nanoseconds slow_timeout_ = timeout_;
  std::chrono::steady_clock::time_point slow_deadline_ =
      std::chrono::steady_clock::time_point::max();
  std::chrono::nanoseconds least_slow_{};
  const std::string name_;
  std::unique_ptr<control::ControlClient> client_;
  std::unique_ptr<RemoteAccess> remote_access_;
  RemoteMemory region_, heartbeat_;
  uint64_t rnic_ = 0;
  uint16_t bulk_port_ = 0;
  bool suspect_ = false;
  bool silent_ = false;
  int stop_ = -1;
};

}  // namespace hyperloop
