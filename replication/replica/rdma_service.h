// RdmaService: a replica's queues and keys at its RNIC.
//
// The device may die and come back. Watch, which is called about once a second, then drops the old
// objects, and makes and publishes new ones once a daemon answers again. It does not make the
// epoch's objects anew: the owner notices the loss and reconnects. Used by one thread.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>

#include "device/device_opener.h"
#include "hyperloop/core/group.h"
#include "hyperloop/core/log.h"
#include "hyperloop/core/rnic.h"
#include "region/pool.h"
#include "replica/node.h"

namespace hyperloop {

class RdmaService final : public NodeService {
 public:
  // `pool` and `log`, which may be null, outlive the service. `datapath_cpu`: see
  // MemberOptions::cpu.
  RdmaService(DeviceOpener open, Pool& pool, Log* log, int datapath_cpu = -1)
      : open_(std::move(open)), pool_(pool), log_(log), datapath_cpu_(datapath_cpu) {}
  ~RdmaService() override;

  // Opens the device, registers region and node page for inspection, and publishes them.
  Status Start();
  // As Start, and again as long as the RNIC daemon is there but does not answer (kTimedOut), unless
  // `stop`, which is asked after each attempt, says so.
  Status StartPatiently(const std::function<bool()>& stop);
  // Replaces a device that has died, and says it if the pool's medium has failed. If memory runs
  // out in it, the next call goes on.
  void Watch();
  // Valid from a successful Start until the next Watch.
  const rnic::Device& device() const { return *device_; }

  std::string state() const override;
  void End() override { epoch_.Drop(); }
  Status PersistRegion() override {
    return pool_.media().Persist(pool_.region().data(), pool_.region().size());
  }
  Result<Access> Attach(const rnic::QpAddress& peer) override;
  Result<MemberInfo> Prepare(const MemberOptions& options) override;
  Status Connect(const PrimaryInfo& primary, std::span<const MemberInfo> chain) override;
  // On a thread and a device of its own: connecting may take seconds.
  Status TryWay(const std::string& host, const std::string& service) override;

 private:
  // In both structures each object is declared after those from which it is made, so that they are
  // destroyed in the right order. Drop keeps that order when a value is replaced.

  // What tools may read.
  struct Inspection {
    std::unique_ptr<rnic::ProtectionDomain> pd;
    std::unique_ptr<rnic::MemoryRegion> region, page;
    void Drop();
  };
  // Everything that the owner of the sealed epoch was given.
  struct Epoch {
    std::unique_ptr<rnic::ProtectionDomain> pd;
    std::unique_ptr<rnic::MemoryRegion> region, heartbeat;
    std::unique_ptr<rnic::CompletionQueue> cq;
    std::unique_ptr<rnic::QueuePair> admin;
    std::unique_ptr<Member> member;
    void Drop();
  };
  // Whether there is a living device, and the pool's medium has not failed.
  Status CheckDevice() const;
  // Makes the epoch's protection domain and keys, if there are none.
  Status OpenEpoch();

  const DeviceOpener open_;
  Pool& pool_;
  Log* const log_;
  const int datapath_cpu_;
  std::unique_ptr<rnic::Device> device_;
  Inspection inspection_;
  Epoch epoch_;
  Status down_ = Unavailable("not started");  // why there is no device
  bool medium_failed_ = false;                // that was logged
  std::string way_to_;                        // host and service of the try of `way_`
  std::future<Status> way_;  // of which nobody has learnt the outcome; its end waits
};

}  // namespace hyperloop
