// FollowMetrics: the page of metrics of hyperloopctl follow. The thread that follows leaves it for
// others to take, so that whoever asks for it costs that thread nothing.
#pragma once

#include <memory>
#include <string>

#include "follow/replica_follower.h"
#include "hyperloop/core/mutex.h"
#include "hyperloop/metrics/page.h"

namespace hyperloop::ctl {

class FollowMetrics {
 public:
  // `directory`: what is shown, for people.
  explicit FollowMetrics(std::string directory) : directory_(std::move(directory)) {}

  // Makes the page anew. `looked`: the last look at the replica gave no error. If memory runs out,
  // the former page stays.
  void Sample(const ReplicaFollower& follower, bool looked, ReplicaFollower::Time now);
  // The newest page; null: there is none yet. Any thread may call it.
  std::shared_ptr<const std::string> Get() const;

 private:
  std::string Make(const ReplicaFollower& follower, ReplicaFollower::Time now);

  const std::string directory_;
  const double started_ = metrics::NowSeconds();
  const ReplicaFollower::Time began_ = ReplicaFollower::Time::clock::now();
  double looked_ = 0;  // when, in seconds since 1970

  mutable Mutex mutex_;
  std::shared_ptr<const std::string> page_ HL_GUARDED_BY(mutex_);
};

}  // namespace hyperloop::ctl
