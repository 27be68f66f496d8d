// ReplicaMetrics: the page of metrics of a replica.
//
// The thread that serves primaries looks at everything once a second (Sample) and leaves the page
// for others to take (Get), so that whoever asks for it costs that thread nothing. Reading the log
// takes some milliseconds, so ring and data area are looked at in every kLogSamples-th sample only.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "control/messages.h"
#include "files/bulk_server.h"
#include "hyperloop/core/mutex.h"
#include "hyperloop/metrics/page.h"
#include "region/pool.h"
#include "region/region_layout.h"
#include "replica/idle_scrub.h"
#include "replica/node.h"
#include "replica/node_state_store.h"
#include "replica/rdma_service.h"

namespace hyperloop {

class ReplicaMetrics {
 public:
  static constexpr int kLogSamples = 10;

  // The requests of the control plane so far.
  struct Requests {
    uint64_t handled = 0, refused = 0;
    void Count(const control::BodyUnion& reply) {
      ++handled;
      if (reply.type == control::Body::Error) ++refused;
    }
  };

  // All outlive this object, and belong to the thread that calls Sample.
  ReplicaMetrics(const Pool& pool, const NodeStateStore& store, const Node& node,
                 const RdmaService& service, const IdleScrub& scrub, const BulkServer& bulk,
                 const Requests& requests);

  // Makes the page anew. If memory runs out in it, the former page stays.
  void Sample();
  // The newest page; null: there is none yet. Any thread may call it.
  std::shared_ptr<const std::string> Get() const;

 private:
  using Clock = std::chrono::steady_clock;
  // What was found when the log was read last.
  struct Log {
    uint64_t ring = 0, ring_used = 0, sequence = 0, acknowledged = 0, data = 0, data_used = 0;
  };

  std::string Make();
  void AddNode(metrics::Page* page);
  void AddLog(metrics::Page* page);
  // None: the log is damaged.
  std::optional<Log> ReadLog(const RegionInfo& info) const;

  const Pool& pool_;
  const NodeStateStore& store_;
  const Node& node_;
  const RdmaService& service_;
  const IdleScrub& scrub_;
  const BulkServer& bulk_;
  const Requests& requests_;
  const double started_ = metrics::NowSeconds();
  uint64_t heartbeat_ = 0;
  Clock::time_point moved_ = Clock::now();  // when heartbeat_ changed
  int until_log_ = 0;
  std::optional<Log> log_;

  mutable Mutex mutex_;
  std::shared_ptr<const std::string> page_ HL_GUARDED_BY(mutex_);
};

}  // namespace hyperloop
