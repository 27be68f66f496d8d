#include "ctl/follow_metrics.h"

#include <chrono>
#include <utility>

#include "hyperloop/core/out_of_memory.h"

namespace hyperloop::ctl {

std::shared_ptr<const std::string> FollowMetrics::Get() const {
  const MutexLock lock(mutex_);
  return page_;
}

void FollowMetrics::Sample(const ReplicaFollower& follower, bool looked,
                           ReplicaFollower::Time now) {
  if (looked) looked_ = metrics::NowSeconds();
  static_cast<void>(RanOutOfMemory([&] {
    auto page = std::make_shared<const std::string>(Make(follower, now));
    const MutexLock lock(mutex_);
    page_ = std::move(page);
  }));
}

std::string FollowMetrics::Make(const ReplicaFollower& follower, ReplicaFollower::Time now) {
  metrics::Page page;
  page.Add("hyperloop_build_info", 1,
           {{"program", "hyperloopctl"}, {"version", HYPERLOOP_VERSION}});
  page.Add("process_start_time_seconds", started_);
  page.Add("hyperloop_follower_info", 1, {{"directory", directory_}, {"group", follower.group()}});
  page.Add("hyperloop_follower_looked_timestamp_seconds", looked_);
  const auto since = [&](const std::optional<ReplicaFollower::Time>& moment) {
    return std::chrono::duration<double>(now - moment.value_or(began_)).count();
  };
  page.Add("hyperloop_follower_lag_seconds", since(follower.as_of()));
  page.Add("hyperloop_follower_replica_lag_seconds", since(follower.whole_as_of()));
  page.Add("hyperloop_follower_waits_for_file", follower.waits_long() ? 1 : 0);
  page.Add("hyperloop_follower_retained_bytes", follower.retained_bytes());
  if (!follower.shown()) return page.Text();
  page.Add("hyperloop_follower_sequence", follower.seq());
  page.Add("hyperloop_follower_lag_records", follower.lag().records);
  page.Add("hyperloop_follower_lag_bytes", follower.lag().bytes);
  return page.Text();
}

}  // namespace hyperloop::ctl
