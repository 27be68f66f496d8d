// Session: what is shown of it in the file of metrics.
#include <algorithm>

#include "hyperloop/metrics/page.h"
#include "primary/session.h"

namespace hyperloop {
namespace {

using metrics::Label;
using metrics::Page;

void AddLane(const LaneCounters& lane, const Label& group, Page* page) {
  const auto get = [](const LaneCounters::Number& number) { return LaneCounters::Get(number); };
  page->Add("hyperloop_primary_acknowledgement_seconds", lane.acknowledgements.Read(), {group});
  page->Add("hyperloop_primary_appends_total", get(lane.appends), {group});
  page->Add("hyperloop_primary_append_bytes_total", get(lane.append_bytes), {group});
  page->Add("hyperloop_primary_syncs_total", get(lane.syncs), {group});
  const uint64_t acked = get(lane.acked_seq), last = std::max(get(lane.last_seq), acked);
  page->Add("hyperloop_primary_sequence", last, {group});
  page->Add("hyperloop_primary_acknowledged_sequence", acked, {group});
  page->Add("hyperloop_primary_records_in_flight", last - acked, {group});
  page->Add("hyperloop_primary_ring_bytes", get(lane.ring), {group});
  page->Add("hyperloop_primary_ring_used_bytes", get(lane.ring_used), {group});
  page->Add("hyperloop_primary_ring_waits_total", get(lane.ring_waits), {group});
  page->Add("hyperloop_primary_checkpoints_total", get(lane.checkpoints), {group});
  page->Add("hyperloop_primary_data_bytes", get(lane.data), {group});
  page->Add("hyperloop_primary_data_used_bytes", get(lane.data_used), {group});
  page->Add("hyperloop_primary_data_reserved_bytes", get(lane.data_reserved), {group});
  page->Add("hyperloop_primary_data_waits_total", get(lane.data_waits), {group});
}

}  // namespace

void Session::NotePresent() {
  std::map<std::string, bool> present;
  for (const auto& replica : configuration_.absent) present[replica.address] = false;
  for (const auto& replica : configuration_.replicas) present[replica.address] = true;
  const MutexLock lock(present_mutex_);
  present_ = std::move(present);
}

std::map<std::string, bool> Session::Present() const {
  const MutexLock lock(present_mutex_);
  return present_;
}

void Session::StartMetrics() {
  if (options_.metrics_file.empty()) return;
  metrics_file_ = std::make_unique<MetricsFile>(
      options_.metrics_file, [this, group = FormatUuid(info_.group)] { return MetricsPage(group); },
      log_, PinnedCpu(*device_));
}

// Called by the thread of metrics_file_, which ends before bulk_ and absent_watch_ do.
void Session::AddReplicas(const metrics::Label& group, Page* page) const {
  const std::vector<std::string> suspected = absent_watch_->Suspected();
  std::map<std::string, BulkLane::Standing> standings;  // by name
  if (bulk_ != nullptr)
    for (BulkLane::Standing& each : bulk_->Standings()) standings[each.name] = std::move(each);
  Redundancy now;
  for (const auto& [address, present] : Present()) {
    const Label replica{"replica", address};
    const bool silent = present && std::ranges::count(suspected, address) != 0;
    const BulkLane::Standing& files = standings["replica " + address];
    const bool catches_up = present && bulk_ != nullptr && !files.holds;
    ++(present ? now.members : now.absent);
    if (silent) ++now.silent;
    if (present && !silent && !catches_up) ++now.holders;
    now.catching_up = now.catching_up || catches_up;
    page->Add("hyperloop_primary_replica_present", present ? 1 : 0, {group, replica});
    page->Add("hyperloop_primary_replica_suspected", silent ? 1 : 0, {group, replica});
    page->Add("hyperloop_primary_replica_catches_up", catches_up ? 1 : 0, {group, replica});
    page->Add("hyperloop_primary_replica_slow", present && files.slow ? 1 : 0, {group, replica});
    page->Add("hyperloop_primary_replica_files_lacking", files.files, {group, replica});
    page->Add("hyperloop_primary_replica_files_lacking_bytes", files.bytes, {group, replica});
  }
  const size_t all = now.members + now.absent;
  const Redundancy whole{all, 0, 0, all, false};
  page->Add("hyperloop_primary_next_failure_stops_writes",
            NextFailure(now, Rules()).empty() ? 0 : 1, {group});
  page->Add("hyperloop_primary_bears_failure_when_whole",
            NextFailure(whole, Rules()).empty() ? 1 : 0, {group});
}

// Called by the thread of metrics_file_, which ends before lane_ does.
std::string Session::MetricsPage(const std::string& group_id) const {
  const Label group{"group", group_id};
  Page page;
  page.Add("hyperloop_primary_written_timestamp_seconds", metrics::NowSeconds(), {group});
  const bool up = !fenced_ && !out_of_reach_;
  page.Add("hyperloop_primary_up", up ? 1 : 0, {group});
  page.Add("hyperloop_primary_fenced", fenced_ ? 1 : 0, {group});
  page.Add("hyperloop_primary_epoch", epoch(), {group});
  const std::optional<Datapath> datapath = armed_;
  const std::optional<WaitMode> wait = armed_wait_;
  if (datapath && wait)
    page.Add("hyperloop_primary_info", 1,
             {group,
              {"datapath", std::string(DatapathName(*datapath))},
              {"wait", std::string(WaitModeName(*wait))}});
  AddReplicas(group, &page);
  page.Add("hyperloop_primary_window", options_.window, {group});
  AddLane(lane_->counters(), group, &page);
  page.Add("hyperloop_primary_failed_calls_total", failed_calls_.load(std::memory_order_relaxed),
           {group});
  page.Add("hyperloop_primary_recoveries_total", recoveries_.load(std::memory_order_relaxed),
           {group});
  page.Add("hyperloop_primary_damaged_files", bulk_ == nullptr ? 0 : bulk_->damaged(), {group});
  return page.Text();
}

}  // namespace hyperloop
